//! How long operations on contended registers take where computing takes no time to speak of: the round
//! trips that each protocol's paper promises (001 §4.5.3, §4.6.3), in the geographies of 001 Table 4.1.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_history::{EventKind, RegisterHistory, RegisterOperation, RegisterRecorder};
use serried_model::{Geography, Registers};
use serried_protocols::{epaxos, gryff};
use serried_sim::{Cluster, Configuration};
use serried_workload::{RegisterLoop, RegisterMix};

/// Microseconds that computing and the round trip within a region may add.
const ALLOWED_US: u64 = 1000;

/// What four clients in each region come to that go on reading and updating one of two registers.
fn history<P: Protocol<Family = Registers>>(
    geography: &'static str,
    mix: RegisterMix,
) -> RegisterHistory {
    let geography = Geography::named(geography).unwrap();
    let replicas = geography.sites.len();
    let clients = 4 * replicas;
    let configuration = Configuration { replicas, clients, geography, ..Configuration::default() };
    let mut cluster = Cluster::<P>::new(configuration);
    let recorder = Arc::new(RegisterRecorder::new());
    for client in 0..clients {
        let client_loop = RegisterLoop {
            registers: cluster.keyspace(client),
            mix,
            recorder: recorder.clone(),
            client: client as u64,
            seed: 1,
            stop: Timestamp(0) + Duration::from_secs(20),
        };
        cluster.spawn(client, client_loop.run());
    }
    cluster.run_until_done(Timestamp(0) + Duration::from_secs(60)).unwrap();
    drop(cluster);
    Arc::into_inner(recorder).expect("all clients are done").into_history()
}

/// What the slowest reads took, in microseconds.
struct SlowestReads {
    /// Of all.
    us: u64,
    /// Of those whose client did not read another key right before.
    not_after_another_us: u64,
}

fn slowest_reads<P: Protocol<Family = Registers>>(
    geography: &'static str,
    mix: RegisterMix,
) -> SlowestReads {
    let mut begun = BTreeMap::new();
    let mut last: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    let mut slowest = SlowestReads { us: 0, not_after_another_us: 0 };
    let (mut reads, mut after_another) = (0, 0);
    for event in history::<P>(geography, mix).events {
        let is_read = event.operation == RegisterOperation::Read;
        match event.kind {
            EventKind::Invoke => drop(begun.insert(event.process, event.time_ns)),
            EventKind::Ok => {
                let before = last.insert(event.process, (event.key, is_read));
                if !is_read {
                    continue;
                }
                let took_us = (event.time_ns - begun[&event.process]) / 1000;
                reads += 1;
                slowest.us = slowest.us.max(took_us);
                if before.is_some_and(|(key, was_read)| was_read && key != event.key) {
                    after_another += 1;
                } else {
                    slowest.not_after_another_us = slowest.not_after_another_us.max(took_us);
                }
            }
            _ => {}
        }
    }
    assert!(reads > 1000 && after_another > 100, "{reads} and {after_another} are too few");
    slowest
}

fn slowest_read_us<P: Protocol<Family = Registers>>(
    geography: &'static str,
    mix: RegisterMix,
) -> u64 {
    slowest_reads::<P>(geography, mix).us
}

const MIX: RegisterMix = RegisterMix { keys: 2, reads: 0.5, writes: 0.4, adds: true };

/// From Ireland to its nearest.
const NEAREST_OF_THREE_US: u64 = 88_000;
/// From Ireland to the second nearest.
const QUORUM_OF_FIVE_US: u64 = 145_000;

#[test]
fn with_three_replicas_every_read_of_gryff_takes_one_round_trip_and_of_epaxos_some_take_more() {
    let limit = NEAREST_OF_THREE_US + ALLOWED_US;
    assert!(slowest_read_us::<gryff::Gryff>("gryff-3", MIX) < limit);
    assert!(slowest_read_us::<gryff::GryffRsc>("gryff-3", MIX) < limit);
    assert!(slowest_read_us::<epaxos::Epaxos>("gryff-3", MIX) > limit);
}

#[test]
fn with_five_replicas_every_read_of_gryff_rsc_sends_one_round_and_of_gryff_some_send_two() {
    let limit = QUORUM_OF_FIVE_US + ALLOWED_US;
    let slowest = slowest_reads::<gryff::GryffRsc>("gryff-5", MIX);
    assert!(slowest.not_after_another_us < limit);
    assert!(slowest_reads::<gryff::Gryff>("gryff-5", MIX).not_after_another_us > limit);
    // Before that it may wait for another key's value to reach a majority, which is one round trip.
    assert!((limit..2 * limit).contains(&slowest.us), "{} µs", slowest.us);
}
