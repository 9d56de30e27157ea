//! Replicas that are alone, whose disks are slow, and which crash while much is under way: what they have acknowledged is
//! there afterwards. A crash may keep what is in the store and lose the log's last records.
//!
//! `SERRIED_SEEDS=300 cargo test --release -p serried-protocols --test alone` goes through more seeds.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Timestamp};
use serried_model::{FamilyName, Registers, Transactions, Value};
use serried_protocols::{Visitor, promising, visit_any};
use serried_session::{RegisterKeyspace, Session, TransactionKeyspace};
use serried_sim::{Cluster, Configuration, Disk};
use support::{seeds, trace};

const CLIENTS: usize = 12;
const CRASHES: u64 = 6;
/// States go to the store when they have been in memory for about a second, so crashes are further apart.
const BETWEEN_MS: u64 = 1300;
/// Nothing begins from then on.
const ENDS: Timestamp = Timestamp((CRASHES + 1) * BETWEEN_MS * 1_000_000);

/// A family whose clients write numbers and read them.
trait Counting: Session {
    /// Whether the number was written.
    fn write(
        keyspace: &Self::Keyspace,
        key: &str,
        number: u64,
    ) -> impl Future<Output = bool> + Send;

    /// What is there, if there is an answer.
    fn read(
        keyspace: &Self::Keyspace,
        key: &str,
    ) -> impl Future<Output = Option<Option<Value>>> + Send;
}

impl Counting for Transactions {
    async fn write(keyspace: &TransactionKeyspace, key: &str, number: u64) -> bool {
        keyspace.put(key, number.to_string()).await.is_ok()
    }

    async fn read(keyspace: &TransactionKeyspace, key: &str) -> Option<Option<Value>> {
        keyspace.get(key).await.ok()
    }
}

impl Counting for Registers {
    async fn write(keyspace: &RegisterKeyspace, key: &str, number: u64) -> bool {
        keyspace.write(key, number.to_string()).await.is_ok()
    }

    async fn read(keyspace: &RegisterKeyspace, key: &str) -> Option<Option<Value>> {
        keyspace.read(key).await.ok()
    }
}

/// Writes ascending numbers to a key of its own, and now and then reads it.
async fn count<F: Counting>(keyspace: F::Keyspace, client: usize, acknowledged: Arc<Mutex<u64>>) {
    let (key, mut least) = (format!("key-{client}"), 0);
    let driver = F::driver(&keyspace);
    for number in 1.. {
        if driver.now() >= ENDS {
            break;
        }
        if F::write(&keyspace, &key, number).await {
            least = number;
            *acknowledged.lock().unwrap() += 1;
        }
        if number % 4 == 0
            && let Some(found) = F::read(&keyspace, &key).await
        {
            let found: u64 = found.map_or(0, |value| value.to_string().parse().expect("a number"));
            assert!(found >= least, "{key} holds {found} at {}, after {least}", driver.now());
        }
    }
}

struct Crashes {
    seed: u64,
}

impl<F: Counting> Visitor<F> for Crashes {
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
    for family in [FamilyName::Transactions, FamilyName::Registers] {
        for protocol in promising(family) {
            for seed in seeds(16) {
                let acknowledged = visit_any(protocol.name, Crashes { seed }).unwrap();
                assert!(acknowledged > 300, "{}, seed {seed}: {acknowledged}", protocol.name);
            }
        }
    }
}
