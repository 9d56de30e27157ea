//! How a figure was made.

use serried_workload::Shares;

use super::Extent;

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Transactions of a workload.
    Transactions(Transactions),
    /// Operations on registers.
    Registers {
        workload: &'static str,
        /// The shares of reads and writes; the rest are read-modify-writes.
        shares: Shares,
    },
}

/// A workload of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transactions {
    pub(crate) workload: &'static str,
    /// The number of keys, or of warehouses.
    pub(crate) size: u64,
    /// From how many terminals transactions come, one drawn for each, for every unit of size; 0 if
    /// clients make no difference.
    pub(crate) terminals: u64,
    /// The length of values where computing costs the same for any length; the workload's own if none.
    pub(crate) value_bytes: Option<usize>,
    /// The longest wait before a retry, in milliseconds.
    pub(crate) backoff_most_ms: u64,
}

/// The servers of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    /// Replicas of a partition.
    pub(crate) replicas: usize,
    pub(crate) partitions: u16,
    /// Cores of a replica.
    pub(crate) cores: u32,
}

/// How load is put on a system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Clients in closed loops, from few to many. After `patience` client counts in a row that did not raise the
    /// highest throughput, no more are run.
    Closed { clients: Extent<&'static [usize]>, patience: Option<usize> },
    /// Clients in open loops.
    Open(Open),
}

/// Clients in open loops, which offer more and more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// How many clients there are.
    pub(crate) clients: usize,
    /// How many transactions per second are offered first.
    pub(crate) first_per_s: f64,
    /// How many transactions each client may have open.
    pub(crate) most_open: usize,
    /// By this factor a run has fewer transactions, because each of them takes longer.
    pub(crate) weight: u64,
    /// How many runs close in on the highest load.
    pub(crate) closer: Extent<u32>,
    /// The operating point is the highest throughput with a latency below this, in milliseconds.
    pub(crate) operating_ms: f64,
    /// The share of the highest throughput that is offered at the places of the horizontal axis.
    pub(crate) share: f64,
}

/// A part of a figure with a set-up of its own.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) label: &'static str,
    pub(crate) geography: Option<&'static str>,
    pub(crate) sets: Option<(Parameter, f64)>,
}

/// A number in the set-up that a panel sets or a horizontal axis varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parameter {
    /// The cores of a machine.
    Cores,
    /// The exponent of the Zipf distribution of keys.
    Theta,
    /// The share of operations on the key that all clients have in common.
    Conflicts,
    /// The share of operations that write, or of transactions.
    Writes,
    /// Operations in a request.
    SubRequests,
    /// All clients die. After so many seconds others take care of what they left undone.
    RecoveryAfter,
}

/// The parameter on a horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swept {
    pub(crate) parameter: Parameter,
    pub(crate) places: Extent<&'static [f64]>,
    /// Whether the axis is logarithmic.
    pub(crate) logarithmic: bool,
}

/// A system of a paper, by the name under which the registry has it, or will.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct System {
    /// Its name in the registry.
    pub(crate) protocol: &'static str,
    /// Its name in the paper.
    pub(crate) label: &'static str,
    pub(crate) layout: Layout,
}

/// How a system uses the cores of its machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// A replica has all cores of its machine.
    AllCores,
    /// A partition per core, each with a part of the keys.
    PartitionPerCore,
}

impl System {
    /// A system whose replicas have all cores of their machines.
    pub(crate) const fn new(protocol: &'static str, label: &'static str) -> System {
        System { protocol, label, layout: Layout::AllCores }
    }
}
