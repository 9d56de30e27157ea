//! Telling replicas from those whose places they took.
//!
//! A replica that has lost its disk numbers its instances after all that others have seen of its
//! predecessor's. What its predecessor had sent and nobody has seen yet must not come to light then: it
//! would be about an instance that is another now. So each begins instances in an incarnation of its own,
//! which all others know before it begins any; they take nothing of an earlier one.

use serried_model::NodeId;

use super::{Cx, Replica};
use crate::consensus::message::Record;

/// How many records may follow the last of these in the log before it is written anew.
const RECORDS_BEHIND: u64 = 1024;

/// Of each member the latest incarnation that a replica has heard of; 0 if none has lost its disk.
#[derive(Debug)]
pub(super) struct Incarnations {
    of: Vec<u64>,
    /// Where they lie in the log, if there are any.
    position: Option<u64>,
}

impl Incarnations {
    pub(super) fn new(members: usize) -> Incarnations {
        Incarnations { of: vec![0; members], position: None }
    }

    pub(super) fn of(&self, node: NodeId) -> u64 {
        if node.is_coordinator() { 0 } else { self.of[node.member()] }
    }

    pub(super) fn replay(&mut self, of: Vec<u64>) {
        self.of = of;
    }
}

impl Replica {
    /// Whether what a replica has sent is not from before it lost its disk. A later incarnation is noted.
    pub(super) fn is_current(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) -> bool {
        let known = self.incarnations.of(from);
        if incarnation > known && !from.is_coordinator() {
            self.set_incarnation(from, incarnation, cx);
        }
        incarnation >= known
    }

    pub(super) fn set_incarnation(&mut self, of: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        self.incarnations.of[of.member()] = incarnation;
        self.record_incarnations(cx);
    }

    /// Writes them at the end of the log.
    pub(super) fn record_incarnations(&mut self, cx: &mut Cx<'_>) {
        if self.incarnations.of.iter().any(|incarnation| *incarnation > 0) {
            self.incarnations.position = Some(cx.log_position());
            cx.append(Record::Incarnations(self.incarnations.of.clone()));
        }
    }

    /// From where on the log is needed, if otherwise it were from `needed` on.
    pub(super) fn keep_incarnations(&mut self, needed: u64, cx: &mut Cx<'_>) -> u64 {
        if self.incarnations.position.is_some_and(|at| at + RECORDS_BEHIND < needed) {
            self.record_incarnations(cx);
        }
        self.incarnations.position.map_or(needed, |at| at.min(needed))
    }
}
