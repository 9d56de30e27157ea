//! What an actor wants done.

use core::time::Duration;

use serried_model::NodeId;

use crate::{Actor, NodeSet};

/// One thing for the driver to do. Drivers carry a node's effects out in order.
#[derive(Debug)]
pub enum Effect<A: Actor> {
    /// Make durable.
    Append(A::Record),
    /// Send, once every earlier [`Effect::Append`] of this node is durable.
    Send {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: A::Message,
    },
    /// Send at once: the named exception to write-ahead before reply.
    SendBeforeDurable {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: A::Message,
    },
    /// Everything that was appended before this position is not needed any more, once all that was
    /// put into the [`crate::Store`] so far is durable.
    TrimLog(u64),
    /// Send to several replicas of a partition, held like [`Effect::Send`]; encoded once.
    Broadcast {
        /// Their partition.
        partition: u16,
        /// The receivers.
        to: NodeSet,
        /// What to send.
        message: A::Message,
    },
    /// Set or move a timer.
    SetTimer {
        /// Which.
        timer: A::Timer,
        /// When, from now.
        after: Duration,
    },
    /// Unset a timer.
    CancelTimer(A::Timer),
    /// Tell the driver.
    Output(A::Output),
}
