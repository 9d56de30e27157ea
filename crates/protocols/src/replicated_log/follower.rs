//! What the leader knows of one follower.

use serried_actor::Timestamp;

/// A follower, in the leader's eyes.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// What it has of the slots below counts.
    pub(super) matched: u64,
    /// It was sent what lies below.
    pub(super) sent: u64,
    /// What it had when it was last looked after.
    pub(super) matched_before: u64,
    /// It has let the leader wait since it last answered.
    pub(super) slow: bool,
    /// When it last answered.
    pub(super) heard: Timestamp,
    /// Since when it has kept up, in one run.
    pub(super) well_since: Timestamp,
    /// The run of the follower that all this is about, once one has answered.
    run: Option<Run>,
}

/// A follower from one start to the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    incarnation: u64,
    /// The last beat that had been sent when this run was last heard of.
    beat: u64,
}

/// What a follower says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Which run of it says so.
    pub(super) incarnation: u64,
    /// The last beat that this run has heard, 0 if none.
    pub(super) beat: u64,
    /// The first slot that it lacks.
    pub(super) matched: u64,
}

impl Follower {
    /// One that is known to have all that was chosen below a slot, or of which nothing is known.
    pub(super) fn new(applied: Option<u64>, now: Timestamp) -> Follower {
        Follower {
            matched: applied.unwrap_or(0),
            sent: applied.unwrap_or(0),
            matched_before: 0,
            slow: applied.is_none(),
            heard: now,
            well_since: now,
            run: None,
        }
    }

    /// It has answered, after `beat` beats were sent. False if that tells nothing: a former run of it may have
    /// said so.
    ///
    /// A run is later than the known one if it has heard a beat which was sent after the known one was last
    /// heard of. What the known one had then does not count any more: it may have lost the end of its log.
    pub(super) fn answered(&mut self, standing: Reached, beat: u64, now: Timestamp) -> bool {
        let Reached { incarnation, matched, .. } = standing;
        match self.run {
            Some(known) if known.incarnation == incarnation => {}
            Some(known) if standing.beat <= known.beat => return false,
            Some(_) => {
                (self.matched, self.sent, self.matched_before) = (matched, matched, 0);
                self.well_since = now;
            }
            None => {}
        }
        if self.slow {
            self.well_since = now;
        }
        self.run = Some(Run { incarnation, beat });
        self.heard = now;
        self.slow = false;
        self.matched = self.matched.max(matched);
        self.sent = self.sent.max(matched);
        true
    }
}
