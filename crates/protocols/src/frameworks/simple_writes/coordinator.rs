//! The client side: it hands requests to the leaders of partitions, and puts the answers together.

use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group};
use serried_model::snapshots::{Operation, Outcome, Output, Read, Shown, Written};
use serried_model::{Key, NodeId, Snapshots, TxnId, Value, Versionstamp, Write, WriteToken};
use serried_parts::patience_with_leader;

use super::Mutation;
use super::message::{Answer, Found, Message, Request};
use super::stamp::Stamp;
use crate::Mutated;

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator<S: Stamp> {
    group: Group,
    /// By partition, the replica that has answered last: it leads.
    leaders: BTreeMap<u16, NodeId>,
    operations: BTreeMap<TxnId, Running<S>>,
    /// Requests that are not answered.
    requests: BTreeMap<u64, Sent<S>>,
    last_number: u64,
    mutation: Mutated<Mutation>,
}

/// A request that is not answered.
#[derive(Debug)]
struct Sent<S: Stamp> {
    txn: TxnId,
    partition: u16,
    request: Request<S>,
    repeated: u32,
}

/// An operation under way.
#[derive(Debug)]
struct Running<S: Stamp> {
    task: Task<S>,
    /// Its requests that are not answered.
    open: usize,
    /// What the version clocks have shown.
    shown: Vec<Shown>,
    /// How many rounds of requests there were.
    rounds: u32,
    /// How many bytes of versionstamps there were.
    metadata_bytes: u32,
}

#[derive(Debug)]
enum Task<S: Stamp> {
    Read {
        keys: Vec<Key>,
        /// The place of each key among those of its partition, with the partition.
        places: Vec<(u16, usize)>,
        /// `None` while it asks what the version clocks show.
        at: Option<Versionstamp>,
        /// By partition.
        found: BTreeMap<u16, Vec<Found<S>>>,
        is_too_old: bool,
    },
    Write {
        key: Key,
        value: Option<Value>,
        /// `None` while it asks what the version clock shows.
        requested: Option<Versionstamp>,
    },
    Clocks,
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repeat(u64);

type Cx<'a, S> = Context<'a, Coordinator<S>>;

impl<S: Stamp> Coordinator<S> {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(group: Group, mutation: Mutated<Mutation>) -> Coordinator<S> {
        Coordinator {
            group,
            leaders: BTreeMap::new(),
            operations: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_number: 0,
            mutation,
        }
    }

    fn transmit(&mut self, number: u64, cx: &mut Cx<'_, S>) {
        let Some(Sent { partition, request, repeated, .. }) = self.requests.get(&number) else {
            return;
        };
        // If no leader is known, the nearest replica passes it on, and then the others are tried.
        let nearest = self.group.choice(*partition, *repeated as usize);
        let to = *self.leaders.get(partition).unwrap_or(&nearest);
        cx.send(to, Message::Request { number, request: request.clone() });
        cx.set_timer(Repeat(number), patience_with_leader(&self.group, *repeated));
    }

    /// Sends the requests of the next round.
    fn begin_round(&mut self, txn: TxnId, cx: &mut Cx<'_, S>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        running.rounds += 1;
        let mut requests: BTreeMap<u16, Request<S>> = BTreeMap::new();
        match &running.task {
            Task::Read { keys, places, at, .. } => {
                for (key, (partition, _)) in keys.iter().zip(places) {
                    match at {
                        None => {
                            requests.insert(*partition, Request::ReadClock);
                        }
                        Some(at) => {
                            let new = || Request::Read { at: S::of(*at), keys: Vec::new() };
                            let request = requests.entry(*partition).or_insert_with(new);
                            if let Request::Read { keys, .. } = request {
                                keys.push(key.clone());
                            }
                        }
                    }
                }
            }
            Task::Write { key, value, requested } => {
                let request = match requested {
                    None => Request::ReadClock,
                    Some(requested) => Request::Write {
                        requested: S::of(*requested),
                        key: key.clone(),
                        value: value.clone(),
                    },
                };
                requests.insert(self.group.partition_of(key), request);
            }
            Task::Clocks => {
                let all = 0..self.group.partitions();
                requests.extend(all.map(|partition| (partition, Request::ReadClock)));
            }
        }
        running.open = requests.len();
        for (partition, request) in requests {
            self.last_number += 1;
            let number = self.last_number;
            self.requests.insert(number, Sent { txn, partition, request, repeated: 0 });
            self.transmit(number, cx);
        }
    }

    fn begin(&mut self, txn: TxnId, task: Task<S>, cx: &mut Cx<'_, S>) {
        let running = Running { task, open: 0, shown: Vec::new(), rounds: 0, metadata_bytes: 0 };
        self.operations.insert(txn, running);
        self.begin_round(txn, cx);
    }

    fn read(&mut self, txn: TxnId, keys: Vec<Key>, at: Option<Versionstamp>, cx: &mut Cx<'_, S>) {
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        let place = |key: &Key| {
            let partition = self.group.partition_of(key);
            let count = counts.entry(partition).or_default();
            *count += 1;
            (partition, *count - 1)
        };
        let places = keys.iter().map(place).collect();
        let at = at.or((!S::VERSIONS).then_some(Versionstamp::ZERO));
        let task = Task::Read { keys, places, at, found: BTreeMap::new(), is_too_old: false };
        self.begin(txn, task, cx);
    }

    fn write(
        &mut self,
        txn: TxnId,
        write: Write,
        at: Option<Versionstamp>,
        token: Option<WriteToken>,
        cx: &mut Cx<'_, S>,
    ) {
        let requested = match (token, S::VERSIONS) {
            (_, false) => Some(Versionstamp::ZERO),
            // It is of a keyspace with another protocol.
            (Some(WriteToken::Named(_) | WriteToken::OfSession(..)), true) => {
                return cx.output((txn, Output::Outcome(Outcome::Forgotten)));
            }
            (Some(WriteToken::Requested(requested)), _) => Some(requested),
            (_, true) => at,
        };
        if let Some(requested) = requested {
            cx.output((txn, Output::Began(WriteToken::Requested(requested))));
        }
        let Write { key, value } = write;
        self.begin(txn, Task::Write { key, value, requested }, cx);
    }

    /// All requests of a round are answered.
    fn end_round(&mut self, txn: TxnId, cx: &mut Cx<'_, S>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let latest = running.shown.iter().map(|(_, shown)| *shown).max().unwrap_or_default();
        match &mut running.task {
            // A session that has heard of nothing begins at what all of these servers have reached.
            Task::Read { at: at @ None, .. } => {
                let least = running.shown.iter().map(|(_, shown)| *shown).min();
                *at = Some(least.unwrap_or_default());
                self.begin_round(txn, cx);
            }
            Task::Read { at: Some(at), found, is_too_old: is_too_old @ true, .. } => {
                *at = latest.max(at.next());
                *is_too_old = false;
                found.clear();
                running.shown.clear();
                self.begin_round(txn, cx);
            }
            Task::Write { requested: requested @ None, .. } => {
                *requested = Some(latest);
                cx.output((txn, Output::Began(WriteToken::Requested(latest))));
                self.begin_round(txn, cx);
            }
            _ => self.finish(txn, cx),
        }
    }

    fn finish(&mut self, txn: TxnId, cx: &mut Cx<'_, S>) {
        let Some(running) = self.operations.remove(&txn) else { return };
        let Running { task, shown, rounds, metadata_bytes, .. } = running;
        let shown = if S::VERSIONS { shown } else { Vec::new() };
        let outcome = match task {
            Task::Read { places, at, mut found, .. } => {
                let at = at.unwrap_or_default();
                let mut take = |(partition, place): (u16, usize)| {
                    let of_partition = found.get_mut(&partition)?.get_mut(place)?;
                    Some((of_partition.value.take(), of_partition.stamp.stamp()))
                };
                let found = places.into_iter().map(|place| take(place).unwrap_or_default());
                let found = found.collect();
                Outcome::Read(Read { found, at, shown, rounds, metadata_bytes })
            }
            Task::Clocks => Outcome::Clocks(shown),
            // Its answer ends it.
            Task::Write { .. } => Outcome::Unknown,
        };
        cx.output((txn, Output::Outcome(outcome)));
    }

    /// Requests a write with a later versionstamp, because it is not known whether it was omitted. A copy of the
    /// earlier request that still arrives takes no effect any more.
    fn request_again(&mut self, sent: &Sent<S>, shown: Versionstamp, cx: &mut Cx<'_, S>) -> bool {
        let txn = sent.txn;
        let Some(Running { task: Task::Write { requested, .. }, .. }) =
            self.operations.get_mut(&txn)
        else {
            return false;
        };
        *requested = Some(shown);
        cx.output((txn, Output::Began(WriteToken::Requested(shown))));
        self.begin_round(txn, cx);
        true
    }

    /// Takes in the answer to a request. Returns false if it is none.
    fn take_in(&mut self, sent: &Sent<S>, answer: Answer<S>, cx: &mut Cx<'_, S>) -> bool {
        let (txn, partition) = (sent.txn, sent.partition);
        let Some(running) = self.operations.get_mut(&txn) else { return true };
        running.metadata_bytes += sent.request.metadata_bytes() + answer.metadata_bytes();
        match (&sent.request, &mut running.task, answer) {
            (
                Request::Read { keys, .. },
                Task::Read { found: all, .. },
                Answer::Values { found, shown },
            ) if found.len() == keys.len() => {
                all.insert(partition, found);
                running.shown.push((partition, shown.stamp()));
            }
            (Request::Read { .. }, Task::Read { is_too_old, .. }, Answer::TooOld { shown })
                if S::VERSIONS =>
            {
                *is_too_old = true;
                running.shown.push((partition, shown.stamp()));
            }
            (Request::ReadClock, _, Answer::Clock(shown)) => {
                running.shown.push((partition, shown.stamp()));
            }
            (Request::Write { .. }, Task::Write { .. }, Answer::Outdated { shown })
                if S::VERSIONS =>
            {
                return self.request_again(sent, shown.stamp(), cx);
            }
            (Request::Write { requested, .. }, _, Answer::Written { stamp, omitted, shown }) => {
                let stamp = stamp.stamp();
                let mut shown = shown.stamp();
                if omitted && self.mutation.is(Mutation::HigherStampNotAdopted) {
                    shown = requested.stamp();
                }
                let shown = S::VERSIONS.then_some((partition, shown));
                self.operations.remove(&txn);
                let written = Written { stamp, omitted, shown };
                cx.output((txn, Output::Outcome(Outcome::Written(written))));
                return true;
            }
            _ => return false,
        }
        running.open -= 1;
        if running.open == 0 {
            self.end_round(txn, cx);
        }
        true
    }
}

impl<S: Stamp> Actor for Coordinator<S> {
    type Message = Message<S>;
    type Timer = Repeat;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message<S>, cx: &mut Cx<'_, S>) {
        let Message::Reply { number, answer } = message else {
            return cx.reject(|| format!("{from} has sent a client what only replicas are sent"));
        };
        if !self.group.contains(from) {
            return cx.reject(|| format!("{from} has sent what only replicas send"));
        }
        let Some(sent) = self.requests.get(&number) else { return };
        if sent.partition != from.partition() {
            return cx.reject(|| format!("{from} has answered what another partition was asked"));
        }
        let Some(sent) = self.requests.remove(&number) else { return };
        cx.cancel_timer(Repeat(number));
        self.leaders.insert(sent.partition, from);
        if !self.take_in(&sent, answer, cx) {
            self.requests.insert(number, sent);
            self.transmit(number, cx);
            cx.reject(|| format!("{from} has sent another answer than was asked for"));
        }
    }

    fn on_timer(&mut self, Repeat(number): Repeat, cx: &mut Cx<'_, S>) {
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

impl<S: Stamp> Coordinate<Snapshots> for Coordinator<S> {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_, S>) {
        match operation {
            Operation::Read { keys, at, .. } => self.read(txn, keys, at, cx),
            Operation::Write { mut writes, at, token, .. } => {
                let write = writes.pop().expect("sessions write something");
                self.write(txn, write, at, token, cx);
            }
            Operation::ReadClocks => {
                self.begin(txn, Task::Clocks, cx);
            }
            // There are no other sites.
            Operation::Reach { .. } => cx.output((txn, Output::Outcome(Outcome::NoSuchSite))),
            // The timers of its requests forget them.
            Operation::GiveUp => {
                let Some(running) = self.operations.remove(&txn) else { return };
                let outcome = match running.task {
                    Task::Write { requested: Some(_), .. } => Outcome::Unknown,
                    _ => Outcome::NoEffect,
                };
                cx.output((txn, Output::Outcome(outcome)));
            }
        }
    }
}
