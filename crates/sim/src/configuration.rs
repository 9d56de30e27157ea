//! Everything that a run is determined by.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_actor::Settings;
use serried_model::{Geography, Key, Limits, Value};

/// What a run is determined by, together with its workload: the same configuration gives the same
/// run, event for event.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Every random choice follows from it.
    pub seed: u64,
    /// How many replicas each partition has, an odd number of at most 63. The `i`-th of each is on
    /// machine `i`, at `geography.site_of(i)`.
    pub replicas: usize,
    /// How many partitions there are. The replicas of each have processors and disks of their own.
    pub partitions: u16,
    /// How many clients there are, each with a coordinator of its own. Client `i` is where the
    /// `i % replicas`-th machine is.
    pub clients: usize,
    /// Where they are.
    pub geography: Geography,
    /// What the network does wrong from the start on.
    pub network: NetworkFaults,
    /// How far clocks are off.
    pub clocks: Clocks,
    /// What the protocol is set to.
    pub settings: Settings,
    /// What is there before the first transaction.
    pub initial: Option<Initial>,
    /// How many events a replica can serve at the same time.
    pub replica_cores: usize,
    /// How many events a client's coordinator can serve at the same time.
    pub client_cores: usize,
    /// What serving an event costs.
    pub costs: CostModel,
    /// What it costs at clients, if that is something else.
    pub client_costs: Option<CostModel>,
    /// What making a record durable takes.
    pub disk: Disk,
    /// Whether the event hash covers what messages say, not just how they travel. Each message is then
    /// encoded, which a run without costs per byte otherwise avoids.
    pub hash_contents: bool,
    /// How many attempts a client may have open at once; more have to wait.
    pub open_attempts: usize,
    /// How large keys, values and transactions may be.
    pub limits: Limits,
}

impl Default for Configuration {
    /// Three replicas and one client in one room, faultless, with perfect clocks, a core each, the
    /// default costs and a disk that takes no time.
    fn default() -> Self {
        Configuration {
            seed: 0,
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
            costs: CostModel::default(),
            client_costs: None,
            disk: Disk::MEMORY,
            hash_contents: false,
            open_attempts: 1024,
            limits: Limits::default(),
        }
    }
}

/// What a database holds before a run: a function of the key, so that it takes neither time to load nor
/// memory to keep, however much it is.
#[derive(Clone)]
pub struct Initial(Arc<InitialValue>);

type InitialValue = dyn Fn(&Key) -> Option<Value> + Send + Sync;

impl Initial {
    /// The value of each key; `None` where it is absent.
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

/// What the network does wrong with each message, independently of the others. Messages of a node to
/// itself are exempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkFaults {
    /// A message takes up to this fraction of its link's delay longer, uniformly. Messages of one link
    /// still arrive in the order in which they were sent.
    pub jitter: f64,
    /// The probability that a message is lost.
    pub loss: f64,
    /// The probability that a message arrives twice; the second time up to `extra_delay` later.
    pub duplication: f64,
    /// The probability that a message takes up to `extra_delay` longer, uniformly, and may be overtaken
    /// by later ones of its link.
    pub reordering: f64,
    /// The most by which a reordered message or a duplicate comes later.
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

    /// What remains when the network has healed: its jitter.
    pub fn healed(self) -> NetworkFaults {
        NetworkFaults { jitter: self.jitter, ..NetworkFaults::NONE }
    }
}

/// How far clocks are off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clocks {
    /// The most by which a node's wall clock differs from true time. Each starts out uniformly within
    /// it, drift moves it, and synchronisation keeps it from leaving. Nodes know the bound: it is half
    /// the width of [`serried_actor::Context::clock`].
    pub skew: Duration,
    /// The most by which a node's clocks run too fast or too slow, in millionths. Each node's drift is
    /// constant and uniform within it. It affects timers and [`serried_actor::Context::now`] too.
    pub drift_ppm: u32,
}

impl Clocks {
    /// Every clock shows true time.
    pub const PERFECT: Clocks = Clocks { skew: Duration::ZERO, drift_ppm: 0 };
}

/// How long a core is taken by one event: the sum of these. The default and [`CostModel::CLIENT`] were
/// measured on a real cluster by `serried calibrate` with its default options, on a virtual machine
/// with two shared cores; `crates/calibrate/costs.toml` is what it wrote. Most of it is the system
/// calls of connections that each client has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// For each message received, timer fired or batch of operations, in nanoseconds. Default 6007.
    pub event_ns: u64,
    /// For each message sent, in nanoseconds. A broadcast counts once per receiver. Default 0,
    /// as sending was found to cost nothing beside the system call.
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

    /// What it takes at a client; the default is what it takes at a replica.
    pub const CLIENT: CostModel =
        CostModel { event_ns: 5888, sent_message_ns: 0, work_unit_ns: 0, byte_ps: 0 };
}

impl Default for CostModel {
    fn default() -> Self {
        CostModel { event_ns: 6007, sent_message_ns: 0, work_unit_ns: 375, byte_ps: 0 }
    }
}

/// What making a record durable takes. One flush is in progress at a time and takes
/// `append * records + flush`; everything appended meanwhile goes into the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// Writing one record.
    pub append: Duration,
    /// Flushing everything written.
    pub flush: Duration,
    /// Whether records are kept for a restart. A long run without crashes saves the memory.
    pub keep_records: bool,
}

impl Disk {
    /// Records are durable at once, and not kept: no message waits for them, and nothing can restart.
    pub const MEMORY: Disk =
        Disk { append: Duration::ZERO, flush: Duration::ZERO, keep_records: false };
}
