//! Data that is synced before anything depends on it, and records that are given up when the store has them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serried_actor::Store;

use super::Scratch;
use crate::disk::{Disk, RealDisk};
use crate::{Base, Batch, Durability, LogFiles, LogOptions, StorageError};

const SEGMENT: u64 = 200;

/// A disk that accepts writes and fails to sync.
#[derive(Debug)]
struct NeverSynced(RealDisk);

impl Disk for NeverSynced {
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File> {
        self.0.create(path, length)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(file, bytes, offset)
    }

    fn sync(&mut self, _: &File) -> io::Result<()> {
        Err(io::Error::other("the disk is gone"))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
}

fn open(path: &Path, durability: Durability) -> Result<LogFiles, StorageError> {
    let disk = Box::new(NeverSynced(RealDisk));
    Ok(LogFiles::open_on(disk, SEGMENT, path, LogOptions::new(7, durability), &mut |_, _| {})?.0)
}

fn write(log: &mut LogFiles) {
    let mut batch = Batch::starting_at(log.position());
    batch.push(|out| out.extend_from_slice(&[7; 50]));
    log.write(&mut batch).unwrap();
}

#[test]
fn what_is_replayed_is_synced_before_the_log_is_open() {
    let scratch = Scratch::new();
    // A process ends and leaves records that are not on the disk.
    write(&mut open(scratch.path(), Durability::Buffered).unwrap());
    let error = open(scratch.path(), Durability::Sync).unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert_eq!(open(scratch.path(), Durability::Buffered).unwrap().position(), 1);
}

#[test]
fn a_log_releases_only_whole_segments_and_each_once() {
    let scratch = Scratch::new();
    let mut log = open(scratch.path(), Durability::Buffered).unwrap();
    assert!(!log.releases(u64::MAX), "there is nothing to give up");
    (0..2).for_each(|_| write(&mut log));
    assert!(!log.releases(u64::MAX), "the segment that is written to is kept");
    (0..3).for_each(|_| write(&mut log));
    // Two records fit into a segment.
    assert_eq!([1, 2, 3].map(|position| log.releases(position)), [false, true, true]);
    log.trim(3).unwrap();
    assert_eq!([2, 3, 4].map(|position| log.releases(position)), [false, false, true]);
}

/// The files below `path` with this extension.
fn files(path: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

#[test]
fn settled_data_does_not_depend_on_the_stores_journal() {
    for settles in [false, true] {
        let scratch = Scratch::new();
        let mut base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
        base.put(b"key", Some(b"value"));
        let flush = base.flusher();
        flush.flush().unwrap();
        while settles && flush.settle(7).unwrap() != Some(7) {
            std::thread::yield_now();
        }
        drop((base, flush));
        let mut journals = Vec::new();
        files(scratch.path(), "jnl", &mut journals);
        assert!(!journals.is_empty());
        for journal in journals {
            let length = fs::metadata(&journal).unwrap().len();
            fs::write(&journal, vec![0; length as usize]).unwrap();
        }
        let base = Base::open(scratch.path(), Durability::Buffered, 1 << 20).unwrap();
        assert_eq!(base.get(b"key").is_some(), settles);
    }
}
