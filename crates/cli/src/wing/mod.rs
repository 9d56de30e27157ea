//! What the command line does differently for each family of keyspaces.

mod registers;
mod transactions;

use std::path::Path;
use std::sync::Arc;

use serried::{KeyspaceInfo, Version};
use serried_model::{FamilyName, Guarantee};
use serried_protocols::{Registered, info};
use serried_session::Session;
use serried_sim::Initial;
use serried_workload::Report;

use crate::arguments::{LoadArguments, WorkloadArguments};
use crate::judge::Judged;
use crate::load::{Client, Inspected, Load};
use crate::progress::Progress;

pub(crate) use registers::offers_rmws;

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
        }
    };
}
pub(crate) use with_wing;

/// A family with its workloads, histories and checkers.
pub(crate) trait Wing: Session + Registered {
    /// What clients do.
    type Workload: ?Sized + Send + Sync;
    /// Records what they have done.
    type Recorder: Default + Send + Sync;

    /// The workload that is asked for.
    fn workload(arguments: &WorkloadArguments) -> anyhow::Result<Arc<Self::Workload>>;

    /// The workload's name.
    fn name(workload: &Self::Workload) -> &'static str;

    /// The protocols that are compared if none are chosen.
    fn usual_protocols(workload: &Self::Workload) -> Vec<String>;

    /// Checks that `protocol`, which is of this family, has what the workload needs.
    fn check_offers(workload: &Self::Workload, protocol: &str) -> anyhow::Result<()>;

    /// Checks that clients can do the workload as `arguments` say.
    fn check_load(workload: &Self::Workload, arguments: &LoadArguments) -> anyhow::Result<()>;

    /// What keys hold before a simulated run.
    fn initial(workload: &Arc<Self::Workload>) -> Option<Initial>;

    /// Prepares a real keyspace for a run. Returns a version that is above everything that was there before, if there are
    /// versions.
    fn prepare(
        keyspace: &Self::Keyspace,
        workload: &Self::Workload,
        preparation: Preparation<'_>,
    ) -> impl Future<Output = anyhow::Result<Option<Version>>>;

    /// The `i`-th client of a load.
    fn client(load: &Load<Self>, i: usize, keyspace: &Self::Keyspace) -> Client;

    /// What the workload finds out about the database after a run that is to be checked.
    fn inspect(
        load: &Load<Self>,
        keyspace: &Self::Keyspace,
    ) -> impl Future<Output = Inspected> + Send;

    /// Figures by which the workload is usually compared.
    fn figures(workload: &Self::Workload, report: &Report) -> Vec<(&'static str, f64)>;

    /// The verdict on what was recorded, which is also written to `file`.
    fn judge(
        workload: &Self::Workload,
        recorder: Self::Recorder,
        promised: Option<Guarantee>,
        loaded: Option<Version>,
        file: Option<&Path>,
    ) -> anyhow::Result<Judged>;
}

/// How a real keyspace is prepared.
pub(crate) struct Preparation<'a> {
    pub(crate) arguments: &'a LoadArguments,
    /// Whether the workload's keys are loaded.
    pub(crate) loads: bool,
    /// Whether others may have used the keyspace before.
    pub(crate) is_used: bool,
    pub(crate) clients: usize,
    pub(crate) progress: &'a Progress,
}

/// The family of a cluster's keyspace, if this build knows what it promises.
pub(crate) fn of_keyspace(info: &KeyspaceInfo) -> Option<FamilyName> {
    Some(Guarantee::named(&info.guarantee)?.family())
}

/// Whether nothing can be checked of what a protocol does.
pub(crate) fn promises_nothing(protocol: &str) -> bool {
    info(protocol).is_some_and(|info| info.guarantee == Guarantee::Nothing)
}

/// Checks that clients can do the workload under `protocol`.
pub(crate) fn fits<W: Wing>(workload: &W::Workload, protocol: &str) -> anyhow::Result<()> {
    let Some(family) = info(protocol).map(|info| info.family) else {
        return Ok(()); // It is not in this build. Running it says so.
    };
    anyhow::ensure!(
        family == W::NAME,
        "`{}` is a workload of {}, and `{protocol}` has {family}: choose one of {}",
        W::name(workload),
        W::NAME,
        W::usual_protocols(workload).join(", ")
    );
    W::check_offers(workload, protocol)
}
