//! Failure detection: when a follower gives up its leader.

use core::time::Duration;

use serried_actor::{Context, Timestamp};

use super::host::Host;
use super::members::Members;
use super::message::Timer;

/// How much longer each member waits than the one before it, before it asks the others for a
/// leader.
const APART: Duration = Duration::from_millis(5);

/// Suspects a leader that is silent.
#[derive(Debug)]
pub(super) struct FailureDetector {
    /// When this replica last received a message of a leader, or promised a ballot.
    pub(super) heard: Timestamp,
}

impl FailureDetector {
    pub(super) fn new() -> FailureDetector {
        FailureDetector { heard: Timestamp(0) }
    }

    /// Restarts the time-out for the leader.
    pub(super) fn reset(&mut self, now: Timestamp) {
        self.heard = now;
    }

    /// Whether this replica has recently received a message of a leader. It doubts a leader one
    /// beat before it looks for another one. So the first replica that looks finds the others
    /// willing.
    pub(super) fn hears_leader(&self, now: Timestamp, members: &Members) -> bool {
        now.since(self.heard) < members.patience() - members.beat()
    }

    /// Whether the leader has been silent for so long that another one is needed.
    pub(super) fn suspects(&self, now: Timestamp, members: &Members) -> bool {
        now.since(self.heard) >= members.patience()
    }

    /// Sets the timer for giving up the leader. It is shortest at the preferred member, and longer
    /// at each of its successors.
    pub(super) fn wait<H: Host>(&self, members: &Members, cx: &mut Context<'_, H>) {
        let since = cx.now().since(self.heard);
        let left = members.patience().saturating_sub(since);
        let size = members.group.size();
        let rank = (members.own() + size - members.preferred()) % size;
        let apart = (APART + members.group.round_trip()).min(members.beat());
        let own = apart * rank as u32 + cx.jitter(apart);
        cx.set_timer(H::timer(Timer::Elect), left + own);
    }
}
