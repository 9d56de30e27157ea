//! Measures the simulator itself: how many events a second it handles on this machine's one core.
//!
//! ```text
//! cargo run --release -p serried-sim --example events_per_second
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serried_actor::{
    Actor, Context, Coordinate, Group, Protocol, Recover, Settings, Store, Timestamp,
};
use serried_model::transactions::{Offers, Operation, Outcome, Output};
use serried_model::{Guarantee, NodeId, ReadValue, Transactions, TxnId, Version};
use serried_sim::{Cluster, Configuration, CostModel, NetworkFaults};

/// How many pings each client has under way.
const WINDOW: u64 = 4;

/// Clients ping all replicas for ever, and answer their sessions at once.
struct Ping;

impl Protocol for Ping {
    const NAME: &'static str = "ping";
    const SUMMARY: &'static str = "clients ping all replicas";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = u64;
    type Coordinator = Client;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Client {
        Client { group, version: 0, waiting: Vec::new() }
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Replica {
        Replica
    }
}

struct Client {
    group: Group,
    version: u64,
    /// Reads to answer with the next pong.
    waiting: Vec<(TxnId, ReadValue)>,
}

impl Actor for Client {
    type Message = u64;
    type Timer = u64;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        for ping in 0..WINDOW {
            cx.send(self.group.choice(0, ping as usize), ping);
        }
    }

    fn on_message(&mut self, from: NodeId, ping: u64, cx: &mut Context<'_, Self>) {
        for (txn, read) in self.waiting.drain(..) {
            cx.output((txn, Output::Value(read)));
        }
        cx.send(from, ping + 1);
    }

    fn on_timer(&mut self, _: u64, _: &mut Context<'_, Self>) {}
}

impl Coordinate<Transactions> for Client {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Context<'_, Self>) {
        match operation {
            Operation::Get { key, .. } => {
                self.version += 1;
                let version = Version { timestamp_us: self.version, coordinator: cx.id() };
                cx.output((txn, Output::Began(version)));
                self.waiting.push((
                    txn,
                    ReadValue { key, version: Version::INITIAL, value: None, stamp: 0 },
                ));
            }
            Operation::Commit { .. } => cx.output((txn, Output::Outcome(Outcome::Committed))),
            Operation::Begin { .. }
            | Operation::Put(_)
            | Operation::Rollback
            | Operation::Inquire { .. }
            | Operation::GetAt { .. }
            | Operation::OneShot { .. } => {}
        }
    }
}

struct Replica;

impl Actor for Replica {
    type Message = u64;
    type Timer = ();
    type Record = ();
    type Output = ();

    fn on_message(&mut self, from: NodeId, ping: u64, cx: &mut Context<'_, Self>) {
        cx.send(from, ping);
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl Recover for Replica {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {}

    fn replay(&mut self, (): (), _: &mut dyn Store) {}
}

fn measure(what: &str, configuration: Configuration, tasks: usize) {
    let clients = configuration.clients;
    let mut cluster = Cluster::<Ping>::new(configuration);
    let transactions = Arc::new(AtomicU64::new(0));
    for client in (0..clients).flat_map(|client| core::iter::repeat_n(client, tasks)) {
        let (keyspace, transactions) = (cluster.keyspace(client), transactions.clone());
        cluster.spawn(client, async move {
            while keyspace.get("key").await.is_ok() {
                transactions.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let (start, mut end) = (Instant::now(), Timestamp(0));
    while start.elapsed().as_secs_f64() < 2.0 {
        end.0 += 1_000_000;
        cluster.run_until(end);
    }
    let seconds = start.elapsed().as_secs_f64();
    let millions_per_second = |count: u64| count as f64 / seconds / 1e6;
    let (events, transactions) = (cluster.events(), transactions.load(Ordering::Relaxed));
    println!(
        "{what:44} {:6.2} million events/s {:6.2} million transactions/s {:7.3} virtual s/s",
        millions_per_second(events),
        millions_per_second(transactions),
        end.0 as f64 / 1e9 / seconds
    );
}

fn main() {
    let free = Configuration { costs: CostModel::FREE, clients: 24, ..Configuration::default() };
    let costly = Configuration { costs: CostModel::default(), ..free.clone() };
    let network = NetworkFaults { jitter: 0.1, loss: 0.0, ..NetworkFaults::NONE };
    measure("computing is free", free.clone(), 0);
    measure("with the default costs", costly.clone(), 0);
    measure("and jitter", Configuration { network, ..costly.clone() }, 0);
    measure("and 1000 clients", Configuration { network, clients: 1000, ..costly.clone() }, 0);
    measure(
        "and contents hashed",
        Configuration { network, hash_contents: true, ..costly.clone() },
        0,
    );
    measure("free, 4 reading sessions a client", free, 4);
    measure("default costs, 4 reading sessions a client", costly, 4);
}
