//! Spanner: what its clients wait for, what they see if clocks are off, and reads of the past.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Group, Observation, Settings, Timestamp};
use serried_model::transactions::Ending;
use serried_model::{Geography, Key, NodeId, Version};
use serried_protocols::frameworks::shard::{Message, Reply, Request};
use serried_protocols::spanner::Spanner;
use serried_session::{Transaction, TransactionError, TransactionKeyspace};
use serried_sim::{Clocks, Cluster, Configuration, Disk, Fate, Fault};

const LIMIT: Timestamp = Timestamp(600_000_000_000);
const UNCERTAINTY: Duration = Duration::from_millis(10);
/// The time at which a run starts, in microseconds since the Unix epoch.
const START_US: u64 = 1_700_000_000_000_000;

fn configuration(partitions: u16) -> Configuration {
    Configuration {
        partitions,
        clients: 3,
        geography: Geography::named("lan").unwrap(),
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        settings: Settings {
            uncertainty_us: UNCERTAINTY.as_micros() as u64,
            history_ms: 3000,
            ..Settings::default()
        },
        ..Configuration::default()
    }
}

fn at_ms(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}

/// Writes two keys, and returns the transaction's version.
async fn write(keyspace: &TransactionKeyspace, value: &str) -> Version {
    let program = move |txn: Transaction| async move {
        txn.put("alice", value);
        txn.put("bob", value);
        Ok(())
    };
    keyspace.transact(program).await.expect("nothing is in its way").version
}

async fn read(keyspace: &TransactionKeyspace) -> Option<String> {
    let found = keyspace.get_many(["alice", "bob"]).await.expect("it reads");
    assert_eq!(found[0], found[1], "they are written together");
    found[0].as_ref().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[test]
fn a_commit_is_reported_once_its_timestamp_is_past_whichever_clock_is_off() {
    for seed in 0..20 {
        let clocks = Clocks { skew: UNCERTAINTY - Duration::from_micros(1), drift_ppm: 200 };
        let mut cluster =
            Cluster::<Spanner>::new(Configuration { seed, clocks, ..configuration(3) });
        let ended: Arc<Mutex<Vec<Version>>> = Arc::default();
        for client in 0..2 {
            let (keyspace, ended) = (cluster.keyspace(client), ended.clone());
            cluster.spawn(client, async move {
                for number in 0..10 {
                    let version = write(&keyspace, &number.to_string()).await;
                    ended.lock().unwrap().push(version);
                }
            });
        }
        let mut known = 0;
        while known < 20 {
            let now = cluster.now() + Duration::from_micros(100);
            cluster.run_until(now);
            let ended = ended.lock().unwrap();
            for version in &ended[known..] {
                let now_us = START_US + now.0 / 1000;
                assert!(version.timestamp_us < now_us, "seed {seed}: {version} at {now_us}");
            }
            known = ended.len();
            assert!(now < at_ms(10_000), "seed {seed}: it takes too long");
        }
    }
}

/// Writes at one client and then reads at another whose clock is off by so much, or while a leader's is.
fn read_what_was_written(off: impl Fn(&Cluster<Spanner>) -> NodeId, by_us: i64) -> Duration {
    let mut cluster = Cluster::<Spanner>::new(configuration(3));
    let writer = cluster.keyspace(1);
    let first = writer.clone();
    cluster.spawn(1, async move {
        let _: Version = write(&first, "first").await;
    });
    cluster.run_until(at_ms(2000));
    cluster.begin(Fault::ClockJump(off(&cluster), by_us));
    cluster.run_until(at_ms(4000));
    let reader = cluster.keyspace(0);
    let took = Arc::new(Mutex::new(Duration::ZERO));
    let tell = took.clone();
    cluster.spawn(0, async move {
        for number in 0..20 {
            let begun = writer.now();
            let value = number.to_string();
            write(&writer, &value).await;
            assert_eq!(read(&reader).await, Some(value), "{by_us} us off");
            let took = writer.now().since(begun);
            let mut longest = tell.lock().unwrap();
            *longest = took.max(*longest);
        }
    });
    cluster.run_until_done(LIMIT).unwrap();
    *took.lock().unwrap()
}

#[test]
fn a_client_whose_clock_is_behind_sees_what_others_have_written() {
    let took = read_what_was_written(|cluster| cluster.client_id(0), -1_000_000);
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_client_whose_clock_is_ahead_waits_and_others_do_not() {
    let took = read_what_was_written(|cluster| cluster.client_id(0), 300_000);
    assert!(took > Duration::from_millis(250) && took < Duration::from_millis(500), "{took:?}");
    let took = read_what_was_written(|cluster| cluster.client_id(2), 300_000);
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_leader_whose_clock_is_off_goes_by_the_others_clocks_and_says_so() {
    for by_us in [-30_000_000, 30_000_000] {
        for member in 0..3 {
            let took = read_what_was_written(|_| NodeId(member), by_us);
            assert!(took < Duration::from_millis(100), "{took:?} with {by_us} us at {member}");
        }
    }
}

#[test]
fn a_clock_that_is_off_by_more_than_both_may_be_is_reported() {
    for (by_us, expected_ms) in [
        (5_000_000, 4990..=5010),
        (25_000, 23..=25),
        (-25_000, 23..=25),
        (15_000, 0..=0),
        (-15_000, 0..=0),
    ] {
        let mut cluster = Cluster::<Spanner>::new(configuration(1));
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            let _: Version = write(&keyspace, "any").await;
        });
        cluster.run_until(at_ms(2000));
        assert_eq!(cluster.gauge(0, 0, "clock_off_ms"), Some(0));
        cluster.begin(Fault::ClockJump(NodeId(0), by_us));
        cluster.run_until(at_ms(5000));
        let off = cluster.gauge(0, 0, "clock_off_ms").unwrap();
        assert!(expected_ms.contains(&off), "{off} with {by_us} us");
    }
}

/// The leaders' clocks are ahead within the bound. The client's is behind by more than that, and it has heard of no leader.
#[test]
fn a_clients_first_read_finds_what_others_have_written_although_its_clock_is_behind() {
    let mut cluster = Cluster::<Spanner>::new(configuration(3));
    for member in 0..3 {
        cluster.begin(Fault::ClockJump(NodeId(member), 9_000));
    }
    cluster.begin(Fault::ClockJump(cluster.client_id(0), -15_000));
    let (reader, writer) = (cluster.keyspace(0), cluster.keyspace(1));
    let first = writer.clone();
    cluster.spawn(1, async move {
        let _: Version = write(&first, "first").await;
    });
    cluster.run_until(at_ms(2000));
    cluster.spawn(1, async move {
        let _: Version = write(&writer, "second").await;
        assert_eq!(read(&reader).await.as_deref(), Some("second"));
    });
    cluster.run_until_done(LIMIT).unwrap();
}

#[test]
fn a_read_after_a_write_waits_for_no_clock() {
    let mut cluster = Cluster::<Spanner>::new(configuration(3));
    let (one, other) = (cluster.keyspace(0), cluster.keyspace(1));
    cluster.spawn(0, async move {
        for number in 0..10 {
            let value = number.to_string();
            write(&one, &value).await;
            for reader in [&one, &other] {
                let begun = reader.now();
                assert_eq!(read(reader).await.as_ref(), Some(&value));
                let took = reader.now().since(begun);
                assert!(took < UNCERTAINTY / 2, "{number}: {took:?}");
            }
        }
    });
    cluster.run_until_done(LIMIT).unwrap();
}

/// Two questions with the same version: what a key held then, and how the transaction has ended.
#[test]
fn a_read_of_the_past_is_not_confused_with_an_inquiry() {
    for (history_ms, waits_ms) in [(0, 3000), (60_000, 40_000)] {
        let settings = Settings { history_ms, ..configuration(1).settings };
        let mut cluster = Cluster::<Spanner>::new(Configuration { settings, ..configuration(1) });
        let keyspace = cluster.keyspace(0);
        let written: Arc<Mutex<Option<Version>>> = Arc::default();
        let (first, tell) = (keyspace.clone(), written.clone());
        cluster.spawn(0, async move {
            write(&first, "zero").await;
            *tell.lock().unwrap() = Some(write(&first, "first").await);
            first.sleep_until(first.now() + Duration::from_millis(waits_ms)).await;
            write(&first, "second").await;
        });
        cluster.run_until(at_ms(waits_ms + 2000));
        let version = written.lock().unwrap().expect("it has committed");
        let (one, other) = (keyspace.clone(), keyspace);
        cluster.spawn(0, async move {
            let found = one.get_at("alice", version).await;
            match history_ms {
                0 => assert!(matches!(found, Err(TransactionError::Forgotten { .. })), "{found:?}"),
                _ => assert_eq!(found.unwrap(), Some("zero".into())),
            }
        });
        cluster.spawn(0, async move {
            let ending = other.outcome(version).await.unwrap();
            let expected = if history_ms == 0 { Ending::Committed } else { Ending::Forgotten };
            assert_eq!(ending, expected);
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

/// A read of the past at the version of a transaction that waits for its moment, of a key that was overwritten since.
#[test]
fn a_read_of_the_past_that_is_refused_does_not_abort_a_transaction_of_that_version() {
    let settings = Settings { uncertainty_us: 300_000, ..configuration(3).settings };
    let settings = Settings { history_ms: 0, ..settings };
    let mut cluster = Cluster::<Spanner>::new(Configuration { settings, ..configuration(3) });
    let (keyspace, other) = (cluster.keyspace(0), cluster.keyspace(1));
    // The transaction writes in the first two shards, of which the first decides. The overwritten key is in the second.
    let group = Group::new(3, Duration::ZERO).with_partitions(3);
    let keys_of = |shard| {
        let names = (0..).map(|number| format!("key{number}"));
        names.filter(move |name| group.partition_of(&name.as_str().into()) == shard)
    };
    let first_key = keys_of.clone()(0).next().unwrap();
    let [second_key, key] = keys_of(1).take(2).collect::<Vec<_>>().try_into().unwrap();
    let written = [first_key, second_key];
    let overwritten = key.clone();
    cluster.spawn(1, async move {
        other.sleep_until(at_ms(2500)).await;
        other.put(overwritten.as_str(), "1").await.unwrap();
        other.sleep_until(at_ms(6000)).await;
        other.put(overwritten.as_str(), "2").await.unwrap();
    });
    let runs = Arc::new(Mutex::new(Vec::new()));
    let began = runs.clone();
    let first = keyspace.clone();
    cluster.spawn(0, async move {
        first.sleep_until(at_ms(2000)).await;
        let sleeps = first.clone();
        let both = written.clone();
        let program = move |txn: Transaction| {
            let (sleeps, began, both) = (sleeps.clone(), began.clone(), both.clone());
            async move {
                txn.get_many(both.clone()).await?;
                began.lock().unwrap().push(txn.version().expect("it has read"));
                sleeps.sleep_until(at_ms(7000)).await;
                both.into_iter().for_each(|key| txn.put(key, "new"));
                Ok(())
            }
        };
        first.transact(program).await.expect("nothing is in its way");
        let found = first.get_many(written).await.unwrap();
        assert_eq!(found, [Some("new".into()), Some("new".into())]);
    });
    cluster.run_until(at_ms(7100));
    let version = runs.lock().unwrap()[0];
    cluster.spawn(0, async move {
        let found = keyspace.get_at(key, version).await;
        assert!(matches!(found, Err(TransactionError::Forgotten { .. })), "{found:?}");
    });
    cluster.run_until_done(LIMIT).unwrap();
    assert_eq!(runs.lock().unwrap().len(), 1, "it runs once");
}

#[test]
fn a_read_as_of_a_later_time_waits_for_it() {
    for ahead_ms in [1000, 4000] {
        let mut cluster = Cluster::<Spanner>::new(configuration(3));
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            let first = write(&keyspace, "first").await;
            let begun = keyspace.now();
            let at = Version { timestamp_us: first.timestamp_us + ahead_ms * 1000, ..first };
            let found = keyspace.get_at("alice", at).await.unwrap();
            assert_eq!(found, Some("first".into()));
            let took = keyspace.now().since(begun);
            let least = Duration::from_millis(ahead_ms - 100);
            assert!(took > least && took < least * 2, "{took:?}");
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

/// `serried windows` shows what replicas observe.
#[test]
fn each_replica_observes_what_commits_and_what_it_has_read() {
    let mut cluster = Cluster::<Spanner>::new(configuration(1));
    let observed: Arc<Mutex<Vec<(NodeId, Observation)>>> = Arc::default();
    let tell = observed.clone();
    cluster.watch(Box::new(move |_, node, observation| {
        tell.lock().unwrap().push((node, observation));
    }));
    let keyspace = cluster.keyspace(0);
    let versions: Arc<Mutex<Vec<Version>>> = Arc::default();
    let began = versions.clone();
    cluster.spawn(0, async move {
        let first = write(&keyspace, "first").await;
        let program = |txn: Transaction| async move {
            txn.get("alice").await?;
            txn.put("alice", "second");
            Ok(())
        };
        let second = keyspace.transact(program).await.expect("nothing is in its way").version;
        began.lock().unwrap().extend([first, second]);
    });
    cluster.run_until_done(LIMIT).unwrap();
    cluster.run_until(cluster.now() + Duration::from_secs(1));
    let (versions, observed) = (versions.lock().unwrap(), observed.lock().unwrap());
    let [first, second] = versions[..] else { panic!("{versions:?}") };
    let [alice, bob] = ["alice", "bob"].map(Key::from);
    let written =
        |key: &Key, version| Observation::Written { key: key.clone(), version, revision: 0 };
    let both = vec![alice.clone(), bob.clone()];
    for member in 0..3 {
        let leads = member == 0;
        let expected = [
            written(&alice, first),
            written(&bob, first),
            Observation::Committed {
                version: first,
                reads: Vec::new(),
                writes: both.clone(),
                leads,
            },
            written(&alice, second),
            Observation::Committed {
                version: second,
                reads: vec![(alice.clone(), first)],
                writes: vec![alice.clone()],
                leads,
            },
        ];
        let here = observed.iter().filter(|(node, _)| *node == NodeId(member));
        let here: Vec<_> = here.map(|(_, observation)| observation.clone()).collect();
        assert_eq!(here, expected, "{member}");
    }
}

#[test]
fn what_is_lost_between_leaders_and_clients_is_made_up_for() {
    for lost in ["prepared", "decided", "end"] {
        let mut cluster = Cluster::<Spanner>::new(configuration(3));
        let mut left = 3;
        cluster.set_interceptor(Box::new(move |passing| {
            let is_lost = match &passing.message {
                Message::Request(Request::Prepared { .. }) => lost == "prepared",
                Message::Reply(Reply::Decided { .. }) => {
                    lost == "decided" && passing.to.is_coordinator()
                }
                Message::Request(Request::End { .. }) => {
                    lost == "end" && !passing.from.is_coordinator()
                }
                _ => false,
            };
            left -= i32::from(is_lost);
            if is_lost && left >= 0 { Fate::Lose } else { Fate::Pass }
        }));
        let (one, other) = (cluster.keyspace(0), cluster.keyspace(1));
        cluster.spawn(0, async move {
            for value in ["first", "second", "third"] {
                let begun = one.now();
                write(&one, value).await;
                assert_eq!(read(&other).await.as_deref(), Some(value), "without {lost}");
                let took = one.now().since(begun);
                assert!(took < Duration::from_millis(3000), "without {lost}: {took:?}");
            }
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_transaction_that_only_reads_sends_reads_and_nothing_else() {
    let mut cluster = Cluster::<Spanner>::new(configuration(3));
    let keyspace = cluster.keyspace(0);
    let first = keyspace.clone();
    cluster.spawn(0, async move {
        let _: Version = write(&first, "first").await;
    });
    cluster.run_until(at_ms(3000));
    let client = cluster.client_id(0);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    cluster.set_interceptor(Box::new(move |passing| {
        if passing.from == client {
            let is_read = matches!(passing.message, Message::Request(Request::Snapshot { .. }));
            seen.lock().unwrap().push(is_read);
        }
        Fate::Pass
    }));
    cluster.spawn(0, async move { assert_eq!(read(&keyspace).await.as_deref(), Some("first")) });
    cluster.run_until_done(LIMIT).unwrap();
    let sent = sent.lock().unwrap();
    assert!((1..=2).contains(&sent.len()) && sent.iter().all(|is_read| *is_read), "{sent:?}");
}

#[test]
fn the_past_can_be_read_for_as_long_as_it_is_kept() {
    let mut cluster = Cluster::<Spanner>::new(configuration(3));
    let keyspace = cluster.keyspace(0);
    cluster.spawn(0, async move {
        let mut versions = Vec::new();
        for number in 0..80 {
            versions.push(write(&keyspace, &number.to_string()).await);
            keyspace.sleep_until(keyspace.now() + Duration::from_millis(100)).await;
        }
        for back in [1, 10, 20] {
            let number = versions.len() - back;
            let found = keyspace.get_at("alice", versions[number]).await.unwrap();
            let expected = Some((number - 1).to_string());
            let text = found.map(|found| String::from_utf8_lossy(found.as_bytes()).into_owned());
            assert_eq!(text, expected, "at {}", versions[number]);
        }
        let old = keyspace.get_at("alice", versions[1]).await;
        assert!(matches!(old, Err(TransactionError::Forgotten { .. })), "{old:?}");
        let never = Version { timestamp_us: 5, ..versions[0] };
        let old = keyspace.get_at("alice", never).await;
        assert!(matches!(old, Err(TransactionError::Forgotten { .. })), "{old:?}");
    });
    cluster.run_until_done(LIMIT).unwrap();
}

/// One replica is down, and the clock of the leader is ahead for a while. The other two replicas are up all the time, and
/// afterwards all clocks are right.
#[test]
fn a_leaders_clock_that_was_ahead_does_not_lock_what_was_written_meanwhile() {
    let mut cluster = Cluster::<Spanner>::new(configuration(1));
    cluster.crash(2); // Before the leader has heard its clock.
    let (one, other) = (cluster.keyspace(0), cluster.keyspace(1));
    let first = one.clone();
    cluster.spawn(0, async move {
        let _: Version = write(&first, "first").await;
    });
    cluster.run_until(at_ms(3000));
    let jump = cluster.begin(Fault::ClockJump(NodeId(0), 3_600_000_000));
    cluster.spawn(0, async move {
        let _: Version = write(&one, "ahead").await;
    });
    cluster.run_until(at_ms(5000)); // Its timestamp is ahead of what the other clock shows by no more than clocks may differ.
    cluster.end(jump);
    cluster.restart(2);
    cluster.run_until(at_ms(8000));
    cluster.spawn(1, async move {
        let begun = other.now();
        let _: Version = write(&other, "after").await;
        assert!(other.now().since(begun) < Duration::from_secs(3));
    });
    // The client that has heard of that clock does not go by it for good.
    let reader = cluster.keyspace(0);
    cluster.spawn(0, async move {
        for number in 0..5 {
            reader.sleep_until(at_ms(12_000 + 300 * number)).await;
            let begun = reader.now();
            assert_eq!(read(&reader).await.as_deref(), Some("after"));
            let took = reader.now().since(begun);
            assert!(number == 0 || took < Duration::from_millis(100), "{number}: {took:?}");
        }
    });
    cluster.run_until_done(LIMIT).unwrap();
}
