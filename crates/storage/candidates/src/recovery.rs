//! How long it takes to open what was written, and to read all of it once.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::candidate::{Fjall, Group, OurLog, Redb, record};

/// How many records are committed at a time while the directory is filled.
const FILLED_AT_ONCE: u64 = 10_000;

/// Prints how long each candidate takes for so many keys. The files are in the page cache: what is
/// measured is the work, not the disk.
pub(crate) fn measure(directory: &Path, keys: u64) -> anyhow::Result<()> {
    let measured = [
        ("serried log, replayed", recover::<OurLog>(&directory.join("log"), keys)?),
        ("fjall, opened and read", recover::<Fjall>(&directory.join("fjall"), keys)?),
        ("redb, opened and read", recover::<Redb>(&directory.join("redb"), keys)?),
    ];
    let of = measured[0].1;
    println!("\nrecovery of {keys} keys\n\n| | seconds per million keys | ratio |\n|---|---|---|");
    for (name, took) in measured {
        let per_million = took.as_secs_f64() * 1e6 / keys as f64;
        println!("| {name} | {per_million:.2} | {:.2} |", took.as_secs_f64() / of.as_secs_f64());
    }
    Ok(())
}

fn recover<G: Group>(directory: &Path, keys: u64) -> anyhow::Result<Duration> {
    let (mut group, _) = G::open(directory)?;
    for first in (0..keys).step_by(FILLED_AT_ONCE as usize) {
        let records = (first..keys.min(first + FILLED_AT_ONCE)).map(record);
        group.commit(&records.collect::<Vec<_>>())?;
    }
    drop(group);
    let begun = Instant::now();
    let (group, found) = G::open(directory)?;
    let took = begun.elapsed();
    drop(group);
    anyhow::ensure!(found == keys, "{found} of {keys} keys were found in {}", directory.display());
    std::fs::remove_dir_all(directory)?;
    Ok(took)
}
