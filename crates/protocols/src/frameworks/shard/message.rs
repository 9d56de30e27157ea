//! What participants exchange and what replicas keep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value, Version, Write};

use super::stamp::{Stamp, Validity};
use crate::frameworks::replicated_log::{self, Ballot, Time};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A request of a client or of another shard to this shard's leader.
    Request(Request),
    /// A request that another replica of the shard passes on, because it does not lead.
    Forward {
        /// The sender of the request.
        from: NodeId,
        /// The request.
        request: Request,
    },
    /// An answer. The sender leads.
    Reply(Reply),
    /// About the log.
    Log(replicated_log::Message<Led>),
    /// Between the replicas of a shard, about their clocks.
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
    /// The transaction is over.
    End {
        /// The transaction.
        txn: Version,
        /// How it ended.
        decision: Decision,
    },
    /// Read for a read-only transaction that has no parts.
    Snapshot {
        /// Names the request at the client.
        number: u64,
        /// Which versions it may have.
        as_of: AsOf,
        /// The keys.
        keys: Vec<Key>,
    },
    /// These transactions are not over.
    Alive(Vec<Version>),
    /// Report how the transaction stands with this shard. If it is not prepared there it is refused from now on.
    Inspect {
        /// The transaction.
        txn: Version,
    },
    /// Find out how the transaction ends, and end it: the receiver's shard is its backup coordinator.
    Resolve {
        /// The transaction.
        txn: Version,
    },
    /// Below this time, every transaction is over as far as the sender's shard is concerned.
    Over {
        /// In microseconds since the Unix epoch.
        below_us: u64,
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
    /// Tells the shot from others of the transaction at this shard.
    pub number: u16,
    /// The keys to be read, as they were before the shot's writes.
    pub reads: Vec<Key>,
    /// The writes.
    pub writes: Vec<Write>,
    /// Set with the transaction's last shot at this shard: all shards that have a part in it, the backup
    /// coordinator first.
    pub participants: Option<Arc<[u16]>>,
}

impl Shot {
    /// How many keys it is about.
    pub fn keys(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
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
    /// The transaction's part holds at the moment that was asked for.
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
    /// It is known here how these transactions ended.
    Ended(Vec<Version>),
    /// A shard's part in a transaction is durable, and holds then.
    Prepared {
        /// The transaction.
        txn: Version,
        /// When it holds.
        validity: Validity,
    },
    /// The answer to a read-only transaction without parts.
    Snapshot {
        /// Names the request.
        number: u64,
        /// The slot below which the client now knows what was committed.
        known: u64,
        /// What was found, in the order of the keys.
        found: Result<Vec<Found>, Unseen>,
    },
    /// The sender does not lead any more. Another replica of its shard does, or will.
    Follow {
        /// The other replica.
        leader: NodeId,
    },
}

/// A shot was executed, and nothing that it rests on can change any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Executed {
    /// The transaction.
    pub txn: Version,
    /// The shot.
    pub number: u16,
    /// What its reads have found, in their order.
    pub found: Vec<Found>,
    /// With the last shot: when the shard's part in the transaction holds. It is durable.
    pub validity: Option<Validity>,
    /// With the last shot, the slot below which the client now knows what was committed. Zero with others.
    pub known: u64,
    /// The leader's clock when the shot came, in microseconds since the Unix epoch (003 §5.3).
    pub clock_us: u64,
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The version of the write.
    pub version: Version,
    /// Its value, or none where the key is absent.
    pub value: Option<Value>,
}

/// Why a read-only transaction that has neither parts nor a timestamp is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unseen {
    /// A key of which it can't have anything.
    pub key: Key,
    /// Whether that may be another matter if it begins anew.
    pub anew: bool,
}

/// Why a transaction is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// It conflicts with others over these keys.
    Conflict {
        /// The keys, as far as they are known.
        keys: Vec<Key>,
        /// A transaction that begins later than this, in microseconds, does not meet these conflicts. Zero if its time does
        /// not matter.
        after_us: u64,
    },
    /// It began before the shard's leader led, or too long ago.
    Late {
        /// Transactions that begin from then on are taken, in microseconds.
        from_us: u64,
    },
    /// It is so old that the shard may have forgotten how it ended.
    Forgotten {
        /// Transactions that begin from then on are taken, in microseconds.
        from_us: u64,
    },
    /// Its client's clock is off.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
    /// It has run for longer than a transaction may, and was not ready to commit.
    TooLong {
        /// How long one may run, in milliseconds.
        limit_ms: u64,
    },
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

/// A shard's part in a transaction that is ready to commit, as its log holds it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The transaction.
    pub txn: Version,
    /// All shards that have a part in it, the backup coordinator first.
    pub participants: Arc<[u16]>,
    /// When it holds.
    pub validity: Validity,
    /// What it did to each key.
    pub items: Vec<Item>,
}

/// What a transaction did to a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The key.
    pub key: Key,
    /// The stamp of the version that it read, if it read one.
    pub read: Option<Stamp>,
    /// What it wrote, if it did.
    pub write: Option<Written>,
}

/// What a transaction wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Written {
    /// The value, or none if it deleted the key.
    pub value: Option<Value>,
    /// When it takes effect, unless the decision says otherwise.
    pub at: Stamp,
}

/// An entry of a shard's log. What it does to a key is in the entry, or lies with that key. So a state that was taken over
/// key by key can be continued with any entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// The shard is ready to commit a transaction, or its part is another now.
    Prepare(Arc<Part>),
    /// A transaction is over.
    Decide {
        /// The transaction.
        txn: Version,
        /// How it ended.
        decision: Decision,
        /// The keys of its part.
        keys: Arc<[Key]>,
    },
    /// Which transactions are taken.
    Window(AdmissionWindow),
    /// Another replica leads. It refuses what former leaders have taken and have not put into the log.
    Lead,
}

/// Which transactions a shard takes that it does not know, by the times at which they began, in microseconds
/// since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdmissionWindow {
    /// Transactions that began before this are not taken.
    pub from_us: u64,
    /// Transactions that began then or later are not taken.
    pub to_us: u64,
    /// The outcomes of transactions that began before this may be forgotten.
    pub forget_us: u64,
}

impl AdmissionWindow {
    /// The window that takes only what both take: the latest of each time.
    #[must_use]
    pub fn and(self, other: AdmissionWindow) -> AdmissionWindow {
        AdmissionWindow {
            from_us: self.from_us.max(other.from_us),
            to_us: self.to_us.max(other.to_us),
            forget_us: self.forget_us.max(other.forget_us),
        }
    }
}

/// An entry, and in which ballot it was proposed for the first time.
///
/// What was accepted by few before another leader began can come into the log after that leader's [`Entry::Lead`]: a
/// third leader may be the first to find it. By then it was refused, so it counts no more (see
/// [`replicated_log::StateMachine::revise`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Led {
    /// The leader's ballot.
    pub by: Ballot,
    /// The entry.
    pub entry: Entry,
}

impl replicated_log::Entry for Led {
    fn size(&self) -> usize {
        match &self.entry {
            Entry::Prepare(part) => {
                let length = |item: &Item| {
                    let value = item.write.as_ref().and_then(|write| write.value.as_ref());
                    item.key.len() + value.map_or(0, Value::len) + size_of::<Item>()
                };
                part.items.iter().map(length).sum::<usize>() + size_of::<Part>()
            }
            Entry::Decide { keys, .. } => keys.iter().map(|key| key.len() + size_of::<Key>()).sum(),
            Entry::Window(_) | Entry::Lead => 0,
        }
    }
}

/// What a replica makes durable.
pub type Record = replicated_log::Record<Led>;
