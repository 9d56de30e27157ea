//! Clocks that are off by more than they may be: they bound waiting, never safety, and one node's clock bounds nobody
//! else's availability.

#[path = "support/every.rs"]
mod every;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use every::{each, each_with_leaders};
use serried_actor::{Protocol, Timestamp};
use serried_model::{Geography, Key, NodeId, Transactions, Write};
use serried_protocols::frameworks::shard::{Message, Request};
use serried_protocols::{
    Visitor, morty, mvto, mvtso, ncc, occ, tapir, tapir_cc, two_phase_locking,
};
use serried_session::{Committed, TransactOptions, TransactionError, TransactionKeyspace};
use serried_sim::{Cluster, Configuration, Disk, Fate, Fault};

const LIMIT: Timestamp = Timestamp(600_000_000_000);

fn at_ms(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}

fn configuration(partitions: u16) -> Configuration {
    Configuration {
        partitions,
        clients: 2,
        geography: Geography::named("reg").unwrap(),
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        ..Configuration::default()
    }
}

fn patient(keyspace: TransactionKeyspace) -> TransactionKeyspace {
    keyspace.with_options(TransactOptions {
        deadline: Duration::from_secs(300),
        attempts: u32::MAX,
        ..TransactOptions::default()
    })
}

/// How long a client takes to write a key.
async fn write(keyspace: &TransactionKeyspace, key: impl Into<Key>) -> Duration {
    let begun = keyspace.now();
    keyspace.put(key, "new").await.unwrap();
    keyspace.now().since(begun)
}

/// The clock of a machine, which leads where somebody does, is off for some seconds. Then the machine fails.
#[derive(Clone, Copy)]
struct FailOver {
    member: usize,
    by_us: i64,
}

impl Visitor<Transactions> for FailOver {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let FailOver { member, by_us } = self;
        let mut cluster = Cluster::<P>::new(configuration(2));
        let [one, other] = [0, 1].map(|client| patient(cluster.keyspace(client)));
        let began_us = Arc::new(Mutex::new(0));
        let (first, tell) = (other.clone(), began_us.clone());
        cluster.spawn(1, async move {
            let us = first.put("carol", "new").await.unwrap().version.timestamp_us;
            *tell.lock().unwrap() = us - first.now().0 / 1000;
        });
        cluster.run_until(at_ms(1000));
        cluster.begin(Fault::ClockJump(NodeId(member as u64), by_us));
        let (name, keys) = (P::NAME, ["alice", "bob"]);
        cluster.spawn(0, async move {
            for _ in 0..20 {
                for key in keys {
                    let took = write(&one, key).await;
                    assert!(took < Duration::from_millis(500), "{name}: {took:?} while it lives");
                }
                one.sleep_until(one.now() + Duration::from_millis(100)).await;
            }
        });
        cluster.run_until(at_ms(8000));
        cluster.crash(member);
        cluster.spawn(1, async move {
            for key in keys {
                let took = write(&other, key).await;
                assert!(took < Duration::from_secs(4), "{name}: {took:?} when it is dead");
            }
            for key in keys {
                let took = write(&other, key).await;
                assert!(took < Duration::from_millis(500), "{name}: {took:?} later on");
            }
            // Who comes too early for a new leader begins anew with a later version, which must not be far ahead.
            for key in keys {
                let us = other.put(key, "last").await.unwrap().version.timestamp_us;
                let now_us = *began_us.lock().unwrap() + other.now().0 / 1000;
                let ahead_us = us as i64 - now_us as i64;
                assert!(ahead_us < 3_000_000, "{name}: {ahead_us} us ahead of the time");
            }
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_machine_whose_clock_was_off_stops_nobody_neither_while_it_lives_nor_once_it_is_dead() {
    for by_us in [-30_000_000, 30_000_000] {
        for member in [0, 2] {
            each(FailOver { member, by_us });
        }
    }
}

/// The clocks of two machines out of three are off, each by something else.
#[derive(Clone, Copy)]
struct Discord;

impl Visitor<Transactions> for Discord {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let mut cluster = Cluster::<P>::new(configuration(1));
        cluster.begin(Fault::ClockJump(NodeId(0), 30_000_000));
        cluster.begin(Fault::ClockJump(NodeId(1), -30_000_000));
        let keyspace = patient(cluster.keyspace(0));
        cluster.spawn(0, async move {
            for _ in 0..20 {
                assert!(write(&keyspace, "alice").await < Duration::from_secs(1), "{}", P::NAME);
                keyspace.sleep_until(keyspace.now() + Duration::from_millis(100)).await;
            }
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn of_three_clocks_that_disagree_the_middle_one_is_believed() {
    each_with_leaders(Discord);
}

/// A client whose clock is ahead by a little more than it may be writes a key. Its shot is sent again, as the answer is
/// late, and the copies arrive 5 ms apart; what it says of the end is lost. Another looks for what it has written.
fn refused_and_sent_again<P: Protocol<Family = Transactions, Message = Message>>() {
    let mut cluster = Cluster::<P>::new(Configuration {
        geography: Geography::named("lan").unwrap(),
        ..configuration(1)
    });
    cluster.run_until(at_ms(1000));
    let client = cluster.client_id(0);
    cluster.begin(Fault::ClockJump(client, 2_062_000));
    let mut shots = 0;
    cluster.set_interceptor(Box::new(move |passing| match passing.message {
        Message::Request(Request::Shot(_)) if passing.from == client => {
            shots += 1;
            Fate::Delay(Duration::from_millis(if shots == 1 { 60 } else { 15 }))
        }
        Message::Request(Request::End { .. }) if passing.from == client => Fate::Lose,
        _ => Fate::Pass,
    }));
    let told = Arc::new(Mutex::new(None));
    let (one, tell) = (cluster.keyspace(0), told.clone());
    cluster.spawn(0, async move {
        let write = Write { key: "key".into(), value: Some("new".into()) };
        let ended: Result<Committed<_>, _> = one.one_shot(Vec::<Key>::new(), vec![write]).await;
        *tell.lock().unwrap() = Some(ended.map(drop));
    });
    let (other, told) = (cluster.keyspace(1), told.clone());
    cluster.spawn(1, async move {
        for ms in [1500, 6000] {
            other.sleep_until(at_ms(ms)).await;
            let found = other.get("key").await.unwrap();
            let told = told.lock().unwrap();
            match told.as_ref() {
                Some(Err(TransactionError::ClockSkew { .. })) => {
                    assert_eq!(found, None, "{}: it was refused", P::NAME);
                }
                told => panic!("{}: its program was told {told:?}", P::NAME),
            }
        }
    });
    cluster.run_until_done(LIMIT).unwrap();
}

#[test]
fn a_client_that_was_told_of_its_clock_has_written_nothing_nor_will_it() {
    refused_and_sent_again::<ncc::Ncc>();
    refused_and_sent_again::<ncc::NccRw>();
    refused_and_sent_again::<occ::Occ>();
    refused_and_sent_again::<mvto::Mvto>();
    refused_and_sent_again::<tapir_cc::TapirCc>();
    refused_and_sent_again::<two_phase_locking::TwoPhaseLockingNoWait>();
    refused_and_sent_again::<two_phase_locking::TwoPhaseLockingWoundWait>();
}

/// The same without leaders: the client's first message is late, and what it says of the end is lost.
#[derive(Clone, Copy)]
struct BlindWrite {
    used: bool,
}

impl BlindWrite {
    fn run<P: Protocol<Family = Transactions, Message = morty::Message>>(self) {
        let mut cluster = Cluster::<P>::new(configuration(1));
        let [one, other] = [0, 1].map(|client| cluster.keyspace(client));
        if self.used {
            let one = one.clone();
            cluster.spawn(0, async move {
                one.put("used", "before").await.unwrap();
            });
        }
        cluster.run_until(at_ms(1000));
        let client = cluster.client_id(0);
        cluster.begin(Fault::ClockJump(client, 2_062_000));
        let mut sent = 0;
        cluster.set_interceptor(Box::new(move |passing| match passing.message {
            morty::Message::Request(morty::Request::Decide { .. }) if passing.from == client => {
                Fate::Lose
            }
            _ if passing.from == client => {
                sent += 1;
                // The first copies come when nothing is let in yet, and others when it is.
                Fate::Delay(Duration::from_millis(if sent <= 3 { 1 } else { 200 }))
            }
            _ => Fate::Pass,
        }));
        cluster.spawn(0, async move {
            let told = one.put("key", "new").await;
            let skewed = matches!(told, Err(TransactionError::ClockSkew { ahead_us: 2_000_000.. }));
            assert!(skewed, "{}: its program was told {told:?}", P::NAME);
        });
        cluster.spawn(1, async move {
            for ms in [1500, 6000, 60_000] {
                other.sleep_until(at_ms(ms)).await;
                assert_eq!(other.get("key").await.unwrap(), None, "{}: at {ms} ms", P::NAME);
            }
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_blind_write_that_was_refused_for_its_clock_never_takes_effect() {
    for used in [false, true] {
        BlindWrite { used }.run::<morty::Morty>();
        BlindWrite { used }.run::<mvtso::Mvtso>();
        BlindWrite { used }.run::<tapir::Tapir>();
    }
}

/// A client whose clock is far ahead is told so at once; set right, it goes on at once, without connecting anew.
#[derive(Clone, Copy)]
struct SetRight;

impl Visitor<Transactions> for SetRight {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let mut cluster = Cluster::<P>::new(configuration(2));
        let keyspace = cluster.keyspace(0);
        cluster.run_until(at_ms(1000));
        let fault = cluster.begin(Fault::ClockJump(cluster.client_id(0), 10_000_000));
        let (name, off) = (P::NAME, keyspace.clone());
        cluster.spawn(0, async move {
            for _ in 0..3 {
                let begun = off.now();
                let refused = off.put("alice", "new").await.unwrap_err();
                assert!(matches!(refused, TransactionError::ClockSkew { .. }), "{name}: {refused}");
                assert!(off.now().since(begun) < Duration::from_millis(500), "{name}");
            }
        });
        cluster.run_until(at_ms(3000));
        cluster.end(fault);
        cluster.spawn(0, async move {
            let took = write(&keyspace, "alice").await;
            assert!(took < Duration::from_millis(500), "{name}: {took:?}");
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_client_whose_clock_is_ahead_is_told_at_once_and_goes_on_once_it_is_right() {
    each_with_leaders(SetRight);
}
