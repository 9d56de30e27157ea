//! Data directories that have lost something, and nodes that notice.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serried::{Client, ConnectOptions};
use serried_actor::Settings;
use serried_local::LocalCluster;
use serried_model::Value;
use serried_node::{Durability, KeyspaceConfiguration, Start};
use serried_session::{TransactOptions, TransactionError, TransactionKeyspace};

use crate::directories::Kept;

/// How often something is tried that may be in the way of a node that comes or goes.
const TRIES: usize = 60;

fn keyspaces() -> [KeyspaceConfiguration; 1] {
    let settings = Settings {
        truncation_every_ms: 20,
        truncation_lag_ms: 200,
        recovery_after_ms: 100,
        clock_bound_ms: 50,
        ..Settings::default()
    };
    [KeyspaceConfiguration { settings, ..KeyspaceConfiguration::new("accounts", "morty") }]
}

async fn connect(cluster: &LocalCluster) -> TransactionKeyspace {
    let client = Client::connect(ConnectOptions::new(cluster.addresses())).await.unwrap();
    let deadline = Duration::from_millis(500);
    let options = TransactOptions { deadline, ..TransactOptions::default() };
    client.keyspace("accounts").unwrap().with_options(options)
}

async fn read(keyspace: &TransactionKeyspace) -> Option<Value> {
    for _ in 0..TRIES {
        match keyspace.get("key").await {
            Ok(value) => return value,
            Err(TransactionError::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing can be read")
}

async fn write(keyspace: &TransactionKeyspace, value: &str) {
    for _ in 0..TRIES {
        match keyspace.put("key", value).await {
            Ok(_) => return,
            Err(TransactionError::Unavailable { .. } | TransactionError::Unknown { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("nothing can be written")
}

/// The last segment of a partition's log.
fn segment(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory.join("accounts/0/log")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap()
}

/// The last byte of a log that was written.
fn last_byte(segment: &Path) -> usize {
    fs::read(segment).unwrap().iter().rposition(|byte| *byte != 0).unwrap()
}

fn flip(segment: &Path) {
    let mut bytes = fs::read(segment).unwrap();
    bytes[last_byte(segment)] ^= 0x10;
    fs::write(segment, bytes).unwrap();
}

fn cut(segment: &Path) {
    let bytes = fs::read(segment).unwrap();
    fs::write(segment, &bytes[..last_byte(segment)]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_whose_last_batch_is_damaged_does_not_start_and_is_replaced() {
    for (durability, damage) in [
        (Durability::Buffered, flip as fn(&Path)),
        (Durability::Sync, flip),
        (Durability::Sync, cut),
    ] {
        let mut kept = Kept::start(durability, &keyspaces());
        let keyspace = connect(&kept.cluster).await;
        write(&keyspace, "first").await;
        kept.kill(&[1]);
        let segment = segment(kept.path(1));
        damage(&segment);
        let error = kept.refused(1, Start::Usual);
        for part in [segment.to_str().unwrap(), "at offset", "--rejoin"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(kept.refused(1, Start::Usual).contains("--rejoin"), "and not the next time either");
        kept.replace(1);
        write(&keyspace, "second").await;
        assert_eq!(read(&keyspace).await, Some(Value::from("second")));
        drop(keyspace);
        kept.cluster.stop();
    }
}

/// Waits until a partition's store has written `value` to its journal. Returns the journal's path and where the value
/// ends in it.
async fn stored(directory: &Path, value: &str) -> (PathBuf, usize) {
    let journal = directory.join("accounts/0/base/0.jnl");
    loop {
        let bytes = fs::read(&journal).unwrap();
        let mut windows = bytes.windows(value.len());
        if let Some(at) = windows.position(|window| window == value.as_bytes()) {
            return (journal, at + value.len());
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_whose_store_has_lost_the_end_of_its_journal_does_not_start_and_is_replaced()
{
    for durability in [Durability::Buffered, Durability::Sync] {
        let mut kept = Kept::start(durability, &keyspaces());
        let keyspace = connect(&kept.cluster).await;
        write(&keyspace, "the first value").await;
        let (journal, at) = stored(kept.path(1), "the first value").await;
        // When the next batch is written, this one is noted.
        write(&keyspace, "the second value").await;
        stored(kept.path(1), "the second value").await;
        kept.kill(&[1]);
        let mut bytes = fs::read(&journal).unwrap();
        // So a batch ends: with this, the store drops it and all behind it.
        let end = bytes[at..].windows(4).position(|window| window == b"FJL\x03").unwrap();
        bytes[at + end] ^= 1;
        fs::write(&journal, bytes).unwrap();
        for _ in 0..2 {
            let error = kept.refused(1, Start::Usual);
            let store = journal.parent().unwrap().to_str().unwrap();
            for part in [store, ".jnl", "has lost", "--rejoin"] {
                assert!(error.contains(part), "{error}");
            }
        }
        kept.replace(1);
        write(&keyspace, "third").await;
        assert_eq!(read(&keyspace).await, Some(Value::from("third")));
        drop(keyspace);
        kept.cluster.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_gone_with_all_that_lay_beside_it_is_missed() {
    let mut kept = Kept::start(Durability::Buffered, &keyspaces());
    let keyspace = connect(&kept.cluster).await;
    write(&keyspace, "first").await;
    kept.kill(&[1]);
    fs::remove_dir_all(kept.path(1).join("accounts")).unwrap();
    let error = kept.refused(1, Start::Usual);
    assert!(error.contains("is missing") && error.contains("--rejoin"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_takes_a_buffered_node_that_ran_and_no_other() {
    for (durability, stopped, starts) in [
        (Durability::Buffered, false, false),
        (Durability::Buffered, true, true),
        (Durability::Sync, false, true),
    ] {
        let mut kept = Kept::start(durability, &keyspaces());
        let keyspace = connect(&kept.cluster).await;
        write(&keyspace, "first").await;
        match stopped {
            true => kept.stop(1),
            false => kept.kill(&[1]),
        }
        kept.boot("tuesday");
        match starts {
            true => kept.restart(&[1]),
            false => {
                let error = kept.refused(1, Start::Usual);
                assert!(error.contains("machine") && error.contains("--rejoin"), "{error}");
                kept.replace(1);
            }
        }
        // Until then it counts among those that are gone.
        kept.until_all_serve().await;
        kept.kill(&[0]);
        assert_eq!(read(&keyspace).await, Some(Value::from("first")), "{durability} {stopped}");
        drop(keyspace);
        kept.cluster.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_power_cut_of_all_buffered_nodes_what_is_left_is_there_if_that_is_asked_for() {
    let mut kept = Kept::start(Durability::Buffered, &keyspaces());
    let keyspace = connect(&kept.cluster).await;
    write(&keyspace, "first").await;
    kept.kill(&[0, 1, 2]);
    kept.boot("tuesday");
    flip(&segment(kept.path(2)));
    for node in 0..3 {
        let error = kept.refused(node, Start::Usual);
        assert!(error.contains("--accept-loss"), "{error}");
    }
    (0..3).for_each(|node| kept.begin(node, Start::AcceptLoss));
    assert_eq!(read(&keyspace).await, Some(Value::from("first")));
    write(&keyspace, "second").await;
    kept.kill(&[0, 1, 2]);
    kept.restart(&[0, 1, 2]);
    assert_eq!(read(&keyspace).await, Some(Value::from("second")));
    drop(keyspace);
    kept.cluster.stop();
}
