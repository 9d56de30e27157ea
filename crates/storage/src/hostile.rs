//! For `serried-hostile` and its fuzz targets: opens a log whose file contains arbitrary bytes.

use std::fs;
use std::path::Path;

use crate::disk::RealDisk;
use crate::log::{Log, LogOptions};
use crate::{Batch, Durability};

/// The length of a segment in bytes: short, so that thousands can be read in a second.
const SEGMENT_BYTES: u64 = 4096;
const IDENTITY: u64 = 7;

/// Opens a log in `directory` whose only segment contains `bytes`, and removes it again. Opening it may fail, but must
/// not panic.
///
/// # Errors
/// If the directory can't be written.
#[doc(hidden)]
pub fn read_hostile_segment(directory: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir_all(directory)?;
    fs::write(directory.join(format!("{:020}.log", 0)), bytes)?;
    drop(open(directory));
    fs::remove_dir_all(directory)
}

fn open(directory: &Path) -> Result<Log, crate::StorageError> {
    let disk = Box::new(RealDisk);
    let durability = Durability::Buffered;
    Log::open_on(
        disk,
        SEGMENT_BYTES,
        directory,
        LogOptions::new(IDENTITY, durability),
        &mut |_, _| {},
    )
    .map(|(log, _)| log)
}

/// The bytes of a valid segment.
///
/// # Errors
/// If the directory can't be written.
#[doc(hidden)]
pub fn example_segment(directory: &Path) -> Result<Vec<u8>, crate::StorageError> {
    let mut log = open(directory)?;
    for number in 0..5u8 {
        let mut batch = Batch::starting_at(log.position());
        for byte in 0..=number {
            batch.push(|out| out.extend_from_slice(&[byte; 20]));
        }
        log.write(&mut batch)?;
    }
    drop(log);
    let file = directory.join(format!("{:020}.log", 0));
    fs::read(&file).map_err(crate::StorageError::io(&file))
}
