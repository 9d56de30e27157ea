//! The messages between participants, and the records that servers keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, Version};
use serried_procedures::{Datum, PieceId, ProcedureSet, Refused, Registration, StoredRow};

pub(super) use crate::frameworks::chopped::{Ancestors, Commit, Edge, Kind, Vertex, Window};

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a client or of another server.
    Request(Request),
    /// The answer of a server.
    Reply(Reply),
}

/// A request to the server of a partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Take the transaction on, and report the transactions before it.
    PreAccept(PreAccept),
    /// All participants have taken the transaction on: execute it when it is its turn.
    Commit(Arc<Commit>),
    /// These transactions have been executed at all of their participants.
    End(Vec<Version>),
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
    /// Transactions that began before this time have ended at the sender's partition, and no other will begin there.
    Over {
        /// In microseconds since the Unix epoch.
        below_us: u64,
    },
    /// Report the set of procedures that is in use.
    Set,
    /// Report whether the transaction is known.
    Inquire {
        /// The transaction.
        txn: Version,
    },
}

/// A transaction that is to be taken on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PreAccept {
    /// The transaction.
    pub txn: Version,
    /// What it does.
    pub work: Arc<Work>,
    /// Whether another partition has taken it on. Then this one has to do so, too.
    pub insist: bool,
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

/// What the pieces of a transaction at one server have returned.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    /// What each has returned.
    pub pieces: Vec<PieceResult>,
    /// Why the transaction is refused, if it is.
    pub refused: Option<Refused>,
}

/// The answer of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The transaction was taken on.
    PreAccepted {
        /// The transaction.
        txn: Version,
        /// The transactions before it.
        edges: Vec<Edge>,
        /// What is known of these and of transactions before them.
        ancestors: Ancestors,
    },
    /// The transaction was not taken on.
    NotAccepted {
        /// The transaction.
        txn: Version,
        /// Why.
        why: NotAccepted,
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
    },
    /// What the sender knows of a transaction that a client has inquired about.
    Known {
        /// The transaction.
        txn: Version,
        /// What it knows.
        known: Inquired,
    },
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

/// What a partition knows of a transaction that a client has inquired about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Inquired {
    /// It was taken on. Any node can finish it, and gets its results.
    Begun(Arc<Work>),
    /// It was not taken on here.
    Unknown {
        /// No transaction begins here that began before this time, unless another partition has taken it on.
        from_us: u64,
    },
    /// It may have ended so long ago that this was forgotten.
    Forgotten,
}

/// A record that a server makes durable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its position in the log.
    pub position: u64,
    /// What has happened.
    pub entry: Entry,
}

/// What has happened at a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A transaction was taken on.
    Begin {
        /// The transaction.
        txn: Version,
        /// What it does.
        work: Arc<Work>,
        /// The transactions before it, by its pieces here.
        edges: Vec<Edge>,
    },
    /// Pieces were executed.
    Execute(Box<ExecuteEntry>),
    /// These transactions have been executed at all of their participants.
    End(Vec<Version>),
    /// Which transactions are taken on, and which can be forgotten.
    Window(Window),
    /// The disk was lost, with all that had happened before.
    Lost,
}

/// The execution of pieces of transactions that belong to one group.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ExecuteEntry {
    /// What was executed of each transaction.
    pub progress: Vec<Progress>,
    /// If the whole group was executed, its transactions that have this server as a participant.
    pub executed: Vec<Version>,
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
