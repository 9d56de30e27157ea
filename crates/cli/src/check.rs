//! `serried check`: judges a history from a file.

use std::fs::File;
use std::io::{BufReader, stdin};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde_json::json;
use serried_history::{History, Options, check_serializable_with};

use crate::{Ended, judge};

/// Check a recorded history for serializability.
///
/// The history is JSON lines in Jepsen's form, as `bench` and `sim` write them with --history, or as
/// other tools do. A violation is explained by its smallest cycle of transactions.
#[derive(Args)]
#[command(after_help = "\
Example:
  serried sim list-append --clients 20 --history /tmp/lists.jsonl --protocol morty
  serried check /tmp/lists.jsonl")]
pub(crate) struct Check {
    /// The history; `-` for standard input
    file: PathBuf,
    /// Writes with this version or an older one were made before the history begins: reads of them
    /// are not reads of nothing
    #[arg(long, value_name = "VERSION")]
    initial_before: Option<serried_model::Version>,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        let name = self.file.display();
        let history = if self.file.as_os_str() == "-" {
            History::read_json_lines(stdin().lock())
        } else {
            let file = File::open(&self.file).with_context(|| format!("can't read {name}"))?;
            History::read_json_lines(BufReader::new(file))
        };
        let history = history.with_context(|| format!("can't read {name}"))?;
        let options = Options { initial_before: self.initial_before };
        let (ended, word, text) = judge::describe(check_serializable_with(&history, &options));
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
}
