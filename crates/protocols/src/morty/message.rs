//! What coordinators and replicas exchange.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Effect, WriteId};
use smallvec::SmallVec;

use super::digest::Digest;

/// A message, by who may receive it. `version` is always that of the transaction concerned.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// To a replica: a request of a coordinator, or of a replica that recovers a transaction.
    Request(Request),
    /// To a coordinator: a replica's answer.
    Reply(Reply),
    /// To a coordinator, or to a replica that recovers a transaction: how far the transaction has come.
    Status(Status),
    /// Between replicas of any partitions: finishing a transaction.
    Recovering(Recovering),
    /// Between the replicas of a partition: truncating.
    Truncating(Truncating),
    /// Between the replicas of a partition: getting what one of them has missed.
    CatchingUp(CatchingUp),
    /// Between the replicas of a partition: replacing one whose disk was lost.
    Rejoining(Rejoining),
    /// Replica to the replicas of other partitions on its machine: everything below `upto` is settled here.
    Watermark {
        /// The truncation.
        upto: u64,
    },
}

/// What replicas are asked. Replicas that recover a transaction send `Finalize`, `Decide` and `Inquire` too; only
/// coordinators send the others.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Coordinator to its nearest replica: read `key`.
    Get {
        /// The reader.
        version: Version,
        /// What to read.
        key: Key,
    },
    /// Coordinator to all replicas, while the transaction is still executing: a write.
    Put {
        /// The writer.
        version: Version,
        /// What is written.
        key: Key,
        /// Orders the values that one transaction writes.
        tag: u32,
        /// What the transaction found in the key last, if any of its runs has read it.
        rests_on: Option<WriteId>,
        /// The new value.
        value: Option<Value>,
    },
    /// Coordinator to the replicas of a partition: would you vote on this transaction, by its version? If not, the
    /// answer is a `Refused`.
    AskAdmission {
        /// The transaction.
        version: Version,
    },
    /// Coordinator to all replicas: vote on this execution, and abandon all earlier ones of the
    /// transaction.
    Prepare {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// Every `Put` with a smaller tag is superseded by what the execution writes.
        next_tag: u32,
        /// What it read and writes.
        contents: Arc<Contents>,
    },
    /// Coordinator to all replicas: accept this decision. `Abandon` is for `eid` and all executions
    /// before it.
    Finalize {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The view in which it is proposed.
        view: View,
        /// What is proposed.
        decision: Proposal,
    },
    /// Coordinator to all replicas: this is decided, durably.
    Decide {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The decision.
        decision: Decision,
        /// What the execution read and writes, in case the replica does not know that. Left out the
        /// first time.
        contents: Option<Arc<Contents>>,
    },
    /// Any node to a replica: find out how this transaction ended, or end it.
    Inquire {
        /// The transaction.
        version: Version,
    },
    /// Coordinator to a replica: read `key` as it was at `at`, which is in the past.
    GetAt {
        /// Tells the coordinator's requests apart.
        request: u64,
        /// What to read.
        key: Key,
        /// All versions below are in it, and no others.
        at: Version,
    },
}

/// What a replica answers a coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The answer to a `Get`, and again whenever the reader would now find something else.
    GetReply {
        /// The reader.
        version: Version,
        /// What was read.
        key: Key,
        /// What was found.
        found: Source,
        /// Its value.
        value: Option<Value>,
        /// A write in what this replica had answered before, which is withdrawn; what is found now may then be older.
        instead_of: Option<WriteId>,
    },
    /// The replica would.
    Admitted {
        /// The transaction.
        version: Version,
        /// The replica's clock, in microseconds.
        clock_us: u64,
    },
    /// A replica's vote. It implies that the replica has abandoned all earlier executions.
    PrepareReply {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The vote.
        vote: Vote,
        /// Why it was not `Commit`.
        conflict: Option<Conflict>,
    },
    /// One of the coordinator's transactions modifies a key that many have modified since a value was written. The coordinator
    /// should seal the key.
    Crowded {
        /// The transaction.
        version: Version,
        /// The key.
        key: Key,
        /// The replica's clock, in microseconds.
        clock_us: u64,
    },
    /// Replica to coordinator: these transactions' decisions have been carried out.
    Acknowledge {
        /// The transactions.
        versions: Vec<Version>,
    },
    /// Replica to coordinator: it does not take part in this transaction, or does not any more.
    Refused {
        /// The transaction.
        version: Version,
        /// Why.
        refusal: Refusal,
    },
    /// The answer to a `GetAt`.
    GetAtReply {
        /// Which request.
        request: u64,
        /// What was found.
        found: PastRead,
    },
}

/// What a replica reports of a transaction to its coordinator or to a replica that recovers it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Status {
    /// A replica's answer to a `Finalize`. If the view is the one that was proposed in, the replica has accepted what is
    /// named here, and nothing else. If the view is later, it has accepted nothing.
    FinalizeReply {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The replica's view.
        view: View,
        /// What was proposed for the execution.
        decision: Proposal,
    },
    /// The answer to an `Inquire`. Also sent to a coordinator whose transaction was ended by another node.
    Settled {
        /// The transaction.
        version: Version,
        /// How it ended.
        settlement: Settlement,
    },
}

/// What replicas exchange to finish a transaction whose coordinator does not (000 §4.3). They also send requests
/// ([`Request::Finalize`], [`Request::Decide`]) and receive a [`Status`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Recovering {
    /// Recoverer to the replicas of a partition: enter this view, and say what you know of the
    /// transaction (000 §4.3).
    PaxosPrepare {
        /// The transaction.
        version: Version,
        /// The view.
        view: View,
        /// Vote on this execution, if you have not voted to commit it.
        vote_on: Option<LateVote>,
    },
    /// The replica is in this view; if it is the one asked for, what it knows.
    PaxosPrepareReply {
        /// The transaction.
        version: Version,
        /// The replica's view.
        view: View,
        /// What it knows; none if it is in a later view.
        known: Option<Box<Known>>,
    },
}

/// An execution on which replicas are to vote once more. The votes that a recoverer knows are too few to commit it, and it
/// may have committed nevertheless.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LateVote {
    /// The execution.
    pub eid: u32,
    /// What it read and writes.
    pub contents: Arc<Contents>,
    /// A replica has found that the execution's reads have missed nothing that has committed below this, in microseconds of
    /// version time. So others need not remember all of that.
    pub missed_nothing_below: u64,
    /// The ballot that the recoverer has cleared, if it coordinates a truncation that waits for the transaction. A replica
    /// that is in this ballot votes although it has stopped for the truncation.
    pub cleared: Option<Ballot>,
}

/// What the replicas of a partition exchange to truncate (001 §3.3.4).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Truncating {
    /// Replica to a truncation coordinator: it votes on no transaction below `upto` any more, and this
    /// is what it has of them (001 §3.3.4, steps 2 and 7).
    Truncate {
        /// The ballot for which it says so.
        ballot: Ballot,
        /// What it has.
        snapshot: Snapshot,
    },
    /// Truncation coordinator to the replicas: enter this ballot (step 7).
    TruncationPaxosPrepare {
        /// The ballot.
        ballot: Ballot,
    },
    /// Truncation coordinator to the replicas: accept this (step 3).
    ProposeMerge {
        /// The ballot in which it is proposed.
        ballot: Ballot,
        /// What is merged.
        merged: Merged,
    },
    /// Truncation coordinator to the replicas: accept that merges of earlier ballots do not count any more, except those that
    /// are finished.
    Clear {
        /// The ballot in which it is proposed.
        ballot: Ballot,
        /// Everything below this is settled at the coordinator, in microseconds of version time. Only those accept that have
        /// settled as much.
        watermark: u64,
    },
    /// The replica has accepted what was proposed in this ballot (step 4).
    ProposeMergeReply {
        /// The ballot.
        ballot: Ballot,
        /// The merge that was proposed. None if it was proposed to clear the ballot.
        merged: Option<Merged>,
    },
    /// The answer to what comes in an earlier ballot than the one that the replica is in.
    BallotIsOver {
        /// The replica's ballot.
        ballot: Ballot,
    },
    /// The merge is durable (step 5). Also the answer to a replica that asks about a finished truncation.
    TruncationFinished {
        /// The truncation.
        upto: u64,
        /// All that has committed below it.
        merged: Digest,
    },
    /// The answer to [`Truncating::Truncate`] of a replica that does not take part, and so can't coordinate.
    CannotMerge {
        /// The truncation.
        upto: u64,
    },
}

/// What the replicas of a partition exchange so that one of them gets what it has missed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatchingUp {
    /// Replica to one of its group: which transactions at or above `since` have committed?
    GetCommitted {
        /// The first.
        since: Version,
        /// Distinguishes the answers to this run of questions from those to earlier ones.
        run: u64,
    },
    /// The answer, in several messages if they are many.
    Committed {
        /// The first that was asked for; above it, these are all up to the last.
        since: Version,
        /// The run that was asked in.
        run: u64,
        /// The transactions.
        versions: Vec<Version>,
        /// Whether there are more.
        more: bool,
        /// Whether the answering replica remembers that far back. If not, there is nothing in the list.
        reaches: bool,
        /// Whether the answering replica is behind itself, so that the list may lack what it has missed.
        behind: bool,
    },
    /// Replica to one of its group: what did these transactions write?
    Fetch {
        /// The transactions.
        versions: Vec<Version>,
    },
    /// The answer: executions that have committed, without their reads. A write that was overwritten
    /// and forgotten since is not in it.
    Fetched {
        /// Transaction, execution, contents.
        executions: Vec<(Version, u32, Arc<Contents>)>,
        /// From which version on, in microseconds, the past can be read with this: 0 if nothing that
        /// was written is left out.
        readable_from: u64,
    },
    /// Replica to one of its group: which keys does your store hold after this one, and which of them changed since?
    Scan {
        /// The last key of the previous answer.
        after: Option<Key>,
        /// Only keys that were written at or above this, in microseconds of version time.
        since: u64,
        /// Distinguishes the answers to this run of questions from those to earlier ones.
        run: u64,
    },
    /// The answer: keys with their versions.
    Scanned {
        /// What was asked for.
        after: Option<Key>,
        /// What was asked for.
        since: u64,
        /// The run that was asked in.
        run: u64,
        /// Each key, with its encoded versions if they have changed since.
        entries: Vec<(Key, Option<Vec<u8>>)>,
        /// The last key of this answer, if there are more.
        next: Option<Key>,
        /// What the store holds.
        holds: Holds,
    },
}

/// What the replicas of a partition exchange when one of them replaces a replica whose disk was lost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Rejoining {
    /// Replica to the others of its group: it replaces one whose disk was lost, and asks up to which version that one may
    /// have taken part.
    Replaced {
        /// Distinguishes the question from earlier ones.
        question: u64,
    },
    /// The answer.
    ReplacedReply {
        /// Which question.
        question: u64,
        /// The later of the answering replica's clock and the latest version in its log, in microseconds of version
        /// time.
        reached: u64,
    },
}

/// What was found in the past.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum PastRead {
    /// This write, and its value.
    Value(WriteId, Option<Value>),
    /// Not everything before then has been settled; ask again.
    NotSettled,
    /// That is no longer kept.
    Forgotten,
}

/// Who may propose a decision on a transaction: its own coordinator first, and recoverers in later
/// views, each in views of its own.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct View {
    /// Counts up.
    pub round: u32,
    /// Whose view it is; of no meaning in round 0.
    pub recoverer: NodeId,
}

impl View {
    /// The view of a transaction's own coordinator.
    pub const OWN: View = View { round: 0, recoverer: NodeId(0) };

    /// The next view of `recoverer`. No replica enters the last there is.
    pub fn next(self, recoverer: NodeId) -> View {
        View { round: self.round.saturating_add(1), recoverer }
    }

    /// Whether `node` may ask replicas to enter it, and propose in it.
    pub fn is_of_recoverer(self, node: NodeId) -> bool {
        self.recoverer == node && self.round > 0 && self.round < u32::MAX
    }
}

/// Why a replica takes no part in a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Another node is deciding on it.
    Superseded,
    /// It is too old: versions of its time are being forgotten.
    Truncated {
        /// The replica's clock, in microseconds.
        clock_us: u64,
    },
    /// Its version is ahead of the replica's clock by more than clocks may differ.
    Ahead {
        /// The replica's clock, in microseconds.
        clock_us: u64,
    },
}

/// What a replica's store contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holds {
    /// The store is complete below this, in microseconds of version time.
    pub watermark: u64,
    /// The digest of all that has committed below the watermark.
    pub digest: Digest,
    /// From here on it contains overwritten versions too, in microseconds of version time.
    pub readable_from: u64,
}

/// How a transaction ended, as a replica knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Settlement {
    /// As this execution.
    Committed {
        /// The execution.
        eid: u32,
    },
    /// It has no effect and never will have one, at least in this replica's partition.
    Aborted,
    /// It ended so long ago that the replica has forgotten how.
    Forgotten,
}

/// What a replica knows of a transaction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Known {
    /// How it ended.
    pub settlement: Option<Settlement>,
    /// The decision that it has accepted.
    pub accepted: Option<Accepted>,
    /// Executions before this one are abandoned.
    pub abandoned_before: u32,
    /// The latest execution that it was asked to vote on, and its vote, if it has voted.
    pub execution: Option<(u32, Option<Vote>, Arc<Contents>)>,
    /// Under validation: the execution's reads have missed nothing that has committed below this, in microseconds of version
    /// time. All of that is settled at the replica, and it remembers what the reads may have missed.
    pub missed_nothing_below: u64,
}

/// An accepted decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Accepted {
    /// In which view.
    pub view: View,
    /// On which execution, and for `Abandon` on all before it too.
    pub eid: u32,
    /// What.
    pub decision: Proposal,
}

/// A view of a truncation. All ballots of a later truncation come after those of an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Ballot {
    /// The truncation, in microseconds of version time.
    pub upto: u64,
    /// The view.
    pub view: View,
}

impl Ballot {
    /// The first ballot of a truncation. It needs no question, since all replicas know who coordinates in it.
    pub fn first(upto: u64) -> Ballot {
        Ballot { upto, view: View::OWN }
    }
}

/// A merge: exactly this has committed below a truncation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Merged {
    /// The truncation, in microseconds of version time. It may be an earlier one than that in whose ballot it is proposed.
    pub upto: u64,
    /// All that has committed below, ever.
    pub digest: Digest,
}

/// What a replica knows below a truncation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The digest of all that has committed below the truncation.
    pub committed: Digest,
    /// The transactions below it that may still commit.
    pub undecided: Vec<Version>,
    /// The last truncation that is finished at the replica.
    pub finished: Merged,
    /// What it has accepted last, and in which ballot: a merge, or to clear the ballot.
    pub accepted: Option<(Ballot, Option<Merged>)>,
}

/// What an execution read and what it writes, one entry per key, in one partition.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Contents {
    /// The partitions that the execution reads and writes in, the transaction's home first. Each has
    /// its own contents.
    pub participants: SmallVec<[u16; 4]>,
    /// The reads.
    pub reads: Vec<Read>,
    /// The writes.
    pub writes: Vec<TaggedWrite>,
    /// Only in what a replica fetches from another one: writes that are forgotten.
    pub overwritten: Vec<Overwritten>,
}

impl Contents {
    /// The writes that its reads have found, read by read.
    pub fn sources(&self) -> impl Iterator<Item = WriteId> {
        self.reads.iter().flat_map(|read| read.found.writes())
    }

    /// How many these are.
    pub fn source_count(&self) -> usize {
        self.reads.iter().map(|read| 1 + read.found.modified.len()).sum()
    }
}

/// A read and what it found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// What was read.
    pub key: Key,
    /// What was found.
    pub found: Source,
}

/// What a read has found: the write of a value, and all modifications between that and the reader. The tags stand for the
/// values and the modifications: each that a transaction writes has its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The write of the value.
    pub write: WriteId,
    /// The modifications of it, in ascending order. Most keys have none.
    pub modified: Vec<WriteId>,
}

impl From<WriteId> for Source {
    fn from(write: WriteId) -> Source {
        Source { write, modified: Vec::new() }
    }
}

impl Source {
    /// All the writes, in ascending order.
    pub fn writes(&self) -> impl Iterator<Item = WriteId> {
        core::iter::once(self.write).chain(self.modified.iter().copied())
    }

    /// One of the writes, by its place among them.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn write_at(&self, place: usize) -> WriteId {
        place.checked_sub(1).map_or(self.write, |place| self.modified[place])
    }

    /// The latest of the writes.
    pub fn latest(&self) -> WriteId {
        self.modified.last().copied().unwrap_or(self.write)
    }

    /// The one of the writes that the transaction `version` has made.
    pub fn of(&self, version: Version) -> Option<WriteId> {
        if version == self.write.version {
            return Some(self.write);
        }
        let position = self.modified.binary_search_by_key(&version, |write| write.version).ok()?;
        Some(self.modified[position])
    }

    /// Whether it contains a write that a reader who has found `known` has missed.
    pub fn is_news_to(&self, known: &Source) -> bool {
        self.writes().any(|write| match known.of(write.version) {
            Some(other) => write.tag > other.tag,
            None => write.version > known.write.version,
        })
    }

    /// Whether a replica can have sent this to the reader `version`.
    pub(super) fn is_sound(&self, version: Version) -> bool {
        self.writes().is_sorted_by(|a, b| a.version < b.version) && self.latest().version < version
    }
}

/// A write that is forgotten, or may not be what it was, because there is a later one below the watermark: a modification, of
/// which the result is known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overwritten {
    /// What was written.
    pub key: Key,
    /// The tag of the forgotten write, if it was a modification.
    pub tag: Option<u32>,
    /// The later modification.
    pub by: WriteId,
    /// Its result.
    pub value: Option<Value>,
}

/// A write of an execution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaggedWrite {
    /// What is written.
    pub key: Key,
    /// Orders the values that one transaction writes.
    pub tag: u32,
    /// What it does to the key.
    pub effect: Effect,
}

/// A replica's vote on an execution (000 Table 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Vote {
    /// It is serializable as far as this replica knows, and all that it read is committed.
    Commit,
    /// As `Commit`, provided that everything it read commits as it was read. A `Commit` or `AbandonFinal` follows when that
    /// is known.
    Provisional,
    /// It conflicts with something that is not committed, and may still succeed.
    AbandonTentative,
    /// It conflicts with something that is committed, and never can succeed.
    AbandonFinal,
}

/// What is in the way of an execution.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// The key over which it conflicts.
    pub key: Key,
    /// The latest transaction with a read that would have missed one of its writes. The same reads and writes may be in
    /// nobody's way at a later version. Under validation it is given only if such reads are all that is in its way.
    pub readers: Option<Version>,
    /// The replica has forgotten what a read may have missed, so it can't vote to commit. The replica that was read from has
    /// not settled as much. A client that reads from another one has a better chance.
    pub forgotten: bool,
}

impl Conflict {
    /// Something over `key`, at every version.
    pub fn over(key: Key) -> Conflict {
        Conflict { key, readers: None, forgotten: false }
    }
}

/// What a coordinator proposes for an execution in the Finalize phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Proposal {
    /// Commit it, and with it the transaction.
    Commit,
    /// Abandon it, and those before it.
    Abandon,
}

/// What is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Decision {
    /// The execution commits, and with it the transaction.
    Commit,
    /// The execution is abandoned; the transaction goes on with another.
    Abandon,
    /// The execution is abandoned, and the transaction with it.
    Abort,
}
