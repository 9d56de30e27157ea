//! A node's cores.

use std::collections::VecDeque;

/// Jobs wait for a free core in order of arrival. A job's handler runs when service starts, and its effects are
/// released when service ends. They are released in the order in which the handlers ran, because a later handler builds
/// on the state that an earlier one left.
pub(crate) struct Processor<J, E> {
    cores: usize,
    busy: usize,
    waiting: VecDeque<J>,
    /// Services in progress, and finished ones that wait for an earlier one, in the order of their start.
    in_service: VecDeque<Service<E>>,
    /// The number of the first service in `in_service`.
    first: u64,
    busy_ns: u64,
    longest_queue: usize,
}

struct Service<E> {
    ended: bool,
    effects: E,
}

impl<J, E> Processor<J, E> {
    pub(crate) fn new(cores: usize) -> Processor<J, E> {
        assert!(cores > 0, "a node without a core serves nothing");
        Processor {
            cores,
            busy: 0,
            waiting: VecDeque::new(),
            in_service: VecDeque::new(),
            first: 0,
            busy_ns: 0,
            longest_queue: 0,
        }
    }

    /// Whether a core is free.
    pub(crate) fn is_free(&self) -> bool {
        self.busy < self.cores
    }

    /// Whether nothing is being served or waits to be released.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_service.is_empty()
    }

    /// Puts a job into the queue for a core.
    pub(crate) fn wait(&mut self, job: J) {
        self.waiting.push_back(job);
        self.longest_queue = self.longest_queue.max(self.waiting.len());
    }

    /// Removes the job that has waited longest, if a core is free.
    pub(crate) fn next_waiting(&mut self) -> Option<J> {
        if self.is_free() { self.waiting.pop_front() } else { None }
    }

    /// Whether a job waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Removes all jobs that wait, for a process that serves them all in its turn.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<J> {
        core::mem::take(&mut self.waiting)
    }

    /// Adds to the time for which cores were occupied.
    pub(crate) fn add_busy(&mut self, ns: u64) {
        self.busy_ns += ns;
    }

    /// Occupies a core for `cost_ns`. Returns the number to pass to [`Processor::end`].
    pub(crate) fn start(&mut self, cost_ns: u64, effects: E) -> u64 {
        self.busy += 1;
        self.busy_ns += cost_ns;
        self.in_service.push_back(Service { ended: false, effects });
        self.first + self.in_service.len() as u64 - 1
    }

    /// Adds the effects of a job that took no time, to be released in order.
    pub(crate) fn pass(&mut self, effects: E) {
        self.in_service.push_back(Service { ended: true, effects });
    }

    /// Frees the core of this service.
    pub(crate) fn end(&mut self, number: u64) {
        self.busy -= 1;
        self.in_service[(number - self.first) as usize].ended = true;
    }

    /// The next effects to release.
    pub(crate) fn release(&mut self) -> Option<E> {
        if !self.in_service.front()?.ended {
            return None;
        }
        self.first += 1;
        self.in_service.pop_front().map(|service| service.effects)
    }

    /// Forgets everything that waits or is being served.
    pub(crate) fn clear(&mut self) {
        self.busy = 0;
        self.waiting.clear();
        self.first += self.in_service.len() as u64;
        self.in_service.clear();
    }

    /// The total time for which cores were occupied, in nanoseconds.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// The greatest number of jobs that ever waited.
    pub(crate) fn longest_queue(&self) -> usize {
        self.longest_queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_released_in_the_order_in_which_handlers_ran() {
        let mut processor = Processor::<(), char>::new(2);
        let slow = processor.start(10, 'a');
        let fast = processor.start(1, 'b');
        processor.pass('c');
        assert!(!processor.is_free());
        processor.end(fast);
        assert!(processor.is_free());
        assert_eq!(processor.release(), None);
        processor.end(slow);
        let released: String = core::iter::from_fn(|| processor.release()).collect();
        assert_eq!((released.as_str(), processor.busy_ns()), ("abc", 11));
    }

    #[test]
    fn jobs_are_served_in_order_of_arrival_while_a_core_is_free() {
        let mut processor = Processor::new(1);
        processor.wait('a');
        processor.wait('b');
        assert_eq!(processor.next_waiting(), Some('a'));
        let number = processor.start(1, ());
        assert_eq!(processor.next_waiting(), None);
        processor.end(number);
        assert_eq!(processor.next_waiting(), Some('b'));
        assert_eq!(processor.longest_queue(), 2);
    }
}
