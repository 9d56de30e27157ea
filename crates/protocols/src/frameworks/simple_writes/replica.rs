//! The server side: it answers reads, puts writes into the log, and keeps requests while there is no leader.

use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{Key, NodeId, Value, Versionstamp};
use serried_parts::encode_cell;

use super::Mutation;
use super::cell::{Cell, Fate, Latest};
use super::machine::Machine;
use super::message::{Answer, Entry, Found, Message, Record, Request};
use super::stamp::Stamp;
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot, Host, Led, ReplicatedLog, WriteBack};

/// How many requests wait for a leader, for writes of their keys, and for a higher bound. Others are dropped, and clients
/// send them again.
const QUEUED_AT_MOST: usize = 4096;

/// A client that waits.
#[derive(Debug)]
pub(super) struct Client<S: Stamp> {
    pub(super) node: NodeId,
    pub(super) number: u64,
    pub(super) request: Request<S>,
}

impl<S: Stamp> Request<S> {
    /// The key that is written.
    pub(super) fn key(&self) -> Option<&Key> {
        match self {
            Request::Write { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica<S: Stamp> {
    log: ReplicatedLog<Led<Entry<S>>>,
    machine: Machine<S>,
    /// Requests that wait for a leader, or that the leader has no room for.
    queue: VecDeque<Client<S>>,
    /// The ballot in which it leads, as far as the machine knows.
    leads: Option<Ballot>,
    /// Whether its first entry is proposed.
    has_begun: bool,
    /// The bound that was proposed last.
    bound_proposed: Versionstamp,
    group: Group,
    write_back: WriteBack,
    counts: Counts,
    mutation: Mutated<Mutation>,
}

/// What it has done, for metrics.
#[derive(Debug, Default)]
struct Counts {
    reads: u64,
    /// Reads that had to wait for a higher bound (004 §3.3, "Non-blocking").
    blocked: u64,
    /// Reads as of a time that is not kept any more.
    too_old: u64,
    /// Writes that went into the log.
    writes: u64,
    /// Writes that were omitted without that.
    omitted: u64,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied, and raise the bound.
    Store,
}

type Cx<'a, S> = Context<'a, Replica<S>>;

impl<S: Stamp> Host for Replica<S> {
    type Entry = Led<Entry<S>>;

    fn message(message: replicated_log::Message<Self::Entry>) -> Self::Message {
        Message::Log(message)
    }

    fn record(record: Self::Record) -> Self::Record {
        record
    }

    fn timer(timer: replicated_log::Timer) -> Timer {
        Timer::Log(timer)
    }
}

impl<S: Stamp> Replica<S> {
    /// An empty replica, which does nothing wrong but `mutation`.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica<S> {
        let mut log = ReplicatedLog::new(id, group.clone(), settings);
        if mutation.is(Mutation::AcknowledgedByLeaderAlone) {
            log = log.with_quorum(1);
        }
        Replica {
            log,
            machine: Machine::new(settings, mutation),
            queue: VecDeque::new(),
            leads: None,
            has_begun: false,
            bound_proposed: Versionstamp::ZERO,
            group,
            write_back: WriteBack::default(),
            counts: Counts::default(),
            mutation,
        }
    }

    /// Whether a session can have what a request says of its version clock.
    fn is_possible(&self, request: &Request<S>, cx: &Cx<'_, S>) -> bool {
        let stamp = match request {
            Request::Read { at, .. } => at.stamp(),
            Request::Write { requested, .. } => requested.stamp(),
            Request::ReadClock => Versionstamp::ZERO,
        };
        let serving = self.machine.serving.as_ref();
        serving.is_none_or(|serving| serving.is_possible(stamp, cx.now()))
    }

    fn is_serving(&self) -> bool {
        self.leads.is_some() && self.machine.serving.is_some()
    }

    fn on_request(&mut self, client: Client<S>, cx: &mut Cx<'_, S>) {
        // Only writes wait for room in the log.
        let reads = client.request.key().is_none();
        let at_once = self.is_serving() && (reads || self.queue.is_empty());
        let waits = if at_once { self.handle(client, cx) } else { Some(client) };
        waits.into_iter().for_each(|client| self.wait(client));
    }

    fn wait(&mut self, client: Client<S>) {
        if self.queue.len() < QUEUED_AT_MOST {
            self.queue.push_back(client);
        }
    }

    /// Handles a request, as the leader. Returns the request if there is no room in the log.
    fn handle(&mut self, client: Client<S>, cx: &mut Cx<'_, S>) -> Option<Client<S>> {
        let node = client.node;
        if client.request.key().is_some_and(Key::is_empty) {
            cx.reject(|| format!("{node} writes an empty key"));
            return None;
        }
        if !self.is_possible(&client.request, cx) {
            cx.reject(|| format!("{node} has a versionstamp that the keyspace reaches in a year"));
            return None;
        }
        match &client.request {
            Request::Read { .. } => {
                self.read(client, cx);
                None
            }
            Request::Write { .. } => self.write(client, cx),
            Request::ReadClock => {
                let shown = self.machine.shown(cx);
                Self::answer(&client, Answer::Clock(shown), cx);
                None
            }
        }
    }

    /// What a reply depends on is durable, so it does not wait for what was appended since.
    fn answer(client: &Client<S>, answer: Answer<S>, cx: &mut Cx<'_, S>) {
        cx.send_before_durable(client.node, Message::Reply { number: client.number, answer });
    }

    /// Answers a read (004 Fig. 2, lines 17 to 24), unless it has to wait.
    fn read(&mut self, client: Client<S>, cx: &mut Cx<'_, S>) {
        let Request::Read { at, .. } = &client.request else { return };
        let at = at.stamp();
        if !self.promote(at, cx) {
            self.counts.blocked += 1;
            if self.machine.waits_for_bound() < QUEUED_AT_MOST {
                self.machine.wait_for_bound(at, client);
            }
            return self.raise_bound(cx);
        }
        let Request::Read { keys, .. } = &client.request else { return };
        self.counts.reads += 1;
        cx.charge(keys.len());
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(version) = self.version(key, at, cx.store()) else {
                self.counts.too_old += 1;
                let shown = self.machine.shown(cx);
                return Self::answer(&client, Answer::TooOld { shown }, cx);
            };
            found.push(version);
        }
        let shown = self.machine.shown(cx);
        Self::answer(&client, Answer::Values { found, shown }, cx);
    }

    /// Whether keys can be read as of `at`, which no later write then comes before.
    fn promote(&mut self, at: Versionstamp, cx: &Cx<'_, S>) -> bool {
        let bound = self.machine.partition.bound;
        let serving = self.machine.serving.as_mut().filter(|_| S::VERSIONS);
        serving.is_none_or(|serving| serving.promote(at, bound, cx.now()))
    }

    /// What a key had at `at`. `None` if that is not known any more.
    fn version(&mut self, key: &Key, at: Versionstamp, store: &dyn Store) -> Option<Found<S>> {
        let found = |version: &Latest| {
            let (value, stamp) = (version.value.clone(), S::of(version.stamp));
            Found { value, stamp }
        };
        let begun_at = self.machine.serving.as_ref()?.begun_at;
        let latest = self.machine.latest(key, store);
        if !S::VERSIONS || (latest.place <= at && begun_at < at) {
            return Some(found(latest));
        }
        let serving = self.machine.serving.as_ref().filter(|_| begun_at < at)?;
        serving.find(key, at).map(found)
    }

    /// Omits a write (004 §6.3), or puts it into the log. It waits if the key has a write that is not applied yet: it
    /// is probably omitted for that one, and then the log need not contain it.
    fn write(&mut self, client: Client<S>, cx: &mut Cx<'_, S>) -> Option<Client<S>> {
        let Request::Write { requested, key, value } = &client.request else { return None };
        let (now, requested) = (cx.now(), requested.stamp());
        let mut stamp = Versionstamp::ZERO;
        if S::VERSIONS {
            let begun_at = self.machine.serving.as_ref()?.begun_at;
            let latest = self.machine.latest(key, cx.store());
            let (fate, omitted_for) = (latest.fate(requested, begun_at), latest.stamp);
            let serving = self.machine.serving.as_mut()?;
            let pending = serving.is_pending(key);
            let omits =
                fate == Fate::Omitted || (pending && self.mutation.is(Mutation::OmittedForPending));
            if omits {
                self.counts.omitted += 1;
                let (stamp, shown) = (S::of(omitted_for), self.machine.shown(cx));
                Self::answer(&client, Answer::Written { stamp, omitted: true, shown }, cx);
                return None;
            }
            if pending {
                let key = key.clone();
                // If there are too many, clients send them again.
                if serving.parked() < QUEUED_AT_MOST {
                    serving.park(&key, client);
                }
                return None;
            }
            if fate == Fate::Outdated && !self.mutation.is(Mutation::OutdatedWritten) {
                let shown = self.machine.shown(cx);
                Self::answer(&client, Answer::Outdated { shown }, cx);
                return None;
            }
            stamp = serving.stamp(requested, cx.id().partition(), now);
        }
        let (key, value) = (key.clone(), value.clone());
        let (requested, stamped) = (S::of(requested), S::of(stamp));
        let entry = Entry::Write { key: key.clone(), value, requested, stamp: stamped };
        let Some(slot) = self.log.propose_led(entry, cx) else { return Some(client) };
        self.counts.writes += 1;
        if S::VERSIONS
            && let Some(serving) = &mut self.machine.serving
        {
            serving.begin(&key, stamp, now);
        }
        self.machine.wait(slot, client);
        None
    }

    /// Raises the bound of the version clock if it is reached soon.
    fn raise_bound(&mut self, cx: &mut Cx<'_, S>) {
        let Some(serving) = self.machine.serving.as_ref().filter(|_| S::VERSIONS) else { return };
        let bound = self.machine.partition.bound.max(self.bound_proposed);
        if let Some(wanted) = serving.bound_wanted(bound, self.machine.wanted(), cx.now())
            && self.log.propose_led(Entry::Bound(S::of(wanted)), cx).is_some()
        {
            self.bound_proposed = wanted;
        }
    }

    /// The log may have a new leader, or more room, or have applied more. Handles requests that wait, or passes them
    /// to the leader.
    fn after_log(&mut self, cx: &mut Cx<'_, S>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.leads = leads;
            (self.has_begun, self.bound_proposed) = (false, Versionstamp::ZERO);
            for client in self.machine.lead(leads) {
                self.wait(client);
            }
        }
        if leads.is_none() {
            return self.pass_on(cx);
        }
        if !self.has_begun {
            self.has_begun = self.log.propose_led(Entry::Lead, cx).is_some();
        }
        loop {
            self.log.choose_alone(&mut self.machine, cx);
            if !self.is_serving() {
                return;
            }
            if self.machine.wanted() > Versionstamp::ZERO {
                self.raise_bound(cx);
            }
            let mut queued = self.queue.len();
            let mut has_handled = false;
            loop {
                let next = self.machine.released.pop_front();
                let is_released = next.is_some();
                let next = next.or_else(|| match queued {
                    0 => None,
                    _ => self.queue.pop_front(),
                });
                let Some(client) = next else { break };
                queued -= usize::from(!is_released);
                if let Some(client) = self.handle(client, cx) {
                    self.queue.push_front(client);
                    break;
                }
                has_handled = true;
            }
            if !has_handled {
                return;
            }
        }
    }

    /// Passes requests that wait to the leader, if one is known.
    fn pass_on(&mut self, cx: &mut Cx<'_, S>) {
        let Some(leader) = self.log.leader(cx.now()) else { return };
        for Client { node, number, request } in self.queue.drain(..) {
            cx.send_before_durable(leader, Message::Forward { client: node, number, request });
        }
    }
}

impl<S: Stamp> Actor for Replica<S> {
    type Message = Message<S>;
    type Timer = Timer;
    type Record = Record<S>;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_, S>) {
        self.machine.load(cx.store());
        self.log.on_start(&mut self.machine, cx);
        self.after_log(cx);
        WriteBack::schedule(Timer::Store, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Self::Message, cx: &mut Cx<'_, S>) {
        cx.charge(1);
        match message {
            Message::Request { number, request } => {
                self.on_request(Client { node: from, number, request }, cx);
            }
            // It is not passed on again: two replicas could send it back and forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { client, number, request } => {
                if !self.group.contains(from) || from.partition() != cx.id().partition() {
                    return cx
                        .reject(|| format!("{from} passes on requests, which only replicas do"));
                }
                self.on_request(Client { node: client, number, request }, cx);
            }
            Message::Log(message) => {
                self.log.on_message(from, message, &mut self.machine, cx);
            }
            Message::Reply { .. } => {
                cx.reject(|| format!("{from} has sent a replica what only clients are sent"));
            }
        }
        self.after_log(cx);
    }

    fn on_durable(&mut self, cx: &mut Cx<'_, S>) {
        self.log.on_durable(&mut self.machine, cx);
        self.after_log(cx);
    }

    /// Reads go on, unless they have to wait.
    fn on_message_read_only(
        &mut self,
        from: NodeId,
        message: Self::Message,
        cx: &mut Cx<'_, S>,
    ) -> bool {
        let Message::Request { number, request } = message else { return false };
        let Request::Read { at, .. } = &request else { return false };
        let at = at.stamp();
        if !self.is_serving() || !self.is_possible(&request, cx) || !self.promote(at, cx) {
            return false;
        }
        self.read(Client { node: from, number, request }, cx);
        true
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, S>) {
        match timer {
            Timer::Log(timer) => {
                self.log.on_timer(timer, &mut self.machine, cx);
                self.after_log(cx);
            }
            Timer::Store => {
                if self.is_serving() {
                    self.raise_bound(cx);
                    self.after_log(cx);
                }
                if let Some(serving) = &mut self.machine.serving {
                    serving.expire(cx.now());
                }
                self.machine.keep_partition(cx.store());
                if self.write_back.write(self.machine.cells_mut(), cx) {
                    self.log.trim(&self.machine, cx);
                }
                WriteBack::schedule(Timer::Store, cx);
            }
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.machine.cells().resident() as u64);
        each("unstored_keys", self.machine.cells().unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
        each("reads", self.counts.reads);
        each("writes", self.counts.writes);
        if S::VERSIONS {
            let serving = self.machine.serving.as_ref();
            each("overwritten_versions", serving.map_or(0, |serving| serving.overwritten() as u64));
            each("blocked_reads", self.counts.blocked);
            each("too_old_reads", self.counts.too_old);
            each("omitted_writes", self.counts.omitted + self.machine.omitted);
        }
    }
}

impl<S: Stamp> Recover for Replica<S> {
    fn replay(&mut self, record: Self::Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_, S>) {
        if !self.mutation.is(Mutation::RejoinsAtOnce) {
            self.log.rejoin(cx);
        }
    }

    fn on_stop(&mut self, cx: &mut Cx<'_, S>) {
        self.log.stop(cx);
        self.after_log(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        self.log.standing()
    }

    fn stored(value: &Value) -> Vec<u8> {
        let latest = Latest { value: Some(value.clone()), ..Latest::default() };
        encode_cell(&Cell::Key(latest))
    }
}
