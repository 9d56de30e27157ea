//! The server side: a replica coordinates its clients' commands and reads, takes part in those of
//! others, holds registers, and executes committed instances.
//!
//! The replica consists of components, each in its own file: the [members](members) of its
//! partition, the [states](states) of keys, the [active keys](active) with the instances that are
//! not executed and those that it [leads](lead), the [reads](reads) that it coordinates, the
//! [schedule](schedule), the replicas' [clocks](clocks), and the state of [rejoining](rejoin). They
//! do not know the replica, and get the other components that they need as parameters. This file
//! passes messages and timers to them.
//!
//! [Agreement](agree), [recovery](recover), [execution](execution) and the [log](durable) use
//! nearly all components in each step, and the order of operations matters: records are appended
//! before the messages that depend on them are sent. So these handlers are methods of the replica.

mod active;
mod agree;
mod clocks;
mod durable;
mod execution;
mod lead;
mod members;
mod reads;
mod recover;
mod rejoin;
mod schedule;
mod states;

use std::collections::BTreeSet;

use serried_actor::{Actor, Context, Group, NodeSet, Settings, Store};
use serried_model::{Access, Key, NodeId};
use serried_parts::{Recalled, Refusals};

use super::Rules;
use super::instance::{Command, InstanceId};
use super::message::{Answer, Body, Message, OperationId, Record};
use super::sound::Sound;
use active::{Active, ActiveKeys};
use clocks::ClientClocks;
use members::{Heard, Members};
use reads::Reads;
use rejoin::Rejoin;
use schedule::{Schedule, Task};
use states::{States, store_soon};

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    rules: Rules,
    settings: Settings,
    members: Members,
    states: States,
    /// The keys with instances that are not executed, or for which clients wait.
    keys: ActiveKeys,
    reads: Reads,
    schedule: Schedule,
    clocks: ClientClocks,
    rejoin: Rejoin,
    /// The clients' operations that are under way here.
    open: BTreeSet<OperationId>,
    refusals: Refusals,
    /// Whether the timer for checking instances is set.
    looks: bool,
}

/// A client that waits for an answer.
#[derive(Clone, Debug)]
struct Client {
    operation: OperationId,
    command: Command,
    /// The result of its command at this replica.
    answer: Option<Answer>,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Run the tasks that are due.
    Tick,
    /// Check instances that are not committed.
    Watch,
    /// Write executed state to the store.
    Store,
    /// Repeat requests for the state of other replicas.
    Scan,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// Creates an empty replica.
    pub fn new(id: NodeId, group: Group, settings: &Settings, rules: Rules) -> Replica {
        let members = Members::new(id, group, settings.thrifty);
        Replica {
            rules,
            settings: *settings,
            states: States::new(settings.resident_keys, rules.have_registers()),
            keys: ActiveKeys::new(members.group().size(), members.own()),
            reads: Reads::new(rules),
            schedule: Schedule::default(),
            clocks: ClientClocks::new(&members, settings),
            rejoin: Rejoin::default(),
            open: BTreeSet::new(),
            refusals: Refusals::default(),
            looks: false,
            members,
        }
    }

    fn sound(&self) -> Sound<'_> {
        let (group, partition) = (self.members.group(), self.members.partition());
        Sound { group, partition, registers: self.rules.have_registers() }
    }

    /// Reports a message that no correct sender sends. The caller drops it.
    fn reject(&self, from: NodeId, what: impl core::fmt::Display, cx: &mut Cx<'_>) {
        cx.reject(|| format!("{from} has sent {what}"));
    }

    /// Makes a key active.
    fn active(&mut self, key: &Key, store: &dyn Store) -> &mut Active {
        self.keys.get_or_begin(key, &mut self.states, store)
    }

    fn answer(&mut self, operation: OperationId, answer: Answer, cx: &mut Cx<'_>) {
        self.open.remove(&operation);
        cx.send(operation.client, Message::Reply { request: operation.request, answer });
    }

    fn on_request(&mut self, operation: OperationId, key: Key, command: Command, cx: &mut Cx<'_>) {
        if self.open.contains(&operation) {
            return; // A repeated request.
        }
        if command.access == Access::Read && self.rules.have_registers() {
            self.open.insert(operation);
            return self.read(operation, key, command, cx);
        }
        match self.states.get(&key, cx.store()).recall(command.token) {
            // If there are no registers, execution at one replica is enough. With registers, a
            // majority has to execute it.
            Recalled::Result(found) if !self.rules.have_registers() => {
                return self.answer(operation, Answer::Done(found), cx);
            }
            Recalled::Result(_) => {}
            _ => {
                // An earlier refusal is permanent, whatever the clocks show now.
                let OperationId { client, request } = operation;
                let named_us = command.token.timestamp_us;
                let ahead = self.clocks.ahead_us(named_us, &self.members, cx);
                let Some((ahead_us, is_too_much)) = ahead else {
                    return self.clocks.keep((operation, key, command));
                };
                let was_refused = self.refusals.have(client, request);
                if (was_refused || is_too_much) && !self.keys.is_under_way(&key, None, &command) {
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

    /// Begins a client's read of a register.
    fn read(&mut self, operation: OperationId, key: Key, command: Command, cx: &mut Cx<'_>) {
        let brings = command.brings;
        self.states.hold_all(&brings, cx);
        let latest = self.states.get(&key, cx.store()).held.clone();
        let read = (key, brings, latest);
        self.reads.begin(operation, read, &self.members, &mut self.schedule, cx);
        self.go_on_reading(operation, cx);
    }

    /// Answers a read of a register if enough replies have arrived.
    fn go_on_reading(&mut self, operation: OperationId, cx: &mut Cx<'_>) {
        let answer = self.reads.go_on(operation, &self.members, &mut self.schedule, cx);
        if let Some(answer) = answer {
            self.answer(operation, answer, cx);
        }
    }

    fn do_task(&mut self, task: Task, cx: &mut Cx<'_>) {
        match task {
            Task::Lead(key, id) => self.go_on(&key, id, cx),
            Task::Inquire(key, id) => self.inquire(&key, id, cx),
            Task::Read(operation) => {
                let (members, schedule) = (&mut self.members, &mut self.schedule);
                if self.reads.ask_again(operation, members, schedule, cx) {
                    self.open.remove(&operation);
                }
            }
        }
    }

    /// Whether a message is from its sender's latest known incarnation. If it is from a later one,
    /// the sender's earlier messages no longer count.
    fn is_current(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) -> bool {
        let heard = self.members.hear(from, incarnation, cx);
        if heard == Heard::Later {
            self.reads.count_no_holding_of([from].into_iter().collect());
            self.keys.count_nothing_of(from);
        }
        heard != Heard::Former
    }

    /// Learns the incarnations of other replicas from a replica that knows them. If those replicas
    /// are replaced again, they must learn their latest known incarnation.
    fn hear_of_others(&mut self, incarnations: &[u64], cx: &mut Cx<'_>) {
        let members = self.members.group().size();
        for (member, incarnation) in incarnations.iter().enumerate().take(members) {
            let other = self.members.node(member);
            if other != self.members.own_id() {
                self.is_current(other, *incarnation, cx);
            }
        }
    }

    /// Sends a page of this replica's state to a replica that has lost its disk.
    fn on_scan(&mut self, from: NodeId, after: Option<Key>, incarnation: u64, cx: &mut Cx<'_>) {
        self.is_current(from, incarnation, cx);
        if self.rejoin.is_under_way() {
            let incarnation = self.members.incarnation(from);
            return cx.send(from, Message::AlsoLost { incarnation });
        }
        let (entries, more) = rejoin::page(&after, &self.keys, &mut self.states, cx);
        cx.charge(entries.len());
        let incarnations = self.members.named();
        cx.send(from, Message::Scanned { after, entries, more, incarnations });
    }

    /// Takes part again if every instance is decided in which its predecessor may have taken part.
    fn rejoin_if_done(&mut self, cx: &mut Cx<'_>) {
        if self.rejoin.is_done(&self.members, |key, id| self.keys.is_decided(key, id)) {
            self.rejoin.end();
            cx.append(Record::Whole);
            cx.cancel_timer(Timer::Scan);
            store_soon(cx);
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
        self.members.quorums.is_there(from);
        // A commit is valid from any sender. The sender may no longer know anything else.
        let agreed = matches!(body, Body::Commit { .. });
        if !agreed && (!self.is_current(from, incarnation, cx) || self.rejoin.is_under_way()) {
            return;
        }
        let active = self.active(key, cx.store());
        if active.space.is_executed(id) && active.space.get(id).is_none() {
            match body {
                // The sender does not know that this replica has executed it.
                Body::Commit { .. } => self.tell_executed(from, key, id, cx),
                // The sender has missed the commit, and perhaps no replica knows the instance any
                // more.
                Body::PreAccept { .. }
                | Body::Accept { .. }
                | Body::Prepare { .. }
                | Body::Validate { .. }
                | Body::Inquire => self.hand_over(from, key, cx),
                // Late: the instance was agreed on.
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
                let agreed = (command, attributes);
                if self.keys.contradict(key, id, &agreed) {
                    let what = format_args!("a second, different agreement on {id:?} of `{key}`");
                    return self.reject(node, what, cx);
                }
                self.commit(key, id, agreed, NodeSet::EMPTY, cx);
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
        if self.rejoin.is_under_way() {
            self.members.begin_incarnation(cx);
        }
        self.members.record_incarnations(cx);
        self.record_refusals(cx);
        self.clocks.ask(&self.members, cx);
        for key in self.keys.sorted() {
            // Their positions in the log are unknown, so they are recorded again at its end.
            let active = self.keys.get(&key).expect("as before");
            let known: Vec<InstanceId> = active.space.iter().map(|(id, _)| id).collect();
            for id in known {
                self.keys.record(&key, id, cx);
            }
            self.execute(&key, cx);
        }
        self.rejoin.scan(&self.members, cx);
        store_soon(cx);
        self.look_later(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        if !self.sound().to_replica(from, &message) {
            return self.reject(from, "a message that no correct sender sends", cx);
        }
        match message {
            // It does not know which values its predecessor held and what it had promised.
            Message::Request { .. } | Message::Read1 { .. } | Message::Write1 { .. }
                if self.rejoin.is_under_way() => {}
            Message::Request { request, key, command } => {
                self.on_request(OperationId { client: from, request }, key, command, cx);
            }
            Message::Read1 { operation, key, held, brings } => {
                self.states.hold_all(&brings, cx);
                self.states.hold(&key, &held, cx);
                let held = self.states.get(&key, cx.store()).held.clone();
                let incarnations = self.members.named();
                cx.send(from, Message::Read1Reply { operation, held, incarnations });
            }
            // Late: the sender has lost its disk since, and may not hold that value.
            Message::Read1Reply { incarnations, .. } | Message::Applied { incarnations, .. }
                if !self.members.quorums.hear(from, &incarnations) => {}
            Message::Read1Reply { operation, held, .. } => {
                self.members.quorums.is_there(from);
                if let Some(key) = self.reads.on_held(from, operation, &held, &mut self.members) {
                    self.states.hold(&key, &held, cx);
                }
                self.go_on_reading(operation, cx);
            }
            Message::Write1 { request, key, brings } => {
                self.states.hold_all(&brings, cx);
                let carstamp = self.states.get(&key, cx.store()).held.carstamp;
                let incarnations = self.members.named();
                cx.send(from, Message::Write1Reply { request, carstamp, incarnations });
            }
            Message::Apply { operation, key, stamped } => {
                self.states.hold(&key, &stamped, cx);
                // Its answer must not count before others know its incarnation.
                if !self.rejoin.is_under_way() {
                    let carstamp = stamped.carstamp;
                    let incarnations = self.members.named();
                    cx.send(from, Message::Applied { operation, carstamp, incarnations });
                }
            }
            Message::Applied { operation, carstamp, .. } => {
                self.members.quorums.is_there(from);
                if self.reads.on_applied(from, operation, carstamp, &mut self.members) {
                    self.go_on_reading(operation, cx);
                }
            }
            Message::Instance { key, id, incarnation, body } => {
                self.on_instance(from, &key, id, (incarnation, *body), cx);
                self.keys.forget(&key);
            }
            Message::Scan { after, incarnation } => self.on_scan(from, after, incarnation, cx),
            Message::Scanned { after, entries, more, incarnations } => {
                self.on_scanned(from, after, entries, (more, incarnations), cx);
            }
            Message::AlsoLost { incarnation } => {
                self.rejoin.on_also_lost(from, incarnation, &mut self.members, cx);
            }
            Message::Time(time) => {
                self.clocks.on_time(from, time, cx);
                if !self.rejoin.is_under_way() {
                    for (operation, key, command) in self.clocks.judgeable(cx) {
                        self.on_request(operation, key, command, cx);
                    }
                }
            }
            Message::TakeOver { key, state } => drop(self.take_over(&key, *state, cx)),
            Message::Reply { .. } | Message::Write1Reply { .. } => {
                unreachable!("messages for clients were rejected above")
            }
        }
        self.rejoin_if_done(cx);
        self.look_later(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Tick => {
                self.schedule.begin_tick();
                while let Some(task) = self.schedule.next(cx) {
                    self.do_task(task, cx);
                }
            }
            Timer::Watch => self.look_after(cx),
            Timer::Store => self.store_some(cx),
            Timer::Scan => self.rejoin.scan(&self.members, cx),
        }
        self.look_later(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.states.cells.resident() as u64);
        each("unstored_keys", self.states.cells.unstored() as u64);
        each("active_keys", self.keys.len() as u64);
        each("operations", self.open.len() as u64);
        each("catching_up", u64::from(self.rejoin.is_under_way()));
    }
}
