//! Replicas that are alone, whose disks are slow, and which crash while much is under way: what they have acknowledged is
//! there afterwards. A crash may keep what is in the store and lose the log's last records.
//!
//! `SERRIED_SEEDS=300 cargo test --release -p serried-protocols --test alone` goes through more seeds.

#[allow(dead_code, reason = "each test exercises keyspaces in some of the ways")]
#[path = "support/exercise.rs"]
mod exercise;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use exercise::Exercise;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Timestamp};
use serried_model::Guarantee;
use serried_protocols::{Visitor, list, visit_any};
use serried_sim::{Cluster, Configuration, Disk};
use support::{seeds, trace};

const CLIENTS: usize = 12;
const CRASHES: u64 = 6;
/// States go to the store when they have been in memory for about a second, so crashes are further apart.
const BETWEEN_MS: u64 = 1300;
/// Nothing begins from then on.
const ENDS: Timestamp = Timestamp((CRASHES + 1) * BETWEEN_MS * 1_000_000);

/// Writes ascending numbers to a key of its own, and now and then reads it.
async fn count<F: Exercise>(keyspace: F::Keyspace, client: usize, acknowledged: Arc<Mutex<u64>>) {
    let (key, mut least) = (format!("key-{client}"), 0);
    let driver = F::driver(&keyspace);
    for number in 1.. {
        if driver.now() >= ENDS {
            break;
        }
        if F::write(&keyspace, &key, number).await.is_ok() {
            least = number;
            *acknowledged.lock().unwrap() += 1;
        }
        if number % 4 == 0
            && let Ok(found) = F::read(&keyspace, &key).await
        {
            assert!(found >= least, "{key} holds {found} at {}, after {least}", driver.now());
        }
    }
}

struct Crashes {
    seed: u64,
}

impl<F: Exercise> Visitor<F> for Crashes {
    /// How many writes were acknowledged.
    type Output = u64;

    fn visit<P: Protocol<Family = F>>(self) -> u64 {
        let disk = Disk {
            append: Duration::from_micros(5),
            flush: Duration::from_millis(15),
            keep_records: true,
        };
        let mut cluster = Cluster::<P>::new(Configuration {
            seed: self.seed,
            replicas: 1,
            clients: CLIENTS,
            disk,
            ..Configuration::default()
        });
        trace(&mut cluster);
        let acknowledged: Arc<Mutex<u64>> = Arc::default();
        for client in 0..CLIENTS {
            let keyspace = cluster.keyspace(client);
            cluster.spawn(client, count::<F>(keyspace, client, acknowledged.clone()));
        }
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        for crash in 1..=CRASHES {
            let ms = crash * BETWEEN_MS + random.random_range(0..BETWEEN_MS / 2);
            cluster.run_until(Timestamp(ms * 1_000_000));
            cluster.crash(0);
            cluster.run_until(cluster.now() + Duration::from_millis(10));
            cluster.restart(0);
        }
        cluster.run_until_done(Timestamp(200_000_000_000)).unwrap();
        *acknowledged.lock().unwrap()
    }
}

#[test]
fn what_a_replica_alone_has_acknowledged_is_there_after_a_crash() {
    for protocol in list().iter().filter(|protocol| protocol.guarantee != Guarantee::Nothing) {
        for seed in seeds(16) {
            let acknowledged = visit_any(protocol.name, Crashes { seed }).unwrap();
            assert!(acknowledged > 300, "{}, seed {seed}: {acknowledged}", protocol.name);
        }
    }
}
