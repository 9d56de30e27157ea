//! One run of a figure: what determines its result, and how it is made.

mod deaths;

mod procedures;
mod read_only;
mod registers;
mod snapshots;
mod stretch;
mod terminal;
mod transactions;
mod watched;

use serde::Serialize;

pub(crate) use deaths::SLOT;
use procedures::CallPoint;
use read_only::ReadOnlyPoint;
use registers::RegisterPoint;
use snapshots::SnapshotPoint;
use transactions::TransactionPoint;

use crate::figure::{Panel, Transactions, Work};
use crate::measured::OfFamily;
use crate::{Costs, Effort, Error, Figure, Measured};

/// One run. Together with the build, this determines its result.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Point {
    Transactions(TransactionPoint),
    Registers(RegisterPoint),
    Procedures(CallPoint),
    Snapshots(SnapshotPoint),
    ReadOnly(ReadOnlyPoint),
}

/// The setting that a point is made from.
pub(crate) struct Setting<'a> {
    pub(crate) figure: &'static Figure,
    pub(crate) panel: &'static Panel,
    /// The place on the horizontal axis.
    pub(crate) x: Option<f64>,
    /// The protocol, by its name in the registry.
    pub(crate) protocol: &'a str,
    pub(crate) effort: &'a Effort,
    pub(crate) costs: Costs,
    pub(crate) seed: u64,
}

/// The load of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Demand {
    /// This many clients in closed loops.
    Clients(usize),
    /// Clients in open loops, which together offer `per_s` transactions per second.
    Rate { clients: usize, per_s: f64 },
}

impl Point {
    pub(crate) fn new(setting: &Setting<'_>, demand: Demand) -> Point {
        match setting.figure.work {
            Work::Transactions(work) => {
                Point::Transactions(TransactionPoint::new(setting, work, demand))
            }
            Work::Registers { workload, shares } => {
                Point::Registers(RegisterPoint::new(setting, workload, shares, demand))
            }
            Work::Procedures(work) => Point::Procedures(CallPoint::new(setting, work, demand)),
            Work::Snapshots(work) => Point::Snapshots(SnapshotPoint::new(setting, work, demand)),
            Work::ReadOnly(work) => Point::ReadOnly(ReadOnlyPoint::new(setting, work)),
        }
    }

    /// The name of the file with its result. No other run of the figure has the same name.
    pub(crate) fn file(&self) -> String {
        match self {
            Point::Transactions(point) => point.file(),
            Point::Registers(point) => point.file(),
            Point::Procedures(point) => point.file(),
            Point::Snapshots(point) => point.file(),
            Point::ReadOnly(point) => point.file(),
        }
    }

    /// Runs it.
    pub(crate) fn run(&self) -> Result<Measured, Error> {
        match self {
            Point::Transactions(point) => Ok(Measured(OfFamily::Transactions(point.run()?))),
            Point::Registers(point) => Ok(Measured(OfFamily::Registers(point.run()?))),
            Point::Procedures(point) => Ok(Measured(OfFamily::Procedures(point.run()?))),
            Point::Snapshots(point) => Ok(Measured(OfFamily::Snapshots(point.run()?))),
            Point::ReadOnly(point) => Ok(Measured(OfFamily::ReadOnly(point.run()?))),
        }
    }
}

impl Setting<'_> {
    /// The sites of the replicas and clients.
    fn geography(&self) -> &'static str {
        self.panel.geography.unwrap_or(self.figure.geography)
    }

    /// The number of keys or warehouses.
    fn size(&self, work: Transactions) -> u64 {
        self.effort.size.unwrap_or(work.size)
    }
}

impl Demand {
    fn clients(self) -> usize {
        match self {
            Demand::Clients(clients) | Demand::Rate { clients, .. } => clients,
        }
    }
}
