//! The set-up of a figure.

use serried_workload::Shares;

use super::Extent;

/// The load of clients.
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
    /// Calls of procedures.
    Procedures(Calls),
    /// Read-only transactions and groups of writes.
    Snapshots(Groups),
    /// Read-only transactions that contend with writes, under protocols of all families that have some.
    ReadOnly(Contended),
}

/// A workload of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Groups {
    pub(crate) workload: &'static str,
    /// The number of keys.
    pub(crate) size: u64,
    /// The exponent of the Zipf distribution of keys, unless a panel or a place has another.
    pub(crate) theta: f64,
    /// The share of requests that write, unless a panel or a place has another.
    pub(crate) writes: f64,
}

/// A few keys that some clients only read, and others only write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contended {
    pub(crate) keys: u64,
    /// How many keys a transaction reads.
    pub(crate) read: usize,
    /// How many keys are written at once.
    pub(crate) written: usize,
}

/// A workload of procedures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) workload: &'static str,
    /// The number of keys, or of TPC-C's items.
    pub(crate) size: u64,
    /// The exponent of the Zipf distribution of keys. `None` for the workload's default.
    pub(crate) theta: Option<f64>,
    /// How large TPC-C is, if it is the workload.
    pub(crate) tpcc: Option<Warehouses>,
    /// Whether the pieces of calls are counted. This takes time and memory.
    pub(crate) counts_pieces: bool,
    /// The longest wait before a retry, in milliseconds. With 0, clients try again at once.
    pub(crate) backoff_most_ms: u64,
    /// The greatest error of a clock, in microseconds.
    pub(crate) clock_skew_us: u64,
}

/// The size of TPC-C as procedures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Warehouses {
    /// How many customers a district has.
    pub(crate) customers: u32,
    pub(crate) districts: Districts,
}

/// Where the districts of TPC-C are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Districts {
    /// All are in one warehouse, so many for each server. Each client has its district.
    OfOneWarehouse { per_server: u64 },
    /// Ten are in each of so many warehouses. A district is drawn for each call.
    OfWarehouses { warehouses: u64 },
}

/// A workload of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transactions {
    pub(crate) workload: &'static str,
    /// The number of keys, or of warehouses.
    pub(crate) size: u64,
    /// The number of terminals for every unit of size. A terminal is drawn for each transaction. 0 if the workload has
    /// no terminals.
    pub(crate) terminals: u64,
    /// The length of values if computing costs the same for any length. `None` for the workload's default.
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

/// How clients load a system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Clients in closed loops, from few to many. Runs end after `patience` consecutive client counts that did not
    /// raise the highest throughput.
    Closed { clients: Extent<&'static [usize]>, patience: Option<usize> },
    /// Clients in open loops.
    Open(Open),
}

/// Clients in open loops, which offer more and more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// How many clients there are.
    pub(crate) clients: usize,
    /// The rate of the first run, in transactions per second.
    pub(crate) first_per_s: f64,
    /// How many transactions each client may have open.
    pub(crate) most_open: usize,
    /// A run has fewer transactions by this factor, because each of them takes longer.
    pub(crate) weight: u64,
    /// How many runs narrow down the highest load.
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
    /// How many servers there are, each with a partition.
    Servers,
    /// Clients for each server.
    ClientsPerServer,
    /// Clients that only write.
    Writers,
    /// How many counters a call increments.
    CountersPerCall,
    /// How long making a log durable takes, in milliseconds.
    FlushMs,
    /// How far sessions stay behind, in milliseconds. Infinite if they read at the stable frontier alone.
    FreshnessMs,
    /// All clients die. This is the time in seconds after which others finish their transactions.
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

/// A system of a paper, by its name in the registry, which may not have it yet.
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
