//! The cluster that a benchmark runs on: its own, as threads or processes, or one that is there.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serried::{ConnectOptions, Database};
use serried_actor::Settings;
use serried_local::{LocalCluster, LocalOptions};
use serried_model::{Geography, Limits};
use serried_node::{Durability, KeyspaceConfiguration, NodeConfiguration, NodeDisks, Start};

/// The keyspace of clusters that are started for a benchmark.
pub(crate) const KEYSPACE: &str = "benchmark";
/// How long node processes may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// What a cluster that is started for a benchmark is like.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// How many nodes there are at all sites together.
    pub(crate) nodes: usize,
    /// How many sites the keyspace has.
    pub(crate) sites: u16,
    pub(crate) protocol: &'a str,
    pub(crate) partitions: u16,
    pub(crate) settings: Settings,
    pub(crate) geography: Option<&'a str>,
    pub(crate) durability: Durability,
    /// How large keys, values and transactions may be.
    pub(crate) limits: Limits,
    /// Where nodes keep their data. `None` is a temporary folder.
    pub(crate) data: Option<&'a Path>,
}

impl Plan<'_> {
    /// The disks of nodes on threads, if they keep anything.
    fn disks(&self, keyspaces: &[KeyspaceConfiguration]) -> anyhow::Result<Disks> {
        let mut disks = Disks { nodes: Vec::new(), _folder: None };
        if self.durability == Durability::Memory {
            return Ok(disks);
        }
        let folder = match self.data {
            Some(folder) => folder.to_path_buf(),
            None => disks._folder.insert(Folder::new()?).0.clone(),
        };
        for node in 0..self.nodes {
            let configuration = NodeConfiguration {
                keyspaces: keyspaces.to_vec(),
                durability: self.durability,
                ..NodeConfiguration::new(node, vec![String::new(); self.nodes])
            };
            let path = folder.join(format!("node-{node}"));
            disks.nodes.push(Arc::new(NodeDisks::open(path, &configuration, Start::Usual)?));
        }
        Ok(disks)
    }
}

/// The nodes' disks, and their folder if it is removed with them.
struct Disks {
    nodes: Vec<Arc<dyn serried_node::Disks>>,
    _folder: Option<Folder>,
}

/// A temporary folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("serried-bench-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("can't make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster to run on. Dropped, those that were started for it stop.
pub(crate) enum Cluster {
    /// Nodes in this process, each on a thread of its own.
    Threads { cluster: LocalCluster, _folder: Option<Folder> },
    /// Nodes in processes of their own.
    Processes { nodes: Vec<Child>, addresses: Vec<String>, folder: Folder },
    /// One that was not started here.
    Existing { address: String, keyspace: String },
}

impl Cluster {
    /// Starts nodes on threads of this process.
    pub(crate) fn threads(plan: &Plan<'_>) -> anyhow::Result<Cluster> {
        let keyspace = KeyspaceConfiguration::new(KEYSPACE, plan.protocol);
        let keyspace = keyspace.with_partitions(plan.partitions).with_sites(plan.sites);
        let keyspaces = [KeyspaceConfiguration { settings: plan.settings, ..keyspace }];
        let geography = plan.geography.map(str::to_string);
        let Disks { nodes: disks, _folder } = plan.disks(&keyspaces)?;
        let Plan { durability, limits, .. } = *plan;
        let options =
            LocalOptions { geography, durability, disks, limits, ..LocalOptions::default() };
        let cluster = LocalCluster::start(plan.nodes, &keyspaces, options)?;
        Ok(Cluster::Threads { cluster, _folder })
    }

    /// Starts nodes as processes.
    pub(crate) fn processes(plan: &Plan<'_>) -> anyhow::Result<Cluster> {
        let Plan { nodes, sites, protocol, partitions, settings, .. } = *plan;
        let Plan { geography, durability, limits, data, .. } = *plan;
        let limits = toml::Value::try_from(limits).context("limits are a table")?;
        let settings = toml::Value::try_from(settings).context("settings are a table")?;
        let addresses = (0..nodes).map(|_| Ok(free_address()?.to_string()));
        let addresses: Vec<String> = addresses.collect::<anyhow::Result<_>>()?;
        let folder = Folder::new()?;
        let program = std::env::current_exe().context("can't find this program's own file")?;
        let mut cluster =
            Cluster::Processes { nodes: Vec::new(), addresses: addresses.clone(), folder };
        let Cluster::Processes { nodes: children, folder, .. } = &mut cluster else {
            unreachable!("it was made as that")
        };
        for (node, address) in addresses.iter().enumerate() {
            let geography =
                geography.map_or(String::new(), |name| format!("geography = {name:?}\n"));
            let configuration = format!(
                "node = {node}\nlisten = {address:?}\npeers = {addresses:?}\n{geography}\
                 pin = false\ndurability = \"{durability}\"\nlimits = {limits}\n\
                 [[keyspace]]\nname = {KEYSPACE:?}\nprotocol = {protocol:?}\n\
                 partitions = {partitions}\nsites = {sites}\nsettings = {settings}\n"
            );
            let file = folder.0.join(format!("node-{node}.toml"));
            std::fs::write(&file, configuration)
                .with_context(|| format!("can't write {}", file.display()))?;
            let mut command = crate::serve::child(&program, &file);
            command.arg("--data").arg(data.unwrap_or(&folder.0).join(format!("node-{node}")));
            command.env("SERRIED_LOG", "warn");
            children.push(command.spawn().context("can't start a node")?);
        }
        Ok(cluster)
    }

    /// Connects to it, as a client at `site` of the geography that belongs to the keyspace's site `home`, and looks for
    /// messages for `poll_us` microseconds before it sleeps.
    pub(crate) async fn connect(
        &self,
        site: Option<&str>,
        home: Option<u16>,
        poll_us: u64,
    ) -> anyhow::Result<Database> {
        let addresses = match self {
            Cluster::Threads { cluster, .. } => cluster.addresses(),
            Cluster::Processes { addresses, .. } => addresses.clone(),
            Cluster::Existing { address, .. } => return Ok(Database::connect(address).await?),
        };
        let mut options = ConnectOptions::new(addresses);
        options.site = site.map(str::to_string);
        options.home = home;
        options.transport.poll_us = poll_us;
        let begun = Instant::now();
        loop {
            match Database::connect_with(options.clone()).await {
                Ok(database) => return Ok(database),
                // Processes take a moment until they listen.
                Err(_) if self.is_starting(begun) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_starting(&self, begun: Instant) -> bool {
        matches!(self, Cluster::Processes { .. }) && begun.elapsed() < START_TIMEOUT
    }

    /// Checks that all nodes that were started for it still run.
    ///
    /// # Errors
    /// Which one does not.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let Cluster::Processes { nodes, .. } = self else { return Ok(()) };
        for (number, node) in nodes.iter_mut().enumerate() {
            if let Some(status) = node.try_wait()? {
                anyhow::bail!("node {number} has ended during the run ({status}): measure again");
            }
        }
        Ok(())
    }

    /// Its address, for a process that connects to it.
    pub(crate) fn url(&self) -> String {
        match self {
            Cluster::Threads { cluster, .. } => cluster.url(),
            Cluster::Processes { addresses, .. } => format!("serried://{}", addresses.join(",")),
            Cluster::Existing { address, .. } => address.clone(),
        }
    }

    /// The name of the keyspace to use.
    pub(crate) fn keyspace(&self) -> &str {
        match self {
            Cluster::Existing { keyspace, .. } => keyspace,
            _ => KEYSPACE,
        }
    }

    /// One database for each site of `geography`. Without a geography, one for each of the keyspace's `sites`.
    pub(crate) async fn connect_everywhere(
        &self,
        geography: Option<Geography>,
        sites: u16,
        poll_us: u64,
    ) -> anyhow::Result<Vec<Database>> {
        let mut databases = Vec::new();
        match geography {
            None if sites == 1 => databases.push(self.connect(None, None, poll_us).await?),
            None => {
                for home in 0..sites {
                    databases.push(self.connect(None, Some(home), poll_us).await?);
                }
            }
            Some(geography) => {
                for site in geography.sites {
                    databases.push(self.connect(Some(site), None, poll_us).await?);
                }
            }
        }
        Ok(databases)
    }
}

/// An address on loopback that is free at the moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("can't listen on loopback")?;
    Ok(listener.local_addr()?)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Cluster::Processes { nodes, .. } = self {
            for node in nodes {
                let _ = node.kill();
                let _ = node.wait();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_node_that_has_ended_is_named() {
        let mut node = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let other = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (addresses, folder) = (Vec::new(), Folder::new().unwrap());
        node.kill().unwrap();
        node.wait().unwrap();
        let mut cluster = Cluster::Processes { nodes: vec![other, node], addresses, folder };
        let error = cluster.check().unwrap_err().to_string();
        assert!(error.starts_with("node 1 has ended during the run"), "{error}");
        let Cluster::Processes { nodes, .. } = &mut cluster else { unreachable!() };
        nodes.pop();
        cluster.check().unwrap();
    }
}
