//! Write-ahead before reply, crashes and restarts.

mod toys;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::{Key, NodeId};
use serried_sim::{Cluster, Configuration, CostModel, Disk, Fate, Fault, Scheduled};
use toys::{Message, Register};

const FLUSH: Duration = Duration::from_micros(1000);

fn configuration() -> Configuration {
    let disk = Disk { append: Duration::ZERO, flush: FLUSH, keep_records: true };
    Configuration { disk, costs: CostModel::FREE, ..Configuration::default() }
}

type Trace = Arc<Mutex<Vec<(u64, NodeId, Message)>>>;

/// The messages that replicas sent, with their times in microseconds.
fn traced(cluster: &mut Cluster<Register>) -> Trace {
    let trace = Trace::default();
    let sent = trace.clone();
    cluster.set_interceptor(Box::new(move |passing| {
        if !passing.from.is_coordinator() {
            let entry = (passing.at.0 / 1000, passing.from, passing.message.clone());
            sent.lock().unwrap().push(entry);
        }
        Fate::Pass
    }));
    trace
}

/// A cluster whose only client writes `keys`, one after the other.
fn writing(keys: &'static [&'static str]) -> Cluster<Register> {
    writing_from(keys, 0)
}

/// As [`writing`], with another seed.
fn writing_from(keys: &'static [&'static str], seed: u64) -> Cluster<Register> {
    let mut cluster = Cluster::<Register>::new(Configuration { seed, ..configuration() });
    let keyspace = cluster.keyspace(0);
    cluster.spawn(0, async move {
        for key in keys {
            keyspace.put(*key, "x").await.unwrap();
        }
    });
    cluster
}

fn at(microseconds: u64) -> Timestamp {
    Timestamp(microseconds * 1000)
}

#[test]
fn a_reply_waits_for_its_record_and_a_note_does_not() {
    let mut cluster = writing(&["k"]);
    let trace = traced(&mut cluster);
    cluster.run_until_done(at(10_000)).unwrap();
    // A message takes 50 us, and a flush 1000 us from its arrival on. Retries come every 300 us. Those that arrive
    // during the first flush are flushed together.
    let trace = trace.lock().unwrap();
    let first = |replica: u64, note: bool| {
        let is_it = |(_, from, message): &&(u64, NodeId, Message)| {
            *from == NodeId(replica) && matches!(message, Message::Noted { .. }) == note
        };
        trace.iter().find(is_it).map(|(at_us, ..)| *at_us)
    };
    for replica in 0..3 {
        assert_eq!((first(replica, true), first(replica, false)), (Some(50), Some(1050)));
    }
    assert_eq!(cluster.now(), at(1100));
}

#[test]
fn a_crash_loses_held_replies_and_unwritten_records() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..20 {
        let mut cluster = writing_from(&["k"], seed);
        let trace = traced(&mut cluster);
        cluster.run_until(at(200));
        for replica in 0..3 {
            assert!(cluster.replica(replica).values.contains_key(&Key::from("k")));
            cluster.crash(replica);
        }
        cluster.run_until(at(3000));
        assert!(cluster.statistics().undeliverable > 0);
        let is_reply =
            |(_, _, message): &(u64, NodeId, Message)| matches!(message, Message::Stored { .. });
        assert!(!trace.lock().unwrap().iter().any(is_reply));
        for replica in 0..3 {
            cluster.restart(replica);
            match cluster.replica(replica).values.is_empty() {
                true => lost += 1,
                false => kept += 1,
            }
        }
        cluster.run_until_done(at(10_000)).unwrap();
        assert!(trace.lock().unwrap().iter().any(is_reply));
    }
    assert!(lost > 20 && kept > 5, "{lost} replicas lost the record, {kept} kept it");
}

#[test]
fn a_restart_replays_the_durable_records_in_order() {
    let mut cluster = writing(&["a", "b", "c"]);
    cluster.run_until_done(at(100_000)).unwrap();
    cluster.run_until(at(200_000));
    let before = cluster.replica(1).values.clone();
    assert_eq!(before.len(), 3);
    cluster.crash(1);
    assert!(!cluster.is_up(1));
    cluster.restart(1);
    assert!(cluster.is_up(1) && cluster.replica(1).replayed >= 3);
    assert_eq!(cluster.replica(1).values, before);
}

#[test]
fn a_scheduled_crash_ends_in_a_restart() {
    let mut cluster = writing(&["a", "b", "c", "d", "e", "f"]);
    let fault = Fault::Crash(2);
    cluster.schedule(Scheduled { begins: at(1500), ends: at(3000), fault });
    cluster.run_until(at(2000));
    assert!(!cluster.is_up(2));
    cluster.run_until_done(at(100_000)).unwrap();
    assert!(cluster.is_up(2) && cluster.replica(2).replayed >= 1);
    assert!(cluster.replica(2).values.contains_key(&Key::from("f")));
}

#[test]
fn a_majority_carries_on_while_one_replica_is_down() {
    let mut cluster = writing(&["a", "b"]);
    cluster.crash(0);
    cluster.run_until_done(at(10_000)).unwrap();
    assert!(!cluster.is_up(0));
    cluster.heal();
    assert!(cluster.is_up(0));
}

#[test]
#[should_panic(expected = "keep_records")]
fn a_crash_without_kept_records_is_refused() {
    Cluster::<Register>::new(Configuration::default()).crash(0);
}

#[test]
fn nothing_waits_for_a_disk_that_takes_no_time() {
    let mut cluster =
        Cluster::<Register>::new(Configuration { disk: Disk::MEMORY, ..configuration() });
    let keyspace = cluster.keyspace(0);
    cluster.spawn(0, async move { drop(keyspace.put("k", "v").await) });
    cluster.run_until_done(at(10_000)).unwrap();
    assert_eq!(cluster.now(), at(100));
}
