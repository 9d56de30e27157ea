//! The wire: what nodes and clients have in common to run protocols on tokio, over TCP.
//!
//! A client, and each core of a node, has an [`Endpoint`]: actors of protocols without their types, links (connections as
//! far as senders are concerned) and timers, behind one lock that is never held across a system call. A [`Side`] is what
//! only a node's or only a client's endpoint has.
//!
//! The way of a message, which decides what a transaction costs:
//!
//! 1. A connection's reader wakes up, reads once into a large buffer, takes the endpoint's lock once,
//!    and hands every message that has arrived whole to its actor.
//! 2. The actor's effects are carried out at once ([`Driven`]). A message to send is encoded straight behind what else
//!    waits for its receiver; nothing is allocated, queued or handed to another thread.
//! 3. The first of these messages wakes the receiver's writer. It lets everything else run that is ready, so that the
//!    messages of those tasks leave with it. Then it takes all that waits, completes frames and checksums outside of the
//!    lock, and writes once.
//!
//! At a client, a coordinator's outputs wake the tasks that run transactions. What those request next is handled in the
//! same task, in step 2, before the writers of step 3 have their turn.
//!
//! Connections are not reliable and need not be, because protocols retransmit. A lost connection loses what waits on it,
//! and a receiver that does not keep up loses messages rather than use up memory.

mod clock;
mod codec;
mod connection;
mod driven;
mod endpoint;
mod frame;
mod handshake;
mod hostile;
mod links;
mod options;
mod out_buffer;
#[cfg(test)]
mod passage;
mod polling;
mod record;
mod redial;
mod shards;
mod sparing;
mod statistics;
mod status;
mod tables;
mod timers;
mod watch;
mod writer;

pub use clock::{Clock, Moment};
pub use codec::{decode, encode};
pub use connection::{Connection, Detached, Ended};
pub use driven::{Driven, ErasedActor, Host, Outbox, Role};
pub use endpoint::{Core, Endpoint, Side};
pub use frame::{BadFrame, Frame, Kind, VERSION};
pub use handshake::{Hello, KeyspaceInfo, KnownData, Met, Place, Welcome, dial};
#[doc(hidden)]
pub use hostile::{example_frames, read_hostile_frames};
pub use links::{Cut, End, LinkId, LinkOptions, Links};
pub use options::TransportOptions;
pub use out_buffer::OutBuffer;
pub use record::{MOST_REPORT_BYTES, RecordReply, RecordRequest, Report, ReportRequest};
pub use redial::Redial;
pub use serried_actor::Placement;
pub use shards::Shards;
pub use sparing::{Sparing, legible};
pub use statistics::{NodeStatistics, Statistics};
pub use status::{AtSite, Behind, NodeStatus, NotServed, NotVoting};
pub use tables::{Tables, Unresolved};
pub use watch::{Recorded, WatchReply, WatchRequest};
