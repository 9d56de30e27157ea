//! The times at which a client's waiting tasks are to be woken.

use core::task::Waker;
use std::collections::BTreeMap;

use serried_actor::Timestamp;

/// The alarms of one client. Each driver owns one set.
#[derive(Default)]
pub struct Alarms {
    wakers: BTreeMap<(Timestamp, u64), Waker>,
    latest: u64,
}

impl Alarms {
    /// Sets an alarm: the first [`Alarms::ring`] at or after `at` wakes `waker`. Returns a number that cancels the
    /// alarm.
    pub fn set(&mut self, at: Timestamp, waker: Waker) -> u64 {
        self.latest += 1;
        self.wakers.insert((at, self.latest), waker);
        self.latest
    }

    /// Undoes [`Alarms::set`].
    pub fn cancel(&mut self, at: Timestamp, alarm: u64) {
        self.wakers.remove(&(at, alarm));
    }

    /// When the next alarm is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.wakers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes every task whose alarm is due.
    pub fn ring(&mut self, now: Timestamp) {
        while let Some(entry) = self.wakers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            entry.remove().wake();
        }
    }
}
