//! `serried check`: checks a history from a file.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, stdin};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use serried_model::{FamilyName, Guarantee};

use crate::Ended;
use crate::judge::Judged;
use crate::wing::{self, CheckArguments, Wing, with_wing};

/// Check a recorded history against a guarantee.
#[derive(Args)]
#[command(long_about = about(), after_help = help())]
pub(crate) struct Check {
    /// The history; `-` for standard input
    file: PathBuf,
    #[arg(long, value_parser = guarantees(), help = guarantee_help())]
    guarantee: Option<Guarantee>,
    #[command(flatten)]
    of_family: CheckArguments,
    /// Print the verdict as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  serried sim list-append --clients 20 --history /tmp/lists.jsonl --protocol morty
  serried check /tmp/lists.jsonl
  serried check --guarantee strict-serializable /tmp/lists.jsonl
  serried check --guarantee regular-sequential /tmp/registers.jsonl";

/// What the command does, and which histories it reads.
fn about() -> String {
    let recorded = FamilyName::ALL.map(|family| with_wing!(family, W => W::RECORDED));
    format!(
        "Check a recorded history against a guarantee.\n\n\
         The history is JSON lines in Jepsen's form, as `bench` and `sim` write them with --history, or as other \
         tools do: of {}. A violation is explained by a smallest set of transactions or operations.",
        recorded.join(", or of ")
    )
}

/// The formats of histories, and examples.
fn help() -> String {
    let formats = FamilyName::ALL.map(|family| with_wing!(family, W => W::FORMAT));
    let formats = formats.into_iter().filter(|format| !format.is_empty());
    formats.chain([EXAMPLES]).collect::<Vec<_>>().join("\n\n")
}

/// What `--guarantee` is for, and what it is without.
fn guarantee_help() -> String {
    let usual = FamilyName::ALL.into_iter().filter_map(|family| {
        let (guarantee, _) = wing::checked(family).next()?;
        Some(format!("{guarantee} for {family}"))
    });
    format!("The guarantee to check [default: {}]", usual.collect::<Vec<_>>().join(", "))
}

/// The names of the guarantees that can be checked.
fn guarantees() -> impl TypedValueParser<Value = Guarantee> {
    let mut checked: Vec<(Guarantee, &'static str)> = Vec::new();
    for (guarantee, what) in FamilyName::ALL.into_iter().flat_map(wing::checked) {
        if checked.iter().all(|(known, _)| *known != guarantee) {
            checked.push((guarantee, what));
        }
    }
    let values = checked.into_iter();
    let values = values.map(|(guarantee, what)| PossibleValue::new(guarantee.name()).help(what));
    PossibleValuesParser::new(values)
        .map(|name| Guarantee::named(&name).expect("these are guarantees' names"))
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
        let last = first.trim_ascii_end().rsplit(|byte| *byte == b'\n').next();
        let family = wing::of_history(last.unwrap_or_default(), self.guarantee);
        let mut input = Cursor::new(first).chain(input);
        let judged = with_wing!(family, W => self.judge::<W>(&mut input));
        let (ended, word, text) = judged?;
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

    /// Judges a history of the family `W`.
    fn judge<W: Wing>(&self, input: &mut dyn BufRead) -> anyhow::Result<Judged> {
        let name = self.file.display();
        let mut checked = W::CHECKED.iter().map(|(guarantee, _)| *guarantee);
        let guarantee = match self.guarantee {
            None => checked.next(),
            Some(wanted) => checked.find(|guarantee| *guarantee == wanted),
        };
        let guarantee = guarantee.with_context(|| {
            let names: Vec<_> = W::CHECKED.iter().map(|(guarantee, _)| guarantee.name()).collect();
            format!(
                "{name} is a history of {}: check it with --guarantee {}",
                W::NAME,
                names.join(" or ")
            )
        })?;
        let judged = W::judge_file(input, guarantee, &self.of_family);
        Ok(match judged.with_context(|| format!("can't read {name}"))? {
            ((Ended::Well, ..), false) => {
                let text = "it can't be decided: nothing in the history has succeeded".to_string();
                (Ended::Unknown, "unknown: nothing has succeeded".to_string(), text)
            }
            (judged, _) => judged,
        })
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

/// The first line that is not skipped, with those before it. It shows the history's family.
fn first_line(input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    if input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
        input.consume(BYTE_ORDER_MARK.len());
    }
    let mut lines = Vec::new();
    loop {
        let before = lines.len();
        if input.read_until(b'\n', &mut lines)? == 0 {
            return Ok(lines);
        }
        let line = &lines[before..];
        let event = || serde_json::from_slice::<serde_json::Value>(line).unwrap_or_default();
        if !line.iter().all(u8::is_ascii_whitespace) && event()["process"] != "nemesis" {
            return Ok(lines);
        }
    }
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
