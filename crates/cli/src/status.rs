//! `serried status`: how a cluster's nodes are doing.

use clap::Args;
use serde_json::{Value, json};
use serried::{Database, NodeReply, NodeStatus, NotServed};

use crate::Ended;

/// Show how each node of a cluster is doing.
///
/// It asks every node, and waits a second for the answers. The exit code is 0 if all nodes serve, and 1
/// otherwise. A keyspace is not served if too few nodes agree about it; it is named with the reason.
#[derive(Args)]
#[command(after_help = "\
Columns:
  node        its number in the cluster
  version     its release
  up          how long the node has been running
  durable     when its records count as durable: sync, buffered or memory
  cores       how many threads serve its partitions
  partitions  how many it has, of all its keyspaces
  lag, held   flushes of its logs that are in progress or due; bytes of messages that wait for them
  log bytes   written to its logs since it started
  connections its connections with clients and other nodes, in both directions
  RTT us      how long the question and its answer took, in microseconds
  state       serves, or why not; while a node is rejoining or catching up, or does not vote, do not
              stop another one. For a keyspace with several sites: the node's site, and how far this
              site is behind the others

Examples:
  serried status serried://127.0.0.1:7400
  serried status serried://127.0.0.1:7400 --json")]
pub(crate) struct Status {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// Print a line of JSON for each node
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let database = Database::connect(&self.address).await?;
            let client = database.client().clone();
            let replies = client.node_replies().await;
            if !self.json {
                println!("cluster {}, {} nodes", client.cluster(), replies.len());
                for keyspace in database.keyspaces() {
                    println!(
                        "keyspace {}: {}, {}, {}{}",
                        keyspace.name,
                        keyspace.protocol,
                        keyspace.guarantee,
                        partitions(keyspace.partitions),
                        sites(keyspace.sites)
                    );
                }
                for refused in not_served(client.keyspaces_not_served(), &replies) {
                    println!("{}", refused.reason);
                }
                println!(
                    "{:<5} {:<9} {:>9} {:<8} {:>5} {:>10} {:>4} {:>9} {:>11} {:>12} {:>8}  state",
                    "node",
                    "version",
                    "up",
                    "durable",
                    "cores",
                    "partitions",
                    "lag",
                    "held",
                    "log bytes",
                    "connections",
                    "RTT us",
                );
            }
            let mut serve = true;
            for (node, reply) in replies.iter().enumerate() {
                let state = state(reply.as_ref());
                serve &= state == "serves";
                match self.json {
                    true => println!("{}", as_json(node, reply.as_ref(), &state)),
                    false => println!("{}", as_text(node, reply.as_ref(), &state)),
                }
            }
            database.close().await;
            Ok(if serve { Ended::Well } else { Ended::Degraded })
        })
    }
}

fn partitions(count: u16) -> String {
    match count {
        1 => "1 partition".to_string(),
        _ => format!("{count} partitions"),
    }
}

fn sites(count: u16) -> String {
    match count {
        1 => String::new(),
        _ => format!(" at each of {count} sites"),
    }
}

/// To which site of its keyspaces a node belongs, how far that is behind the others, and whether its clock is off.
fn remarks(status: &NodeStatus) -> String {
    let sites = status.sites.iter().map(|at| at.text());
    sites.chain(status.clock_text()).map(|remark| format!("; {remark}")).collect()
}

/// The keyspaces that are not served: those that the client knows of, and those that only nodes know of.
fn not_served(mut known: Vec<NotServed>, replies: &[Option<NodeReply>]) -> Vec<NotServed> {
    for refused in replies.iter().flatten().flat_map(|reply| &reply.status.not_served) {
        if known.iter().all(|other| other.name != refused.name) {
            known.push(refused.clone());
        }
    }
    known
}

/// A node that waits at its start answers only `/healthz`.
const DOES_NOT_ANSWER: &str =
    "does not answer: it is down, can't be reached, or is starting (see its log and /healthz)";

fn state(reply: Option<&NodeReply>) -> String {
    let Some(reply) = reply else { return DOES_NOT_ANSWER.to_string() };
    match (reply.status.serves(), &reply.status.obstacle) {
        (Ok(()), _) => "serves".to_string(),
        (Err(reason), Some(_)) => format!("read-only: {reason}"),
        (Err(reason), None) => reason,
    }
}

fn as_text(node: usize, reply: Option<&NodeReply>, state: &str) -> String {
    let Some(NodeReply { status, round_trip }) = reply else {
        return format!("n{node:<4} {:>101}{state}", "");
    };
    format!(
        "n{node:<4} {:<9} {:>8}s {:<8} {:>5} {:>10} {:>4} {:>9} {:>11} {:>12} {:>8}  {state}{}",
        status.version,
        status.uptime.as_secs(),
        status.durability.name(),
        status.cores,
        status.partitions,
        status.flush_lag,
        status.held_bytes,
        status.statistics.counters.log_bytes,
        status.statistics.connections,
        round_trip.as_micros(),
        remarks(status),
    )
}

fn as_json(node: usize, reply: Option<&NodeReply>, state: &str) -> Value {
    let Some(NodeReply { status, round_trip }) = reply else {
        return json!({ "node": node, "reachable": false, "state": state });
    };
    json!({
        "node": node,
        "reachable": true,
        "state": state,
        "version": status.version,
        "incarnation": format!("{:016x}", status.incarnation),
        "uptime_s": status.uptime.as_secs_f64(),
        "durability": status.durability,
        "cores": status.cores,
        "partitions": status.partitions,
        "read_only": status.obstacle,
        "not_served": status.not_served,
        "outside": status.outside,
        "sites": status.sites,
        "behind": status.behind,
        "not_voting": status.not_voting,
        "clock_off_ms": status.clock_off.map(|off| off.as_millis() as u64),
        "flush_under_way_s": status.flush_under_way.map(|lasting| lasting.as_secs_f64()),
        "flush_lag": status.flush_lag,
        "held_bytes": status.held_bytes,
        "waiting_bytes": status.waiting_bytes,
        "round_trip_us": round_trip.as_micros() as u64,
        "connections": status.statistics.connections,
        "cpu_s": status.statistics.process_cpu.as_secs_f64(),
        "counters": status.statistics.counters,
    })
}
