//! For `serried-hostile` and its fuzz targets: opens a log whose file contains arbitrary bytes.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::disk::{Disk, RealDisk};
use crate::log::{LogFiles, LogOptions};
use crate::segment::{self, BATCH_HEADER, SEGMENT_HEADER, segment_header};
use crate::{Batch, Durability};

/// The length of a segment in bytes: short, so that thousands can be read in a second.
const SEGMENT_BYTES: u64 = 4096;
const IDENTITY: u64 = 7;

/// One of this many is also read from a file, by opening a log.
const OPENED: u32 = 64;

/// Reads a segment up to the first damage, once as it is and once with correct checksums, which random bytes do not
/// have. Returns whether a record could be read. Must not panic.
#[doc(hidden)]
pub fn read_hostile_segment(directory: &Path, bytes: &[u8]) -> io::Result<bool> {
    let sealed = sealed(bytes);
    let understood = [bytes, &sealed[..]].map(read);
    if crc32fast::hash(bytes).is_multiple_of(OPENED) {
        for bytes in [bytes, &sealed[..]] {
            let _ = fs::remove_dir_all(directory);
            fs::create_dir_all(directory)?;
            fs::write(directory.join(format!("{:020}.log", 0)), bytes)?;
            drop(open(directory));
        }
        fs::remove_dir_all(directory)?;
    }
    Ok(understood.contains(&true))
}

/// Whether a record can be read.
fn read(bytes: &[u8]) -> bool {
    let path = Path::new("segment");
    let Ok(header) = segment::read_header(path, bytes) else { return false };
    let (mut records, identity) = (0u64, header.identity);
    let mut each = |_: u64, _: &[u8]| records += 1;
    if let Ok((end, position)) =
        segment::read_batches(path, bytes, identity, header.first, &mut each)
    {
        segment::find_batch(bytes, end, identity, position);
        segment::torn(&bytes[end..], header.used, identity, position);
    }
    records > 0
}

/// The segment with correct checksums: of the header, and of all batches from the first one on whose lengths fit.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    if bytes.len() < SEGMENT_HEADER {
        return bytes;
    }
    let header = segment_header(number(&bytes[8..16]), number(&bytes[16..24]), bytes[24] != 0);
    bytes[..SEGMENT_HEADER].copy_from_slice(&header);
    let identity = number(&header[8..16]);
    let mut rest = &mut bytes[SEGMENT_HEADER..];
    // Zeros are free space.
    while rest.len() > BATCH_HEADER && rest[..BATCH_HEADER].iter().any(|byte| *byte != 0) {
        let length = BATCH_HEADER + number(&rest[4..8]) as usize;
        let Some((batch, behind)) = rest.split_at_mut_checked(length) else { break };
        let (first, count) = (number(&batch[8..16]), number(&batch[16..20]) as u32);
        segment::seal(batch, identity, first, count);
        rest = behind;
    }
    bytes
}

fn open(directory: &Path) -> Result<LogFiles, crate::StorageError> {
    let disk = Box::new(Unflushed);
    let durability = Durability::Buffered;
    LogFiles::open_on(
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

/// A disk that does not sync.
#[derive(Debug)]
struct Unflushed;

impl Disk for Unflushed {
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(length)?;
        Ok(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        RealDisk.write_at(file, bytes, offset)
    }

    fn sync(&mut self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_beyond_the_last_position_is_no_batch() {
        let mut batch = vec![0; BATCH_HEADER + 4];
        segment::seal(&mut batch, IDENTITY, u64::MAX, 1);
        let mut bytes = segment_header(IDENTITY, u64::MAX, false).to_vec();
        bytes.extend(&batch);
        assert!(!read(&bytes));
        segment::seal(&mut batch, IDENTITY, u64::MAX - 1, 1);
        let mut bytes = segment_header(IDENTITY, u64::MAX - 1, false).to_vec();
        bytes.extend(&batch);
        assert!(read(&bytes), "the last there is");
    }
}
