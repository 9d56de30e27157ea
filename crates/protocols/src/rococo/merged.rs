//! Merged pieces: pieces of one call that take effect at one moment, although they may be at several servers (002 §4.2).
//!
//! The offline checker merges the immediate pieces of an unreorderable cycle that belong to one procedure. What is left are
//! cycles whose transactions each take part with one piece, merged or not. So it suffices that merged pieces and the
//! immediate pieces of other calls are serializable as if each were a transaction. This is two-phase locking:
//!
//! ```text
//! coordinator                leader of each partition
//!   | Hold(attempt, pieces) ----->|  nothing conflicting is held: logs that these rows are held,
//!   |<-------- Held(outputs) -----|  and executes the pieces without an effect
//!   |  further pieces of the merged piece, if they need these outputs; then
//!   | Start(pieces) ------------->|  executes the pieces, finds edges, holds the rows no more
//!   |<-- Started(outputs, edges) -|
//! ```
//!
//! A leader starts no piece whose use of a row conflicts with one that is held: the request waits. While all rows of a merged
//! piece are held, no conflicting piece is started anywhere. That moment is the moment of the merged piece. A simple piece
//! is started at one moment anyway. At each server conflicting pieces are started in the order of their moments. Therefore
//! the edges between immediate pieces agree with one order. Deferred pieces conflict with no immediate piece.
//!
//! # Who waits
//! A request to hold rows waits for holders that are younger, and fails if one is older (*wait-die*; the ages are those of the
//! transactions, which an attempt does not change). So no two wait for each other. The oldest one never fails. What waits to
//! start a simple piece holds nothing: a call begins a merged piece only when every simple piece that it has started was
//! executed, and goes on with others when the merged piece has ended.
//!
//! # Attempts
//! - *An attempt that has failed somewhere holds everything nowhere.* A partition that refuses an attempt logs that before it
//!   says so, and never holds rows for that attempt again.
//! - *An attempt asks all of its coordinators for the same pieces.* They go on in rounds: the next round begins when the
//!   partitions have answered the former one, and what they answer depends only on rows that are held.
//! - So an attempt either fails, or holds everything. In the latter case no coordinator releases anything, and each can
//!   start the pieces. Starting them twice has no effect.
//! - *A partition that has started pieces names the attempt that has succeeded.* A coordinator whose attempt is another one
//!   gives that up: together with what it was told before, such an answer could make an attempt look whole that has failed,
//!   and what follows would be started with other outputs. For the same reason the partition holds nothing any more for
//!   another attempt, even if that asks for pieces that it has not started.
//! - *The next attempt begins when nothing is held any more for the last one*, and when no older holder is in its way.
//! - *A refused call ends its merged piece too*: with the pieces of the round in which it was refused. They have written
//!   nothing, because what can fail comes before what writes; and they have read at one moment.
//!
//! If a coordinator dies, a partition that holds rows finishes the call, as it does for any call that it has started. A hold
//! is in the log. So it survives its leader, and ends with the call at the latest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serde::{Deserialize, Serialize};
use serried_model::Version;
use serried_procedures::{PieceId, Procedure};

use super::message::{CallOf, Occurrence, Start, StartedPiece};

/// Pieces of a merged piece at one partition, in an attempt to execute it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hold {
    /// The call, and all pieces for which rows are to be held there in this attempt, in the order of their rounds.
    pub start: Start,
    /// The merged piece: its place among those of its procedure.
    pub group: u16,
    /// Counts the attempts, from 1.
    pub attempt: u64,
}

/// What a partition's leader answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HoldReply {
    /// The transaction.
    pub txn: Version,
    /// The merged piece.
    pub group: u16,
    /// The attempt that has this end. If the rows are not held, the last one that is known to have failed.
    pub attempt: u64,
    /// What comes of it.
    pub end: HoldEnd,
}

/// What comes of an attempt at a partition.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum HoldEnd {
    /// The rows are held. If the pieces are started in this attempt, they have these outcomes.
    Held(Vec<StartedPiece>),
    /// An older transaction holds a row that is wanted.
    NotHeld,
    /// No row is held any more in this attempt.
    Released,
}

/// Which rows are held at a partition for a merged piece: those of these pieces.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HoldEntry {
    /// The transaction.
    pub txn: Version,
    /// The call.
    pub call: Arc<CallOf>,
    /// The merged piece.
    pub group: u16,
    /// The attempt.
    pub attempt: u64,
    /// The pieces. If there are none, the attempt and those before it have failed.
    pub pieces: Vec<Occurrence>,
}

/// What a partition keeps of a merged piece that is not started.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct HeldPieces {
    /// The merged piece.
    pub(super) group: u16,
    /// The attempt.
    pub(super) attempt: u64,
    /// The pieces. If there are none, the attempt and those before it have failed.
    pub(super) pieces: Vec<Occurrence>,
}

impl HeldPieces {
    /// Whether one of these pieces is among those that are held.
    pub(super) fn has_some(&self, pieces: &[Occurrence]) -> bool {
        has_some(&self.pieces, pieces)
    }
}

/// Whether two lists have a piece in common.
pub(super) fn has_some(held: &[Occurrence], pieces: &[Occurrence]) -> bool {
    held.iter().any(|own| pieces.iter().any(|piece| is_same(own, piece)))
}

/// Whether these are the same occurrence of a piece.
pub(super) fn is_same(one: &Occurrence, other: &Occurrence) -> bool {
    (one.piece, one.number) == (other.piece, other.number)
}

/// Pieces of a procedure that take effect at one moment.
#[derive(Debug)]
pub(super) struct MergedPiece {
    /// The pieces.
    pub(super) pieces: BTreeSet<PieceId>,
    /// The other pieces that must have been executed before.
    pub(super) after: BTreeSet<PieceId>,
}

/// The merged pieces of a procedure.
///
/// If two of them wait for each other's pieces, they are executed as one, with all that lies between them. This adds no
/// cycle: one that leads through the larger piece leads through the smaller ones, and through their S-edge.
pub(super) fn merged_pieces(procedure: &Procedure) -> Vec<MergedPiece> {
    if procedure.merged.is_empty() {
        return Vec::new();
    }
    let mut units = DiGraph::<BTreeSet<PieceId>, ()>::new();
    let mut of_piece: BTreeMap<PieceId, NodeIndex> = BTreeMap::new();
    for merged in &procedure.merged {
        let unit = units.add_node(merged.iter().copied().collect());
        of_piece.extend(merged.iter().map(|piece| (*piece, unit)));
    }
    for (id, _) in procedure.pieces() {
        of_piece.entry(id).or_insert_with(|| units.add_node(BTreeSet::from([id])));
    }
    for (id, piece) in procedure.pieces() {
        for before in &piece.after {
            units.update_edge(of_piece[&id], of_piece[before], ());
        }
    }
    let mut merged: Vec<MergedPiece> = Vec::new();
    for together in tarjan_scc(&units) {
        let pieces: BTreeSet<PieceId> =
            together.into_iter().flat_map(|unit| &units[unit]).copied().collect();
        if pieces.len() == 1 && !procedure.merged.iter().flatten().any(|id| pieces.contains(id)) {
            continue;
        }
        let after = pieces.iter().flat_map(|PieceId(at)| &procedure.pieces[usize::from(*at)].after);
        let after = after.copied().filter(|before| !pieces.contains(before)).collect();
        merged.push(MergedPiece { pieces, after });
    }
    merged
}

/// The place of the merged piece to which a piece belongs.
pub(super) fn group_of(merged: &[MergedPiece], piece: PieceId) -> Option<u16> {
    merged.iter().position(|merged| merged.pieces.contains(&piece)).map(|at| at as u16)
}
