//! Machines that come back, under the protocols whose replicas keep versions: what was deleted stays deleted,
//! and what was acknowledged is known to whoever votes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::Protocol;
use serried_model::Transactions;
use serried_protocols::Visitor;
use serried_session::{Transaction, TransactionKeyspace};
use serried_sim::{Cluster, Configuration, Fault, Reach, Scheduled, Side};

use crate::scene::{self, LIMIT, crash, each_without_leaders, ms, number};

fn configuration() -> Configuration {
    Configuration { clients: 3, ..scene::configuration(1) }
}

/// A key is written, a machine goes down, the key is deleted, the machine comes back, and is needed.
#[derive(Clone, Copy)]
struct DeletedWhileAway {
    away: usize,
    until_ms: u64,
}

impl Visitor<Transactions> for DeletedWhileAway {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let DeletedWhileAway { away, until_ms } = self;
        let mut cluster = Cluster::<P>::new(configuration());
        cluster.schedule(crash(away, 600, until_ms));
        // The machine that was away is one of two that are left, and then all lose power.
        cluster.schedule(crash((away + 1) % 3, until_ms + 5000, until_ms + 9000));
        for member in 0..3 {
            cluster.schedule(crash(member, until_ms + 15_000, until_ms + 15_100));
        }
        let keyspace = cluster.keyspace(0);
        cluster.spawn(0, async move {
            keyspace.sleep_until(ms(300)).await;
            keyspace.put("k", "a").await.unwrap();
            keyspace.sleep_until(ms(1000)).await;
            keyspace.delete("k").await.unwrap();
            for later_ms in [100, 1000, 7000, 20_000] {
                keyspace.sleep_until(ms(until_ms + later_ms)).await;
                let found = keyspace.get("k").await;
                let text = format!("{found:?} {later_ms} ms after n{away} came back");
                assert!(matches!(found, Ok(None)), "{}: {text}, after {until_ms} ms", P::NAME);
            }
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_key_that_is_deleted_while_a_machine_is_away_stays_deleted() {
    for away in 0..3 {
        // It comes back while the delete is open, settled, and forgotten.
        for until_ms in [1100, 3000, 4500, 10_000] {
            each_without_leaders(DeletedWhileAway { away, until_ms });
        }
    }
}

/// A slow transaction writes what a younger one has deleted; then all machines lose power. Its client's clock is behind, so
/// that it is the older one even if its version is that of its end.
#[derive(Clone, Copy)]
struct PowerCut(u64);

impl Visitor<Transactions> for PowerCut {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let PowerCut(at_ms) = self;
        let mut cluster = Cluster::<P>::new(configuration());
        for member in 0..3 {
            cluster.schedule(crash(member, at_ms, at_ms + 100));
        }
        cluster.begin(Fault::ClockJump(cluster.client_id(0), -600_000));
        let (slow, other) = (cluster.keyspace(0), cluster.keyspace(1));
        cluster.spawn(0, async move {
            slow.sleep_until(ms(500)).await;
            let clock = &slow;
            let program = |tx: Transaction| async move {
                clock.sleep_until(ms(1100)).await;
                tx.put("k", "a");
                Ok(())
            };
            clock.transact(program).await.unwrap();
        });
        // Something has to keep the older parts of the log.
        let noise = cluster.keyspace(2);
        cluster.spawn(2, async move {
            while noise.now() < ms(7000) {
                drop(noise.put("noise", "1").await);
                noise.sleep_until(noise.now() + Duration::from_millis(20)).await;
            }
        });
        cluster.spawn(1, async move {
            other.sleep_until(ms(600)).await;
            other.delete("k").await.unwrap();
            other.sleep_until(ms(1500)).await;
            let before = other.get("k").await.unwrap();
            assert_eq!(before, None, "the younger one has deleted it");
            other.sleep_until(ms(12_000)).await;
            let found = other.get("k").await;
            assert!(matches!(found, Ok(None)), "{}: {found:?}, cut at {at_ms} ms", P::NAME);
        });
        cluster.run_until_done(LIMIT).unwrap();
    }
}

#[test]
fn a_delete_that_an_older_write_came_after_outlasts_a_power_cut() {
    for at_ms in (3000..6000).step_by(100) {
        each_without_leaders(PowerCut(at_ms));
    }
}

/// Adds one to a counter, and returns what it was.
async fn count(keyspace: &TransactionKeyspace) -> u64 {
    let program = |tx: Transaction| async move {
        let old = number(tx.get("count").await?);
        tx.put("count", (old + 1).to_be_bytes());
        Ok(old)
    };
    keyspace.transact(program).await.unwrap().value
}

/// One disk is lost, and what is under way to another machine is late.
#[derive(Clone, Copy)]
struct LateAndLost {
    lost: usize,
    late: usize,
}

impl Visitor<Transactions> for LateAndLost {
    type Output = ();

    fn visit<P: Protocol<Family = Transactions>>(self) {
        let LateAndLost { lost, late } = self;
        let witness = 3 - lost - late;
        let mut configuration = configuration();
        configuration.settings.clock_bound_ms = 50;
        configuration.settings.recovery_after_ms = 1000;
        let mut cluster = Cluster::<P>::new(configuration);
        let first_id = cluster.client_id(0);
        // One machine hears nothing of the first client, which dies.
        let from_client = Reach::between(Side::node(first_id), Side::replicas([late]));
        let around = Reach::around(Side::replicas([witness]));
        for (begins, ends, fault) in [
            (0, 20_000, Fault::Partition(from_client)),
            (700, 20_000, Fault::ClientDeath(0)),
            // A disk is lost, and the only other witness is cut off for a while.
            (720, 780, Fault::LostDisk(lost)),
            (770, 2500, Fault::Partition(around)),
        ] {
            cluster.schedule(Scheduled { begins: ms(begins), ends: ms(ends), fault });
        }
        let (first, second) = (cluster.keyspace(0), cluster.keyspace(1));
        let done = Arc::new(Mutex::new(0));
        let (one, two) = (done.clone(), done.clone());
        cluster.spawn(0, async move {
            first.sleep_until(ms(400)).await;
            count(&first).await;
            *one.lock().unwrap() += 1;
        });
        cluster.spawn(1, async move {
            second.sleep_until(ms(1000)).await;
            count(&second).await;
            *two.lock().unwrap() += 1;
            second.sleep_until(ms(12_000)).await;
            let found = number(second.get("count").await.unwrap());
            let done = *two.lock().unwrap();
            assert_eq!(found, done, "{}: increments that were acknowledged", P::NAME);
        });
        cluster.run_until_done(LIMIT).unwrap();
        assert_eq!(*done.lock().unwrap(), 2, "{}", P::NAME);
    }
}

#[test]
fn what_had_committed_is_known_to_whoever_votes_in_the_place_of_a_lost_disk() {
    for lost in 0..3 {
        for late in (0..3).filter(|late| *late != lost) {
            each_without_leaders(LateAndLost { lost, late });
        }
    }
}
