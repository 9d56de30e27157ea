//! `serried demo`: a cluster, a contended workload and a comparison, in one command.

use clap::Args;

use crate::Ended;
use crate::arguments::{LoadArguments, OpenLoopArguments, TraceArguments, WorkloadArguments};
use crate::bench::Bench;
use crate::misuse::{MOST_CLIENTS, MOST_KEYS, MOST_THETA, number, seconds_above_0};
use crate::table;
use crate::wing::FamilyArguments;
use crate::wing::snapshots::SessionArguments;

/// Watch a three-node cluster on this machine commit contended transactions.
///
/// It starts three nodes on loopback, and 64 clients run Retwis on a million keys of a Zipf
/// distribution: first under Morty, which re-executes transactions that missed a write, then under
/// MVTSO, which aborts them. It checks the history of all transactions, and prints both results side
/// by side.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried demo
  serried demo --clients 16 --theta 1.1 --seconds 10")]
pub(crate) struct Demo {
    /// How many clients there are, each of which runs one transaction after the other
    #[arg(long, default_value_t = 64, value_parser = number(1..=MOST_CLIENTS))]
    clients: usize,
    /// The exponent of the Zipf distribution of keys, at most 10; 0 is uniform
    #[arg(long, default_value_t = 0.9, value_parser = number(0.0..=MOST_THETA))]
    theta: f64,
    /// How many keys there are
    #[arg(long, default_value_t = 1_000_000, value_parser = number(1..=MOST_KEYS))]
    keys: u64,
    /// How long to measure each protocol, in seconds
    #[arg(long, default_value_t = 4.0, value_parser = seconds_above_0)]
    seconds: f64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let bench = Bench {
            workload: WorkloadArguments {
                workload: "retwis".to_string(),
                keys: Some(self.keys),
                theta: Some(self.theta),
                key_bytes: 8,
                value_bytes: None,
                writes: None,
                of_family: FamilyArguments::default(),
                thrifty: false,
                trace: TraceArguments::default(),
                uncertainty_us: serried_actor::Settings::default().uncertainty_us,
            },
            load: LoadArguments {
                protocol: serried_protocols::COMPARED.map(str::to_string).into(),
                clients: vec![self.clients],
                open_loop: OpenLoopArguments::default(),
                sessions: SessionArguments::default(),
                seconds: Some(self.seconds),
                warm_up: 1.0,
                cool_down: 0.1,
                seed: 1,
                deadline: 30.0,
                backoff_first_ms: None,
                backoff_most_ms: None,
                history: None,
                check: true,
                json: self.json,
            },
            processes: false,
            client_processes: None,
            poll_us: 0,
            share: None,
            replicas: 3,
            sites: 1,
            partitions: 1,
            geo: None,
            connect: None,
            overwrite: false,
            keyspace: String::new(),
            no_load: false,
            durability: serried::Durability::Memory,
            data: None,
        };
        if !self.json {
            println!(
                "Three nodes on loopback, {} clients, Retwis over {} keys at a Zipf exponent of {}.",
                self.clients, self.keys, self.theta
            );
        }
        let (rows, ended) = bench.measure()?;
        if !self.json {
            println!();
        }
        table::print(&rows, self.json);
        if let ([morty, mvtso], false) = (&rows[..], self.json) {
            println!(
                "\nRe-executing what missed a write ({:.2} times per transaction) committed {:.1} times as much as aborting it.",
                morty.report.re_executions_per_txn,
                morty.report.goodput_per_s / mvtso.report.goodput_per_s.max(1e-9)
            );
        }
        Ok(ended)
    }
}
