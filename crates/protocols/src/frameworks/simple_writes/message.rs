//! What participants exchange and what replicas keep.

use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value};

use super::stamp::Stamp;
use crate::frameworks::replicated_log::{self, Led};

/// A message of a protocol with stamps `S`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Message<S: Stamp> {
    /// A client requests an operation.
    Request {
        /// Names the request at the client.
        number: u64,
        /// The operation.
        request: Request<S>,
    },
    /// A request that another replica passes on, because it does not lead.
    Forward {
        /// The client.
        client: NodeId,
        /// Names the request at the client.
        number: u64,
        /// The operation.
        request: Request<S>,
    },
    /// The answer to a request. The sender leads.
    Reply {
        /// The request.
        number: u64,
        /// The answer.
        answer: Answer<S>,
    },
    /// About the log.
    Log(replicated_log::Message<Led<Entry<S>>>),
}

/// An operation on one partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Request<S: Stamp> {
    /// Read keys.
    Read {
        /// As of when.
        at: S,
        /// The keys.
        keys: Vec<Key>,
    },
    /// Write or delete a key.
    Write {
        /// The write's place must not be before this. It also identifies the write when it is sent again.
        requested: S,
        /// The key.
        key: Key,
        /// The value; `None` to delete the key.
        value: Option<Value>,
    },
    /// Show the version clock.
    ReadClock,
}

/// What a key had.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Found<S: Stamp> {
    /// The value, if there was one.
    pub value: Option<Value>,
    /// The place of the write that it is from.
    pub stamp: S,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Answer<S: Stamp> {
    /// What the keys had, in their order.
    Values {
        /// By key.
        found: Vec<Found<S>>,
        /// What the version clock shows.
        shown: S,
    },
    /// What a key had then is not kept any more. It can be read as of what the version clock shows.
    TooOld {
        /// What it shows.
        shown: S,
    },
    /// The write has taken effect, now or when it was sent before.
    Written {
        /// Its versionstamp, or that of the write which it was omitted for.
        stamp: S,
        /// Whether it was omitted.
        omitted: bool,
        /// What the version clock shows: the place of the write, or a later one.
        shown: S,
    },
    /// The write has not taken effect, unless it did when it was sent before, and never will with this request. It
    /// can be requested as of what the version clock shows.
    Outdated {
        /// What it shows.
        shown: S,
    },
    /// What the version clock shows.
    Clock(S),
}

impl<S: Stamp> Request<S> {
    /// How many bytes of it are versionstamps.
    pub(super) fn metadata_bytes(&self) -> u32 {
        match self {
            Request::Read { at, .. } => at.bytes(),
            Request::Write { requested, .. } => requested.bytes(),
            Request::ReadClock => 0,
        }
    }
}

impl<S: Stamp> Answer<S> {
    /// How many bytes of it are versionstamps.
    pub(super) fn metadata_bytes(&self) -> u32 {
        match self {
            Answer::Values { found, shown } => {
                shown.bytes() + found.iter().map(|found| found.stamp.bytes()).sum::<u32>()
            }
            Answer::TooOld { shown } | Answer::Outdated { shown } => shown.bytes(),
            Answer::Written { stamp, shown, .. } => stamp.bytes() + shown.bytes(),
            Answer::Clock(shown) => shown.bytes(),
        }
    }
}

/// An entry of the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub enum Entry<S: Stamp> {
    /// A leader begins. Its version clock begins at the bound, and the bound is raised.
    Lead,
    /// The version clock of the leader may go up to this.
    Bound(S),
    /// A write. It is omitted if the key has a version that is not before what was requested. The bound is raised to
    /// what it would be if the version clock showed its versionstamp.
    Write {
        /// The key.
        key: Key,
        /// The value; `None` to delete the key.
        value: Option<Value>,
        /// What the client has requested.
        requested: S,
        /// Its versionstamp.
        stamp: S,
    },
}

impl<S: Stamp> replicated_log::Entry for Entry<S> {
    fn size(&self) -> usize {
        match self {
            Entry::Lead | Entry::Bound(_) => 0,
            Entry::Write { key, value, .. } => key.len() + value.as_ref().map_or(0, Value::len),
        }
    }
}

/// What a replica makes durable.
pub type Record<S> = replicated_log::Record<Led<Entry<S>>>;
