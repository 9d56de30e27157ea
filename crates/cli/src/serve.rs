//! `serried serve`: a node.

use std::path::PathBuf;

use clap::Args;
use serried_runtime::{Node, NodeConfiguration};

use crate::Ended;

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
  geography = \"reg\"                   # emulate one: lan, reg, con, glo
  [[keyspace]]
  name = \"accounts\"
  protocol = \"morty\"                  # or mvtso
  [limits]
  key_bytes = 8192
  value_bytes = 1048576

Example:
  serried serve --config node-0.toml

Set SERRIED_LOG=debug to see more of what it does.")]
pub(crate) struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Say nothing but warnings
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
            let node = Node::start(configuration).await?;
            if !self.quiet {
                println!("node {number} serves on {}", node.local_addr());
                println!("connect with: serried shell serried://{peers}");
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
