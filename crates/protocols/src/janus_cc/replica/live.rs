//! A transaction that a server has taken on and not executed.

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::NodeId;

use super::super::execution::Execution;
use super::super::message::{Edge, End, Results, Work};
use super::super::table::Txn;

/// A transaction that was taken on here and is not executed.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) work: Arc<Work>,
    /// The transactions before it, by its pieces here. In ascending order, each once.
    pub(super) edges: Vec<Edge>,
    /// The position of the record with which it began.
    pub(super) began: u64,
    /// The coordinators to answer when it is executed.
    pub(super) committers: Vec<NodeId>,
    /// When a coordinator was last heard of.
    pub(super) heard: Timestamp,
    pub(super) execution: Execution,
    /// What came of it, if none of its pieces are left here.
    pub(super) end: Option<End>,
}

impl Live {
    pub(super) fn new(work: Arc<Work>, edges: Vec<Edge>, began: u64, now: Timestamp) -> Live {
        Live {
            work,
            edges,
            began,
            committers: Vec::new(),
            heard: now,
            execution: Execution::resumed(Results::default()),
            end: None,
        }
    }

    /// Goes on with a transaction after a restart.
    pub(super) fn resumed(state: &Txn, now: Timestamp) -> Live {
        Live {
            execution: Execution::resumed(state.results.clone()),
            end: state.end.clone(),
            ..Live::new(state.work.clone(), state.edges.clone(), state.began, now)
        }
    }
}
