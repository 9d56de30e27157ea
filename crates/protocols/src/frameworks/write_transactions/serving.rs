//! What a leader has in memory: its clock, what is pending, and what was overwritten.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serried_actor::{Settings, Timestamp};
use serried_model::{Key, Versionstamp, Write};
use serried_parts::Map;

use super::Mutation;
use super::horizon::Horizon;
use super::message::{Clock, TransactionId};
use super::open::Open;
use super::versions::Overwritten;
use crate::Mutated;
use crate::frameworks::stamp_clock::{StampClock, ahead};

/// How long overwritten versions can be read at least after a later one became safe, if they do not take too much
/// room, and the settings do not say longer.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// How many admissions are remembered at most. What was read as of an earlier one is read again as of a later time.
const CUTS_AT_MOST: usize = 1 << 14;

/// A pending transaction of a key.
pub(super) type Pending = (Versionstamp, TransactionId);

/// The clock, and what is pending.
#[derive(Debug)]
pub(super) struct Serving {
    clock: StampClock,
    /// Former leaders have shown nothing after this.
    begun_at: Versionstamp,
    /// What the clock should show, if the log allows it.
    wanted: Versionstamp,
    /// Transactions that are not decided here, by their pending times.
    pending: BTreeMap<Versionstamp, TransactionId>,
    /// The same by session.
    of_sessions: BTreeSet<(u64, Versionstamp)>,
    /// The same by key.
    of_keys: Map<Key, Vec<Pending>>,
    /// Transactions under way.
    pub(super) open: BTreeMap<TransactionId, Open>,
    pub(super) overwritten: Overwritten,
    /// The admission under way.
    pub(super) admission: Option<TransactionId>,
    /// What was admitted: from which commit times on, and up to when, by site. The earliest comes first.
    cuts: VecDeque<(Versionstamp, Vec<Versionstamp>)>,
    pub(super) horizon: Horizon,
    /// The earliest times as of which was read lately: since the last change of these, and between the last two. And
    /// when they were changed.
    read_at: [Versionstamp; 2],
    read_since: Timestamp,
    ahead: Duration,
    kept_for: Duration,
    mutation: Mutated<Mutation>,
}

impl Serving {
    /// A leader begins, after others that have not gone beyond `bound`. Their last write has committed at `written`.
    pub(super) fn new(
        bound: Versionstamp,
        written: Versionstamp,
        now: Timestamp,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Serving {
        let begun_at = if mutation.is(Mutation::BoundForgotten) { written } else { bound };
        Serving {
            clock: StampClock::new(begun_at.next(), now),
            begun_at,
            wanted: Versionstamp::ZERO,
            pending: BTreeMap::new(),
            of_sessions: BTreeSet::new(),
            of_keys: Map::default(),
            open: BTreeMap::new(),
            overwritten: Overwritten::new(begun_at),
            admission: None,
            cuts: VecDeque::new(),
            horizon: Horizon::new(Duration::from_millis(settings.outcomes_ms)),
            read_at: [Versionstamp(u64::MAX); 2],
            read_since: now,
            ahead: ahead(settings),
            kept_for: KEPT_FOR.max(Duration::from_millis(settings.history_ms)),
            mutation,
        }
    }

    /// The last versionstamp that the clock may show with this bound. What is above is left for transactions that are
    /// in the log.
    fn limit(&self, bound: Versionstamp) -> Versionstamp {
        bound.before(self.ahead / 4)
    }

    /// What the clock and the safe time are. The era is not known here.
    pub(super) fn clock(&self, bound: Versionstamp, now: Timestamp) -> Clock {
        let shown = self.clock.now(now).min(self.limit(bound)).max(self.begun_at);
        let first = match self.mutation.is(Mutation::PendingNotCounted) {
            true => None,
            false => self.pending.first_key_value(),
        };
        let safe = first
            .map_or(shown, |(pending, _)| shown.min(Versionstamp(pending.0.saturating_sub(1))));
        Clock { shown, safe, era: 0 }
    }

    /// The clock shows at least this from now on, as far as the log allows it. Returns whether it does.
    pub(super) fn take_over(
        &mut self,
        stamp: Versionstamp,
        bound: Versionstamp,
        now: Timestamp,
    ) -> bool {
        self.clock.take_over(stamp.min(self.limit(bound)), now);
        self.wanted = self.wanted.max(stamp);
        stamp <= self.limit(bound)
    }

    /// The bound that is needed, if the present one is reached soon, or by what the clock should show.
    pub(super) fn bound_wanted(&self, bound: Versionstamp, now: Timestamp) -> Option<Versionstamp> {
        let needed = self.clock.now(now).max(self.wanted);
        (needed.after(self.ahead / 2) > bound).then(|| needed.after(self.ahead))
    }

    /// Whether a session can have this versionstamp.
    pub(super) fn is_possible(&self, stamp: Versionstamp, now: Timestamp) -> bool {
        self.clock.is_possible(stamp, now)
    }

    /// A versionstamp after `requested`, and after all that the clock has shown.
    pub(super) fn stamp(
        &mut self,
        requested: Versionstamp,
        partition: u16,
        now: Timestamp,
    ) -> Versionstamp {
        let stamp = self.clock.now(now).max(requested).max(self.begun_at).next_of(partition);
        self.clock.take_over(stamp, now);
        stamp
    }

    /// A transaction has committed.
    pub(super) fn committed(&mut self, commit: Versionstamp, now: Timestamp) {
        self.clock.take_over(commit, now);
    }

    /// A transaction is pending.
    pub(super) fn begin(
        &mut self,
        id: TransactionId,
        pending: Versionstamp,
        participants: &[u16],
        writes: &[Write],
        now: Timestamp,
    ) {
        self.clock.take_over(pending, now);
        self.pending.insert(pending, id);
        self.of_sessions.insert((id.session, pending));
        for write in writes {
            self.of_keys.get_or_default(&write.key).push((pending, id));
        }
        let open = self.open.entry(id).or_insert_with(|| Open::new(now));
        open.pending = Some(pending);
        open.coordinator = participants.first().filter(|_| participants.len() > 1).copied();
    }

    /// A transaction is decided. It is still open.
    pub(super) fn end<'a>(&mut self, id: TransactionId, keys: impl Iterator<Item = &'a Key>) {
        let Some(open) = self.open.get_mut(&id) else { return };
        open.is_deciding = false;
        let Some(pending) = open.pending.take() else { return };
        self.pending.remove(&pending);
        self.admission = self.admission.filter(|admission| *admission != id);
        self.of_sessions.remove(&(id.session, pending));
        for key in keys {
            let Some(of_key) = self.of_keys.get_mut(key) else { continue };
            of_key.retain(|(_, other)| *other != id);
            if of_key.is_empty() {
                self.of_keys.remove(key);
            }
        }
    }

    /// An admission has committed: from now on this is admitted.
    pub(super) fn admitted(&mut self, commit: Versionstamp, cut: Vec<Versionstamp>) {
        // An admission may commit before a time up to which all is forgotten.
        let last = self.cuts.back().map(|(commit, _)| *commit);
        self.cuts.push_back((commit.max(last.unwrap_or_default()), cut));
        if self.cuts.len() > CUTS_AT_MOST {
            self.cuts.pop_front();
        }
    }

    /// What was read before this can't be read again: the site has been rebuilt since.
    pub(super) fn forget_past(&mut self, shown: Versionstamp) {
        self.overwritten = Overwritten::new(shown);
        if let Some((_, cut)) = self.cuts.pop_back() {
            self.cuts.clear();
            self.cuts.push_back((shown, cut));
        }
    }

    /// What is admitted as of a time, by site. `None` if it is not known any more. Without sites it is empty.
    pub(super) fn cut(&self, at: Versionstamp) -> Option<&[Versionstamp]> {
        if self.cuts.is_empty() {
            return Some(&[]);
        }
        let after = self.cuts.partition_point(|(commit, _)| *commit <= at);
        after.checked_sub(1).map(|place| self.cuts[place].1.as_slice())
    }

    /// From which commit time on something is admitted that has committed at `site` at `stamp`. It may be later than it
    /// was, if it is long ago. `None` if it is not admitted.
    pub(super) fn admitted_from(&self, site: usize, stamp: Versionstamp) -> Option<Versionstamp> {
        let first =
            self.cuts.partition_point(|(_, cut)| cut.get(site).is_none_or(|to| *to < stamp));
        self.cuts.get(first).map(|(commit, _)| *commit)
    }

    /// Since when an admission is pending.
    pub(super) fn admission_since(&self) -> Option<Versionstamp> {
        self.admission.and_then(|id| self.open.get(&id)).and_then(|open| open.pending)
    }

    /// Whether a transaction of this session is pending here that may have committed up to `written`. One that has this
    /// partition alone commits at its pending time.
    pub(super) fn has_own(&self, session: u64, written: Versionstamp) -> bool {
        let from = (session, Versionstamp::ZERO);
        self.of_sessions.range(from..=(session, written)).next().is_some()
    }

    /// The transactions that are pending at a key, with their pending times.
    pub(super) fn pending(&self, key: &Key) -> &[Pending] {
        self.of_keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// How many transactions are pending.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// A client reads as of this, and perhaps will again.
    pub(super) fn read_at(&mut self, at: Versionstamp) {
        self.read_at[0] = self.read_at[0].min(at);
    }

    /// Forgets old versions. Those that can be read as of the safe time are kept, and those that were read lately: the
    /// safe time of another partition may stand still.
    pub(super) fn expire(&mut self, bound: Versionstamp, now: Timestamp) {
        let Clock { shown, safe, .. } = self.clock(bound, now);
        if now.since(self.read_since) >= self.kept_for {
            self.read_at = [Versionstamp(u64::MAX), self.read_at[0]];
            self.read_since = now;
        }
        let [one, other] = self.read_at;
        let before = shown.min(safe).before(self.kept_for);
        let before = before.min(one).min(other);
        self.overwritten.expire(before);
        while self.cuts.get(1).is_some_and(|(commit, _)| *commit < before) {
            self.cuts.pop_front();
        }
        self.horizon.sample(shown, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving() -> (Serving, Timestamp) {
        let now = Timestamp(1_000_000);
        let bound = Versionstamp::ZERO.after(Duration::from_secs(10));
        let settings = Settings::default();
        (Serving::new(bound, Versionstamp::ZERO, now, &settings, Mutated::NONE), now)
    }

    #[test]
    fn a_transaction_that_may_have_committed_up_to_a_time_is_waited_for() {
        let (mut serving, now) = serving();
        let id = TransactionId { requested: Versionstamp(5), session: 7 };
        let stamp = serving.stamp(id.requested, 0, now);
        serving.begin(id, stamp, &[0], &[], now);
        // If it has this partition alone, it commits at its pending time.
        assert!(serving.has_own(7, stamp) && !serving.has_own(7, Versionstamp(stamp.0 - 1)));
        assert!(!serving.has_own(8, stamp));
        serving.end(id, core::iter::empty());
        assert!(!serving.has_own(7, stamp));
    }

    #[test]
    fn a_new_leader_does_not_know_what_was_overwritten_before_it() {
        let (mut serving, _) = serving();
        let key = Key::from("a");
        let old = |commit| super::super::cell::Version {
            value: None,
            commit: Versionstamp(commit),
            session: 0,
            elsewhere: None,
        };
        // It commits here late. What came between it and the latest version is not known.
        serving.overwritten.add(&key, old(105), Versionstamp(120));
        let find = |serving: &Serving, at| {
            let at = Versionstamp(at);
            serving.overwritten.find(&key, at, |version| version.commit <= at).cloned()
        };
        assert_eq!(find(&serving, 115), None);
        let begun_at = serving.begun_at;
        serving.overwritten.add(&key, old(120), begun_at.next().next());
        assert_eq!(find(&serving, begun_at.next().0), Some(old(120)));
    }

    #[test]
    fn versions_that_are_being_read_are_kept() {
        let (mut serving, mut now) = serving();
        let key = Key::from("a");
        let at = serving.begun_at.next();
        let version =
            super::super::cell::Version { value: None, commit: at, session: 0, elsewhere: None };
        serving.overwritten.add(&key, version, at.next());
        let bound = at.after(Duration::from_secs(1000));
        for _ in 0..20 {
            now = now + Duration::from_millis(500);
            serving.read_at(at);
            serving.expire(bound, now);
            assert_eq!(serving.overwritten.len(), 1);
        }
        for _ in 0..5 {
            now = now + Duration::from_millis(500);
            serving.expire(bound, now);
        }
        assert_eq!(serving.overwritten.len(), 0);
    }

    #[test]
    fn a_site_that_was_rebuilt_cannot_be_read_as_of_earlier_times() {
        let (mut serving, _) = serving();
        let key = Key::from("a");
        let begun_at = serving.begun_at;
        let after = |ticks| Versionstamp(begun_at.0 + ticks);
        serving.admitted(Versionstamp::ZERO, vec![Versionstamp::ZERO]);
        serving.admitted(after(9), vec![Versionstamp(7)]);
        let version = super::super::cell::Version {
            value: None,
            commit: after(1),
            session: 0,
            elsewhere: None,
        };
        serving.overwritten.add(&key, version, after(8));
        assert!(serving.cut(after(5)).is_some());
        assert!(serving.overwritten.find(&key, after(5), |_| true).is_some());
        serving.forget_past(after(20));
        assert_eq!(serving.cut(after(19)), None);
        assert_eq!(serving.cut(after(20)), Some(&[Versionstamp(7)][..]));
        assert_eq!(serving.overwritten.find(&key, after(19), |_| true), None);
        assert_eq!(serving.admitted_from(0, Versionstamp(3)), Some(after(20)));
        // This one was under way.
        serving.admitted(after(15), vec![Versionstamp(8)]);
        assert_eq!(serving.cut(after(19)), None);
        assert_eq!(serving.cut(after(20)), Some(&[Versionstamp(8)][..]));
        assert_eq!(serving.admitted_from(0, Versionstamp(8)), Some(after(20)));
    }
}
