//! One run of the suite: a workload under faults, and then a look at what the database holds, whichever replica
//! is down.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_history::{
    Deletes, History, Options, Recorder, Verdict, check_serializable_with,
    check_strict_serializable_with,
};
use serried_model::{Geography, Guarantee, Transactions, Version};
use serried_protocols::morty::Morty;
use serried_session::TransactOptions;
use serried_sim::{
    Cluster, Configuration, Disk, Fault, Initial, Plan, Reach, Scheduled, Side, Swarm,
};
use serried_workload::tpcc::Scale;
use serried_workload::{
    AUDIT_PATIENCE, ClosedLoop, Measurement, Parameters, Window, Workload, audit,
    check_nothing_is_lost, inspect, named, touched,
};

use crate::blind::Blind;
use crate::chase::Chase;
use crate::choices::Choices;
use crate::mixed::{Mixed, read_past};
use crate::{LIMIT, support};

pub(crate) struct Trial {
    pub(crate) seed: u64,
    pub(crate) workload: &'static str,
    pub(crate) faults: Faults,
    pub(crate) choices: Choices,
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// The network, pauses and skew.
    Network,
    /// Replicas crash too, one by one, all at once, or for long, and lose what they had not flushed.
    Crashes,
    /// Disks are slow, and replicas crash one after the other, often and for a short time.
    Disks,
    /// Everything: disks are lost, clients die, clocks jump, beyond their bound too, disks are slow; with one
    /// partition or four, and with old things truncated, fast.
    All,
    /// As [`Faults::All`], with five replicas, of which two are cut off at most times, now these and now those, while
    /// truncations follow each other faster than messages arrive.
    Minorities,
}

impl Faults {
    pub(crate) fn are_all(self) -> bool {
        matches!(self, Faults::All | Faults::Minorities)
    }
}

pub(crate) struct Outcome {
    pub(crate) history: History,
    pub(crate) hash: u64,
    pub(crate) committed: u64,
    /// How many keys of the past were read.
    pub(crate) looked: u64,
    /// Whether a replica was to lose its disk.
    pub(crate) loses_disks: bool,
    /// The checker found fault with the history, or something that was acknowledged is lost.
    pub(crate) violation: Option<String>,
    /// Anything else is wrong with the run.
    pub(crate) wrong: Option<String>,
}

impl Trial {
    pub(crate) fn new(seed: u64, workload: &'static str, faults: Faults) -> Trial {
        let mut choices = Choices::drawn(seed);
        if faults == Faults::Minorities {
            choices = Choices { replicas: 5, partitioned: false, truncates: true, ..choices };
        }
        Trial { seed, workload, faults, choices }
    }

    pub(crate) fn run<P: Protocol<Family = Transactions>>(&self) -> Outcome {
        let (name, faults_last) = self.place();
        let (configuration, plan) = self.configuration(Geography::named(name).unwrap());
        let is_loss = |scheduled: &Scheduled| matches!(scheduled.fault, Fault::LostDisk(_));
        let loses_disks = plan.faults.iter().any(is_loss);
        let is_jump = |scheduled: &Scheduled| matches!(scheduled.fault, Fault::ClockJump(..));
        // Clocks that jump leave their bound.
        let guarantee = match P::GUARANTEE {
            Guarantee::StrictSerializable
                if P::RELIES_ON_CLOCKS && plan.faults.iter().any(is_jump) =>
            {
                Guarantee::Serializable
            }
            guarantee => guarantee,
        };
        let workload = self.workload();
        let initial = {
            let workload = workload.clone();
            Initial::new(move |key| workload.initial_value(key))
        };
        let configuration = Configuration { initial: Some(initial), ..configuration };
        let clients = configuration.clients;
        // Those that are strict keep the version of every delete.
        let deletes = match P::GUARANTEE {
            Guarantee::StrictSerializable => Deletes::Remembered,
            _ => Deletes::EitherWay,
        };
        let mut cluster = Cluster::<P>::new(configuration);
        cluster.follow(&plan);
        match self.faults {
            Faults::Disks => self.crash_often(&mut cluster),
            Faults::Minorities => self.cut_off(&mut cluster),
            Faults::Network | Faults::Crashes | Faults::All => {}
        }
        let window = Window::new(Timestamp(0), Duration::ZERO, faults_last * 2, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let recorder = Arc::new(Recorder::new());
        // Some runs give transactions up early, so that there are some whose outcome is unknown.
        let impatient = self.choices.impatient && self.workload != "chase";
        let deadline = match (impatient, self.faults) {
            (true, Faults::Minorities) => faults_last / 10,
            (true, _) => Duration::from_millis(700),
            (false, _) => Duration::from_secs(60),
        };
        let options =
            TransactOptions { deadline, attempts: u32::MAX, ..TransactOptions::default() };
        for client in 0..clients {
            let client_loop = ClosedLoop {
                keyspace: cluster.keyspace(client).with_options(options),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: Some(recorder.clone()),
                client: client as u64,
                seed: self.seed,
            };
            cluster.spawn(client, client_loop.run());
        }
        let looks = Arc::new(Mutex::new(Vec::new()));
        // The past is what truncations have settled.
        let has_past = self.faults.are_all() && self.choices.truncates && P::OFFERS.past;
        if self.workload == "mixed" && has_past {
            let until = Timestamp(0) + faults_last * 2;
            let options = TransactOptions { deadline: faults_last * 2, ..options };
            // Those who die are among the first half.
            for client in clients / 2..clients {
                let keyspace = cluster.keyspace(client).with_options(options);
                let keys = self.choices.blind_keys;
                cluster.spawn(client, read_past(keyspace, keys, until, looks.clone()));
            }
        }
        support::trace(&mut cluster);
        let stalled = cluster.run_until_done(LIMIT).err().map(|stalled| stalled.to_string());
        let (audited, latest) = (recorder.len(), measurement.latest());
        let stalled =
            stalled.or_else(|| self.look(&mut cluster, &workload, &recorder, latest).err());
        let committed = measurement.committed_so_far();
        let hash = cluster.event_hash();
        drop(cluster);
        let mut history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        let looks = std::mem::take(&mut *looks.lock().unwrap());
        let looked = looks.iter().map(|look| look.operations.len() as u64).sum();
        history.events.splice(0..0, looks);
        let checked = workload.check(&history).err();
        // This workload's check is the one that compares what was read.
        let (misread, wrong) = match self.workload {
            "mixed" => (checked, stalled),
            _ => (None, stalled.or(checked)),
        };
        let options = Options { deletes, ..Options::default() };
        // The workload has compared everything.
        let nothing = History::default();
        let (history_to_check, audited) = match self.workload {
            "mixed" => (&nothing, 0),
            _ => (&history, audited),
        };
        let verdict = match guarantee {
            Guarantee::StrictSerializable => {
                check_strict_serializable_with(history_to_check, &options)
            }
            _ => check_serializable_with(history_to_check, &options),
        };
        let (violation, unknown) = match verdict {
            Verdict::Holds(_) => (check_nothing_is_lost(history_to_check, audited).err(), None),
            Verdict::Violation(violation) => (Some(violation.to_string()), None),
            Verdict::Unknown { reason } => (None, Some(reason)),
        };
        let (violation, wrong) = (violation.or(misread), wrong.or(unknown));
        Outcome { history, hash, committed, looked, loses_disks, violation, wrong }
    }

    /// Where the sites are, and how long faults last; then there is as much time again without. The nearer the
    /// sites, the more happens in a second.
    fn place(&self) -> (&'static str, Duration) {
        let (name, ms) = [("lan", 100), ("reg", 1000), ("con", 4000)][self.choices.place];
        (name, Duration::from_millis(ms))
    }

    fn configuration(&self, geography: Geography) -> (Configuration, Plan) {
        let (all, faults_last) = (self.faults.are_all(), self.place().1);
        let choices = self.choices;
        let records = Disk {
            append: Duration::from_micros(5),
            flush: match self.faults {
                Faults::Disks => faults_last / 100,
                _ => Duration::from_micros(200),
            },
            keep_records: true,
        };
        let mut configuration = Configuration {
            seed: self.seed,
            replicas: choices.replicas,
            partitions: if all && choices.partitioned { 4 } else { 1 },
            clients: choices.clients,
            geography,
            disk: if self.faults == Faults::Network { Disk::MEMORY } else { records },
            settings: if all { self.settings() } else { Settings::default() },
            hash_contents: true,
            ..Configuration::default()
        };
        let swarm = Swarm {
            lasts: faults_last,
            always: std::env::var_os("SERRIED_ALWAYS").is_some(),
            crashes: all || self.faults == Faults::Crashes,
            pauses: true,
            lost_disks: all,
            absences: true,
            blackouts: true,
            deaths: all,
            jumps: if all { faults_last } else { Duration::ZERO },
            ..Swarm::default()
        };
        let plan = swarm.plan(&configuration);
        // Clocks differ by so much if they don't jump.
        let differ = 2 * plan.clocks.skew.as_millis() as u64;
        if all && choices.bounds_clocks {
            // As much as that passes while a trial takes.
            configuration.settings.clock_bound_ms = differ + 100;
        }
        if all {
            // Else a client whose clock is behind could not begin anything.
            let lag = &mut configuration.settings.truncation_lag_ms;
            *lag = (*lag).max(differ + 10);
        }
        // A clock is off by the skew at most, unless it jumps, and is read in whole microseconds.
        configuration.settings.uncertainty_us = plan.clocks.skew.as_micros() as u64 + 1;
        let configuration = plan.apply_to(configuration);
        (configuration, plan)
    }

    fn workload(&self) -> Arc<dyn Workload> {
        let parameters = Parameters {
            keys: Some(self.choices.keys),
            theta: Some(0.5),
            warehouses: Some(self.choices.warehouses),
            scale: Scale::SMALL,
            ..Parameters::default()
        };
        match self.workload {
            "chase" => Arc::new(Chase::default()),
            "mixed" => Arc::new(Mixed { keys: self.choices.blind_keys }),
            "blind" => Arc::new(Blind::new(self.choices.blind_keys)),
            "appends" => named("list-append", &Parameters { modify: true, ..parameters }).unwrap(),
            name => named(name, &parameters).unwrap(),
        }
    }

    /// What the protocol is set to, so that everything happens within the time that a trial takes.
    fn settings(&self) -> Settings {
        let (choices, tenth) = (self.choices, (self.place().1.as_millis() as u64 / 10).max(1));
        // The inspection that follows a run of TPC-C reads much at once, and that takes long.
        let mut lag = [2 * tenth, tenth, 5 * tenth, 10 * tenth][choices.lag];
        let mut every = if lag == tenth { (tenth / 2).max(1) } else { tenth };
        if self.faults == Faults::Minorities {
            (lag, every) = (lag / 4, (tenth / 10).max(1));
        }
        Settings {
            truncation_every_ms: if choices.truncates { every } else { 60_000 },
            truncation_lag_ms: if self.workload == "tpcc" { lag.max(2000) } else { lag },
            history_ms: if choices.has_history { 3 * tenth } else { 0 },
            outcomes_ms: lag.min(2 * tenth),
            recovery_after_ms: [tenth, 4 * tenth][choices.recovery],
            election_timeout_ms: [tenth, 4 * tenth][choices.election],
            resident_keys: if choices.evicts { 2 } else { 1000 },
            ..Settings::default()
        }
    }

    /// Has replicas crash one after the other, as long as faults last.
    fn crash_often<P: Protocol<Family = Transactions>>(&self, cluster: &mut Cluster<P>) {
        let (faults_last, replicas) = (self.place().1, cluster.configuration().replicas);
        let mut random = Pcg64Mcg::new(u128::from(self.seed));
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

    /// Cuts two replicas off, then two others, as long as faults last.
    fn cut_off<P: Protocol<Family = Transactions>>(&self, cluster: &mut Cluster<P>) {
        let (faults_last, replicas) = (self.place().1, cluster.configuration().replicas);
        let mut random = Pcg64Mcg::new(u128::from(self.seed));
        let share = faults_last.as_nanos() as u64 / 15;
        for turn in 0..15 {
            let begins = turn * share + random.random_range(0..share / 2);
            let ends = begins + random.random_range(share / 2..2 * share);
            let one = random.random_range(0..replicas);
            let other = (one + random.random_range(1..replicas)) % replicas;
            cluster.schedule(Scheduled {
                begins: Timestamp(begins),
                ends: Timestamp(ends.min(faults_last.as_nanos() as u64)),
                fault: Fault::Partition(Reach::around(Side::replicas([one, other]))),
            });
        }
    }

    /// Looks at what the database holds when all faults are over: with each replica down in turn, if a majority
    /// is left, and after a power cut.
    fn look<P: Protocol<Family = Transactions>>(
        &self,
        cluster: &mut Cluster<P>,
        workload: &Arc<dyn Workload>,
        recorder: &Arc<Recorder>,
        latest: Version,
    ) -> Result<(), String> {
        let keys = touched(&recorder.history());
        let Configuration { settings, replicas, disk, .. } = *cluster.configuration();
        if self.choices.waits && self.choices.truncates {
            // What is old is forgotten.
            let truncations = Duration::from_millis(12 * settings.truncation_every_ms);
            let lag = settings.truncation_lag_ms + settings.outcomes_ms;
            cluster.run_until(cluster.now() + truncations + Duration::from_millis(lag));
        }
        let one_by_one = (0..replicas).filter(|_| replicas > 2).map(|member| vec![member]);
        for down in one_by_one.chain([Vec::new()]) {
            if disk.keep_records {
                wait_until_whole(cluster)?;
                let all: Vec<usize> = (0..replicas).collect();
                for member in if down.is_empty() { &all } else { &down } {
                    cluster.crash(*member);
                }
                if down.is_empty() {
                    all.iter().for_each(|member| cluster.restart(*member));
                }
            }
            let looked = match self.workload {
                "tpcc" => inspect_all(cluster, workload.clone(), latest),
                _ => audit_all(cluster, workload, recorder, &keys, latest),
            };
            looked.map_err(|wrong| format!("{wrong}, with {down:?} down"))?;
            down.iter().for_each(|member| cluster.restart(*member));
        }
        Ok(())
    }

    /// The command that runs this trial alone.
    pub(crate) fn replay<P: Protocol<Family = Transactions>>(&self) -> String {
        format!(
            "{} under {}; replay with SERRIED_FIRST_SEED={} SERRIED_SEEDS=1 cargo test -p serried-protocols --test suite",
            P::NAME,
            self.workload,
            self.seed
        )
    }
}

/// For how many truncations a replica may wait that replaces a lost disk.
const TRUNCATIONS: u64 = 5;

/// Waits until every replica has what it lacks.
fn wait_until_whole<P: Protocol<Family = Transactions>>(
    cluster: &mut Cluster<P>,
) -> Result<(), String> {
    let Configuration { replicas, settings, .. } = *cluster.configuration();
    let truncations = Duration::from_millis(TRUNCATIONS * settings.truncation_every_ms);
    let limit = cluster.now() + LIMIT.since(Timestamp(0)) + truncations;
    while let Some(member) = (0..replicas).find(|member| !cluster.is_whole(*member)) {
        let now = cluster.now();
        if now >= limit {
            return Err(format!("n{member} has not caught up at {now}"));
        }
        cluster.run_until(now + Duration::from_millis(20));
    }
    Ok(())
}

/// Has clients read everything that was ever written.
fn audit_all<P: Protocol<Family = Transactions>>(
    cluster: &mut Cluster<P>,
    workload: &Arc<dyn Workload>,
    recorder: &Arc<Recorder>,
    keys: &BTreeSet<u64>,
    latest: Version,
) -> Result<(), String> {
    let clients = cluster.configuration().clients;
    let unanswered = Arc::new(Mutex::new(None));
    // Those who die are among the first half. Each client has another replica nearest.
    for client in clients / 2..clients {
        let (keyspace, unanswered) = (cluster.keyspace(client), unanswered.clone());
        let (workload, recorder, keys) = (workload.clone(), recorder.clone(), keys.clone());
        cluster.spawn(client, async move {
            let process = client as u64;
            let audited = audit(&keyspace, workload, recorder, process, &keys, latest).await;
            if let Err(error) = audited {
                *unanswered.lock().unwrap() = Some(error.to_string());
            }
        });
    }
    let limit = cluster.now() + LIMIT.since(Timestamp(0));
    cluster.run_until_done(limit).map_err(|stalled| stalled.to_string())?;
    unanswered.lock().unwrap().take().map_or(Ok(()), Err)
}

/// Has a client inspect the whole database.
fn inspect_all<P: Protocol<Family = Transactions>>(
    cluster: &mut Cluster<P>,
    workload: Arc<dyn Workload>,
    latest: Version,
) -> Result<(), String> {
    let client = cluster.configuration().clients - 1;
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

#[test]
fn an_audit_gives_up_when_nobody_answers() {
    let records = Disk { keep_records: true, ..Disk::MEMORY };
    let configuration = Configuration { disk: records, clients: 2, ..Configuration::default() };
    let mut cluster = Cluster::<Morty>::new(configuration);
    for member in 0..cluster.configuration().replicas {
        cluster.crash(member);
    }
    let workload = named("bank", &Parameters::default()).unwrap();
    let (recorder, keys) = (Arc::new(Recorder::new()), BTreeSet::from([1, 2]));
    let wrong = audit_all(&mut cluster, &workload, &recorder, &keys, Version::INITIAL).unwrap_err();
    assert!(wrong.starts_with("process 1 did not read 1 keys at a version after"), "{wrong}");
    let took = cluster.now().since(Timestamp(0));
    assert!(took >= AUDIT_PATIENCE && took < AUDIT_PATIENCE + Duration::from_secs(20), "{took:?}");
}
