//! A client that watches what a node does to keys.

use serried::{WatchError, WatchOptions};
use serried_actor::Timestamp;
use serried_local::{LocalCluster, LocalOptions};
use serried_model::Key;
use serried_windows::{Collector, analyse};

use crate::{connect, keyspaces, protocols};

/// A node alone, so that everything that a client knows to be committed has been observed.
fn start(partitions: u16, cores: usize) -> LocalCluster {
    let [first, second] = keyspaces();
    let keyspaces = [first, second.with_partitions(partitions)];
    let options = LocalOptions { cores: Some(cores), ..LocalOptions::default() };
    LocalCluster::start_with(1, &keyspaces, options, protocols()).unwrap()
}

fn named(keys: &[Key]) -> WatchOptions {
    WatchOptions { keys: keys.to_vec(), ..WatchOptions::default() }
}

#[tokio::test]
async fn a_watching_client_gets_what_happens_to_its_keys_on_all_cores_and_nothing_else() {
    for (partitions, cores) in [(1, 1), (4, 1), (4, 3)] {
        let cluster = start(partitions, cores);
        let (watcher, client) = (connect(&cluster).await, connect(&cluster).await);
        let keys: Vec<Key> = (0..8).map(|i| Key::from(format!("key-{i}"))).collect();
        let options = WatchOptions { record: std::time::Duration::from_secs(100), ..named(&keys) };
        let watching = watcher.watch("second", options).await.unwrap();
        for round in 0..5 {
            for keyspace in ["first", "second"] {
                let keys = &keys;
                let write = |tx: serried_session::Transaction| async move {
                    keys.iter().for_each(|key| tx.put(key, round.to_string()));
                    tx.put("another", "value");
                    Ok(())
                };
                client.keyspace(keyspace).unwrap().transact(write).await.unwrap();
            }
        }
        watching.stop();
        let watched = watching.finish().await.unwrap();
        assert_eq!(watched.forgotten, 0);
        assert!(watched.committed >= 5, "{}", watched.committed);
        assert_eq!(watched.committed_where_it_leads, watched.committed, "a toy has no leaders");
        assert_eq!(watched.aborted, 0);
        let mut collector = Collector::new(1000);
        collector.choose(keys);
        watched.observed.into_iter().for_each(|observed| collector.observe(observed));
        let period = Timestamp(watched.from_ns)..Timestamp(watched.until_ns);
        for key in analyse(&collector.finish(), period) {
            assert_eq!(key.windows.len(), 5, "{key:?}");
        }
        cluster.stop();
    }
}

#[tokio::test]
async fn a_node_has_one_watcher_at_a_time_and_forgets_it_with_its_connection() {
    let cluster = start(1, 1);
    let (first, second) = (connect(&cluster).await, connect(&cluster).await);
    let options = named(&[Key::from("key")]);
    let watching = first.watch("first", options.clone()).await.unwrap();
    let refused = second.watch("first", options.clone()).await;
    assert!(matches!(refused, Err(WatchError::Refused { .. })));
    drop(watching);
    first.close().await;
    // The node learns of that when it reads.
    while let Err(error) = second.watch("first", options.clone()).await {
        assert!(matches!(error, WatchError::Refused { .. }), "{error}");
    }
    let unknown = second.watch("third", options).await;
    assert!(matches!(unknown, Err(WatchError::Keyspace(_))));
    cluster.stop();
}
