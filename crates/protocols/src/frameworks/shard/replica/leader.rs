//! What is made of the log, and what its leader has in memory besides.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serried_actor::{Context, Group, Settings, Store, Timestamp};
use serried_model::{Key, NodeId, Version};

use super::super::Mutation;
use super::super::control::{Control, Desk, Event};
use super::super::message::{
    Decision, Entry, Executed, Led, Message, Part, Refusal, Reply, Request, Window,
};
use super::super::stamp::Stamp;
use super::super::table::Table;
use super::open::{Open, Standing};
use super::refusals::Barred;
use super::resolve::Resolving;
use super::snapshots::Parked;
use super::{ACKNOWLEDGED_AFTER, Replica, Timer};
use crate::Mutated;
use crate::frameworks::replicated_log::{Ballot, Chosen, Clocks, Log, Machine};

/// How many transactions may be open at a leader. Shots of others are dropped, and clients send them again.
pub(super) const OPEN_AT_MOST: usize = 1 << 16;
/// How many answers may wait until it is confirmed that this replica leads. Others are dropped, and clients ask again.
const CONFIRMING_AT_MOST: usize = 1 << 16;

/// A shard at one of its replicas.
#[derive(Debug)]
pub(super) struct Shard<C> {
    pub(super) id: NodeId,
    pub(super) group: Group,
    pub(super) settings: Settings,
    pub(super) mutation: Mutated<Mutation>,
    pub(super) table: Table,
    pub(super) clocks: Clocks,
    /// The slots below are applied, as far as this knows.
    pub(super) known: u64,
    /// The ballot in which it leads.
    ballot: Option<Ballot>,
    /// The slot of the entry with which it begins to serve, while it does not.
    first: Option<u64>,
    /// While it serves.
    pub(super) leader: Option<Leader<C>>,
}

/// What a leader that serves has in memory.
#[derive(Debug)]
pub(super) struct Leader<C> {
    pub(super) control: C,
    pub(super) open: BTreeMap<Version, Open>,
    /// Those that are refused, and why.
    pub(super) refused: BTreeMap<Version, Refusal>,
    pub(super) events: Vec<Event>,
    /// The transactions that are about to be refused in the log.
    pub(super) barred: BTreeMap<Version, Barred>,
    /// How many of these there are, together with those in the log that begin after the window.
    pub(super) ahead: usize,
    /// Entries that must be put into the log. They come from a single message, because no other is handled before they are
    /// in the log. For each open transaction there are at most a part and an end.
    pub(super) unproposed: VecDeque<Entry>,
    /// The window that was proposed last.
    pub(super) proposed: Window,
    /// What is answered once a slot is chosen.
    confirming: VecDeque<(u64, NodeId, Reply)>,
    /// Who is to be told that it is known how these ended.
    acknowledged: BTreeMap<NodeId, Vec<Version>>,
    pub(super) resolving: BTreeMap<Version, Resolving>,
    pub(super) parked: Parked,
    /// Who leads other shards, as far as is known.
    pub(super) leaders: BTreeMap<u16, NodeId>,
    /// Below these times every transaction is over as far as other shards are concerned.
    pub(super) over: BTreeMap<u16, u64>,
    pub(super) tidied: Timestamp,
    /// How often a shot's answer had to wait for other transactions to end, and how many there were.
    pub(super) delayed: u64,
    pub(super) executed: u64,
}

type Cx<'a, C> = Context<'a, Replica<C>>;

impl<C: Control> Shard<C> {
    pub(super) fn new(
        id: NodeId,
        group: Group,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Shard<C> {
        let members = group.size();
        Shard {
            id,
            group,
            settings: *settings,
            mutation,
            table: Table::new(settings.resident_keys, C::MULTI_VERSION),
            clocks: Clocks::new(members, id.member()),
            known: 0,
            ballot: None,
            first: None,
            leader: None,
        }
    }

    pub(super) fn load(&mut self, cx: &mut Cx<'_, C>) {
        self.table.load(cx.store());
    }

    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    pub(super) fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Whether it leads, and has applied all that former leaders have put into the log.
    pub(super) fn serves(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether it serves, and all that its control takes for done is on its way into the log.
    pub(super) fn has_proposed_all(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.unproposed.is_empty())
    }

    pub(super) fn window(&self) -> Window {
        self.table.window()
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("undecided_transactions", self.table.prepared().len() as u64);
        each("remembered_transactions", self.table.remembered() as u64);
        if let Some(leader) = &self.leader {
            each("open", leader.open.len() as u64);
            each("refused", leader.refused.len() as u64);
            each("unproposed", leader.unproposed.len() as u64);
            each("parked", leader.parked.len() as u64);
            each("shots_executed", leader.executed);
            each("shots_delayed", leader.delayed);
        }
    }

    /// It leads in another ballot, or no more.
    pub(super) fn lead(&mut self, ballot: Option<Ballot>, log: &mut Log<Led>, cx: &mut Cx<'_, C>) {
        self.ballot = ballot;
        self.leader = None;
        self.first = None;
        if ballot.is_some() {
            self.ask_clocks(cx);
        }
        self.begin(log, cx);
    }

    /// Puts `Entry::Lead` into the log, unless that was done. There may be no room before the entries that former leaders
    /// have left are chosen.
    pub(super) fn begin(&mut self, log: &mut Log<Led>, cx: &mut Cx<'_, C>) {
        if let Some(by) = self.ballot
            && self.first.is_none()
            && !self.serves()
        {
            self.first = log.propose(Some(Led { by, entry: Entry::Lead }), cx);
        }
    }

    /// All that former leaders have put into the log is applied.
    fn serve(&mut self, cx: &mut Cx<'_, C>) {
        let mut leader = Leader {
            control: C::new(self.mutation),
            open: BTreeMap::new(),
            refused: BTreeMap::new(),
            barred: BTreeMap::new(),
            ahead: 0,
            events: Vec::new(),
            unproposed: VecDeque::new(),
            proposed: self.table.window(),
            confirming: VecDeque::new(),
            acknowledged: BTreeMap::new(),
            resolving: BTreeMap::new(),
            parked: Parked::default(),
            leaders: BTreeMap::new(),
            over: BTreeMap::new(),
            tidied: cx.now(),
            delayed: 0,
            executed: 0,
        };
        let prepared: Vec<Version> = self.table.prepared().iter().copied().collect();
        let part = |txn: &Version| self.table.part(*txn, cx.store());
        let parts: Vec<Part> = prepared.iter().map(part).collect();
        let mut desk = Desk::new(&mut self.table, cx.store(), &mut leader.events);
        leader.control.inherit(&parts, &mut desk);
        for Part { txn, participants, validity, items } in parts {
            let keys = items.into_iter().map(|item| item.key).collect();
            leader.open.insert(txn, Open::inherited(cx.now(), participants, validity, keys));
        }
        self.leader = Some(leader);
        self.count_barred();
        self.ask_clocks(cx);
        cx.set_timer(Timer::Watch, self.watch_every());
    }

    pub(super) fn watch_every(&self) -> Duration {
        self.settings.recovery_after() / 4
    }

    /// Lets the concurrency control do something.
    pub(super) fn with_control<T>(
        &mut self,
        cx: &mut Cx<'_, C>,
        act: impl FnOnce(&mut C, &mut Desk<'_>) -> T,
    ) -> T {
        let leader = self.leader.as_mut().expect("a leader that serves");
        let mut desk = Desk::new(&mut self.table, cx.store(), &mut leader.events);
        act(&mut leader.control, &mut desk)
    }

    /// Takes in what the concurrency control has said. It is not asked for anything else before.
    pub(super) fn take_in_all(&mut self, cx: &mut Cx<'_, C>) {
        let Some(leader) = &mut self.leader else { return };
        let mut events = core::mem::take(&mut leader.events);
        while !events.is_empty() {
            for event in events.drain(..) {
                self.take_in(event, cx);
            }
            let leader = self.leader.as_mut().expect("as before");
            core::mem::swap(&mut events, &mut leader.events);
        }
        self.leader.as_mut().expect("as before").events = events;
    }

    /// Puts into the log what has to be there.
    pub(super) fn propose(&mut self, log: &mut Log<Led>, cx: &mut Cx<'_, C>) {
        self.take_in_all(cx);
        let (Some(leader), Some(by)) = (&mut self.leader, self.ballot) else { return };
        while let Some(entry) = leader.unproposed.pop_front() {
            let part = match &entry {
                Entry::Prepare(part) => Some(part.txn),
                _ => None,
            };
            let Some(slot) = log.propose(Some(Led { by, entry: entry.clone() }), cx) else {
                return leader.unproposed.push_front(entry);
            };
            let open = part.and_then(|txn| leader.open.get_mut(&txn));
            if let Some(open) = open.filter(|open| open.standing == Standing::Preparing(None)) {
                open.standing = Standing::Preparing(Some(slot));
            }
        }
    }

    fn take_in(&mut self, event: Event, cx: &mut Cx<'_, C>) {
        match event {
            Event::Executed(txn) => self.prepare(txn, cx),
            Event::Released(txn, number) => {
                self.leader_mut().open.entry(txn).and_modify(|open| open.release(number));
                self.answer(txn, cx);
            }
            Event::Settled(txn) => {
                self.leader_mut().open.entry(txn).and_modify(|open| open.settled = true);
                self.answer(txn, cx);
            }
            Event::Refused(txn, refusal) => self.refuse(txn, refusal, cx),
        }
    }

    pub(super) fn leader_mut(&mut self) -> &mut Leader<C> {
        self.leader.as_mut().expect("a leader that serves")
    }

    /// A transaction's last shot was executed, or its part is another now.
    fn prepare(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
        let leader = self.leader.as_mut().expect("a leader that serves");
        let Some(open) = leader.open.get_mut(&txn) else { return };
        if open.standing == Standing::Ending {
            return;
        }
        let Some(participants) = open.participants.clone() else { return };
        let Some((validity, items)) = leader.control.part(txn) else { return };
        if open.standing == Standing::Preparing(None) {
            // Only the last counts.
            let other = |entry: &Entry| !matches!(entry, Entry::Prepare(part) if part.txn == txn);
            leader.unproposed.retain(other);
        }
        open.validity = validity;
        open.keys = items.iter().map(|item| item.key.clone()).collect();
        open.standing = Standing::Preparing(None);
        let part = Part { txn, participants, validity, items };
        leader.unproposed.push_back(Entry::Prepare(Arc::new(part)));
        if self.mutation.is(Mutation::AnswersBeforeDurable) {
            open.standing = Standing::Prepared;
            self.answer(txn, cx);
        }
    }

    /// Answers what can be answered of a transaction.
    pub(super) fn answer(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
        while let Some(shot) =
            self.leader.as_ref().and_then(|leader| leader.open.get(&txn)?.answerable())
        {
            let found =
                self.with_control(cx, |control, desk| control.found(txn, &shot.reads, desk));
            // What is told before it is durable here could be forgotten.
            let known = if shot.is_last { self.known } else { 0 };
            let open = self.leader_mut().open.get_mut(&txn).expect("it is open");
            let number = shot.number;
            let executed = found.map(|found| {
                let validity = shot.is_last.then_some(open.validity);
                Executed { txn, number, found, validity, known, clock_us: shot.clock_us }
            });
            open.answered(number, executed.clone());
            let Some(executed) = executed else { continue };
            let reply = Reply::Executed(executed);
            if shot.is_last {
                cx.send(shot.client, Message::Reply(reply));
            } else {
                // It promises nothing yet.
                self.say(shot.client, reply, cx);
            }
        }
        let leader = self.leader_mut();
        let Some(open) = leader.open.get_mut(&txn).filter(|open| open.is_ready()) else { return };
        let validity = open.validity;
        for to in core::mem::take(&mut open.inspectors) {
            cx.send(to, Message::Reply(Reply::Prepared { txn, validity }));
        }
        if let Some((from, to)) = open.mover {
            if !self.reposition(txn, to, cx) {
                return; // It is not ready for now.
            }
            cx.send(from, Message::Reply(Reply::Moved { txn }));
            self.leader_mut().open.entry(txn).and_modify(|open| open.mover = None);
        }
        self.resolve_on(txn, cx);
    }

    /// Puts into the log how a transaction that is ready to commit ends.
    pub(super) fn decide(&mut self, txn: Version, decision: Decision, cx: &mut Cx<'_, C>) {
        let release_early = self.mutation.is(Mutation::ReleasesBeforeDurable);
        let leader = self.leader_mut();
        let Some(open) = leader.open.get_mut(&txn) else { return };
        if open.standing == Standing::Ending {
            return;
        }
        open.standing = Standing::Ending;
        let keys = open.keys.clone();
        leader.unproposed.push_back(Entry::Decide { txn, decision, keys });
        if release_early {
            let at = committed(decision);
            self.with_control(cx, |control, desk| control.decided(txn, at, desk));
        }
    }

    /// A transaction is over, and the rows show it.
    fn decided(&mut self, txn: Version, decision: Decision, cx: &mut Cx<'_, C>) {
        if self.tell_barred(txn, cx) {
            return;
        }
        if !self.mutation.is(Mutation::ReleasesBeforeDurable) {
            let at = committed(decision);
            self.with_control(cx, |control, desk| control.decided(txn, at, desk));
        }
        let leader = self.leader_mut();
        let resolving = leader.resolving.remove(&txn);
        leader.parked.release(txn);
        let open = leader.open.remove(&txn);
        let reply = || Message::Reply(Reply::Decided { txn, decision });
        if let Some(open) = open {
            for to in open.waiting().chain(open.inspectors.iter().copied()) {
                cx.send(to, reply());
            }
            if let Some((to, _)) = open.mover {
                cx.send(to, reply());
            }
            for to in open.enders {
                self.acknowledge_soon(to, txn, cx);
            }
        }
        if let Some(resolving) = resolving {
            self.tell_participants(txn, decision, &resolving, cx);
        }
    }

    /// Tells somebody, soon, that it is known how a transaction ended.
    pub(super) fn acknowledge_soon(&mut self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        let leader = self.leader_mut();
        if leader.acknowledged.is_empty() {
            cx.set_timer(Timer::Acknowledge, ACKNOWLEDGED_AFTER);
        }
        leader.acknowledged.entry(to).or_default().push(txn);
    }

    /// Tells all who are to be told by now.
    pub(super) fn acknowledge(&mut self, cx: &mut Cx<'_, C>) {
        let Some(leader) = &mut self.leader else { return };
        for (to, txns) in core::mem::take(&mut leader.acknowledged) {
            cx.send(to, Message::Reply(Reply::Ended(txns)));
        }
    }

    /// Sends a reply once it is sure that this replica has led until now.
    pub(super) fn reply_confirmed(
        &mut self,
        to: NodeId,
        reply: Reply,
        log: &mut Log<Led>,
        cx: &mut Cx<'_, C>,
    ) {
        // What it tells of may not be durable here yet.
        if log.is_alone() {
            cx.send(to, Message::Reply(reply));
        } else if self.leader_mut().confirming.len() >= CONFIRMING_AT_MOST {
            // The client asks again.
        } else if let Some(slot) = log.confirm(cx) {
            self.leader_mut().confirming.push_back((slot, to, reply));
        }
    }

    pub(super) fn send_to_shard(&mut self, shard: u16, request: Request, cx: &mut Cx<'_, C>) {
        let known = self.leader_mut().leaders.get(&shard).copied();
        let to = known.unwrap_or_else(|| {
            let any = cx.draw() as usize % self.group.size();
            self.group.choice(shard, any)
        });
        cx.send(to, Message::Request(request));
    }
}

fn committed(decision: Decision) -> Option<Stamp> {
    match decision {
        Decision::Commit(at) => Some(at),
        Decision::Abort => None,
    }
}

impl<C: Control> Machine<Replica<C>> for Shard<C> {
    fn apply(&mut self, chosen: Chosen<'_, Led>, cx: &mut Cx<'_, C>) {
        let Chosen { slot, position, entry: led, led_in } = chosen;
        let entry = led.map(|led| &led.entry);
        if let Some(Entry::Prepare(part)) = entry {
            cx.charge(part.items.len());
        }
        self.table.apply((slot, position), led, cx.store());
        self.known = slot + 1;
        if led_in.is_none() || led_in != self.ballot {
            return;
        }
        if self.first == Some(slot) {
            self.first = None;
            return self.serve(cx);
        }
        let Some(leader) = &mut self.leader else { return };
        match entry {
            Some(Entry::Prepare(part)) => {
                if let Some(open) = leader.open.get_mut(&part.txn)
                    && open.standing == Standing::Preparing(Some(slot))
                {
                    open.standing = Standing::Prepared;
                    self.answer(part.txn, cx);
                }
            }
            Some(Entry::Decide { txn, decision, .. }) => self.decided(*txn, *decision, cx),
            Some(Entry::Window(_)) => self.forget_refused(),
            Some(Entry::Lead) | None => {}
        }
        self.take_in_all(cx);
        let Some(leader) = &mut self.leader else { return };
        while leader.confirming.front().is_some_and(|(at, ..)| *at <= slot) {
            let (_, to, reply) = leader.confirming.pop_front().expect("there is one");
            cx.send(to, Message::Reply(reply));
        }
    }

    fn revise(&self, first: u64, inherited: &mut [Option<Led>]) {
        self.table.revise(first, inherited);
    }

    fn store_all(&mut self, store: &mut dyn Store) {
        self.table.store_some(usize::MAX, store);
    }

    fn needs_log_from(&self) -> Option<u64> {
        self.table.cells().needs_log_from()
    }

    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool {
        self.table.take_over(key, state, store)
    }
}
