//! Stored procedures on the command line.

mod shell;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serried::{CallError, CallOptions, ProcedureKeyspace, Procedures};
use serried_actor::Protocol;
use serried_history::{
    CallHistory, CallRecorder, CallVerdict, EventKind, ReadError, TransactionGuarantee, check_calls,
};
use serried_model::{Family, Guarantee};
use serried_protocols::Visitor;
use serried_workload::{
    CallClient, OpenCalls, ProcedureParameters, ProcedureWorkload, audit_calls, make_ready,
};

use super::transactions::TransactionArguments;
use super::{CheckArguments, Preparation, Wing};
use crate::Ended;
use crate::arguments::{LoadArguments, OpenLoopArguments, WorkloadArguments};
use crate::judge::{self, Judged};
use crate::load::{Client, Inspected, Load};
use crate::misuse::number;
use crate::progress::Progress;
use crate::shell::Statements;
use crate::table::Columns;
use shell::ProcedureStatements;

/// How many calls that load the database are in progress at the same time.
const LOADS: usize = 64;

/// The format of histories, for the help.
const FORMAT: &str = r#"Procedures, one call a line, with the lists that it read and then appended to:
  {"type":"invoke","process":3,"time":1200,"f":"call","procedure":"p","value":[["append",5,7]]}
  {"type":"ok","process":3,"time":1900,"f":"call","procedure":"p","value":[["r",5,[6]],["append",5,7]]}
A call with "fail" took no effect; with "refused":true, a check of its procedure refused it."#;

/// Options of workloads of procedures.
#[derive(Args, Clone, Default)]
pub(crate) struct ProcedureArguments {
    /// For counter-calls: how many counters each call increments [default: 10]
    #[arg(long, value_name = "NUMBER")]
    counters_per_call: Option<u64>,
    /// For tpcc-calls: one warehouse with this many districts, each with its rows at one partition (002 §5.4); from 1 to
    /// 10, or a multiple of 10
    #[arg(long, value_name = "NUMBER", conflicts_with = "warehouses")]
    districts: Option<u64>,
    /// For tpcc-calls: how many items there are, each with a row of stock in every warehouse, from 15 to 100000
    /// [default: 1000]
    #[arg(long, value_name = "NUMBER", value_parser = number(15..=100_000_u32))]
    items: Option<u32>,
    /// For list-append-calls and bank-calls: some calls have two immediate pieces, which are merged into one
    #[arg(long)]
    merged: bool,
}

impl Wing for Procedures {
    type Workload = dyn ProcedureWorkload;
    type Recorder = CallRecorder;
    type Shared = ();
    type Before = ();

    const COLUMNS: Columns = Columns::Calls;
    const CHECKED: &'static [(Guarantee, &'static str)] = &[
        (
            Guarantee::StrictSerializable,
            "Some serial order explains the history, in which nothing comes before what had ended when it began",
        ),
        (Guarantee::Serializable, "Some serial order explains the history"),
    ];
    const RECORDED: &'static str = r#"calls of procedures, whose f is "call""#;
    const FORMAT: &'static str = FORMAT;

    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<dyn ProcedureWorkload>> {
        let ProcedureArguments { counters_per_call, districts, items, merged } =
            arguments.of_family.procedures;
        let TransactionArguments { warehouses, small, .. } = arguments.of_family.transactions;
        let WorkloadArguments { keys, theta, writes, value_bytes, .. } = *arguments;
        let parameters = ProcedureParameters {
            keys,
            theta,
            writes,
            value_bytes,
            counters_per_call,
            warehouses,
            districts,
            items,
            small,
            merged,
            ..ProcedureParameters::default()
        };
        Ok(serried_workload::named_procedures(&arguments.workload, &parameters)?)
    }

    fn name(workload: &dyn ProcedureWorkload) -> &'static str {
        workload.name()
    }

    fn usual_protocols(workload: &dyn ProcedureWorkload) -> Vec<String> {
        let all = serried_protocols::of(Procedures::NAME).map(|protocol| protocol.name);
        let mut able = all.filter(|protocol| !workload.merges() || offers_merged(protocol));
        able.next().map(str::to_string).into_iter().collect()
    }

    fn check_offers(workload: &dyn ProcedureWorkload, protocol: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            !workload.merges() || offers_merged(protocol),
            "`{protocol}` has no merged pieces, and `{}` has some with --merged: leave that out",
            workload.name(),
        );
        Ok(())
    }

    /// Calls can also arrive in an open loop.
    fn check_load(_: &dyn ProcedureWorkload, _: &LoadArguments) -> anyhow::Result<()> {
        Ok(())
    }

    fn options(arguments: &LoadArguments) -> CallOptions {
        CallOptions { deadline: arguments.deadline(), backoff: arguments.backoff() }
    }

    /// Registers the workload's procedures, and loads its rows.
    async fn prepare(
        keyspace: &ProcedureKeyspace,
        workload: &dyn ProcedureWorkload,
        preparation: Preparation<'_>,
    ) -> anyhow::Result<()> {
        let Preparation { loads, is_used, progress, .. } = preparation;
        let was_used = is_used && keyspace.procedures().await?.version > 0;
        if let Some(loading) = workload.loading() {
            if loads {
                make_ready(keyspace, workload).await?;
            }
            // It is done if the workload's own procedures are registered.
            if loads && !loading.is_done() {
                load(keyspace, workload, loading.calls(), progress).await?;
            }
            loading.finish();
        }
        make_ready(keyspace, workload).await?;
        if was_used {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            workload.begin_at(now.as_micros() as u64);
            workload.look(keyspace).await?;
        }
        Ok(())
    }

    fn client(load: &Load<Procedures>, i: usize, keyspace: ProcedureKeyspace) -> Client {
        let client = CallClient {
            procedures: keyspace,
            workload: load.workload.clone(),
            measurement: load.measurement.clone(),
            recorder: load.recorder.clone(),
            inquiries: None,
            client: i as u64,
            clients: load.clients as u64,
            seed: load.seed,
        };
        let OpenLoopArguments { rate, most_open } = load.open_loop;
        let Some(rate) = rate else { return Box::pin(client.run()) };
        // Poisson processes add up to one.
        let rate_per_s = rate / load.clients as f64;
        Box::pin(OpenCalls { client, rate_per_s, most_open }.run())
    }

    /// Reads all lists, so that the history shows what was lost; then checks what the workload knows of its rows.
    async fn inspect(load: &Load<Procedures>, keyspace: &ProcedureKeyspace) -> Inspected {
        if let Some(recorder) = &load.recorder {
            audit_calls(keyspace, &*load.workload, recorder, load.clients as u64).await?;
        }
        load.workload.inspect(keyspace).await
    }

    fn judge(
        _: &dyn ProcedureWorkload,
        recorder: CallRecorder,
        promised: Option<Guarantee>,
        (): (),
        file: Option<&Path>,
    ) -> anyhow::Result<Judged> {
        let history = recorder.into_history();
        if let Some(file) = file {
            judge::write(file, |out| history.write_json_lines(out))?;
        }
        let guarantee = promised.unwrap_or(Guarantee::StrictSerializable);
        if guarantee != Guarantee::Nothing && !uses_lists(&history) {
            // What the workload finds in its rows decides.
            let calls = history.events.iter().filter(|event| event.kind == EventKind::Ok).count();
            let text = format!("{calls} calls done, of which none used a list");
            return Ok((Ended::Well, "consistent".into(), text));
        }
        Ok(judge_calls(&history, guarantee))
    }

    fn recognises(line: &[u8]) -> bool {
        CallHistory::recognises(line)
    }

    fn judge_file(
        input: &mut dyn BufRead,
        guarantee: Guarantee,
        _: &CheckArguments,
    ) -> Result<(Judged, bool), ReadError> {
        let history = CallHistory::read_json_lines(input)?;
        let has_succeeded = history.events.iter().any(|event| event.kind == EventKind::Ok);
        if !uses_lists(&history) {
            let reason = "no call of the history uses a list, so that it shows no order";
            return Ok((judge::undecided(reason), true));
        }
        Ok((judge_calls(&history, guarantee), has_succeeded))
    }

    fn statements(procedures: ProcedureKeyspace, deadline: Duration) -> Box<dyn Statements> {
        let procedures =
            procedures.with_options(CallOptions { deadline, ..CallOptions::default() });
        Box::new(ProcedureStatements { procedures })
    }
}

/// Whether procedures may have merged pieces under a protocol.
pub(crate) fn offers_merged(protocol: &str) -> bool {
    struct Offers;

    impl Visitor<Procedures> for Offers {
        type Output = bool;

        fn visit<P: Protocol<Family = Procedures>>(self) -> bool {
            P::OFFERS.merged
        }
    }

    serried_protocols::visit(protocol, Offers).unwrap_or(false)
}

/// Whether a history shows anything of the order of its calls.
fn uses_lists(history: &CallHistory) -> bool {
    history.events.iter().any(|event| !event.reads.is_empty() || !event.appends.is_empty())
}

/// Judges a history by what the keyspace promises.
pub(crate) fn judge_calls(history: &CallHistory, guarantee: Guarantee) -> Judged {
    let guarantee = match guarantee {
        Guarantee::Nothing => return judge::unchecked(),
        Guarantee::Serializable => TransactionGuarantee::Serializable,
        Guarantee::ProcessOrdered => TransactionGuarantee::ProcessOrderedSerializable,
        Guarantee::Causal => TransactionGuarantee::CausallyConvergent,
        // The last two are guarantees of registers, and not checked of procedures.
        Guarantee::StrictSerializable | Guarantee::Linearizable | Guarantee::RegularSequential => {
            TransactionGuarantee::StrictlySerializable
        }
    };
    match check_calls(history, guarantee) {
        CallVerdict::Holds(summary) => (
            Ended::Well,
            summary.guarantee.name().into(),
            format!("{}: {summary}", summary.guarantee),
        ),
        CallVerdict::Violation(violation) => {
            let text = format!("NOT {}\n{violation}", violation.guarantee().name());
            (Ended::Violation, "violation".into(), text)
        }
        CallVerdict::Unknown { reason } => judge::undecided(reason),
    }
}

/// Makes all calls that load the database.
async fn load(
    keyspace: &ProcedureKeyspace,
    workload: &dyn ProcedureWorkload,
    calls: u64,
    progress: &Progress,
) -> anyhow::Result<()> {
    let mut running = tokio::task::JoinSet::<Result<(), CallError>>::new();
    for i in 0..calls {
        if running.len() >= LOADS {
            running.join_next().await.expect("some are under way")??;
        }
        let (keyspace, planned) = (keyspace.clone(), workload.load(i));
        running
            .spawn(async move { keyspace.call(planned.procedure, planned.inputs).await.map(drop) });
        if i % 100 == 99 {
            progress.say(format!("{} of {calls} calls have loaded rows", i + 1));
        }
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}
