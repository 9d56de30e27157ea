//! Transactions that a leader refuses permanently.
//!
//! A leader remembers its refusals in memory, for as long as it leads. A later leader refuses all transactions that began
//! before its own window. So a leader refuses a transaction in memory only if it began before the end of the window that
//! is in the log. A transaction that begins later is refused by an entry in the log, and the client is told once the entry
//! is chosen. Until then it is not taken, even if the window is extended meanwhile. Nor is it refused in the log if a window
//! on its way to the log allows it.

use std::collections::BTreeMap;

use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::super::message::Refusal;
use super::leader::OPEN_AT_MOST;

/// How many refusals a leader remembers. If there are more, it closes the window for times up to that of the older half.
pub(super) const REFUSED_AT_MOST: usize = 1 << 18;
/// How many transactions after the window may be refused in the log at a time. Others get no answer.
const BARRED_AT_MOST: usize = 1 << 16;

const _: () = assert!(
    REFUSED_AT_MOST > OPEN_AT_MOST,
    "a leader remembers the refusals of all transactions that are open at once"
);

/// The refusals of a leader.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Those in memory.
    refused: BTreeMap<Version, Refusal>,
    /// Those that are about to be put into the log.
    barred: BTreeMap<Version, Barred>,
    /// How many of these there are, together with those in the log that begin after the window.
    ahead: usize,
}

/// A transaction that begins after the window and is about to be refused in the log.
#[derive(Debug)]
pub(super) struct Barred {
    pub(super) reason: Refusal,
    /// Those that are told once it is refused.
    pub(super) to: SmallVec<[NodeId; 1]>,
}

impl Refusals {
    /// How many there are in memory.
    pub(super) fn len(&self) -> usize {
        self.refused.len()
    }

    /// Why a transaction is refused, if it is.
    pub(super) fn reason(&self, txn: Version) -> Option<Refusal> {
        self.refused.get(&txn).cloned()
    }

    /// Refuses a transaction that began before the end of the window.
    pub(super) fn insert(&mut self, txn: Version, reason: Refusal) {
        self.refused.insert(txn, reason);
    }

    /// If there are too many: the time before which the window has to close, so that the older half can be forgotten. The
    /// window that was proposed last begins at `proposed_us`.
    pub(super) fn excess_before_us(&self, proposed_us: u64) -> Option<u64> {
        if self.refused.len() <= REFUSED_AT_MOST {
            return None;
        }
        let (oldest, _) = self.refused.first_key_value()?;
        // Otherwise an entry that closes the window for these is on its way.
        let median = self.refused.keys().nth(self.refused.len() / 2)?;
        (oldest.timestamp_us >= proposed_us).then_some(median.timestamp_us + 1)
    }

    /// Forgets refusals of transactions before the window, which are late anyway.
    pub(super) fn forget_before(&mut self, from_us: u64) {
        self.refused = self.refused.split_off(&Version::at(from_us));
    }

    /// A transaction that begins after the window is to be refused in the log, and `to` is told then. Returns false if there
    /// is no room.
    pub(super) fn bar(&mut self, txn: Version, reason: Refusal, to: NodeId) -> bool {
        if self.ahead >= BARRED_AT_MOST {
            return false;
        }
        self.ahead += 1;
        self.barred.insert(txn, Barred { reason, to: [to].into_iter().collect() });
        true
    }

    /// Whether a transaction is about to be refused in the log. If so, `to` is told with the others. The window may have
    /// reached it since, but what is in the log comes first.
    pub(super) fn waits_to_be_barred(&mut self, txn: Version, to: NodeId) -> bool {
        let Some(barred) = self.barred.get_mut(&txn) else { return false };
        if !barred.to.contains(&to) {
            barred.to.push(to);
        }
        true
    }

    /// The end of a transaction is in the log. Returns whom to tell, if that is its refusal.
    pub(super) fn take_barred(&mut self, txn: Version) -> Option<Barred> {
        self.barred.remove(&txn)
    }

    /// Counts the transactions that begin after the window and are refused in the log. `decided` of them are over.
    pub(super) fn count_ahead(&mut self, decided: usize) {
        self.ahead = decided + self.barred.len();
    }
}
