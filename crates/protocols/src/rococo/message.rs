//! The messages between participants, and the records that replicas keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{decode_cell_of_another, encode_cell};
use serried_procedures::limits::MAX_DATA_OF_CALL;
use serried_procedures::{Datum, PieceId, ProcedureSet, Refused, StoredRow, decode_data};
use smallvec::SmallVec;

use super::merged::{Hold, HoldEntry, HoldReply};
use crate::frameworks::replicated_log;

pub(super) use crate::frameworks::chopped::{Ancestors, Commit, Edge, Kind, Vertex, Window};

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a client or of another server to the leader of this one's group.
    Request(Request),
    /// A request that a replica forwards because it does not lead.
    Forward {
        /// The sender of the request.
        from: NodeId,
        /// The request.
        request: Request,
    },
    /// A reply of a replica that leads.
    Reply(Reply),
    /// A message of the replicated log.
    Log(replicated_log::Message<Led>),
}

/// A request to the leader of a partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Start pieces of a transaction (002 §3.2, the start phase).
    Start(Start),
    /// All pieces of the transaction were started: execute what was deferred (002 §3.2, the commit phase).
    Commit(Arc<Commit>),
    /// The transaction has been executed at all of its participants.
    End(Vec<Version>),
    /// Execute pieces of a read-only call when no transaction conflicts with them (002 §4.1).
    Read(Read),
    /// Report the edges of the transaction when it commits (002 §3.2, the status request).
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
    /// Replace the set of procedures that is in use. Only the partition of sets gets this.
    Register {
        /// Identifies the request at the client.
        number: u64,
        /// The set.
        set: Arc<ProcedureSet>,
        /// The version of the set that it is to replace, if it is to replace no other.
        replaces: Option<u64>,
    },
    /// Start no calls under the set that is in use, but for those that another partition has started. This set will
    /// replace it.
    Drain {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
    /// Use this set of procedures from now on. All calls under the former set have ended.
    Install {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
    /// Report whether the transaction is known.
    Inquire {
        /// The transaction.
        txn: Version,
    },
    /// Hold the rows of pieces of a merged piece, and report what the pieces would return (002 §4.2).
    Hold(Hold),
    /// Hold these rows no more: the attempt has failed. Report when the next attempt has a chance.
    Release(Hold),
}

/// The start of pieces of a transaction at one partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The transaction.
    pub txn: Version,
    /// The call.
    pub call: Arc<CallOf>,
    /// Whether another partition has started the transaction. Then this one has to start it too.
    pub insist: bool,
    /// The pieces, in the order of their declaration. If there are none, and the call is a read-only one that is ordered, the
    /// partition starts no other pieces of it.
    pub pieces: Vec<Occurrence>,
}

/// What is called.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallOf {
    /// The version of the set of procedures.
    pub set: u64,
    /// The place of the procedure in its set.
    pub procedure: u16,
    /// The inputs.
    pub inputs: Inputs,
    /// If the procedure writes nothing and the call is ordered among those that write: the partitions at which it has
    /// pieces, in ascending order. A start without pieces closes it at a partition.
    pub reads: Vec<u16>,
}

impl CallOf {
    /// Whether it is a read-only call that is ordered.
    pub(super) fn is_read(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Whether its inputs are larger than those of any procedure.
    pub(super) fn is_too_large(&self) -> bool {
        self.inputs.len() as u64 > MAX_DATA_OF_CALL
    }
}

/// The inputs of a call, encoded. Only a node that goes on with another's call decodes them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Inputs(Value);

impl Inputs {
    /// Encodes inputs.
    pub(super) fn new(inputs: &[Datum]) -> Inputs {
        Inputs(encode_cell(&inputs).into())
    }

    /// How many bytes they take up.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The inputs. None if no correct node has encoded them.
    pub(super) fn decode(&self) -> Option<Vec<Datum>> {
        decode_cell_of_another(self.0.as_bytes())
    }
}

/// An occurrence of a piece.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Occurrence {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences, from 0.
    pub number: u32,
    /// What its body gets.
    #[serde(deserialize_with = "decode_data")]
    pub arguments: Arc<[Datum]>,
}

/// Pieces of a read-only call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// Identifies the request at the client.
    pub number: u64,
    /// The version of the set of procedures.
    pub set: u64,
    /// The place of the procedure in its set.
    pub procedure: u16,
    /// The pieces.
    pub pieces: Vec<Occurrence>,
    /// For each piece, the versions of the rows that it has read in the round before. If they have not changed, the answer
    /// does not repeat what the piece has found.
    pub known: Vec<Option<Versions>>,
    /// Pieces of former requests of the call, which come after those. They were answered by this leader.
    pub again: Vec<Again>,
    /// What to do if a transaction conflicts with a piece.
    pub on_conflict: OnConflict,
}

/// What a leader does if a transaction conflicts with a piece of a read-only call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum OnConflict {
    /// It waits until none does.
    Wait,
    /// It reads none of the pieces. The answer is [`Reply::ReadConflict`].
    Fail,
    /// It tries the deferred pieces that were started and conflict, and then the piece. What that finds is a prediction, and may
    /// be no result.
    Predict,
}

/// Pieces of a former request of a read-only call that are to be read again. The leader knows them, and the versions that
/// they have read. So the answer does not repeat what has not changed since the former one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Again {
    /// The name of the former answer.
    pub name: AnswerName,
    /// Which of its pieces, as ranges of their places: the first, and the one after the last. In ascending order.
    pub kept: Vec<(u32, u32)>,
}

/// The name of an answer to a request of a read-only call. No two answers have the same one, not even two to the same
/// request, which may have found different versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct AnswerName {
    /// The slot of the entry with which the leader has begun to serve. No other leader begins with it.
    pub leader: u64,
    /// Counts the answers of this leader.
    pub number: u64,
}

/// Versions of rows. Most pieces read one row.
pub(super) type Versions = SmallVec<[u64; 2]>;

/// An answer of a partition's leader.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Pieces were started.
    Started(Started),
    /// No piece of the transaction was started here.
    NotStarted {
        /// The transaction.
        txn: Version,
        /// Why.
        why: NotStarted,
    },
    /// The transaction has been executed here.
    Executed {
        /// The transaction.
        txn: Version,
        /// The outputs of the deferred pieces.
        outputs: Arc<[Executed]>,
    },
    /// The outputs of pieces of a read-only call.
    Read {
        /// Identifies the request.
        number: u64,
        /// For each piece, in the order of the request, what it has found; `None` if it has read the versions that the
        /// request names.
        found: Result<Vec<Option<Box<Found>>>, NotStarted>,
        /// The name of the answer, if the leader remembers it.
        name: Option<AnswerName>,
    },
    /// No piece of a read-only call was read, because a transaction conflicts with one of them.
    ReadConflict {
        /// Identifies the request.
        number: u64,
        /// The name by which the leader remembers the pieces, if it does.
        name: Option<AnswerName>,
    },
    /// The leader does not know a former answer that the request names. The pieces have to be sent.
    ReadForgotten {
        /// Identifies the request.
        number: u64,
    },
    /// What the sender knows of a transaction.
    Status {
        /// The transaction.
        txn: Version,
        /// What it knows of the transaction and of others before it.
        ancestors: Ancestors,
    },
    /// The set of procedures that is in use.
    Set {
        /// Its version; 0 if there is none.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
        /// The time from which calls have to begin, in microseconds.
        from_us: u64,
    },
    /// What comes of a registration.
    Registered {
        /// Identifies the request.
        number: u64,
        /// What comes of it.
        end: Registered,
    },
    /// All calls have ended at the sender, and it starts no others until this set is in use.
    Drained {
        /// The version of the set.
        version: u64,
    },
    /// The sender uses this set of procedures.
    Installed {
        /// Its version.
        version: u64,
    },
    /// What the sender knows of a transaction that a client has inquired about.
    Known {
        /// The transaction.
        txn: Version,
        /// What it knows.
        known: Inquired,
    },
    /// What comes of holding rows of a merged piece.
    Hold(HoldReply),
}

impl Reply {
    /// The call that the reply is about, if it is an answer to its coordinator.
    pub(super) fn call(&self) -> Option<Version> {
        match self {
            Reply::Started(started) => Some(started.txn),
            Reply::NotStarted { txn, .. } | Reply::Executed { txn, .. } => Some(*txn),
            Reply::Hold(reply) => Some(reply.txn),
            _ => None,
        }
    }
}

/// What comes of a registration.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Registered {
    /// The set is in use.
    InUse {
        /// Its version.
        version: u64,
    },
    /// Another set is in use than the one to be replaced, or is about to be.
    Superseded {
        /// Its version.
        version: u64,
    },
    /// The set can't replace the one that is in use. This says why.
    Unfit(String),
}

/// What a partition knows of a transaction that a client has inquired about.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Inquired {
    /// It was started. Any node can finish it, and gets its results.
    Started(Arc<CallOf>),
    /// No piece of it was started here.
    Unknown {
        /// No transaction begins here that began before this time, unless another partition has started it.
        from_us: u64,
    },
    /// It may have ended so long ago that this was forgotten.
    Forgotten,
}

/// What comes of a start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// The transaction.
    pub txn: Version,
    /// All of its pieces that were started here.
    pub pieces: Vec<StartedPiece>,
    /// The merged pieces of which some are among them, if their rows were held before: which merged piece, and the attempt
    /// that has succeeded.
    pub attempts: Vec<(u16, u64)>,
    /// The transactions before it, by these pieces.
    pub edges: Vec<Edge>,
    /// What is known of these and of transactions before them.
    pub ancestors: Ancestors,
    /// Whether the transaction has been executed, so that no piece of it is started any more.
    pub is_over: bool,
    /// Whether it is a read-only call that is closed, so that no piece of it is started any more.
    pub is_closed: bool,
}

/// A piece that was started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartedPiece {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences.
    pub number: u32,
    /// Its outputs, if it is immediate.
    pub outcome: Option<Result<Vec<Datum>, Refused>>,
}

/// The outputs of a deferred piece.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Executed {
    /// The piece.
    pub piece: PieceId,
    /// Which of its occurrences.
    pub number: u32,
    /// Its outputs.
    pub outputs: Vec<Datum>,
}

/// What a piece of a read-only call has found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// Its outputs.
    pub outcome: Result<Vec<Datum>, Refused>,
    /// The versions of the rows that it has read, in the order of the reads. Which rows these are follows from its
    /// arguments and the rows before them. A version changes whenever its row does.
    pub versions: Versions,
}

/// Why no piece was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NotStarted {
    /// The transaction began too long ago for one that no partition has started.
    Late {
        /// The time from which transactions are admitted, in microseconds.
        from_us: u64,
    },
    /// Another set of procedures is in use, or is about to be.
    OtherSet {
        /// The version of the set that is in use.
        version: u64,
    },
    /// The transaction began so long ago that it may have ended and been forgotten.
    Forgotten,
}

/// An entry of a partition's log.
///
/// The leader executes bodies and puts the rows that they have written into the entry. So what an entry changes of a row,
/// or of a transaction, does not depend on any other. A replica can go on with any entry after it has copied another's
/// state row by row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// Pieces of a transaction were started.
    Start(Arc<StartEntry>),
    /// Deferred pieces were executed.
    Execute(Arc<ExecuteEntry>),
    /// These transactions have been executed at all of their participants.
    End(Vec<Version>),
    /// Which transactions are admitted, and which can be forgotten.
    Window(Window),
    /// A set of procedures is to replace the one that is in use.
    Drain {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
    /// A set of procedures is in use.
    Install {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
    /// A new leader begins.
    Lead,
    /// Rows of a merged piece are held, or an attempt to do so has failed.
    Hold(Arc<HoldEntry>),
}

/// The start of pieces.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StartEntry {
    /// The transaction.
    pub txn: Version,
    /// The call.
    pub call: Arc<CallOf>,
    /// The pieces. If there are none, no others follow.
    pub pieces: Vec<Occurrence>,
    /// The outcome of each, if it is immediate.
    pub outcomes: Vec<Option<Result<Vec<Datum>, Refused>>>,
    /// The transactions that come before it by these pieces.
    pub edges: Vec<Edge>,
    /// The rows that immediate pieces have written or deleted.
    pub rows: Vec<Written>,
}

/// The execution of deferred pieces of a group of transactions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExecuteEntry {
    /// The transactions, in the order of their execution, and the outputs of their deferred pieces.
    pub txns: Vec<(Version, Arc<[Executed]>)>,
    /// If the transactions are on a cycle, all transactions on it.
    pub cycle: Arc<[Vertex]>,
    /// The rows that they have written or deleted.
    pub rows: Vec<Written>,
}

/// A row that was written or deleted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Written {
    /// Its key.
    pub key: Key,
    /// Counts the writes of this row.
    pub version: u64,
    /// Its columns; none if it was deleted.
    pub columns: Option<StoredRow>,
}

/// An entry of a leader.
pub type Led = replicated_log::Led<Entry>;

impl replicated_log::Entry for Entry {
    fn size(&self) -> usize {
        let row =
            |row: &Written| row.key.len() + row.columns.as_ref().map_or(0, |row| data_size(row));
        match self {
            Entry::Start(start) => {
                let pieces = start.pieces.iter().map(|piece| data_size(&piece.arguments) + 64);
                let outcomes = start.outcomes.iter().flatten().flatten();
                pieces.sum::<usize>()
                    + start.call.inputs.len()
                    + outcomes.map(|outputs| data_size(outputs)).sum::<usize>()
                    + start.rows.iter().map(row).sum::<usize>()
                    + start.edges.len() * size_of::<Edge>()
            }
            Entry::Execute(executed) => {
                let outputs = executed.txns.iter().flat_map(|(_, outputs)| outputs.iter());
                outputs.map(|piece| data_size(&piece.outputs) + 64).sum::<usize>()
                    + executed.rows.iter().map(row).sum::<usize>()
            }
            Entry::Hold(hold) => {
                let pieces = hold.pieces.iter().map(|piece| data_size(&piece.arguments) + 64);
                pieces.sum::<usize>() + hold.call.inputs.len()
            }
            Entry::End(txns) => txns.len() * size_of::<Version>(),
            // As an estimate: an expression takes several times its text.
            Entry::Drain { set, .. } | Entry::Install { set, .. } => 4096 * set.procedures.len(),
            Entry::Window(_) | Entry::Lead => 0,
        }
    }
}

/// About how many bytes data take up.
pub(super) fn data_size(data: &[Datum]) -> usize {
    let size = |datum: &Datum| match datum {
        Datum::Bool(_) | Datum::Int(_) => 0,
        Datum::String(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::List(data) | Datum::Record(data) => data_size(data),
    };
    data.iter().map(|datum| size(datum) + size_of::<Datum>()).sum()
}

/// A record that a replica makes durable.
pub type Record = replicated_log::Record<Led>;
