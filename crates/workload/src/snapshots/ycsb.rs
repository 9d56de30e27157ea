//! YCSB in groups of records (004 §7.2).

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_model::{Key, Value};

use super::{PlannedSnapshot, SnapshotParameters, SnapshotWorkload};
use crate::{WorkloadError, number};

/// Requests of a few records each: a read-only transaction, or a group of writes. A record is one value, as long as
/// its 10 fields of 100 bytes.
#[derive(Debug)]
pub struct YcsbGroups {
    writes: f64,
    keys: u64,
    distribution: Zipf<f64>,
    per_request: u64,
    key_bytes: usize,
    value_bytes: usize,
}

/// The most keys of a request.
const MOST_KEYS: u64 = 1000;
/// Where the numbers that are written have the client's.
const CLIENT_SHIFT: u32 = 40;

impl YcsbGroups {
    /// Those of YCSB's workload B, with 5 records a request and 5 % writes, if nothing else is said.
    ///
    /// # Errors
    /// If a parameter is not possible.
    pub fn new(parameters: &SnapshotParameters) -> Result<YcsbGroups, WorkloadError> {
        let writes = parameters.writes.unwrap_or(0.05);
        if !(0.0..=1.0).contains(&writes) {
            return Err(WorkloadError::WriteShare(writes));
        }
        let keys = parameters.keys.unwrap_or(1_000_000);
        let per_request = parameters.keys_per_request.unwrap_or(5);
        if !(1..=MOST_KEYS.min(keys)).contains(&per_request) {
            return Err(WorkloadError::Keys(format!(
                "{per_request} keys in a request, of {keys} keys: choose from 1 to {}",
                MOST_KEYS.min(keys)
            )));
        }
        let theta = parameters.theta.unwrap_or(0.99);
        let distribution = Zipf::new(keys as f64, theta);
        let distribution = distribution.map_err(|error| {
            WorkloadError::Keys(format!("{keys} keys with theta {theta}: {error}"))
        })?;
        Ok(YcsbGroups {
            writes,
            keys,
            distribution,
            per_request,
            key_bytes: parameters.key_bytes.unwrap_or(8),
            value_bytes: parameters.value_bytes.unwrap_or(1000),
        })
    }

    /// Different keys.
    fn draw(&self, random: &mut Pcg64Mcg) -> Vec<u64> {
        let mut keys: Vec<u64> = Vec::with_capacity(self.per_request as usize);
        while (keys.len() as u64) < self.per_request {
            let drawn = self.distribution.sample(random) as u64 - 1;
            if !keys.contains(&drawn) {
                keys.push(drawn);
            }
        }
        keys
    }
}

impl SnapshotWorkload for YcsbGroups {
    fn name(&self) -> &'static str {
        "ycsb-groups"
    }

    fn plan(&self, client: u64, number: u64, random: &mut Pcg64Mcg) -> PlannedSnapshot {
        let is_write = random.random_bool(self.writes);
        let keys = self.draw(random);
        match is_write {
            false => PlannedSnapshot::Read(keys),
            true => {
                let value = (client << CLIENT_SHIFT) | (number + 1);
                PlannedSnapshot::Write(keys.into_iter().map(|key| (key, Some(value))).collect())
            }
        }
    }

    fn width(&self) -> u64 {
        self.per_request
    }

    fn keys(&self) -> u64 {
        self.keys
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

    #[test]
    fn what_is_not_possible_is_refused() {
        let with = |parameters| YcsbGroups::new(&parameters).err().map(|error| error.to_string());
        let of = |keys_per_request, keys, writes, theta| {
            let parameters = SnapshotParameters {
                keys_per_request: Some(keys_per_request),
                keys: Some(keys),
                writes: Some(writes),
                theta: Some(theta),
                ..Default::default()
            };
            with(parameters)
        };
        assert_eq!(of(5, 100, 0.5, 0.0), None);
        assert!(of(6, 5, 0.5, 0.9).unwrap().contains("choose from 1 to 5"));
        assert!(of(0, 5, 0.5, 0.9).is_some());
        assert!(of(5, 100, 1.5, 0.9).is_some());
        assert!(of(5, 100, 0.5, -1.0).is_some());
    }
}
