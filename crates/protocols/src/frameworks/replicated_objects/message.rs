//! What participants exchange and what replicas keep.

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Version};

use super::object::Operation;
use crate::frameworks::replicated_log::{self, Time};

/// A message about operations `P` with results `F`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: Serialize, F: Serialize",
    deserialize = "P: serde::de::DeserializeOwned, F: serde::de::DeserializeOwned"
))]
pub enum Message<P, F> {
    /// A client requests an operation.
    Request(Request<P>),
    /// A request that another replica passes on, because it does not lead.
    Forward {
        /// The client.
        client: NodeId,
        /// Its request.
        request: Request<P>,
    },
    /// The answer to a request. The sender leads.
    Reply {
        /// The operation.
        request: u64,
        /// The answer.
        answer: Answer<F>,
    },
    /// About the log.
    Log(replicated_log::Message<Update<P>>),
    /// Between the replicas of a partition: what their clocks say.
    Time(Time),
    /// A client reads several keys.
    Read(Read),
    /// The same, if another replica passes it on, because it does not lead.
    ForwardRead {
        /// The client.
        client: NodeId,
        /// Its request.
        read: Read,
    },
    /// What several keys had at one moment. The sender leads.
    Found {
        /// The request.
        number: u64,
        /// By key, in the order of the request.
        found: Vec<F>,
    },
}

/// A request to read several keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Read {
    /// Names the request at the client.
    pub number: u64,
    /// The keys.
    pub keys: Vec<Key>,
}

/// A client's request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request<P> {
    /// Names the operation at the client.
    pub number: u64,
    /// The key.
    pub key: Key,
    /// Identifies the operation when it is tried again.
    pub token: Version,
    /// The client does not try operations with tokens below this one again.
    pub settled: Version,
    /// The operation.
    pub operation: P,
}

/// An update, as an entry of the log, or the refusal of one. An operation that is no update is an empty entry: only its leader
/// needs to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Update<P> {
    /// The key.
    pub key: Key,
    /// Identifies the operation when it is tried again.
    pub token: Version,
    /// The client does not try operations with tokens below this one again.
    pub settled: Version,
    /// The update. [`Operation::REFUSAL`] stands for a refusal of the update with this token.
    pub operation: P,
}

impl<P: Operation> replicated_log::Entry for Update<P> {
    fn size(&self) -> usize {
        self.key.len() + self.operation.value_bytes()
    }
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer<F> {
    /// It has taken effect, and this is what it found.
    Done(F),
    /// It is not known any more whether it has taken effect.
    Forgotten,
    /// The client's clock is off. The update has not taken effect and never will.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
}

/// What a replica makes durable.
pub type Record<P> = replicated_log::Record<Update<P>>;
