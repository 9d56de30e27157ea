//! Janus-CC: Janus's concurrency control without its replication (Mu et al., OSDI 2016; 003 §6.1, "Baselines").
//!
//! Janus executes no piece of a transaction before the transaction commits. When it is announced, each participant records
//! it and reports the conflicting transactions that it knows: these come before it. When it commits, every server learns
//! all transactions before it, and executes them in one order that all servers find. So nothing is aborted, and nothing has
//! to be merged or ruled out beforehand.
//!
//! ```text
//! client                      server of each participant
//!   | PreAccept(call) ------------->|  finds edges from what it knows of the call's rows
//!   |<------------ PreAccepted(edges)|  once that is durable
//!   | Commit(all edges) ----------->|
//!   |                               |  Ask(txn) to other servers, for ancestors that are not here
//!   |                               |  executes ancestors and the call in their order
//!   |                               |  Results to the other participants, if pieces need outputs of others
//!   |<------------- Executed(outputs)|  once that is durable
//!   | End ------------------------->|  some time, with others
//! ```
//!
//! # Quorums
//! A partition has one server: member `partition mod n` of its group (`server`). Janus's quorums of one partition are that
//! server, so all answers of a partition are always equal. The fast path is the only one, and needs no ballots: a server gives
//! the same edges whoever asks, so whoever finishes a transaction commits it with the same edges.
//!
//! # Invariants
//! - *Edges are durable before they are reported, and never change.* So the graph of committed transactions is one graph.
//! - *Of two conflicting transactions, the later one at a server has an edge or a path to the earlier one.* A server finds
//!   conflicts by the rows that a call may use (`in_use.rs`), which are all that it does use.
//! - *A transaction is executed when the edges of all ancestors are known* (`frameworks/chopped/order.rs`). Transactions on
//!   a cycle form a group, which is executed in the order of their versions. An ancestor that was executed alone is
//!   decided, one on a cycle is reported with its whole cycle (see [`crate::rococo`]).
//! - *A transaction holds its place in the order until all of its pieces here are executed.* A piece may need outputs of
//!   pieces at other servers. They know the whole call and execute it in the same place of the same order, so they will
//!   report them (`execution.rs`). Nobody waits in a circle: the first transaction of the order that is not executed
//!   everywhere waits for no other transaction, and its own pieces wait for each other in no circle.
//! - *A group is executed as a whole.* Other transactions wait for all of it, and a restart in between resumes it with the
//!   same members.
//! - *Strictness.* If a transaction begins after another was acknowledged, then every participant of the other has executed
//!   it. So no server has an edge from the later one to it, nor to what comes before it.
//! - *What is stored is in a durable record* (`table.rs`). So nothing is executed twice.
//! - *A set of procedures is registered by a transaction that conflicts with everything*, at all partitions. All calls are
//!   ordered before or after it. A call after it that names another set does nothing, at any participant, and its client
//!   starts it again. No piece is executed before the commit, so tags of pieces don't matter, and nothing has to drain.
//! - *A call that one partition has taken on is taken on by all* (`PreAccept::insist`). So it is refused, if at all,
//!   everywhere.
//! - *Forgotten transactions were executed everywhere*, as in [`crate::rococo`].
//!
//! # Pieces that need outputs
//! 003 runs such procedures in several shots. Then the first shots are executed before the transaction commits. They would
//! need ROCOCO's immediate pieces and the offline checker, and some sets would have to be refused. Here all pieces are
//! executed after the commit, in one place of the order, and servers exchange outputs. This is strictly serializable for
//! any set. It costs one message delay for each step from one piece to another, while conflicting transactions wait.
//! A key that depends on outputs is known in part at best. Then the call conflicts with all rows whose keys begin so. If even
//! the partition is unknown, all partitions are participants.
//!
//! # Read-only calls
//! They run as all others do.
//!
//! # Bounds
//! - A server takes on at most 65,536 transactions that are not executed; others are dropped and repeated by their clients.
//! - A server coordinates at most 256 transactions of silent clients at a time.
//! - A transaction is remembered for [`serried_actor::Settings::outcomes_ms`] after it has ended.
//! - A server whose disk was lost answers nothing: there is no copy of its data.

mod coordinator;
mod execution;
mod in_use;
mod message;
mod replica;
mod run;
mod sound;
mod table;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Message, Record};
pub use replica::Replica;

use crate::Mutated;
use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};
use serried_procedures::{Offers, Procedures};

/// The partition that clients ask for the set of procedures.
const OF_SETS: u16 = 0;

/// The node that keeps a partition's data.
fn server(group: &Group, partition: u16) -> NodeId {
    NodeId::replica(partition, usize::from(partition) % group.size())
}

/// The protocol.
#[derive(Debug)]
pub struct JanusCc;

/// A deliberate mistake. Tests show that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A new transaction has no edges.
    ForgetsEdges,
    /// Ancestors that are not at the server are taken for decided.
    IgnoresOtherServers,
    /// A group is executed in the order in which its transactions came to the server.
    ExecutesByArrival,
    /// A transaction that waits for outputs does not hold up those after it.
    HoldsNoPlace,
}

impl Protocol for JanusCc {
    const NAME: &'static str = "janus-cc";
    const SUMMARY: &'static str = "stored procedures, ordered before execution, without copies";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Procedures;
    const OFFERS: Offers = Offers { merged: true };
    const KEEPS_COPIES: bool = false;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
