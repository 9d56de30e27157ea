//! A leader's concurrency control, with the events that it has reported.

use std::sync::Arc;

use serried_actor::{ClockInterval, Store};
use serried_model::Version;

use super::super::calls::Ran;
use super::super::control::{Control, Desk, Event};
use super::super::message::{Item, Shot};
use super::super::program::Program;
use super::super::stamp::Validity;
use super::super::table::Table;

/// A leader's concurrency control.
#[derive(Debug)]
pub(super) struct Controlled<C> {
    control: C,
    /// Reported events that the leader has not handled.
    events: Vec<Event>,
    /// How many shots were executed.
    executed: u64,
    /// How many of them had to wait for other transactions to end.
    delayed: u64,
    /// How many rows programs have read since this was last taken.
    rows_read: usize,
}

impl<C: Control> Controlled<C> {
    pub(super) fn new(control: C) -> Controlled<C> {
        Controlled { control, events: Vec::new(), executed: 0, delayed: 0, rows_read: 0 }
    }

    /// Runs `act` on the control.
    pub(super) fn act<T>(
        &mut self,
        table: &mut Table,
        (store, clock): (&dyn Store, ClockInterval),
        act: impl FnOnce(&mut C, &mut Desk<'_>) -> T,
    ) -> T {
        let mut desk = Desk::new(table, store, &mut self.events, clock);
        let acted = act(&mut self.control, &mut desk);
        self.rows_read += desk.rows_read();
        acted
    }

    /// Executes a shot, with its program if it has one.
    pub(super) fn execute(
        &mut self,
        shot: &Shot,
        program: Option<Arc<dyn Program>>,
        table: &mut Table,
        at: (&dyn Store, ClockInterval),
    ) {
        self.act(table, at, |control, desk| match program {
            Some(program) => control.run(shot, program, desk),
            None => control.execute(shot, desk),
        });
        let (txn, is_last) = (shot.txn, shot.participants.is_some());
        let at_once = self.events.iter().any(|event| match event {
            Event::Released(of, released) => *of == txn && *released == shot.number,
            Event::Settled(of) => *of == txn && is_last,
            Event::Refused(of, _) => *of == txn,
            Event::Executed(_) => false,
        });
        self.executed += 1;
        self.delayed += u64::from(!at_once);
    }

    /// Exchanges the handled events for new ones. Returns false if there are none.
    pub(super) fn next_events(&mut self, taken_in: &mut Vec<Event>) -> bool {
        if self.events.is_empty() {
            return false;
        }
        taken_in.clear();
        core::mem::swap(taken_in, &mut self.events);
        true
    }

    /// The part of a transaction whose last shot was executed. Returns `None` if it has been
    /// refused since.
    pub(super) fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        self.control.part(txn)
    }

    /// What programs have returned: see [`Control::ran`].
    pub(super) fn ran(&self, txn: Version, shot: Option<u16>) -> Ran {
        self.control.ran(txn, shot)
    }

    /// How many rows programs have read since the last call.
    pub(super) fn take_rows_read(&mut self) -> usize {
        core::mem::take(&mut self.rows_read)
    }

    pub(super) fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("shots_executed", self.executed);
        each("shots_delayed", self.delayed);
    }
}
