//! Telling clients that it is known how their transactions ended. They are told of several at once.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Message, Reply};
use super::{Cx, Timer};

/// How long a client may wait to be told.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_millis(20);

/// The ends that are to be acknowledged, by client.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements(BTreeMap<NodeId, Vec<Version>>);

impl Acknowledgements {
    /// Tells `to`, soon, that it is known how a transaction ended.
    pub(super) fn add<C: Control>(&mut self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if self.0.is_empty() {
            cx.set_timer(Timer::Acknowledge, ACKNOWLEDGED_AFTER);
        }
        self.0.entry(to).or_default().push(txn);
    }

    /// Tells all.
    pub(super) fn send<C: Control>(&mut self, cx: &mut Cx<'_, C>) {
        for (to, txns) in core::mem::take(&mut self.0) {
            cx.send(to, Message::Reply(Reply::Ended(txns)));
        }
    }
}
