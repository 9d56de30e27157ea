//! How much of a replica's log is durable.

use std::collections::VecDeque;

/// Flushes that are not known to be done, each with the position in the log up to which it makes records durable.
#[derive(Debug, Default)]
pub(crate) struct DurablePosition {
    flushes: VecDeque<(u64, u64)>,
    /// What the flushes before these have made durable.
    durable: u64,
}

impl DurablePosition {
    /// The records before `position` are durable with the flush `after`. Both ascend.
    pub(crate) fn note(&mut self, after: u64, position: u64) {
        match self.flushes.back_mut() {
            Some((flush, end)) if *flush == after => *end = position,
            _ => self.flushes.push_back((after, position)),
        }
    }

    /// The position before which all records are durable after so many flushes. `end` is where the log ends.
    pub(crate) fn get(&mut self, flushed: u64, end: u64) -> u64 {
        while let Some((flush, position)) = self.flushes.front()
            && *flush <= flushed
        {
            self.durable = *position;
            self.flushes.pop_front();
        }
        if self.flushes.is_empty() {
            self.durable = end;
        }
        self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_durable_once_its_flush_is_done() {
        let mut position = DurablePosition::default();
        assert_eq!(position.get(0, 7), 7, "what was replayed");
        position.note(3, 8);
        position.note(3, 9);
        position.note(4, 12);
        assert_eq!(position.get(2, 12), 7);
        assert_eq!(position.get(3, 12), 9);
        position.note(5, 13);
        assert_eq!(position.get(3, 13), 9);
        assert_eq!(position.get(5, 13), 13);
        assert_eq!(position.get(5, 14), 14, "nothing waits for a flush");
    }
}
