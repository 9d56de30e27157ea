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
    /// Whether it has a token from an earlier attempt, so that it may have taken effect before.
    pub(super) again: bool,
    pub(super) phase: Phase,
}

/// The phase of an operation.
#[derive(Debug)]
pub(super) enum Phase {
    /// No message is sent before majorities hold the values that the client had read from other
    /// keys when this operation began. A retried write may have its carstamp (`placed`) already.
    Waiting { begun: Moment, placed: Option<Carstamp> },
    /// A replica executes it: the one with rank `choice` in distance. `repeated` counts the
    /// replicas before it that did not answer in time, and `refused` those that have refused it
    /// because of the client's clock.
    Handed { choice: usize, repeated: u32, refused: usize },
    /// A write asks for the carstamps of the values that replicas hold. `latest` is the greatest so
    /// far.
    Placing { latest: Carstamp, asked: Asked },
    /// A write is being stored at a majority.
    Writing { stamped: Stamped, asked: Asked },
}

impl Running {
    /// The request of its current phase: the receivers, the message, and how long to wait before it
    /// is repeated.
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

    /// Whether it certainly has no effect if it is abandoned now.
    pub(super) fn has_no_effect(&self) -> bool {
        match self.phase {
            _ if self.again => false,
            // A write without a carstamp is held by no replica, and an operation that was not sent
            // is unknown to all.
            Phase::Waiting { .. } | Phase::Placing { .. } => true,
            Phase::Handed { .. } => self.command.access == Access::Read,
            Phase::Writing { .. } => false,
        }
    }
}
