//! What has to survive what, scene by scene, under every protocol.

#[path = "support/scene.rs"]
mod scene;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scene::{LIMIT, configuration, crash, each_without_leaders, ms, number};
use serried_actor::{Protocol, Timestamp};
use serried_model::{FamilyName, NodeId, Transactions, Value, Version};
use serried_protocols::morty::{Message, Morty, Reply};
use serried_protocols::{Visitor, promising, visit};
use serried_session::{Ending, TransactOptions, TransactionError, TransactionKeyspace};
use serried_sim::{
    Cluster, Configuration, CostModel, Fate, Fault, Initial, Reach, Scheduled, Side,
};

/// Adds one to each of the keys.
async fn increment(
    keyspace: &TransactionKeyspace,
    keys: &[&str],
) -> Result<Version, TransactionError> {
    let program = |tx: serried_session::Transaction| async move {
        for key in keys {
            let old = number(tx.get(*key).await?);
            tx.put(*key, (old + 1).to_be_bytes());
        }
        Ok(())
    };
    Ok(keyspace.transact(program).await?.version)
}

async fn read(keyspace: &TransactionKeyspace, keys: &[&str]) -> Vec<u64> {
    let values = keyspace.get_many(keys.iter().copied()).await.unwrap();
    values.into_iter().map(number).collect()
}

/// Runs `scene` for every protocol that promises something.
fn each<S: Visitor<Transactions, Output = ()> + Copy>(scene: S) {
    for protocol in promising(FamilyName::Transactions) {
        visit(protocol.name, scene).unwrap();
    }
}

/// A client dies after it has sent so many messages.
#[derive(Clone, Copy)]
struct Death(u64, u16);

/// How far the transaction of the client that died came.
static ENDS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

impl Visitor<Transactions> for Death {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let Death(messages, partitions) = self;
        let keys = ["alice", "bob", "carol", "dave"];
        let mut cluster = Cluster::<P>::new(configuration(partitions));
        let (dying, other) = (cluster.keyspace(0), cluster.keyspace(1));
        cluster.crash_client_after(0, messages);
        cluster.spawn(0, async move { drop(increment(&dying, &keys).await) });
        cluster.spawn(1, async move {
            other.sleep_until(Timestamp(100_000_000)).await;
            let committed = increment(&other, &keys).await;
            let committed = committed.unwrap_or_else(|error| {
                panic!("{error}, after {messages} messages in {partitions} partitions")
            });
            let found = read(&other, &keys).await;
            assert!(found.iter().all(|n| *n == found[0]), "after {messages} messages: {found:?}");
            assert_eq!(other.outcome(committed).await.unwrap(), Ending::Committed);
            ENDS.lock().unwrap().push(found[0]);
        });
        cluster.run_until_done(LIMIT).unwrap();
        // What the dead client has left is gone once it is old.
        cluster.run_until(cluster.now() + Duration::from_secs(5));
        for partition in 0..partitions {
            for member in 0..3 {
                let undecided = cluster.gauge(partition, member, "undecided_transactions");
                assert_eq!(undecided, Some(0), "n{member}/p{partition} after {messages} messages");
            }
        }
    }
}

#[test]
fn whichever_message_is_a_clients_last_its_transaction_ends_and_others_go_on() {
    for partitions in [1, 4] {
        ENDS.lock().unwrap().clear();
        for messages in 0..80 {
            each(Death(messages, partitions));
        }
        let ends = ENDS.lock().unwrap();
        let (neither, both) = (ends.contains(&1), ends.contains(&2));
        assert!(neither && both, "some deaths come too early, and some too late: {ends:?}");
    }
}

/// The client's replies are cut off while it commits.
#[derive(Clone, Copy)]
struct Unknown;

impl Visitor<Transactions> for Unknown {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        for cut_after_us in (0..40_000).step_by(1000) {
            let mut cluster = Cluster::<P>::new(configuration(2));
            let client = cluster.client_id(0);
            let options = TransactOptions {
                deadline: Duration::from_millis(400),
                ..TransactOptions::default()
            };
            let (first, other) = (cluster.keyspace(0).with_options(options), cluster.keyspace(1));
            cluster.schedule(Scheduled {
                begins: Timestamp(cut_after_us * 1000),
                ends: Timestamp(1_000_000_000),
                fault: Fault::Partition(Reach::around(Side::node(client))),
            });
            cluster.spawn(0, async move {
                let ended = increment(&first, &["alice", "bob"]).await;
                first.sleep_until(Timestamp(1_100_000_000)).await;
                let found = read(&other, &["alice", "bob"]).await;
                match ended {
                    Ok(_) => assert_eq!(found, [1, 1]),
                    Err(TransactionError::Unknown { txn, .. }) => {
                        let ending = other.outcome(txn).await.unwrap();
                        let expected = u64::from(ending == Ending::Committed);
                        assert_eq!(found, [expected; 2], "cut after {cut_after_us} us: {ending:?}");
                        other.sleep_until(Timestamp(10_000_000_000)).await;
                        assert_eq!(other.outcome(txn).await.unwrap(), Ending::Forgotten);
                    }
                    Err(_) => assert_eq!(found, [0, 0]),
                }
            });
            cluster.run_until_done(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_transaction_whose_client_lost_touch_ends_and_its_outcome_can_be_asked_for() {
    each(Unknown);
}

/// A transaction takes longer than the truncation lag.
#[derive(Clone, Copy)]
struct TooSlow;

impl Visitor<Transactions> for TooSlow {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let mut cluster = Cluster::<P>::new(configuration(1));
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            let slow = AtomicU64::new(0);
            let (clock, slow) = (&keyspace, &slow);
            let committed = keyspace.transact(|tx| async move {
                let old = number(tx.get("key").await?);
                if slow.fetch_add(1, Ordering::Relaxed) == 0 {
                    clock.sleep_until(clock.now() + Duration::from_secs(3)).await;
                }
                tx.put("key", (old + 1).to_be_bytes());
                Ok(())
            });
            assert_eq!(committed.await.unwrap().attempts, 2, "{}: the first is truncated", P::NAME);
            assert_eq!(read(&keyspace, &["key"]).await, [1]);
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_transaction_that_is_truncated_starts_over_with_a_fresh_version() {
    each(TooSlow);
}

/// A client's clock is off.
#[derive(Clone, Copy)]
struct Skew;

impl Visitor<Transactions> for Skew {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        for by_us in [-30_000_000, 30_000_000] {
            let mut cluster = Cluster::<P>::new(configuration(1));
            cluster.begin(Fault::ClockJump(cluster.client_id(0), by_us));
            let (off, right) = (cluster.keyspace(0), cluster.keyspace(1));
            cluster.spawn(0, async move {
                right.sleep_until(Timestamp(3_000_000_000)).await;
                let refused = increment(&off, &["key"]).await.unwrap_err();
                let TransactionError::ClockSkew { ahead_us } = refused else { panic!("{refused}") };
                assert!(ahead_us.abs_diff(by_us) < 100_000, "{refused}");
                assert_eq!(read(&right, &["key"]).await, [0]);
            });
            cluster.run_until_done(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_client_whose_clock_is_far_off_is_told_by_how_much() {
    each_without_leaders(Skew);
}

/// One replica's clock is off.
#[derive(Clone, Copy)]
struct ReplicaSkew;

impl Visitor<Transactions> for ReplicaSkew {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        for by_us in [-30_000_000, 30_000_000] {
            let mut cluster = Cluster::<P>::new(configuration(1));
            cluster.begin(Fault::ClockJump(NodeId(0), by_us));
            let keyspace = cluster.keyspace(0);
            cluster.spawn(0, async move {
                for round in 1..=50 {
                    increment(&keyspace, &["key"]).await.unwrap();
                    keyspace.sleep_until(keyspace.now() + Duration::from_millis(100)).await;
                    assert_eq!(read(&keyspace, &["key"]).await, [round]);
                }
            });
            cluster.run_until_done(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_single_replica_whose_clock_is_far_off_stops_nobody() {
    each(ReplicaSkew);
}

/// Everything old is read and written for long.
#[derive(Clone, Copy)]
struct Bounded;

impl Visitor<Transactions> for Bounded {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let initial = Initial::new(|_| Some(Value::from(7u64.to_be_bytes())));
        let mut configuration = Configuration { initial: Some(initial), ..configuration(2) };
        configuration.settings.resident_keys = 50;
        let mut cluster = Cluster::<P>::new(configuration);
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            for i in 0..3000u64 {
                let (mine, hot) = (format!("key {i}"), "hot");
                increment(&keyspace, &[&mine, hot]).await.unwrap();
                keyspace.sleep_until(keyspace.now() + Duration::from_millis(20)).await;
            }
            keyspace.sleep_until(keyspace.now() + Duration::from_secs(5)).await;
            for i in (0..3000u64).step_by(97) {
                assert_eq!(read(&keyspace, &[&format!("key {i}")]).await, [8], "key {i}");
            }
            assert_eq!(read(&keyspace, &["hot"]).await, [3007]);
        });
        let mut most = BTreeMap::new();
        for second in 0..200 {
            cluster.run_until(Timestamp(second * 1_000_000_000));
            for (partition, member) in [(0, 0), (0, 1), (1, 2)] {
                for name in ["undecided_transactions", "remembered_transactions", "resident_keys"] {
                    let value = cluster.gauge(partition, member, name).unwrap();
                    let most: &mut u64 = most.entry(name).or_default();
                    *most = value.max(*most);
                }
            }
        }
        cluster.run_until_done(LIMIT).unwrap();
        assert!(most["undecided_transactions"] < 10, "{}: {most:?}", P::NAME);
        assert!(most["remembered_transactions"] < 400, "{}: {most:?}", P::NAME);
        assert!(most["resident_keys"] < 400, "{}: {most:?}", P::NAME);
    }
}

#[test]
fn what_a_replica_keeps_is_bounded_and_what_it_does_not_comes_back() {
    each(Bounded);
}

/// Replicas that are never idle, so that every timer goes off late.
#[derive(Clone, Copy)]
struct Overloaded;

impl Visitor<Transactions> for Overloaded {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let costs = CostModel { event_ns: 500_000, ..CostModel::FREE };
        let client_costs = Some(CostModel::FREE);
        let clients = 12;
        let configuration = Configuration { clients, costs, client_costs, ..configuration(1) };
        let mut cluster = Cluster::<P>::new(configuration);
        for client in 0..clients {
            let keyspace = cluster.keyspace(client);
            cluster.spawn(client, async move {
                for round in 0..u64::MAX {
                    let program = |tx: serried_session::Transaction| async move {
                        (0..16).for_each(|i| tx.put(format!("{client} {round} {i}"), "value"));
                        Ok(())
                    };
                    keyspace.transact(program).await.unwrap();
                }
            });
        }
        let mut most = Vec::new();
        for second in [6, 11, 16, 21] {
            cluster.run_until(Timestamp(second * 1_000_000_000));
            let remembered = |m| cluster.gauge(0, m, "remembered_transactions").unwrap();
            most.push((0..3).map(remembered).max().unwrap());
        }
        assert!(most[0] > 100, "{}: they have done something: {most:?}", P::NAME);
        assert!(most.iter().all(|remembered| *remembered < 2 * most[0]), "{}: {most:?}", P::NAME);
    }
}

#[test]
fn what_a_replica_keeps_is_bounded_when_it_has_no_time_to_spare() {
    each(Overloaded);
}

/// The history window.
#[derive(Clone, Copy)]
struct Past;

impl Visitor<Transactions> for Past {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let mut configuration = configuration(2);
        configuration.settings.history_ms = 5000;
        let mut cluster = Cluster::<P>::new(configuration);
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            let mut versions = Vec::new();
            for _ in 0..40 {
                versions.push(increment(&keyspace, &["alice", "bob"]).await.unwrap());
                keyspace.sleep_until(keyspace.now() + Duration::from_millis(200)).await;
            }
            let mut forgotten = 0;
            for (i, at) in versions.iter().enumerate() {
                for key in ["alice", "bob"] {
                    match keyspace.get_at(key, *at).await {
                        Ok(value) => assert_eq!(number(value), i as u64, "{key} at {at}"),
                        Err(TransactionError::Forgotten { .. }) => forgotten += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert!((2..40).contains(&forgotten), "{}: {forgotten} of 80", P::NAME);
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn the_past_can_be_read_as_far_back_as_the_history_window() {
    each_without_leaders(Past);
}

/// All machines lose power at once, and once more.
#[derive(Clone, Copy)]
struct Blackout;

impl Visitor<Transactions> for Blackout {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        for at_ms in (200..3000).step_by(170) {
            let mut configuration = configuration(2);
            configuration.disk.flush = Duration::from_millis(1);
            let mut cluster = Cluster::<P>::new(configuration);
            for member in 0..3 {
                cluster.schedule(crash(member, at_ms, at_ms + 100));
            }
            let keyspace = cluster.keyspace(0);
            cluster.spawn(0, async move {
                let mut acknowledged = 0;
                while keyspace.now() < Timestamp(4_000_000_000) {
                    if increment(&keyspace, &["alice", "bob"]).await.is_ok() {
                        acknowledged += 1;
                    }
                }
                let found = read(&keyspace, &["alice", "bob"]).await;
                assert_eq!(found, [acknowledged; 2], "{} after {at_ms} ms", P::NAME);
                assert!(acknowledged > 10, "{acknowledged}");
            });
            cluster.run_until_done(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_power_cut_everywhere_loses_nothing_that_was_acknowledged() {
    each(Blackout);
}

/// A machine's disk is lost, and then another machine fails.
#[derive(Clone, Copy)]
struct LostDisk;

impl Visitor<Transactions> for LostDisk {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        for lost_at_ms in [700, 2500, 6000] {
            let mut cluster = Cluster::<P>::new(configuration(2));
            cluster.schedule(Scheduled {
                begins: ms(lost_at_ms),
                ends: ms(lost_at_ms + 300),
                fault: Fault::LostDisk(2),
            });
            // By then the new one has caught up, and can stand in for another.
            cluster.schedule(crash(0, 18_000, 30_000));
            let keyspace = cluster.keyspace(0);
            cluster.spawn(0, async move {
                let mut count = 0;
                while keyspace.now() < Timestamp(25_000_000_000) {
                    let mine = format!("key {count}");
                    increment(&keyspace, &["alice", &mine]).await.unwrap();
                    count += 1;
                    keyspace.sleep_until(keyspace.now() + Duration::from_millis(30)).await;
                }
                assert_eq!(read(&keyspace, &["alice"]).await, [count]);
                for i in 0..count {
                    assert_eq!(read(&keyspace, &[&format!("key {i}")]).await, [1], "key {i}");
                }
            });
            cluster.run_until(Timestamp(17_000_000_000));
            for partition in 0..2 {
                let watermark = |member| cluster.gauge(partition, member, "truncated_below_us");
                assert_eq!(watermark(2), watermark(0), "{}: it has caught up", P::NAME);
                assert_eq!(cluster.gauge(partition, 2, "catching_up"), Some(0), "{}", P::NAME);
            }
            cluster.run_until_done(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_machine_whose_disk_was_lost_is_replaced_by_one_that_can_be_relied_on() {
    each(LostDisk);
}

/// A client whose program is running again, since what it had read has changed, is cut off: the votes on what the
/// first run had asked to commit are at the replicas, and whoever looks after it may find that it commits.
#[test]
fn what_a_run_has_asked_to_commit_is_not_said_to_have_had_no_effect_because_another_began() {
    let mut cluster = Cluster::<Morty>::new(configuration(1));
    let (cut, mut answers) = (cluster.client_id(1), 0);
    cluster.set_interceptor(Box::new(move |passing| {
        let concerned = passing.to == cut || passing.from == cut;
        answers += u32::from(
            concerned && matches!(passing.message, Message::Reply(Reply::GetReply { .. })),
        );
        match passing.message {
            _ if concerned && answers > 2 => Fate::Lose,
            Message::Reply(Reply::PrepareReply { .. }) if concerned => Fate::Lose,
            _ => Fate::Pass,
        }
    }));
    let options =
        TransactOptions { deadline: Duration::from_secs(3), ..TransactOptions::default() };
    let (older, younger) = (cluster.keyspace(0), cluster.keyspace(1).with_options(options));
    cluster.spawn(0, async move {
        older.sleep_until(ms(500)).await;
        let clock = &older;
        let program = |tx: serried_session::Transaction| async move {
            tx.get("something").await?;
            clock.sleep_until(ms(620)).await;
            tx.put("read", "changed");
            tx.get("else").await?; // So that the write is shown.
            clock.sleep_until(ms(640)).await;
            Ok(())
        };
        drop(older.transact(program).await);
    });
    let ending = std::sync::Arc::new(Mutex::new(None));
    let ended = ending.clone();
    cluster.spawn(1, async move {
        younger.sleep_until(ms(550)).await;
        let program = |tx: serried_session::Transaction| async move {
            if tx.get("read").await?.is_some() {
                tx.get("never answered").await?;
            }
            tx.put("effect", "there");
            Ok(())
        };
        *ended.lock().unwrap() = Some(younger.transact(program).await.map(drop));
    });
    cluster.run_until_done(LIMIT).unwrap();
    let ending = ending.lock().unwrap().take().expect("it has ended");
    assert!(matches!(ending, Err(TransactionError::Unknown { .. })), "{ending:?}");
}
