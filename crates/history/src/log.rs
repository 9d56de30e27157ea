//! The common part of the recorders: a list of events under a lock, or a stream of lines.

use core::fmt;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// An event that has an index in the history.
pub(crate) trait Numbered {
    fn number(&mut self, index: u64);
}

/// Events in the order in which they arrive, from any number of threads.
#[derive(Debug)]
pub(crate) struct EventLog<E> {
    events: Mutex<Events<E>>,
}

struct Events<E> {
    /// The events in memory: all, or none if they are written to a stream.
    kept: Vec<E>,
    count: u64,
    out: Option<Box<dyn Write + Send>>,
}

impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} kept in memory", self.count, self.kept.len())
    }
}

impl<E> Default for EventLog<E> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<E> EventLog<E> {
    pub(crate) fn with_capacity(events: usize) -> Self {
        let kept = Vec::with_capacity(events);
        EventLog { events: Mutex::new(Events { kept, count: 0, out: None }) }
    }

    /// Keeps no events in memory. Each event is written to `out` before the call that pushes it returns.
    pub(crate) fn writing_to(out: impl Write + Send + 'static) -> Self {
        let out: Option<Box<dyn Write + Send>> = Some(Box::new(out));
        EventLog { events: Mutex::new(Events { kept: Vec::new(), count: 0, out }) }
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().count as usize
    }

    pub(crate) fn kept(&self) -> Vec<E>
    where
        E: Clone,
    {
        self.lock().kept.clone()
    }

    pub(crate) fn into_kept(self) -> Vec<E> {
        self.events.into_inner().unwrap_or_else(PoisonError::into_inner).kept
    }

    /// A push that panics leaves the events intact, so a poisoned lock is no problem.
    fn lock(&self) -> MutexGuard<'_, Events<E>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Numbered + Serialize> EventLog<E> {
    pub(crate) fn push(&self, mut event: E) {
        let mut events = self.lock();
        event.number(events.count);
        events.count += 1;
        match &mut events.out {
            None => events.kept.push(event),
            Some(out) => {
                let mut line = serde_json::to_vec(&event).expect("an event is JSON");
                line.push(b'\n');
                out.write_all(&line).expect("a history can be written");
            }
        }
    }
}
