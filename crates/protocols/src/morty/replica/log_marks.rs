//! How much of the log is still needed.

use std::collections::VecDeque;

use serried_model::Version;

use super::Cx;
use crate::morty::record::Record;

/// Positions of the log, each with the latest version that a record before it concerns. The log before a position can be
/// given up if no record there concerns anything at or above the horizon, because everything below it is in the store.
#[derive(Debug, Default)]
pub(super) struct LogMarks {
    /// Positions and versions in microseconds, both ascending.
    marks: VecDeque<(u64, u64)>,
    /// The latest version in the log, in microseconds.
    reaches: u64,
}

impl LogMarks {
    /// Makes a record durable.
    pub(super) fn append(&mut self, record: Record, cx: &mut Cx) {
        self.note(&record);
        cx.append(record);
    }

    /// Notes a record that is in the log.
    pub(super) fn note(&mut self, record: &Record) {
        let version_us = match record {
            Record::Voted { version, .. }
            | Record::Confirmed { version, .. }
            | Record::Waits { version, .. }
            | Record::Promised { version, .. }
            | Record::Accepted { version, .. }
            | Record::Committed { version, contents: None, .. }
            | Record::Aborted { version } => version.timestamp_us,
            // What has overwritten it may be known from here alone.
            Record::Committed { version, contents: Some(contents), .. } => {
                let by = contents.overwritten.iter().map(|it| it.by.version);
                by.fold(*version, Version::max).timestamp_us
            }
            Record::Stopped { upto }
            | Record::Copying { upto, .. }
            | Record::Truncated { upto, .. } => *upto,
            Record::Merging { ballot, .. } => ballot.upto,
            Record::Floor { floor } => *floor,
            Record::Forgotten { horizon } => *horizon,
            Record::Replaces => 0, // The log is not trimmed while this holds.
        };
        self.reaches = self.reaches.max(version_us);
    }

    /// The latest version in the log, in microseconds.
    pub(super) fn reaches(&self) -> u64 {
        self.reaches
    }

    /// Notes where the log ends now.
    pub(super) fn mark(&mut self, position: u64) {
        if self.marks.back().is_none_or(|(last, _)| *last < position) {
            self.marks.push_back((position, self.reaches));
        }
    }

    /// The last position before which no record concerns anything at or above `horizon`. `None` if there is no new one.
    pub(super) fn pass(&mut self, horizon: u64) -> Option<u64> {
        let mut position = None;
        while let Some((before, highest)) = self.marks.front()
            && *highest < horizon
        {
            position = Some(*before);
            self.marks.pop_front();
        }
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_trimmed_to_where_everything_before_is_below_the_horizon() {
        let mut marks = LogMarks::default();
        for (position, version_us) in [(1, 5), (1, 9), (3, 7), (4, 20)] {
            marks.note(&Record::Aborted { version: Version::at(version_us) });
            marks.mark(position);
        }
        assert_eq!(
            [5, 6, 10, 10, 21].map(|horizon| marks.pass(horizon)),
            [None, Some(1), Some(3), None, Some(4)]
        );
        assert_eq!(marks.reaches(), 20);
    }

    #[test]
    fn what_overwrites_something_keeps_it_in_the_log() {
        use crate::morty::message::{Contents, Overwritten};
        use serried_parts::WriteId;
        let by = WriteId { version: Version::at(20), tag: 1 };
        let overwritten = vec![Overwritten { key: "k".into(), tag: Some(1), by, value: None }];
        let contents = Some(std::sync::Arc::new(Contents { overwritten, ..Contents::default() }));
        let mut marks = LogMarks::default();
        marks.note(&Record::Committed { version: Version::at(5), eid: 0, contents });
        marks.mark(1);
        assert_eq!([20, 21].map(|horizon| marks.pass(horizon)), [None, Some(1)]);
    }
}
