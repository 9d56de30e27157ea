//! Acknowledges decisions, several in one message.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::{NodeId, Version};

use super::{Cx, Timer};
use crate::morty::message::{Message, Reply};

/// A coordinator's acknowledgements are sent when there are so many, or after [`SEND_AFTER`].
const SEND_AT: usize = 16;
const SEND_AFTER: Duration = Duration::from_millis(20);

/// Decisions that were carried out and are not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// By coordinator.
    due: BTreeMap<NodeId, Vec<Version>>,
    timer_is_set: bool,
}

impl Acknowledgements {
    /// Acknowledges a decision, at once or later. Recoverers do not wait for acknowledgements, so they receive none.
    pub(super) fn add(&mut self, to: NodeId, version: Version, cx: &mut Cx) {
        if !to.is_coordinator() {
            return;
        }
        let versions = self.due.entry(to).or_default();
        versions.push(version);
        if versions.len() >= SEND_AT {
            let versions = core::mem::take(versions);
            cx.send_unhurried(to, Message::Reply(Reply::Acknowledge { versions }));
        } else if !self.timer_is_set {
            self.timer_is_set = true;
            cx.set_timer(Timer::Acknowledge, SEND_AFTER);
        }
    }

    /// Sends all that are due.
    pub(super) fn send(&mut self, cx: &mut Cx) {
        self.timer_is_set = false;
        for (to, versions) in core::mem::take(&mut self.due) {
            if !versions.is_empty() {
                cx.send_unhurried(to, Message::Reply(Reply::Acknowledge { versions }));
            }
        }
    }
}
