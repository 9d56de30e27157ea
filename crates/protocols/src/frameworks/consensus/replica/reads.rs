//! Reads of registers at a quorum, without agreement (001 §4.3.2).
//!
//! A replica coordinates the reads of clients nearby, as their proxy (001 §4.4, Algorithm 7). It sends the others what
//! it holds, and they hold it then. It also holds what they answer. So it may know after one round that a majority
//! holds the latest value.

use std::collections::BTreeMap;

use serried_actor::{NodeSet, Timestamp};
use serried_model::{Carstamp, Key, NodeId};
use serried_parts::{Asked, Stamped};

use super::members::Members;
use super::schedule::{Schedule, Task};
use super::{Cx, Rules};
use crate::frameworks::consensus::message::{Answer, Found, Message, OperationId};
use crate::frameworks::consensus::{Mutation, Variant};

/// How often those who have not answered are asked again before a read is given up. Its client has turned to another
/// replica long before.
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
    /// What its client brings.
    brings: Vec<(Key, Stamped)>,
    /// The latest value that was found.
    latest: Stamped,
    /// The replicas that hold that value or a later one.
    holders: NodeSet,
    /// The replicas that were asked what they hold.
    first: Asked,
    /// The replicas that were asked to hold the latest value.
    second: Option<Asked>,
    /// When those who were asked should have answered.
    due: Timestamp,
}

impl Reads {
    pub(super) fn new(rules: Rules) -> Reads {
        Reads { rules, reads: BTreeMap::new() }
    }

    /// Begins a client's read. This replica holds `latest`, and what the client brings.
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

    /// Sends what a read asks in its present round.
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

    /// Asks again for what should have been answered. Returns whether the read is given up.
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

    /// Takes in what a replica holds. Returns the key if that is later than what was found so far: then this replica has to
    /// hold it, too.
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

    /// Takes in that a replica holds a value of this carstamp or a later one. Returns whether that counts.
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

    /// Counts these replicas, which have lost their disks, as holders no more.
    pub(super) fn count_no_holding_of(&mut self, replaced: NodeSet) {
        for reading in self.reads.values_mut() {
            reading.holders = reading.holders.without(replaced);
        }
    }

    /// Ends a read if enough is known, and returns its answer. If few replicas hold what it has found, it asks a quorum to
    /// hold that first.
    pub(super) fn go_on(
        &mut self,
        operation: OperationId,
        members: &Members,
        schedule: &mut Schedule,
        cx: &mut Cx<'_>,
    ) -> Option<Answer> {
        let reading = self.reads.get_mut(&operation)?;
        let settled = reading.holders.len() >= members.group().majority();
        // A majority has answered, so the latest value is known, and all of them hold what the client brings.
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
