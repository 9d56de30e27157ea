//! Which transactions a leader takes, by their times.

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Entry, Message, Window};
use super::Replica;
use super::leader::Shard;
use crate::frameworks::replicated_log::{Span, Time};

/// How far a window reaches ahead of the time, in microseconds. After a pause, the first transaction may have to wait until
/// the window is extended.
const WINDOW_US: u64 = 200_000;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// Whether a leader takes a transaction that it does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Its time lies within the window.
    Taken,
    /// The window must be extended first, or a majority's clocks must become known.
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

impl<C: Control> Shard<C> {
    /// The time by the clocks of a majority, if they are known.
    pub(super) fn time(&self, cx: &Cx<'_, C>) -> Option<Span> {
        self.clocks.time(cx.clock().midpoint_us(), cx.now())
    }

    fn bound_us(&self) -> u64 {
        self.settings.clock_bound_ms.saturating_mul(1000)
    }

    /// The latest time of a transaction that is allowed at `time_us`, one end of `time`. If clocks were ahead when a former
    /// leader extended its window, this leader's window begins later than any right clock and the bound allow. Then the
    /// bound counts from the beginning of the window, where clients begin that were told of it.
    fn allowed_us(&self, time_us: u64, time: Span) -> u64 {
        let (bound_us, from_us) = (self.bound_us(), self.table.window().from_us);
        let is_ahead = from_us > time.latest_us.saturating_add(bound_us);
        let since_us = if is_ahead { from_us } else { time_us };
        since_us.saturating_add(bound_us)
    }

    /// Whether a transaction is taken. Extends the window if that is needed.
    pub(super) fn admission(&mut self, txn: Version, cx: &mut Cx<'_, C>) -> Admission {
        let (us, window) = (txn.timestamp_us, self.table.window());
        if us < window.from_us {
            return Admission::Late;
        }
        if us < window.to_us {
            return Admission::Taken;
        }
        // What comes after a window that is on its way could not refuse it any more.
        if self.leader.as_ref().is_some_and(|leader| us < leader.proposed.to_us) {
            return Admission::Waits;
        }
        let Some(time) = self.time(cx) else { return Admission::Waits };
        let Span { earliest_us, latest_us } = time;
        if us <= self.allowed_us(earliest_us, time) {
            self.extend_window(us, cx);
            return Admission::Waits;
        }
        if us <= self.allowed_us(latest_us, time) {
            return Admission::Unclear;
        }
        Admission::Skewed { ahead_us: us.saturating_sub(latest_us) as i64 }
    }

    /// A window that reaches beyond `us` and beyond the time.
    ///
    /// The next leader takes no unknown transaction whose time lies before the end of this window. So the window ends no
    /// later than a majority's clocks and the bound allow. Then clients with right clocks can continue at once.
    fn window_beyond(&self, us: u64, time: Span) -> Window {
        let (before, earliest_us) = (self.table.window(), time.earliest_us);
        let lag_us = self.settings.truncation_lag_ms.saturating_mul(1000);
        let allowed_us = self.allowed_us(earliest_us, time);
        let allowed_us = allowed_us.max(earliest_us.saturating_add(WINDOW_US));
        let wanted_us = us.max(earliest_us).saturating_add(WINDOW_US).min(allowed_us);
        let to_us = before.to_us.max(wanted_us).max(us.saturating_add(1));
        let from_us = before.from_us.max(earliest_us.saturating_sub(lag_us).min(to_us));
        Window { from_us, to_us, forget_us: before.forget_us }
    }

    fn extend_window(&mut self, us: u64, cx: &mut Cx<'_, C>) {
        let Some(time) = self.time(cx) else { return };
        let window = self.window_beyond(us, time);
        let Some(leader) = &mut self.leader else { return };
        if leader.proposed.to_us <= us {
            self.propose_window(window);
        }
    }

    /// The outcomes of transactions that began before `forget_us` may be forgotten.
    pub(super) fn forget(&mut self, forget_us: u64, cx: &mut Cx<'_, C>) {
        let Some(time) = self.time(cx) else { return };
        let window = self.window_beyond(0, time);
        self.propose_window(Window { forget_us: forget_us.max(window.forget_us), ..window });
    }

    /// Unknown transactions that began before `from_us` are not taken any more.
    pub(super) fn close_before(&mut self, from_us: u64) {
        let before = self.table.window();
        self.propose_window(Window { from_us: from_us.min(before.to_us), ..before });
    }

    /// Proposes a window. It never takes back what an earlier one has said.
    fn propose_window(&mut self, window: Window) {
        let leader = self.leader_mut();
        leader.proposed = leader.proposed.and(window);
        leader.unproposed.push_back(Entry::Window(leader.proposed));
    }

    /// Asks the other replicas what their clocks say, unless they were asked lately.
    pub(super) fn ask_clocks(&mut self, cx: &mut Cx<'_, C>) {
        let Some(question) = self.clocks.question(self.group.round_trip(), cx) else { return };
        let others = self.group.all().without([self.id].into_iter().collect());
        cx.broadcast(self.id.partition(), others, Message::Time(question));
    }

    pub(super) fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_, C>) {
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }
}
