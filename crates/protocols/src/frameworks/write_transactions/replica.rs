//! The server side: it answers reads, puts transactions into the log, and keeps requests while there is no leader.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{Key, NodeId, Value, Versionstamp};
use serried_parts::encode_cell;

use super::Mutation;
use super::cell::{Cell, Transaction, Version, Versions};
use super::machine::{Event, Machine};
use super::message::{Answer, Clock, Entry, Message, Peer, Record, Request, TransactionId};
use super::reads::Checking;
use super::sites::{Exchange, SHIPPED_EVERY};
use crate::Mutated;
use crate::frameworks::replicated_log::{self, Ballot, Host, Led, ReplicatedLog, WriteBack};

/// How many requests wait for a leader, for room in the log, or for something to be decided. Others are dropped, and
/// whoever has sent them sends them again.
pub(super) const QUEUED_AT_MOST: usize = 4096;

/// How many transactions are under way at most. Others are dropped, and clients send them again.
const OPEN_AT_MOST: usize = 1 << 16;

/// A client that waits.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) node: NodeId,
    pub(super) number: u64,
    pub(super) clock: Versionstamp,
    pub(super) request: Request,
    /// It is a read that has waited.
    has_waited: bool,
}

impl Client {
    fn new(node: NodeId, number: u64, clock: Versionstamp, request: Request) -> Client {
        Client { node, number, clock, request, has_waited: false }
    }
}

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    pub(super) log: ReplicatedLog<Led<Entry>>,
    pub(super) machine: Machine,
    /// Requests that wait for a leader, or that the leader has no room for.
    queue: VecDeque<Client>,
    /// Reads that wait until something is decided, or the bound is higher.
    parked: Vec<Client>,
    /// Requests that can be handled now.
    released: VecDeque<Client>,
    /// The ballot in which it leads, as far as the machine knows.
    leads: Option<Ballot>,
    /// Whether its first entry is proposed.
    has_begun: bool,
    /// The bound, and what is refused, that were proposed last.
    proposed: (Versionstamp, Versionstamp),
    /// By partition, the leader, as far as this one knows.
    pub(super) leaders: BTreeMap<u16, NodeId>,
    /// How often something had to be sent again.
    pub(super) repeated: usize,
    /// What others have sent that waits until a refusal is in the log.
    pub(super) refusing: BTreeMap<TransactionId, Vec<(NodeId, Peer)>>,
    /// What others have sent that waits for a higher bound.
    pub(super) postponed: Vec<(NodeId, Peer)>,
    /// Votes for transactions that are not prepared here yet.
    pub(super) early: BTreeMap<TransactionId, BTreeMap<u16, Versionstamp>>,
    /// Reads that wait for answers of coordinators.
    pub(super) checking: BTreeMap<u64, Checking>,
    pub(super) last_check: u64,
    /// Decisions for which the log had no room. They come before requests.
    pub(super) stalled: VecDeque<Entry>,
    /// What it knows of other sites, as the leader.
    pub(super) exchange: Exchange,
    pub(super) group: Group,
    pub(super) settings: Settings,
    write_back: WriteBack,
    pub(super) counts: Counts,
    pub(super) mutation: Mutated<Mutation>,
}

/// What it has done, for metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: u64,
    /// Reads that had to wait (004 §3.3, "Non-blocking").
    pub(super) blocked: u64,
    /// Reads as of a time that is not kept any more.
    pub(super) too_old: u64,
    /// Pending transactions that coordinators were asked about.
    pub(super) checked: u64,
    /// Transactions that went into the log.
    writes: u64,
    /// Transactions that were undone or refused.
    undone: u64,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied, and raise the bound.
    Store,
    /// Ask about transactions that take long, and tell others again what was decided.
    Settle,
    /// Send to other sites what has committed.
    Ship,
}

pub(super) type Cx<'a> = Context<'a, Replica>;

impl Host for Replica {
    type Entry = Led<Entry>;

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

impl Replica {
    /// An empty replica, which does nothing wrong but `mutation`.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica {
        let mut log = ReplicatedLog::new(id, group.clone(), settings);
        if group.sites() > 1 {
            log = log.that_may_begin_anew();
        }
        if mutation.is(Mutation::AcknowledgedByLeaderAlone) {
            log = log.with_quorum(1);
        }
        Replica {
            log,
            machine: Machine::new(group.clone(), settings, mutation),
            queue: VecDeque::new(),
            parked: Vec::new(),
            released: VecDeque::new(),
            leads: None,
            has_begun: false,
            proposed: Default::default(),
            leaders: BTreeMap::new(),
            repeated: 0,
            refusing: BTreeMap::new(),
            postponed: Vec::new(),
            early: BTreeMap::new(),
            checking: BTreeMap::new(),
            last_check: 0,
            stalled: VecDeque::new(),
            exchange: Exchange::default(),
            group,
            settings: *settings,
            write_back: WriteBack::default(),
            counts: Counts::default(),
            mutation,
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.leads.is_some() && self.machine.serving.is_some()
    }

    /// Whether it leads, and clients can be served: the site is not being rebuilt.
    fn serves_clients(&self) -> bool {
        self.is_serving() && !self.is_rebuilding()
    }

    /// After how long something is sent again.
    pub(super) fn period(&self) -> Duration {
        self.settings.election_timeout()
    }

    /// What the clock shows.
    pub(super) fn clock(&self, cx: &Cx<'_>) -> Clock {
        let bound = self.machine.partition.bound;
        let clock = self.machine.serving.as_ref().map(|s| s.clock(bound, cx.now()));
        Clock { era: self.era(), ..clock.unwrap_or_default() }
    }

    /// How often the site has been rebuilt from others.
    pub(super) fn era(&self) -> u32 {
        self.machine.sites.eras[usize::from(self.group.site())]
    }

    /// The clock shows at least this, if the log allows it. Otherwise the bound has to be raised.
    pub(super) fn take_over(&mut self, stamp: Versionstamp, cx: &mut Cx<'_>) -> bool {
        let (bound, now) = (self.machine.partition.bound, cx.now());
        let Some(serving) = self.machine.serving.as_mut() else { return false };
        let is_allowed = serving.take_over(stamp, bound, now);
        if !is_allowed {
            self.raise_bound(cx);
        }
        is_allowed
    }

    fn on_request(&mut self, client: Client, cx: &mut Cx<'_>) {
        // Only writes wait for room in the log.
        let reads = !matches!(client.request, Request::Write { .. });
        let at_once = self.serves_clients() && (reads || self.queue.is_empty());
        let waits = if at_once { self.handle(client, cx) } else { Some(client) };
        waits.into_iter().for_each(|client| self.wait(client));
    }

    fn wait(&mut self, client: Client) {
        if self.queue.len() < QUEUED_AT_MOST {
            self.queue.push_back(client);
        }
    }

    /// A read waits until something is decided, or the bound is higher.
    pub(super) fn park(&mut self, mut client: Client) {
        let has_waited = core::mem::replace(&mut client.has_waited, true);
        self.counts.blocked += u64::from(!has_waited);
        if self.parked.len() < QUEUED_AT_MOST {
            self.parked.push(client);
        }
    }

    /// Handles a request, as the leader. Returns the request if there is no room in the log.
    fn handle(&mut self, client: Client, cx: &mut Cx<'_>) -> Option<Client> {
        if let Err(why) = self.check(&client, cx) {
            let node = client.node;
            cx.reject(|| format!("{node} {why}"));
            return None;
        }
        self.take_over(client.clock, cx);
        match &client.request {
            Request::Read { .. } => self.read(client, cx),
            Request::ReadLatest { .. } => self.read_latest(&client, cx),
            Request::ReadAt { .. } => self.read_at(client, cx),
            Request::Write { .. } => return self.write(client, cx),
            Request::Reach { site, stamp, era } => {
                self.reach((client.node, client.number), (*site, *stamp, *era), cx);
            }
            Request::ReadClock => {
                let clock = self.clock(cx);
                Self::answer((client.node, client.number), Answer::Clock(clock), cx);
            }
        }
        None
    }

    /// Whether a client can have sent this.
    fn check(&self, client: &Client, cx: &Cx<'_>) -> Result<(), &'static str> {
        let stamp = match &client.request {
            Request::Read { at, written, .. } => *at.max(written),
            Request::ReadAt { at, .. } => *at,
            Request::Write { id, .. } => id.requested,
            Request::Reach { stamp, .. } => *stamp,
            Request::ReadLatest { .. } | Request::ReadClock => Versionstamp::ZERO,
        };
        if let Request::Reach { site, .. } = client.request
            && (site == self.group.site() || site >= self.group.sites())
        {
            return Err("waits for a site that is no other one");
        }
        let (latest, now) = (stamp.max(client.clock), cx.now());
        if self.machine.serving.as_ref().is_some_and(|s| !s.is_possible(latest, now)) {
            return Err("has a versionstamp that the keyspace reaches in a year");
        }
        let Request::Write { participants, writes, .. } = &client.request else { return Ok(()) };
        let own = cx.id().partition();
        let mut sorted = participants.clone();
        sorted.sort_unstable();
        let are_sound = sorted.is_sorted_by(|one, other| one < other)
            && sorted.contains(&own)
            && sorted.iter().all(|partition| self.group.has(*partition));
        if !are_sound {
            return Err("names participants that a transaction can't have");
        }
        let mut keys: Vec<&Key> = writes.iter().map(|write| &write.key).collect();
        keys.sort_unstable();
        let are_sound = !keys.is_empty()
            && keys.is_sorted_by(|one, other| one < other)
            && keys.iter().all(|key| !key.is_empty() && self.group.partition_of(key) == own);
        if !are_sound {
            return Err("writes nothing, a key twice, an empty key, or one of another partition");
        }
        Ok(())
    }

    /// What a reply depends on is durable, so it does not wait for what was appended since.
    pub(super) fn answer((node, number): (NodeId, u64), answer: Answer, cx: &mut Cx<'_>) {
        cx.send_before_durable(node, Message::Reply { number, answer });
    }

    /// Answers about a decided transaction.
    fn answer_decided(&self, client: (NodeId, u64), commit: Option<Versionstamp>, cx: &mut Cx<'_>) {
        let clock = self.clock(cx);
        let answer = match commit {
            Some(commit) => Answer::Committed { commit, clock },
            None => Answer::Undone { clock },
        };
        Self::answer(client, answer, cx);
    }

    /// Takes part in a transaction, unless it is known already.
    fn write(&mut self, client: Client, cx: &mut Cx<'_>) -> Option<Client> {
        let Request::Write { id, participants, writes, era } = &client.request else { return None };
        let (id, to, now) = (*id, (client.node, client.number), cx.now());
        let is_checked = !self.mutation.is(Mutation::ErasNotChecked);
        if era.is_some_and(|era| is_checked && era < self.era()) {
            let clock = self.clock(cx);
            Self::answer(to, Answer::Rebuilt { clock }, cx);
            return None;
        }
        if id.requested <= self.machine.sites.rebuilt_at {
            let clock = self.clock(cx);
            Self::answer(to, Answer::Forgotten { clock }, cx);
            return None;
        }
        if let Some(Transaction::Decided { commit, .. }) = self.machine.transactions.get(&id) {
            self.answer_decided(to, *commit, cx);
            return None;
        }
        let refused = self.machine.partition.refused.max(self.machine.partition.horizon);
        let serving = self.machine.serving.as_mut()?;
        if let Some(open) = serving.open.get_mut(&id) {
            if !open.clients.contains(&to) && open.clients.len() < QUEUED_AT_MOST {
                open.clients.push(to);
            }
            return None;
        }
        // The client sends it again when it is refused.
        if self.refusing.contains_key(&id) || serving.open.len() >= OPEN_AT_MOST {
            return None;
        }
        // Whoever leads refuses it, since the log says so.
        if id.requested <= refused {
            let clock = self.clock(cx);
            Self::answer(to, Answer::Outdated { clock }, cx);
            // It never will be prepared here.
            if let [coordinator, _, ..] = participants[..]
                && coordinator != cx.id().partition()
            {
                self.tell(coordinator, Peer::Refused(id), cx);
            }
            return None;
        }
        let stamp = serving.stamp(id.requested, cx.id().partition(), now);
        let entry = match participants.len() {
            1 => Entry::Write { id, commit: stamp, writes: writes.clone() },
            _ => {
                let (participants, writes) = (participants.clone(), writes.clone());
                Entry::Prepare { id, participants, pending: stamp, writes, cut: Vec::new() }
            }
        };
        if !self.stalled.is_empty() || self.log.propose_led(entry, cx).is_none() {
            return Some(client);
        }
        self.counts.writes += 1;
        let serving = self.machine.serving.as_mut()?;
        serving.begin(id, stamp, participants, writes, now);
        let open = serving.open.get_mut(&id)?;
        open.clients.push(to);
        if let Some(votes) = self.early.remove(&id) {
            open.votes = votes;
        }
        None
    }

    /// Raises the bound of the clock if it is reached soon, and the horizon now and then.
    fn raise_bound(&mut self, cx: &mut Cx<'_>) {
        let Some(serving) = self.machine.serving.as_ref() else { return };
        let partition = self.machine.partition;
        let bound = partition.bound.max(self.proposed.0);
        let known = partition.refused.max(self.proposed.1);
        let samples = &serving.horizon;
        let refused = samples.refused(cx.now()).unwrap_or_default().max(known);
        let horizon = samples.forgotten(cx.now()).unwrap_or_default().max(partition.horizon);
        let wanted = serving.bound_wanted(bound, cx.now());
        if wanted.is_none() && refused == known {
            return;
        }
        let bound = wanted.unwrap_or(bound);
        if self.log.propose_led(Entry::Bound { bound, horizon, refused }, cx).is_some() {
            self.proposed = (bound, refused);
        }
    }

    /// What an applied entry has changed.
    fn on_event(&mut self, event: Event, cx: &mut Cx<'_>) {
        match event {
            Event::Prepared(id) => self.on_prepared(id, cx),
            Event::Decided(id) => {
                self.end_checks(id, cx);
                if let Some(waiting) = self.refusing.remove(&id) {
                    waiting.into_iter().for_each(|(from, peer)| self.on_peer(from, peer, cx));
                }
                let Some(Transaction::Decided { commit, untold }) =
                    self.machine.transactions.get(&id)
                else {
                    return;
                };
                let (commit, is_told) = (*commit, untold.is_empty());
                self.counts.undone += u64::from(commit.is_none());
                let Some(serving) = self.machine.serving.as_mut() else { return };
                let Some(open) = serving.open.get_mut(&id) else { return };
                let (clients, checks) =
                    (core::mem::take(&mut open.clients), core::mem::take(&mut open.checks));
                let coordinator = open.coordinator;
                if is_told {
                    serving.open.remove(&id);
                }
                for client in clients {
                    self.answer_decided(client, commit, cx);
                }
                for (from, number) in checks {
                    self.send_peer(from, Peer::Checked { number, commit }, cx);
                }
                if let Some(coordinator) = coordinator.filter(|c| *c != cx.id().partition()) {
                    self.tell(coordinator, Peer::Done(id), cx);
                }
                self.tell_decision(id, cx);
                self.released.extend(self.parked.drain(..));
            }
            Event::Received(site) => self.on_received(site, cx),
            Event::Copied(site, to) => self.on_part_kept(site, to, cx),
            Event::TakenBack(site) => self.on_taken_back(site, cx),
            Event::Rebuilds => self.on_rebuilds(cx),
            Event::SiteLost(site) => self.on_site_lost(site),
            Event::Restored(site) => self.on_part_restored(site, cx),
            Event::Raised => {
                self.released.extend(self.parked.drain(..));
                for (from, peer) in core::mem::take(&mut self.postponed) {
                    self.on_peer(from, peer, cx);
                }
            }
        }
    }

    /// The log may have a new leader, or more room, or have applied more. Handles requests that wait, or passes them
    /// to the leader.
    fn after_log(&mut self, cx: &mut Cx<'_>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.leads = leads;
            (self.has_begun, self.proposed) = (false, Default::default());
            self.machine.lead(leads);
            for client in
                core::mem::take(&mut self.released).into_iter().chain(self.parked.drain(..))
            {
                if self.queue.len() < QUEUED_AT_MOST {
                    self.queue.push_back(client);
                }
            }
            self.refusing.clear();
            self.postponed.clear();
            self.early.clear();
            self.checking.clear();
            self.stalled.clear();
            self.exchange = Exchange::default();
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
            if self.exchange.is_new() {
                self.exchange = Exchange::new(&self.machine.sites, &self.group);
            }
            self.tell_lost_sites(cx);
            let mut has_handled = false;
            while let Some(event) = self.machine.events.pop_front() {
                self.on_event(event, cx);
                has_handled = true;
            }
            has_handled |= self.propose_stalled(cx);
            self.take_part(cx);
            let has_room = self.stalled.is_empty() && !self.is_rebuilding();
            let mut queued = if has_room { self.queue.len() } else { 0 };
            loop {
                let next = self.released.pop_front();
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

    /// Puts a decision into the log, at once or as soon as there is room.
    pub(super) fn propose(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        self.stalled.push_back(entry);
        self.propose_stalled(cx);
    }

    /// Puts decisions into the log that wait for room. Returns whether any was.
    fn propose_stalled(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut has_proposed = false;
        while let Some(entry) = self.stalled.front() {
            if self.log.propose_led(entry.clone(), cx).is_none() {
                break;
            }
            self.stalled.pop_front();
            has_proposed = true;
        }
        has_proposed
    }

    /// Passes requests that wait to the leader, if one is known.
    fn pass_on(&mut self, cx: &mut Cx<'_>) {
        let Some(leader) = self.log.leader(cx.now()) else { return };
        for Client { node, number, clock, request, .. } in self.queue.drain(..) {
            let message = Message::Forward { client: node, number, clock, request };
            cx.send_before_durable(leader, message);
        }
    }

    /// A message of another partition's leader.
    fn receive(&mut self, from: NodeId, origin: NodeId, (era, peer): (u32, Peer), cx: &mut Cx<'_>) {
        let is_direct = from == origin;
        let own = cx.id().partition();
        let is_sound = self.group.contains(from)
            && self.group.contains(origin)
            && origin.partition() != own
            && (is_direct || from.partition() == own);
        if !is_sound {
            return cx.reject(|| format!("{from} sends what only leaders of other partitions do"));
        }
        if self.is_serving() {
            self.leaders.insert(origin.partition(), origin);
            // What partitions have promised each other is lost if the site is.
            if era == self.era() && !self.must_rebuild() {
                self.on_peer(origin, peer, cx);
            }
            return;
        }
        // It is not passed on again: two replicas could send it back and forth.
        if let Some(leader) = self.log.leader(cx.now()).filter(|_| is_direct)
            && leader != cx.id()
        {
            cx.send_before_durable(leader, Message::PassedOn { origin, era, peer });
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        // Answers to questions of a former run must not answer others.
        self.last_check = cx.draw() >> 20;
        self.machine.load(cx.store());
        self.log.on_start(&mut self.machine, cx);
        self.after_log(cx);
        WriteBack::schedule(Timer::Store, cx);
        cx.set_timer(Timer::Settle, self.period());
        if self.has_sites() {
            cx.set_timer(Timer::Ship, SHIPPED_EVERY);
        }
    }

    fn on_message(&mut self, from: NodeId, message: Self::Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        match message {
            Message::Request { number, clock, request } => {
                self.on_request(Client::new(from, number, clock, request), cx);
            }
            // It is not passed on again: two replicas could send it back and forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { client, number, clock, request } => {
                if !self.group.contains(from) || from.partition() != cx.id().partition() {
                    return cx
                        .reject(|| format!("{from} passes on requests, which only replicas do"));
                }
                self.on_request(Client::new(client, number, clock, request), cx);
            }
            Message::Peer { era, peer } => self.receive(from, from, (era, peer), cx),
            Message::PassedOn { origin, era, peer } => {
                self.receive(from, origin, (era, peer), cx);
            }
            Message::Across { origin, eras, across } => {
                self.receive_across(from, origin, (eras, across), cx);
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

    fn on_durable(&mut self, cx: &mut Cx<'_>) {
        self.log.on_durable(&mut self.machine, cx);
        self.after_log(cx);
    }

    /// Reads go on, unless they have to wait.
    fn on_message_read_only(
        &mut self,
        from: NodeId,
        message: Self::Message,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Message::Request { number, clock, request } = message else { return false };
        let client = Client::new(from, number, clock, request);
        if !self.serves_clients() || self.check(&client, cx).is_err() {
            return false;
        }
        match &client.request {
            Request::Read { at, session, written, .. } => {
                if !self.may_read(*at, *session, *written, cx) {
                    return false;
                }
                self.read(client, cx);
            }
            Request::ReadLatest { .. } => self.read_latest(&client, cx),
            _ => return false,
        }
        true
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Log(timer) => {
                self.log.on_timer(timer, &mut self.machine, cx);
                self.after_log(cx);
            }
            Timer::Store => {
                let (bound, now) = (self.machine.partition.bound, cx.now());
                if let Some(serving) = &mut self.machine.serving {
                    serving.expire(bound, now);
                }
                if self.is_serving() {
                    self.raise_bound(cx);
                    // The bound may be higher because of other entries.
                    self.on_event(Event::Raised, cx);
                    self.after_log(cx);
                }
                self.machine.keep_partition(cx.store());
                if self.write_back.write(self.machine.cells_mut(), cx) {
                    self.log.trim(&self.machine, cx);
                }
                WriteBack::schedule(Timer::Store, cx);
            }
            Timer::Settle => {
                if self.is_serving() {
                    self.settle(cx);
                    self.after_log(cx);
                }
                cx.set_timer(Timer::Settle, self.period());
            }
            Timer::Ship => {
                if self.is_serving() {
                    self.exchange(cx);
                    self.after_log(cx);
                }
                cx.set_timer(Timer::Ship, SHIPPED_EVERY);
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
        let serving = self.machine.serving.as_ref();
        each("overwritten_versions", serving.map_or(0, |s| s.overwritten.len() as u64));
        each("pending_transactions", serving.map_or(0, |s| s.pending_count() as u64));
        each("open_transactions", serving.map_or(0, |s| s.open.len() as u64));
        each("remembered_transactions", self.machine.transactions.len() as u64);
        each("blocked_reads", self.counts.blocked);
        each("too_old_reads", self.counts.too_old);
        each("checked_transactions", self.counts.checked);
        each("undone_transactions", self.counts.undone);
        if self.has_sites() && serving.is_some() {
            let given_up = self.machine.sites.given_up.iter().filter(|site| **site);
            each("sites_without_backlog", given_up.count() as u64);
            if !self.is_rebuilding() {
                each("site_behind_ms", self.exchange.behind.as_millis() as u64);
            }
            each("site_backlog_bytes", self.machine.outbox.bytes() as u64);
            each("site_rebuilding", u64::from(self.is_rebuilding()));
            each("site_torn", u64::from(self.machine.sites.is_torn()));
        }
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Self::Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if !self.mutation.is(Mutation::RejoinsAtOnce) {
            self.log.rejoin(cx);
        }
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.log.stop(cx);
        self.after_log(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        match self.log.standing() {
            Standing::Full if self.is_rebuilding() => {
                Standing::Rejoining { keys: self.machine.copied }
            }
            standing => standing,
        }
    }

    fn stored(value: &Value) -> Vec<u8> {
        let version = Version { value: Some(value.clone()), ..Version::default() };
        encode_cell(&Cell::Key(Versions { latest: version, ..Versions::default() }))
    }
}
