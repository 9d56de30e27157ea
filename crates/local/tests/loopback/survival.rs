//! Nodes with data directories that are killed, stay away and lose their disks, under a real protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serried::{Client, ConnectOptions};
use serried_actor::Settings;
use serried_model::{Key, Value, Version};
use serried_node::{
    Disks, Durability, KeyspaceConfiguration, KeyspaceIdentity, Node, NodeConfiguration, NodeDisks,
    Start,
};
use serried_session::{TransactOptions, Transaction, TransactionError, TransactionKeyspace};

use crate::directories::{Folder, Kept};

const KEYS: u64 = 32;

/// What is old is truncated and forgotten so often that nodes that come back meet it.
fn keyspaces(outcomes_ms: u64) -> [KeyspaceConfiguration; 1] {
    let settings = Settings {
        truncation_every_ms: 20,
        truncation_lag_ms: 200,
        recovery_after_ms: 100,
        history_ms: 3_600_000,
        clock_bound_ms: 50,
        outcomes_ms,
        ..Settings::default()
    };
    let keyspace = KeyspaceConfiguration::new("accounts", "morty").with_partitions(2);
    [KeyspaceConfiguration { settings, ..keyspace }]
}

async fn connect(kept: &Kept) -> TransactionKeyspace {
    let client = Client::connect(ConnectOptions::new(kept.cluster.addresses())).await.unwrap();
    let deadline = Duration::from_millis(500);
    let options = TransactOptions { deadline, ..TransactOptions::default() };
    client.keyspace("accounts").unwrap().with_options(options)
}

/// How often something is tried that may be in the way of a node that comes or goes.
const TRIES: usize = 60;

fn key(i: u64) -> Key {
    Key::from(format!("key-{i}"))
}

/// Writes all keys, in one transaction.
async fn write_all(keyspace: &TransactionKeyspace, value: u64) -> Version {
    for _ in 0..TRIES {
        let program = |tx: Transaction| async move {
            (0..KEYS).for_each(|i| tx.put(key(i), value.to_string()));
            Ok(())
        };
        match keyspace.transact(program).await {
            Ok(committed) => return committed.version,
            Err(TransactionError::Unavailable { .. } | TransactionError::Unknown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{value} could not be written")
}

/// Reads all keys, in one transaction: each has the same value.
async fn read_all(keyspace: &TransactionKeyspace) -> Option<u64> {
    for _ in 0..TRIES {
        match keyspace.get_many((0..KEYS).map(key)).await {
            Ok(values) => return same(values.into_iter().map(number).collect()),
            Err(TransactionError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing could be read")
}

async fn read_one(keyspace: &TransactionKeyspace, key: Key) -> Option<u64> {
    for _ in 0..TRIES {
        match keyspace.get(key.clone()).await {
            Ok(value) => return number(value),
            Err(TransactionError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{key} could not be read")
}

#[track_caller]
fn same(values: Vec<Option<u64>>) -> Option<u64> {
    assert_eq!(values, [values[0]; KEYS as usize]);
    values[0]
}

fn number(value: Option<Value>) -> Option<u64> {
    value.map(|value| value.to_string().parse().unwrap())
}

/// What all keys held at `version`, if there is a node that has settled everything below, and has not
/// copied it with what came after.
async fn read_at(keyspace: &TransactionKeyspace, version: Version) -> Option<Option<u64>> {
    // All at once: each of them may ask a node first that is gone.
    let reads: Vec<_> = (0..KEYS)
        .map(|i| {
            let keyspace = keyspace.clone();
            tokio::spawn(async move { keyspace.get_at(key(i), version).await })
        })
        .collect();
    let (mut held, mut lacking) = (Vec::new(), false);
    for read in reads {
        match read.await.unwrap() {
            Ok(value) => held.push(number(value)),
            Err(TransactionError::Unavailable { .. } | TransactionError::Forgotten { .. }) => {
                lacking = true
            }
            Err(error) => panic!("{error}"),
        }
    }
    (!lacking).then(|| same(held))
}

/// Waits until the nodes that run have settled all that was written before; a version after that.
async fn settle(keyspace: &TransactionKeyspace) -> Version {
    for _ in 0..TRIES {
        let Ok(other) = keyspace.put("other", "value").await else { continue };
        for _ in 0..10 {
            if read_at(keyspace, other.version).await.is_some() {
                return other.version;
            }
        }
    }
    panic!("what was written is not settled");
}

/// What `node` holds when all others are gone, once it has got from them what it lacks. They come back in
/// the end.
async fn held_alone(kept: &mut Kept, keyspace: &TransactionKeyspace, node: usize) -> Option<u64> {
    let others: Vec<usize> = (0..3).filter(|other| *other != node).collect();
    for _ in 0..TRIES {
        let version = settle(keyspace).await;
        kept.kill(&others);
        let held = read_at(keyspace, version).await;
        kept.restart(&others);
        if let Some(held) = held {
            return held;
        }
    }
    panic!("n{node} does not get what it lacks")
}

/// A client that counts up in a key of its own while nodes fail.
struct Counting {
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Counting {
    fn start(keyspace: TransactionKeyspace, key: Key) -> Counting {
        let (acknowledged, stop): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let (counted, stopped) = (acknowledged.clone(), stop.clone());
        let task = tokio::spawn(async move {
            for next in 1u64.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // A killed node may leave open how this ends; the next one then counts for both.
                if keyspace.put(key.clone(), next.to_string()).await.is_ok() {
                    counted.store(next, Ordering::Relaxed);
                }
            }
        });
        Counting { acknowledged, stop, task }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_outlives_all_nodes_at_any_moment() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let mut kept = Kept::start(durability, &keyspaces(100));
        let patient = TransactOptions::default();
        let keyspace = connect(&kept).await.with_options(patient);
        let counting: Vec<Counting> =
            (0..4).map(|i| Counting::start(keyspace.clone(), key(i))).collect();
        let mut before = vec![0; 4];
        for round in 1..=2 {
            while counting.iter().zip(&before).any(|(one, before)| one.acknowledged() < before + 5)
            {
                tokio::task::yield_now().await;
            }
            kept.kill(&[0, 1, 2]);
            before = counting.iter().map(Counting::acknowledged).collect();
            kept.restart(&[0, 1, 2]);
            for (i, before) in before.iter().enumerate() {
                let found = read_one(&keyspace, key(i as u64)).await.unwrap_or(0);
                assert!(found >= *before, "{durability}, round {round}: {found}, not {before}");
            }
        }
        for one in counting {
            one.stop.store(true, Ordering::Relaxed);
            one.task.await.unwrap();
        }
        drop(keyspace);
        kept.cluster.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_gets_what_it_has_missed_and_serves() {
    // The others still remember what it has missed, or they do not and it copies their store.
    for outcomes_ms in [60_000, 0] {
        let mut kept = Kept::start(Durability::Buffered, &keyspaces(outcomes_ms));
        let keyspace = connect(&kept).await;
        write_all(&keyspace, 1).await;
        settle(&keyspace).await;
        kept.kill(&[2]);
        write_all(&keyspace, 2).await;
        settle(&keyspace).await;
        write_all(&keyspace, 3).await;
        kept.restart(&[2]);
        kept.kill(&[0]);
        assert_eq!(read_all(&keyspace).await, Some(3), "{outcomes_ms}");
        kept.restart(&[0]);
        assert_eq!(held_alone(&mut kept, &keyspace, 2).await, Some(3), "{outcomes_ms}");
        kept.cluster.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_disks_are_lost_one_after_the_other_rejoin_with_everything() {
    let mut kept = Kept::start(Durability::Buffered, &keyspaces(0));
    let keyspace = connect(&kept).await;
    write_all(&keyspace, 1).await;
    settle(&keyspace).await;
    for (node, latest) in [(2, 10), (0, 20)] {
        kept.kill(&[node]);
        write_all(&keyspace, latest).await;
        kept.replace(node);
        assert_eq!(read_all(&keyspace).await, Some(latest), "two are enough meanwhile");
        // Until then it counts among those that are gone.
        kept.until_all_serve().await;
        // The next one is not lost before this one has everything by itself.
        assert_eq!(held_alone(&mut kept, &keyspace, node).await, Some(latest), "n{node}");
        let other = (node + 1) % 3;
        kept.kill(&[other]);
        assert_eq!(read_all(&keyspace).await, Some(latest), "n{node} takes part");
        write_all(&keyspace, latest + 1).await;
        kept.restart(&[other]);
        assert_eq!(read_all(&keyspace).await, Some(latest + 1));
    }
    kept.cluster.stop();
}

#[tokio::test]
async fn a_node_that_is_killed_before_it_has_noted_that_it_rejoins_does_so_all_the_same() {
    let folder = Folder::new();
    let configuration = NodeConfiguration {
        keyspaces: vec![KeyspaceConfiguration::new("flags", "multipaxos")],
        durability: Durability::Buffered,
        ..NodeConfiguration::new(0, vec!["127.0.0.1:0".to_string(); 3])
    };
    let open = |start| NodeDisks::open(folder.0.clone(), &configuration, start).unwrap();
    let disks = open(Start::Rejoin);
    let flags = KeyspaceIdentity {
        name: "flags".to_string(),
        protocol: "multipaxos".to_string(),
        partitions: 1,
        sites: 1,
    };
    disks.settle(&[(flags, 0)], Some(&[("flags".to_string(), 0)].into())).unwrap();
    let mut opened = disks.open("flags", 0).unwrap();
    assert_eq!(opened.log.replay(&mut |_, _| Ok(())), Ok(0));
    drop((opened, disks));
    let node = Node::start_on(configuration.clone(), Arc::new(open(Start::Usual))).await.unwrap();
    let metrics = node.observer().metrics();
    let behind = |line: &&str| line.starts_with("serried_partition_catching_up");
    let line = metrics.lines().find(behind).unwrap_or_else(|| panic!("{metrics}"));
    assert!(line.ends_with(" 1"), "{line}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_data_was_removed_but_not_its_name_does_not_start() {
    let mut kept = Kept::start(Durability::Buffered, &keyspaces(0));
    kept.stop(2);
    let folders = std::fs::read_dir(kept.path(2)).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|path| path.is_dir()).for_each(|path| std::fs::remove_dir_all(path).unwrap());
    let error = kept.refused(2, Start::Usual);
    assert!(error.contains("--rejoin"), "its logs are missing: {error}");
    std::fs::remove_file(kept.path(2).join("run.toml")).unwrap();
    let error = kept.refused(2, Start::Usual);
    assert!(error.contains("`run.toml` is missing"), "{error}");
    kept.begin(2, Start::Rejoin);
    kept.cluster.stop();
}
