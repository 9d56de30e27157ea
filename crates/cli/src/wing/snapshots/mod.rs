//! Snapshots on the command line.

mod shell;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serried::{SnapshotKeyspace, SnapshotOptions, Snapshots, Version, WriteOutcome};
use serried_actor::Protocol;
use serried_history::{Deletes, Options, ReadError, Recorder};
use serried_model::{FamilyName, Guarantee, Transactions};
use serried_protocols::Visitor;
use serried_sim::Initial;
use serried_workload::{
    Report, SnapshotClient, SnapshotParameters, SnapshotWorkload, Staleness, StalenessReport,
    Versions, attribute, begin_after,
};

use super::transactions::{CAUSAL, judge_with};
use super::{CheckArguments, Preparation, Wing};
use crate::arguments::{LoadArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Load};
use crate::misuse::number;
use crate::progress::Progress;
use crate::shell::Statements;
use crate::table::Columns;
use shell::SnapshotStatements;

/// How many writes are in progress at the same time when keys are loaded or deleted.
const WRITES: usize = 256;

/// Options of workloads of snapshots.
#[derive(Args, Clone, Default)]
pub(crate) struct SnapshotArguments {
    /// For snapshots: how many keys a request has; for snapshot it reads at most so many [default: 5]
    #[arg(long, value_name = "NUMBER")]
    keys_per_request: Option<u64>,
}

/// How sessions of snapshots are.
#[derive(Args, Clone, Default)]
pub(crate) struct SessionArguments {
    /// For snapshots with version clocks: how far a session may stay behind what it can know of, in milliseconds
    /// [default: 100]
    #[arg(long, value_name = "MS", value_parser = number(0.0..=1e9))]
    freshness_ms: Option<f64>,
    /// For snapshots, in `bench`: all clients of a connection share one session
    #[arg(long)]
    shared_sessions: bool,
    /// For snapshots with version clocks: measure how old what is read is, as far as the clients of this process know
    /// (004 §7.5). This takes time for each key that is read
    #[arg(long)]
    staleness: bool,
}

impl SessionArguments {
    /// Whether staleness is measured.
    pub(crate) fn staleness(&self) -> bool {
        self.staleness
    }

    /// Whether all clients share one session.
    pub(crate) fn are_shared(&self) -> bool {
        self.shared_sessions
    }

    fn options(&self, deadline: Duration) -> SnapshotOptions {
        let usual = SnapshotOptions::default();
        let freshness = self.freshness_ms.map(|ms| Duration::from_secs_f64(ms / 1e3));
        SnapshotOptions { deadline, freshness: freshness.unwrap_or(usual.freshness) }
    }
}

impl Wing for Snapshots {
    type Workload = dyn SnapshotWorkload;
    type Recorder = Recorder;
    type Shared = Staleness;
    /// By key, the version of what the preparation has written.
    type Before = BTreeMap<u64, Version>;

    const COLUMNS: Columns = Columns::Operations;
    const CHECKED: &'static [(Guarantee, &'static str)] = &[
        (
            Guarantee::ProcessOrdered,
            "Transactions could have run one after the other, those of each process in its order",
        ),
        (
            Guarantee::StrictSerializable,
            "They could have run so, each after all that had ended before it began",
        ),
        (Guarantee::Causal, CAUSAL),
    ];
    const RECORDED: &'static str = r#"snapshots, which are transactions, too"#;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn SnapshotWorkload>> {
        let SnapshotArguments { keys_per_request, .. } = arguments.of_family.snapshots;
        let WorkloadArguments { keys, theta, writes, key_bytes, value_bytes, .. } = *arguments;
        let key_bytes = Some(key_bytes);
        let parameters =
            SnapshotParameters { writes, keys, theta, key_bytes, value_bytes, keys_per_request };
        Ok(serried_workload::named_snapshots(&arguments.workload, &parameters)?)
    }

    fn name(workload: &dyn SnapshotWorkload) -> &'static str {
        workload.name()
    }

    fn usual_protocols(workload: &dyn SnapshotWorkload) -> Vec<String> {
        able(workload).map(str::to_string).collect()
    }

    fn check_offers(workload: &dyn SnapshotWorkload, protocol: &str) -> anyhow::Result<()> {
        let able = able(workload).collect::<Vec<_>>().join(", ");
        let choice = match able.is_empty() {
            true => String::new(),
            false => format!(", as {able}"),
        };
        demand!(
            !workload.needs_write_transactions() || offers_write_transactions(protocol),
            "`{protocol}` has no write transactions, and `{}` needs them: choose a protocol that is {}{choice}",
            workload.name(),
            Guarantee::Causal
        );
        Ok(())
    }

    fn initial(workload: &Arc<dyn SnapshotWorkload>) -> Option<Initial> {
        let value = workload.initial()?;
        Some(Initial::new(move |_| Some(value.clone())))
    }

    fn options(arguments: &LoadArguments) -> SnapshotOptions {
        arguments.sessions.options(arguments.deadline())
    }

    /// Loads the workload's keys. If a history is recorded, and the keyspace was used, those that are not loaded are
    /// deleted.
    async fn prepare(
        keyspace: &SnapshotKeyspace,
        workload: &dyn SnapshotWorkload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<BTreeMap<u64, Version>> {
        let Preparation { arguments, loads, is_used, progress, .. } = preparation;
        let initial = workload.initial();
        let needs_writes = match initial {
            Some(_) => loads,
            None => is_used && arguments.records(),
        };
        match needs_writes {
            true => write_all(keyspace, workload, progress).await,
            false => Ok(BTreeMap::new()),
        }
    }

    fn client(load: &Load<Snapshots>, i: usize, keyspace: SnapshotKeyspace) -> Client {
        let has_clocks = keyspace.has_version_clocks();
        let session = if load.shares_sessions { keyspace } else { keyspace.session() };
        let with =
            session.has_write_transactions().then(|| load.workload.with_write_transactions());
        let client = SnapshotClient {
            session,
            workload: with.flatten().unwrap_or_else(|| load.workload.clone()),
            measurement: load.measurement.clone(),
            recorder: load.recorder.clone(),
            staleness: Some(load.shared.clone()).filter(|_| has_clocks && load.measures_staleness),
            front_ends: Vec::new(),
            client: i as u64,
            seed: load.seed,
            ended_sessions: 0,
        };
        Box::pin(client.run())
    }

    /// The means of rounds, bytes and omissions, and how old what was read was, if there are versions.
    fn figures(
        _: &dyn SnapshotWorkload,
        report: &Report,
        staleness: &Staleness,
    ) -> Vec<(&'static str, f64)> {
        let mut figures: Vec<_> = report.means.iter().map(|(name, mean)| (*name, *mean)).collect();
        let StalenessReport {
            reads,
            fresh,
            stale_us_p50: _,
            stale_us_p90,
            stale_us_p99,
            stale_us_max,
        } = staleness.report();
        if reads > 0 {
            let ms = |us: u64| us as f64 / 1e3;
            figures.push(("fresh_share", fresh));
            figures.push(("stale_ms_p90", ms(stale_us_p90)));
            figures.push(("stale_ms_p99", ms(stale_us_p99)));
            figures.push(("stale_ms_max", ms(stale_us_max)));
        }
        figures
    }

    fn judge(
        _: &dyn SnapshotWorkload,
        recorder: Recorder,
        promised: Option<Guarantee>,
        before: BTreeMap<u64, Version>,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let mut history = recorder.into_history();
        begin_after(&mut history, &before);
        let history = attribute(history);
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        let guarantee = promised.unwrap_or(Guarantee::ProcessOrdered);
        let options = Options { deletes: Deletes::Remembered, ..Options::default() };
        Ok(judge_with(&history, guarantee, &options))
    }

    /// They look like those of transactions, and are checked as such.
    fn recognises(_: &[u8]) -> bool {
        false
    }

    fn judge_file(
        input: &mut dyn BufRead,
        guarantee: Guarantee,
        arguments: &CheckArguments,
    ) -> Result<(Judged, bool), ReadError> {
        Transactions::judge_file(input, guarantee, arguments)
    }

    fn statements(keyspace: SnapshotKeyspace, deadline: Duration) -> Box<dyn Statements> {
        let options = SnapshotOptions { deadline, ..SnapshotOptions::default() };
        Box::new(SnapshotStatements { session: keyspace.with_options(options) })
    }
}

/// The protocols that have what the workload needs.
fn able(workload: &dyn SnapshotWorkload) -> impl Iterator<Item = &'static str> {
    let all = serried_protocols::of(FamilyName::Snapshots).map(|protocol| protocol.name);
    let needs = workload.needs_write_transactions();
    all.filter(move |protocol| !needs || offers_write_transactions(protocol))
}

/// Whether a protocol of snapshots is known to have write transactions.
pub(crate) fn offers_write_transactions(protocol: &str) -> bool {
    struct Offered;

    impl Visitor<Snapshots> for Offered {
        type Output = bool;

        fn visit<P: Protocol<Family = Snapshots>>(self) -> bool {
            P::OFFERS.write_transactions
        }
    }

    serried_protocols::visit(protocol, Offered).unwrap_or(false)
}

/// Writes the initial values of all keys, or deletes them. Returns the versions of these writes, by key.
async fn write_all(
    session: &SnapshotKeyspace,
    workload: &dyn SnapshotWorkload,
    progress: &Progress,
) -> anyhow::Result<BTreeMap<u64, Version>> {
    let (initial, versions) = (workload.initial(), Versions::of(session));
    let (mut writes, mut written) = (tokio::task::JoinSet::new(), BTreeMap::new());
    let enter = |written: &mut BTreeMap<u64, Version>, (number, outcome): (u64, WriteOutcome)| {
        written.insert(number, versions.placed(number, outcome.stamp));
        if written.len().is_multiple_of(1000) {
            progress.say(format!("{} keys written", written.len()));
        }
    };
    for number in 0..workload.keys() {
        if writes.len() >= WRITES {
            enter(&mut written, writes.join_next().await.expect("some are under way")??);
        }
        let (session, key, value) = (session.clone(), workload.key(number), initial.clone());
        writes.spawn(async move {
            let outcome = match value {
                Some(value) => session.write(key, value).await,
                None => session.delete(key).await,
            };
            outcome.map(|outcome| (number, outcome))
        });
    }
    while let Some(ended) = writes.join_next().await {
        enter(&mut written, ended??);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_that_needs_write_transactions_is_refused_where_there_are_none() {
        let named =
            |name| serried_workload::named_snapshots(name, &SnapshotParameters::default()).unwrap();
        for protocol in ["port", "scylla-occ", "plain"] {
            let refused = Snapshots::check_offers(&*named("eiger"), protocol).unwrap_err();
            let text = refused.to_string();
            let wrong = format!(
                "`{protocol}` has no write transactions, and `eiger` needs them: choose a protocol that is causal"
            );
            assert!(text.starts_with(&wrong), "{text}");
            for name in ["ycsb-groups", "snapshot"] {
                assert!(Snapshots::check_offers(&*named(name), protocol).is_ok(), "{name}");
            }
        }
        assert!(Snapshots::usual_protocols(&*named("snapshot")).len() >= 3);
        for protocol in Snapshots::usual_protocols(&*named("eiger")) {
            assert!(Snapshots::check_offers(&*named("eiger"), &protocol).is_ok(), "{protocol}");
        }
    }
}
