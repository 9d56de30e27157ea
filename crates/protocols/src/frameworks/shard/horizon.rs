//! How long overwritten versions are kept.

use serried_actor::Settings;

use super::control::Keeps;
use super::message::AdmissionWindow;
use super::replica::WINDOW_US;

/// How long [`Keeps::Recent`] keeps overwritten versions at least, in microseconds. A read-only transaction that takes longer
/// may have to begin again.
const RECENT_US: u64 = 1_000_000;

/// From when on overwritten versions can be read. It follows from the log alone, so all replicas keep the same versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Horizon {
    /// No version that was overwritten can be read.
    Now,
    /// From the beginning of the window on.
    Admitted,
    /// From `kept_us` microseconds before now on. The window shows what time it is: it begins `lag_us` before now, or, under a
    /// new leader, where the window of the former one ended.
    Recent { lag_us: u64, kept_us: u64 },
}

impl Horizon {
    pub(super) fn of(keeps: Keeps, settings: &Settings) -> Horizon {
        match keeps {
            Keeps::Nothing => Horizon::Now,
            Keeps::Admitted => Horizon::Admitted,
            Keeps::Recent => Horizon::Recent {
                lag_us: settings.truncation_lag_ms.saturating_mul(1000),
                // Clocks that differ by as much as they may do not make a read too late.
                kept_us: (settings.history_ms.saturating_mul(1000))
                    .max(settings.uncertainty_us.saturating_mul(4).saturating_add(RECENT_US)),
            },
        }
    }

    /// The time as of which keys can be read, if overwritten versions are kept, in microseconds since the Unix epoch.
    pub(super) fn begins_us(self, window: AdmissionWindow) -> Option<u64> {
        match self {
            Horizon::Now => None,
            Horizon::Admitted => Some(window.from_us),
            Horizon::Recent { lag_us, kept_us } => {
                let by_begin_us = window.from_us.saturating_add(lag_us);
                let by_end_us = window.to_us.saturating_sub(WINDOW_US);
                Some(by_begin_us.min(by_end_us).saturating_sub(kept_us))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_versions_are_kept_by_the_earlier_end_of_the_window() {
        let settings =
            Settings { truncation_lag_ms: 10_000, history_ms: 3000, ..Settings::default() };
        let recent = Horizon::of(Keeps::Recent, &settings);
        let window = |from_us, to_us| AdmissionWindow { from_us, to_us, forget_us: 0 };
        let now_us = 50_000_000;
        let usual = window(now_us - 10_000_000, now_us + WINDOW_US);
        assert_eq!(recent.begins_us(usual), Some(now_us - 3_000_000));
        let new_leader = window(now_us + WINDOW_US, now_us + WINDOW_US);
        assert_eq!(recent.begins_us(new_leader), Some(now_us - 3_000_000));
        let far_end = window(now_us - 10_000_000, now_us + 2_000_000);
        assert_eq!(recent.begins_us(far_end), Some(now_us - 3_000_000));
        let short = Horizon::of(Keeps::Recent, &Settings::default());
        let uncertain_us = Settings::default().uncertainty_us;
        assert_eq!(short.begins_us(usual), Some(now_us - RECENT_US - 4 * uncertain_us));
        assert_eq!(Horizon::Admitted.begins_us(usual), Some(now_us - 10_000_000));
        assert_eq!(Horizon::Now.begins_us(usual), None);
    }
}
