//! Workloads through sessions: they work end to end, and one seed decides everything.

mod toys;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::Geography;
use serried_session::{TransactOptions, TransactionError};
use serried_sim::{Cluster, Configuration, CostModel, Disk, NetworkFaults, Plan, Swarm};
use toys::{BATCH, Register};

fn at(milliseconds: u64) -> Timestamp {
    Timestamp(milliseconds * 1_000_000)
}

fn configuration(seed: u64) -> Configuration {
    let network = NetworkFaults {
        jitter: 0.2,
        loss: 0.02,
        duplication: 0.02,
        reordering: 0.05,
        extra_delay: Duration::from_millis(1),
    };
    Configuration { seed, clients: 5, network, ..Configuration::default() }
}

/// Two tasks per client. Each increments keys and sleeps in between.
fn busy(configuration: Configuration) -> Cluster<Register> {
    let clients = configuration.clients;
    let mut cluster = Cluster::<Register>::new(configuration);
    for client in 0..clients {
        for task in 0..2u8 {
            let keyspace = cluster.keyspace(client);
            cluster.spawn(client, async move {
                for round in 0..20u8 {
                    let keys = &[vec![task, round % 3], vec![client as u8]];
                    let increment = |tx: serried_session::Transaction| async move {
                        for value in tx.get_many(keys.clone()).await?.into_iter().zip(keys) {
                            let (value, key) = value;
                            let old = value.map_or(0, |value| value.as_bytes()[0]);
                            tx.put(key.clone(), [old.wrapping_add(1)]);
                        }
                        Ok(())
                    };
                    keyspace.transact(increment).await.unwrap();
                    keyspace.sleep_until(keyspace.now() + Duration::from_micros(70)).await;
                }
            });
        }
    }
    cluster
}

#[test]
fn operations_requested_together_end_in_one_batch() {
    let mut cluster = Cluster::<Register>::new(Configuration::default());
    for _ in 0..2 {
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            let keys = (0..3).map(|i| format!("{BATCH}{i}"));
            let together = keyspace.get_many(keys).await.unwrap();
            assert_eq!(together, vec![Some("6".into()); 3], "those of both tasks");
        });
    }
    cluster.run_until_done(at(1000)).unwrap();
}

#[test]
fn a_transaction_runs_end_to_end_through_the_session() {
    let geography = Geography::named("glo").unwrap();
    let mut cluster =
        Cluster::<Register>::new(Configuration { geography, ..Configuration::default() });
    let (keyspace, result) = (cluster.keyspace(0), Arc::new(Mutex::new(None)));
    let answer = result.clone();
    cluster.spawn(0, async move {
        keyspace.put("alice", "1").await.unwrap();
        let committed = keyspace
            .transact(|tx| async move {
                let old = tx.get("alice").await?;
                tx.put("bob", "2");
                Ok(old)
            })
            .await
            .unwrap();
        let bob = keyspace.get("bob").await.unwrap();
        *answer.lock().unwrap() = Some((committed.value, committed.attempts, bob, keyspace.now()));
    });
    cluster.run_until_done(at(10_000)).unwrap();
    let (alice, attempts, bob, ended) = result.lock().unwrap().take().unwrap();
    assert_eq!((alice, bob, attempts), (Some("1".into()), Some("2".into()), 1));
    // Two writes to a majority take 62 ms each, and two reads within the site 0.1 ms each.
    assert_eq!(ended.0 / 100_000, 1242);
    assert_eq!(cluster.now(), ended);
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_does_not() {
    let run = |seed, hash_contents| {
        let mut cluster = busy(Configuration { hash_contents, ..configuration(seed) });
        cluster.run_until_done(at(10_000)).unwrap();
        (cluster.event_hash(), cluster.events(), cluster.now(), cluster.statistics())
    };
    assert_eq!(run(1, false), run(1, false));
    assert_eq!(run(1, true), run(1, true));
    let [one, with_contents, other] = [run(1, false), run(1, true), run(2, false)];
    assert_ne!(one.0, other.0);
    assert_ne!(one.0, with_contents.0);
    assert_eq!((one.1, one.2), (with_contents.1, with_contents.2));
    let statistics = with_contents.3;
    assert!(statistics.bytes > 0 && statistics.lost > 0 && statistics.duplicated > 0);
    assert!(statistics.reordered > 0 && statistics.messages.client_to_replica > 0);
    assert_eq!(statistics.messages.replica_to_replica, 0);
}

#[test]
fn every_swarm_heals_and_then_everything_finishes() {
    for seed in 0..60 {
        let disk = Disk {
            append: Duration::from_micros(2),
            flush: Duration::from_micros(300),
            keep_records: true,
        };
        let base = Configuration { disk, ..configuration(seed) };
        let swarm = Swarm { lasts: Duration::from_millis(50), crashes: true, ..Swarm::default() };
        let plan: Plan = swarm.plan(&base);
        let run = || {
            let mut cluster = busy(plan.apply_to(base.clone()));
            cluster.follow(&plan);
            if let Err(stalled) = cluster.run_until_done(at(20_000)) {
                panic!("{stalled}: {plan}");
            }
            cluster.event_hash()
        };
        assert_eq!(run(), run(), "seed {seed}: {plan}");
    }
}

#[test]
fn a_deadline_passes_in_virtual_time() {
    let network = NetworkFaults { loss: 1.0, ..NetworkFaults::NONE };
    let mut cluster = Cluster::<Register>::new(Configuration { network, ..configuration(1) });
    let (keyspace, failure) = (cluster.keyspace(3), Arc::new(Mutex::new(None)));
    let answer = failure.clone();
    cluster.spawn(3, async move {
        let deadline = Duration::from_millis(700);
        let keyspace = keyspace.with_options(TransactOptions { deadline, ..*keyspace.options() });
        *answer.lock().unwrap() = Some(keyspace.get("k").await.unwrap_err());
    });
    cluster.run_until_done(at(10_000)).unwrap();
    assert!(matches!(failure.lock().unwrap().take(), Some(TransactionError::Unavailable { .. })));
    assert_eq!(cluster.now(), at(700));
}

#[test]
fn a_stalled_run_names_its_clients_and_how_to_replay_it() {
    let mut cluster = Cluster::<Register>::new(configuration(77));
    for client in [4, 1, 1, 2] {
        let keyspace = cluster.keyspace(client);
        cluster.spawn(client, async move {
            if client != 2 {
                keyspace.sleep_until(Timestamp(u64::MAX)).await;
            }
        });
    }
    let stalled = cluster.run_until_done(at(5)).unwrap_err();
    assert_eq!((stalled.clients.as_slice(), stalled.unfinished), ([1, 4].as_slice(), 3));
    let message = stalled.to_string();
    assert!(message.contains("register") && message.contains("seed 77"), "{message}");
}

#[test]
fn attempts_wait_if_too_many_are_open() {
    let costs = CostModel { event_ns: 1000, ..CostModel::FREE };
    let configuration = Configuration { open_attempts: 2, costs, ..Configuration::default() };
    let mut cluster = Cluster::<Register>::new(configuration);
    for task in 0..10u8 {
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move { keyspace.put([task], "v").await.map(|_| ()).unwrap() });
    }
    cluster.run_until_done(at(1000)).unwrap();
    // Two at a time, five times, at 0.1 ms each plus the time to compute.
    assert!(cluster.now() >= Timestamp(500_000) && cluster.now() < Timestamp(700_000));
    assert_eq!(cluster.replica(0).values.len(), 10);
}

#[test]
fn a_crashed_client_is_gone_and_the_others_carry_on() {
    let mut cluster = busy(configuration(5));
    cluster.run_until(at(1));
    cluster.crash_client(2);
    cluster.run_until_done(at(10_000)).unwrap();
    assert!(cluster.statistics().undeliverable > 0);
}

#[test]
fn a_watcher_sees_observations_and_changes_nothing() {
    let mut alone = busy(configuration(3));
    alone.run_until_done(at(60_000)).unwrap();
    let mut watched = busy(configuration(3));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watcher = seen.clone();
    watched.watch(Box::new(move |at, node, observation| {
        watcher.lock().unwrap().push((at, node, observation));
    }));
    watched.run_until_done(at(60_000)).unwrap();
    assert_eq!(watched.event_hash(), alone.event_hash());
    let seen = seen.lock().unwrap();
    // 5 clients, 2 tasks, 20 rounds and 2 keys at each of 3 replicas, except for messages that were lost after a
    // majority had answered.
    assert!(seen.len() >= 5 * 2 * 20 * 2 * 2, "{}", seen.len());
    assert!(seen.iter().all(|(_, node, _)| !node.is_coordinator()));
    assert!(seen.is_sorted_by_key(|(at, ..)| *at));
}

#[test]
fn what_nodes_did_is_counted_for_each_side() {
    let mut cluster = busy(Configuration { clients: 2, ..Configuration::default() });
    cluster.run_until_done(at(60_000)).unwrap();
    let statistics = cluster.statistics();
    let (messages, replicas) = (statistics.messages, statistics.replica_load);
    // A replica starts once, and has no timers.
    assert_eq!(replicas.events, messages.client_to_replica + 3);
    assert_eq!(replicas.sent_messages, messages.replica_to_client);
    assert_eq!(statistics.client_load.sent_messages, messages.client_to_replica);
    assert!(statistics.client_load.events > messages.replica_to_client);
}
