//! What every protocol has to pass in simulation: its guarantee under faults, liveness once they have
//! healed, and determinism; and what shows that the suite would notice.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols
//! --test suite` goes through more, and `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::{Group, Protocol, Settings, Timestamp};
use serried_history::{History, MicroOperation, ReadResult, Recorder, Verdict, check_serializable};
use serried_model::{Geography, Guarantee, Key, NodeId, Value, Version};
use serried_protocols::morty::{Checks, Coordinator, Message, Morty, Options, Replica};
use serried_protocols::{Visitor, list, visit};
use serried_session::{Error, TransactOptions, Transaction};
use serried_sim::{Cluster, Configuration, Disk, Initial, Swarm};
use serried_workload::tpcc::Scale;
use serried_workload::{
    ClosedLoop, Measurement, Parameters, Plan, Run, Window, Workload, inspect, named,
};

/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(120_000_000_000);

struct Trial {
    seed: u64,
    workload: &'static str,
    crashes: bool,
}

struct Outcome {
    history: History,
    hash: u64,
    committed: u64,
    /// The checker found fault with the history.
    violation: Option<String>,
    /// Anything else is wrong with the run.
    wrong: Option<String>,
}

/// Reads a list, and appends to another that depends on what it found: a transaction whose key set
/// changes when it is re-executed.
#[derive(Default)]
struct Chase {
    elements: AtomicU64,
}

impl Workload for Chase {
    fn name(&self) -> &'static str {
        "chase"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let element = self.elements.fetch_add(1, Ordering::Relaxed);
        let key = random.random_range(0..4);
        let read = MicroOperation::Read { key, result: ReadResult::Pending };
        vec![read, MicroOperation::Append { key: 0, element }].into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, tx: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            let [MicroOperation::Read { key, .. }, MicroOperation::Append { element, .. }] =
                plan.operations()[..]
            else {
                unreachable!("that is what it plans")
            };
            let list = |value: Option<Value>| -> Vec<u64> {
                let bytes = value.map_or(Vec::new(), |value| value.as_bytes().to_vec());
                bytes.chunks(8).map(|e| u64::from_be_bytes(e.try_into().unwrap())).collect()
            };
            let found = list(tx.get(key.to_be_bytes()).await?);
            let next = found.len() as u64 % 4;
            let mut other = list(tx.get(next.to_be_bytes()).await?);
            other.push(element);
            let bytes: Vec<u8> = other.iter().flat_map(|element| element.to_be_bytes()).collect();
            tx.put(next.to_be_bytes(), bytes);
            let read = MicroOperation::Read { key, result: ReadResult::List(found) };
            Ok(vec![read, MicroOperation::Append { key: next, element }])
        })
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }

    fn records_versions(&self) -> bool {
        false
    }
}

impl Trial {
    fn run<P: Protocol>(&self) -> Outcome {
        let seed = self.seed;
        // How long faults last, in milliseconds; then there is as much time again without. The
        // nearer the sites, the more happens in a second.
        let (name, faults_last) = [("lan", 100), ("reg", 1000), ("con", 4000)][seed as usize % 3];
        let geography = Geography::named(name).unwrap();
        let faults_last = Duration::from_millis(faults_last);
        let records = Disk {
            append: Duration::from_micros(5),
            flush: Duration::from_micros(200),
            keep_records: true,
        };
        let configuration = Configuration {
            seed,
            replicas: if seed % 8 == 7 { 5 } else { 3 },
            clients: 3 + seed as usize % 6,
            geography,
            disk: if self.crashes { records } else { Disk::MEMORY },
            hash_contents: true,
            ..Configuration::default()
        };
        let parameters = Parameters {
            keys: Some(3 + seed % 4),
            theta: 0.5,
            warehouses: Some(1 + seed / 3 % 2),
            scale: Scale::SMALL,
            ..Parameters::default()
        };
        let workload: Arc<dyn Workload> = match self.workload {
            "chase" => Arc::new(Chase::default()),
            name => named(name, &parameters).unwrap(),
        };
        let initial = {
            let workload = workload.clone();
            Initial::new(move |key| workload.initial_value(key))
        };
        let configuration = Configuration { initial: Some(initial), ..configuration };
        let swarm = Swarm { lasts: faults_last, crashes: self.crashes, pauses: true };
        let plan = swarm.plan(&configuration);
        let configuration = plan.apply_to(configuration);
        let clients = configuration.clients;
        let mut cluster = Cluster::<P>::new(configuration);
        cluster.follow(&plan);
        let window = Window::new(Timestamp(0), Duration::ZERO, faults_last * 2, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let recorder = Arc::new(Recorder::new());
        // Some runs give transactions up early, so that there are some whose outcome is unknown.
        let impatient = seed.is_multiple_of(4) && self.workload != "chase";
        let deadline = Duration::from_millis(if impatient { 700 } else { 60_000 });
        let options =
            TransactOptions { deadline, attempts: u32::MAX, ..TransactOptions::default() };
        for client in 0..clients {
            let client_loop = ClosedLoop {
                keyspace: cluster.keyspace(client).with_options(options),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: Some(recorder.clone()),
                client: client as u64,
                seed,
            };
            cluster.spawn(client, client_loop.run());
        }
        let stalled = cluster.run_until_done(LIMIT).err().map(|stalled| stalled.to_string());
        let latest = measurement.latest();
        let stalled = stalled.or_else(|| look_at(&mut cluster, workload.clone(), latest).err());
        let committed = measurement.committed_so_far();
        let hash = cluster.event_hash();
        drop(cluster);
        let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        let wrong = stalled.or(workload.check(&history).err());
        let (violation, unknown) = match check_serializable(&history) {
            Verdict::Serializable(_) => (None, None),
            Verdict::Violation(violation) => (Some(violation.to_string()), None),
            Verdict::Unknown { reason } => (None, Some(reason)),
        };
        Outcome { history, hash, committed, violation, wrong: wrong.or(unknown) }
    }

    /// The command that runs this trial alone.
    fn replay<P: Protocol>(&self) -> String {
        format!(
            "{} under {}; replay with SERRIED_FIRST_SEED={} SERRIED_SEEDS=1 cargo test -p serried-protocols --test suite",
            P::NAME,
            self.workload,
            self.seed
        )
    }
}

/// Has a client look at the database that all have left behind, at which nothing is done any more.
fn look_at<P: Protocol>(
    cluster: &mut Cluster<P>,
    workload: Arc<dyn Workload>,
    latest: Version,
) -> Result<(), String> {
    let keyspace = cluster.keyspace(0);
    let found = Arc::new(Mutex::new(None));
    let inspected = found.clone();
    cluster.spawn(0, async move {
        *inspected.lock().unwrap() = Some(inspect(&*workload, &keyspace, latest).await);
    });
    let limit = cluster.now() + LIMIT.since(Timestamp(0));
    cluster.run_until_done(limit).map_err(|stalled| stalled.to_string())?;
    let found = found.lock().unwrap().take().expect("the inspection is done");
    found.map(drop).map_err(|error| error.to_string())
}

/// The seeds to go through, `usual` many unless the environment says otherwise.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let first = number("SERRIED_FIRST_SEED").unwrap_or(0);
    first..first + number("SERRIED_SEEDS").unwrap_or(usual)
}

struct Suite {
    workload: &'static str,
    crashes: bool,
    seeds: u64,
}

impl Visitor for Suite {
    type Output = ();

    fn visit<P: Protocol>(self) {
        assert_eq!(P::GUARANTEE, Guarantee::Serializable, "{} needs another checker", P::NAME);
        let mut committed = 0;
        for seed in seeds(self.seeds) {
            let trial = Trial { seed, workload: self.workload, crashes: self.crashes };
            let outcome = trial.run::<P>();
            if let Some(wrong) = outcome.violation.or(outcome.wrong) {
                panic!("{wrong}\n{}", trial.replay::<P>());
            }
            committed += outcome.committed;
        }
        let runs = seeds(self.seeds).count() as u64;
        assert!(committed > 20 * runs, "{}: {committed} commits in {runs} runs", P::NAME);
    }
}

fn every_protocol(workload: &'static str, crashes: bool, seeds: u64) {
    for protocol in list() {
        visit(protocol.name, Suite { workload, crashes, seeds }).unwrap();
    }
}

#[test]
fn lists_stay_serializable_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("list-append", false, 150);
}

#[test]
fn the_banks_total_is_conserved_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("bank", false, 150);
}

#[test]
fn transactions_whose_keys_depend_on_what_they_read_stay_serializable() {
    every_protocol("chase", false, 100);
}

#[test]
fn tpcc_stays_serializable_and_consistent_under_network_faults_pauses_and_skew() {
    every_protocol("tpcc", false, 20);
}

#[test]
fn tpcc_stays_serializable_and_consistent_when_replicas_crash() {
    every_protocol("tpcc", true, 20);
}

/// One replica is down for good, from the start.
struct OneDown;

impl Visitor for OneDown {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let committed = |down: bool| {
            let configuration = Configuration {
                clients: 6,
                geography: Geography::named("reg").unwrap(),
                disk: Disk { keep_records: true, ..Disk::MEMORY },
                ..Configuration::default()
            };
            let mut cluster = Cluster::<P>::new(configuration);
            if down {
                cluster.crash(2);
            }
            let parameters = Parameters { keys: Some(64), theta: 0.0, ..Parameters::default() };
            let workload = named("list-append", &parameters).unwrap();
            let window =
                Window::new(Timestamp(0), Duration::ZERO, Duration::from_secs(10), Duration::ZERO);
            let measurement = Arc::new(Measurement::new(window));
            for client in 0..6 {
                let client_loop = ClosedLoop {
                    keyspace: cluster.keyspace(client),
                    workload: workload.clone(),
                    measurement: measurement.clone(),
                    recorder: None,
                    client: client as u64,
                    seed: 1,
                };
                cluster.spawn(client, client_loop.run());
            }
            cluster.run_until_done(LIMIT).unwrap();
            assert_eq!(measurement.report().failed, 0, "{}", P::NAME);
            measurement.committed_so_far()
        };
        let (all, fewer) = (committed(false), committed(true));
        assert!(
            fewer * 10 > all,
            "{}: {fewer} commits with a replica down, {all} without",
            P::NAME
        );
    }
}

#[test]
fn with_a_replica_down_for_good_everything_goes_on_at_a_tenth_of_the_speed_or_more() {
    for protocol in list() {
        visit(protocol.name, OneDown).unwrap();
    }
}

/// Two of three replicas are down for good.
struct NoMajority;

impl Visitor for NoMajority {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let disk = Disk { keep_records: true, ..Disk::MEMORY };
        let mut cluster = Cluster::<P>::new(Configuration { disk, ..Configuration::default() });
        cluster.crash(1);
        cluster.crash(2);
        let keyspace = cluster.keyspace(0);
        let checked = Arc::new(AtomicU64::new(0));
        let (done, deadline) = (checked.clone(), keyspace.options().deadline);
        cluster.spawn(0, async move {
            let begun = keyspace.now();
            let read = keyspace.get("a").await;
            assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
            let written = keyspace.put("a", "1").await;
            assert!(matches!(written, Err(Error::Unknown { .. })), "{written:?}");
            assert!(keyspace.now().since(begun) <= 2 * deadline + Duration::from_millis(1));
            done.fetch_add(1, Ordering::Relaxed);
        });
        cluster.run_until_done(LIMIT).unwrap();
        assert_eq!(checked.load(Ordering::Relaxed), 1, "{}", P::NAME);
    }
}

#[test]
fn without_a_majority_nothing_succeeds_and_everything_ends_by_its_deadline() {
    for protocol in list() {
        visit(protocol.name, NoMajority).unwrap();
    }
}

#[test]
fn lists_stay_serializable_when_replicas_crash_and_forget_what_they_had_not_flushed() {
    every_protocol("list-append", true, 60);
}

struct Determinism;

impl Visitor for Determinism {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let mut hashes = Vec::new();
        for seed in [1, 2] {
            let trial = Trial { seed, workload: "list-append", crashes: false };
            let (once, again) = (trial.run::<P>(), trial.run::<P>());
            assert_eq!(once.hash, again.hash, "{}", trial.replay::<P>());
            assert_eq!(once.history, again.history, "{}", trial.replay::<P>());
            hashes.push(once.hash);
        }
        assert_ne!(hashes[0], hashes[1], "{}: the hash does not depend on the seed", P::NAME);
    }
}

#[test]
fn the_same_seed_gives_the_same_events_and_the_same_history() {
    for protocol in list() {
        visit(protocol.name, Determinism).unwrap();
    }
}

/// Declares a Morty of which something is missing.
macro_rules! broken {
    ($name:ident, $checks:expr) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken on purpose";
            const GUARANTEE: Guarantee = Guarantee::Serializable;
            type Message = Message;
            type Coordinator = Coordinator;
            type Replica = Replica;

            fn coordinator(group: Group, _: &Settings) -> Coordinator {
                Coordinator::new(group, Options::default())
            }

            fn replica(_: NodeId, group: Group, _: &Settings) -> Replica {
                Replica::new(group, Options { checks: $checks, ..Options::default() })
            }
        }
    };
}

broken!(WithoutCheck1, Checks { missed_by_reads: false, ..Checks::ALL });
broken!(WithoutCheck2, Checks { missed_by_others: false, ..Checks::ALL });
broken!(WithoutCheck3, Checks { dirty_reads: false, ..Checks::ALL });

/// The first seed under which the checker finds fault with `P`.
fn caught<P: Protocol>() -> Option<(u64, String)> {
    seeds(2000).find_map(|seed| {
        let trial = Trial { seed, workload: "list-append", crashes: false };
        let violation = trial.run::<P>().violation?;
        // The seed is one under which a sound Morty holds.
        assert_eq!(trial.run::<Morty>().violation, None);
        Some((seed, violation))
    })
}

#[test]
fn a_morty_with_a_check_switched_off_is_caught() {
    let found = [
        ("check 1", caught::<WithoutCheck1>()),
        ("check 2", caught::<WithoutCheck2>()),
        ("check 3", caught::<WithoutCheck3>()),
    ];
    let mut report = String::new();
    for (check, found) in found {
        let (seed, why) = found.unwrap_or_else(|| panic!("nobody missed {check}"));
        let first = why.lines().next().unwrap_or_default();
        writeln!(report, "without {check}: seed {seed}: {first}").unwrap();
    }
    println!("{report}");
}
