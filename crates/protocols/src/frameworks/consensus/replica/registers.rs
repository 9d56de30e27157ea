//! Reads and writes of registers at a quorum, without agreement (001 §4.3.2).
//!
//! A replica coordinates the reads of clients nearby, as their proxy (001 §4.4, Algorithm 7). It sends the others what
//! it holds, and they hold it then. It also holds what they answer. So it may know after one round that a majority
//! holds the latest value.

use serried_actor::{NodeSet, Timestamp};
use serried_model::{Carstamp, Key, NodeId};
use serried_parts::{Asked, Stamped};

use super::{Cx, Replica, Task};
use crate::frameworks::consensus::message::{Answer, Found, Message, OperationId, Record};
use crate::frameworks::consensus::{Mutation, Variant};

/// So often those who have not answered are asked again before a read is given up: its client has turned
/// to another replica long before.
const REPEATED_AT_MOST: u32 = 8;

/// A read that this replica coordinates.
#[derive(Debug)]
pub(super) struct Reading {
    key: Key,
    /// What its client brings.
    brings: Vec<(Key, Stamped)>,
    /// The latest that was found.
    latest: Stamped,
    /// Who holds that, or something later.
    holders: NodeSet,
    /// Who was asked what it holds.
    first: Asked,
    /// Who was asked to hold the latest.
    second: Option<Asked>,
    /// When those who were asked should have answered.
    due: Timestamp,
}

impl Replica {
    /// Holds something, durably, unless what it holds is later.
    pub(super) fn hold(&mut self, key: &Key, stamped: &Stamped, cx: &mut Cx<'_>) {
        if self.cells.get(key, cx.store()).held.carstamp < stamped.carstamp {
            let position = cx.log_position();
            self.cells.change(key, position, cx.store()).hold(stamped);
            cx.append(Record::Applied { key: key.clone(), stamped: stamped.clone() });
            self.store_soon(cx);
        }
    }

    fn hold_all(&mut self, brings: &[(Key, Stamped)], cx: &mut Cx<'_>) {
        for (key, stamped) in brings {
            self.hold(key, stamped, cx);
        }
    }

    /// Begins a client's read.
    pub(super) fn read(
        &mut self,
        operation: OperationId,
        key: Key,
        brings: Vec<(Key, Stamped)>,
        cx: &mut Cx<'_>,
    ) {
        self.hold_all(&brings, cx);
        let latest = self.cells.get(&key, cx.store()).held.clone();
        let first = self.quorums.ask(self.id.partition(), self.me());
        let (holders, due) = (self.me(), cx.now());
        let reading = Reading { key, brings, latest, holders, first, second: None, due };
        self.reads.insert(operation, reading);
        self.ask(operation, cx);
        self.go_on_reading(operation, cx);
    }

    /// Asks what a read asks in its present round.
    fn ask(&mut self, operation: OperationId, cx: &mut Cx<'_>) {
        let Some(reading) = self.reads.get(&operation) else { return };
        let (key, held) = (reading.key.clone(), reading.latest.clone());
        let (asked, message) = match &reading.second {
            None => {
                let brings = reading.brings.clone();
                (&reading.first, Message::Read1 { operation, key, held, brings })
            }
            Some(second) => (second, Message::Apply { operation, key, stamped: held }),
        };
        let patience = self.quorums.patience(asked.repeated());
        cx.broadcast(self.id.partition(), asked.waiting(), message);
        let due = self.at(patience, Task::Read(operation), cx);
        if let Some(reading) = self.reads.get_mut(&operation) {
            reading.due = due;
        }
    }

    pub(super) fn read_again(&mut self, operation: OperationId, cx: &mut Cx<'_>) {
        let reading = self.reads.get_mut(&operation);
        let Some(reading) = reading.filter(|reading| reading.due <= cx.now()) else { return };
        let asked = reading.second.as_mut().unwrap_or(&mut reading.first);
        self.quorums.ask_again(asked);
        if asked.repeated() > REPEATED_AT_MOST {
            self.reads.remove(&operation);
            self.open.remove(&operation);
            return;
        }
        self.ask(operation, cx);
    }

    pub(super) fn on_read1(
        &mut self,
        from: NodeId,
        operation: OperationId,
        key: Key,
        held: &Stamped,
        brings: &[(Key, Stamped)],
        cx: &mut Cx<'_>,
    ) {
        self.hold_all(brings, cx);
        self.hold(&key, held, cx);
        let held = self.cells.get(&key, cx.store()).held.clone();
        let incarnations = self.incarnations.named();
        cx.send(from, Message::Read1Reply { operation, held, incarnations });
    }

    pub(super) fn on_read1_reply(
        &mut self,
        from: NodeId,
        operation: OperationId,
        held: Stamped,
        cx: &mut Cx<'_>,
    ) {
        self.quorums.is_there(from);
        let Some(reading) = self.reads.get_mut(&operation) else { return };
        self.quorums.replied(&mut reading.first, from);
        if held.carstamp > reading.latest.carstamp && reading.second.is_none() {
            reading.latest = held.clone();
            reading.holders = [self.id, from].into_iter().collect();
            let key = reading.key.clone();
            self.hold(&key, &held, cx);
        } else if held.carstamp >= reading.latest.carstamp {
            reading.holders.insert(from);
        }
        self.go_on_reading(operation, cx);
    }

    pub(super) fn on_applied(
        &mut self,
        from: NodeId,
        operation: OperationId,
        carstamp: Carstamp,
        cx: &mut Cx<'_>,
    ) {
        self.quorums.is_there(from);
        let Some(reading) = self.reads.get_mut(&operation) else { return };
        if let Some(second) = &mut reading.second
            && reading.latest.carstamp <= carstamp
        {
            self.quorums.replied(second, from);
            reading.holders.insert(from);
            self.go_on_reading(operation, cx);
        }
    }

    /// Replicas have lost their disks, so they may not hold any more what they have said.
    pub(super) fn count_no_holding_of(&mut self, replaced: NodeSet) {
        for reading in self.reads.values_mut() {
            reading.holders = reading.holders.without(replaced);
        }
    }

    /// Answers a read if enough is known, or has a quorum hold what it has found.
    fn go_on_reading(&mut self, operation: OperationId, cx: &mut Cx<'_>) {
        let Some(reading) = self.reads.get_mut(&operation) else { return };
        let settled = reading.holders.len() >= self.quorums.group().majority();
        // With this many held by somebody, the latest is known; and all who count hold what was brought.
        let known = self.quorums.have_replied(&reading.first);
        if !known || !settled && reading.second.is_some() {
            return;
        }
        let once = self.rules.variant == Variant::GryffRsc
            || self.rules.mutation.is(Mutation::SecondReadRoundSkipped);
        if !settled && !once {
            let partition = self.id.partition();
            reading.second = Some(self.quorums.ask(partition, reading.holders));
            return self.ask(operation, cx);
        }
        let reading = self.reads.remove(&operation).expect("as before");
        let found = Found(reading.latest);
        let answer = match settled || self.rules.variant != Variant::GryffRsc {
            true => Answer::Done(found),
            false => Answer::Unsettled(found),
        };
        self.answer(operation, answer, cx);
    }

    pub(super) fn on_write1(
        &mut self,
        from: NodeId,
        request: u64,
        key: Key,
        brings: &[(Key, Stamped)],
        cx: &mut Cx<'_>,
    ) {
        self.hold_all(brings, cx);
        let carstamp = self.cells.get(&key, cx.store()).held.carstamp;
        let incarnations = self.incarnations.named();
        cx.send(from, Message::Write1Reply { request, carstamp, incarnations });
    }
}
