//! The queue of future events.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use serried_actor::Timestamp;
use slab::Slab;

/// Events in the order of their times. Events of the same time come in the order in which they were scheduled.
///
/// Events stay in slots, so that only 16 bytes move about in the heap, whatever the size of an event.
pub(crate) struct Scheduler<E> {
    heap: BinaryHeap<Reverse<Entry>>,
    events: Slab<E>,
    sequence: u64,
}

/// From the top: 64 bits of time, 40 of sequence number, 24 of slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

const SEQUENCE_BITS: u32 = 40;
const SLOT_BITS: u32 = 24;

impl Entry {
    fn new(time: Timestamp, sequence: u64, slot: usize) -> Entry {
        let low = sequence << SLOT_BITS | slot as u64;
        Entry(u128::from(time.0) << 64 | u128::from(low))
    }

    fn time(self) -> Timestamp {
        Timestamp((self.0 >> 64) as u64)
    }

    fn slot(self) -> usize {
        self.0 as usize & ((1 << SLOT_BITS) - 1)
    }
}

impl<E> Scheduler<E> {
    pub(crate) fn new() -> Scheduler<E> {
        Scheduler { heap: BinaryHeap::new(), events: Slab::new(), sequence: 0 }
    }

    /// Schedules `event` for `time`, after everything that is already scheduled for it.
    ///
    /// # Panics
    /// If 2^24 events are waiting, or 2^40 have been scheduled.
    pub(crate) fn schedule(&mut self, time: Timestamp, event: E) {
        let slot = self.events.insert(event);
        assert!(slot < 1 << SLOT_BITS, "{slot} events are waiting: the load is not bounded");
        assert!(self.sequence < 1 << SEQUENCE_BITS, "no simulation is meant to run this long");
        self.heap.push(Reverse(Entry::new(time, self.sequence, slot)));
        self.sequence += 1;
    }

    /// The next event, unless it is after `limit`.
    pub(crate) fn next(&mut self, limit: Timestamp) -> Option<(Timestamp, E)> {
        let Reverse(entry) = *self.heap.peek()?;
        if entry.time() > limit {
            return None;
        }
        self.heap.pop();
        Some((entry.time(), self.events.remove(entry.slot())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut scheduler = Scheduler::new();
        for (time, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (u64::MAX, 'e'), (1, 'b')] {
            scheduler.schedule(Timestamp(time), event);
        }
        let all = core::iter::from_fn(|| scheduler.next(Timestamp(u64::MAX)));
        assert_eq!(all.map(|(_, event)| event).collect::<String>(), "abcde");
    }

    #[test]
    fn an_event_after_the_limit_stays() {
        let mut scheduler = Scheduler::new();
        scheduler.schedule(Timestamp(2), ());
        assert_eq!(scheduler.next(Timestamp(1)), None);
        assert_eq!(scheduler.next(Timestamp(2)), Some((Timestamp(2), ())));
    }
}
