//! The timers of one actor.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serried_actor::Timestamp;

/// Stale entries are removed from the queue when there are this many more of them than live ones.
const MOST_STALE: usize = 1024;

/// Named timers, each set at most once. Most timers guard against a lost message, and are unset long before they are
/// due. So unsetting a timer only forgets it, and leaves its entry in the queue stale.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    due: BTreeMap<T, Timestamp>,
    queue: BinaryHeap<Reverse<(Timestamp, T)>>,
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn new() -> Timers<T> {
        Timers { due: BTreeMap::new(), queue: BinaryHeap::new() }
    }

    /// Sets or moves a timer.
    pub(crate) fn set(&mut self, timer: T, at: Timestamp) {
        if self.due.insert(timer, at) == Some(at) {
            return;
        }
        if self.queue.len() > 2 * self.due.len() + MOST_STALE {
            let due = &self.due;
            self.queue.retain(|Reverse((at, timer))| due.get(timer) == Some(at));
        }
        self.queue.push(Reverse((at, timer)));
    }

    /// Unsets a timer.
    pub(crate) fn cancel(&mut self, timer: T) {
        self.due.remove(&timer);
    }

    /// How many are set.
    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// When the next one is due.
    pub(crate) fn next(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((at, timer))) = self.queue.peek() {
            if self.due.get(timer) == Some(at) {
                return Some(*at);
            }
            self.queue.pop();
        }
        None
    }

    /// Takes out the next one, if it is due by `now`.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, timer)) = self.queue.pop()?;
        self.due.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_once_in_the_order_in_which_they_are_due() {
        let mut timers = Timers::new();
        timers.set('b', Timestamp(2));
        timers.set('a', Timestamp(1));
        timers.set('c', Timestamp(9));
        assert_eq!(timers.next(), Some(Timestamp(1)));
        assert_eq!((timers.pop(Timestamp(5)), timers.pop(Timestamp(5))), (Some('a'), Some('b')));
        assert_eq!((timers.pop(Timestamp(5)), timers.next()), (None, Some(Timestamp(9))));
    }

    #[test]
    fn a_moved_timer_fires_at_its_new_time_only() {
        let mut timers = Timers::new();
        timers.set('a', Timestamp(1));
        timers.set('a', Timestamp(5));
        assert_eq!((timers.next(), timers.pop(Timestamp(4))), (Some(Timestamp(5)), None));
        timers.set('a', Timestamp(1));
        assert_eq!((timers.pop(Timestamp(9)), timers.pop(Timestamp(9))), (Some('a'), None));
    }

    #[test]
    fn a_timer_that_was_unset_does_not_fire() {
        let mut timers = Timers::new();
        timers.set('a', Timestamp(1));
        timers.cancel('a');
        assert_eq!((timers.len(), timers.next(), timers.pop(Timestamp(9))), (0, None, None));
    }

    #[test]
    fn the_queue_is_bounded_by_the_live_timers() {
        let mut timers = Timers::new();
        for at in 0..100_000 {
            timers.set(at % 7, Timestamp(1 + at));
            timers.cancel(at % 7);
        }
        assert!(timers.queue.len() <= MOST_STALE + 2);
    }
}
