//! Registers on the command line.

mod shell;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serried::{RegisterKeyspace, RegisterOptions};
use serried_actor::Protocol;
use serried_history::{
    Budget, EventKind, ReadError, RegisterHistory, RegisterRecorder, RegisterVerdict,
    check_linearizable, check_regular_sequential,
};
use serried_model::{FamilyName, Guarantee, Registers};
use serried_protocols::Visitor;
use serried_workload::{RegisterClient, RegisterParameters, RegisterWorkload};

use super::{CheckArguments, Preparation, Wing};
use crate::Ended;
use crate::arguments::{LoadArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Load};
use crate::progress::Progress;
use crate::shell::Statements;
use crate::table::Columns;
use shell::RegisterStatements;

/// How many deletions are in progress at the same time when keys have to be absent.
const DELETIONS: usize = 64;

/// The format of histories, for the help.
const FORMAT: &str = r#"Registers, one operation on one key a line (v is an integer, or null for an absent key):
  {"type":"invoke","process":3,"time":1200,"f":"read","value":[5,null]}
  {"type":"ok","process":3,"time":1900,"f":"read","value":[5,7]}
An "ok" of "cas" [key,[expected,new]] and of "add" [key,delta] has what was found as a third entry.
An operation with "fail" took no effect. One with "info", or without an end, may take effect at any
later time. The order of the lines says which operations ended before others began. An "ok" may have
"version":[ts,id,rmwc], the operation's place in the order that the database claims."#;

/// Options of workloads of registers.
#[derive(Args, Clone, Default)]
pub(crate) struct RegisterArguments {
    /// For registers: the share of operations that read. Without --writes, all others write
    /// [default: 0.495 for ycsb, 0.99 for tail-at-scale, 0.5 for register]
    #[arg(long, value_name = "SHARE")]
    reads: Option<f64>,
    /// For ycsb and tail-at-scale: the share of operations on the one key that all clients use; the others are
    /// on keys of the client's own [default: 0.02 for ycsb, 0.25 for tail-at-scale]
    #[arg(long, value_name = "SHARE")]
    conflicts: Option<f64>,
    /// For tail-at-scale: how many operations a request has, all in progress at once [default: 30]
    #[arg(long, value_name = "NUMBER")]
    sub_requests: Option<u64>,
    /// For register: read-modify-writes add 1, instead of comparing and swapping
    #[arg(long)]
    adds: bool,
}

impl Wing for Registers {
    type Workload = dyn RegisterWorkload;
    type Recorder = RegisterRecorder;
    type Shared = ();
    type Before = ();

    const COLUMNS: Columns = Columns::Operations;
    const CHECKED: &'static [(Guarantee, &'static str)] = &[
        (
            Guarantee::Linearizable,
            "Each key's operations took effect one by one, between their beginnings and ends",
        ),
        (
            Guarantee::RegularSequential,
            "All operations took effect in one order that respects causality, and none missed a write to its \
             key that had completed before it began",
        ),
    ];
    const RECORDED: &'static str =
        r#"single-key operations on registers, whose f is "read", "write", "cas" or "add""#;
    const FORMAT: &'static str = FORMAT;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn RegisterWorkload>> {
        let RegisterArguments { reads, conflicts, sub_requests, adds } =
            arguments.of_family.registers;
        let parameters = RegisterParameters {
            reads,
            writes: arguments.writes,
            conflicts,
            theta: arguments.theta,
            keys: arguments.keys,
            key_bytes: Some(arguments.key_bytes),
            value_bytes: arguments.value_bytes,
            sub_requests,
            adds,
        };
        Ok(serried_workload::named_registers(&arguments.workload, &parameters)?)
    }

    fn name(workload: &dyn RegisterWorkload) -> &'static str {
        workload.name()
    }

    /// The first that has all operations.
    fn usual_protocol() -> Option<&'static str> {
        let mut all = serried_protocols::of(FamilyName::Registers).map(|protocol| protocol.name);
        all.find(|protocol| offers_rmws(protocol))
    }

    fn usual_protocols(workload: &dyn RegisterWorkload) -> Vec<String> {
        let all = serried_protocols::of(FamilyName::Registers).map(|protocol| protocol.name);
        let able = all.filter(|protocol| !workload.modifies() || offers_rmws(protocol));
        able.map(str::to_string).collect()
    }

    fn check_offers(workload: &dyn RegisterWorkload, protocol: &str) -> anyhow::Result<()> {
        demand!(
            !workload.modifies() || offers_rmws(protocol),
            "`{protocol}` has no read-modify-writes, and `{}` does some: choose one of {}, or shares \
             that leave none, as --reads 0.5 --writes 0.5",
            workload.name(),
            Registers::usual_protocols(workload).join(", ")
        );
        Ok(())
    }

    fn options(arguments: &LoadArguments) -> RegisterOptions {
        RegisterOptions { deadline: arguments.deadline() }
    }

    /// Deletes the workload's keys if a history is recorded: it begins with none.
    async fn prepare(
        keyspace: &RegisterKeyspace,
        workload: &dyn RegisterWorkload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<()> {
        let Preparation { arguments, is_used, clients, progress, .. } = preparation;
        if is_used && arguments.records() {
            clear(keyspace, workload, clients, progress).await?;
        }
        Ok(())
    }

    fn client(load: &Load<Registers>, i: usize, keyspace: RegisterKeyspace) -> Client {
        let client = RegisterClient {
            registers: keyspace,
            workload: load.workload.clone(),
            measurement: load.measurement.clone(),
            recorder: load.recorder.clone(),
            epoch_ns: 0,
            client: i as u64,
            seed: load.seed,
        };
        Box::pin(client.run())
    }

    fn judge(
        _: &dyn RegisterWorkload,
        recorder: RegisterRecorder,
        promised: Option<Guarantee>,
        (): (),
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let history = recorder.into_history();
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        let guarantee = promised.unwrap_or(Guarantee::Linearizable);
        Ok(judge_registers(&history, guarantee, &Budget::default()))
    }

    fn recognises(line: &[u8]) -> bool {
        RegisterHistory::recognises(line)
    }

    fn judge_file(
        input: &mut dyn BufRead,
        guarantee: Guarantee,
        arguments: &CheckArguments,
    ) -> Result<(Judged, bool), ReadError> {
        let history = RegisterHistory::read_json_lines(input)?;
        let budget = Budget { states: arguments.states, ..Budget::default() };
        let has_succeeded = history.events.iter().any(|event| event.kind == EventKind::Ok);
        Ok((judge_registers(&history, guarantee, &budget), has_succeeded))
    }

    fn statements(registers: RegisterKeyspace, deadline: Duration) -> Box<dyn Statements> {
        let registers = registers.with_options(RegisterOptions { deadline });
        Box::new(RegisterStatements { registers })
    }
}

/// Judges a history by what the keyspace promises.
pub(crate) fn judge_registers(
    history: &RegisterHistory,
    guarantee: Guarantee,
    budget: &Budget,
) -> Judged {
    let verdict = match guarantee {
        Guarantee::Nothing => return judge::unchecked(),
        Guarantee::RegularSequential => check_regular_sequential(history, budget),
        _ => check_linearizable(history, budget),
    };
    match verdict {
        RegisterVerdict::Holds(summary) => {
            (Ended::Well, summary.guarantee.name().into(), summary.to_string())
        }
        RegisterVerdict::Violation(violation) => {
            let text = format!("NOT {}\n{violation}", violation.guarantee.name());
            (Ended::Violation, "violation".into(), text)
        }
        RegisterVerdict::Unknown { reason } => judge::undecided(reason),
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
