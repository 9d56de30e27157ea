//! The node processes of a torture.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::damage::damage;
use super::links::Links;
use super::probe::{free_addresses, listens, serves};
use super::{TICK, Torture};

/// What a node says of damage in its log or store.
const DAMAGE: [&str; 2] = ["corrupt at offset", "the store in this directory"];
/// How long a node may take to notice that its data is damaged.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);

/// Truncation, trimming and recovery happen so often that kills meet them.
const SETTINGS: &str =
    "truncation_every_ms = 500, truncation_lag_ms = 3000, recovery_after_ms = 500";

pub(super) struct Nodes {
    program: PathBuf,
    folder: PathBuf,
    addresses: Vec<String>,
    /// The address of each node's `/healthz`.
    healths: Vec<String>,
    members: Vec<Member>,
    /// How many nodes each site has.
    of_site: usize,
    /// The links between them, if links are cut.
    links: Option<Links>,
    done: Done,
}

/// What has happened to the nodes so far.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Done {
    /// How many nodes were killed.
    pub(super) kills: u64,
    /// How often all were killed at once.
    pub(super) blackouts: u64,
    /// How many disks were lost, not counting damaged ones.
    pub(super) lost: u64,
    /// How many logs and stores were damaged.
    pub(super) damaged: u64,
    /// How often links were cut.
    pub(super) cuts: u64,
}

/// What happens to the disk of a node that is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Kept,
    Lost,
    Damaged,
}

struct Member {
    /// None while it is down.
    process: Option<Child>,
    stage: Stage,
}

/// How far a node is from taking part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It is down, and is started at this time, with its disk in this state.
    Down(Instant, Fate),
    /// It was started on damaged data, and has to end by this time.
    Refuses(Instant),
    /// It was started, and has not answered yet.
    Starts,
    /// It was started with `--rejoin`, and does not serve yet.
    Rejoins,
    TakesPart,
}

impl Nodes {
    pub(super) fn start(
        torture: &Torture,
        folder: &Path,
        random: &mut Pcg64Mcg,
    ) -> anyhow::Result<Nodes> {
        let program = std::env::current_exe().context("can't find this program's own file")?;
        let mut addresses = free_addresses(2 * torture.nodes, random)?;
        let healths = addresses.split_off(torture.nodes);
        let links = torture.cut_links.then(|| Links::start(&addresses)).transpose()?;
        for (node, address) in addresses.iter().enumerate() {
            let peers = links.as_ref().map_or_else(|| addresses.clone(), |links| links.of(node));
            let mut configuration = format!(
                "cluster = \"torture\"\nnode = {node}\nlisten = {address:?}\npeers = {peers:?}\n\
                 pin = false\ndurability = \"{}\"\n",
                torture.durability
            );
            for kind in torture.workload.kinds() {
                configuration += &format!(
                    "[[keyspace]]\nname = {:?}\nprotocol = {:?}\npartitions = {}\nsites = {}\n\
                     settings = {{ {SETTINGS}, thrifty = {} }}\n",
                    kind.name(),
                    torture.protocol_of(*kind)?,
                    torture.partitions,
                    torture.sites,
                    torture.thrifty
                );
            }
            let file = folder.join(format!("node-{node}.toml"));
            std::fs::write(&file, configuration)
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        let down = |_| Member { process: None, stage: Stage::Down(Instant::now(), Fate::Kept) };
        let members = (0..torture.nodes).map(down).collect();
        let folder = folder.to_path_buf();
        let done = Done::default();
        let of_site = torture.nodes_of_site();
        let mut nodes =
            Nodes { program, folder, addresses, healths, members, of_site, links, done };
        nodes.watch()?;
        Ok(nodes)
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What has happened to them so far.
    pub(super) fn done(&self) -> Done {
        self.done
    }

    /// Starts the nodes that have been down long enough, checks how far the others are, and mends links that were cut for long
    /// enough.
    ///
    /// # Errors
    /// If one has ended by itself, or has not although its data is damaged.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        if let Some(links) = &mut self.links {
            links.mend_until(Instant::now());
        }
        for node in 0..self.members.len() {
            let ended = match &mut self.members[node].process {
                Some(process) => process.try_wait()?,
                None => None,
            };
            let log = log(&self.folder, node);
            let stage = self.members[node].stage;
            let next = match (stage, ended) {
                (Stage::Refuses(_), Some(status)) => {
                    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
                    let names_it = text.lines().last().is_some_and(|line| {
                        let names = |what: &&str| line.contains(what);
                        DAMAGE.iter().any(names) && line.contains("--rejoin")
                    });
                    anyhow::ensure!(
                        !status.success() && names_it,
                        "node {node} ended, {status}, and did not name the damage: see {log:?}"
                    );
                    self.start_anew(node)?
                }
                (Stage::Refuses(until), None) => {
                    anyhow::ensure!(
                        Instant::now() < until,
                        "node {node} did not notice that its data is damaged: see {log:?}"
                    );
                    stage
                }
                (_, Some(status)) => {
                    anyhow::bail!("node {node} ended by itself, {status}: see {log:?}")
                }
                (Stage::Down(until, fate), None) if Instant::now() >= until => match fate {
                    Fate::Kept => {
                        self.spawn(node, &[])?;
                        Stage::Starts
                    }
                    Fate::Lost => self.start_anew(node)?,
                    Fate::Damaged => {
                        self.spawn(node, &[])?;
                        Stage::Refuses(Instant::now() + NOTICED_WITHIN)
                    }
                },
                (Stage::Starts, None) if listens(&self.addresses[node]) => Stage::TakesPart,
                (Stage::Rejoins, None) if serves(&self.healths[node]) => Stage::TakesPart,
                _ => stage,
            };
            self.members[node].stage = next;
        }
        Ok(())
    }

    /// Starts a node on an empty directory, with `--rejoin`.
    fn start_anew(&mut self, node: usize) -> anyhow::Result<Stage> {
        let data = self.data(node);
        match std::fs::remove_dir_all(&data) {
            // It was killed before it had made one.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.with_context(|| format!("can't remove {}", data.display()))?,
        }
        self.spawn(node, &["--rejoin"])?;
        Ok(Stage::Rejoins)
    }

    fn spawn(&mut self, node: usize, more: &[&str]) -> anyhow::Result<()> {
        let log = log(&self.folder, node);
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("can't write {}", log.display()))?;
        let mut command =
            crate::serve::child(&self.program, &self.folder.join(format!("node-{node}.toml")));
        command.args(more);
        command.arg("--data").arg(self.data(node));
        command.arg("--metrics").arg(&self.healths[node]);
        command.stderr(log);
        self.members[node].process = Some(command.spawn().context("can't start a node")?);
        Ok(())
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }

    fn kill(&mut self, node: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.members[node].process.take() {
            process.kill().with_context(|| format!("can't kill node {node}"))?;
            process.wait()?;
            self.done.kills += 1;
        }
        Ok(())
    }

    /// Kills a node that takes part, unless no majority of its site would be left. The only node of a site may be
    /// killed: the site is down then, and the others are not. It stays down for `down_for`, and `fate` happens to its
    /// disk.
    pub(super) fn kill_one(
        &mut self,
        fate: Fate,
        random: &mut Pcg64Mcg,
        down_for: Duration,
    ) -> anyhow::Result<()> {
        let victim = random.random_range(0..self.members.len());
        let first = victim / self.of_site * self.of_site;
        let site = &self.members[first..first + self.of_site];
        let gone = site.iter().filter(|member| member.stage != Stage::TakesPart).count();
        let most = ((self.of_site - 1) / 2).max(1);
        if gone >= most || self.members[victim].stage != Stage::TakesPart {
            return Ok(());
        }
        self.kill(victim)?;
        let fate = match fate {
            Fate::Kept => Fate::Kept,
            Fate::Lost => {
                self.done.lost += 1;
                Fate::Lost
            }
            Fate::Damaged => match damage(&self.data(victim), random)? {
                Some(done) => {
                    println!("node {victim}: {done}");
                    self.done.damaged += 1;
                    Fate::Damaged
                }
                None => Fate::Kept,
            },
        };
        self.members[victim].stage = Stage::Down(Instant::now() + down_for, fate);
        Ok(())
    }

    /// Kills all running nodes at once, unless some have not come back since the last time. They stay down for `down_for`.
    /// Nodes that were about to lose or have lost data keep that fate.
    pub(super) fn kill_all(&mut self, down_for: Duration) -> anyhow::Result<()> {
        let comes_back =
            |member: &Member| matches!(member.stage, Stage::Starts | Stage::Down(_, Fate::Kept));
        if self.members.iter().any(comes_back) {
            return Ok(());
        }
        self.done.blackouts += 1;
        let until = Instant::now() + down_for;
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            process.kill().context("can't kill a node")?;
        }
        for node in 0..self.members.len() {
            self.kill(node)?;
            self.members[node].stage = match self.members[node].stage {
                Stage::Down(_, fate) => Stage::Down(until, fate),
                Stage::Refuses(_) => Stage::Down(until, Fate::Damaged),
                // It may have been killed before it noted that it rejoins.
                Stage::Rejoins => Stage::Down(until, Fate::Lost),
                Stage::Starts | Stage::TakesPart => Stage::Down(until, Fate::Kept),
            };
        }
        Ok(())
    }

    /// Cuts links between nodes for this long, if there are any that can be cut.
    pub(super) fn cut_links(&mut self, random: &mut Pcg64Mcg, lasts: Duration) {
        if let Some(links) = &mut self.links {
            links.cut(random, self.of_site, Instant::now() + lasts);
            self.done.cuts += 1;
        }
    }

    /// Mends all links, starts all nodes that are down, and waits until all take part.
    pub(super) fn heal(&mut self, within: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + within;
        if let Some(links) = &mut self.links {
            links.mend_all();
        }
        for member in &mut self.members {
            if let Stage::Down(until, _) = &mut member.stage {
                *until = Instant::now();
            }
        }
        loop {
            self.watch()?;
            let missing = |member: &Member| member.stage != Stage::TakesPart;
            let Some(node) = self.members.iter().position(missing) else { return Ok(()) };
            let log = log(&self.folder, node);
            anyhow::ensure!(
                Instant::now() < until,
                "node {node} does not take part {} s after it was started ({:?}): see {log:?}",
                within.as_secs(),
                self.members[node].stage
            );
            std::thread::sleep(TICK);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn log(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("node-{node}.log"))
}
