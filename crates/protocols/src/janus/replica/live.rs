//! A transaction that a replica knows and has not executed.

use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::NodeId;

use super::super::execution::Execution;
use super::super::message::{End, Results, Work};
use super::super::table::Txn;

/// A transaction that is known here and not executed.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) work: Arc<Work>,
    /// The position of the record with which it was taken on; 0 if it was not.
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
    pub(super) fn new(work: Arc<Work>, began: u64, now: Timestamp) -> Live {
        Live {
            work,
            began,
            committers: Vec::new(),
            heard: now,
            execution: Execution::resumed(Results::default()),
            end: None,
        }
    }

    /// Goes on with a transaction after a restart, if it is known what it does.
    pub(super) fn resumed(state: &Txn, now: Timestamp) -> Option<Live> {
        Some(Live {
            execution: Execution::resumed(state.results.clone()),
            end: state.end.clone(),
            ..Live::new(state.work.clone()?, state.vote.began, now)
        })
    }
}
