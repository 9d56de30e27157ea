//! The messages between participants, and the records that replicas keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Version};
use serried_procedures::limits::MAX_DATA_OF_CALL;
use serried_procedures::{Datum, PieceId, ProcedureSet, Refused, Registration, StoredRow};

pub(super) use crate::frameworks::chopped::{Ancestors, Commit, Edge, Kind, Vertex};

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a client or of another replica.
    Request(Request),
    /// The answer of a replica.
    Reply(Reply),
}

/// A request to a replica of a partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Take the transaction on, and report the transactions before it.
    PreAccept(PreAccept),
    /// Accept these as the transactions before it.
    Accept(Accept),
    /// All participants have agreed: execute the transaction when it is its turn.
    Commit(Arc<Commit>),
    /// The transaction is void: it is never executed.
    Void {
        /// The transaction.
        txn: Version,
    },
    /// Report what pieces of the transaction have returned.
    Results {
        /// The transaction.
        txn: Version,
    },
    /// Report the transactions before this one, when it commits.
    Ask {
        /// The transaction.
        txn: Version,
    },
    /// Report what the transaction does.
    Fetch {
        /// The transaction.
        txn: Version,
    },
    /// These transactions were executed at the sender: report which of them were executed where you are.
    Compare(Vec<Version>),
    /// How far the sender has come, for another replica of its partition.
    Report(Report),
    /// Up to when everything has ended at the sender's partition, as far as is known there. Times are in microseconds since
    /// the Unix epoch.
    Over {
        /// Transactions that began before this time have ended, unless another replica has taken on one that is not known yet.
        below_us: u64,
        /// Transactions that began before this time have ended, and no other will be taken on.
        firm_us: u64,
    },
    /// Report the set of procedures that is in use.
    Set,
    /// Send a part of the data of the partition.
    Copy {
        /// Which part.
        request: CopyRequest,
        /// What [`Reply::Copied`] has said with the part before; 0 for the first part.
        session: u64,
    },
    /// The sender has lost its disk, and begins again in this incarnation.
    Join {
        /// The incarnation.
        incarnation: u64,
    },
}

/// The number of an attempt to agree on a transaction. Each coordinator of a transaction has numbers of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Ballot {
    /// 0 for the client that has begun the transaction.
    pub number: u64,
    /// The coordinator; none in particular if the number is 0.
    pub by: NodeId,
}

impl Ballot {
    /// The ballot of the client that has begun a transaction.
    pub(super) const FIRST: Ballot = Ballot { number: 0, by: NodeId(0) };
}

/// What replicas of one partition agree on: the transactions before another one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dependencies {
    /// The edges, in ascending order, each once. None if the transaction is void: it is never executed.
    pub edges: Option<Arc<[Edge]>>,
    /// See [`Vertex::floor_us`].
    pub floor_us: u64,
}

/// A transaction that is to be taken on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PreAccept {
    /// The transaction.
    pub txn: Version,
    /// What it does. None if the sender does not know that, and only wants to know what has been agreed on.
    pub work: Option<Arc<Work>>,
    /// Whether another replica has taken it on. Then this one has to do so, too.
    pub insist: bool,
    /// The attempt.
    pub ballot: Ballot,
}

/// What replicas of a partition are to agree on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// The transaction.
    pub txn: Version,
    /// The attempt.
    pub ballot: Ballot,
    /// The transactions before it.
    pub dependencies: Dependencies,
    /// The incarnations of the replicas that have reported these ([`serried_parts::Incarnations::named`]).
    pub incarnations: Vec<u64>,
}

/// How far a replica has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The transactions that the sender knows and that began before this time were executed by all replicas that it counts,
    /// and no other begins at the sender.
    pub below_us: u64,
    /// The sender's window.
    pub window: Window,
    /// The number of the sender's copy of the data.
    pub copy: u64,
    /// Whether it has all data.
    pub is_whole: bool,
    /// Whether it votes for configurations.
    pub is_voter: bool,
    /// What it has promised and accepted for the next configuration.
    pub vote: Vote,
    /// The incarnations that the sender knows.
    pub incarnations: Vec<u64>,
}

/// Which replicas of a partition are counted. Others may lack what these have forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Configuration {
    /// It rises by one from each configuration to the next. In the first one, of number 0, all are counted.
    pub number: u64,
    /// By the number of the replica, the number of the copy of the data with which it is counted.
    pub counted: Vec<Option<u64>>,
}

impl Configuration {
    /// The number of the copy with which a replica is counted.
    #[must_use]
    pub fn copy_of(&self, node: NodeId) -> Option<u64> {
        match self.number {
            0 => Some(0),
            _ => self.counted.get(node.member()).copied().flatten(),
        }
    }
}

/// What a replica knows of configurations, and how it votes for the next one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Vote {
    /// The last one that it knows to be chosen.
    pub chosen: Configuration,
    /// It votes in no earlier ballot.
    pub promised: Ballot,
    /// What it has voted for last, if it comes next.
    pub accepted: Option<(Ballot, Configuration)>,
}

/// A request for a part of the data of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyRequest {
    /// The number of the copy, which rises. What was sent in former copies is of no use.
    pub copy: u64,
    /// Which part of it, from 0.
    pub part: u64,
    /// Where the part begins.
    pub from: CopyFrom,
    /// Names that the sender has and that were not in the former part, although they belong there.
    pub lacking: Vec<Key>,
}

/// Where a part of a copy begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CopyFrom {
    /// At the first name.
    First,
    /// After this name.
    After(Key),
    /// With what has changed since the copy began.
    Changed,
}

/// What a transaction does, and where.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// The partitions at which it may have pieces, in ascending order.
    pub participants: Arc<[u16]>,
    /// What it does.
    pub task: Task,
}

/// What a transaction does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Task {
    /// It calls a procedure.
    Call(CallOf),
    /// It puts a set of procedures in use. All partitions are its participants, and it conflicts with everything.
    Register {
        /// The set.
        set: Arc<ProcedureSet>,
        /// The version of the set that it is to replace.
        replaces: u64,
    },
}

/// What is called.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallOf {
    /// The version of the set of procedures.
    pub set: u64,
    /// The place of the procedure in its set.
    pub procedure: u16,
    /// The inputs.
    pub inputs: Vec<Datum>,
}

impl CallOf {
    /// Whether its inputs are larger than those of any procedure.
    pub(super) fn is_too_large(&self) -> bool {
        self.inputs.iter().map(Datum::size).fold(0, usize::saturating_add) as u64 > MAX_DATA_OF_CALL
    }
}

/// What an occurrence of a piece has returned, or why it was refused.
pub(super) type Outcome = Result<Vec<Datum>, Refused>;

/// What an occurrence of a piece has returned.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PieceResult {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences, from 0.
    pub number: u32,
    /// Its outputs, or why it was refused.
    pub outcome: Result<Vec<Datum>, Refused>,
}

/// What the pieces of a transaction at one partition have returned.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// What each has returned.
    pub pieces: Vec<PieceResult>,
    /// Why the transaction is refused, if it is.
    pub refused: Option<Refused>,
}

/// The answer of a replica.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The transaction was taken on.
    PreAccepted(Box<PreAccepted>),
    /// The transaction was not taken on.
    NotAccepted {
        /// The transaction.
        txn: Version,
        /// Why.
        why: NotAccepted,
    },
    /// A later attempt is under way.
    Promised {
        /// The transaction.
        txn: Version,
        /// That attempt.
        ballot: Ballot,
    },
    /// The transactions before it are accepted.
    Accepted {
        /// The transaction.
        txn: Version,
        /// The attempt.
        ballot: Ballot,
        /// The incarnations that the sender knows.
        incarnations: Vec<u64>,
    },
    /// What was to be accepted came in part from a replica that has lost its disk since.
    Replaced {
        /// The transaction.
        txn: Version,
        /// The attempt.
        ballot: Ballot,
        /// The incarnations that the sender knows.
        incarnations: Vec<u64>,
    },
    /// The transaction commits.
    Committed {
        /// The transaction.
        txn: Version,
        /// What it does, if that was not known to the one who has asked.
        work: Option<Arc<Work>>,
        /// Its commit.
        commit: Arc<Commit>,
    },
    /// The transaction has been executed here.
    Executed {
        /// The transaction.
        txn: Version,
        /// What came of it.
        end: End,
        /// What its pieces have returned.
        results: Results,
    },
    /// What the sender knows of a transaction.
    Status {
        /// The transaction.
        txn: Version,
        /// What it knows of the transaction and of others before it.
        ancestors: Ancestors,
    },
    /// What a transaction does, if the sender knows it.
    Fetched {
        /// The transaction.
        txn: Version,
        /// What it does.
        work: Option<Arc<Work>>,
        /// What is known of the transaction and of others before it.
        ancestors: Ancestors,
    },
    /// Transactions have been executed at the sender.
    Have {
        /// The number of the last configuration that the sender knows.
        configuration: u64,
        /// The number of the sender's copy of the data.
        copy: u64,
        /// The transactions.
        txns: Vec<Version>,
    },
    /// What pieces of a transaction have returned at the sender, as far as they have been executed.
    Results {
        /// The transaction.
        txn: Version,
        /// What they have returned.
        results: Results,
    },
    /// The set of procedures that is in use.
    Set {
        /// Its version; 0 if there is none.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
        /// Whether everything is executed that might have been a registration when the replica was asked.
        is_last: bool,
    },
    /// A part of the data of the partition.
    Copied {
        /// The part.
        copied: Box<Copied>,
        /// Identifies the copy at the sender, which knows what has changed since it sent the first part. It forgets that when
        /// it restarts. So a part of one session does not follow a part of another one.
        session: u64,
    },
    /// The sender knows that a replica has lost its disk.
    Joined {
        /// The incarnation of that replica.
        incarnation: u64,
        /// The incarnations that the sender knows.
        incarnations: Vec<u64>,
        /// The transactions that the sender has taken on, and that were not executed by all replicas.
        open: Vec<Version>,
        /// Whether the sender has lost its disk, too, and does not take part in agreements yet.
        is_lost: bool,
    },
}

/// A transaction was taken on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PreAccepted {
    /// The transaction.
    pub txn: Version,
    /// The attempt.
    pub ballot: Ballot,
    /// The transactions before it, as the sender knows them. None if it does not know the transaction.
    pub dependencies: Option<Dependencies>,
    /// What the sender has accepted, and in which attempt.
    pub accepted: Option<(Ballot, Dependencies)>,
    /// What the transaction does, if the request did not say.
    pub work: Option<Arc<Work>>,
    /// What is known of these and of transactions before them.
    pub ancestors: Ancestors,
    /// The incarnations that the sender knows.
    pub incarnations: Vec<u64>,
    /// Whether the sender has not taken the transaction on and will never do so, since everything before its time is over.
    pub is_closed: bool,
}

/// A part of the data of a partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Copied {
    /// What was asked for.
    pub request: CopyRequest,
    /// Names in the sender's store, with what is there.
    pub cells: Vec<(Key, Vec<u8>)>,
    /// Where the next part begins. None if nothing is left.
    pub next: Option<CopyFrom>,
    /// The last configuration that the sender knows. If nothing is left, this copy is counted in it.
    pub configuration: Configuration,
}

/// What came of a transaction at a partition. It is the same at all participants.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum End {
    /// The call was executed, or refused by one of its pieces.
    Executed,
    /// The call came after the registration of another set than its own. It did nothing.
    OtherSet,
    /// The transaction was a registration.
    Registered(Registration),
    /// The transaction is void: not enough replicas know what it does.
    Void,
}

/// Why a transaction was not taken on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NotAccepted {
    /// It began too long ago for one that no partition has taken on.
    Late {
        /// The time from which transactions are taken on, in microseconds.
        from_us: u64,
    },
    /// Another set of procedures is in use.
    OtherSet,
    /// It began so long ago that it may have ended and been forgotten.
    Forgotten,
}

/// A record that a replica makes durable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Something has happened.
    Entry {
        /// Its position in the log.
        position: u64,
        /// What has happened.
        entry: Entry,
    },
    /// The known incarnations of the members.
    Incarnations(Vec<u64>),
}

/// What has happened at a replica.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A transaction became known, or was taken on.
    Begin {
        /// The transaction.
        txn: Version,
        /// What it does.
        work: Arc<Work>,
        /// If it was taken on, the attempt, and the transactions before it by its pieces here.
        pre_accepted: Option<(Ballot, Dependencies)>,
    },
    /// The replica takes part in no earlier attempt.
    Promise {
        /// The transaction.
        txn: Version,
        /// The attempt.
        ballot: Ballot,
    },
    /// The transactions before it were accepted.
    Accept {
        /// The transaction.
        txn: Version,
        /// The attempt.
        ballot: Ballot,
        /// The transactions before it.
        dependencies: Dependencies,
    },
    /// A transaction commits, and has waited for others before it.
    Commit(Vertex),
    /// A transaction is void.
    Void(Version),
    /// Pieces were executed.
    Execute(Box<ExecuteEntry>),
    /// Which transactions are taken on, and which can be forgotten.
    Window(WindowEntry),
    /// A part of the data was copied from another replica.
    Copy {
        /// The part.
        copied: Box<Copied>,
        /// What had been forgotten by then.
        gone_us: u64,
    },
    /// How far the replica takes part from now on.
    Standing {
        /// How far.
        part: Part,
        /// The number of the copy from which its data comes: 0 at first. If its disk was lost, a number that none had before.
        copy: u64,
        /// What had been settled by then.
        settled_us: u64,
    },
    /// A vote for a configuration, or one that was chosen.
    Vote(Vote),
}

/// How far a replica takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Part {
    /// In everything.
    #[default]
    Full,
    /// It was away for so long that others have forgotten what it lacks. It agrees and does not execute.
    Behind,
    /// Its disk was lost, and it neither agrees nor executes.
    Lost,
    /// Its disk was lost. It has all data, and executes, but does not agree.
    Restored,
}

/// Which transactions are taken on, and which can be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// A transaction that began before this time, and that no replica has taken on, is not taken on.
    pub from_us: u64,
    /// A transaction that began before this time is not taken on, even if another replica has taken it on.
    pub closed_us: u64,
    /// Transactions that began before this time have been executed by all replicas that are counted, of all partitions.
    pub settled_us: u64,
    /// The same, and so long ago that clients ask for their outcomes no more.
    pub forget_us: u64,
}

impl Window {
    /// The window that admits what both admit.
    #[must_use]
    pub fn and(self, other: Window) -> Window {
        Window {
            from_us: self.from_us.max(other.from_us),
            closed_us: self.closed_us.max(other.closed_us),
            settled_us: self.settled_us.max(other.settled_us),
            forget_us: self.forget_us.max(other.forget_us),
        }
    }
}

/// A window, and what the other replicas of the partition know of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WindowEntry {
    /// The window.
    pub window: Window,
    /// All replicas that are counted know that transactions which began before this time are settled.
    pub floor_us: u64,
    /// All replicas that are counted know that transactions which began before this time are forgotten.
    pub gone_us: u64,
}

impl WindowEntry {
    /// What both know.
    #[must_use]
    pub fn and(self, other: WindowEntry) -> WindowEntry {
        WindowEntry {
            window: self.window.and(other.window),
            floor_us: self.floor_us.max(other.floor_us),
            gone_us: self.gone_us.max(other.gone_us),
        }
    }
}

/// The execution of pieces of transactions that belong to one group.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ExecuteEntry {
    /// What was executed of each transaction.
    pub progress: Vec<Progress>,
    /// If the whole group was executed, its transactions that have this partition as a participant.
    pub executed: Vec<Vertex>,
    /// If the group was executed and is a cycle, all transactions on it.
    pub cycle: Arc<[Vertex]>,
    /// The rows that were written, or deleted if they have no columns.
    pub rows: Vec<(Key, Option<StoredRow>)>,
    /// The set of procedures that is in use from now on, with its version.
    pub installs: Option<(u64, Arc<ProcedureSet>)>,
}

/// How far a transaction has come.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The transaction.
    pub txn: Version,
    /// What further pieces have returned, and whether it is refused.
    pub results: Results,
    /// What came of it, if none of its pieces are left.
    pub end: Option<End>,
}
