//! The client side: it hands requests to the leaders of partitions, and puts the answers together.

mod known;
mod reading;
mod writing;

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::snapshots::{Operation, Outcome, Output, Written};
use serried_model::{Key, NodeId, Snapshots, TxnId, Versionstamp};
use serried_parts::patience_with_leader;

use super::Mutation;
use super::message::{Answer, Message, Request};
use crate::Mutated;
use known::Known;
use reading::Reading;
use writing::Writing;

/// How long a read waits before it tries again, if what it has to read is not kept any more.
const PAUSE: Duration = Duration::from_millis(5);

/// How a client reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// In one round, as of a time that all partitions have made safe (Eiger-PORT).
    AtSafeTime,
    /// In one to three rounds, as of the latest time that fits what the first one finds (Eiger).
    Optimistically,
}

/// One client's operations.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    reads: Reads,
    /// By partition, the replica that has answered last: it leads.
    leaders: BTreeMap<u16, NodeId>,
    operations: BTreeMap<TxnId, Running>,
    /// Requests that are not answered.
    requests: BTreeMap<u64, Sent>,
    last_number: u64,
    known: Known,
    settings: Settings,
    mutation: Mutated<Mutation>,
}

/// A request that is not answered.
#[derive(Debug)]
struct Sent {
    /// `None` if it only refreshes what is known of a clock.
    txn: Option<TxnId>,
    partition: u16,
    request: Request,
    repeated: u32,
    /// It is sent when its timer goes off.
    waits: bool,
}

/// An operation under way.
#[derive(Debug)]
struct Running {
    task: Task,
    /// The era that its session has seen, or else that of the first answer.
    era: Option<u32>,
    /// Whether it is that of the session.
    is_pinned: bool,
    /// Its requests that are not answered.
    open: usize,
    /// How many rounds of requests there were.
    rounds: u32,
    /// How many bytes only coordinate it.
    metadata_bytes: u32,
}

#[derive(Debug)]
enum Task {
    Read(Reading),
    Write(Writing),
    Clocks,
    Reach(u16, Versionstamp, Option<u32>),
}

/// Repeats a request that was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timer(u64);

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`, which does nothing wrong but `mutation`.
    pub fn new(
        group: Group,
        settings: &Settings,
        reads: Reads,
        mutation: Mutated<Mutation>,
    ) -> Coordinator {
        Coordinator {
            group,
            reads,
            leaders: BTreeMap::new(),
            operations: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_number: 0,
            known: Known::default(),
            settings: *settings,
            mutation,
        }
    }

    fn send(&mut self, txn: Option<TxnId>, partition: u16, request: Request, cx: &mut Cx<'_>) {
        self.last_number += 1;
        let number = self.last_number;
        self.requests.insert(number, Sent { txn, partition, request, repeated: 0, waits: false });
        self.transmit(number, cx);
    }

    /// Asks for the clocks of all partitions after a pause, as part of an operation.
    fn ask_for_clocks_later(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        running.rounds += 1;
        running.open = usize::from(self.group.partitions());
        for partition in self.group.all_partitions() {
            self.last_number += 1;
            let request = Request::ReadClock;
            let sent = Sent { txn: Some(txn), partition, request, repeated: 0, waits: true };
            self.requests.insert(self.last_number, sent);
            cx.set_timer(Timer(self.last_number), PAUSE);
        }
    }

    fn transmit(&mut self, number: u64, cx: &mut Cx<'_>) {
        let Some(Sent { partition, request, repeated, .. }) = self.requests.get(&number) else {
            return;
        };
        // If no leader is known, the nearest replica passes it on, and then the others are tried.
        let nearest = self.group.choice(*partition, *repeated as usize);
        let to = *self.leaders.get(partition).unwrap_or(&nearest);
        let clock = self.known.estimate(cx.now());
        cx.send(to, Message::Request { number, clock, request: request.clone() });
        cx.set_timer(Timer(number), patience_with_leader(&self.group, *repeated));
    }

    /// Begins another round of an operation.
    fn begin_round(&mut self, txn: TxnId, requests: Vec<(u16, Request)>, cx: &mut Cx<'_>) {
        let Some(running) = self.operations.get_mut(&txn) else { return };
        running.rounds += 1;
        running.open = requests.len();
        for (partition, request) in requests {
            self.send(Some(txn), partition, request, cx);
        }
    }

    fn begin(&mut self, txn: TxnId, task: Task, era: Option<u32>, cx: &mut Cx<'_>) {
        let is_pinned = era.is_some();
        let running = Running { task, era, is_pinned, open: 0, rounds: 0, metadata_bytes: 0 };
        self.operations.insert(txn, running);
        self.go_on(txn, cx);
    }

    /// All requests of a round are answered, or there was none yet.
    fn go_on(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        match self.operations.get(&txn).map(|running| &running.task) {
            Some(Task::Read(_)) => self.go_on_reading(txn, cx),
            Some(Task::Write(_)) => self.go_on_writing(txn, cx),
            Some(Task::Clocks) if self.operations[&txn].rounds == 0 => {
                let all = self.group.all_partitions();
                let requests = all.map(|partition| (partition, Request::ReadClock)).collect();
                self.begin_round(txn, requests, cx);
            }
            Some(Task::Reach(site, stamp, era)) if self.operations[&txn].rounds == 0 => {
                let request = Request::Reach { site: *site, stamp: *stamp, era: *era };
                let all = self.group.all_partitions();
                let requests = all.map(|partition| (partition, request.clone())).collect();
                self.begin_round(txn, requests, cx);
            }
            Some(Task::Clocks | Task::Reach(..)) => {
                self.finish(txn, Outcome::Clocks(self.known.shown()), cx);
            }
            None => {}
        }
    }

    fn finish(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_>) {
        let era = self.operations.remove(&txn).and_then(|running| running.era);
        self.tell(txn, era, outcome, cx);
    }

    fn tell(&self, txn: TxnId, era: Option<u32>, outcome: Outcome, cx: &mut Cx<'_>) {
        if let Some(era) = era.filter(|_| self.group.sites() > 1) {
            cx.output((txn, Output::Era(era)));
        }
        cx.output((txn, Output::Outcome(outcome)));
    }

    /// The site has been rebuilt from others since an operation has begun, or since its session has seen something.
    /// Returns whether the operation goes on with the answer that says so.
    fn on_rebuilt(&mut self, txn: TxnId, era: u32, cx: &mut Cx<'_>) -> bool {
        let Some(running) = self.operations.get_mut(&txn) else { return false };
        match &mut running.task {
            // It had committed before.
            Task::Write(Writing { commit: Some(_), .. }) => {
                self.forget_requests(txn);
                self.go_on_writing(txn, cx);
                return false;
            }
            _ if running.is_pinned => {
                running.era = Some(era);
                self.forget_requests(txn);
                self.finish(txn, Outcome::Rebuilt, cx);
                return false;
            }
            // The answer says what has become of it.
            Task::Write(writing) if writing.has_begun() => {
                running.era = Some(era);
                return true;
            }
            Task::Read(reading) => reading.begin_again(),
            Task::Write(_) | Task::Clocks | Task::Reach(..) => running.rounds = 0,
        }
        running.era = Some(era);
        self.forget_requests(txn);
        self.go_on(txn, cx);
        false
    }

    /// The requests of these partitions that ask for their clocks.
    fn clocks(partitions: impl Iterator<Item = u16>) -> Vec<(u16, Request)> {
        partitions.map(|partition| (partition, Request::ReadClock)).collect()
    }

    /// How often the site had been rebuilt when it sent this.
    fn era_of(&self, answer: &Answer) -> u32 {
        match self.mutation.is(Mutation::ErasNotChecked) {
            true => 0,
            false => answer.clock().era,
        }
    }

    /// Takes in the answer to a request. Returns false if it is none.
    fn take_in(&mut self, sent: &Sent, answer: Answer, cx: &mut Cx<'_>) -> bool {
        self.known.saw(sent.partition, answer.clock(), cx.now());
        let Some(txn) = sent.txn else { return matches!(answer, Answer::Clock(_)) };
        let era = self.era_of(&answer);
        let Some(running) = self.operations.get_mut(&txn) else { return true };
        if *running.era.get_or_insert(era) < era && !self.on_rebuilt(txn, era, cx) {
            return true;
        }
        if matches!(answer, Answer::Rebuilt { .. }) {
            let fits = matches!(sent.request, Request::Reach { .. });
            if fits {
                self.forget_requests(txn);
                self.finish(txn, Outcome::Rebuilt, cx);
            }
            return fits;
        }
        let estimate = self.known.estimate(cx.now());
        let Some(running) = self.operations.get_mut(&txn) else { return true };
        running.metadata_bytes +=
            sent.request.metadata_bytes() + estimate.bytes() + answer.metadata_bytes();
        let fits = match (&mut running.task, &sent.request, answer) {
            (_, Request::ReadClock | Request::Reach { .. }, Answer::Clock(_)) => true,
            (Task::Read(reading), request, answer) => {
                reading.take_in(sent.partition, request, answer)
            }
            (Task::Write(_), Request::Write { .. }, answer) => {
                return self.take_in_written(txn, answer, cx);
            }
            _ => false,
        };
        if !fits {
            return false;
        }
        running.open -= 1;
        if running.open == 0 {
            self.go_on(txn, cx);
        }
        true
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Timer;
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
        if sent.partition != from.partition() {
            return cx.reject(|| format!("{from} has answered what another partition was asked"));
        }
        if !Known::is_sound(answer.clock()) {
            return cx.reject(|| format!("{from} says that its site was rebuilt impossibly often"));
        }
        // A replica that does not know that its site was lost, and is still running. It does not lead any more.
        let era = sent.txn.and_then(|txn| self.operations.get(&txn)?.era);
        if era.is_some_and(|era| era > self.era_of(&answer)) {
            return;
        }
        let Some(sent) = self.requests.remove(&number) else { return };
        cx.cancel_timer(Timer(number));
        self.leaders.insert(sent.partition, from);
        if !self.take_in(&sent, answer, cx) {
            self.requests.insert(number, sent);
            self.transmit(number, cx);
            cx.reject(|| format!("{from} has sent another answer than was asked for"));
        }
    }

    fn on_timer(&mut self, Timer(number): Timer, cx: &mut Cx<'_>) {
        let Some(sent) = self.requests.get_mut(&number) else { return };
        if core::mem::take(&mut sent.waits) {
            return self.transmit(number, cx);
        }
        // It may not lead any more.
        self.leaders.remove(&sent.partition);
        if sent.txn.is_none_or(|txn| !self.operations.contains_key(&txn)) {
            if sent.txn.is_none() {
                self.known.gave_up(sent.partition);
            }
            self.requests.remove(&number);
            return;
        }
        sent.repeated += 1;
        self.transmit(number, cx);
    }
}

/// By partition, its keys, and where they are among all.
type Places = BTreeMap<u16, (Vec<Key>, Vec<usize>)>;

impl Coordinate<Snapshots> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Read { keys, at, own } => {
                let reading = Reading::new(keys, at.unwrap_or_default(), own, &self.group);
                self.begin(txn, Task::Read(reading), own.era, cx);
            }
            Operation::Write { writes, at, session, era, token } => {
                match Writing::new(writes, at.unwrap_or_default(), session, token, &self.group) {
                    Ok(writing) => self.begin(txn, Task::Write(writing), era, cx),
                    // It is of a keyspace with another protocol.
                    Err(outcome) => cx.output((txn, Output::Outcome(outcome))),
                }
            }
            Operation::ReadClocks => self.begin(txn, Task::Clocks, None, cx),
            Operation::Reach { site, .. }
                if site == self.group.site() || site >= self.group.sites() =>
            {
                cx.output((txn, Output::Outcome(Outcome::NoSuchSite)));
            }
            Operation::Reach { site, stamp, era } => {
                self.begin(txn, Task::Reach(site, stamp, era), None, cx);
            }
            // The timers of its requests forget them.
            Operation::GiveUp => {
                let Some(running) = self.operations.remove(&txn) else { return };
                let outcome = match running.task {
                    Task::Write(Writing { commit: Some(commit), .. }) => {
                        Outcome::Written(Written { stamp: commit, omitted: false, shown: None })
                    }
                    Task::Write(writing) if writing.has_begun() => Outcome::Unknown,
                    Task::Read(_) if running.rounds > 3 => {
                        Outcome::Contended { rounds: running.rounds }
                    }
                    _ => Outcome::NoEffect,
                };
                self.tell(txn, running.era, outcome, cx);
            }
        }
    }
}
