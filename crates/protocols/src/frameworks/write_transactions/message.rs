//! What participants exchange and what replicas keep.

use core::fmt;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value, Versionstamp, Write};

use crate::frameworks::replicated_log::{self, Led};

/// No site has been rebuilt more often than this. A message that says so is damaged.
pub(super) const ERAS_AT_MOST: u32 = 1 << 16;

/// Identifies a write transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct TransactionId {
    /// The versionstamp with which it was requested. Its commit time is later.
    pub requested: Versionstamp,
    /// The number of its session.
    pub session: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}-{:x}", self.requested, self.session)
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A client requests an operation.
    Request {
        /// Names the request at the client.
        number: u64,
        /// About what the clocks show by now, as far as the client knows.
        clock: Versionstamp,
        /// The operation.
        request: Request,
    },
    /// A request that another replica passes on, because it does not lead.
    Forward {
        /// The client.
        client: NodeId,
        /// Names the request at the client.
        number: u64,
        /// As in the request.
        clock: Versionstamp,
        /// The operation.
        request: Request,
    },
    /// The answer to a request. The sender leads.
    Reply {
        /// The request.
        number: u64,
        /// The answer.
        answer: Answer,
    },
    /// From the leader of one partition to that of another one.
    Peer {
        /// How often the site has been rebuilt.
        era: u32,
        /// What it says.
        peer: Peer,
    },
    /// The same, passed on by a replica that does not lead.
    PassedOn {
        /// The leader that has sent it.
        origin: NodeId,
        /// How often the site had been rebuilt then.
        era: u32,
        /// What it has sent.
        peer: Peer,
    },
    /// From the leader of one partition to that of another one, about what other sites have written.
    Across {
        /// The leader that has sent it. Another replica of the receiver's partition may have passed it on.
        origin: NodeId,
        /// By site, how often the sender knows it to have been rebuilt.
        eras: Vec<u32>,
        /// What it has sent.
        across: Across,
    },
    /// About the log.
    Log(replicated_log::Message<Led<Entry>>),
}

/// An operation on one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Read keys as of a safe time, with the session's own later versions (Eiger-PORT).
    Read {
        /// As of when.
        at: Versionstamp,
        /// The session.
        session: u64,
        /// Versions of the session up to this are read, too.
        written: Versionstamp,
        /// The keys.
        keys: Vec<Key>,
    },
    /// Read the latest versions, with how long they are valid (Eiger, first round).
    ReadLatest {
        /// The keys.
        keys: Vec<Key>,
    },
    /// Read keys as of a time, whatever is pending (Eiger, second round).
    ReadAt {
        /// As of when.
        at: Versionstamp,
        /// The keys.
        keys: Vec<Key>,
    },
    /// Take part in a write transaction.
    Write {
        /// The transaction.
        id: TransactionId,
        /// The partitions that take part. The first one coordinates.
        participants: Vec<u16>,
        /// The writes of this partition.
        writes: Vec<Write>,
        /// How often the site had been rebuilt when the session saw something of it, if it did.
        era: Option<u32>,
    },
    /// Show the clock.
    ReadClock,
    /// Show the clock once all can be read here that could be read at another site when its clocks showed `stamp`.
    Reach {
        /// The other site.
        site: u16,
        /// What its clocks showed.
        stamp: Versionstamp,
        /// How often it had been rebuilt then, if that matters.
        era: Option<u32>,
    },
}

/// What a leader's clock shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Clock {
    /// The version clock.
    pub shown: Versionstamp,
    /// The safe time: nothing commits here at this time any more, or before it.
    pub safe: Versionstamp,
    /// How often the site has been rebuilt from others.
    pub era: u32,
}

impl Clock {
    fn bytes(self) -> u32 {
        self.shown.bytes() + self.safe.bytes() + Versionstamp(u64::from(self.era)).bytes()
    }
}

/// What a key had.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// The value, if there was one.
    pub value: Option<Value>,
    /// The commit time of the transaction that it is from. If that is of another site, it is that of its admission.
    pub commit: Versionstamp,
    /// The commit time at the site that it is from, if that is another one.
    pub elsewhere: Option<Versionstamp>,
}

impl Found {
    /// The commit time at the site that it is from, which names the version.
    pub(super) fn stamp(&self) -> Versionstamp {
        self.elsewhere.unwrap_or(self.commit)
    }

    fn bytes(&self) -> u32 {
        self.commit.bytes() + self.elsewhere.map_or(0, Versionstamp::bytes)
    }
}

/// What a key has, and until when at least.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Valid {
    /// What it has. It is valid from its commit time on: Eiger's earliest valid time.
    pub found: Found,
    /// Nothing else commits up to this: Eiger's latest valid time.
    pub until: Versionstamp,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// What the keys had, in their order.
    Values {
        /// By key.
        found: Vec<Found>,
        /// About how many pending transactions coordinators were asked for that (Eiger).
        checked: u32,
        /// The clock.
        clock: Clock,
    },
    /// What the keys have, in their order.
    Latest {
        /// By key.
        found: Vec<Valid>,
        /// The clock.
        clock: Clock,
    },
    /// What a key had then is not kept any more.
    TooOld {
        /// The clock.
        clock: Clock,
    },
    /// The transaction has committed, and can be read here.
    Committed {
        /// Its commit time.
        commit: Versionstamp,
        /// The clock.
        clock: Clock,
    },
    /// The transaction was undone, and will never commit.
    Undone {
        /// The clock.
        clock: Clock,
    },
    /// The transaction was requested with too low a versionstamp, or so long ago that its outcome is not known any
    /// more.
    Outdated {
        /// The clock.
        clock: Clock,
    },
    /// The transaction was requested before the site was rebuilt from others. Its outcome is not known any more.
    Forgotten {
        /// The clock.
        clock: Clock,
    },
    /// The session has seen something of this site, or of the one that it comes from, before that was rebuilt from
    /// others.
    Rebuilt {
        /// The clock.
        clock: Clock,
    },
    /// The clock.
    Clock(Clock),
}

impl Request {
    /// How many bytes of it only coordinate reads.
    pub(super) fn metadata_bytes(&self) -> u32 {
        match self {
            Request::Read { at, written, .. } => at.bytes() + written.bytes() + SESSION_BYTES,
            Request::ReadAt { at, .. } => at.bytes(),
            Request::ReadLatest { .. }
            | Request::Write { .. }
            | Request::ReadClock
            | Request::Reach { .. } => 0,
        }
    }
}

/// How many bytes the number of a session takes in a message.
const SESSION_BYTES: u32 = 10;

/// How many bytes it takes to ask about one pending transaction, and to answer: its id, the time, and the commit time.
const CHECK_BYTES: u32 = 40;

impl Answer {
    /// What the clock of the sender shows.
    pub(super) fn clock(&self) -> Clock {
        match self {
            Answer::Values { clock, .. }
            | Answer::Latest { clock, .. }
            | Answer::TooOld { clock }
            | Answer::Committed { clock, .. }
            | Answer::Undone { clock }
            | Answer::Outdated { clock }
            | Answer::Forgotten { clock }
            | Answer::Rebuilt { clock }
            | Answer::Clock(clock) => *clock,
        }
    }

    /// How many bytes of it only coordinate reads.
    pub(super) fn metadata_bytes(&self) -> u32 {
        let of_answer = match self {
            Answer::Values { found, checked, .. } => {
                let commits: u32 = found.iter().map(Found::bytes).sum();
                commits + CHECK_BYTES * checked
            }
            Answer::Latest { found, .. } => {
                let bytes = |valid: &Valid| valid.found.bytes() + valid.until.bytes();
                found.iter().map(bytes).sum()
            }
            _ => 0,
        };
        of_answer + self.clock().bytes()
    }
}

/// What leaders of different partitions tell each other of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Peer {
    /// A cohort has prepared it.
    Vote {
        /// The transaction.
        id: TransactionId,
        /// Its pending time there.
        pending: Versionstamp,
        /// Whether the cohort has waited for long: if the coordinator has not prepared it, it refuses it.
        overdue: bool,
    },
    /// A cohort has refused it, and will never prepare it.
    Refused(TransactionId),
    /// The coordinator asks a cohort to vote, or else to refuse it.
    Ask(TransactionId),
    /// The coordinator has decided that it commits at this time.
    Commit(TransactionId, Versionstamp),
    /// The coordinator has decided that it is undone.
    Undo(TransactionId),
    /// A cohort knows the decision durably.
    Done(TransactionId),
    /// A cohort asks the coordinator whether it has committed at a time or before it. It does not any more after that.
    Check {
        /// Names the question at the cohort.
        number: u64,
        /// The transaction.
        id: TransactionId,
        /// The time.
        at: Versionstamp,
    },
    /// The answer: its commit time, if it has committed.
    Checked {
        /// The question.
        number: u64,
        /// The commit time.
        commit: Option<Versionstamp>,
    },
}

/// What a transaction has written at one partition, on its way to other sites.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outgoing {
    /// Its commit time at its own site.
    pub commit: Versionstamp,
    /// Its writes.
    pub writes: Vec<Write>,
}

/// Transactions that follow one another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// By site, up to when they may depend on that site.
    pub needs: Vec<Versionstamp>,
    /// The transactions, in the order of their commit times.
    pub transactions: Vec<Outgoing>,
}

/// Transactions of another site that are here and not admitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// The commit time of the first one.
    pub first: Versionstamp,
    /// The commit time of the last one.
    pub last: Versionstamp,
    /// Whether they are a copy, which can only be admitted as a whole.
    pub is_copy: bool,
    /// By site, up to when they may depend on that site.
    pub needs: Vec<Versionstamp>,
}

/// What leaders tell each other about what other sites have written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Across {
    /// To the same partition at another site: what has committed here.
    Ship {
        /// How often the sender has begun again.
        epoch: u64,
        /// The receiver has all that has committed up to this, as far as the sender knows.
        after: Versionstamp,
        /// With this it has all that has committed up to this, and nothing else ever will.
        to: Versionstamp,
        /// The transactions, in the order of their commit times.
        runs: Vec<Run>,
        /// By site, what is admitted at the sender.
        cut: Vec<Versionstamp>,
    },
    /// The answer.
    Shipped {
        /// That of [`Across::Ship`].
        epoch: u64,
        /// All that has committed up to this is durable here.
        to: Versionstamp,
        /// Something before that is missing: the sender begins again.
        is_gap: bool,
    },
    /// To the same partition at another site that has to copy: the latest versions of some keys.
    Part {
        /// Names the copy: with it the site has all that has committed up to this.
        to: Versionstamp,
        /// The name in the sender's store after which the part begins. `None` for the first one.
        after: Option<Vec<u8>>,
        /// The name after which the next part begins.
        next: Vec<u8>,
        /// The versions: the commit time of each at the sender's site, and what it wrote.
        versions: Vec<(Versionstamp, Write)>,
        /// For the last part: by site, up to when the copy depends on that site.
        needs: Option<Vec<Versionstamp>>,
    },
    /// The answer: what is durable of a copy.
    Copied {
        /// Names the copy.
        to: Versionstamp,
        /// The name after which the next part is to begin.
        after: Option<Vec<u8>>,
        /// All of it is there.
        is_done: bool,
    },
    /// To the leader of the site's first partition: what can be admitted here.
    Report(Report),
    /// From the leader of the site's first partition: prepare a transaction that admits what others have written.
    Admit {
        /// The transaction.
        id: TransactionId,
        /// By site, up to when it is admitted.
        cut: Vec<Versionstamp>,
    },
    /// From a site that has lost all its disks, to the same partition at each other site: what is known there?
    Ask {
        /// Names the question.
        number: u64,
    },
    /// The answer. The message says how often each site has been rebuilt.
    Told {
        /// That of [`Across::Ask`].
        number: u64,
        /// The sender has seen no later versionstamp.
        latest: Versionstamp,
    },
    /// To the leader of the first partition of a site that has lost all its disks: all other sites have answered. By
    /// site, how often they know it to have been rebuilt.
    Found(Vec<u32>),
    /// The answer: begin to rebuild the site. By site, how often it has been rebuilt now.
    Begin(Vec<u32>),
    /// From the leader of the first partition of a site, to one whose clock is behind: another one's clock shows this.
    Clock(Versionstamp),
    /// From the leader of the first partition of a site that is being rebuilt: all partitions have got back what they
    /// had written themselves.
    Whole,
    /// From the leader of the first partition of a site: the site is rebuilt, all partitions have all that they lacked.
    End,
    /// From a site that is being rebuilt, to the same partition at another site: send what that has admitted of it.
    Restore {
        /// The name in the receiver's store after which to begin.
        after: Option<Vec<u8>>,
    },
    /// The answer.
    Restored {
        /// That of [`Across::Restore`].
        after: Option<Vec<u8>>,
        /// The name after which the next part begins.
        next: Vec<u8>,
        /// The versions: the commit time of each, and what it wrote.
        versions: Vec<(Versionstamp, Write)>,
        /// Whether it is the last part.
        is_last: bool,
        /// The sender has seen no later versionstamp.
        latest: Versionstamp,
        /// By site, up to when the versions may depend on that site, or were overwritten by it. Of the receiver: what was
        /// admitted.
        needs: Vec<Versionstamp>,
    },
}

/// How far a site is rebuilt that has lost its disks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Stage {
    /// Its partitions get back what they had written themselves.
    Restoring,
    /// All have it. They get what other sites have written.
    Whole,
    /// It has everything, or has never lost anything.
    #[default]
    Rebuilt,
}

/// What a partition has of other sites, by site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// All that has committed up to this is here.
    pub here: Vec<Versionstamp>,
    /// What of that is not admitted.
    pub waiting: Vec<Vec<Batch>>,
    /// If the site is being rebuilt: what has to be admitted before it is rebuilt.
    pub lacks: Vec<Versionstamp>,
    /// What the partition's clock shows.
    pub shown: Versionstamp,
    /// How far the site is rebuilt, as far as the partition knows.
    pub stage: Stage,
    /// Whether the partition has all that it needs for the next stage.
    pub is_ready: bool,
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A leader begins. Its clock begins at the bound, and the bound is raised.
    Lead,
    /// The clock of the leader may go up to the bound. Outcomes of transactions that were requested up to the horizon
    /// are forgotten.
    Bound {
        /// The bound.
        bound: Versionstamp,
        /// The horizon.
        horizon: Versionstamp,
        /// Transactions that were requested up to this, and are not known, are refused from now on.
        refused: Versionstamp,
    },
    /// A transaction that has this partition alone.
    Write {
        /// The transaction.
        id: TransactionId,
        /// Its commit time.
        commit: Versionstamp,
        /// Its writes.
        writes: Vec<Write>,
    },
    /// A transaction is prepared.
    Prepare {
        /// The transaction.
        id: TransactionId,
        /// The partitions that take part. The first one coordinates.
        participants: Vec<u16>,
        /// Its pending time here.
        pending: Versionstamp,
        /// Its writes here.
        writes: Vec<Write>,
        /// If it admits transactions of other sites: up to when, by site.
        cut: Vec<Versionstamp>,
    },
    /// A transaction that is not prepared here never will be.
    Refuse(TransactionId),
    /// A prepared transaction commits, or is undone. The entry repeats the writes, so that it can be replayed without
    /// the one that has prepared it.
    Decide {
        /// The transaction.
        id: TransactionId,
        /// Its commit time; `None` if it is undone.
        commit: Option<Versionstamp>,
        /// Its writes here, if it commits.
        writes: Vec<Write>,
        /// As in [`Entry::Prepare`].
        cut: Vec<Versionstamp>,
    },
    /// Another site has sent this.
    Receive {
        /// The site.
        site: u16,
        /// How often it had been rebuilt.
        era: u32,
        /// With this, all is here that has committed there up to this.
        to: Versionstamp,
        /// The transactions, in the order of their commit times.
        runs: Vec<Run>,
    },
    /// Other sites have what has committed here, up to these times.
    Acknowledged(Vec<Versionstamp>),
    /// Nothing is kept for a site any more. It will have to copy.
    GiveUp(u16),
    /// A site begins to copy: from now on, what commits after this is kept for it again.
    TakeBack(u16, Versionstamp),
    /// A part of a copy of another site's versions.
    Part {
        /// The site.
        site: u16,
        /// How often it had been rebuilt.
        era: u32,
        /// As in [`Across::Part`].
        to: Versionstamp,
        /// As in [`Across::Part`].
        next: Vec<u8>,
        /// As in [`Across::Part`].
        versions: Vec<(Versionstamp, Write)>,
        /// As in [`Across::Part`].
        needs: Option<Vec<Versionstamp>>,
    },
    /// All cohorts know the decisions of these transactions.
    Finish(Vec<TransactionId>),
    /// This site begins to be rebuilt from the others.
    Rebuild {
        /// By site, how often it has been rebuilt now.
        eras: Vec<u32>,
        /// No other site had seen a later versionstamp.
        latest: Versionstamp,
    },
    /// Another site has lost all its disks. What it has sent and what is not admitted here does not count any more.
    Lost {
        /// The site.
        site: u16,
        /// How often it has been rebuilt now.
        era: u32,
    },
    /// A part of what another site had admitted of this one.
    Restored {
        /// The other site.
        site: u16,
        /// As in [`Across::Restored`].
        next: Vec<u8>,
        /// As in [`Across::Restored`].
        versions: Vec<(Versionstamp, Write)>,
        /// As in [`Across::Restored`].
        is_last: bool,
        /// As in [`Across::Restored`].
        latest: Versionstamp,
        /// As in [`Across::Restored`].
        needs: Vec<Versionstamp>,
    },
    /// All partitions of this site have got back what they had written themselves.
    Whole,
    /// This site has all that it lacked.
    Rebuilt,
}

/// How many bytes the key and the value of a write have.
pub(super) fn size(write: &Write) -> usize {
    write.key.len() + write.value.as_ref().map_or(0, Value::len)
}

impl replicated_log::Entry for Entry {
    fn size(&self) -> usize {
        match self {
            Entry::Write { writes, .. }
            | Entry::Prepare { writes, .. }
            | Entry::Decide { writes, .. } => writes.iter().map(size).sum(),
            Entry::Receive { runs, .. } => {
                let all = runs.iter().flat_map(|run| &run.transactions);
                all.flat_map(|one| &one.writes).map(size).sum()
            }
            Entry::Part { versions, .. } | Entry::Restored { versions, .. } => {
                versions.iter().map(|(_, write)| size(write)).sum()
            }
            Entry::Finish(ids) => ids.len() * size_of::<TransactionId>(),
            Entry::Lead
            | Entry::Bound { .. }
            | Entry::Refuse(_)
            | Entry::Acknowledged(_)
            | Entry::GiveUp(_)
            | Entry::TakeBack(..)
            | Entry::Rebuild { .. }
            | Entry::Lost { .. }
            | Entry::Whole
            | Entry::Rebuilt => 0,
        }
    }
}

/// What a replica makes durable.
pub type Record = replicated_log::Record<Led<Entry>>;
