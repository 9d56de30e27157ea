//! The server side: it answers reads, passes on what is for the leader, and keeps requests while there is none.

use std::collections::VecDeque;

use serried_actor::{Actor, Context, Group, Recover, Settings, Standing, Store};
use serried_model::{NodeId, Value};
use serried_parts::encode_cell;

use super::Mutation;
use super::cell::{Cell, KeyState};
use super::machine::Machine;
use super::message::{Answer, Batch, Entry, Message, Record, Request, SEQUENCER};
use super::sequencer::Sequencer;
use crate::Mutated;
use crate::frameworks::replicated_log::{
    self, Ballot, Clocks, Host, Led, ReplicatedLog, Time, WriteBack,
};

/// How many requests wait for a leader, and how many reads for confirmation. Others are dropped, and clients send them
/// again.
const QUEUED_AT_MOST: usize = 4096;
/// For how many slots reads wait at a time. Later reads wait together for the next one.
const CONFIRMING_AT_MOST: usize = 8;

/// A client that waits.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) node: NodeId,
    /// Names the request at the client.
    pub(super) number: u64,
    pub(super) request: Request,
}

/// A batch that a sequencer has handed to this partition.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) sequencer: NodeId,
    pub(super) batch: Batch,
    /// Whether it is in the log of this leader.
    pub(super) is_proposed: bool,
}

/// One replica of a partition.
#[derive(Debug)]
pub struct Replica {
    pub(super) log: ReplicatedLog<Led<Entry>>,
    pub(super) machine: Machine,
    /// Requests that wait for a leader, or writes that wait until it knows the time.
    queue: VecDeque<Client>,
    /// Reads for which no slot is proposed yet.
    unconfirmed: VecDeque<Client>,
    /// The ballot in which it leads, as far as the machine knows.
    leads: Option<Ballot>,
    /// Whether its first entry is proposed.
    has_begun: bool,
    /// Only if it leads the sequencer's partition and serves.
    pub(super) sequencer: Option<Sequencer>,
    pub(super) incoming: Option<Incoming>,
    pub(super) clock_bound_us: u64,
    pub(super) clocks: Clocks,
    pub(super) group: Group,
    write_back: WriteBack,
    pub(super) counts: Counts,
    pub(super) mutation: Mutated<Mutation>,
}

/// What it has done, for metrics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    reads: u64,
    /// Reads that had to wait until a majority had confirmed the leader.
    confirmed: u64,
    /// Reads that had to wait for anything else (004 §3.3, "Non-blocking").
    blocked: u64,
    /// Reads that were told less than they had asked for.
    cut: u64,
    /// Batches that got numbers here.
    pub(super) batches: u64,
    /// Their writes.
    pub(super) writes: u64,
}

/// The timers of a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// A timer of the log.
    Log(replicated_log::Timer),
    /// Put into the store what was applied, and forget what is old.
    Store,
    /// Hand out the batch again.
    HandOut,
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
        if mutation.is(Mutation::AcknowledgedByLeaderAlone) {
            log = log.with_quorum(1);
        }
        Replica {
            log,
            machine: Machine::new(id.partition(), settings, mutation),
            queue: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            leads: None,
            has_begun: false,
            sequencer: None,
            incoming: None,
            clock_bound_us: settings.clock_bound_ms.saturating_mul(1000),
            clocks: Clocks::new(group.size(), id.member()),
            group,
            write_back: WriteBack::default(),
            counts: Counts::default(),
            mutation,
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.leads.is_some() && self.machine.is_serving()
    }

    /// Whether a client can have sent this to this partition.
    fn is_sound(&self, request: &Request, own: u16) -> bool {
        match request {
            Request::Write(_) => own == SEQUENCER,
            Request::Read { keys, partitions, .. } => {
                let are_there = partitions.last().is_some_and(|p| *p < self.group.partitions());
                !keys.is_empty()
                    && keys.iter().all(|key| self.group.partition_of(key) == own)
                    && are_there
                    && partitions.is_sorted_by(|one, other| one < other)
                    && partitions.binary_search(&own).is_ok()
            }
        }
    }

    fn on_request(&mut self, client: Client, cx: &mut Cx<'_>) {
        if !self.is_sound(&client.request, cx.id().partition()) {
            let node = client.node;
            return cx
                .reject(|| format!("{node} has sent a request that is not for this partition"));
        }
        let waits = if self.is_serving() { self.handle(client, cx) } else { Some(client) };
        waits.into_iter().for_each(|client| self.wait(client, cx));
    }

    fn wait(&mut self, client: Client, cx: &Cx<'_>) {
        // If another replica leads, it is passed on at once.
        let is_passed_on = self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id());
        let is_read = matches!(client.request, Request::Read { .. });
        self.counts.blocked += u64::from(is_read && !is_passed_on);
        if self.queue.len() < QUEUED_AT_MOST {
            self.queue.push_back(client);
        }
    }

    /// Handles a request, as a leader that serves. Returns the request if it has to wait.
    fn handle(&mut self, client: Client, cx: &mut Cx<'_>) -> Option<Client> {
        match client.request {
            Request::Read { .. } => {
                if self.log.is_alone() || self.mutation.is(Mutation::ReadsNotConfirmed) {
                    self.read(client, cx);
                } else if self.unconfirmed.len() < QUEUED_AT_MOST {
                    self.counts.confirmed += 1;
                    self.unconfirmed.push_back(client);
                }
                None
            }
            Request::Write(write) => {
                let Client { node, number, .. } = client;
                let waits = self.write(node, number, write, cx)?;
                Some(Client { node, number, request: Request::Write(waits) })
            }
        }
    }

    /// Sends an answer. What it depends on is durable, so it does not wait for what was appended since.
    pub(super) fn answer(node: NodeId, number: u64, answer: Answer, cx: &mut Cx<'_>) {
        cx.send_before_durable(node, Message::Reply { number, answer });
    }

    /// Answers a read.
    fn read(&mut self, client: Client, cx: &mut Cx<'_>) {
        let Client { node, number, request } = client;
        let Request::Read { since, exact, keys, partitions } = request else { return };
        cx.charge(keys.len());
        let found = self.machine.read((since, exact), &keys, &partitions, cx.store());
        let Some(found) = found else { return };
        self.counts.reads += 1;
        self.counts.cut += u64::from(found.complete_from > since);
        Self::answer(node, number, Answer::Found(found), cx);
    }

    /// Has a majority confirm that this replica leads since the last reads have arrived. One slot is enough for all of
    /// them.
    fn confirm(&mut self, cx: &mut Cx<'_>) {
        let may = self.machine.confirmations() < CONFIRMING_AT_MOST;
        if self.unconfirmed.is_empty() || !may {
            return;
        }
        let Some(slot) = self.log.confirm(cx) else { return };
        for read in self.unconfirmed.drain(..) {
            self.machine.confirm(slot, read);
        }
    }

    /// The log may have a new leader, or more room, or have applied more.
    fn after_log(&mut self, cx: &mut Cx<'_>) {
        let leads = self.log.leads();
        if leads != self.leads {
            self.change_role(leads, cx);
        }
        if leads.is_none() {
            return self.pass_on(cx);
        }
        if !self.has_begun {
            self.has_begun = self.log.propose_led(Entry::Lead, cx).is_some();
        }
        loop {
            self.log.choose_alone(&mut self.machine, cx);
            if !self.is_serving() || !self.serve(cx) {
                return;
            }
        }
    }

    fn change_role(&mut self, leads: Option<Ballot>, cx: &mut Cx<'_>) {
        self.leads = leads;
        self.has_begun = false;
        if leads.is_some() && cx.id().partition() == SEQUENCER {
            self.ask_clocks(cx);
        }
        let mut clients = self.machine.lead(leads);
        clients.extend(self.unconfirmed.drain(..));
        clients.extend(self.stop_sequencing(cx));
        clients.into_iter().for_each(|client| self.wait(client, cx));
        if let Some(incoming) = &mut self.incoming {
            incoming.is_proposed = false;
        }
    }

    /// Does what can be done, as a leader that serves. Returns whether there may be more.
    fn serve(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.sequencer.is_none() && cx.id().partition() == SEQUENCER {
            self.begin_sequencing(cx);
        }
        while let Some(read) = self.machine.confirmed.pop_front() {
            self.read(read, cx);
        }
        for _ in 0..self.queue.len() {
            let Some(client) = self.queue.pop_front() else { break };
            if let Some(waits) = self.handle(client, cx) {
                self.queue.push_back(waits);
            }
        }
        self.confirm(cx);
        let has_taken_in = self.take_in(cx);
        self.sequence(cx) || has_taken_in
    }

    /// Passes what waits to the leader, if one is known.
    fn pass_on(&mut self, cx: &mut Cx<'_>) {
        let Some(leader) = self.log.leader(cx.now()) else { return };
        for Client { node, number, request } in self.queue.drain(..) {
            cx.send_before_durable(leader, Message::Forward { client: node, number, request });
        }
        if let Some(Incoming { sequencer, batch, .. }) = self.incoming.take() {
            // Perhaps the leader can't reach the sequencer, and this replica can.
            match self.machine.latest_fates(&batch) {
                Some(fates) => {
                    let applied = Message::Applied { last: batch.last(), fates };
                    cx.send_before_durable(sequencer, applied);
                }
                None => {
                    cx.send_before_durable(leader, Message::ForwardBatch { sequencer, batch });
                }
            }
        }
    }

    /// Asks the other replicas what their clocks say, unless they were asked lately.
    fn ask_clocks(&mut self, cx: &mut Cx<'_>) {
        let Some(question) = self.clocks.question(self.group.round_trip(), cx) else { return };
        let others = self.group.all().without([cx.id()].into_iter().collect());
        cx.broadcast(cx.id().partition(), others, Message::Time(question));
    }

    fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_>) {
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }

    /// Whether a message is from a replica of this partition. Otherwise it is rejected.
    fn is_of_partition(&self, from: NodeId, cx: &mut Cx<'_>) -> bool {
        let is_one = self.group.contains(from) && from.partition() == cx.id().partition();
        if !is_one {
            cx.reject(|| format!("{from} has sent what only replicas of a partition send"));
        }
        is_one
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.machine.load(cx.store());
        self.log.on_start(&mut self.machine, cx);
        self.after_log(cx);
        WriteBack::schedule(Timer::Store, cx);
    }

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        cx.charge(1);
        match message {
            Message::Request { number, request } => {
                self.on_request(Client { node: from, number, request }, cx);
            }
            // It is not passed on again: two replicas could send it back and forth.
            Message::Forward { .. } | Message::ForwardBatch { .. }
                if self.log.leader(cx.now()).is_some_and(|leader| leader != cx.id()) => {}
            Message::Forward { client, number, request } => {
                if !self.is_of_partition(from, cx) {
                    return;
                }
                self.on_request(Client { node: client, number, request }, cx);
            }
            Message::Batch(batch) => self.on_batch(from, batch, cx),
            Message::ForwardBatch { sequencer, batch } => {
                if !self.is_of_partition(from, cx) {
                    return;
                }
                self.on_batch(sequencer, batch, cx);
            }
            Message::Applied { last, fates } => self.on_applied(from, last, &fates, cx),
            Message::Time(time) => {
                if !self.is_of_partition(from, cx) {
                    return;
                }
                self.on_time(from, time, cx);
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

    /// A replica that is alone goes on with reads. Others need the log to be confirmed.
    fn on_message_read_only(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) -> bool {
        let Message::Request { number, request: request @ Request::Read { .. } } = message else {
            return false;
        };
        let answers = self.log.is_alone()
            && self.is_serving()
            && self.is_sound(&request, cx.id().partition());
        if answers {
            self.read(Client { node: from, number, request }, cx);
        }
        answers
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Log(timer) => self.log.on_timer(timer, &mut self.machine, cx),
            Timer::HandOut => self.hand_out_again(cx),
            Timer::Store => {
                if self.sequencer.is_some() {
                    self.ask_clocks(cx);
                }
                self.machine.tidy(cx);
                if self.write_back.write(self.machine.cells_mut(), cx) {
                    self.log.trim(&self.machine, cx);
                }
                WriteBack::schedule(Timer::Store, cx);
            }
        }
        self.after_log(cx);
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("resident_keys", self.machine.cells().resident() as u64);
        each("unstored_keys", self.machine.cells().unstored() as u64);
        each("log_slots", self.log.kept() as u64);
        each("applied_slots", self.log.applied());
        each("leads", u64::from(self.log.leads().is_some()));
        each("catching_up", u64::from(self.log.is_behind()));
        each("reads", self.counts.reads);
        each("confirmed_reads", self.counts.confirmed);
        each("blocked_reads", self.counts.blocked);
        each("cut_reads", self.counts.cut);
        each("overwritten_versions", self.machine.overwritten() as u64);
        each("writes", self.counts.writes);
        each("batches", self.counts.batches);
        each("queued_writes", self.sequencer.as_ref().map_or(0, |s| s.len() as u64));
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, _: &mut dyn Store) {
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
        self.log.standing()
    }

    fn stored(value: &Value) -> Vec<u8> {
        encode_cell(&Cell::Key(KeyState::holding(value.clone())))
    }
}
