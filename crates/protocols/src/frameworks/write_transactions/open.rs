//! What a leader knows of a transaction under way.

use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{NodeId, Versionstamp};

/// A transaction that is not decided here, or whose decision not all cohorts know.
#[derive(Debug)]
pub(super) struct Open {
    /// When the leader has heard of it first, or has begun to lead.
    pub(super) since: Timestamp,
    /// The partition that coordinates it. `None` if it has one participant.
    pub(super) coordinator: Option<u16>,
    /// Its pending time here, until it is decided here.
    pub(super) pending: Option<Versionstamp>,
    /// The votes that the coordinator has: pending times by partition.
    pub(super) votes: BTreeMap<u16, Versionstamp>,
    /// Its decision is in the log, and not applied yet.
    pub(super) is_deciding: bool,
    /// The cohorts that know the decision, as far as the coordinator knows.
    pub(super) told: BTreeSet<u16>,
    /// Clients that wait for the decision, and the numbers of their requests.
    pub(super) clients: Vec<(NodeId, u64)>,
    /// Cohorts that wait until the decision is applied, and the numbers of their questions.
    pub(super) checks: Vec<(NodeId, u64)>,
}

impl Open {
    /// One whose decision is to be told.
    pub(super) fn new(since: Timestamp) -> Open {
        Open {
            since,
            coordinator: None,
            pending: None,
            votes: BTreeMap::new(),
            is_deciding: false,
            told: BTreeSet::new(),
            clients: Vec::new(),
            checks: Vec::new(),
        }
    }
}
