//! A deterministic simulator: a whole cluster, its clients and their workloads in one thread and in virtual time.
//!
//! On a real cluster a bug that needs a rare order of events can hardly be replayed. Here one seed decides everything:
//! two runs of one [`Configuration`] handle the same events in the same order, as [`Cluster::event_hash`] shows. The
//! simulator runs any [`serried_actor::Protocol`] unchanged, and the same workload code that runs on tokio in
//! production.
//!
//! The way of an operation through the simulator, with the module of each step:
//!
//! ```text
//! task ──submit──▶ port ──▶ processor ──▶ coordinator ──effects──▶ log ──▶ network ──▶ scheduler
//! (executor)      (port)     (cpu)          (node)               (disk)   (network)       │
//!   ▲                                         ▲                                           │
//!   └──────────────── outputs ────────────────┴──────────── processor ◀── the next event ─┘
//! ```
//!
//! A node consists of a processor, an actor and a log. An incoming message waits for a free core. Its handler runs when
//! service starts, and its effects take place when service ends. An outgoing message waits in the log until everything
//! appended before it is durable. Then the network decides when it arrives: once, twice or never.
//!
//! A keyspace may have several sites ([`Configuration::sites`]), each with machines and clients of its own. Then the
//! replicas of a partition are close to each other, and the sites are as far apart as the geography's. [`Side::site`]
//! names all nodes of a site, to cut it off.

mod clock;
mod cluster;
mod configuration;
mod cpu;
mod disk;
mod executor;
mod fault;
mod hash;
mod host;
mod network;
mod node;
mod port;
mod reach;
mod scheduler;
mod statistics;
mod store;
mod swarm;
mod timers;
mod world;

pub use cluster::{Cluster, Observer, Stalled, Watcher};
pub use configuration::{
    Clocks, Configuration, CostModel, Disk, Initial, NetworkFaults, OneMachine, SystemCallCosts,
};
pub use fault::{Fault, FaultId, Scheduled};
pub use reach::{Reach, Side};
pub use statistics::{Load, Messages, Statistics, Traffic};
pub use swarm::{Plan, Swarm};
pub use world::{Fate, Interceptor, Passing};
