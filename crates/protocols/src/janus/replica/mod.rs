//! The server side: a replica of a partition.

mod agree;
mod configure;
mod copy;
mod dependencies;
mod execute;
mod live;
mod peers;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Actor, Context, Recover, Settings, Standing, Store, Timestamp};
use serried_model::{NodeId, Value, Version};
use serried_parts::Incarnations;

use super::members::Members;
use super::message::{End, Entry, Message, Part, Record, Reply, Request, Task};
use super::run::Run;
use super::table::Table;
use super::{Mutation, sound};
use crate::Mutated;
use crate::frameworks::chopped::{Accesses, Blocked, Graph};
use configure::Configuring;
use copy::Copying;
use live::Live;
use peers::Peers;

/// How often a replica looks for silent coordinators and reports what has ended.
const WATCH: Duration = Duration::from_millis(200);
/// How often changes are put into the store.
const STORE: Duration = Duration::from_millis(100);
/// How many periods of [`STORE`] pass before a changed row is put there.
const STORED_AFTER: usize = 10;

/// A replica of a partition. If partitions are on one node each, the other members of the partition's group do nothing.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    members: Members,
    settings: Settings,
    mutation: Mutated<Mutation>,
    table: Table,
    incarnations: Incarnations,
    /// The transactions that are known and not executed.
    live: BTreeMap<Version, Live>,
    /// The transactions that have pieces here, without it being known here what they do, and since when.
    wanted: BTreeMap<Version, Timestamp>,
    /// The transactions that register sets of procedures, unless all replicas have executed them.
    registrations: BTreeSet<Version>,
    accesses: Accesses,
    graph: Graph,
    blocked: Blocked,
    /// Those who have asked for the set of procedures, each with the transactions that may have been registrations then.
    set_askers: BTreeMap<NodeId, BTreeSet<Version>>,
    /// The transactions that became void without it being known here what they do. If an edge says that such a one has pieces
    /// here, it is never executed. Otherwise it may have pieces elsewhere.
    voids: BTreeSet<Version>,
    /// The transactions that may come after others which are settled, and were perhaps not executed here.
    gated: BTreeSet<Version>,
    /// The groups that are being executed, by their first members.
    groups: BTreeMap<Version, execute::Group>,
    /// By transaction of such a group, the first member.
    running: BTreeMap<Version, Version>,
    /// By transaction, the replicas that wait for its edges.
    askers: BTreeMap<Version, Vec<NodeId>>,
    /// When other replicas were asked for the edges of transactions, and how often.
    asked: BTreeMap<Version, (Timestamp, usize)>,
    /// The transactions whose edges are missing here, with replicas that have executed them, as found by the last comparisons.
    lacking: BTreeMap<Version, NodeId>,
    /// The transactions of silent coordinators that this replica coordinates.
    runs: BTreeMap<Version, Run>,
    peers: Peers,
    /// By partition, the time below which its transactions have ended, and the one below which this is firm.
    over: BTreeMap<u16, (u64, u64)>,
    configuring: Configuring,
    copying: Copying,
    /// The ends of the log at the last times that rows were put into the store.
    positions: VecDeque<u64>,
    /// The end of the log when the rows were changed that go to the store next.
    held_at: u64,
    /// Whether the store was looked into.
    is_loaded: bool,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Put changes into the store.
    Store,
    /// Look for silent coordinators.
    Watch,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica. `mutation` is the only deliberate mistake in it.
    pub fn new(
        id: NodeId,
        members: Members,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica {
        Replica {
            id,
            settings: *settings,
            mutation,
            table: Table::new(settings.resident_keys),
            incarnations: Incarnations::new(members.group().size()),
            live: BTreeMap::new(),
            wanted: BTreeMap::new(),
            set_askers: BTreeMap::new(),
            voids: BTreeSet::new(),
            registrations: BTreeSet::new(),
            accesses: Accesses::default(),
            graph: Graph::default(),
            blocked: Blocked::default(),
            gated: BTreeSet::new(),
            groups: BTreeMap::new(),
            running: BTreeMap::new(),
            askers: BTreeMap::new(),
            asked: BTreeMap::new(),
            lacking: BTreeMap::new(),
            runs: BTreeMap::new(),
            peers: Peers::default(),
            over: BTreeMap::new(),
            configuring: Configuring::default(),
            copying: Copying::default(),
            positions: VecDeque::new(),
            held_at: 0,
            is_loaded: false,
            members,
        }
    }

    /// Whether it keeps the partition's data.
    fn serves(&self) -> bool {
        self.members.contains(self.id)
    }

    /// Whether it takes part in agreements.
    fn votes(&self) -> bool {
        matches!(self.table.part(), Part::Full | Part::Behind)
    }

    /// Whether it executes transactions.
    fn executes(&self) -> bool {
        matches!(self.table.part(), Part::Full | Part::Restored)
    }

    fn is_alone(&self) -> bool {
        self.members.count() == 1
    }

    fn partition(&self) -> u16 {
        self.id.partition()
    }

    fn send(&self, to: NodeId, request: Request, cx: &mut Cx<'_>) {
        cx.send(to, Message::Request(request));
    }

    fn reply(&self, to: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        cx.send(to, Message::Reply(reply));
    }

    /// Applies an entry and makes it durable.
    fn record(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        let position = cx.log_position();
        self.table.apply(position, &entry, cx.store());
        cx.append(Record::Entry { position, entry });
    }

    /// Takes part as far as that from now on, with a copy of this number.
    fn stand(&mut self, part: Part, copy: u64, cx: &mut Cx<'_>) {
        let settled_us = self.table.window().settled_us;
        self.record(Entry::Standing { part, copy, settled_us }, cx);
    }

    fn record_incarnations(&mut self, cx: &mut Cx<'_>) {
        if let Some(of) = self.incarnations.record_at(cx.log_position()) {
            cx.append(Record::Incarnations(of));
        }
    }

    /// Goes on with the transactions that were known before a restart, or that were copied.
    fn resume(&mut self, cx: &mut Cx<'_>) {
        let (mut executed, mut began, mut agreed) = (Vec::new(), Vec::new(), Vec::new());
        let is_alone = self.is_alone();
        self.accesses = match is_alone || self.mutation.is(Mutation::CoversByUnexecuted) {
            true => Accesses::default(),
            false => Accesses::replicated(),
        };
        self.registrations.clear();
        // What was decided may be on a cycle with what is to be executed again.
        self.graph = Graph::default();
        self.running.clear();
        self.blocked.clear();
        self.groups.clear();
        let mut known = core::mem::take(&mut self.live);
        self.wanted.clear();
        self.voids.clear();
        let now = cx.now();
        let floor = Version::at(self.table.windows().floor_us);
        for txn in self.table.all() {
            let Some(state) = self.table.txn(txn, cx.store()) else { continue };
            let is_void = state.end == Some(End::Void);
            if is_void && state.work.is_none() {
                self.voids.insert(txn);
            }
            match (state.executed.filter(|_| !is_void), &state.work) {
                _ if is_void => {}
                (Some(number), Some(work)) if txn >= floor && !is_alone => {
                    let vertex = state.vertex.as_deref().cloned();
                    executed.push((number, txn, work.clone(), vertex));
                }
                (Some(_), _) => {}
                (None, None) => {
                    self.wanted.insert(txn, now);
                }
                (None, Some(work)) => {
                    if let Some(vertex) = &state.vertex {
                        self.graph.commit(vertex);
                        agreed.push((**vertex).clone());
                    }
                    if state.vote.dependencies.is_some() {
                        began.push((state.vote.began, txn, work.clone()));
                    }
                    if let Some(mut live) = Live::resumed(state, now) {
                        if let Some(known) = known.remove(&txn) {
                            live.committers = known.committers;
                        }
                        self.live.insert(txn, live);
                    }
                }
            }
        }
        // What comes before a new transaction depends on the order in which others were executed and taken on.
        executed.sort_unstable_by_key(|(number, ..)| *number);
        began.sort_unstable_by_key(|(began, ..)| *began);
        // While data is copied, some transactions have the source's numbers, and others this replica's. Then the order of
        // execution is not known.
        let is_ordered = self.executes();
        for (_, txn, work, vertex) in executed {
            self.use_rows(txn, &work, &mut |_| {});
            let before = vertex.map(|vertex| self.before(&vertex)).unwrap_or_default();
            self.accesses.agree(txn, &before);
            if is_ordered {
                self.accesses.settle(txn);
            }
        }
        for (_, txn, work) in began {
            self.use_rows(txn, &work, &mut |_| {});
            self.agree_on_uses(txn);
        }
        for vertex in &agreed {
            self.want_all_of(vertex, cx);
        }
        // Others may be known to commit already.
        let live = self.live.keys().filter(|txn| self.graph.vertex(**txn).is_some());
        let live: Vec<Version> = live.copied().collect();
        self.execute_all(live, cx);
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx<'_>) {
        match request {
            Request::PreAccept(pre_accept) => self.on_pre_accept(from, pre_accept, cx),
            Request::Accept(accept) => self.on_accept(from, accept, cx),
            Request::Commit(commit) => self.on_commit(from, &commit, cx),
            Request::Void { txn } => self.on_void(Some(from), txn, cx),
            Request::Results { txn } => self.on_results_wanted(from, txn, cx),
            Request::Ask { txn } => self.on_ask(from, txn, cx),
            Request::Fetch { txn } => self.on_fetch(from, txn, cx),
            Request::Compare(txns) => self.on_compare(from, txns, cx),
            Request::Report(report) => self.on_report(from, report, cx),
            Request::Over { below_us, firm_us } => {
                self.learn_over(from.partition(), (below_us, firm_us));
            }
            Request::Set => {
                let unknown = self.wanted.keys().chain(&self.registrations).copied().collect();
                // One that asks again waits for what was unknown when it asked first.
                self.set_askers.entry(from).or_insert(unknown);
                self.report_set(cx);
                if self.set_askers.contains_key(&from) && self.executes() {
                    self.reply_set(from, false, cx);
                }
            }
            Request::Copy { request, session } => self.on_copy(from, request, session, cx),
            Request::Join { incarnation } => self.on_join(from, incarnation, cx),
        }
    }

    /// Reports the set to those who have asked, if everything is executed that might have been a registration then.
    fn report_set(&mut self, cx: &mut Cx<'_>) {
        if !self.executes() {
            return;
        }
        let (live, wanted) = (&self.live, &self.wanted);
        self.set_askers.values_mut().for_each(|unknown: &mut BTreeSet<Version>| {
            unknown.retain(|txn| {
                let is_registration = |live: &Live| matches!(live.work.task, Task::Register { .. });
                wanted.contains_key(txn) || live.get(txn).is_some_and(is_registration)
            });
        });
        let ready = self.set_askers.iter().filter(|(_, unknown)| unknown.is_empty());
        let ready: Vec<NodeId> = ready.map(|(to, _)| *to).collect();
        for to in ready {
            self.set_askers.remove(&to);
            self.reply_set(to, true, cx);
        }
    }

    fn reply_set(&self, to: NodeId, is_last: bool, cx: &mut Cx<'_>) {
        let set = self.table.set().map(|set| set.set().clone()).unwrap_or_default();
        self.reply(to, Reply::Set { version: self.table.version(), set, is_last }, cx);
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        match reply {
            Reply::Status { txn, ancestors } => self.on_status(txn, &ancestors, cx),
            Reply::Results { txn, results } => self.on_results(from, txn, results, cx),
            Reply::Fetched { txn, work, ancestors } => {
                self.on_fetched(txn, work, &ancestors, cx);
            }
            Reply::Have { configuration, copy, txns } => {
                self.on_have(from, (configuration, copy), &txns, cx);
            }
            Reply::Copied { copied, session } => self.on_copied(from, *copied, session, cx),
            Reply::Joined { incarnation, incarnations, open, is_lost } => {
                self.on_joined(from, (incarnation, is_lost), &incarnations, open, cx);
            }
            Reply::Committed { txn, ref commit, .. } => {
                if self.live.contains_key(&txn) || self.wanted.contains_key(&txn) {
                    self.learn(&commit.ancestors, Some(&commit.vertex), cx);
                }
                self.on_reply_to_run(from, txn, reply, cx);
            }
            Reply::Executed { txn, ref end, .. } => {
                if *end == End::Void && from.partition() == self.partition() {
                    self.on_void(None, txn, cx);
                }
                self.on_reply_to_run(from, txn, reply, cx);
            }
            Reply::PreAccepted(ref pre_accepted) => {
                self.on_reply_to_run(from, pre_accepted.txn, reply, cx);
            }
            Reply::NotAccepted { txn, .. }
            | Reply::Promised { txn, .. }
            | Reply::Accepted { txn, .. }
            | Reply::Replaced { txn, .. } => self.on_reply_to_run(from, txn, reply, cx),
            // Only clients ask for it.
            Reply::Set { .. } => {}
        }
    }

    /// How far it takes part.
    #[cfg(test)]
    pub(super) fn part(&self) -> Part {
        self.table.part()
    }

    /// The first column of a row.
    #[cfg(test)]
    pub(super) fn text(&mut self, key: &serried_model::Key, cx: &mut Cx<'_>) -> Option<String> {
        let row = self.table.row(key, cx.store())?;
        row.first().map(|datum| match datum {
            serried_procedures::Datum::String(text) => text.to_string(),
            other => other.to_string(),
        })
    }

    /// Puts rows into the store that were changed long ago, once all records so far are durable.
    fn store(&mut self, cx: &mut Cx<'_>) {
        let end = cx.log_position();
        self.positions.push_back(end);
        if self.positions.len() <= STORED_AFTER || self.table.holds() || cx.store().is_behind() {
            self.positions.truncate(STORED_AFTER + 1);
            return;
        }
        let before = self.positions.pop_front().unwrap_or(end);
        self.table.hold(before, cx.store());
        self.held_at = end;
        match cx.durable_position() {
            u64::MAX => self.on_durable(cx),
            _ => cx.await_durable(),
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        if !self.serves() {
            return;
        }
        if !core::mem::replace(&mut self.is_loaded, true) {
            self.table.load(cx.store());
        }
        let others = self.members.peers(self.id).collect();
        self.peers = Peers::new(others, self.table.vote().chosen.clone(), cx.now());
        // The log is trimmed as far as the last record of them allows.
        self.record_incarnations(cx);
        self.resume(cx);
        cx.set_timer(Timer::Store, STORE);
        cx.set_timer(Timer::Watch, WATCH);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        if !self.serves() {
            return; // There is nothing to answer from.
        }
        if !sound::to_replica(from, &message, self.partition(), &self.members) {
            return cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a replica")
            });
        }
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            Message::Reply(reply) => self.on_reply(from, reply, cx),
        }
    }

    fn on_durable(&mut self, cx: &mut Cx<'_>) {
        self.table.flush(cx.store());
        let needed = self.table.needs_log_from().unwrap_or(self.held_at);
        if self.incarnations.are_far_before(needed) {
            self.record_incarnations(cx);
        }
        cx.trim_log(self.incarnations.need_log_from(needed));
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Store => {
                self.store(cx);
                cx.set_timer(Timer::Store, STORE);
            }
            Timer::Watch => {
                self.watch(cx);
                cx.set_timer(Timer::Watch, WATCH);
            }
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let (resident, unstored) = self.table.cells_len();
        each("resident_keys", resident as u64);
        each("unstored_keys", unstored as u64);
        each("catching_up", u64::from(self.table.part() != Part::Full));
        each("open_transactions", self.table.open().len() as u64);
        each("remembered_transactions", self.table.remembered() as u64);
        each("live_transactions", self.live.len() as u64);
        each("used_rows", self.accesses.len() as u64);
        each("known_vertices", self.graph.len() as u64);
        each("waiting_groups", self.groups.len() as u64);
        each("absent_replicas", self.peers.absent() as u64);
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, store: &mut dyn Store) {
        if !core::mem::replace(&mut self.is_loaded, true) {
            self.table.load(store);
        }
        match record {
            Record::Entry { position, entry } => self.table.apply(position, &entry, store),
            Record::Incarnations(of) => self.incarnations.replay(of),
        }
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if self.serves() {
            self.stand(Part::Lost, cx.clock().latest_us, cx);
            if !self.is_alone() {
                self.incarnations.set(self.id, cx.clock().latest_us);
                self.record_incarnations(cx);
            }
        }
    }

    fn standing(&self) -> Standing {
        let keys = self.copying.keys();
        match self.table.part() {
            Part::Full => Standing::Full,
            Part::Behind => Standing::CatchingUp { keys },
            Part::Lost | Part::Restored => Standing::Rejoining { keys },
        }
    }

    /// A row that exists before the first call: its columns, encoded.
    fn stored(value: &Value) -> Vec<u8> {
        super::table::stored_row(value.as_bytes())
    }
}
