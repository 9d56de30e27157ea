//! `serried serve`: a node.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use serried_node::{
    Disks, Durability, Node, NodeConfiguration, NodeDisks, NodeHandle, Start, StartError,
};
use serried_storage::STORE_THREAD;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::log_changes::log_changes;
use crate::operations::{self, Progress};
use crate::{Ended, LogFormat};

/// Run a node of a cluster until it is interrupted.
///
/// Every node has a configuration of its own. The configurations differ in `node` and `listen`. A node
/// keeps its data in a directory, and starts with it again however it was stopped.
#[derive(Args)]
#[command(after_help = "\
A configuration. Only node, listen and peers are required:
  cluster = \"serried\"                 # clients of other clusters are refused
  node = 0                            # this node's number, from 0
  listen = \"127.0.0.1:7400\"
  peers = [\"127.0.0.1:7400\", \"127.0.0.1:7401\", \"127.0.0.1:7402\"]
  cores = 2                           # threads for the partitions; default: the machine's cores
  durability = \"sync\"                 # or buffered: survives a crash of the process; or memory
  pin = true                          # one processor for each thread; default: if there are enough
  geography = \"reg\"                   # delays to emulate: lan, reg, con, glo, gryff-3, gryff-5
  [[keyspace]]
  name = \"accounts\"
  protocol = \"morty\"                  # `serried sim --help` lists all protocols
  partitions = 4                      # the key space is split by a hash of the key; default 1
  sites = 1                           # copies of all keys, each on an equal share of the peers
  id = \"accounts@0\"                   # only to take back the keyspace that was dropped last
  [keyspace.settings]
  truncation_lag_ms = 10000           # docs/operating/configuration.md has all settings
  [limits]
  key_bytes = 8192
  value_bytes = 1048576
  [transport]
  heartbeat_ms = 1000

Examples:
  serried serve --config node-0.toml --data /var/lib/serried
  serried serve --config node-0.toml --durability memory
  serried serve --config node-0.toml --metrics 127.0.0.1:9400 --log-format json

If a node's disk is lost, start the node on an empty directory with --rejoin, once. It waits until
a majority of the nodes, without itself, has reported which keyspaces the lost disk may have held:
of three nodes both others have to run. Then it counts as failed until it has got everything from
the other nodes that the lost disk may have held. `serried status` then says `serves`.

If the old process of a node that was replaced comes back, the other nodes refuse it, and it ends.
Leave it stopped.

A node does not start if its data is damaged, or lacks something that the node had acknowledged. A
node with durability `buffered` does not start either if its machine went down before the node was
stopped, because its last acknowledged data may be missing. In both cases start the node on an empty
directory with --rejoin. With durability `sync` the node just starts after a power cut. Its log may
end with an incomplete write; damage to its very last batch looks the same. If you have reason to
doubt the disk, use --rejoin.

If all nodes with durability `buffered` have lost power, no node has all data, so none can rejoin.
Start all of them with --accept-loss, once. Each continues with what its disk has, up to the first
damage, and logs what it gave up. A node whose log lacks its beginning, or whose store has damaged
tables, has to rejoin instead. The guarantees of the database do not hold across this: transactions
that were acknowledged in about the last half minute may be missing, wholly or in part, and later
transactions may contradict them. Check your data. Never use --accept-loss while enough nodes have
all their data for the others to rejoin.

To add, drop or reorder keyspaces, restart the nodes with new configurations, one after the other.
A keyspace is served once a majority of the nodes has it. A node drops a keyspace that its
configuration no longer lists; the data stays in the node's directory until you remove it.
Once a majority has dropped a keyspace, a new keyspace of that name starts empty.

The node stops on SIGTERM, SIGINT and SIGHUP: it hands the partitions that it leads to other nodes,
accepts nothing more, writes what is pending, and exits with 0.")]
pub(crate) struct Serve {
    /// The node's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Where the node keeps its data [default: serried-data/node-NUMBER]
    #[arg(long, value_name = "DIRECTORY")]
    data: Option<PathBuf>,
    /// When a commit counts as durable: sync, buffered or memory [default: as configured]
    #[arg(long, value_name = "HOW")]
    durability: Option<serried_storage::Durability>,
    /// Replace the node of this number, whose disk was lost
    #[arg(long)]
    rejoin: bool,
    /// Replace a node of a site whose nodes have all lost their disks: what the other sites have is copied from them
    #[arg(long, conflicts_with = "rejoin")]
    rebuild_site: bool,
    /// Start with what is left of this node's data, although acknowledged data may be missing
    #[arg(long, conflicts_with_all = ["rejoin", "rebuild_site"])]
    accept_loss: bool,
    /// Answer GET /metrics, for Prometheus, and GET /healthz at this address
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// What to log: error, warn, info, debug or trace; for a part of the program as in `info,serried_node=debug`
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::log_filter)]
    pub(crate) log: String,
    /// How lines of the log are written
    #[arg(long, value_enum, default_value = "human")]
    pub(crate) log_format: LogFormat,
    /// Print neither where it serves nor that it stops
    #[arg(long)]
    quiet: bool,
    /// Stop when standard input ends, as it does when the process that has started the node has ended
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

/// How long to wait for room on the disk before looking again.
const ROOM_AGAIN: Duration = Duration::from_secs(1);

/// Opens a node's data directory, as soon as there is room on its disk.
async fn open_disks(
    path: &Path,
    configuration: &NodeConfiguration,
    start: Start,
    progress: &Progress,
) -> anyhow::Result<NodeDisks> {
    let mut logged = false;
    loop {
        let (path, configuration) = (path.to_path_buf(), configuration.clone());
        let open = move || NodeDisks::open(path, &configuration, start);
        match tokio::task::spawn_blocking(open).await? {
            Err(error) if error.is_full() => {
                progress.starts(format!("the node waits for room on the disk: {error}"));
                if !logged {
                    tracing::error!(%error, "waits for room on the disk");
                    logged = true;
                }
                tokio::time::sleep(ROOM_AGAIN).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// How long to wait before a node that too few others have answered is started again.
const OTHERS_AGAIN: Duration = Duration::from_secs(1);

/// Starts a node on its disks, as soon as enough other nodes have reported what a lost disk may have held.
async fn start(
    configuration: NodeConfiguration,
    disks: Arc<dyn Disks>,
    progress: &Progress,
) -> Result<NodeHandle, StartError> {
    let mut logged = false;
    loop {
        match Node::start_on(configuration.clone(), disks.clone()).await {
            Err(StartError::TooFew { answered, wanted, of_site }) => {
                let reason = too_few(answered, wanted, of_site);
                progress.starts(format!("the node waits for the other nodes: {reason}"));
                if !logged {
                    tracing::warn!(reason, "waits for the other nodes");
                    logged = true;
                }
                tokio::time::sleep(OTHERS_AGAIN).await;
            }
            started => return started,
        }
    }
}

/// Why a node that replaces a lost disk waits, and what to do.
fn too_few(answered: usize, wanted: usize, of_site: bool) -> String {
    let them = if of_site { "those of its site" } else { "them" };
    format!(
        "{answered} of {them} answer, and {wanted} must say which keyspaces the lost disk may have held: start the others; \
         this node goes on when they answer; if a keyspace has several sites, and the disks of all nodes of this one are \
         lost, start all of them with --rebuild-site"
    )
}

/// Makes a panic in the store's own thread end the process. Nothing joins that thread, and without it the store
/// stops accepting writes after a while.
fn end_with_the_store() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if std::thread::current().name() == Some(STORE_THREAD) {
            tracing::error!(%panic, "stopped: the store's thread has panicked");
            std::process::exit(1);
        }
    }));
}

impl Serve {
    fn start(&self) -> Start {
        match (self.rejoin, self.rebuild_site, self.accept_loss) {
            (true, _, _) => Start::Rejoin,
            (_, true, _) => Start::RebuildSite,
            (_, _, true) => Start::AcceptLoss,
            (false, false, false) => Start::Usual,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let mut configuration = NodeConfiguration::read(&self.config)?;
        if let Some(durability) = self.durability {
            configuration.durability = durability;
        }
        end_with_the_store();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut ending = Ending::listen(self.until_input_ends)?;
            let progress = Progress::begin();
            let operations = match &self.metrics {
                None => None,
                Some(address) => {
                    let listener = TcpListener::bind(address).await;
                    let listener = listener.map_err(|error| {
                        anyhow::anyhow!(
                            "can't serve metrics on {address} ({error}): write a free address of this machine with its port, as 127.0.0.1:9400"
                        )
                    });
                    Some(listener?)
                }
            };
            let answered = operations.as_ref().map(TcpListener::local_addr).transpose()?;
            if let Some(address) = answered {
                tracing::info!(%address, "answers /healthz and /metrics");
            }
            let operations = async {
                match operations {
                    Some(listener) => operations::serve(listener, progress.clone()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = self.run_node(configuration, &mut ending, &progress, answered) => ended,
                never = operations => match never {},
            }
        })
    }

    /// Starts the node, and waits until it has ended.
    async fn run_node(
        &self,
        configuration: NodeConfiguration,
        ending: &mut Ending,
        progress: &Progress,
        operations: Option<SocketAddr>,
    ) -> anyhow::Result<Ended> {
        let (number, peers) = (configuration.node, configuration.peers.join(","));
        let home = configuration.home();
        let disks = OnceLock::new();
        let started = tokio::select! {
            started = self.start_node(configuration, progress, &disks) => started?,
            ended = ending.asked() => {
                // The thread that opens the partitions goes on until it has opened the next one.
                disks.get().inspect(|disks| disks.give_up());
                return Ok(ended.map(|()| Ended::Well)?);
            }
        };
        let (node, place) = started;
        progress.runs(node.observer());
        if !self.quiet {
            println!("node {number} serves on {}, its data {place}", node.local_addr());
            if let Some(address) = operations {
                println!("metrics at http://{address}/metrics");
            }
            match home {
                Some(home) => {
                    println!("connect with: serried shell 'serried://{peers}?home={home}'")
                }
                None => println!("connect with: serried shell serried://{peers}"),
            }
        }
        tokio::select! {
            failed = node.stopped() => failed?,
            asked = ending.asked() => asked?,
            never = log_changes(node.observer()) => match never {},
        }
        if !self.quiet {
            // Without a reader too, the node stops in order.
            let _ = writeln!(io::stdout(), "node {number} stops");
        }
        node.shutdown().await;
        Ok(Ended::Well)
    }

    /// Starts the node. Returns it, and where its data is. Sets `opened` as soon as it has its disks.
    async fn start_node(
        &self,
        configuration: NodeConfiguration,
        progress: &Progress,
        opened: &OnceLock<Arc<NodeDisks>>,
    ) -> anyhow::Result<(NodeHandle, String)> {
        let durability = configuration.durability;
        anyhow::ensure!(
            !self.rebuild_site || configuration.keyspaces.iter().any(|keyspace| keyspace.sites > 1),
            "--rebuild-site gets back what other sites have, and no keyspace of the configuration has several sites: \
             use --rejoin if a majority of the other nodes still has its disks"
        );
        let usual = || PathBuf::from(format!("serried-data/node-{}", configuration.node));
        let path = self.data.clone().unwrap_or_else(usual);
        if durability == Durability::Memory {
            anyhow::ensure!(
                self.start() == Start::Usual,
                "--rejoin, --rebuild-site and --accept-loss are for nodes that keep data; see --durability"
            );
            if path.exists() {
                let path = path.display();
                tracing::warn!(%path, "the data of this directory is not used, and nothing is kept: the durability is memory; see --durability");
            }
            return Ok((Node::start(configuration).await?, "in memory only".to_string()));
        }
        let disks = open_disks(&path, &configuration, self.start(), progress).await?;
        progress.starts("the node reads its data and asks the other nodes");
        let disks = opened.get_or_init(|| Arc::new(disks)).clone();
        let node = start(configuration, disks, progress).await?;
        Ok((node, format!("in {}, {durability}", path.display())))
    }
}

/// The signals that stop a node in good order.
struct Ending {
    terminate: Signal,
    /// Sent when the terminal closes. `None` if the node was started so that it outlives its terminal, as by nohup.
    hang_up: Option<Signal>,
    /// Resolves when standard input ends, if the node is to stop then.
    input: Option<oneshot::Receiver<()>>,
}

impl Ending {
    fn listen(until_input_ends: bool) -> io::Result<Ending> {
        let hang_up = (!ignores_hang_up()).then(|| signal(SignalKind::hangup())).transpose()?;
        let input = until_input_ends.then(input_ended);
        Ok(Ending { terminate: signal(SignalKind::terminate())?, hang_up, input })
    }

    /// Waits until the node is to stop.
    async fn asked(&mut self) -> io::Result<()> {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        let input = async {
            match &mut self.input {
                Some(input) => input.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => Ok(()),
            _ = hang_up => Ok(()),
            _ = input => Ok(()),
            interrupted = tokio::signal::ctrl_c() => interrupted,
        }
    }
}

/// A node for this process, which ends with it. Its data and where it logs are to be added.
pub(crate) fn child(program: &Path, configuration: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--quiet", "--until-input-ends", "--config"]).arg(configuration);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// Resolves when standard input ends.
pub(crate) fn input_ended() -> oneshot::Receiver<()> {
    let (ended, input) = oneshot::channel();
    std::thread::spawn(move || {
        // An error is an end too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
    });
    input
}

/// Whether this process was started so that it ignores SIGHUP. False where the operating system does not say.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The first bit is SIGHUP's, which has the number 1.
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_process_is_to_end_with_it() {
        let command = child(Path::new("serried"), Path::new("node-0.toml"));
        let arguments: Vec<_> = command.get_args().collect();
        assert!(arguments.contains(&"--until-input-ends".as_ref()), "{arguments:?}");
        assert_eq!(arguments[arguments.len() - 2..], ["--config", "node-0.toml"]);
    }
}
