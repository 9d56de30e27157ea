//! How far the committed versions of one key have been read.

use serried_model::Version;
use smallvec::SmallVec;

use crate::versions::near_the_end;

/// The committed reads of one key, each from the version that it found up to the version of the
/// reader. A write that falls strictly within one would have been missed by it.
///
/// A stretch that lies within another says nothing more, and is not kept. So of all the reads of one version
/// only the latest reader counts, and of two stretches the one that begins later ends later: a write is
/// checked against one of them. Mostly they do not even overlap, as a committed read never contains a
/// committed write. But of the readers that find a key deleted, some find the delete and some find nothing at all.
/// This is 000 Fig. 5's `committed_reads`, bounded by the number of versions instead of reads.
#[derive(Clone, Debug, Default)]
pub struct ReadMarks {
    /// (version found, latest reader), ascending in both.
    marks: SmallVec<[(Version, Version); 1]>,
}

impl ReadMarks {
    /// Records that `reader` has found `found` and committed.
    pub fn record(&mut self, found: Version, reader: Version) {
        debug_assert!(found < reader, "{reader} read {found}, from its own future");
        let position = near_the_end(&self.marks, |(version, _)| *version < found);
        let within =
            |(version, latest): &(Version, Version)| *version <= found && reader <= *latest;
        let before = position.checked_sub(1).map(|before| &self.marks[before]);
        if before.is_some_and(within) || self.marks.get(position).is_some_and(within) {
            return;
        }
        let after = &self.marks[position..];
        let covered = after.iter().take_while(|(_, latest)| *latest <= reader).count();
        match covered {
            0 => self.marks.insert(position, (found, reader)),
            covered => {
                self.marks[position] = (found, reader);
                self.marks.drain(position + 1..position + covered);
            }
        }
    }

    /// Forgets the reads that can't miss a write at `version` or above.
    pub fn forget_before(&mut self, version: Version) {
        let old = self.marks.iter().take_while(|(_, reader)| *reader <= version).count();
        if old > 0 {
            self.marks.drain(..old);
        }
    }

    /// How many stretches are kept.
    pub fn len(&self) -> usize {
        self.marks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether a committed read would have missed a write at `version`.
    pub fn would_miss(&self, version: Version) -> bool {
        self.who_misses(version).is_some()
    }

    /// Whether it is kept that `reader` has found `found`.
    pub fn contains(&self, found: Version, reader: Version) -> bool {
        let position = near_the_end(&self.marks, |(version, _)| *version < found);
        self.marks.get(position) == Some(&(found, reader))
    }

    /// A committed read that would have missed a write at `version`: what it has found, and its reader. Of those that
    /// are kept it is the one that has found the latest, and also the one with the latest reader.
    pub fn who_misses(&self, version: Version) -> Option<(Version, Version)> {
        let after = near_the_end(&self.marks, |(found, _)| *found < version);
        self.marks[..after].last().filter(|(_, reader)| version < *reader).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn version(timestamp_us: u64) -> Version {
        Version { timestamp_us, coordinator: NodeId(0) }
    }

    #[test]
    fn a_write_is_missed_strictly_between_what_was_found_and_its_reader() {
        let mut marks = ReadMarks::default();
        marks.record(version(10), version(20));
        marks.record(version(0), version(5));
        marks.record(version(10), version(15));
        let missed = [4, 5, 7, 10, 11, 15, 19, 20, 21].map(|at| marks.would_miss(version(at)));
        assert_eq!(missed, [true, false, false, false, true, true, true, false, false]);
        let misses = [4, 5, 15].map(|at| marks.who_misses(version(at)));
        let read = |found, reader| Some((version(found), version(reader)));
        assert_eq!(misses, [read(0, 5), None, read(10, 20)]);
        assert!(marks.contains(version(0), version(5)) && marks.contains(version(10), version(20)));
        for (found, reader) in [(0, 4), (0, 6), (10, 15), (9, 20), (5, 20)] {
            assert!(!marks.contains(version(found), version(reader)), "{found} {reader}");
        }
        marks.forget_before(version(19));
        assert!(
            !marks.is_empty() && marks.would_miss(version(19)) && !marks.would_miss(version(4))
        );
        marks.forget_before(version(20));
        assert!(marks.is_empty());
    }

    #[test]
    fn any_of_several_overlapping_reads_can_miss_a_write() {
        let reads = [(10, 20), (0, 30), (10, 40), (5, 12), (35, 38), (0, 5), (36, 50)];
        // In all orders that are a rotation of this one, and back.
        for turn in 0..2 * reads.len() {
            let mut order = reads;
            order.rotate_left(turn / 2);
            if turn % 2 == 1 {
                order.reverse();
            }
            let mut marks = ReadMarks::default();
            for (done, (found, reader)) in order.into_iter().enumerate() {
                marks.record(version(found), version(reader));
                let missed = |at| order[..=done].iter().any(|(f, r)| *f < at && at < *r);
                for at in 0..60 {
                    assert_eq!(marks.would_miss(version(at)), missed(at), "{at} of {order:?}");
                }
            }
        }
    }
}
