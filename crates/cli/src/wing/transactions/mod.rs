//! Transactions on the command line.

mod shell;

use std::cell::Cell;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serried::{TransactOptions, TransactionKeyspace, Version};
use serried_history::{
    EventKind, History, Options, ReadError, Recorder, Verdict, check_causal_convergent_with,
    check_process_ordered_with, check_serializable_with, check_strict_serializable_with, counted,
};
use serried_model::{Guarantee, Key, Limits, Transactions};
use serried_protocols::{COMPARED, DEFAULT};
use serried_sim::Initial;
use serried_workload::tpcc::Scale;
use serried_workload::{ClosedLoop, OpenLoop, Parameters, Report, Workload, inspect, preload};

use super::{CheckArguments, Preparation, USUAL_CLIENTS, Wing};
use crate::Ended;
use crate::arguments::{LoadArguments, OpenLoopArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Inspected, Load};
use crate::progress::Progress;
use crate::shell::Statements;
use crate::table::Columns;
use shell::TransactionStatements;

/// What it is to be causal, for the help.
pub(super) const CAUSAL: &str = "Each process saw transactions whole, and with all that they depend on, and all processes agree which \
     write of a key is the later one";

/// How many transactions load keys at the same time.
const LOADERS: u64 = 4;

/// Options of workloads of transactions.
#[derive(Args, Clone, Default)]
pub(crate) struct TransactionArguments {
    /// For retwis: increment the keys that are both read and written, instead of writing values that do
    /// not depend on what was read
    #[arg(long)]
    dependent: bool,
    /// For counter, list-append, and retwis with --dependent: add and append where the values are, instead of reading and
    /// writing them. With --check or --history, the counter is also read, as the history has to say what was found
    #[arg(long)]
    modify: bool,
    /// For counter: read with `get` what will be written, and not with `get_for_update`
    #[arg(long, conflicts_with = "modify")]
    plain_reads: bool,
    /// For retwis and tpcc: read one key after the other, as with systems that can't read several at once
    #[arg(long)]
    sequential: bool,
    /// For tpcc and tpcc-calls: how many warehouses there are, from 1 to 65535; each of tpcc has about 540,000 keys
    /// and 70 MB of data, and each of tpcc-calls about 12,000 rows [default: 100 for tpcc, 1 for tpcc-calls]
    #[arg(long)]
    pub(super) warehouses: Option<u64>,
    /// For tpcc and tpcc-calls: warehouses of about 400 keys with the same transactions, for a quick check
    #[arg(long)]
    pub(super) small: bool,
}

impl Wing for Transactions {
    type Workload = dyn Workload;
    type Recorder = Recorder;
    type Shared = ();
    /// A version that is above everything that was there before.
    type Before = Option<Version>;

    const COLUMNS: Columns = Columns::Transactions;
    const CHECKED: &'static [(Guarantee, &'static str)] = &[
        (Guarantee::Serializable, "Transactions could have run one after the other"),
        (
            Guarantee::StrictSerializable,
            "They could have run so, each after all that had ended before it began",
        ),
        (Guarantee::ProcessOrdered, "They could have run so, those of each process in its order"),
        (Guarantee::Causal, CAUSAL),
    ];
    const RECORDED: &'static str = r#"transactions, whose f is "txn""#;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn Workload>> {
        if let Some(replay) = arguments.trace.workload()? {
            return Ok(replay);
        }
        let TransactionArguments { dependent, modify, plain_reads, sequential, warehouses, small } =
            arguments.of_family.transactions;
        let parameters = Parameters {
            keys: arguments.keys.or((arguments.workload == "retwis").then_some(1_000_000)),
            theta: arguments.theta,
            key_bytes: arguments.key_bytes,
            value_bytes: arguments.value_bytes,
            writes: arguments.writes,
            dependent,
            modify,
            plain_reads,
            sequential,
            warehouses,
            scale: if small { Scale::SMALL } else { Scale::FULL },
        };
        Ok(serried_workload::named(&arguments.workload, &parameters)?)
    }

    fn name(workload: &dyn Workload) -> &'static str {
        workload.name()
    }

    fn usual_protocol() -> Option<&'static str> {
        Some(DEFAULT)
    }

    fn usual_protocols(_: &dyn Workload) -> Vec<String> {
        COMPARED.map(str::to_string).into()
    }

    fn usual_clients(workload: &dyn Workload) -> usize {
        workload.usual_clients().unwrap_or(USUAL_CLIENTS)
    }

    /// Transactions can also arrive in an open loop.
    fn check_load(workload: &dyn Workload, arguments: &LoadArguments) -> anyhow::Result<()> {
        demand!(
            workload.keeps_histories() || !arguments.records(),
            "--check and --history are not for `{}`, whose values do not say which transaction has written them",
            workload.name()
        );
        demand!(
            arguments.open_loop.rate.is_none() || !workload.keeps_pauses(),
            "--rate begins transactions at times of its own, and the pauses of a trace would be lost: add --closed"
        );
        Ok(())
    }

    fn limits(workload: &dyn Workload) -> Limits {
        workload.limits()
    }

    fn initial(workload: &Arc<dyn Workload>) -> Option<Initial> {
        let workload = workload.clone();
        Some(Initial::new(move |key| workload.initial_value(key)))
    }

    fn options(arguments: &LoadArguments) -> TransactOptions {
        TransactOptions {
            deadline: arguments.deadline(),
            attempts: u32::MAX,
            backoff: arguments.backoff(),
        }
    }

    /// Loads the workload's keys.
    async fn prepare(
        keyspace: &TransactionKeyspace,
        workload: &dyn Workload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<Option<Version>> {
        if preparation.is_used && !preparation.overwrites {
            check_absent(keyspace, workload.foreign_keys(), preparation.progress).await?;
        }
        let marker = keyspace.put("\u{0}serried-bench", "").await?;
        let mut latest = marker.version;
        if preparation.is_used {
            workload.start_afresh(latest);
        }
        if workload.needs_an_unused_keyspace() {
            let marker = format!("\u{0}serried-bench/{}", workload.name());
            let (before, name) = (keyspace.get(marker.as_str()).await?, workload.name());
            demand!(
                before.is_none() || !preparation.arguments.records(),
                "`{name}` has run on this keyspace before, and what it has left would count as wrong: \
                 choose a keyspace on which it has not run, or leave --check and --history away"
            );
            keyspace.put(marker.as_str(), "").await?;
        }
        if preparation.loads {
            let loaded = Cell::new(0);
            let tell = |count| {
                loaded.set(loaded.get() + count);
                preparation.progress.say(format!("{} keys loaded", loaded.get()));
            };
            let load = |loader| preload(keyspace, workload, loader, LOADERS, tell);
            let (a, b, c, d) = tokio::try_join!(load(0), load(1), load(2), load(3))?;
            latest = [latest, a, b, c, d].into_iter().max().unwrap_or(latest);
        }
        Ok(Some(latest))
    }

    fn client(load: &Load<Transactions>, i: usize, keyspace: TransactionKeyspace) -> Client {
        let (client, seed, measurement) = (i as u64, load.seed, load.measurement.clone());
        let (workload, recorder) = (load.workload.clone(), load.recorder.clone());
        workload.set_clients(load.clients);
        let OpenLoopArguments { rate, most_open } = load.open_loop;
        let Some(rate) = rate else {
            let client = ClosedLoop { keyspace, workload, measurement, recorder, client, seed };
            return Box::pin(client.run());
        };
        let client = OpenLoop {
            keyspace,
            workload,
            measurement,
            recorder,
            client,
            seed,
            // Poisson processes add up to one.
            rate_per_s: rate / load.clients as f64,
            most_open,
        };
        Box::pin(client.run())
    }

    async fn inspect(load: &Load<Transactions>, keyspace: &TransactionKeyspace) -> Inspected {
        inspect(&*load.workload, keyspace, load.measurement.latest()).await
    }

    fn figures(workload: &dyn Workload, report: &Report, (): &()) -> Vec<(&'static str, f64)> {
        workload.figures(report)
    }

    fn judge(
        workload: &dyn Workload,
        recorder: Recorder,
        promised: Option<Guarantee>,
        loaded: Option<Version>,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let history = recorder.into_history();
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        let guarantee = promised.unwrap_or(Guarantee::Serializable);
        if guarantee != Guarantee::Nothing
            && let Err(wrong) = workload.check(&history)
        {
            return Ok((Ended::Violation, "violation".into(), wrong));
        }
        Ok(judge_transactions(&history, guarantee, loaded))
    }

    fn recognises(line: &[u8]) -> bool {
        let event = serde_json::from_slice::<serde_json::Value>(line).ok();
        event.is_some_and(|event| event.get("f").is_some_and(|f| f == "txn"))
    }

    fn judge_file(
        input: &mut dyn BufRead,
        guarantee: Guarantee,
        arguments: &CheckArguments,
    ) -> Result<(Judged, bool), ReadError> {
        let history = History::read_json_lines(input)?;
        let has_succeeded = history.events.iter().any(|event| event.kind == EventKind::Ok);
        let judged = judge_transactions(&history, guarantee, arguments.initial_before);
        Ok((judged, has_succeeded))
    }

    fn statements(keyspace: TransactionKeyspace, deadline: Duration) -> Box<dyn Statements> {
        let options = TransactOptions { deadline, ..TransactOptions::default() };
        Box::new(TransactionStatements::new(keyspace.with_options(options)))
    }
}

/// How many keys are looked at in one transaction.
const LOOKED_AT_ONCE: usize = 32;

/// Checks that a keyspace has none of these keys, all of which a run would overwrite.
async fn check_absent(
    keyspace: &TransactionKeyspace,
    keys: &[Key],
    progress: &Progress,
) -> anyhow::Result<()> {
    for (number, some) in keys.chunks(LOOKED_AT_ONCE).enumerate() {
        let found = keyspace.get_many(some.iter().cloned()).await?;
        if let Some((key, _)) = some.iter().zip(&found).find(|(_, value)| value.is_some()) {
            demand!(
                false,
                "the keyspace has the trace's key `{key}`, and the run would overwrite it: choose a keyspace \
                 without keys of the trace, or add --overwrite if its values may be lost"
            );
        }
        progress.say(format!("{} keys are not there", number * LOOKED_AT_ONCE + some.len()));
    }
    Ok(())
}

/// Judges a history by what the keyspace promises. Everything up to `loaded` was written before it begins.
pub(crate) fn judge_transactions(
    history: &History,
    guarantee: Guarantee,
    loaded: Option<Version>,
) -> Judged {
    let options = Options { initial_before: loaded, ..Options::default() };
    judge_with(history, guarantee, &options)
}

/// The same, with other assumptions.
pub(crate) fn judge_with(history: &History, guarantee: Guarantee, options: &Options) -> Judged {
    let verdict = match guarantee {
        Guarantee::Nothing => return judge::unchecked(),
        Guarantee::StrictSerializable => check_strict_serializable_with(history, options),
        Guarantee::ProcessOrdered => check_process_ordered_with(history, options),
        Guarantee::Causal => check_causal_convergent_with(history, options),
        // The last two are guarantees of registers, and not checked of transactions.
        Guarantee::Serializable | Guarantee::Linearizable | Guarantee::RegularSequential => {
            check_serializable_with(history, options)
        }
    };
    match verdict {
        Verdict::Holds(summary) => {
            let text = format!(
                "{}: {} on {} ({} failed, {} unknown), {} and no cycle",
                summary.guarantee,
                counted(summary.committed, "committed transaction"),
                counted(summary.keys, "key"),
                summary.failed,
                summary.unknown,
                counted(summary.edges, "edge")
            );
            (Ended::Well, summary.guarantee.name().into(), text)
        }
        Verdict::Violation(violation) => {
            let text = format!("NOT {}\n{violation}", violation.guarantee());
            (Ended::Violation, "violation".into(), text)
        }
        Verdict::Unknown { reason } => judge::undecided(reason),
    }
}
