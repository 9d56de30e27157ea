//! Registers on the command line.

use std::path::Path;
use std::sync::Arc;

use serried::{RegisterKeyspace, Version};
use serried_actor::Protocol;
use serried_history::RegisterRecorder;
use serried_model::{FamilyName, Guarantee, Registers};
use serried_protocols::Visitor;
use serried_sim::Initial;
use serried_workload::{RegisterClient, RegisterWorkload, Report};

use super::{Preparation, Wing};
use crate::arguments::{LoadArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Inspected, Load};
use crate::progress::Progress;

/// How many deletions are in progress at the same time when keys have to be absent.
const DELETIONS: usize = 64;

impl Wing for Registers {
    type Workload = dyn RegisterWorkload;
    type Recorder = RegisterRecorder;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn RegisterWorkload>> {
        arguments.of_registers()
    }

    fn name(workload: &dyn RegisterWorkload) -> &'static str {
        workload.name()
    }

    fn usual_protocols(workload: &dyn RegisterWorkload) -> Vec<String> {
        let all = serried_protocols::of(FamilyName::Registers).map(|protocol| protocol.name);
        let able = all.filter(|protocol| !workload.modifies() || offers_rmws(protocol));
        able.map(str::to_string).collect()
    }

    fn check_offers(workload: &dyn RegisterWorkload, protocol: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !workload.modifies() || offers_rmws(protocol),
            "`{protocol}` has no read-modify-writes, and `{}` does some: choose one of {}, or shares \
             that leave none, as --reads 0.5 --writes 0.5",
            workload.name(),
            Registers::usual_protocols(workload).join(", ")
        );
        Ok(())
    }

    fn check_load(
        workload: &dyn RegisterWorkload,
        arguments: &LoadArguments,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(
            arguments.open_loop.rate.is_none(),
            "--rate is for workloads of transactions, and `{}` is one of registers",
            workload.name()
        );
        Ok(())
    }

    fn initial(_: &Arc<dyn RegisterWorkload>) -> Option<Initial> {
        None
    }

    /// Deletes the workload's keys if a history is recorded: it begins with none.
    async fn prepare(
        keyspace: &RegisterKeyspace,
        workload: &dyn RegisterWorkload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<Option<Version>> {
        let Preparation { arguments, is_used, clients, progress, .. } = preparation;
        if is_used && arguments.records() {
            let keyspace = keyspace.with_options(arguments.register_options());
            clear(&keyspace, workload, clients, progress).await?;
        }
        Ok(None)
    }

    fn client(load: &Load<Registers>, i: usize, keyspace: &RegisterKeyspace) -> Client {
        let client = RegisterClient {
            registers: keyspace.with_options(load.register_options),
            workload: load.workload.clone(),
            measurement: load.measurement.clone(),
            recorder: load.recorder.clone(),
            epoch_ns: 0,
            client: i as u64,
            seed: load.seed,
        };
        Box::pin(client.run())
    }

    async fn inspect(_: &Load<Registers>, _: &RegisterKeyspace) -> Inspected {
        Ok(None)
    }

    fn figures(_: &dyn RegisterWorkload, _: &Report) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn judge(
        _: &dyn RegisterWorkload,
        recorder: RegisterRecorder,
        promised: Option<Guarantee>,
        _: Option<Version>,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let history = recorder.into_history();
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        Ok(judge::judge_registers(&history, promised.unwrap_or(Guarantee::Linearizable)))
    }
}

/// Whether a protocol of registers has read-modify-writes.
pub(crate) fn offers_rmws(protocol: &str) -> bool {
    struct Offers;

    impl Visitor<Registers> for Offers {
        type Output = bool;

        fn visit<P: Protocol<Family = Registers>>(self) -> bool {
            P::OFFERS.rmws
        }
    }

    serried_protocols::visit(protocol, Offers).unwrap_or(false)
}

/// Deletes all keys that this many clients may touch.
async fn clear(
    registers: &RegisterKeyspace,
    workload: &dyn RegisterWorkload,
    clients: usize,
    progress: &Progress,
) -> anyhow::Result<()> {
    let (mut deletions, mut deleted) = (tokio::task::JoinSet::new(), 0);
    for number in workload.keys(clients as u64) {
        if deletions.len() >= DELETIONS {
            deletions.join_next().await.expect("some are under way")??;
        }
        let (registers, key) = (registers.clone(), workload.key(number));
        deletions.spawn(async move { registers.delete(key).await });
        deleted += 1;
        if deleted % 1000 == 0 {
            progress.say(format!("{deleted} keys deleted"));
        }
    }
    while let Some(ended) = deletions.join_next().await {
        ended??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_modify_writes_are_known_from_what_a_protocol_offers() {
        assert!(!offers_rmws("abd"));
        assert!(offers_rmws("epaxos"));
        assert!(!offers_rmws("morty") && !offers_rmws("no such protocol"));
    }
}
