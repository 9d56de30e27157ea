//! The client side: it reads in rounds, and hands writes to the leaders.

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Read, Written};
use serried_model::{Access, Key, NodeId, Snapshots, TxnId, Versionstamp, WriteToken};
use serried_parts::{Stamped, Tokens, patience_with_leader};

use super::{Message, Mutation};
use crate::Mutated;
use crate::frameworks::replicated_objects::{self, Answer, Request};

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    tokens: Tokens,
    /// By partition, the replica that has answered last: it leads.
    leaders: BTreeMap<u16, NodeId>,
    operations: BTreeMap<TxnId, Running>,
    /// Requests that are not answered.
    requests: BTreeMap<u64, Sent>,
    last_number: u64,
    mutation: Mutated<Mutation>,
}

/// A request that is not answered.
#[derive(Debug)]
struct Sent {
    txn: TxnId,
    partition: u16,
    asked: Asked,
    repeated: u32,
}

#[derive(Clone, Debug)]
enum Asked {
    Read(Vec<Key>),
    Write(Request<Access>),
}

/// An operation under way.
#[derive(Debug)]
enum Running {
    Read(Reading),
    Write,
}

#[derive(Debug)]
struct Reading {
    /// By partition, its keys, and where they are among all.
    keys: BTreeMap<u16, (Vec<Key>, Vec<usize>)>,
    /// What the round before has found, by the places of all keys.
    before: Option<Vec<Stamped>>,
    found: Vec<Stamped>,
    /// How many partitions have not answered.
    open: usize,
    rounds: u32,
    /// How many bytes of versions there were.
    metadata_bytes: u32,
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(u64);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(group: Group, settings: &Settings, mutation: Mutated<Mutation>) -> Coordinator {
        Coordinator {
            group,
            tokens: Tokens::new(settings.outcomes_ms * 1000),
            leaders: BTreeMap::new(),
            operations: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_number: 0,
            mutation,
        }
    }

    fn send(&mut self, txn: TxnId, partition: u16, mut asked: Asked, cx: &mut Cx<'_>) {
        self.last_number += 1;
        let number = self.last_number;
        if let Asked::Write(request) = &mut asked {
            request.number = number;
        }
        self.requests.insert(number, Sent { txn, partition, asked, repeated: 0 });
        self.transmit(number, cx);
    }

    fn transmit(&mut self, number: u64, cx: &mut Cx<'_>) {
        let Some(Sent { partition, asked, repeated, .. }) = self.requests.get(&number) else {
            return;
        };
        // If no leader is known, the nearest replica passes it on, and then the others are tried.
        let nearest = self.group.choice(*partition, *repeated as usize);
        let to = *self.leaders.get(partition).unwrap_or(&nearest);
        let message = match asked.clone() {
            Asked::Read(keys) => Message::Read(replicated_objects::Read { number, keys }),
            Asked::Write(request) => Message::Request(request),
        };
        cx.send(to, message);
        cx.set_timer(Repeat(number), patience_with_leader(&self.group, *repeated));
    }

    fn begin_round(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running::Read(reading)) = self.operations.get_mut(&txn) else { return };
        reading.rounds += 1;
        reading.open = reading.keys.len();
        let requests: Vec<_> =
            reading.keys.iter().map(|(partition, (keys, _))| (*partition, keys.clone())).collect();
        for (partition, keys) in requests {
            self.send(txn, partition, Asked::Read(keys), cx);
        }
    }

    /// All partitions have answered: done if they have found the same as in the round before.
    fn end_round(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running::Read(reading)) = self.operations.get_mut(&txn) else { return };
        let is_same =
            |one: &Stamped, other: &Stamped| match self.mutation.is(Mutation::ComparesValues) {
                true => one.value == other.value,
                false => one.carstamp == other.carstamp,
            };
        let is_valid = self.mutation.is(Mutation::ValidationLeftOut)
            || reading.before.as_ref().is_some_and(|before| {
                before.iter().zip(&reading.found).all(|(one, other)| is_same(one, other))
            });
        if !is_valid {
            reading.before = Some(reading.found.clone());
            return self.begin_round(txn, cx);
        }
        let Some(Running::Read(reading)) = self.operations.remove(&txn) else { return };
        let found = reading.found.into_iter().map(|Stamped { value, carstamp }| {
            let version = Versionstamp(carstamp.timestamp);
            (value, version)
        });
        let outcome = Outcome::Read(Read {
            found: found.collect(),
            at: Versionstamp::ZERO,
            shown: Vec::new(),
            rounds: reading.rounds,
            metadata_bytes: reading.metadata_bytes,
        });
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn end_write(&mut self, txn: TxnId, answer: Answer<Stamped>, cx: &mut Cx<'_>) {
        self.operations.remove(&txn);
        let outcome = match answer {
            Answer::Done(Stamped { carstamp, .. }) => {
                let stamp = Versionstamp(carstamp.timestamp);
                Outcome::Written(Written { stamp, omitted: false, shown: None })
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
        let number = match &message {
            Message::Reply { request, .. } => *request,
            Message::Found { number, .. } => *number,
            _ => {
                return cx.reject(|| format!("{from} has sent a client what only replicas get"));
            }
        };
        let Some(sent) = self.requests.get(&number) else { return };
        let fits = sent.partition == from.partition()
            && match (&sent.asked, &message) {
                (Asked::Read(keys), Message::Found { found, .. }) => keys.len() == found.len(),
                (Asked::Write(_), Message::Reply { .. }) => true,
                _ => false,
            };
        if !fits {
            return cx.reject(|| format!("{from} has sent another answer than was asked for"));
        }
        let Some(Sent { txn, partition, asked, .. }) = self.requests.remove(&number) else {
            return;
        };
        cx.cancel_timer(Repeat(number));
        self.leaders.insert(partition, from);
        match (self.operations.get_mut(&txn), message) {
            (Some(Running::Read(reading)), Message::Found { found, .. }) => {
                let (_, places) = &reading.keys[&partition];
                for (place, found) in places.iter().zip(found) {
                    reading.metadata_bytes += Versionstamp(found.carstamp.timestamp).bytes();
                    reading.found[*place] = found;
                }
                reading.open -= 1;
                if reading.open == 0 {
                    self.end_round(txn, cx);
                }
            }
            (Some(Running::Write), Message::Reply { answer, .. }) => {
                if let Asked::Write(request) = &asked {
                    self.tokens.end(request.token);
                }
                self.end_write(txn, answer, cx);
            }
            // It was given up. If it is a write, it may be tried again.
            _ => {}
        }
    }

    fn on_timer(&mut self, Repeat(number): Repeat, cx: &mut Cx<'_>) {
        let Some(sent) = self.requests.get_mut(&number) else { return };
        if !self.operations.contains_key(&sent.txn) {
            self.requests.remove(&number);
            return;
        }
        sent.repeated += 1;
        // It may not lead any more.
        self.leaders.remove(&sent.partition);
        self.transmit(number, cx);
    }
}

impl Coordinate<Snapshots> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Read { keys, .. } => {
                let mut by_partition: BTreeMap<u16, (Vec<Key>, Vec<usize>)> = BTreeMap::new();
                let count = keys.len();
                for (place, key) in keys.into_iter().enumerate() {
                    let partition = self.group.partition_of(&key);
                    let (keys, places) = by_partition.entry(partition).or_default();
                    keys.push(key);
                    places.push(place);
                }
                let reading = Reading {
                    keys: by_partition,
                    before: None,
                    found: vec![Stamped::default(); count],
                    open: 0,
                    rounds: 0,
                    metadata_bytes: 0,
                };
                self.operations.insert(txn, Running::Read(reading));
                self.begin_round(txn, cx);
            }
            Operation::Write { mut writes, token, .. } => {
                let write = writes.pop().expect("sessions write something");
                let token = match token {
                    Some(WriteToken::Named(id)) => id,
                    // It is of a keyspace with another protocol.
                    Some(WriteToken::Requested(_) | WriteToken::OfSession(..)) => {
                        return cx.output((txn, Output::Outcome(Outcome::Forgotten)));
                    }
                    None => self.tokens.next(cx.id(), cx.clock()),
                };
                cx.output((txn, Output::Began(WriteToken::Named(token))));
                let settled = self.tokens.begin(token, cx.id(), cx.clock());
                let (partition, key) = (self.group.partition_of(&write.key), write.key);
                let operation = Access::Write(write.value);
                self.operations.insert(txn, Running::Write);
                let request = Request { number: 0, key, token, settled, operation };
                self.send(txn, partition, Asked::Write(request), cx);
            }
            Operation::ReadClocks => {
                cx.output((txn, Output::Outcome(Outcome::Clocks(Vec::new()))));
            }
            // There are no other sites.
            Operation::Reach { .. } => cx.output((txn, Output::Outcome(Outcome::NoSuchSite))),
            // The timers of its requests forget them.
            Operation::GiveUp => {
                let outcome = match self.operations.remove(&txn) {
                    Some(Running::Read(Reading { rounds, .. })) if rounds > 2 => {
                        Outcome::Contended { rounds }
                    }
                    Some(Running::Read(_)) => Outcome::NoEffect,
                    Some(Running::Write) => Outcome::Unknown,
                    None => return,
                };
                cx.output((txn, Output::Outcome(outcome)));
            }
        }
    }
}
