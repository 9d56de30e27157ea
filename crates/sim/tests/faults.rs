//! Faults of the network and the nodes, and how they end.

mod toys;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::NodeId;
use serried_sim::{
    Cluster, Configuration, CostModel, Fate, Fault, NetworkFaults, Reach, Scheduled, Side,
};
use toys::{BURST, Flood, Register};

fn at(microseconds: u64) -> Timestamp {
    Timestamp(microseconds * 1000)
}

/// What replica 0 has received, in order.
fn received(configuration: Configuration) -> Vec<u64> {
    let mut cluster = Cluster::<Flood>::new(configuration);
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let seen = numbers.clone();
    cluster.set_observer(Box::new(move |_, _, number| seen.lock().unwrap().push(number)));
    cluster.run_until(at(1_000_000));
    std::mem::take(&mut *numbers.lock().unwrap())
}

fn flood(network: NetworkFaults) -> Configuration {
    Configuration { network, costs: CostModel::FREE, ..Configuration::default() }
}

#[test]
fn messages_of_a_link_arrive_in_order_despite_jitter() {
    let numbers = received(flood(NetworkFaults { jitter: 3.0, ..NetworkFaults::NONE }));
    assert_eq!(numbers, (0..BURST).collect::<Vec<_>>());
}

#[test]
fn reordered_messages_all_arrive_but_not_in_order() {
    let extra_delay = Duration::from_millis(1);
    let faults = NetworkFaults { reordering: 0.3, extra_delay, ..NetworkFaults::NONE };
    let mut numbers = received(flood(faults));
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert_eq!(numbers, (0..BURST).collect::<Vec<_>>());
}

#[test]
fn a_duplicated_message_arrives_twice() {
    let mut numbers = received(flood(NetworkFaults { duplication: 1.0, ..NetworkFaults::NONE }));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..BURST).flat_map(|number| [number, number]).collect::<Vec<_>>());
}

#[test]
fn a_lost_message_does_not_arrive() {
    let numbers = received(flood(NetworkFaults { loss: 0.2, ..NetworkFaults::NONE }));
    assert!((700..900).contains(&numbers.len()), "{} arrived", numbers.len());
}

/// A cluster whose only client, at the site of replica 0, writes once a millisecond.
fn writing() -> (Cluster<Register>, Arc<Mutex<usize>>) {
    let mut cluster = Cluster::<Register>::new(Configuration {
        costs: CostModel::FREE,
        ..Configuration::default()
    });
    let (keyspace, done) = (cluster.keyspace(0), Arc::new(Mutex::new(0)));
    let count = done.clone();
    cluster.spawn(0, async move {
        for round in 1.. {
            keyspace.put("k", "v").await.unwrap();
            *count.lock().unwrap() += 1;
            keyspace.sleep_until(at(round * 1000)).await;
        }
    });
    (cluster, done)
}

#[test]
fn a_partition_without_a_majority_waits_until_it_heals() {
    let (mut cluster, done) = writing();
    cluster.run_until(at(10_500));
    assert_eq!(*done.lock().unwrap(), 11);
    let client = cluster.client_id(0);
    cluster.partition(Reach::around(Side::Nodes(vec![client, NodeId(0)])));
    cluster.run_until(at(50_000));
    assert_eq!(*done.lock().unwrap(), 11);
    assert!(cluster.statistics().partitioned > 0);
    cluster.heal();
    cluster.run_until(at(60_500));
    assert!(*done.lock().unwrap() > 20);
}

#[test]
fn a_one_way_partition_passes_requests_and_loses_replies() {
    let (mut cluster, done) = writing();
    let cut =
        cluster.partition(Reach::one_way(Side::replicas([0, 1]), Side::node(cluster.client_id(0))));
    cluster.run_until(at(5_000));
    assert_eq!(*done.lock().unwrap(), 0);
    assert_eq!(cluster.replica(0).values.len(), 1);
    cluster.end(cut);
    cluster.run_until(at(6_000));
    assert!(*done.lock().unwrap() > 0);
}

#[test]
fn a_paused_node_catches_up_with_what_it_missed() {
    let (mut cluster, done) = writing();
    let fault = Fault::Pause(NodeId(1));
    cluster.schedule(Scheduled { begins: at(2_500), ends: at(8_500), fault });
    cluster.run_until(at(8_200));
    assert_eq!(*done.lock().unwrap(), 9, "a majority is enough");
    let version = |cluster: &Cluster<Register>, replica| {
        cluster.replica(replica).values.values().next().unwrap().0
    };
    assert!(version(&cluster, 1) < version(&cluster, 0));
    cluster.run_until(at(8_600));
    assert_eq!(version(&cluster, 1), version(&cluster, 0));
}

#[test]
fn a_fault_that_has_not_begun_is_prevented_by_healing() {
    let (mut cluster, done) = writing();
    let fault = Fault::Partition(Reach::around(Side::node(cluster.client_id(0))));
    cluster.schedule(Scheduled { begins: at(1_500), ends: at(50_000), fault });
    cluster.heal();
    cluster.run_until(at(10_500));
    assert_eq!(*done.lock().unwrap(), 11);
}

#[test]
fn slow_links_take_longer() {
    let (mut cluster, done) = writing();
    let client = Side::node(cluster.client_id(0));
    cluster.begin(Fault::Slow(Reach::around(client), 2.0));
    cluster.run_until(at(199));
    assert_eq!(*done.lock().unwrap(), 0);
    cluster.run_until(at(200));
    assert_eq!(*done.lock().unwrap(), 1);
}

#[test]
fn an_interceptor_can_lose_or_delay_messages() {
    let (mut cluster, done) = writing();
    cluster.set_interceptor(Box::new(|passing| match passing.to {
        NodeId(0) => Fate::Lose,
        NodeId(1) => Fate::Delay(Duration::from_micros(25)),
        _ => Fate::Pass,
    }));
    cluster.run_until(at(124));
    assert_eq!(*done.lock().unwrap(), 0);
    cluster.run_until(at(125));
    assert_eq!(*done.lock().unwrap(), 1);
    assert!(cluster.replica(0).values.is_empty());
}
