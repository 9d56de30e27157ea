//! The server side: it coordinates its clients' commands and reads, takes part in those of others, holds
//! registers, and executes what was agreed on.

mod active;
mod clocks;
mod durable;
mod incarnations;
mod lead;
mod lost;
mod progress;
mod recover;
mod registers;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::{Actor, Context, Group, NodeSet, Settings, Store, Timestamp};
use serried_model::{Access, Key, NodeId};
use serried_parts::{Cells, Incarnations, Quorums, Recalled, Refusals, Stamped};

use crate::frameworks::replicated_log::Clocks;

use super::Rules;
use super::instance::{Command, Dependencies, InstanceId};
use super::message::{Answer, Body, Message, OperationId, Record};
use super::sound::Sound;
use super::space::Space;
use super::state::State;
use active::{Active, ActiveKeys};
use lost::Lost;
use registers::Reading;

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    quorums: Quorums,
    settings: Settings,
    rules: Rules,
    id: NodeId,
    cells: Cells<State>,
    /// The keys with instances that are not executed, or that somebody waits for.
    spaces: ActiveKeys,
    /// The clients' operations that are under way here.
    open: BTreeSet<OperationId>,
    clocks: Clocks,
    /// Requests that wait until the clocks of a majority are known.
    unjudged: Vec<(OperationId, Key, Command)>,
    refusals: Refusals,
    /// Reads of registers that are under way here.
    reads: BTreeMap<OperationId, Reading>,
    /// When to go on with what this replica coordinates.
    due: BTreeSet<(Timestamp, Task)>,
    tick: Option<Timestamp>,
    /// Whether it is to look after instances.
    looks: bool,
    incarnations: Incarnations,
    /// Set while it does not know what its predecessor had promised.
    lost: Option<Lost>,
    /// When the log was trimmed last.
    trimmed: Timestamp,
}

/// A client that waits.
#[derive(Clone, Debug)]
struct Client {
    operation: OperationId,
    command: Command,
    /// What its command came to here.
    answer: Option<Answer>,
}

/// Something to be gone on with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Task {
    Lead(Key, InstanceId),
    Inquire(Key, InstanceId),
    Read(OperationId),
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Go on with what is due.
    Tick,
    /// Look after instances that are not committed.
    Watch,
    /// Put into the store what was executed.
    Store,
    /// Ask again for what others have.
    Scan,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica.
    pub fn new(id: NodeId, group: Group, settings: &Settings, rules: Rules) -> Replica {
        let incarnations = Incarnations::new(group.size());
        let clocks = Clocks::new(group.size(), id.member());
        Replica {
            quorums: Quorums::new(group, settings.thrifty),
            settings: *settings,
            rules,
            id,
            cells: Cells::new(settings.resident_keys),
            spaces: ActiveKeys::default(),
            open: BTreeSet::new(),
            clocks,
            unjudged: Vec::new(),
            refusals: Refusals::default(),
            reads: BTreeMap::new(),
            due: BTreeSet::new(),
            tick: None,
            looks: false,
            incarnations,
            lost: None,
            trimmed: Timestamp(0),
        }
    }

    fn group(&self) -> &Group {
        self.quorums.group()
    }

    fn sound(&self) -> Sound<'_> {
        let (group, partition) = (self.quorums.group(), self.id.partition());
        Sound { group, partition, registers: self.rules.have_registers() }
    }

    /// Reports a message that no correct sender sends. The caller drops it.
    fn reject(&self, from: NodeId, what: impl core::fmt::Display, cx: &mut Cx<'_>) {
        cx.reject(|| format!("{from} has sent {what}"));
    }

    fn member(&self) -> u8 {
        self.id.member() as u8
    }

    fn node(&self, member: usize) -> NodeId {
        NodeId::replica(self.id.partition(), member)
    }

    fn me(&self) -> NodeSet {
        [self.id].into_iter().collect()
    }

    /// All replicas but this one.
    fn others(&self) -> NodeSet {
        self.group().all().without(self.me())
    }

    fn active(&mut self, key: &Key, store: &dyn Store) -> &mut Active {
        if self.spaces.get(key).is_none() {
            let mut executed = self.cells.get(key, store).executed.clone();
            if executed.updates.is_empty() {
                executed = Dependencies::none(self.group().size());
            }
            let active = Active::new(Space::new(self.group().size(), executed));
            self.spaces.insert(key, active);
        }
        self.spaces.get_mut(key).expect("it is there")
    }

    /// What a key holds, where reads and writes are not agreed on.
    fn base(&mut self, key: &Key, store: &dyn Store) -> Option<Stamped> {
        let registers = self.rules.have_registers();
        registers.then(|| self.cells.get(key, store).held.clone())
    }

    /// A command was heard of: what its client brings is held.
    fn take_in(&mut self, command: Option<&Command>, cx: &mut Cx<'_>) {
        for (key, stamped) in command.map_or(&[][..], |command| &command.brings) {
            self.hold(key, stamped, cx);
        }
    }

    fn answer(&mut self, operation: OperationId, answer: Answer, cx: &mut Cx<'_>) {
        self.open.remove(&operation);
        cx.send(operation.client, Message::Reply { request: operation.request, answer });
    }

    fn send(&self, to: u8, key: &Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        let (key, body) = (key.clone(), Box::new(body));
        let incarnation = self.incarnations.of(self.id);
        let message = Message::Instance { key, id, incarnation, body };
        cx.send(self.node(usize::from(to)), message);
    }

    fn broadcast(&self, to: NodeSet, key: &Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        let (key, body) = (key.clone(), Box::new(body));
        let incarnation = self.incarnations.of(self.id);
        let message = Message::Instance { key, id, incarnation, body };
        cx.broadcast(self.id.partition(), to, message);
    }

    fn at(&mut self, after: Duration, task: Task, cx: &mut Cx<'_>) -> Timestamp {
        let due = cx.now() + after;
        self.due.insert((due, task));
        if self.tick.is_none_or(|tick| due < tick) {
            self.tick = Some(due);
            cx.set_timer(Timer::Tick, after);
        }
        due
    }

    fn on_request(&mut self, operation: OperationId, key: Key, command: Command, cx: &mut Cx<'_>) {
        if self.open.contains(&operation) {
            return; // Repeated.
        }
        if command.access == Access::Read && self.rules.have_registers() {
            self.open.insert(operation);
            return self.read(operation, key, command.brings, cx);
        }
        match self.cells.get(&key, cx.store()).recall(command.token) {
            // One that has executed it is enough; where there are registers, a majority has to have.
            Recalled::Result(found) if !self.rules.have_registers() => {
                return self.answer(operation, Answer::Done(found), cx);
            }
            Recalled::Result(_) => {}
            _ => {
                // What it was told before stands, whatever the clock says now.
                let OperationId { client, request } = operation;
                let ahead = self.ahead_us(command.token.timestamp_us, cx);
                let Some((ahead_us, is_too_much)) = ahead else {
                    return self.wait_for_clocks(operation, key, command);
                };
                let was_refused = self.refusals.have(client, request);
                if (was_refused || is_too_much) && !self.is_under_way(&key, None, &command) {
                    if !was_refused {
                        self.refuse(client, request, cx);
                    }
                    return self.answer(operation, Answer::ClockSkew { ahead_us }, cx);
                }
            }
        }
        self.open.insert(operation);
        self.propose(&key, Client { operation, command, answer: None }, cx);
    }

    /// Whether this replica has seen an update before, in another instance than one, so that it may take effect and can't be refused any more.
    fn is_under_way(&self, key: &Key, but_for: Option<InstanceId>, command: &Command) -> bool {
        let same = |known: &Command| known.token == command.token;
        let active = self.spaces.get(key);
        let known = active.into_iter().flat_map(|active| active.space.iter());
        let mut others = known.filter(|(id, _)| Some(*id) != but_for);
        others.any(|(_, instance)| instance.command.as_ref().is_some_and(same))
    }

    /// Executes what can be executed of a key.
    fn execute(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let remembered_us = self.settings.outcomes_ms * 1000;
        let registers = self.rules.have_registers();
        loop {
            let Some(active) = self.spaces.get_mut(key) else { return };
            let (order, missing) = active.space.executable();
            for id in missing {
                self.watch(key, id);
                self.at(self.quorums.patience(0), Task::Inquire(key.clone(), id), cx);
            }
            if order.is_empty() {
                return self.forget(key);
            }
            let active = self.spaces.get_mut(key).expect("as before");
            // What they have made of it follows from their records.
            let recorded = |id: &InstanceId| active.space.get(*id).map(|known| known.recorded);
            let position = order.iter().filter_map(recorded).min().unwrap_or(u64::MAX);
            let state = self.cells.change(key, position, cx.store());
            let (mut answered, mut executed) = (Vec::new(), Vec::new());
            for id in order {
                let instance = active.space.get(id).expect("what is executed is known");
                if instance.command.is_some() {
                    state.has_done_something(id);
                } else {
                    state.has_done_nothing(id, active.space.last_executed(id));
                }
                if let Some(command) = &instance.command {
                    let base = instance.attributes.base.as_ref();
                    let fresh = instance.attributes.fresh;
                    let answer = state.execute(command, (base, fresh), remembered_us);
                    if let Some(client) = active.clients.get_mut(&id) {
                        client.answer = Some(answer);
                        answered.push(id);
                    } else if registers && usize::from(id.member) != self.id.member() {
                        executed.push(id);
                    }
                }
                active.space.set_executed(id);
            }
            let space = &active.space;
            state.are_executed(space.executed(), |row| space.last_executed(row));
            cx.charge(1);
            for id in executed {
                self.tell_executed(self.node(usize::from(id.member)), key, id, cx);
            }
            for id in answered {
                self.count_executed(self.member(), key, id, cx);
            }
            self.store_soon(cx);
        }
    }

    /// Tells `to`, which waits for it, that this replica has executed an instance.
    fn tell_executed(&self, to: NodeId, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        if self.rules.have_registers() && self.lost.is_none() {
            self.send(to.member() as u8, key, id, Body::Executed, cx);
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.tick = None;
        while let Some((due, _)) = self.due.first() {
            if *due > cx.now() {
                let (due, after) = (*due, due.since(cx.now()));
                self.tick = Some(due);
                return cx.set_timer(Timer::Tick, after);
            }
            match self.due.pop_first().expect("it was there").1 {
                Task::Lead(key, id) => self.go_on(&key, id, cx),
                Task::Inquire(key, id) => self.inquire(&key, id, cx),
                Task::Read(operation) => self.read_again(operation, cx),
            }
        }
    }

    fn on_instance(
        &mut self,
        from: NodeId,
        key: &Key,
        id: InstanceId,
        (incarnation, body): (u64, Body),
        cx: &mut Cx<'_>,
    ) {
        self.quorums.is_there(from);
        // A commit holds whoever reports it. Anything else the sender may not know any more.
        let agreed = matches!(body, Body::Commit { .. });
        if !agreed && (!self.is_current(from, incarnation, cx) || self.lost.is_some()) {
            return;
        }
        let active = self.active(key, cx.store());
        if active.space.is_executed(id) && active.space.get(id).is_none() {
            match body {
                // Whoever tells has not heard that this replica has executed it.
                Body::Commit { .. } => self.tell_executed(from, key, id, cx),
                // Whoever asks has missed that, and may find nobody who still knows the instance.
                Body::PreAccept { .. }
                | Body::Accept { .. }
                | Body::Prepare { .. }
                | Body::Validate { .. }
                | Body::Inquire => self.hand_over(from, key, cx),
                // Late: it was agreed on.
                _ => {}
            }
            return;
        }
        let (node, from) = (from, from.member() as u8);
        match body {
            Body::PreAccept { command, attributes, quorum } => {
                self.on_pre_accept(from, key, id, (command, attributes, quorum), cx);
            }
            Body::PreAccepted { attributes } => self.on_pre_accepted(from, key, id, attributes, cx),
            Body::Accept { ballot, command, attributes } => {
                self.on_accept(from, key, id, ballot, (command, attributes), cx);
            }
            Body::Accepted { ballot } => self.on_accepted(from, key, id, ballot, cx),
            Body::Executed => self.count_executed(from, key, id, cx),
            Body::Inquire => self.on_inquire(from, key, id, cx),
            Body::Commit { command, attributes } => {
                let again = self.active(key, cx.store()).space.is_executed(id);
                if self.contradicts(key, id, (&command, &attributes)) {
                    let what =
                        format_args!("that {id:?} of `{key}` was agreed on twice, and differently");
                    return self.reject(node, what, cx);
                }
                self.commit(key, id, (command, attributes), NodeSet::EMPTY, cx);
                if again {
                    self.tell_executed(node, key, id, cx);
                }
            }
            Body::Prepare { ballot } => self.on_prepare(from, key, id, ballot, cx),
            Body::Prepared { ballot, instance } => {
                self.on_prepared(from, key, id, ballot, instance, cx);
            }
            Body::Refused { promised } => self.on_refused(key, id, promised, cx),
            Body::Validate { ballot, command, attributes } => {
                self.on_validate(from, key, id, ballot, (command, attributes), cx);
            }
            Body::Validated { ballot, conflicts } => {
                self.on_validated(from, key, id, ballot, conflicts, cx);
            }
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.begin_incarnation(cx);
        self.record_incarnations(cx);
        self.record_refusals(cx);
        self.ask_clocks(cx);
        for key in self.spaces.sorted() {
            // Where they lie in the log is not known; they are put at its end.
            let active = self.spaces.get(&key).expect("as before");
            let known: Vec<InstanceId> = active.space.iter().map(|(id, _)| id).collect();
            for id in known {
                self.record(&key, id, cx);
            }
            self.execute(&key, cx);
        }
        self.scan(cx);
        self.store_soon(cx);
        self.look_later(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        if !self.sound().to_replica(from, &message) {
            return self.reject(from, "what no sound sender sends", cx);
        }
        match message {
            // What it holds and has promised it does not know.
            Message::Request { .. } | Message::Read1 { .. } | Message::Write1 { .. }
                if self.lost.is_some() => {}
            Message::Request { request, key, command } => {
                self.on_request(OperationId { client: from, request }, key, command, cx);
            }
            Message::Read1 { operation, key, held, brings } => {
                self.on_read1(from, operation, key, &held, &brings, cx);
            }
            // Late: the sender has lost its disk since, and may not hold that value.
            Message::Read1Reply { incarnations, .. } | Message::Applied { incarnations, .. }
                if !self.quorums.hear(from, &incarnations) => {}
            Message::Read1Reply { operation, held, .. } => {
                self.on_read1_reply(from, operation, held, cx);
            }
            Message::Write1 { request, key, brings } => {
                self.on_write1(from, request, key, &brings, cx);
            }
            Message::Apply { operation, key, stamped } => {
                self.hold(&key, &stamped, cx);
                // Nothing that it says may count before others know its incarnation.
                if self.lost.is_none() {
                    let carstamp = stamped.carstamp;
                    let incarnations = self.incarnations.named();
                    cx.send(from, Message::Applied { operation, carstamp, incarnations });
                }
            }
            Message::Applied { operation, carstamp, .. } => {
                self.on_applied(from, operation, carstamp, cx);
            }
            Message::Instance { key, id, incarnation, body } => {
                self.on_instance(from, &key, id, (incarnation, *body), cx);
                self.forget(&key);
            }
            Message::Scan { after, incarnation } => self.on_scan(from, after, incarnation, cx),
            Message::Scanned { after, entries, more, incarnations } => {
                self.on_scanned(from, after, entries, (more, incarnations), cx);
            }
            Message::AlsoLost { incarnation } => self.on_also_lost(from, incarnation, cx),
            Message::Time(time) => self.on_time(from, time, cx),
            Message::TakeOver { key, state } => drop(self.take_over(&key, *state, cx)),
            Message::Reply { .. } | Message::Write1Reply { .. } => {
                unreachable!("it was looked whether a replica is sent that")
            }
        }
        self.is_whole(cx);
        self.look_later(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Tick => self.tick(cx),
            Timer::Watch => self.look_after(cx),
            Timer::Store => self.store_some(cx),
            Timer::Scan => self.scan(cx),
        }
        self.look_later(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.cells.resident() as u64);
        each("unstored_keys", self.cells.unstored() as u64);
        each("active_keys", self.spaces.len() as u64);
        each("operations", self.open.len() as u64);
        each("catching_up", u64::from(self.lost.is_some()));
    }
}
