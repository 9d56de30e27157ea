//! `serried compare`: which protocol to take for a workload.

mod advice;

use anyhow::Context;
use clap::{Arg, Args};
use serde::Serialize;
use serried_model::Geography;

use self::advice::{Advice, Candidate, advise};
use crate::Ended;
use crate::costs::{CostArguments, CostFile};
use crate::progress::Progress;
use crate::sim::Sim;
use crate::table::{self, Columns, Row};
use crate::wing::{Wing, able_protocols, with_wing};

const EXAMPLES: &str = "\
Columns:
  promises         the guarantee of the protocol; `none` is a bound, no choice
  txn/s            committed transactions per second of simulated time; for
                   registers and snapshots req/s, for procedures call/s
  attempts         attempts per committed transaction
  CPU us/txn       CPU time of replicas and clients per committed transaction
  replica CPU %    the share of the replicas' cores that was in use
  failed           transactions that ended with an error, as at their deadline
  waiting          clients whose transaction was open at the end of the run, and
                   for half of it: others kept going before them. No latency
                   has such transactions in it

Examples:
  serried compare retwis --geo reg --clients 64
  serried compare tpcc --warehouses 10 --clients 100 --partitions 4
  serried compare counter --clients 16 --protocol morty,ncc,occ
  serried compare bank-calls --durability sync --flush-us 900
  serried compare ycsb --geo gryff-5 --replicas 5 --clients 48 --conflicts 0.1
  serried compare --trace accounts.trace --shared-cores 2
  serried calibrate --output costs.toml && serried compare retwis --costs costs.toml";

/// Find out which protocol to take for a workload.
///
/// It runs the workload under every protocol that can serve it, one after the other, in the simulator
/// of `serried sim`, and takes the same options. The table has the most goodput first. Below it, for
/// each guarantee, are the best protocols by goodput, by median latency (p50) and by p99. Those that
/// differ by less than 15 % are as good as each other. One seed determines everything.
///
/// The simulated CPU costs are the built-in ones of another machine, unless --costs names those of
/// this one, or --calibrate measures them first.
#[derive(Args)]
#[command(after_help = EXAMPLES, mut_args = with_defaults)]
pub(crate) struct Compare {
    #[command(flatten)]
    sim: Sim,
    /// Measure what computing costs on this machine first, as `serried calibrate` does; it takes a minute
    #[arg(long, conflicts_with = "costs")]
    calibrate: bool,
}

/// The defaults in which this differs from `serried sim`: a datacentre, and short runs, as there are many.
fn with_defaults(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "geo" => argument.default_value("lan"),
        "seconds" => argument.default_value("1"),
        "warm_up" => argument.default_value("0.5"),
        "protocol" => argument.help(
            "Compare these protocols, separated by commas [default: all that can serve the workload]",
        ),
        _ => argument,
    }
}

/// What one comparison has found, for machines.
#[derive(Serialize)]
struct Compared<'a> {
    workload: &'a str,
    geography: &'a str,
    clients: usize,
    seed: u64,
    /// Which CPU costs were simulated.
    costs: &'a str,
    /// By goodput, the most first.
    runs: Vec<Run<'a>>,
    advice: &'a Advice,
}

/// One run.
#[derive(Serialize)]
struct Run<'a> {
    promises: &'static str,
    #[serde(flatten)]
    row: &'a Row,
}

impl Compare {
    pub(crate) fn run(mut self) -> anyhow::Result<Ended> {
        let family = self.sim.workload.family()?;
        if self.calibrate {
            self.sim.costs = measured(self.sim.costs, self.sim.load.json)?;
        }
        with_wing!(family, W => self.run_as::<W>())
    }

    fn run_as<W: Wing>(self) -> anyhow::Result<Ended> {
        let geography = self.sim.validate::<W>()?;
        let workload = self.sim.workload.workload::<W>()?;
        let protocols = match self.sim.load.protocol.is_empty() {
            true => able_protocols::<W>(&workload),
            false => self.sim.load.protocols::<W>(&workload)?,
        };
        let mut ended = Ended::Well;
        let clients = self.sim.load.clients::<W>(&workload);
        let several = protocols.len() * clients.len() > 1;
        for (number, clients) in clients.into_iter().enumerate() {
            let mut rows = Vec::new();
            for protocol in &protocols {
                let (mut row, run_ended) =
                    self.sim.run_once::<W>(geography, protocol, several, clients)?;
                if let Some(simulation) = &mut row.simulation {
                    // The output depends on nothing but the arguments.
                    simulation.events_per_second = None;
                }
                rows.push(row);
                ended = ended.and(run_ended);
            }
            rows.sort_by(|one, other| {
                other.report.goodput_per_s.total_cmp(&one.report.goodput_per_s)
            });
            if number > 0 && !self.sim.load.json {
                println!();
            }
            self.print(geography, clients, &rows)?;
        }
        Ok(ended)
    }

    fn print(&self, geography: Geography, clients: usize, rows: &[Row]) -> anyhow::Result<()> {
        let Sim { load, costs, workload, .. } = &self.sim;
        let workload = &workload.title()?;
        let candidates: Vec<Candidate> = rows.iter().map(candidate).collect();
        let advice = advise(&candidates);
        if load.json {
            let run = |(row, candidate): (_, &Candidate)| Run {
                promises: candidate.guarantee.name(),
                row,
            };
            let compared = Compared {
                workload,
                geography: geography.name,
                clients,
                seed: load.seed,
                costs: &costs.origin(),
                runs: rows.iter().zip(&candidates).map(run).collect(),
                advice: &advice,
            };
            println!("{}", serde_json::to_string(&compared)?);
            return Ok(());
        }
        println!(
            "seed {}: {workload} with {clients} clients in simulated `{}`, CPU costs: {}",
            load.seed,
            geography.name,
            costs.origin()
        );
        let unit = unit(rows);
        print_table(rows, &candidates, unit);
        println!("\nAdvice; what differs by less than 15 % is as good:");
        for line in advice.lines(unit) {
            println!("  {line}");
        }
        Ok(())
    }
}

/// The costs of this machine, in place of those that the arguments name.
fn measured(arguments: CostArguments, quiet: bool) -> anyhow::Result<CostArguments> {
    let calibrate = serried_calibrate::Calibrate::usual();
    let progress = Progress::new(quiet);
    let calibration = calibrate
        .run(|what| progress.say(format!("calibrating: {what}")))
        .context("can't measure what computing costs")?;
    Ok(arguments.with_measured(CostFile::from(&calibration)))
}

fn candidate(row: &Row) -> Candidate {
    let info = serried_protocols::info(&row.protocol).expect("it has run");
    let ms = |us: u64| us as f64 / 1e3;
    Candidate {
        protocol: row.protocol.clone(),
        guarantee: info.guarantee,
        committed: row.report.committed,
        waiting: row.report.waiting,
        goodput_per_s: row.report.goodput_per_s,
        latency_ms_p50: ms(row.report.latency_us_p50),
        latency_ms_p99: ms(row.report.latency_us_p99),
    }
}

/// What is counted.
fn unit(rows: &[Row]) -> &'static str {
    match rows.first().map(|row| row.columns) {
        Some(Columns::Operations) => "req",
        Some(Columns::Calls) => "call",
        Some(Columns::Transactions) | None => "txn",
    }
}

fn print_table(rows: &[Row], candidates: &[Candidate], unit: &str) {
    let [rate, cpu, messages] = ["/s", "CPU us/", "msgs/"].map(|text| match text {
        "/s" => format!("{unit}/s"),
        _ => format!("{text}{unit}"),
    });
    let header = [
        "protocol",
        "promises",
        &rate,
        "p50 ms",
        "p99 ms",
        "attempts",
        "failed",
        "waiting",
        &cpu,
        &messages,
        "replica CPU %",
    ];
    let lines = rows.iter().zip(candidates).map(|(row, candidate)| {
        let Candidate { goodput_per_s, latency_ms_p50, latency_ms_p99, .. } = candidate;
        let mut line = vec![
            row.protocol.clone(),
            candidate.guarantee.to_string(),
            format!("{goodput_per_s:.0}"),
            format!("{latency_ms_p50:.2}"),
            format!("{latency_ms_p99:.2}"),
            format!("{:.3}", row.report.attempts_per_txn),
            row.report.failed.to_string(),
            row.report.waiting.to_string(),
        ];
        let simulation = row.simulation.as_ref().expect("the run was simulated");
        line.push(format!("{:.1}", simulation.cpu_us_per_txn));
        line.extend(simulation.cells());
        line
    });
    table::print_aligned(&header, lines);
}
