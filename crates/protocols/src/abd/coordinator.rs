//! The client side: it coordinates reads and writes.

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Settings};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Accessed, Carstamp, Key, NodeId, Registers, Token, TxnId, Value};
use serried_parts::{Asked, Quorums, Stamped, VersionClock};

use super::{Message, Mutation};
use crate::Mutated;

/// Coordinates one client's operations.
#[derive(Debug)]
pub struct Coordinator {
    quorums: Quorums,
    clock: VersionClock,
    /// The latest timestamp that a write was given.
    latest: u64,
    operations: BTreeMap<TxnId, Running>,
    mutation: Mutated<Mutation>,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    key: Key,
    /// What is to be written; none for a read.
    write: Option<Option<Value>>,
    phase: Phase,
    asked: Asked,
}

#[derive(Debug)]
enum Phase {
    /// It learns what replicas hold: the latest so far, and whether all held that.
    First { latest: Option<Stamped>, unanimous: bool },
    /// It has them hold this.
    Second(Stamped),
}

/// Repeats what an operation waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(pub(super) TxnId);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(group: Group, settings: &Settings, mutation: Mutated<Mutation>) -> Coordinator {
        Coordinator {
            quorums: Quorums::new(group, settings.thrifty),
            clock: VersionClock::default(),
            latest: 0,
            operations: BTreeMap::new(),
            mutation,
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
        let write = match access {
            Access::Read => None,
            Access::Write(value) => Some(value),
            // Not offered: no session asks for it.
            Access::Modify(_) => return cx.output((txn, Output::Outcome(Outcome::NoEffect))),
        };
        let mut phase = Phase::First { latest: None, unanimous: true };
        if let Some(value) = &write {
            let id = token.map_or_else(|| self.clock.next(cx.id(), cx.clock()), |token| token.id);
            cx.output((txn, Output::Began(id)));
            if let Some(carstamp) = token.and_then(|token| token.carstamp) {
                cx.output((txn, Output::Placed(carstamp)));
                phase = Phase::Second(Stamped { value: value.clone(), carstamp });
            }
        }
        let asked = self.quorums.ask(self.quorums.group().partition_of(&key), NodeSet::EMPTY);
        self.operations.insert(txn, Running { key, write, phase, asked });
        self.ask(txn, cx);
    }

    /// Asks what an operation asks in its present phase.
    fn ask(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let partition = self.quorums.group().partition_of(&running.key);
        cx.broadcast(partition, running.asked.waiting(), running.request(txn));
        cx.set_timer(Repeat(txn), self.quorums.patience(running.asked.repeated()));
    }

    fn on_held(&mut self, txn: TxnId, from: NodeId, held: Stamped, cx: &mut Cx<'_>) {
        let once = self.mutation.is(Mutation::SecondReadRoundSkipped);
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Phase::First { latest, unanimous } = &mut running.phase else { return };
        if !self.quorums.replied(&mut running.asked, from) {
            return;
        }
        match latest {
            Some(latest) if latest.carstamp == held.carstamp => {}
            Some(latest) => {
                *unanimous = false;
                if latest.carstamp < held.carstamp {
                    *latest = held;
                }
            }
            None => *latest = Some(held),
        }
        if !self.quorums.have_replied(&running.asked) {
            return;
        }
        let (latest, unanimous) = (latest.take().expect("it is there"), *unanimous || once);
        let second = match running.write.clone() {
            None if unanimous => return self.finish(txn, latest, cx),
            None => latest,
            Some(value) => {
                // Of two writes that found the same, one has to be later.
                self.latest = self.latest.max(latest.carstamp.timestamp) + 1;
                let carstamp = Carstamp { timestamp: self.latest, writer: cx.id(), rmwc: 0 };
                cx.output((txn, Output::Placed(carstamp)));
                Stamped { value, carstamp }
            }
        };
        running.phase = Phase::Second(second);
        let partition = self.quorums.group().partition_of(&running.key);
        running.asked = self.quorums.ask(partition, NodeSet::EMPTY);
        self.ask(txn, cx);
    }

    fn on_applied(&mut self, txn: TxnId, from: NodeId, cx: &mut Cx<'_>) {
        let one_is_enough = self.mutation.is(Mutation::WriteAcknowledgedByOne);
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Phase::Second(stamped) = &running.phase else { return };
        let is_new = self.quorums.replied(&mut running.asked, from);
        if is_new && (one_is_enough || self.quorums.have_replied(&running.asked)) {
            let stamped = stamped.clone();
            self.finish(txn, stamped, cx);
        }
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.remove(&txn) else { return };
        cx.cancel_timer(Repeat(txn));
        // A write that has no place yet is nowhere.
        let outcome = match running.phase {
            Phase::Second(_) if running.write.is_some() => Outcome::Unknown,
            _ => Outcome::NoEffect,
        };
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn finish(&mut self, txn: TxnId, stamped: Stamped, cx: &mut Cx<'_>) {
        let running = self.operations.remove(&txn).expect("an operation that ends");
        cx.cancel_timer(Repeat(txn));
        let found = if running.write.is_none() { stamped.value } else { None };
        let accessed = Accessed { found, carstamp: stamped.carstamp };
        cx.output((txn, Output::Outcome(Outcome::Done(accessed))));
    }
}

impl Running {
    /// What it asks replicas in its present phase.
    fn request(&self, txn: TxnId) -> Message {
        let (request, key) = (txn.0, self.key.clone());
        match &self.phase {
            Phase::Second(stamped) => Message::Apply { request, key, stamped: stamped.clone() },
            Phase::First { .. } if self.write.is_some() => Message::Write1 { request, key },
            Phase::First { .. } => Message::Read1 { request, key },
        }
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        if !message.is_sound() {
            return cx.reject(|| format!("{from} has sent numbers that nobody comes to"));
        }
        match message {
            // Late: the sender has lost its disk since, and may not have what it says.
            Message::Read1Reply { incarnations, .. }
            | Message::Write1Reply { incarnations, .. }
            | Message::Applied { incarnations, .. }
                if !self.quorums.hear(from, &incarnations) => {}
            Message::Read1Reply { request, held, .. } => {
                self.on_held(TxnId(request), from, held, cx);
            }
            Message::Write1Reply { request, carstamp, .. } => {
                let held = Stamped { value: None, carstamp };
                self.on_held(TxnId(request), from, held, cx);
            }
            Message::Applied { request, .. } => self.on_applied(TxnId(request), from, cx),
            // No replica sends a client anything else.
            _ => {}
        }
    }

    fn on_timer(&mut self, Repeat(txn): Repeat, cx: &mut Cx<'_>) {
        if let Some(running) = self.operations.get_mut(&txn) {
            self.quorums.ask_again(&mut running.asked);
            self.ask(txn, cx);
        }
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
