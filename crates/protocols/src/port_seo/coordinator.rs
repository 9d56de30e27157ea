//! The client side: it asks the partitions of a transaction's keys in parallel, and chooses the state that it returns.

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Read, Written};
use serried_model::{Key, NodeId, Snapshots, TxnId, Value, Versionstamp, WriteToken};
use serried_parts::{Tokens, patience_with_leader};

use super::Mutation;
use super::message::{Answer, Found, Message, Request, SEQUENCER, Version, Write};
use super::snapshot::{choose, is_sound, shown, version_at};
use crate::Mutated;

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    tokens: Tokens,
    /// The highest number of which the client knows that it is applied.
    known: u64,
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
    request: Request,
    repeated: u32,
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
    /// This number was applied when the round began.
    since: u64,
    /// By partition, what it has answered in this round.
    answers: BTreeMap<u16, Found>,
    rounds: u32,
    /// How many bytes there were that only serve to find a state.
    metadata_bytes: u32,
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(u64);

type Cx<'a> = Context<'a, Coordinator>;

/// How many bytes a number takes in a message.
fn bytes(number: u64) -> u32 {
    Versionstamp(number).bytes()
}

fn value_bytes(version: &Version) -> u32 {
    let bytes = version.value.as_ref().map_or(0, Value::len);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// How many bytes of an answer are numbers, or values. At most one value of each key is returned.
fn found_bytes(found: &Found) -> u32 {
    let of_mark = |mark: &super::message::Mark| {
        bytes(mark.last) + mark.highest.iter().map(|number| bytes(*number)).sum::<u32>()
    };
    let versions = found.versions.iter().flatten();
    let of_version = |version: &Version| bytes(version.number).saturating_add(value_bytes(version));
    let marks = found.marks.iter().map(of_mark);
    let all = marks.chain(versions.map(of_version));
    all.fold(bytes(found.last) + bytes(found.complete_from), u32::saturating_add)
}

impl Coordinator {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(group: Group, settings: &Settings, mutation: Mutated<Mutation>) -> Coordinator {
        Coordinator {
            group,
            tokens: Tokens::new(settings.outcomes_ms.saturating_mul(1000)),
            known: 0,
            leaders: BTreeMap::new(),
            operations: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_number: 0,
            mutation,
        }
    }

    fn send(&mut self, txn: TxnId, partition: u16, request: Request, cx: &mut Cx<'_>) {
        self.last_number += 1;
        let number = self.last_number;
        self.requests.insert(number, Sent { txn, partition, request, repeated: 0 });
        self.transmit(number, cx);
    }

    fn transmit(&mut self, number: u64, cx: &mut Cx<'_>) {
        let Some(Sent { partition, request, repeated, .. }) = self.requests.get(&number) else {
            return;
        };
        // If no leader is known, the nearest replica passes it on, and then the others are tried.
        let nearest = self.group.choice(*partition, *repeated as usize);
        let to = *self.leaders.get(partition).unwrap_or(&nearest);
        cx.send(to, Message::Request { number, request: request.clone() });
        cx.set_timer(Repeat(number), patience_with_leader(&self.group, *repeated));
    }

    fn read(&mut self, txn: TxnId, keys: Vec<Key>, cx: &mut Cx<'_>) {
        let mut by_partition: BTreeMap<u16, (Vec<Key>, Vec<usize>)> = BTreeMap::new();
        for (place, key) in keys.into_iter().enumerate() {
            let (keys, places) = by_partition.entry(self.group.partition_of(&key)).or_default();
            keys.push(key);
            places.push(place);
        }
        let reading = Reading {
            keys: by_partition,
            since: 0,
            answers: BTreeMap::new(),
            rounds: 0,
            metadata_bytes: 0,
        };
        self.operations.insert(txn, Running::Read(reading));
        self.begin_round(txn, cx);
    }

    fn begin_round(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let known = self.known;
        let Some(Running::Read(reading)) = self.operations.get_mut(&txn) else { return };
        let exact = reading.rounds > 0;
        // Later rounds ask for what the former one has shown. What the client knows by other operations may be in the
        // middle of a batch.
        let since = match exact {
            true => reading.answers.values().map(shown).fold(reading.since, u64::max),
            false => known,
        };
        reading.rounds += 1;
        reading.since = since;
        reading.answers.clear();
        let partitions: Vec<u16> = reading.keys.keys().copied().collect();
        let named: u32 = partitions.iter().map(|partition| bytes((*partition).into())).sum();
        let mut requests = Vec::with_capacity(partitions.len());
        for (partition, (keys, _)) in &reading.keys {
            let (keys, partitions) = (keys.clone(), partitions.clone());
            reading.metadata_bytes = reading.metadata_bytes.saturating_add(bytes(since) + named);
            requests.push((*partition, Request::Read { since, exact, keys, partitions }));
        }
        for (partition, request) in requests {
            self.send(txn, partition, request, cx);
        }
    }

    /// All partitions have answered.
    fn end_round(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running::Read(reading)) = self.operations.get_mut(&txn) else { return };
        let Some(number) = choose(reading.since, &reading.answers, self.mutation) else {
            return self.begin_round(txn, cx);
        };
        let Some(Running::Read(reading)) = self.operations.remove(&txn) else { return };
        let Reading { keys, mut answers, rounds, mut metadata_bytes, .. } = reading;
        let count = keys.values().map(|(_, places)| places.len()).sum();
        let mut all = vec![(None, Versionstamp::ZERO); count];
        for (partition, (_, places)) in keys {
            let versions = answers.remove(&partition).map(|found| found.versions);
            for (place, mut versions) in places.into_iter().zip(versions.into_iter().flatten()) {
                let version = version_at(number, &mut versions).unwrap_or_default();
                // What is returned would be sent by anyone.
                metadata_bytes = metadata_bytes.saturating_sub(value_bytes(&version));
                all[place] = (version.value, Versionstamp(version.number));
            }
        }
        let (at, shown) = (Versionstamp::ZERO, Vec::new());
        let read = Read { found: all, at, shown, rounds, metadata_bytes };
        cx.output((txn, Output::Outcome(Outcome::Read(read))));
    }

    fn write(
        &mut self,
        txn: TxnId,
        write: serried_model::Write,
        token: Option<WriteToken>,
        cx: &mut Cx<'_>,
    ) {
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
        let serried_model::Write { key, value } = write;
        self.operations.insert(txn, Running::Write);
        self.send(txn, SEQUENCER, Request::Write(Write { key, value, token, settled }), cx);
    }

    fn end_write(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_>) {
        // Otherwise it was given up. It may be tried again.
        if self.operations.remove(&txn).is_some() {
            cx.output((txn, Output::Outcome(outcome)));
        }
    }

    /// Whether an answer is one to this request.
    fn fits(sent: &Sent, answer: &Answer) -> bool {
        match (&sent.request, answer) {
            (Request::Read { keys, partitions, .. }, Answer::Found(found)) => {
                is_sound(found, keys.len(), partitions.len())
            }
            (Request::Read { .. }, _) | (Request::Write(_), Answer::Found(_)) => false,
            (Request::Write(_), _) => true,
        }
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        let Message::Reply { number, answer } = message else {
            return cx.reject(|| format!("{from} has sent a client what only replicas are sent"));
        };
        if !self.group.contains(from) {
            return cx.reject(|| format!("{from} has sent what only replicas send"));
        }
        let Some(sent) = self.requests.get(&number) else { return };
        if sent.partition != from.partition() || !Self::fits(sent, &answer) {
            return cx.reject(|| format!("{from} has sent another answer than was asked for"));
        }
        let Some(Sent { txn, partition, request, .. }) = self.requests.remove(&number) else {
            return;
        };
        cx.cancel_timer(Repeat(number));
        self.leaders.insert(partition, from);
        if let Request::Write(write) = &request
            && matches!(self.operations.get(&txn), Some(Running::Write))
        {
            // If it was given up, it may be tried again, and must be remembered until then.
            self.tokens.end(write.token);
        }
        match answer {
            Answer::Found(found) => {
                self.known = self.known.max(shown(&found));
                let Some(Running::Read(reading)) = self.operations.get_mut(&txn) else { return };
                let metadata_bytes = reading.metadata_bytes.saturating_add(found_bytes(&found));
                reading.metadata_bytes = metadata_bytes;
                reading.answers.insert(partition, found);
                if reading.answers.len() == reading.keys.len() {
                    self.end_round(txn, cx);
                }
            }
            Answer::Written { number } => {
                self.known = self.known.max(number);
                let stamp = Versionstamp(number);
                let written = Written { stamp, omitted: false, shown: None };
                self.end_write(txn, Outcome::Written(written), cx);
            }
            Answer::Forgotten => self.end_write(txn, Outcome::Forgotten, cx),
            Answer::ClockSkew { ahead_us } => {
                self.end_write(txn, Outcome::ClockSkew { ahead_us }, cx);
            }
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
            Operation::Read { keys, .. } => self.read(txn, keys, cx),
            Operation::Write { mut writes, token, .. } => {
                let write = writes.pop().expect("sessions write something");
                self.write(txn, write, token, cx);
            }
            Operation::ReadClocks => {
                cx.output((txn, Output::Outcome(Outcome::Clocks(Vec::new()))));
            }
            // There are no other sites.
            Operation::Reach { .. } => cx.output((txn, Output::Outcome(Outcome::NoSuchSite))),
            // The timers of its requests forget them.
            Operation::GiveUp => {
                let outcome = match self.operations.remove(&txn) {
                    Some(Running::Read(_)) => Outcome::NoEffect,
                    Some(Running::Write) => Outcome::Unknown,
                    None => return,
                };
                cx.output((txn, Output::Outcome(outcome)));
            }
        }
    }
}
