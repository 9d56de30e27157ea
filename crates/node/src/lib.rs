//! A node: it serves one replica of every partition of its cluster.
//!
//! A [`Node`] has a thread, an endpoint, links and a flusher for each of its cores; the partitions are spread over them.
//! Cores share nothing, and pass messages in the buffers in which they were encoded.
//!
//! A replica's messages wait in the buffers of their links for the flush of what it appended before
//! ([`Durability`]): the flusher of a core takes what all its partitions have appended, writes it in one
//! go, and releases the messages that waited for it.

mod admission;
mod configuration;
mod disks;
mod durable;
mod durable_position;
mod durable_standing;
mod flusher;
mod generations;
mod internal;
mod joining;
mod metrics;
mod neighbours;
mod node;
mod peer;
mod pin;
mod process;
mod recorder;
mod replica;
mod server;
mod side;
mod standing;
mod watch;

pub use configuration::{ConfigurationError, KeyspaceConfiguration, NodeConfiguration};
pub use disks::NodeDisks;
pub use durable::{Batch, Disks, Opened, PartitionLog, Replay};
pub use node::{Node, NodeFailed, NodeHandle, NodeObserver, StartError};
pub use process::process_cpu_time;
pub use replica::{MakeReplica, Replicas};
pub use serried_model::{Durability, Provenance};
pub use serried_storage::{Boot, KeyspaceIdentity, KeyspaceRecord, Start};
pub use serried_wire::{
    Behind, NodeStatistics, NodeStatus, NotServed, NotVoting, Statistics, TransportOptions,
};
