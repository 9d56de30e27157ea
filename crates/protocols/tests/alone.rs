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
use serried_model::{Family, Value};
use serried_protocols::{Visitor, promising, visit};
use serried_session::{Keyspace, Registers};
use serried_sim::{Cluster, Configuration, Disk};
use support::{seeds, trace};

const CLIENTS: usize = 12;
const CRASHES: u64 = 6;
/// States go to the store when they have been in memory for about a second, so crashes are further apart.
const BETWEEN_MS: u64 = 1300;
/// Nothing begins from then on.
const ENDS: Timestamp = Timestamp((CRASHES + 1) * BETWEEN_MS * 1_000_000);

/// A client's key, in either family.
enum Place {
    Transactions(Keyspace),
    Registers(Registers),
}

impl Place {
    fn now(&self) -> Timestamp {
        match self {
            Place::Transactions(keyspace) => keyspace.now(),
            Place::Registers(registers) => registers.now(),
        }
    }

    /// Whether the number was written.
    async fn write(&self, key: &str, number: u64) -> bool {
        let value = number.to_string();
        match self {
            Place::Transactions(keyspace) => keyspace.put(key, value).await.is_ok(),
            Place::Registers(registers) => registers.write(key, value).await.is_ok(),
        }
    }

    /// The last number, if there is an answer.
    async fn read(&self, key: &str) -> Option<u64> {
        let found = match self {
            Place::Transactions(keyspace) => keyspace.get(key).await.ok()?,
            Place::Registers(registers) => registers.read(key).await.ok()?,
        };
        Some(found.map_or(0, |value: Value| value.to_string().parse().expect("a number")))
    }
}

/// Writes ascending numbers to a key of its own, and now and then reads it.
async fn count(place: Place, client: usize, acknowledged: Arc<Mutex<u64>>) {
    let (key, mut least) = (format!("key-{client}"), 0);
    for number in 1.. {
        if place.now() >= ENDS {
            break;
        }
        if place.write(&key, number).await {
            least = number;
            *acknowledged.lock().unwrap() += 1;
        }
        if number % 4 == 0
            && let Some(found) = place.read(&key).await
        {
            assert!(found >= least, "{key} holds {found} at {}, after {least}", place.now());
        }
    }
}

struct Crashes {
    seed: u64,
}

impl Visitor for Crashes {
    /// How many writes were acknowledged.
    type Output = u64;

    fn visit<P: Protocol>(self) -> u64 {
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
            let place = match P::GUARANTEE.family() {
                Family::Transactions => Place::Transactions(cluster.keyspace(client)),
                Family::Registers => Place::Registers(cluster.registers(client)),
            };
            cluster.spawn(client, count(place, client, acknowledged.clone()));
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
    for family in [Family::Transactions, Family::Registers] {
        for protocol in promising(family) {
            for seed in seeds(16) {
                let acknowledged = visit(protocol.name, Crashes { seed }).unwrap();
                assert!(acknowledged > 300, "{}, seed {seed}: {acknowledged}", protocol.name);
            }
        }
    }
}
