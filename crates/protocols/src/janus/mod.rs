//! Janus: concurrency control and replication in one agreement (Mu et al., OSDI 2016), and Janus-CC, the same with one
//! replica of each partition (003 §6.1, "Baselines").
//!
//! Janus executes no piece of a transaction before the transaction commits. When it is announced, each replica of each
//! participant records it and reports the conflicting transactions that it knows: these come before it. The replicas of a
//! partition agree on these edges. When all participants have agreed, the transaction commits: every replica learns all
//! transactions before it, and executes them in one order that all replicas find. So nothing is aborted, and nothing has to
//! be merged or ruled out beforehand.
//!
//! ```text
//! client                      each replica of each participant
//!   | PreAccept(call) ------------->|  finds edges from what it knows of the call's rows
//!   |<------------ PreAccepted(edges)|  once that is durable
//!   | Accept(edges) --------------->|  only if not all replicas of a partition have reported the same
//!   |<--------------------- Accepted|  from a majority
//!   | Commit(all edges) ----------->|
//!   |                               |  Ask(txn) to other partitions, for ancestors that are not here
//!   |                               |  executes ancestors and the call in their order
//!   |                               |  Results to the other participants, if pieces need outputs of others
//!   |<------------- Executed(outputs)|  from one replica of each participant, once that is durable
//! ```
//!
//! # Agreement
//! The replicas of each partition agree on its edges by themselves (`run/agreement.rs`). A replica's own edges for a
//! transaction never change, and are durable before it reports them.
//!
//! - *Fast quorum: all replicas.* If all have reported the same edges, these are agreed on after one round trip.
//! - *Otherwise a majority accepts the union* of what a majority has reported, in a ballot. The client that has begun the
//!   transaction has ballot 0. Others ask for a promise and for reports at the same time, by a `PreAccept` in a later ballot,
//!   and propose what was accepted in the latest ballot, or else the union of what a majority reports.
//! - *A coordinator need not know whether a fast quorum has agreed.* If all replicas have reported the same edges, then the
//!   union of what any majority reports is that, too. Edges to transactions that are settled (see below) may differ, and
//!   make no difference.
//!
//! Janus's fast quorums have ⌈3f/2⌉ + 1 of 2f + 1 replicas. With three replicas these are all. With five they are four: then a
//! recovery sees only some of them, and must find out whether a conflicting transaction contradicts what they report. The
//! fast quorum here is slower if one of five replicas is down, and has no such case.
//!
//! - *Of two conflicting transactions that commit, one comes after the other.* Both were reported by majorities, so by a
//!   common replica. There the later one had an edge to the former one, or to one that stands for it: one that has a path
//!   to it in the edges on which this partition has agreed, and conflicts with the later one, too
//!   (`frameworks/chopped/accesses.rs`). What a replica only reports orders nothing elsewhere, so a transaction stands for no
//!   other before it commits. A path is as good as an edge, since the order depends on nothing but which transactions are
//!   reached from which. Edges of other partitions don't count: a replica that lacks a transaction on such a path might
//!   hear that it was executed, and would not execute it before those that come later.
//! - *A transaction that is executed still gets edges* from those that come later, until all replicas of its partition have
//!   executed it: others might execute the later one first. If many are kept, a later one *gathers* them, and then stands
//!   for them. So a replica that lags behind does not make the edges of others grow.
//! - *Strictness.* If a transaction begins after another one was acknowledged, then the other was executed somewhere. All
//!   that comes before it was agreed on by then, so the later one is not among that.
//!
//! # A transaction of which too few know
//! A replica may report an edge to a transaction that no other replica knows, and be lost. Then nobody knows what that
//! transaction does. A replica that needs it asks a majority of the partition in a later ballot. If none of them knows it,
//! they agree that it is *void*: it has no edges, and is never executed. A participant that is void makes the transaction void
//! everywhere, since a commit needs the edges of all participants. A client that inquires about a transaction does the same
//! at all partitions. One at which the transaction has no pieces may then take it for void. That says nothing about the
//! others: they follow it only if an edge says that the transaction has pieces there.
//!
//! # Execution
//! - *A transaction is executed when the edges of all ancestors are known*, and after all of them. Transactions on a cycle
//!   form a group, which is executed in the order of their versions. An ancestor that was executed alone is decided, one on
//!   a cycle is reported with its whole cycle (see [`crate::rococo`]).
//! - *A transaction waits for one ancestor at a time* (`frameworks/chopped/blocked.rs`). If that one waits for the
//!   transaction in turn, both are on a cycle.
//! - *A transaction holds its place in the order until all of its pieces here are executed.* A piece may need outputs of
//!   pieces at other partitions. They know the whole call and execute it in the same place of the same order, so they will
//!   report them (`execution.rs`). Nobody waits in a circle: the first transaction of the order that is not executed
//!   everywhere waits for no other transaction, and its own pieces wait for each other in no circle.
//! - *A group is executed as a whole.* Other transactions wait for all of it, and a restart in between resumes it with the
//!   same members.
//! - *What is stored is in a durable record* (`table.rs`). So nothing is executed twice.
//! - *A set of procedures is registered by a transaction that conflicts with everything*, at all partitions. All calls are
//!   ordered before or after it. A call after it that names another set does nothing, at any participant, and its client
//!   starts it again. No piece is executed before the commit, so tags of pieces don't matter, and nothing has to drain.
//! - *A call that one replica has taken on is taken on by all* (`PreAccept::insist`), or becomes void everywhere if its time
//!   is closed (see below). So it is refused, if at all, everywhere.
//!
//! # Replicas that lack something
//! Replicas of a partition compare what they have executed (`replica/watch.rs`), and fetch what they lack. A transaction has
//! ended at a partition when all replicas that are *counted* have executed it; it is *settled* when it has ended at all
//! partitions. Uses of rows are kept until all that are counted know that. Replicas agree on who is counted
//! (`replica/configure.rs`). One that was silent for [`serried_actor::Settings::outcomes_ms`] is left out, and copies the data
//! of another one when it comes back (`replica/copy.rs`). A vertex names the time below which its edges may lack settled
//! transactions (`Vertex::floor_us`). A replica executes it only if it knows these to be settled, too. So one that is not
//! counted, and does not know it, executes nothing too early.
//!
//! Time is settled in two rounds. First replicas learn up to when all partitions have ended what they know, and *close* that
//! time: they take on no transaction that began before it, even if another replica has taken it on
//! (`Window::closed_us`). Only what all counted replicas have closed, and ended, is settled. If a majority has closed
//! the time of a transaction before taking it on, that one becomes void.
//!
//! # Pieces that need outputs
//! 003 runs such procedures in several shots. Then the first shots are executed before the transaction commits. They would
//! need ROCOCO's immediate pieces and the offline checker, and some sets would have to be refused. Here all pieces are
//! executed after the commit, in one place of the order, and partitions exchange outputs. This is strictly serializable for
//! any set. It costs one message delay for each step from one piece to another, while conflicting transactions wait.
//! A key that depends on outputs is known in part at best. Then the call conflicts with all rows whose keys begin so. If even
//! the partition is unknown, all partitions are participants.
//!
//! # Read-only calls
//! They run as all others do.
//!
//! # Bounds
//! - A replica takes on at most 65,536 transactions that are not executed; others are dropped and repeated by their clients.
//! - A replica coordinates at most 256 transactions of silent clients at a time.
//! - A transaction is remembered for [`serried_actor::Settings::outcomes_ms`] after it has ended.
//! - A replica under Janus-CC whose disk was lost answers nothing: there is no copy of its data.

mod coordinator;
mod execution;
mod in_use;
mod members;
mod message;
mod replica;
mod run;
mod sound;
mod table;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use members::Members;
pub use message::{Message, Record};
pub use replica::Replica;

use crate::Mutated;
use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};
use serried_procedures::{Offers, Procedures};

/// The partition that clients ask for the set of procedures.
const OF_SETS: u16 = 0;

/// Janus.
#[derive(Debug)]
pub struct Janus;

/// Janus with one replica of each partition.
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
    /// An edge to a transaction that is not executed stands for edges to those before it, as if others knew the same order.
    CoversByUnexecuted,
    /// A transaction that was executed here gets no more edges, although others may not have executed it.
    ForgetsExecuted,
    /// A majority is enough for a transaction to have ended.
    EndsByMajority,
    /// What was accepted in former ballots is not reported.
    ReportsNothingAccepted,
    /// A replica that does not know what others have forgotten executes nevertheless.
    IgnoresFloors,
    /// A replica agrees as soon as it has copied the data that its lost disk had.
    AgreesAtOnce,
    /// The last part of a copy is sent although the copy is not counted.
    CopiesUncounted,
    /// A copy that has ended is counted again when its replica was left out.
    CountsAgain,
    /// A replica that has restarted goes on with a copy that it had begun before.
    MixesSessions,
}

impl Protocol for Janus {
    const NAME: &'static str = "janus";
    const SUMMARY: &'static str =
        "stored procedures, ordered before execution, by replicas without a leader";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Procedures;
    const OFFERS: Offers = Offers { merged: true };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(Members::replicated(group), settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, Members::replicated(group), settings, Mutated::NONE)
    }
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
        Coordinator::new(Members::alone(group), settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, Members::alone(group), settings, Mutated::NONE)
    }
}
