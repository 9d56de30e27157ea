//! Admission of transactions by their times.

use std::collections::VecDeque;

use serried_actor::Settings;

use super::super::message::{AdmissionWindow, Entry};
use crate::frameworks::replicated_log::Span;

/// How far a window extends beyond the current time, in microseconds. After a pause, the first
/// transaction may have to wait until the window is extended.
pub(in super::super) const WINDOW_US: u64 = 200_000;
/// The same if commits wait for their moments. A new leader's first transactions begin after the window of the former one, and
/// wait for that time.
const SHORT_WINDOW_US: u64 = 50_000;

/// Whether a leader admits an unknown transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Its time lies within the window.
    Taken,
    /// The window must be extended first, or the clocks of a majority must become known.
    Waits,
    /// Its time lies before the window.
    Late,
    /// Its time is ahead of the clocks by more than clocks may differ.
    Skewed {
        /// By how much it is ahead, in microseconds.
        ahead_us: i64,
    },
    /// The replicas' clocks disagree on whether it is skewed. It gets no answer, and the client sends it again.
    Unclear,
}

/// Proposes admission windows.
#[derive(Debug)]
pub(super) struct Windows {
    /// The window that was proposed last.
    proposed: AdmissionWindow,
    /// By how much clocks may differ, in microseconds.
    bound_us: u64,
    /// How far a window extends beyond the current time, in microseconds.
    length_us: u64,
    /// For how long a transaction may run, in microseconds.
    lag_us: u64,
}

impl Windows {
    /// Starts from the window that is in the log. No later one is proposed.
    pub(super) fn new(chosen: AdmissionWindow, settings: &Settings) -> Windows {
        Windows {
            proposed: chosen,
            bound_us: settings.clock_bound_ms.saturating_mul(1000),
            length_us: WINDOW_US,
            lag_us: settings.truncation_lag_ms.saturating_mul(1000),
        }
    }

    /// The windows of a shard whose commits wait for their moments. Reads at timestamps may begin later than their clients'
    /// clocks show, by the uncertainty, and both clocks may be off by as much.
    #[must_use]
    pub(super) fn with_commit_wait(self, settings: &Settings) -> Windows {
        let bound_us = self.bound_us.saturating_add(settings.uncertainty_us.saturating_mul(3));
        Windows { bound_us, length_us: SHORT_WINDOW_US, ..self }
    }

    /// By how much clocks may differ, in microseconds.
    pub(super) fn bound_us(&self) -> u64 {
        self.bound_us
    }

    /// The beginning of the window that was proposed last.
    pub(super) fn begin_us(&self) -> u64 {
        self.proposed.from_us
    }

    /// The latest admissible time of a transaction if the current time is `time_us`, one end of
    /// `time`. If clocks were ahead when a former leader extended its window, this leader's window
    /// begins later than correct clocks and the bound allow. Then the bound counts from the
    /// beginning of the window, because clients that know of the window begin there.
    fn allowed_us(&self, time_us: u64, time: Span, chosen: AdmissionWindow) -> u64 {
        let is_ahead = chosen.from_us > time.latest_us.saturating_add(self.bound_us);
        let since_us = if is_ahead { chosen.from_us } else { time_us };
        since_us.saturating_add(self.bound_us)
    }

    /// Whether a transaction that begins at `us` is admitted. If the window must be extended, adds
    /// the entry to `unproposed`. `chosen` is the window that is in the log, and `time` the current
    /// time if it is known.
    pub(super) fn admit(
        &mut self,
        us: u64,
        chosen: AdmissionWindow,
        time: Option<Span>,
        unproposed: &mut VecDeque<Entry>,
    ) -> Admission {
        if us < chosen.from_us {
            return Admission::Late;
        }
        if us < chosen.to_us {
            return Admission::Taken;
        }
        // An entry after a proposed window could no longer refuse it.
        if us < self.proposed.to_us {
            return Admission::Waits;
        }
        let Some(time) = time else { return Admission::Waits };
        let Span { earliest_us, latest_us } = time;
        if us <= self.allowed_us(earliest_us, time, chosen) {
            self.propose(self.beyond(us, time, chosen), unproposed);
            return Admission::Waits;
        }
        if us <= self.allowed_us(latest_us, time, chosen) {
            return Admission::Unclear;
        }
        Admission::Skewed { ahead_us: us.saturating_sub(latest_us) as i64 }
    }

    /// A window that extends beyond `us` and beyond the current time.
    ///
    /// The next leader admits no unknown transaction whose time lies before the end of this window.
    /// So the window ends no later than a majority's clocks and the bound allow. Then clients with
    /// correct clocks can continue at once.
    fn beyond(&self, us: u64, time: Span, chosen: AdmissionWindow) -> AdmissionWindow {
        let earliest_us = time.earliest_us;
        let allowed_us = self.allowed_us(earliest_us, time, chosen);
        let allowed_us = allowed_us.max(earliest_us.saturating_add(self.length_us));
        let wanted_us = us.max(earliest_us).saturating_add(self.length_us).min(allowed_us);
        let to_us = chosen.to_us.max(wanted_us).max(us.saturating_add(1));
        let from_us = chosen.from_us.max(earliest_us.saturating_sub(self.lag_us).min(to_us));
        AdmissionWindow { from_us, to_us, forget_us: chosen.forget_us }
    }

    /// Allows that outcomes of transactions that began before `forget_us` are forgotten.
    pub(super) fn forget(
        &mut self,
        forget_us: u64,
        chosen: AdmissionWindow,
        time: Span,
        unproposed: &mut VecDeque<Entry>,
    ) {
        let window = self.beyond(0, time, chosen);
        let forget_us = forget_us.max(window.forget_us);
        self.propose(AdmissionWindow { forget_us, ..window }, unproposed);
    }

    /// Stops admitting unknown transactions that began before `from_us`.
    pub(super) fn close_before(
        &mut self,
        from_us: u64,
        chosen: AdmissionWindow,
        unproposed: &mut VecDeque<Entry>,
    ) {
        let from_us = from_us.min(chosen.to_us);
        self.propose(AdmissionWindow { from_us, ..chosen }, unproposed);
    }

    /// Proposes a window. It never takes back what an earlier one granted.
    fn propose(&mut self, window: AdmissionWindow, unproposed: &mut VecDeque<Entry>) {
        self.proposed = self.proposed.and(window);
        unproposed.push_back(Entry::Window(self.proposed));
    }
}
