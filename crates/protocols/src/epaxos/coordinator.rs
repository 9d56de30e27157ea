//! The client side: it hands commands to a replica.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::{Access, Accessed, NodeId, Operation, Outcome, Output, TxnId};
use serried_parts::VersionClock;

use super::instance::Command;
use super::message::{Answer, Found, Message};

/// The longest wait before a request is repeated, but where a round trip takes longer.
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// One client's commands.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    clock: VersionClock,
    /// Which of the replicas is asked first, from the nearest.
    preferred: usize,
    operations: BTreeMap<TxnId, Running>,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    key: serried_model::Key,
    command: Command,
    repeated: u32,
    /// Which replica was asked last.
    choice: usize,
}

/// Repeats a command that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(TxnId);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`.
    pub fn new(group: Group, _: &Settings) -> Coordinator {
        let (clock, operations) = (VersionClock::default(), BTreeMap::new());
        Coordinator { group, clock, preferred: 0, operations }
    }

    fn send(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get(&txn) else { return };
        let replica = self.group.choice(self.group.partition_of(&running.key), running.choice);
        let (key, command) = (running.key.clone(), running.command.clone());
        cx.send(replica, Message::Request { request: txn.0, key, command });
        let first = 4 * self.group.round_trip() + Duration::from_millis(50);
        let patience = (first * (1 << running.repeated.min(8))).min(first.max(REPEAT_AT_MOST));
        cx.set_timer(Repeat(txn), patience);
    }

    fn end(&mut self, txn: TxnId, answer: Answer, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.remove(&txn) else { return };
        self.preferred = running.choice;
        cx.cancel_timer(Repeat(txn));
        let outcome = match answer {
            Answer::Done(Found(stamped)) => {
                let accessed: Accessed = Found(stamped).into();
                cx.output((txn, Output::Accessed(accessed)));
                Outcome::Committed
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

    fn on_message(&mut self, _: NodeId, message: Message, cx: &mut Cx<'_>) {
        if let Message::Reply { request, answer } = message {
            self.end(TxnId(request), answer, cx);
        }
    }

    /// Another replica is asked: the command is recognised if both go on with it.
    fn on_timer(&mut self, Repeat(txn): Repeat, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        running.repeated += 1;
        running.choice = (running.choice + 1) % self.group.size();
        self.send(txn, cx);
    }
}

impl Coordinate for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Access { key, access, token } => {
                let new = || self.clock.next(cx.id(), cx.clock());
                let token = token.map_or_else(new, |token| token.id);
                if access != Access::Read {
                    cx.output((txn, Output::Began(token)));
                }
                let command = Command { token, access };
                let choice = self.preferred;
                self.operations.insert(txn, Running { key, command, repeated: 0, choice });
                self.send(txn, cx);
            }
            Operation::Rollback => {
                let Some(running) = self.operations.remove(&txn) else { return };
                cx.cancel_timer(Repeat(txn));
                let outcome = match running.command.access {
                    Access::Read => Outcome::Aborted { conflicts: Vec::new() },
                    _ => Outcome::Unknown,
                };
                cx.output((txn, Output::Outcome(outcome)));
            }
            _ => unreachable!("a keyspace of registers has no transactions"),
        }
    }
}
