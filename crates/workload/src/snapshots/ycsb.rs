//! YCSB in groups of records (004 §7.2).

use rand_pcg::Pcg64Mcg;
use serried_model::{Key, Value};

use super::draw::{Draw, writes};
use super::{PlannedSnapshot, SnapshotParameters, SnapshotWorkload};
use crate::{WorkloadError, number};

/// Requests of a few records each: a read-only transaction, or a group of writes. A record is one value, as long as
/// its 10 fields of 100 bytes.
#[derive(Debug)]
pub struct YcsbGroups {
    draw: Draw,
    key_bytes: usize,
    value_bytes: usize,
}

impl YcsbGroups {
    /// Those of YCSB's workload B, with 5 records a request and 5 % writes, if nothing else is said.
    ///
    /// # Errors
    /// If a parameter is not possible.
    pub fn new(parameters: &SnapshotParameters) -> Result<YcsbGroups, WorkloadError> {
        Ok(YcsbGroups {
            draw: Draw::new(parameters, 0.05, 0.99)?,
            key_bytes: parameters.key_bytes.unwrap_or(8),
            value_bytes: parameters.value_bytes.unwrap_or(1000),
        })
    }
}

impl SnapshotWorkload for YcsbGroups {
    fn name(&self) -> &'static str {
        "ycsb-groups"
    }

    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot {
        match self.draw.next(random) {
            (false, keys) => PlannedSnapshot::Read(keys),
            (true, keys) => PlannedSnapshot::Write(writes(keys, client, number)),
        }
    }

    fn width(&self) -> u64 {
        self.draw.per_request()
    }

    fn keys(&self) -> u64 {
        self.draw.keys()
    }

    fn initial(&self) -> Option<Value> {
        Some(number::value(0, self.value_bytes))
    }

    /// Neighbours in popularity are far from each other, so they are not at the same partition.
    fn key(&self, number: u64) -> Key {
        number::key(number, self.key_bytes)
    }

    fn value(&self, number: u64) -> Value {
        number::value(number, self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn requests_have_different_keys_and_the_share_of_writes() {
        let parameters =
            SnapshotParameters { writes: Some(0.25), keys: Some(100), ..Default::default() };
        let workload = YcsbGroups::new(&parameters).unwrap();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let mut writes = 0;
        for number in 0..2000 {
            let mut keys = match workload.plan(3, number, random) {
                PlannedSnapshot::Read(keys) => keys,
                PlannedSnapshot::Write(pairs) => {
                    writes += 1;
                    pairs.into_iter().map(|(key, _)| key).collect()
                }
                PlannedSnapshot::WriteTogether(_) => panic!("a group is no transaction"),
            };
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 5);
            assert!(keys[4] < 100);
        }
        assert!((400..600).contains(&writes), "{writes}");
        assert_eq!(workload.value(7).len(), 1000);
        assert_eq!(workload.number(&workload.value(7)), 7);
    }
}
