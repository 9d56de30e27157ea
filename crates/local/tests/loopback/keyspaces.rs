//! Keyspaces that come, go and change places while a cluster runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serried::{Client, ConnectError, ConnectOptions};
use serried_model::Value;
use serried_node::{
    Durability, KeyspaceConfiguration, Node, NodeConfiguration, NodeDisks, NodeHandle, Start,
    StartError,
};
use serried_session::{TransactOptions, TransactionError};

use crate::directories::Folder;
use crate::free_address;

/// Three nodes with data directories, each with a configuration of its own.
struct Rolling {
    folder: Folder,
    peers: Vec<String>,
    nodes: Vec<Option<NodeHandle>>,
}

impl Rolling {
    /// Three nodes that have these.
    async fn start(keyspaces: &[KeyspaceConfiguration]) -> Rolling {
        let peers = (0..3).map(|_| free_address()).collect();
        let mut rolling = Rolling { folder: Folder::new(), peers, nodes: vec![None, None, None] };
        for node in 0..3 {
            rolling.restart(node, keyspaces).await.unwrap();
        }
        rolling
    }

    fn directory(&self, node: usize) -> PathBuf {
        self.folder.0.join(format!("node-{node}"))
    }

    async fn stop(&mut self, node: usize) {
        if let Some(running) = self.nodes[node].take() {
            running.shutdown().await;
        }
    }

    /// Stops a node, if it runs, and starts it with other keyspaces.
    async fn restart(
        &mut self,
        node: usize,
        keyspaces: &[KeyspaceConfiguration],
    ) -> Result<(), StartError> {
        self.begin(node, keyspaces, false).await
    }

    async fn begin(
        &mut self,
        node: usize,
        keyspaces: &[KeyspaceConfiguration],
        rejoin: bool,
    ) -> Result<(), StartError> {
        self.stop(node).await;
        let configuration = NodeConfiguration {
            keyspaces: keyspaces.to_vec(),
            durability: Durability::Buffered,
            cores: Some(2),
            pin: Some(false),
            ..NodeConfiguration::new(node, self.peers.clone())
        };
        let start = if rejoin { Start::Rejoin } else { Start::Usual };
        let disks = NodeDisks::open(self.directory(node), &configuration, start).unwrap();
        self.nodes[node] = Some(Node::start_on(configuration, Arc::new(disks)).await?);
        Ok(())
    }

    async fn restart_all(&mut self, keyspaces: &[KeyspaceConfiguration]) {
        for node in [2, 1, 0] {
            self.restart(node, keyspaces).await.unwrap();
        }
    }

    async fn client(&self) -> Arc<Client> {
        Client::connect(ConnectOptions::new(self.peers.clone())).await.unwrap()
    }

    /// Waits until a node says that these keyspaces are refused, and no others.
    async fn until_refused(&self, node: usize, names: &[&str]) {
        let status = || self.nodes[node].as_ref().unwrap().status();
        while status().not_served.iter().map(|refused| &refused.name).ne(names) {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a node says that it takes no part in these keyspaces, and no others; why it does not
    /// serve, if so.
    async fn until_outside(&self, node: usize, names: &[&str]) -> String {
        let status = || self.nodes[node].as_ref().unwrap().status();
        while status().outside.iter().map(|outside| &outside.name).ne(names) {
            tokio::task::yield_now().await;
        }
        status().serves().err().unwrap_or_default()
    }

    async fn get(&self, keyspace: &str, key: &str) -> Result<Option<Value>, ConnectError> {
        Ok(get(&self.client().await, keyspace, key).await)
    }
}

fn named(name: &str) -> KeyspaceConfiguration {
    KeyspaceConfiguration::new(name, "morty")
}

fn patient() -> TransactOptions {
    TransactOptions { deadline: Duration::from_secs(20), ..TransactOptions::default() }
}

async fn get(client: &Arc<Client>, keyspace: &str, key: &str) -> Option<Value> {
    client.keyspace(keyspace).unwrap().with_options(patient()).get(key.to_string()).await.unwrap()
}

async fn put(client: &Arc<Client>, keyspace: &str, key: &str, value: &str) {
    let keyspace = client.keyspace(keyspace).unwrap().with_options(patient());
    // A node that goes may leave open how this ends.
    while let Err(error) = keyspace.put(key.to_string(), value.to_string()).await {
        assert!(
            matches!(
                error,
                TransactionError::Unknown { .. } | TransactionError::Unavailable { .. }
            ),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_keyspace_holds_stays_its_own_wherever_the_keyspace_is_in_the_files() {
    let mut rolling = Rolling::start(&[named("a"), named("b").with_partitions(3)]).await;
    let client = rolling.client().await;
    put(&client, "a", "key", "of a").await;
    put(&client, "b", "key", "of b").await;
    let later = [named("b").with_partitions(3), named("added").with_partitions(2), named("a")];
    for (i, node) in [2, 1, 0].into_iter().enumerate() {
        rolling.restart(node, &later).await.unwrap();
        // By the one that has been there all the time, and by one that comes now.
        for client in [&client, &rolling.client().await] {
            let round = format!("round {i}");
            put(client, "a", &round, "of a").await;
            put(client, "b", &round, "of b").await;
            assert_eq!(get(client, "a", "key").await, Some(Value::from("of a")), "{round}");
            assert_eq!(get(client, "b", "key").await, Some(Value::from("of b")), "{round}");
        }
    }
    assert_eq!(rolling.get("added", "key").await.unwrap(), None);
    for round in ["round 0", "round 1", "round 2"] {
        assert_eq!(get(&client, "a", round).await, Some(Value::from("of a")));
        assert_eq!(get(&client, "b", round).await, Some(Value::from("of b")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_majority_lacks_is_refused_by_name_until_they_have_it() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    rolling.restart(0, &[named("new"), named("a")]).await.unwrap();
    let client = rolling.client().await;
    let error = client.keyspace("new").err().unwrap();
    assert!(matches!(error, ConnectError::NotServed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`new`") && text.contains("n0 has new@0"), "{text}");
    // The nodes say it too, once they have met; what they have besides is served.
    for node in [0, 1] {
        rolling.until_refused(node, &["new"]).await;
    }
    let observer = rolling.nodes[0].as_ref().unwrap().observer();
    while observer.health().is_err() {
        tokio::task::yield_now().await;
    }
    let metrics = observer.metrics();
    let line = "serried_keyspace_not_served{keyspace=\"new\",reason=\"keyspace `new` is not served: n0 has new@0";
    assert!(metrics.contains(line), "{metrics}");
    assert_eq!(client.keyspaces_not_served()[0].name, "new");
    rolling.restart(1, &[named("a"), named("new")]).await.unwrap();
    assert_eq!(rolling.get("new", "key").await.unwrap(), None);
    // The client that was refused learns of it when it is connected again.
    while client.keyspace("new").is_err() {
        tokio::task::yield_now().await;
    }
    put(&client, "new", "key", "value").await;
    for node in 0..3 {
        rolling.until_refused(node, &[]).await;
    }
    assert_eq!(client.keyspaces_not_served(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_that_is_dropped_and_created_again_is_empty_on_every_node() {
    let mut rolling = Rolling::start(&[named("kept"), named("again")]).await;
    let client = rolling.client().await;
    put(&client, "again", "key", "old").await;
    put(&client, "kept", "key", "kept").await;
    rolling.restart_all(&[named("kept")]).await;
    assert!(rolling.client().await.keyspace("again").is_err());
    // It may even be another kind of keyspace now.
    rolling.restart_all(&[named("again").with_partitions(2), named("kept")]).await;
    let client = rolling.client().await;
    let id = |name: &str| {
        let all = client.keyspaces();
        all.iter().find(|keyspace| keyspace.name == name).unwrap().id()
    };
    assert_eq!((id("again"), id("kept")), ("again@1".to_string(), "kept@0".to_string()));
    assert_eq!(get(&client, "again", "key").await, None);
    put(&client, "again", "key", "new").await;
    // A node whose disk is lost learns from the others which one it is.
    rolling.stop(0).await;
    std::fs::remove_dir_all(rolling.directory(0)).unwrap();
    let both = [named("kept"), named("again").with_partitions(2)];
    rolling.begin(0, &both, true).await.unwrap();
    let identity = std::fs::read_to_string(rolling.directory(0).join("identity.toml")).unwrap();
    assert!(identity.contains("generation = 1"), "{identity}");
    let client = rolling.client().await;
    assert_eq!(get(&client, "again", "key").await, Some(Value::from("new")));
    assert_eq!(get(&client, "kept", "key").await, Some(Value::from("kept")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_while_a_keyspace_was_dropped_takes_part_in_the_new_one() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    put(&rolling.client().await, "a", "key", "old").await;
    rolling.stop(2).await;
    for keyspaces in [&[named("other")], &[named("a")]] {
        for node in [0, 1] {
            rolling.restart(node, keyspaces).await.unwrap();
        }
    }
    put(&rolling.client().await, "a", "other key", "new").await;
    rolling.restart(2, &[named("a")]).await.unwrap();
    rolling.stop(0).await;
    let client = rolling.client().await;
    assert_eq!(client.keyspaces()[0].id(), "a@1");
    assert_eq!(get(&client, "a", "key").await, None);
    assert_eq!(get(&client, "a", "other key").await, Some(Value::from("new")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_takes_part_in_a_new_keyspace_of_another_protocol() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    put(&rolling.client().await, "a", "key", "old").await;
    rolling.stop(2).await;
    let again = [KeyspaceConfiguration::new("a", "mvtso").with_partitions(2)];
    for keyspaces in [&[named("other")], &again] {
        for node in [0, 1] {
            rolling.restart(node, keyspaces).await.unwrap();
        }
    }
    put(&rolling.client().await, "a", "other key", "new").await;
    rolling.restart(2, &again).await.unwrap();
    rolling.stop(0).await;
    assert_eq!(rolling.get("a", "key").await.unwrap(), None);
    assert_eq!(rolling.get("a", "other key").await.unwrap(), Some(Value::from("new")));
    let folder = |name| rolling.directory(2).join(name).is_dir();
    assert!(folder("a") && folder("a@1"), "the old data stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_had_to_be_in_the_same_generation_is_not_another_protocol() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    let other = [KeyspaceConfiguration::new("a", "mvtso")];
    let error = rolling.restart(2, &other).await.unwrap_err().to_string();
    assert!(error.contains("`a` has run protocol `morty`"), "{error}");
    assert!(error.contains("says `mvtso`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_that_a_lost_disk_held_rejoins_although_it_is_configured_later() {
    let mut rolling = Rolling::start(&[named("a"), named("b")]).await;
    put(&rolling.client().await, "b", "key", "value").await;
    // Each learns it from the one before, which does not serve it at that moment.
    for node in [2, 1] {
        rolling.stop(node).await;
        std::fs::remove_dir_all(rolling.directory(node)).unwrap();
        rolling.begin(node, &[named("a")], true).await.unwrap();
    }
    let identity = |rolling: &Rolling, node| {
        std::fs::read_to_string(rolling.directory(node).join("identity.toml")).unwrap()
    };
    for node in [2, 1] {
        assert!(identity(&rolling, node).contains("b = 0"), "{}", identity(&rolling, node));
        rolling.restart(node, &[named("a"), named("b")]).await.unwrap();
        let identity = identity(&rolling, node);
        assert!(!identity.contains("later = true"), "{identity}");
    }
    // Of one that is created now nothing was lost.
    rolling.restart(2, &[named("a"), named("b"), named("c")]).await.unwrap();
    assert!(identity(&rolling, 2).contains("later = true"), "{}", identity(&rolling, 2));
}

/// TransactionKeyspace `a` was dropped and created again by nodes 0 and 2, while node 1 still has the old one. Node 0's disk is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_replaced_while_too_few_run_is_not_settled_in_an_earlier_generation() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    for node in [0, 2] {
        rolling.restart(node, &[named("other")]).await.unwrap();
        rolling.restart(node, &[named("a")]).await.unwrap();
    }
    put(&rolling.client().await, "a", "key", "value").await;
    for node in [0, 2] {
        rolling.stop(node).await;
    }
    std::fs::remove_dir_all(rolling.directory(0)).unwrap();
    let error = rolling.begin(0, &[named("a")], true).await.unwrap_err();
    assert!(matches!(error, StartError::TooFew { answered: 1, wanted: 2, .. }), "{error}");
    rolling.restart(2, &[named("a")]).await.unwrap();
    let error = rolling.begin(0, &[named("a")], true).await.unwrap_err().to_string();
    assert!(error.contains("some nodes have `a@0` and others `a@1`"), "{error}");
    let wanted = |id: &str| KeyspaceConfiguration { id: Some(id.to_string()), ..named("a") };
    let error = rolling.begin(0, &[wanted("a@0")], true).await.unwrap_err().to_string();
    assert!(error.contains("may have had `a@1`") && error.contains("write that"), "{error}");
    rolling.begin(0, &[wanted("a@1")], true).await.unwrap();
    rolling.restart(1, &[named("a")]).await.unwrap();
    let client = rolling.client().await;
    assert_eq!(client.keyspaces()[0].id(), "a@1");
    assert_eq!(get(&client, "a", "key").await, Some(Value::from("value")));
}

/// Makes a directory like one of an earlier release, which settled it while too few nodes said what its lost disk had
/// held.
fn forget_what_was_lost(directory: &Path) {
    let file = directory.join("identity.toml");
    let mut contents: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    contents.remove("lost").unwrap();
    std::fs::write(&file, contents.to_string()).unwrap();
}

/// Keyspace `k` is on nodes 0, 2 and 4 of five, which have acknowledged a write there. Node 0's disk was replaced while
/// too few nodes ran that know `k`. Then node 2's disk is replaced while node 4 is away, and node 0 is among those that
/// answer it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_had_too_few_answers_does_not_count_when_the_next_one_asks() {
    let (without, with) = ([named("a")], [named("a"), named("k")]);
    let peers = (0..5).map(|_| free_address()).collect();
    let nodes = (0..5).map(|_| None).collect();
    let mut rolling = Rolling { folder: Folder::new(), peers, nodes };
    for node in 0..5 {
        let keyspaces = if node % 2 == 0 { &with[..] } else { &without[..] };
        rolling.restart(node, keyspaces).await.unwrap();
    }
    put(&rolling.client().await, "k", "key", "value").await;
    rolling.stop(0).await;
    std::fs::remove_dir_all(rolling.directory(0)).unwrap();
    rolling.begin(0, &without, true).await.unwrap();
    for node in [2, 4, 0] {
        rolling.stop(node).await;
    }
    forget_what_was_lost(&rolling.directory(0));
    rolling.restart(0, &without).await.unwrap();
    std::fs::remove_dir_all(rolling.directory(2)).unwrap();
    rolling.begin(2, &without, true).await.unwrap();
    // Now all are given the keyspace. Node 4, which alone has what was acknowledged, is still away.
    for node in 0..4 {
        rolling.restart(node, &with).await.unwrap();
    }
    let client = rolling.client().await;
    let options = TransactOptions { deadline: Duration::from_secs(5), ..patient() };
    let read = client.keyspace("k").unwrap().with_options(options).get("key".to_string()).await;
    assert!(!matches!(read, Ok(None)), "an acknowledged write is gone");
    let identity = std::fs::read_to_string(rolling.directory(2).join("identity.toml")).unwrap();
    assert!(!identity.contains("later = true"), "{identity}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_is_replaced_although_the_clock_was_ahead_when_its_directory_was_made() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    let peers = |rolling: &Rolling| rolling.directory(0).join("peers.toml");
    // The nodes have met each other once there is a leader or a commit.
    put(&rolling.client().await, "a", "key", "value").await;
    rolling.restart(2, &[named("a")]).await.unwrap();
    rolling.stop(0).await;
    rolling.stop(2).await;
    let ahead = 1u64 << 60;
    std::fs::write(peers(&rolling), format!("2 = {ahead}\n")).unwrap();
    rolling.restart(0, &[named("a")]).await.unwrap();
    std::fs::remove_dir_all(rolling.directory(2)).unwrap();
    rolling.begin(2, &[named("a")], true).await.unwrap();
    let met =
        || -> toml::Table { std::fs::read_to_string(peers(&rolling)).unwrap().parse().unwrap() };
    while met()["2"].as_integer().unwrap() <= ahead as i64 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_alone_has_dropped_goes_on_without_it_and_can_be_taken_up_again() {
    let mut rolling = Rolling::start(&[named("a"), named("b")]).await;
    put(&rolling.client().await, "a", "key", "value").await;
    rolling.restart(0, &[named("b")]).await.unwrap();
    rolling.restart(0, &[named("a"), named("b")]).await.unwrap();
    // The others have not dropped it, and do not because they start again.
    rolling.restart(1, &[named("a"), named("b")]).await.unwrap();
    let client = rolling.client().await;
    assert_eq!(client.keyspaces()[0].id(), "a@0");
    assert_eq!(get(&client, "a", "key").await, Some(Value::from("value")));
    let said = rolling.until_outside(0, &["a"]).await;
    assert!(said.contains("it has a@1") && said.contains("--rejoin"), "{said}");
    rolling.until_outside(1, &[]).await;
    // It has begun a new one meanwhile, so the old one is not to be had any more by its id.
    let wanted = |id: &str| KeyspaceConfiguration { id: Some(id.to_string()), ..named("a") };
    let error = rolling.restart(0, &[wanted("a@0"), named("b")]).await.unwrap_err().to_string();
    assert!(error.contains("this node has had `a@1` since"), "{error}");
    // An empty directory has it.
    std::fs::remove_dir_all(rolling.directory(0)).unwrap();
    rolling.begin(0, &[named("a"), named("b")], true).await.unwrap();
    rolling.until_outside(0, &[]).await;
    assert_eq!(rolling.client().await.keyspaces()[0].id(), "a@0");
    // So has a node that has only dropped it.
    rolling.restart(1, &[named("b")]).await.unwrap();
    rolling.restart(1, &[wanted("a@0"), named("b")]).await.unwrap();
    assert_eq!(rolling.get("a", "key").await.unwrap(), Some(Value::from("value")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_stands_for_something_else_on_another_node_is_refused_at_the_start() {
    let mut rolling = Rolling::start(&[named("a")]).await;
    for node in [0, 1] {
        rolling.restart(node, &[named("a"), named("new").with_partitions(2)]).await.unwrap();
    }
    for other in [named("new"), KeyspaceConfiguration::new("new", "mvtso").with_partitions(2)] {
        let error = rolling.restart(2, &[other, named("a")]).await.unwrap_err().to_string();
        assert!(error.contains("keyspace `new`"), "{error}");
        assert!(error.contains("new@0 (morty, 2 partitions)"), "{error}");
    }
    rolling.restart(2, &[named("a"), named("new").with_partitions(2)]).await.unwrap();
    put(&rolling.client().await, "new", "key", "value").await;
}
