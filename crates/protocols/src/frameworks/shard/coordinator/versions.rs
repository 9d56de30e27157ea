//! The times that a client assigns to its transactions.

use std::collections::BTreeMap;

use serried_model::{TxnId, Version};

use super::super::stamp::Stamp;

/// How many runs of times are remembered. If there are more, the two earliest are merged.
const RUNS_AT_MOST: usize = 64;

/// The times that this client has assigned to its transactions, and the times from which shards
/// admit them, in microseconds since the Unix epoch.
///
/// No time is assigned twice. Times increase, with one exception: a time may have been far ahead of
/// the clock, because a shard with a wrong clock required it, or because the client's own clock was
/// ahead for a while. Later times need not be greater than such a time.
#[derive(Debug)]
pub(super) struct Versions {
    /// The assigned times, as runs from the first to the last one. Any time between may have been
    /// assigned. Runs are more than `near_us` apart.
    runs: BTreeMap<u64, u64>,
    /// By lane, the latest time at which a transaction took effect or may have taken effect,
    /// including moves.
    taken_us: [u64; Stamp::LANES as usize],
    /// By shard, the time from which it admits transactions, as it reported.
    from_us: BTreeMap<u16, u64>,
    /// Every shard with a correct clock admits transactions that begin up to this much after now,
    /// in microseconds.
    near_us: u64,
}

/// The open transactions of a client, by their versions.
#[derive(Debug, Default)]
pub(super) struct OpenVersions {
    txns: BTreeMap<Version, TxnId>,
    /// How many of them there are in each lane.
    in_lanes: [u32; Stamp::LANES as usize],
}

impl OpenVersions {
    fn in_lane_of(&mut self, version: Version) -> &mut u32 {
        &mut self.in_lanes[(version.timestamp_us % Stamp::LANES) as usize]
    }

    pub(super) fn insert(&mut self, version: Version, txn: TxnId) {
        if self.txns.insert(version, txn).is_none() {
            *self.in_lane_of(version) += 1;
        }
    }

    pub(super) fn remove(&mut self, version: &Version) {
        if self.txns.remove(version).is_some() {
            *self.in_lane_of(*version) -= 1;
        }
    }

    pub(super) fn get(&self, version: &Version) -> Option<TxnId> {
        self.txns.get(version).copied()
    }

    /// Whether there is one in this lane.
    pub(super) fn has_lane(&self, lane: u64) -> bool {
        self.in_lanes[lane as usize] > 0
    }

    pub(super) fn len(&self) -> usize {
        self.txns.len()
    }
}

impl Versions {
    /// The state of a client that has assigned no time. The clocks of the client and of the shards
    /// may differ by `clock_bound_ms`.
    pub(super) fn new(clock_bound_ms: u64) -> Versions {
        let near_us = clock_bound_ms.saturating_mul(1000) / 2;
        Versions {
            runs: BTreeMap::new(),
            taken_us: [0; Stamp::LANES as usize],
            from_us: BTreeMap::new(),
            near_us,
        }
    }

    /// Records that a shard admits no transaction of this client that begins before `from_us`.
    pub(super) fn take_from(&mut self, shard: u16, from_us: u64) {
        let before = self.from_us.entry(shard).or_default();
        *before = from_us.max(*before);
    }

    /// The earliest time for a transaction that first goes to the shards for which `goes_to` is
    /// true. Other shards count too if their times are near the clock, because the transaction may
    /// go there later. A shard whose time is far ahead only affects transactions that go there.
    pub(super) fn first_us(&self, now_us: u64, mut goes_to: impl FnMut(u16) -> bool) -> u64 {
        let near_us = now_us.saturating_add(self.near_us);
        let counts = |(shard, us): &(&u16, &u64)| **us <= near_us || goes_to(**shard);
        let from_us = self.from_us.iter().filter(counts).map(|(_, us)| *us).max();
        now_us.max(from_us.unwrap_or(0))
    }

    /// The first unassigned time from `first_us` on. It is later than all assigned times that are
    /// not far ahead of the clock, which shows `now_us`.
    pub(super) fn free_from(&self, first_us: u64, now_us: u64) -> u64 {
        let (mut us, near_us) = (first_us, now_us.saturating_add(self.near_us));
        for (first, last) in &self.runs {
            if *last >= us && (*first <= us || *last <= near_us) {
                us = last.saturating_add(1);
            }
        }
        us
    }

    /// Like [`Versions::free_from`], but a transaction with this time can't be moved to a time at
    /// which another one took effect: moves keep the lane ([`Stamp::next_of`]). The lane also
    /// differs from those of open transactions if any other lane is left.
    pub(super) fn free_lane_from(
        &self,
        first_us: u64,
        now_us: u64,
        is_open: impl Fn(u64) -> bool,
    ) -> u64 {
        let lane = |us: u64| us % Stamp::LANES;
        let is_ahead = |us: u64| self.taken_us[lane(us) as usize] >= us;
        let mut us = self.free_from(first_us, now_us);
        // If all lanes are open, times must not run ahead of the clock because of that.
        let no_lane_is_left = (0..Stamp::LANES).all(&is_open);
        for _ in 0..Stamp::LANES {
            if !is_ahead(us) && (no_lane_is_left || !is_open(lane(us))) {
                return us;
            }
            us = self.free_from(us.saturating_add(1), now_us);
        }
        // After all times at which transactions took effect, only the lanes of open transactions matter.
        let last = self.taken_us.iter().copied().max().unwrap_or(0);
        us = self.free_from(us.max(last.saturating_add(1)), now_us);
        for _ in 0..Stamp::LANES {
            if no_lane_is_left || !is_open(lane(us)) {
                break;
            }
            us = self.free_from(us.saturating_add(1), now_us);
        }
        us
    }

    /// The latest time at which a transaction took effect, or may have.
    pub(super) fn last_taken_us(&self) -> u64 {
        self.taken_us.iter().copied().max().unwrap_or(0)
    }

    /// Records that a transaction took effect at this time, or may have.
    pub(super) fn take(&mut self, us: u64) {
        self.give(us);
        let taken_us = &mut self.taken_us[(us % Stamp::LANES) as usize];
        *taken_us = us.max(*taken_us);
    }

    /// Records that this time was assigned.
    pub(super) fn give(&mut self, us: u64) {
        let (mut first, mut last) = (us, us);
        let reach_us = last.saturating_add(self.near_us);
        while let Some((begins, ends)) = self.runs.range(..=reach_us).next_back()
            && ends.saturating_add(self.near_us) >= us
        {
            let (begins, ends) = (*begins, *ends);
            self.runs.remove(&begins);
            (first, last) = (first.min(begins), last.max(ends));
        }
        self.runs.insert(first, last);
        while self.runs.len() > RUNS_AT_MOST {
            let (first, _) = self.runs.pop_first().expect("there are too many runs");
            let (_, last) = self.runs.pop_first().expect("there are too many runs");
            self.runs.insert(first, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND_MS: u64 = 2000;
    const NOW: u64 = 50_000_000;
    const FAR: u64 = NOW + 30_000_000;

    fn next(versions: &mut Versions, first_us: u64, now_us: u64) -> u64 {
        let us = versions.free_from(first_us, now_us);
        versions.give(us);
        us
    }

    #[test]
    fn times_rise_and_none_is_given_twice() {
        let mut versions = Versions::new(BOUND_MS);
        assert_eq!(next(&mut versions, NOW, NOW), NOW);
        assert_eq!(next(&mut versions, NOW, NOW), NOW + 1);
        assert_eq!(next(&mut versions, NOW + 900_000, NOW), NOW + 900_000);
        assert_eq!(next(&mut versions, NOW, NOW), NOW + 900_001, "it is not far ahead");
        assert_eq!(next(&mut versions, NOW + 5_000_000, NOW + 5_000_000), NOW + 5_000_000);
        assert_eq!(versions.runs.len(), 2);
    }

    #[test]
    fn a_version_far_ahead_delays_no_others_and_is_not_given_again() {
        let mut versions = Versions::new(BOUND_MS);
        assert_eq!(next(&mut versions, FAR, NOW), FAR);
        assert_eq!(next(&mut versions, NOW, NOW), NOW);
        assert_eq!(next(&mut versions, FAR, NOW), FAR + 1);
        assert_eq!(next(&mut versions, FAR - 5, FAR - 5), FAR + 2, "its time has come");
        assert_eq!(next(&mut versions, NOW, NOW), NOW + 1);
    }

    #[test]
    fn no_transaction_begins_in_the_lane_of_a_later_refined_one() {
        let mut versions = Versions::new(BOUND_MS);
        versions.take(FAR);
        for _ in 0..100 {
            let us = versions.free_lane_from(NOW, NOW, |_| false);
            assert!(us < NOW + 200 && us % Stamp::LANES != FAR % Stamp::LANES, "{us}");
            versions.give(us);
        }
        for later in 0..100 {
            versions.take(FAR + 7 * later);
        }
        let us = versions.free_lane_from(NOW, NOW, |lane| lane != 3);
        assert!(us > FAR && us % Stamp::LANES == 3, "{us}");
    }

    #[test]
    fn times_follow_the_clock_if_all_lanes_are_open() {
        let mut versions = Versions::new(BOUND_MS);
        for more in 0..1000 {
            let us = versions.free_lane_from(NOW, NOW, |_| true);
            assert_eq!(us, NOW + more);
            versions.give(us);
        }
        // But none is in the lane of a later time at which a transaction took effect.
        versions.take(FAR);
        for _ in 0..100 {
            let us = versions.free_lane_from(NOW, NOW, |_| true);
            assert_ne!(us % Stamp::LANES, FAR % Stamp::LANES);
            versions.give(us);
        }
    }

    #[test]
    fn a_lane_is_open_until_all_in_it_are_over() {
        let mut open = OpenVersions::default();
        let [one, other] = [NOW + 3, NOW + 3 + Stamp::LANES].map(Version::at);
        for version in [one, other, other] {
            open.insert(version, TxnId(version.timestamp_us));
        }
        let lane = one.timestamp_us % Stamp::LANES;
        assert!(open.has_lane(lane) && !open.has_lane((lane + 1) % Stamp::LANES));
        for (version, is_left) in [(one, true), (one, true), (other, false)] {
            open.remove(&version);
            assert_eq!(open.has_lane(lane), is_left);
        }
    }

    #[test]
    fn a_shards_late_window_concerns_only_its_clients() {
        let mut versions = Versions::new(BOUND_MS);
        versions.take_from(0, FAR);
        versions.take_from(1, NOW + 200_000);
        versions.take_from(0, NOW);
        assert_eq!(versions.first_us(NOW, |shard| shard == 0), FAR);
        assert_eq!(versions.first_us(NOW, |shard| shard == 1), NOW + 200_000);
        assert_eq!(versions.first_us(NOW, |shard| shard == 2), NOW + 200_000);
        assert_eq!(versions.first_us(NOW + 300_000, |_| false), NOW + 300_000);
    }

    #[test]
    fn no_time_is_given_twice_however_the_clock_jumps() {
        let mut versions = Versions::new(BOUND_MS);
        let mut given = std::collections::BTreeSet::new();
        let mut state = 7_u64;
        for _ in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let now_us = (state >> 33) % 600 * 700_000;
            assert!(given.insert(next(&mut versions, now_us, now_us)));
            assert!(versions.runs.len() <= RUNS_AT_MOST);
        }
        versions.give(u64::MAX);
        versions.give(u64::MAX);
    }
}
