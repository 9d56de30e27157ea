//! Which nodes are near.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use serried_actor::{Group, Random};
use serried_wire::Place;

/// Nodes whose round trips differ by no more than this, or by a fifth, are equally near: what was
/// measured is not more exact than that.
const TIE: Duration = Duration::from_micros(200);
/// No round trip is taken to be shorter.
const SHORTEST: Duration = Duration::from_micros(500);

/// The nodes of a cluster in the order of their distance from a client, and how far they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Distances {
    nearest_first: Vec<usize>,
    /// By node: the round trip, if it is known.
    round_trips: Vec<Option<Duration>>,
    /// An estimate of the round trip to the farthest node.
    farthest: Duration,
}

impl Distances {
    /// Those of `n` nodes that a client has measured. Nodes that did not answer count as the farthest. Equally near
    /// ones are in an order that depends on `spread`.
    pub(crate) fn measured(measured: &BTreeMap<u64, Duration>, n: usize, spread: u64) -> Distances {
        let mut nodes: Vec<(Duration, u64)> = (0..n as u64)
            .map(|node| (measured.get(&node).copied().unwrap_or(Duration::MAX), node))
            .collect();
        nodes.sort_unstable();
        for ties in nodes.chunk_by_mut({
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
            ties.sort_unstable_by_key(|(_, node)| (node + n as u64 - spread % n as u64) % n as u64);
        }
        Distances {
            nearest_first: nodes.into_iter().map(|(_, node)| node as usize).collect(),
            round_trips: (0..n as u64).map(|node| measured.get(&node).copied()).collect(),
            farthest: measured.values().max().copied().unwrap_or_default().max(SHORTEST),
        }
    }

    /// Those that a client at `place` emulates. `places` has the site of the geography at which each node is.
    pub(crate) fn emulated(Place { geography, site }: Place, places: &[usize]) -> Distances {
        let round_trip = |there: &usize| Some(geography.round_trip(site, *there));
        Distances {
            nearest_first: geography.nearest_first_of(places, site, site),
            round_trips: places.iter().map(round_trip).collect(),
            farthest: geography.longest_round_trip(site).max(SHORTEST),
        }
    }

    /// The nodes, the nearest first.
    pub(crate) fn nearest_first(&self) -> &[usize] {
        &self.nearest_first
    }

    /// An estimate of the round trip to the farthest node.
    pub(crate) fn farthest(&self) -> Duration {
        self.farthest
    }

    /// The group of the replicas on these nodes, as the client sees it.
    pub(crate) fn group(&self, nodes: Range<usize>) -> Group {
        let farthest = match nodes.len() == self.round_trips.len() {
            true => self.farthest,
            false => {
                let known = self.round_trips[nodes.clone()].iter().flatten().max();
                known.map_or(self.farthest, |known| SHORTEST.max(*known))
            }
        };
        let members = self.nearest_first.iter().filter(|node| nodes.contains(node));
        Group::nearest_first(members.map(|node| node - nodes.start).collect(), farthest)
    }
}

/// Determines the order of equally near nodes. It is the same for all clients of a site, or of a process if sites
/// have no names, so that they use the same node. Clients of other sites or processes may use another one.
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
    use serried_model::Geography;

    use super::*;

    fn order(round_trips_us: &[u64], spread: u64) -> Vec<u64> {
        let n = round_trips_us.len();
        let measured_us = round_trips_us.iter().enumerate().filter(|(_, us)| **us > 0);
        let round_trips =
            measured_us.map(|(i, us)| (i as u64, Duration::from_micros(*us))).collect();
        let distances = Distances::measured(&round_trips, n, spread);
        let group = distances.group(0..n);
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
    fn the_group_of_a_site_has_its_nodes_alone_and_its_own_round_trip() {
        let ms = Duration::from_millis;
        let measured = [(0, ms(90)), (1, ms(60)), (2, ms(40)), (3, ms(9)), (4, ms(3))].into();
        let distances = Distances::measured(&measured, 6, 0);
        assert_eq!(distances.nearest_first(), [4, 3, 2, 1, 0, 5]);
        let near = distances.group(3..6);
        let order: Vec<usize> = (0..3).map(|i| near.choice(0, i).member()).collect();
        assert_eq!((order, near.round_trip()), (vec![1, 0, 2], ms(9)));
        assert_eq!(distances.group(0..3).round_trip(), ms(90));
        assert_eq!(distances.farthest(), ms(90));
    }

    #[test]
    fn an_emulated_node_is_where_it_says() {
        let geography = Geography::named("con").unwrap();
        let place = Place { geography, site: 1 };
        let distances = Distances::emulated(place, &[0, 0, 0, 1, 1, 1]);
        assert_eq!(distances.nearest_first()[..3], [3, 4, 5]);
        assert_eq!(distances.group(3..6).round_trip(), SHORTEST.max(geography.round_trip(1, 1)));
        assert_eq!(distances.group(0..3).round_trip(), geography.round_trip(1, 0));
        let usual: Vec<usize> = (0..5).map(|node| geography.site_of(node)).collect();
        let distances = Distances::emulated(place, &usual);
        assert_eq!(distances.nearest_first(), geography.nearest_first(1, 5));
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
