//! What a log is known to have, noted in a second place.
//!
//! A log alone can't tell a batch that a crash has torn from one that was whole, was acted on and was
//! damaged later, as long as none follows it. So a small file beside it notes the log's [`Reach`]. It is
//! written after each batch, once the log has the batch in the way that counts as durable, and before
//! anybody hears of that. So whatever was acknowledged lies within the reach, and a log that ends before
//! its end has lost something.
//!
//! The file is not synced with each batch, as that would double what a commit costs. It survives the end of
//! the process. After a power cut it may be older than the log, never newer: then what lies behind the
//! noted end, and is not whole, counts as torn. Only the last batch can be such: one is written when the one
//! before is durable, so a damaged batch with a later one behind it is damage, whatever the note says.
//!
//! The file has two slots, which are written by turns, so that a slot that is damaged leaves the other:
//!
//! | slot | bytes |
//! |---|---|
//! | `SRDEND` 0 1 | 8 |
//! | identity of the log | 8 |
//! | from where on the log has everything | 8 |
//! | up to where | 8 |
//! | CRC-32 of the above | 4 |

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::StorageError;
use crate::disk::Disk;

/// The name of the file.
const NAME: &str = "end";
/// What it is called until it is whole.
const NEW: &str = "end.new";
const MAGIC: [u8; 8] = *b"SRDEND\0\x01";
const SLOT: usize = 36;
/// Where the slots lie: in sectors of their own.
const SLOTS: [u64; 2] = [0, 4096];
const LENGTH: u64 = 8192;

/// Which records a log is known to have: all from `begin` to before `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Reach {
    pub(crate) end: u64,
    pub(crate) begin: u64,
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
    /// Opens the file in a log's directory; none if there is none.
    ///
    /// # Errors
    /// If neither slot is whole.
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

    /// Where it lies in a log's directory.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Begins the file anew, whatever was noted before: durably, and wholly or not at all.
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
                disk.write_at(&file, &encode(identity, reach), slot)?;
            }
            file.sync_all()?;
            disk.rename(&new, &path)?;
            OpenOptions::new().read(true).write(true).open(&path)
        };
        let file = create().map_err(StorageError::write(&path, LENGTH))?;
        Ok(Note { path, file, identity, reach, turn: 0 })
    }

    /// What is noted.
    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Notes more, for after the end of the process.
    pub(crate) fn write(&mut self, disk: &mut dyn Disk, reach: Reach) -> Result<(), StorageError> {
        let written = disk.write_at(&self.file, &encode(self.identity, reach), SLOTS[self.turn]);
        written.map_err(StorageError::write(&self.path, LENGTH))?;
        self.turn = (self.turn + 1) % SLOTS.len();
        self.reach = reach;
        Ok(())
    }

    /// Has the disk take what is noted.
    pub(crate) fn sync(&mut self, disk: &mut dyn Disk) -> Result<(), StorageError> {
        disk.sync(&self.file).map_err(StorageError::io(&self.path))
    }
}

fn encode(identity: u64, reach: Reach) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..16].copy_from_slice(&identity.to_le_bytes());
    slot[16..24].copy_from_slice(&reach.begin.to_le_bytes());
    slot[24..32].copy_from_slice(&reach.end.to_le_bytes());
    let crc = crc32fast::hash(&slot[..32]);
    slot[32..].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// What a slot says, if it is whole: of whose log it is, and what that has.
fn decode(slot: &[u8]) -> Option<(u64, Reach)> {
    let number = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("eight bytes"));
    let (identity, reach) = (number(8), Reach { begin: number(16), end: number(24) });
    (slot == encode(identity, reach)).then_some((identity, reach))
}
