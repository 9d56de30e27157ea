//! Up to when transactions are forgotten.
//!
//! A leader reports to the others the time below which all transactions of its partition have ended, and below which no
//! other begins there. What is below the reports of all partitions has been executed everywhere.

use std::collections::BTreeMap;

use serried_actor::Settings;

use super::vertex::Window;

/// What a leader knows of the end of transactions.
#[derive(Debug)]
pub(crate) struct Horizon {
    /// By partition, the time below which its transactions have ended.
    over: BTreeMap<u16, u64>,
    /// The window that was proposed last.
    proposed: Window,
}

impl Horizon {
    /// Starts from the window that is in the log.
    pub(crate) fn new(chosen: Window) -> Horizon {
        Horizon { over: BTreeMap::new(), proposed: chosen }
    }

    /// What is or will be in the log.
    pub(crate) fn proposed(&self) -> Window {
        self.proposed
    }

    /// All transactions of a partition that began before this time have ended.
    pub(crate) fn is_over(&mut self, partition: u16, below_us: u64) {
        self.over.insert(partition, below_us);
    }

    /// The window that is to be proposed, if it is another one. There are so many partitions.
    pub(crate) fn advance(
        &mut self,
        partitions: u16,
        now_us: u64,
        settings: &Settings,
    ) -> Option<Window> {
        let is_complete = self.over.len() == usize::from(partitions);
        let all_us = self.over.values().copied().min().filter(|_| is_complete).unwrap_or(0);
        let ago = |ms: u64| now_us.saturating_sub(ms.saturating_mul(1000));
        let new = Window {
            from_us: ago(settings.truncation_lag_ms),
            forget_us: all_us.min(ago(settings.outcomes_ms)),
        };
        let new = new.and(self.proposed);
        (core::mem::replace(&mut self.proposed, new) != new).then_some(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leader_forgets_nothing_more_before_all_partitions_have_reported() {
        let settings = Settings { truncation_lag_ms: 1, outcomes_ms: 2, ..Settings::default() };
        let mut horizon = Horizon::new(Window { from_us: 5_000, forget_us: 4_000 });
        let mut forget_us = |partition: u16, below_us: u64| {
            horizon.is_over(partition, below_us);
            horizon.advance(3, 10_000, &settings);
            horizon.proposed().forget_us
        };
        assert_eq!([forget_us(0, 7_000), forget_us(2, 6_000)], [4_000; 2]);
        assert_eq!(forget_us(1, 9_000), 6_000);
    }
}
