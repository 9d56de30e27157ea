//! Which replica a client hands its operations to.

use core::time::Duration;

use serried_actor::Timestamp;

/// How long another replica is preferred after it has answered, before the nearest is tried again.
const NEAREST_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The replica that a client hands an operation to first: the nearest, or for some time another that has answered when the
/// nearest did not. It is the one with this number, counted from the nearest.
#[derive(Debug, Default)]
pub(super) struct Preferred {
    choice: usize,
    until: Timestamp,
}

impl Preferred {
    /// The replica to hand an operation to.
    pub(super) fn choice(&self, now: Timestamp) -> usize {
        if now < self.until { self.choice } else { 0 }
    }

    /// A replica has answered.
    pub(super) fn has_answered(&mut self, choice: usize, now: Timestamp) {
        if self.choice != choice || self.until <= now {
            *self = Preferred { choice, until: now + NEAREST_AGAIN_AFTER };
        }
    }
}
