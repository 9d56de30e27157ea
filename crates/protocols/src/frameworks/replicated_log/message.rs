//! What replicas of a log exchange and make durable.

use core::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value};

/// What a log holds.
pub trait Entry: Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    /// About how many bytes it takes up.
    fn size(&self) -> usize;
}

/// A leader's term: of two, the higher one wins. Each member has ballots of its own.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// Rises with each term.
    pub round: u64,
    /// The leader.
    pub member: u8,
}

const _: () = assert!(
    NodeId::MEMBERS <= u8::MAX as usize,
    "a ballot can name every member, and `Ballot::CHOSEN` names none"
);

impl Ballot {
    /// Below that of any leader.
    pub const NONE: Ballot = Ballot { round: 0, member: 0 };
    /// Above that of any leader: what was accepted in it is chosen.
    pub const CHOSEN: Ballot = Ballot { round: u64::MAX, member: u8::MAX };

    /// The first of `member` that is above this.
    #[must_use]
    pub fn next(self, member: usize) -> Ballot {
        Ballot { round: self.round + 1, member: member as u8 }
    }
}

/// Consecutive entries, shared by all that need them at a replica. One that is none does nothing.
pub type Entries<E> = Arc<[Option<E>]>;

/// What was accepted in a slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accepted<E> {
    /// The slot.
    pub slot: u64,
    /// The ballot in which it was accepted, or [`Ballot::CHOSEN`].
    pub ballot: Ballot,
    /// The entry.
    pub entry: Option<E>,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "E: Serialize", deserialize = "E: DeserializeOwned"))]
pub enum Message<E> {
    /// Accept these (phase 2a).
    Accept {
        /// The leader's ballot.
        ballot: Ballot,
        /// The slot of the first of them.
        first: u64,
        /// All slots below are chosen.
        chosen: u64,
        /// The entries.
        entries: Entries<E>,
    },
    /// The sender leads.
    Beat {
        /// Its ballot.
        ballot: Ballot,
        /// The number of this beat in the ballot, from 1.
        number: u64,
        /// All slots below are chosen.
        chosen: u64,
        /// Everything that can have been chosen in a lower ballot is in a slot below.
        base: u64,
        /// The receiver needs entries that are not kept any more, and has to take over the state.
        behind: bool,
    },
    /// Of all slots below, the sender has accepted this leader's entries, or knows what was chosen
    /// (phase 2b).
    Accepted {
        /// The leader's ballot.
        ballot: Ballot,
        /// Identifies the sender's run, from one start to the next.
        incarnation: u64,
        /// The number of the leader's last beat that this run has received, or 0.
        beat: u64,
        /// The first slot of which that is not so.
        matched: u64,
    },
    /// Accept nothing in lower ballots, and show what you have accepted (phase 1a).
    Prepare {
        /// The candidate's ballot.
        ballot: Ballot,
        /// It knows what was chosen below.
        from: u64,
        /// The ballot of the leader that has handed over to the candidate, or [`Ballot::NONE`].
        after: Ballot,
    },
    /// Promised (phase 1b).
    Promise {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The sender knows what was chosen below.
        applied: u64,
        /// What it has accepted from where the candidate asked.
        accepted: Vec<Accepted<E>>,
    },
    /// The sender does not keep all that a candidate would have to know.
    Behind {
        /// The candidate's ballot.
        ballot: Ballot,
    },
    /// The receiver's ballot is too low.
    Refused {
        /// What was promised.
        promised: Ballot,
    },
    /// The sender has lost its disk: count on nothing that it has accepted or promised, and say what you
    /// have promised.
    Rejoin {
        /// Tells this loss from others.
        nonce: u64,
    },
    /// This.
    Standing {
        /// What was asked.
        nonce: u64,
        /// What was promised.
        promised: Ballot,
    },
    /// Show the state after a key.
    Scan {
        /// After this, or from the beginning.
        after: Option<Key>,
    },
    /// This.
    Scanned {
        /// What was asked for.
        after: Option<Key>,
        /// Identifies the sender's run, from one start to the next.
        incarnation: u64,
        /// The slot up to which, at least, this is what was chosen; where the scan begins.
        at: u64,
        /// The next keys in their order, as they lie in the store.
        entries: Vec<(Key, Value)>,
        /// Whether there are more.
        more: bool,
    },
    /// The sender has not heard of a leader for long. It asks whether the receiver would promise it a ballot.
    Canvass {
        /// Identifies the question.
        nonce: u64,
    },
    /// The answer to `Canvass`: the sender has not heard of a leader either, and would promise a ballot.
    Willing {
        /// What was asked.
        nonce: u64,
    },
    /// The leader asks the receiver to lead in its place, and proposes nothing meanwhile.
    HandOver {
        /// The sender's ballot.
        ballot: Ballot,
    },
}

/// What a replica makes durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "E: Serialize", deserialize = "E: DeserializeOwned"))]
pub enum Record<E> {
    /// It has promised this ballot, and accepted entries in it.
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The slot of the first of them.
        first: u64,
        /// The entries.
        entries: Entries<E>,
    },
    /// How it stands. What has been accepted below `applied` was chosen; of what is not found in the
    /// records after a trimmed one, the effect is in the store.
    Mark {
        /// What it has promised.
        promised: Ballot,
        /// What was chosen below has been applied.
        applied: u64,
        /// Whether it does not know what its predecessor had promised and accepted.
        lost: bool,
    },
    /// It has taken over a state that has what was chosen below this, and what it had accepted there does
    /// not matter.
    TakenOver(u64),
}

/// What a replica of a log does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Propose what has come together.
    Flush,
    /// Look after followers.
    Lead,
    /// Look whether there is a leader, or ask again to become it.
    Elect,
    /// Ask again for what a replica lacks.
    Restore,
}
