//! `serried reproduce`: a figure of a paper, the paper's numbers beside ours.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serried_reproduce::{Effort, Engine, Note};

use crate::Ended;
use crate::arguments::protocols;
use crate::costs::CostArguments;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  serried reproduce morty-fig7
  serried reproduce morty-fig9 --quick
  serried reproduce morty-fig8 --protocol morty,mvtso --costs costs.toml --output figures";

/// Run a paper's experiment in simulation, and put the paper's numbers beside ours.
///
/// Each protocol runs with ever more clients until its goodput rises no more, at each place of the
/// figure. The table goes to standard output; the folder of --output gets the same as JSON, all runs as
/// CSV, and a page with charts. Runs that are found there with the same settings are not made again, so
/// a sweep that was interrupted goes on; after a change of the code, use another folder or --fresh.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// Which figure
    #[arg(value_parser = figures())]
    figure: String,
    /// Protocols to run, separated by commas [default: those of the paper that are in this build]
    #[arg(long, value_delimiter = ',', value_parser = protocols())]
    protocol: Option<Vec<String>>,
    /// Where results go; the runs of a figure are kept in a folder of its name in it
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    output: PathBuf,
    /// Make a first impression: shorter runs, fewer client counts, fewer places
    #[arg(long)]
    quick: bool,
    /// Make all runs again
    #[arg(long)]
    fresh: bool,
    /// The client counts, from few to many, separated by commas
    #[arg(long, value_delimiter = ',')]
    clients: Option<Vec<usize>>,
    /// How long to measure each run, in simulated seconds
    #[arg(long)]
    seconds: Option<f64>,
    /// How long to run before that, in simulated seconds
    #[arg(long)]
    warm_up: Option<f64>,
    /// End warming up and measuring when so many transactions have been committed; bounds memory too
    #[arg(long)]
    most_transactions: Option<u64>,
    /// How many keys, or warehouses for TPC-C, instead of the paper's
    #[arg(long)]
    keys: Option<u64>,
    #[command(flatten)]
    costs: CostArguments,
    /// The seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many simulations to run at the same time [default: as many as there are cores]
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// The names of all figures.
fn figures() -> PossibleValuesParser {
    let figures = serried_reproduce::figures().iter();
    figures.map(|figure| PossibleValue::new(figure.name).help(figure.summary)).into()
}

impl Reproduce {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let engine = self.engine()?;
        if self.fresh && engine.folder.exists() {
            std::fs::remove_dir_all(&engine.folder)
                .with_context(|| format!("can't remove {}", engine.folder.display()))?;
        }
        let teller = Teller::new(self.json);
        let findings = engine.run(&|note| teller.tell(note))?;
        drop(teller);
        let written = serried_reproduce::write(&findings, &self.output)?;
        if self.json {
            println!("{}", serde_json::to_string(&findings)?);
            return Ok(Ended::Well);
        }
        print!("{}", serried_reproduce::table(&findings));
        let written = written.map(|path| path.display().to_string());
        println!("\nWritten: {}", written.join(", "));
        Ok(Ended::Well)
    }

    fn engine(&self) -> anyhow::Result<Engine> {
        let figure = serried_reproduce::figure(&self.figure)?;
        let mut effort = if self.quick { Effort::quick() } else { Effort::full() };
        if let Some(clients) = &self.clients {
            anyhow::ensure!(
                !clients.is_empty() && clients.is_sorted() && clients[0] > 0,
                "--clients must be above 0 and ascending"
            );
            effort.clients = clients.clone();
            effort.patience = usize::MAX;
        }
        let times = [(&mut effort.measured_s, self.seconds), (&mut effort.warm_up_s, self.warm_up)];
        for (time, given) in times {
            *time = given.unwrap_or(*time);
            anyhow::ensure!(
                (0.0..1e5).contains(time),
                "{time} s is no time to run: it must be 0 or more, and below 100000"
            );
        }
        anyhow::ensure!(effort.measured_s > 0.0, "--seconds must be above 0");
        effort.most_transactions = self.most_transactions.unwrap_or(effort.most_transactions);
        effort.size = self.keys;
        anyhow::ensure!(self.keys != Some(0), "--keys 0: there must be something to work on");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Engine {
            figure,
            protocols: self.protocol.clone().unwrap_or_else(Engine::known_protocols),
            effort,
            costs: self.costs.read()?,
            seed: self.seed,
            threads: self.jobs.unwrap_or(cores).max(1),
            folder: self.output.join(figure.name),
        })
    }
}

/// Says on standard error how far a sweep is: a line for each run, and on a terminal how long the rest
/// will take.
struct Teller {
    quiet: bool,
    progress: Progress,
    begun: Instant,
}

impl Teller {
    fn new(quiet: bool) -> Teller {
        Teller { quiet, progress: Progress::new(quiet), begun: Instant::now() }
    }

    fn tell(&self, note: Note<'_>) {
        if self.quiet {
            return;
        }
        let Note { panel, x, protocol, measured, stored, done, total } = note;
        let x = x.map_or(String::new(), |x| format!(" at {x}"));
        let how = if stored { ", made before" } else { "" };
        let line = format!(
            "{panel}{x}, {protocol}, {} clients: {:.0} txn/s, {:.1} % of attempts commit{how}",
            measured.clients,
            measured.goodput_per_s,
            measured.commit_rate * 100.0,
        );
        // Runs that come are about as long as those that were: a rough guess.
        let passed = self.begun.elapsed().as_secs_f64();
        let left = passed / done.max(1) as f64 * total.saturating_sub(done) as f64;
        let left = Duration::from_secs(left as u64);
        let far = format!("{done} of at most {total} runs, at most {left:?} to go");
        if std::io::stderr().is_terminal() {
            self.progress.line(line);
            self.progress.say(far);
        } else {
            eprintln!("{line} ({far})");
        }
    }
}
