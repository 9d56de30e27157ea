//! A replica's states of keys: their values, executed instances, and results.

use core::time::Duration;

use serried_actor::{Store, Timestamp};
use serried_model::Key;
use serried_parts::{Cells, Stamped};

use super::{Cx, Timer};
use crate::frameworks::consensus::State;
use crate::frameworks::consensus::instance::Command;
use crate::frameworks::consensus::message::Record;

/// How often changed states are written to the store.
const STORE_EVERY: Duration = Duration::from_millis(10);
/// How many keys are written at a time, unless there are very many.
const STORED_AT_ONCE: usize = 256;
/// How often the log is trimmed while states keep changing.
const TRIM_EVERY: Duration = Duration::from_millis(200);

/// The states of a replica's keys.
#[derive(Debug)]
pub(super) struct States {
    pub(super) cells: Cells<State>,
    /// Whether reads and writes go to registers at a quorum.
    are_registers: bool,
    /// When the log was trimmed last.
    trimmed: Timestamp,
}

impl States {
    /// Creates an empty set of states. About `resident` of them stay in memory.
    pub(super) fn new(resident: usize, are_registers: bool) -> States {
        States { cells: Cells::new(resident), are_registers, trimmed: Timestamp(0) }
    }

    /// The state of a key.
    pub(super) fn get(&mut self, key: &Key, store: &dyn Store) -> &State {
        self.cells.get(key, store)
    }

    /// The value on which a command without predecessors is executed: the held value, if there are
    /// registers.
    pub(super) fn base(&mut self, key: &Key, store: &dyn Store) -> Option<Stamped> {
        self.are_registers.then(|| self.cells.get(key, store).held.clone())
    }

    /// Holds a value, durably, unless the key holds a later one.
    pub(super) fn hold(&mut self, key: &Key, stamped: &Stamped, cx: &mut Cx<'_>) {
        if self.cells.get(key, cx.store()).held.is_before(stamped) {
            let position = cx.log_position();
            self.cells.change(key, position, cx.store()).held.hold(stamped);
            cx.append(Record::Applied { key: key.clone(), stamped: stamped.clone() });
            store_soon(cx);
        }
    }

    /// Holds the values that a client brings.
    pub(super) fn hold_all(&mut self, brings: &[(Key, Stamped)], cx: &mut Cx<'_>) {
        for (key, stamped) in brings {
            self.hold(key, stamped, cx);
        }
    }

    /// Holds the values that the client of a command brings. This precedes every other step for the
    /// command.
    pub(super) fn take_in(&mut self, command: Option<&Command>, cx: &mut Cx<'_>) {
        self.hold_all(command.map_or(&[][..], |command| &command.brings), cx);
    }

    /// Restores a value from a record.
    pub(super) fn replay_held(&mut self, key: &Key, stamped: &Stamped, store: &mut dyn Store) {
        let mut state = self.cells.get(key, store).clone();
        if state.held.hold(stamped) {
            self.cells.put(key, state, store);
        }
    }

    /// Writes some changed states to the store. Returns whether to trim the log now.
    pub(super) fn store_some(&mut self, cx: &mut Cx<'_>) -> bool {
        if !cx.store().is_behind() {
            let at_once = STORED_AT_ONCE.max(self.cells.unstored() / 64);
            self.cells.store_some(at_once, cx.store());
        }
        let trims = self.cells.unstored() == 0 || self.trimmed + TRIM_EVERY <= cx.now();
        if trims {
            self.trimmed = cx.now();
        }
        trims
    }

    /// Sets the timer for the remaining states. If there are none, the log is trimmed again as long
    /// as there are `instances`.
    pub(super) fn store_later(&self, instances: bool, cx: &mut Cx<'_>) {
        if self.cells.unstored() > 0 {
            cx.set_timer(Timer::Store, STORE_EVERY);
        } else if instances {
            cx.set_timer(Timer::Store, TRIM_EVERY);
        }
    }
}

/// Schedules a write of changed states to the store.
pub(super) fn store_soon(cx: &mut Cx<'_>) {
    cx.set_timer(Timer::Store, STORE_EVERY);
}
