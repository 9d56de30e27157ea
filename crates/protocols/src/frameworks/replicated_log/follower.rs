//! The leader's knowledge of one follower.

use serried_actor::Timestamp;

/// What a leader knows of one follower.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// It has all slots below this.
    pub(super) matched: u64,
    /// It was sent all slots below this.
    pub(super) sent: u64,
    /// `matched` when the leader last looked after it.
    pub(super) matched_before: u64,
    /// It has not answered in time since its last answer.
    pub(super) slow: bool,
    /// When it last answered.
    pub(super) heard: Timestamp,
    /// Since when it has kept up without a restart.
    pub(super) well_since: Timestamp,
    /// The follower's run that this concerns, once one has answered.
    run: Option<Run>,
}

/// One run of a follower, from a start to the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    incarnation: u64,
    /// How many beats the leader had sent when it last heard of this run.
    beat: u64,
}

/// What a follower reports in `Accepted`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Identifies its run.
    pub(super) incarnation: u64,
    /// The number of the last beat that this run has received, or 0.
    pub(super) beat: u64,
    /// The first slot that it lacks.
    pub(super) matched: u64,
}

impl Follower {
    /// A follower that has applied all slots below `applied`, or of which nothing is known.
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

    /// Takes in an answer that arrives after `beat` beats were sent. Returns false if the answer is ignored, because it may be
    /// from an earlier run.
    ///
    /// A run is later than the known one if it has received a beat that was sent after the leader last heard of the known
    /// one. What the known run had then does not count any more, because the follower may have lost the end of its log.
    pub(super) fn answered(&mut self, reached: Reached, beat: u64, now: Timestamp) -> bool {
        let Reached { incarnation, matched, .. } = reached;
        match self.run {
            Some(known) if known.incarnation == incarnation => {}
            Some(known) if reached.beat <= known.beat => return false,
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
