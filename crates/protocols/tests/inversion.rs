//! The timestamp-inversion pitfall (003 §4): controls that order transactions by their clients' timestamps are
//! serializable, and no more than that. The checker has to see the difference, and that others avoid it.

use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Group, Protocol, Timestamp};
use serried_history::{
    EventKind, History, MicroOperation, ReadResult, Recorder, Verdict, ViolationKind,
    check_serializable, check_strict_serializable,
};
use serried_model::{Transactions, Value, Write};
use serried_protocols::frameworks::shard::{Message, Request};
use serried_protocols::morty;
use serried_protocols::mvto::Mvto;
use serried_protocols::ncc::Ncc;
use serried_protocols::occ::Occ;
use serried_protocols::tapir::Tapir;
use serried_protocols::tapir_cc::TapirCc;
use serried_session::TransactionKeyspace;
use serried_sim::{Clocks, Cluster, Configuration, Fate, Fault, NetworkFaults};

/// How many seeds an inversion is looked for in.
const SEEDS: u64 = 500;
const LIMIT: Timestamp = Timestamp(60_000_000_000);

fn read(key: u64) -> MicroOperation {
    MicroOperation::Read { key, result: ReadResult::Pending }
}

fn write(key: u64, value: u64) -> MicroOperation {
    MicroOperation::Write { key, value: Some(value) }
}

fn number(value: &Value) -> u64 {
    u64::from_be_bytes(value.as_bytes().try_into().expect("a number"))
}

/// Does all of a transaction at once, and records it.
async fn transact(
    keyspace: &TransactionKeyspace,
    recorder: &Recorder,
    process: u64,
    operations: Vec<MicroOperation>,
) {
    recorder.invoke(process, keyspace.now().0, operations.clone());
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for operation in &operations {
        match operation {
            MicroOperation::Write { key, value } => writes.push(Write {
                key: key.to_be_bytes().into(),
                value: value.map(|value| Value::from(value.to_be_bytes().to_vec())),
            }),
            operation => reads.push(operation.key().to_be_bytes()),
        }
    }
    let done = keyspace.one_shot_recorded(reads, writes, |_| {}).await;
    let (committed, footprint) = done.expect("nothing fails");
    let mut values = committed.value.iter();
    let done = operations.into_iter().map(|operation| match operation {
        MicroOperation::Read { key, .. } => {
            let value = values.next().expect("a value for each read");
            let result = ReadResult::Register(value.as_ref().map(number));
            MicroOperation::Read { key, result }
        }
        operation => operation,
    });
    let done = done.collect();
    let versions = footprint.reads.iter().map(|read| read.version).collect();
    let (now, version) = (keyspace.now().0, Some(committed.version));
    recorder.complete(process, now, EventKind::Ok, done, version, versions, None);
}

/// Whether a history is serializable, and how it contradicts real time.
fn inversion(history: &History) -> Option<String> {
    let verdict = check_serializable(history);
    assert!(verdict.holds(), "{verdict:?}");
    match check_strict_serializable(history) {
        Verdict::Holds(_) => None,
        Verdict::Violation(violation) => {
            assert_eq!(violation.kind, ViolationKind::Inversion, "{violation}");
            Some(violation.to_string())
        }
        Verdict::Unknown { reason } => panic!("{reason}"),
    }
}

/// Clients whose clocks are off write a key or read two, at some shards.
fn by_chance<P: Protocol<Family = Transactions>>(seed: u64) -> Option<String> {
    let (clients, keys) = (6, 8);
    let configuration = Configuration {
        seed,
        partitions: 3,
        clients,
        network: NetworkFaults { jitter: 1.0, ..NetworkFaults::NONE },
        clocks: Clocks { skew: Duration::from_millis(1), drift_ppm: 0 },
        ..Configuration::default()
    };
    let mut cluster = Cluster::<P>::new(configuration);
    let recorder = Arc::new(Recorder::new());
    for client in 0..clients {
        let (keyspace, recorder) = (cluster.keyspace(client), recorder.clone());
        cluster.spawn(client, async move {
            let mut random = Pcg64Mcg::seed_from_u64(seed * 100 + client as u64);
            for turn in 1..=100 {
                let key = random.random_range(0..keys);
                let operations = match random.random_range(0..2) {
                    0 => vec![write(key, client as u64 * 1000 + turn)],
                    _ => vec![read(key), read((key + random.random_range(1..keys)) % keys)],
                };
                transact(&keyspace, &recorder, client as u64, operations).await;
            }
        });
    }
    cluster.run_until_done(LIMIT).expect("nothing is lost");
    drop(cluster);
    inversion(&Arc::into_inner(recorder).expect("all clients are done").into_history())
}

#[test]
fn timestamps_of_clients_invert_transactions_now_and_then() {
    for (name, found) in [
        ("tapir-cc", (0..SEEDS).find_map(by_chance::<TapirCc>)),
        ("mvto", (0..SEEDS).find_map(by_chance::<Mvto>)),
        ("tapir", (0..SEEDS).find_map(by_chance::<Tapir>)),
    ] {
        assert!(found.is_some(), "{name}: an inversion within {SEEDS} seeds");
    }
}

#[test]
fn strictly_serializable_controls_invert_nothing_under_the_same_load() {
    for seed in 0..30 {
        assert_eq!(by_chance::<Occ>(seed), None, "seed {seed}");
        assert_eq!(by_chance::<Ncc>(seed), None, "seed {seed}");
    }
}

/// The execution of Fig. 3: tx3 reads A at once, and B later. Meanwhile tx1 writes A, and tx2 writes B after that has
/// ended; but by their clients' clocks tx2 comes before tx3, and tx1 after it.
///
/// `is_read` says which messages are reads of a transaction, to a shard.
fn figure_3<P: Protocol<Family = Transactions>>(
    replicas: usize,
    is_read: fn(&P::Message) -> bool,
) -> Option<String> {
    let (jump_us, later) = (50_000, Duration::from_millis(20));
    let configuration =
        Configuration { replicas, partitions: 2, clients: 3, ..Configuration::default() };
    let mut cluster = Cluster::<P>::new(configuration);
    let group = Group::new(1, Duration::ZERO).with_partitions(2);
    let at = |shard: u16| {
        let mut keys = 0_u64..;
        keys.find(|key: &u64| group.partition_of(&key.to_be_bytes().into()) == shard)
            .expect("a key")
    };
    let (a, b) = (at(0), at(1));
    let [client1, client2, client3] = [0, 1, 2].map(|client| cluster.client_id(client));
    cluster.begin(Fault::ClockJump(client1, jump_us));
    cluster.begin(Fault::ClockJump(client2, -jump_us));
    cluster.set_interceptor(Box::new(move |passing| {
        let is_to_b = passing.from == client3 && passing.to.partition() == 1;
        match is_to_b && is_read(passing.message) {
            true => Fate::Delay(later),
            false => Fate::Pass,
        }
    }));
    let recorder = Arc::new(Recorder::new());
    let txns = [(2, vec![read(a), read(b)]), (0, vec![write(a, 1)]), (1, vec![write(b, 2)])];
    let mut now = Timestamp(1_000_000_000);
    for (client, operations) in txns {
        cluster.run_until(now);
        let (keyspace, recorder) = (cluster.keyspace(client), recorder.clone());
        cluster.spawn(client, async move {
            transact(&keyspace, &recorder, client as u64, operations).await;
        });
        now = now + later / 4;
    }
    cluster.run_until_done(LIMIT).expect("nothing is lost");
    drop(cluster);
    inversion(&Arc::into_inner(recorder).expect("all clients are done").into_history())
}

#[test]
fn figure_3_is_an_execution_of_those_that_go_by_timestamps_and_of_no_others() {
    let is_shot = |message: &Message| {
        matches!(message, Message::Request(Request::Shot(_) | Request::Snapshot { .. }))
    };
    let is_get = |message: &morty::Message| {
        matches!(message, morty::Message::Request(morty::Request::Get { .. }))
    };
    for found in [
        figure_3::<TapirCc>(1, is_shot),
        figure_3::<Mvto>(1, is_shot),
        figure_3::<Tapir>(1, is_get),
        figure_3::<Tapir>(3, is_get),
    ] {
        let text = found.expect("tx1 ends before tx2 begins, and comes after it");
        println!("{text}");
    }
    assert_eq!(figure_3::<Occ>(1, is_shot), None);
    assert_eq!(figure_3::<Ncc>(1, is_shot), None);
}
