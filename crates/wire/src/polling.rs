//! Looking for messages for a little while before a thread sleeps.
//!
//! A thread that sleeps has to be woken, and its processor may have stopped meanwhile. In a virtual machine that takes longer
//! than everything that is done for a message. So a thread to which messages come one soon after the other does not sleep
//! between them. It asks its sockets again and again, and lets other threads run in between.
//!
//! That costs processor time, so it is done only where it helps:
//! - The time for which a thread looks doubles with each message that comes within the bound
//!   ([`TransportOptions::poll_us`](crate::TransportOptions::poll_us)) after the one before, and halves with each other one.
//! - A thread whose processor is wanted by others sleeps at once for a while, longer and longer if that does not change.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serried_actor::Timestamp;

/// Decides for how long the thread of an endpoint looks for messages.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The longest time.
    most: Duration,
    /// For how long it looks after a message.
    window: Duration,
    /// When the last messages came.
    last: Timestamp,
    /// Whether messages have come since it looked.
    came: bool,
    /// It does not look before that.
    rests_until: Timestamp,
    /// For how long it rested last.
    rest: Duration,
    /// Whether it is looking.
    looks: bool,
    /// Wakes the task that looks, if that waits for a reason.
    waker: Option<Waker>,
}

/// What a look has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Messages have come.
    Found,
    /// None has come yet.
    Nothing,
    /// None has come, and it is time to sleep.
    Enough,
}

impl Polling {
    /// The shortest time for which it looks.
    const LEAST: Duration = Duration::from_micros(10);
    /// If other threads have the processor for longer than this, it is wanted.
    const WANTED: Duration = Duration::from_micros(100);
    /// How long it rests then, and at most if that happens again and again.
    const REST: Duration = Duration::from_millis(10);
    const LONGEST_REST: Duration = Duration::from_millis(640);

    /// One that looks for at most `most` after a message.
    pub(crate) fn new(most: Duration) -> Polling {
        let never = Timestamp(0);
        Polling {
            most,
            window: Duration::ZERO,
            last: never,
            came: false,
            rests_until: never,
            rest: Duration::ZERO,
            looks: false,
            waker: None,
        }
    }

    /// Messages have come. What comes before the thread has looked again counts once.
    pub(crate) fn came(&mut self, now: Timestamp) {
        if self.most.is_zero() || self.looks && self.came {
            return;
        }
        let is_soon = now.since(self.last) <= self.most;
        self.window = match self.window {
            window if is_soon => (window * 2).max(Polling::LEAST).min(self.most),
            window if window / 2 >= Polling::LEAST => window / 2,
            _ => Duration::ZERO,
        };
        self.last = now;
        self.came = true;
        if !self.looks && !self.window.is_zero() && now >= self.rests_until {
            self.looks = true;
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    /// Waits until there is a reason to look.
    pub(crate) fn poll_reason(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.looks {
            return Poll::Ready(());
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// It has looked, and what came was handled.
    pub(crate) fn looked(&mut self, now: Timestamp) -> Look {
        if core::mem::take(&mut self.came) {
            return Look::Found;
        }
        self.looks = now.since(self.last) < self.window;
        match self.looks {
            true => Look::Nothing,
            false => Look::Enough,
        }
    }

    /// It let other threads run from `since` until `now`. Returns whether it looks again.
    pub(crate) fn gave_way(&mut self, since: Timestamp, now: Timestamp) -> bool {
        if now.since(since) <= Polling::WANTED {
            return true;
        }
        // If the last rest ended long ago, this is another time at which the processor is wanted.
        self.rest = match since.since(self.rests_until) <= self.rest {
            true => (self.rest * 2).clamp(Polling::REST, Polling::LONGEST_REST),
            false => Polling::REST,
        };
        self.rests_until = now + self.rest;
        self.looks = false;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(200);

    fn at(us: u64) -> Timestamp {
        Timestamp(1_000_000_000 + us * 1000)
    }

    fn polling() -> Polling {
        Polling::new(MOST)
    }

    /// Messages have come at these times, each since the last look. For how long it looks then, in microseconds.
    fn window_after(polling: &mut Polling, times: impl IntoIterator<Item = u64>) -> u128 {
        for us in times {
            polling.came = false;
            polling.came(at(us));
        }
        polling.window.as_micros()
    }

    #[test]
    fn it_looks_for_longer_while_messages_come_soon_and_not_at_all_while_they_do_not() {
        let mut polling = polling();
        assert_eq!(window_after(&mut polling, [0]), 0, "the first one");
        assert_eq!(window_after(&mut polling, [200]), 10);
        assert_eq!(window_after(&mut polling, [210, 400]), 40);
        assert_eq!(window_after(&mut polling, [500, 600, 700, 800]), 200, "never for longer");
        assert_eq!(window_after(&mut polling, [1001]), 100, "one was late");
        assert_eq!(window_after(&mut polling, [2000, 3000, 4000]), 12);
        assert_eq!(window_after(&mut polling, [5000]), 0);
    }

    #[test]
    fn what_comes_before_it_has_looked_counts_once() {
        let mut polling = polling();
        window_after(&mut polling, [0, 100]);
        (101..110).for_each(|us| polling.came(at(us)));
        assert_eq!(polling.window.as_micros(), 10);
        assert_eq!(polling.looked(at(109)), Look::Found);
        assert_eq!(polling.looked(at(110)), Look::Enough, "10 us after the first of them");
    }

    #[test]
    fn it_looks_until_nothing_has_come_for_long_enough() {
        let mut polling = polling();
        window_after(&mut polling, [0, 100, 200]);
        assert_eq!(polling.looked(at(205)), Look::Found);
        assert_eq!(polling.looked(at(219)), Look::Nothing);
        assert_eq!(polling.looked(at(220)), Look::Enough);
        window_after(&mut polling, [300]);
        assert_eq!(polling.looked(at(301)), Look::Found);
        assert_eq!(polling.looked(at(339)), Look::Nothing);
    }

    #[test]
    fn a_task_that_waits_for_a_reason_is_woken_by_messages_that_come_soon() {
        use std::task::Wake;

        #[derive(Default)]
        struct Woken(std::sync::atomic::AtomicBool);
        impl Wake for Woken {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let woken = std::sync::Arc::new(Woken::default());
        let is_woken = || woken.0.load(std::sync::atomic::Ordering::Relaxed);
        let waker = woken.clone().into();
        let cx = Context::from_waker(&waker);
        let mut polling = polling();
        assert!(polling.poll_reason(&cx).is_pending());
        polling.came(at(0));
        assert!(!is_woken() && polling.poll_reason(&cx).is_pending());
        polling.came(at(50));
        assert!(is_woken() && polling.poll_reason(&cx).is_ready());
        while polling.looked(at(500)) != Look::Enough {}
        assert!(polling.poll_reason(&cx).is_pending(), "it sleeps");
        let mut never = Polling::new(Duration::ZERO);
        window_after(&mut never, [0, 1, 2]);
        assert!(never.poll_reason(&cx).is_pending(), "it sleeps at once");
    }

    #[test]
    fn it_rests_while_others_want_the_processor() {
        let mut polling = polling();
        window_after(&mut polling, [0, 10, 20]);
        assert!(polling.gave_way(at(20), at(120)), "others needed it for a little while");
        assert!(!polling.gave_way(at(120), at(221)));
        let rests = |polling: &Polling, us| polling.rests_until == at(us);
        assert!(rests(&polling, 10_221));
        window_after(&mut polling, [300, 400]);
        assert!(!polling.looks, "it does not look meanwhile");
        window_after(&mut polling, [10_300, 10_400]);
        assert!(polling.looks);
        assert!(!polling.gave_way(at(10_500), at(11_000)) && rests(&polling, 31_000), "longer");
        for _ in 0..10 {
            let end = polling.rests_until;
            polling.gave_way(end, end + MOST);
        }
        assert_eq!(polling.rest, Polling::LONGEST_REST);
        let later = polling.rests_until + Duration::from_secs(1);
        polling.gave_way(later, later + MOST);
        assert_eq!(polling.rest, Polling::REST, "that was long ago");
    }
}
