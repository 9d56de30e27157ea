//! What is settled: the versions of keys, how transactions ended, and how far both are complete.
//!
//! Settled state moves into the store bit by bit, and then out of memory and the log. This rests while another
//! replica's store is copied, since the state here is about to be replaced.

use core::ops::RangeInclusive;
use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::Version;

use super::keys::Keys;
use super::log_marks::LogMarks;
use super::progress::Progress;
use super::settled::Settled;
use super::setup::Setup;
use super::{Cx, Timer};
use crate::morty::digest::Digest;
use crate::morty::record::Record;

/// Settled state is put into the store once in so many truncations, so that a key which is written often is put there
/// once.
const SETTLE_AFTER: u64 = 5;
/// How many writes are put into the store in a millisecond. Few, so that transactions are not delayed, but more if so much
/// is written that the store would fall behind.
const SETTLED_PER_MS: RangeInclusive<usize> = 64..=1024;
/// The rate is one write per millisecond for so many remembered writes. All of them are then settled within seconds.
const REMEMBERED_PER_SETTLED: usize = 8192;
/// The pause after each step.
const REST: Duration = Duration::from_millis(1);
/// The pause while what it needs is not durable.
const UNTIL_DURABLE: Duration = Duration::from_millis(10);
/// If a pause has lasted longer because the CPU was busy, the next step does more: at most what is due for this time.
const LATE_AT_MOST: Duration = Duration::from_millis(200);

/// The state that transactions leave behind.
#[derive(Debug)]
pub(super) struct State {
    /// `vstore`.
    pub(super) keys: Keys,
    /// `decision_log`, as far back as it is kept.
    pub(super) settled: Settled,
    /// How far what is old is settled.
    pub(super) progress: Progress,
    /// What is settled below this is being put into the store.
    storing_upto: Option<Version>,
    /// When the pause ends.
    rests_until: Option<Timestamp>,
    /// The log says that everything below this is in the store and that deletes there are forgotten.
    forgotten: Version,
}

impl State {
    pub(super) fn new(setup: &Setup) -> State {
        let (partition, partitions) = (setup.id.partition(), setup.group.partitions());
        State {
            keys: Keys::new(setup.settings.resident_keys, setup.options.crowds),
            settled: Settled::default(),
            progress: Progress::new(&setup.settings, partition, partitions),
            storing_upto: None,
            rests_until: None,
            forgotten: Version::INITIAL,
        }
    }

    /// The digest of everything that has committed below `upto`, as far as this replica knows.
    pub(super) fn committed_below(&self, upto: u64) -> Digest {
        let (watermark, digest) = self.progress.finished();
        self.settled.digest(digest, Version::at(watermark), Version::at(upto))
    }

    /// Puts some of what lies below the watermark into the store, if it is time. Then gives up what lies below the horizon,
    /// in the log too. If the store is behind with its own work, this waits as long as memory suffices, because a busy
    /// store delays the log. `may_trim` says whether what is not needed may be removed from the log.
    pub(super) fn settle(
        &mut self,
        setup: &Setup,
        log: &mut LogMarks,
        may_trim: bool,
        cx: &mut Cx,
    ) {
        if !self.may_settle(cx) {
            cx.set_timer(Timer::Settle, UNTIL_DURABLE);
            return;
        }
        let (stored, watermark) = (self.keys.stored(), self.progress.watermark());
        let waiting_us = watermark.timestamp_us.saturating_sub(stored.timestamp_us);
        let enough = waiting_us >= SETTLE_AFTER * setup.truncation_every_us();
        if self.storing_upto.is_none() && (enough || stored < self.progress.horizon()) {
            self.storing_upto = Some(watermark);
        }
        let affordable = self.settled.writes() < setup.settings.resident_keys;
        if self.storing_upto.is_some() && affordable && cx.store().is_behind() {
            self.rests_until = None;
            cx.set_timer(Timer::Settle, REST);
            return;
        }
        let late = self.rests_until.take().map(|until| cx.now().since(until));
        let late_ms = late.unwrap_or_default().min(LATE_AT_MOST).as_millis() as usize;
        let at_once = self.settled_per_ms() * (1 + late_ms);
        match self.settle_some(at_once, cx) {
            0 if self.storing_upto.is_none() => self.forget(at_once, setup, log, may_trim, cx),
            writes => self.rest(writes.saturating_sub(at_once), cx),
        }
    }

    /// Whether the log says how far everything is settled, and from where on the past can be read. Only then may versions
    /// be removed that can't be read any more: a crash may keep that and lose records which were appended before.
    pub(super) fn may_settle(&self, cx: &Cx) -> bool {
        self.progress.is_durable(cx.durable_position())
    }

    fn settled_per_ms(&self) -> usize {
        let wanted = self.settled.writes() / REMEMBERED_PER_SETTLED;
        wanted.clamp(*SETTLED_PER_MS.start(), *SETTLED_PER_MS.end())
    }

    /// Continues after a pause. The pause is longer if a single transaction had more writes than one step should do.
    fn rest(&mut self, too_many: usize, cx: &mut Cx) {
        let rest = REST * (1 + too_many / self.settled_per_ms()) as u32;
        self.rests_until = Some(cx.now() + rest);
        cx.set_timer(Timer::Settle, rest);
    }

    /// Puts everything that lies below the watermark into the store. It [may settle](State::may_settle).
    pub(super) fn settle_everything(&mut self, cx: &mut Cx) {
        self.storing_upto = Some(self.progress.watermark());
        while self.storing_upto.is_some() {
            self.settle_some(*SETTLED_PER_MS.end(), cx);
        }
    }

    /// Puts about `at_most` writes into the store, and returns how many. Each key is put there as it is at the present
    /// watermark, which may be later than [`State::storing_upto`].
    fn settle_some(&mut self, at_most: usize, cx: &mut Cx) -> usize {
        let Some(upto) = self.storing_upto else { return 0 };
        let watermark = self.progress.watermark();
        let readable_from = self.progress.readable_from();
        let from = self.keys.stored();
        let (keys, next) = self.settled.written(from, upto, false, at_most);
        for key in &keys {
            self.keys.settle(key, watermark, readable_from, cx.store());
        }
        self.keys.set_stored(next);
        if next >= upto {
            self.storing_upto = None;
        }
        keys.len()
    }

    /// Forgets how transactions below the horizon ended, if they can't be read any more, and forgets deletes from below it.
    /// The log says so too, because it may keep what was deleted for longer than it keeps the delete.
    fn forget(
        &mut self,
        at_most: usize,
        setup: &Setup,
        log: &mut LogMarks,
        may_trim: bool,
        cx: &mut Cx,
    ) {
        let history = setup.settings.history_ms > 0;
        let readable_from = self.progress.readable_from();
        let (stored, watermark) = (self.keys.stored(), self.progress.watermark());
        let horizon = self.progress.horizon().min(readable_from).min(stored);
        if self.settled.first().is_some_and(|first| first < horizon) {
            self.say_forgotten(horizon, log, cx);
        }
        if !self.may_settle(cx) {
            // A replay must not execute what is in the log of a key whose delete is forgotten.
            cx.set_timer(Timer::Settle, UNTIL_DURABLE);
            return;
        }
        let first = Version::INITIAL;
        let (mut keys, next) = self.settled.written(first, horizon, !history, at_most);
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            if history {
                // Versions that were readable when they were stored may not be any more.
                self.keys.settle(key, watermark, readable_from, cx.store());
            }
            self.keys.forget_delete(key, horizon, cx.store());
        }
        self.settled.forget_before(next);
        if next < horizon {
            self.rest(keys.len().saturating_sub(at_most), cx);
        } else if may_trim && let Some(position) = log.pass(horizon.timestamp_us) {
            cx.trim_log(position);
        }
    }

    /// Appends a record that everything below `horizon` is in the store and that deletes there are forgotten, unless the
    /// log says so already.
    fn say_forgotten(&mut self, horizon: Version, log: &mut LogMarks, cx: &mut Cx) {
        if horizon > self.forgotten {
            self.forgotten = horizon;
            log.append(Record::Forgotten { horizon: horizon.timestamp_us }, cx);
            self.progress.is_logged_at(cx.log_position());
        }
    }

    /// Forgets what memory holds from below `version`, where the store is complete. What memory has from there, perhaps
    /// from a replay of the log, may be older than the store.
    pub(super) fn rely_on_the_store(&mut self, version: Version) {
        let (keys, _) = self.settled.written(Version::INITIAL, version, false, usize::MAX);
        for key in &keys {
            self.keys.forget_memory(key, version);
        }
        self.settled.doubt_before(version);
        self.forgotten = version.max(self.forgotten);
        self.keys.set_stored(version.max(self.keys.stored()));
    }

    /// Logs how far everything is settled.
    pub(super) fn log_truncation(&mut self, copied: bool, log: &mut LogMarks, cx: &mut Cx) {
        log.append(self.progress.record(copied), cx);
        self.progress.is_logged_at(cx.log_position());
    }

    /// Data from another replica lacks versions that were overwritten before `from`, in microseconds of version time. So
    /// the past can't be read here from before that either.
    pub(super) fn raise_readable_from(&mut self, from: u64, log: &mut LogMarks, cx: &mut Cx) {
        if self.progress.lack(from) {
            self.log_truncation(false, log, cx);
        }
    }
}
