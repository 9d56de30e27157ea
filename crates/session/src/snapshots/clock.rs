//! The version clock of a session (004 §6.1, Fig. 1).
//!
//! It differs from the figure in two ways. The clocks of servers advance with time, so a client can estimate what
//! they show by now, and a session stays behind that estimate by a bounded time, for reads and for writes. With the
//! figure's clock, a server that a session does not use any more would hold its frontier back for ever. And the write
//! of a session that was idle for an hour would be omitted for any write of the last hour. Besides, sessions of one
//! client share what they know of the servers (004 §6.4, "co-location").

use std::collections::BTreeMap;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::Versionstamp;
use serried_model::snapshots::Shown;

/// What a client knows of the version clocks of servers. All sessions that come of one handle share it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By partition, the highest that its server has shown.
    view: BTreeMap<u16, Versionstamp>,
    /// The highest that any server has shown, and when. It may be an estimate by now.
    latest: Option<(Versionstamp, Timestamp)>,
    /// How often the client's site has been rebuilt from other sites, if any answer has said so.
    era: u32,
}

impl Known {
    /// A server has shown its clock.
    pub(super) fn saw(&mut self, (partition, shown): Shown, now: Timestamp) {
        let of_partition = self.view.entry(partition).or_default();
        *of_partition = shown.max(*of_partition);
        if self.latest.is_none_or(|(latest, at)| latest.after(now.since(at)) < shown) {
            self.latest = Some((shown, now));
        }
    }

    /// An answer is of this era of the site.
    pub(super) fn saw_era(&mut self, era: u32) {
        self.era = self.era.max(era);
    }

    /// Whether the site is known to have been rebuilt since `era`.
    pub(super) fn is_rebuilt_since(&self, era: Option<u32>) -> bool {
        era.is_some_and(|era| era < self.era)
    }

    /// Whether no answer has said that the site was rebuilt so often as `era` says.
    pub(super) fn is_rebuilt_less_often_than(&self, era: Option<u32>) -> bool {
        era.is_some_and(|era| era > self.era)
    }

    /// Whether a server is known to have shown this one or a later one.
    pub(super) fn has_seen(&self, at: Versionstamp) -> bool {
        self.latest.is_some_and(|(latest, _)| latest >= at)
    }

    /// The least versionstamp that is not further behind than `freshness`.
    fn fresh(&self, now: Timestamp, freshness: Duration) -> Versionstamp {
        let Some((latest, shown_at)) = self.latest else { return Versionstamp::ZERO };
        latest.after(now.since(shown_at)).before(freshness)
    }
}

/// The place of a session in the order of writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// What the session has read and written is not after this.
    versionstamp: Versionstamp,
    /// The same without what was requested and not answered.
    acknowledged: Versionstamp,
    /// What the session has written, if that is apart: see [`Clock::wrote`].
    written: Versionstamp,
    /// Of which era of its site that is, if it has seen anything: see [`serried_model::snapshots::Own::era`].
    pub(super) era: Option<u32>,
}

impl Clock {
    /// The highest versionstamp that was acknowledged to the session.
    pub(super) fn acknowledged(&self) -> Versionstamp {
        self.acknowledged
    }

    /// What the session must see of its own writes.
    pub(super) fn written(&self) -> Versionstamp {
        self.written
    }

    /// The session must see its own write with this versionstamp, and so all its own that are not after it. What others
    /// have written up to then it need not see. For [`serried_model::snapshots::VersionClocks::Safe`].
    pub(super) fn wrote(&mut self, stamp: Versionstamp) {
        self.written = self.written.max(stamp);
    }

    /// After which versionstamp all must be that the session writes from now on.
    pub(super) fn before_writes(&self) -> Versionstamp {
        self.acknowledged.max(self.written)
    }

    /// As of when the next transaction reads: the stable frontier, unless it is too far behind. `None` if no server
    /// was heard of yet.
    pub(super) fn for_read(
        &mut self,
        known: &Known,
        now: Timestamp,
        freshness: Duration,
    ) -> Option<Versionstamp> {
        let frontier = *known.view.values().min()?;
        self.versionstamp = self.versionstamp.max(frontier).max(known.fresh(now, freshness));
        Some(self.versionstamp)
    }

    /// With which versionstamp the next write is requested. `None` if no server was heard of yet.
    pub(super) fn for_write(
        &mut self,
        known: &Known,
        now: Timestamp,
        freshness: Duration,
    ) -> Option<Versionstamp> {
        if known.view.is_empty() && self.versionstamp == Versionstamp::ZERO {
            return None;
        }
        self.versionstamp = self.versionstamp.next().max(known.fresh(now, freshness));
        Some(self.versionstamp)
    }

    /// The session has read as of this versionstamp, or has written something that has its place not after this. What
    /// follows is not before it.
    pub(super) fn adopt(&mut self, at: Versionstamp) {
        self.versionstamp = self.versionstamp.max(at);
        self.acknowledged = self.acknowledged.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(1000);
    const START: Timestamp = Timestamp(1_000_000);

    fn stamp(ms: u64) -> Versionstamp {
        Versionstamp::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn reads_are_at_the_stable_frontier_and_not_before_what_was_written() {
        let (mut clock, mut known) = (Clock::default(), Known::default());
        assert_eq!(clock.for_read(&known, START, LONG), None);
        assert_eq!(clock.for_write(&known, START, LONG), None);
        known.saw((1, stamp(50)), START);
        known.saw((2, stamp(30)), START);
        assert_eq!(clock.for_read(&known, START, LONG), Some(stamp(30)));
        known.saw((2, stamp(10)), START);
        assert_eq!(clock.for_read(&known, START, LONG), Some(stamp(30)), "it never goes back");
        assert_eq!(clock.for_write(&known, START, LONG), Some(stamp(30).next()));
        assert_eq!(clock.for_write(&known, START, LONG), Some(stamp(30).next().next()));
        assert_eq!(clock.acknowledged(), Versionstamp::ZERO);
        clock.adopt(stamp(60));
        assert_eq!(clock.for_read(&known, START, LONG), Some(stamp(60)));
        assert_eq!(clock.acknowledged(), stamp(60));
        known.saw((1, stamp(80)), START);
        known.saw((2, stamp(70)), START);
        assert_eq!(clock.for_read(&known, START, LONG), Some(stamp(70)));
    }

    #[test]
    fn a_server_that_shows_nothing_more_holds_nobody_back_for_long() {
        let (mut clock, mut known) = (Clock::default(), Known::default());
        let freshness = Duration::from_millis(100);
        known.saw((1, stamp(10)), START);
        let later = START + Duration::from_millis(500);
        known.saw((2, stamp(520)), later);
        assert_eq!(clock.for_read(&known, later, freshness), Some(stamp(420)));
        let much_later = later + Duration::from_secs(60);
        assert_eq!(clock.for_read(&known, much_later, freshness), Some(stamp(60_420)));
        assert_eq!(clock.for_write(&known, much_later, freshness), Some(stamp(60_420).next()));
        known.saw((1, stamp(400)), much_later);
        assert_eq!(clock.for_read(&known, much_later, freshness), Some(stamp(60_420).next()));
        assert!(known.has_seen(stamp(520)) && !known.has_seen(stamp(521)));
    }

    #[test]
    fn a_server_that_is_behind_does_not_lower_the_estimate() {
        let (mut clock, mut known) = (Clock::default(), Known::default());
        known.saw((1, stamp(10_000)), START);
        let later = START + Duration::from_secs(5);
        known.saw((2, stamp(10_050)), later);
        let at = clock.for_read(&known, later, Duration::from_millis(100));
        assert_eq!(at, Some(stamp(14_900)));
    }
}
