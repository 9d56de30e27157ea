//! The batches that were applied lately, and the versions that they have overwritten. Only the leader has them, in
//! memory.

use core::time::Duration;
use std::collections::VecDeque;

use serried_actor::Timestamp;
use serried_model::{Key, Value};
use serried_parts::Map;

use super::message::{Found, Mark, Version};

/// How many bytes of batches and overwritten versions are kept at most.
const BYTES_AT_MOST: usize = 64 << 20;
/// What a version or a batch takes up beside its key, its value and its numbers.
const OVERHEAD: usize = 96;
/// How many batches a read is told of at most: the latest ones.
const LISTED_AT_MOST: usize = 256;
/// How many bytes of overwritten values a read is sent at most, besides one value for each key: the latest ones.
const SENT_AT_MOST: usize = 256 << 10;

/// What was applied lately.
#[derive(Debug)]
pub(super) struct History {
    /// In the order of their numbers.
    batches: VecDeque<Past>,
    /// By key, what is overwritten by these batches, in the order of the numbers.
    overwritten: Map<Key, VecDeque<Version>>,
    versions: usize,
    bytes: usize,
    /// The last batch that is not kept.
    before: Mark,
    kept_for: Duration,
}

/// A batch that was applied.
#[derive(Debug)]
struct Past {
    mark: Mark,
    at: Timestamp,
    /// The keys of which it has overwritten a version, each once.
    keys: Vec<Key>,
}

fn size_of_version(key: &Key, version: &Version) -> usize {
    OVERHEAD + key.len() + value_bytes(version)
}

fn size_of_mark(mark: &Mark) -> usize {
    OVERHEAD + 8 * mark.highest.len()
}

fn value_bytes(version: &Version) -> usize {
    version.value.as_ref().map_or(0, Value::len)
}

impl History {
    /// Nothing is kept from before the end of the batch `before`.
    pub(super) fn new(before: Mark, kept_for: Duration) -> History {
        History {
            batches: VecDeque::new(),
            overwritten: Map::default(),
            versions: 0,
            bytes: 0,
            before,
            kept_for,
        }
    }

    /// A batch was applied. It has overwritten these versions, one for each key.
    pub(super) fn add(&mut self, mark: Mark, overwritten: Vec<(Key, Version)>, at: Timestamp) {
        self.bytes += size_of_mark(&mark);
        let mut keys = Vec::with_capacity(overwritten.len());
        for (key, version) in overwritten {
            self.bytes += size_of_version(&key, &version);
            self.versions += 1;
            self.overwritten.get_or_default(&key).push_back(version);
            keys.push(key);
        }
        self.batches.push_back(Past { mark, at, keys });
        while self.bytes > BYTES_AT_MOST {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(Past { mark, keys, .. }) = self.batches.pop_front() else { return };
        self.bytes -= size_of_mark(&mark);
        for key in keys {
            let versions = self.overwritten.get_mut(&key).expect("the key was overwritten");
            let version = versions.pop_front().expect("each batch has overwritten a version of it");
            self.bytes -= size_of_version(&key, &version);
            self.versions -= 1;
            if versions.is_empty() {
                self.overwritten.remove(&key);
            }
        }
        self.before = mark;
    }

    /// Drops what was applied long ago.
    pub(super) fn expire(&mut self, now: Timestamp) {
        while self.batches.front().is_some_and(|past| now.since(past.at) > self.kept_for) {
            self.drop_first();
        }
    }

    /// How many overwritten versions are kept.
    pub(super) fn versions(&self) -> usize {
        self.versions
    }

    /// What a read finds: what has happened since a number, or exactly the state at that number if that is wanted and
    /// known. `latest` has the latest version of each key, and `partitions` those of the transaction, in their order.
    pub(super) fn find(
        &self,
        (since, exact): (u64, bool),
        keys: &[Key],
        latest: Vec<Version>,
        partitions: &[u16],
    ) -> Found {
        let last = self.last_before(self.batches.len()).last;
        if exact && self.before.last <= since {
            let at = |(key, latest)| vec![self.version_at(since, key, latest)];
            let versions = keys.iter().zip(latest).map(at).collect();
            // What came later is not there.
            let last = last.min(since);
            return Found { last, complete_from: since, versions, marks: Vec::new() };
        }
        let (complete_from, listed_from) = self.cut(since, keys);
        let mark = |mark: &Mark| {
            let of = |partition: &u16| mark.highest.get(usize::from(*partition)).copied();
            let highest = partitions.iter().map(|partition| of(partition).unwrap_or_default());
            Mark { last: mark.last, highest: highest.collect() }
        };
        // It is a state that all of this says something about, as `since` is otherwise.
        let first = (complete_from > since).then(|| self.last_before(listed_from));
        let listed = self.batches.range(listed_from..).map(|past| &past.mark);
        let marks = first.into_iter().chain(listed).map(mark).collect();
        let versions = keys.iter().zip(latest);
        Found {
            last,
            complete_from,
            versions: versions
                .map(|(key, latest)| self.versions_from(complete_from, key, latest))
                .collect(),
            marks,
        }
    }

    /// The batch before the one with this index.
    fn last_before(&self, index: usize) -> &Mark {
        match index {
            0 => &self.before,
            _ => &self.batches[index - 1].mark,
        }
    }

    /// From which number on a read of these keys is told everything: from `since`, if that is not too much. And the
    /// index of the first batch after that.
    fn cut(&self, since: u64, keys: &[Key]) -> (u64, usize) {
        let mut complete_from = since.max(self.before.last);
        let mut index = self.batches.partition_point(|past| past.mark.last <= complete_from);
        if self.batches.len() - index > LISTED_AT_MOST {
            index = self.batches.len() - LISTED_AT_MOST;
            complete_from = self.last_before(index).last;
        }
        let of_key = |key| {
            let versions = self.overwritten.get(key)?;
            let later = versions.partition_point(|version| version.number <= complete_from);
            Some(versions.range(later..))
        };
        let size = |version: &Version| (version.number, value_bytes(version));
        let mut sizes: Vec<_> = keys.iter().filter_map(of_key).flatten().map(size).collect();
        sizes.sort_unstable();
        let mut bytes = 0;
        for (number, size) in sizes.into_iter().rev() {
            bytes += size;
            if bytes > SENT_AT_MOST {
                // The key has this version at the end of its batch.
                index = self.batches.partition_point(|past| past.mark.last < number) + 1;
                complete_from = self.last_before(index).last;
                break;
            }
        }
        (complete_from, index)
    }

    /// The version that a key had at this number.
    fn version_at(&self, number: u64, key: &Key, latest: Version) -> Version {
        if latest.number <= number {
            return latest;
        }
        let Some(versions) = self.overwritten.get(key) else { return Version::default() };
        let later = versions.partition_point(|version| version.number <= number);
        let version = later.checked_sub(1).and_then(|place| versions.get(place));
        version.cloned().unwrap_or_default()
    }

    /// The versions that a key had from this number on.
    fn versions_from(&self, complete_from: u64, key: &Key, latest: Version) -> Vec<Version> {
        if latest.number <= complete_from {
            return vec![latest];
        }
        let mut versions = Vec::new();
        if let Some(overwritten) = self.overwritten.get(key) {
            let later = overwritten.partition_point(|version| version.number <= complete_from);
            versions.extend(overwritten.range(later.saturating_sub(1)..).cloned());
        }
        versions.push(latest);
        versions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64, value: &str) -> Version {
        Version { number, value: Some(Value::from(value)) }
    }

    fn mark(last: u64) -> Mark {
        Mark { last, highest: vec![last, 2] }
    }

    fn key() -> Key {
        Key::from("x")
    }

    /// What was found of a key whose latest version has this number: the numbers of the versions and of the marks, and
    /// from where on they are complete.
    fn find(history: &History, since: u64, latest: u64) -> (Vec<u64>, Vec<u64>, u64) {
        let found = history.find((since, false), &[key()], vec![version(latest, "")], &[0]);
        let versions = found.versions[0].iter().map(|version| version.number).collect();
        assert!(found.marks.iter().all(|mark| mark.highest == [mark.last]));
        (versions, found.marks.iter().map(|mark| mark.last).collect(), found.complete_from)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_read_finds_what_the_key_had_then_and_all_that_came_later() {
        let mut history = History::new(mark(0), SECOND);
        assert_eq!(find(&history, 0, 0), (vec![0], vec![], 0), "nothing was ever written");
        let at = Timestamp(0);
        history.add(mark(3), vec![(key(), version(0, ""))], at);
        history.add(mark(5), vec![(Key::from("y"), version(0, ""))], at);
        history.add(mark(9), vec![(key(), version(2, "a"))], at);
        assert_eq!(find(&history, 0, 8), (vec![0, 2, 8], vec![3, 5, 9], 0));
        assert_eq!(find(&history, 3, 8), (vec![2, 8], vec![5, 9], 3));
        assert_eq!(find(&history, 4, 8), (vec![2, 8], vec![5, 9], 4));
        assert_eq!(find(&history, 9, 8), (vec![8], vec![], 9));
        assert_eq!(find(&history, 70, 8), (vec![8], vec![], 70));
    }

    #[test]
    fn what_is_not_kept_is_said() {
        let mut history = History::new(mark(4), SECOND);
        assert_eq!(find(&history, 0, 3), (vec![3], vec![4], 4), "a new leader knows one state");
        history.add(mark(5), vec![(key(), version(3, ""))], Timestamp(0));
        history.add(mark(6), vec![(key(), version(5, ""))], Timestamp(0) + SECOND);
        history.expire(Timestamp(0) + SECOND);
        assert_eq!(find(&history, 0, 6), (vec![3, 5, 6], vec![4, 5, 6], 4));
        history.expire(Timestamp(1) + SECOND);
        assert_eq!(find(&history, 0, 6), (vec![5, 6], vec![5, 6], 5));
        history.expire(Timestamp(1) + 2 * SECOND);
        assert_eq!(find(&history, 5, 6), (vec![6], vec![6], 6));
        assert_eq!((history.versions(), history.bytes), (0, 0));
    }

    #[test]
    fn a_read_is_told_of_few_batches() {
        let mut history = History::new(mark(0), SECOND);
        for number in 1..=1000 {
            history.add(mark(number), vec![(key(), version(number - 1, ""))], Timestamp(0));
        }
        let (versions, marks, complete_from) = find(&history, 0, 1000);
        let first = 1000 - LISTED_AT_MOST as u64;
        assert_eq!((versions[0], marks[0], complete_from), (first, first, first));
        assert_eq!((versions.len(), marks.len()), (LISTED_AT_MOST + 1, LISTED_AT_MOST + 1));
    }

    #[test]
    fn a_read_finds_exactly_the_state_at_a_number_however_much_has_happened_since() {
        let mut history = History::new(mark(4), SECOND);
        let long = "a".repeat(SENT_AT_MOST);
        for number in 5..=50 {
            history.add(mark(number), vec![(key(), version(number - 1, &long))], Timestamp(0));
        }
        let find = |since, exact| {
            let found = history.find((since, exact), &[key()], vec![version(50, "")], &[0]);
            (found.versions[0][0].number, found.complete_from, found.marks.len(), found.last)
        };
        assert_eq!(find(10, true), (10, 10, 0, 10));
        assert_eq!(find(50, true), (50, 50, 0, 50));
        assert_eq!(find(60, true), (50, 60, 0, 50));
        assert_eq!(find(4, true), (4, 4, 0, 4));
        assert!(find(10, false).1 > 10 && find(3, true).1 > 3, "it is not kept, or not sent");
    }

    #[test]
    fn a_read_is_sent_few_bytes_and_few_are_kept() {
        let mut history = History::new(mark(0), SECOND);
        let long = "a".repeat(SENT_AT_MOST / 4);
        // Batches of two writes; the second one is of this key.
        for number in 1..=50 {
            let before = version(2 * (number - 1), &long);
            history.add(mark(2 * number), vec![(key(), before)], Timestamp(0));
        }
        let (versions, marks, complete_from) = find(&history, 0, 100);
        assert_eq!(versions, [90, 92, 94, 96, 98, 100]);
        assert_eq!((marks[0], complete_from), (90, 90));
        let much = "a".repeat(1 << 20);
        for number in 51..=200 {
            let before = version(2 * (number - 1), &much);
            history.add(mark(2 * number), vec![(key(), before)], Timestamp(0));
        }
        assert!(history.bytes <= BYTES_AT_MOST && history.versions() > 60);
    }

    #[test]
    fn a_cut_is_at_the_end_of_a_batch() {
        let mut history = History::new(mark(0), SECOND);
        let long = "a".repeat(SENT_AT_MOST);
        history.add(mark(5), vec![(key(), version(0, &long))], Timestamp(0));
        history.add(mark(9), vec![(key(), version(2, &long))], Timestamp(0));
        history.add(mark(12), vec![(key(), version(7, &long))], Timestamp(0));
        assert_eq!(find(&history, 0, 11), (vec![2, 7, 11], vec![5, 9, 12], 5));
    }
}
