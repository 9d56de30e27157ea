//! Seals keys that many modify, so that readers need not name all modifications.
//!
//! A read that has committed seals what it has named: nothing else can commit below it, so replicas replace the last
//! modification by its result (see [`morty`](crate::morty)). If nobody reads a key and nobody writes a value, the coordinator
//! of one of the modifications reads the key in a transaction of its own when replicas say that the key is crowded.
//!
//! *That transaction is in nobody's way.* It writes nothing, so it concerns no reader. It could stop only modifications that are
//! below it and arrive after its Prepare. So it takes its version, and reads only when those that began before it should have
//! arrived: after as long as the modification that was the last one took to be voted on. It does not
//! have to succeed. If it is aborted, replicas ask again when as many modifications have been added.

use core::time::Duration;

use serried_model::transactions::Outcome;
use serried_model::{Key, ReadStamp, Version};

use super::transaction::Transaction;
use super::{Coordinator, Cx, Timer};
use crate::morty::Control;
use crate::morty::message::Decision;

/// So many keys are sealed at a time, at most.
const AT_MOST: usize = 1024;
/// How long others have to arrive, at most. It has to be well below the time in which a transaction may commit.
const WAITS_AT_MOST: Duration = Duration::from_millis(250);

impl Coordinator {
    /// Many have modified a key since a value was written, the transaction `version` of this coordinator among them.
    pub(super) fn on_crowded(&mut self, version: Version, key: Key, cx: &mut Cx) {
        let is_modified = |transaction: &Transaction| transaction.writes.contains_key(&key);
        if self.options.control != Control::Ordering // Others leave modifications to the session.
            || !self.transactions.get(&version).is_some_and(is_modified)
            || self.sealing.len() >= AT_MOST
            || self.sealing.contains(&key)
        {
            return;
        }
        let took_us = cx.clock().midpoint_us().saturating_sub(version.timestamp_us);
        let wait = Duration::from_micros(took_us).max(self.group.round_trip());
        let own = self.begin_for(None, cx);
        let transaction = self.transactions.get_mut(&own).expect("it has begun");
        transaction.seals = Some(key.clone());
        self.sealing.insert(key);
        cx.set_timer(Timer::Seal(own), wait.min(WAITS_AT_MOST));
    }

    /// What began before a transaction that seals a key should have arrived.
    pub(super) fn read_to_seal(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version);
        if let Some(key) = transaction.and_then(|transaction| transaction.seals.clone()) {
            self.on_get(version, key, cx);
        }
    }

    /// A transaction that seals a key has found something, or something else: prepares it.
    pub(super) fn seal(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get(&version) else { return };
        let Some(key) = &transaction.seals else { return };
        let Some(read) = transaction.reads.get(key) else { return };
        let stamp = ReadStamp { key: key.clone(), stamp: read.stamp };
        let found = read.found.as_ref();
        if found.is_some_and(|found| found.modified.is_empty()) && transaction.next_eid == 0 {
            // A value was written.
            let aborted = Outcome::Aborted { conflicts: Vec::new() };
            return self.conclude(version, Some(Decision::Abort), aborted, cx);
        }
        self.on_commit(version, vec![stamp], Vec::new(), Vec::new(), cx);
    }
}
