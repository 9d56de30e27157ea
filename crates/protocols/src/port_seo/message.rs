//! What participants exchange and what replicas keep.

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value};

use crate::frameworks::replicated_log::{self, Led, Time};

/// The partition whose leader is the sequencer.
pub const SEQUENCER: u16 = 0;

/// No keyspace has as many writes.
pub(super) const NUMBERS: u64 = 1 << 62;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A client requests an operation.
    Request {
        /// Names the request at the client.
        number: u64,
        /// The operation.
        request: Request,
    },
    /// A request that another replica passes on, because it does not lead.
    Forward {
        /// The client.
        client: NodeId,
        /// Names the request at the client.
        number: u64,
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
    /// The sequencer hands a batch to its partition. It is in the sequencer's log.
    Batch(Batch),
    /// A batch that another replica passes on, because it does not lead.
    ForwardBatch {
        /// The sequencer.
        sequencer: NodeId,
        /// The batch.
        batch: Batch,
    },
    /// A batch is applied: it is in the log of its partition.
    Applied {
        /// The number of its last write.
        last: u64,
        /// What became of its writes.
        fates: Vec<Fate>,
    },
    /// Between the replicas of the sequencer's partition: what their clocks say.
    Time(Time),
    /// About the log.
    Log(replicated_log::Message<Led<Entry>>),
}

/// An operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Read keys of a partition.
    Read {
        /// The client knows that the write with this number is applied.
        since: u64,
        /// Whether the client wants the state at `since`, and none that is later. An earlier round has found partitions
        /// that did not return enough for a common one.
        exact: bool,
        /// The keys.
        keys: Vec<Key>,
        /// The partitions of all keys of the transaction, in their order.
        partitions: Vec<u16>,
    },
    /// Write or delete a key. It goes to the sequencer.
    Write(Write),
}

/// A write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The value; `None` to delete the key.
    pub value: Option<Value>,
    /// Identifies the write when it is tried again.
    pub token: serried_model::Version,
    /// The client does not try writes with tokens below this one again.
    pub settled: serried_model::Version,
}

/// A write, in a batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sequenced {
    /// The write.
    pub write: Write,
    /// Whether it is refused instead, since the clock of its client is off.
    pub is_refused: bool,
}

/// Writes of one partition with consecutive numbers. All of them are applied at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// The partition.
    pub partition: u16,
    /// The number of the first write.
    pub first: u64,
    /// By partition, the highest number of its writes, up to the end of this batch.
    pub highest: Vec<u64>,
    /// The writes, at least one.
    pub writes: Vec<Sequenced>,
}

impl Batch {
    /// The number of the last write.
    pub fn last(&self) -> u64 {
        self.first.saturating_add(self.writes.len() as u64).saturating_sub(1)
    }

    /// Whether a keyspace can have such numbers.
    pub(super) fn has_numbers(&self) -> bool {
        !self.writes.is_empty() && (1..NUMBERS).contains(&self.first)
    }
}

/// A batch, as far as it matters to readers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    /// The number of its last write.
    pub last: u64,
    /// By partition, the highest number of its writes, up to the end of this batch. For a reader, only the partitions
    /// of its keys are there.
    pub highest: Vec<u64>,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fate {
    /// It has taken effect, now or when it was tried before, with this number.
    Done(u64),
    /// It has not taken effect and never will: the clock of its client is off.
    Refused,
    /// It is not known any more whether it has taken effect.
    Forgotten,
}

/// A version of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Version {
    /// The number of the write; 0 if there was none.
    pub number: u64,
    /// The value; `None` if the key was deleted or never written.
    pub value: Option<Value>,
}

/// What a partition knows of its keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The number of the last write that is applied here. If exactly the state at a number was wanted and is there,
    /// not more than that number.
    pub last: u64,
    /// What is said here is complete for all numbers from this one on.
    pub complete_from: u64,
    /// By key, its versions in their order: the one that it had at `complete_from`, and all later ones. Of a batch
    /// that writes a key several times, only the last version is there.
    pub versions: Vec<Vec<Version>>,
    /// The batches that were applied here after `complete_from`. If `complete_from` is the end of a batch and not what
    /// the client has asked for, that batch comes first.
    pub marks: Vec<Mark>,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// What the keys have.
    Found(Found),
    /// The write has taken effect, now or when it was tried before.
    Written {
        /// Its number.
        number: u64,
    },
    /// It is not known any more whether the write has taken effect.
    Forgotten,
    /// The write has not taken effect and never will: the client's clock is off.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Entry {
    /// A leader begins.
    Lead,
    /// In the log of the sequencer: a batch gets its numbers. In the log of the batch's partition: it is applied. If
    /// the sequencer leads that partition, too, the same entry does both.
    Batch(Batch),
}

/// What a write takes up beside its key and its value.
const OVERHEAD: usize = 32;

impl Write {
    /// About how many bytes it takes up.
    pub(super) fn size(&self) -> usize {
        OVERHEAD + self.key.len() + self.value.as_ref().map_or(0, Value::len)
    }
}

impl replicated_log::Entry for Entry {
    fn size(&self) -> usize {
        match self {
            Entry::Lead => 0,
            Entry::Batch(batch) => {
                let writes = batch.writes.iter().map(|sequenced| sequenced.write.size());
                8 * batch.highest.len() + writes.sum::<usize>()
            }
        }
    }
}

/// What a replica makes durable.
pub type Record = replicated_log::Record<Led<Entry>>;
