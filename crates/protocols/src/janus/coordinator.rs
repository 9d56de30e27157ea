//! The client side: a coordinator for one client's calls.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Actor, Context, Coordinate, Settings};
use serried_model::{NodeId, TxnId, Version};
use serried_parts::{VersionClock, patience_with_proxy};
use serried_procedures::{
    Call, Datum, Operation, Outcome, Output, PieceId, ProcedureSet, Procedures, Registration,
    Results as CallResults,
};

use super::in_use::InUse;
use super::members::Members;
use super::message::{
    self, Ballot, CallOf, End, Message, NotAccepted, PieceResult, Reply, Request, Results, Task,
    Work,
};
use super::run::{Requests, Run, Step};
use super::{OF_SETS, sound};

/// How long to wait before a call is started again under another set of procedures.
const START_AGAIN: Duration = Duration::from_millis(20);

/// The coordinator of one client's calls.
#[derive(Debug)]
pub struct Coordinator {
    members: Members,
    clock: VersionClock,
    /// The time from which calls have to begin, in microseconds.
    from_us: u64,
    /// The set of procedures that is in use, as far as is known.
    set: Option<Arc<InUse>>,
    /// Sets of earlier versions are out of date.
    set_from: u64,
    requests: BTreeMap<TxnId, Running>,
    /// By transaction, the requests that are about it.
    by_version: BTreeMap<Version, BTreeSet<TxnId>>,
    /// The replicas that have not answered in time, and have not answered since.
    slow: BTreeSet<NodeId>,
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
    /// A call or a registration, and what it can be started again from.
    Runs { run: Box<Run>, set: Option<Arc<InUse>>, again: Option<Operation> },
    /// The set of procedures that is in use, for a session, as replicas have reported it.
    Lists(BTreeMap<NodeId, (u64, Arc<ProcedureSet>)>),
}

/// The timers of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Repeat the unanswered messages of a request.
    Repeat(TxnId),
}

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`.
    pub fn new(members: Members, _settings: &Settings) -> Coordinator {
        Coordinator {
            members,
            clock: VersionClock::default(),
            from_us: 0,
            set: None,
            set_from: 0,
            requests: BTreeMap::new(),
            by_version: BTreeMap::new(),
            slow: BTreeSet::new(),
        }
    }

    fn send_all(&self, requests: Requests, cx: &mut Cx<'_>) {
        for (to, request) in requests {
            cx.send(to, Message::Request(request));
        }
    }

    /// Asks for the set of procedures that is in use.
    fn ask_for_set(&self, cx: &mut Cx<'_>) {
        for to in self.members.of(OF_SETS) {
            cx.send(to, Message::Request(Request::Set));
        }
    }

    fn repeat_later(&self, txn: TxnId, repeated: u32, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Repeat(txn), patience_with_proxy(self.members.group(), repeated));
    }

    /// Begins a request, or begins it again.
    fn begin(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        let Some(known) = self.set.clone() else { return self.wait(txn, operation, cx) };
        self.begin_under((known, false), txn, operation, cx);
    }

    /// Begins a request. If the set is not the last one, a call that does not fit it waits for that.
    fn begin_under(
        &mut self,
        (known, is_last): (Arc<InUse>, bool),
        txn: TxnId,
        operation: Operation,
        cx: &mut Cx<'_>,
    ) {
        match operation {
            Operation::Call { procedure, inputs, .. } => {
                self.call(txn, procedure, inputs, (known, is_last), cx);
            }
            Operation::Inquire { call } => {
                let all = 0..self.members.partitions();
                let ballot = self.next_ballot(Ballot::FIRST, cx);
                let run = Run::unknown(call, all, ballot, &self.slow);
                self.run(txn, run, None, None, cx);
            }
            Operation::Register { set, replaces } => {
                let again = Operation::Register { set: set.clone(), replaces };
                // Each request names the version that it replaces, so that one which arrives late replaces no later one.
                let replaces = replaces.unwrap_or(known.version());
                let participants = (0..self.members.partitions()).collect();
                let work = Work { participants, task: Task::Register { set, replaces } };
                let version = self.next_version(cx);
                let run = Run::new(version, Arc::new(work), &self.slow);
                self.run(txn, run, None, Some(again), cx);
            }
            Operation::List => {
                let phase = Phase::Lists(BTreeMap::new());
                self.requests.insert(txn, Running { repeated: 0, phase });
                self.ask_for_set(cx);
                self.repeat_later(txn, 0, cx);
            }
            Operation::GiveUp => {}
        }
    }

    /// Asks for the set of procedures that is in use.
    fn wait(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        self.requests.insert(txn, Running { repeated: 0, phase: Phase::Waits(operation) });
        self.ask_for_set(cx);
        self.repeat_later(txn, 0, cx);
    }

    fn next_version(&mut self, cx: &mut Cx<'_>) -> Version {
        let clock = self.clock.next(cx.id(), cx.clock());
        let timestamp_us = clock.timestamp_us.max(self.from_us);
        self.from_us = self.from_us.max(timestamp_us + 1);
        Version { timestamp_us, ..clock }
    }

    /// A ballot of this client alone, later than another one.
    fn next_ballot(&mut self, after: Ballot, cx: &mut Cx<'_>) -> Ballot {
        let number = self.next_version(cx).timestamp_us.max(after.number + 1);
        self.from_us = self.from_us.max(number + 1);
        Ballot { number, by: cx.id() }
    }

    // Calls.

    fn call(
        &mut self,
        txn: TxnId,
        name: Arc<str>,
        inputs: Vec<Datum>,
        (set, is_last): (Arc<InUse>, bool),
        cx: &mut Cx<'_>,
    ) {
        let procedures = &set.set().procedures;
        let at = procedures.iter().position(|procedure| *procedure.name == *name);
        let call = at.map(|at| (at, Call::new(&procedures[at], inputs.clone())));
        let at = match call {
            Some((at, Ok(_))) => at,
            None | Some((_, Err(_))) if !is_last => {
                let again = Operation::Call { procedure: name, inputs, age: None };
                return self.wait(txn, again, cx);
            }
            Some((_, Err(wrong))) => return self.end(txn, Outcome::InvalidInputs(wrong), cx),
            None => {
                let known = procedures.iter().map(|procedure| procedure.name.clone()).collect();
                let version = set.version();
                return self.end(txn, Outcome::NoSuchProcedure { version, known }, cx);
            }
        };
        let of = CallOf { set: set.version(), procedure: at as u16, inputs: inputs.clone() };
        let participants = set.participants(&of, self.members.group());
        let version = self.next_version(cx);
        cx.output((txn, Output::Began(version)));
        let work = Work { participants, task: Task::Call(of) };
        let run = Run::new(version, Arc::new(work), &self.slow);
        let again = Operation::Call { procedure: name, inputs, age: None };
        self.run(txn, run, Some(set), Some(again), cx);
    }

    fn run(
        &mut self,
        txn: TxnId,
        run: Run,
        set: Option<Arc<InUse>>,
        again: Option<Operation>,
        cx: &mut Cx<'_>,
    ) {
        self.by_version.entry(run.txn()).or_default().insert(txn);
        let step = run.begin(&self.members);
        let phase = Phase::Runs { run: Box::new(run), set, again };
        self.requests.insert(txn, Running { repeated: 0, phase });
        self.repeat_later(txn, 0, cx);
        self.take(txn, step, cx);
    }

    fn take(&mut self, txn: TxnId, step: Step, cx: &mut Cx<'_>) {
        match step {
            Step::Send(requests) => {
                if !requests.is_empty() {
                    self.repeat_later(txn, 0, cx);
                }
                self.send_all(requests, cx);
            }
            Step::NotAccepted(why) => self.on_not_accepted(txn, why, cx),
            Step::Executed(end, results) => self.on_executed(txn, end, results, cx),
        }
    }

    /// No partition has taken the transaction on.
    fn on_not_accepted(&mut self, txn: TxnId, why: NotAccepted, cx: &mut Cx<'_>) {
        let Some(Running { phase, .. }) = self.forget(txn) else { return };
        let (again, set) = match phase {
            Phase::Runs { again, set, .. } => (again, set),
            Phase::Waits(_) | Phase::Lists(_) => (None, None),
        };
        match (why, again) {
            (NotAccepted::Late { from_us }, Some(again)) => {
                self.from_us = self.from_us.max(from_us);
                self.begin(txn, again, cx);
            }
            (NotAccepted::OtherSet, Some(again)) => {
                let from = set.map_or(0, |set| set.version() + 1);
                self.begin_later(txn, again, from, cx);
            }
            (_, Some(again @ Operation::Register { .. })) => self.begin(txn, again, cx),
            _ => self.end(txn, Outcome::Forgotten, cx),
        }
    }

    /// Sets of procedures before this version are out of date.
    fn outdate_sets(&mut self, from: u64) {
        self.set_from = self.set_from.max(from);
        self.set = self.set.take().filter(|set| set.version() >= self.set_from);
    }

    /// Begins a request again when a set of procedures is known that is of this version or later.
    fn begin_later(&mut self, txn: TxnId, operation: Operation, from: u64, cx: &mut Cx<'_>) {
        self.outdate_sets(from);
        let phase = Phase::Waits(operation);
        self.requests.insert(txn, Running { repeated: 0, phase });
        cx.set_timer(Timer::Repeat(txn), START_AGAIN);
    }

    fn on_executed(
        &mut self,
        txn: TxnId,
        end: Option<End>,
        results: Vec<Results>,
        cx: &mut Cx<'_>,
    ) {
        let Some(Running { phase, .. }) = self.forget(txn) else { return };
        let Phase::Runs { run, set, again } = phase else { return };
        if end == Some(End::Void) {
            return match again {
                Some(again) => self.begin(txn, again, cx),
                None => self.end(txn, Outcome::NoEffect, cx),
            };
        }
        let Some(work) = run.work() else { return self.end(txn, Outcome::Unknown, cx) };
        match (end, &work.task) {
            (None | Some(End::Executed), Task::Call(of)) => {
                let known = set.or(self.set.clone());
                if known.as_ref().is_none_or(|known| known.version() < of.set) {
                    // An inquiry under an older set than the call's.
                    let call = run.txn();
                    return self.begin_later(txn, Operation::Inquire { call }, of.set, cx);
                }
                // Without its set, an old call was executed, and its results are unknown.
                let outcome = known.filter(|set| set.version() == of.set);
                let outcome = outcome.and_then(|set| outcome_of(of, &set, results));
                self.end(txn, outcome.unwrap_or(Outcome::Forgotten), cx);
            }
            (Some(End::OtherSet), Task::Call(of)) => match again {
                Some(again) => self.begin_later(txn, again, of.set + 1, cx),
                None => self.end(txn, Outcome::NoEffect, cx),
            },
            (Some(End::Registered(registration)), Task::Register { .. }) => {
                match (&registration, again) {
                    // Only the caller decides on a version that it has named.
                    (
                        Registration::Superseded { version },
                        Some(again @ Operation::Register { replaces: None, .. }),
                    ) => self.begin_later(txn, again, *version, cx),
                    (Registration::InUse { version } | Registration::Superseded { version }, _) => {
                        self.outdate_sets(*version);
                        self.finish(txn, Output::Registered(registration), cx);
                    }
                    _ => self.finish(txn, Output::Registered(registration), cx),
                }
            }
            // No correct server reports this.
            (_, Task::Call(_)) => self.end(txn, Outcome::Unknown, cx),
            (_, Task::Register { .. }) => {
                let version = self.set.as_ref().map_or(0, |set| set.version());
                self.finish(txn, Output::Registered(Registration::Superseded { version }), cx);
            }
        }
    }

    // Sets of procedures.

    /// A replica reports the set that is in use there. If `is_last`, there was no later one when it was asked, as far as it
    /// knows.
    fn on_set(
        &mut self,
        from: NodeId,
        (version, is_last): (u64, bool),
        set: Arc<ProcedureSet>,
        cx: &mut Cx<'_>,
    ) {
        if from.partition() != OF_SETS {
            return; // Only this partition is asked.
        }
        let is_new = version >= self.set_from
            && self.set.as_ref().is_none_or(|known| known.version() < version);
        // A set that no compiler has made would not be in use.
        if is_new && set.validate().is_ok() {
            self.set = Some(Arc::new(InUse::new(version, set.clone())));
        }
        let majority = self.members.majority();
        let (mut begin, mut listed) = (Vec::new(), Vec::new());
        for (txn, running) in &mut self.requests {
            match &mut running.phase {
                Phase::Waits(operation) => {
                    let known = self.set.as_ref();
                    if known.is_some_and(|known| is_last || fits(operation, known)) {
                        begin.push((*txn, operation.clone()));
                    }
                }
                Phase::Lists(reported) if is_last => {
                    reported.insert(from, (version, set.clone()));
                    // One of a majority has taken part in the last registration.
                    if reported.len() >= majority {
                        let last = reported.values().max_by_key(|(version, _)| *version);
                        listed.extend(last.map(|(version, set)| (*txn, *version, set.clone())));
                    }
                }
                _ => {}
            }
        }
        for (txn, operation) in begin {
            let Some(known) = self.set.clone() else { break };
            self.requests.remove(&txn);
            self.begin_under((known, is_last), txn, operation, cx);
        }
        for (txn, version, set) in listed {
            self.finish(txn, Output::Set(version, set), cx);
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
        let version = match &running.phase {
            Phase::Runs { run, .. } => run.txn(),
            Phase::Waits(_) | Phase::Lists(_) => return Some(running),
        };
        if let Some(requests) = self.by_version.get_mut(&version) {
            requests.remove(&txn);
            if requests.is_empty() {
                self.by_version.remove(&version);
            }
        }
        Some(running)
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let Some(running) = self.forget(txn) else { return };
        cx.cancel_timer(Timer::Repeat(txn));
        let outcome = match running.phase {
            Phase::Runs { run, .. } if is_registration(&run) => return,
            Phase::Runs { .. } => Outcome::Unknown,
            Phase::Waits(Operation::Call { .. }) => Outcome::NoEffect,
            Phase::Waits(Operation::Inquire { .. }) => Outcome::Unknown,
            Phase::Waits(_) | Phase::Lists(_) => return,
        };
        cx.output((txn, Output::Outcome(outcome)));
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        let about = |coordinator: &Coordinator, version: Version| -> Vec<TxnId> {
            coordinator.by_version.get(&version).into_iter().flatten().copied().collect()
        };
        self.slow.remove(&from);
        let version = match &reply {
            Reply::Set { version, set, is_last } => {
                return self.on_set(from, (*version, *is_last), set.clone(), cx);
            }
            Reply::PreAccepted(reply) => reply.txn,
            Reply::NotAccepted { txn, .. }
            | Reply::Promised { txn, .. }
            | Reply::Accepted { txn, .. }
            | Reply::Replaced { txn, .. }
            | Reply::Committed { txn, .. }
            | Reply::Executed { txn, .. } => *txn,
            // Only replicas ask for these.
            Reply::Status { .. }
            | Reply::Results { .. }
            | Reply::Fetched { .. }
            | Reply::Have { .. }
            | Reply::Copied { .. }
            | Reply::Joined { .. } => return,
        };
        for txn in about(self, version) {
            if let Some(Running { phase: Phase::Runs { run, .. }, repeated }) =
                self.requests.get_mut(&txn)
            {
                *repeated = 0;
                let step = run.on_reply(from, reply.clone(), &self.members);
                self.take(txn, step, cx);
            }
        }
    }
}

/// Whether a request can begin under a set of procedures that may be out of date. If it is, servers refuse the request before
/// it does anything.
fn fits(operation: &Operation, known: &InUse) -> bool {
    let Operation::Call { procedure: name, inputs, .. } = operation else { return true };
    let named = known.set().procedures.iter().find(|procedure| *procedure.name == **name);
    named.is_some_and(|procedure| Call::new(procedure, inputs.clone()).is_ok())
}

fn is_registration(run: &Run) -> bool {
    run.work().is_some_and(|work| matches!(work.task, Task::Register { .. }))
}

/// The outcome of a call that was executed. None if results are missing: no correct servers report that.
fn outcome_of(of: &CallOf, set: &InUse, results: Vec<Results>) -> Option<Outcome> {
    let procedure = set.procedure(of.procedure)?;
    let mut call = set.call(of)?;
    let mut known: BTreeMap<(PieceId, u32), message::Outcome> = BTreeMap::new();
    let mut refused = None;
    for Results { pieces, refused: of_server } in results {
        for PieceResult { piece, number, outcome } in pieces {
            if let Err(why) = &outcome {
                refused.get_or_insert_with(|| why.clone());
            }
            known.insert((piece, number), outcome);
        }
        refused = refused.or(of_server);
    }
    if let Some(refused) = refused {
        return Some(Outcome::Refused(refused));
    }
    loop {
        let started = match call.start(procedure) {
            Ok(started) if started.is_empty() => break,
            Ok(started) => started,
            Err(refused) => return Some(Outcome::Refused(refused)),
        };
        for start in started {
            let place = (start.piece, start.occurrence);
            call.executed(procedure, place, known.remove(&place)?.ok()?).ok()?;
        }
    }
    if !call.has_executed_all() {
        return None;
    }
    Some(match call.results(procedure) {
        Ok(data) => {
            let fields = procedure.returns.iter().map(|returned| returned.field.clone()).collect();
            Outcome::Done(CallResults { fields, data })
        }
        Err(refused) => Outcome::Refused(refused),
    })
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Timer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::Reply(reply) if sound::to_client(from, &reply, &self.members) => {
                self.on_reply(from, reply, cx);
            }
            _ => cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a client")
            }),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        let Timer::Repeat(txn) = timer;
        let Some(running) = self.requests.get_mut(&txn) else { return };
        running.repeated += 1;
        let repeated = running.repeated;
        match &mut running.phase {
            Phase::Waits(_) | Phase::Lists(_) => self.ask_for_set(cx),
            Phase::Runs { run, .. } => match run.outbid() {
                Some(ballot) => {
                    let ballot = self.next_ballot(ballot, cx);
                    let Some(Running { phase: Phase::Runs { run, .. }, .. }) =
                        self.requests.get_mut(&txn)
                    else {
                        return;
                    };
                    let requests = run.restart(ballot, &self.members);
                    self.send_all(requests, cx);
                }
                None => {
                    self.slow.extend(run.silent(&self.members));
                    let step = run.hurry(&self.members);
                    self.take(txn, step, cx);
                }
            },
        }
        self.repeat_later(txn, repeated, cx);
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
