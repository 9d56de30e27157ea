//! Requests whose histories can be checked.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{PlannedSnapshot, SnapshotParameters, SnapshotWorkload};
use crate::WorkloadError;

/// Read-only transactions of some keys, and single writes and deletes. No two writes have the same value.
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
}

/// Where the numbers that are written have the client's.
const CLIENT_SHIFT: u32 = 40;

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
        Ok(SnapshotMix { keys, writes, deletes: 0.1, most_read })
    }
}

impl SnapshotWorkload for SnapshotMix {
    fn name(&self) -> &'static str {
        "snapshot"
    }

    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot {
        if random.random_bool(self.writes) {
            let value = (client + 1) << CLIENT_SHIFT | number;
            let value = (!random.random_bool(self.deletes)).then_some(value);
            return PlannedSnapshot::Write(vec![(random.random_range(0..self.keys), value)]);
        }
        let count = random.random_range(1..=self.most_read.min(self.keys));
        let mut keys: Vec<u64> = (0..self.keys).collect();
        for i in 0..count as usize {
            let other = random.random_range(i..keys.len());
            keys.swap(i, other);
        }
        keys.truncate(count as usize);
        PlannedSnapshot::Read(keys)
    }

    fn keys(&self) -> u64 {
        self.keys
    }
}
