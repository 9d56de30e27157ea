//! Draws the keys of a request.

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

use super::{CLIENT_SHIFT, SnapshotParameters};
use crate::WorkloadError;

/// The most keys of a request.
const MOST_KEYS: u64 = 1000;

/// Requests that write or read a set number of different keys, which are drawn from a Zipf distribution.
#[derive(Debug)]
pub(super) struct Draw {
    writes: f64,
    keys: u64,
    distribution: Zipf<f64>,
    per_request: u64,
}

impl Draw {
    /// With these shares of writes and this exponent unless the parameters have others.
    pub(super) fn new(
        parameters: &SnapshotParameters,
        writes: f64,
        theta: f64,
    ) -> Result<Draw, WorkloadError> {
        let writes = parameters.writes.unwrap_or(writes);
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
        let theta = parameters.theta.unwrap_or(theta);
        let distribution = Zipf::new(keys as f64, theta);
        let distribution = distribution.map_err(|error| {
            WorkloadError::Keys(format!("{keys} keys with theta {theta}: {error}"))
        })?;
        Ok(Draw { writes, keys, distribution, per_request })
    }

    /// How many keys there are.
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }

    /// How many keys a request has.
    pub(super) fn per_request(&self) -> u64 {
        self.per_request
    }

    /// Whether the next request writes, and its keys, which are different.
    pub(super) fn next(&self, random: &mut Pcg64Mcg) -> (bool, Vec<u64>) {
        let writes = random.random_bool(self.writes);
        let mut keys: Vec<u64> = Vec::with_capacity(self.per_request as usize);
        while (keys.len() as u64) < self.per_request {
            let drawn = self.distribution.sample(random) as u64 - 1;
            if !keys.contains(&drawn) {
                keys.push(drawn);
            }
        }
        (writes, keys)
    }
}

/// The writes of the `number`-th request of a client to these keys. No other request has their value.
pub(super) fn writes(keys: Vec<u64>, client: u64, number: u64) -> Vec<(u64, Option<u64>)> {
    let value = (client << CLIENT_SHIFT) | (number + 1);
    keys.into_iter().map(|key| (key, Some(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_possible_is_refused() {
        let of = |keys_per_request, keys, writes, theta| {
            let parameters = SnapshotParameters {
                keys_per_request: Some(keys_per_request),
                keys: Some(keys),
                writes: Some(writes),
                theta: Some(theta),
                ..Default::default()
            };
            Draw::new(&parameters, 0.1, 0.8).err().map(|error| error.to_string())
        };
        assert_eq!(of(5, 100, 0.5, 0.0), None);
        assert!(of(6, 5, 0.5, 0.9).unwrap().contains("choose from 1 to 5"));
        assert!(of(0, 5, 0.5, 0.9).is_some());
        assert!(of(5, 100, 1.5, 0.9).is_some());
        assert!(of(5, 100, 0.5, -1.0).is_some());
    }
}
