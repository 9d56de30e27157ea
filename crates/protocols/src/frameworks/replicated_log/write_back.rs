//! Writing applied state to the store, in the background.
//!
//! Writing a key after every change would repeat the writes of keys that change often. So a key is
//! written some time after a change, together with later ones. Until then its changes can be
//! replayed from the durable log, which is kept for them.

use core::time::Duration;
use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serried_actor::{Actor, Context};
use serried_parts::Cells;

/// How often some keys are written to the store.
const EVERY: Duration = Duration::from_millis(20);
/// How many keys are written at a time, unless there are very many.
const WRITTEN_AT_ONCE: usize = 512;
/// How many periods of [`EVERY`] pass before a changed key is written.
const WRITTEN_AFTER: usize = 50;
/// How many periods of [`EVERY`] pass between two marks in the log.
const TRIM_EVERY: usize = 10;

const _: () = assert!(
    TRIM_EVERY <= WRITTEN_AFTER,
    "the log is trimmed at least as often as a key that changes is written"
);

/// The schedule for writing keys to the store and trimming the durable log.
#[derive(Debug, Default)]
pub struct WriteBack {
    /// The end of the durable log at each of the last writes.
    positions: VecDeque<u64>,
    /// How often keys were written since the log was last trimmed.
    untrimmed: usize,
}

impl WriteBack {
    /// Sets the timer for writing keys.
    pub fn schedule<A: Actor>(timer: A::Timer, cx: &mut Context<'_, A>) {
        cx.set_timer(timer, EVERY);
    }

    /// Writes keys that were changed long ago. Returns whether it is time to trim the log.
    pub fn write<S, A>(&mut self, cells: &mut Cells<S>, cx: &mut Context<'_, A>) -> bool
    where
        S: Default + Serialize + DeserializeOwned,
        A: Actor,
    {
        self.positions.push_back(cx.log_position());
        if self.positions.len() > WRITTEN_AFTER {
            let before = self.positions.pop_front().expect("there are enough positions");
            if !cx.store().is_behind() {
                let mut left = WRITTEN_AT_ONCE.max(cells.unstored() / WRITTEN_AFTER);
                while left > 0 && cells.needs_log_from().is_some_and(|first| first < before) {
                    cells.store_some(1, cx.store());
                    left -= 1;
                }
            }
        }
        self.untrimmed = (self.untrimmed + 1) % TRIM_EVERY;
        self.untrimmed == 0
    }
}
