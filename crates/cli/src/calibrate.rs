//! `serried calibrate`: what computing costs on this machine, for simulations.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use serried_calibrate::{Calibration, Side, TYPICAL, Work};
use serried_model::FamilyName;
use serried_protocols::of;

use crate::Ended;
use crate::arguments::protocols_of;
use crate::costs::CostFile;
use crate::misuse::{MOST_CLIENTS, number};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  serried calibrate
  serried calibrate --output costs.toml && serried sim retwis --geo reg --costs costs.toml";

/// Measure what computing costs on this machine, for simulations.
///
/// It starts three nodes on loopback, and clients that read and write different numbers of keys, each over
/// connections of its own, and then all over the same. It fits the costs of an event, a message, a key and a system
/// call to the CPU time of nodes and clients. In simulations each event is charged the average of system calls
/// that it causes in a typical load; with --shared-cores they are counted instead. Two loads that are left out of the
/// fit show how good the fit is. It takes one or two minutes. Other work on the machine makes the result worse.
///
/// A message is more work under some protocols than under others. With --each these protocols are measured one by one, with
/// clients that share their connections and also with long values. Simulations with --shared-cores then use the costs of their
/// protocol. That takes half a minute for each protocol.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Calibrate {
    /// Write the costs into this file, for --costs of sim, windows and reproduce
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The protocol to calibrate with
    #[arg(long, default_value = serried_protocols::DEFAULT, value_parser = protocols_of(FamilyName::Transactions))]
    protocol: String,
    /// Measure these protocols on their own, too, separated by commas, or all of transactions: `all`
    #[arg(long, value_name = "PROTOCOLS", value_delimiter = ',', value_parser = each())]
    each: Vec<String>,
    /// How many clients there are
    #[arg(long, default_value_t = 32, value_parser = number(1..=MOST_CLIENTS))]
    clients: usize,
    /// How long to measure in each run, in seconds
    #[arg(long, default_value_t = 0.8, value_parser = number(0.01..=600.0))]
    seconds: f64,
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
}

impl Calibrate {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let calibrate = serried_calibrate::Calibrate {
            protocol: self.protocol.clone(),
            clients: self.clients,
            measured: Duration::from_secs_f64(self.seconds),
            rounds: 2,
            shared: false,
        };
        if let Some(file) = &self.output {
            // A file that can't be written is found before minutes are spent.
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(file)
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        let each: Vec<&str> = match self.each.iter().any(|name| name == ALL) {
            true => of(FamilyName::Transactions).map(|protocol| protocol.name).collect(),
            false => self.each.iter().map(String::as_str).collect(),
        };
        let progress = Progress::new(self.json);
        let calibration = calibrate.run(|what| progress.say(what))?;
        let report = |what| progress.say(what);
        let each = measure_each(&calibrate, &each, report)?;
        drop(progress);
        if let Some(file) = &self.output {
            let text = format!(
                "{}{}",
                self.comment(&calibration),
                toml::to_string(&CostFile::new(&calibration, &each))?
            );
            std::fs::write(file, text)
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        if self.json {
            let protocols: serde_json::Map<String, Value> = each
                .iter()
                .map(|(name, own)| Ok((name.clone(), serde_json::to_value(own)?)))
                .collect::<serde_json::Result<_>>()?;
            let mut all = serde_json::to_value(&calibration)?;
            all["protocols"] = Value::Object(protocols);
            println!("{all}");
        } else {
            print(&calibration);
            for (name, own) in &each {
                println!("\n{name}, on one machine");
                print(own);
            }
        }
        Ok(Ended::Well)
    }

    /// The comment above the costs in a file.
    fn comment(&self, calibration: &Calibration) -> String {
        let quality = |side: &Side| {
            format!(
                "residual {:.1} %, loads not fitted to within {:.1} %, as simulated all within {:.1} %",
                side.fit.residual * 100.0,
                side.greatest_error * 100.0,
                side.greatest_simulated_error * 100.0
            )
        };
        format!(
            "# CPU costs, by `serried calibrate --protocol {}{} --clients {} --seconds {}`.\n\
             # Replicas: {}. Clients: {}.\n",
            self.protocol,
            match &self.each[..] {
                [] => String::new(),
                each => format!(" --each {}", each.join(",")),
            },
            self.clients,
            self.seconds,
            quality(&calibration.replica),
            quality(&calibration.client)
        )
    }
}

/// All protocols of transactions.
const ALL: &str = "all";

/// The protocols that may be measured on their own.
fn each() -> PossibleValuesParser {
    of(FamilyName::Transactions).map(|protocol| protocol.name).chain([ALL]).into()
}

/// Calibrates these protocols as on one machine.
pub(crate) fn measure_each(
    calibrate: &serried_calibrate::Calibrate,
    protocols: &[&str],
    report: impl Fn(String),
) -> anyhow::Result<Vec<(String, Calibration)>> {
    let own = |name: &&str| {
        let calibration = calibrate
            .on_one_machine(name)
            .run(|what| report(format!("{name}: {what}")))
            .with_context(|| format!("can't measure what computing costs under {name}"))?;
        Ok((name.to_string(), calibration))
    };
    protocols.iter().map(own).collect()
}

fn print(calibration: &Calibration) {
    println!(
        "{:<34} {:>7}   {:>8} {:>7} {:>7} {:>8} {:>7}   {:>8} {:>7} {:>7} {:>8} {:>7}",
        "load",
        "txns",
        "replicas",
        "sent",
        "keys",
        "CPU us",
        "fit us",
        "clients",
        "sent",
        "keys",
        "CPU us",
        "fit us"
    );
    let cells = |work: &Work, side: &Side| {
        format!(
            "{:>8.2} {:>6.2} {:>6.1} {:>6.2} {:>7.2} {:>7.2}",
            work.events,
            work.sent_messages,
            work.work_units,
            work.system_calls,
            work.cpu_ns / 1e3,
            side.fit.predict(work) / 1e3
        )
    };
    for sample in &calibration.samples {
        println!(
            "{:<34} {:>7}   {}   {}{}",
            sample.load,
            sample.transactions,
            cells(&sample.replicas, &calibration.replica),
            cells(&sample.clients, &calibration.client),
            if sample.fitted { "" } else { "   not fitted to" }
        );
    }
    println!();
    for (name, side) in [("replica", calibration.replica), ("client", calibration.client)] {
        let costs = side.costs;
        let [event, sent, unit, system_call, byte] = side.fit.costs_ns;
        println!(
            "{name}: {event:.0} ns per event, {sent:.0} ns per message sent, {unit:.0} ns per key, {system_call:.0} ns per system call, \
             {:.0} ns per 1000 bytes; residual {:.1} %, loads not fitted to within {:.1} %",
            byte * 1000.0,
            side.fit.residual * 100.0,
            side.greatest_error * 100.0
        );
        println!(
            "{:width$}  for simulations, with the system calls of `{TYPICAL}`: {} ns per event, {} ns per message sent, {} ns per key; \
             all loads within {:.1} %",
            "",
            costs.event_ns,
            costs.sent_message_ns,
            costs.work_unit_ns,
            side.greatest_simulated_error * 100.0,
            width = name.len()
        );
    }
}
