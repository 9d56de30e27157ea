//! Entries that are not durable yet.

use std::collections::VecDeque;

/// Slots whose entries are in records that are not known to be durable.
#[derive(Debug, Default)]
pub(super) struct Undurable {
    /// Positions that the durable log has to reach, ascending, each with the first slot of the
    /// entries that are durable then.
    records: VecDeque<(u64, u64)>,
}

impl Undurable {
    /// Records that the entries from a slot on are in a record before `position` of the durable
    /// log.
    pub(super) fn note(&mut self, first: u64, position: u64) {
        self.records.push_back((position, first));
    }

    /// The first slot whose entry may not be durable, if the durable log reaches to a position.
    pub(super) fn first(&mut self, durable: u64) -> u64 {
        while self.records.front().is_some_and(|(position, _)| *position <= durable) {
            self.records.pop_front();
        }
        self.records.iter().map(|(_, first)| *first).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_is_accepted_again_is_durable_when_its_last_record_is() {
        let mut undurable = Undurable::default();
        assert_eq!(undurable.first(0), u64::MAX);
        undurable.note(3, 10);
        undurable.note(5, 11);
        assert_eq!(undurable.first(9), 3);
        undurable.note(2, 12);
        assert_eq!((undurable.first(10), undurable.first(11)), (2, 2));
        assert_eq!(undurable.first(12), u64::MAX);
    }
}
