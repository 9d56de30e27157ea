//! A transaction that has pieces at a leader and is not executed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::NodeId;
use serried_procedures::{Datum, PieceId, Refused};

use super::super::message::{CallOf, Edge, Kind, Occurrence, StartedPiece};

/// A transaction that has pieces here and is not executed.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) call: Arc<CallOf>,
    /// The deferred pieces.
    pub(super) deferred: Vec<Occurrence>,
    /// All pieces, in the order of their start, as they are reported.
    pub(super) started: Vec<StartedPiece>,
    named: BTreeSet<(PieceId, u32)>,
    /// The merged pieces that were held before they were started, with the attempts that have succeeded.
    pub(super) attempts: Vec<(u16, u64)>,
    /// The transactions before it, by its pieces here. In ascending order, each once.
    pub(super) edges: Vec<Edge>,
    /// The coordinators to answer when it is executed.
    pub(super) committers: Vec<NodeId>,
    /// When a coordinator was last heard of.
    pub(super) heard: Timestamp,
    /// Whether no other pieces of it are started: it is a read-only call, and a coordinator has said so.
    pub(super) is_closed: bool,
}

impl Live {
    pub(super) fn new(call: Arc<CallOf>, edges: Vec<Edge>, now: Timestamp) -> Live {
        Live {
            call,
            deferred: Vec::new(),
            started: Vec::new(),
            named: BTreeSet::new(),
            attempts: Vec::new(),
            edges,
            committers: Vec::new(),
            heard: now,
            is_closed: false,
        }
    }

    /// Whether a piece was started.
    pub(super) fn has(&self, occurrence: &Occurrence) -> bool {
        self.named.contains(&(occurrence.piece, occurrence.number))
    }

    /// Whether pieces of a merged piece were started: some of these, or others that were held. An attempt that has failed
    /// may ask for other pieces than the one that has succeeded.
    pub(super) fn has_some(&self, group: u16, pieces: &[Occurrence]) -> bool {
        self.attempts.iter().any(|(of, _)| *of == group)
            || pieces.iter().any(|piece| self.has(piece))
    }

    /// A piece was started. It has an outcome if it is immediate.
    pub(super) fn start(
        &mut self,
        occurrence: &Occurrence,
        outcome: Option<Result<Vec<Datum>, Refused>>,
    ) {
        let (piece, number) = (occurrence.piece, occurrence.number);
        self.named.insert((piece, number));
        if outcome.is_none() {
            self.deferred.push(occurrence.clone());
        }
        self.started.push(StartedPiece { piece, number, outcome });
    }

    /// Adds transactions before it.
    pub(super) fn add_edges(&mut self, edges: &BTreeSet<Edge>) {
        self.edges.extend(edges);
        self.edges.sort_unstable();
        self.edges.dedup();
    }
}

/// The kind of a piece with this outcome.
pub(super) fn kind(outcome: &Option<Result<Vec<Datum>, Refused>>) -> Kind {
    if outcome.is_some() { Kind::Immediate } else { Kind::Deferred }
}
