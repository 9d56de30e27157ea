//! The note beside a log.

use std::fs;

use super::Scratch;
use super::end::{SEGMENT, corrupt, open_what_is_left, written};
use super::log::{IDENTITY, note, only_segment, open, records, write};
use crate::LogFiles;

#[test]
fn one_damaged_slot_does_no_harm_and_two_are_an_error() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 3);
    let sound = fs::read(note(scratch.path())).unwrap();
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    for at in &used {
        let mut bytes = sound.clone();
        bytes[*at] ^= 4;
        fs::write(note(scratch.path()), &bytes).unwrap();
        assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(6), "byte {at}");
        // Both slots begin with the same bytes.
        let is_mended = fs::read(note(scratch.path())).unwrap()[*at] == sound[*at];
        assert!(is_mended || at % 4096 >= 8, "byte {at}");
        // Opening the log has repaired the note.
        let segment = only_segment(scratch.path());
        let whole = fs::read(&segment).unwrap();
        let mut flipped = whole.clone();
        flipped[ends[2] - 1] ^= 1;
        fs::write(&segment, flipped).unwrap();
        assert_eq!(corrupt(open(scratch.path(), SEGMENT)), (segment.clone(), ends[1] as u64));
        fs::write(&segment, whole).unwrap();
    }
    let mut bytes = sound;
    (bytes[used[0]], bytes[*used.last().unwrap()]) = (0, 0);
    fs::write(note(scratch.path()), &bytes).unwrap();
    assert_eq!(corrupt(open(scratch.path(), SEGMENT)), (note(scratch.path()), 0));
}

#[test]
fn the_other_slot_is_at_most_one_batch_older() {
    for slot in [0, 4096] {
        let scratch = Scratch::new();
        let ends = written(scratch.path(), 3);
        let mut bytes = fs::read(note(scratch.path())).unwrap();
        bytes[slot] ^= 4;
        fs::write(note(scratch.path()), bytes).unwrap();
        let segment = only_segment(scratch.path());
        let mut left = fs::read(&segment).unwrap();
        left[ends[0]..].fill(0);
        fs::write(&segment, left).unwrap();
        let (named, offset) = corrupt(open(scratch.path(), SEGMENT));
        assert_eq!((named, offset), (segment, ends[0] as u64), "the slot at {slot} is damaged");
    }
}

#[test]
fn the_stores_last_batch_stays_noted_beside_the_log() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 3);
    let noted = || LogFiles::noted_store(scratch.path(), IDENTITY);
    assert_eq!(noted(), 0);
    let (mut log, _, _) = open(scratch.path(), SEGMENT).unwrap();
    log.note_store(5).unwrap();
    assert_eq!(noted(), 5);
    write(&mut log, 6, 8).unwrap();
    assert_eq!(noted(), 5);
    assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(8));
    assert_eq!(noted(), 5);
    let path = only_segment(scratch.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[0]] ^= 1;
    fs::write(&path, bytes).unwrap();
    open_what_is_left(scratch.path()).unwrap();
    assert_eq!(noted(), 5, "what the log has lost the store has not");
}

/// The same note in the first format.
fn in_first_format(mut bytes: Vec<u8>) -> Vec<u8> {
    for slot in [0, 4096] {
        bytes[slot + 7] = 1;
        let crc = crc32fast::hash(&bytes[slot..slot + 32]);
        bytes[slot + 32..slot + 36].copy_from_slice(&crc.to_le_bytes());
        bytes[slot + 36..slot + 44].fill(0);
    }
    bytes
}

#[test]
fn a_note_of_the_first_format_has_no_batch_of_the_store() {
    let scratch = Scratch::new();
    let ends = written(scratch.path(), 3);
    open(scratch.path(), SEGMENT).unwrap().0.note_store(7).unwrap();
    let old = in_first_format(fs::read(note(scratch.path())).unwrap());
    fs::write(note(scratch.path()), &old).unwrap();
    assert_eq!(LogFiles::noted_store(scratch.path(), IDENTITY), 0);
    let path = only_segment(scratch.path());
    let sound = fs::read(&path).unwrap();
    fs::write(&path, &sound[..ends[2] - 1]).unwrap();
    assert_eq!(corrupt(open(scratch.path(), SEGMENT)), (path.clone(), ends[1] as u64));
    fs::write(&path, sound).unwrap();
    let (mut log, _, _) = open(scratch.path(), SEGMENT).unwrap();
    log.note_store(8).unwrap();
    drop(log);
    // One slot may still be of the first format.
    assert_eq!(LogFiles::noted_store(scratch.path(), IDENTITY), 8);
    assert_eq!(open(scratch.path(), SEGMENT).unwrap().2, records(6));
}
