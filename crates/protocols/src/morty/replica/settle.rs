//! Moving what was settled into the store, bit by bit, and then out of memory and the log.
//!
//! While another replica's store is copied this rests: what is there is about to be replaced.

use core::ops::RangeInclusive;
use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::Version;

use super::{Cx, Replica, Timer};
use crate::morty::message::Record;

/// What was settled is put into the store after so many truncations: a key that is written often is put
/// there once.
const SETTLE_AFTER: u64 = 5;
/// How many writes are put into the store in a millisecond: few enough to be in nobody's way after many
/// keys were loaded, but more where so much is written that it would fall behind.
const SETTLED_PER_MS: RangeInclusive<usize> = 64..=1024;
/// Remembered writes for each of these: at that rate all of them are settled in some seconds.
const REMEMBERED_PER_SETTLED: usize = 8192;
/// It rests so long from one time to the next.
const REST: Duration = Duration::from_millis(1);
/// Where the rest has lasted longer, for want of CPU, more is done at once: as much as in so long.
const LATE_AT_MOST: Duration = Duration::from_millis(200);

/// How far that has come.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// What was settled below is being put into the store.
    upto: Option<Version>,
    /// When the rest ends.
    rests_until: Option<Timestamp>,
    /// The log says that what lies below is in the store, and that deletes there are forgotten.
    forgotten: Version,
}

impl Replica {
    /// Puts some of what lies below the watermark into the store, if it is time; then gives up what is
    /// behind the horizon, in the log too. A store that is behind is left in peace for as long as there is
    /// memory for what it is to get: it would hold up the log.
    pub(super) fn settle(&mut self, cx: &mut Cx) {
        if self.is_copying() {
            return; // It goes on when the watermark is raised.
        }
        let (stored, watermark) = (self.keys.stored(), self.progress.watermark());
        let waiting_us = watermark.timestamp_us.saturating_sub(stored.timestamp_us);
        let enough = waiting_us >= SETTLE_AFTER * self.truncation.every_us;
        if self.settling.upto.is_none() && (enough || stored < self.progress.horizon()) {
            self.settling.upto = Some(watermark);
        }
        let affordable = self.settled.writes() < self.settings.resident_keys;
        if self.settling.upto.is_some() && affordable && cx.store().is_behind() {
            self.settling.rests_until = None;
            cx.set_timer(Timer::Settle, REST);
            return;
        }
        let late = self.settling.rests_until.take().map(|until| cx.now().since(until));
        let late_ms = late.unwrap_or_default().min(LATE_AT_MOST).as_millis() as usize;
        let at_once = self.settled_per_ms() * (1 + late_ms);
        match self.settle_some(at_once, cx) {
            0 if self.settling.upto.is_none() => self.forget(at_once, cx),
            writes => self.rest(writes.saturating_sub(at_once), cx),
        }
    }

    fn settled_per_ms(&self) -> usize {
        let wanted = self.settled.writes() / REMEMBERED_PER_SETTLED;
        wanted.clamp(*SETTLED_PER_MS.start(), *SETTLED_PER_MS.end())
    }

    /// Goes on later: a single transaction may have written more than was to be put at once.
    fn rest(&mut self, too_many: usize, cx: &mut Cx) {
        let rest = REST * (1 + too_many / self.settled_per_ms()) as u32;
        self.settling.rests_until = Some(cx.now() + rest);
        cx.set_timer(Timer::Settle, rest);
    }

    /// Puts all that lies below the watermark into the store.
    pub(super) fn settle_everything(&mut self, cx: &mut Cx) {
        self.settling.upto = Some(self.progress.watermark());
        while self.settling.upto.is_some() {
            self.settle_some(*SETTLED_PER_MS.end(), cx);
        }
    }

    /// Puts about `at_most` writes of what is to be there into the store; how many. Each key is put there
    /// as it is at the present watermark, which may be later than what is to be there.
    fn settle_some(&mut self, at_most: usize, cx: &mut Cx) -> usize {
        let Some(upto) = self.settling.upto else { return 0 };
        let watermark = self.progress.watermark();
        let readable_from = self.progress.readable_from();
        let from = self.keys.stored();
        let (keys, next) = self.settled.written(from, upto, false, at_most);
        for key in &keys {
            self.keys.settle(key, watermark, readable_from, cx.store());
        }
        self.keys.set_stored(next);
        if next >= upto {
            self.settling.upto = None;
        }
        keys.len()
    }

    /// Forgets how transactions ended that are behind the horizon and can't be read any more, and deletes
    /// from there. The log says so first, as it may hold what was deleted for longer than the delete.
    fn forget(&mut self, at_most: usize, cx: &mut Cx) {
        let history = self.settings.history_ms > 0;
        let readable_from = self.progress.readable_from();
        let (stored, watermark) = (self.keys.stored(), self.progress.watermark());
        let horizon = self.progress.horizon().min(readable_from).min(stored);
        if self.settled.first().is_some_and(|first| first < horizon) {
            self.say_forgotten(horizon, cx);
        }
        let first = Version::INITIAL;
        let (mut keys, next) = self.settled.written(first, horizon, !history, at_most);
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            if history {
                // What was readable when it was put there need not be any more.
                self.keys.settle(key, watermark, readable_from, cx.store());
            }
            self.keys.forget_delete(key, horizon, cx.store());
        }
        self.settled.forget_before(next);
        if next < horizon {
            self.rest(keys.len().saturating_sub(at_most), cx);
        } else if self.floor.is_known()
            && let Some(position) = self.log_marks.pass(horizon.timestamp_us)
        {
            cx.trim_log(position);
        }
    }

    /// Has the log say that all below `horizon` is in the store and that deletes there are forgotten, if it
    /// does not yet.
    fn say_forgotten(&mut self, horizon: Version, cx: &mut Cx) {
        if horizon > self.settling.forgotten {
            self.settling.forgotten = horizon;
            self.append(Record::Forgotten { horizon: horizon.timestamp_us }, cx);
        }
    }

    /// The store holds all that was committed below `version`, or what has taken its place. What the log or
    /// memory has from there is not what was there last, and is forgotten.
    pub(super) fn rely_on_the_store(&mut self, version: Version) {
        let (keys, _) = self.settled.written(Version::INITIAL, version, false, usize::MAX);
        for key in &keys {
            self.keys.forget_memory(key, version);
        }
        self.settled.doubt_before(version);
        self.settling.forgotten = version.max(self.settling.forgotten);
        self.keys.set_stored(version.max(self.keys.stored()));
    }
}
