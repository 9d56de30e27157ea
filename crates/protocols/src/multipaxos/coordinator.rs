//! The client side: it hands operations to the leader, or to a replica that knows it.

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::registers::{Operation, Outcome, Output};
use serried_model::{Access, Accessed, NodeId, Registers, TxnId};
use serried_parts::{Tokens, patience_with_leader};

use super::message::{Answer, Message, Request};

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    tokens: Tokens,
    /// By partition, the replica that has answered last: it leads.
    leaders: BTreeMap<u16, NodeId>,
    operations: BTreeMap<TxnId, Running>,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    request: Request,
    repeated: u32,
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(pub(super) TxnId);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`.
    pub fn new(group: Group, settings: &Settings) -> Coordinator {
        let tokens = Tokens::new(settings.outcomes_ms * 1000);
        Coordinator { group, tokens, leaders: BTreeMap::new(), operations: BTreeMap::new() }
    }

    fn send(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running { request, repeated }) = self.operations.get(&txn) else { return };
        let partition = self.group.partition_of(&request.key);
        // If no leader is known, the nearest replica passes it on, and then the others are tried.
        let nearest = self.group.choice(partition, *repeated as usize);
        let to = *self.leaders.get(&partition).unwrap_or(&nearest);
        cx.send(to, Message::Request(request.clone()));
        cx.set_timer(Repeat(txn), patience_with_leader(&self.group, *repeated));
    }

    fn end(&mut self, txn: TxnId, answer: Answer, cx: &mut Cx<'_>) {
        cx.cancel_timer(Repeat(txn));
        let outcome = match answer {
            Answer::Done(stamped) => {
                let accessed = Accessed { found: stamped.value, carstamp: stamped.carstamp };
                Outcome::Done(accessed)
            }
            Answer::Forgotten => Outcome::Forgotten,
            Answer::ClockSkew { ahead_us } => Outcome::ClockSkew { ahead_us },
        };
        cx.output((txn, Output::Outcome(outcome)));
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        if !self.group.contains(from) {
            return cx.reject(|| format!("{from} has sent what only replicas send"));
        }
        if let Message::Reply { request, answer } = message
            && let Some(running) = self.operations.remove(&TxnId(request))
        {
            self.tokens.end(running.request.token);
            self.leaders.insert(from.partition(), from);
            self.end(TxnId(request), answer, cx);
        }
    }

    fn on_timer(&mut self, Repeat(txn): Repeat, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        running.repeated += 1;
        // It may not lead any more.
        self.leaders.remove(&self.group.partition_of(&running.request.key));
        self.send(txn, cx);
    }
}

impl Coordinate<Registers> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Access { key, access, token } => {
                let new = || self.tokens.next(cx.id(), cx.clock());
                let token = token.map_or_else(new, |token| token.id);
                let mut settled = token;
                if access != Access::Read {
                    cx.output((txn, Output::Began(token)));
                    settled = self.tokens.begin(token, cx.id(), cx.clock());
                }
                let request = Request { number: txn.0, key, token, settled, operation: access };
                self.operations.insert(txn, Running { request, repeated: 0 });
                self.send(txn, cx);
            }
            Operation::GiveUp => {
                let Some(running) = self.operations.remove(&txn) else { return };
                cx.cancel_timer(Repeat(txn));
                let outcome = match running.request.operation {
                    Access::Read => Outcome::NoEffect,
                    _ => Outcome::Unknown,
                };
                cx.output((txn, Output::Outcome(outcome)));
            }
        }
    }
}
