//! A transaction that a replica knows and has not executed.

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::NodeId;

use super::super::execution::Execution;
use super::super::message::{End, Results, Work};
use super::super::table::Txn;

/// Whether the edges of a transaction that commits are in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Edges {
    /// They are not known, or were not known at the last look. Most transactions are executed before the next one.
    #[default]
    New,
    /// They were known at the last look.
    Seen,
    /// They are in a record.
    Recorded,
}

/// A transaction that is known here and not executed.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) work: Arc<Work>,
    /// The position of the record with which it was taken on; 0 if it was not.
    pub(super) began: u64,
    /// The coordinators to answer when it is executed.
    pub(super) committers: Vec<NodeId>,
    /// When a coordinator was last heard of, or a replica that has executed it.
    pub(super) heard: Timestamp,
    pub(super) edges: Edges,
    pub(super) execution: Execution,
    /// What came of it, if none of its pieces are left here.
    pub(super) end: Option<End>,
}

impl Live {
    pub(super) fn new(work: Arc<Work>, began: u64, now: Timestamp) -> Live {
        Live {
            work,
            began,
            committers: Vec::new(),
            heard: now,
            edges: Edges::default(),
            execution: Execution::resumed(Results::default()),
            end: None,
        }
    }

    /// Goes on with a transaction after a restart, if it is known what it does.
    pub(super) fn resumed(state: &Txn, now: Timestamp) -> Option<Live> {
        Some(Live {
            execution: Execution::resumed(state.results.clone()),
            end: state.end.clone(),
            edges: if state.vertex.is_some() { Edges::Recorded } else { Edges::New },
            ..Live::new(state.work.clone()?, state.vote.began, now)
        })
    }
}
