//! A serving leader: the life of its transactions, from their first shots to their ends.
//!
//! Each step of a transaction concerns most components. An event of the control leads to an entry
//! of the log, an answer or a refusal. A chosen entry leads back to the control, and to clients and
//! other shards that wait. So these steps are methods of the leader: a transaction's steps here in
//! this file, requests in `requests.rs`, and recovery from failures in `recovery.rs`. The leader
//! passes the components what they need. They do not know each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serried_actor::{Observation, Timestamp};
use serried_model::{Key, NodeId, Version};

use super::super::Mutation;
use super::super::control::{Control, Event};
use super::super::message::{Decision, Entry, Executed, Kept, Led, Message, Part, Refusal, Reply};
use super::super::stamp::Stamp;
use super::super::verdict::{Verdict, verdict};
use super::acknowledgements::Acknowledgements;
use super::admission::{Admission, Windows};
use super::answered::Answered;
use super::commit_waits::CommitWaits;
use super::controlled::Controlled;
use super::open::{Open, Standing};
use super::other_shards::OtherShards;
use super::refusals::{Barred, Refusals};
use super::resolution::Resolution;
use super::sets::Sets;
use super::shard::Common;
use super::snapshots::Parked;
use super::uncertain::Uncertain;
use super::{Cx, Timer};
use crate::frameworks::replicated_log::ReplicatedLog;

/// How many transactions may be open at a leader. It drops shots of others, and clients send them
/// again.
pub(super) const OPEN_AT_MOST: usize = 1 << 16;
/// How many answers may wait until this replica has confirmed that it leads. It drops others, and
/// clients ask again.
const CONFIRMING_AT_MOST: usize = 1 << 16;

/// The state of a serving leader, in memory.
#[derive(Debug)]
pub(super) struct Leader<C> {
    pub(super) controlled: Controlled<C>,
    /// The open transactions.
    pub(super) open: BTreeMap<Version, Open>,
    pub(super) refusals: Refusals,
    pub(super) windows: Windows,
    /// Entries that must be put into the log. They all result from a single message, because the
    /// leader handles no other before they are in the log. For each open transaction there are at
    /// most an end and a few parts: one more each time that it is made again.
    pub(super) unproposed: VecDeque<Entry>,
    /// Replies to send once a slot is chosen.
    confirming: VecDeque<(u64, NodeId, Reply)>,
    pub(super) uncertain: Uncertain,
    pub(super) answered: Answered,
    pub(super) acknowledgements: Acknowledgements,
    pub(super) resolutions: BTreeMap<Version, Resolution>,
    /// The read-only transactions that wait for others to end.
    pub(super) parked: Parked,
    pub(super) commit_waits: CommitWaits,
    /// The time for which the timer [`Timer::Clock`] is set.
    pub(super) watched_us: Option<u64>,
    pub(super) others: OtherShards,
    /// When this leader last reported to other shards which transactions have ended here.
    pub(super) tidied: Timestamp,
    pub(super) sets: Sets,
}

impl<C: Control> Leader<C> {
    /// Creates a leader that has applied every entry of former leaders.
    pub(super) fn new(common: &mut Common, cx: &mut Cx<'_, C>) -> Leader<C> {
        let windows = Windows::new(common.table.window(), &common.settings);
        let mut leader = Leader {
            controlled: Controlled::new(C::new(common.mutation)),
            open: BTreeMap::new(),
            refusals: Refusals::default(),
            windows: match C::GROUPS_DECIDE {
                true => windows.with_commit_wait(&common.settings),
                false => windows,
            },
            unproposed: VecDeque::new(),
            confirming: VecDeque::new(),
            uncertain: Uncertain::default(),
            answered: Answered::default(),
            acknowledgements: Acknowledgements::default(),
            resolutions: BTreeMap::new(),
            parked: Parked::default(),
            commit_waits: CommitWaits::default(),
            watched_us: None,
            others: OtherShards::default(),
            tidied: cx.now(),
            sets: Sets::default(),
        };
        let prepared: Vec<Version> = common.table.prepared().iter().copied().collect();
        let part = |txn: &Version| common.table.part(*txn, cx.store());
        let parts: Vec<Part> = prepared.iter().map(part).collect();
        let at = common.store_and_clock(cx);
        let table = &mut common.table;
        leader.controlled.act(table, at, |control, desk| control.inherit(&parts, desk));
        for Part { txn, participants, validity, items } in parts {
            let keys = items.into_iter().map(|item| item.key).collect();
            let kept = common.table.kept(txn, cx.store());
            let open = Open::inherited(cx.now(), participants, validity, keys, kept);
            leader.open.insert(txn, open);
        }
        leader.advance_sets(common, cx);
        leader.count_ahead(common);
        common.ask_clocks(cx);
        leader.watch_later(common, cx);
        leader
    }

    /// Whether the entries for all state changes of the control have been proposed.
    pub(super) fn has_proposed_all(&self) -> bool {
        self.unproposed.is_empty()
    }

    /// Whether a transaction is open.
    pub(super) fn knows(&self, txn: Version) -> bool {
        self.open.contains_key(&txn)
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("open", self.open.len() as u64);
        each("refused", self.refusals.len() as u64);
        each("unproposed", self.unproposed.len() as u64);
        each("parked", self.parked.len() as u64);
        each("uncertain", self.uncertain.len() as u64);
        each("answered", self.answered.len() as u64);
        each("commit_waits", self.commit_waits.len() as u64);
        self.controlled.gauges(each);
    }

    /// Handles the events of the control. The control gets no other call before.
    pub(super) fn take_in_all(&mut self, common: &mut Common, cx: &mut Cx<'_, C>) {
        let mut events = Vec::new();
        while self.controlled.next_events(&mut events) {
            for event in events.drain(..) {
                self.take_in(event, common, cx);
            }
        }
        cx.charge(self.controlled.take_rows_read());
    }

    fn take_in(&mut self, event: Event, common: &mut Common, cx: &mut Cx<'_, C>) {
        match event {
            Event::Executed(txn) => self.prepare(txn, common, cx),
            Event::Released(txn, number) => {
                self.open.entry(txn).and_modify(|open| open.release(number));
                self.answer(txn, common, cx);
            }
            Event::Settled(txn) => {
                self.open.entry(txn).and_modify(|open| open.settled = true);
                self.prepare_behind_uncertain(txn, common, cx);
                self.answer(txn, common, cx);
                self.end_alone(txn, common, cx);
            }
            Event::Refused(txn, refusal) => self.refuse(txn, refusal, common, cx),
        }
    }

    /// Proposes the waiting entries.
    pub(super) fn propose(
        &mut self,
        log: &mut ReplicatedLog<Led>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        self.take_in_all(common, cx);
        while let Some(entry) = self.unproposed.pop_front() {
            let part = entry.part().map(|part| part.txn);
            let Some(slot) = log.propose_led(entry.clone(), cx) else {
                return self.unproposed.push_front(entry);
            };
            let Some(open) = part.and_then(|txn| self.open.get_mut(&txn)) else { continue };
            open.queued = open.queued.saturating_sub(1);
            if open.queued == 0 && open.standing == Standing::Preparing(None) {
                open.standing = Standing::Preparing(Some(slot));
            }
        }
    }

    /// Handles an entry of this leader that was chosen and applied.
    pub(super) fn on_chosen(
        &mut self,
        slot: u64,
        entry: Option<&Entry>,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        match entry {
            Some(Entry::Prepare(part) | Entry::PrepareCall(part, _)) => {
                if let Some(open) = self.open.get_mut(&part.txn)
                    && open.standing == Standing::Preparing(Some(slot))
                {
                    open.standing = Standing::Prepared;
                    self.answer(part.txn, common, cx);
                }
            }
            Some(Entry::Decide { txn, decision, .. }) => {
                self.on_decided(*txn, *decision, common, cx);
            }
            Some(Entry::Window(_)) => self.refusals.forget_before(common.table.window().from_us),
            Some(Entry::Set { version, .. }) => self.on_set(*version, common, cx),
            Some(Entry::Lead) | None => {}
        }
        self.take_in_all(common, cx);
        while self.confirming.front().is_some_and(|(at, ..)| *at <= slot) {
            let (_, to, reply) = self.confirming.pop_front().expect("a reply waits");
            cx.send(to, Message::Reply(reply));
        }
    }

    /// A transaction's last shot was executed, or its part has changed. Queues the part for the
    /// log.
    fn prepare(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get_mut(&txn) else { return };
        if open.standing == Standing::Ending {
            return;
        }
        let Some(participants) = open.participants.clone() else { return };
        let Some((validity, items)) = self.controlled.part(txn) else { return };
        let part = Arc::new(Part { txn, participants: participants.clone(), validity, items });
        if let Some(reason) = part.too_large() {
            return self.discard(txn, reason, common, cx);
        }
        // An earlier part that waits for the log stays there, although only the last one counts. Parts on which it rests may be
        // behind it, and the next leader must not find these without it.
        open.queued += 1;
        open.is_remade |= open.standing != Standing::Executing;
        open.place = self.uncertain.next_place();
        open.validity = validity;
        open.keys = part.items.iter().map(|item| item.key.clone()).collect();
        open.standing = Standing::Preparing(None);
        if let Some(call) = open.call.clone() {
            // Under a former leader, the pieces returned what is kept.
            let kept = open.kept.take().filter(|_| open.is_inherited).unwrap_or_else(|| {
                let ran = self.controlled.ran(txn, None);
                let is_refused = open.is_refused || ran.refused.is_some();
                Arc::new(Kept { call, participants, ran, is_refused })
            });
            open.kept = Some(kept.clone());
            self.unproposed.push_back(Entry::PrepareCall(part, kept));
        } else {
            self.unproposed.push_back(Entry::Prepare(part));
        }
        if common.mutation.is(Mutation::AnswersBeforeDurable) {
            open.standing = Standing::Prepared;
            self.answer(txn, common, cx);
        }
    }

    /// A transaction's part has become final. If that may be due to an end which is only certain once it is chosen, the part
    /// is put into the log once more, behind that end. Then it is chosen, and reported, only with it.
    fn prepare_behind_uncertain(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get(&txn) else { return };
        let has_part = !matches!(open.standing, Standing::Executing | Standing::Ending);
        let is_behind = !self.uncertain.any_after(open.place);
        if has_part
            && !is_behind
            && open.alone.is_none()
            && !common.mutation.is(Mutation::TrustsUncertainEnds)
        {
            self.prepare(txn, common, cx);
        }
    }

    /// Aborts a transaction that has a part here. Nobody else knows of that before the end is chosen.
    pub(super) fn give_up(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let is_new = |open: &Open| open.standing != Standing::Ending && open.alone.is_none();
        if self.open.get(&txn).is_some_and(is_new) {
            let place = self.uncertain.next_place();
            self.uncertain.insert(txn, place);
        }
        self.decide(txn, Decision::Abort, common, cx);
    }

    /// Sends the answers that are possible for a transaction.
    pub(super) fn answer(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        // A group that decides answers last shots when the transaction ends.
        let answerable = |open: &Open| open.answerable(!C::GROUPS_DECIDE);
        while let Some(shot) = self.open.get(&txn).and_then(answerable) {
            let alone = self.open.get(&txn).and_then(|open| open.alone.clone());
            let found = alone.filter(|_| shot.is_last).or_else(|| {
                let at = common.store_and_clock(cx);
                self.controlled.act(&mut common.table, at, |control, desk| {
                    control.found(txn, &shot.reads, desk)
                })
            });
            // Before it is durable here, this replica could forget what it reports to a client.
            let known = if shot.is_last { common.known } else { 0 };
            let open = self.open.get_mut(&txn).expect("the transaction is open");
            let number = shot.number;
            let reply = found.map(|found| {
                let validity = shot.is_last.then_some(open.validity);
                let clock_us = shot.clock_us;
                let executed = Executed { txn, number, found, validity, known, clock_us };
                if open.call.is_none() {
                    return Reply::Executed(executed);
                }
                let kept = open.kept.as_ref().filter(|_| shot.is_last);
                let ran = || self.controlled.ran(txn, Some(number));
                Reply::Ran { executed, ran: kept.map_or_else(ran, |kept| kept.ran.clone()) }
            });
            open.answered(number, reply.clone());
            let Some(reply) = reply else { continue };
            if shot.is_last {
                cx.send(shot.client, Message::Reply(reply));
            } else {
                // It promises nothing yet.
                common.say(shot.client, reply, cx);
            }
        }
        let Some(open) = self.open.get_mut(&txn).filter(|open| open.is_ready()) else { return };
        let validity = open.validity;
        for to in core::mem::take(&mut open.inspectors) {
            cx.send(to, Message::Reply(Reply::Prepared { txn, validity }));
        }
        if let Some((from, to)) = open.mover {
            if !self.reposition(txn, to, common, cx) {
                return; // The part is not ready for now.
            }
            cx.send(from, Message::Reply(Reply::Moved { txn }));
            self.open.entry(txn).and_modify(|open| open.mover = None);
        }
        if C::GROUPS_DECIDE {
            self.report(txn, common, cx);
        }
        self.continue_resolution(txn, common, cx);
    }

    /// Queues the end of a prepared transaction for the log.
    pub(super) fn decide(
        &mut self,
        txn: Version,
        decision: Decision,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let Some(open) = self.open.get_mut(&txn) else { return };
        if open.standing == Standing::Ending || open.alone.is_some() {
            return;
        }
        open.standing = Standing::Ending;
        let keys = open.keys.clone();
        self.unproposed.push_back(Entry::Decide { txn, decision, keys });
        if C::RELEASES_EARLY {
            self.release(txn, decision, common, cx);
        }
    }

    /// A transaction's part is final. If there is no other part, everybody who knows the part decides alike. Then its end
    /// follows the part in the log, and others go on. Its client is answered when the part is chosen.
    fn end_alone(&mut self, txn: Version, common: &mut Common, cx: &mut Cx<'_, C>) {
        let Some(open) = self.open.get(&txn) else { return };
        let is_alone = open.participants.as_deref() == Some(&[common.shard()]);
        let is_new = matches!(open.standing, Standing::Preparing(_)) && open.alone.is_none();
        if !C::RELEASES_EARLY || !is_alone || !is_new || open.call.is_some() {
            return;
        }
        let Verdict::Commit(at) = verdict(txn, core::iter::once(open.validity)) else { return };
        // One that was inherited ends when its client asks again, so that it can be answered.
        let Some(reads) = open.last_reads().map(<[Key]>::to_vec) else { return };
        let place = common.store_and_clock(cx);
        let found = self
            .controlled
            .act(&mut common.table, place, |control, desk| control.found(txn, &reads, desk));
        let (Some(found), Some(open)) = (found, self.open.get_mut(&txn)) else { return };
        open.alone = Some(found);
        if open.is_remade {
            self.uncertain.insert(txn, open.place);
        }
        let (keys, decision) = (open.keys.clone(), Decision::Commit(at));
        self.unproposed.push_back(Entry::Decide { txn, decision, keys });
        self.release(txn, decision, common, cx);
    }

    /// Lets transactions continue that waited for this one.
    fn release(
        &mut self,
        txn: Version,
        decision: Decision,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let moment = committed(decision);
        let at = common.store_and_clock(cx);
        self.controlled.act(&mut common.table, at, |control, desk| {
            control.decided(txn, moment, desk);
        });
    }

    /// A transaction has ended, and the rows contain its end.
    fn on_decided(
        &mut self,
        txn: Version,
        decision: Decision,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if let Some(Barred { reason, to }) = self.refusals.take_barred(txn) {
            for to in to {
                cx.send(to, Message::Reply(Reply::Refused { txn, reason: reason.clone() }));
            }
            return;
        }
        if !self.waits(txn, decision, common, cx) {
            self.finish(txn, decision, common, cx);
        }
    }

    /// A transaction has ended, and nothing waits for its moment.
    pub(super) fn finish(
        &mut self,
        txn: Version,
        decision: Decision,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if C::RELEASES_EARLY {
            let at = common.store_and_clock(cx);
            let table = &mut common.table;
            self.controlled.act(table, at, |control, desk| control.is_in_rows(txn, desk));
        } else {
            self.release(txn, decision, common, cx);
        }
        let resolution = self.resolutions.remove(&txn);
        self.parked.release(txn);
        self.uncertain.remove(txn);
        let mut is_concluded = false;
        let reply = || Message::Reply(Reply::Decided { txn, decision });
        if let Some(mut open) = self.open.remove(&txn) {
            // The client of one on which another group decides is answered there, and asks here if that answer is lost.
            let decides = !C::GROUPS_DECIDE || open.backup() == Some(common.shard());
            is_concluded = open.is_concluded;
            for to in open.waiting().filter(|_| decides) {
                cx.send(to, reply());
            }
            for to in open.inspectors.iter().copied() {
                cx.send(to, reply());
            }
            if let Some((to, _)) = open.mover {
                cx.send(to, reply());
            }
            let is_confirmed = open.enders.iter().any(|node| node.is_coordinator());
            if !is_confirmed && let Some(reply) = open.take_last_answer() {
                self.answered.insert(txn, reply);
            }
            for to in open.enders {
                self.acknowledgements.add(to, txn, cx);
            }
        }
        if let Some(resolution) = resolution.filter(|_| !is_concluded) {
            self.tell_participants(txn, decision, &resolution, common, cx);
        }
        self.end_registration(common, cx);
    }

    /// Whether a transaction is admitted. Extends the window if needed.
    pub(super) fn admission(
        &mut self,
        txn: Version,
        common: &Common,
        cx: &mut Cx<'_, C>,
    ) -> Admission {
        let (window, time) = (common.table.window(), common.time(cx));
        self.windows.admit(txn.timestamp_us, window, time, &mut self.unproposed)
    }

    /// Refuses a transaction. The concurrency control must have discarded it.
    pub(super) fn refuse(
        &mut self,
        txn: Version,
        reason: Refusal,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let standing = self.open.get(&txn).map(|open| open.standing);
        if standing.is_some_and(|standing| standing != Standing::Executing) {
            // No client knows that it is ready, but a later leader may find its part.
            return self.give_up(txn, common, cx);
        }
        let window = common.table.window();
        assert!(txn.timestamp_us < window.to_us, "transaction {txn} is refused beyond the window");
        self.refusals.insert(txn, reason.clone());
        self.parked.release(txn);
        if let Some(open) = self.open.remove(&txn) {
            cx.observe(|| Observation::Aborted { version: txn });
            for to in open.waiting().chain(open.inspectors.iter().copied()) {
                common.say(to, Reply::Refused { txn, reason: reason.clone() }, cx);
            }
            for to in open.enders {
                self.acknowledgements.add(to, txn, cx);
            }
        }
        if let Some(us) = self.refusals.excess_before_us(self.windows.begin_us()) {
            self.windows.close_before(us, window, &mut self.unproposed);
        }
    }

    /// Refuses a transaction that is not prepared and never will be.
    pub(super) fn discard(
        &mut self,
        txn: Version,
        reason: Refusal,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        let at = common.store_and_clock(cx);
        self.controlled.act(&mut common.table, at, |control, desk| {
            control.discard(txn, desk);
        });
        self.refuse(txn, reason, common, cx);
    }

    /// Refuses an unknown transaction permanently, and notifies `to` once the refusal is certain.
    pub(super) fn bar(
        &mut self,
        txn: Version,
        reason: Refusal,
        to: NodeId,
        common: &mut Common,
        cx: &mut Cx<'_, C>,
    ) {
        if txn.timestamp_us < common.table.window().to_us {
            if self.refusals.reason(txn).is_none() {
                self.refuse(txn, reason, common, cx);
            }
            return self.tell_refused(to, txn, cx);
        }
        if !self.refusals.waits_to_be_barred(txn, to) && self.refusals.bar(txn, reason, to) {
            let (decision, keys) = (Decision::Abort, [].into());
            self.unproposed.push_back(Entry::Decide { txn, decision, keys });
        }
    }

    pub(super) fn tell_refused(&self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if let Some(reason) = self.refusals.reason(txn) {
            cx.send(to, Message::Reply(Reply::Refused { txn, reason }));
        }
    }

    /// Counts the transactions that begin after the window and are refused in the log.
    pub(super) fn count_ahead(&mut self, common: &Common) {
        let decided = common.table.decided_from(common.table.window().to_us);
        self.refusals.count_ahead(decided);
    }

    /// Notifies clients that the outcomes of their transactions are known.
    pub(super) fn acknowledge(&mut self, cx: &mut Cx<'_, C>) {
        self.acknowledgements.send(cx);
    }

    /// Notifies all clients that wait for anything here that `to` leads now.
    pub(super) fn redirect(&mut self, to: NodeId, cx: &mut Cx<'_, C>) {
        self.acknowledge(cx);
        let clients: BTreeSet<NodeId> = self.open.values().flat_map(Open::concerned).collect();
        for client in clients {
            cx.send_before_durable(client, Message::Reply(Reply::Follow { leader: to }));
        }
    }

    /// Sends a reply once this replica has confirmed that it led until now.
    pub(super) fn reply_confirmed(
        &mut self,
        to: NodeId,
        reply: Reply,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) {
        // The reply may contain state that is not durable here yet.
        if log.is_alone() {
            cx.send(to, Message::Reply(reply));
        } else if self.confirming.len() >= CONFIRMING_AT_MOST {
            // The client asks again.
        } else if let Some(slot) = log.confirm(cx) {
            self.confirming.push_back((slot, to, reply));
        }
    }

    pub(super) fn watch_later(&self, common: &Common, cx: &mut Cx<'_, C>) {
        cx.set_timer(Timer::Watch, common.settings.recovery_after() / 4);
    }
}

fn committed(decision: Decision) -> Option<Stamp> {
    match decision {
        Decision::Commit(at) => Some(at),
        Decision::Abort => None,
    }
}
