//! How calls ended, as far as a workload's clients know.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serried_procedures::Results;
use serried_session::CallError;

use crate::Failure;

/// Counts what calls add to something.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// What all calls together would add.
    begun: AtomicU64,
    /// What those add that took effect.
    done: AtomicU64,
    /// What those would have added that certainly did not.
    without_effect: AtomicU64,
    /// What was there before.
    before: AtomicI64,
}

impl Tally {
    pub(super) fn begin(&self, amount: u64) {
        self.begun.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn end(&self, amount: u64, result: &Result<Results, CallError>) {
        let tally = match result {
            Ok(_) => &self.done,
            Err(error) if error.is_unknown() => return,
            Err(_) => &self.without_effect,
        };
        tally.fetch_add(amount, Ordering::Relaxed);
    }

    pub(super) fn set_before(&self, before: i64) {
        self.before.store(before, Ordering::Relaxed);
    }

    /// What was there before.
    pub(super) fn before(&self) -> i64 {
        self.before.load(Ordering::Relaxed)
    }

    /// What was added: at least what was acknowledged, and at most that and what is of unknown outcome.
    pub(super) fn bounds(&self) -> (i64, i64) {
        let [begun, done, without_effect] = [&self.begun, &self.done, &self.without_effect]
            .map(|tally| tally.load(Ordering::Relaxed));
        (done as i64, (begun - without_effect) as i64)
    }
}
