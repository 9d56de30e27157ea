//! The client side: it hands commands and reads to a replica, and coordinates writes to registers.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Settings, Timestamp};
use serried_model::{
    Access, Accessed, Carstamp, Key, NodeId, Operation, Outcome, Output, Token, TxnId,
};
use serried_parts::{Asked, Quorums, Stamped, Tokens, patience_with_proxy};

use super::dependencies::Unsettled;
use super::instance::Command;
use super::message::{Answer, Found, Message, OperationId};
use super::{Mutation, Rules};

/// After another replica has answered, so long goes by before the nearest is tried again.
const NEAREST_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator {
    rules: Rules,
    quorums: Quorums,
    tokens: Tokens,
    /// The latest timestamp that a write was given.
    latest: u64,
    /// Which of the replicas is handed something first, from the nearest, and when the nearest is tried
    /// again.
    preferred: (usize, Timestamp),
    operations: BTreeMap<TxnId, Running>,
    unsettled: Unsettled,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    key: Key,
    command: Command,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// What others read has to be held by quorums of their own first.
    Fencing(Vec<(Key, Carstamp)>, Option<Carstamp>),
    /// A replica does it: which, from the nearest, and how often it was handed to one before.
    Handed { choice: usize, repeated: u32 },
    /// A write learns what replicas hold: the latest so far.
    Placing { latest: Carstamp, asked: Asked },
    /// It has them hold this.
    Writing { stamped: Stamped, asked: Asked },
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(u64);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`.
    pub fn new(group: Group, settings: &Settings, rules: Rules) -> Coordinator {
        Coordinator {
            rules,
            quorums: Quorums::new(group, settings.thrifty),
            tokens: Tokens::new(settings.outcomes_ms * 1000),
            latest: 0,
            preferred: (0, Timestamp(0)),
            operations: BTreeMap::new(),
            unsettled: Unsettled::default(),
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
        let partition = self.quorums.group().partition_of(&key);
        let besides = self.unsettled.besides(partition);
        let quorums = &self.quorums;
        for request in self.unsettled.fence(partition, |of| quorums.ask(of, NodeSet::EMPTY)) {
            self.send_fence(request, cx);
        }
        let phase = Phase::Fencing(besides, placed);
        self.operations.insert(txn, Running { key, command, phase });
        self.go_on(txn, cx);
    }

    /// Begins an operation for which no fence is missing. A read need not wait for any: what it finds
    /// can't have come of what its client does.
    fn go_on(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Phase::Fencing(fences, placed) = &running.phase else { return };
        let (reads, placed) = (running.command.access == Access::Read, *placed);
        if !reads && self.unsettled.has_any(fences) {
            return;
        }
        let partition = self.quorums.group().partition_of(&running.key);
        running.command.brings = self.unsettled.of(partition);
        if self.rules.break_by(Mutation::DependencyClearedAtSend) {
            self.unsettled.are_held(&running.command.brings);
        }
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
                let (choice, until) = self.preferred;
                let choice = if cx.now() < until { choice } else { 0 };
                Phase::Handed { choice, repeated: 0 }
            }
        };
        self.send(txn, cx);
    }

    /// Asks what an operation asks in its present phase.
    fn send(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let group = self.quorums.group();
        let partition = group.partition_of(&running.key);
        let (request, key) = (txn.0, running.key.clone());
        let brings = || running.command.brings.clone();
        let (to, message, patience) = match &running.phase {
            Phase::Fencing(..) => return,
            Phase::Handed { choice, repeated } => {
                let patience = patience_with_proxy(group, *repeated);
                let to = [group.choice(partition, *choice)].into_iter().collect();
                let command = running.command.clone();
                (to, Message::Request { request, key, command }, patience)
            }
            Phase::Placing { asked, .. } => {
                let message = Message::Write1 { request, key, brings: brings() };
                (asked.waiting(), message, self.quorums.patience(asked.repeated()))
            }
            Phase::Writing { stamped, asked } => {
                let operation = OperationId { client: cx.id(), request };
                let message = Message::Apply { operation, key, stamped: stamped.clone() };
                (asked.waiting(), message, self.quorums.patience(asked.repeated()))
            }
        };
        cx.broadcast(partition, to, message);
        cx.set_timer(Repeat(request), patience);
    }

    fn on_reply(&mut self, txn: TxnId, from: NodeId, answer: Answer, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let Phase::Handed { repeated, .. } = running.phase else { return };
        if repeated > 0 && matches!(answer, Answer::ClockSkew { .. }) {
            return; // Another may do it all the same.
        }
        let group = self.quorums.group();
        let partition = group.partition_of(&running.key);
        // It may be another than the one that it was handed to last.
        let mut choices = 0..group.size();
        if let Some(choice) = choices.find(|choice| group.choice(partition, *choice) == from)
            && (self.preferred.0 != choice || self.preferred.1 <= cx.now())
        {
            self.preferred = (choice, cx.now() + NEAREST_AGAIN_AFTER);
        }
        let is_held = !matches!(answer, Answer::Forgotten | Answer::ClockSkew { .. });
        if is_held {
            self.unsettled.are_held(&running.command.brings);
        }
        if let Answer::Unsettled(Found(stamped)) = &answer {
            let key = running.key.clone();
            self.unsettled.add(key, partition, stamped.clone());
        }
        match answer {
            Answer::Done(found) | Answer::Unsettled(found) => self.finish(txn, found.into(), cx),
            Answer::Forgotten => self.end(txn, Outcome::Forgotten, cx),
            Answer::ClockSkew { ahead_us } => self.end(txn, Outcome::ClockSkew { ahead_us }, cx),
        }
        if is_held {
            self.release(cx);
        }
    }

    fn on_placed(&mut self, txn: TxnId, from: NodeId, carstamp: Carstamp, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Phase::Placing { latest, asked } = &mut running.phase else { return };
        *latest = (*latest).max(carstamp);
        if !self.quorums.replied(asked, from) || !self.quorums.have_replied(asked) {
            return;
        }
        // Of two writes that found the same, one has to be later.
        self.latest = self.latest.max(latest.timestamp) + 1;
        let carstamp = Carstamp { timestamp: self.latest, writer: cx.id(), rmwc: 0 };
        cx.output((txn, Output::Placed(carstamp)));
        let Access::Write(value) = &running.command.access else { unreachable!("it writes") };
        let stamped = Stamped { value: value.clone(), carstamp };
        let partition = self.quorums.group().partition_of(&running.key);
        let asked = self.quorums.ask(partition, NodeSet::EMPTY);
        running.phase = Phase::Writing { stamped, asked };
        let brings = core::mem::take(&mut running.command.brings);
        self.unsettled.are_held(&brings);
        self.send(txn, cx);
        if !brings.is_empty() {
            self.release(cx);
        }
    }

    fn on_applied(&mut self, request: u64, from: NodeId, cx: &mut Cx<'_>) {
        if let Some(running) = self.operations.get_mut(&TxnId(request)) {
            let Phase::Writing { stamped, asked } = &mut running.phase else { return };
            if self.quorums.replied(asked, from) && self.quorums.have_replied(asked) {
                let accessed = Accessed { found: None, carstamp: stamped.carstamp };
                self.finish(TxnId(request), accessed, cx);
            }
        } else if let Some((fence, key, stamped)) = self.unsettled.fence_of(request)
            && self.quorums.replied(&mut fence.asked, from)
            && self.quorums.have_replied(&fence.asked)
        {
            let held = [(key.clone(), stamped.clone())];
            cx.cancel_timer(Repeat(request));
            self.unsettled.are_held(&held);
            self.release(cx);
        }
    }

    fn send_fence(&mut self, request: u64, cx: &mut Cx<'_>) {
        let Some((fence, key, stamped)) = self.unsettled.fence_of(request) else { return };
        let operation = OperationId { client: cx.id(), request };
        let apply = Message::Apply { operation, key: key.clone(), stamped: stamped.clone() };
        cx.broadcast(self.quorums.group().partition_of(key), fence.asked.waiting(), apply);
        cx.set_timer(Repeat(request), self.quorums.patience(fence.asked.repeated()));
    }

    /// What was brought or fenced off is held: some may have waited for that.
    fn release(&mut self, cx: &mut Cx<'_>) {
        let waits = |(_, running): &(&TxnId, &Running)| matches!(running.phase, Phase::Fencing(..));
        let waiting: Vec<TxnId> = self.operations.iter().filter(waits).map(|(t, _)| *t).collect();
        for txn in waiting {
            self.go_on(txn, cx);
        }
    }

    fn finish(&mut self, txn: TxnId, accessed: Accessed, cx: &mut Cx<'_>) {
        cx.output((txn, Output::Accessed(accessed)));
        self.end(txn, Outcome::Committed, cx);
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
        // A write that has no place yet is nowhere, and neither is what was not begun.
        let nowhere = match running.phase {
            Phase::Fencing(_, placed) => placed.is_none(),
            Phase::Placing { .. } => true,
            Phase::Handed { .. } => running.command.access == Access::Read,
            Phase::Writing { .. } => false,
        };
        let outcome = match nowhere {
            true => Outcome::Aborted { conflicts: Vec::new() },
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
        match message {
            Message::Reply { request, answer } => self.on_reply(TxnId(request), from, answer, cx),
            Message::Write1Reply { request, carstamp } => {
                self.on_placed(TxnId(request), from, carstamp, cx);
            }
            Message::Applied { operation, .. } => self.on_applied(operation.request, from, cx),
            // No replica sends a client anything else.
            _ => {}
        }
    }

    /// Those who have not answered are asked again. What was handed to a replica is handed to another: it
    /// is recognised if both go on with it.
    fn on_timer(&mut self, Repeat(request): Repeat, cx: &mut Cx<'_>) {
        match self.operations.get_mut(&TxnId(request)).map(|running| &mut running.phase) {
            Some(Phase::Handed { choice, repeated }) => {
                *repeated += 1;
                *choice = (*choice + 1) % self.quorums.group().size();
            }
            Some(Phase::Placing { asked, .. } | Phase::Writing { asked, .. }) => {
                self.quorums.ask_again(asked);
            }
            Some(Phase::Fencing(..)) => {}
            None => {
                if let Some((fence, ..)) = self.unsettled.fence_of(request) {
                    self.quorums.ask_again(&mut fence.asked);
                }
                return self.send_fence(request, cx);
            }
        }
        self.send(TxnId(request), cx);
    }
}

impl Coordinate for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Access { key, access, token } => self.begin(txn, key, access, token, cx),
            Operation::Rollback => self.give_up(txn, cx),
            _ => unreachable!("a keyspace of registers has no transactions"),
        }
    }
}
