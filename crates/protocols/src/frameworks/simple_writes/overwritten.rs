//! Versions that were overwritten, for reads as of an earlier time. Only the leader has them, in memory.

use std::collections::VecDeque;

use serried_model::{Key, Value, Versionstamp};
use serried_parts::Map;

use super::cell::Latest;

/// How many bytes of overwritten versions are kept at most.
const BYTES_AT_MOST: usize = 64 << 20;
/// What a version takes up beside its key and its value.
const OVERHEAD: usize = 128;
/// So many keys may be remembered of which nothing is kept any more, besides as many as there are versions.
const GONE_AT_MOST: usize = 64;

/// What reads as of earlier times find.
///
/// Versions are in one queue, in the order in which they were overwritten. Each names an earlier one of the same key, and
/// one that is further away. These *jumps* are those of a skew-binary list (Myers 1983), so a search takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    kept: VecDeque<Kept>,
    /// How many were dropped. Versions have numbers from 1 on, and those up to this one are not kept.
    dropped: u64,
    /// By key, the last version that was overwritten. It may be dropped.
    last: Map<Key, u64>,
    bytes: usize,
}

/// A version that was overwritten.
#[derive(Debug)]
struct Kept {
    version: Latest,
    /// When it was overwritten.
    at: Versionstamp,
    bytes: usize,
    /// The number of the version that it has overwritten itself. It may be dropped, and is 0 if there was none.
    earlier: u64,
    /// The number of a version before that, or the same.
    jump: u64,
    /// How many versions of the key come before it, at least.
    depth: u64,
}

impl Overwritten {
    /// A version of `key` was overwritten, by a write with this place. It is the latest one so far.
    pub(super) fn add(&mut self, key: &Key, version: Latest, at: Versionstamp) {
        let number = self.dropped + self.kept.len() as u64 + 1;
        let earlier = core::mem::replace(self.last.get_or_default(key), number);
        let (depth, jump) = match self.kept(earlier) {
            None => (0, 0),
            Some(before) => (before.depth + 1, self.jump_over(before).unwrap_or(earlier)),
        };
        let bytes = OVERHEAD + key.len() + version.value.as_ref().map_or(0, Value::len);
        self.bytes += bytes;
        self.kept.push_back(Kept { version, at, bytes, earlier, jump, depth });
        while self.bytes > BYTES_AT_MOST {
            self.drop_first();
        }
        if self.last.len() > 2 * self.kept.len() + GONE_AT_MOST {
            let dropped = self.dropped;
            self.last.retain(|last| *last > dropped);
        }
    }

    /// The version with this number, if it is kept.
    fn kept(&self, number: u64) -> Option<&Kept> {
        self.kept.get(number.checked_sub(self.dropped + 1)? as usize)
    }

    /// Where the version after `before` jumps to, if its jump is as long as the next one.
    fn jump_over(&self, before: &Kept) -> Option<u64> {
        let first = self.kept(before.jump)?;
        let second = self.kept(first.jump)?;
        (before.depth - first.depth == first.depth - second.depth).then_some(first.jump)
    }

    fn drop_first(&mut self) {
        let Some(first) = self.kept.pop_front() else { return };
        self.dropped += 1;
        self.bytes -= first.bytes;
    }

    /// Drops what was overwritten before this.
    pub(super) fn expire(&mut self, before: Versionstamp) {
        while self.kept.front().is_some_and(|first| first.at < before) {
            self.drop_first();
        }
    }

    /// What a key had at `at`, if its latest version is from later. `None` if that is not known any more.
    pub(super) fn find(&self, key: &Key, at: Versionstamp) -> Option<&Latest> {
        let mut kept = self.kept(*self.last.get(key)?)?;
        while kept.version.place > at {
            kept = self.towards(at, kept)?;
        }
        Some(&kept.version)
    }

    /// The next version to look at for what the key had at `at`, if this one is from later.
    fn towards(&self, at: Versionstamp, kept: &Kept) -> Option<&Kept> {
        let jumped = self.kept(kept.jump).filter(|jumped| jumped.version.place > at);
        jumped.or_else(|| self.kept(kept.earlier))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const KEYS: [&str; 3] = ["a", "b", "c"];

    fn version(place: u64) -> Latest {
        let (value, place) = (Some(Value::from(place.to_string())), Versionstamp(place));
        Latest { value, stamp: place, place }
    }

    fn found(overwritten: &Overwritten, key: &str, at: u64) -> Option<u64> {
        let found = overwritten.find(&Key::from(key), Versionstamp(at));
        found.map(|version| version.place.0)
    }

    #[test]
    fn a_read_finds_the_latest_version_that_is_not_after_it() {
        let mut overwritten = Overwritten::default();
        overwritten.add(&Key::from("a"), version(2), Versionstamp(5));
        overwritten.add(&Key::from("b"), version(0), Versionstamp(6));
        overwritten.add(&Key::from("a"), version(5), Versionstamp(9));
        let a = [1, 2, 4, 5, 8].map(|at| found(&overwritten, "a", at));
        assert_eq!(a, [None, Some(2), Some(2), Some(5), Some(5)]);
        assert_eq!(found(&overwritten, "b", 3), Some(0));
        overwritten.expire(Versionstamp(6));
        let a = [4, 5, 8].map(|at| found(&overwritten, "a", at));
        assert_eq!(a, [None, Some(5), Some(5)], "the first one was dropped");
        assert_eq!(found(&overwritten, "b", 3), Some(0), "whatever was dropped of other keys");
        overwritten.expire(Versionstamp(10));
        assert_eq!((overwritten.len(), overwritten.bytes), (0, 0));
    }

    #[test]
    fn all_versions_that_are_kept_are_found() {
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let mut overwritten = Overwritten::default();
        // What each key had from when on. What was overwritten before `expired` was dropped.
        let (mut had, mut expired) = ([const { Vec::new() }; 3], 0);
        for at in 1..5_000 {
            let of_key = if random.random_bool(0.9) { 0 } else { random.random_range(0..3) };
            let before = had[of_key].last().copied().unwrap_or(0);
            overwritten.add(&Key::from(KEYS[of_key]), version(before), Versionstamp(at));
            had[of_key].push(at);
            if random.random_ratio(1, 50) {
                expired = expired.max(at.saturating_sub(random.random_range(0..2_000)));
                overwritten.expire(Versionstamp(expired));
            }
            let of_key = random.random_range(0..3);
            let at = random.random_range(0..=at);
            let places = &had[of_key];
            let later = places.partition_point(|place| *place <= at);
            if later == places.len() {
                // The latest version is the one.
                continue;
            }
            let expected = later.checked_sub(1).map_or(0, |place| places[place]);
            let is_kept = places[later] >= expired;
            let found = found(&overwritten, KEYS[of_key], at);
            assert_eq!(found, is_kept.then_some(expected), "{} at {at}", KEYS[of_key]);
        }
    }

    #[test]
    fn a_version_of_a_key_with_many_is_found_in_few_steps() {
        let mut overwritten = Overwritten::default();
        for at in 1..100_000 {
            overwritten.add(&Key::from("a"), version(at - 1), Versionstamp(at));
            if at % 1000 == 0 {
                overwritten.expire(Versionstamp(at.saturating_sub(20_000)));
            }
        }
        for at in (79_000..99_999).step_by(97) {
            let (mut steps, mut kept) = (0, overwritten.kept.back().expect("there are many"));
            while kept.version.place > Versionstamp(at) {
                kept = overwritten.towards(Versionstamp(at), kept).expect("it is kept");
                steps += 1;
            }
            assert!(steps < 100, "{at}: {steps}");
        }
    }

    #[test]
    fn keys_of_which_nothing_is_kept_are_forgotten() {
        let mut overwritten = Overwritten::default();
        for at in 1..10_000 {
            let key = |at: u64| at.to_string();
            overwritten.add(&Key::from(key(at).as_str()), version(0), Versionstamp(at));
            if let Some(oldest) = at.checked_sub(11).filter(|oldest| *oldest > 0) {
                assert_eq!(found(&overwritten, &key(oldest), oldest), Some(0), "it is kept");
            }
            overwritten.expire(Versionstamp(at.saturating_sub(10)));
            assert!(overwritten.last.len() <= 2 * 12 + GONE_AT_MOST);
        }
    }

    #[test]
    fn few_bytes_are_kept() {
        let mut overwritten = Overwritten::default();
        let value = Some(Value::from(vec![7; 1 << 20].as_slice()));
        for at in 1..200 {
            let place = Versionstamp(at - 1);
            let version = Latest { value: value.clone(), stamp: place, place };
            overwritten.add(&Key::from("a"), version, Versionstamp(at));
        }
        assert!(overwritten.bytes <= BYTES_AT_MOST && overwritten.len() > 60);
        assert_eq!(found(&overwritten, "a", 100), None);
        assert_eq!(found(&overwritten, "a", 190), Some(190));
    }
}
