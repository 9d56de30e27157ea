//! A follower, as its leader knows it.

use serried_actor::Timestamp;

/// A leader's knowledge of one follower.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    /// It has accepted all slots below this one.
    pub(super) matched: u64,
    /// All slots below this one were sent to it.
    pub(super) sent: u64,
    /// `matched` when the leader last checked it.
    pub(super) matched_before: u64,
    /// Whether it has not answered in time.
    pub(super) slow: bool,
    /// When it last answered.
    pub(super) heard: Timestamp,
    /// The time since which it has kept up without a restart.
    pub(super) well_since: Timestamp,
    /// The follower's run, once one has answered.
    run: Option<Run>,
}

/// One run of a follower, from a start to the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    incarnation: u64,
    /// How many beats the leader had sent when it last received an answer from this run.
    beat: u64,
}

/// The progress that a follower reports in `Accepted`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Identifies its run.
    pub(super) incarnation: u64,
    /// The number of the last beat that this run received, or 0.
    pub(super) beat: u64,
    /// The first slot that it lacks.
    pub(super) matched: u64,
}

impl Follower {
    /// A follower that has applied all slots below `applied`, if that is known.
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

    /// Handles an answer that arrives after `beat` beats were sent. Returns false if the answer is
    /// ignored, because it may be from an earlier run.
    ///
    /// A run is later than the known one if it has received a beat that was sent after the leader's
    /// last answer from the known run. The progress of the known run no longer counts then, because
    /// the follower may have lost the end of its log.
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
