//! The node processes of a torture.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::damage::damage;
use super::{TICK, Torture};

/// Ports below those that the system gives to outgoing connections: one of theirs could be taken while
/// its node is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// What a node says of damage in its log or store.
const DAMAGE: [&str; 2] = ["corrupt at offset", "the store in this directory"];
/// How long a node may take to notice that its data is damaged.
const NOTICED_WITHIN: Duration = Duration::from_secs(20);
/// How long a node may take to answer about its health.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

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
    kills: u64,
    lost: u64,
    damaged: u64,
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
        for (node, address) in addresses.iter().enumerate() {
            let mut configuration = format!(
                "cluster = \"torture\"\nnode = {node}\nlisten = {address:?}\npeers = {addresses:?}\n\
                 pin = false\ndurability = \"{}\"\n",
                torture.durability
            );
            for kind in torture.workload.kinds() {
                configuration += &format!(
                    "[[keyspace]]\nname = {:?}\nprotocol = {:?}\npartitions = {}\n\
                     settings = {{ {SETTINGS}, thrifty = {} }}\n",
                    kind.name(),
                    torture.protocol_of(*kind)?,
                    torture.partitions,
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
        let mut nodes =
            Nodes { program, folder, addresses, healths, members, kills: 0, lost: 0, damaged: 0 };
        nodes.watch()?;
        Ok(nodes)
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// How many were killed so far.
    pub(super) fn kills(&self) -> u64 {
        self.kills
    }

    /// How many disks were lost so far, not counting damaged ones.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// How many logs and stores were damaged so far.
    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Starts the nodes that have been down long enough, and checks how far the others are.
    ///
    /// # Errors
    /// If one has ended by itself, or has not although its data is damaged.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
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
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--quiet").args(more);
        command.arg("--config").arg(self.folder.join(format!("node-{node}.toml")));
        command.arg("--data").arg(self.data(node));
        command.arg("--metrics").arg(&self.healths[node]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
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
            self.kills += 1;
        }
        Ok(())
    }

    /// Kills a node that takes part, unless no majority would be left. It stays down for `down_for`, and `fate` happens to its
    /// disk.
    pub(super) fn kill_one(
        &mut self,
        fate: Fate,
        random: &mut Pcg64Mcg,
        down_for: Duration,
    ) -> anyhow::Result<()> {
        let gone = self.members.iter().filter(|member| member.stage != Stage::TakesPart).count();
        let victim = random.random_range(0..self.members.len());
        if gone >= (self.addresses.len() - 1) / 2 || self.members[victim].stage != Stage::TakesPart
        {
            return Ok(());
        }
        self.kill(victim)?;
        let fate = match fate {
            Fate::Kept => Fate::Kept,
            Fate::Lost => {
                self.lost += 1;
                Fate::Lost
            }
            Fate::Damaged => match damage(&self.data(victim), random)? {
                Some(done) => {
                    println!("node {victim}: {done}");
                    self.damaged += 1;
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

    /// Starts all nodes that are down, and waits until all take part.
    pub(super) fn heal(&mut self, within: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + within;
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

fn listens(address: &str) -> bool {
    let address = address.parse::<SocketAddr>();
    address.is_ok_and(|address| TcpStream::connect_timeout(&address, TICK).is_ok())
}

/// Whether a node's `/healthz` says that it serves.
fn serves(health: &str) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(health)?;
        stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

fn free_addresses(count: usize, random: &mut Pcg64Mcg) -> anyhow::Result<Vec<String>> {
    // Those of runs at the same time with the same seed differ too.
    let offset = std::process::id() as u16;
    let mut listeners = Vec::new();
    for _ in 0..1000 {
        let drawn = random.random_range(PORTS).wrapping_add(offset);
        let port = PORTS.start + drawn % (PORTS.end - PORTS.start);
        // All are held until all are found, so that they differ.
        listeners.extend(TcpListener::bind(("127.0.0.1", port)));
        if listeners.len() == count {
            let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
            return listeners.iter().map(address).collect();
        }
    }
    anyhow::bail!("there are no {count} free ports on 127.0.0.1")
}
