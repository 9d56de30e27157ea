//! What the command line does differently for each family of keyspaces.

pub(crate) mod procedures;
pub(crate) mod registers;
pub(crate) mod snapshots;
pub(crate) mod transactions;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serried::Version;
use serried_history::{Budget, ReadError};
use serried_model::{FamilyName, Guarantee, Limits};
use serried_protocols::{Registered, info};
use serried_session::Session;
use serried_sim::Initial;
use serried_workload::Report;

use crate::arguments::{LoadArguments, WorkloadArguments};
use crate::judge::Judged;
use crate::load::{Client, Inspected, Load};
use crate::progress::Progress;
use crate::shell::Statements;
use crate::table::Columns;
use procedures::ProcedureArguments;
use registers::RegisterArguments;
use snapshots::SnapshotArguments;
use transactions::TransactionArguments;

/// The options that only workloads of one family have.
#[derive(Args, Clone, Default)]
pub(crate) struct FamilyArguments {
    #[command(flatten)]
    transactions: TransactionArguments,
    #[command(flatten)]
    registers: RegisterArguments,
    #[command(flatten)]
    procedures: ProcedureArguments,
    #[command(flatten)]
    snapshots: SnapshotArguments,
}

/// The options that only the checkers of one family have.
#[derive(Args)]
pub(crate) struct CheckArguments {
    /// For registers: how many states to visit at most in the search for an order. If they do not
    /// suffice, it can't be decided. Matters only where values repeat
    #[arg(long, value_name = "NUMBER", default_value_t = Budget::default().states)]
    states: u64,
    /// For transactions: writes with this version or an older one were made before the history begins,
    /// so that the history may read what it has not written
    #[arg(long, value_name = "VERSION")]
    initial_before: Option<Version>,
}

/// The family to which a history belongs if nothing says so.
const USUAL: FamilyName = FamilyName::Transactions;

/// How many clients there are unless the workload knows it or a number is chosen.
const USUAL_CLIENTS: usize = 16;

/// Runs `$body` with `$Wing` standing for the family that is called `$name`.
macro_rules! with_wing {
    ($name:expr, $Wing:ident => $body:expr) => {
        match $name {
            serried_model::FamilyName::Transactions => {
                type $Wing = serried_model::Transactions;
                $body
            }
            serried_model::FamilyName::Registers => {
                type $Wing = serried_model::Registers;
                $body
            }
            serried_model::FamilyName::Procedures => {
                type $Wing = serried_procedures::Procedures;
                $body
            }
            serried_model::FamilyName::Snapshots => {
                type $Wing = serried_model::Snapshots;
                $body
            }
        }
    };
}
pub(crate) use with_wing;

/// A family with its workloads, histories, checkers and statements of the shell.
pub(crate) trait Wing: Session + Registered {
    /// What clients do.
    type Workload: ?Sized + Send + Sync;
    /// Records what they have done.
    type Recorder: Default + Send + Sync;
    /// What the clients of a run have in common beside that.
    type Shared: Default + Send + Sync;
    /// What is known of the data from before a run.
    type Before: Default + Send + Sync;

    /// The columns of the tables of results.
    const COLUMNS: Columns;
    /// The guarantees that its checkers can judge, each with a line for the help. The first is the usual one.
    const CHECKED: &'static [(Guarantee, &'static str)];
    /// What its histories have, and which `f` they have in files.
    const RECORDED: &'static str;
    /// More on the format of these files, for the help.
    const FORMAT: &'static str = "";

    /// The workload that is asked for. [`WorkloadArguments::workload`] checks the arguments before.
    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<Self::Workload>>;

    /// The workload's name.
    fn name(workload: &Self::Workload) -> &'static str;

    /// The protocol of keyspaces for which none is named.
    fn usual_protocol() -> Option<&'static str> {
        serried_protocols::of(Self::NAME).map(|protocol| protocol.name).next()
    }

    /// The protocols that are compared if none are chosen.
    fn usual_protocols(_: &Self::Workload) -> Vec<String> {
        serried_protocols::of(Self::NAME).map(|protocol| protocol.name.to_string()).collect()
    }

    /// How many clients there are if no number is chosen.
    fn usual_clients(_: &Self::Workload) -> usize {
        USUAL_CLIENTS
    }

    /// Checks that `protocol`, which is of this family, has what the workload needs.
    fn check_offers(_: &Self::Workload, _protocol: &str) -> anyhow::Result<()> {
        Ok(())
    }

    /// Checks that clients can do the workload as `arguments` say.
    fn check_load(workload: &Self::Workload, arguments: &LoadArguments) -> anyhow::Result<()> {
        demand!(
            arguments.open_loop.rate.is_none(),
            "--rate is for workloads of transactions and procedures, and `{}` is one of {}",
            Self::name(workload),
            Self::NAME
        );
        Ok(())
    }

    /// The limits of clusters that are started or simulated for the workload.
    fn limits(_: &Self::Workload) -> Limits {
        Limits::default()
    }

    /// What keys hold before a simulated run.
    fn initial(_: &Arc<Self::Workload>) -> Option<Initial> {
        None
    }

    /// The options of a load's operations.
    fn options(arguments: &LoadArguments) -> Self::Options;

    /// Prepares a real keyspace for a run.
    fn prepare(
        keyspace: &Self::Keyspace,
        workload: &Self::Workload,
        preparation: Preparation<'_>,
    ) -> impl Future<Output = anyhow::Result<Self::Before>>;

    /// The `i`-th client of a load, at `keyspace`, which has the load's options.
    fn client(load: &Load<Self>, i: usize, keyspace: Self::Keyspace) -> Client;

    /// What the workload finds out about the database after a run that is to be checked.
    fn inspect(_: &Load<Self>, _: &Self::Keyspace) -> impl Future<Output = Inspected> + Send {
        std::future::ready(Ok(None))
    }

    /// Figures by which the workload is usually compared.
    fn figures(_: &Self::Workload, _: &Report, _: &Self::Shared) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The verdict on what was recorded, which is also written to `file`.
    fn judge(
        workload: &Self::Workload,
        recorder: Self::Recorder,
        promised: Option<Guarantee>,
        before: Self::Before,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged>;

    /// Whether the first line of a file shows that its history is of this family.
    fn recognises(line: &[u8]) -> bool;

    /// Reads a history and judges it by one of the guarantees that are [`CHECKED`](Wing::CHECKED). Returns also whether
    /// anything in it has succeeded.
    ///
    /// # Errors
    /// If it can't be read.
    fn judge_file(
        input: &mut dyn BufRead,
        guarantee: Guarantee,
        arguments: &CheckArguments,
    ) -> Result<(Judged, bool), ReadError>;

    /// What can be typed in the shell for `keyspace`, each statement with this deadline.
    fn statements(keyspace: Self::Keyspace, deadline: Duration) -> Box<dyn Statements>;
}

/// How a real keyspace is prepared.
pub(crate) struct Preparation<'a> {
    pub(crate) arguments: &'a LoadArguments,
    /// Whether the workload's keys are loaded.
    pub(crate) loads: bool,
    /// Whether others may have used the keyspace before.
    pub(crate) is_used: bool,
    /// Whether keys that are there may be overwritten though they may be of others.
    pub(crate) overwrites: bool,
    pub(crate) clients: usize,
    pub(crate) progress: &'a Progress,
}

/// The family of a file's history, by its first line; if that does not show it, the family of which `wanted` can be checked.
pub(crate) fn of_history(line: &[u8], wanted: Option<Guarantee>) -> FamilyName {
    let recognised = |family: &FamilyName| with_wing!(*family, W => W::recognises(line));
    let promises =
        |family: &FamilyName| checked(*family).any(|(checked, _)| Some(checked) == wanted);
    let found = FamilyName::ALL.into_iter().find(recognised);
    found.or_else(|| FamilyName::ALL.into_iter().find(promises)).unwrap_or(USUAL)
}

/// The guarantees that can be checked of a family's histories, each with a line for the help.
pub(crate) fn checked(family: FamilyName) -> impl Iterator<Item = (Guarantee, &'static str)> {
    with_wing!(family, W => W::CHECKED).iter().copied()
}

/// Whether nothing can be checked of what a protocol does.
pub(crate) fn promises_nothing(protocol: &str) -> bool {
    info(protocol).is_some_and(|info| info.guarantee == Guarantee::Nothing)
}

/// The protocols under which clients can do the workload.
pub(crate) fn able_protocols<W: Wing>(workload: &W::Workload) -> Vec<String> {
    let all = serried_protocols::of(W::NAME).map(|protocol| protocol.name);
    let able = all.filter(|protocol| W::check_offers(workload, protocol).is_ok());
    able.map(str::to_string).collect()
}

/// Checks that clients can do the workload under `protocol`.
pub(crate) fn fits<W: Wing>(workload: &W::Workload, protocol: &str) -> anyhow::Result<()> {
    let Some(family) = info(protocol).map(|info| info.family) else {
        return Ok(()); // It is not in this build. Running it says so.
    };
    demand!(
        family == W::NAME,
        "`{}` is a workload of {}, and `{protocol}` has {family}: choose one of {}",
        W::name(workload),
        W::NAME,
        able_protocols::<W>(workload).join(", ")
    );
    W::check_offers(workload, protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_protocol_promises_can_be_checked() {
        for info in serried_protocols::list() {
            let promised = info.guarantee;
            let can_be_checked = checked(info.family).any(|(checked, _)| checked == promised);
            assert!(can_be_checked || promised == Guarantee::Nothing, "{}", info.name);
        }
    }

    #[test]
    fn the_first_line_of_a_history_or_the_guarantee_shows_its_family() {
        let of = |function: &str, wanted| {
            of_history(format!(r#"{{"f":"{function}"}}"#).as_bytes(), wanted)
        };
        assert_eq!(of("txn", Some(Guarantee::Linearizable)), FamilyName::Transactions);
        assert_eq!(of("cas", Some(Guarantee::Serializable)), FamilyName::Registers);
        assert_eq!(of("other", Some(Guarantee::Linearizable)), FamilyName::Registers);
        assert_eq!(of("call", Some(Guarantee::Serializable)), FamilyName::Procedures);
        assert_eq!(of("other", None), USUAL);
    }
}
