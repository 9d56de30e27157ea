//! Measures what a node could keep its data in: durable commits per second, and how long opening takes.
//!
//! Everything is measured in one run on one directory, the candidates by turns, so that their ratios
//! mean something on a machine that others use as well. README.md has the figures.

mod candidate;
mod commits;
mod recovery;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

const USAGE: &str = "\
usage: serried-storage-candidates DIRECTORY [SECONDS] [ROUNDS] [KEYS]
  DIRECTORY  a directory that does not exist yet, on the disk to be measured; removed at the end
  SECONDS    how long each measurement of commits takes, 2 by default
  ROUNDS     how many of them there are for each candidate, 3 by default; their median counts
  KEYS       how many keys are there to be recovered, 1000000 by default";

/// How many clients commit at the same time, each one record after the other.
const CLIENTS: [usize; 3] = [1, 8, 64];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().context(USAGE)?);
    let mut number = |otherwise: u64| match arguments.next() {
        None => Ok(otherwise),
        Some(text) => text.parse().with_context(|| format!("`{text}` is no number\n{USAGE}")),
    };
    let (seconds, rounds, keys) = (number(2)?, number(3)?, number(1_000_000)?);
    anyhow::ensure!(seconds > 0 && rounds > 0 && keys > 0, "0 measures nothing\n{USAGE}");
    std::fs::create_dir(&directory)
        .with_context(|| format!("can't make {}\n{USAGE}", directory.display()))?;
    let measured = commits::measure(&directory, Duration::from_secs(seconds), rounds as usize)
        .and_then(|()| recovery::measure(&directory, keys));
    std::fs::remove_dir_all(&directory)?;
    measured
}
