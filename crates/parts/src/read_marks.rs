//! How far the committed versions of one key have been read.

use serried_model::Version;
use smallvec::SmallVec;

use crate::versions::near_the_end;

/// The committed reads of one key, each from the version that it found up to the version of the
/// reader. A write that falls strictly within one would have been missed by it.
///
/// Committed reads never contain a committed write, so of all the reads of one version only the
/// latest reader counts, and the stretches do not overlap: a write is checked against one of them.
/// This is 000 Fig. 5's `committed_reads`, bounded by the number of versions instead of reads.
#[derive(Clone, Debug, Default)]
pub struct ReadMarks {
    /// (version found, latest reader), ascending.
    marks: SmallVec<[(Version, Version); 1]>,
}

impl ReadMarks {
    /// Records that `reader` has found `found` and committed.
    pub fn record(&mut self, found: Version, reader: Version) {
        debug_assert!(found < reader, "{reader} read {found}, from its own future");
        let position = near_the_end(&self.marks, |(version, _)| *version < found);
        match self.marks.get_mut(position) {
            Some((version, latest)) if *version == found => *latest = (*latest).max(reader),
            _ => self.marks.insert(position, (found, reader)),
        }
    }

    /// Forgets the reads that can't miss a write at `version` or above.
    pub fn forget_before(&mut self, version: Version) {
        self.marks.retain(|(_, reader)| *reader > version);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether a committed read would have missed a write at `version`.
    pub fn would_miss(&self, version: Version) -> bool {
        let after = near_the_end(&self.marks, |(found, _)| *found < version);
        self.marks[..after].last().is_some_and(|(_, reader)| version < *reader)
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
        marks.forget_before(version(19));
        assert!(
            !marks.is_empty() && marks.would_miss(version(19)) && !marks.would_miss(version(4))
        );
        marks.forget_before(version(20));
        assert!(marks.is_empty());
    }
}
