//! The messages between participants, and the records that replicas keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, Modify, NodeId, Value, Version, Write};
use serried_procedures::{Datum, ProcedureSet, Registration};

use super::calls::{CallOf, Occurrence, Ran};
use super::stamp::{Stamp, Validity};
use crate::frameworks::replicated_log::{self, Time};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a client or of another shard to this shard's leader.
    Request(Request),
    /// A request that a replica forwards because it does not lead the shard.
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
    /// A message about clocks, between the replicas of a shard.
    Time(Time),
}

/// A request to a shard's leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Execute this shot.
    Shot(Shot),
    /// Move the transaction's part to another moment (003 §5.4).
    Move {
        /// The transaction.
        txn: Version,
        /// The moment.
        to: Stamp,
    },
    /// The transaction has ended.
    End {
        /// The transaction.
        txn: Version,
        /// How it ended.
        decision: Decision,
    },
    /// Read for a read-only transaction without parts.
    Snapshot {
        /// Identifies the request at the client.
        number: u64,
        /// Which versions it may read.
        as_of: AsOf,
        /// The keys.
        keys: Vec<Key>,
    },
    /// These transactions are still open.
    Alive(Vec<Version>),
    /// Report the state of the transaction at this shard. If it is not prepared there, refuse it
    /// permanently.
    Inspect {
        /// The transaction.
        txn: Version,
    },
    /// Find out how the transaction ends, and end it. The receiver's shard is its backup
    /// coordinator.
    Resolve {
        /// The transaction.
        txn: Version,
    },
    /// At the sender's shard, every transaction that began before this time has ended.
    Over {
        /// In microseconds since the Unix epoch.
        below_us: u64,
    },
    /// The sender's part of a transaction is durable, on which the receiver's shard decides.
    Prepared {
        /// The transaction.
        txn: Version,
        /// When the part holds.
        validity: Validity,
    },
    /// Execute this shot, which has a program. Only in keyspaces of procedures, as all that follow.
    Run(Run),
    /// What was called in this transaction, and what did its pieces return at this shard?
    Kept {
        /// The transaction.
        txn: Version,
    },
    /// Which set of procedures is in use?
    Set,
    /// Register a set of procedures. The first shard decides.
    Register {
        /// Identifies the request at the client.
        number: u64,
        /// The set.
        set: Arc<ProcedureSet>,
        /// The version of the set that it replaces, if it is to replace no other.
        replaces: Option<u64>,
    },
    /// Put this set of procedures in use. The first shard has done so.
    Install {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
}

/// Which versions a read-only transaction without parts reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AsOf {
    /// Those committed in slots below this one. The client knew of them when the transaction began (003 §5.5).
    Slot(u64),
    /// Those written before this version, its timestamp.
    Time(Version),
}

/// Some reads and writes of a transaction at one shard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shot {
    /// The transaction.
    pub txn: Version,
    /// The version of the transaction's first attempt, if this is another one.
    pub age: Option<Version>,
    /// Distinguishes the shot from others of the transaction at this shard.
    pub number: u16,
    /// The keys to read, before the shot's writes.
    pub reads: Vec<Key>,
    /// How many of the reads, from the first on, are of keys that the transaction is going to write.
    pub for_update: u32,
    /// The writes.
    pub writes: Vec<Write>,
    /// What is done to other keys, whatever values they have.
    pub modifies: Vec<Modify>,
    /// Set in the transaction's last shot at this shard: all shards that have a part of it, the
    /// backup coordinator first.
    pub participants: Option<Arc<[u16]>>,
}

impl Shot {
    /// How many keys it accesses.
    pub fn keys(&self) -> usize {
        self.reads.len() + self.writes.len() + self.modifies.len()
    }
}

/// A shot of a call: pieces that the leader executes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The shot, without reads and writes of its own.
    pub shot: Shot,
    /// What is called.
    pub call: Arc<CallOf>,
    /// The pieces. The last shot may have none.
    pub pieces: Vec<Occurrence>,
    /// Set in the last shot: a piece has refused the call. So the transaction must not commit, but what it has read is
    /// validated.
    pub is_refused: bool,
}

/// What a shard keeps of a call with its part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// What was called.
    pub call: Arc<CallOf>,
    /// All shards that have a part of it.
    pub participants: Arc<[u16]>,
    /// What its pieces returned here.
    pub ran: Ran,
    /// Whether it was refused, so that it must not commit.
    pub is_refused: bool,
}

/// An answer of a shard's leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// A shot was executed.
    Executed(Executed),
    /// The transaction is refused: it has not taken effect here, and never will.
    Refused {
        /// The transaction.
        txn: Version,
        /// Why.
        reason: Refusal,
    },
    /// The transaction's part holds at the requested moment.
    Moved {
        /// The transaction.
        txn: Version,
    },
    /// How the transaction ended.
    Decided {
        /// The transaction.
        txn: Version,
        /// How it ended.
        decision: Decision,
    },
    /// The outcomes of these transactions are known at the shard.
    Ended(Vec<Version>),
    /// A shard's part of a transaction is durable, with this validity.
    Prepared {
        /// The transaction.
        txn: Version,
        /// When it holds.
        validity: Validity,
    },
    /// The answer to a read-only transaction without parts.
    Snapshot {
        /// Identifies the request.
        number: u64,
        /// The slot below which the client now knows what was committed.
        known: u64,
        /// The time at the leader, in microseconds since the Unix epoch: it is certainly over if the protocol relies on
        /// clocks.
        clock_us: u64,
        /// The results, in the order of the keys.
        found: Result<Vec<Found>, Unseen>,
    },
    /// The sender no longer leads. Another replica of its shard leads, or will lead.
    Follow {
        /// The other replica.
        leader: NodeId,
    },
    /// A shot with a program was executed.
    Ran {
        /// As for other shots.
        executed: Executed,
        /// What the pieces of the shot have returned; in the answer to the last shot, what all pieces of the transaction
        /// have returned here.
        ran: Ran,
    },
    /// What the shard has kept of a call that has committed, if it has.
    Kept {
        /// The transaction.
        txn: Version,
        /// What it has kept.
        kept: Option<Arc<Kept>>,
    },
    /// The set of procedures that is in use.
    Set {
        /// Its version; 0 if none was ever registered.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
    /// The end of a registration.
    Registered {
        /// Identifies the request.
        number: u64,
        /// How it ended.
        end: Registration,
    },
    /// This set of procedures, or a later one, is in use at the sender's shard.
    Installed {
        /// Its version.
        version: u64,
    },
    /// A read as of a time can't be answered. Says nothing of the transaction that has that time as its version.
    Unread {
        /// Identifies the request.
        number: u64,
        /// Why.
        reason: Refusal,
    },
}

/// The result of a shot. Nothing that it depends on can change any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Executed {
    /// The transaction.
    pub txn: Version,
    /// The shot.
    pub number: u16,
    /// The results of its reads, in their order.
    pub found: Vec<Found>,
    /// In the answer to the last shot, when the shard's part of the transaction holds. The part is
    /// durable.
    pub validity: Option<Validity>,
    /// In the answer to the last shot, the slot below which the client now knows what was
    /// committed. Zero in others.
    pub known: u64,
    /// The leader's clock when the shot arrived, in microseconds since the Unix epoch (003 §5.3).
    pub clock_us: u64,
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The version of the write.
    pub version: Version,
    /// Its value, or `None` if the key is absent.
    pub value: Option<Value>,
}

/// Why a read-only transaction that has neither parts nor a timestamp is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unseen {
    /// The key that it can't read.
    pub key: Key,
    /// Whether a restart may help.
    pub anew: bool,
}

/// Why a transaction is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// It conflicts with others over these keys.
    Conflict {
        /// The keys, as far as they are known.
        keys: Vec<Key>,
        /// A transaction that begins after this time, in microseconds, does not meet these
        /// conflicts. Zero if its time does not matter.
        after_us: u64,
    },
    /// It began before the shard's leader led, or too long ago.
    Late {
        /// The time from which transactions are admitted, in microseconds.
        from_us: u64,
    },
    /// It is so old that the shard may have forgotten how it ended.
    Forgotten {
        /// The time from which transactions are admitted, in microseconds.
        from_us: u64,
    },
    /// Its client's clock is off.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
    /// It has run for longer than a transaction may, and was not prepared.
    TooLong {
        /// How long one may run, in milliseconds.
        limit_ms: u64,
    },
    /// Its part would be too large: with what it has modified, it writes too much at once.
    TooLarge {
        /// The key of the largest value.
        key: Key,
        /// How large the part is, in bytes.
        bytes: u64,
    },
    /// It is a call under another set of procedures than the one in use.
    OtherSet {
        /// The version of the set in use.
        version: u64,
    },
}

impl Part {
    /// How much a part may write, keys and values, in bytes. Each part is an entry of the log, and goes to the followers in
    /// one message.
    pub const MOST_BYTES: usize = 32 << 20;

    /// How long a key and what is written to it are, in bytes.
    fn bytes_of(item: &Item) -> usize {
        let value = item.write.as_ref().and_then(|write| write.value.as_ref());
        item.key.len() + value.map_or(0, Value::len)
    }

    /// About how large it is, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let length = |item: &Item| Part::bytes_of(item) + size_of::<Item>();
        self.items.iter().map(length).sum::<usize>() + size_of::<Part>()
    }

    /// The refusal of a transaction with this part, if it is too large.
    pub(super) fn too_large(&self) -> Option<Refusal> {
        let written = || self.items.iter().filter(|item| item.write.is_some());
        let bytes = written().map(Part::bytes_of).sum::<usize>();
        let largest = written().max_by_key(|item| Part::bytes_of(item))?;
        let refusal = || Refusal::TooLarge { key: largest.key.clone(), bytes: bytes as u64 };
        (bytes > Part::MOST_BYTES).then(refusal)
    }
}

impl Refusal {
    /// A conflict without details.
    pub(super) const CONFLICT: Refusal = Refusal::Conflict { keys: Vec::new(), after_us: 0 };
}

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Decision {
    /// It takes effect at this moment.
    Commit(Stamp),
    /// It has no effect.
    Abort,
}

/// A shard's part of a prepared transaction, as the log contains it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The transaction.
    pub txn: Version,
    /// All shards that have a part of it, the backup coordinator first.
    pub participants: Arc<[u16]>,
    /// When it holds.
    pub validity: Validity,
    /// Its accesses, one per key.
    pub items: Vec<Item>,
}

/// A transaction's access to one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The stamp of the version that it read, if it read one.
    pub read: Option<Stamp>,
    /// What it wrote, if it wrote.
    pub write: Option<Written>,
}

/// A transaction's write of one key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Written {
    /// The value, or `None` if it deleted the key.
    pub value: Option<Value>,
    /// The moment at which it takes effect, unless the decision sets another one.
    pub at: Stamp,
}

/// An entry of a shard's log. Its changes to a key are in the entry or are stored with that key. So
/// after a state transfer key by key, a replica can continue with any entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// The shard prepares a transaction, or changes its part.
    Prepare(Arc<Part>),
    /// A transaction has ended.
    Decide {
        /// The transaction.
        txn: Version,
        /// How it ended.
        decision: Decision,
        /// The keys of its part.
        keys: Arc<[Key]>,
    },
    /// Which transactions are admitted.
    Window(AdmissionWindow),
    /// A new leader begins. It refuses transactions that former leaders have admitted but have not
    /// put into the log.
    Lead,
    /// As `Prepare`, for a call.
    PrepareCall(Arc<Part>, Arc<Kept>),
    /// A set of procedures is in use from here on.
    Set {
        /// Its version.
        version: u64,
        /// The set.
        set: Arc<ProcedureSet>,
    },
}

impl Entry {
    /// The part that the entry prepares, if it is such an entry.
    pub(super) fn part(&self) -> Option<&Arc<Part>> {
        match self {
            Entry::Prepare(part) | Entry::PrepareCall(part, _) => Some(part),
            Entry::Decide { .. } | Entry::Window(_) | Entry::Lead | Entry::Set { .. } => None,
        }
    }
}

/// Which unknown transactions a shard admits, by the times at which they began, in microseconds
/// since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionWindow {
    /// Transactions that began before this time are not admitted.
    pub from_us: u64,
    /// Transactions that began at this time or later are not admitted.
    pub to_us: u64,
    /// The outcomes of transactions that began before this time may be forgotten.
    pub forget_us: u64,
}

impl AdmissionWindow {
    /// The window that admits what both windows admit: the latest of each time.
    #[must_use]
    pub fn and(self, other: AdmissionWindow) -> AdmissionWindow {
        AdmissionWindow {
            from_us: self.from_us.max(other.from_us),
            to_us: self.to_us.max(other.to_us),
            forget_us: self.forget_us.max(other.forget_us),
        }
    }
}

/// An entry of a leader.
///
/// A transaction was refused if it has no part when a leader begins. An entry with its part has no effect if it follows
/// [`Entry::Lead`] of a later leader, or if an earlier entry of its own leader is lost.
pub type Led = replicated_log::Led<Entry>;

impl replicated_log::Entry for Entry {
    fn size(&self) -> usize {
        match self {
            Entry::Prepare(part) | Entry::PrepareCall(part, _) => {
                let kept = match self {
                    Entry::PrepareCall(_, kept) => kept.size(),
                    _ => 0,
                };
                part.bytes() + kept
            }
            Entry::Decide { keys, .. } => keys.iter().map(|key| key.len() + size_of::<Key>()).sum(),
            Entry::Window(_) | Entry::Lead => 0,
            // At most what a file of procedures has.
            Entry::Set { .. } => 1 << 18,
        }
    }
}

impl Kept {
    /// About how large it is, in bytes.
    fn size(&self) -> usize {
        let returned = self.ran.pieces.iter().flat_map(|piece| &piece.outputs);
        returned.map(Datum::bytes).sum::<usize>() + self.call.inputs_size() + size_of::<Kept>()
    }
}

/// A record that a replica makes durable.
pub type Record = replicated_log::Record<Led>;
