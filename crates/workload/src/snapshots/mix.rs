//! Requests whose histories can be checked.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{CLIENT_SHIFT, PlannedSnapshot, SnapshotParameters, SnapshotWorkload};
use crate::WorkloadError;

/// Read-only transactions of some keys, and writes and deletes: single ones, or in write transactions. No two requests
/// write the same value.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotMix {
    /// How many keys there are.
    pub keys: u64,
    /// The share of requests that write.
    pub writes: f64,
    /// The share of writes that delete.
    pub deletes: f64,
    /// How many keys a transaction reads at most.
    pub most_read: u64,
    /// How many keys a transaction writes at most. If it is more than 1, the keyspace must have write transactions, and
    /// each request that writes is one.
    pub most_written: u64,
}

/// How many keys a write transaction has at most if nothing else is said.
const MOST_WRITTEN: u64 = 4;

impl SnapshotMix {
    /// By default there are eight keys, and a half of the requests write, and one write of ten deletes.
    ///
    /// # Errors
    /// If a parameter is not possible.
    pub fn new(parameters: &SnapshotParameters) -> Result<SnapshotMix, WorkloadError> {
        let writes = parameters.writes.unwrap_or(0.5);
        if !(0.0..=1.0).contains(&writes) {
            return Err(WorkloadError::WriteShare(writes));
        }
        let keys = parameters.keys.unwrap_or(8).max(1);
        let most_read = parameters.keys_per_request.unwrap_or(5).clamp(1, keys);
        Ok(SnapshotMix { keys, writes, deletes: 0.1, most_read, most_written: 1 })
    }

    /// The same mix, in which each request that writes is a write transaction of at most 4 keys.
    #[must_use]
    pub fn writing_together(self) -> SnapshotMix {
        SnapshotMix { most_written: MOST_WRITTEN, ..self }
    }

    /// From 1 to `most` different keys.
    fn draw(&self, most: u64, random: &mut Pcg64Mcg) -> Vec<u64> {
        let count = random.random_range(1..=most.clamp(1, self.keys)) as usize;
        let mut keys: Vec<u64> = (0..self.keys).collect();
        for i in 0..count {
            let other = random.random_range(i..keys.len());
            keys.swap(i, other);
        }
        keys.truncate(count);
        keys
    }

    /// The value that a request writes to a key; `None` if it deletes it.
    fn value(&self, value: u64, random: &mut Pcg64Mcg) -> Option<u64> {
        (!random.random_bool(self.deletes)).then_some(value)
    }
}

impl SnapshotWorkload for SnapshotMix {
    fn name(&self) -> &'static str {
        "snapshot"
    }

    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot {
        if !random.random_bool(self.writes) {
            return PlannedSnapshot::Read(self.draw(self.most_read, random));
        }
        let value = (client + 1) << CLIENT_SHIFT | number;
        if self.most_written <= 1 {
            let value = self.value(value, random);
            return PlannedSnapshot::Write(vec![(random.random_range(0..self.keys), value)]);
        }
        let keys = self.draw(self.most_written, random);
        let writes = keys.into_iter().map(|key| (key, self.value(value, random)));
        PlannedSnapshot::WriteTogether(writes.collect())
    }

    fn with_write_transactions(&self) -> Option<Arc<dyn SnapshotWorkload>> {
        Some(Arc::new(self.writing_together()))
    }

    fn keys(&self) -> u64 {
        self.keys
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_mix_with_write_transactions_writes_and_deletes_up_to_so_many_different_keys_together() {
        let mix = SnapshotMix::new(&SnapshotParameters::default()).unwrap().writing_together();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let (mut counts, mut deletes) = ([0; 5], 0);
        for number in 0..2000 {
            let writes = match mix.plan(3, number, random) {
                PlannedSnapshot::Read(_) => continue,
                PlannedSnapshot::Write(_) => panic!("each request that writes is a transaction"),
                PlannedSnapshot::WriteTogether(writes) => writes,
            };
            let keys: std::collections::BTreeSet<u64> =
                writes.iter().map(|(key, _)| *key).collect();
            assert_eq!(keys.len(), writes.len());
            assert!(keys.iter().all(|key| *key < 8));
            counts[writes.len()] += 1;
            for (_, value) in writes {
                deletes += usize::from(value.is_none());
                assert!(value.is_none_or(|value| value == 4 << CLIENT_SHIFT | number));
            }
        }
        assert_eq!(counts[0], 0);
        assert!(counts[1..].iter().all(|count| *count > 150), "{counts:?}");
        assert!((150..350).contains(&deletes), "{deletes}");
    }

    #[test]
    fn without_write_transactions_keys_are_written_one_by_one() {
        let mix = SnapshotMix::new(&SnapshotParameters::default()).unwrap();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        for number in 0..200 {
            match mix.plan(3, number, random) {
                PlannedSnapshot::Read(keys) => assert!((1..=5).contains(&keys.len())),
                PlannedSnapshot::Write(writes) => assert_eq!(writes.len(), 1),
                PlannedSnapshot::WriteTogether(_) => panic!("not every keyspace has them"),
            }
        }
    }

    #[test]
    fn a_transaction_has_no_more_keys_than_there_are() {
        let parameters =
            SnapshotParameters { keys: Some(2), writes: Some(1.0), ..Default::default() };
        let mix = SnapshotMix::new(&parameters).unwrap().writing_together();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        for number in 0..100 {
            let PlannedSnapshot::WriteTogether(writes) = mix.plan(0, number, random) else {
                panic!("all requests write")
            };
            assert!((1..=2).contains(&writes.len()));
        }
    }
}
