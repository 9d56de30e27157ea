//! Morty: serializable transactions that are re-executed where others abort (000; 001 Chapter 3).
//!
//! ```text
//! coordinator                      nearest replica        all replicas
//!   | Get(ver, key) ------------------->|                      |
//!   |<---------- GetReply(ver', val) ---|                      |
//!   | Put(ver, key, val) ------------------------------------->|   while the program still runs
//!   |<---------- GetReply(ver'', val) --|   a write was missed: the program runs again
//!   | AskAdmission(ver) -------------------------------------->|   only if it has read nothing and clocks are unknown
//!   | Prepare(ver, eid, reads, writes) ----------------------->|   checks; again when what was read is decided
//!   |<------------------------------- PrepareReply(vote) ------|
//!   | Finalize(ver, eid, view, decision) --------------------->|   only if the votes are no
//!   |<----------- FinalizeReply(ver, eid, view, decision) -----|   durable decision (Table 1)
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
//! - *Votes are durable before they are sent,* and so are promises and accepted decisions ([`Record`]).
//! - *A view is used once, for one proposal.* A recoverer's view is a promise in its own log before it
//!   leaves. A FinalizeReply counts for the execution and the decision that it names, in its view. A
//!   replica accepts one proposal in a recoverer's view.
//! - *An AbandonFinal vote is a durable decision* (see below), so a coordinator aborts on one, and a
//!   recoverer that hears of one abandons.
//! - *No message ends a node.* What no sound sender sends is dropped, counted and reported with its sender
//!   (`Context::reject`): a decision other than the one carried out, contents that no transaction has, a
//!   proposal in another's view.
//! - *What is settled has one owner.* All that is committed of a key is its `StoredVersions`, in memory and in
//!   the store, and the store is only ever merged into. State below a watermark is replaced by what another
//!   replica holds, and state above it merged (`replica/keys.rs`).
//! - *A delete outlives what it deletes.* It is forgotten below a horizon only, and nothing older comes after
//!   that: not from the log, which says where the horizon is; not by message, since nothing below the watermark
//!   is open; and not from a replica that was away for longer, as that one takes over what others hold.
//! - *A replica that has lost its disk takes part in nothing* until everything is settled in which its
//!   predecessor may have had a part (`replica/rejoin.rs`).
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
//! - *Views are a transaction's, not an execution's.* Home's consensus on a transaction has one value: the
//!   execution that commits, or none. Only the coordinator proposes in view 0, and there it proposes to
//!   abandon the executions one after the other and at last, perhaps, to commit one. It proposes nothing
//!   after that, nor does it commit what it has proposed to abandon. So of what a majority has accepted in
//!   view 0 the highest execution decides: if it is a Commit, every majority has one that reports it, and no
//!   later one exists. If it is an Abandon, every majority has one that reports all executions up to it as
//!   abandoned. That is what Lemma A.2.1 needs for its step from view 0 to a later one. In later views there
//!   is one proposal each, as in the paper.
//! - *An abandoned execution is unprepared before its abandonment is durable*, as 000 §4.2 has it; step 8 of
//!   001's Lemma A.2.3 has a server unprepare only when it receives a durable decision. What the lemma needs
//!   is that of an execution that commits f + 1 replicas, which have voted for it, keep it prepared until
//!   they learn that. They do. If its coordinator commits it, or has proposed to, the coordinator has never
//!   proposed to abandon it. If a recoverer proposes to commit it for its votes, it has them from f + 1
//!   replicas that had not accepted to abandon it and have promised a later view. In that they accept nothing
//!   of the coordinator's any more, and what is accepted in later views unprepares nothing. A replica gives
//!   what an execution had prepared to others only with the abandonment in its log before its vote for them,
//!   so neither holds less after a restart.
//! - *Promises and Finalizes are answered below a truncation for which the replica has stopped*, where in 001
//!   §3.3.4 it answers nothing. There the truncation coordinator decides by what the `erecord`s say; here it
//!   has every transaction recovered that a majority's snapshots list as undecided, and for that the replicas
//!   have to answer. Nothing can commit that is not listed: to commit takes f + 1 votes, one of them by a
//!   replica of that majority, from a Prepare that it took before it stopped. It lists what it has taken.
//! - *Commits that are fetched from another replica come without their reads.* Who has voted on the execution
//!   has its reads, and enters these. Lemma A.2.3 asks for f + 1 that reject what a committed read would miss,
//!   and those that voted are f + 1.
//! - *Why an AbandonFinal vote is durable.* It says that the execution and a committed one can't both be: one
//!   of them missed the other's write, or it has read what has not committed and never will. In the latter
//!   case no replica ever votes Commit. In the former f + 1 replicas keep the committed one prepared from
//!   their votes on it on, or have it as committed. Of those none votes for this execution afterwards, and
//!   none that had voted for it before has voted for the committed one, unless this execution was abandoned
//!   there in between. So at most f can say that they have voted for it and have not abandoned it, whatever
//!   majority is asked. It takes that no replica forgets what has committed while another may still vote as if
//!   it had not: what is forgotten lies below the watermark, and must be judged alike by those who remember it.
//! - *A transaction spans partitions*, each a replica group of its own, where the paper has one group.
//!   Each votes on its part, and an execution commits if all do. To abandon one it takes the home
//!   partition, which is in all of them.
//! - *A replica's refusal concerns that replica.* A transaction is given up when a majority refuses it as
//!   truncated or too far ahead: one clock may be wrong.
//!   So that one is told before it is prepared, when nothing can have come of it, a coordinator that has not
//!   read for a transaction asks whether it is let in, unless it knows the replicas' clocks
//!   (`coordinator/admission.rs`).
//! - *A delete is told as nothing at all* once it is settled, and a reader that has found nothing has not missed
//!   a delete. Replicas forget deletes at different times, and have to agree on such readers all the same.
//! - *A replica that is behind votes for nothing to be abandoned for good.* It has just come back, and what it
//!   holds may have been deleted since, and forgotten by everybody else.
//! - *Recovery and truncation* say what they add where they are: `replica/recovery/mod.rs`,
//!   `replica/truncation.rs`, `replica/catch_up.rs`, `replica/rejoin.rs`.

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
