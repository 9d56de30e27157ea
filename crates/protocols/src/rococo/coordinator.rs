//! The client side: a coordinator for one client's calls.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::{NodeId, TxnId, Version};
use serried_parts::{VersionClock, patience_with_leader};
use serried_procedures::{
    Call, Datum, Operation, Outcome, Output, ProcedureSet, Procedures, Refused, Registration,
    Results,
};

use super::message::{
    self, AnswerName, CallOf, Found, Inputs, Inquired, Message, NotStarted, Occurrence, Reply,
    Request,
};
use super::reading::{Next, Reading};
use super::registered::Registered;
use super::run::{Requests, Run, Step};
use super::sound;
use super::{Mutation, OF_SETS};
use crate::Mutated;

/// How long ends are collected before partitions are notified.
const TELL_AFTER: Duration = Duration::from_millis(10);

/// After a read-only call had to be ordered, so many calls of its procedure are ordered without trying to read the same twice.
const ORDERED_AT_ONCE: u32 = 15;

/// How long to wait before a call is started again under another set of procedures.
const START_AGAIN: Duration = Duration::from_millis(20);

/// The coordinator of one client's calls.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    mutation: Mutated<Mutation>,
    /// How long partitions may hear nothing of an ordered read-only call that is under way.
    remind_after: Duration,
    clock: VersionClock,
    /// The time from which calls have to begin, in microseconds.
    from_us: u64,
    /// By how much this client's clock is behind that time at least, in microseconds. If nothing made up for it, servers might
    /// have forgotten all calls as old as a new one, and could not say whether it was executed.
    behind_us: u64,
    /// By partition, the replica that has answered last: it leads.
    leaders: BTreeMap<u16, NodeId>,
    /// The set of procedures that is in use, as far as is known.
    set: Option<Arc<Registered>>,
    requests: BTreeMap<TxnId, Running>,
    /// By call, the requests that are about it.
    by_version: BTreeMap<Version, BTreeSet<TxnId>>,
    by_read: BTreeMap<u64, TxnId>,
    reads: u64,
    /// By read-only procedure of which a call had to be ordered: how many calls are ordered at once after that.
    contended: BTreeMap<u16, u32>,
    /// By partition, the calls that were executed everywhere.
    ended: BTreeMap<u16, Vec<Version>>,
}

/// A request of a session.
#[derive(Debug)]
struct Running {
    repeated: u32,
    phase: Phase,
}

/// What a request waits for.
#[derive(Debug)]
enum Phase {
    /// The set of procedures that is in use.
    Waits(Operation),
    /// A call that writes.
    Calls { run: Box<Run>, again: Option<Operation> },
    /// A call that writes nothing, and the attempt to order it.
    Reads { reading: Box<Reading>, ordered: Option<Box<Run>>, again: Operation },
    /// What partitions know of a call.
    Inquires { call: Version, unknown: BTreeMap<u16, u64> },
    /// The registration of a set of procedures in place of the one of this version. `again` is whether it may replace
    /// another one instead.
    Registers { set: Arc<ProcedureSet>, replaces: u64, again: bool },
    /// The set of procedures that is in use, for a session.
    Lists,
}

/// The timers of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Repeat the unanswered messages of a request.
    Repeat(TxnId),
    /// Go on with a read-only call that has paused.
    Resume(TxnId),
    /// Notify partitions of calls that were executed everywhere.
    Tell,
}

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`. `mutation` is the only deliberate mistake in it.
    pub fn new(group: Group, settings: &Settings, mutation: Mutated<Mutation>) -> Coordinator {
        Coordinator {
            group,
            mutation,
            remind_after: Duration::from_millis(settings.recovery_after_ms / 4),
            clock: VersionClock::default(),
            from_us: 0,
            behind_us: 0,
            leaders: BTreeMap::new(),
            set: None,
            requests: BTreeMap::new(),
            by_version: BTreeMap::new(),
            by_read: BTreeMap::new(),
            reads: 0,
            contended: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    fn send(&self, at: u16, request: Request, attempt: u32, cx: &mut Cx<'_>) {
        let any = self.group.choice(at, attempt as usize);
        let to = self.leaders.get(&at).copied().unwrap_or(any);
        cx.send(to, Message::Request(request));
    }

    fn send_all(&self, requests: Requests, attempt: u32, cx: &mut Cx<'_>) {
        for (at, request) in requests {
            self.send(at, request, attempt, cx);
        }
    }

    /// The leader of a partition does not answer. The replica after it is asked next.
    fn suspect(&mut self, at: u16) {
        let all = || (0..self.group.size()).map(|attempt| self.group.choice(at, attempt));
        let silent = self.leaders.get(&at).copied().unwrap_or(self.group.choice(at, 0));
        let place = all().position(|replica| replica == silent).unwrap_or(0);
        self.leaders.insert(at, self.group.choice(at, place + 1));
    }

    /// Begins a request, or begins it again.
    fn begin(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        let Some(known) = self.set.clone() else { return self.wait(txn, operation, cx) };
        match operation {
            Operation::Call { procedure, inputs, .. } => {
                self.call(txn, procedure, inputs, known, cx)
            }
            Operation::Inquire { call } => self.inquire(txn, call, cx),
            Operation::Register { set, replaces } => {
                let (again, replaces) = (replaces.is_none(), replaces.unwrap_or(known.version()));
                let phase = Phase::Registers { set, replaces, again };
                self.requests.insert(txn, Running { repeated: 0, phase });
                self.register(txn, cx);
            }
            Operation::List => self.list(txn, cx),
            Operation::GiveUp => {}
        }
    }

    /// Asks for the set of procedures that is in use.
    fn wait(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        self.requests.insert(txn, Running { repeated: 0, phase: Phase::Waits(operation) });
        self.send(OF_SETS, Request::Set, 0, cx);
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, 0));
    }

    // Calls.

    fn call(
        &mut self,
        txn: TxnId,
        name: Arc<str>,
        inputs: Vec<Datum>,
        set: Arc<Registered>,
        cx: &mut Cx<'_>,
    ) {
        let procedures = &set.set().procedures;
        let Some(at) = procedures.iter().position(|procedure| procedure.name == *name) else {
            let known = procedures.iter().map(|procedure| procedure.name.clone()).collect();
            let version = set.version();
            return self.end(txn, Outcome::NoSuchProcedure { version, known }, cx);
        };
        let procedure = &procedures[at];
        let call = match Call::new(procedure, inputs.clone()) {
            Ok(call) => call,
            Err(wrong) => return self.end(txn, Outcome::InvalidInputs(wrong), cx),
        };
        let again = Operation::Call { procedure: name, inputs, age: None };
        if procedure.is_read_only() {
            let mut reading = Reading::new(at as u16, call, set, self.mutation);
            if let Some(left) = self.contended.get_mut(&(at as u16)).filter(|left| **left > 0) {
                *left -= 1;
                reading = reading.under_contention();
            }
            let reading = Box::new(reading);
            let phase = Phase::Reads { reading, ordered: None, again };
            self.requests.insert(txn, Running { repeated: 0, phase });
            return self.read(txn, cx);
        }
        let inputs = Inputs::new(call.inputs());
        let of = CallOf { set: set.version(), procedure: at as u16, inputs, reads: Vec::new() };
        let version = self.next_version(cx);
        cx.output((txn, Output::Began(version)));
        let run = Run::new(version, Arc::new(of), set, call);
        self.run(txn, run, Some(again), cx);
    }

    /// The version of a new transaction.
    fn next_version(&mut self, cx: &mut Cx<'_>) -> Version {
        let clock = self.clock.next(cx.id(), cx.clock());
        let timestamp_us = (clock.timestamp_us + self.behind_us).max(self.from_us);
        self.from_us = self.from_us.max(timestamp_us + 1);
        Version { timestamp_us, ..clock }
    }

    /// Calls have to begin from this time, in microseconds.
    fn begin_from(&mut self, from_us: u64, cx: &Cx<'_>) {
        self.from_us = self.from_us.max(from_us);
        let behind_us = from_us.saturating_sub(cx.clock().midpoint_us());
        self.behind_us = self.behind_us.max(behind_us);
    }

    fn run(&mut self, txn: TxnId, mut run: Run, again: Option<Operation>, cx: &mut Cx<'_>) {
        self.by_version.entry(run.txn()).or_default().insert(txn);
        let step = run.begin(&self.group);
        let phase = Phase::Calls { run: Box::new(run), again };
        self.requests.insert(txn, Running { repeated: 0, phase });
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, 0));
        self.take(txn, step, cx);
    }

    fn take(&mut self, txn: TxnId, step: Step, cx: &mut Cx<'_>) {
        match step {
            Step::Send(requests) => {
                if !requests.is_empty() {
                    let patience = patience_with_leader(&self.group, 0);
                    cx.set_timer(Timer::Repeat(txn), patience);
                }
                self.send_all(requests, 0, cx);
            }
            Step::Started => {
                let Some(Running { phase: Phase::Reads { reading, ordered, .. }, .. }) =
                    self.requests.get_mut(&txn)
                else {
                    return;
                };
                let found = ordered.as_ref().and_then(|run| run.found());
                if found.is_some_and(|found| reading.on_started(found)) {
                    self.read(txn, cx);
                }
            }
            Step::NotStarted(why) => self.start_again(txn, why, cx),
            Step::Executed(results) => {
                match self.requests.get_mut(&txn).map(|running| &mut running.phase) {
                    Some(Phase::Calls { run, .. }) => {
                        let (set, procedure) = (run.set().clone(), run.procedure());
                        Self::has_ended(&mut self.ended, run, cx);
                        self.end(txn, done(&set, procedure, results), cx);
                    }
                    Some(Phase::Reads { reading, ordered, .. }) => {
                        let Some(run) = ordered.take() else { return };
                        Self::has_ended(&mut self.ended, &run, cx);
                        let version = run.txn();
                        reading.on_ordered(run.into_found());
                        self.forget_version(version, txn);
                        self.read(txn, cx);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A transaction was executed at all of its participants. They are notified some time.
    fn has_ended(ended: &mut BTreeMap<u16, Vec<Version>>, run: &Run, cx: &mut Cx<'_>) {
        if ended.is_empty() {
            cx.set_timer(Timer::Tell, TELL_AFTER);
        }
        for at in run.participants() {
            ended.entry(at).or_default().push(run.txn());
        }
    }

    /// No partition has started the call under its version.
    fn start_again(&mut self, txn: TxnId, why: NotStarted, cx: &mut Cx<'_>) {
        let Some(Running { phase, .. }) = self.forget(txn) else { return };
        let (again, reads) = match phase {
            Phase::Reads { mut reading, ordered: Some(_), again }
                if let NotStarted::Late { from_us } = why =>
            {
                self.begin_from(from_us, cx);
                reading.begin_transaction();
                let phase = Phase::Reads { reading, ordered: None, again };
                self.requests.insert(txn, Running { repeated: 0, phase });
                return self.read(txn, cx);
            }
            Phase::Calls { again, .. } => (again, false),
            Phase::Reads { again, .. } => (Some(again), true),
            _ => (None, false),
        };
        match (why, again) {
            (NotStarted::Late { from_us }, Some(again)) => {
                self.begin_from(from_us, cx);
                self.begin(txn, again, cx);
            }
            (NotStarted::Forgotten, _) if !reads => {
                self.set = None; // With it, the client learns from which time calls have to begin.
                self.end(txn, Outcome::Forgotten, cx);
            }
            (_, None) => self.end(txn, Outcome::Forgotten, cx),
            // What has become of a read-only call does not matter.
            (NotStarted::OtherSet { .. } | NotStarted::Forgotten, Some(again)) => {
                self.set = None;
                let phase = Phase::Waits(again);
                self.requests.insert(txn, Running { repeated: 0, phase });
                cx.set_timer(Timer::Repeat(txn), START_AGAIN);
            }
        }
    }

    // Read-only calls (002 §4.1).

    fn read(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running { phase: Phase::Reads { reading, .. }, .. }) = self.requests.get_mut(&txn)
        else {
            return;
        };
        let next = reading.proceed((&self.group, cx.now()), || {
            self.reads += 1;
            self.by_read.insert(self.reads, txn);
            self.reads
        });
        let requests = match next {
            Next::Read(requests) => requests,
            Next::Start { reads, pieces } => return self.start_reads(txn, reads, pieces, cx),
            Next::Commit => {
                let Some(Running { phase: Phase::Reads { ordered: Some(run), .. }, .. }) =
                    self.requests.get_mut(&txn)
                else {
                    return;
                };
                let step = Step::Send(run.commit());
                return self.take(txn, step, cx);
            }
            Next::End(results) => {
                let (set, procedure) = (reading.set().clone(), reading.procedure());
                return self.end(txn, done(&set, procedure, results), cx);
            }
        };
        if let Some(pause) = reading.pause(&self.group) {
            cx.cancel_timer(Timer::Repeat(txn));
            cx.set_timer(Timer::Resume(txn), pause);
        }
        self.send_reads(txn, requests, cx);
    }

    /// Has pieces of a read-only call started that is ordered among those that write.
    fn start_reads(
        &mut self,
        txn: TxnId,
        reads: Vec<u16>,
        pieces: Vec<(u16, Vec<Occurrence>)>,
        cx: &mut Cx<'_>,
    ) {
        let is_new =
            |running: &Running| matches!(running.phase, Phase::Reads { ordered: None, .. });
        let version = match self.requests.get(&txn).is_some_and(is_new) {
            true => Some(self.next_version(cx)),
            false => None,
        };
        let Some(Running { phase: Phase::Reads { reading, ordered, .. }, .. }) =
            self.requests.get_mut(&txn)
        else {
            return;
        };
        if let Some(version) = version {
            if !reading.is_ordered_at_once() {
                self.contended.insert(reading.procedure(), ORDERED_AT_ONCE);
            }
            let (set, procedure) = (reading.set().clone(), reading.procedure());
            let call = reading.call().clone();
            let inputs = Inputs::new(call.inputs());
            let of = CallOf { set: set.version(), procedure, inputs, reads };
            *ordered = Some(Box::new(Run::ordered(version, Arc::new(of), set, call)));
            self.by_version.entry(version).or_default().insert(txn);
        }
        let Some(run) = ordered else { return };
        let requests = run.start_reads(pieces, cx.now(), self.remind_after);
        self.take(txn, Step::Send(requests), cx);
    }

    fn send_reads(&mut self, txn: TxnId, requests: Requests, cx: &mut Cx<'_>) {
        if !requests.is_empty() {
            cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, 0));
        }
        self.send_all(requests, 0, cx);
    }

    /// The pause of a read-only call is over.
    fn resume(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running { phase: Phase::Reads { reading, .. }, .. }) = self.requests.get_mut(&txn)
        else {
            return;
        };
        let requests = reading.resume(cx.now(), || {
            self.reads += 1;
            self.by_read.insert(self.reads, txn);
            self.reads
        });
        self.send_reads(txn, requests, cx);
    }

    // Inquiries.

    fn inquire(&mut self, txn: TxnId, call: Version, cx: &mut Cx<'_>) {
        let phase = Phase::Inquires { call, unknown: BTreeMap::new() };
        self.requests.insert(txn, Running { repeated: 0, phase });
        self.by_version.entry(call).or_default().insert(txn);
        self.ask(txn, cx);
    }

    fn ask(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running { repeated, phase: Phase::Inquires { call, .. } }) =
            self.requests.get(&txn)
        else {
            return;
        };
        for at in 0..self.group.partitions() {
            self.send(at, Request::Inquire { txn: *call }, *repeated, cx);
        }
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, *repeated));
    }

    fn on_known(&mut self, at: u16, call: Version, known: Inquired, cx: &mut Cx<'_>) {
        for txn in self.about(call) {
            self.on_known_of(txn, at, call, known.clone(), cx);
        }
    }

    fn on_known_of(
        &mut self,
        txn: TxnId,
        at: u16,
        call: Version,
        known: Inquired,
        cx: &mut Cx<'_>,
    ) {
        let Some(Running { phase: Phase::Inquires { unknown, .. }, .. }) =
            self.requests.get_mut(&txn)
        else {
            return;
        };
        match known {
            // It has no effect, however it ends.
            Inquired::Started(of) if of.is_read() => self.end(txn, Outcome::NoEffect, cx),
            Inquired::Started(of) => {
                let Some(set) = self.set.clone().filter(|set| set.version() >= of.set) else {
                    // This client does not know the set yet.
                    self.set = None;
                    return;
                };
                if set.version() > of.set {
                    // It ended under a former set, and its results can't be computed any more.
                    return self.end(txn, Outcome::Forgotten, cx);
                }
                let Some(procedure) = set.procedure(of.procedure) else { return };
                let Some(inputs) = of.inputs.decode() else { return };
                let Ok(new) = Call::new(procedure, inputs) else { return };
                let run = Run::new(call, of, set, new).insisting();
                self.run(txn, run, None, cx);
            }
            Inquired::Forgotten => self.end(txn, Outcome::Forgotten, cx),
            Inquired::Unknown { from_us } => {
                unknown.insert(at, from_us);
                let is_closed = |from_us: &u64| *from_us > call.timestamp_us;
                let all = unknown.len() == usize::from(self.group.partitions());
                if all && unknown.values().all(is_closed) {
                    self.end(txn, Outcome::NoEffect, cx);
                }
            }
        }
    }

    // Sets of procedures.

    fn register(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(Running { repeated, phase: Phase::Registers { set, replaces, .. } }) =
            self.requests.get(&txn)
        else {
            return;
        };
        let (number, set, replaces) = (txn.0, set.clone(), *replaces);
        let request = Request::Register { number, set, replaces: Some(replaces) };
        self.send(OF_SETS, request, *repeated, cx);
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, *repeated));
    }

    fn on_registered(&mut self, txn: TxnId, end: message::Registered, cx: &mut Cx<'_>) {
        let Some(Running { phase: Phase::Registers { set, again, .. }, .. }) =
            self.requests.get(&txn)
        else {
            return;
        };
        if let (true, message::Registered::Superseded { .. }) = (*again, &end) {
            // Each request names the version that it replaces, so that one which arrives late replaces no later one.
            let operation = Operation::Register { set: set.clone(), replaces: None };
            self.set = None;
            self.requests.insert(txn, Running { repeated: 0, phase: Phase::Waits(operation) });
            return cx.set_timer(Timer::Repeat(txn), START_AGAIN);
        }
        let registration = match end {
            message::Registered::InUse { version } => Registration::InUse { version },
            message::Registered::Superseded { version } => Registration::Superseded { version },
            message::Registered::Unfit(why) => Registration::Unfit(why),
        };
        self.set = None;
        self.finish(txn, Output::Registered(registration), cx);
    }

    fn list(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        self.requests.insert(txn, Running { repeated: 0, phase: Phase::Lists });
        self.send(OF_SETS, Request::Set, 0, cx);
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, 0));
    }

    fn on_set(&mut self, at: u16, version: u64, set: Arc<ProcedureSet>, cx: &mut Cx<'_>) {
        if at == OF_SETS && self.set.as_ref().is_none_or(|known| known.version() < version) {
            self.set = Some(Arc::new(Registered::new(version, set.clone())));
        }
        let mut begin = Vec::new();
        for (txn, running) in &mut self.requests {
            match &mut running.phase {
                Phase::Waits(operation) if self.set.is_some() => {
                    begin.push((*txn, operation.clone()));
                }
                Phase::Lists if at == OF_SETS => begin.push((*txn, Operation::List)),
                _ => {}
            }
        }
        for (txn, operation) in begin {
            let running = self.requests.remove(&txn).expect("it waits");
            match (running.phase, operation) {
                (Phase::Lists, _) => self.finish(txn, Output::Set(version, set.clone()), cx),
                (_, operation) => self.begin(txn, operation, cx),
            }
        }
    }

    // Ends.

    fn end(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_>) {
        self.finish(txn, Output::Outcome(outcome), cx);
    }

    fn finish(&mut self, txn: TxnId, output: Output, cx: &mut Cx<'_>) {
        self.forget(txn);
        cx.cancel_timer(Timer::Repeat(txn));
        cx.output((txn, output));
    }

    fn forget(&mut self, txn: TxnId) -> Option<Running> {
        let running = self.requests.remove(&txn)?;
        match &running.phase {
            Phase::Calls { run, .. } => self.forget_version(run.txn(), txn),
            Phase::Inquires { call, .. } => self.forget_version(*call, txn),
            Phase::Reads { reading, ordered, .. } => {
                for number in reading.numbers() {
                    self.by_read.remove(&number);
                }
                if let Some(run) = ordered {
                    self.forget_version(run.txn(), txn);
                }
            }
            Phase::Waits(_) | Phase::Registers { .. } | Phase::Lists => {}
        }
        Some(running)
    }

    fn forget_version(&mut self, call: Version, txn: TxnId) {
        if let Some(requests) = self.by_version.get_mut(&call) {
            requests.remove(&txn);
            if requests.is_empty() {
                self.by_version.remove(&call);
            }
        }
    }

    /// The requests that are about a call.
    fn about(&self, call: Version) -> Vec<TxnId> {
        self.by_version.get(&call).into_iter().flatten().copied().collect()
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.forget(txn) else { return };
        cx.cancel_timer(Timer::Repeat(txn));
        let outcome = match running.phase {
            Phase::Calls { .. } | Phase::Inquires { .. } => Outcome::Unknown,
            Phase::Waits(Operation::Call { .. }) | Phase::Reads { .. } => Outcome::NoEffect,
            Phase::Waits(Operation::Inquire { .. }) => Outcome::Unknown,
            Phase::Waits(_) | Phase::Registers { .. } | Phase::Lists => return,
        };
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        let at = from.partition();
        self.leaders.insert(at, from);
        match reply {
            Reply::Started(_)
            | Reply::NotStarted { .. }
            | Reply::Executed { .. }
            | Reply::Hold(_) => {
                self.on_run(at, reply, cx);
            }
            Reply::Read { number, found, name } => self.on_read(number, found, name, cx),
            Reply::ReadConflict { number, name } => {
                self.on_read_answer(number, |reading| reading.on_conflict(number, name), cx);
            }
            Reply::ReadForgotten { number } => self.on_read_forgotten(number, cx),
            Reply::Set { version, set, from_us } => {
                self.begin_from(from_us, cx);
                self.on_set(at, version, set, cx);
            }
            Reply::Known { txn, known } => self.on_known(at, txn, known, cx),
            Reply::Registered { number, end } => self.on_registered(TxnId(number), end, cx),
            // Only servers ask for these.
            Reply::Status { .. } | Reply::Drained { .. } | Reply::Installed { .. } => {}
        }
    }

    fn on_run(&mut self, at: u16, reply: Reply, cx: &mut Cx<'_>) {
        let Some(call) = reply.call() else { return };
        let mut about = self.about(call);
        // Mostly there is one.
        let Some(last) = about.pop() else { return };
        for txn in about {
            self.on_reply_to(txn, at, reply.clone(), cx);
        }
        self.on_reply_to(last, at, reply, cx);
    }

    fn on_reply_to(&mut self, txn: TxnId, at: u16, reply: Reply, cx: &mut Cx<'_>) {
        let Some(Running { phase, repeated }) = self.requests.get_mut(&txn) else { return };
        let run = match phase {
            Phase::Calls { run, .. } | Phase::Reads { ordered: Some(run), .. } => run,
            _ => return,
        };
        *repeated = 0;
        let step = run.on_reply(at, reply, &self.group);
        self.take(txn, step, cx);
    }

    fn on_read(
        &mut self,
        number: u64,
        found: Result<Vec<Option<Box<Found>>>, NotStarted>,
        name: Option<AnswerName>,
        cx: &mut Cx<'_>,
    ) {
        match found {
            Ok(found) => {
                self.on_read_answer(number, |reading| reading.on_found(number, found, name), cx);
            }
            Err(why) => {
                if let Some(txn) = self.by_read.remove(&number) {
                    self.start_again(txn, why, cx);
                }
            }
        }
    }

    /// A leader has answered a request of a read-only call. `take` returns whether this is an answer to that request.
    fn on_read_answer(
        &mut self,
        number: u64,
        take: impl FnOnce(&mut Reading) -> bool,
        cx: &mut Cx<'_>,
    ) {
        let Some(txn) = self.by_read.get(&number).copied() else { return };
        let Some(Running { phase: Phase::Reads { reading, .. }, repeated }) =
            self.requests.get_mut(&txn)
        else {
            return;
        };
        if take(reading) {
            *repeated = 0;
            self.by_read.remove(&number);
            self.read(txn, cx);
        }
    }

    fn on_read_forgotten(&mut self, number: u64, cx: &mut Cx<'_>) {
        let Some(txn) = self.by_read.remove(&number) else { return };
        let Some(Running { phase: Phase::Reads { reading, .. }, repeated }) =
            self.requests.get_mut(&txn)
        else {
            return;
        };
        *repeated = 0;
        self.reads += 1;
        self.by_read.insert(self.reads, txn);
        let request = reading.on_forgotten(number, self.reads);
        self.send_reads(txn, request.into_iter().collect(), cx);
    }
}

/// The outcome of a call that was executed.
fn done(set: &Registered, procedure: u16, results: Result<Vec<Datum>, Refused>) -> Outcome {
    match results {
        Err(refused) => Outcome::Refused(refused),
        Ok(data) => {
            let returns = set.procedure(procedure).map_or(&[][..], |procedure| &procedure.returns);
            let fields = returns.iter().map(|returned| returned.field.clone()).collect();
            Outcome::Done(Results { fields, data })
        }
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Timer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::Reply(reply) if sound::to_client(from, &reply, &self.group) => {
                self.on_reply(from, reply, cx);
            }
            _ => cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a client")
            }),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        let txn = match timer {
            Timer::Repeat(txn) => txn,
            Timer::Resume(txn) => return self.resume(txn, cx),
            Timer::Tell => {
                for (at, txns) in core::mem::take(&mut self.ended) {
                    self.send(at, Request::End(txns), 0, cx);
                }
                return;
            }
        };
        let Some(running) = self.requests.get_mut(&txn) else { return };
        running.repeated += 1;
        let repeated = running.repeated;
        let requests = match &mut running.phase {
            Phase::Waits(_) | Phase::Lists => vec![(OF_SETS, Request::Set)],
            Phase::Calls { run, .. } => run.unanswered(),
            Phase::Reads { reading, ordered, .. } => {
                let open: Vec<u64> = reading.numbers().collect();
                let mut requests = reading.unanswered();
                if reading.gives_up_predicting() {
                    self.by_read.retain(|number, _| !open.contains(number));
                    for (at, _) in requests {
                        self.suspect(at);
                    }
                    return self.read(txn, cx);
                }
                requests.extend(ordered.iter().flat_map(|run| run.unanswered()));
                requests
            }
            Phase::Inquires { .. } => {
                self.leaders.clear();
                if self.set.is_none() {
                    self.send(OF_SETS, Request::Set, repeated, cx);
                }
                return self.ask(txn, cx);
            }
            Phase::Registers { .. } => {
                self.leaders.clear();
                return self.register(txn, cx);
            }
        };
        for (at, _) in &requests {
            // It may not lead any more.
            self.leaders.remove(at);
        }
        self.send_all(requests, repeated, cx);
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, repeated));
    }
}

impl Coordinate<Procedures> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::GiveUp => self.give_up(txn, cx),
            operation => self.begin(txn, operation, cx),
        }
    }
}
