//! A keyspace with several sites: where its nodes are, and what faults of a machine and of a site affect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::time::Duration;

use serried_actor::{
    Actor, Context, Coordinate, Group, Protocol, Recover, Settings, Store, Timestamp,
};
use serried_model::transactions::{Offers, Operation, Output};
use serried_model::{Geography, Guarantee, NodeId, Transactions, TxnId};
use serried_sim::{
    Cluster, Configuration, CostModel, Disk, Fault, Reach, Scheduled, Side, Statistics, Swarm,
};

const SITES: u16 = 3;
const REPLICAS: usize = 3;
const PARTITIONS: u16 = 2;
const CLIENTS: usize = 5;
const TICK: Duration = Duration::from_millis(10);

/// Every node sends a message to every node at each tick, and appends a record before.
struct Beacon;

impl Protocol for Beacon {
    const NAME: &'static str = "beacon";
    const SUMMARY: &'static str = "everyone keeps sending to everyone";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = ();
    type Coordinator = Ear<(TxnId, Output)>;
    type Replica = Ear<()>;

    fn coordinator(group: Group, _: &Settings) -> Self::Coordinator {
        Ear::new(group)
    }

    fn replica(_: NodeId, group: Group, _: &Settings) -> Self::Replica {
        Ear::new(group)
    }
}

struct Ear<O> {
    group: Group,
    /// From whom it has heard: when first, and how often.
    heard: BTreeMap<NodeId, (Timestamp, u64)>,
    has_rejoined: bool,
    output: PhantomData<fn() -> O>,
}

impl<O> Ear<O> {
    fn new(group: Group) -> Self {
        Ear { group, heard: BTreeMap::new(), has_rejoined: false, output: PhantomData }
    }
}

impl<O: Debug + Send + 'static> Actor for Ear<O> {
    type Message = ();
    type Timer = ();
    type Record = ();
    type Output = O;

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        cx.set_timer((), TICK);
    }

    fn on_message(&mut self, from: NodeId, (): (), cx: &mut Context<'_, Self>) {
        self.heard.entry(from).or_insert((cx.now(), 0)).1 += 1;
    }

    fn on_timer(&mut self, (): (), cx: &mut Context<'_, Self>) {
        if !cx.id().is_coordinator() {
            cx.append(());
        }
        for node in nodes() {
            cx.send(node, ());
        }
        cx.set_timer((), TICK);
    }
}

impl Coordinate<Transactions> for Ear<(TxnId, Output)> {
    fn on_operation(&mut self, _: TxnId, _: Operation, _: &mut Context<'_, Self>) {}
}

impl Recover for Ear<()> {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {
        self.has_rejoined = true;
    }

    fn replay(&mut self, (): (), _: &mut dyn Store) {}
}

fn replicas() -> impl Iterator<Item = NodeId> {
    let groups = 0..SITES * PARTITIONS;
    groups.flat_map(|group| (0..REPLICAS).map(move |member| NodeId::replica(group, member)))
}

fn nodes() -> impl Iterator<Item = NodeId> {
    let client = |client| NodeId(NodeId::FIRST_COORDINATOR + client as u64);
    replicas().chain((0..CLIENTS).map(client))
}

/// The machine of a replica.
fn machine(node: NodeId) -> Option<usize> {
    let site = usize::from(node.partition() / PARTITIONS);
    (!node.is_coordinator()).then(|| site * REPLICAS + node.member())
}

/// The site of a replica or client.
fn site(node: NodeId) -> usize {
    match machine(node) {
        Some(machine) => machine / REPLICAS,
        None => (node.0 - NodeId::FIRST_COORDINATOR) as usize % usize::from(SITES),
    }
}

fn configuration() -> Configuration {
    Configuration {
        sites: SITES,
        replicas: REPLICAS,
        partitions: PARTITIONS,
        clients: CLIENTS,
        geography: Geography::named("glo").unwrap(),
        costs: CostModel::FREE,
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        ..Configuration::default()
    }
}

fn at(milliseconds: u64) -> Timestamp {
    Timestamp(milliseconds * 1_000_000)
}

type Heard = BTreeMap<(NodeId, NodeId), (Timestamp, u64)>;

/// What each node has heard from each other.
fn heard(cluster: &Cluster<Beacon>) -> Heard {
    let of = |to: NodeId| match to.0.checked_sub(NodeId::FIRST_COORDINATOR) {
        None => &cluster.replica_of(to.partition(), to.member()).heard,
        Some(client) => &cluster.coordinator(client as usize).heard,
    };
    nodes().flat_map(|to| of(to).iter().map(move |(from, heard)| ((*from, to), *heard))).collect()
}

/// Checks that in a while exactly those messages have arrived from now on that are not `lost` on the way from one node
/// to another. Messages in flight come first.
fn assert_lost(cluster: &mut Cluster<Beacon>, lost: impl Fn(NodeId, NodeId) -> bool) {
    cluster.run_until(cluster.now() + Duration::from_millis(200));
    let before = heard(cluster);
    cluster.run_until(cluster.now() + Duration::from_millis(200));
    let after = heard(cluster);
    let count = |heard: &Heard, link| heard.get(&link).map_or(0, |(_, count)| *count);
    for from in nodes() {
        for to in nodes() {
            let arrived = count(&after, (from, to)) > count(&before, (from, to));
            assert_eq!(arrived, !lost(from, to), "from {from} to {to}");
        }
    }
}

#[test]
fn each_site_has_machines_and_clients_at_one_place_and_sees_its_own_groups() {
    let mut cluster = Cluster::<Beacon>::new(configuration());
    assert_eq!(cluster.configuration().machines(), 9);
    assert_lost(&mut cluster, |_, _| false);
    let geography = cluster.configuration().geography;
    for ((from, to), (first, _)) in heard(&cluster) {
        let round_trip = geography.round_trip(site(from), site(to));
        let takes = if from == to { Duration::ZERO } else { round_trip / 2 };
        assert_eq!(first, Timestamp(0) + TICK + takes, "from {from} to {to}");
    }
    for node in nodes() {
        let group = match node.0.checked_sub(NodeId::FIRST_COORDINATOR) {
            None => &cluster.replica_of(node.partition(), node.member()).group,
            Some(client) => &cluster.coordinator(client as usize).group,
        };
        assert_eq!((usize::from(group.site()), group.sites()), (site(node), SITES));
        assert_eq!(group.round_trip(), Duration::from_micros(100), "replicas are close");
        let in_turn: Vec<usize> = (0..3).map(|i| group.choice(0, i).member()).collect();
        assert_eq!(in_turn, [0, 1, 2]);
        if let Some(machine) = machine(node) {
            assert!(group.contains(node));
            assert_eq!(group.host(node), machine);
        }
    }
}

#[test]
fn the_replica_on_a_machine_is_that_of_its_sites_first_partition() {
    let cluster = Cluster::<Beacon>::new(configuration());
    for machine in 0..9 {
        let (partition, member) = ((machine / REPLICAS) as u16 * PARTITIONS, machine % REPLICAS);
        let same = cluster.replica_of(partition, member);
        assert!(std::ptr::eq(cluster.replica(machine), same), "machine {machine}");
    }
}

#[test]
fn a_machine_that_crashes_stops_one_replica_of_each_partition_of_its_site() {
    for crashed in 0..9 {
        let mut cluster = Cluster::<Beacon>::new(configuration());
        cluster.run_until(at(100));
        cluster.crash(crashed);
        let is_down = |node: NodeId| machine(node) == Some(crashed);
        assert_lost(&mut cluster, |from, to| is_down(from) || is_down(to));
        for machine in 0..9 {
            assert_eq!(cluster.is_up(machine), machine != crashed);
            assert_eq!(cluster.is_whole(machine), machine != crashed);
        }
        cluster.restart(crashed);
        assert_lost(&mut cluster, |_, _| false);
    }
}

#[test]
fn links_of_a_machine_are_those_of_its_own_replicas() {
    let mut cluster = Cluster::<Beacon>::new(configuration());
    cluster.partition(Reach::around(Side::replicas([4])));
    let is_in = |node| machine(node) == Some(4);
    assert_lost(&mut cluster, |from, to| is_in(from) != is_in(to));
}

#[test]
fn a_site_that_is_cut_off_keeps_its_own_links_until_it_heals() {
    let mut cluster = Cluster::<Beacon>::new(configuration());
    let reach = Reach::around(Side::site(1));
    let fault = Fault::Partition(reach);
    cluster.schedule(Scheduled { begins: at(500), ends: at(1000), fault });
    assert_lost(&mut cluster, |_, _| false);
    cluster.run_until(at(550));
    assert_lost(&mut cluster, |from, to| (site(from) == 1) != (site(to) == 1));
    assert!(cluster.statistics().partitioned > 0);
    cluster.run_until(at(1000));
    assert_lost(&mut cluster, |_, _| false);
}

#[test]
fn links_between_two_sites_can_be_cut_and_in_one_direction_only() {
    let mut cluster = Cluster::<Beacon>::new(configuration());
    let between = cluster.partition(Reach::between(Side::site(0), Side::site(2)));
    assert_lost(&mut cluster, |from, to| [(0, 2), (2, 0)].contains(&(site(from), site(to))));
    cluster.end(between);
    let one_way = cluster.partition(Reach::one_way(Side::site(2), Side::site(2).rest()));
    assert_lost(&mut cluster, |from, to| site(from) == 2 && site(to) != 2);
    cluster.end(one_way);
    assert_lost(&mut cluster, |_, _| false);
}

#[test]
fn a_minority_of_each_site_loses_its_disks() {
    let mut cluster = Cluster::<Beacon>::new(configuration());
    cluster.run_until(at(100));
    let lost = [0, 4, 8].map(|machine| cluster.begin(Fault::LostDisk(machine)));
    // Site 0 can't do without another disk.
    let kept = cluster.begin(Fault::LostDisk(1));
    cluster.run_until(at(200));
    lost.into_iter().chain([kept]).for_each(|fault| cluster.end(fault));
    cluster.run_until(at(300));
    let rejoined: BTreeSet<usize> = replicas()
        .filter(|node| cluster.replica_of(node.partition(), node.member()).has_rejoined)
        .filter_map(machine)
        .collect();
    assert_eq!(rejoined, BTreeSet::from([0, 4, 8]));
    assert!((0..9).all(|machine| cluster.is_whole(machine)));
}

#[test]
fn every_swarm_with_sites_is_the_same_again_and_heals() {
    let run = |seed| -> (u64, Statistics) {
        let swarm = Swarm {
            lasts: Duration::from_millis(600),
            cut_sites: true,
            crashes: true,
            lost_disks: true,
            absences: true,
            blackouts: true,
            ..Swarm::default()
        };
        let configuration = Configuration { seed, ..configuration() };
        let plan = swarm.plan(&configuration);
        let mut cluster = Cluster::<Beacon>::new(plan.apply_to(configuration));
        cluster.follow(&plan);
        // Messages that were slow may still be on their way.
        cluster.run_until(at(4_000));
        assert_lost(&mut cluster, |_, _| false);
        (cluster.event_hash(), cluster.statistics())
    };
    let hashes = (0..20).map(|seed| {
        let (first, again) = (run(seed), run(seed));
        assert_eq!(first, again, "seed {seed}");
        first.0
    });
    assert_eq!(hashes.collect::<BTreeSet<_>>().len(), 20);
}

#[test]
#[should_panic(expected = "4 sites do not fit the geography glo, which has 3")]
fn sites_without_a_place_are_refused() {
    Cluster::<Beacon>::new(Configuration { sites: 4, ..configuration() });
}
