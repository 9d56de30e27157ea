//! Whether a client's clock is ahead: by the clocks of a majority of the replicas.
//!
//! If this replica went by its own clock, one machine whose clock is far ahead would be enough to keep all others from
//! updating a key. A client on that machine updates it, and results are forgotten by the tokens' times. So the updates of
//! all other clients would count as forgotten until their clocks have come so far.

use serried_model::{Key, NodeId};

use crate::frameworks::consensus::instance::Command;
use crate::frameworks::consensus::message::{Message, OperationId};
use crate::frameworks::replicated_log::{Span, Time};

use super::{Cx, Replica};

/// How many requests wait for clocks at most. A client sends its request again if nobody answers.
const UNJUDGED_AT_MOST: usize = 1024;

/// By how much a time that a client names is ahead of a clock, both in microseconds: the furthest that can be said, if
/// it is further.
fn ahead_us(named_us: u64, clock_us: u64) -> i64 {
    let signed = |us| i64::try_from(us).unwrap_or(i64::MAX);
    match named_us >= clock_us {
        true => signed(named_us - clock_us),
        false => -signed(clock_us - named_us),
    }
}

impl Replica {
    /// By how much a time that a client names is ahead of the clocks of a majority, in microseconds, and whether that is too
    /// much. None as long as that is not clear: the clocks of too few are known, or were not heard lately, or those of
    /// two replicas of three disagree.
    pub(super) fn ahead_us(&mut self, named_us: u64, cx: &mut Cx<'_>) -> Option<(i64, bool)> {
        self.ask_clocks(cx);
        let bound_us = self.settings.clock_bound_ms.saturating_mul(1000);
        let bound_us = i64::try_from(bound_us).unwrap_or(i64::MAX);
        let (own_us, now) = (cx.clock().midpoint_us(), cx.now());
        let at_most_us = ahead_us(named_us, self.clocks.time(own_us, now)?.earliest_us);
        if at_most_us <= bound_us {
            return Some((at_most_us, false));
        }
        let Span { earliest_us, latest_us } = self.clocks.recent_time(own_us, now)?;
        let (at_least_us, at_most_us) =
            (ahead_us(named_us, latest_us), ahead_us(named_us, earliest_us));
        let is_too_much = at_least_us > bound_us;
        (is_too_much || at_most_us <= bound_us).then_some((at_least_us, is_too_much))
    }

    /// Keeps a request until the clocks of a majority are known.
    pub(super) fn wait_for_clocks(&mut self, operation: OperationId, key: Key, command: Command) {
        if self.unjudged.len() < UNJUDGED_AT_MOST {
            self.unjudged.push((operation, key, command));
        }
    }

    /// Asks the other replicas what their clocks say, unless they were asked lately.
    pub(super) fn ask_clocks(&mut self, cx: &mut Cx<'_>) {
        let round_trip = self.group().round_trip();
        let Some(question) = self.clocks.question(round_trip, cx) else { return };
        cx.broadcast(self.id.partition(), self.others(), Message::Time(question));
    }

    pub(super) fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_>) {
        if let Some(answer) = self.clocks.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
        if self.lost.is_none() && self.clocks.time(cx.clock().midpoint_us(), cx.now()).is_some() {
            for (operation, key, command) in core::mem::take(&mut self.unjudged) {
                self.on_request(operation, key, command, cx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_far_beyond_the_clock_is_ahead_of_it_and_not_behind() {
        for (named, clock, ahead) in [
            (7, 5, 2),
            (5, 7, -2),
            (u64::MAX, 1000, i64::MAX),
            (1 << 63, 1000, (1_i64 << 62) - 1000 + (1 << 62)),
            (0, u64::MAX, -i64::MAX),
        ] {
            assert_eq!(ahead_us(named, clock), ahead, "{named} by {clock}");
        }
    }
}
