//! What the systems have in common whose shards have leaders: a client that dies at any point leaves nothing
//! half done, and what NCC's paper says of waiting.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Group, Protocol, Settings, Timestamp};
use serried_model::transactions::Offers;
use serried_model::{FamilyName, Geography, Guarantee, Key, NodeId, Transactions, Value, Write};
use serried_protocols::frameworks::shard::{Coordinator, Message, Mutation, Replica, Request};
use serried_protocols::ncc::{NccRw, Queues};
use serried_protocols::{Mutated, Visitor, promising, visit};
use serried_session::TransactionKeyspace;
use serried_sim::{Cluster, Configuration, Disk, Fate, Initial};

/// Keys of which each of three partitions has some.
const KEYS: u64 = 9;

fn keys() -> Vec<Key> {
    (0..KEYS).map(|key| Key::from(key.to_be_bytes())).collect()
}

fn writes(value: &str) -> Vec<Write> {
    let write = |key: Key| Write { key, value: Some(Value::from(value)) };
    keys().into_iter().map(write).collect()
}

fn configuration(replicas: usize, clients: usize) -> Configuration {
    Configuration {
        replicas,
        partitions: 3,
        clients,
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        settings: Settings { recovery_after_ms: 100, ..Settings::default() },
        initial: Some(Initial::new(|_| Some(Value::from("old")))),
        ..Configuration::default()
    }
}

/// How a transaction over all keys is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Interactive,
    OneShot,
}

async fn write_all(keyspace: TransactionKeyspace, shape: Shape) {
    // Its client may die.
    let _ = match shape {
        Shape::Interactive => {
            let keys = keys();
            let keys = &keys;
            let written = keyspace.transact(|tx| async move {
                tx.get_many(keys).await?;
                for key in keys {
                    tx.put(key.clone(), "new");
                }
                Ok(())
            });
            written.await.map(drop)
        }
        Shape::OneShot => keyspace.one_shot(keys(), writes("new")).await.map(drop),
    };
}

/// A client writes all keys and dies after so many messages; another finds all written, or none, and goes on.
struct Death {
    replicas: usize,
    shape: Shape,
    after: u64,
}

impl Visitor<Transactions> for Death {
    /// Whether the transaction took effect.
    type Output = bool;

    fn visit<P: Protocol<Family = Transactions>>(self) -> bool {
        let mut cluster = Cluster::<P>::new(configuration(self.replicas, 2));
        cluster.crash_client_after(0, self.after);
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, write_all(keyspace, self.shape));
        let keyspace = cluster.keyspace(1);
        let found = Arc::new(Mutex::new(Vec::new()));
        let values = found.clone();
        cluster.spawn(1, async move {
            keyspace.sleep_until(Timestamp(0) + Duration::from_millis(20)).await;
            *values.lock().unwrap() = keyspace.get_many(keys()).await.unwrap();
            keyspace.one_shot(keys(), writes("newest")).await.unwrap();
            let now = keyspace.get_many(keys()).await.unwrap();
            assert!(now.iter().all(|value| *value == Some(Value::from("newest"))), "{now:?}");
        });
        cluster.run_until_done(Timestamp(0) + Duration::from_secs(30)).unwrap();
        let found = found.lock().unwrap();
        assert!(
            found.iter().all(|value| *value == found[0]),
            "{}: {:?} with {} replicas, dead after {} messages: {found:?}",
            P::NAME,
            self.shape,
            self.replicas,
            self.after
        );
        found[0] == Some(Value::from("new"))
    }
}

#[test]
fn a_client_that_dies_after_any_of_its_messages_leaves_nothing_half_done_nor_in_the_way() {
    for protocol in promising(FamilyName::Transactions) {
        for replicas in [1, 3] {
            for shape in [Shape::Interactive, Shape::OneShot] {
                let die = |after| visit(protocol.name, Death { replicas, shape, after }).unwrap();
                let done: Vec<bool> = (0..40).map(die).collect();
                assert!(!done[0] && done[39], "{}: {done:?}", protocol.name);
            }
        }
    }
}

/// NCC without its protocol for read-only transactions, which aborts nobody early.
struct WithoutEarlyAbort;

impl Protocol for WithoutEarlyAbort {
    const NAME: &'static str = "broken";
    const SUMMARY: &'static str = "broken on purpose";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: true, past: false, modifies: false };
    type Message = Message;
    type Coordinator = Coordinator<Queues<false>>;
    type Replica = Replica<Queues<false>>;

    fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator {
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica {
        Replica::new(id, group, settings, Mutated::by(Mutation::NoEarlyAbort))
    }
}

/// Two transactions that write all keys arrive at the shards in different orders: whether both end.
fn cross<P: Protocol<Family = Transactions>>() -> bool {
    let mut cluster = Cluster::<P>::new(configuration(1, 2));
    let clients = [0, 1].map(|client| cluster.client_id(client));
    cluster.set_interceptor(Box::new(move |passing| {
        let first = clients.iter().position(|client| *client == passing.from);
        let late = first.is_some_and(|client| client == usize::from(passing.to.partition()));
        if late { Fate::Delay(Duration::from_millis(1)) } else { Fate::Pass }
    }));
    let ended = Arc::new(Mutex::new(0));
    for client in 0..2 {
        let (keyspace, ended) = (cluster.keyspace(client), ended.clone());
        cluster.spawn(client, async move {
            let written = keyspace.one_shot(Vec::<Key>::new(), writes("new")).await;
            *ended.lock().unwrap() += u32::from(written.is_ok());
        });
    }
    cluster.run_until_done(Timestamp(0) + Duration::from_secs(60)).unwrap();
    let ended = *ended.lock().unwrap();
    ended == 2
}

#[test]
fn transactions_wait_for_each_other_for_ever_unless_one_is_aborted_early() {
    assert!(cross::<NccRw>());
    assert!(!cross::<WithoutEarlyAbort>(), "nobody noticed that nothing is aborted early");
}

#[test]
fn a_transaction_that_is_overtaken_at_one_shard_is_moved_and_commits_at_once() {
    let mut cluster = Cluster::<NccRw>::new(configuration(1, 2));
    let late = cluster.client_id(0);
    cluster.set_interceptor(Box::new(move |passing| {
        let last = matches!(passing.message, Message::Request(Request::Shot(_)));
        match passing.from == late && passing.to.partition() == 2 && last {
            true => Fate::Delay(Duration::from_millis(2)),
            false => Fate::Pass,
        }
    }));
    let attempts = Arc::new(Mutex::new(0));
    let (keyspace, counted) = (cluster.keyspace(0), attempts.clone());
    cluster.spawn(0, async move {
        let committed = keyspace.one_shot(Vec::<Key>::new(), writes("new")).await.unwrap();
        *counted.lock().unwrap() = committed.attempts;
    });
    let keyspace = cluster.keyspace(1);
    cluster.spawn(1, async move {
        keyspace.sleep_until(Timestamp(0) + Duration::from_micros(500)).await;
        // The keys of the last partition alone.
        let group = Group::new(1, Duration::ZERO).with_partitions(3);
        let writes = writes("other").into_iter();
        let there = |write: &Write| group.partition_of(&write.key) == 2;
        let writes = writes.filter(there).collect::<Vec<_>>();
        keyspace.one_shot(Vec::<Key>::new(), writes).await.unwrap();
    });
    cluster.run_until_done(Timestamp(0) + Duration::from_secs(30)).unwrap();
    assert_eq!(*attempts.lock().unwrap(), 1);
    let mut moved = None;
    serried_actor::Actor::gauges(cluster.coordinator(0), &mut |name, value| {
        if name == "moved" {
            moved = Some(value);
        }
    });
    assert_eq!(moved, Some(1), "its writes come after the other's there");
}

#[test]
fn shots_before_the_last_put_nothing_into_the_log_and_wait_for_no_follower() {
    let geography = Geography::named("reg").unwrap();
    let configuration = Configuration { geography, partitions: 1, ..configuration(3, 1) };
    let mut cluster = Cluster::<NccRw>::new(configuration);
    let keyspace = cluster.keyspace(0);
    let took = Arc::new(Mutex::new(Duration::ZERO));
    let counted = took.clone();
    cluster.spawn(0, async move {
        keyspace.put("a", "first").await.unwrap();
        let begun = keyspace.now();
        for _ in 0..10 {
            let changed = keyspace.transact(|tx| async move {
                for key in ["a", "b", "c", "d"] {
                    tx.get(key).await?;
                }
                tx.put("e", "new");
                Ok(())
            });
            changed.await.unwrap();
        }
        *counted.lock().unwrap() = keyspace.now().since(begun) / 10;
    });
    cluster.run_until_done(Timestamp(0) + Duration::from_secs(30)).unwrap();
    let took = *took.lock().unwrap();
    // The client is where the leader is, and the nearest follower 10 ms from there.
    assert!(took < Duration::from_millis(13), "{took:?} for five shots");
    let entries = cluster.gauge(0, 0, "applied_slots").unwrap();
    // A part and an end each, of eleven; what says who leads and who is taken; and none for the forty reads.
    assert!((22..32).contains(&entries), "{entries} entries");
}
