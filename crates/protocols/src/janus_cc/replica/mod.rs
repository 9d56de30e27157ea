//! The server side: the server of a partition.

mod dependencies;
mod execute;
mod live;
mod watch;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store, Timestamp};
use serried_model::{NodeId, Value, Version};

use super::message::{Entry, Message, Record, Reply, Request};
use super::run::Run;
use super::table::Table;
use super::{Mutation, server, sound};
use crate::Mutated;
use crate::frameworks::chopped::{Accesses, Graph, Horizon};
use live::Live;

/// How often a server looks for silent coordinators and reports what has ended.
const WATCH: Duration = Duration::from_millis(200);
/// How often changes are put into the store.
const STORE: Duration = Duration::from_millis(100);
/// How many periods of [`STORE`] pass before a changed row is put there.
const STORED_AFTER: usize = 10;

/// The server of a partition. Other members of the partition's group do nothing.
#[derive(Debug)]
pub struct Replica {
    id: NodeId,
    group: Group,
    settings: Settings,
    mutation: Mutated<Mutation>,
    table: Table,
    /// The transactions that were taken on and are not executed.
    live: BTreeMap<Version, Live>,
    /// Those of them that register sets of procedures.
    registrations: BTreeSet<Version>,
    accesses: Accesses,
    graph: Graph,
    /// By transaction that is not decided, those that wait for it.
    blocked: BTreeMap<Version, Vec<Version>>,
    /// The groups that are being executed, by their first members.
    groups: BTreeMap<Version, execute::Group>,
    /// By transaction of such a group, the first member.
    running: BTreeMap<Version, Version>,
    /// By transaction, the servers that wait for its edges.
    askers: BTreeMap<Version, Vec<NodeId>>,
    /// When other servers were asked for the edges of transactions.
    asked: BTreeMap<Version, Timestamp>,
    /// The transactions of silent coordinators that this server coordinates.
    runs: BTreeMap<Version, Run>,
    horizon: Horizon,
    /// The ends of the log at the last times that rows were put into the store.
    positions: VecDeque<u64>,
    /// The end of the log when the rows were changed that go to the store next.
    held_at: u64,
    /// Whether the store was looked into.
    is_loaded: bool,
    /// Whether the disk was lost.
    is_lost: bool,
}

/// The timers of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Put changes into the store.
    Store,
    /// Look for silent coordinators.
    Watch,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty server. `mutation` is the only deliberate mistake in it.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica {
        Replica {
            id,
            group,
            settings: *settings,
            mutation,
            table: Table::new(settings.resident_keys),
            live: BTreeMap::new(),
            registrations: BTreeSet::new(),
            accesses: Accesses::default(),
            graph: Graph::default(),
            blocked: BTreeMap::new(),
            groups: BTreeMap::new(),
            running: BTreeMap::new(),
            askers: BTreeMap::new(),
            asked: BTreeMap::new(),
            runs: BTreeMap::new(),
            horizon: Horizon::new(super::message::Window::default()),
            positions: VecDeque::new(),
            held_at: 0,
            is_loaded: false,
            is_lost: false,
        }
    }

    /// Whether it takes part: it keeps the partition's data, and has not lost it.
    fn serves(&self) -> bool {
        !self.is_lost && server(&self.group, self.id.partition()) == self.id
    }

    fn send(&self, at: u16, request: Request, cx: &mut Cx<'_>) {
        cx.send(server(&self.group, at), Message::Request(request));
    }

    fn reply(&self, to: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        cx.send(to, Message::Reply(reply));
    }

    /// Applies an entry and makes it durable.
    fn record(&mut self, entry: Entry, cx: &mut Cx<'_>) {
        let position = cx.log_position();
        self.table.apply(position, &entry, cx.store());
        cx.append(Record { position, entry });
    }

    /// Goes on with the transactions that were taken on before a restart.
    fn resume(&mut self, cx: &mut Cx<'_>) {
        let open: Vec<Version> = self.table.open().iter().copied().collect();
        let mut began = Vec::new();
        for txn in open {
            let now = cx.now();
            let state = self.table.txn(txn, cx.store()).expect("it is open");
            if !state.is_executed {
                began.push((state.began, txn));
                self.live.insert(txn, Live::resumed(state, now));
            }
        }
        // What comes before a new transaction depends on the order in which others were taken on.
        began.sort_unstable();
        for (_, txn) in began {
            let work = self.live[&txn].work.clone();
            // Its edges are known.
            self.use_rows(txn, &work, &mut |_| {});
        }
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx<'_>) {
        match request {
            Request::PreAccept(pre_accept) => self.on_pre_accept(from, pre_accept, cx),
            Request::Commit(commit) => self.on_commit(from, &commit, cx),
            Request::End(txns) => self.on_end(txns, cx),
            Request::Results { txn } => self.on_results_wanted(from, txn, cx),
            Request::Ask { txn } => self.on_ask(from, txn, cx),
            Request::Over { below_us } => self.horizon.is_over(from.partition(), below_us),
            Request::Set => {
                let set = self.table.set().map(|set| set.set().clone()).unwrap_or_default();
                self.reply(from, Reply::Set { version: self.table.version(), set }, cx);
            }
            Request::Inquire { txn } => self.on_inquire(from, txn, cx),
        }
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        match reply {
            Reply::Status { txn, ancestors } => self.on_status(txn, &ancestors, cx),
            Reply::Results { txn, results } => self.on_results(from, txn, results, cx),
            Reply::PreAccepted { txn, .. }
            | Reply::NotAccepted { txn, .. }
            | Reply::Executed { txn, .. } => self.on_reply_to_run(from, txn, reply, cx),
            // Only clients ask for these.
            Reply::Set { .. } | Reply::Known { .. } => {}
        }
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
        self.horizon = Horizon::new(self.table.window());
        self.resume(cx);
        cx.set_timer(Timer::Store, STORE);
        cx.set_timer(Timer::Watch, WATCH);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        if !self.serves() {
            return; // There is nothing to answer from.
        }
        if !sound::to_server(from, &message, self.id.partition(), &self.group) {
            return cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a server")
            });
        }
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            Message::Reply(reply) => self.on_reply(from, reply, cx),
        }
    }

    fn on_durable(&mut self, cx: &mut Cx<'_>) {
        self.table.flush(cx.store());
        cx.trim_log(self.table.needs_log_from().unwrap_or(self.held_at));
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
        each("catching_up", u64::from(self.is_lost));
        each("open_transactions", self.table.open().len() as u64);
        each("remembered_transactions", self.table.remembered() as u64);
        each("live_transactions", self.live.len() as u64);
        each("used_rows", self.accesses.len() as u64);
        each("known_vertices", self.graph.len() as u64);
        each("waiting_groups", self.groups.len() as u64);
    }
}

impl Recover for Replica {
    fn replay(&mut self, Record { position, entry }: Record, store: &mut dyn Store) {
        if !core::mem::replace(&mut self.is_loaded, true) {
            self.table.load(store);
        }
        self.is_lost |= entry == Entry::Lost;
        self.table.apply(position, &entry, store);
    }

    /// The data of the partition is lost. Nothing is answered.
    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        if server(&self.group, self.id.partition()) == self.id {
            self.is_lost = true;
            self.record(Entry::Lost, cx);
        }
    }

    fn standing(&self) -> Standing {
        match self.is_lost {
            true => Standing::Rejoining { keys: 0 },
            false => Standing::Full,
        }
    }

    /// A row that exists before the first call: its columns, encoded.
    fn stored(value: &Value) -> Vec<u8> {
        super::table::stored_row(value.as_bytes())
    }
}
