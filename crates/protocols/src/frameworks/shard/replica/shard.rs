//! A shard at one of its replicas: the state built from its log, and the leader's state if this
//! replica leads.

use serried_actor::{ClockInterval, Group, Observation, Settings, Store};
use serried_model::{Key, NodeId, Version};
use serried_parts::Cells;

use super::super::Mutation;
use super::super::control::Control;
use super::super::horizon::Horizon;
use super::super::message::{AdmissionWindow, Decision, Entry, Led, Message, Reply, Request};
use super::super::row::Cell;
use super::super::sound;
use super::super::stamp::Stamp;
use super::super::table::Table;
use super::Cx;
use super::leader::Leader;
use crate::Mutated;
use crate::frameworks::replicated_log::{
    Ballot, Chosen, Clocks, ReplicatedLog, Span, StateMachine, Time,
};

/// A shard at one of its replicas.
#[derive(Debug)]
pub(super) struct Shard<C> {
    common: Common,
    /// The ballot in which it leads, if it leads.
    ballot: Option<Ballot>,
    /// The slot of the entry with which it begins to serve, until it serves.
    first: Option<u64>,
    /// The leader's state while it serves: it leads, and has applied every entry of former leaders.
    leader: Option<Leader<C>>,
}

/// The state that a replica has whether it leads or not.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) id: NodeId,
    pub(super) group: Group,
    pub(super) settings: Settings,
    pub(super) mutation: Mutated<Mutation>,
    pub(super) table: Table,
    clocks: Clocks,
    /// By how much this replica's clock was off when that was last looked at, in microseconds, if by more than it may be.
    clock_off_us: u64,
    /// Slots below this one are applied, as far as this replica knows.
    pub(super) known: u64,
}

impl Common {
    /// The number of the shard.
    pub(super) fn shard(&self) -> u16 {
        self.id.partition()
    }

    /// The time by the clocks of a majority, if they are known.
    pub(super) fn time<C: Control>(&self, cx: &Cx<'_, C>) -> Option<Span> {
        self.clocks.time(cx.clock().midpoint_us(), cx.now())
    }

    /// The time and its uncertainty, for controls that rely on clocks. It is that of this replica's clock, unless a majority
    /// of the shard's replicas disagrees with it by more than the uncertainty of both: then it is that of the majority.
    ///
    /// If too few clocks are known to tell which of them are wrong, the time is no further ahead of the others than clocks may
    /// differ. Otherwise a clock that is ahead would give transactions timestamps for which all later ones have to wait.
    pub(super) fn clock<C: Control>(&self, cx: &Cx<'_, C>) -> ClockInterval {
        let own_us = cx.clock().midpoint_us();
        if !C::GROUPS_DECIDE {
            return ClockInterval { earliest_us: own_us, latest_us: own_us };
        }
        let own = Span { earliest_us: own_us, latest_us: own_us };
        let uncertain_us = self.settings.uncertainty_us;
        let certain = self.clocks.certain_time(own_us, cx.now());
        let Span { earliest_us, latest_us } = self.against_own(own_us, certain).unwrap_or(own);
        let furthest_us = certain.map_or(u64::MAX, |time| {
            let ahead_us = self.settings.clock_bound_ms.saturating_mul(1000);
            time.earliest_us.saturating_add(ahead_us.max(4 * uncertain_us))
        });
        let latest_us = latest_us.saturating_add(uncertain_us).min(furthest_us);
        let earliest_us = earliest_us.saturating_sub(uncertain_us).min(latest_us);
        ClockInterval { earliest_us, latest_us }
    }

    /// What the clocks of a majority certainly show, if this replica's clock is off by more than it may be.
    fn against_own(&self, own_us: u64, certain: Option<Span>) -> Option<Span> {
        certain.filter(|time| off_us(own_us, *time) > 2 * self.settings.uncertainty_us)
    }

    /// Looks at whether this replica's clock is off by more than it may be.
    pub(super) fn compare_clock<C: Control>(&mut self, cx: &Cx<'_, C>) {
        if C::GROUPS_DECIDE {
            let own_us = cx.clock().midpoint_us();
            let against = self.against_own(own_us, self.clocks.certain_time(own_us, cx.now()));
            self.clock_off_us = against.map_or(0, |time| off_us(own_us, time));
        }
    }

    /// The store, and [`Common::clock`].
    pub(super) fn store_and_clock<'a, C: Control>(
        &self,
        cx: &'a mut Cx<'_, C>,
    ) -> (&'a dyn Store, ClockInterval) {
        let clock = self.clock(cx);
        (cx.store(), clock)
    }

    /// Whether a time is certainly over.
    pub(super) fn is_over<C: Control>(&self, us: u64, cx: &Cx<'_, C>) -> bool {
        self.clock(cx).earliest_us > us
    }

    /// Reports that a prepared transaction commits, before its end is applied.
    fn observe_commit<C: Control>(
        &mut self,
        (txn, at): (Version, Stamp),
        keys: &[Key],
        leads: bool,
        cx: &mut Cx<'_, C>,
    ) {
        // One that has only read may hold at the stamp of another.
        let version = if at.txn == txn { at.version() } else { txn };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for key in keys {
            let Some(item) = self.table.row(key, cx.store()).item(key, txn) else { continue };
            reads.extend(item.read.map(|read| (key.clone(), read.version())));
            writes.extend(item.write.map(|_| key.clone()));
        }
        // Otherwise they were read earlier, when nobody kept a record of it.
        for key in writes.iter().filter(|_| C::READS_COMMITTED) {
            cx.observe(|| Observation::Written { key: key.clone(), version, revision: 0 });
        }
        cx.observe(|| Observation::Committed { version, reads, writes, leads });
    }

    /// Asks the other replicas for the times of their clocks, unless it has asked recently.
    pub(super) fn ask_clocks<C: Control>(&mut self, cx: &mut Cx<'_, C>) {
        let Some(question) = self.clocks.question(self.group.round_trip(), cx) else { return };
        let others = self.group.all().without([self.id].into_iter().collect());
        cx.broadcast(self.shard(), others, Message::Time(question));
    }

    fn on_time<C: Control>(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_, C>) {
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }

    /// Sends an answer that depends only on the window, or that promises nothing. It need not wait
    /// for a flush: the window was chosen, so a majority has it on disk. A single replica waits,
    /// because it treats proposals as chosen before they are durable.
    pub(super) fn say<C: Control>(&self, to: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        match self.group.size() {
            1 => cx.send(to, Message::Reply(reply)),
            _ => cx.send_before_durable(to, Message::Reply(reply)),
        }
    }
}

/// By how much a clock that shows `own_us` disagrees with a majority.
fn off_us(own_us: u64, time: Span) -> u64 {
    time.earliest_us.saturating_sub(own_us).max(own_us.saturating_sub(time.latest_us))
}

impl<C: Control> Shard<C> {
    pub(super) fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
        runs_calls: bool,
    ) -> Shard<C> {
        let table = Table::new(settings.resident_keys, Horizon::of(C::KEEPS, settings));
        let common = Common {
            id,
            clocks: Clocks::new(group.size(), id.member()),
            group,
            settings: *settings,
            mutation,
            table: table.running_calls(runs_calls),
            clock_off_us: 0,
            known: 0,
        };
        Shard { common, ballot: None, first: None, leader: None }
    }

    /// Whether it leads and has applied every entry of former leaders.
    pub(super) fn serves(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether it serves, and the entries for all state changes of its control have been proposed.
    pub(super) fn has_proposed_all(&self) -> bool {
        self.leader.as_ref().is_some_and(Leader::has_proposed_all)
    }

    pub(super) fn window(&self) -> AdmissionWindow {
        self.common.table.window()
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        self.common.table.cells()
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells<Cell> {
        self.common.table.cells_mut()
    }

    /// Loads the state of transactions from the store.
    pub(super) fn load(&mut self, store: &dyn Store) {
        self.common.table.load(store);
    }

    /// Whether `from` can have sent a message to this replica.
    pub(super) fn is_sound(&self, from: NodeId, message: &Message) -> bool {
        let Common { group, table, .. } = &self.common;
        sound::to_replica(from, message, self.common.shard(), group, table.runs_calls())
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("undecided_transactions", self.common.table.prepared().len() as u64);
        each("remembered_transactions", self.common.table.remembered() as u64);
        each("clock_off_ms", self.common.clock_off_us / 1000);
        if let Some(leader) = &self.leader {
            leader.gauges(each);
        }
    }

    /// Leads in this ballot, or stops leading.
    pub(super) fn lead(
        &mut self,
        ballot: Option<Ballot>,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) {
        self.ballot = ballot;
        self.leader = None;
        self.first = None;
        if ballot.is_some() {
            self.common.ask_clocks(cx);
        }
        self.begin(log, cx);
    }

    /// Proposes `Entry::Lead`, unless that was done. There may be no room before the entries of
    /// former leaders are chosen.
    pub(super) fn begin(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_, C>) {
        if self.ballot.is_some() && self.first.is_none() && !self.serves() {
            self.first = log.propose_led(Entry::Lead, cx);
        }
    }

    /// Handles a request, or returns it if it has to wait.
    pub(super) fn on_request(
        &mut self,
        from: NodeId,
        request: Request,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        let Some(leader) = &mut self.leader else { return Some(request) };
        leader.on_request(from, request, log, &mut self.common, cx)
    }

    /// Handles a time, or a question for the time, from a replica of this shard.
    pub(super) fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_, C>) {
        self.common.on_time(from, time, cx);
    }

    /// Handles a reply from the leader of another shard.
    pub(super) fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.on_reply(from, reply, &mut self.common, cx);
        }
    }

    /// Proposes the waiting entries.
    pub(super) fn propose(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.propose(log, &mut self.common, cx);
        }
    }

    /// Answers read-only transactions that waited for others to end.
    pub(super) fn answer_parked(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.answer_parked(log, &mut self.common, cx);
        }
    }

    /// Resolves transactions whose clients have been silent.
    pub(super) fn watch(&mut self, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.watch(&mut self.common, cx);
        }
    }

    /// Looks at whether a time is over that a transaction waits for.
    pub(super) fn look_at_clock(&mut self, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.look_at_clock(&mut self.common, cx);
        }
    }

    /// A time may be over that a transaction waits for.
    pub(super) fn on_clock(&mut self, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.on_clock(&mut self.common, cx);
        }
    }

    /// Notifies clients that the outcomes of their transactions are known.
    pub(super) fn acknowledge(&mut self, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.acknowledge(cx);
        }
    }

    /// Notifies all clients that wait for anything here who leads now, so that they need not wait
    /// for a time-out.
    pub(super) fn redirect(&mut self, to: NodeId, cx: &mut Cx<'_, C>) {
        if let Some(leader) = &mut self.leader {
            leader.redirect(to, cx);
        }
    }
}

impl<C: Control> StateMachine<super::Replica<C>> for Shard<C> {
    fn apply(&mut self, chosen: Chosen<'_, Led>, cx: &mut Cx<'_, C>) {
        let Chosen { slot, position, entry: led, led_in } = chosen;
        let entry = led.map(|led| &led.entry);
        if let Some(part) = entry.and_then(Entry::part) {
            cx.charge(part.items.len());
        }
        if cx.is_observed()
            && let Some(Entry::Decide { txn, decision, keys }) = entry
        {
            match decision {
                Decision::Commit(at) => {
                    self.common.observe_commit((*txn, *at), keys, self.serves(), cx);
                }
                // Otherwise it is refused in the log because nobody knows it, or another replica leads.
                Decision::Abort
                    if self.leader.as_ref().is_some_and(|leader| leader.knows(*txn)) =>
                {
                    cx.observe(|| Observation::Aborted { version: *txn });
                }
                Decision::Abort => {}
            }
        }
        self.common.table.apply((slot, position), led, cx.store());
        self.common.known = slot + 1;
        if self.ballot.is_none() || led_in != self.ballot {
            return;
        }
        if self.first == Some(slot) {
            self.first = None;
            self.leader = Some(Leader::new(&mut self.common, cx));
        } else if let Some(leader) = &mut self.leader {
            leader.on_chosen(slot, entry, &mut self.common, cx);
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led>]) {
        if !self.common.mutation.is(Mutation::KeepsEntriesBehindGaps) {
            self.common.table.revise(first, inherited);
        }
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.common.table.cells_mut().store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.common.table.cells().needs_log_from()
    }

    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        self.common.table.take_over(key, state, store)
    }
}
