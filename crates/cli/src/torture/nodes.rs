//! The node processes of a torture.

use std::fs::OpenOptions;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::{TICK, Torture};

/// Ports below those that the system gives to outgoing connections: one of theirs could be taken while
/// its node is down.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Truncation, trimming and recovery happen so often that kills meet them.
const SETTINGS: &str =
    "truncation_every_ms = 500, truncation_lag_ms = 3000, recovery_after_ms = 500";

pub(super) struct Nodes {
    program: PathBuf,
    folder: PathBuf,
    addresses: Vec<String>,
    members: Vec<Member>,
    kills: u64,
}

struct Member {
    /// None while it is down.
    process: Option<Child>,
    /// Whether it has answered since it was started.
    listens: bool,
    down_until: Instant,
}

impl Nodes {
    pub(super) fn start(
        torture: &Torture,
        folder: &Path,
        random: &mut Pcg64Mcg,
    ) -> anyhow::Result<Nodes> {
        let program = std::env::current_exe().context("can't find this program's own file")?;
        let addresses = free_addresses(torture.nodes, random)?;
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
        let down = |_| Member { process: None, listens: false, down_until: Instant::now() };
        let members = (0..torture.nodes).map(down).collect();
        let folder = folder.to_path_buf();
        let mut nodes = Nodes { program, folder, addresses, members, kills: 0 };
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

    /// Starts those that have been down long enough.
    ///
    /// # Errors
    /// If one has ended by itself.
    pub(super) fn watch(&mut self) -> anyhow::Result<()> {
        for node in 0..self.members.len() {
            let member = &mut self.members[node];
            match &mut member.process {
                None if Instant::now() >= member.down_until => {
                    member.process = Some(spawn(&self.program, &self.folder, node)?);
                }
                None => {}
                Some(process) => {
                    if let Some(status) = process.try_wait()? {
                        let log = log(&self.folder, node);
                        anyhow::bail!("node {node} ended by itself, {status}: see {log:?}");
                    }
                    member.listens = member.listens || listens(&self.addresses[node]);
                }
            }
        }
        Ok(())
    }

    /// Kills one that serves, unless that would be one too many; it stays down for so long.
    pub(super) fn kill_one(
        &mut self,
        random: &mut Pcg64Mcg,
        down_for: Duration,
    ) -> anyhow::Result<()> {
        let down = self.members.iter().filter(|member| !member.listens).count();
        let victim = random.random_range(0..self.members.len());
        let member = &mut self.members[victim];
        if down >= (self.addresses.len() - 1) / 2 || !member.listens {
            return Ok(());
        }
        if let Some(mut process) = member.process.take() {
            process.kill().with_context(|| format!("can't kill node {victim}"))?;
            process.wait()?;
        }
        *member = Member { process: None, listens: false, down_until: Instant::now() + down_for };
        self.kills += 1;
        Ok(())
    }

    /// Starts all that are down, and waits until all listen.
    pub(super) fn heal(&mut self, within: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + within;
        self.members.iter_mut().for_each(|member| member.down_until = Instant::now());
        loop {
            self.watch()?;
            let Some(down) = self.members.iter().position(|member| !member.listens) else {
                return Ok(());
            };
            let log = log(&self.folder, down);
            anyhow::ensure!(
                Instant::now() < until,
                "node {down} does not serve {} s after it was started: see {log:?}",
                within.as_secs()
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

fn spawn(program: &Path, folder: &Path, node: usize) -> anyhow::Result<Child> {
    let log = log(folder, node);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("can't write {}", log.display()))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--quiet");
    command.arg("--config").arg(folder.join(format!("node-{node}.toml")));
    command.arg("--data").arg(folder.join(format!("node-{node}")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("can't start a node")
}

fn log(folder: &Path, node: usize) -> PathBuf {
    folder.join(format!("node-{node}.log"))
}

fn listens(address: &str) -> bool {
    let address = address.parse::<SocketAddr>();
    address.is_ok_and(|address| TcpStream::connect_timeout(&address, TICK).is_ok())
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
