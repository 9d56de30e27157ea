//! The binary `serried`: a node, a shell, and tools that measure, check and show what the protocols do.

#[macro_use]
mod output;
#[macro_use]
mod misuse;

mod arguments;
mod bench;
mod calibrate;
mod check;
mod chop;
mod cluster;
mod compare;
mod cost;
mod costs;
mod data;
mod demo;
mod faults;
mod hot;
mod judge;
mod live;
mod load;
mod log_changes;
mod operations;
mod procedure;
mod progress;
mod record;
mod reproduce;
mod serve;
mod shell;
mod sim;
mod status;
mod table;
mod torture;
mod windows;
mod wing;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serried_model::{FamilyName, Guarantee};
use tracing_subscriber::EnvFilter;

use misuse::Misuse;
use output::Unwritten;
use serried_workload::WorkloadError;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A replicated transactional key-value database for contended data.
///
/// Where others abort, lock and back off, Serried re-executes: try `serried demo`.
#[derive(Parser)]
#[command(name = "serried", version, max_term_width = 100, after_help = after_help())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 something failed; 2 the command line was wrong; \
3 a history violates its guarantee, or procedures are refused; 4 it can't be decided whether it does.";

/// The protocols by what they guarantee, and the exit codes.
fn after_help() -> String {
    let line = |guarantee: Guarantee, family: FamilyName| {
        let protocols = serried_protocols::of(family);
        let names = protocols.filter(|protocol| protocol.guarantee == guarantee);
        let names: Vec<&str> = names.map(|protocol| protocol.name).collect();
        let line = || format!("  {family}, {guarantee}: {}\n", names.join(", "));
        (!names.is_empty()).then(line)
    };
    let of_all =
        |guarantee| FamilyName::ALL.into_iter().filter_map(move |family| line(guarantee, family));
    let lines: String = Guarantee::ALL.into_iter().flat_map(of_all).collect();
    format!("Protocols, with what they guarantee:\n{lines}\n{EXIT_CODES}")
}

/// Each command's own type has its help.
#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Serve(serve::Serve),
    Shell(shell::Shell),
    Bench(bench::Bench),
    Sim(sim::Sim),
    Compare(compare::Compare),
    Record(record::Record),
    Windows(windows::Windows),
    Reproduce(reproduce::Reproduce),
    Calibrate(calibrate::Calibrate),
    Check(check::Check),
    Chop(chop::Chop),
    Procedure(procedure::Procedures),
    Status(status::Status),
    Torture(torture::Torture),
    /// The clients that `torture` starts and kills
    #[command(hide = true)]
    TortureClient(torture::TortureClient),
}

impl Command {
    fn run(self) -> anyhow::Result<Ended> {
        match self {
            Command::Demo(demo) => demo.run(),
            Command::Serve(serve) => serve.run(),
            Command::Shell(shell) => shell.run(),
            Command::Bench(bench) => bench.run(),
            Command::Sim(sim) => sim.run(),
            Command::Compare(compare) => compare.run(),
            Command::Record(record) => record.run(),
            Command::Windows(windows) => windows.run(),
            Command::Reproduce(reproduce) => reproduce.run(),
            Command::Calibrate(calibrate) => calibrate.run(),
            Command::Check(check) => check.run(),
            Command::Chop(chop) => chop.run(),
            Command::Procedure(procedures) => procedures.run(),
            Command::Status(status) => status.run(),
            Command::Torture(torture) => torture.run(),
            Command::TortureClient(client) => client.run(),
        }
    }
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    /// A cluster has nodes that do not serve.
    Degraded,
    /// A history violates its guarantee, or procedures could not be reordered.
    Violation,
    /// It can't be decided whether a history violates its guarantee.
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

/// Reads a filter of the log: levels for everything, or for parts of the program.
fn log_filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // To the library an unknown word is a part of the program, and all other parts are silent.
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_known = |word: &str| match word.split_once('=') {
        None => is_level(word),
        Some((part, level)) => part.starts_with("serried") && is_level(level),
    };
    match text.split(',').find(|word| !is_known(word)) {
        None => Ok(text.to_string()),
        Some(word) => Err(format!(
            "`{word}` is no level: choose one of {}, and for a part of the program as in `info,serried_node=debug`",
            LEVELS.join(", ")
        )),
    }
}

/// Logs to standard error. `usual` filters the lines, unless SERRIED_LOG has another filter.
///
/// # Errors
/// If SERRIED_LOG is wrong.
fn start_log(usual: &str, format: LogFormat) -> Result<(), String> {
    let filter = match std::env::var("SERRIED_LOG") {
        Ok(filter) if !filter.is_empty() => {
            log_filter(&filter).map_err(|wrong| format!("SERRIED_LOG: {wrong}"))?
        }
        _ => usual.to_string(),
    };
    let filter = EnvFilter::new(filter);
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    let log = log.with_writer(std::io::stderr);
    match format {
        LogFormat::Human => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// An error with its causes. A cause that the error names itself is not repeated.
fn text(error: &anyhow::Error) -> String {
    let causes = error.chain().skip(1).map(ToString::to_string);
    causes.fold(error.to_string(), |text, cause| match text.contains(&cause) {
        true => text,
        false => format!("{text}: {cause}"),
    })
}

/// The words of the command line. `help --help` is taken for `--help`: to clap, `help` is followed by commands.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    if let [_, help, option] = &*words
        && help == "help"
        && (option == "--help" || option == "-h")
    {
        words.remove(1);
    }
    words
}

fn main() -> ExitCode {
    let command = Arguments::parse_from(words(std::env::args_os().collect())).command;
    let log = match &command {
        // A node's log is its output. The other commands print theirs.
        Command::Serve(serve) => start_log(&serve.log, serve.log_format),
        _ => start_log("warn", LogFormat::Human),
    };
    if let Err(wrong) = log {
        eprintln!("serried: {wrong}");
        return ExitCode::from(2);
    }
    let ended = match output::run(|| command.run()) {
        Ok(ended) => ended,
        Err(Unwritten::NoReader) => return ExitCode::from(output::BROKEN_PIPE),
        Err(failed) => Err(failed.into()),
    };
    match ended {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        Ok(Ended::Degraded) => ExitCode::FAILURE,
        Ok(Ended::Violation) => ExitCode::from(3),
        Ok(Ended::Unknown) => ExitCode::from(4),
        Err(error) => {
            eprintln!("serried: {}", text(&error));
            match error.is::<Misuse>() || error.is::<WorkloadError>() {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
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
    fn the_help_fits_into_its_width_so_that_it_is_not_wrapped_again() {
        let program = <Arguments as clap::CommandFactory>::command();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let columns = help.lines().skip_while(|line| !line.starts_with("Columns"));
            for line in columns.take_while(|line| !line.starts_with("Examples")) {
                assert!(line.chars().count() <= 100, "{}: {line}", command.get_name());
            }
        }
    }

    #[test]
    fn help_is_shown_for_help_as_well() {
        let of = |given: &[&str]| words(given.iter().map(OsString::from).collect());
        assert_eq!(of(&["serried", "help", "--help"]), ["serried", "--help"]);
        assert_eq!(of(&["serried", "help", "-h"]), ["serried", "-h"]);
        assert_eq!(of(&["serried", "help", "sim"]), ["serried", "help", "sim"]);
    }

    #[test]
    fn a_log_filter_of_anything_but_levels_is_refused() {
        for known in ["off", "DEBUG", "trace", "info,serried_node=debug", "serried_wire=trace"] {
            assert_eq!(log_filter(known).as_deref(), Ok(known));
        }
        for unknown in
            ["", "warning", "INFO!", "info,", "foo=bar=baz", "foo=debug", "serried_node=inf"]
        {
            let error = log_filter(unknown).unwrap_err();
            assert!(error.contains("choose one of off, error, warn"), "{error}");
        }
    }

    /// The lines of the command's help that show how to call it.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        lines.filter(|line| line.contains("serried ")).map(str::to_string).collect()
    }

    #[test]
    fn every_example_of_the_help_can_be_parsed() {
        let program = <Arguments as clap::CommandFactory>::command();
        for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
            let examples = examples(command);
            let calls =
                |example: &String| example.contains(&format!("serried {}", command.get_name()));
            assert!(examples.iter().any(calls), "`{}` has no example", command.get_name());
            for example in examples {
                for part in example.split(" && ").flat_map(|part| part.split(" | ")) {
                    let words = shell::split(part).expect("it is well-formed");
                    if words[0] == "serried" {
                        let parsed = Arguments::try_parse_from(&words);
                        assert!(parsed.is_ok(), "`{part}`: {}", parsed.err().unwrap());
                    }
                }
            }
        }
    }
}
