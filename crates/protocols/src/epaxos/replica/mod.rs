//! The server side: it coordinates its clients' commands, takes part in those of others, and executes all.

mod lead;
mod lost;
mod progress;
mod recover;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Actor, Context, Group, NodeSet, Recover, Settings, Store, Timestamp};
use serried_model::{Access, Key, NodeId, Value};
use serried_parts::{Cells, Stamped, encode_cell};

use super::instance::{Command, Dependencies, InstanceId, Status};
use super::message::{Answer, Body, Found, Message, Record, State};
use super::space::Space;
use lead::Lead;
use lost::Lost;

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    group: Group,
    settings: Settings,
    id: NodeId,
    cells: Cells<State>,
    /// The keys with instances that are not executed everywhere.
    spaces: BTreeMap<Key, Active>,
    /// What this replica is about to have agreed on.
    leads: BTreeMap<(Key, InstanceId), Lead>,
    /// Who waits for which instance of this replica's.
    clients: BTreeMap<(Key, InstanceId), Client>,
    /// When to look after what.
    due: BTreeSet<(Timestamp, Key, Task)>,
    tick: Option<Timestamp>,
    /// Set while it does not know what its predecessor had promised.
    lost: Option<Lost>,
    /// The records in the log, the oldest first.
    records: VecDeque<(u64, Key, InstanceId)>,
}

/// A key with instances that are not executed everywhere.
#[derive(Debug)]
struct Active {
    space: Space,
    /// How far the others have executed them.
    others: BTreeMap<u8, Dependencies>,
    /// Something was executed since the others were last told.
    untold: bool,
    telling: bool,
    watched: BTreeSet<InstanceId>,
}

/// A client that waits.
#[derive(Clone, Debug)]
struct Client {
    node: NodeId,
    request: u64,
    command: Command,
}

/// Something to be looked after.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Task {
    /// Go on with what this replica leads.
    Lead(InstanceId),
    /// An instance should be committed by now.
    Watch(InstanceId),
    /// Tell the others how far a key is.
    Tell,
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Look after what is due.
    Tick,
    /// Put into the store what was executed.
    Store,
    /// Ask again for what others have.
    Scan,
}

/// How often what was executed is put into the store.
const STORE_EVERY: Duration = Duration::from_millis(10);
/// How many keys at a time; more where there are very many.
const STORED_AT_ONCE: usize = 256;

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica.
    pub fn new(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica {
            group,
            settings: *settings,
            id,
            cells: Cells::new(settings.resident_keys),
            spaces: BTreeMap::new(),
            leads: BTreeMap::new(),
            clients: BTreeMap::new(),
            due: BTreeSet::new(),
            tick: None,
            lost: None,
            records: VecDeque::new(),
        }
    }

    fn member(&self) -> u8 {
        self.id.member() as u8
    }

    fn node(&self, member: usize) -> NodeId {
        NodeId::replica(self.id.partition(), member)
    }

    /// All replicas but this one.
    fn others(&self) -> NodeSet {
        self.group.all().without([self.id].into_iter().collect())
    }

    fn active(&mut self, key: &Key, store: &dyn Store) -> &mut Active {
        if !self.spaces.contains_key(key) {
            let mut executed = self.cells.get(key, store).executed.clone();
            if executed.updates.is_empty() {
                executed = Dependencies::none(self.group.size());
            }
            let active = Active {
                space: Space::new(self.group.size(), executed),
                others: BTreeMap::new(),
                untold: false,
                telling: false,
                watched: BTreeSet::new(),
            };
            self.spaces.insert(key.clone(), active);
        }
        self.spaces.get_mut(key).expect("it is there")
    }

    fn send(&self, to: u8, key: &Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        let (key, body) = (key.clone(), Box::new(body));
        cx.send(self.node(usize::from(to)), Message::Instance { key, id, body });
    }

    fn broadcast(&self, to: NodeSet, key: &Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        let message = Message::Instance { key: key.clone(), id, body: Box::new(body) };
        cx.broadcast(self.id.partition(), to, message);
    }

    /// Makes durable what is known of an instance.
    fn record(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let active = self.spaces.get_mut(key).expect("a key with an instance");
        active.space.learn(id);
        let instance = active.space.get_mut(id).clone();
        self.records.push_back((cx.log_position(), key.clone(), id));
        cx.append(Record::Instance { key: key.clone(), id, instance: Box::new(instance) });
    }

    fn at(&mut self, after: Duration, key: &Key, task: Task, cx: &mut Cx<'_>) {
        let due = cx.now() + after;
        self.due.insert((due, key.clone(), task));
        if self.tick.is_none_or(|tick| due < tick) {
            self.tick = Some(due);
            cx.set_timer(Timer::Tick, after);
        }
    }

    fn on_request(
        &mut self,
        node: NodeId,
        request: u64,
        key: Key,
        command: Command,
        cx: &mut Cx<'_>,
    ) {
        let ahead_us = command.token.timestamp_us as i64 - cx.clock().latest_us as i64;
        if ahead_us > self.settings.clock_bound_ms as i64 * 1000 {
            return cx
                .send(node, Message::Reply { request, answer: Answer::ClockSkew { ahead_us } });
        }
        let known = self.clients.range_mut((key.clone(), InstanceId::FIRST)..);
        let mut known = known.take_while(|((other, _), _)| *other == key);
        if known.any(|(_, client)| client.node == node && client.request == request) {
            return; // Repeated.
        }
        let state = self.cells.get(&key, cx.store());
        if let Some(found) = state.result(command.token) {
            let answer = Answer::Done(found.clone());
            return cx.send(node, Message::Reply { request, answer });
        }
        self.propose(&key, Client { node, request, command }, cx);
    }

    /// Executes what can be executed of a key.
    fn execute(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let remembered_us = self.settings.outcomes_ms * 1000;
        loop {
            let Some(active) = self.spaces.get_mut(key) else { return };
            let (order, missing) = active.space.executable();
            for id in missing {
                self.watch(key, id, cx);
            }
            if order.is_empty() {
                return;
            }
            let active = self.spaces.get_mut(key).expect("as before");
            let position = cx.log_position();
            let state = self.cells.change(key, position, cx.store());
            for id in order {
                if let Some(command) = active.space.command(id) {
                    let answer = state.execute(command, remembered_us);
                    if let Some(client) = self.clients.remove(&(key.clone(), id)) {
                        let request = client.request;
                        cx.send(client.node, Message::Reply { request, answer });
                    }
                }
                active.space.set_executed(id);
            }
            state.executed = active.space.executed().clone();
            active.untold = true;
            cx.charge(1);
            self.tell_soon(key, cx);
            self.store_soon(cx);
        }
    }

    fn store_soon(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Store, STORE_EVERY);
    }

    fn store_some(&mut self, cx: &mut Cx<'_>) {
        if !cx.store().is_behind() {
            let at_once = STORED_AT_ONCE.max(self.cells.unstored() / 64);
            self.cells.store_some(at_once, cx.store());
        }
        self.trim(cx);
        if self.cells.unstored() > 0 || !self.records.is_empty() {
            cx.set_timer(
                Timer::Store,
                STORE_EVERY * if self.cells.unstored() > 0 { 1 } else { 20 },
            );
        }
    }

    /// Gives up the records of instances that are forgotten.
    fn trim(&mut self, cx: &mut Cx<'_>) {
        // That something is missing stands in one of them.
        if self.lost.is_some() {
            return;
        }
        while let Some((_, key, id)) = self.records.front() {
            // A state that is not stored follows from instances that may be forgotten.
            let kept = self.spaces.get(key).is_some_and(|active| active.space.get(*id).is_some());
            if kept || !self.cells.is_stored(key) {
                break;
            }
            self.records.pop_front();
        }
        let first = self.records.front().map(|(position, ..)| *position);
        let needed = [first, self.cells.needs_log_from()].into_iter().flatten().min();
        cx.trim_log(needed.unwrap_or(cx.log_position()));
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        self.tick = None;
        while let Some((due, ..)) = self.due.first() {
            if *due > cx.now() {
                let (due, after) = (*due, due.since(cx.now()));
                self.tick = Some(due);
                return cx.set_timer(Timer::Tick, after);
            }
            let (_, key, task) = self.due.pop_first().expect("it was there");
            match task {
                Task::Lead(id) => self.go_on(&key, id, cx),
                Task::Watch(id) => self.look_after(&key, id, cx),
                Task::Tell => self.tell(&key, cx),
            }
        }
    }

    fn on_instance(&mut self, from: NodeId, key: Key, id: InstanceId, body: Body, cx: &mut Cx<'_>) {
        let is_lost = self.lost.is_some();
        let active = self.active(&key, cx.store());
        if active.space.is_executed(id) && active.space.get(id).is_none() {
            // Forgotten: whoever asks has missed much.
            let executed = active.space.executed().clone();
            return cx.send(from, Message::Progress { key, executed });
        }
        let from = from.member() as u8;
        let barred = is_lost || active.space.get(id).is_some_and(|i| i.barred);
        if barred && !matches!(body, Body::Commit { .. }) {
            return;
        }
        match body {
            Body::PreAccept { command, attributes, quorum } => {
                self.on_pre_accept(from, &key, id, (command, attributes, quorum), cx);
            }
            Body::PreAccepted { attributes } => {
                self.on_pre_accepted(from, &key, id, attributes, cx)
            }
            Body::Accept { ballot, command, attributes } => {
                self.on_accept(from, &key, id, ballot, (command, attributes), cx);
            }
            Body::Accepted { ballot } => self.on_accepted(from, &key, id, ballot, cx),
            Body::Commit { command, attributes } => {
                self.commit(&key, id, (command, attributes), NodeSet::EMPTY, cx);
            }
            Body::Prepare { ballot } => self.on_prepare(from, &key, id, ballot, cx),
            Body::Prepared { ballot, instance } => {
                self.on_prepared(from, &key, id, ballot, instance, cx);
            }
            Body::Refused { promised } => self.on_refused(&key, id, promised, cx),
            Body::Validate { ballot, command, attributes } => {
                self.on_validate(from, &key, id, ballot, (command, attributes), cx);
            }
            Body::Validated { ballot, conflicts } => {
                self.on_validated(from, &key, id, ballot, conflicts, cx);
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
        let keys: Vec<Key> = self.spaces.keys().cloned().collect();
        for key in keys {
            // Where they lie in the log is not known; they are put at its end.
            let known: Vec<InstanceId> =
                self.spaces[&key].space.iter().map(|(id, _)| *id).collect();
            for id in known {
                self.record(&key, id, cx);
            }
            self.execute(&key, cx);
            let active = &self.spaces[&key];
            let open = active.space.iter().filter(|(_, i)| i.status < Status::Committed);
            for id in open.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.watch(&key, id, cx);
            }
            self.tell_soon(&key, cx);
        }
        self.scan(cx);
        self.store_soon(cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        match message {
            Message::Request { .. } if self.lost.is_some() => {}
            Message::Request { request, key, command } => {
                self.on_request(from, request, key, command, cx);
            }
            Message::Instance { key, id, body } => self.on_instance(from, key, id, *body, cx),
            Message::Scan { after } => self.on_scan(from, after, cx),
            Message::Scanned { after, entries, more } => {
                self.on_scanned(from, after, entries, more, cx);
            }
            Message::Progress { key, executed } => self.on_progress(from, key, executed, cx),
            Message::Fetch { key } => self.on_fetch(from, key, cx),
            Message::Fetched { key, state } => self.on_fetched(key, state, cx),
            Message::Reply { .. } => {} // No one sends a replica that.
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Tick => self.tick(cx),
            Timer::Store => self.store_some(cx),
            Timer::Scan => self.scan(cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.cells.resident() as u64);
        each("unstored_keys", self.cells.unstored() as u64);
        each("active_keys", self.spaces.len() as u64);
        each("instances_led", self.leads.len() as u64);
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        match record {
            Record::Instance { key, id, instance } => {
                let active = self.active(&key, store);
                if !active.space.is_executed(id) {
                    *active.space.get_mut(id) = *instance;
                    active.space.learn(id);
                }
            }
            Record::Lost => self.lost = Some(Lost::default()),
            Record::Whole => self.lost = None,
        }
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        self.lost = Some(Lost::default());
        cx.append(Record::Lost);
    }

    fn stored(value: &Value) -> Vec<u8> {
        let held = Stamped { value: Some(value.clone()), ..Stamped::default() };
        encode_cell(&State { held, ..State::default() })
    }
}

/// What a write is answered as soon as it is certain that it takes effect.
fn answers_early(command: &Command) -> Option<Answer> {
    matches!(command.access, Access::Write(_)).then(|| Answer::Done(Found::default()))
}
