//! What several processes saw, in one order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustix::time::{ClockId, clock_gettime};
use serried_history::{CallEvent, Event, EventKind, RegisterEvent};

use serried_session::Driver;

/// An event of a history.
pub(super) trait Timed {
    /// When it happened, in nanoseconds since what the clients of one machine agree on.
    fn time_ns(&self) -> u64;

    /// Whether something began with it.
    fn begins(&self) -> bool;
}

impl Timed for Event {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn begins(&self) -> bool {
        self.kind == EventKind::Invoke
    }
}

impl Timed for RegisterEvent {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn begins(&self) -> bool {
        self.kind == EventKind::Invoke
    }
}

impl Timed for CallEvent {
    fn time_ns(&self) -> u64 {
        self.time_ns
    }

    fn begins(&self) -> bool {
        self.kind == EventKind::Invoke
    }
}

/// The machine's monotonic time at a client's zero, in nanoseconds: what its history's times are counted
/// from, so that they can be compared with other processes'.
pub(super) fn epoch_ns(driver: &dyn Driver) -> u64 {
    let monotonic_ns = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let reading = || {
        let (before, now, after) = (monotonic_ns(), driver.now(), monotonic_ns());
        (after - before, before.saturating_sub(now.0))
    };
    // The reading that took least is off by least: by far less than a message takes.
    let best = (0..100).map(|_| reading()).min();
    best.map_or(0, |(_, epoch_ns)| epoch_ns)
}

/// One history in the order of time: each is in that order already, and of what happened at the same
/// moment, beginnings come first, as nothing is known to have ended before them.
pub(super) fn merged<E: Timed>(histories: Vec<Vec<E>>) -> Vec<E> {
    let mut histories: Vec<_> =
        histories.into_iter().map(|events| events.into_iter().peekable()).collect();
    let place = |event: &E, history: usize| Reverse((event.time_ns(), !event.begins(), history));
    let mut next: BinaryHeap<_> = histories
        .iter_mut()
        .enumerate()
        .filter_map(|(number, events)| Some(place(events.peek()?, number)))
        .collect();
    let mut merged = Vec::new();
    while let Some(Reverse((_, _, number))) = next.pop() {
        merged.extend(histories[number].next());
        next.extend(histories[number].peek().map(|event| place(event, number)));
    }
    merged
}

#[cfg(test)]
mod tests {
    use serried_history::RegisterOperation;

    use super::*;

    fn event(process: u64, time_ns: u64, kind: EventKind) -> RegisterEvent {
        let (operation, key) = (RegisterOperation::Read, 0);
        let (found, version, error) = (None, None, None);
        RegisterEvent { index: 0, kind, process, time_ns, key, operation, found, version, error }
    }

    #[test]
    fn what_begins_at_the_moment_at_which_something_ends_elsewhere_did_not_begin_after_it() {
        let (invoke, ok) = (EventKind::Invoke, EventKind::Ok);
        let one = vec![event(1, 10, invoke), event(1, 20, ok), event(1, 20, invoke)];
        let two = vec![event(2, 20, invoke), event(2, 30, ok)];
        let merged = merged(vec![one, two, Vec::new()]);
        let order: Vec<_> = merged.iter().map(|event| (event.process, event.kind)).collect();
        assert_eq!(order, [(1, invoke), (2, invoke), (1, ok), (1, invoke), (2, ok)]);
    }
}
