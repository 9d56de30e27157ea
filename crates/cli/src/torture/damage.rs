//! What happens to a killed node's disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_storage::acknowledged_tail;

/// Flips a bit in the last acknowledged batch of one of a node's logs, or cuts the batch off. Returns a description, or
/// `None` if no log has an acknowledged batch.
pub(super) fn damage(data: &Path, random: &mut Pcg64Mcg) -> anyhow::Result<Option<String>> {
    let mut logs = Vec::new();
    find_logs(data, &mut logs)?;
    logs.sort();
    while !logs.is_empty() {
        let log = logs.swap_remove(random.random_range(0..logs.len()));
        let Some((segment, batch)) = acknowledged_tail(&log)? else { continue };
        let name = segment.display();
        let file = OpenOptions::new().read(true).write(true).open(&segment);
        let file = file.with_context(|| format!("can't open {name}"))?;
        let at = random.random_range(batch);
        if random.random_range(0..2) == 0 {
            file.set_len(at)?;
            return Ok(Some(format!("cut off {name} at {at}")));
        }
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << random.random_range(0..8);
        file.write_all_at(&byte, at)?;
        return Ok(Some(format!("flipped a bit of {name} at {at}")));
    }
    Ok(None)
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
