//! The simulator: a whole cluster, its clients and their workloads in one thread and in virtual time.
//!
//! It runs any [`serried_actor::Protocol`] unchanged, and the very same workload code that runs on
//! tokio in production. One seed decides everything: two runs of one [`Configuration`] handle the same
//! events in the same order, which [`Cluster::event_hash`] shows.
//!
//! What happens to an event, and where it is written:
//!
//! ```text
//! task ──submit──▶ port ──▶ processor ──▶ coordinator ──effects──▶ log ──▶ network ──▶ scheduler
//! (executor)      (port)     (cpu)          (node)               (disk)   (network)       │
//!   ▲                                         ▲                                           │
//!   └──────────────── outputs ────────────────┴──────────── processor ◀── the next event ─┘
//! ```
//!
//! A node is a processor in front of an actor in front of a log. A message waits for a free core; its
//! handler runs when service starts, and its effects take place when service ends. A message that is
//! sent waits in the log until what was appended before it is durable, then goes to the network, which
//! decides when it arrives, once, twice or never.

mod clock;
mod cluster;
mod configuration;
mod cpu;
mod disk;
mod executor;
mod fault;
mod hash;
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
pub use configuration::{Clocks, Configuration, CostModel, Disk, Initial, NetworkFaults};
pub use fault::{Fault, FaultId, Scheduled};
pub use reach::{Reach, Side};
pub use statistics::{Load, Messages, Statistics};
pub use swarm::{Plan, Swarm};
pub use world::{Fate, Interceptor, Passing};
