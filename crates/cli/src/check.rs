//! `serried check`: checks a history from a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;
use serried_history::{
    Budget, EventKind, History, RegisterHistory, check_linearizable, check_regular_sequential,
};

use crate::{Ended, judge};

/// Check a recorded history against a guarantee.
///
/// The history is JSON lines in Jepsen's form, as `bench` and `sim` write them with --history, or as
/// other tools do: of transactions, whose f is "txn", or of single-key operations on registers, whose
/// f is "read", "write", "cas" or "add". A violation is explained by a smallest set of transactions or
/// operations.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Check {
    /// The history; `-` for standard input
    file: PathBuf,
    /// The guarantee to check [default: serializable for transactions, linearizable for registers]
    #[arg(long, value_enum)]
    guarantee: Option<Guarantee>,
    /// For registers: how many states to visit at most in the search for an order. If they do not
    /// suffice, it can't be decided. Matters only where values repeat
    #[arg(long, value_name = "NUMBER", default_value_t = Budget::default().states)]
    states: u64,
    /// For transactions: writes with this version or an older one were made before the history begins,
    /// so that the history may read what it has not written
    #[arg(long, value_name = "VERSION")]
    initial_before: Option<serried_model::Version>,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

const HELP: &str = r#"Registers, one operation on one key a line (v is an integer, or null for an absent key):
  {"type":"invoke","process":3,"time":1200,"f":"read","value":[5,null]}
  {"type":"ok","process":3,"time":1900,"f":"read","value":[5,7]}
An "ok" of "cas" [key,[expected,new]] and of "add" [key,delta] has what was found as a third entry.
An operation with "fail" took no effect. One with "info", or without an end, may take effect at any
later time. The order of the lines says which operations ended before others began. An "ok" may have
"version":[ts,id,rmwc], the operation's place in the order that the database claims.

Examples:
  serried sim list-append --clients 20 --history /tmp/lists.jsonl --protocol morty
  serried check /tmp/lists.jsonl
  serried check --guarantee strict-serializable /tmp/lists.jsonl
  serried check --guarantee regular-sequential /tmp/registers.jsonl"#;

/// A guarantee that can be checked.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Guarantee {
    /// Transactions could have run one after the other
    Serializable,
    /// They could have run so, each after all that had ended before it began
    StrictSerializable,
    /// Each key's operations took effect one by one, between their beginnings and ends
    Linearizable,
    /// All operations took effect in one order that respects causality, and none missed a write to its
    /// key that had completed before it began
    RegularSequential,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let name = self.file.display();
        let input: Box<dyn Read> = if self.file.as_os_str() == "-" {
            Box::new(stdin().lock())
        } else {
            Box::new(File::open(&self.file).with_context(|| unreadable(&self.file))?)
        };
        let mut input = BufReader::new(input);
        let first = first_line(&mut input).with_context(|| format!("can't read {name}"))?;
        let registers = RegisterHistory::recognises(&first);
        let input = Cursor::new(first).chain(input);
        let context = || format!("can't read {name}");
        let (judged, completed) = match (registers, self.guarantee) {
            (false, None | Some(Guarantee::Serializable)) => {
                let history = History::read_json_lines(input).with_context(context)?;
                let guarantee = serried_model::Guarantee::Serializable;
                let judged = judge::judge_transactions(&history, guarantee, self.initial_before);
                (judged, completed(&history))
            }
            (false, Some(Guarantee::StrictSerializable)) => {
                let history = History::read_json_lines(input).with_context(context)?;
                let guarantee = serried_model::Guarantee::StrictSerializable;
                let judged = judge::judge_transactions(&history, guarantee, self.initial_before);
                (judged, completed(&history))
            }
            (true, None | Some(Guarantee::Linearizable)) => {
                let history = RegisterHistory::read_json_lines(input).with_context(context)?;
                let verdict = check_linearizable(&history, &self.budget());
                (judge::describe_registers(verdict), completed_operations(&history))
            }
            (true, Some(Guarantee::RegularSequential)) => {
                let history = RegisterHistory::read_json_lines(input).with_context(context)?;
                let verdict = check_regular_sequential(&history, &self.budget());
                (judge::describe_registers(verdict), completed_operations(&history))
            }
            (true, Some(Guarantee::Serializable | Guarantee::StrictSerializable)) => anyhow::bail!(
                "{name} is a history of registers: check it with --guarantee linearizable or \
                 regular-sequential"
            ),
            (false, Some(_)) => anyhow::bail!(
                "{name} is no history of registers: check it with --guarantee serializable or \
                 strict-serializable"
            ),
        };
        let (ended, word, text) = match judged {
            (Ended::Well, ..) if !completed => {
                let text = "it can't be decided: nothing in the history has succeeded".to_string();
                (Ended::Unknown, "unknown: nothing has succeeded".to_string(), text)
            }
            judged => judged,
        };
        if self.json {
            println!(
                "{}",
                json!({ "file": name.to_string(), "verdict": word, "explanation": text })
            );
        } else {
            println!("{text}");
        }
        Ok(ended)
    }

    fn budget(&self) -> Budget {
        Budget { states: self.states, ..Budget::default() }
    }
}

/// The most files that an error names.
const MOST_NAMED: usize = 4;

/// An error about a file that can't be opened. If several runs have written histories, the error names their files.
fn unreadable(file: &Path) -> String {
    let folder = match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = (part(file.file_stem()), part(file.extension()));
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let of_runs = |name: &String| {
        name.starts_with(&format!("{stem}-")) && name.ends_with(&format!(".{extension}"))
    };
    let mut names: Vec<String> = names.filter(of_runs).collect();
    names.sort();
    names.truncate(MOST_NAMED);
    match names.is_empty() {
        true => format!("can't read {}", file.display()),
        false => format!(
            "can't read {}, but several runs may have written {}",
            file.display(),
            names.join(", ")
        ),
    }
}

/// Whether anything was committed. A history of failures shows nothing.
fn completed(history: &History) -> bool {
    history.events.iter().any(|event| event.kind == EventKind::Ok)
}

/// Whether any operation on registers has succeeded.
fn completed_operations(history: &RegisterHistory) -> bool {
    history.events.iter().any(|event| event.kind == EventKind::Ok)
}

/// The first line that is not empty, with the empty ones before it. It shows the history's family.
fn first_line(input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    while lines.iter().all(u8::is_ascii_whitespace) && input.read_until(b'\n', &mut lines)? > 0 {}
    Ok(lines)
}
