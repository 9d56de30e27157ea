//! Read-only transactions without parts: one round, and no commit messages (003 §5.5, §6.1).

use std::collections::BTreeMap;

use serried_actor::Timestamp;
use serried_model::transactions::{Outcome, Output};
use serried_model::{Key, NodeId, ReadValue, TxnId, Version};

use super::super::control::{Control, Snapshots};
use super::super::message::{AsOf, Found, Message, Refusal, Request, Unseen};
use super::prepare::Changes;
use super::{Coordinator, Cx};

/// The reads of a read-only transaction. They return what its client knew to be committed when the
/// transaction began, or what was written before its timestamp.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// Its timestamp, if it has one, and when it got it.
    at: Option<(Version, Timestamp)>,
    /// Whether it is later than this client's clock allows for.
    is_by_others: bool,
    /// Whether this client knew no leader's time when it got it.
    is_by_own_clock: bool,
    /// By shard, the slot below which the client knew what was committed.
    known: BTreeMap<u16, u64>,
    /// The requests under way: a shard and the keys.
    pub(super) asked: BTreeMap<u64, (u16, Vec<Key>)>,
    /// Values that are held back until all answers to the same request of the program have arrived.
    held: Vec<ReadValue>,
    /// Whether its program has received a value.
    told: bool,
    /// How often it has started.
    begun: u32,
}

impl<C: Control> Coordinator<C> {
    /// Requests keys.
    pub(super) fn read_snapshot(&mut self, txn: TxnId, keys: Vec<Key>, cx: &mut Cx<'_, C>) {
        let mut by_shard: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
        for key in keys {
            by_shard.entry(self.leaders.group.partition_of(&key)).or_default().push(key);
        }
        let (by_clock_us, is_by_own_clock) =
            (self.begins_by_us(cx), self.over.us(cx.now()).is_none());
        let at = match C::SNAPSHOTS {
            Snapshots::AtTimestamps => Some(self.assign_version(txn, by_shard.keys().copied(), cx)),
            Snapshots::OfKnown | Snapshots::Never => None,
        };
        let Some(open) = self.txns.get_mut(&txn) else { return };
        let Some(snapshot) = &mut open.snapshot else { return };
        if snapshot.at.is_none() {
            snapshot.is_by_own_clock = is_by_own_clock;
            snapshot.is_by_others = at.is_some_and(|at| at.timestamp_us > by_clock_us);
            snapshot.at = at.map(|at| (at, cx.now()));
        }
        if at.is_none() && snapshot.begun == 0 {
            snapshot.begun = 1;
            snapshot.known.clone_from(&self.known);
        }
        let mut numbers = Vec::with_capacity(by_shard.len());
        for (shard, keys) in by_shard {
            self.snapshots += 1;
            self.snapshot_requests.insert(self.snapshots, txn);
            snapshot.asked.insert(self.snapshots, (shard, keys));
            numbers.push(self.snapshots);
        }
        for number in numbers {
            self.send_snapshot(txn, number, cx);
        }
        self.repeat_later(txn, cx);
    }

    pub(super) fn send_snapshot(&self, txn: TxnId, number: u64, cx: &mut Cx<'_, C>) {
        let Some(snapshot) = self.txns.get(&txn).and_then(|open| open.snapshot.as_ref()) else {
            return;
        };
        let Some((shard, keys)) = snapshot.asked.get(&number) else { return };
        let known = || snapshot.known.get(shard).copied().unwrap_or(0);
        let as_of = snapshot.at.map_or_else(|| AsOf::Slot(known()), |(at, _)| AsOf::Time(at));
        let request = Request::Snapshot { number, as_of, keys: keys.clone() };
        cx.send(self.leaders.of(*shard, 0), Message::Request(request));
    }

    pub(super) fn on_snapshot(
        &mut self,
        from: NodeId,
        (number, known, clock_us): (u64, u64, u64),
        found: Result<Vec<Found>, Unseen>,
        cx: &mut Cx<'_, C>,
    ) {
        self.learn_known(from.partition(), known);
        let Some(&txn) = self.snapshot_requests.get(&number) else { return };
        let Some(open) = self.txns.get_mut(&txn) else { return };
        let one_shot = open.one_shot;
        let Some(snapshot) = &mut open.snapshot else { return };
        let Some((shard, keys)) = snapshot.asked.get(&number) else { return };
        let fits = found.as_ref().map_or(true, |found| found.len() == keys.len());
        if *shard != from.partition() || !fits {
            return; // No correct shard answers the request so.
        }
        self.snapshot_requests.remove(&number);
        let Some((_, keys)) = snapshot.asked.remove(&number) else { return };
        if let Some((at, since)) = snapshot.at.filter(|_| C::GROUPS_DECIDE) {
            let uncertain_us = self.settings.uncertainty_us;
            let now_us = clock_us + if snapshot.is_by_own_clock { 2 * uncertain_us } else { 0 };
            if now_us > at.timestamp_us.saturating_add(cx.now().since(since).as_micros() as u64) {
                // By the leader's clock that time was over when this transaction began. What had committed by then may be
                // missing.
                return self.begin_snapshot_later(txn, keys, cx);
            }
        }
        match found {
            Err(Unseen { key, .. }) if snapshot.told => {
                let conflicts = vec![key];
                self.finish(txn, Outcome::Aborted { conflicts }, cx);
            }
            Err(Unseen { anew, .. }) => self.begin_snapshot_anew(txn, keys, anew, cx),
            Ok(found) => {
                let value = |(key, found): (Key, Found)| ReadValue {
                    key,
                    version: found.version,
                    value: found.value,
                    stamp: 0,
                };
                snapshot.held.extend(keys.into_iter().zip(found).map(value));
                open.repeated = 0;
                if !snapshot.asked.is_empty() {
                    return;
                }
                cx.cancel_timer(super::Timer::Repeat(txn));
                snapshot.told = true;
                for value in core::mem::take(&mut snapshot.held) {
                    cx.output((txn, Output::Value(value)));
                }
                if one_shot {
                    self.finish(txn, Outcome::Committed, cx);
                }
            }
        }
    }

    /// A shard does not answer a request at its time.
    pub(super) fn on_unread(
        &mut self,
        shard: u16,
        number: u64,
        reason: Refusal,
        cx: &mut Cx<'_, C>,
    ) {
        self.pasts.on_unread(shard, number, &reason, &self.leaders, cx);
        let Some(&txn) = self.snapshot_requests.get(&number) else { return };
        let Some(open) = self.txns.get(&txn) else { return };
        let asked = open.snapshot.as_ref().and_then(|snapshot| snapshot.asked.get(&number));
        if let Some(version) = open.version
            && asked.is_some_and(|(asked, _)| *asked == shard)
        {
            self.give_up(shard, (txn, version), reason, cx);
        }
    }

    /// Continues after a key has changed, if the program has received no value yet. Restarts the
    /// transaction with what the client knows now, if `anew` says that this may help. Otherwise the
    /// transaction reads like any other.
    fn begin_snapshot_anew(
        &mut self,
        txn: TxnId,
        refused: Vec<Key>,
        anew: bool,
        cx: &mut Cx<'_, C>,
    ) {
        let keys = self.take_back(txn, refused);
        let open = self.txns.get_mut(&txn).expect("it is open");
        let snapshot = open.snapshot.as_mut().expect("it reads a snapshot");
        if anew && snapshot.begun == 1 {
            snapshot.begun = 2;
            snapshot.known.clone_from(&self.known);
            return self.read_snapshot(txn, keys, cx);
        }
        open.snapshot = None;
        self.fallen_back += 1;
        match open.one_shot {
            true => self.one_shot(txn, keys, Changes::default(), cx),
            false => {
                open.wanted = keys.into_iter().map(|key| (key, false)).collect();
                self.send_reads(txn, cx);
            }
        }
    }

    /// Begins a transaction that has a timestamp again with a later one, if its program has received no value yet.
    fn begin_snapshot_later(&mut self, txn: TxnId, keys: Vec<Key>, cx: &mut Cx<'_, C>) {
        let open = self.txns.get_mut(&txn).expect("it is open");
        let snapshot = open.snapshot.as_mut().expect("it reads a snapshot");
        if snapshot.told {
            self.finish(txn, Outcome::Aborted { conflicts: keys }, cx);
            return;
        }
        snapshot.at = None;
        if let Some(version) = open.version.take() {
            self.by_version.remove(&version);
        }
        let keys = self.take_back(txn, keys);
        self.read_snapshot(txn, keys, cx);
    }

    /// Forgets all answers and requests of a transaction. Returns the keys that it reads, with `keys`.
    fn take_back(&mut self, txn: TxnId, mut keys: Vec<Key>) -> Vec<Key> {
        let open = self.txns.get_mut(&txn).expect("it is open");
        let snapshot = open.snapshot.as_mut().expect("it reads a snapshot");
        keys.extend(snapshot.held.drain(..).map(|value| value.key));
        for (number, (_, others)) in core::mem::take(&mut snapshot.asked) {
            self.snapshot_requests.remove(&number);
            keys.extend(others);
        }
        keys
    }

    /// Whether a transaction's timestamp is later than this client's clock allows for.
    pub(super) fn is_by_others(&self, txn: TxnId) -> bool {
        let snapshot = self.txns.get(&txn).and_then(|open| open.snapshot.as_ref());
        snapshot.is_some_and(|snapshot| snapshot.is_by_others)
    }

    /// Drops the requests of a transaction that has ended.
    pub(super) fn drop_snapshot(&mut self, snapshot: &Snapshot) {
        for number in snapshot.asked.keys() {
            self.snapshot_requests.remove(number);
        }
    }
}
