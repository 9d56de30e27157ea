//! Transactions that a leader refuses permanently.
//!
//! A leader remembers its refusals in memory, for as long as it leads. A later leader refuses all
//! transactions that began before its own window. So a leader refuses a transaction in memory only
//! if it began before the end of the window that is in the log. A transaction that begins later is
//! refused by an entry in the log, and the client is notified once the entry is chosen. Until then
//! the transaction is not admitted, even if the window is extended meanwhile. If a proposed window
//! admits the transaction, it is not refused in the log.

use std::collections::BTreeMap;

use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::super::message::Refusal;
use super::leader::OPEN_AT_MOST;

/// How many refusals a leader remembers. If there are more, it closes the window up to the median
/// of their times.
pub(super) const REFUSED_AT_MOST: usize = 1 << 18;
/// How many transactions after the window may be refused in the log at a time. Others get no
/// answer.
const BARRED_AT_MOST: usize = 1 << 16;

const _: () = assert!(
    REFUSED_AT_MOST > OPEN_AT_MOST,
    "a leader remembers the refusals of all transactions that are open at once"
);

/// The refusals of a leader.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Refusals in memory.
    refused: BTreeMap<Version, Refusal>,
    /// Refusals that are about to enter the log.
    barred: BTreeMap<Version, Barred>,
    /// How many of `barred` there are, plus those in the log that begin after the window.
    ahead: usize,
}

/// A transaction that begins after the window and is about to be refused in the log.
#[derive(Debug)]
pub(super) struct Barred {
    pub(super) reason: Refusal,
    /// The nodes to notify once it is refused.
    pub(super) to: SmallVec<[NodeId; 1]>,
}

impl Refusals {
    /// How many refusals are in memory.
    pub(super) fn len(&self) -> usize {
        self.refused.len()
    }

    /// The reason for which a transaction is refused, if it is.
    pub(super) fn reason(&self, txn: Version) -> Option<Refusal> {
        self.refused.get(&txn).cloned()
    }

    /// Refuses a transaction that began before the end of the window.
    pub(super) fn insert(&mut self, txn: Version, reason: Refusal) {
        self.refused.insert(txn, reason);
    }

    /// If there are too many refusals, the time before which the window has to close so that the
    /// older half can be forgotten. The last proposed window begins at `proposed_us`.
    pub(super) fn excess_before_us(&self, proposed_us: u64) -> Option<u64> {
        if self.refused.len() <= REFUSED_AT_MOST {
            return None;
        }
        let (oldest, _) = self.refused.first_key_value()?;
        // Otherwise, an entry that closes the window for these was proposed already.
        let median = self.refused.keys().nth(self.refused.len() / 2)?;
        (oldest.timestamp_us >= proposed_us).then_some(median.timestamp_us + 1)
    }

    /// Forgets refusals of transactions before the window. Those are late in any case.
    pub(super) fn forget_before(&mut self, from_us: u64) {
        self.refused = self.refused.split_off(&Version::at(from_us));
    }

    /// Begins to refuse a transaction after the window in the log. `to` is notified once it is
    /// refused. Returns false if there is no room.
    pub(super) fn bar(&mut self, txn: Version, reason: Refusal, to: NodeId) -> bool {
        if self.ahead >= BARRED_AT_MOST {
            return false;
        }
        self.ahead += 1;
        self.barred.insert(txn, Barred { reason, to: [to].into_iter().collect() });
        true
    }

    /// Whether a transaction is about to be refused in the log. If so, `to` is notified with the
    /// others. The window may have reached the transaction since, but the refusal precedes it in
    /// the log.
    pub(super) fn waits_to_be_barred(&mut self, txn: Version, to: NodeId) -> bool {
        let Some(barred) = self.barred.get_mut(&txn) else { return false };
        if !barred.to.contains(&to) {
            barred.to.push(to);
        }
        true
    }

    /// Removes a transaction whose end is in the log. Returns it with the nodes to notify if that
    /// end is its refusal.
    pub(super) fn take_barred(&mut self, txn: Version) -> Option<Barred> {
        self.barred.remove(&txn)
    }

    /// Counts the transactions that begin after the window and are refused in the log. `decided` of
    /// them have ended.
    pub(super) fn count_ahead(&mut self, decided: usize) {
        self.ahead = decided + self.barred.len();
    }
}
