//! Leaders of partitions: how fast a dead one is followed, and that one whose node stops hands over.
//!
//! `SERRIED_SEEDS=200 cargo test --release -p serried-protocols --test leaders -- --nocapture` goes through more seeds
//! than usual, and prints what it has found.

#[allow(dead_code, reason = "each test exercises keyspaces in some of the ways")]
#[path = "support/exercise.rs"]
mod exercise;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exercise::{Exercise, Way};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Timestamp};
use serried_model::{Family, Geography, Guarantee};
use serried_protocols::{Visitor, list, visit_any};
use serried_session::{Alarm, Session};
use serried_sim::{Clocks, Cluster, Configuration, Disk};
use support::{seeds, trace};

const CLIENTS: usize = 4;

/// A datacentre at default settings.
fn configuration(seed: u64, partitions: u16) -> Configuration {
    Configuration {
        seed,
        partitions,
        clients: CLIENTS,
        geography: Geography::named("lan").unwrap(),
        clocks: Clocks { skew: Duration::from_millis(1), drift_ppm: 50 },
        disk: Disk {
            append: Duration::from_micros(5),
            flush: Duration::from_millis(2),
            keep_records: true,
        },
        ..Configuration::default()
    }
}

/// When each of a client's operations began and ended.
type Spans = Arc<Mutex<Vec<(Timestamp, Timestamp)>>>;

const ENDS: Timestamp = Timestamp(6_000_000_000);

/// Reads and writes until the end.
async fn work<F: Exercise>(keyspace: F::Keyspace, client: usize, spans: Spans) {
    let driver = F::driver(&keyspace);
    let (key, other) = (format!("key-{client}"), format!("other-{client}"));
    while driver.now() < ENDS {
        let began = driver.now();
        let done = F::act(&keyspace, Way::ReadAndWrite, [&key, &other]).await;
        done.unwrap_or_else(|error| panic!("at {began}: {error}"));
        spans.lock().unwrap().push((began, driver.now()));
        Alarm::at(driver.clone(), driver.now() + Duration::from_millis(3)).wait().await;
    }
}

/// Who leads a partition.
fn leader<P: Protocol>(cluster: &Cluster<P>, partition: u16) -> Option<usize> {
    let leads = |member: &usize| {
        cluster.is_up(*member) && cluster.gauge(partition, *member, "leads") == Some(1)
    };
    (0..3).rev().find(leads)
}

/// Leaders' nodes end while clients are at work.
#[derive(Clone, Copy)]
struct Loss {
    seed: u64,
    /// Whether the node is told before, and hands over.
    cleanly: bool,
}

impl<F: Exercise> Visitor<F> for Loss {
    /// The longest that an operation took which was under way then, or came next.
    type Output = Duration;

    fn visit<P: Protocol<Family = F>>(self) -> Duration {
        let mut cluster = Cluster::<P>::new(configuration(self.seed, 1));
        trace(&mut cluster);
        let spans: Vec<Spans> = (0..CLIENTS).map(|_| Spans::default()).collect();
        for (client, spans) in spans.iter().enumerate() {
            cluster.spawn(client, work::<F>(cluster.keyspace(client), client, spans.clone()));
        }
        let mut random = Pcg64Mcg::new(u128::from(self.seed));
        let ends = Timestamp(random.random_range(2_000_000_000..3_000_000_000));
        cluster.run_until(ends);
        let dies = leader(&cluster, 0).expect("one leads by now");
        if self.cleanly {
            cluster.prepare_to_stop(dies);
            while !cluster.may_stop(dies) {
                cluster.run_until(cluster.now() + Duration::from_millis(1));
            }
            assert!(cluster.now().since(ends) < Duration::from_millis(100), "{}", P::NAME);
            // It writes what waits for its disk.
            cluster.run_until(cluster.now() + Duration::from_millis(5));
        }
        cluster.crash(dies);
        cluster.run_until_done(Timestamp(60_000_000_000)).unwrap();
        let follows = leader(&cluster, 0).expect("another one leads");
        assert_ne!(dies, follows);
        let longest = |spans: &Spans| {
            let spans = spans.lock().unwrap();
            let concerned = spans.iter().filter(|(_, ended)| *ended >= ends);
            let took = concerned.map(|(began, ended)| ended.since((*began).max(ends)));
            took.max().expect("it goes on")
        };
        spans.iter().map(longest).max().expect("there are clients")
    }
}

/// The protocols with leaders that promise something, or the one of them that was asked for.
fn protocols() -> impl Iterator<Item = &'static str> {
    let wanted = std::env::var("SERRIED_PROTOCOL").ok();
    list()
        .iter()
        .filter(|protocol| protocol.has_leaders && protocol.guarantee != Guarantee::Nothing)
        .map(|protocol| protocol.name)
        .filter(move |name| wanted.as_deref().is_none_or(|wanted| wanted == *name))
}

/// Below that all but one in a hundred are.
fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[(took.len() * 99).div_ceil(100) - 1]
}

fn lose(usual: u64, cleanly: bool) -> Vec<(&'static str, Duration)> {
    let longest = |name| {
        let lose = |seed| visit_any(name, Loss { seed, cleanly }).unwrap();
        let took: Vec<Duration> = seeds(usual).map(lose).collect();
        let mut sorted = took.clone();
        sorted.sort_unstable();
        let (median, longest) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
        let found = p99(took);
        println!(
            "{name}, cleanly {cleanly}: median {median:?}, p99 {found:?}, at most {longest:?}"
        );
        (name, found)
    };
    protocols().map(longest).collect()
}

/// Each machine leads one of three partitions. One ends, and comes back.
struct Spread;

impl<F: Session> Visitor<F> for Spread {
    type Output = ();

    fn visit<P: Protocol<Family = F>>(self) {
        let mut cluster = Cluster::<P>::new(configuration(1, 3));
        let after = |ms: u64| Timestamp(ms * 1_000_000);
        let leaders = |cluster: &Cluster<P>| [0, 1, 2].map(|partition| leader(cluster, partition));
        cluster.run_until(after(500));
        assert_eq!(leaders(&cluster), [Some(0), Some(1), Some(2)], "{}", P::NAME);
        cluster.crash(1);
        cluster.run_until(after(1500));
        assert_ne!(leaders(&cluster)[1], None);
        cluster.restart(1);
        cluster.run_until(after(3000));
        assert_ne!(leaders(&cluster)[1], Some(1), "it has not been back for long");
        cluster.run_until(after(9000));
        assert_eq!(leaders(&cluster), [Some(0), Some(1), Some(2)], "{}", P::NAME);
    }
}

/// Whether a partition of a cluster without failures has a leader.
struct Led;

impl<F: Family> Visitor<F> for Led {
    type Output = bool;

    fn visit<P: Protocol<Family = F>>(self) -> bool {
        let mut cluster = Cluster::<P>::new(configuration(1, 1));
        cluster.run_until(Timestamp(500_000_000));
        leader(&cluster, 0).is_some()
    }
}

#[test]
fn a_protocol_says_whether_its_partitions_have_leaders() {
    for protocol in list() {
        let has_leaders = visit_any(protocol.name, Led).unwrap();
        assert_eq!(protocol.has_leaders, has_leaders, "{}", protocol.name);
    }
}

#[test]
fn leaders_are_spread_over_the_nodes_and_go_back_when_one_has_been_back_for_long() {
    for name in protocols() {
        visit_any(name, Spread).unwrap();
    }
}

#[test]
fn a_leader_that_dies_is_followed_in_less_than_half_a_second() {
    for (name, p99) in lose(4, false) {
        assert!(p99 < Duration::from_millis(500), "{name}: {p99:?}");
    }
}

#[test]
fn a_leader_whose_node_stops_is_followed_at_once() {
    for (name, p99) in lose(4, true) {
        assert!(p99 < Duration::from_millis(120), "{name}: {p99:?}");
    }
}
