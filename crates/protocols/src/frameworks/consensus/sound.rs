//! Validation of messages on arrival. A message that no correct sender can have sent is damaged or
//! forged, and is dropped. No message stops a node.
//!
//! The checks are those on which the handlers rely: members exist, rows have one number for each
//! member, sums do not overflow, and the variant has such commands. Every correct message passes.
//! There is no limit to how far a number may be ahead of the known ones. A replica that was away
//! for long receives such numbers, and an instance takes the same memory whatever its number is.

use serried_actor::{Group, NodeSet};
use serried_model::{Access, Key, NodeId};
use serried_parts::{Stamped, carstamps};

use super::instance::{
    Attributes, Ballot, Command, Dependencies, Instance, InstanceId, Numbers, Status,
};
use super::message::{Answer, Body, Found, Message, Shown};
use super::state::State;

/// A bound above any time in microseconds since the Unix epoch, and above any count. Sums of
/// smaller numbers do not overflow.
const NEVER: u64 = 1 << 62;

const _: () = assert!(NEVER <= u64::MAX / 4 + 1, "sums of three smaller numbers do not overflow");

/// Checks messages in one partition.
#[derive(Debug)]
pub(super) struct Sound<'a> {
    pub(super) group: &'a Group,
    pub(super) partition: u16,
    /// Whether reads and writes go to registers, so that only read-modify-writes are agreed on.
    pub(super) registers: bool,
}

impl Sound<'_> {
    /// Whether `from` can have sent this to a replica of the partition.
    pub(super) fn to_replica(&self, from: NodeId, message: &Message) -> bool {
        let is_member = self.is_member(from);
        match message {
            Message::Request { key, command, .. } => {
                from.is_coordinator() && is_key(key) && self.request(command)
            }
            Message::Write1 { key, brings, .. } => {
                from.is_coordinator() && is_key(key) && are_brought(brings)
            }
            Message::Apply { key, stamped: held, .. } => {
                (is_member || from.is_coordinator()) && is_key(key) && stamped(held)
            }
            Message::Read1 { key, held, brings, .. } => {
                is_member && is_key(key) && stamped(held) && are_brought(brings)
            }
            Message::Read1Reply { held, incarnations, .. } => {
                is_member && stamped(held) && self.incarnations(incarnations)
            }
            Message::Applied { carstamp: of, incarnations, .. } => {
                is_member && carstamps::is_sound(of) && self.incarnations(incarnations)
            }
            Message::Instance { key, id, incarnation, body } => {
                is_member
                    && is_key(key)
                    && self.id(id)
                    && *incarnation < NEVER
                    && self.body(from, id, body)
            }
            Message::TakeOver { key, state } => is_member && is_key(key) && self.state(state),
            // A reader of the state need not be a member. Its incarnation is not recorded.
            Message::Scan { incarnation, .. } => {
                (is_member || from.is_coordinator()) && *incarnation < NEVER
            }
            Message::AlsoLost { incarnation } => is_member && *incarnation < NEVER,
            Message::Scanned { entries, incarnations, .. } => {
                is_member
                    && self.incarnations(incarnations)
                    && entries.iter().all(|shown| self.shown(shown))
            }
            Message::Time(_) => is_member,
            // These are messages for clients.
            Message::Reply { .. } | Message::Write1Reply { .. } => false,
        }
    }

    fn is_member(&self, node: NodeId) -> bool {
        !node.is_coordinator()
            && node.partition() == self.partition
            && node.member() < self.group.size()
    }

    fn incarnations(&self, named: &[u64]) -> bool {
        let are_all = named.is_empty() || named.len() == self.group.size();
        are_all && named.iter().all(|incarnation| *incarnation < NEVER)
    }

    fn id(&self, id: &InstanceId) -> bool {
        usize::from(id.member) < self.group.size() && 0 < id.number && id.number < NEVER
    }

    fn ballot(&self, ballot: &Ballot) -> bool {
        usize::from(ballot.member) < self.group.size() && ballot.number < NEVER
    }

    fn quorum(&self, quorum: NodeSet) -> bool {
        quorum.without(self.group.all()).is_empty()
    }

    fn dependencies(&self, dependencies: &Dependencies) -> bool {
        let row = |numbers: &Numbers| {
            numbers.len() == self.group.size() && numbers.iter().all(|number| *number < NEVER)
        };
        row(&dependencies.updates) && row(&dependencies.reads)
    }

    fn attributes(&self, attributes: &Attributes) -> bool {
        attributes.sequence < NEVER
            && self.dependencies(&attributes.dependencies)
            && attributes.base.as_ref().is_none_or(stamped)
    }

    /// Whether a client can have requested a command.
    fn request(&self, command: &Command) -> bool {
        // If there are registers, writes go to them.
        let is_meant = !(self.registers && matches!(command.access, Access::Write(_)));
        is_meant && is_young(command)
    }

    /// Whether this can be a command of an instance.
    fn command(&self, id: &InstanceId, command: &Command) -> bool {
        let is_agreed_on = !self.registers || matches!(command.access, Access::Modify(_));
        is_agreed_on && command.kind() == id.kind && is_young(command)
    }

    /// Whether an agreement can be valid: if there are registers, a command has a base.
    fn agreed(&self, id: &InstanceId, command: Option<&Command>, attributes: &Attributes) -> bool {
        let is_command = command.is_none_or(|command| {
            self.command(id, command) && attributes.base.is_some() == self.registers
        });
        is_command && self.attributes(attributes)
    }

    fn body(&self, from: NodeId, id: &InstanceId, body: &Body) -> bool {
        match body {
            Body::PreAccept { command, attributes, quorum } => {
                from.member() == usize::from(id.member)
                    && self.agreed(id, Some(command), attributes)
                    && self.quorum(*quorum)
            }
            Body::PreAccepted { attributes } => {
                attributes.base.is_some() == self.registers && self.attributes(attributes)
            }
            Body::Accept { ballot, command, attributes } => {
                self.ballot(ballot) && self.agreed(id, command.as_ref(), attributes)
            }
            Body::Commit { command, attributes } => self.agreed(id, command.as_ref(), attributes),
            Body::Executed | Body::Inquire => true,
            Body::Accepted { ballot }
            | Body::Prepare { ballot }
            | Body::Refused { promised: ballot } => self.ballot(ballot),
            Body::Prepared { ballot, instance } => {
                self.ballot(ballot) && self.instance(id, instance)
            }
            Body::Validate { ballot, command, attributes } => {
                self.ballot(ballot) && self.agreed(id, Some(command), attributes)
            }
            Body::Validated { ballot, conflicts } => {
                self.ballot(ballot) && conflicts.iter().all(|conflict| self.id(&conflict.id))
            }
        }
    }

    fn instance(&self, id: &InstanceId, instance: &Instance) -> bool {
        let Instance { command, attributes, promised, accepted, quorum, initial, .. } = instance;
        let is_agreed = match instance.status {
            // Its attributes are unknown.
            Status::Known => {
                command.as_ref().is_none_or(|command| self.command(id, command))
                    && self.attributes(attributes)
            }
            Status::PreAccepted => {
                command.is_some() && self.agreed(id, command.as_ref(), attributes)
            }
            Status::Accepted | Status::Committed => self.agreed(id, command.as_ref(), attributes),
        };
        is_agreed
            && self.ballot(promised)
            && self.ballot(accepted)
            && self.quorum(*quorum)
            && self.dependencies(initial)
    }

    fn state(&self, state: &State) -> bool {
        let is_of_group = match state.executed.updates.is_empty() {
            true => state.executed.reads.is_empty() && state.last_done().is_empty(),
            false => self.dependencies(&state.executed),
        };
        // In a row without an executed command, the last number is 0.
        let is_row =
            |id: &InstanceId| usize::from(id.member) < self.group.size() && id.number < NEVER;
        is_of_group
            && stamped(&state.held)
            && stamped(&state.previous)
            && state.last_done().iter().all(is_row)
            && state.forgotten_before_us() < NEVER
    }

    fn shown(&self, shown: &Shown) -> bool {
        let instance =
            |(id, instance): &(InstanceId, Instance)| self.id(id) && self.instance(id, instance);
        is_key(&shown.key) && self.state(&shown.state) && shown.instances.iter().all(instance)
    }
}

/// Whether `from` can have sent this to a client.
pub(super) fn to_client(from: NodeId, message: &Message, group: &Group) -> bool {
    let is_said = match message {
        Message::Reply {
            answer: Answer::Done(Found(held)) | Answer::Unsettled(Found(held)),
            ..
        } => stamped(held),
        Message::Reply { answer: Answer::Forgotten, .. } => true,
        Message::Reply { answer: Answer::ClockSkew { ahead_us }, .. } => {
            ahead_us.unsigned_abs() < NEVER
        }
        Message::Write1Reply { carstamp: of, .. } | Message::Applied { carstamp: of, .. } => {
            carstamps::is_sound(of)
        }
        _ => false,
    };
    is_said && group.contains(from)
}

/// Sessions refuse empty keys, so no correct message contains one.
fn is_key(key: &Key) -> bool {
    !key.is_empty()
}

fn is_young(command: &Command) -> bool {
    let Command { token, settled, brings, .. } = command;
    token.timestamp_us < NEVER && settled.timestamp_us < NEVER && are_brought(brings)
}

fn are_brought(brings: &[(Key, Stamped)]) -> bool {
    brings.iter().all(|(key, held)| is_key(key) && stamped(held))
}

fn stamped(stamped: &Stamped) -> bool {
    carstamps::is_sound(&stamped.carstamp)
}
