//! `serried serve`: a node.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serried_runtime::{Node, NodeConfiguration};
use tokio::net::TcpListener;

use crate::{Ended, LogFormat, operations};

/// Run a node of a cluster until it is interrupted.
///
/// Every node has a configuration of its own; they differ in `node` and `listen`. What a node holds is
/// in memory only: a node that stops loses it.
#[derive(Args)]
#[command(after_help = "\
A configuration, of which all but node, listen and peers may be left out:
  cluster = \"serried\"                 # clients of other clusters are turned away
  node = 0                            # this node's number, from 0
  listen = \"127.0.0.1:7400\"
  peers = [\"127.0.0.1:7400\", \"127.0.0.1:7401\", \"127.0.0.1:7402\"]
  cores = 2                           # threads for the partitions; default: what the machine has
  pin = true                          # keep each on one processor; default: if there are enough
  geography = \"reg\"                   # emulate one: lan, reg, con, glo
  [[keyspace]]
  name = \"accounts\"
  protocol = \"morty\"                  # or mvtso
  partitions = 4                      # the key space is split by a hash of the key; default 1
  [limits]
  key_bytes = 8192
  value_bytes = 1048576

Examples:
  serried serve --config node-0.toml
  serried serve --config node-0.toml --metrics 127.0.0.1:9400 --log-format json

It stops on SIGTERM and SIGINT: it accepts nothing more, writes what waits, and exits with 0.")]
pub(crate) struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
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

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let configuration = NodeConfiguration::read(&self.config)?;
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
            let node = Node::start(configuration).await?;
            if !self.quiet {
                println!("node {number} serves on {}", node.local_addr());
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
