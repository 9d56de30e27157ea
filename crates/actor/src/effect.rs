//! What an actor requests of its driver.

use core::time::Duration;

use serried_model::NodeId;

use crate::{Actor, NodeSet};

/// One request to the driver. Drivers carry out a node's effects in order.
#[derive(Debug)]
pub enum Effect<A: Actor> {
    /// Make a record durable.
    Append(A::Record),
    /// Send a message as soon as every earlier [`Effect::Append`] of this node is durable.
    Send {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: A::Message,
    },
    /// Send a message under the rule of [`Effect::Send`]. Nobody waits for it alone, so records need not become durable sooner
    /// because of it.
    SendUnhurried {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: A::Message,
    },
    /// Send a message at once: the exception to write-ahead before reply.
    SendBeforeDurable {
        /// The receiver.
        to: NodeId,
        /// What to send.
        message: A::Message,
    },
    /// Give up the records before this position, as soon as everything put into the [`crate::Store`] so far is durable.
    TrimLog(u64),
    /// Send a message to several replicas of a partition, under the rule of [`Effect::Send`]. It is encoded once.
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
    /// Cancel a timer.
    CancelTimer(A::Timer),
    /// Pass an output to the driver.
    Output(A::Output),
}
