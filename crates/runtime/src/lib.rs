//! The runtime: protocols on tokio, over TCP.
//!
//! A [`Node`] serves one replica of every partition of its cluster; a [`Client`] is connected to every
//! node and coordinates the transactions of its process. A client, and each core of a node, are an
//! *endpoint*: machines (protocol actors with their types erased), links (connections as far as senders
//! are concerned) and timers, behind one lock that is never held across a system call.
//!
//! The way of a message, which decides what a transaction costs:
//!
//! 1. A connection's reader wakes up, reads once into a large buffer, takes the endpoint's lock once,
//!    and hands every message that has arrived whole to its machine.
//! 2. The machine's effects are carried out on the spot. A message to send is encoded straight behind
//!    what else waits for its receiver; nothing is allocated, queued or handed to another thread.
//! 3. The receiver's writer, woken by the first of these messages, steps back behind everything else
//!    that is ready to run, so that what those produce leaves with it; then it takes all that waits,
//!    completes frames and checksums outside of the lock, and writes once.
//!
//! At a client, a coordinator's outputs wake the tasks that run transactions, and what those ask for
//! next is handled in the same task, in step 2, before the writers of step 3 have their turn.
//!
//! Connections are not reliable and need not be: protocols retransmit, so a lost connection loses
//! what waits on it, and a receiver that does not keep up loses messages rather than use up memory.
//!
//! A replica's messages wait in these buffers for the flush of what it appended before
//! ([`Durability`]): the flusher of a core takes what all its partitions have appended, writes it in one
//! go, and releases the messages that waited for it.
//!
//! A node has a thread, an endpoint, links and a flusher for each of its cores; the partitions are spread
//! over them. Cores share nothing, and pass messages in the buffers in which they were encoded.

mod admission;
mod catalogue;
mod client;
mod clock;
mod configuration;
mod connection;
mod core;
mod desk;
mod dialer;
mod disks;
mod distance;
mod durable;
mod durable_position;
mod durable_standing;
mod flusher;
mod frame;
mod generations;
mod handshake;
mod hostile;
mod internal;
mod joining;
mod links;
mod local_cluster;
mod machine;
mod metrics;
mod neighbours;
mod node;
mod obstacles;
mod options;
mod out_buffer;
mod peer;
mod pin;
mod port;
mod redial;
mod server;
mod shards;
mod sparing;
mod statistics;
mod status;
mod tables;
mod timers;
mod watch;
mod watching;
mod writer;

pub use catalogue::Catalogue;
pub use client::{Client, ConnectError, ConnectOptions};
pub use configuration::{ConfigurationError, KeyspaceConfiguration, NodeConfiguration};
pub use disks::NodeDisks;
pub use durable::{
    Batch, Boot, Disks, Durability, KeyspaceIdentity, KeyspaceRecord, Log, Opened, Provenance,
    Replay, Start,
};
pub use handshake::KeyspaceInfo;
#[doc(hidden)]
pub use hostile::{example_frames, read_hostile_frames};
pub use local_cluster::{LocalCluster, LocalOptions};
pub use node::{Node, NodeFailed, NodeHandle, NodeObserver, StartError};
pub use options::TransportOptions;
pub use statistics::{NodeStatistics, Statistics, process_cpu_time};
pub use status::{Behind, NodeReply, NodeStatus, NotServed, NotVoting};
pub use watching::{WatchError, WatchOptions, Watched, Watching};
