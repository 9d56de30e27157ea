//! The client side: a coordinator passes commands and reads to a replica, and coordinates writes to
//! registers itself.
//!
//! # The outcome of an abandoned operation
//! The operation has no effect if the coordinator has sent no message with an effect: it waited, or
//! only asked for the carstamp of its write. Otherwise its outcome is unknown.
//!
//! The outcome of an update with a token is always unknown. Its client retries the update because
//! the outcome of an earlier attempt was unknown, and the messages of this attempt say nothing
//! about the earlier one. The token of an update with unknown outcome stays open, so that replicas
//! remember the result until the client retries the update.

mod preferred;
mod running;

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Settings};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Accessed, Carstamp, Key, NodeId, Registers, Token, TxnId};
use serried_parts::{Quorums, Stamped, Tokens, WriteStamps};

use super::instance::Command;
use super::message::{Answer, Found, Message, OperationId};
use super::unsettled::{Settled, Unsettled};
use super::{Mutation, Rules, sound};
use preferred::Preferred;
use running::{Phase, Running};

/// The coordinator of one client's operations.
#[derive(Debug)]
pub struct Coordinator {
    rules: Rules,
    quorums: Quorums,
    tokens: Tokens,
    stamps: WriteStamps,
    preferred: Preferred,
    operations: BTreeMap<TxnId, Running>,
    unsettled: Unsettled,
    counted: Counted,
}

/// Counters since the coordinator was created.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    begun: u64,
    /// Operations that had to wait because of values that were read from other keys.
    waited: u64,
    /// Values that were sent to a majority because a read had found them at less than a majority.
    unsettled: u64,
}

/// A timer that repeats an unanswered request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(u64);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// Creates a coordinator for a client of `group`.
    pub fn new(group: Group, settings: &Settings, rules: Rules) -> Coordinator {
        Coordinator {
            rules,
            quorums: Quorums::new(group, settings.thrifty),
            tokens: Tokens::new(settings.outcomes_ms * 1000),
            stamps: WriteStamps::default(),
            preferred: Preferred::default(),
            operations: BTreeMap::new(),
            unsettled: Unsettled::default(),
            counted: Counted::default(),
        }
    }

    fn begin(
        &mut self,
        txn: TxnId,
        key: Key,
        access: Access,
        token: Option<Token>,
        cx: &mut Cx<'_>,
    ) {
        let new = || self.tokens.next(cx.id(), cx.clock());
        let id = token.map_or_else(new, |token| token.id);
        let placed = token.and_then(|token| token.carstamp);
        let reads = access == Access::Read;
        if !reads {
            cx.output((txn, Output::Began(id)));
        }
        if let Some(carstamp) = placed {
            cx.output((txn, Output::Placed(carstamp)));
        }
        let settled = if reads { id } else { self.tokens.begin(id, cx.id(), cx.clock()) };
        let command = Command { token: id, settled, access, brings: Vec::new() };
        let again = token.is_some() && !reads;
        let phase = Phase::Waiting { begun: self.unsettled.now(), placed };
        self.operations.insert(txn, Running { key, command, again, phase });
        self.counted.begun += 1;
        if !self.go_on(txn, cx) {
            self.counted.waited += 1;
        }
    }

    /// Sends the first messages of an operation unless it has to wait. Returns whether they were
    /// sent.
    fn go_on(&mut self, txn: TxnId, cx: &mut Cx<'_>) -> bool {
        let Some(running) = self.operations.get_mut(&txn) else { return true };
        let Phase::Waiting { begun, placed } = running.phase else { return true };
        let as_printed = self.rules.mutation.is(Mutation::AsPrinted);
        if !as_printed && self.unsettled.has_other(&running.key, begun) {
            return false;
        }
        let group = self.quorums.group();
        let partition = group.partition_of(&running.key);
        let is_brought = |key: &Key| match as_printed {
            true => group.partition_of(key) == partition,
            false => *key == running.key,
        };
        let brings = self.unsettled.all().filter(|(key, _)| is_brought(key));
        running.command.brings = brings.map(|(key, held)| (key.clone(), held.clone())).collect();
        running.phase = match &running.command.access {
            Access::Write(value) if self.rules.have_registers() => {
                let asked = self.quorums.ask(partition, NodeSet::EMPTY);
                match placed {
                    Some(carstamp) => {
                        let stamped = Stamped { value: value.clone(), carstamp };
                        Phase::Writing { stamped, asked }
                    }
                    None => Phase::Placing { latest: Carstamp::INITIAL, asked },
                }
            }
            _ => {
                let choice = self.preferred.choice(cx.now());
                Phase::Handed { choice, repeated: 0, refused: 0 }
            }
        };
        if self.rules.mutation.is(Mutation::DependencyClearedAtSend) {
            let brings = running.command.brings.clone();
            self.unsettled.are_held(&brings, &self.quorums);
        }
        self.send(txn, cx);
        true
    }

    /// Sends the request of an operation's current phase.
    fn send(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let operation = OperationId { client: cx.id(), request: txn.0 };
        let Some((to, message, patience)) = running.question(operation, &self.quorums) else {
            return;
        };
        cx.broadcast(self.quorums.group().partition_of(&running.key), to, message);
        cx.set_timer(Repeat(txn.0), patience);
    }

    fn on_reply(&mut self, txn: TxnId, from: NodeId, answer: Answer, cx: &mut Cx<'_>) {
        if let Answer::ClockSkew { ahead_us } = answer {
            return self.on_refused(txn, from, ahead_us, cx);
        }
        let Some(running) = self.operations.get(&txn) else { return };
        if !matches!(running.phase, Phase::Handed { .. }) {
            return;
        }
        let group = self.quorums.group();
        let partition = group.partition_of(&running.key);
        // The operation may have been passed to another replica since.
        let mut choices = 0..group.size();
        if let Some(choice) = choices.find(|choice| group.choice(partition, *choice) == from) {
            self.preferred.has_answered(choice, cx.now());
        }
        let brings = running.command.brings.clone();
        if let Answer::Unsettled(Found(stamped)) = &answer {
            self.settle(running.key.clone(), stamped.clone(), cx);
        }
        let is_forgotten = answer == Answer::Forgotten;
        match answer {
            Answer::Done(found) | Answer::Unsettled(found) => self.finish(txn, found.into(), cx),
            Answer::Forgotten => self.end(txn, Outcome::Forgotten, cx),
            Answer::ClockSkew { .. } => {} // See above.
        }
        if !is_forgotten {
            self.are_held(&brings, cx);
        }
    }

    /// Handles a permanent refusal of an operation, because the client's clock is ahead of the
    /// replica's. The replica's clock may be behind. So the coordinator asks the others, one at a
    /// time, until a majority has refused. Then no other replica knows the operation.
    fn on_refused(&mut self, txn: TxnId, from: NodeId, ahead_us: i64, cx: &mut Cx<'_>) {
        let group = self.quorums.group();
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let partition = group.partition_of(&running.key);
        let Phase::Handed { choice, repeated, refused } = &mut running.phase else { return };
        // Another replica may execute or have executed it, or this answer was repeated.
        if *repeated > 0 || running.again || group.choice(partition, *choice) != from {
            return;
        }
        *refused += 1;
        if *refused >= group.majority() {
            return self.end(txn, Outcome::ClockSkew { ahead_us }, cx);
        }
        *choice = (*choice + 1) % group.size();
        self.send(txn, cx);
    }

    fn on_placed(&mut self, txn: TxnId, from: NodeId, carstamp: Carstamp, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Phase::Placing { latest, asked } = &mut running.phase else { return };
        *latest = (*latest).max(carstamp);
        if !self.quorums.replied(asked, from) || !self.quorums.have_replied(asked) {
            return;
        }
        let carstamp = self.stamps.after(*latest, cx.id());
        cx.output((txn, Output::Placed(carstamp)));
        let Access::Write(value) = &running.command.access else { unreachable!("it writes") };
        let stamped = Stamped { value: value.clone(), carstamp };
        let partition = self.quorums.group().partition_of(&running.key);
        let asked = self.quorums.ask(partition, NodeSet::EMPTY);
        running.phase = Phase::Writing { stamped, asked };
        let brings = core::mem::take(&mut running.command.brings);
        self.send(txn, cx);
        self.are_held(&brings, cx);
    }

    fn on_applied(&mut self, request: u64, from: NodeId, cx: &mut Cx<'_>) {
        if let Some(running) = self.operations.get_mut(&TxnId(request)) {
            let Phase::Writing { stamped, asked } = &mut running.phase else { return };
            if self.quorums.replied(asked, from) && self.quorums.have_replied(asked) {
                let accessed = Accessed { found: None, carstamp: stamped.carstamp };
                self.finish(TxnId(request), accessed, cx);
            }
        } else if let Some((key, settling)) = self.unsettled.settling(request)
            && self.quorums.replied(&mut settling.asked, from)
            && self.quorums.have_replied(&settling.asked)
        {
            let held = [(key.clone(), settling.stamped().clone())];
            self.are_held(&held, cx);
        }
    }

    /// Handles that the client has read a value that less than a majority may hold. Sends it to a
    /// majority.
    fn settle(&mut self, key: Key, stamped: Stamped, cx: &mut Cx<'_>) {
        self.counted.unsettled += 1;
        if let Some(request) = self.unsettled.enter(key, stamped, &self.quorums) {
            self.send_settling(request, cx);
        }
    }

    fn send_settling(&mut self, request: u64, cx: &mut Cx<'_>) {
        if self.rules.mutation.is(Mutation::AsPrinted) {
            return;
        }
        let Some((key, settling)) = self.unsettled.settling(request) else { return };
        let operation = OperationId { client: cx.id(), request };
        let (key, stamped) = (key.clone(), settling.stamped().clone());
        let partition = self.quorums.group().partition_of(&key);
        let apply = Message::Apply { operation, key, stamped };
        cx.broadcast(partition, settling.asked.waiting(), apply);
        cx.set_timer(Repeat(request), self.quorums.patience(settling.asked.repeated()));
    }

    /// Handles that a majority holds these values. Continues the operations that have waited for
    /// this.
    fn are_held(&mut self, held: &[(Key, Stamped)], cx: &mut Cx<'_>) {
        let Settled { over, begun } = self.unsettled.are_held(held, &self.quorums);
        over.iter().for_each(|request| cx.cancel_timer(Repeat(*request)));
        begun.iter().for_each(|request| self.send_settling(*request, cx));
        if over.is_empty() {
            return;
        }
        let waits =
            |(_, running): &(&TxnId, &Running)| matches!(running.phase, Phase::Waiting { .. });
        let waiting: Vec<TxnId> = self.operations.iter().filter(waits).map(|(t, _)| *t).collect();
        for txn in waiting {
            self.go_on(txn, cx);
        }
    }

    fn finish(&mut self, txn: TxnId, accessed: Accessed, cx: &mut Cx<'_>) {
        self.end(txn, Outcome::Done(accessed), cx);
    }

    fn end(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.remove(&txn) else { return };
        if outcome != Outcome::Unknown {
            self.tokens.end(running.command.token);
        }
        cx.cancel_timer(Repeat(txn.0));
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let outcome = match running.has_no_effect() {
            true => Outcome::NoEffect,
            false => Outcome::Unknown,
        };
        self.end(txn, outcome, cx);
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        if !sound::to_client(from, &message, self.quorums.group()) {
            return cx
                .reject(|| format!("{from} has sent a message that no replica sends to a client"));
        }
        match message {
            // Late: the sender has lost its disk since, and may not have what it reports.
            Message::Write1Reply { incarnations, .. } | Message::Applied { incarnations, .. }
                if !self.quorums.hear(from, &incarnations) => {}
            Message::Reply { request, answer } => self.on_reply(TxnId(request), from, answer, cx),
            Message::Write1Reply { request, carstamp, .. } => {
                self.on_placed(TxnId(request), from, carstamp, cx);
            }
            Message::Applied { operation, .. } => self.on_applied(operation.request, from, cx),
            // No replica sends other messages to a client.
            _ => {}
        }
    }

    /// Repeats the request to the replicas that have not answered. A request to one replica is
    /// passed to the next one: replicas recognise the operation if both continue with it.
    fn on_timer(&mut self, Repeat(request): Repeat, cx: &mut Cx<'_>) {
        match self.operations.get_mut(&TxnId(request)).map(|running| &mut running.phase) {
            Some(Phase::Handed { choice, repeated, .. }) => {
                *repeated += 1;
                *choice = (*choice + 1) % self.quorums.group().size();
            }
            Some(Phase::Placing { asked, .. } | Phase::Writing { asked, .. }) => {
                self.quorums.ask_again(asked);
            }
            Some(Phase::Waiting { .. }) => {}
            None => {
                if let Some((_, settling)) = self.unsettled.settling(request) {
                    self.quorums.ask_again(&mut settling.asked);
                }
                return self.send_settling(request, cx);
            }
        }
        self.send(TxnId(request), cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let Counted { begun, waited, unsettled } = self.counted;
        each("operations_begun", begun);
        each("operations_that_waited", waited);
        each("reads_unsettled", unsettled);
    }
}

impl Coordinate<Registers> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Access { key, access, token } => self.begin(txn, key, access, token, cx),
            Operation::GiveUp => self.give_up(txn, cx),
        }
    }
}
