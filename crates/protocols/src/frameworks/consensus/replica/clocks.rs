//! Decisions on whether a client's clock is ahead, based on the clocks of a majority of the
//! replicas.
//!
//! If this replica used its own clock, one machine whose clock is far ahead could keep all others
//! from updating a key: a client on that machine updates the key, and results are forgotten
//! according to the tokens' times. So the updates of all other clients would count as forgotten
//! until their clocks reach that time.

use serried_actor::Settings;
use serried_model::{Key, NodeId};

use super::Cx;
use super::members::Members;
use crate::frameworks::consensus::instance::Command;
use crate::frameworks::consensus::message::{Message, OperationId};
use crate::frameworks::replicated_log::{Clocks, Span, Time};

/// How many requests may wait for clocks. A client sends a dropped request again.
const UNJUDGED_AT_MOST: usize = 1024;

/// A request that waits until the clocks of a majority are known.
pub(super) type Unjudged = (OperationId, Key, Command);

/// Compares clients' clocks with those of the replicas.
#[derive(Debug)]
pub(super) struct ClientClocks {
    /// How far a client's clock may be ahead, in microseconds.
    bound_us: i64,
    /// The known clocks of the partition's replicas.
    replicas: Clocks,
    unjudged: Vec<Unjudged>,
}

impl ClientClocks {
    pub(super) fn new(members: &Members, settings: &Settings) -> ClientClocks {
        let bound_us = settings.clock_bound_ms.saturating_mul(1000);
        let bound_us = i64::try_from(bound_us).unwrap_or(i64::MAX);
        let replicas = Clocks::new(members.group().size(), usize::from(members.own()));
        ClientClocks { bound_us, replicas, unjudged: Vec::new() }
    }

    /// How far a client's time is ahead of the clocks of a majority, in microseconds, and whether
    /// that is too much. Returns `None` if this is unclear: too few clocks are known, their
    /// readings are too old, or the clocks of two of three replicas disagree.
    pub(super) fn ahead_us(
        &mut self,
        named_us: u64,
        members: &Members,
        cx: &mut Cx<'_>,
    ) -> Option<(i64, bool)> {
        self.ask(members, cx);
        let (own_us, now) = (cx.clock().midpoint_us(), cx.now());
        let at_most_us = ahead_us(named_us, self.replicas.time(own_us, now)?.earliest_us);
        if at_most_us <= self.bound_us {
            return Some((at_most_us, false));
        }
        let Span { earliest_us, latest_us } = self.replicas.recent_time(own_us, now)?;
        let (at_least_us, at_most_us) =
            (ahead_us(named_us, latest_us), ahead_us(named_us, earliest_us));
        let is_too_much = at_least_us > self.bound_us;
        (is_too_much || at_most_us <= self.bound_us).then_some((at_least_us, is_too_much))
    }

    /// Keeps a request until the clocks of a majority are known.
    pub(super) fn keep(&mut self, request: Unjudged) {
        if self.unjudged.len() < UNJUDGED_AT_MOST {
            self.unjudged.push(request);
        }
    }

    /// Removes and returns the waiting requests, if the clocks of a majority are known.
    pub(super) fn judgeable(&mut self, cx: &Cx<'_>) -> Vec<Unjudged> {
        match self.replicas.time(cx.clock().midpoint_us(), cx.now()) {
            Some(_) => core::mem::take(&mut self.unjudged),
            None => Vec::new(),
        }
    }

    /// Asks the other replicas for the times of their clocks, unless it has asked recently.
    pub(super) fn ask(&mut self, members: &Members, cx: &mut Cx<'_>) {
        let round_trip = members.group().round_trip();
        let Some(question) = self.replicas.question(round_trip, cx) else { return };
        cx.broadcast(members.partition(), members.others(), Message::Time(question));
    }

    /// Answers a question about this replica's clock, or handles another replica's answer.
    pub(super) fn on_time(&mut self, from: NodeId, time: Time, cx: &mut Cx<'_>) {
        if let Some(answer) = self.replicas.on_time(from, time, cx) {
            cx.send_before_durable(from, Message::Time(answer));
        }
    }
}

/// How far a client's time is ahead of a clock, in microseconds. Saturates at the greatest number.
fn ahead_us(named_us: u64, clock_us: u64) -> i64 {
    let signed = |us| i64::try_from(us).unwrap_or(i64::MAX);
    match named_us >= clock_us {
        true => signed(named_us - clock_us),
        false => -signed(clock_us - named_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_far_beyond_the_clock_is_ahead_of_it() {
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
