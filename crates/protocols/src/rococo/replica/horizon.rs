//! Up to when transactions are forgotten.
//!
//! A leader reports to the others the time below which all transactions of its partition have ended, and below which no
//! other begins there. What is below the reports of all partitions has been executed everywhere.

use std::collections::BTreeMap;

use serried_actor::Settings;

use super::super::Mutation;
use super::super::message::Window;
use crate::Mutated;

/// What a leader knows of the end of transactions.
#[derive(Debug)]
pub(super) struct Horizon {
    /// By partition, the time below which its transactions have ended.
    over: BTreeMap<u16, u64>,
    /// The window that was proposed last.
    proposed: Window,
}

impl Horizon {
    /// Starts from the window that is in the log.
    pub(super) fn new(chosen: Window) -> Horizon {
        Horizon { over: BTreeMap::new(), proposed: chosen }
    }

    /// What is or will be in the log.
    pub(super) fn proposed(&self) -> Window {
        self.proposed
    }

    /// All transactions of a partition that began before this time have ended.
    pub(super) fn is_over(&mut self, partition: u16, below_us: u64) {
        self.over.insert(partition, below_us);
    }

    /// The window that is to be proposed, if it is another one. There are so many partitions.
    pub(super) fn advance(
        &mut self,
        partitions: u16,
        now_us: u64,
        settings: &Settings,
        mutation: Mutated<Mutation>,
    ) -> Option<Window> {
        let is_complete = self.over.len() == usize::from(partitions);
        let all_us = self.over.values().copied().min().filter(|_| is_complete).unwrap_or(0);
        let ago = |ms: u64| now_us.saturating_sub(ms.saturating_mul(1000));
        let all_us = if mutation.is(Mutation::ForgetsEarly) { u64::MAX } else { all_us };
        let new = Window {
            from_us: ago(settings.truncation_lag_ms),
            forget_us: all_us.min(ago(settings.outcomes_ms)),
        };
        let new = new.and(self.proposed);
        (core::mem::replace(&mut self.proposed, new) != new).then_some(new)
    }
}
