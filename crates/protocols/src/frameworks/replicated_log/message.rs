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

/// A leader's term. Of two ballots the higher one wins. Each member has ballots of its own.
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
    /// Below the ballot of any leader.
    pub const NONE: Ballot = Ballot { round: 0, member: 0 };
    /// Above the ballot of any leader. What was accepted in it is chosen.
    pub const CHOSEN: Ballot = Ballot { round: u64::MAX, member: u8::MAX };

    /// The first ballot of `member` that is above this one.
    #[must_use]
    pub fn next(self, member: usize) -> Ballot {
        Ballot { round: self.round + 1, member: member as u8 }
    }
}

/// Consecutive entries, shared by all that need them at a replica. An entry that is `None` has no effect.
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
    /// Accept these entries (phase 2a).
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
    /// The sender has accepted this leader's entries in all slots below `matched`, or knows what was chosen there (phase 2b).
    Accepted {
        /// The leader's ballot.
        ballot: Ballot,
        /// Identifies the sender's run, from one start to the next.
        incarnation: u64,
        /// The number of the leader's last beat that this run has received, or 0.
        beat: u64,
        /// The first slot of which this is not true.
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
    /// The sender does not keep all entries that the candidate lacks.
    Behind {
        /// The candidate's ballot.
        ballot: Ballot,
    },
    /// The receiver's ballot is too low.
    Refused {
        /// What was promised.
        promised: Ballot,
    },
    /// The sender has lost its disk. Do not rely on anything that it has accepted or promised, and report what you have
    /// promised.
    Rejoin {
        /// Identifies this loss.
        nonce: u64,
    },
    /// The answer to `Rejoin`.
    Standing {
        /// The nonce of the question.
        nonce: u64,
        /// What was promised.
        promised: Ballot,
    },
    /// Show the next part of the state.
    Scan {
        /// The key after which it begins, or none for the beginning.
        after: Option<Key>,
    },
    /// The answer to `Scan`.
    Scanned {
        /// The key after which it begins.
        after: Option<Key>,
        /// Identifies the sender's run, from one start to the next.
        incarnation: u64,
        /// The state contains everything that was chosen below this slot.
        at: u64,
        /// The next keys in ascending order, with their values in the store.
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
        /// The nonce of the question.
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
    /// What was promised and applied. Everything that was accepted below `applied` is chosen. If its record was trimmed, its
    /// effect is in the store.
    Mark {
        /// The promised ballot.
        promised: Ballot,
        /// Everything that was chosen below this slot has been applied.
        applied: u64,
        /// Whether it does not know what its predecessor had promised and accepted.
        lost: bool,
    },
    /// It has taken over a state that contains everything that was chosen below this slot. What it had accepted there does not
    /// matter any more.
    TakenOver(u64),
}

/// The timers of a replica of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Propose what is queued.
    Flush,
    /// Look after followers.
    Lead,
    /// Check whether there is a leader, or ask again for promises.
    Elect,
    /// Ask again for what a replica lacks.
    Restore,
}
