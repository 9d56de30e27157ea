//! Which transactions a leader takes, by the times at which they begin.

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Entry, Message, Time, Window};
use super::Replica;
use super::clocks::Span;
use super::leader::Shard;

/// For how long transactions are taken in advance, by the time at which they begin: so long may one have to wait
/// that begins after a pause.
const WINDOW_US: u64 = 200_000;
/// How often the other replicas are asked what their clocks say, in milliseconds.
const CLOCKS_EVERY_MS: u64 = 1000;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// Whether a transaction is taken that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It begins within the window.
    Taken,
    /// The window has to reach further first, or the clocks have to be known.
    Waits,
    /// It began before the window.
    Late,
    /// It begins later than now by more than clocks may differ.
    Skewed {
        /// By how much it is later than now, in microseconds.
        ahead_us: i64,
    },
    /// The replicas' clocks do not agree on whether it is skewed. Nothing is said of it, and it comes again.
    Unclear,
}

impl<C: Control> Shard<C> {
    /// The time by the clocks of a majority, if these are known.
    pub(super) fn time(&self, cx: &Cx<'_, C>) -> Option<Span> {
        self.clocks.time(cx.clock().midpoint_us(), cx.now())
    }

    fn bound_us(&self) -> u64 {
        self.settings.clock_bound_ms.saturating_mul(1000)
    }

    /// Whether a transaction is taken. If the window has to reach further for it, that is seen to.
    pub(super) fn admission(&mut self, txn: Version, cx: &mut Cx<'_, C>) -> Admission {
        let (us, window) = (txn.timestamp_us, self.table.window());
        if us < window.from_us {
            return Admission::Late;
        }
        if us < window.to_us {
            return Admission::Taken;
        }
        let Some(Span { earliest_us, latest_us }) = self.time(cx) else { return Admission::Waits };
        if us <= earliest_us.saturating_add(self.bound_us()) {
            self.extend_window(us, cx);
            return Admission::Waits;
        }
        if us <= latest_us.saturating_add(self.bound_us()) {
            return Admission::Unclear;
        }
        Admission::Skewed { ahead_us: us.saturating_sub(latest_us) as i64 }
    }

    /// A window that reaches beyond `us` and beyond the time.
    ///
    /// The next leader takes nobody who begins before this one's end. So it ends no later than a majority's clocks and
    /// the bound allow: then all whose clocks are right can go on at once.
    fn window_beyond(&self, us: u64, earliest_us: u64) -> Window {
        let before = self.table.window();
        let lag_us = self.settings.truncation_lag_ms.saturating_mul(1000);
        let allowed_us = earliest_us.saturating_add(self.bound_us().max(WINDOW_US));
        let wanted_us = us.max(earliest_us).saturating_add(WINDOW_US).min(allowed_us);
        let to_us = before.to_us.max(wanted_us).max(us.saturating_add(1));
        let from_us = before.from_us.max(earliest_us.saturating_sub(lag_us).min(to_us));
        Window { from_us, to_us, forget_us: before.forget_us }
    }

    fn extend_window(&mut self, us: u64, cx: &mut Cx<'_, C>) {
        let Some(time) = self.time(cx) else { return };
        let window = self.window_beyond(us, time.earliest_us);
        let Some(leader) = &mut self.leader else { return };
        if leader.proposed.to_us <= us {
            self.propose_window(window);
        }
    }

    /// How those ended that began before this need not be known any more.
    pub(super) fn forget(&mut self, forget_us: u64, cx: &mut Cx<'_, C>) {
        let Some(time) = self.time(cx) else { return };
        let window = self.window_beyond(0, time.earliest_us);
        self.propose_window(Window { forget_us: forget_us.max(window.forget_us), ..window });
    }

    /// Transactions that began before this, and are not known, are taken no more.
    pub(super) fn close_before(&mut self, from_us: u64) {
        let before = self.table.window();
        self.propose_window(Window { from_us: from_us.min(before.to_us), ..before });
    }

    /// Nothing that was proposed is taken back.
    fn propose_window(&mut self, window: Window) {
        let leader = self.leader_mut();
        leader.proposed = leader.proposed.and(window);
        leader.unproposed.push_back(Entry::Window(leader.proposed));
    }

    /// Asks the other replicas what their clocks say, unless they were asked just now.
    pub(super) fn ask_clocks(&mut self, cx: &mut Cx<'_, C>) {
        let (now, every) = (cx.now(), core::time::Duration::from_millis(CLOCKS_EVERY_MS));
        let lately = self.clocks.asked_at().is_some_and(|at| now.since(at) < every);
        if self.group.size() == 1 || (lately && self.time(cx).is_some()) {
            return;
        }
        let number = cx.draw();
        self.clocks.ask(number, now);
        let others = self.group.all().without([self.id].into_iter().collect());
        let message = Message::Time(Time::Ask { number });
        cx.broadcast(self.id.partition(), others, message);
    }

    pub(super) fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_, C>) {
        match time {
            Time::Ask { number } => {
                let us = cx.clock().midpoint_us();
                // It promises nothing.
                cx.send_before_durable(from, Message::Time(Time::Tell { number, us }));
            }
            Time::Tell { number, us } => self.clocks.hear(from.member(), number, us, cx.now()),
        }
    }
}
