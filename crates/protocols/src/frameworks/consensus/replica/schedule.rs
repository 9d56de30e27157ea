//! The schedule of tasks for the instances and reads that this replica coordinates.

use core::time::Duration;
use std::collections::BTreeSet;

use serried_actor::Timestamp;
use serried_model::Key;

use super::{Cx, Timer};
use crate::frameworks::consensus::instance::InstanceId;
use crate::frameworks::consensus::message::OperationId;

/// A scheduled task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Task {
    /// Check an instance that is led here: its messages should have been answered.
    Lead(Key, InstanceId),
    /// Ask about an instance that a committed one waits for.
    Inquire(Key, InstanceId),
    /// Check a read of a register: its messages should have been answered.
    Read(OperationId),
}

/// Tasks by the time at which they are due, with one timer for all of them.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    due: BTreeSet<(Timestamp, Task)>,
    /// When the timer goes off, if it is set.
    tick: Option<Timestamp>,
}

impl Schedule {
    /// Schedules a task. Returns when it is due.
    pub(super) fn at(&mut self, after: Duration, task: Task, cx: &mut Cx<'_>) -> Timestamp {
        let due = cx.now() + after;
        self.due.insert((due, task));
        if self.tick.is_none_or(|tick| due < tick) {
            self.tick = Some(due);
            cx.set_timer(Timer::Tick, after);
        }
        due
    }

    /// Begins to run tasks after the timer went off. The caller must call [`Schedule::next`] until
    /// it returns `None`.
    pub(super) fn begin_tick(&mut self) {
        self.tick = None;
    }

    /// The next task that is due. If none is, sets the timer for the first of the others.
    pub(super) fn next(&mut self, cx: &mut Cx<'_>) -> Option<Task> {
        let (due, _) = self.due.first()?;
        if *due > cx.now() {
            let (due, after) = (*due, due.since(cx.now()));
            self.tick = Some(due);
            cx.set_timer(Timer::Tick, after);
            return None;
        }
        self.due.pop_first().map(|(_, task)| task)
    }
}
