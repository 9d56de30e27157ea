//! The choice of the replica to which a client sends its operations.

use core::time::Duration;

use serried_actor::Timestamp;

/// How long another replica is preferred after it has answered. Then the nearest is tried again.
const NEAREST_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The replica to which a client sends an operation first: the nearest, or for some time another
/// one that answered when the nearest did not. It is identified by its rank in distance.
#[derive(Debug, Default)]
pub(super) struct Preferred {
    choice: usize,
    until: Timestamp,
}

impl Preferred {
    /// The rank of the replica to use.
    pub(super) fn choice(&self, now: Timestamp) -> usize {
        if now < self.until { self.choice } else { 0 }
    }

    /// Records that a replica has answered.
    pub(super) fn has_answered(&mut self, choice: usize, now: Timestamp) {
        if self.choice != choice || self.until <= now {
            *self = Preferred { choice, until: now + NEAREST_AGAIN_AFTER };
        }
    }
}
