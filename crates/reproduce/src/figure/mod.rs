//! A figure of a paper as data: its set-up, what it plots, and what the text states about it.

mod set_up;
mod shown;

use serried_model::FamilyName;

pub(crate) use set_up::{
    Calls, Contended, Districts, Groups, Layout, Load, Open, Panel, Parameter, Servers, Swept,
    System, Transactions, Warehouses, Work,
};
pub(crate) use shown::{Latency, Plot, Statistic, plural};

use crate::claim::Claim;
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
    /// The sites of the replicas and clients, unless the panel has others.
    pub(crate) geography: &'static str,
    pub(crate) servers: Servers,
    pub(crate) load: Load,
    pub(crate) panels: &'static [Panel],
    /// The parameter on the horizontal axis, if there is one.
    pub(crate) swept: Option<Swept>,
    /// The kind of operations whose throughput is shown. `None` for all kinds together.
    pub(crate) throughput_of: Option<&'static str>,
    /// The latency that is shown.
    pub(crate) latency: Latency,
    /// The kinds of operations that a report lists. `None` stands for all kinds together.
    pub(crate) kinds: &'static [Option<&'static str>],
    pub(crate) plots: &'static [Plot],
    /// The paper's systems, in the order of reports.
    pub(crate) systems: &'static [System],
    pub(crate) claims: &'static [Claim],
    /// What a reader must know to compare the paper's numbers with ours.
    pub(crate) remarks: &'static [&'static str],
    /// Remarks that the figure shares with others.
    pub(crate) common_remarks: &'static [&'static str],
}

/// A paper.
#[derive(Debug)]
pub(crate) struct Paper {
    /// Its number in the library.
    pub(crate) number: &'static str,
    /// The prefix of its figures' names.
    pub(crate) name: &'static str,
    pub(crate) times: Extent<Times>,
}

/// One value for numbers to report, and one for a first impression.
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

/// The length of runs, in simulated time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) warm_up_s: f64,
    pub(crate) measured_s: f64,
    /// See [`Effort::most_operations`].
    pub(crate) most_operations: u64,
    /// When clients die in figures about that.
    pub(crate) deaths: Option<Deaths>,
}

impl Figure {
    /// Its title.
    pub fn title(&self) -> String {
        let Figure { number, paper, section, .. } = self;
        // A table is called so.
        let what = if number.starts_with(char::is_numeric) { "Figure " } else { "" };
        format!("{what}{number} of {} ({} §{section})", paper.name, paper.number)
    }

    /// The families of its keyspaces.
    pub fn families(&self) -> &'static [FamilyName] {
        match self.work {
            Work::Transactions(_) => &[FamilyName::Transactions],
            Work::Registers { .. } => &[FamilyName::Registers],
            Work::Procedures(_) => &[FamilyName::Procedures],
            Work::Snapshots(_) => &[FamilyName::Snapshots],
            Work::ReadOnly(_) => {
                &[FamilyName::Snapshots, FamilyName::Transactions, FamilyName::Procedures]
            }
        }
    }

    /// The systems of the paper, in its order, by their names in the registry. The registry may not have all of them.
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
            Work::Transactions(_)
            | Work::Procedures(_)
            | Work::Snapshots(_)
            | Work::ReadOnly(_) => false,
            Work::Registers { shares, .. } => 1.0 - shares.reads - shares.writes > 1e-9,
        }
    }

    /// Whether its clients need write transactions, in a keyspace of snapshots.
    pub fn needs_write_transactions(&self) -> bool {
        let Work::Snapshots(groups) = self.work else { return false };
        let workload = serried_workload::named_snapshots(groups.workload, &Default::default());
        workload.is_ok_and(|workload| workload.needs_write_transactions())
    }

    /// The unit of throughput.
    pub(crate) fn per_s(&self) -> &'static str {
        match self.work {
            Work::Transactions(_) | Work::ReadOnly(_) => "txn/s",
            Work::Registers { .. } => "op/s",
            Work::Procedures(_) => "call/s",
            Work::Snapshots(_) => "req/s",
        }
    }

    /// Whether it shows more than one client count.
    pub fn varies_clients(&self) -> bool {
        matches!(self.load, Load::Closed { clients, .. } if clients.full.len() > 1)
    }

    /// Whether its places or panels say how many clients there are.
    pub fn sets_clients(&self) -> bool {
        let sets =
            |panel: &Panel| panel.sets.is_some_and(|(set, _)| set == Parameter::ClientsPerServer);
        self.swept.is_some_and(|swept| swept.parameter == Parameter::ClientsPerServer)
            || self.panels.iter().any(sets)
    }

    /// How many servers there are at a place of a panel.
    pub(crate) fn servers_at(&self, panel: &Panel, x: Option<f64>) -> u16 {
        let servers = self.value(Parameter::Servers, panel, x);
        servers.map_or(self.servers.partitions, |servers| servers as u16)
    }

    /// How many clients there are at a place of a panel, if the place or the panel says so.
    pub(crate) fn clients_at(&self, panel: &Panel, x: Option<f64>) -> Option<usize> {
        let of_each = self.value(Parameter::ClientsPerServer, panel, x)?;
        Some(of_each as usize * usize::from(self.servers_at(panel, x)))
    }

    /// Whether its places are numbers of things, such as servers.
    pub fn has_whole_places(&self) -> bool {
        self.swept.is_some_and(|swept| {
            use Parameter::{
                ClientsPerServer, Cores, CountersPerCall, Servers, SubRequests, Writers,
            };
            matches!(
                swept.parameter,
                Cores | SubRequests | Servers | ClientsPerServer | CountersPerCall | Writers
            )
        })
    }

    /// Whether it has places on a horizontal axis.
    pub fn has_places(&self) -> bool {
        self.swept.is_some()
    }

    /// Whether its clients offer a set load in open loops.
    pub fn has_rates(&self) -> bool {
        matches!(self.load, Load::Open(_))
    }

    /// Whether each system gets more and more load.
    pub(crate) fn searches(&self) -> bool {
        self.varies_clients() || self.has_rates()
    }

    /// The effort for numbers to report, or for a first impression.
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
        let (few_places, places, size) = (quick, None, None);
        Effort { warm_up_s, measured_s, most_operations, few_places, places, size, search, deaths }
    }

    /// How many transactions or operations end a run; see [`Effort::most_operations`].
    pub(crate) fn most_operations(&self, effort: &Effort) -> u64 {
        match self.load {
            Load::Closed { .. } => effort.most_operations,
            Load::Open(open) => (effort.most_operations / open.weight).max(1),
        }
    }

    /// The paper's places on its horizontal axis, all or a few.
    pub(crate) fn places(&self, few: bool) -> &'static [f64] {
        self.swept.map_or(&[], |swept| swept.places.get(few))
    }

    /// The places that are run.
    pub(crate) fn places_of<'e>(&self, effort: &'e Effort) -> &'e [f64] {
        effort.places.as_deref().unwrap_or(self.places(effort.few_places))
    }

    /// The value of a parameter at a place of a panel, if the place or the panel has one.
    pub(crate) fn value(&self, wanted: Parameter, panel: &Panel, x: Option<f64>) -> Option<f64> {
        let swept = self.swept.filter(|swept| swept.parameter == wanted);
        let set = panel.sets.filter(|(parameter, _)| *parameter == wanted);
        swept.and(x).or(set.map(|(_, value)| value))
    }

    /// How many partitions a system has on machines with `cores` cores, and how many cores each replica has.
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
