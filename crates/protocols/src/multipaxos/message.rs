//! What participants exchange and what replicas keep.

use serde::{Deserialize, Serialize};
use serried_model::{Access, Key, Version};
use serried_parts::Stamped;

use crate::frameworks::replicated_log::{self, Time};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A client requests an operation.
    Request(Request),
    /// A request that another replica passes on, because it does not lead.
    Forward {
        /// The client.
        client: serried_model::NodeId,
        /// Its request.
        request: Request,
    },
    /// The answer to a request. The sender leads.
    Reply {
        /// The operation.
        request: u64,
        /// The answer.
        answer: Answer,
    },
    /// About the log.
    Log(replicated_log::Message<Update>),
    /// Between the replicas of a partition: what their clocks say.
    Time(Time),
}

/// A client's request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Names the operation at the client.
    pub number: u64,
    /// The key.
    pub key: Key,
    /// Identifies the operation when it is tried again.
    pub token: Version,
    /// The client does not try operations with tokens below this one again.
    pub settled: Version,
    /// The operation.
    pub access: Access,
}

/// A write or a read-modify-write, as an entry of the log, or the refusal of one. A read is an empty entry: only its leader
/// needs to know what is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Update {
    /// The key.
    pub key: Key,
    /// Identifies the operation when it is tried again.
    pub token: Version,
    /// The client does not try operations with tokens below this one again.
    pub settled: Version,
    /// The update. [`Access::Read`] stands for a refusal of the update with this token.
    pub access: Access,
}

impl replicated_log::Entry for Update {
    fn size(&self) -> usize {
        let bytes = match &self.access {
            Access::Read => 0,
            Access::Write(value) => value.as_ref().map_or(0, |value| value.len()),
            Access::Modify(modification) => modification.value_bytes(),
        };
        self.key.len() + bytes
    }
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has taken effect, and this is what it found.
    Done(Stamped),
    /// It is not known any more whether it has taken effect.
    Forgotten,
    /// The client's clock is off. The update has not taken effect and never will.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
}

/// What a replica makes durable.
pub type Record = replicated_log::Record<Update>;
