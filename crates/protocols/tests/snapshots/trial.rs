//! A trial: clients with sessions, and what goes wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_actor::{Protocol, Settings, Timestamp};
use serried_history::{
    Deletes, EventKind, History, Options, Recorder, Verdict, check_causal_convergent_with,
    check_process_ordered_with, check_serializable_with, check_strict_serializable_with,
};
use serried_model::snapshots::VersionClocks;
use serried_model::{Geography, Guarantee, Key, Snapshots};
use serried_session::{SnapshotError, SnapshotOptions};
use serried_sim::{Cluster, Configuration, Disk, Fault, Scheduled, Swarm};
use serried_workload::{SnapshotLoop, SnapshotMix, attribute};

use super::support;

/// For how long nothing is requested before sites are compared.
const QUIET: Duration = Duration::from_secs(10);

/// By then everything has to have finished.
const LIMIT: Timestamp = Timestamp(120_000_000_000);

#[derive(Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    /// Whether replicas crash and clients die, and not only the network fails.
    pub(crate) crashes: bool,
    /// Whether there are several sites, which are cut off from each other now and then.
    pub(crate) sites: bool,
    /// Whether one of the sites loses all its disks, and is rebuilt from the others. What its clients had written is
    /// perhaps lost, so their sessions end. In some trials the clients die, in others they begin other sessions.
    pub(crate) loses: bool,
}

/// What is different from one trial to another, besides its faults. Each is drawn for itself.
struct Choices {
    /// Where the sites are. The nearer they are, the more happens in a second.
    place: &'static str,
    replicas: usize,
    partitions: u16,
    clients: usize,
    keys: u64,
    writes: f64,
    most_read: u64,
    /// How many keys a write transaction has at most, where there are some.
    most_written: u64,
    /// Whether few keys are in memory.
    evicts: bool,
    thrifty: bool,
    elects_soon: bool,
    /// Whether clients give operations up early.
    impatient: bool,
    /// How far sessions stay behind.
    freshness: Duration,
    /// Whether sessions move from one front end to another.
    moves: bool,
    /// Whether a replica is away for long now and then.
    absences: bool,
    /// How many sites there are, if there are several.
    sites: u16,
    /// How much is kept for sites that can't be reached, if there are several.
    backlog_bytes: u64,
}

impl Choices {
    fn drawn(seed: u64) -> Choices {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let mut below = |bound: usize| random.random_range(0..bound);
        Choices {
            place: ["lan", "lan", "reg"][below(3)],
            replicas: [1, 1, 3, 3, 3, 5][below(6)],
            partitions: [1, 2, 3, 4, 4, 8][below(6)],
            clients: 3 + below(6),
            keys: [1, 2, 3, 4, 8, 16][below(6)],
            writes: [0.01, 0.1, 0.3, 0.5, 0.7][below(5)],
            most_read: [1, 2, 5, 16][below(4)],
            evicts: below(4) == 1,
            thrifty: below(5) < 2,
            elects_soon: below(6) == 5,
            impatient: below(4) == 0,
            freshness: Duration::from_micros([0, 100, 5_000, 100_000, 1_000_000_000][below(5)]),
            moves: below(3) == 0,
            absences: below(3) == 0,
            most_written: [1, 2, 4][below(3)],
            sites: [2, 3, 3][below(3)],
            backlog_bytes: [0, 500, 5_000, 64 << 20][below(4)],
        }
    }
}

/// When a site loses all its disks.
#[derive(Clone, Copy)]
struct Loss {
    site: u16,
    begins: Timestamp,
    ends: Timestamp,
}

/// What sites are lost, and what goes with it.
#[derive(Default)]
struct Losses {
    all: Vec<Loss>,
    /// Whether the clients of these sites die.
    clients_die: bool,
    /// Whether messages may arrive as late as after the site is rebuilt that has sent them.
    are_messages_late: bool,
}

impl Losses {
    /// A site is lost, and some time later perhaps once more, when it is being rebuilt, or has been and its clients have
    /// written. Or two sites are lost at the same time, or one after the other, while the first one is perhaps being
    /// rebuilt. Or each is, and the first one perhaps once more.
    fn drawn(seed: u64, sites: u16, faults_last: Duration) -> Losses {
        let random = &mut Pcg64Mcg::seed_from_u64(seed ^ 0x1055);
        let mut percent = |range| faults_last * random.random_range(range) / 100;
        let (begins, lasts, later) = (percent(10..90), percent(1..40), percent(1..40));
        let (begins, ends) = (Timestamp(0) + begins, Timestamp(0) + begins + lasts);
        let site = random.random_range(0..sites);
        let loss = Loss { site, begins, ends };
        let again = |later| Loss { begins: ends + later, ends: ends + later + lasts, ..loss };
        let next = |loss: &Loss, soon| {
            let (site, begins) = ((loss.site + 1) % sites, loss.ends + soon);
            Loss { site, begins, ends: begins + lasts }
        };
        let all = match random.random_range(0..8) {
            0 => vec![loss, again(later)],
            3 => vec![loss, again(faults_last + later)],
            1 => vec![loss, Loss { site: (site + 1) % sites, ..loss }],
            2 => vec![loss, next(&loss, later / 16)],
            4 | 5 => {
                let second = next(&loss, later / 4);
                vec![loss, second, next(&second, later / 16)]
            }
            _ => vec![loss],
        };
        Losses {
            all,
            clients_die: random.random_bool(0.5),
            are_messages_late: random.random_ratio(1, 3),
        }
    }
}

pub(crate) struct Outcome {
    pub(crate) history: History,
    pub(crate) hash: u64,
    pub(crate) wrong: Option<String>,
    /// How many writes were omitted.
    pub(crate) omitted: usize,
}

impl Trial {
    pub(crate) fn run<P: Protocol<Family = Snapshots>>(&self) -> Outcome {
        self.run_with::<P>(|_, _| Vec::new())
    }

    /// Runs it with more faults, which are told how many replicas a partition has and how long faults last.
    pub(crate) fn run_with<P: Protocol<Family = Snapshots>>(
        &self,
        more: impl Fn(usize, Duration) -> Vec<Scheduled>,
    ) -> Outcome {
        let seed = self.seed;
        let mut choices = Choices::drawn(seed);
        if self.sites {
            choices.replicas = choices.replicas.min(3);
            choices.partitions = choices.partitions.min(4);
        } else {
            choices.sites = 1;
        }
        let faults_last = Duration::from_millis(if choices.place == "lan" { 100 } else { 1000 });
        let disk = Disk {
            append: Duration::from_micros(5),
            flush: Duration::from_micros(200),
            keep_records: true,
        };
        let settings = Settings {
            resident_keys: if choices.evicts { 2 } else { 1000 },
            thrifty: choices.thrifty,
            // With several sites that are far apart, leaders would change so often that sites do not converge in time.
            election_timeout_ms: match choices.elects_soon {
                true if self.sites && choices.place != "lan" => 8,
                true => 2,
                false => 20,
            },
            site_backlog_bytes: choices.backlog_bytes,
            ..Settings::default()
        };
        let configuration = Configuration {
            seed,
            sites: choices.sites,
            replicas: choices.replicas,
            partitions: choices.partitions,
            // Each site has one more, which reads at last, and two that begin late.
            clients: choices.clients
                + match (self.sites, self.loses) {
                    (false, _) => 0,
                    (true, false) => usize::from(choices.sites),
                    (true, true) => 3 * usize::from(choices.sites),
                },
            geography: Geography::named(choices.place).unwrap(),
            disk: if self.crashes { disk } else { Disk::MEMORY },
            settings,
            hash_contents: true,
            ..Configuration::default()
        };
        let swarm = Swarm {
            lasts: faults_last,
            always: std::env::var_os("SERRIED_ALWAYS").is_some(),
            crashes: self.crashes,
            pauses: true,
            // A disk that is the only one is lost with all that it had.
            lost_disks: self.crashes && choices.replicas > 1,
            absences: self.crashes && choices.absences,
            blackouts: self.crashes && choices.absences,
            deaths: self.crashes,
            jumps: if self.crashes { faults_last } else { Duration::ZERO },
            cut_sites: true,
            ..Swarm::default()
        };
        let mut plan = swarm.plan(&configuration);
        // Those that read at last, and at whose front ends others go on, do not die.
        let dies_late = |fault: &Fault| matches!(fault, Fault::ClientDeath(client) if *client >= choices.clients);
        plan.faults.retain(|scheduled| !dies_late(&scheduled.fault));
        plan.faults.extend(more(choices.replicas, faults_last));
        let Losses { all: losses, clients_die, are_messages_late } = match self.loses {
            true => Losses::drawn(seed, choices.sites, faults_last),
            false => Losses::default(),
        };
        if are_messages_late {
            let network = &mut plan.network;
            network.extra_delay = faults_last;
            network.reordering = network.reordering.max(0.02);
            network.duplication = network.duplication.max(0.02);
        }
        let configuration = plan.apply_to(configuration);
        let clients = choices.clients;
        let mut cluster = Cluster::<P>::new(configuration);
        cluster.follow(&plan);
        let site = |client: usize| (client % usize::from(choices.sites)) as u16;
        for &Loss { site: lost, begins, ends } in &losses {
            cluster.schedule(Scheduled { begins, ends, fault: Fault::LostSite(lost) });
            for client in (0..clients).filter(|client| clients_die && site(*client) == lost) {
                cluster.schedule(Scheduled { begins, ends, fault: Fault::ClientDeath(client) });
            }
        }
        let recorder = Arc::new(Recorder::new());
        let deadline = Duration::from_millis(if choices.impatient { 30 } else { 60_000 });
        let stop = Timestamp(0) + faults_last * 2;
        let options = SnapshotOptions { deadline, freshness: choices.freshness };
        let last_readers = clients + if self.sites { usize::from(choices.sites) } else { 0 };
        for client in (0..clients).chain(last_readers..cluster.configuration().clients) {
            let is_late = client >= last_readers;
            // Others begin at the site that is lost.
            let of_site = losses.iter().filter(|loss| loss.site == site(client));
            let (begins, stop) = match of_site.map(|loss| loss.ends).max() {
                None if is_late => continue,
                Some(ends) if is_late => (ends, stop.max(ends + faults_last)),
                _ => (Timestamp(0), stop),
            };
            // A front end that knows nothing yet. Those of other clients may be dead.
            let moves = choices.moves && P::OFFERS.version_clocks != VersionClocks::None;
            // And one at each site, if there are several.
            let others = clients..last_readers;
            let front_ends = std::iter::once(client).chain(others).filter(|_| moves);
            let front_ends = front_ends.map(|client| cluster.keyspace(client)).collect();
            let early = cluster.keyspace(client);
            let client_loop = SnapshotLoop {
                session: cluster.keyspace(client).with_options(options),
                mix: SnapshotMix {
                    keys: choices.keys,
                    writes: choices.writes,
                    deletes: 0.1,
                    most_read: choices.most_read,
                    most_written: if P::OFFERS.write_transactions {
                        choices.most_written
                    } else {
                        1
                    },
                },
                recorder: recorder.clone(),
                front_ends,
                client: client as u64,
                seed,
                stop,
            };
            cluster.spawn(client, async move {
                if is_late {
                    // Its coordinator knows clocks from before the loss. Its sessions have seen nothing.
                    drop(early.read(Key::from(0u64.to_be_bytes())).await);
                    client_loop.session.sleep_until(begins).await;
                }
                client_loop.run().await;
            });
        }
        let last_reads = Arc::new(Mutex::new(Vec::new()));
        for client in clients..last_readers {
            let (keyspace, reads) = (cluster.keyspace(client), last_reads.clone());
            let keys: Vec<Key> =
                (0..choices.keys).map(|key| Key::from(key.to_be_bytes())).collect();
            cluster.spawn(client, async move {
                keyspace.sleep_until(stop + QUIET).await;
                let found = keyspace.read_only(keys).await.map_err(|error| error.to_string());
                reads.lock().unwrap().push(found);
            });
        }
        support::trace(&mut cluster);
        let stalled = cluster.run_until_done(LIMIT).err().map(|stalled| stalled.to_string());
        let hash = cluster.event_hash();
        // A site that is torn waits until it is rebuilt once more.
        let all = 0..choices.sites * choices.partitions;
        let mut members =
            all.flat_map(|partition| (0..choices.replicas).map(move |i| (partition, i)));
        let is_torn = members.any(|(partition, member)| {
            cluster.gauge(partition, member, "site_torn").is_some_and(|is_torn| is_torn > 0)
        });
        drop(cluster);
        let history = Arc::into_inner(recorder).expect("all clients are done").into_history();
        let history = attribute(history);
        let stalled = stalled.filter(|_| !is_torn);
        let wrong = stalled
            .or_else(|| falsely_refused(&history, &losses))
            .or_else(|| judge(P::GUARANTEE, &history).err());
        let last_reads = last_reads.lock().unwrap();
        let first = last_reads.iter().find(|read| read.is_ok());
        let is_wrong = |read: &&Result<_, _>| match read {
            Ok(_) => Some(*read) != first,
            Err(_) => !is_torn,
        };
        let differ = last_reads.iter().find(is_wrong);
        let differ = differ.map(|read| format!("sites differ at last: {first:?}, {read:?}"));
        let wrong = wrong.or(differ);
        let is_omitted = |event: &&serried_history::Event| {
            event.kind == EventKind::Ok
                && event.version.is_some_and(|version| version.timestamp_us % 2 == 1)
        };
        let omitted = history.events.iter().filter(is_omitted).count();
        Outcome { history, hash, wrong, omitted }
    }

    /// The command that runs this trial alone.
    pub(crate) fn replay<P: Protocol<Family = Snapshots>>(&self) -> String {
        format!(
            "{}; replay with SERRIED_PROTOCOL={} SERRIED_FIRST_SEED={} SERRIED_SEEDS=1 cargo test -p serried-protocols --test snapshots{}",
            P::NAME,
            P::NAME,
            self.seed,
            match (self.sites, self.loses) {
                (false, _) => "",
                (true, false) => " sites_keep",
                (true, true) => " is_lost",
            }
        )
    }
}

/// A session that was ended because its site was rebuilt, although it was not.
fn falsely_refused(history: &History, losses: &[Loss]) -> Option<String> {
    let refusal = |site| SnapshotError::SiteRebuilt { site }.to_string();
    let true_ones: Vec<String> = losses.iter().map(|loss| refusal(loss.site)).collect();
    let errors = history.events.iter().filter_map(|event| event.error.as_ref());
    let mut refusals = errors.filter(|error| error.contains("was rebuilt"));
    let is_false = |error: &&String| !true_ones.contains(error);
    refusals.find(is_false).map(|error| format!("it was not lost: {error}"))
}

fn judge(guarantee: Guarantee, history: &History) -> Result<(), String> {
    let options = Options { deletes: Deletes::Remembered, ..Options::default() };
    let verdict = match guarantee {
        Guarantee::Nothing => return Ok(()),
        Guarantee::Causal => check_causal_convergent_with(history, &options),
        Guarantee::Serializable => check_serializable_with(history, &options),
        Guarantee::ProcessOrdered => check_process_ordered_with(history, &options),
        Guarantee::StrictSerializable => check_strict_serializable_with(history, &options),
        Guarantee::Linearizable | Guarantee::RegularSequential => {
            return Err(format!("no checker of snapshots judges `{guarantee}`"));
        }
    };
    match verdict {
        Verdict::Holds(_) => Ok(()),
        Verdict::Violation(violation) => Err(violation.to_string()),
        Verdict::Unknown { reason } => Err(format!("the checker gave up: {reason}")),
    }
}
