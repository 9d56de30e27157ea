//! What participants exchange and what replicas keep.

use serde::{Deserialize, Serialize};
use serried_model::{Carstamp, Key};
use serried_parts::{Stamped, carstamps};

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// What does the replica hold for a key? The first phase of a read.
    Read1 {
        /// Names the operation at its coordinator.
        request: u64,
        /// The key.
        key: Key,
    },
    /// The answer to [`Message::Read1`].
    Read1Reply {
        /// The operation.
        request: u64,
        /// What it holds.
        held: Stamped,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// What carstamp does the replica hold for a key? The first phase of a write.
    Write1 {
        /// Names the operation at its coordinator.
        request: u64,
        /// The key.
        key: Key,
    },
    /// The answer to [`Message::Write1`].
    Write1Reply {
        /// The operation.
        request: u64,
        /// The carstamp of what it holds.
        carstamp: Carstamp,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// Hold this, unless you hold something later: the second phase of both, Read2 and Write2.
    Apply {
        /// Names the operation at its coordinator.
        request: u64,
        /// The key.
        key: Key,
        /// What it is to hold.
        stamped: Stamped,
    },
    /// The sender holds it, durably, or something later.
    Applied {
        /// The operation.
        request: u64,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
    /// The sender has lost its disk: show what you hold after a key.
    Scan {
        /// After this, or from the beginning.
        after: Option<Key>,
        /// The sender's incarnation.
        incarnation: u64,
    },
    /// The answer to [`Message::Scan`].
    Scanned {
        /// What was asked for.
        after: Option<Key>,
        /// The next keys, in their order.
        entries: Vec<(Key, Stamped)>,
        /// Whether there are more.
        more: bool,
        /// The incarnations that the sender knows ([`serried_parts::Incarnations::named`]).
        incarnations: Vec<u64>,
    },
}

/// Above any incarnation: those are times in microseconds since the Unix epoch. Sums of smaller numbers do not overflow.
const NEVER: u64 = 1 << 62;

const _: () = assert!(NEVER <= u64::MAX / 4 + 1, "sums of three smaller numbers do not overflow");

impl Message {
    /// Whether a participant can have sent it that is neither damaged nor malicious.
    pub(super) fn is_sound(&self) -> bool {
        let counted = |incarnations: &[u64]| incarnations.iter().all(|number| *number < NEVER);
        match self {
            Message::Read1 { .. } | Message::Write1 { .. } => true,
            Message::Read1Reply { held, incarnations, .. } => {
                carstamps::is_sound(&held.carstamp) && counted(incarnations)
            }
            Message::Write1Reply { carstamp: of, incarnations, .. } => {
                carstamps::is_sound(of) && counted(incarnations)
            }
            Message::Apply { stamped, .. } => carstamps::is_sound(&stamped.carstamp),
            Message::Applied { incarnations, .. } => counted(incarnations),
            Message::Scan { incarnation, .. } => *incarnation < NEVER,
            Message::Scanned { entries, incarnations, .. } => {
                counted(incarnations)
                    && entries.iter().all(|(_, held)| carstamps::is_sound(&held.carstamp))
            }
        }
    }
}

/// What a replica makes durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// It holds this.
    Applied {
        /// The key.
        key: Key,
        /// What it holds.
        stamped: Stamped,
    },
    /// It takes the place of one that was lost, and does not know what that one held.
    Lost,
    /// It does again.
    Whole,
    /// The latest incarnation of each member that it knows.
    Incarnations(Vec<u64>),
}
