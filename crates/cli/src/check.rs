//! `serried check`: judges a history from a file.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, stdin};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::json;
use serried_history::{
    Budget, EventKind, History, RegisterHistory, check_linearizable, check_regular_sequential,
};

use crate::{Ended, judge};

/// Check a recorded history against the guarantee that the database gave.
///
/// The history is JSON lines in Jepsen's form, as `bench` and `sim` write them with --history, or as
/// other tools do: of transactions, whose f is "txn", or of single-key operations on registers, whose
/// f is "read", "write", "cas" or "add". A violation is explained by its smallest set of transactions
/// or operations.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Check {
    /// The history; `-` for standard input
    file: PathBuf,
    /// What the history has to satisfy [default: serializable for transactions, linearizable for
    /// registers]
    #[arg(long, value_enum)]
    guarantee: Option<Guarantee>,
    /// For registers: how many states to visit at most in search of an order, before the answer is
    /// that it can't be told. Needed only where values repeat
    #[arg(long, value_name = "NUMBER", default_value_t = Budget::default().states)]
    states: u64,
    /// For transactions: writes with this version or an older one were made before the history begins:
    /// reads of them are not reads of nothing
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
"fail" certainly took no effect; after "info", or without an end, it may have at any later time. The
order of the lines tells what ended before something else began. With "version":[ts,id,rmwc], ok
lines can tell the order that the database claims.

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
    /// They could have, each after all that had ended before it began
    StrictSerializable,
    /// Each key's operations took effect one by one, between their beginnings and ends
    Linearizable,
    /// All operations took effect in one order that respects causality, and none missed a write on its
    /// key that had completed before it began
    RegularSequential,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let name = self.file.display();
        let input: Box<dyn Read> = if self.file.as_os_str() == "-" {
            Box::new(stdin().lock())
        } else {
            Box::new(File::open(&self.file).with_context(|| format!("can't read {name}"))?)
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
                let text = "it can't be told: nothing in the history has succeeded".to_string();
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

/// Whether anything was committed. A history of failures only shows nothing.
fn completed(history: &History) -> bool {
    history.events.iter().any(|event| event.kind == EventKind::Ok)
}

/// Whether any operation on registers has succeeded.
fn completed_operations(history: &RegisterHistory) -> bool {
    history.events.iter().any(|event| event.kind == EventKind::Ok)
}

/// The first line that is not empty, with the empty ones before it: it tells what the history is of.
fn first_line(input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    while lines.iter().all(u8::is_ascii_whitespace) && input.read_until(b'\n', &mut lines)? > 0 {}
    Ok(lines)
}
