//! What replicas make durable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serried_model::Version;

use super::digest::Digest;
use super::message::{Accepted, Ballot, Contents, Merged, View, Vote};

/// What a replica makes durable before it answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// Its vote on an execution.
    Voted {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// See [`Request::Prepare`](super::message::Request::Prepare).
        next_tag: u32,
        /// The vote.
        vote: Vote,
        /// What was voted on.
        contents: Arc<Contents>,
    },
    /// Its final vote on an execution on which it had voted provisionally.
    Confirmed {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The vote.
        vote: Vote,
    },
    /// The view that it entered for a transaction.
    Promised {
        /// The transaction.
        version: Version,
        /// The view.
        view: View,
    },
    /// A decision that it accepted.
    Accepted {
        /// The transaction.
        version: Version,
        /// What it accepted.
        accepted: Accepted,
    },
    /// A transaction has committed.
    Committed {
        /// The transaction.
        version: Version,
        /// The execution that commits.
        eid: u32,
        /// Its contents, if they are not those of the last vote on it.
        contents: Option<Arc<Contents>>,
    },
    /// A transaction has aborted.
    Aborted {
        /// The transaction.
        version: Version,
    },
    /// It votes on nothing below this truncation any more.
    Stopped {
        /// The truncation.
        upto: u64,
    },
    /// The ballot of a truncation that it entered, and what it has accepted last.
    Merging {
        /// The ballot. It votes on nothing below this truncation any more.
        ballot: Ballot,
        /// What it accepted, and in which ballot: a merge, or to clear the ballot.
        accepted: Option<(Ballot, Option<Merged>)>,
    },
    /// Everything below this truncation is settled.
    Truncated {
        /// The truncation.
        upto: u64,
        /// From here on it remembers how transactions ended, in microseconds of version time.
        horizon: u64,
        /// What has committed below.
        digest: Digest,
        /// Whether the state below was copied from another replica, instead of being carried out here.
        copied: bool,
        /// Versions that were overwritten before this may be missing, in microseconds of version time. The past can't be
        /// read from before it, whatever `history_ms` says.
        readable_from: u64,
    },
    /// The replica replaces one whose disk was lost, and which has taken part in nothing at or above the floor. It takes
    /// part in nothing until everything below the floor is settled.
    Floor {
        /// In microseconds of version time.
        floor: u64,
    },
    /// The replica replaces one whose disk was lost, and does not know its floor yet.
    Replaces,
    /// Everything that has committed below the horizon is in the store, and deletes from below it may be forgotten. So a
    /// replay must not restore older versions from the log.
    Forgotten {
        /// In microseconds of version time.
        horizon: u64,
    },
    /// What its provisional vote on an execution waits for; what else it has found is committed as it was read.
    Waits {
        /// The transaction.
        version: Version,
        /// The execution.
        eid: u32,
        /// The writes that are not known to be committed, by their index among all that the execution's reads have found
        /// ([`Contents::sources`]).
        sources: Vec<u32>,
    },
    /// It copies another replica's store, and the first page of that is complete below this. Until everything below it is
    /// settled here, the own store is complete below nothing.
    Copying {
        /// In microseconds of version time.
        upto: u64,
        /// What has committed below it.
        digest: Digest,
    },
}
