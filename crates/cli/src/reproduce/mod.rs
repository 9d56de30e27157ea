//! `serried reproduce`: a figure of a paper, the paper's numbers beside ours.

mod teller;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serried_reproduce::{Effort, Engine, Figure, Findings, Search};

use crate::Ended;
use crate::arguments::{MOST_PER_S, protocols};
use crate::costs::CostArguments;
use crate::misuse::{MOST_CLIENTS, MOST_KEYS, MOST_SECONDS, Misuse, number, seconds_above_0};
use crate::wing::registers::offers_rmws;
use crate::wing::snapshots::offers_write_transactions;
use teller::Teller;

/// The greatest place on a horizontal axis.
const MOST_PLACE: f64 = 1000.0;
/// The most simulations at the same time.
const MOST_JOBS: usize = 1024;

const EXAMPLES: &str = "\
Examples:
  serried reproduce morty-fig7
  serried reproduce morty-fig9 --quick
  serried reproduce morty-fig8 --protocol morty,mvtso --costs costs.toml --output figures
  serried reproduce gryff-fig7
  serried reproduce gryff-fig14 --quick --protocol epaxos
  serried reproduce ncc-fig7a --quick
  serried reproduce ncc-fig7a --protocol mvtso --rate 20000,40000
  serried reproduce rococo-fig14 --quick --keys 10000
  serried reproduce rococo-fig15 --places 10,20";

/// Run a paper's experiment in simulation, and put the paper's numbers beside ours.
///
/// Figures of goodput add clients at each place of the figure until goodput levels off. Figures of latencies have
/// as many clients as the paper. In figures of systems under load, clients in open loops double the offered load
/// until a system can't follow. The table goes to standard output. The folder of --output gets the same as JSON,
/// all runs as CSV, and a page with charts. Runs that are found there with the same settings are not repeated, so
/// start a figure that was interrupted again. After a change of the code, use another folder or --fresh.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// Which figure
    #[arg(value_parser = figures())]
    figure: String,
    /// Protocols to run, separated by commas [default: those of the paper that are in this build]
    #[arg(long, value_delimiter = ',', value_parser = protocols())]
    protocol: Option<Vec<String>>,
    /// The folder for the results; it has a folder for the runs of each figure
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    output: PathBuf,
    /// For a first impression: shorter runs, fewer client counts, fewer places
    #[arg(long)]
    quick: bool,
    /// Repeat all runs
    #[arg(long)]
    fresh: bool,
    /// The client counts, from few to many, separated by commas; only one for figures of latencies and of
    /// systems under load
    #[arg(long, value_delimiter = ',', value_parser = number(1..=MOST_CLIENTS))]
    clients: Option<Vec<usize>>,
    /// For figures of systems under load: how many transactions per second are offered, run by run, separated
    /// by commas [default: double the load from run to run until a system can't follow]
    #[arg(long, value_name = "PER SECOND", value_delimiter = ',', value_parser = number(1.0..=MOST_PER_S))]
    rate: Option<Vec<f64>>,
    /// Places on the horizontal axis, in place of the paper's, separated by commas: for rococo-fig14 clients for each
    /// server, for rococo-fig15 servers, for port-fig9 clients that write
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', value_parser = number(0.0..=MOST_PLACE))]
    places: Option<Vec<f64>>,
    /// How long to measure each run, in simulated seconds
    #[arg(long, value_parser = seconds_above_0)]
    seconds: Option<f64>,
    /// How long to run before that, in simulated seconds
    #[arg(long, value_parser = number(0.0..=MOST_SECONDS))]
    warm_up: Option<f64>,
    /// End warming up, and then measuring, after this many committed transactions or operations; this
    /// bounds memory, too
    #[arg(long, value_parser = number(1..=u64::MAX))]
    most_transactions: Option<u64>,
    /// How many keys there are, or warehouses for TPC-C, or items for TPC-C as procedures, instead of the paper's number;
    /// for registers, how many each client has of its own
    #[arg(long, value_parser = number(1..=MOST_KEYS))]
    keys: Option<u64>,
    #[command(flatten)]
    costs: CostArguments,
    /// The seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many simulations to run at the same time [default: as many as there are cores]
    #[arg(long, value_parser = number(1..=MOST_JOBS))]
    jobs: Option<usize>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// The names of all figures.
fn figures() -> PossibleValuesParser {
    let figures = serried_reproduce::figures();
    figures.map(|figure| PossibleValue::new(figure.name).help(figure.summary)).into()
}

impl Reproduce {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let figure = serried_reproduce::figure(&self.figure)?;
        self.check_protocols(figure)?;
        let engine = self.engine(figure)?;
        self.prepare(&engine.folder)?;
        let teller = Teller::new(self.json);
        let findings = engine.run(&|note| teller.report(note))?;
        drop(teller);
        self.show(&findings)
    }

    /// Checks that all protocols that are asked for are of the figure's family and have its operations.
    fn check_protocols(&self, figure: &Figure) -> anyhow::Result<()> {
        let wanted = figure.families();
        for protocol in self.protocol.iter().flatten() {
            let family = serried_protocols::info(protocol).map(|info| info.family);
            let Some(family) = family.filter(|family| !wanted.contains(family)) else { continue };
            let choices = wanted.iter().flat_map(|family| serried_protocols::of(*family));
            let choices = choices.map(|protocol| protocol.name).collect::<Vec<_>>().join(", ");
            let wanted = wanted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let figure = &self.figure;
            let wrong = format!(
                "`{figure}` is a figure of {wanted}, and `{protocol}` has {family}: choose of {choices}"
            );
            return Err(Misuse(wrong).into());
        }
        let mut modifying = self.protocol.iter().flatten().filter(|_| figure.modifies());
        if let Some(unable) = modifying.find(|protocol| !offers_rmws(protocol)) {
            demand!(false, "`{unable}` has no read-modify-writes, and `{}` does some", figure.name);
        }
        let mut writing = self.protocol.iter().flatten();
        let unable = writing.find(|protocol| !offers_write_transactions(protocol));
        if let Some(unable) = unable.filter(|_| figure.needs_write_transactions()) {
            let name = figure.name;
            demand!(false, "`{unable}` has no write transactions, and `{name}` needs them");
        }
        Ok(())
    }

    fn prepare(&self, folder: &Path) -> anyhow::Result<()> {
        if self.fresh && folder.exists() {
            std::fs::remove_dir_all(folder)
                .with_context(|| format!("can't remove {}", folder.display()))?;
        }
        Ok(())
    }

    /// Writes the findings, and prints them.
    fn show(&self, findings: &Findings) -> anyhow::Result<Ended> {
        let written = serried_reproduce::write(findings, &self.output)?;
        if self.json {
            println!("{}", serde_json::to_string(findings)?);
            return Ok(Ended::Well);
        }
        print!("{}", serried_reproduce::table(findings));
        let written = written.map(|path| path.display().to_string());
        println!("\nWritten: {}", written.join(", "));
        Ok(Ended::Well)
    }

    /// The client counts that are asked for.
    fn clients(&self) -> anyhow::Result<Option<Vec<usize>>> {
        if let Some(clients) = &self.clients {
            demand!(clients.is_sorted(), "--clients must be ascending");
        }
        Ok(self.clients.clone())
    }

    /// The times to run and measure, those of an effort unless others are asked for.
    fn times(&self, warm_up_s: f64, measured_s: f64) -> (f64, f64) {
        (self.warm_up.unwrap_or(warm_up_s), self.seconds.unwrap_or(measured_s))
    }

    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.unwrap_or(cores).max(1)
    }

    fn engine(&self, figure: &'static Figure) -> anyhow::Result<Engine> {
        Ok(Engine {
            figure,
            protocols: self.protocol.clone().unwrap_or_else(|| figure.known_protocols()),
            effort: self.effort(figure)?,
            costs: self.costs.read()?,
            seed: self.seed,
            threads: self.threads(),
            folder: self.output.join(figure.name),
        })
    }

    /// The figure's effort, with what is asked for instead.
    fn effort(&self, figure: &Figure) -> anyhow::Result<Effort> {
        let mut effort = figure.effort(self.quick);
        (effort.warm_up_s, effort.measured_s) = self.times(effort.warm_up_s, effort.measured_s);
        effort.most_operations = self.most_transactions.unwrap_or(effort.most_operations);
        effort.size = self.keys;
        effort.places = self.places(figure)?;
        let asked = self.clients()?;
        if let Some(asked) = &asked {
            demand!(
                !figure.sets_clients(),
                "`{}` says itself how many clients there are: choose --places",
                figure.name
            );
            let can_be = asked.len() == 1 || figure.varies_clients();
            demand!(can_be, "`{}` has one number of --clients", figure.name);
        }
        match &mut effort.search {
            Search::Clients { counts, patience } => {
                demand!(
                    self.rate.is_none(),
                    "--rate is for figures of systems under load, and `{}` is none",
                    figure.name
                );
                if let Some(asked) = asked {
                    (*counts, *patience) = (asked, None);
                }
            }
            Search::Rates { clients, rates_per_s, .. } => {
                *clients = asked.map_or(*clients, |asked| asked[0]);
                *rates_per_s = self.rates()?;
            }
        }
        Ok(effort)
    }

    /// The places that are asked for.
    fn places(&self, figure: &Figure) -> anyhow::Result<Option<Vec<f64>>> {
        if let Some(places) = &self.places {
            demand!(figure.has_places(), "`{}` has no --places", figure.name);
            demand!(places.is_sorted(), "--places must be ascending");
            let is_whole = places.iter().all(|place| place.fract() == 0.0 && *place >= 1.0);
            demand!(
                is_whole || !figure.has_whole_places(),
                "--places of `{}` are whole numbers from 1",
                figure.name
            );
        }
        Ok(self.places.clone())
    }

    /// The rates that are asked for.
    fn rates(&self) -> anyhow::Result<Vec<f64>> {
        let rates = self.rate.clone().unwrap_or_default();
        demand!(rates.is_sorted(), "--rate must be ascending numbers of transactions per second");
        Ok(rates)
    }
}
