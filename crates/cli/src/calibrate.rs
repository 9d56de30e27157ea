//! `serried calibrate`: what computing costs on this machine, for simulations.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serried_calibrate::{Calibration, Side, TYPICAL, Work};
use serried_model::FamilyName;

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
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Calibrate {
    /// Write the costs into this file, for --costs of sim, windows and reproduce
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The protocol to calibrate with
    #[arg(long, default_value = serried_protocols::DEFAULT, value_parser = protocols_of(FamilyName::Transactions))]
    protocol: String,
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
        };
        let progress = Progress::new(self.json);
        let calibration = calibrate.run(|what| progress.say(what))?;
        drop(progress);
        if let Some(file) = &self.output {
            let text = format!(
                "{}{}",
                self.comment(&calibration),
                toml::to_string(&CostFile::from(&calibration))?
            );
            std::fs::write(file, text)
                .with_context(|| format!("can't write {}", file.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string(&calibration)?);
        } else {
            print(&calibration);
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
            "# CPU costs, by `serried calibrate --protocol {} --clients {} --seconds {}`.\n\
             # Replicas: {}. Clients: {}.\n",
            self.protocol,
            self.clients,
            self.seconds,
            quality(&calibration.replica),
            quality(&calibration.client)
        )
    }
}

fn print(calibration: &Calibration) {
    println!(
        "{:<22} {:>7}   {:>8} {:>7} {:>7} {:>8} {:>7}   {:>8} {:>7} {:>7} {:>8} {:>7}",
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
            "{:<22} {:>7}   {}   {}{}",
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
        let [event, sent, unit, system_call] = side.fit.costs_ns;
        println!(
            "{name}: {event:.0} ns per event, {sent:.0} ns per message sent, {unit:.0} ns per key, {system_call:.0} ns per system call; \
             residual {:.1} %, loads not fitted to within {:.1} %",
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
