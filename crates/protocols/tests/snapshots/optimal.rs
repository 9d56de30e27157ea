//! That read-only transactions are as cheap as the paper says (004 §3.3): N, O and C are counted. Nothing is lost and
//! nobody fails here, but sessions contend.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_model::{Geography, Key, Snapshots, Value, Write};
use serried_protocols::eiger::Eiger;
use serried_protocols::eiger_port::EigerPort;
use serried_protocols::port::Port;
use serried_protocols::port_seo::PortSeo;
use serried_protocols::scylla_occ::ScyllaOcc;
use serried_session::{ReadOnly, SnapshotOptions};
use serried_sim::{Cluster, Configuration, Disk};

const KEYS: u64 = 20;
const READ: usize = 5;
/// How many keys a write transaction writes.
const WRITTEN: u64 = 3;
const PARTITIONS: u16 = 4;

/// What read-only transactions have cost.
#[derive(Debug)]
struct Costs {
    reads: usize,
    most_rounds: u32,
    most_metadata_bytes: u32,
    /// Requests that had to wait at a server.
    blocked: u64,
    /// Requests that had to wait until a majority had confirmed the leader.
    confirmed: u64,
    omitted: u64,
}

/// What they cost while 12 sessions read and write a few keys, in a simulation of a second.
fn costs<P: Protocol<Family = Snapshots>>(
    seed: u64,
    replicas: usize,
    disk: Disk,
    freshness: Duration,
) -> Costs {
    let clients = 12;
    let configuration = Configuration {
        seed,
        replicas,
        partitions: PARTITIONS,
        clients,
        geography: Geography::named("lan").unwrap(),
        disk,
        // The bound of the version clock is raised several times.
        settings: Settings { election_timeout_ms: 20, ..Settings::default() },
        ..Configuration::default()
    };
    let mut cluster = Cluster::<P>::new(configuration);
    let done: Arc<Mutex<Vec<ReadOnly>>> = Arc::default();
    for client in 0..clients {
        let options = SnapshotOptions { freshness, ..SnapshotOptions::default() };
        let (session, done) = (cluster.keyspace(client).with_options(options), done.clone());
        cluster.spawn(client, async move {
            let mut random = Pcg64Mcg::seed_from_u64(seed ^ (client as u64) << 32);
            let key = |number: u64| Key::from(number.to_be_bytes());
            // By then each partition has a leader.
            session.sleep_until(Timestamp(50_000_000)).await;
            // The first request of a session asks for the clocks.
            session.read(key(0)).await.expect("nobody fails");
            while session.now() < Timestamp(1_000_000_000) {
                if random.random_bool(0.3) && session.has_write_transactions() {
                    let first = random.random_range(0..KEYS - WRITTEN);
                    let write = |number: u64| Write {
                        key: key(number),
                        value: Some(Value::from(number.to_string())),
                    };
                    let writes = (first..first + WRITTEN).map(write);
                    session.write_all(writes).await.expect("nobody fails");
                    continue;
                }
                if random.random_bool(0.3) {
                    let number = random.random_range(0..KEYS);
                    session.write(key(number), number.to_string()).await.expect("nobody fails");
                    continue;
                }
                let keys = (0..READ).map(|_| key(random.random_range(0..KEYS))).collect();
                let read = session.read_only_recorded(keys).await.expect("nobody fails");
                done.lock().unwrap().push(read);
            }
        });
    }
    cluster.run_until_done(Timestamp(20_000_000_000)).expect("everything finishes");
    let sum = |name: &str| {
        let replicas = (0..PARTITIONS).flat_map(|p| (0..replicas).map(move |m| (p, m)));
        replicas.filter_map(|(partition, member)| cluster.gauge(partition, member, name)).sum()
    };
    let (blocked, omitted) = (sum("blocked_reads"), sum("omitted_writes"));
    let confirmed = sum("confirmed_reads");
    drop(cluster);
    let done = Arc::into_inner(done).expect("all clients are done").into_inner().unwrap();
    Costs {
        reads: done.len(),
        most_rounds: done.iter().map(|read| read.rounds).max().expect("there are some"),
        most_metadata_bytes: done.iter().map(|read| read.metadata_bytes).max().unwrap_or(0),
        blocked,
        confirmed,
        omitted,
    }
}

const DURABLE: Disk = Disk {
    append: Duration::from_micros(5),
    flush: Duration::from_micros(500),
    keep_records: false,
};

/// A versionstamp takes at most 10 bytes. Each request has one, each answer has another, and each key a third.
const MOST_METADATA: u32 = 10 * (2 * PARTITIONS as u32 + READ as u32);

#[test]
fn a_read_of_port_takes_one_round_waits_for_nothing_and_needs_constant_metadata() {
    for (replicas, disk) in [(1, Disk::MEMORY), (1, DURABLE), (3, Disk::MEMORY), (3, DURABLE)] {
        for freshness in [Duration::from_millis(5), Duration::from_millis(100), Duration::MAX] {
            for seed in 0..3 {
                let costs = costs::<Port>(seed, replicas, disk, freshness);
                println!("{replicas} replicas, {freshness:?}: {costs:?}");
                assert!(costs.reads > 1000 && costs.omitted > 10, "{costs:?}");
                assert_eq!(costs.blocked, 0, "N: {costs:?}");
                assert_eq!(costs.most_rounds, 1, "O: {costs:?}");
                assert!(costs.most_metadata_bytes <= MOST_METADATA, "C: {costs:?}");
            }
        }
    }
}

/// A request has at most four versionstamps or numbers of sessions, and an answer two and one for each key.
const MOST_METADATA_OF_EIGER_PORT: u32 = 10 * (6 * PARTITIONS as u32 + READ as u32);

#[test]
fn a_read_of_eiger_port_takes_one_round_waits_for_nothing_and_needs_constant_metadata() {
    for (replicas, disk) in [(1, Disk::MEMORY), (1, DURABLE), (3, Disk::MEMORY), (3, DURABLE)] {
        for freshness in [Duration::from_millis(5), Duration::from_millis(100), Duration::MAX] {
            for seed in 0..3 {
                let costs = costs::<EigerPort>(seed, replicas, disk, freshness);
                println!("{replicas} replicas, {freshness:?}: {costs:?}");
                assert!(costs.reads > 1000, "{costs:?}");
                assert_eq!(costs.blocked, 0, "N: {costs:?}");
                assert_eq!(costs.most_rounds, 1, "O: {costs:?}");
                assert!(costs.most_metadata_bytes <= MOST_METADATA_OF_EIGER_PORT, "C: {costs:?}");
            }
        }
    }
}

#[test]
fn a_read_of_eiger_takes_three_rounds_and_more_metadata_under_contention() {
    let costs = costs::<Eiger>(1, 1, Disk::MEMORY, Duration::from_millis(100));
    assert_eq!(costs.most_rounds, 3, "{costs:?}");
    let of_port = self::costs::<EigerPort>(1, 1, Disk::MEMORY, Duration::from_millis(100));
    assert!(costs.most_metadata_bytes > of_port.most_metadata_bytes, "{costs:?} {of_port:?}");
}

#[test]
fn a_read_of_scylla_occ_takes_two_rounds_or_more() {
    let costs = costs::<ScyllaOcc>(1, 1, Disk::MEMORY, Duration::from_millis(100));
    assert!(costs.most_rounds > 2, "{costs:?}");
}

#[test]
fn a_read_of_port_seo_takes_one_round_and_waits_for_nothing_but_replicas() {
    for (replicas, disk) in [(1, Disk::MEMORY), (1, DURABLE), (3, Disk::MEMORY), (3, DURABLE)] {
        for seed in 0..3 {
            let costs = costs::<PortSeo>(seed, replicas, disk, Duration::MAX);
            println!("{replicas} replicas: {costs:?}");
            assert!(costs.reads > 1000, "{costs:?}");
            assert_eq!(costs.blocked, 0, "N: {costs:?}");
            assert_eq!(costs.confirmed > 0, replicas > 1, "N: {costs:?}");
            assert_eq!(costs.most_rounds, 1, "O: {costs:?}");
        }
    }
}

/// How many bytes of metadata a read of two keys needs whose client has heard of nothing for so many writes.
fn metadata_after(writes: u64) -> u32 {
    let geography = Geography::named("lan").unwrap();
    let mut cluster = Cluster::<PortSeo>::new(Configuration {
        partitions: PARTITIONS,
        replicas: 1,
        clients: 2,
        geography,
        ..Configuration::default()
    });
    let (reader, writer) = (cluster.keyspace(0), cluster.keyspace(1));
    let needed: Arc<Mutex<u32>> = Arc::default();
    let tell = needed.clone();
    cluster.spawn(0, async move {
        let key = |number: u64| Key::from(number.to_be_bytes());
        let keys = || (0..KEYS).map(key).collect();
        reader.read_only_recorded(keys()).await.expect("nobody fails");
        for number in 0..writes {
            writer.write(key(number % KEYS), "").await.expect("nobody fails");
        }
        let read = reader.read_only_recorded(keys()).await.expect("nobody fails");
        assert_eq!(read.rounds, 1);
        *tell.lock().unwrap() = read.metadata_bytes;
    });
    cluster.run_until_done(Timestamp(20_000_000_000)).expect("everything finishes");
    *needed.lock().unwrap()
}

#[test]
fn the_metadata_of_a_read_of_port_seo_grows_with_the_writes_that_its_client_has_not_heard_of() {
    let [none, few, many] = [0, 50, 200].map(metadata_after);
    println!("{none}, {few} and {many} bytes");
    let [of_few, of_many] = [few - none, many - none];
    assert!(of_few > 50 * u32::from(PARTITIONS), "each has a number of each partition");
    assert!(of_many > 3 * of_few, "it is linear");
}
