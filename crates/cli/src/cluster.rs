//! The cluster that a benchmark runs on: its own, as threads or processes, or one that is there.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serried::{ConnectOptions, Database};
use serried_model::Geography;
use serried_runtime::{KeyspaceConfiguration, LocalCluster, LocalOptions};

/// The keyspace of clusters that are started for a benchmark.
pub(crate) const KEYSPACE: &str = "benchmark";
/// How long node processes may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// What a cluster that is started for a benchmark is like.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) nodes: usize,
    pub(crate) protocol: &'a str,
    pub(crate) partitions: u16,
    pub(crate) geography: Option<&'a str>,
}

/// A cluster to run on. Dropped, those that were started for it stop.
pub(crate) enum Cluster {
    /// Nodes in this process, each on a thread of its own.
    Threads(LocalCluster),
    /// Nodes in processes of their own.
    Processes { nodes: Vec<Child>, addresses: Vec<String>, folder: PathBuf },
    /// Somebody else's.
    Existing { address: String, keyspace: String },
}

impl Cluster {
    /// Starts nodes on threads of this process.
    pub(crate) fn threads(plan: &Plan<'_>) -> anyhow::Result<Cluster> {
        let keyspace = KeyspaceConfiguration::new(KEYSPACE, plan.protocol);
        let keyspaces = [keyspace.with_partitions(plan.partitions)];
        let geography = plan.geography.map(str::to_string);
        let options = LocalOptions { geography, ..LocalOptions::default() };
        Ok(Cluster::Threads(LocalCluster::start(plan.nodes, &keyspaces, options)?))
    }

    /// Starts nodes as processes.
    pub(crate) fn processes(plan: &Plan<'_>) -> anyhow::Result<Cluster> {
        let Plan { nodes, protocol, partitions, geography } = *plan;
        let addresses = (0..nodes).map(|_| Ok(free_address()?.to_string()));
        let addresses: Vec<String> = addresses.collect::<anyhow::Result<_>>()?;
        let folder = std::env::temp_dir().join(format!("serried-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("can't make {}", folder.display()))?;
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
                 pin = false\n\
                 [[keyspace]]\nname = {KEYSPACE:?}\nprotocol = {protocol:?}\n\
                 partitions = {partitions}\n"
            );
            let file = folder.join(format!("node-{node}.toml"));
            std::fs::write(&file, configuration)
                .with_context(|| format!("can't write {}", file.display()))?;
            let mut command = Command::new(&program);
            command.arg("serve").arg("--config").arg(&file).arg("--quiet");
            command.env("SERRIED_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::null());
            children.push(command.spawn().context("can't start a node")?);
        }
        Ok(cluster)
    }

    /// Connects to it, as a client at `site`.
    pub(crate) async fn connect(&self, site: Option<&str>) -> anyhow::Result<Database> {
        let mut options = match self {
            Cluster::Threads(cluster) => ConnectOptions::new(cluster.addresses()),
            Cluster::Processes { addresses, .. } => ConnectOptions::new(addresses.clone()),
            Cluster::Existing { address, .. } => return Ok(Database::connect(address).await?),
        };
        options.site = site.map(str::to_string);
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

    /// The name of the keyspace to use.
    pub(crate) fn keyspace(&self) -> &str {
        match self {
            Cluster::Existing { keyspace, .. } => keyspace,
            _ => KEYSPACE,
        }
    }

    /// One database for each site of `geography`, or a single one.
    pub(crate) async fn connect_everywhere(
        &self,
        geography: Option<Geography>,
    ) -> anyhow::Result<Vec<Database>> {
        let mut databases = Vec::new();
        match geography {
            None => databases.push(self.connect(None).await?),
            Some(geography) => {
                for site in geography.sites {
                    databases.push(self.connect(Some(site)).await?);
                }
            }
        }
        Ok(databases)
    }
}

/// An address on loopback that nobody listens on at the moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("can't listen on loopback")?;
    Ok(listener.local_addr()?)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Cluster::Processes { nodes, folder, .. } = self {
            for node in nodes {
                let _ = node.kill();
                let _ = node.wait();
            }
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
