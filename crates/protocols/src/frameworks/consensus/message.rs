//! The messages between participants, and the records that replicas keep.

use serde::{Deserialize, Serialize};
use serried_actor::NodeSet;
use serried_model::{Accessed, Carstamp, Key, NodeId};
use serried_parts::Stamped;

use crate::frameworks::replicated_log::Time;

use super::State;
use super::instance::{Attributes, Ballot, Command, Instance, InstanceBefore, InstanceId};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A client's request for an operation.
    Request {
        /// Identifies the operation at the client.
        request: u64,
        /// The key.
        key: Key,
        /// The operation.
        command: Command,
    },
    /// The answer: the operation was executed, or will not be.
    Reply {
        /// The operation.
        request: u64,
        /// Its outcome.
        answer: Answer,
    },
    /// A question for the value that the receiver holds. Before it answers, it stores the sender's
    /// value and the values that the read's client brings.
    Read1 {
        /// The read.
        operation: OperationId,
        /// The key.
        key: Key,
        /// The sender's value.
        held: Stamped,
        /// The values that the client brings.
        brings: Vec<(Key, Stamped)>,
    },
    /// The answer to [`Message::Read1`].
    Read1Reply {
        /// The read.
        operation: OperationId,
        /// The sender's value.
        held: Stamped,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// A question for the carstamp of the value that the receiver holds: the first phase of a
    /// write.
    Write1 {
        /// Identifies the operation at its client.
        request: u64,
        /// The key.
        key: Key,
        /// The values that the client brings.
        brings: Vec<(Key, Stamped)>,
    },
    /// The answer to [`Message::Write1`].
    Write1Reply {
        /// The operation.
        request: u64,
        /// The carstamp of the sender's value.
        carstamp: Carstamp,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// A request to hold this value, unless the receiver holds a later one: the second phase of a
    /// read (Read2) and of a write (Write2).
    Apply {
        /// The operation.
        operation: OperationId,
        /// The key.
        key: Key,
        /// The value.
        stamped: Stamped,
    },
    /// The sender durably holds this value or a later one.
    Applied {
        /// The operation.
        operation: OperationId,
        /// The carstamp of the value. A restarted operation may store another value than before.
        carstamp: Carstamp,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// A message about an instance of a key.
    Instance {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// The sender's incarnation.
        incarnation: u64,
        /// The content.
        body: Box<Body>,
    },
    /// The key's state, because the receiver has asked about an instance that the sender has
    /// executed and forgotten.
    TakeOver {
        /// The key.
        key: Key,
        /// Its state.
        state: Box<State>,
    },
    /// A request for the next keys. The sender has lost its disk.
    Scan {
        /// The key after which they begin, or `None` for the beginning.
        after: Option<Key>,
        /// The sender's incarnation.
        incarnation: u64,
    },
    /// The answer to [`Message::Scan`].
    Scanned {
        /// The key of the request.
        after: Option<Key>,
        /// The next keys, in their order.
        entries: Vec<Shown>,
        /// Whether more keys follow.
        more: bool,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// The answer of a sender that has lost its own disk, so it can report nothing.
    AlsoLost {
        /// The latest incarnation of the receiver that the sender knows.
        incarnation: u64,
    },
    /// A question about the receiver's clock, or the answer.
    Time(Time),
}

/// A replica's answer to a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has taken effect.
    Done(Found),
    /// It has read this value, which less than a majority may hold (001 §4.6.2).
    Unsettled(Found),
    /// It is no longer known whether it has taken effect.
    Forgotten,
    /// The client's clock is off.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
}

/// The result of a command: a value, with the carstamp of the update that it found or made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Found(pub Stamped);

impl From<Found> for Accessed {
    fn from(Found(stamped): Found) -> Accessed {
        Accessed { found: stamped.value, carstamp: stamped.carstamp }
    }
}

/// Identifies a client's operation at its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct OperationId {
    /// The client.
    pub client: NodeId,
    /// Its request.
    pub request: u64,
}

/// The content of a message about an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// A request of its coordinator to assign attributes to it.
    PreAccept {
        /// Its command.
        command: Command,
        /// The attributes that its coordinator assigns.
        attributes: Attributes,
        /// The fast quorum.
        quorum: NodeSet,
    },
    /// The answer to [`Body::PreAccept`].
    PreAccepted {
        /// The attributes that the sender assigns.
        attributes: Attributes,
    },
    /// A request to agree on a command and its attributes.
    Accept {
        /// The ballot.
        ballot: Ballot,
        /// Its command, or `None` for a no-op.
        command: Option<Command>,
        /// Its attributes.
        attributes: Attributes,
    },
    /// The answer to [`Body::Accept`].
    Accepted {
        /// The ballot.
        ballot: Ballot,
    },
    /// This command was agreed on, with these attributes.
    Commit {
        /// Its command, or `None` for a no-op.
        command: Option<Command>,
        /// Its attributes.
        attributes: Attributes,
    },
    /// The sender has executed it.
    Executed,
    /// A question whether it has been agreed on. Others depend on it, and it has not reached the
    /// sender.
    Inquire,
    /// A request to take part in no lower ballot, and to report what is known of it.
    Prepare {
        /// The ballot.
        ballot: Ballot,
    },
    /// The answer to [`Body::Prepare`].
    Prepared {
        /// The ballot.
        ballot: Ballot,
        /// The sender's knowledge of it.
        instance: Instance,
    },
    /// The receiver's ballot is too low.
    Refused {
        /// The promised ballot.
        promised: Ballot,
    },
    /// A question whether an instance contradicts these attributes.
    Validate {
        /// The ballot.
        ballot: Ballot,
        /// Its command.
        command: Command,
        /// The attributes.
        attributes: Attributes,
    },
    /// The answer to [`Body::Validate`].
    Validated {
        /// The ballot.
        ballot: Ballot,
        /// The instances that would neither precede nor follow it.
        conflicts: Vec<Conflict>,
    },
}

/// An instance that neither precedes nor follows another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// The instance that contradicts the other.
    pub id: InstanceId,
    /// Whether it is committed, so that this is final.
    pub committed: bool,
    /// Whether its coordinator did not know the other instance when it began.
    pub began_without: bool,
}

/// A replica's state of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The key.
    pub key: Key,
    /// Its state.
    pub state: State,
    /// Its instances that are not forgotten.
    pub instances: Vec<(InstanceId, Instance)>,
}

/// A durable record of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// The replica holds a value.
    Applied {
        /// The key.
        key: Key,
        /// The value.
        stamped: Stamped,
    },
    /// The knowledge of an instance from here on, in the format of earlier releases.
    InstanceBefore {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// The instance's data.
        instance: Box<InstanceBefore>,
    },
    /// The latest known incarnation of each member.
    Incarnations(Vec<u64>),
    /// The replica replaces one that was lost, and does not know its predecessor's promises.
    Lost,
    /// The replica takes part again.
    Whole,
    /// The replica has refused requests because of their clients' clocks, and refuses them
    /// permanently: for each client, all requests up to a number.
    Refused(Vec<(NodeId, u64)>),
    /// The knowledge of an instance from here on.
    Instance {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// The instance's data.
        instance: Box<Instance>,
    },
}
