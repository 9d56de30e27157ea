//! What becomes of a client whose clock is off, under every protocol.

#[allow(dead_code, reason = "each test exercises keyspaces in some of the ways")]
#[path = "support/exercise.rs"]
mod exercise;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried_actor::{Protocol, Settings, Timestamp};
use serried_protocols::{Visitor, visit_any};
use serried_session::Alarm;
use serried_sim::{Cluster, Configuration, Fault};

use exercise::{Exercise, Way};

const KEYS: [&str; 2] = ["key", "other key"];

/// A client's clock goes off by so many seconds, after it has been used or before: what it does then comes to
/// this, after so long.
#[derive(Clone, Copy)]
struct Off {
    by_s: i64,
    way: Way,
    used: bool,
}

impl<F: Exercise> Visitor<F> for Off {
    /// Whether it went well, or its client was told why not; what came of it; and how long it took.
    type Output = (bool, String, Duration);

    fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
        let Off { by_s, way, used } = self;
        let mut cluster = Cluster::<P>::new(Configuration {
            partitions: 4,
            clients: 2,
            ..Configuration::default()
        });
        let ended = Arc::new(Mutex::new(None));
        let keyspace = cluster.keyspace(0);
        let clock = F::driver(&keyspace);
        let tell = ended.clone();
        let begun = Timestamp(1_000_000_000);
        // What a keyspace needs before its first use is there.
        let other = cluster.keyspace(1);
        cluster.spawn(1, async move { F::act(&other, Way::ReadAndWrite, KEYS).await.unwrap() });
        cluster.spawn(0, async move {
            if used {
                F::act(&keyspace, Way::ReadAndWrite, KEYS).await.unwrap();
            }
            Alarm::at(clock.clone(), begun + Duration::from_millis(1)).wait().await;
            let result = F::act(&keyspace, way, KEYS).await;
            *tell.lock().unwrap() = Some((result, clock.now() - begun));
        });
        cluster.run_until(begun);
        cluster.begin(Fault::ClockJump(cluster.client_id(0), by_s * 1_000_000));
        cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
        let (result, took) = ended.lock().unwrap().take().unwrap();
        (result.as_ref().err().is_none_or(F::is_refusal), format!("{result:?}"), took)
    }
}

#[test]
fn a_client_whose_clock_is_ahead_is_told_so_at_once_unless_it_does_not_matter() {
    for protocol in serried_protocols::list() {
        for way in Way::ALL {
            for (by_s, used) in [(3, false), (10, false), (10, true), (3600, true)] {
                let off = Off { by_s, way, used };
                let (told, result, took) = visit_any(protocol.name, off).unwrap();
                let what = format!("{}: {way:?} {by_s} s ahead: {result}", protocol.name);
                assert!(took < Duration::from_millis(10), "{what} after {took:?}");
                assert!(told, "{what}");
            }
        }
    }
}

/// A client's clock is behind by more than `outcomes_ms`, but within the bound. It updates a key after two other clients, which
/// have updated it one after the other, with more than `outcomes_ms` between.
struct Behind;

impl<F: Exercise> Visitor<F> for Behind {
    /// Whether the protocol says that it forgets by the clocks of clients, and whether the update fails.
    type Output = (bool, bool);

    fn visit<P: Protocol<Family = F>>(self) -> Self::Output {
        let settings = Settings { outcomes_ms: 500, clock_bound_ms: 2000, ..Settings::default() };
        let mut cluster =
            Cluster::<P>::new(Configuration { clients: 3, settings, ..Configuration::default() });
        cluster.begin(Fault::ClockJump(cluster.client_id(2), -1_000_000));
        let failed = Arc::new(Mutex::new(false));
        for (client, ms) in [5000, 5600, 5700].into_iter().enumerate() {
            let (keyspace, failed) = (cluster.keyspace(client), failed.clone());
            cluster.spawn(client, async move {
                Alarm::at(F::driver(&keyspace), Timestamp(ms * 1_000_000)).wait().await;
                if let Err(error) = F::act(&keyspace, Way::Modify, KEYS).await {
                    *failed.lock().unwrap() |= !F::is_refusal(&error);
                }
            });
        }
        cluster.run_until_done(Timestamp(100_000_000_000)).unwrap();
        let failed = *failed.lock().unwrap();
        (P::FORGETS_BY_CLIENT_CLOCKS, failed)
    }
}

#[test]
fn a_protocol_says_whether_a_clock_that_is_behind_makes_updates_look_forgotten() {
    for protocol in serried_protocols::list() {
        let (forgets, failed) = visit_any(protocol.name, Behind).unwrap();
        assert_eq!(forgets, failed, "{}", protocol.name);
    }
}
