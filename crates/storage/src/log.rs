//! A log of records.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, RealDisk, create_directory};
use crate::note::{Note, Reach};
use crate::opening::Opening;
use crate::segment::{self, SEGMENT_HEADER};
use crate::{Batch, Durability, StorageError};

/// How long a segment is, unless a single batch is longer. Whole segments are trimmed, and after a start all others are
/// read.
const SEGMENT: u64 = 8 << 20;
/// The name of a segment that was trimmed and waits to be used again.
pub(crate) const SPARE: &str = "spare";

/// The writing end of a log. One thread uses it. Another thread may fill the [`Batch`]es.
#[derive(Debug)]
pub struct LogFiles {
    directory: PathBuf,
    identity: u64,
    durability: Durability,
    disk: Box<dyn Disk>,
    segment_length: u64,
    /// All segments except the last, with the positions of their first records.
    full: VecDeque<(u64, PathBuf)>,
    last: Option<Last>,
    /// The position of the next record.
    position: u64,
    has_spare: bool,
    /// Notes which records the log has. `None` with [`Durability::Memory`].
    note: Option<Note>,
}

/// The segment that is written to.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) first: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) length: u64,
    /// Where the next batch goes.
    pub(crate) offset: u64,
}

/// How a log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// The identity of the log. A log of another identity is refused.
    pub identity: u64,
    /// When a batch counts as durable.
    pub durability: Durability,
    /// Whether the log is known to exist. If it is then missing, it was lost.
    pub existed: bool,
    /// Whether to give up everything after damage instead of refusing the log.
    pub accept_loss: bool,
}

impl LogOptions {
    /// Opens the log of `identity`, or creates it. A damaged log is refused.
    pub fn new(identity: u64, durability: Durability) -> LogOptions {
        LogOptions { identity, durability, existed: false, accept_loss: false }
    }
}

/// What was found when a log was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// The number of records.
    pub records: u64,
    /// Their length in bytes, headers included.
    pub bytes: u64,
    /// The number of bytes of a torn batch behind the last complete one. They were cut off.
    pub torn: u64,
    /// The damage after which the log was given up, if loss was accepted.
    pub lost: Option<Loss>,
}

/// Damage after which a log was given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The file.
    pub path: PathBuf,
    /// The offset, in bytes from the beginning of the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl LogFiles {
    /// Opens the log in `directory`, or creates one. Calls `each` with the position and the bytes of every record, in order.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if acknowledged records are damaged or missing, unless loss is accepted. See [`crate`]
    /// for damage that can't be detected. [`StorageError::Refused`] if it is another log, or has a newer format.
    pub fn open(
        directory: &Path,
        options: LogOptions,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(LogFiles, Replayed), StorageError> {
        LogFiles::open_on(Box::new(RealDisk), SEGMENT, directory, options, each)
    }

    pub(crate) fn open_on(
        mut disk: Box<dyn Disk>,
        segment_length: u64,
        directory: &Path,
        options: LogOptions,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(LogFiles, Replayed), StorageError> {
        let LogOptions { identity, durability, .. } = options;
        let mut opening = Opening::new(disk.as_mut(), directory, options);
        let note = match durability {
            Durability::Memory => None,
            Durability::Buffered | Durability::Sync => {
                create_directory(directory).map_err(StorageError::io(directory))?;
                Some(opening.read(each)?)
            }
        };
        let Opening { replayed, full, last, position, has_spare, .. } = opening;
        let directory = directory.to_path_buf();
        let log = LogFiles {
            directory,
            identity,
            durability,
            disk,
            segment_length,
            full,
            last,
            position,
            has_spare,
            note,
        };
        Ok((log, replayed))
    }

    /// The number of the last batch that the store beside the log in `directory` is known to have. It is 0 if it is not
    /// noted or the note is damaged. [`LogFiles::open`] reports a damaged note.
    pub fn noted_store(directory: &Path, identity: u64) -> u64 {
        Note::open(directory, identity).ok().flatten().map_or(0, |note| note.reach().store)
    }

    /// Notes that the store beside the log has all batches up to number `last`. This survives the end of the process.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn note_store(&mut self, last: u64) -> Result<(), StorageError> {
        match &mut self.note {
            Some(note) if note.reach().store != last => {
                note.write(self.disk.as_mut(), Reach { store: last, ..note.reach() })
            }
            _ => Ok(()),
        }
    }

    /// The position of the next record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes a batch, and makes it durable in the way that the log was opened with. Returns the position before which
    /// everything is durable.
    ///
    /// # Errors
    /// [`StorageError::Full`] if there is no room. Nothing was written then, and the call can be repeated. After any
    /// other error the log must not be used.
    ///
    /// # Panics
    /// If the batch does not continue the log.
    pub fn write(&mut self, batch: &mut Batch) -> Result<u64, StorageError> {
        assert_eq!(batch.first, self.position, "a batch continues its log");
        if self.durability == Durability::Memory || batch.is_empty() {
            self.position = batch.next_position();
            return Ok(self.position);
        }
        segment::seal(&mut batch.bytes, self.identity, batch.first, batch.count);
        let length = batch.bytes.len() as u64;
        if self.last.as_ref().is_none_or(|last| last.offset + length > last.length) {
            self.begin_segment(length)?;
        }
        let last = self.last.as_mut().expect("a segment with room");
        let written = self.disk.write_at(&last.file, &batch.bytes, last.offset);
        written.map_err(StorageError::write(&last.path, length))?;
        if self.durability == Durability::Sync {
            let synced = self.disk.sync(&last.file);
            synced.map_err(StorageError::write(&last.path, length))?;
        }
        // This is noted before the batch is reported as durable.
        if let Some(note) = &mut self.note {
            let reach = Reach { end: batch.next_position(), ..note.reach() };
            note.write(self.disk.as_mut(), reach)?;
        }
        last.offset += length;
        self.position = batch.next_position();
        Ok(self.position)
    }

    /// Begins another segment, with room for a batch of `batch` bytes.
    fn begin_segment(&mut self, batch: u64) -> Result<(), StorageError> {
        let first = self.position;
        let path = self.directory.join(format!("{first:020}.log"));
        let length = self.segment_length.max(SEGMENT_HEADER as u64 + batch);
        let spare = self.directory.join(SPARE);
        let used = self.has_spare && length == self.segment_length;
        let file = if used {
            self.disk.rename(&spare, &path).map_err(StorageError::io(&spare))?;
            self.has_spare = false;
            OpenOptions::new().read(true).write(true).open(&path)
        } else {
            self.disk.create(&path, length)
        };
        let file = file.map_err(StorageError::write(&path, length))?;
        let header = segment::segment_header(self.identity, first, used);
        let written = self.disk.write_at(&file, &header, 0);
        written.map_err(StorageError::write(&path, length))?;
        if let Some(Last { first, path, .. }) = self.last.take() {
            self.full.push_back((first, path));
        }
        let offset = SEGMENT_HEADER as u64;
        self.last = Some(Last { first, path, file, length, offset });
        Ok(())
    }

    /// The position at which the log begins after its first segment is given up, if it has another one.
    fn second(&self) -> Option<u64> {
        self.full.front()?;
        let next = self.full.get(1).map(|(first, _)| *first);
        next.or(self.last.as_ref().map(|last| last.first))
    }

    /// Whether [`LogFiles::trim`] would give anything up.
    pub fn releases(&self, position: u64) -> bool {
        self.second().is_some_and(|second| second <= position)
    }

    /// Gives up the segments all of whose records lie before `position`.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn trim(&mut self, position: u64) -> Result<(), StorageError> {
        while let Some(begin) = self.second().filter(|second| *second <= position) {
            // The note says that the records are gone before they are removed.
            if let Some(note) = &mut self.note {
                note.write(self.disk.as_mut(), Reach { begin, ..note.reach() })?;
                if self.durability == Durability::Sync {
                    note.sync(self.disk.as_mut())?;
                }
            }
            self.give_up_first()?;
        }
        Ok(())
    }

    fn give_up_first(&mut self) -> Result<(), StorageError> {
        let Some((_, path)) = self.full.front() else { return Ok(()) };
        let spare = self.directory.join(SPARE);
        let length = fs::metadata(path).map_err(StorageError::io(path))?.len();
        if self.has_spare || length != self.segment_length {
            self.disk.remove(path).map_err(StorageError::io(path))?;
        } else {
            self.disk.rename(path, &spare).map_err(StorageError::io(path))?;
            self.has_spare = true;
        }
        self.full.pop_front();
        Ok(())
    }

    /// How many bytes the log takes on the disk.
    pub fn bytes(&self) -> u64 {
        let full: u64 =
            self.full.iter().filter_map(|(_, path)| Some(fs::metadata(path).ok()?.len())).sum();
        full + self.last.as_ref().map_or(0, |last| last.length)
    }
}
