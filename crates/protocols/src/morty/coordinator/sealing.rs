//! Seals keys that many modify, so that readers need not name all modifications.
//!
//! A read that has committed seals what it has named: nothing else can commit below it, so replicas replace the last
//! modification by its result (see [`morty`](crate::morty)). If nobody reads a key and nobody writes a value, the coordinator
//! of one of the modifications reads the key in a transaction of its own when replicas say that the key is crowded.
//!
//! *That transaction is in nobody's way.* It writes nothing, so it concerns no reader. It could stop only modifications that are
//! below it and arrive after its Prepare. So it takes its version, and reads only when those that began before it should have
//! arrived: after as long as the modification that was the last one took to be voted on, and when the clock of the replica that
//! has asked has passed its version, since the coordinator's clock may be ahead. It does not
//! have to succeed. If it is aborted, replicas ask again when as many modifications have been added.
//!
//! *It reads at the replica that has asked.* That replica then has all that the read has named. A replica that has missed an
//! earlier seal can't tell whether it has all that lies between, and can make nothing of a read of another replica that
//! begins there.

use core::time::Duration;

use serried_model::transactions::Outcome;
use serried_model::{Key, NodeId, ReadStamp, Version};

use super::transaction::Transaction;
use super::{Coordinator, Cx, Timer};
use crate::morty::Control;
use crate::morty::message::Decision;

/// So many keys are sealed at a time, at most.
const AT_MOST: usize = 1024;
/// How long others have to arrive, at most. It has to be well below the time in which a transaction may commit.
const WAITS_AT_MOST: Duration = Duration::from_millis(500);

/// What a transaction of the coordinator's own seals.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    pub key: Key,
    /// The replica that has asked for it.
    pub reads_at: NodeId,
}

impl Coordinator {
    /// Many have modified a key since a value was written, the transaction `version` of this coordinator among them. The
    /// replica `from` says so, and that its clock has shown `clock_us`.
    pub(super) fn on_crowded(
        &mut self,
        from: NodeId,
        (version, key): (Version, Key),
        clock_us: u64,
        cx: &mut Cx,
    ) {
        let is_modified = |transaction: &Transaction| transaction.writes.contains_key(&key);
        if self.options.control != Control::Ordering // Others leave modifications to the session.
            || !self.transactions.get(&version).is_some_and(is_modified)
            || self.group.partition_of(&key) != from.partition()
            || self.sealing.len() >= AT_MOST
            || self.sealing.contains(&key)
        {
            return;
        }
        let own = self.begin_for(None, cx);
        // Its version has the same lead as that of the modification.
        let took_us = own.timestamp_us.saturating_sub(version.timestamp_us);
        let ahead_us = own.timestamp_us.saturating_sub(clock_us);
        let wait = Duration::from_micros(took_us.max(ahead_us)).max(self.group.round_trip());
        let transaction = self.transactions.get_mut(&own).expect("it has begun");
        transaction.seals = Some(Seal { key: key.clone(), reads_at: from });
        self.sealing.insert(key);
        cx.set_timer(Timer::Seal(own), wait.min(WAITS_AT_MOST));
    }

    /// What began before a transaction that seals a key should have arrived.
    pub(super) fn read_to_seal(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version);
        let seal = transaction.and_then(|transaction| transaction.seals.clone());
        if let Some(Seal { key, reads_at }) = seal {
            self.get_at(reads_at, version, key, cx);
        }
    }

    /// A transaction that seals a key has found something, or something else: prepares it.
    pub(super) fn seal(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get(&version) else { return };
        let Some(Seal { key, .. }) = &transaction.seals else { return };
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
