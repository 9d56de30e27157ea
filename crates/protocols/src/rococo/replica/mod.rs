//! The server side: a replica of a partition.

mod leader;
mod live;
mod merged;
mod proposals;
mod reads;
mod recovery;
mod rows;
mod sets;

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{Key, NodeId, Value};

use super::Mutation;
use super::message::{Entry, Led, Message, Record, Reply, Request};
use super::sound;
use super::table::Table;
use crate::Mutated;
use crate::frameworks::replicated_log::{
    self, Ballot, Chosen, Host, ReplicatedLog, StateMachine, WriteBack,
};
use leader::{Common, Leader};

/// How many requests wait for a leader. Others are dropped, and clients send them again.
const PENDING_AT_MOST: usize = 4096;

/// How often a leader looks for silent coordinators and reports what has ended.
const WATCH: Duration = Duration::from_millis(200);

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    log: ReplicatedLog<Led>,
    server: Server,
    /// Requests that wait for a leader, or that the leader has no room for.
    pending: VecDeque<(NodeId, Request)>,
    write_back: WriteBack,
}

/// The state machine of a replica.
#[derive(Debug)]
struct Server {
    common: Common,
    /// The ballot in which it leads, if it leads.
    ballot: Option<Ballot>,
    /// The slot of the entry with which it begins to serve, until it serves.
    first: Option<u64>,
    /// The leader's state while it serves: it leads, and has applied every entry of former leaders.
    leader: Option<Leader>,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Write applied state to the store.
    Store,
    /// Look for silent coordinators.
    Watch,
}

type Cx<'a> = Context<'a, Replica>;

impl Host for Replica {
    type Entry = Led;

    fn message(message: replicated_log::Message<Led>) -> Message {
        Message::Log(message)
    }

    fn record(record: Record) -> Record {
        record
    }

    fn timer(timer: replicated_log::Timer) -> Timer {
        Timer::Log(timer)
    }
}

impl Replica {
    /// An empty replica. `mutation` is the only deliberate mistake in it.
    pub fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Replica {
        let table = Table::new(settings.resident_keys);
        let common = Common { id, group: group.clone(), settings: *settings, mutation, table };
        Replica {
            log: ReplicatedLog::new(id, group, settings),
            server: Server { common, ballot: None, first: None, leader: None },
            pending: VecDeque::new(),
            write_back: WriteBack::default(),
        }
    }

    fn on_request(&mut self, from: NodeId, request: Request, cx: &mut Cx<'_>) {
        let Server { common, leader, .. } = &mut self.server;
        match leader.as_mut().filter(|leader| leader.has_proposed_all() && self.pending.is_empty())
        {
            Some(leader) => leader.on_request(from, request, common, cx),
            None if self.pending.len() < PENDING_AT_MOST => self.pending.push_back((from, request)),
            None => {}
        }
    }

    /// Runs after every event. Proposes what resulted from it, and forwards waiting requests to another leader if there is
    /// one.
    fn after(&mut self, cx: &mut Cx<'_>) {
        let leads = self.log.leads();
        if leads != self.server.ballot {
            self.server.ballot = leads;
            self.server.first = None;
            self.server.leader = None;
        }
        if leads.is_none() {
            if let Some(leader) = self.log.leader(cx.now()) {
                for (from, request) in self.pending.drain(..) {
                    cx.send_before_durable(leader, Message::Forward { from, request });
                }
            }
            return;
        }
        if self.server.first.is_none() && self.server.leader.is_none() {
            self.server.first = self.log.propose_led(Entry::Lead, cx);
        }
        loop {
            self.propose(cx);
            let Server { common, leader, .. } = &mut self.server;
            let Some(leader) = leader.as_mut().filter(|leader| leader.has_proposed_all()) else {
                return;
            };
            if leader.follow_step(common, cx) || leader.resume_held(common, cx) {
                continue;
            }
            let Some((from, request)) = self.pending.pop_front() else { return };
            leader.on_request(from, request, common, cx);
        }
    }

    /// Proposes the waiting entries. At a single replica they are chosen at once, and may lead to more.
    fn propose(&mut self, cx: &mut Cx<'_>) {
        loop {
            if let Some(leader) = &mut self.server.leader {
                leader.proposals.propose(&mut self.log, cx);
            }
            if !self.log.is_alone() || !self.log.has_queued() {
                return;
            }
            self.log.choose_alone(&mut self.server, cx);
        }
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_>) {
        let Server { common, leader: Some(leader), .. } = &mut self.server else { return };
        match reply {
            Reply::Status { txn, ancestors } => leader.on_status(txn, &ancestors, common, cx),
            Reply::Drained { .. } | Reply::Installed { .. } => {
                leader.on_set_reply(from, &reply, common);
                leader.advance_sets(common);
            }
            reply => {
                if let Reply::Hold(reply) = &reply {
                    leader.on_failed_elsewhere(reply, cx);
                }
                leader.recoveries.on_reply(from, reply, &common.group, cx);
            }
        }
    }
}

impl StateMachine<Replica> for Server {
    fn apply(&mut self, chosen: Chosen<'_, Led>, cx: &mut Cx<'_>) {
        let Chosen { slot, position, entry, led_in } = chosen;
        if let Some(led) = entry {
            self.common.table.apply((slot, position), led, cx.store());
        }
        if self.ballot.is_none() || led_in != self.ballot {
            return;
        }
        if self.first == Some(slot) {
            self.first = None;
            self.leader = Some(Leader::new(slot, &mut self.common, cx));
        } else if let Some(leader) = &mut self.leader {
            leader.on_chosen(slot, &mut self.common, cx);
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led>]) {
        self.common.table.last().revise(first, inherited);
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.common.table.store_all(store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.common.table.needs_log_from()
    }

    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        self.common.table.take_over(key, state, store)
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.server.common.table.load(cx.store());
        self.log.on_start(&mut self.server, cx);
        self.after(cx);
        WriteBack::schedule(Timer::Store, cx);
        cx.set_timer(Timer::Watch, WATCH);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        let common = &self.server.common;
        if !sound::to_replica(from, &message, common.partition(), &common.group) {
            return cx.reject(|| {
                format!("{from} has sent a message that no correct node sends to a replica")
            });
        }
        match message {
            Message::Request(request) => self.on_request(from, request, cx),
            // A forwarded request is not forwarded again: two replicas could send it back and forth.
            Message::Forward { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { from, request } => self.on_request(from, request, cx),
            Message::Reply(reply) => self.on_reply(from, reply, cx),
            Message::Log(message) => self.log.on_message(from, message, &mut self.server, cx),
        }
        self.after(cx);
    }

    fn on_durable(&mut self, cx: &mut Cx<'_>) {
        self.log.on_durable(&mut self.server, cx);
        self.after(cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Log(timer) => self.log.on_timer(timer, &mut self.server, cx),
            Timer::Store => {
                if self.server.common.table.write_back(&mut self.write_back, cx) {
                    self.log.trim(&self.server, cx);
                }
                return WriteBack::schedule(Timer::Store, cx);
            }
            Timer::Watch => {
                let Server { common, leader, .. } = &mut self.server;
                if let Some(leader) = leader {
                    leader.watch(common, cx);
                }
                cx.set_timer(Timer::Watch, WATCH);
            }
        }
        self.after(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let table = &self.server.common.table;
        let (resident, unstored) = table.cells_len();
        each("resident_keys", resident as u64);
        each("unstored_keys", unstored as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
        each("open_transactions", table.open().len() as u64);
        each("remembered_transactions", table.remembered() as u64);
        if let Some(leader) = &self.server.leader {
            leader.gauges(each);
        }
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, _: &mut dyn Store) {
        self.log.replay(record);
    }

    fn rejoin(&mut self, cx: &mut Cx<'_>) {
        self.log.rejoin(cx);
    }

    fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.log.stop(cx);
        self.after(cx);
    }

    fn may_stop(&self) -> bool {
        self.log.may_stop()
    }

    fn standing(&self) -> Standing {
        self.log.standing()
    }

    /// A row that exists before the first call: its columns, encoded.
    fn stored(value: &Value) -> Vec<u8> {
        super::table::stored_row(value.as_bytes())
    }
}
