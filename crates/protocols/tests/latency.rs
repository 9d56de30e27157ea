//! How long operations on contended registers take where computing takes no time to speak of: the round
//! trips that each protocol's paper promises (001 §4.5.3, §4.6.3), in the geographies of 001 Table 4.1.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serried_actor::{Protocol, Timestamp};
use serried_history::{EventKind, RegisterHistory, RegisterOperation, RegisterRecorder};
use serried_model::Geography;
use serried_protocols::{epaxos, gryff};
use serried_sim::{Cluster, Configuration};
use serried_workload::{RegisterLoop, RegisterMix};

/// Microseconds that computing and the round trip within a region may add.
const ALLOWED_US: u64 = 1000;

/// What four clients in each region come to that go on reading and updating one of two registers.
fn history<P: Protocol>(geography: &'static str, mix: RegisterMix) -> RegisterHistory {
    let geography = Geography::named(geography).unwrap();
    let replicas = geography.sites.len();
    let clients = 4 * replicas;
    let configuration = Configuration { replicas, clients, geography, ..Configuration::default() };
    let mut cluster = Cluster::<P>::new(configuration);
    let recorder = Arc::new(RegisterRecorder::new());
    for client in 0..clients {
        let client_loop = RegisterLoop {
            registers: cluster.registers(client),
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

/// What the slowest read took, in microseconds.
fn slowest_read_us<P: Protocol>(geography: &'static str, mix: RegisterMix) -> u64 {
    let (mut begun, mut slowest, mut reads) = (BTreeMap::new(), 0, 0);
    for event in history::<P>(geography, mix).events {
        let operation = (event.process, event.key);
        match event.kind {
            EventKind::Invoke => drop(begun.insert(operation, event.time_ns)),
            EventKind::Ok if event.operation == RegisterOperation::Read => {
                reads += 1;
                slowest = slowest.max((event.time_ns - begun[&operation]) / 1000);
            }
            _ => {}
        }
    }
    assert!(reads > 1000, "{reads} reads are too few");
    slowest
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
fn with_five_replicas_every_read_of_gryff_rsc_takes_one_round_trip_and_of_gryff_some_take_two() {
    let limit = QUORUM_OF_FIVE_US + ALLOWED_US;
    assert!(slowest_read_us::<gryff::GryffRsc>("gryff-5", MIX) < limit);
    assert!(slowest_read_us::<gryff::Gryff>("gryff-5", MIX) > limit);
}
