//! One trial: a workload in a simulated cluster with the faults of a seed, and what is checked at its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_history::{CallHistory, CallRecorder, CallVerdict, TransactionGuarantee, check_calls};
use serried_model::{Geography, Guarantee};
use serried_procedures::Procedures;
use serried_session::CallOptions;
use serried_sim::{Cluster, Configuration, Disk, Fault, Plan, Scheduled, Swarm};
use serried_workload::{
    CallClient, Inquiries, Measurement, ProcedureParameters, ProcedureWorkload, Window,
    audit_calls, make_ready, named_procedures,
};

use crate::support;

/// By then everything has to have finished.
pub(crate) const LIMIT: Timestamp = Timestamp(120_000_000_000);

/// How long servers have for the calls of dead clients when all is up again, beside some recoveries.
const SETTLE: Duration = Duration::from_secs(2);

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// The network, pauses and skew.
    Network,
    /// Everything: replicas crash and lose disks, clients die, clocks jump.
    All,
    /// One replica after the other is away for so long that others forget what it lacks. Some are away again while they
    /// copy it, or soon after, and some sources of copies restart.
    Absences,
}

#[derive(Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    pub(crate) workload: &'static str,
    pub(crate) faults: Faults,
    /// How many replicas there are, if not now these, now those. A protocol that keeps no copies has one.
    pub(crate) replicas: Option<usize>,
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

pub(crate) struct Outcome {
    pub(crate) history: CallHistory,
    pub(crate) hash: u64,
    pub(crate) committed: u64,
    pub(crate) wrong: Option<String>,
}

impl Trial {
    pub(crate) fn run<P: Protocol<Family = Procedures>>(&self) -> Outcome {
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
            outcomes_ms: if absences {
                300
            } else if all && choices.forgets {
                lasts / 5
            } else {
                30_000
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
    pub(crate) fn replay<P: Protocol<Family = Procedures>>(&self) -> String {
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
