use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Scratch;
use crate::disk::{Disk, RealDisk};
use crate::{Batch, Durability, LogFiles, LogOptions, Replayed, StorageError};

pub(super) const IDENTITY: u64 = 7;

/// A disk with room for this many more bytes of segments.
#[derive(Debug)]
struct Limited {
    disk: RealDisk,
    room: Arc<AtomicU64>,
}

impl Limited {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let take = |room: u64| room.checked_sub(bytes);
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| full())
    }
}

impl Disk for Limited {
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File> {
        if path.extension().is_some_and(|extension| extension == "log") {
            self.take(length)?;
        }
        self.disk.create(path, length)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(file, bytes, offset)
    }

    fn sync(&mut self, _: &File) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
}

pub(super) type Opened = Result<(LogFiles, Replayed, Vec<Vec<u8>>), StorageError>;

fn open_with(room: &Arc<AtomicU64>, path: &Path, segment: u64) -> Opened {
    open_as(LogOptions::new(IDENTITY, Durability::Buffered), room, path, segment)
}

pub(super) fn open_as(
    options: LogOptions,
    room: &Arc<AtomicU64>,
    path: &Path,
    segment: u64,
) -> Opened {
    let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
    let disk = Box::new(Limited { disk: RealDisk, room: room.clone() });
    let (log, replayed) =
        LogFiles::open_on(disk, segment, path, options, &mut |position, record| {
            if let Some((last, _)) = records.last() {
                assert_eq!(position, last + 1);
            }
            records.push((position, record.to_vec()));
        })?;
    if let Some((last, _)) = records.last() {
        assert_eq!(log.position(), last + 1);
    }
    Ok((log, replayed, records.into_iter().map(|(_, record)| record).collect()))
}

pub(super) fn open(path: &Path, segment: u64) -> Opened {
    open_as(LogOptions::new(IDENTITY, Durability::Buffered), &unlimited(), path, segment)
}

pub(super) fn unlimited() -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(u64::MAX))
}

pub(super) fn record(i: u64) -> Vec<u8> {
    format!("record {i} {}", "x".repeat(i as usize * 7 % 23)).into_bytes()
}

/// Writes records `from..to` as one batch.
pub(super) fn write(log: &mut LogFiles, from: u64, to: u64) -> Result<u64, StorageError> {
    let mut batch = Batch::starting_at(log.position());
    for i in from..to {
        batch.push(|out| out.extend_from_slice(&record(i)));
    }
    log.write(&mut batch)
}

pub(super) fn records(to: u64) -> Vec<Vec<u8>> {
    (0..to).map(record).collect()
}

/// The files of a log's segments, in order.
pub(super) fn segments(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    segments.sort();
    segments
}

pub(super) fn note(path: &Path) -> PathBuf {
    path.join("end")
}

pub(super) fn only_segment(path: &Path) -> PathBuf {
    path.join("00000000000000000000.log")
}

#[test]
fn records_come_back_in_order_and_the_log_continues() {
    let scratch = Scratch::new();
    let mut written = 0;
    for round in 0..10 {
        let (mut log, replayed, found) = open(scratch.path(), 300).unwrap();
        assert_eq!((found, replayed.torn), (records(written), 0));
        for _ in 0..round {
            let to = written + 1 + written % 3;
            assert_eq!(write(&mut log, written, to).unwrap(), to);
            written = to;
        }
    }
    assert!(written > 50);
}

#[test]
fn a_tail_torn_anywhere_is_cut_off_and_the_log_continues() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 4096).unwrap();
    write(&mut log, 0, 3).unwrap();
    let path = only_segment(scratch.path());
    let (whole, noted) = (fs::read(&path).unwrap(), fs::read(note(scratch.path())).unwrap());
    write(&mut log, 3, 6).unwrap();
    let longer = fs::read(&path).unwrap();
    let differ = (0..whole.len()).filter(|i| whole[*i] != longer[*i]);
    let (first, last) = (differ.clone().min().unwrap(), differ.max().unwrap());
    for torn_at in first..=last {
        // Sectors reach the disk in any order: the front is missing, or the back.
        for back_is_missing in [true, false] {
            let mut bytes = longer.clone();
            match back_is_missing {
                true => bytes[torn_at..].copy_from_slice(&whole[torn_at..]),
                false => bytes[..=torn_at].copy_from_slice(&whole[..=torn_at]),
            }
            fs::write(&path, &bytes).unwrap();
            // A batch that is being written is not noted yet.
            fs::write(note(scratch.path()), &noted).unwrap();
            let (mut log, _, found) = open(scratch.path(), 4096).unwrap();
            assert_eq!(found, records(3), "torn at {torn_at}");
            write(&mut log, 3, 5).unwrap();
            let (_, replayed, found) = open(scratch.path(), 4096).unwrap();
            assert_eq!((found, replayed.records), (records(5), 5), "torn at {torn_at}");
        }
    }
}

#[test]
fn any_flipped_bit_is_found_and_no_wrong_record_comes_back() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 2048).unwrap();
    let mut ends = Vec::new();
    for batch in 0..4 {
        write(&mut log, batch * 2, batch * 2 + 2).unwrap();
        let path = only_segment(scratch.path());
        let used = fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
        ends.push(used);
    }
    let path = only_segment(scratch.path());
    let sound = fs::read(&path).unwrap();
    for at in 0..ends[3] {
        for bit in [0, 5] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            match open(scratch.path(), 2048) {
                Ok(_) => panic!("byte {at} was overlooked"),
                Err(StorageError::Corrupt { path: named, offset, .. }) => {
                    assert_eq!(named, path);
                    assert!(offset as usize <= at, "byte {at} is reported at {offset}");
                }
                Err(StorageError::Refused { .. }) => assert!(at < 16, "byte {at}"),
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
    }
}

#[test]
fn a_segment_that_is_missing_or_cut_short_in_the_middle_is_corruption() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 200).unwrap();
    for i in 0..30 {
        write(&mut log, i, i + 1).unwrap();
    }
    let segments = segments(scratch.path());
    assert!(segments.len() > 4);
    let kept = fs::read(&segments[2]).unwrap();
    fs::remove_file(&segments[2]).unwrap();
    let error = open(scratch.path(), 200).unwrap_err().to_string();
    assert!(error.contains("are missing"), "{error}");
    fs::write(&segments[2], &kept[..kept.len() / 2]).unwrap();
    let error = open(scratch.path(), 200).unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    fs::write(&segments[2], &kept).unwrap();
    assert_eq!(open(scratch.path(), 200).unwrap().2, records(30));
}

#[test]
fn a_full_disk_loses_nothing_and_the_batch_can_be_retried() {
    for room in 0..6 {
        let scratch = Scratch::new();
        let room = Arc::new(AtomicU64::new(room * 200));
        let (mut log, _, _) = open_with(&room, scratch.path(), 200).unwrap();
        let mut written = 0;
        let full = loop {
            match write(&mut log, written, written + 1) {
                Ok(position) => written = position,
                Err(error) => break error,
            }
        };
        assert!(full.is_full(), "{full}");
        assert!(full.to_string().contains(scratch.path().to_str().unwrap()), "{full}");
        assert!(write(&mut log, written, written + 1).unwrap_err().is_full());
        assert_eq!(open_with(&room, scratch.path(), 200).unwrap().2, records(written));
        room.store(u64::MAX, Ordering::Relaxed);
        write(&mut log, written, written + 2).unwrap();
        assert_eq!(open_with(&room, scratch.path(), 200).unwrap().2, records(written + 2));
    }
}

#[test]
fn what_is_trimmed_is_gone_and_its_file_is_used_again() {
    let scratch = Scratch::new();
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let (mut log, _, _) = open(scratch.path(), 500).unwrap();
    let (mut written, mut trimmed) = (0, 0);
    for _ in 0..400 {
        let to = written + random.random_range(1..5);
        written = write(&mut log, written, to).unwrap();
        if random.random_range(0..10) == 0 {
            trimmed = random.random_range(trimmed..=written);
            log.trim(trimmed).unwrap();
        }
        if random.random_range(0..20) == 0 {
            let (reopened, replayed, found) = open(scratch.path(), 500).unwrap();
            let first = written - found.len() as u64;
            assert!(
                first <= trimmed,
                "{first} is gone, and only what is before {trimmed} was to be"
            );
            assert!(found.iter().enumerate().all(|(i, bytes)| *bytes == record(first + i as u64)));
            assert_eq!(replayed.torn, 0);
            log = reopened;
        }
    }
    let files = fs::read_dir(scratch.path()).unwrap().count() as u64;
    // This includes a spare segment and the note.
    assert!(files <= (written - trimmed) / 4 + 4, "{files} files");
}

#[test]
fn a_batch_that_is_longer_than_a_segment_has_one_of_its_own() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 300).unwrap();
    write(&mut log, 0, 2).unwrap();
    write(&mut log, 2, 100).unwrap();
    write(&mut log, 100, 102).unwrap();
    assert_eq!(open(scratch.path(), 300).unwrap().2, records(102));
}

#[test]
fn the_log_of_another_is_refused() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 300).unwrap();
    write(&mut log, 0, 2).unwrap();
    let options = LogOptions::new(IDENTITY + 1, Durability::Sync);
    let error = LogFiles::open(scratch.path(), options, &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, StorageError::Refused { .. }), "{error}");
}
