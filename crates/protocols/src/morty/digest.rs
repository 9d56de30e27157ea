//! What has committed, in few bytes.

use serde::{Deserialize, Serialize};
use serried_model::Version;

/// A digest of a set of committed executions. Equal sets have equal digests, and different sets almost certainly
/// have different ones. The order in which executions are added does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Digest {
    count: u64,
    sum: u128,
}

impl Digest {
    /// Adds an execution that was not in the set.
    pub fn add(&mut self, version: Version, eid: u32) {
        self.count += 1;
        let (first, second) = (version.timestamp_us, version.coordinator.0);
        let low = mix(first ^ mix(second ^ mix(u64::from(eid))));
        let high = mix(low ^ second.rotate_left(32) ^ first);
        self.sum = self.sum.wrapping_add(u128::from(high) << 64 | u128::from(low));
    }

    /// How many executions are in the set.
    pub fn count(self) -> u64 {
        self.count
    }
}

/// A bijection that spreads each bit over all (the finalizer of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    #[test]
    fn the_order_does_not_matter_and_everything_else_does() {
        let executions: Vec<_> = (0..100u64)
            .map(|i| (Version { timestamp_us: i / 3, coordinator: NodeId(i % 3) }, i as u32 % 2))
            .collect();
        let digest = |executions: &[(Version, u32)]| {
            let mut digest = Digest::default();
            executions.iter().for_each(|(version, eid)| digest.add(*version, *eid));
            digest
        };
        let mut backwards = executions.clone();
        backwards.reverse();
        assert_eq!(digest(&executions), digest(&backwards));
        for i in 0..100 {
            let (mut without, mut other) = (executions.clone(), executions.clone());
            without.remove(i);
            other[i].1 += 1;
            assert_ne!(digest(&executions), digest(&without));
            assert_ne!(digest(&executions), digest(&other));
        }
        assert_eq!(digest(&executions).count(), 100);
    }
}
