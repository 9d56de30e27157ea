//! The configuration of a run.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_actor::{Group, Settings};
use serried_model::{Geography, Key, Limits, Value};

/// Together with the workload, the configuration determines a run: the same configuration gives the same events in the
/// same order.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The seed of all random choices.
    pub seed: u64,
    /// How many sites the keyspace has, at least 1. Each site has all keys, and partitions and machines of its own
    /// ([`serried_actor::Group`]). Only some protocols can have more than one.
    ///
    /// With one site, machine `i` is at `geography.site_of(i)`: the replicas of a partition are far from each other.
    /// With more, all machines of site `s` are at the geography's site `s`, which must exist.
    pub sites: u16,
    /// How many replicas each partition has, an odd number of at most 63. The `i`-th replica of each partition of site
    /// `s` is on machine `s * replicas + i`.
    pub replicas: usize,
    /// How many partitions each site has. The replicas of each have processors and disks of their own.
    pub partitions: u16,
    /// How many clients there are at all sites, each with a coordinator of its own. With one site, client `i` is where
    /// machine `i % replicas` is. With more, it belongs to site `i % sites`, and is where this site's machines are.
    pub clients: usize,
    /// The sites, and the delays between them.
    pub geography: Geography,
    /// The faults of the network, from the start on.
    pub network: NetworkFaults,
    /// How far clocks are off.
    pub clocks: Clocks,
    /// The protocol's settings.
    pub settings: Settings,
    /// The data before the first transaction.
    pub initial: Option<Initial>,
    /// How many events a replica can serve at the same time.
    pub replica_cores: usize,
    /// How many events a client's coordinator can serve at the same time.
    pub client_cores: usize,
    /// The machine on which all nodes run. `None` if each node has a machine of its own, with the cores above.
    pub one_machine: Option<OneMachine>,
    /// What serving an event costs.
    pub costs: CostModel,
    /// What it costs at clients, if it differs from `costs`.
    pub client_costs: Option<CostModel>,
    /// How long making a record durable takes.
    pub disk: Disk,
    /// Whether the event hash covers the contents of messages, not only when they travel between which nodes. Each
    /// message is then encoded. Otherwise a run without costs per byte avoids that.
    pub hash_contents: bool,
    /// How many attempts a client may have open at once. Further ones have to wait.
    pub open_attempts: usize,
    /// The greatest sizes of keys, values and transactions.
    pub limits: Limits,
}

impl Default for Configuration {
    /// Three replicas and one client at one site, without faults, with perfect clocks, one core each, the default costs
    /// and a disk that takes no time.
    fn default() -> Self {
        Configuration {
            seed: 0,
            sites: 1,
            replicas: 3,
            partitions: 1,
            clients: 1,
            geography: Geography::named("lan").expect("it is one of the built-in ones"),
            network: NetworkFaults::NONE,
            clocks: Clocks::PERFECT,
            settings: Settings::default(),
            initial: None,
            replica_cores: 1,
            client_cores: 1,
            one_machine: None,
            costs: CostModel::default(),
            client_costs: None,
            disk: Disk::MEMORY,
            hash_contents: false,
            open_attempts: 1024,
            limits: Limits::default(),
        }
    }
}

impl Configuration {
    /// How many machines there are at all sites. Those of site `s` have the numbers from `s * replicas` on.
    pub fn machines(&self) -> usize {
        usize::from(self.sites) * self.replicas
    }

    /// How many replicas there are: of all partitions, at all sites.
    pub(crate) fn all_replicas(&self) -> usize {
        self.machines() * usize::from(self.partitions)
    }

    /// The site of the keyspace that a machine belongs to.
    pub(crate) fn site_of_machine(&self, machine: usize) -> u16 {
        (machine / self.replicas) as u16
    }

    /// The site of the geography that a machine is at.
    pub(crate) fn place_of_machine(&self, machine: usize) -> usize {
        match self.sites {
            1 => self.geography.site_of(machine),
            _ => usize::from(self.site_of_machine(machine)),
        }
    }

    /// The machine that a client is next to. It is one of the client's site.
    pub(crate) fn machine_near(&self, client: usize) -> usize {
        let sites = usize::from(self.sites);
        client % sites * self.replicas + client / sites % self.replicas
    }

    /// The groups as a machine and the clients next to it see them.
    pub(crate) fn group_at(&self, machine: usize) -> Group {
        let place = self.place_of_machine(machine);
        let group = match self.sites {
            1 => {
                let nearest_first = self.geography.nearest_first(place, self.replicas);
                Group::nearest_first(nearest_first, self.geography.longest_round_trip(place))
            }
            _ => Group::new(self.replicas, self.geography.round_trip(place, place)),
        };
        let site = self.site_of_machine(machine);
        group.with_partitions(self.partitions).at_site(site, self.sites)
    }
}

/// The contents of a database before a run. They are a function of the key, so even a large database takes no time to
/// load and no memory.
#[derive(Clone)]
pub struct Initial(Arc<InitialValue>);

type InitialValue = dyn Fn(&Key) -> Option<Value> + Send + Sync;

impl Initial {
    /// `value` returns the value of each key, or `None` if the key is absent.
    pub fn new(value: impl Fn(&Key) -> Option<Value> + Send + Sync + 'static) -> Initial {
        Initial(Arc::new(value))
    }

    /// The value of `key`.
    pub fn value(&self, key: &Key) -> Option<Value> {
        (self.0)(key)
    }
}

impl fmt::Debug for Initial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initial")
    }
}

/// The faults that the network applies to each message, independently of other messages. Messages of a node to itself
/// are exempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkFaults {
    /// The greatest additional delay, as a fraction of the link's delay. It is uniformly distributed. Messages of one
    /// link still arrive in the order in which they were sent.
    pub jitter: f64,
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message arrives twice. The second copy arrives up to `extra_delay` later.
    pub duplication: f64,
    /// The probability that a message takes up to `extra_delay` longer, uniformly distributed. Later messages of its
    /// link may overtake it.
    pub reordering: f64,
    /// The greatest additional delay of a reordered message or a duplicate.
    pub extra_delay: Duration,
}

impl NetworkFaults {
    /// A network that delivers everything once, in order and after exactly half the round trip.
    pub const NONE: NetworkFaults = NetworkFaults {
        jitter: 0.0,
        loss: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        extra_delay: Duration::ZERO,
    };

    /// The faults that remain when the network has healed: jitter.
    pub fn healed(self) -> NetworkFaults {
        NetworkFaults { jitter: self.jitter, ..NetworkFaults::NONE }
    }
}

/// How far clocks are off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// The greatest difference between a node's wall clock and true time. At the start it is uniformly distributed.
    /// Drift changes it, and synchronisation keeps it within the bound. Nodes know the bound: it is half the width of
    /// [`serried_actor::Context::clock`].
    pub skew: Duration,
    /// The greatest drift of a node's clocks, in millionths. Each node's drift is constant and uniformly distributed.
    /// It affects timers and [`serried_actor::Context::now`] too.
    pub drift_ppm: u32,
}

impl Clocks {
    /// Every clock shows true time.
    pub const PERFECT: Clocks = Clocks { skew: Duration::ZERO, drift_ppm: 0 };
}

/// How long one event occupies a core: the sum of these costs. The default and [`CostModel::CLIENT`] were measured on
/// a real cluster by `serried calibrate` with its default options, on a virtual machine with two shared cores. It
/// wrote `crates/calibrate/costs.toml`. Most of the cost is system calls: each client has connections of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// For each message received, timer fired or batch of operations, in nanoseconds. Default 6007.
    pub event_ns: u64,
    /// For each message sent, in nanoseconds. A broadcast counts once per receiver. Default 0, because no cost beyond
    /// that of the system call was measured.
    pub sent_message_ns: u64,
    /// For each unit of work that the handler charged, in nanoseconds. Default 375.
    pub work_unit_ns: u64,
    /// For each byte of the message received, in picoseconds. Default 0.
    pub byte_ps: u64,
}

impl CostModel {
    /// Computing takes no time.
    pub const FREE: CostModel =
        CostModel { event_ns: 0, sent_message_ns: 0, work_unit_ns: 0, byte_ps: 0 };

    /// The costs at a client. The default is those at a replica.
    pub const CLIENT: CostModel =
        CostModel { event_ns: 5888, sent_message_ns: 0, work_unit_ns: 0, byte_ps: 0 };
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel { event_ns: 6007, sent_message_ns: 0, work_unit_ns: 375, byte_ps: 0 }
    }
}

/// One machine on which all replicas and clients run, as in a benchmark on loopback: each replica in a process of its
/// own, all clients in one process with one connection to each replica, and each process with one thread. System calls
/// are counted separately: a process reads and writes a connection once for all messages that it finds or makes while it has
/// a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OneMachine {
    /// How many cores it has.
    pub cores: usize,
    /// What replaces [`Configuration::costs`].
    pub replica: SystemCallCosts,
    /// What replaces [`Configuration::client_costs`].
    pub client: SystemCallCosts,
}

/// What events and system calls cost, separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemCallCosts {
    /// For each message received, timer fired or batch of operations, in nanoseconds.
    pub event_ns: u64,
    /// For each message sent, in nanoseconds. A broadcast counts once per receiver.
    pub sent_message_ns: u64,
    /// For each unit of work that the handler charged, in nanoseconds.
    pub work_unit_ns: u64,
    /// For each byte of the message received, in picoseconds.
    pub byte_ps: u64,
    /// For each read from a connection and each write to one, in nanoseconds.
    pub system_call_ns: u64,
}

impl SystemCallCosts {
    /// Nothing but system calls takes time, each so long, in nanoseconds.
    pub const fn only(system_call_ns: u64) -> SystemCallCosts {
        SystemCallCosts {
            event_ns: 0,
            sent_message_ns: 0,
            work_unit_ns: 0,
            byte_ps: 0,
            system_call_ns,
        }
    }

    /// What events cost without system calls.
    pub fn events(self) -> CostModel {
        let SystemCallCosts { event_ns, sent_message_ns, work_unit_ns, byte_ps, .. } = self;
        CostModel { event_ns, sent_message_ns, work_unit_ns, byte_ps }
    }
}

/// How long making a record durable takes. There is one flush at a time, which takes `append * records + flush`.
/// Records that are appended in the meantime are part of the next flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// The time to write one record.
    pub append: Duration,
    /// The time to flush everything written.
    pub flush: Duration,
    /// Whether records are kept for a restart. A long run without crashes saves memory without them.
    pub keep_records: bool,
}

impl Disk {
    /// Records are durable at once and are not kept. No message waits for them, and no machine can restart.
    pub const MEMORY: Disk =
        Disk { append: Duration::ZERO, flush: Duration::ZERO, keep_records: false };
}
