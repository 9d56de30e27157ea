//! What a run costs: CPU time, messages and flushes, of servers and clients.

use std::collections::BTreeMap;
use std::time::Duration;

use serried::{Database, Statistics};
use serried_node::process_cpu_time;

use crate::bench::ClientsSpent;
use crate::table::Costs;

/// The name of the threads of nodes that run in this process.
const NODE_THREAD: &str = "serried-node";

/// The costs so far.
#[derive(Clone, Default)]
pub(crate) struct Spent {
    /// The time of each process with servers.
    servers: BTreeMap<u32, Duration>,
    client_cpu: Duration,
    messages: u64,
    flushes: u64,
}

impl Spent {
    /// The costs of these clients of one cluster, and of its nodes.
    pub(crate) async fn so_far(databases: &[Database]) -> Spent {
        let mut spent = Spent { client_cpu: process_cpu_time(), ..Spent::default() };
        let mut processes = BTreeMap::new();
        for (i, database) in databases.iter().enumerate() {
            if i > 0 {
                spent.count(&database.client().statistics());
                continue;
            }
            let statistics = database.statistics().await;
            spent.count(&statistics.client);
            for node in statistics.nodes.into_iter().flatten() {
                spent.count(&node.counters);
                processes.insert(node.process_id, node.process_cpu);
            }
        }
        if processes.remove(&std::process::id()).is_some() {
            let nodes = node_threads_cpu_time().unwrap_or_default();
            processes.insert(std::process::id(), nodes);
            spent.client_cpu = spent.client_cpu.saturating_sub(nodes);
        }
        spent.servers = processes;
        spent
    }

    /// The same, if these clients have done all since `earlier` that clients did.
    pub(crate) fn with_clients(self, earlier: &Spent, clients: ClientsSpent) -> Spent {
        Spent {
            client_cpu: earlier.client_cpu + clients.cpu,
            messages: self.messages + clients.messages,
            flushes: self.flushes + clients.flushes,
            ..self
        }
    }

    fn count(&mut self, statistics: &Statistics) {
        self.messages += statistics.messages_sent;
        self.flushes += statistics.flushes;
    }

    /// The costs since `earlier`, per transaction.
    pub(crate) fn since(&self, earlier: &Spent, transactions: u64) -> Costs {
        let transactions = transactions.max(1) as f64;
        let us = |now: Duration, then: Duration| {
            now.saturating_sub(then).as_secs_f64() * 1e6 / transactions
        };
        let sum = |of: &Spent| of.servers.values().sum::<Duration>();
        let are_the_same = self.servers.keys().eq(earlier.servers.keys());
        let server_cpu_us_per_txn = are_the_same.then(|| us(sum(self), sum(earlier)));
        let client_cpu_us_per_txn = us(self.client_cpu, earlier.client_cpu);
        Costs {
            cpu_us_per_txn: server_cpu_us_per_txn.map(|server| server + client_cpu_us_per_txn),
            server_cpu_us_per_txn,
            client_cpu_us_per_txn,
            messages_per_txn: self.messages.saturating_sub(earlier.messages) as f64 / transactions,
            flushes_per_txn: self.flushes.saturating_sub(earlier.flushes) as f64 / transactions,
        }
    }
}

/// The CPU time of the nodes' threads. The system counts it in ticks of 10 ms.
fn node_threads_cpu_time() -> std::io::Result<Duration> {
    let mut ticks = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        // The name is in brackets, and may hold anything; user and system time are the 12th and 13th
        // fields behind it.
        let Some((before, after)) = stat.rsplit_once(')') else { continue };
        if before.split_once('(').is_some_and(|(_, name)| name.starts_with(NODE_THREAD)) {
            let fields = after.split_whitespace().skip(11).take(2);
            ticks += fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
        }
    }
    Ok(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_servers_is_not_known_if_one_was_restarted() {
        let spent = |servers: &[(u32, u64)]| {
            let servers = servers.iter().map(|(id, ms)| (*id, Duration::from_millis(*ms)));
            Spent { servers: servers.collect(), ..Spent::default() }
        };
        let before = spent(&[(1, 5), (2, 5)]);
        let costs = spent(&[(1, 6), (2, 8)]).since(&before, 4);
        assert_eq!(costs.server_cpu_us_per_txn, Some(1000.0));
        for after in [spent(&[(1, 9), (3, 1)]), spent(&[(1, 9)])] {
            let costs = after.since(&before, 4);
            assert_eq!((costs.server_cpu_us_per_txn, costs.cpu_us_per_txn), (None, None));
        }
    }
}
