//! Shots, and how a transaction proceeds from its last shots to its end (003 Algorithm 5.1).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::transactions::{Outcome, Output};
use serried_model::{Key, Modify, NodeId, ReadValue, TxnId, Version, Write};

use super::super::control::{Control, Rounds};
use super::super::message::{Decision, Executed, Message, Part, Refusal, Request, Shot};
use super::super::verdict::{Verdict, verdict};
use super::over::Over;
use super::txn::{Asked, Phase};
use super::{Coordinator, Cx};

/// The reads and writes of one shot.
#[derive(Default)]
struct Load {
    reads: Vec<Key>,
    /// How many of the reads are for update. They come first.
    for_update: u32,
    changes: Changes,
}

/// What a transaction does to keys.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The writes, one per key.
    pub(super) writes: Vec<Write>,
    /// The modifications of other keys.
    pub(super) modifies: Vec<Modify>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.modifies.is_empty()
    }

    /// The keys, each once.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        let modified = self.modifies.iter().map(|modify| &modify.key);
        self.writes.iter().map(|write| &write.key).chain(modified)
    }
}

impl<C: Control> Coordinator<C> {
    fn loads(&self, reads: Vec<Key>, changes: Changes) -> BTreeMap<u16, Load> {
        let group = &self.leaders.group;
        let mut loads: BTreeMap<u16, Load> = BTreeMap::new();
        for key in reads {
            loads.entry(group.partition_of(&key)).or_default().reads.push(key);
        }
        for write in changes.writes {
            let load = loads.entry(group.partition_of(&write.key)).or_default();
            load.changes.writes.push(write);
        }
        for modify in changes.modifies {
            let load = loads.entry(group.partition_of(&modify.key)).or_default();
            load.changes.modifies.push(modify);
        }
        loads
    }

    /// Sends the reads that the program has requested.
    pub(super) fn send_reads(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        let mut wanted = core::mem::take(&mut open.wanted);
        if wanted.is_empty() {
            return;
        }
        if open.snapshot.is_some() {
            let keys = wanted.into_iter().map(|(key, _)| key).collect();
            return self.read_snapshot(txn, keys, cx);
        }
        wanted.sort_by_key(|(_, for_update)| !for_update);
        let mut loads: BTreeMap<u16, Load> = BTreeMap::new();
        for (key, for_update) in wanted {
            let load = loads.entry(self.leaders.group.partition_of(&key)).or_default();
            load.for_update += u32::from(for_update);
            load.reads.push(key);
        }
        self.send_shots(txn, loads, None, cx);
    }

    fn send_shots(
        &mut self,
        txn: TxnId,
        loads: BTreeMap<u16, Load>,
        participants: Option<&Arc<[u16]>>,
        cx: &mut Cx<'_, C>,
    ) {
        let version = self.assign_version(txn, loads.keys().copied(), cx);
        let sent_us = cx.clock().midpoint_us();
        for (shard, Load { reads, for_update, changes }) in loads {
            let Changes { writes, modifies } = changes;
            let open = self.txns.get_mut(&txn).expect("it is open");
            let number = open.next_shot(shard);
            let participants = participants.cloned();
            let (txn, age) = (version, open.age.filter(|age| *age < version));
            let shot = Shot { txn, age, number, reads, for_update, writes, modifies, participants };
            open.asked.insert((shard, number), Asked { shot: shot.clone(), sent_us });
            cx.send(self.leaders.of(shard, 0), Message::Request(Request::Shot(shot)));
        }
        self.repeat_later(txn, cx);
    }

    /// Begins to commit a transaction whose program has ended with these changes.
    pub(super) fn prepare(&mut self, txn: TxnId, changes: Changes, cx: &mut Cx<'_, C>) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        if !matches!(open.phase, Phase::Running) {
            return;
        }
        let has_locked = open.has_locked(&changes);
        // The program no longer needs unanswered reads.
        open.wanted.clear();
        open.asked.clear();
        if open.snapshot.is_some() {
            assert!(changes.is_empty(), "a transaction that only reads has written");
            self.finish(txn, Outcome::Committed, cx);
            return;
        }
        if changes.is_empty() && open.shards.is_empty() {
            self.finish(txn, Outcome::Committed, cx);
            return;
        }
        if C::ROUNDS == Rounds::ExecuteFirst && !changes.is_empty() && !has_locked {
            open.phase = Phase::Executing(Changes::default());
            let loads = self.loads(Vec::new(), changes);
            return self.send_shots(txn, loads, None, cx);
        }
        self.send_last(txn, Vec::new(), changes, cx);
    }

    /// Executes a transaction whose reads and changes are all known at its beginning.
    pub(super) fn one_shot(
        &mut self,
        txn: TxnId,
        reads: Vec<Key>,
        changes: Changes,
        cx: &mut Cx<'_, C>,
    ) {
        let Some(open) = self.txns.get_mut(&txn) else { return };
        if !matches!(open.phase, Phase::Running) {
            return;
        }
        open.one_shot = true;
        if reads.is_empty() && changes.is_empty() {
            self.finish(txn, Outcome::Committed, cx);
            return;
        }
        if open.snapshot.is_some() {
            return match changes.is_empty() {
                true => self.read_snapshot(txn, reads, cx),
                false => panic!("a transaction that only reads has written"),
            };
        }
        match C::ROUNDS {
            Rounds::ReadsFirst if !reads.is_empty() => {
                open.phase = Phase::Executing(changes);
                let loads = self.loads(reads, Changes::default());
                self.send_shots(txn, loads, None, cx);
            }
            Rounds::ExecuteFirst => {
                open.phase = Phase::Executing(Changes::default());
                let loads = self.loads(reads, changes);
                self.send_shots(txn, loads, None, cx);
            }
            Rounds::Combined | Rounds::ReadsFirst => self.send_last(txn, reads, changes, cx),
        }
    }

    /// Sends the last shot to each shard.
    fn send_last(&mut self, txn: TxnId, reads: Vec<Key>, changes: Changes, cx: &mut Cx<'_, C>) {
        let mut loads = self.loads(reads, changes);
        let open = self.txns.get_mut(&txn).expect("it is open");
        open.phase = Phase::Preparing;
        for shard in open.shards.keys() {
            loads.entry(*shard).or_default();
        }
        // The backup coordinator is a shard that writes to its log anyway.
        let mut participants: Vec<u16> = loads.keys().copied().collect();
        participants.sort_by_key(|shard| loads[shard].changes.is_empty());
        let participants: Arc<[u16]> = participants.into();
        self.send_shots(txn, loads, Some(&participants), cx);
    }

    pub(super) fn on_executed(&mut self, from: NodeId, executed: Executed, cx: &mut Cx<'_, C>) {
        let shard = from.partition();
        let Executed { txn: version, number, found, validity, known, clock_us } = executed;
        self.learn_known(shard, known);
        self.learn_over(clock_us, cx);
        let Some(txn) = self.by_version.get(&version) else { return };
        let open = self.txns.get_mut(&txn).expect("it is open");
        let Some(Asked { shot, .. }) = open.asked.get(&(shard, number)) else { return };
        if found.len() != shot.reads.len() || validity.is_some() != shot.participants.is_some() {
            return; // No correct shard answers this shot so.
        }
        let Some(Asked { shot, sent_us }) = open.asked.remove(&(shard, number)) else { return };
        open.repeated = 0;
        let bound_us = self.settings.clock_bound_ms as i64 * 1000;
        let delay_us = (clock_us as i64 - sent_us as i64).clamp(-bound_us, bound_us);
        self.delays_us.insert(shard, delay_us);
        for (key, found) in shot.reads.into_iter().zip(found) {
            let (version, value) = (found.version, found.value);
            cx.output((txn, Output::Value(ReadValue { key, version, value, stamp: 0 })));
        }
        if let Some(validity) = validity {
            open.shards.entry(shard).or_default().validity = Some(validity);
        }
        if !open.asked.is_empty() {
            return;
        }
        match &mut open.phase {
            Phase::Running => cx.cancel_timer(super::Timer::Repeat(txn)),
            Phase::Executing(changes) => {
                let changes = core::mem::take(changes);
                self.send_last(txn, Vec::new(), changes, cx);
            }
            Phase::Preparing => self.check(txn, version, cx),
            Phase::Moving(..) => {}
        }
    }

    /// The safeguard (003 Algorithm 5.1, "SafeguardCheck").
    fn check(&mut self, txn: TxnId, version: Version, cx: &mut Cx<'_, C>) {
        let open = self.txns.get_mut(&txn).expect("it is open");
        let parts: Option<Vec<_>> = open.shards.values().map(|part| part.validity).collect();
        let Some(parts) = parts else { panic!("transaction {version} lacks a part") };
        match verdict(version, parts.iter().copied()) {
            Verdict::Commit(at) => self.commit(txn, at, cx),
            Verdict::Move(to) => {
                // A part that holds at that moment can always be moved there.
                let there = open.shards.keys().zip(&parts).filter(|(_, part)| part.holds_at(to));
                let moved: BTreeSet<u16> = there.map(|(shard, _)| *shard).collect();
                let missing: Vec<u16> =
                    open.shards.keys().copied().filter(|shard| !moved.contains(shard)).collect();
                open.phase = Phase::Moving(to, moved);
                for shard in missing {
                    let request = Request::Move { txn: version, to };
                    cx.send(self.leaders.of(shard, 0), Message::Request(request));
                }
                self.repeat_later(txn, cx);
            }
        }
    }

    pub(super) fn on_moved(&mut self, from: NodeId, version: Version, cx: &mut Cx<'_, C>) {
        let Some(txn) = self.by_version.get(&version) else { return };
        let open = self.txns.get_mut(&txn).expect("it is open");
        let Phase::Moving(to, moved) = &mut open.phase else { return };
        if open.shards.contains_key(&from.partition()) {
            moved.insert(from.partition());
        }
        if moved.len() == open.shards.len() {
            let to = *to;
            self.commit(txn, to, cx);
        }
    }

    pub(super) fn on_refused(
        &mut self,
        from: NodeId,
        version: Version,
        reason: Refusal,
        cx: &mut Cx<'_, C>,
    ) {
        let shard = from.partition();
        let shards = self.leaders.group.partitions();
        self.inquiries.on_refused(shard, shards, version, &reason, cx);
        let Some(txn) = self.by_version.get(&version) else { return };
        if !self.txns[&txn].concerns(shard) {
            return; // It has answered an inquiry, and has no part in the transaction.
        }
        self.give_up(shard, (txn, version), reason, cx);
    }

    /// A shard has refused something that a transaction needs, so it ends.
    pub(super) fn give_up(
        &mut self,
        shard: u16,
        (txn, version): (TxnId, Version),
        reason: Refusal,
        cx: &mut Cx<'_, C>,
    ) {
        let limit_ms = self.settings.truncation_lag_ms;
        let has_run = cx.now().since(self.txns[&txn].began);
        let outcome = match reason {
            Refusal::Conflict { keys, after_us } => {
                self.versions.take_from(shard, after_us + 1);
                Outcome::Aborted { conflicts: keys }
            }
            Refusal::TooLong { limit_ms } => Outcome::TooLong { limit_ms },
            Refusal::TooLarge { key, bytes } => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                Outcome::TooLarge { key, bytes, limit: Part::MOST_BYTES }
            }
            Refusal::Late { .. } if has_run >= Duration::from_millis(limit_ms) => {
                Outcome::TooLong { limit_ms }
            }
            Refusal::Late { from_us } => {
                self.versions.take_from(shard, from_us);
                Outcome::Aborted { conflicts: Vec::new() }
            }
            Refusal::Forgotten { from_us } => {
                self.versions.take_from(shard, from_us);
                if self.txns[&txn].is_preparing() {
                    // Its backup coordinator may have committed it.
                    self.finish(txn, Outcome::Unknown, cx);
                    return;
                }
                Outcome::Aborted { conflicts: Vec::new() }
            }
            Refusal::ClockSkew { .. }
                if version.timestamp_us > self.begins_by_us(cx) || self.is_by_others(txn) =>
            {
                // The time is ahead because of delays, stamps or a leader's clock, not because of this client's clock.
                self.delays_us.clear();
                self.over = Over::default();
                Outcome::Aborted { conflicts: Vec::new() }
            }
            Refusal::ClockSkew { ahead_us } => Outcome::ClockSkew { ahead_us },
            // Only calls of procedures are refused so.
            Refusal::OtherSet { .. } => Outcome::Aborted { conflicts: Vec::new() },
        };
        self.abort(txn, outcome, cx);
    }

    /// A backup coordinator has ended a transaction.
    pub(super) fn on_decided(
        &mut self,
        from: NodeId,
        version: Version,
        decision: Decision,
        cx: &mut Cx<'_, C>,
    ) {
        let (shard, shards) = (from.partition(), self.leaders.group.partitions());
        self.inquiries.on_decided((shard, shards), version, decision, cx);
        self.endings.on_ended(from, &[version]);
        let Some(txn) = self.by_version.get(&version) else { return };
        let open = &self.txns[&txn];
        if !open.concerns(shard) {
            return; // As above.
        }
        match decision {
            // This transaction has sent no last shots, so no shard can have a part of it.
            Decision::Commit(_) if !open.is_preparing() => {}
            Decision::Commit(at) => {
                let unread = open.asked.values().any(|asked| !asked.shot.reads.is_empty());
                if !unread {
                    return self.commit(txn, at, cx);
                }
                // The results of its reads are unknown.
                self.took_effect(txn, version, at, cx);
                if let Some(open) = self.finish(txn, Outcome::Unknown, cx) {
                    self.endings.tell(
                        version,
                        decision,
                        open.shards.into_keys().collect(),
                        &self.leaders,
                        cx,
                    );
                }
            }
            Decision::Abort => {
                self.abort(txn, Outcome::Aborted { conflicts: Vec::new() }, cx);
            }
        }
    }
}
