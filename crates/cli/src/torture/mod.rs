//! `serried torture`: kills real processes at random, and checks that nothing acknowledged is lost.

mod call_verdict;
mod calls;
mod client;
mod clients;
mod damage;
mod links;
mod lists;
mod nodes;
mod probe;
mod registers;
mod settling;
mod snapshots;
mod timeline;
mod verdict;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_model::FamilyName;
use serried_node::Durability;

use crate::Ended;
use crate::arguments::{check_sites, partitions, protocols, sites};
use crate::misuse::{MOST_SECONDS, Misuse, number};
use crate::wing::{Wing, promises_nothing, with_wing};
pub(crate) use client::TortureClient;
use clients::Clients;
use nodes::{Done, Fate, Nodes};

/// How often the processes are looked at.
const TICK: Duration = Duration::from_millis(20);
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How long the cluster may take to heal once nothing is killed any more.
const HEAL_WITHIN: Duration = Duration::from_secs(60);
/// How much longer it goes on at most until each kind of fault that was asked for has happened.
const LONGER_FOR_ALL_FAULTS: Duration = Duration::from_secs(120);
/// Links are cut for this many times the time for which nodes are down: partly longer than it takes to give up a silent
/// connection, partly shorter.
const LONG_CUTS: u32 = 4;

/// The most client processes of a workload.
const MOST_PROCESSES: usize = 256;
/// The longest time between two kills: an hour.
const MOST_KILL_WITHIN_MS: u64 = 3_600_000;

/// Kill nodes and clients at random, and check that nothing acknowledged is lost.
///
/// It starts a cluster of node processes on free ports of loopback, and client processes that record what they do.
/// It kills clients, and nodes, never more at a time than the cluster survives, with SIGKILL, and starts them again. On
/// request it also kills all nodes at once, deletes nodes' data, damages the ends of logs and stores, and cuts links
/// between nodes. A node whose data was deleted or damaged counts as failed until it has rejoined. At the end it
/// restarts everything, reads all data, and checks the history of all clients together against what the protocol
/// promises. Every acknowledged append must be in the lists, and the bank's total must be unchanged. The last reads of
/// registers are part of their history. Of calls of procedures, each acknowledged one must have taken effect exactly
/// once; how calls of unknown outcome ended is asked for.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried torture --seconds 600
  serried torture --seconds 600 --protocol ncc --workload bank
  serried torture --seconds 60 --nodes 5 --durability buffered --workload list-append --seed 7
  serried torture --seconds 600 --workload register --thrifty
  serried torture --seconds 600 --workload calls --protocol rococo
  serried torture --seconds 600 --workload snapshot --protocol port
  serried torture --seconds 600 --workload snapshot --protocol eiger --sites 3 --nodes 9 --cut-links
  serried torture --seconds 600 --all-at-once --lose-disks --damage --cut-links")]
pub(crate) struct Torture {
    /// How long to go on killing, in seconds, and up to two minutes longer until each kind of fault that was asked for has
    /// happened
    #[arg(long, default_value_t = 60, value_parser = number(0..=MOST_SECONDS as u64))]
    seconds: u64,
    /// How many nodes there are: an odd number from 3, or with --sites an odd number for each site
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// How many sites each keyspace has, among which the nodes are divided; there are clients at each of them
    #[arg(long, default_value_t = 1, value_parser = sites())]
    sites: u16,
    /// How many partitions each keyspace has
    #[arg(long, default_value_t = 2, value_parser = partitions())]
    partitions: u16,
    /// When a commit counts as durable: sync or buffered
    #[arg(long, default_value = "sync")]
    durability: Durability,
    /// What clients do
    #[arg(long, value_enum, default_value = "both")]
    workload: Choice,
    /// The protocol of the keyspaces [default: morty; for register the first that has read-modify-writes;
    /// for calls the first of procedures]
    #[arg(long, value_parser = protocols())]
    protocol: Option<String>,
    /// For register: send requests to no more replicas than a quorum, and to the others only if one of
    /// these is slow
    #[arg(long)]
    thrifty: bool,
    /// How many client processes each workload has
    #[arg(long, default_value_t = 2, value_parser = number(1..=MOST_PROCESSES))]
    clients: usize,
    /// The longest time between two kills, in milliseconds; the shortest is a tenth of it
    #[arg(long, default_value_t = 3000, value_parser = number(1..=MOST_KILL_WITHIN_MS))]
    kill_within_ms: u64,
    /// Now and then, kill all nodes at once
    #[arg(long)]
    all_at_once: bool,
    /// Now and then, delete the data of a node that was killed; it comes back with --rejoin
    #[arg(long)]
    lose_disks: bool,
    /// Now and then, damage the data of a node that was killed: flip a bit in the last acknowledged batch of a log, or at
    /// the end of a store's journal, or cut it off. The node must notice that, and comes back with --rejoin
    #[arg(long)]
    damage: bool,
    /// Now and then, cut the links of a node to one other or to all others, or those of a site to the other sites, for
    /// up to four times the longest time between two kills, without closing the connections
    #[arg(long)]
    cut_links: bool,
    /// The directory for data, logs and histories [default: a temporary one, removed if nothing is wrong]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// The seed: determines what is killed when, and what clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    Bank,
    ListAppend,
    /// bank and list-append
    Both,
    Register,
    BankCalls,
    CounterCalls,
    ListAppendCalls,
    /// bank-calls, counter-calls and list-append-calls
    Calls,
    Snapshot,
}

/// What happens to the processes and their links.
#[derive(Clone, Copy, Debug)]
enum Event {
    KillClient,
    KillNode(Fate),
    KillAll,
    CutLinks,
}

/// A workload with a check of what was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kind {
    Bank,
    ListAppend,
    Register,
    BankCalls,
    CounterCalls,
    ListAppendCalls,
    Snapshot,
}

impl Kind {
    /// The workload's name, which its keyspace has as well.
    fn name(self) -> &'static str {
        match self {
            Kind::Bank => "bank",
            Kind::ListAppend => "list-append",
            Kind::Register => "register",
            Kind::BankCalls => "bank-calls",
            Kind::CounterCalls => "counter-calls",
            Kind::ListAppendCalls => "list-append-calls",
            Kind::Snapshot => "snapshot",
        }
    }

    /// The family of its keyspace.
    pub(super) fn family(self) -> FamilyName {
        match self {
            Kind::Bank | Kind::ListAppend => FamilyName::Transactions,
            Kind::Register => FamilyName::Registers,
            Kind::BankCalls | Kind::CounterCalls | Kind::ListAppendCalls => FamilyName::Procedures,
            Kind::Snapshot => FamilyName::Snapshots,
        }
    }
}

impl Choice {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Choice::Bank => &[Kind::Bank],
            Choice::ListAppend => &[Kind::ListAppend],
            Choice::Both => &[Kind::Bank, Kind::ListAppend],
            Choice::Register => &[Kind::Register],
            Choice::BankCalls => &[Kind::BankCalls],
            Choice::CounterCalls => &[Kind::CounterCalls],
            Choice::ListAppendCalls => &[Kind::ListAppendCalls],
            Choice::Calls => &[Kind::BankCalls, Kind::CounterCalls, Kind::ListAppendCalls],
            Choice::Snapshot => &[Kind::Snapshot],
        }
    }
}

impl Choice {
    /// What is counted at the end.
    fn done(self) -> &'static str {
        match self {
            Choice::Bank | Choice::ListAppend | Choice::Both => "transactions committed",
            Choice::Register => "operations done",
            Choice::Snapshot => "requests done",
            Choice::BankCalls | Choice::CounterCalls | Choice::ListAppendCalls | Choice::Calls => {
                "calls done"
            }
        }
    }
}

impl Torture {
    /// How many nodes each site has.
    fn nodes_of_site(&self) -> usize {
        self.nodes / usize::from(self.sites)
    }

    /// The protocol of a workload's keyspace.
    fn protocol_of(&self, kind: Kind) -> anyhow::Result<&str> {
        let family = kind.family();
        if let Some(protocol) = self.protocol.as_deref() {
            let fits = serried_protocols::info(protocol).is_some_and(|info| info.family == family);
            demand!(
                fits,
                "`{}` is a workload of {family}, and `{protocol}` has none: choose another --protocol or --workload",
                kind.name()
            );
            demand!(
                !promises_nothing(protocol),
                "`{protocol}` promises nothing that could be broken: choose another --protocol"
            );
            return Ok(protocol);
        }
        let usual = with_wing!(family, W => W::usual_protocol());
        usual.with_context(|| {
            format!("no protocol of {family} has all operations: choose a --protocol")
        })
    }

    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let (nodes, sites) = (self.nodes, usize::from(self.sites));
        demand!(
            sites > 1 || nodes >= 3 && !nodes.is_multiple_of(2),
            "--nodes {nodes} survives no kill: choose an odd number from 3"
        );
        demand!(
            nodes >= sites && nodes.is_multiple_of(sites),
            "--nodes {nodes} can't be divided among {sites} sites: choose as many --nodes for each"
        );
        let each = self.nodes_of_site();
        demand!(
            each > 1 || !(self.lose_disks || self.damage),
            "--nodes {nodes}: if a site has one node, nothing has what its disk loses: choose 3 for each of the {sites} \
             sites, or neither --lose-disks nor --damage"
        );
        for kind in self.workload.kinds() {
            let checked = kind.family().check_replicas(each);
            checked.map_err(|reason| Misuse(format!("--nodes {nodes}: {reason}")))?;
            check_sites(self.protocol_of(*kind)?, self.sites, each)?;
        }
        demand!(
            self.durability != Durability::Memory,
            "--durability memory survives no kill: choose sync or buffered"
        );
        let usual = || std::env::temp_dir().join(format!("serried-torture-{}", std::process::id()));
        let folder = self.data.clone().unwrap_or_else(usual);
        let made = std::fs::create_dir_all(&folder);
        made.with_context(|| format!("can't make {}", folder.display()))?;
        let occupied = folder.read_dir().is_ok_and(|mut entries| entries.next().is_some());
        anyhow::ensure!(!occupied, "{} is not empty: choose another --data", folder.display());
        let ended = self.torture(&folder);
        if self.data.is_none() && matches!(ended, Ok(Ended::Well)) {
            let _ = std::fs::remove_dir_all(&folder);
        } else {
            println!("data, logs and histories are in {}", folder.display());
        }
        ended
    }

    fn torture(&self, folder: &Path) -> anyhow::Result<Ended> {
        let begun = Instant::now();
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let kinds = self.workload.kinds();
        let mut nodes = Nodes::start(self, folder, &mut random)?;
        nodes.heal(HEAL_WITHIN)?;
        let mut clients = Clients::start(self, folder, nodes.addresses())?;
        self.kill(&mut nodes, &mut clients, &mut random)?;
        nodes.heal(HEAL_WITHIN)?;
        clients.stop(HEAL_WITHIN)?;
        nodes.watch()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut ended = Ended::Well;
        let mut texts = Vec::new();
        if self.sites > 1 {
            runtime.block_on(verdict::all_sites_have_all(nodes.addresses(), HEAL_WITHIN))?;
        }
        for kind in kinds {
            let histories = clients.histories(*kind);
            let judged =
                verdict::judge(*kind, (nodes.addresses(), self.sites), &histories, HEAL_WITHIN);
            let (kind_ended, text) = runtime.block_on(judged)?;
            texts.push(format!("{}: {text}", kind.name()));
            ended = ended.and(kind_ended);
        }
        runtime.block_on(verdict::all_serve(nodes.addresses(), HEAL_WITHIN))?;
        nodes.watch()?;
        let done = nodes.done();
        println!(
            "{} s, {} nodes killed, {} disks lost, {} damaged, links cut {} times, {} clients killed, {} {}, {} unknown",
            begun.elapsed().as_secs(),
            done.kills,
            done.lost,
            done.damaged,
            done.cuts,
            clients.kills(),
            clients.progress()?.committed,
            self.workload.done(),
            clients.progress()?.unknown(),
        );
        texts.iter().for_each(|text| println!("{text}"));
        println!(
            "{}",
            match ended {
                Ended::Well => "nothing acknowledged is lost, and all nodes serve",
                _ => "FAILED",
            }
        );
        Ok(ended)
    }

    /// What happens next.
    fn draw(&self, random: &mut Pcg64Mcg) -> Event {
        match random.random_range(0..6) {
            0 | 1 => Event::KillClient,
            2 if self.all_at_once => Event::KillAll,
            3 if self.cut_links => Event::CutLinks,
            _ => Event::KillNode(match random.random_range(0..3) {
                0 if self.lose_disks => Fate::Lost,
                1 if self.damage => Fate::Damaged,
                _ => Fate::Kept,
            }),
        }
    }

    /// Something that was asked for, and has not happened yet.
    fn missing(&self, done: Done) -> Option<Event> {
        let events = [
            (done.kills == 0, Event::KillNode(Fate::Kept)),
            (self.all_at_once && done.blackouts == 0, Event::KillAll),
            (self.lose_disks && done.lost == 0, Event::KillNode(Fate::Lost)),
            (self.damage && done.damaged == 0, Event::KillNode(Fate::Damaged)),
            (self.cut_links && done.cuts == 0, Event::CutLinks),
        ];
        events.into_iter().find_map(|(is_missing, event)| is_missing.then_some(event))
    }

    /// Kills nodes and clients until the time is up and each kind of fault that was asked for has happened.
    fn kill(
        &self,
        nodes: &mut Nodes,
        clients: &mut Clients,
        random: &mut Pcg64Mcg,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        let until = begun + Duration::from_secs(self.seconds);
        let pause = |random: &mut Pcg64Mcg| {
            let least = (self.kill_within_ms / 10).max(1);
            Duration::from_millis(random.random_range(least..=self.kill_within_ms.max(least)))
        };
        let mut next_kill = begun + pause(random);
        let mut next_progress = begun + PROGRESS_EVERY;
        let latest = until + LONGER_FOR_ALL_FAULTS;
        while Instant::now() < until
            || (Instant::now() < latest && self.missing(nodes.done()).is_some())
        {
            std::thread::sleep(TICK);
            nodes.watch()?;
            clients.watch()?;
            let now = Instant::now();
            if now >= next_kill {
                let down_for = pause(random);
                let overdue = if now < until { None } else { self.missing(nodes.done()) };
                match overdue.unwrap_or_else(|| self.draw(random)) {
                    Event::KillClient => clients.kill_one(random)?,
                    Event::KillAll => nodes.kill_all(down_for)?,
                    Event::CutLinks => nodes.cut_links(random, LONG_CUTS * down_for),
                    Event::KillNode(fate) => nodes.kill_one(fate, random, down_for)?,
                }
                next_kill = now + pause(random);
            }
            if now >= next_progress {
                let progress = clients.progress()?;
                println!(
                    "{} s: {} nodes killed, {} clients killed, {} {}",
                    begun.elapsed().as_secs(),
                    nodes.done().kills,
                    clients.kills(),
                    progress.committed,
                    self.workload.done(),
                );
                next_progress = now + PROGRESS_EVERY;
            }
        }
        Ok(())
    }
}
