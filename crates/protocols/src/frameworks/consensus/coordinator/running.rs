//! A client's operation under way.

use core::time::Duration;

use serried_actor::NodeSet;
use serried_model::{Access, Carstamp, Key};
use serried_parts::{Asked, Quorums, Stamped, patience_with_proxy};

use super::super::instance::Command;
use super::super::message::{Message, OperationId};
use super::super::unsettled::Moment;

/// An operation under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) key: Key,
    pub(super) command: Command,
    /// It was begun with a token, so it may have taken effect before.
    pub(super) again: bool,
    pub(super) phase: Phase,
}

/// What an operation waits for.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing is sent before majorities hold the values that the client had read from other keys when this operation
    /// began. A write that is tried again may have its place (`placed`) already.
    Waiting { begun: Moment, placed: Option<Carstamp> },
    /// A replica does it: the one with the number `choice`, counted from the nearest. `repeated` counts the replicas before it
    /// that did not answer in time, and `refused` those that have refused it because of the client's clock.
    Handed { choice: usize, repeated: u32, refused: usize },
    /// A write learns what replicas hold. This is the latest carstamp so far.
    Placing { latest: Carstamp, asked: Asked },
    /// A write is being applied at a majority.
    Writing { stamped: Stamped, asked: Asked },
}

impl Running {
    /// What it asks in its present phase: whom, what, and how long to wait before asking again.
    pub(super) fn question(
        &self,
        operation: OperationId,
        quorums: &Quorums,
    ) -> Option<(NodeSet, Message, Duration)> {
        let (request, key) = (operation.request, self.key.clone());
        Some(match &self.phase {
            Phase::Waiting { .. } => return None,
            Phase::Handed { choice, repeated, .. } => {
                let group = quorums.group();
                let patience = patience_with_proxy(group, *repeated);
                let to = group.choice(group.partition_of(&key), *choice);
                let command = self.command.clone();
                let request = Message::Request { request, key, command };
                ([to].into_iter().collect(), request, patience)
            }
            Phase::Placing { asked, .. } => {
                let brings = self.command.brings.clone();
                let message = Message::Write1 { request, key, brings };
                (asked.waiting(), message, quorums.patience(asked.repeated()))
            }
            Phase::Writing { stamped, asked } => {
                let message = Message::Apply { operation, key, stamped: stamped.clone() };
                (asked.waiting(), message, quorums.patience(asked.repeated()))
            }
        })
    }

    /// Whether it certainly has no effect if it is given up now.
    pub(super) fn has_no_effect(&self) -> bool {
        match self.phase {
            _ if self.again => false,
            // A write without a place is nowhere, and neither is an operation that was not sent.
            Phase::Waiting { .. } | Phase::Placing { .. } => true,
            Phase::Handed { .. } => self.command.access == Access::Read,
            Phase::Writing { .. } => false,
        }
    }
}
