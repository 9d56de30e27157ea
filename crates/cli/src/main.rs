//! The binary `serried`: a node, a shell, and everything to see and measure what the protocols do.

mod arguments;
mod bench;
mod calibrate;
mod check;
mod cluster;
mod cost;
mod costs;
mod demo;
mod faults;
mod judge;
mod live;
mod load;
mod log_changes;
mod operations;
mod progress;
mod reproduce;
mod serve;
mod shell;
mod sim;
mod status;
mod table;
mod torture;
mod windows;
mod wing;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A replicated transactional key-value database for contended data.
///
/// Where others abort, lock and back off, Serried re-executes: try `serried demo`.
#[derive(Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 all is well; 1 something failed; 2 the command line was wrong; \
3 a history broke its guarantee; 4 it can't be told whether it did.";

#[derive(Subcommand)]
enum Command {
    /// Watch a three-node cluster on this machine commit contended transactions
    Demo(demo::Demo),
    /// Run a node
    Serve(serve::Serve),
    /// Talk to a running cluster
    Shell(shell::Shell),
    /// Measure a workload on a real cluster, over TCP
    Bench(bench::Bench),
    /// Measure a workload in simulated time, in any geography
    Sim(sim::Sim),
    /// See what bounds the throughput of the hottest keys
    Windows(windows::Windows),
    /// Run a paper's experiment in simulation, and put the paper's numbers beside ours
    Reproduce(reproduce::Reproduce),
    /// Measure what computing costs on this machine, for simulations
    Calibrate(calibrate::Calibrate),
    /// Check a recorded history against a guarantee
    Check(check::Check),
    /// Show how each node of a cluster is doing
    Status(status::Status),
    /// Kill nodes and clients at random, and check that nothing acknowledged is lost
    Torture(torture::Torture),
    /// The clients that `torture` starts and kills
    #[command(hide = true)]
    TortureClient(torture::TortureClient),
}

/// How a command ended, if nothing went wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    /// A cluster has nodes that do not serve.
    Degraded,
    /// A history broke its guarantee.
    Violation,
    /// A history does not tell whether it kept its guarantee.
    Unknown,
}

/// How lines of the log are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Human,
    /// One JSON object a line
    Json,
}

/// Logs to standard error what `usual` lets through, or what SERRIED_LOG says instead.
fn start_log(usual: &str, format: LogFormat) {
    let filter = EnvFilter::try_from_env("SERRIED_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    let log = log.with_writer(std::io::stderr);
    match format {
        LogFormat::Human => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

/// What went wrong, with its causes. Some errors name their cause themselves, which is not said twice.
fn text(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| match text.contains(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    match &command {
        // A node says what it does; everything else speaks for itself.
        Command::Serve(serve) => start_log(&serve.log, serve.log_format),
        _ => start_log("warn", LogFormat::Human),
    }
    let ended = match command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(serve) => serve.run(),
        Command::Shell(shell) => shell.run(),
        Command::Bench(bench) => bench.run(),
        Command::Sim(sim) => sim.run(),
        Command::Windows(windows) => windows.run(),
        Command::Reproduce(reproduce) => reproduce.run(),
        Command::Calibrate(calibrate) => calibrate.run(),
        Command::Check(check) => check.run(),
        Command::Status(status) => status.run(),
        Command::Torture(torture) => torture.run(),
        Command::TortureClient(client) => client.run(),
    };
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Degraded) => ExitCode::FAILURE,
        Ok(Ended::Violation) => ExitCode::from(3),
        Ok(Ended::Unknown) => ExitCode::from(4),
        Err(error) => {
            eprintln!("serried: {}", text(&error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        let denied = || std::io::Error::other("denied");
        let path = std::path::PathBuf::from("data");
        let named = serried_storage::StorageError::Io { path, source: denied() };
        assert_eq!(text(&anyhow::Error::new(named)), "data: denied");
        let unnamed = anyhow::Error::new(denied()).context("can't serve metrics");
        assert_eq!(text(&unnamed), "can't serve metrics: denied");
    }

    #[test]
    fn the_help_lists_what_there_is_to_run() {
        let help = <Arguments as clap::CommandFactory>::command().render_help().to_string();
        assert!(help.contains("\n  torture ") && help.contains("\n  status "), "{help}");
    }
}
