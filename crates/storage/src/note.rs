//! The note beside a log, which says which records the log is known to have.
//!
//! A torn batch at the end of a log looks like one that was complete and acknowledged, and was damaged later. A small
//! file beside the log distinguishes them: it notes the log's [`Reach`]. It is written after each batch, when the batch
//! is durable (in the way that the log was opened with) and before this is reported. So every acknowledged record lies
//! within the reach, and a log that ends before the end of its reach has lost records.
//!
//! The file is not synced with each batch, because that would double the cost of a commit. It survives the end of the
//! process. After a power cut it may be older than the log, but never newer. Then an incomplete batch behind the noted
//! end is taken for torn. Only the last batch can be torn, because a batch is written only when the one before is
//! durable. So a broken batch with another one behind it is damaged, whatever the note says.
//!
//! The file has two slots, which are written in turn, so that one remains if the other is damaged:
//!
//! | slot | bytes |
//! |---|---|
//! | `SRDEND` 0 2 | 8 |
//! | identity of the log | 8 |
//! | first record of the reach | 8 |
//! | first record after it | 8 |
//! | number of the store's last batch | 8 |
//! | CRC-32 of the above | 4 |
//!
//! The store's last batch is that of the [`crate::Base`] that lies beside the log: see `marks.rs`. In format 1, which
//! is still read, slots do not have its number. The store is then not checked.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::StorageError;
use crate::disk::Disk;

/// The name of the file.
const NAME: &str = "end";
/// Its name until it is complete.
const NEW: &str = "end.new";
const MAGIC: [u8; 7] = *b"SRDEND\0";
/// The format of a slot that is written.
const FORMAT: u8 = 2;
/// The longest slot, in bytes.
const SLOT: usize = 44;
/// Where the slots begin, in bytes: each in a sector of its own.
const SLOTS: [u64; 2] = [0, 4096];
const LENGTH: u64 = 8192;

/// The records that a log is known to have, from `begin` to before `end`, and the batches that the store beside it is
/// known to have, up to number `store`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Reach {
    pub(crate) end: u64,
    pub(crate) begin: u64,
    pub(crate) store: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Note {
    path: PathBuf,
    file: File,
    identity: u64,
    reach: Reach,
    /// The slot that is written next.
    turn: usize,
}

impl Note {
    /// Opens the file in a log's directory. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if neither slot is complete; [`StorageError::Refused`] if it belongs to another log.
    pub(crate) fn open(directory: &Path, identity: u64) -> Result<Option<Note>, StorageError> {
        let path = Note::path(directory);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(StorageError::io(&path))?,
        };
        let bytes = fs::read(&path).map_err(StorageError::io(&path))?;
        let slot = |(i, at): (usize, &u64)| {
            let at = *at as usize;
            let (found, reach) = decode(bytes.get(at..at + SLOT)?)?;
            Some((reach, i, found))
        };
        let damaged = || StorageError::corrupt(&path, 0, "neither of its two slots is whole");
        let slots = SLOTS.iter().enumerate().filter_map(slot);
        let (reach, slot, found) = slots.max().ok_or_else(damaged)?;
        if found != identity {
            let reason = "this is the end of the log of another node, keyspace or partition";
            return Err(StorageError::refused(&path, reason));
        }
        let turn = (slot + 1) % SLOTS.len();
        Ok(Some(Note { path, file, identity, reach, turn }))
    }

    /// Its path in a log's directory.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Replaces the file, whatever was noted before. This is durable and atomic.
    pub(crate) fn create(
        disk: &mut dyn Disk,
        directory: &Path,
        identity: u64,
        reach: Reach,
    ) -> Result<Note, StorageError> {
        let (new, path) = (directory.join(NEW), Note::path(directory));
        let mut create = || {
            let file = disk.create(&new, LENGTH)?;
            for slot in SLOTS {
                disk.write_at(&file, &encode(FORMAT, identity, reach), slot)?;
            }
            file.sync_all()?;
            disk.rename(&new, &path)?;
            OpenOptions::new().read(true).write(true).open(&path)
        };
        let file = create().map_err(StorageError::write(&path, LENGTH))?;
        Ok(Note { path, file, identity, reach, turn: 0 })
    }

    /// The noted reach.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Notes a new reach. It survives the end of the process; see [`Note::sync`].
    pub(crate) fn write(&mut self, disk: &mut dyn Disk, reach: Reach) -> Result<(), StorageError> {
        let written =
            disk.write_at(&self.file, &encode(FORMAT, self.identity, reach), SLOTS[self.turn]);
        written.map_err(StorageError::write(&self.path, LENGTH))?;
        self.turn = (self.turn + 1) % SLOTS.len();
        self.reach = reach;
        Ok(())
    }

    /// Makes the note survive a power cut.
    pub(crate) fn sync(&mut self, disk: &mut dyn Disk) -> Result<(), StorageError> {
        disk.sync(&self.file).map_err(StorageError::io(&self.path))
    }
}

fn encode(format: u8, identity: u64, reach: Reach) -> Vec<u8> {
    let mut slot = [&MAGIC[..], &[format]].concat();
    let numbers = [identity, reach.begin, reach.end, reach.store];
    let written = if format == 1 { &numbers[..3] } else { &numbers[..] };
    written.iter().for_each(|number| slot.extend(number.to_le_bytes()));
    let crc = crc32fast::hash(&slot);
    slot.extend(crc.to_le_bytes());
    slot
}

/// The identity of the log and its reach, if the slot is complete.
fn decode(slot: &[u8]) -> Option<(u64, Reach)> {
    let number = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
    [FORMAT, 1].into_iter().find_map(|format| {
        let store = if format == 1 { 0 } else { number(32) };
        let (identity, reach) = (number(8), Reach { begin: number(16), end: number(24), store });
        slot.starts_with(&encode(format, identity, reach)).then_some((identity, reach))
    })
}
