//! Clients of registers that go from key to key whose writes arrive at some replicas long before others: what one has read comes
//! before what it does next to another key (001 §4.6.1).
//!
//! `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test crossing` goes through more seeds.

mod support;

use std::sync::Arc;

use serried_actor::{Group, Protocol, Settings, Timestamp};
use serried_history::{
    Budget, RegisterOperation, RegisterRecorder, RegisterVerdict, check_regular_sequential,
};
use serried_model::registers::Offers;
use serried_model::{Geography, Guarantee, NodeId, Registers};
use serried_protocols::Mutated;
use serried_protocols::frameworks::consensus;
use serried_protocols::gryff;
use serried_sim::{
    Clocks, Cluster, Configuration, Fault, NetworkFaults, Plan, Reach, Scheduled, Side,
};
use serried_workload::{Measurement, Planned, RegisterClient, RegisterWorkload, Turn, Window};
use support::seeds;

/// Nothing begins from then on.
const STOP: Timestamp = Timestamp(500_000_000);
/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(60_000_000_000);
const REPLICAS: usize = 5;
const CLIENTS: usize = 15;
/// So many times as long as others slow links take.
const SLOWER: f64 = 300.0;

/// Clients are in groups of three with keys of their own. One writes `x`; one reads `x`, `y` and then `z` several
/// times; and one writes `y` and then reads `x`, over and over.
struct Crossing;

impl RegisterWorkload for Crossing {
    fn name(&self) -> &'static str {
        "crossing"
    }

    fn plan(&self, turn: Turn, _: &mut rand_pcg::Pcg64Mcg) -> Vec<Planned> {
        let x = turn.client / 3 * 3;
        let (y, z) = (x + 1, x + 2);
        let value = Some((turn.client << 32 | turn.number) as i64);
        let write = RegisterOperation::Write { value };
        let (key, operation) = match (turn.client % 3, turn.number % 8) {
            (0, _) => (x, write),
            (1, 0) => (x, RegisterOperation::Read),
            (1, 1) => (y, RegisterOperation::Read),
            (1, _) => (z, RegisterOperation::Read),
            (_, number) if number % 2 == 0 => (y, write),
            _ => (x, RegisterOperation::Read),
        };
        vec![Planned { key, operation }]
    }

    fn modifies(&self) -> bool {
        false
    }

    fn keys(&self, clients: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        Box::new(0..clients.div_ceil(3) * 3)
    }
}

/// What is wrong with a run.
fn run<P: Protocol<Family = Registers>>(seed: u64) -> Option<String> {
    let geography = Geography::named("lan").expect("it is built in");
    let network = NetworkFaults { jitter: 1.0, ..NetworkFaults::NONE };
    let configuration = Configuration {
        seed,
        replicas: REPLICAS,
        partitions: if seed.is_multiple_of(2) { 4 } else { 1 },
        clients: CLIENTS,
        geography,
        network,
        settings: Settings { thrifty: seed % 4 < 2, ..Settings::default() },
        ..Configuration::default()
    };
    let mut cluster = Cluster::<P>::new(configuration);
    // What writers of `x` send reaches one replica at once, and the others late.
    let slow = (0..CLIENTS).step_by(3).map(|client| {
        let near = client % REPLICAS;
        let others = Side::replicas((0..REPLICAS).filter(|member| *member != near));
        let writer = Side::node(NodeId(NodeId::FIRST_COORDINATOR + client as u64));
        let fault = Fault::Slow(Reach::one_way(writer, others), SLOWER);
        Scheduled { begins: Timestamp(0), ends: STOP, fault }
    });
    let (clocks, faults) = (Clocks::PERFECT, slow.collect());
    cluster.follow(&Plan { network, clocks, faults, ends: STOP });
    let recorder = Arc::new(RegisterRecorder::new());
    let nothing = Window { from: STOP, until: STOP, stop: STOP };
    for client in 0..CLIENTS {
        let client_loop = RegisterClient {
            registers: cluster.keyspace(client),
            workload: Arc::new(Crossing),
            measurement: Arc::new(Measurement::new(nothing)),
            recorder: Some(recorder.clone()),
            epoch_ns: 0,
            client: client as u64,
            seed,
        };
        cluster.spawn(client, client_loop.run());
    }
    support::trace(&mut cluster);
    let stalled = cluster.run_until_done(LIMIT).err().map(|stalled| stalled.to_string());
    drop(cluster);
    let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
    assert!(!history.events.is_empty(), "nothing happened");
    let wrong = match check_regular_sequential(&history, &Budget::default()) {
        RegisterVerdict::Holds(_) => None,
        RegisterVerdict::Violation(violation) => Some(violation.to_string()),
        RegisterVerdict::Unknown { reason } => panic!("the checker gave up: {reason}"),
    };
    stalled.or(wrong)
}

struct AsPrinted;

impl Protocol for AsPrinted {
    const NAME: &'static str = "as-printed";
    const SUMMARY: &'static str = "Gryff-RSC as 001 has it";
    const GUARANTEE: Guarantee = Guarantee::RegularSequential;
    type Family = Registers;
    const OFFERS: Offers = Offers { rmws: true };
    type Message = consensus::Message;
    type Coordinator = consensus::Coordinator;
    type Replica = consensus::Replica;

    fn coordinator(group: Group, settings: &Settings) -> consensus::Coordinator {
        consensus::Coordinator::new(group, settings, RULES)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> consensus::Replica {
        consensus::Replica::new(id, group, settings, RULES)
    }
}

const RULES: consensus::Rules = consensus::Rules {
    variant: consensus::Variant::GryffRsc,
    mutation: Mutated::by(consensus::Mutation::AsPrinted),
};

#[test]
fn what_a_client_has_read_comes_before_what_it_does_to_other_keys() {
    for seed in seeds(8) {
        if let Some(wrong) = run::<gryff::GryffRsc>(seed) {
            panic!(
                "seed {seed}; replay with SERRIED_FIRST_SEED={seed} SERRIED_SEEDS=1 cargo test -p \
                 serried-protocols --test crossing\n{wrong}"
            );
        }
    }
}

#[test]
fn a_gryff_rsc_as_printed_is_caught() {
    let caught = (0..200).find(|seed| run::<AsPrinted>(*seed).is_some());
    println!("it is caught with seed {caught:?}");
    assert!(caught.is_some());
}
