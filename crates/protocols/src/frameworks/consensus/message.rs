//! What participants exchange and what replicas keep.

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
    /// A client requests an operation.
    Request {
        /// Names the operation at the client.
        request: u64,
        /// The key.
        key: Key,
        /// The operation.
        command: Command,
    },
    /// The answer: it is done, or will not be.
    Reply {
        /// The operation.
        request: u64,
        /// Its outcome.
        answer: Answer,
    },
    /// What does the receiver hold for a key? Before it answers, it holds what the sender holds and what the read's client
    /// brings.
    Read1 {
        /// The read.
        operation: OperationId,
        /// The key.
        key: Key,
        /// What the sender holds.
        held: Stamped,
        /// What the client brings.
        brings: Vec<(Key, Stamped)>,
    },
    /// The answer to [`Message::Read1`].
    Read1Reply {
        /// The read.
        operation: OperationId,
        /// What it holds.
        held: Stamped,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// What carstamp does the receiver hold for a key? The first phase of a write.
    Write1 {
        /// Names the operation at its client.
        request: u64,
        /// The key.
        key: Key,
        /// What the client brings.
        brings: Vec<(Key, Stamped)>,
    },
    /// The answer to [`Message::Write1`].
    Write1Reply {
        /// The operation.
        request: u64,
        /// The carstamp of what it holds.
        carstamp: Carstamp,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// Hold this, unless you hold something later: the second phase of both, Read2 and Write2.
    Apply {
        /// What for.
        operation: OperationId,
        /// The key.
        key: Key,
        /// What it is to hold.
        stamped: Stamped,
    },
    /// The sender holds it, durably, or something later.
    Applied {
        /// What for.
        operation: OperationId,
        /// The carstamp of the value. An operation that is begun again may have another value held than before.
        carstamp: Carstamp,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// About an instance of a key.
    Instance {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// The sender's incarnation.
        incarnation: u64,
        /// What the message says.
        body: Box<Body>,
    },
    /// The receiver has asked about an instance that the sender has executed and forgotten. This is the key's state.
    TakeOver {
        /// The key.
        key: Key,
        /// Its state.
        state: Box<State>,
    },
    /// The sender has lost its disk: show what you have after a key.
    Scan {
        /// After this, or from the beginning.
        after: Option<Key>,
        /// The sender's incarnation.
        incarnation: u64,
    },
    /// The answer to [`Message::Scan`].
    Scanned {
        /// What was asked for.
        after: Option<Key>,
        /// The next keys, in their order.
        entries: Vec<Shown>,
        /// Whether there are more.
        more: bool,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// The sender has lost its disk itself, so it can show nothing.
    AlsoLost {
        /// The latest incarnation of the receiver that the sender knows.
        incarnation: u64,
    },
    /// A question about the receiver's clock, or the answer.
    Time(Time),
}

/// What a replica answers a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// It has taken effect.
    Done(Found),
    /// It has read this value, which few replicas may hold (001 §4.6.2).
    Unsettled(Found),
    /// Whether it has taken effect is not known any more.
    Forgotten,
    /// The client's clock is off.
    ClockSkew {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
}

/// What a command has found, and the place of the update that it found or made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Found(pub Stamped);

impl From<Found> for Accessed {
    fn from(Found(stamped): Found) -> Accessed {
        Accessed { found: stamped.value, carstamp: stamped.carstamp }
    }
}

/// Names a client's operation at its coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct OperationId {
    /// The client.
    pub client: NodeId,
    /// Its request.
    pub request: u64,
}

/// About an instance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// Its coordinator begins it.
    PreAccept {
        /// Its command.
        command: Command,
        /// The attributes that its coordinator gives it.
        attributes: Attributes,
        /// The fast quorum.
        quorum: NodeSet,
    },
    /// The answer to [`Body::PreAccept`].
    PreAccepted {
        /// The attributes that the sender gives it.
        attributes: Attributes,
    },
    /// Agree on this.
    Accept {
        /// The ballot.
        ballot: Ballot,
        /// Its command, or none if nothing is to be done.
        command: Option<Command>,
        /// Its attributes.
        attributes: Attributes,
    },
    /// Agreed.
    Accepted {
        /// The ballot.
        ballot: Ballot,
    },
    /// This was agreed on.
    Commit {
        /// Its command, or none if nothing is done.
        command: Option<Command>,
        /// Its attributes.
        attributes: Attributes,
    },
    /// The sender has executed it.
    Executed,
    /// What others depend on has not reached the sender: has it been agreed on?
    Inquire,
    /// Take part in nothing below a ballot, and say what you know.
    Prepare {
        /// The ballot.
        ballot: Ballot,
    },
    /// The answer to [`Body::Prepare`].
    Prepared {
        /// The ballot.
        ballot: Ballot,
        /// What was known.
        instance: Instance,
    },
    /// The receiver's ballot is too low.
    Refused {
        /// What was promised.
        promised: Ballot,
    },
    /// Could these be its attributes, or does an instance contradict that?
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
        /// The instances that would come neither before nor after it.
        conflicts: Vec<Conflict>,
    },
}

/// An instance that comes neither before another, nor after it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Conflict {
    /// The instance that contradicts the other.
    pub id: InstanceId,
    /// It is committed, so this will not change.
    pub committed: bool,
    /// Its coordinator did not know of the other instance when it began.
    pub began_without: bool,
}

/// All that a replica knows of a key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The key.
    pub key: Key,
    /// Its state.
    pub state: State,
    /// Its instances that are not forgotten.
    pub instances: Vec<(InstanceId, Instance)>,
}

/// What a replica makes durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// The replica holds a value.
    Applied {
        /// The key.
        key: Key,
        /// What it holds.
        stamped: Stamped,
    },
    /// What is known of an instance from here on, as earlier releases wrote it.
    InstanceBefore {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// What is known of it.
        instance: Box<InstanceBefore>,
    },
    /// The latest incarnation of each member that it has heard of.
    Incarnations(Vec<u64>),
    /// The replica takes the place of one that was lost, and does not know what that one had promised.
    Lost,
    /// The replica takes part again.
    Whole,
    /// The replica has refused requests because of their clients' clocks, and goes on refusing them: for each client, all
    /// requests up to a number.
    Refused(Vec<(NodeId, u64)>),
    /// What is known of an instance from here on.
    Instance {
        /// The key.
        key: Key,
        /// The instance.
        id: InstanceId,
        /// What is known of it.
        instance: Box<Instance>,
    },
}
