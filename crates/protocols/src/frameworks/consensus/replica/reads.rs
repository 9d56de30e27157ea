//! Reads of registers at a quorum, without agreement (001 §4.3.2).
//!
//! A replica coordinates the reads of nearby clients, as their proxy (001 §4.4, Algorithm 7). It
//! sends its own value to the others, which then hold it. It also stores the values that they
//! answer with. So after one round it may know that a majority holds the latest value.

use std::collections::BTreeMap;

use serried_actor::{NodeSet, Timestamp};
use serried_model::{Carstamp, Key, NodeId};
use serried_parts::{Asked, Stamped};

use super::members::Members;
use super::schedule::{Schedule, Task};
use super::{Cx, Rules};
use crate::frameworks::consensus::message::{Answer, Found, Message, OperationId};
use crate::frameworks::consensus::{Mutation, Variant};

/// How often a read is repeated before it is given up. Its client has asked another replica long
/// before.
const REPEATED_AT_MOST: u32 = 8;

/// The reads that a replica coordinates.
#[derive(Debug)]
pub(super) struct Reads {
    rules: Rules,
    reads: BTreeMap<OperationId, Reading>,
}

/// A read that this replica coordinates.
#[derive(Debug)]
struct Reading {
    key: Key,
    /// The values that its client brings.
    brings: Vec<(Key, Stamped)>,
    /// The latest value that was found.
    latest: Stamped,
    /// The replicas that hold that value or a later one.
    holders: NodeSet,
    /// The replicas that were asked for their values.
    first: Asked,
    /// The replicas that were asked to hold the latest value.
    second: Option<Asked>,
    /// When the replies should have arrived.
    due: Timestamp,
}

impl Reads {
    pub(super) fn new(rules: Rules) -> Reads {
        Reads { rules, reads: BTreeMap::new() }
    }

    /// Begins a client's read. This replica holds `latest` and the values that the client brings.
    pub(super) fn begin(
        &mut self,
        operation: OperationId,
        (key, brings, latest): (Key, Vec<(Key, Stamped)>, Stamped),
        members: &Members,
        schedule: &mut Schedule,
        cx: &mut Cx<'_>,
    ) {
        let first = members.quorums.ask(members.partition(), members.me());
        let (holders, due) = (members.me(), cx.now());
        let reading = Reading { key, brings, latest, holders, first, second: None, due };
        self.reads.insert(operation, reading);
        self.ask(operation, members, schedule, cx);
    }

    /// Sends the request of a read's current round.
    fn ask(
        &mut self,
        operation: OperationId,
        members: &Members,
        schedule: &mut Schedule,
        cx: &mut Cx<'_>,
    ) {
        let Some(reading) = self.reads.get_mut(&operation) else { return };
        let (key, held) = (reading.key.clone(), reading.latest.clone());
        let (asked, message) = match &reading.second {
            None => {
                let brings = reading.brings.clone();
                (&reading.first, Message::Read1 { operation, key, held, brings })
            }
            Some(second) => (second, Message::Apply { operation, key, stamped: held }),
        };
        let patience = members.quorums.patience(asked.repeated());
        cx.broadcast(members.partition(), asked.waiting(), message);
        reading.due = schedule.at(patience, Task::Read(operation), cx);
    }

    /// Repeats an unanswered request. Returns whether the read is given up.
    pub(super) fn ask_again(
        &mut self,
        operation: OperationId,
        members: &mut Members,
        schedule: &mut Schedule,
        cx: &mut Cx<'_>,
    ) -> bool {
        let reading = self.reads.get_mut(&operation);
        let Some(reading) = reading.filter(|reading| reading.due <= cx.now()) else { return false };
        let asked = reading.second.as_mut().unwrap_or(&mut reading.first);
        members.quorums.ask_again(asked);
        if asked.repeated() > REPEATED_AT_MOST {
            self.reads.remove(&operation);
            return true;
        }
        self.ask(operation, members, schedule, cx);
        false
    }

    /// Records the value that a replica holds. Returns the key if the value is later than all
    /// others so far. Then this replica has to hold it, too.
    pub(super) fn on_held(
        &mut self,
        from: NodeId,
        operation: OperationId,
        held: &Stamped,
        members: &mut Members,
    ) -> Option<Key> {
        let reading = self.reads.get_mut(&operation)?;
        members.quorums.replied(&mut reading.first, from);
        if reading.second.is_none() && reading.latest.hold(held) {
            reading.holders = [members.own_id(), from].into_iter().collect();
            return Some(reading.key.clone());
        }
        if !held.is_before(&reading.latest) {
            reading.holders.insert(from);
        }
        None
    }

    /// Records that a replica holds a value with this carstamp or a later one. Returns whether the
    /// reply counts.
    pub(super) fn on_applied(
        &mut self,
        from: NodeId,
        operation: OperationId,
        carstamp: Carstamp,
        members: &mut Members,
    ) -> bool {
        let Some(reading) = self.reads.get_mut(&operation) else { return false };
        let Some(second) = &mut reading.second else { return false };
        let counts = reading.latest.carstamp <= carstamp;
        if counts {
            members.quorums.replied(second, from);
            reading.holders.insert(from);
        }
        counts
    }

    /// Removes these replicas, which have lost their disks, from the holders.
    pub(super) fn count_no_holding_of(&mut self, replaced: NodeSet) {
        for reading in self.reads.values_mut() {
            reading.holders = reading.holders.without(replaced);
        }
    }

    /// Ends a read if enough replies have arrived, and returns its answer. If less than a majority
    /// holds the value, first asks a quorum to hold it.
    pub(super) fn go_on(
        &mut self,
        operation: OperationId,
        members: &Members,
        schedule: &mut Schedule,
        cx: &mut Cx<'_>,
    ) -> Option<Answer> {
        let reading = self.reads.get_mut(&operation)?;
        let settled = reading.holders.len() >= members.group().majority();
        // A majority has answered, so the latest value is known, and all of them hold the values
        // that the client brings.
        let known = members.quorums.have_replied(&reading.first);
        if !known || !settled && reading.second.is_some() {
            return None;
        }
        let once = self.rules.variant == Variant::GryffRsc
            || self.rules.mutation.is(Mutation::SecondReadRoundSkipped);
        if !settled && !once {
            reading.second = Some(members.quorums.ask(members.partition(), reading.holders));
            self.ask(operation, members, schedule, cx);
            return None;
        }
        let reading = self.reads.remove(&operation)?;
        let found = Found(reading.latest);
        Some(match settled || self.rules.variant != Variant::GryffRsc {
            true => Answer::Done(found),
            false => Answer::Unsettled(found),
        })
    }
}
