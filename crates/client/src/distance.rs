//! Which replicas are near.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use serried_actor::{Group, Random};
use serried_wire::Place;

/// Replicas whose round trips differ by no more than this, or by a fifth, are equally near: what was
/// measured is not more exact than that.
const TIE: Duration = Duration::from_micros(200);
/// No round trip is taken to be shorter.
const SHORTEST: Duration = Duration::from_micros(500);

/// The group of `n` replicas as a client sees it that has measured `round_trips`. Replicas that did
/// not answer count as the farthest. Equally near ones are in an order that depends on `spread`.
pub(crate) fn measured(round_trips: &BTreeMap<u64, Duration>, n: usize, spread: u64) -> Group {
    let mut replicas: Vec<(Duration, u64)> = (0..n as u64)
        .map(|replica| (round_trips.get(&replica).copied().unwrap_or(Duration::MAX), replica))
        .collect();
    replicas.sort_unstable();
    for ties in replicas.chunk_by_mut({
        let mut nearest = Duration::ZERO;
        move |(before, _), (round_trip, _)| {
            if nearest.is_zero() {
                nearest = *before;
            }
            let tied = *round_trip <= nearest.saturating_add(TIE.max(nearest / 5));
            if !tied {
                nearest = *round_trip;
            }
            tied
        }
    }) {
        ties.sort_unstable_by_key(|(_, replica)| {
            (replica + n as u64 - spread % n as u64) % n as u64
        });
    }
    let farthest = round_trips.values().max().copied().unwrap_or_default().max(SHORTEST);
    Group::nearest_first(
        replicas.into_iter().map(|(_, replica)| replica as usize).collect(),
        farthest,
    )
}

/// The group of `n` replicas as a client at `place` sees it.
pub(crate) fn emulated(place: Place, n: usize) -> Group {
    let replicas = place.geography.nearest_first(place.site, n);
    Group::nearest_first(replicas, place.geography.longest_round_trip(place.site).max(SHORTEST))
}

/// Determines the order of equally near replicas. It is the same for all clients of a site, or of a process if sites
/// have no names, so that they use the same replica. Clients of other sites or processes may use another one.
pub(crate) fn spread(site: Option<&str>) -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    match site {
        Some(site) => u64::from(crc32fast::hash(site.as_bytes())),
        None => *PROCESS.get_or_init(|| {
            // Without randomness from the system the processes' numbers have to do.
            let random = Random::try_from_rng(&mut rand::rngs::SysRng);
            random.map_or(u64::from(std::process::id()), |mut random| random.next_u64())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(round_trips_us: &[u64], spread: u64) -> Vec<u64> {
        let n = round_trips_us.len();
        let measured_us = round_trips_us.iter().enumerate().filter(|(_, us)| **us > 0);
        let round_trips =
            measured_us.map(|(i, us)| (i as u64, Duration::from_micros(*us))).collect();
        let group = measured(&round_trips, n, spread);
        (0..n).map(|i| group.choice(0, i).0).collect()
    }

    #[test]
    fn nearer_replicas_come_first() {
        assert_eq!(order(&[30_000, 500, 9_000], 1), [1, 2, 0]);
    }

    #[test]
    fn equally_near_replicas_are_ordered_by_the_spread_alone() {
        assert_eq!(order(&[100, 150, 250], 0), [0, 1, 2]);
        assert_eq!(order(&[250, 150, 100], 0), [0, 1, 2]);
        assert_eq!(order(&[100, 150, 250], 1), [1, 2, 0]);
        assert_eq!(order(&[10_000, 11_900, 30_000, 31_000, 90_000], 3), [0, 1, 3, 2, 4]);
    }

    #[test]
    fn replicas_that_did_not_answer_come_last() {
        assert_eq!(order(&[0, 900, 0], 0), [1, 0, 2]);
    }

    #[test]
    fn clients_of_one_site_agree() {
        assert_eq!(spread(Some("zone-1")), spread(Some("zone-1")));
        assert_eq!(spread(None), spread(None));
    }
}
