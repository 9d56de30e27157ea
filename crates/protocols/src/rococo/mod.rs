//! ROCOCO: transactions that are chopped into pieces, and reordered instead of aborted (002).
//!
//! A server executes a piece at once only if another piece needs its outputs. It defers all other pieces until the transaction
//! commits. It tracks which transactions have started conflicting pieces before which. When a transaction commits, every
//! server learns all transactions before it, and executes the deferred pieces of all of them in the same order, whatever
//! the order in which the pieces arrived. So conflicting transactions need neither locks nor aborts.
//!
//! ```text
//! client                     leader of each partition               followers
//!   | Start(pieces) ------------->|  executes immediate pieces,
//!   |                             |  defers others, finds edges
//!   |                             | Accept(Start(rows, edges)) ----------->|
//!   |<-- Started(outputs, edges) -|  once that is chosen
//!   |  further pieces, if they need outputs; then
//!   | Commit(all edges) --------->|
//!   |                             |  Ask(txn) to other partitions, for ancestors that are not here
//!   |                             | Accept(Execute(rows, outputs)) ------->|
//!   |<-------- Executed(outputs) -|  once that is chosen
//!   | End ----------------------->|  some time, with others
//! ```
//!
//! # Invariants
//! - *Edges are durable before they are reported.* A partition's log has each transaction's pieces, what the immediate ones
//!   wrote and returned, and the transactions before it. A transaction commits when all of its pieces were reported as
//!   started. So everything that its commit says can be found again in the logs of its participants, and the commit itself
//!   need not be durable. Any node can finish a transaction: it starts the same pieces once more, gets the same answers, and
//!   commits. Nothing is executed twice, because a leader knows what was started and executed.
//! - *A leader executes, and the log has the results.* What immediate and deferred pieces write is in the entries, row by row.
//!   So replicas install rows, in any order of copies and replays. An entry is valid only behind the entries that its leader
//!   knew, those included that were not chosen yet ([`crate::frameworks::replicated_log::Led`]).
//! - *A transaction is executed when the edges of all ancestors are complete* (`frameworks/chopped/order.rs`).
//! - *An ancestor that was executed alone is decided, one on a cycle is not.* A transaction that was executed without this one
//!   comes before it, and so do its ancestors, which were executed earlier. But if the ancestor was executed as one of a
//!   cycle, this transaction may be on that cycle, at a server that has not executed it yet. So a server remembers the
//!   cycles that it has executed, and reports them (the paper's reply with T^SCC, §3.4). What comes before such a cycle is
//!   decided. A server has to execute of it what conflicts with its own pieces, and knows that by its own edges.
//! - *Edges are what was observed at the start.* A server reports the same edges of a transaction again, even if the others
//!   have been executed meanwhile: perhaps on one cycle with it.
//! - *A call that was started is finished.* A partition does not start a call that began too long ago, or under a set of
//!   procedures that is not in use. But if another partition has started it, it does (`Start::insist`). So a call is refused,
//!   if at all, before its first piece.
//! - *Forgotten transactions were executed everywhere.* A participant keeps a transaction until its coordinator has reported
//!   that all participants have executed it, and until all partitions have reported that all transactions as old have ended.
//!   It keeps one on a cycle until this holds for the whole cycle. This replaces the paper's epochs (§3.4).
//! - *A refused call is a transaction too.* It writes nothing, but what it has read must be consistent. So it commits with the
//!   pieces that it has started, and only then the refusal is reported.
//!
//! - *A read-only call that is ordered is closed before another coordinator commits it.* Its partitions are part of the call.
//!   A server that finishes it for a silent client does not know all of its pieces, so it has all partitions close the call:
//!   what arrives later is not started any more. A client that commits has the answers to all that it has sent. So all
//!   coordinators commit the same edges.
//! - *A recovering partition is a participant*, although the call may need nothing of it any more: it has started pieces of
//!   a call that is refused, or held rows in an attempt that failed.
//!
//! # Corrections of the paper
//! - §4.2 executes merged pieces by optimistic concurrency control, "until it succeeds". This need not ever be the case. Rows
//!   are held instead, and the oldest transaction never fails.
//! - Fig. 7 waits until the status of ancestors is *greater than* COMMITTING. The text waits for COMMITTING or later (§3.2),
//!   which is right: two transactions on a cycle would wait for each other.
//! - Fig. 7 waits for ancestors that are not on the server to be DECIDED. A server that has the complete edges of all
//!   ancestors knows their order, so it does not wait.
//!
//! # Merged pieces
//! Pieces that the offline checker has merged take effect at one moment (§4.2). The argument is in `merged.rs`.
//!
//! # Bounds
//! - 4096 requests wait for a leader, 16384 pieces of read-only calls for transactions, and 4096 requests for rows that are
//!   held. 1024 requests wait for a set of procedures that is not in use yet. Others are dropped and repeated by their
//!   clients.
//! - A leader remembers answers to read-only calls of at most 2 MiB. What it has forgotten is sent again.
//! - A leader coordinates at most 256 calls of silent clients at a time.
//! - A deleted row stays as a row without columns. The store grows with the number of rows that were ever deleted.
//! - A transaction is remembered for [`serried_actor::Settings::outcomes_ms`] after it has ended.

mod coordinator;
mod merged;
mod message;
mod reading;
mod registered;
mod replica;
mod run;
mod sound;
mod table;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Led, Message, Record};
pub use replica::Replica;

use crate::Mutated;
use crate::frameworks::replicated_log;
use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};
use serried_procedures::{Offers, Procedures};

/// The partition that decides which set of procedures is in use.
const OF_SETS: u16 = 0;

/// The protocol.
#[derive(Debug)]
pub struct Rococo;

/// A deliberate mistake. Tests show that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A new piece has no edges.
    ForgetsEdge,
    /// Ancestors that are not at the server are taken for decided.
    IgnoresOtherServers,
    /// A leader holds no rows for a merged piece, so that this is not atomic.
    HoldsNothing,
    /// A leader executes the transactions of a cycle in the order in which their commits have arrived.
    OrdersByArrival,
    /// Transactions are forgotten after a time, whether or not they have ended everywhere.
    ForgetsEarly,
    /// A call that writes nothing reads one round.
    ReadsOnce,
    /// An ordered call that writes nothing takes it for granted that pieces have found what they were predicted to find.
    OrdersUnchecked,
    /// A set of procedures is in use as soon as it is registered, while calls under the former one are under way.
    DoesNotDrain,
}

impl Protocol for Rococo {
    const NAME: &'static str = "rococo";
    const SUMMARY: &'static str = "stored procedures in pieces, reordered instead of aborted";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Procedures;
    const OFFERS: Offers = Offers { merged: true };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
