//! Acknowledged records that are missing.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::Scratch;
use super::log::{
    IDENTITY, Opened, note, only_segment, open, open_as, record, records, segments, unlimited,
    write,
};
use crate::disk::{Disk, RealDisk};
use crate::{Batch, Durability, LogFiles, LogOptions, StorageError, acknowledged_tail};

pub(super) const SEGMENT: u64 = 2048;

fn open_that_existed(path: &Path) -> Opened {
    let options = LogOptions::new(IDENTITY, Durability::Buffered);
    open_as(LogOptions { existed: true, ..options }, &unlimited(), path, SEGMENT)
}

pub(super) fn open_what_is_left(path: &Path) -> Opened {
    let options = LogOptions::new(IDENTITY, Durability::Buffered);
    let options = LogOptions { existed: true, accept_loss: true, ..options };
    open_as(options, &unlimited(), path, SEGMENT)
}

/// The end of the last byte that is not zero.
fn used(path: &Path) -> usize {
    fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// The file that is reported as corrupt, and the offset.
#[track_caller]
pub(super) fn corrupt(opened: Opened) -> (PathBuf, u64) {
    let error = opened.map(|(_, replayed, _)| replayed).unwrap_err();
    assert!(error.to_string().contains("--rejoin"), "{error}");
    match error {
        StorageError::Corrupt { path, offset, .. } => (path, offset),
        error => panic!("{error}"),
    }
}

/// Writes a log of batches of two records. Returns where each batch ends in the only segment.
pub(super) fn written(path: &Path, batches: u64) -> Vec<usize> {
    let (mut log, _, _) = open(path, SEGMENT).unwrap();
    let ends = (0..batches).map(|batch| {
        write(&mut log, batch * 2, batch * 2 + 2).unwrap();
        used(&only_segment(path))
    });
    ends.collect()
}

#[test]
fn an_acknowledged_tail_that_is_cut_off_anywhere_is_reported() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 3);
    let path = only_segment(scratch.path());
    let sound = fs::read(&path).unwrap();
    for cut in 0..ends[2] {
        for length in [sound.len(), cut] {
            let mut bytes = sound[..cut].to_vec();
            bytes.resize(length, 0);
            fs::write(&path, &bytes).unwrap();
            let (named, offset) = corrupt(open(scratch.path(), SEGMENT));
            assert!(named == path || named == scratch.path(), "{}", named.display());
            assert!(offset as usize <= cut, "cut at {cut}, reported at {offset}");
            assert!(path.exists(), "what is left is kept");
        }
    }
    fs::write(&path, &sound).unwrap();
    assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(6));
}

#[test]
fn the_acknowledged_tail_is_the_last_batch_that_is_noted() {
    let scratch = Scratch::new();
    open(scratch.path(), SEGMENT).unwrap();
    assert_eq!(acknowledged_tail(scratch.path()).unwrap(), None);
    let ends = written(scratch.path(), 3);
    let noted = fs::read(note(scratch.path())).unwrap();
    let (mut log, _, _) = open(scratch.path(), SEGMENT).unwrap();
    write(&mut log, 6, 8).unwrap();
    fs::write(note(scratch.path()), noted).unwrap();
    let last = ends[1] as u64..ends[2] as u64;
    assert_eq!(
        acknowledged_tail(scratch.path()).unwrap(),
        Some((only_segment(scratch.path()), last))
    );
}

#[test]
fn missing_segments_at_either_end_are_detected() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 200).unwrap();
    for i in 0..30 {
        write(&mut log, i, i + 1).unwrap();
    }
    log.trim(8).unwrap();
    drop(log);
    let kept = segments(scratch.path());
    for lost in [vec![&kept[0]], vec![kept.last().unwrap()], kept.iter().collect()] {
        let sound: Vec<Vec<u8>> = lost.iter().map(|path| fs::read(path).unwrap()).collect();
        lost.iter().for_each(|path| fs::remove_file(path).unwrap());
        corrupt(open(scratch.path(), 200));
        for (path, bytes) in lost.iter().zip(sound) {
            fs::write(path, bytes).unwrap();
        }
    }
    let found = open(scratch.path(), 200).unwrap().2;
    assert_eq!(found.last(), Some(&record(29)));
}

#[test]
fn a_log_that_was_there_and_is_gone_is_missed() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("log");
    assert_eq!(corrupt(open_that_existed(&directory)), (note(&directory), 0));
    open(&directory, SEGMENT).unwrap();
    assert_eq!(open_that_existed(&directory).unwrap().2, records(0), "it is empty, and was");
    fs::remove_file(note(&directory)).unwrap();
    corrupt(open_that_existed(&directory));
}

#[test]
fn a_complete_batch_that_was_not_noted_counts_and_gets_noted() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 2);
    let noted = fs::read(note(scratch.path())).unwrap();
    let (mut log, _, _) = open(scratch.path(), SEGMENT).unwrap();
    write(&mut log, 4, 6).unwrap();
    fs::write(note(scratch.path()), noted).unwrap();
    assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(6));
    let path = only_segment(scratch.path());
    let mut bytes = fs::read(&path).unwrap();
    *bytes.iter_mut().rfind(|byte| **byte != 0).unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    assert_eq!(corrupt(open(scratch.path(), SEGMENT)), (path, ends[1] as u64));
}

#[test]
fn a_log_of_a_release_without_notes_gets_one() {
    let scratch = Scratch::new();
    written(scratch.path(), 2);
    fs::remove_file(note(scratch.path())).unwrap();
    assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(4));
    assert!(note(scratch.path()).exists());
}

#[test]
fn an_accepted_loss_keeps_what_is_before_it_and_is_final() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 4);
    let path = only_segment(scratch.path());
    let (sound, noted) = (fs::read(&path).unwrap(), fs::read(note(scratch.path())).unwrap());
    for at in (0..ends[3]).filter(|at| !(6..8).contains(at)) {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        fs::write(note(scratch.path()), &noted).unwrap();
        let (mut log, replayed, found) = open_what_is_left(scratch.path()).unwrap();
        let whole = ends.iter().filter(|end| **end <= at).count() as u64;
        assert_eq!((found, log.position()), (records(whole * 2), whole * 2), "byte {at}");
        assert!(replayed.lost.is_some(), "byte {at}");
        write(&mut log, whole * 2, whole * 2 + 1).unwrap();
        drop(log);
        let (_, replayed, found) = open_that_existed(scratch.path()).unwrap();
        assert_eq!((found, replayed.lost), (records(whole * 2 + 1), None), "byte {at}");
        for segment in segments(scratch.path()) {
            fs::remove_file(segment).unwrap();
        }
    }
}

#[test]
fn an_accepted_loss_gives_up_the_segments_after_it_too() {
    for lost in 0..4 {
        let scratch = Scratch::new();
        let (mut log, _, _) = open(scratch.path(), 200).unwrap();
        for i in 0..30 {
            write(&mut log, i, i + 1).unwrap();
        }
        drop(log);
        let files = segments(scratch.path());
        match lost {
            0 => fs::remove_file(&files[3]).unwrap(),
            1 => fs::write(&files[3], []).unwrap(),
            2 => fs::remove_file(note(scratch.path())).unwrap(),
            _ => files.iter().for_each(|path| fs::remove_file(path).unwrap()),
        }
        let (log, replayed, found) = open_what_is_left(scratch.path()).unwrap();
        let whole = found.len() as u64;
        assert_eq!((found, log.position()), (records(whole), whole));
        assert!(replayed.lost.is_some());
        assert_eq!((lost == 2, lost == 3), (whole == 30, whole == 0), "{lost}: {whole}");
        assert_eq!(open_that_existed(scratch.path()).unwrap().2, records(whole));
    }
}

#[test]
fn without_its_beginning_a_log_is_of_no_use() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 200).unwrap();
    for i in 0..30 {
        write(&mut log, i, i + 1).unwrap();
    }
    fs::remove_file(&segments(scratch.path())[0]).unwrap();
    corrupt(open(scratch.path(), 200));
    let error = open_what_is_left(scratch.path()).map(|(_, replayed, _)| replayed).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("also with --accept-loss") && error.contains("--rejoin"), "{error}");
}

/// A disk that records its operations, and may refuse to sync.
#[derive(Debug)]
struct Remembering {
    disk: RealDisk,
    asked: Arc<Mutex<Vec<String>>>,
    fails: bool,
}

impl Remembering {
    fn remember(&self, what: &str, file: &File) {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
        let path = fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
        let is_note = path.file_name().is_some_and(|name| name == "end");
        let name = if is_note { "note" } else { "log" };
        self.asked.lock().unwrap().push(format!("{what} {name}"));
    }
}

impl Disk for Remembering {
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File> {
        self.disk.create(path, length)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.remember("write", file);
        self.disk.write_at(file, bytes, offset)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.remember("sync", file);
        if self.fails { Err(io::Error::other("the disk is gone")) } else { self.disk.sync(file) }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.asked.lock().unwrap().push("remove log".to_string());
        self.disk.remove(path)
    }
}

#[test]
fn the_end_is_noted_after_a_write_and_the_beginning_before_a_trim() {
    let scratch = Scratch::new();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let open = |fails| {
        let disk = Remembering { disk: RealDisk, asked: asked.clone(), fails };
        let options = LogOptions::new(IDENTITY, Durability::Sync);
        LogFiles::open_on(Box::new(disk), 100, scratch.path(), options, &mut |_, _| {}).unwrap().0
    };
    let write = |log: &mut LogFiles| {
        let mut batch = Batch::starting_at(log.position());
        batch.push(|out| out.extend_from_slice(&[7; 150]));
        log.write(&mut batch)
    };
    let mut log = open(false);
    write(&mut log).unwrap();
    asked.lock().unwrap().clear();
    write(&mut log).unwrap();
    // The first write is the new segment's header.
    let expected = ["write log", "write log", "sync log", "write note"];
    assert_eq!(*asked.lock().unwrap(), expected);
    asked.lock().unwrap().clear();
    log.trim(1).unwrap();
    assert_eq!(*asked.lock().unwrap(), ["write note", "sync note", "remove log"]);
    drop(log);

    let scratch = Scratch::new();
    let disk = Remembering { disk: RealDisk, asked: asked.clone(), fails: true };
    let options = LogOptions::new(IDENTITY, Durability::Sync);
    let mut log =
        LogFiles::open_on(Box::new(disk), 100, scratch.path(), options, &mut |_, _| {}).unwrap().0;
    let before = fs::read(note(scratch.path())).unwrap();
    write(&mut log).unwrap_err();
    assert_eq!(fs::read(note(scratch.path())).unwrap(), before, "nothing is noted that is not so");
}

#[test]
fn what_is_replayed_is_synced_in_all_segments() {
    let scratch = Scratch::new();
    let (mut log, _, _) = open(scratch.path(), 200).unwrap();
    for i in 0..10 {
        write(&mut log, i, i + 1).unwrap();
    }
    drop(log);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let disk = Remembering { disk: RealDisk, asked: asked.clone(), fails: false };
    let options = LogOptions::new(IDENTITY, Durability::Sync);
    LogFiles::open_on(Box::new(disk), 200, scratch.path(), options, &mut |_, _| {}).unwrap();
    let synced = asked.lock().unwrap().iter().filter(|asked| *asked == "sync log").count();
    assert_eq!(synced, segments(scratch.path()).len());
}
