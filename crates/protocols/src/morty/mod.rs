//! Morty: serializable transactions that are re-executed where others abort (000; 001 Chapter 3).
//!
//! ```text
//! coordinator                      nearest replica        all replicas
//!   | Get(ver, key) ------------------->|                      |
//!   |<---------- GetReply(ver', val) ---|                      |
//!   | Put(ver, key, val) ------------------------------------->|   while the program still runs
//!   |<---------- GetReply(ver'', val) --|   a write was missed: the program runs again
//!   | Prepare(ver, eid, reads, writes) ----------------------->|   checks; again when what was read is decided
//!   |<------------------------------- PrepareReply(vote) ------|
//!   | Finalize(ver, eid, view, decision) --------------------->|   only if the votes are no
//!   |<------------------------------ FinalizeReply(view) ------|   durable decision (Table 1)
//!   | Decide(ver, eid, decision) ----------------------------->|
//!   |<------------------------------ Acknowledge(vers) --------|   many at once, lazily
//! ```
//!
//! # Invariants
//! - *One execution commits.* A Prepare of an execution abandons all earlier ones of its transaction
//!   at the replica that takes it; the coordinator proposes nothing but Abandon for them from then
//!   on, and each reply to the Prepare implies that the abandonment was accepted.
//! - *Prepared means reserved.* From its vote to Commit until a decision, a replica votes for no
//!   execution that would have been missed by, or would have missed, this one (Lemma A.2.3).
//! - *Read validity.* A vote to Commit says that every read is a committed write, value and all.
//! - *Votes are durable before they are sent,* and so are accepted decisions ([`Record`]).
//!
//! # Where this differs from the paper
//! - *Values carry tags.* Where the paper compares values, this compares `(version, tag)`: each value
//!   that a transaction writes under its version has its own tag, so a read set needs no values, and
//!   a later value is told from an earlier one whatever order they arrive in. An unchanged write
//!   keeps its tag and is not sent again.
//! - *No FIFO links.* The paper assumes reliable, ordered delivery; here every message may be lost,
//!   repeated or overtaken. A coordinator takes a GetReply only if it is newer than what it holds, or
//!   says that what it holds is withdrawn (`instead_of`). Requests are repeated until answered.
//! - *Decide is acknowledged*, in batches; the coordinator repeats it, with the execution's contents,
//!   to a replica that does not. The paper leaves this to the links and to recovery.
//! - *A Prepare brings the writes with it*, as in the paper, so a Put is sent only while the program
//!   waits for something: a program that writes and ends has its writes travel once.
//! - *Retraction.* A Prepare's write set is complete: a replica withdraws the transaction's other
//!   uncommitted writes, and tells those who read them what they would find now.
//! - *Abandoning and preparing are one message.* A Prepare of execution `eid` is the proposal to
//!   abandon all before it, in view 0, and each vote on it an acceptance.
//! - *Prepares do not wait in silence.* Where the paper suspends a Prepare until all that was read is
//!   committed, a replica validates at once, prepares, and votes *provisionally*: to commit, if what
//!   was read commits as it was read. Its vote for good follows when that is known. Since the
//!   condition is settled once for all, the coordinator needs a single replica, the one that hears of
//!   it first, to make all provisional votes good. A link of a chain of transactions that read from
//!   each other then takes one message delay to that replica instead of a round trip to a majority,
//!   which is the length of a validity window (000 §2.2). A recoverer waits for what was read before it
//!   counts provisional votes alone.
//! - *A tentative Abandon is tried again* a few times, as a new execution with the same contents: what
//!   was in the way is mostly a younger reader that was told of the write and runs again.
//! - *A vote that fails a read comes with what to read instead*, for dirty reads as for missed writes,
//!   so that a coordinator re-executes where it would otherwise have to abort.
//! - *Stale writes are not told again.* A write comes with what its transaction found in the key, if it
//!   has read it. Where that has changed, or is stale itself, the transaction runs again and writes
//!   something else, so all but its first value are told to readers only when they are not stale. In a
//!   chain of transactions that write what depends on what they read, a change then goes from each to the
//!   next; told to all behind it, it would have them run again once for each link before them.
//! - *Changes that come fast are taken together.* A transaction that has superseded values of its own is
//!   told of further changes at most once a round trip, unless what it prepared is withdrawn or voted down.
//! - *`committed_reads` is compressed* to the latest reader of each version, and `prepared_writes` is
//!   derived from the uncommitted writes: see `key_record.rs`.
//! - *The coordinator waits for a missing vote* as long as the votes that it has took to arrive, and
//!   only then goes the slow way: at worst that costs twice the best choice.
//!
//! - *A transaction spans partitions*, each a replica group of its own, where the paper has one group.
//!   Each votes on its part, and an execution commits if all do. To abandon one it takes the home
//!   partition, which is in all of them.
//! - *A replica's refusal concerns that replica.* A transaction is given up when a majority refuses it as
//!   truncated or too far ahead: one clock may be wrong.
//! - *Recovery and truncation* say what they add where they are: `replica/recovery.rs`,
//!   `replica/truncation.rs`, `replica/catch_up.rs`.

mod coordinator;
mod digest;
mod message;
mod replica;
#[cfg(test)]
mod tests;
mod votes;

pub use coordinator::Coordinator;
pub use digest::Digest;
pub use message::{
    Accepted, Contents, Decision, Known, Message, Past, Proposal, Read, Record, Refusal,
    Settlement, Snapshot, TaggedWrite, View, Vote,
};
pub use replica::Replica;

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

/// What the two sides are built with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Whether a replica tells readers of writes that they missed. Without it this is MVTSO.
    pub re_execution: bool,
    /// Whether a replica votes provisionally while what was read is undecided. Without it a Prepare
    /// waits, as in the paper.
    pub provisional_votes: bool,
    /// Which checks a replica makes. All of them, but in tests that show what each is for.
    pub checks: Checks,
    /// What a replica does wrong: nothing, but in tests that show that it would be noticed.
    pub mutation: Option<Mutation>,
}

/// Something to be done wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Votes are sent before they are durable.
    VotesBeforeDurable,
    /// A recoverer does not mind what was accepted in Finalize.
    RecoveryIgnoresFinalize,
    /// A truncation takes only what was accepted in Finalize for pending, not what was voted on.
    TruncationIgnoresVotes,
    /// A Prepare is voted on even when a recoverer has asked about the transaction, or ended it.
    LatePrepare,
}

/// The checks of the serializability validation (000 §4.2, "Prepare").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// Check 1: the execution's reads missed no write.
    pub missed_by_reads: bool,
    /// Check 2: nobody else's read missed one of its writes.
    pub missed_by_others: bool,
    /// Check 3: what it read is what was committed.
    pub dirty_reads: bool,
}

impl Checks {
    /// All of them.
    pub const ALL: Checks =
        Checks { missed_by_reads: true, missed_by_others: true, dirty_reads: true };
}

impl Default for Options {
    fn default() -> Self {
        Options { re_execution: true, provisional_votes: true, checks: Checks::ALL, mutation: None }
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Morty;

impl Protocol for Morty {
    const NAME: &'static str = "morty";
    const SUMMARY: &'static str =
        "re-executes transactions that missed a write, instead of aborting";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Options::default())
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Options::default())
    }
}
