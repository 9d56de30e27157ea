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
//! - *One execution commits.* When a replica takes a Prepare, it abandons all earlier executions of the transaction.
//!   From then on the coordinator proposes nothing but Abandon for them, and each reply to the Prepare implies that
//!   the replica has accepted the abandonment.
//! - *Prepared means reserved.* From its vote to Commit until a decision, a replica votes for no other execution that
//!   missed a write of this one, or of which this one missed a write (Lemma A.2.3).
//! - *Read validity.* A vote to Commit says that every read is a committed write, with its value.
//! - *Votes are durable before they are sent,* and so are promises and accepted decisions ([`Record`]). One vote is not: a
//!   vote to commit that confirms a provisional one. The provisional one is durable, and says that the transaction
//!   commits if what it has read does. When the replica confirms that, what was read has committed, and this decision is
//!   durable, since a replica carries out no others. So a recoverer that finds the provisional vote after a power cut, and
//!   the decision on what was read, knows that the replica votes to commit. A vote to abandon in a provisional one's place is durable itself: the
//!   coordinator may abort because of it alone, and the replica may forget what it rests on.
//! - *A view is used once, for one proposal.* A recoverer logs a promise of its view before it sends the view. A
//!   FinalizeReply counts only for the execution and the decision that it names, in its view. A replica accepts one
//!   proposal in a recoverer's view.
//! - *An AbandonFinal vote is a durable decision* (see below). So a coordinator aborts the execution on a single one, and
//!   a recoverer that learns of one abandons.
//! - *No message ends a node.* A message that no correct sender sends is dropped, counted and reported with its sender
//!   (`Context::reject`). Examples are a decision that contradicts the one carried out, contents that no transaction has,
//!   and a proposal in another replica's view.
//! - *Settled state has one owner.* All committed versions of a key, in memory and in the store, belong to its
//!   `StoredVersions`. The store is only merged into. State that is copied from another replica replaces what lies below
//!   the copy's watermark, and is merged with what lies above it (`replica/keys.rs`).
//! - *A delete outlives what it deletes.* A replica forgets a delete only below a horizon, and adds nothing from below the
//!   horizon after that: its log says where the horizon is, messages concern only open transactions and none below the
//!   watermark is open, and a replica that was away for longer replaces what it has by what others hold.
//! - *A replica that has lost its disk takes part in nothing* until everything is settled in which its predecessor may
//!   have taken part (`replica/rejoin.rs`).
//!
//! # Where this differs from the paper
//!
//! ## Messages
//! - *Values carry tags.* The paper compares values; this compares `(version, tag)`. Each value that a transaction writes
//!   has its own tag, so a read set needs no values, and the order of two values of one transaction does not depend
//!   on the order in which they arrive. A write that is unchanged in a later execution keeps its tag and is not sent again.
//! - *No FIFO links.* The paper assumes reliable, ordered delivery. Here every message may be lost, repeated or overtaken.
//!   A coordinator takes a GetReply only if it is newer than what it has, or says that what it has is withdrawn
//!   (`instead_of`). Requests are repeated until they are answered.
//! - *Decide is acknowledged*, in batches. The coordinator repeats it, with the execution's contents, to replicas that do
//!   not acknowledge it. The paper leaves this to the links and to recovery.
//! - *A Prepare contains the writes*, as in the paper. So a Put is sent only while the program waits for something, and if
//!   a program writes and then ends, its writes are sent once.
//! - *Retraction.* A Prepare's write set is complete. A replica withdraws all other uncommitted writes of the
//!   transaction, and sends their readers what they would find now.
//! - *Abandoning and preparing are one message.* A Prepare of execution `eid` is also the proposal, in view 0, to abandon
//!   all executions before it. Each vote on it also accepts that. But while a program that has changed waits for a new
//!   read, no Prepare comes. The coordinator then abandons the prepared execution with a Finalize(Abandon) of its own, so
//!   that others need not wait for it.
//! - *`committed_reads` is compressed* to the latest reader of each version, and `prepared_writes` is derived from the
//!   uncommitted writes: see `key_record.rs`.
//!
//! ## Modifications
//! The paper has reads and writes. Here a transaction may also modify a key that it has not read ([`Effect`]): add to an integer,
//! append, compare and swap. It reads nothing of the key, so nothing that others do to it makes it run again, and modifications of
//! one key commit side by side.
//! - *A reader executes them, and names them.* What a key holds at a version is the value that was written last below it, and the
//!   modifications between the two, in the order of their versions ([`Source`]). A replica executes these when it is asked,
//!   committed or not. The reader's Prepare names the value's write and every modification. So all replicas judge alike what it
//!   has missed: every write and every modification between that write and the reader which it does not name. What it names must
//!   be committed, as with any read.
//! - *What a reader has named does not stand in its way.* It may be prepared later than the reader. A prepared read keeps the list.
//!   A committed one counts as if each modification had read the one before (`KeyRecord::commit_read`), so it rejects what lies
//!   between two of them, and no more.
//! - *Below the watermark a version is a value.* Everything there is known, so a replica replaces the latest modification there by
//!   its result ([`Effect::Result`]), and readers name that one alone. The version is the same, and stands for the same state at every replica,
//!   whether it is a modification there or a result. What a modification rests on is not forgotten before it has a result.
//! - *A result is handed on.* A replica that catches up may know a later modification, and lack an earlier one which its peer has
//!   forgotten because of a later result. It receives that result ([`Overwritten`]), and logs it. Results that the peer may have
//!   computed without something that it had fetched itself are not handed on.
//! - *A replica that may have forgotten a modification does not vote to commit* a read that names modifications from before then:
//!   one that was not named may have lain between them. It votes tentatively, and says what is left.
//! - *A forgotten delete stays forgotten.* What a modification has deleted is not in the log as a delete. So a delete is forgotten
//!   only when the log says durably how far deletes are.
//! - *A committed read seals what it has named.* Nothing else can commit between the value that it has found and itself. So if it
//!   has named many modifications, a replica that holds all of them and that value replaces the last one by its result, as it
//!   does below the watermark, and later readers name fewer. Such a reader's value may be a modification at a replica that
//!   lacked something when an earlier read committed. That replica has kept the earlier reads, so it finds in them that
//!   nothing else can commit below either (`Versions::execute_named`).
//! - *A reader that has named many receives no notice of one more.* Each would take as long as executing all of them. It learns
//!   what it has missed from the votes on it (`KeyRecord::announce`).
//! - *A crowded key is sealed.* A list of names grows until a value is written or a read commits. When [`Crowds::many`] modifications
//!   follow on a value, the last one's coordinator reads the key in a transaction of its own (`coordinator/sealing.rs`). It
//!   reads at the replica that has counted them, which may have missed an earlier read that ends where others begin. No more
//!   than [`Crowds::most`] are accepted.
//!
//! ## Votes
//! - *Prepares are not suspended.* In the paper a Prepare waits until everything that was read is committed. Here a
//!   replica validates at once, prepares, and votes *provisionally*: to commit, if what was read commits as it was read.
//!   Its final vote follows when that is known. The condition does not depend on the replica, so as soon as one replica
//!   has sent its final vote to commit, the coordinator counts all provisional votes as votes to commit. In a chain of
//!   transactions that read from each other, each link then takes one message delay instead of a round trip to a
//!   majority, and that is the length of a validity window (000 §2.2). If a recoverer finds provisional votes only, it
//!   waits for what was read. So a replica must be able to say in the end what a provisional vote came to. It logs which
//!   reads were confirmed already, since it may forget what they found (a delete) before the others are. And if it learns
//!   that a writer has aborted, it votes AbandonFinal even if it lacks something else: that
//!   decision is certain, and after copying what it lacks the replica would not know of it.
//! - *A tentative Abandon is tried again* a few times, as a new execution with the same contents. Usually a younger reader
//!   was in the way, which has received the write since and runs again.
//! - *A vote that fails a read says what to read instead*, for dirty reads and for missed writes. So the coordinator
//!   re-executes instead of aborting.
//! - *The coordinator waits for a missing vote* for as long as the votes that it has took to arrive. Only then does it take
//!   the slow path. This costs at most twice the best choice.
//! - *A refusal concerns one replica.* A transaction is given up when a majority refuses it as truncated or too far ahead,
//!   because one clock may be wrong. A transaction that has read nothing yet asks whether it is admitted before it is
//!   prepared, unless its coordinator knows the replicas' clocks (`coordinator/admission.rs`).
//! - *A settled delete is reported as if nothing was there*, and a read that found nothing has not missed a delete.
//!   Replicas forget deletes at different times, and must agree on such reads.
//! - *A read that found nothing is not voted AbandonFinal over a value.* What was found may be a settled delete. A replica
//!   may lack that delete, though it was never away, and have the value before it. So only a read that names a committed
//!   version can miss a committed write for good. For the same reason a late write is not voted AbandonFinal if its reader
//!   found nothing: the write may have committed elsewhere, and have been deleted before it was read.
//! - *A replica that is behind never votes AbandonFinal.* It has just come back, or is copying what others hold. What it
//!   does not find may have been overwritten and forgotten.
//!
//! ## Versions
//! - *Versions run ahead of a slow clock* by what votes say of the readers that are in a transaction's way
//!   (`coordinator/lead.rs`). The paper takes the clock's time.
//!
//! ## Re-execution
//! - *Stale writes are not announced again.* A write says what its transaction found in the key, if it has read it. If
//!   there is something newer, or what was found is stale itself, the write is *stale*: its transaction runs again and
//!   writes something else. After its first value, a transaction's writes are announced to readers only when they are not
//!   stale. So a change passes along a chain of transactions, each of which writes what depends on the one before, one
//!   transaction at a time. If each write was announced to all later ones, a transaction would run again once for each
//!   transaction before it.
//! - *Changes in quick succession are taken together.* If a transaction has superseded values of its own, its session
//!   receives further changes at most once a round trip, unless what it has prepared is withdrawn or voted down.
//!
//! ## Decisions
//! - *Views belong to a transaction, not to an execution.* The consensus of the home partition on a transaction has one
//!   value: the execution that commits, or none. Only the coordinator proposes in view 0. It proposes to abandon
//!   executions one after the other, and then perhaps to commit one. It proposes nothing after that, and never commits
//!   an execution that it has proposed to abandon. So of all proposals that a majority has accepted in view 0, the one
//!   for the highest execution decides. If it is a Commit, every majority has a replica that reports it, and there is no
//!   later execution. If it is an Abandon, every majority has a replica that reports all executions up to it as
//!   abandoned. This is what Lemma A.2.1 needs for its step from view 0 to a later view. In later views there is one
//!   proposal each, as in the paper.
//! - *An abandoned execution is unprepared before its abandonment is durable*, as in 000 §4.2. In step 8 of 001's Lemma
//!   A.2.3 a server unprepares only when it receives a durable decision. The lemma needs the following of an execution
//!   that commits: f + 1 replicas that have voted for it keep it prepared until they learn that it has committed. This
//!   holds. If its coordinator commits it, or has proposed to, the coordinator has never proposed to abandon it. If a
//!   recoverer proposes to commit it because of its votes, these come from f + 1 replicas that had not accepted to
//!   abandon it and have promised a later view. They accept nothing of the coordinator's any more, and acceptances in
//!   later views unprepare nothing. Also, before a replica votes for another execution with what this one had prepared,
//!   the abandonment is in its log, so it keeps what it must after a restart too.
//! - *Promises and Finalizes are answered below a truncation for which the replica has stopped.* In 001 §3.3.4 a stopped
//!   replica answers nothing there, and the truncation coordinator decides by the `erecord`s. Here the coordinator
//!   recovers every transaction that a majority's snapshots list as undecided, and recovery needs these answers. Nothing
//!   can commit that is not listed: a commit takes f + 1 votes, and one of them comes from a replica of that majority,
//!   which took the Prepare before it stopped and so lists the transaction.
//! - *Commits that are fetched from another replica lack their reads.* A replica that has voted on the execution has its
//!   reads, and enters those. Lemma A.2.3 needs f + 1 replicas that reject what a committed read would miss, and f + 1
//!   replicas have voted.
//! - *Why an AbandonFinal vote is durable.* It says one of two things. Either the execution has read something that has not
//!   committed and never will; then no replica ever votes Commit. Or it conflicts with a committed execution: one of the
//!   two missed a write of the other. Then f + 1 replicas have voted for the committed one. From their votes on they keep
//!   it prepared, or committed, so they never vote for this execution afterwards. A replica that had voted for this
//!   execution before can't have voted for the committed one, unless this execution was abandoned there meanwhile. So
//!   whatever majority is asked, at most f replicas say that they have voted for this execution and have not abandoned
//!   it. The argument needs two things. No replica takes a transaction for one that never commits while another replica has
//!   it as committed. So forgotten deletes need care: see the next point. And it must be certain that the two can't both
//!   commit, so it must be known what was read. The conflict is that a committed write lies strictly between a version that
//!   was read and the reader. If all of these are named, all replicas judge it alike, and each of the f + 1 that voted for
//!   one of the two has rejected the other. "Nothing" names no version: it may stand for a delete that lies above the write,
//!   and then there is no conflict. The delete was settled where it was read, so everything below it had been decided
//!   there, and nobody needs this replica's vote to find out. AbandonTentative is safe in its place: the replica still
//!   does not vote to commit. It costs a round for the Finalize when such a transaction aborts. A client that aborts for
//!   this reason reads from another replica if the one that it has read from lacks the value (`votes.rs`).
//! - *A read of a forgotten delete is not voted AbandonFinal.* One replica has forgotten a delete; another has not even
//!   settled it, so it still tells readers the delete's version. A replica votes AbandonTentative if it lacks what was
//!   read, the writer is below its horizon, and it does not know that the writer has aborted. A provisional vote stays as
//!   it is, since it may have been counted. This is safe: where the replica voted AbandonFinal before, it still does not
//!   vote to commit. In particular all f + 1 replicas that voted for the delete still reject a read of an older version.
//!   Such a reader also ends: with the vote it is told what the replica finds now, which is nothing or a later write.
//!   If it then has found nothing, replicas that remember the delete vote to commit as well.
//! - *A transaction spans partitions*, each a replica group of its own; the paper has one group. Each partition votes on its
//!   part, and an execution commits if all of them do. To abandon one, the home partition is enough, since it is part
//!   of every execution.
//! - *Recovery, truncation, catching up and rejoining* say in `replica/recovery/mod.rs`, `replica/truncation.rs`,
//!   `replica/catch_up.rs` and `replica/rejoin.rs` what they add to the paper.

mod coordinator;
mod digest;
mod message;
mod record;
mod replica;
#[cfg(test)]
mod tests;
mod votes;

pub use coordinator::Coordinator;
pub use digest::Digest;
pub use message::{
    Accepted, Ballot, CatchingUp, Conflict, Contents, Decision, Known, LateVote, Merged, Message,
    Overwritten, PastRead, Proposal, Read, Recovering, Refusal, Rejoining, Reply, Request,
    Settlement, Snapshot, Source, Status, TaggedWrite, Truncating, View, Vote,
};
pub use record::Record;
pub use replica::Replica;

use crate::Mutated;
use serried_actor::{Contention, Group, Protocol, Settings, Turns};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};
#[cfg(doc)]
use serried_parts::Effect;

/// Options of coordinators and replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How transactions are executed and checked.
    pub control: Control,
    /// How many votes commit without Finalize.
    pub fast_quorum: FastQuorum,
    /// Whether a replica sends readers the writes that they missed. Timestamp ordering without it is MVTSO.
    pub re_execution: bool,
    /// Whether a replica votes provisionally while what was read is undecided. Without it a Prepare
    /// waits, as in the paper.
    pub provisional_votes: bool,
    /// Which checks a replica makes. All of them, except in tests that show what each check is for.
    pub checks: Checks,
    /// How many modifications of a key may follow on its value.
    pub crowds: Crowds,
    /// What a replica does wrong. Nothing, except in tests that show that it would be noticed.
    pub mutation: Mutated<Mutation>,
}

/// How many modifications of a key may follow on its value. A reader names all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowds {
    /// When there are so many, and again when as many have been added, the coordinator of the last one learns that the key is
    /// crowded, and seals it (`coordinator/sealing.rs`). At least 1.
    pub many: usize,
    /// When there are so many, no further one is accepted.
    pub most: usize,
}

impl Crowds {
    /// As they should be.
    pub const USUAL: Crowds = Crowds { many: 1024, most: 16_384 };

    /// When a committed read has named so many, their result is remembered. It takes as much memory as the value.
    pub(crate) fn executed_from(self) -> usize {
        (self.many.min(self.most) / 8).max(1)
    }

    /// A reader that has named so many receives no notices of others.
    pub(crate) fn told_up_to(self) -> usize {
        (self.many / 16).max(1)
    }

    /// A provisional vote may wait for thousands of modifications of a key, which are mostly decided in their order. Each time that one
    /// is decided, so many are looked at that are not.
    pub(crate) fn waited_for_at_once(self) -> usize {
        (self.many / 64).max(1)
    }
}

/// How transactions are executed and checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// By multi-version timestamp ordering: a transaction has its version from the beginning, and finds what is written
    /// below it, committed or not (000 §4.2). This is Morty, or MVTSO.
    Ordering,
    /// By optimistic validation: a transaction finds what is committed, and chooses its version when it commits. This is
    /// TAPIR. It goes without re-execution and provisional votes.
    Validation,
}

/// How many replicas of a partition must vote to commit, so that this is durable without Finalize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastQuorum {
    /// All `2f + 1`, as in Morty.
    All,
    /// `⌈3f/2⌉ + 1`, as in TAPIR. [`crate::tapir`] says how a recoverer finds such a decision.
    ThreeQuarters,
}

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Votes are sent before they are durable.
    VotesBeforeDurable,
    /// A confirming vote is sent before the provisional vote is durable.
    ConfirmsBeforeDurable,
    /// A recoverer ignores what was accepted in Finalize.
    RecoveryIgnoresFinalize,
    /// A modification is accepted although a later read has missed it.
    MergesAcrossReads,
    /// A replica that votes to commit a read remembers the result of the modifications which that has found, although others may
    /// commit between them.
    ExecutesBeforeCommit,
    /// A snapshot for a truncation lists only what was accepted in Finalize, not what was voted on.
    TruncationIgnoresVotes,
    /// A replica votes on a Prepare even if a recoverer has asked about the transaction, or ended it.
    LatePrepare,
    /// A fast quorum has one replica too few.
    FastQuorumOneShort,
    /// A recoverer commits as soon as a fast quorum may have voted for it, although a conflicting transaction may have
    /// committed instead.
    RecoveryTrustsFewVotes,
    /// A truncation coordinator asks replicas that have stopped for late votes without clearing its ballot.
    LateVotesWithoutClearing,
}

/// The checks of the serializability validation (000 §4.2, "Prepare").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// Check 1: the execution's reads missed no write.
    pub missed_by_reads: bool,
    /// Check 2: no other transaction's read missed one of its writes.
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
        Options {
            control: Control::Ordering,
            fast_quorum: FastQuorum::All,
            re_execution: true,
            provisional_votes: true,
            checks: Checks::ALL,
            crowds: Crowds::USUAL,
            mutation: Mutated::NONE,
        }
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
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: true, modifies: true };
    const FIRST_FORMAT: u32 = 4;
    const CONTENTION: Option<Contention> =
        Some(Contention { turns: Turns::Always, merges: true, ..Contention::ALIKE });
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
