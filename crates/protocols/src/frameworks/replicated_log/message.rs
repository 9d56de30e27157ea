//! The messages between replicas of a log, and their durable records.

use core::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serried_model::{Key, NodeId, Value};

/// A log entry.
pub trait Entry: Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static {
    /// Its approximate size in bytes.
    fn size(&self) -> usize;
}

/// A leader's term. The higher of two ballots wins. Each member has its own ballots.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// Increases with each term.
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
    /// Above the ballot of any leader. Entries that were accepted in it are chosen.
    pub const CHOSEN: Ballot = Ballot { round: u64::MAX, member: u8::MAX };

    /// The first ballot of `member` that is above this one.
    #[must_use]
    pub fn next(self, member: usize) -> Ballot {
        Ballot { round: self.round + 1, member: member as u8 }
    }
}

/// Consecutive entries, shared by all components of a replica. An entry that is `None` has no
/// effect.
pub type Entries<E> = Arc<[Option<E>]>;

/// The accepted entry of a slot.
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
        /// The slot of the first entry.
        first: u64,
        /// All slots below this one are chosen.
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
        /// All slots below this one are chosen.
        chosen: u64,
        /// Every entry that may have been chosen in a lower ballot is in a slot below this one.
        base: u64,
        /// Whether the receiver needs entries that are no longer kept, and has to copy the state.
        behind: bool,
    },
    /// The sender has accepted this leader's entries in all slots below `matched`, or knows the
    /// chosen ones (phase 2b).
    Accepted {
        /// The leader's ballot.
        ballot: Ballot,
        /// Identifies the sender's run, from one start to the next.
        incarnation: u64,
        /// The number of the leader's last beat that this run received, or 0.
        beat: u64,
        /// The first slot that is not covered.
        matched: u64,
    },
    /// A request to accept nothing in lower ballots, and to report accepted entries (phase 1a).
    Prepare {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The slot below which it knows all chosen entries.
        from: u64,
        /// The ballot of the leader that handed over to the candidate, or [`Ballot::NONE`].
        after: Ballot,
    },
    /// A promise (phase 1b).
    Promise {
        /// The candidate's ballot.
        ballot: Ballot,
        /// The slot below which the sender knows all chosen entries.
        applied: u64,
        /// The entries that it has accepted, from the slot on that the candidate named.
        accepted: Vec<Accepted<E>>,
    },
    /// The sender does not keep all entries that the candidate lacks.
    Behind {
        /// The candidate's ballot.
        ballot: Ballot,
    },
    /// The receiver's ballot is too low.
    Refused {
        /// The promised ballot.
        promised: Ballot,
    },
    /// The sender has lost its disk. The receiver must not rely on anything that the sender has
    /// accepted or promised, and reports its own promise.
    Rejoin {
        /// Identifies this loss.
        nonce: u64,
        /// Identifies the question.
        question: u64,
    },
    /// The answer to `Rejoin`.
    Standing {
        /// The nonce of the question.
        nonce: u64,
        /// The question.
        question: u64,
        /// The promised ballot.
        promised: Ballot,
        /// Whether the sender has lost its disk, too, or its group has begun anew, and it has accepted nothing since.
        is_blank: bool,
        /// Whether the group has begun anew, after all its disks were lost.
        is_anew: bool,
    },
    /// A request for the next part of the state.
    Scan {
        /// The key after which it begins, or `None` for the beginning.
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
        /// Whether more entries follow.
        more: bool,
    },
    /// The sender has not received a message of a leader for long. It asks whether the receiver
    /// would promise it a ballot.
    Canvass {
        /// Identifies the question.
        nonce: u64,
    },
    /// The answer to `Canvass`: the sender has no leader either, and would promise a ballot.
    Willing {
        /// The nonce of the question.
        nonce: u64,
    },
    /// A request to the receiver to lead in the sender's place. The sender proposes nothing
    /// meanwhile.
    HandOver {
        /// The sender's ballot.
        ballot: Ballot,
    },
}

/// A durable record of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "E: Serialize", deserialize = "E: DeserializeOwned"))]
pub enum Record<E> {
    /// It has promised this ballot and accepted entries in it.
    Accepted {
        /// The ballot.
        ballot: Ballot,
        /// The slot of the first entry.
        first: u64,
        /// The entries.
        entries: Entries<E>,
    },
    /// The promised ballot and the applied slot. Every entry that was accepted below `applied` is
    /// chosen. If its record was trimmed, its effect is in the store.
    Mark {
        /// The promised ballot.
        promised: Ballot,
        /// All chosen entries below this slot have been applied.
        applied: u64,
        /// Whether it does not know what its predecessor promised and accepted.
        lost: bool,
        /// Whether the group has begun anew, after all its disks were lost.
        anew: bool,
    },
    /// It has copied a state that contains everything that was chosen below this slot. Entries that
    /// it had accepted there do not matter any more.
    TakenOver(u64),
}

/// The timers of a replica of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Propose the queued entries.
    Flush,
    /// Check the followers.
    Lead,
    /// Check whether there is a leader, or ask again for promises.
    Elect,
    /// Repeat requests for entries or state that a replica lacks.
    Restore,
}
