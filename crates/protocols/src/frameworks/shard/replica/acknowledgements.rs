//! Acknowledgements to clients that the outcomes of their transactions are known. Several are sent
//! in one message.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Message, Reply};
use super::{Cx, Timer};

/// How long an acknowledgement may be delayed.
const ACKNOWLEDGED_AFTER: Duration = Duration::from_millis(20);

/// The outcomes to acknowledge, by client.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements(BTreeMap<NodeId, Vec<Version>>);

impl Acknowledgements {
    /// Acknowledges a transaction's outcome to `to`, after a short delay.
    pub(super) fn add<C: Control>(&mut self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if self.0.is_empty() {
            cx.set_timer(Timer::Acknowledge, ACKNOWLEDGED_AFTER);
        }
        self.0.entry(to).or_default().push(txn);
    }

    /// Sends all acknowledgements.
    pub(super) fn send<C: Control>(&mut self, cx: &mut Cx<'_, C>) {
        for (to, txns) in core::mem::take(&mut self.0) {
            cx.send(to, Message::Reply(Reply::Ended(txns)));
        }
    }
}
