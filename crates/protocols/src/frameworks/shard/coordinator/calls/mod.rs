//! The client side of keyspaces with procedures: a coordinator for one client's calls.
//!
//! A call is a transaction whose program is the procedure. Its pieces run at the shards, one round trip for those that can be
//! started together. An attempt that meets a conflict is over; the session calls again.

mod past;
mod run;

use core::marker::PhantomData;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::{NodeId, TxnId, Version};
use serried_parts::patience_with_leader;
use serried_procedures::{
    Call, Datum, Operation, Outcome, Output, ProcedureSet, Procedures, Registration, Results,
};

use super::super::calls::{CallOf, InUse, Ran};
use super::super::control::Control;
use super::super::message::{Decision, Executed, Message, Refusal, Reply, Request};
use super::super::stamp::Stamp;
use super::super::{Mutation, OF_SETS, sound};
use super::end::{Client, Endings};
use super::leaders::Leaders;
use super::versions::{OpenVersions, Versions};
use crate::Mutated;
use past::{Known, Past};
use run::{End, Next, Run};

/// How long to wait before the set of procedures is asked for again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The coordinator of one client's calls.
#[derive(Debug)]
pub struct CallCoordinator<C> {
    leaders: Leaders,
    settings: Settings,
    mutation: Mutated<Mutation>,
    /// The set of procedures that is in use, as far as is known.
    set: Option<Arc<InUse>>,
    requests: BTreeMap<TxnId, Running>,
    /// The attempts under way, by their versions.
    by_version: OpenVersions,
    endings: Endings,
    /// How long a shot takes to each shard, as for other transactions (003 §5.3).
    delays_us: BTreeMap<u16, i64>,
    versions: Versions,
    beats: bool,
    /// Counts: calls that have committed, and attempts.
    committed: u64,
    attempts: u64,
    control: PhantomData<C>,
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
    /// An attempt. The operation begins it again under another set.
    Calls { run: Box<Run>, again: Operation },
    /// What shards know of a call.
    Asks(Past),
    /// The registration of a set in place of the one of this version. `again` is whether it may replace another one.
    Registers { set: Arc<ProcedureSet>, replaces: u64, again: bool },
    /// The set of procedures that is in use, for a session.
    Lists,
}

/// The timers of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallTimer {
    /// Repeat a request's unanswered messages.
    Repeat(TxnId),
    /// Repeat the ends of transactions.
    Tell,
    /// Report to shards which transactions are still open.
    Beat,
}

type Cx<'a, C> = Context<'a, CallCoordinator<C>>;

impl<C: Control> CallCoordinator<C> {
    /// Creates a coordinator for a client of `group`. `mutation` is the only deliberate mistake in it.
    pub fn new(
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> CallCoordinator<C> {
        CallCoordinator {
            leaders: Leaders::new(group),
            settings: *settings,
            mutation,
            set: None,
            requests: BTreeMap::new(),
            by_version: OpenVersions::default(),
            endings: Endings::default(),
            delays_us: BTreeMap::new(),
            versions: Versions::new(settings.clock_bound_ms),
            beats: false,
            committed: 0,
            attempts: 0,
            control: PhantomData,
        }
    }

    fn send_all(&self, requests: Vec<(u16, Request)>, attempt: u32, cx: &mut Cx<'_, C>) {
        for (shard, request) in requests {
            cx.send(self.leaders.of(shard, attempt), Message::Request(request));
        }
    }

    fn repeat_later(&self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let repeated = self.requests.get(&txn).map_or(0, |running| running.repeated);
        let after = patience_with_leader(&self.leaders.group, repeated);
        cx.set_timer(CallTimer::Repeat(txn), after);
    }

    /// Begins a request, or begins it again. `is_fresh` is whether the known set has just been asked for.
    fn begin(&mut self, txn: TxnId, operation: Operation, is_fresh: bool, cx: &mut Cx<'_, C>) {
        if let Operation::Inquire { call } = operation {
            return self.ask(txn, Past::new(call), cx);
        }
        let Some(known) = self.set.clone() else { return self.wait(txn, operation, cx) };
        match operation {
            Operation::Call { procedure, inputs, age } => {
                self.call(txn, (procedure, inputs, age), known, is_fresh, cx);
            }
            Operation::Register { set, replaces } => {
                let (again, replaces) = (replaces.is_none(), replaces.unwrap_or(known.version));
                let phase = Phase::Registers { set, replaces, again };
                self.insert(txn, phase);
                self.register(txn, cx);
            }
            Operation::List => {
                self.insert(txn, Phase::Lists);
                self.ask_for_set(txn, cx);
            }
            Operation::Inquire { .. } | Operation::GiveUp => {}
        }
    }

    fn insert(&mut self, txn: TxnId, phase: Phase) {
        self.requests.insert(txn, Running { repeated: 0, phase });
    }

    fn wait(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_, C>) {
        self.insert(txn, Phase::Waits(operation));
        self.ask_for_set(txn, cx);
    }

    fn ask_for_set(&self, txn: TxnId, cx: &mut Cx<'_, C>) {
        self.send_all(vec![(OF_SETS, Request::Set)], 0, cx);
        self.repeat_later(txn, cx);
    }

    // Calls.

    fn call(
        &mut self,
        txn: TxnId,
        (name, inputs, age): (Arc<str>, Vec<Datum>, Option<Version>),
        set: Arc<InUse>,
        is_fresh: bool,
        cx: &mut Cx<'_, C>,
    ) {
        let procedures = &set.set.procedures;
        let at = procedures.iter().position(|procedure| procedure.name == *name);
        let again = || Operation::Call { procedure: name.clone(), inputs: inputs.clone(), age };
        let call = at.map(|at| (at, Call::new(&procedures[at], inputs.clone())));
        let (at, call) = match call {
            Some((at, Ok(call))) => (at, call),
            // Another client may have registered other procedures.
            _ if !is_fresh => return self.wait(txn, again(), cx),
            Some((_, Err(wrong))) => return self.end(txn, Outcome::InvalidInputs(wrong), cx),
            None => {
                let known = procedures.iter().map(|procedure| procedure.name.clone()).collect();
                let version = set.version;
                return self.end(txn, Outcome::NoSuchProcedure { version, known }, cx);
            }
        };
        let of = CallOf { set: set.version, procedure: at as u16, inputs: inputs.clone() };
        let mut run = Run::new(Arc::new(of), set, call, age, cx.now());
        run.start(&self.leaders.group);
        if run.shards().next().is_none() {
            // No piece occurs.
            let outcome = match run.end() {
                End::Done(data) => done(run.set(), run.procedure(), data),
                End::Refused(refused) => Outcome::Refused(refused),
                End::Unclear => Outcome::NoEffect,
            };
            return self.end(txn, outcome, cx);
        }
        let version = self.assign_version(&run, cx);
        run.version = Some(version);
        self.attempts += 1;
        self.by_version.insert(version, txn);
        cx.output((txn, Output::Began(version)));
        self.insert(txn, Phase::Calls { run: Box::new(run), again: again() });
        self.shoot(txn, cx);
    }

    /// A version for an attempt, so that its shots arrive when it begins (003 §5.3).
    fn assign_version(&mut self, run: &Run, cx: &mut Cx<'_, C>) -> Version {
        let delay_us = run.shards().filter_map(|shard| self.delays_us.get(&shard)).copied().max();
        let now_us = cx.clock().midpoint_us();
        let then_us = now_us.saturating_add_signed(delay_us.unwrap_or(0));
        let first_us = self.versions.first_us(then_us, |shard| run.concerns(shard));
        let open = |lane| self.by_version.has_lane(lane);
        let timestamp_us = self.versions.free_lane_from(first_us, now_us, open);
        self.versions.give(timestamp_us);
        if !core::mem::replace(&mut self.beats, true) {
            cx.set_timer(CallTimer::Beat, self.settings.recovery_after() / 3);
        }
        Version { timestamp_us, coordinator: cx.id() }
    }

    fn run_mut(&mut self, txn: TxnId) -> Option<&mut Run> {
        match self.requests.get_mut(&txn) {
            Some(Running { phase: Phase::Calls { run, .. }, .. }) => Some(run),
            _ => None,
        }
    }

    /// Sends what can be sent.
    fn shoot(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let group = self.leaders.group.clone();
        let sent_us = cx.clock().midpoint_us();
        let Some(run) = self.run_mut(txn) else { return };
        run.start(&group);
        let requests = run.shoot(C::ROUNDS, sent_us);
        if !requests.is_empty() {
            self.send_all(requests, 0, cx);
            self.repeat_later(txn, cx);
        }
    }

    fn on_ran(&mut self, from: NodeId, executed: &Executed, ran: Ran, cx: &mut Cx<'_, C>) {
        let shard = from.partition();
        let Some(txn) = self.by_version.get(&executed.txn) else { return };
        let Some(run) = self.run_mut(txn) else { return };
        let Some((next, sent_us)) = run.on_ran(shard, executed, ran) else { return };
        let is_refused = run.is_refused();
        self.requests.entry(txn).and_modify(|running| running.repeated = 0);
        let bound_us = self.settings.clock_bound_ms as i64 * 1000;
        let delay_us = (executed.clock_us as i64 - sent_us as i64).clamp(-bound_us, bound_us);
        self.delays_us.insert(shard, delay_us);
        if is_refused && self.mutation.is(Mutation::RefusalsUnvalidated) {
            return self.hold(txn, Stamp::INITIAL, cx);
        }
        self.go_on(txn, next, cx);
    }

    fn go_on(&mut self, txn: TxnId, next: Next, cx: &mut Cx<'_, C>) {
        match next {
            Next::Wait => {}
            Next::Shoot => self.shoot(txn, cx),
            Next::Holds(at) => self.hold(txn, at, cx),
            Next::Move(_) => {
                let requests = self.run_mut(txn).map(|run| run.unanswered()).unwrap_or_default();
                self.send_all(requests, 0, cx);
                self.repeat_later(txn, cx);
            }
        }
    }

    /// All parts of an attempt hold at this moment. So a call that was refused has read what was there together, and is
    /// aborted; any other commits.
    fn hold(&mut self, txn: TxnId, at: Stamp, cx: &mut Cx<'_, C>) {
        let Some(run) = self.run_mut(txn) else { return };
        let (set, procedure) = (run.set().clone(), run.procedure());
        let (decision, outcome) = match run.end() {
            End::Done(data) => (Decision::Commit(at), done(&set, procedure, data)),
            End::Refused(refused) => (Decision::Abort, Outcome::Refused(refused)),
            End::Unclear => (Decision::Abort, Outcome::Conflict),
        };
        self.committed += u64::from(decision != Decision::Abort);
        self.close(txn, Some(decision), Some(outcome), cx);
    }

    /// Ends an attempt at its shards, and for its session if there is an outcome. Returns the operation that begins another
    /// one.
    fn close(
        &mut self,
        txn: TxnId,
        decision: Option<Decision>,
        outcome: Option<Outcome>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Operation> {
        let Running { phase: Phase::Calls { run, again }, .. } = self.requests.remove(&txn)? else {
            return None;
        };
        cx.cancel_timer(CallTimer::Repeat(txn));
        if let Some(version) = run.version {
            self.by_version.remove(&version);
            if decision != Some(Decision::Abort) {
                self.versions.take(version.timestamp_us);
            }
            if let Some(Decision::Commit(at)) = decision
                && at.txn == version
            {
                self.versions.take(at.us);
            }
            if let Some(decision) = decision {
                self.endings.tell(version, decision, run.shards().collect(), &self.leaders, cx);
            }
        }
        if let Some(outcome) = outcome {
            cx.output((txn, Output::Outcome(outcome)));
        }
        Some(again)
    }

    fn on_refused(&mut self, shard: u16, version: Version, reason: Refusal, cx: &mut Cx<'_, C>) {
        let shards = self.leaders.group.partitions();
        self.learn(version, cx, |past, _| past.on_refused(shard, shards, &reason));
        let Some(txn) = self.by_version.get(&version) else { return };
        let Some(run) = self.run_mut(txn).filter(|run| run.concerns(shard)) else { return };
        let is_preparing = run.is_preparing();
        match reason {
            Refusal::Conflict { after_us, .. } => self.versions.take_from(shard, after_us + 1),
            Refusal::Late { from_us } => self.versions.take_from(shard, from_us),
            Refusal::Forgotten { from_us } => {
                self.versions.take_from(shard, from_us);
                if is_preparing {
                    // Its backup coordinator may have committed it.
                    self.close(txn, None, Some(Outcome::Unknown), cx);
                    return;
                }
            }
            // The time is ahead because of delays or stamps, not because of this client's clock.
            Refusal::ClockSkew { .. } if version.timestamp_us > cx.clock().midpoint_us() => {
                self.delays_us.clear();
            }
            Refusal::ClockSkew { ahead_us } => {
                let outcome = Outcome::ClockSkew { ahead_us };
                self.close(txn, Some(Decision::Abort), Some(outcome), cx);
                return;
            }
            // The data of calls is bounded.
            Refusal::TooLong { .. } | Refusal::TooLarge { .. } => {}
            Refusal::OtherSet { .. } => {
                let again = self.close(txn, Some(Decision::Abort), None, cx);
                self.set = None;
                if let Some(again) = again {
                    self.insert(txn, Phase::Waits(again));
                    cx.set_timer(CallTimer::Repeat(txn), ASK_AGAIN);
                }
                return;
            }
        }
        self.close(txn, Some(Decision::Abort), Some(Outcome::Conflict), cx);
    }

    /// A backup coordinator has ended a transaction.
    fn on_decided(
        &mut self,
        from: NodeId,
        version: Version,
        decision: Decision,
        cx: &mut Cx<'_, C>,
    ) {
        let (shard, shards) = (from.partition(), self.leaders.group.partitions());
        self.endings.on_ended(from, &[version]);
        self.learn(version, cx, |past, _| past.on_decided(shard, shards, decision));
        let Some(txn) = self.by_version.get(&version) else { return };
        let Some(run) = self.run_mut(txn).filter(|run| run.concerns(shard)) else { return };
        match decision {
            // This one has sent no last shots, so no shard can have a part of it.
            Decision::Commit(_) if !run.is_preparing() => {}
            Decision::Commit(_) => {
                self.close(txn, Some(decision), None, cx);
                self.ask(txn, Past::committed(version, shard), cx);
            }
            Decision::Abort => {
                self.close(txn, Some(decision), Some(Outcome::Conflict), cx);
            }
        }
    }

    // Inquiries.

    fn ask(&mut self, txn: TxnId, past: Past, cx: &mut Cx<'_, C>) {
        let requests = past.unanswered(self.leaders.group.partitions());
        self.insert(txn, Phase::Asks(past));
        self.send_all(requests, 0, cx);
        self.repeat_later(txn, cx);
    }

    /// Something is known of a call. Requests that ask for it learn it.
    fn learn(
        &mut self,
        call: Version,
        cx: &mut Cx<'_, C>,
        learn: impl Fn(&mut Past, Option<&Arc<InUse>>) -> Known,
    ) {
        let asks =
            |running: &Running| matches!(&running.phase, Phase::Asks(past) if past.call == call);
        let txns = self.requests.iter().filter(|(_, running)| asks(running));
        for txn in txns.map(|(txn, _)| *txn).collect::<Vec<TxnId>>() {
            let set = self.set.clone();
            let Some(Running { phase: Phase::Asks(past), .. }) = self.requests.get_mut(&txn) else {
                continue;
            };
            match learn(past, set.as_ref()) {
                Known::Wait => {}
                Known::Ask => {
                    let requests = past.unanswered(self.leaders.group.partitions());
                    self.send_all(requests, 0, cx);
                }
                Known::NeedsSet => self.send_all(vec![(OF_SETS, Request::Set)], 0, cx),
                Known::Ended(outcome) => self.end(txn, outcome, cx),
            }
        }
    }

    // Sets of procedures.

    fn register(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let Some(Running { repeated, phase: Phase::Registers { set, replaces, .. } }) =
            self.requests.get(&txn)
        else {
            return;
        };
        let (number, set, replaces) = (txn.0, set.clone(), Some(*replaces));
        let request = Request::Register { number, set, replaces };
        self.send_all(vec![(OF_SETS, request)], *repeated, cx);
        self.repeat_later(txn, cx);
    }

    fn on_registered(&mut self, txn: TxnId, end: Registration, cx: &mut Cx<'_, C>) {
        let Some(Running { phase: Phase::Registers { set, again, .. }, .. }) =
            self.requests.get(&txn)
        else {
            return;
        };
        self.set = None;
        if let (true, Registration::Superseded { .. }) = (*again, &end) {
            // Each request names the version that it replaces, so that one which arrives late replaces no later one.
            let operation = Operation::Register { set: set.clone(), replaces: None };
            self.insert(txn, Phase::Waits(operation));
            return cx.set_timer(CallTimer::Repeat(txn), ASK_AGAIN);
        }
        self.finish(txn, Output::Registered(end), cx);
    }

    fn on_set(&mut self, version: u64, set: &Arc<ProcedureSet>, cx: &mut Cx<'_, C>) {
        if self.set.as_ref().is_none_or(|known| known.version < version) {
            self.set = Some(Arc::new(InUse::new(version, set.clone())));
        }
        let (mut waiting, mut asked) = (Vec::new(), BTreeSet::new());
        for (txn, running) in &self.requests {
            match &running.phase {
                Phase::Waits(operation) => waiting.push((*txn, Some(operation.clone()))),
                Phase::Lists => waiting.push((*txn, None)),
                Phase::Asks(past) => drop(asked.insert(past.call)),
                Phase::Calls { .. } | Phase::Registers { .. } => {}
            }
        }
        for (txn, operation) in waiting {
            match operation {
                None => self.finish(txn, Output::Set(version, set.clone()), cx),
                Some(operation) => {
                    self.requests.remove(&txn);
                    cx.cancel_timer(CallTimer::Repeat(txn));
                    self.begin(txn, operation, true, cx);
                }
            }
        }
        for call in asked {
            self.learn(call, cx, |past, set| match past.results(set) {
                // The answer comes from a leader that did not know yet. The timer asks again.
                Known::NeedsSet => Known::Wait,
                known => known,
            });
        }
    }

    // Ends.

    fn end(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_, C>) {
        self.finish(txn, Output::Outcome(outcome), cx);
    }

    fn finish(&mut self, txn: TxnId, output: Output, cx: &mut Cx<'_, C>) {
        self.requests.remove(&txn);
        cx.cancel_timer(CallTimer::Repeat(txn));
        cx.output((txn, output));
    }

    fn give_up(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let outcome = match self.requests.get(&txn).map(|running| &running.phase) {
            Some(Phase::Calls { run, .. }) => {
                // A backup coordinator may commit it if its last shots are under way.
                let (decision, outcome) = match run.is_preparing() {
                    true => (None, Outcome::Unknown),
                    false => (Some(Decision::Abort), Outcome::NoEffect),
                };
                self.close(txn, decision, Some(outcome), cx);
                return;
            }
            Some(Phase::Waits(Operation::Call { .. })) => Outcome::NoEffect,
            Some(Phase::Asks(_)) => Outcome::Unknown,
            Some(_) => {
                self.requests.remove(&txn);
                return cx.cancel_timer(CallTimer::Repeat(txn));
            }
            None => return,
        };
        self.end(txn, outcome, cx);
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        if let Reply::Follow { leader } = reply {
            if self.leaders.is_peer(leader, from) && self.leaders.on_answer(leader) {
                self.follow(leader, cx);
            }
            return;
        }
        let (is_new, shard) = (self.leaders.on_answer(from), from.partition());
        match reply {
            Reply::Ran { executed, ran } => self.on_ran(from, &executed, ran, cx),
            Reply::Refused { txn, reason } => self.on_refused(shard, txn, reason, cx),
            Reply::Moved { txn } => {
                let Some(txn) = self.by_version.get(&txn) else { return };
                let next = self.run_mut(txn).map_or(Next::Wait, |run| run.on_moved(shard));
                self.go_on(txn, next, cx);
            }
            Reply::Decided { txn, decision } => self.on_decided(from, txn, decision, cx),
            Reply::Ended(txns) => self.endings.on_ended(from, &txns),
            Reply::Kept { txn, kept } => {
                self.learn(txn, cx, |past, set| past.on_kept(shard, kept.clone(), set));
            }
            Reply::Set { version, set } if shard == OF_SETS && set.validate().is_ok() => {
                self.on_set(version, &set, cx);
            }
            Reply::Registered { number, end } => self.on_registered(TxnId(number), end, cx),
            // Others are for shards, or for clients of other keyspaces.
            Reply::Executed(_)
            | Reply::Prepared { .. }
            | Reply::Snapshot { .. }
            | Reply::Unread { .. }
            | Reply::Set { .. }
            | Reply::Installed { .. }
            | Reply::Follow { .. } => {}
        }
        if is_new {
            self.follow(from, cx);
        }
    }

    /// Follows a shard to its new leader. Sends it at once everything that the former leader has not answered.
    fn follow(&mut self, leader: NodeId, cx: &mut Cx<'_, C>) {
        let shards = self.leaders.group.partitions();
        for running in self.requests.values() {
            let requests = match &running.phase {
                Phase::Calls { run, .. } => run.unanswered(),
                Phase::Asks(past) => past.unanswered(shards),
                Phase::Waits(_) | Phase::Registers { .. } | Phase::Lists => continue,
            };
            for (_, request) in requests.into_iter().filter(|(of, _)| *of == leader.partition()) {
                cx.send(leader, Message::Request(request));
            }
        }
        self.endings.tell_new_leader(leader, cx);
    }

    fn repeat(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let shards = self.leaders.group.partitions();
        let Some(running) = self.requests.get_mut(&txn) else { return };
        running.repeated += 1;
        let repeated = running.repeated;
        let mut requests = match &running.phase {
            Phase::Waits(_) | Phase::Lists => vec![(OF_SETS, Request::Set)],
            Phase::Calls { run, .. } => run.unanswered(),
            Phase::Asks(past) => past.unanswered(shards),
            Phase::Registers { .. } => {
                self.leaders.rotate(OF_SETS, repeated);
                return self.register(txn, cx);
            }
        };
        if requests.is_empty() {
            // All shards have answered, and the set of procedures is missing.
            requests.push((OF_SETS, Request::Set));
        }
        for (shard, _) in &requests {
            self.leaders.rotate(*shard, repeated);
        }
        self.send_all(requests, repeated, cx);
        self.repeat_later(txn, cx);
    }

    /// Reports to shards which transactions are still open.
    fn beat(&mut self, cx: &mut Cx<'_, C>) {
        let every = self.settings.recovery_after() / 3;
        let mut by_shard: BTreeMap<u16, Vec<Version>> = BTreeMap::new();
        for running in self.requests.values() {
            let Phase::Calls { run, .. } = &running.phase else { continue };
            if cx.now().since(run.began) >= every {
                for shard in run.shards() {
                    by_shard.entry(shard).or_default().extend(run.version);
                }
            }
        }
        let alive = by_shard.into_iter().map(|(shard, txns)| (shard, Request::Alive(txns)));
        self.send_all(alive.collect(), 0, cx);
        self.beats = self.by_version.len() > 0;
        if self.beats {
            cx.set_timer(CallTimer::Beat, every);
        }
    }
}

/// The outcome of a call that has committed.
fn done(set: &InUse, procedure: u16, data: Vec<Datum>) -> Outcome {
    let returns = set.procedure(procedure).map_or(&[][..], |procedure| &procedure.returns);
    let fields = returns.iter().map(|returned| returned.field.clone()).collect();
    Outcome::Done(Results { fields, data })
}

impl<C: Control> Client for CallCoordinator<C> {
    const TELL: CallTimer = CallTimer::Tell;
}

impl<C: Control> Actor for CallCoordinator<C> {
    type Message = Message;
    type Timer = CallTimer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_, C>) {
        match message {
            Message::Reply(reply) if sound::to_client(from, &reply, &self.leaders.group) => {
                self.on_reply(from, reply, cx);
            }
            _ => {
                cx.reject(|| format!("{from} has sent a message that no replica sends to a client"))
            }
        }
    }

    fn on_timer(&mut self, timer: CallTimer, cx: &mut Cx<'_, C>) {
        match timer {
            CallTimer::Repeat(txn) => self.repeat(txn, cx),
            CallTimer::Tell => self.endings.tell_again(&mut self.leaders, cx),
            CallTimer::Beat => self.beat(cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("open", self.by_version.len() as u64);
        each("ending", self.endings.len() as u64);
        each("committed", self.committed);
        each("attempts", self.attempts);
    }
}

impl<C: Control> Coordinate<Procedures> for CallCoordinator<C> {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_, C>) {
        match operation {
            Operation::GiveUp => self.give_up(txn, cx),
            operation => self.begin(txn, operation, false, cx),
        }
    }
}
