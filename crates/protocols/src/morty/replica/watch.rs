//! Which undecided transactions need looking after.

use std::collections::{BTreeSet, VecDeque};

use core::time::Duration;
use serried_actor::Timestamp;
use serried_model::Version;

use super::{Cx, Replica, Timer};

/// No more transactions than these are recovered at the same time; the others wait.
pub(super) const RECOVERIES_AT_MOST: usize = 1024;

/// The open transactions, roughly in the order in which they are due to be looked at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    queue: VecDeque<(Timestamp, Version)>,
    /// Those that have been looked at, and are still open.
    lingering: BTreeSet<Version>,
}

impl Watch {
    /// Has `version` looked at from `due` on.
    pub(super) fn add(&mut self, version: Version, due: Timestamp) {
        self.queue.push_back((due, version));
    }

    /// A transaction is decided.
    pub(super) fn remove(&mut self, version: Version) {
        if !self.lingering.is_empty() {
            self.lingering.remove(&version);
        }
    }

    /// The transactions below `version` that are `wanted`. Without that filter, some would be decided already.
    pub(super) fn below(
        &self,
        version: Version,
        wanted: impl Fn(&Version) -> bool,
    ) -> BTreeSet<Version> {
        let queued = self.queue.iter().map(|(_, queued)| *queued);
        let queued = queued.filter(|queued| *queued < version);
        queued.chain(self.lingering.range(..version).copied()).filter(wanted).collect()
    }
}

impl Replica {
    pub(super) fn start_watch(&mut self, cx: &mut Cx) {
        let due = cx.now() + self.setup.settings.recovery_after();
        // Nobody else may know of the transactions that votes from before the restart wait for.
        for writer in self.waiting.keys() {
            self.watch.add(*writer, due);
        }
        for (at, version) in &mut self.watch.queue {
            *at = due;
            if let Some(undecided) = self.transactions.get_mut(version) {
                undecided.heard = cx.now();
            }
        }
        cx.set_timer(Timer::Watch, self.watch_every());
    }

    fn watch_every(&self) -> Duration {
        (self.setup.settings.recovery_after() / 4).max(Duration::from_millis(10))
    }

    /// How long this replica waits before it recovers a transaction of which it hears nothing. Replicas take turns.
    fn patience_for(&self, version: Version) -> Duration {
        let after = self.setup.settings.recovery_after();
        let turn = version.timestamp_us.wrapping_add(self.setup.id.member() as u64)
            % self.setup.group.size() as u64;
        after + after / 4 * turn as u32
    }

    /// The execution of `waiter` has read from `writer`, which is undecided.
    pub(super) fn wait_for(&mut self, writer: Version, waiter: Version, cx: &mut Cx) {
        let due = cx.now() + self.patience_for(writer);
        let waiting = self.waiting.entry(writer).or_default();
        if waiting.is_empty() {
            self.watch.add(writer, due);
        }
        if !waiting.contains(&waiter) {
            waiting.push(waiter);
        }
    }

    /// Recovers the transactions that should have been decided by now, or that others wait for. The replicas do so one after
    /// the other, so that they do not disturb each other.
    pub(super) fn look_after(&mut self, cx: &mut Cx) {
        let now = cx.now();
        while let Some((due, version)) = self.watch.queue.front().copied()
            && due <= now
        {
            self.watch.queue.pop_front();
            let waited_for = self.waiting.contains_key(&version);
            let unsettled = waited_for && self.settlement(version).is_none();
            let due = match self.transactions.get_mut(&version) {
                Some(undecided) => {
                    self.watch.lingering.insert(version);
                    if !(waited_for || undecided.may_commit() || undecided.is_superseded()) {
                        undecided.watched = false; // It is watched again when it is heard of again.
                        continue;
                    }
                    undecided.heard + self.patience_for(version)
                }
                None if unsettled => due,
                None => {
                    // It was settled without a decision here, so those who wait for it continue.
                    for waiter in self.waiting.remove(&version).unwrap_or_default() {
                        self.confirm(waiter, cx);
                    }
                    continue;
                }
            };
            if self.recoveries.contains_key(&version) {
                continue;
            }
            // A replica that replaces a lost disk does not know which views its predecessor has used.
            let may_recover =
                self.rejoin.takes_part() && self.recoveries.len() < RECOVERIES_AT_MOST;
            if due <= now && may_recover {
                self.recover(version, None, cx);
            } else {
                self.watch.add(version, due.max(now + self.watch_every()));
            }
        }
        cx.set_timer(Timer::Watch, self.watch_every());
    }
}
