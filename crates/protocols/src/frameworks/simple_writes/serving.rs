//! What a leader with versionstamps has in memory (004 §6.2).

use core::time::Duration;

use serried_actor::{Settings, Timestamp};
use serried_model::{Key, Versionstamp};
use serried_parts::Map;

use super::Mutation;
use super::cell::Latest;
use super::overwritten::Overwritten;
use super::replica::Client;
use super::stamp::Stamp;
use crate::Mutated;
use crate::frameworks::stamp_clock::{StampClock, ahead};

/// How long overwritten versions are kept at most, if the settings do not say longer.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// How long they are kept at least, if they do not take too much room.
const KEPT_FOR_AT_LEAST: Duration = Duration::from_millis(25);

/// How old the states were that were read lately. Versions are kept for twice as long: what is kept and never read costs
/// memory that is in no cache, and so time.
#[derive(Debug)]
struct Ages {
    /// The oldest since the last change of these, and between the last two.
    oldest: [Duration; 2],
    changed_at: Timestamp,
}

impl Ages {
    fn new(now: Timestamp) -> Ages {
        Ages { oldest: [KEPT_FOR; 2], changed_at: now }
    }

    /// For how long versions are kept.
    fn keep_for(&mut self, now: Timestamp) -> Duration {
        if now.since(self.changed_at) >= KEPT_FOR {
            self.oldest = [Duration::ZERO, self.oldest[0]];
            self.changed_at = now;
        }
        (2 * self.oldest[0].max(self.oldest[1])).clamp(KEPT_FOR_AT_LEAST, KEPT_FOR)
    }
}

/// The version clock, the keys whose writes are not applied yet, and what was overwritten.
#[derive(Debug)]
pub(super) struct Serving<S: Stamp> {
    clock: StampClock,
    /// Reads and writes of former leaders are not after this. What exactly was when is not known any more.
    pub(super) begun_at: Versionstamp,
    /// No write was placed after this, and nothing was read as of a later time.
    highest: Versionstamp,
    /// By key, the requests that wait until its write is applied.
    pending: Map<Key, Vec<Client<S>>>,
    /// How many these are.
    parked: usize,
    overwritten: Overwritten,
    ahead: Duration,
    ages: Ages,
    kept_for: Duration,
    mutation: Mutated<Mutation>,
}

impl<S: Stamp> Serving<S> {
    /// A leader begins, after others that have not gone beyond `bound`. Of their writes, the last one has the
    /// versionstamp `written`.
    pub(super) fn new(
        bound: Versionstamp,
        written: Versionstamp,
        now: Timestamp,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Serving<S> {
        let forgets = mutation.is(Mutation::PromotionForgotten);
        let begun_at = if forgets { written } else { bound };
        Serving {
            clock: StampClock::new(begun_at.next(), now),
            begun_at,
            highest: begun_at.next(),
            pending: Map::default(),
            parked: 0,
            overwritten: Overwritten::default(),
            ahead: ahead(settings),
            ages: Ages::new(now),
            kept_for: Duration::from_millis(settings.history_ms),
            mutation,
        }
    }

    /// What the version clock shows. It stays some way below the bound, so that writes that are applied late find
    /// places below the bound, too.
    pub(super) fn shown(&self, bound: Versionstamp, now: Timestamp) -> Versionstamp {
        self.clock.now(now).min(bound.before(self.ahead / 4)).max(self.highest)
    }

    /// The bound that is needed, if the present one is reached soon, or by a read as of `at`.
    pub(super) fn bound_wanted(
        &self,
        bound: Versionstamp,
        at: Versionstamp,
        now: Timestamp,
    ) -> Option<Versionstamp> {
        let needed = self.clock.now(now).max(at);
        (needed.after(self.ahead / 2) > bound).then(|| needed.after(self.ahead))
    }

    /// Whether a session can have this versionstamp.
    pub(super) fn is_possible(&self, stamp: Versionstamp, now: Timestamp) -> bool {
        self.clock.is_possible(stamp, now)
    }

    /// Promotes all keys, so that they can be read as of `at`: no write is placed up to that any more (004 §6.2). One
    /// clock stands for the numbers of all keys, so a read stores nothing. False if the bound does not allow it.
    pub(super) fn promote(
        &mut self,
        at: Versionstamp,
        bound: Versionstamp,
        now: Timestamp,
    ) -> bool {
        if at > bound.before(self.ahead / 4) && !self.mutation.is(Mutation::PromotionUnbounded) {
            return false;
        }
        let age = self.clock.now(now).since(at);
        self.ages.oldest[0] = self.ages.oldest[0].max(age);
        if !self.mutation.is(Mutation::PromotionLeftOut) {
            self.clock.take_over(at, now);
            self.highest = self.highest.max(at);
        }
        true
    }

    /// Whether a write of the key is not applied yet.
    pub(super) fn is_pending(&self, key: &Key) -> bool {
        self.pending.contains_key(key)
    }

    /// The versionstamp of a new write that was requested after `requested`. It names the version, and the write will
    /// be placed after it.
    pub(super) fn stamp(
        &mut self,
        requested: Versionstamp,
        partition: u16,
        now: Timestamp,
    ) -> Versionstamp {
        self.clock.now(now).max(requested).max(self.begun_at).next_of(partition)
    }

    /// A write of `key` with this versionstamp is in the log.
    pub(super) fn begin(&mut self, key: &Key, stamp: Versionstamp, now: Timestamp) {
        self.clock.take_over(stamp, now);
        self.pending.insert(key.clone(), Vec::new());
    }

    /// A request waits until the write of `key` is applied.
    pub(super) fn park(&mut self, key: &Key, client: Client<S>) {
        self.pending.get_mut(key).expect("a write that is waited for").push(client);
        self.parked += 1;
    }

    /// How many requests wait for writes.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// The place of a write that is applied now: after its versionstamp, after all that was read, and before all that
    /// will be.
    pub(super) fn place(
        &mut self,
        stamp: Versionstamp,
        bound: Versionstamp,
        now: Timestamp,
    ) -> Versionstamp {
        if self.mutation.is(Mutation::PromotionLeftOut) {
            return stamp;
        }
        let place = self.shown(bound, now).max(stamp).next();
        self.highest = place;
        self.clock.take_over(place, now);
        place
    }

    /// A write was applied at this place. It has replaced this version, unless it was omitted. Returns the requests
    /// that have waited for it.
    pub(super) fn applied(
        &mut self,
        key: &Key,
        place: Versionstamp,
        replaced: Option<Latest>,
        now: Timestamp,
    ) -> Vec<Client<S>> {
        if let Some(version) = replaced {
            // Now, so that later values take the room of what has expired, which is perhaps in a cache.
            self.expire(now);
            self.overwritten.add(key, version, place);
        }
        let parked = self.pending.remove(key).unwrap_or_default();
        self.parked -= parked.len();
        parked
    }

    /// What a key had at `at`, if its latest version is from later.
    pub(super) fn find(&self, key: &Key, at: Versionstamp) -> Option<&Latest> {
        self.overwritten.find(key, at)
    }

    /// Forgets old versions.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let kept_for = self.ages.keep_for(now).max(self.kept_for);
        self.overwritten.expire(self.clock.now(now).before(kept_for));
    }

    /// How many overwritten versions there are.
    pub(super) fn overwritten(&self) -> usize {
        self.overwritten.len()
    }

    /// The requests that wait for writes of these keys, when it does not lead any more.
    pub(super) fn into_parked(self, keys: impl Iterator<Item = Key>) -> Vec<Client<S>> {
        let mut pending = self.pending;
        keys.filter_map(|key| pending.remove(&key)).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use serried_model::NodeId;

    use super::super::message::Request;
    use super::*;

    #[test]
    fn versions_are_kept_for_twice_as_long_as_what_is_read_is_old() {
        let ms = Duration::from_millis;
        let (mut ages, mut now) = (Ages::new(Timestamp(0)), Timestamp(0));
        assert_eq!(ages.keep_for(now), KEPT_FOR, "nothing is known yet");
        let mut after = |age: u64, ages: &mut Ages| {
            now = now + KEPT_FOR;
            ages.oldest[0] = ages.oldest[0].max(ms(age));
            ages.keep_for(now)
        };
        after(0, &mut ages);
        assert_eq!(after(150, &mut ages), ms(300));
        assert_eq!(after(0, &mut ages), KEPT_FOR_AT_LEAST);
        assert_eq!(after(200, &mut ages), ms(400));
        assert_eq!(after(10, &mut ages), KEPT_FOR_AT_LEAST);
        assert_eq!(after(9000, &mut ages), KEPT_FOR);
    }

    #[test]
    fn versions_outlive_the_states_that_are_read_and_the_time_that_is_set() {
        let ms = Duration::from_millis;
        let usual = Settings::default();
        let long = Settings { history_ms: 500, ..usual };
        for (settings, age, is_kept) in
            [(usual, Some(ms(300)), true), (usual, None, false), (long, None, true)]
        {
            let mut now = Timestamp(1_000_000);
            let (begun_at, written) = (Versionstamp(100), Versionstamp::ZERO);
            let mut serving =
                Serving::<Versionstamp>::new(begun_at, written, now, &settings, Mutated::NONE);
            let (bound, key) = (Versionstamp(u64::MAX >> 1), Key::from("x"));
            for _ in 0..3 {
                now = now + KEPT_FOR;
                serving.expire(now);
                let at = age.map(|age| serving.clock.now(now).before(age));
                assert!(at.is_none_or(|at| serving.promote(at, bound, now)));
            }
            let stamp = serving.stamp(Versionstamp::ZERO, 0, now);
            serving.begin(&key, stamp, now);
            let place = serving.place(stamp, bound, now);
            let before = Latest { value: None, stamp: begun_at, place: begun_at };
            serving.applied(&key, place, Some(before), now);
            serving.expire(now + ms(400));
            assert_eq!(serving.overwritten() == 1, is_kept, "{age:?}");
        }
    }

    #[test]
    fn a_write_drops_what_has_expired() {
        let settings = Settings::default();
        let mut now = Timestamp(1_000_000);
        let mut serving = Serving::<Versionstamp>::new(
            Versionstamp(100),
            Versionstamp::ZERO,
            now,
            &settings,
            Mutated::NONE,
        );
        let (bound, key) = (Versionstamp(u64::MAX >> 1), Key::from("x"));
        for _ in 0..5 {
            let stamp = serving.stamp(Versionstamp::ZERO, 0, now);
            serving.begin(&key, stamp, now);
            let place = serving.place(stamp, bound, now);
            let before = Latest { value: None, stamp: place, place };
            serving.applied(&key, place, Some(before), now);
            assert_eq!(serving.overwritten(), 1);
            now = now + 2 * KEPT_FOR;
        }
    }

    #[test]
    fn a_request_whose_write_is_applied_does_not_wait_any_more() {
        let (settings, now) = (Settings::default(), Timestamp(1_000_000));
        let (begun_at, written) = (Versionstamp(100), Versionstamp::ZERO);
        let mut serving =
            Serving::<Versionstamp>::new(begun_at, written, now, &settings, Mutated::NONE);
        let (bound, key) = (Versionstamp(u64::MAX >> 1), Key::from("x"));
        let stamp = serving.stamp(Versionstamp::ZERO, 0, now);
        serving.begin(&key, stamp, now);
        for number in 0..3 {
            let (node, request) = (NodeId(NodeId::FIRST_COORDINATOR), Request::ReadClock);
            serving.park(&key, Client { node, number, request });
        }
        assert_eq!(serving.parked(), 3);
        let place = serving.place(stamp, bound, now);
        assert_eq!(serving.applied(&key, place, None, now).len(), 3);
        assert_eq!(serving.parked(), 0, "there is room for others");
    }

    #[test]
    fn what_is_applied_late_is_placed_below_the_bound_and_shown() {
        let settings = Settings::default();
        let (at, ahead) = (Timestamp(1_000_000), ahead(&settings));
        let (begun_at, written) = (Versionstamp(100), Versionstamp::ZERO);
        let mut serving =
            Serving::<Versionstamp>::new(begun_at, written, at, &settings, Mutated::NONE);
        let stamp = serving.stamp(Versionstamp(1), 0, at);
        serving.begin(&Key::from("x"), stamp, at);
        let (bound, late) = (stamp.after(ahead), at + 2 * ahead);
        let first = serving.place(stamp, bound, late);
        assert!(stamp < first && first <= bound && serving.shown(bound, late) >= first);
        assert!(serving.place(stamp.next(), bound, late) > first);
        assert!(!serving.promote(bound, bound, late));
        assert!(serving.promote(bound.before(ahead / 4), bound, late));
    }
}
