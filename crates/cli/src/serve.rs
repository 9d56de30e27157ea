//! `serried serve`: a node.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serried_runtime::{Durability, Node, NodeConfiguration, NodeDisks};
use serried_storage::StorageError;
use tokio::net::TcpListener;

use crate::{Ended, LogFormat, operations};

/// Run a node of a cluster until it is interrupted.
///
/// Every node has a configuration of its own; they differ in `node` and `listen`. A node keeps what it
/// holds in its data directory, and comes back with it however it was stopped.
#[derive(Args)]
#[command(after_help = "\
A configuration, of which all but node, listen and peers may be left out:
  cluster = \"serried\"                 # clients of other clusters are turned away
  node = 0                            # this node's number, from 0
  listen = \"127.0.0.1:7400\"
  peers = [\"127.0.0.1:7400\", \"127.0.0.1:7401\", \"127.0.0.1:7402\"]
  cores = 2                           # threads for the partitions; default: what the machine has
  durability = \"sync\"                # or buffered: survives the process; or memory: nothing does
  pin = true                          # keep each on one processor; default: if there are enough
  geography = \"reg\"                   # emulate one: lan, reg, con, glo, gryff-3, gryff-5
  [[keyspace]]
  name = \"accounts\"
  protocol = \"morty\"                  # or mvtso; registers: gryff, gryff-rsc, epaxos, multipaxos, abd
  partitions = 4                      # the key space is split by a hash of the key; default 1
  [limits]
  key_bytes = 8192
  value_bytes = 1048576

Examples:
  serried serve --config node-0.toml --data /var/lib/serried
  serried serve --config node-0.toml --durability memory
  serried serve --config node-0.toml --metrics 127.0.0.1:9400 --log-format json

If a node's disk is lost, start it on an empty one with --rejoin, once. It then takes part in nothing
that the lost one may have promised something about, until it has copied everything from the others.

It stops on SIGTERM and SIGINT: it accepts nothing more, writes what waits, and exits with 0.")]
pub(crate) struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where the node keeps its data [default: serried-data/node-NUMBER]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// When a commit counts as durable, instead of what the configuration says: sync, buffered or memory
    #[arg(long, value_name = "HOW")]
    durability: Option<serried_storage::Durability>,
    /// Take the place of a node of this number whose disk was lost
    #[arg(long)]
    rejoin: bool,
    /// Answer GET /metrics, for Prometheus, and GET /healthz at this address
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// What to log: error, warn, info, debug or trace, for single parts as in `info,serried_runtime=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: String,
    /// How lines of the log are written
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log_format: LogFormat,
    /// Print nothing where it serves and when it stops
    #[arg(long)]
    quiet: bool,
}

/// How long to wait for room on the disk before it is looked for again.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// Opens a node's data directory, as soon as there is room on its disk.
async fn open_disks(
    path: &Path,
    configuration: &NodeConfiguration,
    rejoin: bool,
) -> Result<NodeDisks, StorageError> {
    let mut told = false;
    loop {
        match NodeDisks::open(path.to_path_buf(), configuration, rejoin) {
            Err(error) if error.is_full() => {
                if !told {
                    tracing::error!(%error, "waits for room on the disk");
                    told = true;
                }
                tokio::time::sleep(ROOM_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let mut configuration = NodeConfiguration::read(&self.config)?;
        if let Some(durability) = self.durability {
            configuration.durability = durability;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            let peers = configuration.peers.join(",");
            let number = configuration.node;
            let operations = match &self.metrics {
                None => None,
                Some(address) => {
                    let listener = TcpListener::bind(address).await;
                    Some(listener.with_context(|| format!("can't serve metrics on {address}"))?)
                }
            };
            let durability = configuration.durability;
            let (node, place) = if durability == Durability::Memory {
                anyhow::ensure!(
                    !self.rejoin,
                    "--rejoin is for nodes that keep data; see --durability"
                );
                (Node::start(configuration).await?, "in memory only".to_string())
            } else {
                let usual = || PathBuf::from(format!("serried-data/node-{number}"));
                let path = self.data.clone().unwrap_or_else(usual);
                let place = format!("in {}, {durability}", path.display());
                let disks = tokio::select! {
                    opened = open_disks(&path, &configuration, self.rejoin) => opened?,
                    _ = terminate.recv() => return Ok(Ended::Well),
                    interrupted = tokio::signal::ctrl_c() => {
                        return Ok(interrupted.map(|()| Ended::Well)?);
                    }
                };
                (Node::start_on(configuration, Arc::new(disks)).await?, place)
            };
            if !self.quiet {
                println!("node {number} serves on {}, its data {place}", node.local_addr());
                if let Some(listener) = &operations {
                    println!("metrics at http://{}/metrics", listener.local_addr()?);
                }
                println!("connect with: serried shell serried://{peers}");
            }
            if let Some(listener) = operations {
                tokio::spawn(operations::serve(listener, node.observer()));
            }
            tokio::select! {
                failed = node.stopped() => failed?,
                _ = terminate.recv() => {}
                interrupted = tokio::signal::ctrl_c() => interrupted?,
            }
            if !self.quiet {
                println!("node {number} stops");
            }
            node.shutdown().await;
            Ok(Ended::Well)
        })
    }
}
