//! Measures how throughput drops when all clients die.

use serde::Serialize;

use crate::effort::Deaths;
use crate::point::SLOT;

/// How throughput dropped when all clients died.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Dip {
    /// Before, without the first half of that time.
    pub(crate) before_per_s: f64,
    /// In the worst [`SLOT`] after.
    pub(crate) lowest_per_s: f64,
    /// How long it was below nine tenths of its value before, in seconds.
    pub(crate) lasts_s: f64,
    /// In the last quarter of the time after.
    pub(crate) in_the_end_per_s: f64,
}

impl Dip {
    /// `over_time` is the throughput of each [`SLOT`] from the beginning.
    pub(crate) fn new(over_time: &[f64], deaths: Deaths) -> Dip {
        let mean = |slots: &[f64]| slots.iter().sum::<f64>() / slots.len().max(1) as f64;
        let slots = (deaths.at_s / SLOT.as_secs_f64()).ceil() as usize;
        let (before, after) = over_time.split_at(slots.min(over_time.len()));
        let before_per_s = mean(&before[before.len() / 2..]);
        let below = after.iter().filter(|slot| **slot < 0.9 * before_per_s).count();
        Dip {
            before_per_s,
            lowest_per_s: after.iter().copied().fold(before_per_s, f64::min),
            lasts_s: below as f64 * SLOT.as_secs_f64(),
            in_the_end_per_s: mean(&after[after.len() - after.len() / 4..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dip_is_relative_to_the_throughput_before_it() {
        let over_time = [0.0, 0.0, 100.0, 100.0, 40.0, 80.0, 95.0, 100.0];
        let found = Dip::new(&over_time, Deaths { at_s: 1.0, then_s: 1.0 });
        let expected =
            Dip { before_per_s: 100.0, lowest_per_s: 40.0, lasts_s: 0.5, in_the_end_per_s: 100.0 };
        assert_eq!(found, expected);
    }
}
