//! What every protocol of stored procedures has to pass in simulation: its guarantee under faults, liveness once they
//! have healed, and determinism; and what shows that the suite would notice.
//!
//! Each test goes through some seeds. `SERRIED_SEEDS=2000 cargo test --release -p serried-protocols --test procedures`
//! goes through more, and `SERRIED_FIRST_SEED=17 SERRIED_SEEDS=1` through a single one; `SERRIED_PROTOCOL=rococo` leaves
//! out the other protocols. With `SERRIED_TRACE=text` it prints each message of which `text` is a part, and with
//! `SERRIED_ALWAYS=1` all kinds of faults occur in every trial.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Group, Protocol, Settings, Timestamp};
use serried_chop::compile;
use serried_history::{CallHistory, CallRecorder, CallVerdict, TransactionGuarantee, check_calls};
use serried_model::{FamilyName, Geography, Guarantee, NodeId};
use serried_procedures::{Datum, Offers, ProcedureSet, Procedures};
use serried_protocols::frameworks::shard::{self, ShardedCalls};
use serried_protocols::frameworks::validation::Validation;
use serried_protocols::janus;
use serried_protocols::ncc::Queues;
use serried_protocols::occ::Locks;
use serried_protocols::rehearsal::{Forgetting, Rehearsal};
use serried_protocols::two_phase_locking::Locking;
use serried_protocols::{Mutated, Visitor, promising, visit};
use serried_session::CallOptions;
use serried_sim::{Cluster, Configuration, Disk, Fault, Plan, Scheduled, Swarm};
use serried_workload::{
    CallClient, Inquiries, Measurement, ProcedureParameters, ProcedureWorkload, Window,
    audit_calls, make_ready, named_procedures,
};
use support::seeds;

/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(120_000_000_000);

/// How long servers have for the calls of dead clients when all is up again, beside some recoveries.
const SETTLE: Duration = Duration::from_secs(2);

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Faults {
    /// The network, pauses and skew.
    Network,
    /// Everything: replicas crash and lose disks, clients die, clocks jump.
    All,
    /// One replica after the other is away for so long that others forget what it lacks. Some are away again while they
    /// copy it, or soon after, and some sources of copies restart.
    Absences,
}

#[derive(Clone, Copy)]
struct Trial {
    seed: u64,
    workload: &'static str,
    faults: Faults,
    /// How many replicas there are, if not now these, now those. A protocol that keeps no copies has one.
    replicas: Option<usize>,
}

/// What is different from one trial to another, besides its faults. Each is one of few, so that all combinations occur.
struct Choices {
    /// Where the sites are. The nearer they are, the more happens in a second.
    place: &'static str,
    replicas: usize,
    partitions: u16,
    clients: usize,
    keys: u64,
    merged: bool,
    /// Whether few keys are in memory.
    evicts: bool,
    recovers_soon: bool,
    elects_soon: bool,
    /// Whether clients give calls up early.
    impatient: bool,
    /// Whether outcomes are forgotten while the trial lasts.
    forgets: bool,
    /// Whether what began a little earlier is refused.
    lags_little: bool,
    /// Whether clients ask for the outcomes of calls.
    inquires: bool,
}

impl Choices {
    fn drawn(seed: u64, replicas: Option<usize>) -> Choices {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let mut below = |bound: usize| random.random_range(0..bound);
        let (place, drawn) = (["lan", "reg", "con"][below(3)], [1, 3, 3, 3, 3, 5][below(6)]);
        let replicas = replicas.unwrap_or(drawn);
        Choices {
            // A single replica is at the site of all clients.
            place: if replicas == 1 { "lan" } else { place },
            replicas,
            partitions: [1, 2, 4, 4][below(4)],
            clients: 3 + below(6),
            keys: 2 + below(4) as u64,
            merged: below(2) == 0,
            evicts: below(4) == 1,
            recovers_soon: below(6) == 5,
            elects_soon: below(6) == 5,
            impatient: below(4) == 0,
            forgets: below(3) == 0,
            lags_little: below(3) == 0,
            inquires: below(3) == 0,
        }
    }
}

struct Outcome {
    history: CallHistory,
    hash: u64,
    committed: u64,
    wrong: Option<String>,
}

impl Trial {
    fn run<P: Protocol<Family = Procedures>>(&self) -> Outcome {
        let alone = (!P::KEEPS_COPIES).then_some(1);
        let mut choices = Choices::drawn(self.seed, self.replicas.or(alone));
        if self.faults == Faults::Absences {
            // The farther the sites are, the less happens in these seconds.
            choices.place = "con";
        }
        let faults_last = Duration::from_millis(match choices.place {
            // Half a second passes until leaders are elected and procedures are registered.
            "lan" if self.replicas.is_none() && P::HAS_LEADERS => 600,
            "lan" if self.replicas.is_none() && P::KEEPS_COPIES => 300,
            "lan" => 100,
            "reg" => 1000,
            _ if self.faults == Faults::Absences => 15_000,
            _ => 4000,
        });
        let (configuration, plan) = self.configuration(&choices, faults_last);
        let clients = configuration.clients;
        let parameters = ProcedureParameters {
            keys: Some(choices.keys),
            theta: Some(0.5),
            counters_per_call: Some(2),
            warehouses: Some(1),
            small: true,
            merged: choices.merged && P::OFFERS.merged,
            ..ProcedureParameters::default()
        };
        let workload = named_procedures(self.workload, &parameters).unwrap();
        let mut cluster = Cluster::<P>::new(configuration);
        cluster.follow(&plan);
        let calls_last = match self.faults {
            Faults::Absences => faults_last + Duration::from_secs(1),
            _ => faults_last * 2,
        };
        let window = Window::new(Timestamp(0), Duration::ZERO, calls_last, Duration::ZERO);
        let measurement = Arc::new(Measurement::new(window));
        let recorder = Arc::new(CallRecorder::new());
        let inquiries = choices.inquires.then(|| Arc::new(Inquiries::default()));
        // Some runs give calls up early, so that there are some whose outcome is unknown.
        let deadline = Duration::from_millis(if choices.impatient { 700 } else { 60_000 });
        for client in 0..clients {
            let client_loop = CallClient {
                procedures: cluster
                    .keyspace(client)
                    .with_options(CallOptions { deadline, ..CallOptions::default() }),
                workload: workload.clone(),
                measurement: measurement.clone(),
                recorder: Some(recorder.clone()),
                inquiries: inquiries.clone(),
                client: client as u64,
                clients: clients as u64,
                seed: self.seed,
            };
            cluster.spawn(client, client_loop.run());
        }
        support::trace(&mut cluster);
        let stalled = cluster.run_until_done(LIMIT).map_err(|stalled| stalled.to_string());
        let looked = stalled.and_then(|()| self.look(&mut cluster, &workload, &recorder));
        let hash = cluster.event_hash();
        drop(cluster);
        drop(workload);
        let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        // A violation says more than what follows from it.
        let contradiction = inquiries.and_then(|inquiries| inquiries.contradiction());
        let wrong = judge(P::GUARANTEE, &history).err().or(contradiction).or(looked.err());
        Outcome { history, hash, committed: measurement.committed_so_far(), wrong }
    }

    fn configuration(&self, choices: &Choices, faults_last: Duration) -> (Configuration, Plan) {
        let (all, absences) = (self.faults == Faults::All, self.faults == Faults::Absences);
        let disk = Disk {
            append: Duration::from_micros(5),
            flush: Duration::from_micros(200),
            keep_records: true,
        };
        let lasts = faults_last.as_millis() as u64;
        let defaults = Settings::default();
        let settings = Settings {
            truncation_lag_ms: if choices.lags_little { 300 } else { defaults.truncation_lag_ms },
            resident_keys: if choices.evicts { 2 } else { 1000 },
            // Some take over what others are still at.
            recovery_after_ms: if choices.recovers_soon { (lasts / 10).max(2) } else { 1000 },
            election_timeout_ms: if choices.elects_soon { (lasts / 10).max(2) } else { 200 },
            outcomes_ms: match () {
                () if absences => 300,
                () if all && choices.forgets => lasts / 5,
                () => 30_000,
            },
            ..defaults
        };
        let configuration = Configuration {
            seed: self.seed,
            replicas: choices.replicas,
            partitions: choices.partitions,
            clients: choices.clients,
            geography: Geography::named(choices.place).unwrap(),
            disk: if all || absences { disk } else { Disk::MEMORY },
            settings,
            hash_contents: true,
            ..Configuration::default()
        };
        let swarm = Swarm {
            lasts: faults_last,
            always: std::env::var_os("SERRIED_ALWAYS").is_some(),
            crashes: all,
            partitions: !absences,
            pauses: !absences,
            lost_disks: all && configuration.replicas > 1,
            absences: all,
            blackouts: all,
            deaths: all,
            jumps: if all { faults_last } else { Duration::ZERO },
            ..Swarm::default()
        };
        let mut plan = swarm.plan(&configuration);
        if absences {
            plan.faults.extend(self.absences(choices.replicas, plan.ends));
        }
        (plan.apply_to(configuration), plan)
    }

    /// Long absences until `ends`, most of which follow each other closely.
    fn absences(&self, replicas: usize, ends: Timestamp) -> Vec<Scheduled> {
        let random = &mut Pcg64Mcg::seed_from_u64(self.seed);
        let mut ms = |least, most| Duration::from_millis(random.random_range(least..most));
        let (mut faults, mut begins) = (Vec::new(), Timestamp(0) + ms(300, 1500));
        let mut member = ms(0, replicas as u64).as_millis() as usize;
        while begins < ends {
            // Silent replicas are left out after two seconds at the earliest.
            let back = (begins + ms(2200, 4000)).min(ends);
            let fault = match ms(0, 4).as_millis() {
                0 => Fault::LostDisk(member),
                _ => Fault::Crash(member),
            };
            faults.push(Scheduled { begins, ends: back, fault });
            let other = (member + ms(1, replicas as u64).as_millis() as usize) % replicas;
            let restarts = back + ms(0, 600);
            if ms(0, 2).is_zero() && restarts < ends {
                let fault = Fault::Crash(other);
                faults.push(Scheduled { begins: restarts, ends: restarts + ms(1, 50), fault });
            }
            begins = back + if ms(0, 2).is_zero() { ms(1, 700) } else { ms(700, 2500) };
            member = if ms(0, 2).is_zero() { other } else { member };
        }
        faults
    }

    /// Looks at what the database holds when all faults are over: with each replica down in turn, if a majority is left,
    /// and after a power cut.
    fn look<P: Protocol<Family = Procedures>>(
        &self,
        cluster: &mut Cluster<P>,
        workload: &Arc<dyn ProcedureWorkload>,
        recorder: &Arc<CallRecorder>,
    ) -> Result<(), String> {
        let Configuration { replicas, disk, ref settings, .. } = *cluster.configuration();
        // Servers finish the calls of clients that have died. Several calls inspect the database, and find nothing
        // consistent if such a call takes effect between them.
        let finished =
            cluster.now() + 5 * Duration::from_millis(settings.recovery_after_ms) + SETTLE;
        cluster.run_until(finished);
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
            let looked = audit(cluster, workload, recorder);
            looked.map_err(|wrong| format!("{wrong}, with {down:?} down"))?;
            down.iter().for_each(|member| cluster.restart(*member));
        }
        Ok(())
    }

    /// The command that runs this trial alone.
    fn replay<P: Protocol<Family = Procedures>>(&self) -> String {
        format!(
            "{} under {}; replay with SERRIED_FIRST_SEED={} SERRIED_SEEDS=1 cargo test -p serried-protocols --test procedures",
            P::NAME,
            self.workload,
            self.seed
        )
    }
}

/// Waits until every replica has what it lacks.
fn wait_until_whole<P: Protocol<Family = Procedures>>(
    cluster: &mut Cluster<P>,
) -> Result<(), String> {
    let replicas = cluster.configuration().replicas;
    let limit = cluster.now() + LIMIT.since(Timestamp(0));
    while let Some(member) = (0..replicas).find(|member| !cluster.is_whole(*member)) {
        let now = cluster.now();
        if now >= limit {
            return Err(format!("n{member} has not caught up at {now}"));
        }
        cluster.run_until(now + Duration::from_millis(20));
    }
    Ok(())
}

/// Has a client read all lists, and inspect the database.
fn audit<P: Protocol<Family = Procedures>>(
    cluster: &mut Cluster<P>,
    workload: &Arc<dyn ProcedureWorkload>,
    recorder: &Arc<CallRecorder>,
) -> Result<(), String> {
    // Those who die are among the first half.
    let clients = cluster.configuration().clients;
    let (keyspace, found) = (cluster.keyspace(clients - 1), Arc::new(Mutex::new(None)));
    let (workload, recorder, inspected) = (workload.clone(), recorder.clone(), found.clone());
    cluster.spawn(clients - 1, async move {
        let look = async {
            // Perhaps no client has come as far.
            make_ready(&keyspace, &*workload).await.map_err(|error| error.to_string())?;
            let audited = audit_calls(&keyspace, &*workload, &recorder, clients as u64).await;
            audited.map_err(|error| error.to_string())?;
            workload.inspect(&keyspace).await.map_err(|error| error.to_string())
        };
        *inspected.lock().unwrap() = Some(look.await);
    });
    let limit = cluster.now() + LIMIT.since(Timestamp(0));
    cluster.run_until_done(limit).map_err(|stalled| stalled.to_string())?;
    let found = found.lock().unwrap().take();
    found.expect("the inspection is done").map(drop)
}

fn judge(guarantee: Guarantee, history: &CallHistory) -> Result<(), String> {
    let guarantee = match guarantee {
        Guarantee::Serializable => TransactionGuarantee::Serializable,
        _ => TransactionGuarantee::StrictlySerializable,
    };
    match check_calls(history, guarantee) {
        CallVerdict::Holds(_) => Ok(()),
        CallVerdict::Violation(violation) => Err(violation.to_string()),
        CallVerdict::Unknown { reason } => Err(format!("the checker gave up: {reason}")),
    }
}

/// Runs trials of one protocol.
struct Trials {
    workload: &'static str,
    faults: Faults,
    replicas: Option<usize>,
    /// How many trials there are, if the environment does not say.
    trials: u64,
}

impl Visitor<Procedures> for Trials {
    type Output = ();

    fn visit<P: Protocol<Family = Procedures>>(self) {
        let Trials { workload, faults, replicas, trials } = self;
        if faults == Faults::Absences && !P::KEEPS_COPIES {
            return;
        }
        let mut committed = 0;
        for seed in seeds(trials) {
            let trial = Trial { seed, workload, faults, replicas };
            let outcome = trial.run::<P>();
            if let Some(wrong) = outcome.wrong {
                panic!("{wrong}\n{}", trial.replay::<P>());
            }
            committed += outcome.committed;
        }
        let runs = seeds(trials).count() as u64;
        println!("{}, {workload}: {committed} calls in {runs} runs", P::NAME);
        assert!(committed > 10 * runs, "{}: {committed} calls in {runs} runs", P::NAME);
    }
}

fn try_all(workload: &'static str, faults: Faults) {
    let only = std::env::var("SERRIED_PROTOCOL").ok();
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let (replicas, trials) = match faults {
        Faults::Absences => (Some(3), 3),
        _ => (None, 10),
    };
    let mut wanted = promising(FamilyName::Procedures).filter(|known| is_wanted(known.name));
    let first = wanted.next().expect("SERRIED_PROTOCOL is the name of a protocol of procedures");
    for protocol in core::iter::once(first).chain(wanted) {
        visit(protocol.name, Trials { workload, faults, replicas, trials }).unwrap();
    }
}

#[test]
fn lists_keep_their_guarantee_and_everything_finishes_under_network_faults_and_pauses() {
    try_all("list-append-calls", Faults::Network);
}

#[test]
fn lists_keep_their_guarantee_and_everything_finishes_whatever_goes_wrong() {
    try_all("list-append-calls", Faults::All);
}

#[test]
fn lists_keep_their_guarantee_when_replicas_are_away_again_and_again() {
    try_all("list-append-calls", Faults::Absences);
}

#[test]
fn no_increment_is_lost_or_counted_twice_whatever_goes_wrong() {
    try_all("counter-calls", Faults::All);
}

#[test]
fn the_banks_total_is_conserved_and_no_account_is_overdrawn_under_network_faults_and_pauses() {
    try_all("bank-calls", Faults::Network);
}

#[test]
fn the_banks_total_is_conserved_and_no_account_is_overdrawn_whatever_goes_wrong() {
    try_all("bank-calls", Faults::All);
}

#[test]
fn tpcc_stays_consistent_under_network_faults_and_pauses() {
    try_all("tpcc-calls", Faults::Network);
}

#[test]
fn tpcc_stays_consistent_whatever_goes_wrong() {
    try_all("tpcc-calls", Faults::All);
}

/// The suite itself, with the simplest protocol that there is.
#[test]
fn procedures_on_one_replica_pass() {
    for workload in ["list-append-calls", "counter-calls", "bank-calls", "tpcc-calls"] {
        for faults in [Faults::Network, Faults::All] {
            Trials { workload, faults, replicas: Some(1), trials: 5 }.visit::<Rehearsal>();
        }
    }
}

#[test]
fn a_replica_that_forgets_writes_is_caught() {
    for workload in ["list-append-calls", "counter-calls", "bank-calls", "tpcc-calls"] {
        let wrong = |seed| {
            let faults = Faults::Network;
            Trial { seed, workload, faults, replicas: Some(1) }.run::<Forgetting>().wrong
        };
        let caught = (0..20).find_map(wrong);
        // A transfer that is forgotten as a whole leaves the total as it is.
        assert_eq!(caught.is_some(), workload != "bank-calls", "{workload}: {caught:?}");
    }
}

/// Janus with a deliberate mistake, or Janus-CC if the members of a partition are `alone`.
macro_rules! broken {
    ($name:ident, $mutation:ident) => {
        broken!($name, $mutation, alone, false);
    };
    ($name:ident, $mutation:ident, $members:ident, $keeps_copies:literal) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken";
            const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
            type Family = Procedures;
            const OFFERS: Offers = Offers { merged: true };
            const KEEPS_COPIES: bool = $keeps_copies;
            type Message = janus::Message;
            type Coordinator = janus::Coordinator;
            type Replica = janus::Replica;

            fn coordinator(group: Group, settings: &Settings) -> janus::Coordinator {
                janus::Coordinator::new(janus::Members::$members(group), settings)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> janus::Replica {
                let mutation = Mutated::by(janus::Mutation::$mutation);
                janus::Replica::new(id, janus::Members::$members(group), settings, mutation)
            }
        }
    };
}

broken!(JanusForgetsEdges, ForgetsEdges);
broken!(JanusIgnoresOtherServers, IgnoresOtherServers);
broken!(JanusExecutesByArrival, ExecutesByArrival);
broken!(JanusHoldsNoPlace, HoldsNoPlace);
broken!(JanusCoversByUnexecuted, CoversByUnexecuted, replicated, true);
broken!(JanusForgetsExecuted, ForgetsExecuted, replicated, true);

/// Whether the suite catches what is wrong with `P`.
fn is_caught<P: Protocol<Family = Procedures>>(workload: &'static str) -> bool {
    let caught = (0..400).find_map(|seed| {
        let trial = Trial { seed, workload, faults: Faults::Network, replicas: None };
        let ran = std::panic::catch_unwind(|| trial.run::<P>().wrong);
        let wrong = ran.unwrap_or(Some("a server panicked".to_owned()));
        wrong.filter(|wrong| !wrong.starts_with("the checker gave up")).map(|wrong| (seed, wrong))
    });
    println!("{}: {caught:?}", P::NAME);
    caught.is_some()
}

#[test]
fn a_janus_that_forgets_which_transactions_came_before_is_caught() {
    assert!(is_caught::<JanusForgetsEdges>("list-append-calls"));
}

#[test]
fn a_janus_that_does_not_wait_for_ancestors_elsewhere_is_caught() {
    assert!(is_caught::<JanusIgnoresOtherServers>("list-append-calls"));
}

#[test]
fn a_janus_that_executes_a_cycle_in_the_order_of_arrival_is_caught() {
    assert!(is_caught::<JanusExecutesByArrival>("list-append-calls"));
}

#[test]
fn a_janus_whose_transactions_lose_their_places_while_they_wait_for_outputs_is_caught() {
    assert!(is_caught::<JanusHoldsNoPlace>("bank-calls"));
}

#[test]
fn a_janus_whose_edges_cover_others_before_execution_is_caught() {
    assert!(is_caught::<JanusCoversByUnexecuted>("list-append-calls"));
}

#[test]
fn a_janus_that_forgets_what_others_have_not_executed_is_caught() {
    assert!(is_caught::<JanusForgetsExecuted>("list-append-calls"));
}

struct Twice;

impl Visitor<Procedures> for Twice {
    type Output = ();

    fn visit<P: Protocol<Family = Procedures>>(self) {
        for seed in 0..4 {
            let (workload, faults) = ("list-append-calls", Faults::All);
            let trial = Trial { seed, workload, faults, replicas: None };
            let (first, second) = (trial.run::<P>(), trial.run::<P>());
            assert_eq!(first.hash, second.hash, "{}", trial.replay::<P>());
            assert_eq!(first.history, second.history);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for protocol in promising(FamilyName::Procedures) {
        visit(protocol.name, Twice).unwrap();
    }
}

/// Declares procedures on shards of which something is missing.
macro_rules! broken_calls {
    ($name:ident, $control:ty, $mutation:ident) => {
        struct $name;

        impl Protocol for $name {
            const NAME: &'static str = stringify!($name);
            const SUMMARY: &'static str = "broken on purpose";
            const GUARANTEE: Guarantee = <$control as shard::Control>::GUARANTEE;
            type Family = Procedures;
            const OFFERS: Offers = shard::CALL_OFFERS;
            type Message = shard::Message;
            type Coordinator = shard::CallCoordinator<$control>;
            type Replica = shard::Replica<$control>;

            fn coordinator(group: Group, settings: &Settings) -> Self::Coordinator {
                let mutation = Mutated::by(shard::Mutation::$mutation);
                shard::CallCoordinator::new(group, settings, mutation)
            }

            fn replica(id: NodeId, group: Group, settings: &Settings) -> Self::Replica {
                let mutation = Mutated::by(shard::Mutation::$mutation);
                shard::Replica::running_calls(id, group, settings, mutation)
            }
        }
    };
}

broken_calls!(ProgramsWithoutReadLocks, Locking<false>, ReadsUnlocked);
broken_calls!(WaitingProgramsWithoutReadLocks, Locking<true>, ReadsUnlocked);
broken_calls!(ReExecutionKeepsWrites, Queues<false>, KeepsOldWrites);
broken_calls!(RefusalsAreNotValidated, Validation<Locks>, RefusalsUnvalidated);

/// The first of some seeds with which the checkers or a server find a mistake.
fn caught<P: Protocol<Family = Procedures>>(workload: &'static str, faults: Faults) -> Option<u64> {
    let is_wrong = |seed: &u64| {
        let trial = Trial { seed: *seed, workload, faults, replicas: None };
        // A server that panics has noticed a contradiction.
        std::panic::catch_unwind(|| trial.run::<P>().wrong).map_or(true, |wrong| wrong.is_some())
    };
    let found = (0..60).find(is_wrong);
    println!("{}, {workload}: caught by seed {found:?}", P::NAME);
    found
}

#[test]
fn programs_whose_reads_are_not_locked_are_caught() {
    assert!(caught::<ProgramsWithoutReadLocks>("list-append-calls", Faults::Network).is_some());
    let waiting = caught::<WaitingProgramsWithoutReadLocks>("list-append-calls", Faults::Network);
    assert!(waiting.is_some());
}

#[test]
fn a_re_execution_that_keeps_the_old_writes_is_caught() {
    assert!(caught::<ReExecutionKeepsWrites>("list-append-calls", Faults::All).is_some());
}

/// Two rows that are always equal, and a procedure that insists on that.
const TWINS: &str = r#"
[tables.twin]
key = { id = "int" }
columns = { value = "int" }

[procedures.bump]
inputs = { one = "int", other = "int" }

[procedures.bump.pieces.first]
rows = { twin = ["one"] }
reads = ["twin.value"]
writes.twin.value = "twin.value + 1"

[procedures.bump.pieces.second]
rows = { twin = ["other"] }
reads = ["twin.value"]
writes.twin.value = "twin.value + 1"

[procedures.compare]
inputs = { one = "int", other = "int" }
returns = { value = "second.value" }

[procedures.compare.pieces.first]
rows = { twin = ["one"] }
reads = ["twin.value"]
outputs.value = "twin.value"

[procedures.compare.pieces.second]
rows = { twin = ["other"] }
reads = ["twin.value"]
checks = [{ that = "twin.value == first.value", otherwise = "the twins differ" }]
outputs.value = "twin.value"
"#;

/// The same, and one more procedure.
fn more_than_twins() -> ProcedureSet {
    let more = r#"
[procedures.look]
inputs = { one = "int" }
returns = { value = "look.value" }

[procedures.look.pieces.look]
rows = { twin = ["one"] }
reads = ["twin.value"]
outputs.value = "twin.value"
"#;
    compile(&format!("{TWINS}{more}")).expect("it has no mistakes")
}

/// How often each client calls.
const CALLS: i64 = 40;

/// Some clients bump pairs of rows, and others compare them. Meanwhile a leader crashes, and the set of procedures is
/// replaced. Returns what is wrong.
fn run_twins<P: Protocol<Family = Procedures>>(seed: u64) -> Option<String> {
    let mut cluster = Cluster::<P>::new(Configuration {
        seed,
        partitions: 4,
        clients: 5,
        disk: Disk { keep_records: true, ..Disk::MEMORY },
        ..Configuration::default()
    });
    let [begins, ends] = [2, 30].map(|ms| Timestamp(1_000_000_000 + ms * 1_000_000));
    let fault = Fault::Crash((seed % 3) as usize);
    cluster.schedule(Scheduled { begins, ends, fault });
    let wrong: Arc<Mutex<Option<String>>> = Arc::default();
    let bumped = Arc::new(Mutex::new(0_i64));
    for client in 0..4 {
        let (twins, wrong, bumped) = (cluster.keyspace(client), wrong.clone(), bumped.clone());
        cluster.spawn(client, async move {
            let set = compile(TWINS).expect("it has no mistakes");
            // The set may be registered already, or have been replaced by the other one.
            let _ = twins.register_in_place_of(0, set).await;
            twins.sleep_until(Timestamp(1_000_000_000)).await;
            let procedure = if client < 2 { "bump" } else { "compare" };
            for _ in 0..CALLS {
                match twins.call(procedure, [Datum::Int(1), Datum::Int(2)]).await {
                    Ok(_) if client < 2 => *bumped.lock().unwrap() += 1,
                    Ok(_) => {}
                    Err(error) => drop(wrong.lock().unwrap().insert(error.to_string())),
                }
            }
        });
    }
    let (twins, failed) = (cluster.keyspace(4), wrong.clone());
    cluster.spawn(4, async move {
        twins.sleep_until(Timestamp(1_005_000_000)).await;
        if let Err(error) = twins.register(more_than_twins()).await {
            *failed.lock().unwrap() = Some(error.to_string());
        }
    });
    if let Err(stalled) = cluster.run_until_done(LIMIT) {
        return Some(stalled.to_string());
    }
    let (twins, found) = (cluster.keyspace(4), Arc::new(Mutex::new(None)));
    let look = found.clone();
    cluster.spawn(4, async move {
        let listed = twins.procedures().await.map(|registered| registered.version);
        let looked = twins.call("look", [Datum::Int(2)]).await;
        let looked = looked.map(|results| results.get("value").cloned());
        *look.lock().unwrap() = Some((listed, looked));
    });
    if let Err(stalled) = cluster.run_until_done(LIMIT) {
        return Some(stalled.to_string());
    }
    let Some((listed, looked)) = found.lock().unwrap().take() else {
        return Some("the client has not looked".to_owned());
    };
    let bumped = *bumped.lock().unwrap();
    if !matches!((&listed, &looked), (Ok(2), Ok(Some(Datum::Int(value)))) if *value == bumped) {
        let told = wrong.lock().unwrap().take();
        return Some(format!("{listed:?}, {looked:?} after {bumped} bumps; {told:?}"));
    }
    wrong.lock().unwrap().take()
}

fn twins_never_differ<P: Protocol<Family = Procedures>>() {
    for seed in seeds(10) {
        let wrong = run_twins::<P>(seed);
        assert!(wrong.is_none(), "{}, seed {seed}: {}", P::NAME, wrong.unwrap_or_default());
    }
}

#[test]
fn refusals_are_consistent_and_sets_are_replaced_under_load_and_through_fail_over() {
    twins_never_differ::<ShardedCalls<Locking<true>>>();
    twins_never_differ::<ShardedCalls<Locking<false>>>();
    twins_never_differ::<ShardedCalls<Validation<Locks>>>();
    twins_never_differ::<ShardedCalls<Queues<false>>>();
}

/// In these trials a call that loads rows was waiting for a lock while another client registered the set that follows.
#[test]
fn calls_under_a_former_set_end_before_one_under_the_next_takes_effect() {
    let trial = Trial { seed: 1036, workload: "tpcc-calls", faults: Faults::All, replicas: None };
    for trial in [trial, Trial { seed: 1086, faults: Faults::Network, ..trial }] {
        let wrong = trial.run::<ShardedCalls<Locking<true>>>().wrong;
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// In this trial a replica replayed the registration from its log, and then copied the same set from another replica.
#[test]
fn a_set_that_was_replayed_before_a_copy_is_there_after_a_restart() {
    let (workload, faults) = ("list-append-calls", Faults::All);
    let trial = Trial { seed: 3559, workload, faults, replicas: None };
    let wrong = trial.run::<ShardedCalls<Validation<Locks>>>().wrong;
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

/// In the first trial a late question left a promise at a replica, about a call that the others had settled. In the second
/// one a replica coordinated so many calls that it never came to the one for which they waited.
#[test]
fn a_call_that_nobody_has_taken_on_does_not_hold_up_others() {
    for seed in [1325, 2878] {
        let (workload, faults) = ("list-append-calls", Faults::All);
        let trial = Trial { seed, workload, faults, replicas: None };
        let wrong = trial.run::<janus::Janus>().wrong;
        assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// In this trial a replica that lagged behind learned that a call was executed alone, which others have executed on a cycle.
/// A client had asked about the call where it has no pieces, so it was void there.
#[test]
fn a_call_that_is_void_where_it_has_no_pieces_stays_on_its_cycle() {
    let (workload, faults) = ("list-append-calls", Faults::Network);
    let trial = Trial { seed: 60_004, workload, faults, replicas: None };
    let wrong = trial.run::<janus::Janus>().wrong;
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
}

#[test]
fn a_refusal_that_is_not_validated_is_caught() {
    let found = (0..20).find_map(run_twins::<RefusalsAreNotValidated>);
    assert!(found.is_some_and(|wrong| wrong.contains("the twins differ")));
}
