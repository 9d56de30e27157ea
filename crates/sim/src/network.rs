//! The network: it decides whether and when messages arrive.

use core::time::Duration;
use std::collections::BTreeMap;

use rand::Rng;
use serried_actor::{Random, Timestamp};
use serried_model::Geography;

use crate::hash::below;
use crate::reach::Place;
use crate::{FaultId, NetworkFaults, Reach};

/// The links between all nodes. Nodes are numbered densely: replicas first, then clients.
pub(crate) struct Network {
    faults: Chances,
    random: Random,
    replicas: usize,
    /// Where each node is.
    nodes: Vec<Place>,
    sites: usize,
    /// One-way delays between sites, row by row, in nanoseconds.
    delays_ns: Vec<u64>,
    /// For each link with a replica at one of its ends, the latest arrival so far.
    latest: Vec<Timestamp>,
    /// The same for links between clients.
    latest_between_clients: BTreeMap<(u32, u32), Timestamp>,
    disturbances: Vec<Disturbance>,
}

/// The fate of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Route {
    pub(crate) arrives: Option<Timestamp>,
    pub(crate) arrives_again: Option<Timestamp>,
    pub(crate) partitioned: bool,
    pub(crate) reordered: bool,
}

/// Probabilities, as thresholds for a uniformly random 64-bit number.
struct Chances {
    jitter: f64,
    loss: u64,
    duplication: u64,
    reordering: u64,
    extra_delay_ns: u64,
}

impl Chances {
    fn new(faults: NetworkFaults) -> Chances {
        // The conversion saturates: a probability of 1 becomes all ones, which a draw misses once in 2^64.
        let threshold = |probability: f64| (probability * 2f64.powi(64)) as u64;
        Chances {
            jitter: faults.jitter,
            loss: threshold(faults.loss),
            duplication: threshold(faults.duplication),
            reordering: threshold(faults.reordering),
            extra_delay_ns: faults.extra_delay.as_nanos() as u64,
        }
    }
}

/// A fault of some links.
struct Disturbance {
    id: FaultId,
    /// For each node, whether it is a sender and whether it is a receiver.
    ends: Vec<(bool, bool)>,
    both_ways: bool,
    /// The factor by which messages take longer, or `None` if they are lost.
    slower: Option<f64>,
}

impl Disturbance {
    fn reaches(&self, from: u32, to: u32) -> bool {
        let (from, to) = (self.ends[from as usize], self.ends[to as usize]);
        (from.0 && to.1) || (self.both_ways && from.1 && to.0)
    }
}

impl Network {
    /// `nodes` are the places of all nodes, of which the first `replicas` are replicas.
    pub(crate) fn new(
        geography: &Geography,
        faults: NetworkFaults,
        nodes: Vec<Place>,
        replicas: usize,
        random: Random,
    ) -> Network {
        let sites = geography.sites.len();
        let pairs = (0..sites).flat_map(|a| (0..sites).map(move |b| (a, b)));
        let one_way = |(a, b)| (geography.round_trip(a, b) / 2).as_nanos() as u64;
        let clients = nodes.len() - replicas;
        Network {
            faults: Chances::new(faults),
            random,
            replicas,
            sites,
            delays_ns: pairs.map(one_way).collect(),
            latest: vec![Timestamp(0); replicas * (nodes.len() + clients)],
            latest_between_clients: BTreeMap::new(),
            disturbances: Vec::new(),
            nodes,
        }
    }

    /// Changes the faults that apply to each message.
    pub(crate) fn set_faults(&mut self, faults: NetworkFaults) {
        self.faults = Chances::new(faults);
    }

    /// Makes some links slower by a factor, or cuts them if it is `None`.
    pub(crate) fn disturb(&mut self, id: FaultId, reach: &Reach, slower: Option<f64>) {
        let end = |place| (reach.from.contains(place), reach.to.contains(place));
        let ends = self.nodes.iter().map(end).collect();
        self.disturbances.push(Disturbance { id, ends, both_ways: reach.both_ways, slower });
    }

    /// Undoes [`Network::disturb`].
    pub(crate) fn restore(&mut self, id: FaultId) {
        self.disturbances.retain(|disturbance| disturbance.id != id);
    }

    /// Decides the fate of a message that is sent now, after an interceptor has delayed it by `held_up`.
    pub(crate) fn route(&mut self, now: Timestamp, from: u32, to: u32, held_up: Duration) -> Route {
        if from == to {
            return Route { arrives: Some(now + held_up), ..Route::default() };
        }
        let (from_site, to_site) = (self.nodes[from as usize].site, self.nodes[to as usize].site);
        let mut delay_ns = self.delays_ns[from_site * self.sites + to_site];
        // If several faults slow the link down, the greatest factor counts. With the product a message could take very
        // long, and because a link keeps messages in order, it would hold up others long after everything has healed.
        let mut slower: f64 = 1.0;
        for disturbance in &self.disturbances {
            if disturbance.reaches(from, to) {
                let Some(factor) = disturbance.slower else {
                    return Route { partitioned: true, ..Route::default() };
                };
                slower = slower.max(factor);
            }
        }
        delay_ns = (delay_ns as f64 * slower) as u64;
        if self.happens(self.faults.loss) {
            return Route::default();
        }
        if self.faults.jitter > 0.0 {
            let most_ns = (delay_ns as f64 * self.faults.jitter) as u64;
            delay_ns += below(most_ns.saturating_add(1), self.random.next_u64());
        }
        let mut arrives = now + held_up + Duration::from_nanos(delay_ns);
        let reordered = self.happens(self.faults.reordering);
        if reordered {
            arrives = arrives + self.extra_delay();
        } else {
            let latest = self.latest(from, to);
            arrives = arrives.max(*latest);
            *latest = arrives;
        }
        let again = self.happens(self.faults.duplication);
        Route {
            arrives: Some(arrives),
            arrives_again: again.then(|| arrives + self.extra_delay()),
            partitioned: false,
            reordered,
        }
    }

    fn happens(&mut self, chance: u64) -> bool {
        chance > 0 && self.random.next_u64() < chance
    }

    fn extra_delay(&mut self) -> Duration {
        let most_ns = self.faults.extra_delay_ns.saturating_add(1);
        Duration::from_nanos(below(most_ns, self.random.next_u64()))
    }

    fn latest(&mut self, from: u32, to: u32) -> &mut Timestamp {
        let (a, b, replicas, nodes) = (from as usize, to as usize, self.replicas, self.nodes.len());
        match (a.checked_sub(replicas), b.checked_sub(replicas)) {
            (None, _) => &mut self.latest[a * nodes + b],
            (Some(client), None) => &mut self.latest[replicas * (nodes + client) + b],
            (Some(_), Some(_)) => self.latest_between_clients.entry((from, to)).or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    use crate::Side;
    use crate::hash::{Purpose, generator};

    const NOW: Timestamp = Timestamp(1_000_000_000);

    /// Replicas 0 to 2 and clients 3 to 5, one of each at each site of `glo`.
    fn network(faults: NetworkFaults) -> Network {
        let geography = Geography::named("glo").unwrap();
        let place = |i: usize| match i.checked_sub(3) {
            None => Place { node: NodeId(i as u64), machine: Some(i), site: i },
            Some(client) => {
                let node = NodeId(NodeId::FIRST_COORDINATOR + client as u64);
                Place { node, machine: None, site: client }
            }
        };
        let nodes = (0..6).map(place).collect();
        Network::new(&geography, faults, nodes, 3, generator(3, Purpose::Network))
    }

    fn delay(network: &mut Network, from: u32, to: u32) -> Option<Duration> {
        Some(network.route(NOW, from, to, Duration::ZERO).arrives? - NOW)
    }

    #[test]
    fn a_message_takes_half_a_round_trip_or_no_time_to_its_own_node() {
        let mut network = network(NetworkFaults::NONE);
        for (from, to, microseconds) in
            [(0, 1, 31_000), (2, 1, 69_000), (3, 0, 50), (0, 5, 34_000), (4, 5, 69_000), (2, 2, 0)]
        {
            assert_eq!(delay(&mut network, from, to), Some(Duration::from_micros(microseconds)));
        }
    }

    #[test]
    fn links_share_nothing_with_each_other() {
        let mut network = network(NetworkFaults::NONE);
        let mut number = 0;
        for from in 0..6 {
            for to in (0..6).filter(|to| *to != from) {
                number += 1;
                let latest = network.latest(from, to);
                assert_eq!(*latest, Timestamp(0));
                *latest = Timestamp(number);
            }
        }
        assert_eq!(number, 30);
    }

    #[test]
    fn jitter_is_bounded_and_keeps_the_order_of_a_link() {
        let mut network = network(NetworkFaults { jitter: 0.5, ..NetworkFaults::NONE });
        let mut latest = Timestamp(0);
        let mut shortest = Duration::MAX;
        for i in 0..1000 {
            // Pairs of messages, far enough apart for pairs to be independent of each other.
            let now =
                NOW + Duration::from_millis(20) * (i / 2) + Duration::from_micros(1) * (i % 2);
            let arrives = network.route(now, 0, 1, Duration::ZERO).arrives.unwrap();
            assert!(arrives >= latest && arrives - now >= Duration::from_millis(31));
            assert!(arrives - now <= Duration::from_micros(46_501));
            (latest, shortest) = (arrives, shortest.min(arrives - now));
        }
        assert!(shortest < Duration::from_millis(32), "the shortest took {shortest:?}");
    }

    #[test]
    fn a_reordered_message_is_overtaken_by_later_ones() {
        let extra_delay = Duration::from_millis(5);
        let faults = NetworkFaults { reordering: 0.5, extra_delay, ..NetworkFaults::NONE };
        let mut network = network(faults);
        let arrivals: Vec<Timestamp> = (0..100)
            .map(|i| NOW + Duration::from_micros(i))
            .filter_map(|now| network.route(now, 0, 1, Duration::ZERO).arrives)
            .collect();
        assert_eq!(arrivals.len(), 100);
        assert!(!arrivals.is_sorted());
        assert!(arrivals.iter().all(|at| *at - NOW <= Duration::from_micros(36_100)));
    }

    #[test]
    fn messages_are_lost_and_repeated_at_about_the_set_rates() {
        let extra_delay = Duration::from_millis(1);
        let faults =
            NetworkFaults { loss: 0.1, duplication: 0.25, extra_delay, ..NetworkFaults::NONE };
        let mut network = network(faults);
        let routes: Vec<Route> =
            (0..10_000).map(|_| network.route(NOW, 0, 1, Duration::ZERO)).collect();
        let lost = routes.iter().filter(|route| route.arrives.is_none()).count();
        let repeated = routes.iter().filter(|route| route.arrives_again.is_some()).count();
        assert!((900..1100).contains(&lost), "{lost} lost");
        assert!((2100..2400).contains(&repeated), "{repeated} repeated");
    }

    #[test]
    fn certainties_are_certain() {
        let mut network = network(NetworkFaults { loss: 1.0, ..NetworkFaults::NONE });
        assert!((0..1000).all(|_| delay(&mut network, 0, 1).is_none()));
        assert_eq!(delay(&mut network, 1, 1), Some(Duration::ZERO));
    }

    #[test]
    fn the_worst_of_several_slow_downs_of_a_link_counts() {
        let mut network = network(NetworkFaults::NONE);
        for (id, factor) in [(0, 2.0), (1, 4.0), (2, 3.0)] {
            network.disturb(FaultId(id), &Reach::around(Side::site(1)), Some(factor));
        }
        assert_eq!(delay(&mut network, 0, 1), Some(Duration::from_millis(4 * 31)));
        network.restore(FaultId(1));
        assert_eq!(delay(&mut network, 1, 0), Some(Duration::from_millis(3 * 31)));
    }

    #[test]
    fn a_one_way_partition_cuts_one_way_and_is_restored_by_itself() {
        let mut network = network(NetworkFaults::NONE);
        let (first, second) = (FaultId(0), FaultId(1));
        network.disturb(first, &Reach::one_way(Side::replicas([0]), Side::site(1)), None);
        network.disturb(second, &Reach::around(Side::site(2)), None);
        let cut = |network: &mut Network, from, to| delay(network, from, to).is_none();
        assert!(cut(&mut network, 0, 1) && cut(&mut network, 0, 4));
        assert!(!cut(&mut network, 1, 0) && !cut(&mut network, 4, 0) && !cut(&mut network, 3, 1));
        assert!(cut(&mut network, 2, 0) && cut(&mut network, 0, 5) && !cut(&mut network, 2, 5));
        network.restore(second);
        assert!(cut(&mut network, 0, 1) && !cut(&mut network, 2, 0));
        network.restore(first);
        assert!(!cut(&mut network, 0, 1));
    }

    #[test]
    fn a_slow_link_takes_its_factor_longer() {
        let mut network = network(NetworkFaults::NONE);
        let reach = Reach::between(Side::site(0), Side::site(1));
        network.disturb(FaultId(0), &reach, Some(3.0));
        assert_eq!(delay(&mut network, 1, 0), Some(Duration::from_millis(93)));
        assert_eq!(delay(&mut network, 1, 2), Some(Duration::from_millis(69)));
    }
}
