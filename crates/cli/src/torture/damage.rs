//! What happens to a killed node's disk.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_storage::{acknowledged_tail, is_store_refused};

/// How far from the end of a store's journal it is damaged at most, in bytes.
const JOURNAL_TAIL: u64 = 2000;

/// Damages one of a node's logs, in its last acknowledged batch, or one of its stores, near the end of its journal. Returns a
/// description, or `None` if nothing that is acknowledged was damaged.
pub(super) fn damage(data: &Path, random: &mut Pcg64Mcg) -> anyhow::Result<Option<String>> {
    let mut logs = Vec::new();
    find_logs(data, &mut logs)?;
    logs.sort();
    while !logs.is_empty() {
        let log = logs.swap_remove(random.random_range(0..logs.len()));
        if random.random_range(0..2) == 0
            && let Some(done) = damage_store(&log, random)?
        {
            return Ok(Some(done));
        }
        let Some((segment, batch)) = acknowledged_tail(&log)? else { continue };
        return damage_file(&segment, batch, random).map(Some);
    }
    Ok(None)
}

/// Damages the store of a log. Returns `None` if the store does not need what was damaged: it has that in tables, or
/// nothing depends on it.
fn damage_store(log: &Path, random: &mut Pcg64Mcg) -> anyhow::Result<Option<String>> {
    let base = log.with_file_name("base");
    let journal = base.join("0.jnl");
    let Ok(bytes) = fs::read(&journal) else { return Ok(None) };
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return Ok(None) };
    let end = last as u64 + 1;
    let done = damage_file(&journal, end.saturating_sub(JOURNAL_TAIL)..end, random)?;
    Ok(is_store_refused(&base, log)?.then_some(done))
}

/// Flips a bit of a file in this range, or cuts the file off there.
fn damage_file(path: &Path, range: Range<u64>, random: &mut Pcg64Mcg) -> anyhow::Result<String> {
    let name = path.display();
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.with_context(|| format!("can't open {name}"))?;
    let at = random.random_range(range);
    if random.random_range(0..2) == 0 {
        file.set_len(at)?;
        return Ok(format!("cut off {name} at {at}"));
    }
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1 << random.random_range(0..8);
    file.write_all_at(&byte, at)?;
    Ok(format!("flipped a bit of {name} at {at}"))
}

/// The directories of logs in `directory` and below.
fn find_logs(directory: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("can't read {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            match path.ends_with("log") {
                true => found.push(path),
                false => find_logs(&path, found)?,
            }
        }
    }
    Ok(())
}
