//! Clients in processes of their own.
//!
//! Each is this program once more, with the same arguments and a [`Share`]. It connects and waits. When all are ready, each
//! gets a line, runs its clients, and answers with what they have measured and cost.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serried::Database;
use serried_session::{Alarm, Driver};
use serried_workload::Results;

use super::Bench;
use crate::cluster::Cluster;
use crate::cost::Spent;
use crate::load::Load;
use crate::progress::Progress;
use crate::serve::input_ended;
use crate::table::Row;
use crate::wing::Wing;

/// How many processes there may be.
pub(super) const MOST_PROCESSES: usize = 256;
/// What a process with clients says when it has connected.
const READY: &str = "ready";

/// Why clients end that another process has started.
const NOBODY_WAITS: &str = "nobody waits for these clients";

/// Some of the clients of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// The first of them, and how many others there are from each to the next.
    first: usize,
    step: usize,
    /// How many clients there are in all processes.
    clients: usize,
    keyspace: String,
    address: String,
}

impl Share {
    /// The numbers of its clients.
    fn numbers(&self) -> impl Iterator<Item = usize> {
        (self.first..self.clients).step_by(self.step)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let parse = || {
            let mut parts = text.splitn(5, '/');
            let mut number = || parts.next()?.parse().ok();
            let (first, step, clients) = (number()?, number()?, number()?);
            let (keyspace, address) = (parts.next()?.to_string(), parts.next()?.to_string());
            Some(Share { first, step, clients, keyspace, address })
        };
        parse().ok_or_else(|| format!("`{text}` is no share of the clients of a benchmark"))
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Share { first, step, clients, keyspace, address } = self;
        write!(f, "{first}/{step}/{clients}/{keyspace}/{address}")
    }
}

/// What a process reports.
#[derive(Serialize, Deserialize)]
struct Reported {
    results: Results,
    /// What its clients have cost while they were measured.
    spent: ClientsSpent,
}

/// What clients cost.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ClientsSpent {
    pub(crate) cpu: Duration,
    pub(crate) messages: u64,
    pub(crate) flushes: u64,
}

/// A process with clients. Dropped, it is stopped.
struct Process {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address with how long clients look for messages.
fn with_poll(address: String, poll_us: u64) -> String {
    match poll_us {
        0 => address,
        poll_us => format!("{address}?poll_us={poll_us}"),
    }
}

impl Process {
    fn start(share: &Share) -> anyhow::Result<Process> {
        let program = std::env::current_exe().context("can't find this program's own file")?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).arg(format!("--share={share}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("can't start a process with clients")?;
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Ok(Process { child, answers })
    }

    /// The next line that it says.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let bytes = self.answers.read_line(&mut line).context("can't read from it")?;
        anyhow::ensure!(
            bytes > 0,
            "a process with clients has ended early ({}): measure again",
            self.child.wait()?
        );
        Ok(line.trim_end().to_string())
    }

    /// Has it begin.
    fn go(&mut self) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().expect("it is piped");
        writeln!(input).and_then(|()| input.flush()).context("a process with clients has ended")
    }
}

impl Bench {
    /// Runs `clients` in `processes`, and adds up their results. `databases` are this process' own, which only asks nodes
    /// what they have spent.
    pub(super) async fn run_processes<W: Wing>(
        &self,
        cluster: &Cluster,
        run: (&str, bool),
        (clients, processes): (usize, usize),
        databases: &[Database],
        driver: Arc<dyn Driver>,
    ) -> anyhow::Result<Row> {
        let progress = Progress::new(self.load.json);
        let keyspace = cluster.keyspace().to_string();
        let address = with_poll(cluster.url(), self.poll_us);
        let step = processes.min(clients);
        let share = |first| Share {
            first,
            step,
            clients,
            keyspace: keyspace.clone(),
            address: address.clone(),
        };
        let mut started = Vec::new();
        for first in 0..step {
            started.push(Process::start(&share(first))?);
        }
        // Nodes have threads of their own, so nobody is held up while this one reads.
        for process in &mut started {
            let line = process.line()?;
            anyhow::ensure!(line == READY, "a process with clients says `{line}`");
        }
        let load =
            Load::<W>::new(&self.load, run, clients, self.workload.workload::<W>()?, driver.now());
        for process in &mut started {
            process.go()?;
        }
        let window = load.measurement.window();
        progress.say(format!("{}, {clients} clients in {step} processes", load.protocol));
        let sleep_until = |at| Alarm::at(driver.clone(), at).wait();
        sleep_until(window.from).await;
        let before = Spent::so_far(databases).await;
        sleep_until(window.until).await;
        let after = Spent::so_far(databases).await;
        let mut spent = ClientsSpent::default();
        for process in &mut started {
            let line = process.line()?;
            let Reported { results, spent: of_process } = serde_json::from_str(&line)
                .context("can't understand what a process with clients reports")?;
            load.measurement.add(results);
            spent.cpu += of_process.cpu;
            spent.messages += of_process.messages;
            spent.flushes += of_process.flushes;
        }
        drop(progress);
        let committed = load.measurement.report().committed;
        let (mut row, _) = load.finish(W::Before::default(), Ok(None), self.load.json)?;
        row.costs = Some(after.with_clients(&before, spent).since(&before, committed));
        Ok(row)
    }

    /// Runs a share of the clients of another process.
    pub(super) fn run_share<W: Wing>(&self, share: &Share) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let database = Database::connect(&share.address).await?;
            let keyspace = database.open::<W>(&share.keyspace).await?;
            let workload = self.workload.workload::<W>()?;
            println!("{READY}");
            stdout().flush()?;
            let mut line = String::new();
            anyhow::ensure!(stdin().read_line(&mut line)? > 0, NOBODY_WAITS);
            let input = input_ended();
            tokio::spawn(async {
                let _ = input.await;
                // The other process has ended, and these clients end with it.
                eprintln!("serried: {NOBODY_WAITS}");
                std::process::exit(1);
            });
            let driver = W::driver(&keyspace);
            let load =
                Load::<W>::new(&self.load, ("", false), share.clients, workload, driver.now());
            let client = |i| tokio::spawn(load.client(i, &keyspace));
            let tasks: Vec<_> = share.numbers().map(client).collect();
            let window = load.measurement.window();
            let sleep_until = |at| Alarm::at(driver.clone(), at).wait();
            sleep_until(window.from).await;
            let before = ClientsSpent::so_far(&database);
            sleep_until(window.until).await;
            let spent = ClientsSpent::so_far(&database).since(before);
            for task in tasks {
                task.await.context("a client panicked")?;
            }
            let reported = Reported { results: load.measurement.results(), spent };
            println!("{}", serde_json::to_string(&reported)?);
            drop(keyspace);
            database.close().await;
            Ok(())
        })
    }
}

impl ClientsSpent {
    fn so_far(database: &Database) -> ClientsSpent {
        let statistics = database.client().statistics();
        ClientsSpent {
            cpu: serried_node::process_cpu_time(),
            messages: statistics.messages_sent,
            flushes: statistics.flushes,
        }
    }

    fn since(self, earlier: ClientsSpent) -> ClientsSpent {
        ClientsSpent {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            messages: self.messages - earlier.messages,
            flushes: self.flushes - earlier.flushes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_in_other_processes_look_for_messages_as_long_as_they_should() {
        let address = "serried://127.0.0.1:7400".to_string();
        assert_eq!(with_poll(address.clone(), 0), address);
        assert_eq!(with_poll(address, 150), "serried://127.0.0.1:7400?poll_us=150");
    }

    #[test]
    fn a_share_survives_its_text() {
        let share = Share {
            first: 3,
            step: 8,
            clients: 64,
            keyspace: "benchmark".to_string(),
            address: "serried://127.0.0.1:7400,127.0.0.1:7401".to_string(),
        };
        assert_eq!(share.to_string().parse(), Ok(share.clone()));
        let all =
            (0..8).flat_map(|first| Share { first, ..share.clone() }.numbers().collect::<Vec<_>>());
        let all: std::collections::BTreeSet<usize> = all.collect();
        assert_eq!((all.len(), all.last()), (64, Some(&63)));
        assert_eq!(share.numbers().count(), 8);
        for wrong in ["", "1/2/3", "1/2/x/k/serried://a", "1/2/3/k"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }
}
