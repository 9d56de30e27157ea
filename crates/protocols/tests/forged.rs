//! No message ends a node, whatever its bytes: the messages of a run are damaged, as a broken or malicious
//! sender would, and what can still be decoded is delivered to live replicas.
//!
//! A replica of any protocol of the registry may then do anything but panic. `SERRIED_SEEDS=1000` tries more, `SERRIED_FIRST_SEED=17
//! SERRIED_SEEDS=1` a single seed again, and `SERRIED_PROTOCOL=abd` one protocol.

#[allow(dead_code, reason = "it is shared with suites that trace")]
mod support;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus as Random;
use rand::{RngExt, SeedableRng};
use serried_actor::{Protocol, Settings, Timestamp, Wire};
use serried_model::{Family, Modification, NodeId};
use serried_protocols::{Visitor, visit};
use serried_sim::{Cluster, Configuration, Disk, Fate};
use support::seeds;

/// How many messages are forged with each seed.
const FORGED: usize = 2000;
/// How many of a run's messages are kept of each length: messages of one kind have few.
const KEPT: usize = 24;
/// How long clients work before messages are forged.
const WORK: Timestamp = Timestamp(40_000_000);

/// A message, encoded, with who sent it to whom.
#[derive(Clone)]
struct Seen {
    from: NodeId,
    to: NodeId,
    bytes: Vec<u8>,
}

/// A cluster whose clients read, write, modify and delete, and what they say to the replicas and the replicas
/// among themselves.
fn working<P: Protocol>(seed: u64) -> (Cluster<P>, Vec<Seen>) {
    let settings = Settings {
        truncation_every_ms: 5,
        truncation_lag_ms: 10,
        recovery_after_ms: 5,
        outcomes_ms: 20,
        resident_keys: 4,
        ..Settings::default()
    };
    let disk = Disk { keep_records: true, ..Disk::MEMORY };
    let mut cluster = Cluster::<P>::new(Configuration {
        seed,
        partitions: 2,
        clients: 3,
        disk,
        settings,
        ..Configuration::default()
    });
    let seen: Arc<Mutex<BTreeMap<usize, Vec<Seen>>>> = Arc::default();
    let keeps = seen.clone();
    cluster.set_interceptor(Box::new(move |passing| {
        let mut bytes = Vec::new();
        passing.message.encode(&mut bytes);
        if !passing.to.is_coordinator() {
            let mut seen = keeps.lock().unwrap();
            let alike = seen.entry(bytes.len()).or_default();
            if alike.len() < KEPT {
                alike.push(Seen { from: passing.from, to: passing.to, bytes });
            }
        }
        Fate::Pass
    }));
    for client in 0..3 {
        let (keyspace, registers) = (cluster.keyspace(client), cluster.registers(client));
        cluster.spawn(client, async move {
            for i in 0..40u64 {
                let (key, other) = (format!("key-{}", i % 7), format!("key-{}", (i + 3) % 7));
                // Whatever comes of it: much of it conflicts.
                match P::GUARANTEE.family() {
                    Family::Registers => {
                        drop(registers.write(key.as_str(), i.to_string()).await);
                        drop(registers.read(other.as_str()).await);
                        drop(registers.rmw(key.as_str(), Modification::add(1)).await);
                        if i % 5 == 0 {
                            drop(registers.delete(other.as_str()).await);
                        }
                    }
                    Family::Transactions => {
                        let program = |tx: serried_session::Transaction| {
                            let (key, other) = (key.clone(), other.clone());
                            async move {
                                tx.get(other.as_str()).await?;
                                match i % 5 {
                                    0 => tx.delete(key.as_str()),
                                    _ => tx.put(key.as_str(), i.to_string()),
                                }
                                Ok(())
                            }
                        };
                        drop(keyspace.transact(program).await);
                        drop(keyspace.get(key.as_str()).await);
                    }
                }
            }
        });
    }
    cluster.run_until(WORK);
    let seen = seen.lock().unwrap().values().flatten().cloned().collect();
    (cluster, seen)
}

/// Bytes that are like `bytes`.
fn damaged(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.random_range(1..4u32) {
        let at = random.random_range(0..bytes.len().max(1));
        match random.random_range(0..8u32) {
            _ if bytes.is_empty() => bytes.push(random.random()),
            0 => bytes[at] ^= 1 << random.random_range(0..8u32),
            1 => bytes[at] = random.random(),
            2 => bytes[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.random_range(0..6usize)],
            // A number of which nothing is more than half.
            3 => drop(bytes.splice(at..=at, [0xff; 9].into_iter().chain([1]))),
            4 => drop(bytes.splice(at..=at, [0xff, 0xff, 0x03])),
            5 => drop(bytes.remove(at)),
            6 => bytes.insert(at, random.random_range(0..4)),
            _ => {
                let from = random.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

/// Forges messages; what panicked, and after which message.
struct Forge(u64);

impl Visitor for Forge {
    type Output = Result<usize, String>;

    fn visit<P: Protocol>(self) -> Self::Output {
        let mut random = Random::seed_from_u64(self.0);
        let (mut cluster, seen) = working::<P>(self.0);
        // Clients do not stand for what replicas say that were deceived.
        cluster.set_interceptor(Box::new(|passing| match passing.to.is_coordinator() {
            true => Fate::Lose,
            false => Fate::Pass,
        }));
        let mut delivered = 0;
        for number in 0..FORGED {
            let [one, other] = [0, 1].map(|_| &seen[random.random_range(0..seen.len())]);
            let bytes = damaged(&one.bytes, &other.bytes, &mut random);
            let Ok(message) = P::Message::decode(&bytes) else { continue };
            delivered += 1;
            let from = if random.random_ratio(1, 8) { other.from } else { one.from };
            let text = format!("{message:?}");
            let step = AssertUnwindSafe(|| {
                cluster.forge(from, one.to, message);
                let pause = if number % 64 == 0 { 20_000 } else { random.random_range(1..200) };
                cluster.run_until(cluster.now() + Duration::from_micros(pause));
            });
            if catch_unwind(step).is_err() {
                return Err(format!("after {text} from {from} to {}", one.to));
            }
        }
        Ok(delivered)
    }
}

#[test]
fn no_message_ends_a_node() {
    let chosen = std::env::var("SERRIED_PROTOCOL").ok();
    let is_meant = |name: &&str| chosen.as_ref().is_none_or(|chosen| chosen == name);
    for name in serried_protocols::list().iter().map(|protocol| protocol.name).filter(is_meant) {
        for seed in seeds(2) {
            let delivered = visit(name, Forge(seed)).unwrap();
            let delivered = delivered.unwrap_or_else(|what| {
                panic!("SERRIED_PROTOCOL={name} SERRIED_FIRST_SEED={seed} SERRIED_SEEDS=1: {what}")
            });
            assert!(delivered > FORGED / 20, "{name}: {delivered} could be decoded");
        }
    }
}
