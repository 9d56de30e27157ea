//! What every protocol has to pass in simulation: its guarantee under faults, liveness once they have
//! healed, and determinism; and what shows that the suite would notice.
//!
//! With `SERRIED_TRACE=text` it prints each message of which `text` is a part, such as the timestamp of a
//! transaction's version.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols
//! --test suite` goes through more, `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one, and
//! `SERRIED_PROTOCOL=ncc` through those of one protocol.

#[path = "../support/blind.rs"]
mod blind;
mod chase;
mod mutants;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blind::Blind;
use chase::Chase;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_history::{History, Recorder, Verdict, check_serializable, check_strict_serializable};
use serried_model::{Family, Geography, Guarantee, Version};
use serried_protocols::{ProtocolInfo, Visitor, promising, visit};
use serried_session::{Error, TransactOptions};
use serried_sim::{Cluster, Configuration, Disk, Fault, Initial, Scheduled, Swarm};
use serried_workload::tpcc::Scale;
use serried_workload::{ClosedLoop, Measurement, Parameters, Window, Workload, inspect, named};
use support::seeds;

/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(120_000_000_000);

struct Trial {
    seed: u64,
    workload: &'static str,
    faults: Faults,
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    /// The network, pauses and skew.
    Network,
    /// Replicas crash too, and forget what they had not flushed.
    Crashes,
    /// Disks are slow, and replicas crash one after the other, often and for a short time.
    Disks,
    /// Everything: clients die, clocks jump, disks are slow; with one partition or four, and with old
    /// things truncated, fast.
    All,
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

impl Trial {
    fn run<P: Protocol>(&self) -> Outcome {
        let (seed, all) = (self.seed, self.faults == Faults::All);
        // How long faults last, in milliseconds; then there is as much time again without. The
        // nearer the sites, the more happens in a second.
        let (name, faults_last) = [("lan", 100), ("reg", 1000), ("con", 4000)][seed as usize % 3];
        let geography = Geography::named(name).unwrap();
        let faults_last = Duration::from_millis(faults_last);
        let records = Disk {
            append: Duration::from_micros(5),
            flush: match self.faults {
                Faults::Disks => faults_last / 100,
                _ => Duration::from_micros(200),
            },
            keep_records: true,
        };
        let configuration = Configuration {
            seed,
            replicas: if seed % 8 == 7 { 5 } else { 3 },
            partitions: if all && seed % 5 > 1 { 4 } else { 1 },
            clients: 3 + seed as usize % 6,
            geography,
            disk: if self.faults == Faults::Network { Disk::MEMORY } else { records },
            settings: if all { self.settings(faults_last) } else { Settings::default() },
            hash_contents: true,
            ..Configuration::default()
        };
        let parameters = Parameters {
            keys: Some(3 + seed % 4),
            theta: Some(0.5),
            warehouses: Some(1 + seed / 3 % 2),
            scale: Scale::SMALL,
            ..Parameters::default()
        };
        let workload: Arc<dyn Workload> = match self.workload {
            "chase" => Arc::new(Chase::default()),
            "blind" => Arc::new(Blind::new(2 + seed % 3)),
            name => named(name, &parameters).unwrap(),
        };
        let initial = {
            let workload = workload.clone();
            Initial::new(move |key| workload.initial_value(key))
        };
        let configuration = Configuration { initial: Some(initial), ..configuration };
        let swarm = Swarm {
            lasts: faults_last,
            crashes: matches!(self.faults, Faults::Crashes | Faults::All),
            pauses: true,
            lost_disks: all,
            deaths: all,
            jumps: if all { faults_last } else { Duration::ZERO },
        };
        let plan = swarm.plan(&configuration);
        let configuration = plan.apply_to(configuration);
        let clients = configuration.clients;
        let replicas = configuration.replicas;
        let mut cluster = Cluster::<P>::new(configuration);
        cluster.follow(&plan);
        if self.faults == Faults::Disks {
            let mut random = Pcg64Mcg::new(u128::from(seed));
            let share = faults_last.as_nanos() as u64 / 50;
            for turn in 0..50 {
                let begins = turn * share + random.random_range(0..share / 2);
                let ends = begins + random.random_range(1..share / 2);
                cluster.schedule(Scheduled {
                    begins: Timestamp(begins),
                    ends: Timestamp(ends),
                    fault: Fault::Crash(random.random_range(0..replicas)),
                });
            }
        }
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
        support::trace(&mut cluster);
        let stalled = cluster.run_until_done(LIMIT).err().map(|stalled| stalled.to_string());
        let latest = measurement.latest();
        let stalled =
            stalled.or_else(|| look_at(&mut cluster, clients - 1, workload.clone(), latest).err());
        let committed = measurement.committed_so_far();
        let hash = cluster.event_hash();
        drop(cluster);
        let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        let wrong = stalled.or(workload.check(&history).err());
        let verdict = match P::GUARANTEE {
            Guarantee::StrictSerializable => check_strict_serializable(&history),
            _ => check_serializable(&history),
        };
        let (violation, unknown) = match verdict {
            Verdict::Holds(_) => (None, None),
            Verdict::Violation(violation) => (Some(violation.to_string()), None),
            Verdict::Unknown { reason } => (None, Some(reason)),
        };
        Outcome { history, hash, committed, violation, wrong: wrong.or(unknown) }
    }

    /// What the protocol is set to, so that everything happens within the time that a trial takes.
    fn settings(&self, faults_last: Duration) -> Settings {
        let (seed, tenth) = (self.seed, (faults_last.as_millis() as u64 / 10).max(1));
        // The inspection that follows a run of TPC-C reads much at once, and that takes long.
        let lag = [2 * tenth, 5 * tenth, 10 * tenth][seed as usize / 3 % 3];
        Settings {
            truncation_every_ms: if seed.is_multiple_of(3) { 60_000 } else { tenth },
            truncation_lag_ms: if self.workload == "tpcc" { lag.max(2000) } else { lag },
            history_ms: if seed % 7 == 6 { 3 * tenth } else { 0 },
            outcomes_ms: 2 * tenth,
            recovery_after_ms: [tenth, 4 * tenth][seed as usize / 2 % 2],
            resident_keys: if seed % 4 == 1 { 2 } else { 1000 },
            ..Settings::default()
        }
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
    client: usize,
    workload: Arc<dyn Workload>,
    latest: Version,
) -> Result<(), String> {
    let keyspace = cluster.keyspace(client);
    let found = Arc::new(Mutex::new(None));
    let inspected = found.clone();
    cluster.spawn(client, async move {
        *inspected.lock().unwrap() = Some(inspect(&*workload, &keyspace, latest).await);
    });
    let limit = cluster.now() + LIMIT.since(Timestamp(0));
    cluster.run_until_done(limit).map_err(|stalled| stalled.to_string())?;
    let found = found.lock().unwrap().take().expect("the inspection is done");
    found.map(drop).map_err(|error| error.to_string())
}

struct Suite {
    workload: &'static str,
    faults: Faults,
    seeds: u64,
}

impl Visitor for Suite {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let mut committed = 0;
        for seed in seeds(self.seeds) {
            let trial = Trial { seed, workload: self.workload, faults: self.faults };
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

/// Those with transactions that promise something, or the one of them that was asked for.
fn protocols() -> impl Iterator<Item = &'static ProtocolInfo> {
    let wanted = std::env::var("SERRIED_PROTOCOL").ok();
    promising(Family::Transactions)
        .filter(move |protocol| wanted.as_deref().is_none_or(|name| name == protocol.name))
}

fn every_protocol(workload: &'static str, faults: Faults, seeds: u64) {
    for protocol in protocols() {
        // Those on shards differ in their concurrency control alone: together they have as many as another.
        let on_shards = !["morty", "mvtso"].contains(&protocol.name);
        let seeds = if on_shards { seeds.div_ceil(4) } else { seeds };
        visit(protocol.name, Suite { workload, faults, seeds }).unwrap();
    }
}

#[test]
fn lists_stay_serializable_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("list-append", Faults::Network, 150);
}

#[test]
fn the_banks_total_is_conserved_and_everything_finishes_under_network_faults_pauses_and_skew() {
    every_protocol("bank", Faults::Network, 150);
}

#[test]
fn transactions_whose_keys_depend_on_what_they_read_stay_serializable() {
    every_protocol("chase", Faults::Network, 100);
}

#[test]
fn what_is_written_unread_is_serializable_under_network_faults_pauses_and_skew() {
    every_protocol("blind", Faults::Network, 100);
}

#[test]
fn what_is_written_unread_is_serializable_whatever_goes_wrong() {
    every_protocol("blind", Faults::All, 60);
}

#[test]
fn tpcc_stays_serializable_and_consistent_under_network_faults_pauses_and_skew() {
    every_protocol("tpcc", Faults::Network, 20);
}

#[test]
fn tpcc_stays_serializable_and_consistent_whatever_goes_wrong() {
    every_protocol("tpcc", Faults::All, 40);
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
            let parameters =
                Parameters { keys: Some(64), theta: Some(0.0), ..Parameters::default() };
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
    for protocol in protocols() {
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
    for protocol in protocols() {
        visit(protocol.name, NoMajority).unwrap();
    }
}

#[test]
fn lists_stay_serializable_when_replicas_crash_and_forget_what_they_had_not_flushed() {
    every_protocol("list-append", Faults::Crashes, 60);
}

#[test]
fn lists_stay_serializable_and_everything_finishes_whatever_goes_wrong() {
    every_protocol("list-append", Faults::All, 60);
}

#[test]
fn the_banks_total_is_conserved_and_everything_finishes_whatever_goes_wrong() {
    every_protocol("bank", Faults::All, 60);
}

/// A trial that once failed.
struct Regression {
    seed: u64,
    workload: &'static str,
}

impl Visitor for Regression {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let trial = Trial { seed: self.seed, workload: self.workload, faults: Faults::All };
        let outcome = trial.run::<P>();
        assert_eq!(outcome.violation.or(outcome.wrong), None, "{}", trial.replay::<P>());
    }
}

fn regression(seed: u64, workload: &'static str) {
    for protocol in protocols() {
        visit(protocol.name, Regression { seed, workload }).unwrap();
    }
}

#[test]
fn regression_what_was_open_when_a_store_was_copied_is_not_taken_for_aborted() {
    regression(410, "list-append");
    regression(641, "bank");
}

#[test]
fn regression_a_replica_that_lacks_a_commit_is_not_asked_again_though_it_votes_last() {
    regression(111_033, "tpcc");
}

#[test]
fn regression_a_recoverer_does_not_take_forgotten_for_aborted() {
    regression(4367, "list-append");
    regression(5519, "bank");
}

#[test]
fn regression_who_is_over_and_forgotten_is_not_taken_for_ready_by_a_leader_that_had_lagged() {
    regression(63_389, "list-append");
}

#[test]
fn regression_what_was_refused_by_a_leader_is_not_taken_for_ready_when_the_next_one_finds_it() {
    regression(64_233, "bank");
}

struct Determinism;

impl Visitor for Determinism {
    type Output = ();

    fn visit<P: Protocol>(self) {
        let mut hashes = Vec::new();
        for seed in [1, 2] {
            let trial = Trial { seed, workload: "list-append", faults: Faults::Network };
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
    for protocol in protocols() {
        visit(protocol.name, Determinism).unwrap();
    }
}
