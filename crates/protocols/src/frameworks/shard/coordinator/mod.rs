//! The client side: a coordinator for one client's transactions.
//!
//! The coordinator itself owns the life of a transaction: its beginning and end in this file, its
//! shots and parts in `prepare.rs`, and its reads without parts in `snapshot.rs`. Each of these
//! steps can end a transaction, or send messages that another step waits for. So they are methods
//! of the coordinator. The components know nothing of open transactions.

mod calls;
mod end;
mod inquiry;
mod leaders;
mod over;
mod past;
mod prepare;
mod snapshot;
#[cfg(test)]
mod tests;
mod txn;
mod versions;

pub use calls::{CallCoordinator, CallTimer};

use core::marker::PhantomData;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Coordinate, Group, Settings};
use serried_model::transactions::{Operation, Outcome, Output};
use serried_model::{Key, NodeId, Transactions, TxnId, Version};
use serried_parts::patience_with_leader;
use smallvec::SmallVec;

use super::control::{Control, Rounds, Snapshots};
use super::message::{Decision, Message, Reply, Request};
use super::sound;
use super::stamp::Stamp;
use end::{Client, Endings};
use inquiry::Inquiries;
use leaders::Leaders;
use over::Over;
use past::Pasts;
use prepare::Changes;
use snapshot::Snapshot;
use txn::{Phase, Txn};
use versions::{OpenVersions, Versions};

/// How often a transaction repeats its requests after its program has abandoned it. Then the shards
/// resolve it by themselves.
const ABANDONED_AFTER: u32 = 10;

/// How many keys that a transaction reads for update are remembered. If it writes others too, it takes one more round.
const LOCKED_AT_MOST: usize = 64;

/// The coordinator of one client's transactions.
#[derive(Debug)]
pub struct Coordinator<C> {
    leaders: Leaders,
    settings: Settings,
    txns: BTreeMap<TxnId, Txn>,
    by_version: OpenVersions,
    endings: Endings,
    inquiries: Inquiries,
    pasts: Pasts,
    /// A time that is certainly over. Only if the protocol relies on clocks.
    over: Over,
    /// The transactions with new reads, while a batch of operations is processed.
    batch: Vec<TxnId>,
    /// How long a shot takes from the client to its execution, as the difference of both clocks in
    /// microseconds (003 §5.3).
    delays_us: BTreeMap<u16, i64>,
    /// By shard, the slot below which the client knows what was committed.
    known: BTreeMap<u16, u64>,
    versions: Versions,
    snapshots: u64,
    snapshot_requests: BTreeMap<u64, TxnId>,
    beats: bool,
    /// Counts: committed transactions, those of them that were moved, and read-only transactions
    /// that had to read like others.
    committed: u64,
    moved: u64,
    fallen_back: u64,
    control: PhantomData<C>,
}

/// The timers of a coordinator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Repeat a transaction's unanswered requests.
    Repeat(TxnId),
    /// Repeat the ends of transactions.
    Tell,
    /// Report to shards which transactions are still open.
    Beat,
}

type Cx<'a, C> = Context<'a, Coordinator<C>>;

impl<C: Control> Coordinator<C> {
    /// Creates a coordinator for a client of `group`.
    pub fn new(group: Group, settings: &Settings) -> Coordinator<C> {
        Coordinator {
            leaders: Leaders::new(group),
            settings: *settings,
            txns: BTreeMap::new(),
            by_version: OpenVersions::default(),
            endings: Endings::default(),
            inquiries: Inquiries::default(),
            pasts: Pasts::default(),
            over: Over::default(),
            batch: Vec::new(),
            delays_us: BTreeMap::new(),
            known: BTreeMap::new(),
            versions: Versions::new(settings.clock_bound_ms),
            snapshots: 0,
            snapshot_requests: BTreeMap::new(),
            beats: false,
            committed: 0,
            moved: 0,
            fallen_back: 0,
            control: PhantomData,
        }
    }

    fn learn_known(&mut self, shard: u16, known: u64) {
        let before = self.known.entry(shard).or_default();
        *before = known.max(*before);
    }

    /// The first time from `first_us` on that no other transaction of this client has, and that no
    /// open one can be moved to (see [`Stamp::next_of`]).
    fn next_us(&mut self, first_us: u64, now_us: u64) -> u64 {
        let open = |lane| self.by_version.has_lane(lane);
        let us = self.versions.free_lane_from(first_us, now_us, open);
        self.versions.give(us);
        us
    }

    /// Assigns a version to a transaction that has none. `shards` are the shards to which it goes
    /// first (003 §5.3).
    fn assign_version(
        &mut self,
        txn: TxnId,
        shards: impl Iterator<Item = u16>,
        cx: &mut Cx<'_, C>,
    ) -> Version {
        if let Some(version) = self.txns[&txn].version {
            return version;
        }
        let shards: SmallVec<[u16; 4]> = shards.collect();
        let delay_us = shards.iter().filter_map(|shard| self.delays_us.get(shard)).copied().max();
        let now_us = cx.clock().midpoint_us();
        let first_us = if C::GROUPS_DECIDE && self.txns[&txn].snapshot.is_some() {
            self.latest_us(cx)
        } else {
            // A later time would only lengthen a commit wait, so it is one by the leaders' clocks if this one is ahead.
            let delay_us = delay_us.map(|us| if C::GROUPS_DECIDE { us.min(0) } else { us });
            let then_us = now_us.saturating_add_signed(delay_us.unwrap_or(0));
            self.versions.first_us(then_us, |shard| shards.contains(&shard))
        };
        let timestamp_us = self.next_us(first_us, now_us);
        let version = Version { timestamp_us, coordinator: cx.id() };
        self.by_version.insert(version, txn);
        self.txns.get_mut(&txn).expect("it is open").version = Some(version);
        cx.output((txn, Output::Began(version)));
        if !core::mem::replace(&mut self.beats, true) {
            cx.set_timer(Timer::Beat, self.settings.recovery_after() / 3);
        }
        version
    }

    /// The latest time that it can be, by this client's clock and by those of leaders that it has heard of. So once it has
    /// heard of one, it does not matter if its own clock is behind. It is after all times at which transactions of this client
    /// took effect, so these have its order whatever clocks show.
    fn latest_us(&self, cx: &Cx<'_, C>) -> u64 {
        let by_clock_us = self.begins_by_us(cx);
        let by_others_us = self
            .over
            .us(cx.now())
            .map_or(0, |us| us.saturating_add(self.settings.uncertainty_us.saturating_mul(2)));
        by_clock_us.max(by_others_us).max(self.versions.last_taken_us().saturating_add(1))
    }

    /// The latest time that a transaction can get from this client's clock alone, if it begins now.
    pub(super) fn begins_by_us(&self, cx: &Cx<'_, C>) -> u64 {
        let ahead_us = if C::GROUPS_DECIDE { self.settings.uncertainty_us } else { 0 };
        cx.clock().midpoint_us().saturating_add(ahead_us)
    }

    /// A leader reports a time that is certainly over.
    fn learn_over(&mut self, us: u64, cx: &Cx<'_, C>) {
        if C::GROUPS_DECIDE {
            self.over.learn(us, cx.now());
        }
    }

    fn repeat_later(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let Some(open) = self.txns.get(&txn) else { return };
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.leaders.group, open.repeated));
    }

    /// Ends a transaction for its program. Nothing more is needed from its shards.
    fn finish(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_, C>) -> Option<Txn> {
        let mut open = self.txns.remove(&txn)?;
        cx.cancel_timer(Timer::Repeat(txn));
        if let Some(snapshot) = open.snapshot.take() {
            self.drop_snapshot(&snapshot);
            open.snapshot = Some(snapshot);
        }
        if outcome == Outcome::Committed {
            self.committed += 1;
            if open.version.is_none() {
                // No message has needed its version.
                let now_us = cx.clock().midpoint_us();
                let timestamp_us = self.next_us(now_us, now_us);
                let version = Version { timestamp_us, coordinator: cx.id() };
                self.versions.take(timestamp_us);
                cx.output((txn, Output::Began(version)));
            }
        }
        if let Some(version) = open.version {
            self.by_version.remove(&version);
            // A read-only transaction is known by its first version, at whichever moment it took
            // effect.
            if matches!(outcome, Outcome::Committed | Outcome::Unknown) {
                self.versions.take(version.timestamp_us);
            }
        }
        cx.output((txn, Output::Outcome(outcome)));
        Some(open)
    }

    /// Reports the version at which a transaction took effect. Does nothing if the stamp is
    /// another transaction's: that is so if this one has only read.
    fn took_effect(&mut self, txn: TxnId, version: Version, at: Stamp, cx: &mut Cx<'_, C>) {
        if at.txn == version {
            self.versions.take(at.us);
            cx.output((txn, Output::Began(at.version())));
        }
    }

    /// Commits a transaction.
    fn commit(&mut self, txn: TxnId, at: Stamp, cx: &mut Cx<'_, C>) {
        let Some(version) = self.txns.get(&txn).and_then(|open| open.version) else { return };
        self.took_effect(txn, version, at, cx);
        if let Some(open) = self.finish(txn, Outcome::Committed, cx) {
            self.moved += u64::from(matches!(open.phase, Phase::Moving(..)));
            if C::GROUPS_DECIDE && !open.is_disturbed {
                return; // The leader that has decided tells the others.
            }
            self.endings.tell(
                version,
                Decision::Commit(at),
                open.shards.into_keys().collect(),
                &self.leaders,
                cx,
            );
        }
    }

    /// Aborts a transaction that a shard has refused, or that was abandoned before it was prepared.
    fn abort(&mut self, txn: TxnId, outcome: Outcome, cx: &mut Cx<'_, C>) {
        let Some(open) = self.finish(txn, outcome, cx) else { return };
        let Some(version) = open.version.filter(|_| !open.shards.is_empty()) else { return };
        self.endings.tell(
            version,
            Decision::Abort,
            open.shards.into_keys().collect(),
            &self.leaders,
            cx,
        );
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        if let Reply::Follow { leader } = reply {
            return self.on_follow(from, leader, cx);
        }
        let is_new = self.leaders.on_answer(from);
        match reply {
            Reply::Executed(executed) => self.on_executed(from, executed, cx),
            Reply::Refused { txn, reason } => self.on_refused(from, txn, reason, cx),
            Reply::Moved { txn } => self.on_moved(from, txn, cx),
            Reply::Decided { txn, decision } => self.on_decided(from, txn, decision, cx),
            Reply::Ended(txns) => self.endings.on_ended(from, &txns),
            Reply::Prepared { .. } => {} // Only backup coordinators wait for that.
            Reply::Snapshot { number, known, clock_us, found } => {
                self.learn_over(clock_us, cx);
                if let Ok(found) = &found {
                    let shard = from.partition();
                    self.pasts.on_found(shard, number, found, &self.leaders, cx);
                }
                self.on_snapshot(from, (number, known, clock_us), found, cx);
            }
            Reply::Unread { number, reason } => {
                self.on_unread(from.partition(), number, reason, cx)
            }
            Reply::Follow { .. } => {} // Handled above.
            // These are for clients of keyspaces with procedures.
            Reply::Ran { .. }
            | Reply::Kept { .. }
            | Reply::Set { .. }
            | Reply::Registered { .. }
            | Reply::Installed { .. } => {}
        }
        if is_new {
            self.follow(from, cx);
        }
    }

    fn rollback(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        // A backup coordinator may commit a transaction that is being prepared, so this one
        // continues.
        open.abandoned = open.is_preparing();
        if !open.abandoned {
            self.abort(txn, Outcome::Aborted { conflicts: Vec::new() }, cx);
        }
    }

    /// Repeats the requests that were not answered.
    fn repeat(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        open.repeated += 1;
        open.is_disturbed = true;
        let repeated = open.repeated;
        if open.abandoned && repeated > ABANDONED_AFTER {
            self.finish(txn, Outcome::Unknown, cx);
            return;
        }
        let version = open.version;
        if let Some(snapshot) = &open.snapshot {
            let asked: Vec<(u64, u16)> =
                snapshot.asked.iter().map(|(number, (shard, _))| (*number, *shard)).collect();
            for (number, shard) in &asked {
                self.leaders.rotate(*shard, repeated);
                self.send_snapshot(txn, *number, cx);
            }
            if asked.is_empty() {
                return;
            }
        }
        let open = &self.txns[&txn];
        let mut again: Vec<(u16, Request)> = Vec::new();
        for ((shard, _), asked) in &open.asked {
            again.push((*shard, Request::Shot(asked.shot.clone())));
        }
        if let (Phase::Moving(to, moved), Some(version)) = (&open.phase, version) {
            let missing = open.shards.keys().filter(|shard| !moved.contains(shard));
            again.extend(missing.map(|shard| (*shard, Request::Move { txn: version, to: *to })));
        }
        if again.is_empty() && open.snapshot.is_none() {
            return;
        }
        for (shard, request) in again {
            self.leaders.rotate(shard, repeated);
            cx.send(self.leaders.of(shard, repeated), Message::Request(request));
        }
        self.repeat_later(txn, cx);
    }

    /// A former leader names the replica that leads now.
    pub(super) fn on_follow(&mut self, from: NodeId, leader: NodeId, cx: &mut Cx<'_, C>) {
        if self.leaders.is_peer(leader, from) && self.leaders.on_answer(leader) {
            self.follow(leader, cx);
        }
    }

    /// Follows a shard to its new leader. Sends it at once everything that the former leader has
    /// not answered.
    pub(super) fn follow(&mut self, leader: NodeId, cx: &mut Cx<'_, C>) {
        let shard = leader.partition();
        let mut reads: Vec<(TxnId, u64)> = Vec::new();
        for (txn, open) in &mut self.txns {
            open.is_disturbed |= open.shards.contains_key(&shard);
            let asked = open.asked.range((shard, 0)..=(shard, u16::MAX));
            for (_, asked) in asked {
                cx.send(leader, Message::Request(Request::Shot(asked.shot.clone())));
            }
            if let (Phase::Moving(to, moved), Some(version)) = (&open.phase, open.version)
                && open.shards.contains_key(&shard)
                && !moved.contains(&shard)
            {
                cx.send(leader, Message::Request(Request::Move { txn: version, to: *to }));
            }
            let asked = open.snapshot.iter().flat_map(|snapshot| &snapshot.asked);
            reads.extend(
                asked.filter(|(_, (of, _))| *of == shard).map(|(number, _)| (*txn, *number)),
            );
        }
        for (txn, number) in reads {
            self.send_snapshot(txn, number, cx);
        }
        self.endings.tell_new_leader(leader, cx);
    }

    /// Reports to shards which transactions are still open.
    fn beat(&mut self, cx: &mut Cx<'_, C>) {
        let every = self.settings.recovery_after() / 3;
        let mut by_shard: BTreeMap<u16, Vec<Version>> = BTreeMap::new();
        for open in self.txns.values().filter(|open| cx.now().since(open.began) >= every) {
            for shard in open.shards.keys() {
                by_shard.entry(*shard).or_default().extend(open.version);
            }
        }
        for (shard, txns) in by_shard {
            let request = Request::Alive(txns);
            cx.send(self.leaders.of(shard, 0), Message::Request(request));
        }
        self.beats = !self.txns.is_empty();
        if self.beats {
            cx.set_timer(Timer::Beat, every);
        }
    }
}

impl<C: Control> Client for Coordinator<C> {
    const TELL: Timer = Timer::Tell;
}

impl<C: Control> Actor for Coordinator<C> {
    type Message = Message;
    type Timer = Timer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_, C>) {
        match message {
            Message::Reply(reply) if sound::to_client(from, &reply, &self.leaders.group) => {
                self.on_reply(from, reply, cx);
            }
            _ => {
                cx.reject(|| format!("{from} has sent a message that no replica sends to a client"))
            }
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, C>) {
        match timer {
            Timer::Repeat(txn) => {
                if !self.inquiries.repeat(txn, &mut self.leaders, cx)
                    && !self.pasts.repeat(txn, &mut self.leaders, cx)
                {
                    self.repeat(txn, cx);
                }
            }
            Timer::Tell => self.endings.tell_again(&mut self.leaders, cx),
            Timer::Beat => self.beat(cx),
        }
    }

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("open", self.txns.len() as u64);
        each("ending", self.endings.len() as u64);
        each("committed", self.committed);
        each("moved", self.moved);
        each("fallen_back", self.fallen_back);
    }
}

impl<C: Control> Coordinate<Transactions> for Coordinator<C> {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_, C>) {
        match operation {
            Operation::Begin { only_reads, age } => {
                let has_no_parts = only_reads && C::SNAPSHOTS != Snapshots::Never;
                let snapshot = has_no_parts.then(Snapshot::default);
                self.txns.insert(txn, Txn::new(snapshot, age, cx.now()));
            }
            Operation::Get { key, for_update } => self.get(txn, key, for_update),
            // Writes are sent when the transaction commits.
            Operation::Put(_) => {}
            Operation::Commit { writes, modifies, .. } => {
                self.prepare(txn, Changes { writes, modifies }, cx);
            }
            Operation::OneShot { reads, writes, modifies } => {
                self.one_shot(txn, reads, Changes { writes, modifies }, cx);
            }
            Operation::Rollback if self.inquiries.forget(txn, cx) => {}
            Operation::Rollback if self.pasts.forget(txn, cx) => {}
            Operation::Rollback => self.rollback(txn, cx),
            Operation::Inquire { version } => {
                self.inquiries.begin(txn, version, &self.leaders, cx);
            }
            Operation::GetAt { key, at } => {
                self.snapshots += 1;
                let question = (self.snapshots, key, at);
                self.pasts.begin(txn, question, &self.leaders, cx);
            }
        }
    }

    fn on_batch_end(&mut self, cx: &mut Cx<'_, C>) {
        for txn in core::mem::take(&mut self.batch) {
            self.send_reads(txn, cx);
        }
    }
}

impl<C: Control> Coordinator<C> {
    fn get(&mut self, txn: TxnId, key: Key, for_update: bool) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        if !matches!(open.phase, Phase::Running) {
            return;
        }
        if for_update && C::ROUNDS == Rounds::ExecuteFirst && open.locked.len() < LOCKED_AT_MOST {
            open.locked.push(key.clone());
        }
        open.wanted.push((key, for_update));
        if self.batch.last() != Some(&txn) {
            self.batch.push(txn);
        }
    }
}
