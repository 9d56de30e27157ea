//! A figure of a paper as data: how it was made, what it plots, and what the text says of it.

use serried_model::Family;
use serried_workload::Shares;

use crate::claim::{Claim, Quantity};
use crate::effort::{Deaths, Effort, Search};

/// A figure of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its number in the paper.
    pub(crate) number: &'static str,
    pub(crate) paper: &'static Paper,
    /// The section of the paper that describes it.
    pub(crate) section: &'static str,
    /// What it shows, in a sentence.
    pub summary: &'static str,
    pub(crate) work: Work,
    /// Where the replicas and the clients are, if the panel does not say otherwise.
    pub(crate) geography: &'static str,
    pub(crate) servers: Servers,
    pub(crate) load: Load,
    pub(crate) panels: &'static [Panel],
    /// The parameter on the horizontal axis, if there is one.
    pub(crate) swept: Option<Swept>,
    /// The kind of operations whose throughput is shown; all if none.
    pub(crate) throughput_of: Option<&'static str>,
    /// The latency that is shown.
    pub(crate) latency: Latency,
    /// The kinds of operations that a report lists; none stands for all together.
    pub(crate) kinds: &'static [Option<&'static str>],
    pub(crate) plots: &'static [Plot],
    /// The paper's systems, in the order of reports.
    pub(crate) systems: &'static [System],
    pub(crate) claims: &'static [Claim],
    /// What a reader has to know to compare the paper's numbers with ours.
    pub(crate) remarks: &'static [&'static str],
}

/// A paper.
#[derive(Debug)]
pub(crate) struct Paper {
    /// Its number in the library.
    pub(crate) number: &'static str,
    /// What its figures are called after.
    pub(crate) name: &'static str,
    pub(crate) times: Extent<Times>,
}

/// How much of something it takes for numbers to report, and for a first impression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent<T> {
    pub(crate) full: T,
    pub(crate) quick: T,
}

impl<T: Copy> Extent<T> {
    fn get(self, quick: bool) -> T {
        if quick { self.quick } else { self.full }
    }
}

/// How long runs take, in simulated time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warm_up_s: f64,
    pub(crate) measured_s: f64,
    /// See [`Effort::most_operations`].
    pub(crate) most_operations: u64,
    /// When clients die in figures about that.
    pub(crate) deaths: Option<Deaths>,
}

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

/// A latency of operations of a kind, or of all of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Latency {
    pub(crate) kind: Option<&'static str>,
    pub(crate) statistic: Statistic,
}

/// A number that stands for many latencies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Statistic {
    Mean,
    /// So large a share of the operations stays within it.
    Quantile(f64),
}

/// A chart of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plot {
    /// The figure's latency over its throughput, run by run.
    LatencyOverThroughput { logarithmic: bool },
    /// A quantity over the swept parameter.
    OverPlaces(Quantity),
    /// How latencies of a kind of operations are distributed, and their tail in a second chart.
    Distribution(&'static str),
    /// Throughput over time, a chart for each place.
    OverTime,
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

impl Figure {
    /// What it is called.
    pub fn title(&self) -> String {
        let Figure { number, paper, section, .. } = self;
        format!("Figure {number} of {} ({} §{section})", paper.name, paper.number)
    }

    /// What its clients do.
    pub fn family(&self) -> Family {
        match self.work {
            Work::Transactions(_) => Family::Transactions,
            Work::Registers { .. } => Family::Registers,
        }
    }

    /// The systems of the paper, in its order, by their names in the registry; not all may be there.
    pub fn protocols(&self) -> impl Iterator<Item = &'static str> {
        self.systems.iter().map(|system| system.protocol)
    }

    /// Those systems of the paper that are in the registry.
    pub fn known_protocols(&self) -> Vec<String> {
        self.protocols().filter(|name| is_known(name)).map(str::to_string).collect()
    }

    /// Whether its clients do read-modify-writes on registers.
    pub fn modifies(&self) -> bool {
        match self.work {
            Work::Transactions(_) => false,
            Work::Registers { shares, .. } => 1.0 - shares.reads - shares.writes > 1e-9,
        }
    }

    /// The unit of throughput.
    pub(crate) fn per_s(&self) -> &'static str {
        match self.work {
            Work::Transactions(_) => "txn/s",
            Work::Registers { .. } => "op/s",
        }
    }

    /// Whether it shows more than one client count.
    pub fn varies_clients(&self) -> bool {
        matches!(self.load, Load::Closed { clients, .. } if clients.full.len() > 1)
    }

    /// Whether its clients offer a set load in open loops.
    pub fn has_rates(&self) -> bool {
        matches!(self.load, Load::Open(_))
    }

    /// Whether each system gets more and more load.
    pub(crate) fn searches(&self) -> bool {
        self.varies_clients() || self.has_rates()
    }

    /// How much effort it takes for numbers to report, or for a first impression.
    pub fn effort(&self, quick: bool) -> Effort {
        let Times { warm_up_s, measured_s, most_operations, deaths } = self.paper.times.get(quick);
        let search = match self.load {
            Load::Closed { clients, patience } => {
                Search::Clients { counts: clients.get(quick).to_vec(), patience }
            }
            Load::Open(Open { clients, closer, .. }) => {
                Search::Rates { clients, rates_per_s: Vec::new(), closer: closer.get(quick) }
            }
        };
        let kills = self.swept.is_some_and(|swept| swept.parameter == Parameter::RecoveryAfter);
        let deaths = deaths.filter(|_| kills);
        let (few_places, size) = (quick, None);
        Effort { warm_up_s, measured_s, most_operations, few_places, size, search, deaths }
    }

    /// The places on its horizontal axis.
    pub(crate) fn places(&self, few: bool) -> &'static [f64] {
        self.swept.map_or(&[], |swept| swept.places.get(few))
    }

    /// The value of a parameter at a place of a panel, if the place or the panel has one.
    pub(crate) fn value(&self, wanted: Parameter, panel: &Panel, x: Option<f64>) -> Option<f64> {
        let swept = self.swept.filter(|swept| swept.parameter == wanted);
        let set = panel.sets.filter(|(parameter, _)| *parameter == wanted);
        swept.and(x).or(set.map(|(_, value)| value))
    }

    /// How many partitions a system has on machines with so many cores, and how many cores a replica of each has.
    pub(crate) fn layout(&self, protocol: &str, cores: u32) -> (u16, u32) {
        let system = self.systems.iter().find(|system| system.protocol == protocol);
        match system.map_or(Layout::AllCores, |system| system.layout) {
            Layout::AllCores => (self.servers.partitions, cores),
            Layout::PartitionPerCore => (self.servers.partitions * cores as u16, 1),
        }
    }
}

/// Whether the registry has a protocol of this name.
pub(crate) fn is_known(protocol: &str) -> bool {
    serried_protocols::list().iter().any(|known| known.name == protocol)
}
