//! Reads a log when it is opened, and finds out whether it is damaged.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::log::{Last, SPARE};
use crate::note::{Note, Reach};
use crate::segment::{self, SEGMENT_HEADER};
use crate::{Durability, LogOptions, Loss, Replayed, StorageError};

/// The end of the error of a log that can't be opened even if losses are accepted.
const NO_BEGINNING: &str = ", with which the log begins: what is left of it is of no use, also with --accept-loss; have \
                            this node start with an empty directory and --rejoin";

/// A log that is being read.
pub(crate) struct Opening<'a> {
    pub(crate) disk: &'a mut dyn Disk,
    pub(crate) directory: &'a Path,
    pub(crate) options: LogOptions,
    pub(crate) replayed: Replayed,
    /// The segments that were read, except the last one, with the positions of their first records.
    pub(crate) full: VecDeque<(u64, PathBuf)>,
    pub(crate) last: Option<Last>,
    /// The position after the last record that was read.
    pub(crate) position: u64,
    pub(crate) has_spare: bool,
}

/// The contents of a segment's file.
enum Found {
    /// Nothing: it is the last one, and no batch was ever written to it.
    Unused,
    /// Nothing usable, because of this damage.
    Damaged(StorageError),
    Batches(Batches),
}

struct Batches {
    /// Where the last complete batch ends, in bytes.
    end: u64,
    /// The position of the record after it.
    position: u64,
    /// How many bytes of a torn batch follow.
    torn: u64,
    /// What is wrong behind `end`, if it is more than a torn batch.
    damage: Option<StorageError>,
}

impl<'a> Opening<'a> {
    pub(crate) fn new(disk: &'a mut dyn Disk, directory: &'a Path, options: LogOptions) -> Self {
        Opening {
            disk,
            directory,
            options,
            replayed: Replayed::default(),
            full: VecDeque::new(),
            last: None,
            position: 0,
            has_spare: false,
        }
    }

    /// Reads all segments and calls `each` with the position and the bytes of every record.
    pub(crate) fn read(&mut self, each: &mut dyn FnMut(u64, &[u8])) -> Result<Note, StorageError> {
        let noted = self.noted()?;
        let mut segments = self.segments()?;
        let first = segments.front().map(|(first, _)| *first);
        let reach = noted.as_ref().map_or_else(Reach::default, Note::reach);
        self.position = reach.begin;
        let mut unused = None;
        while let Some((first, path)) = segments.pop_front() {
            let damage = match self.look(first, &path, segments.is_empty(), each)? {
                Found::Batches(batches) => self.take(first, path, batches)?,
                Found::Unused => unused.replace(path).and(None),
                Found::Damaged(damage) => {
                    segments.push_front((first, path));
                    Some(damage)
                }
            };
            if let Some(damage) = damage {
                self.accept(damage)?;
                break;
            }
        }
        if let Some(first) = first.filter(|first| noted.is_some() && *first > reach.begin) {
            let what = format!("records {} to {first} are missing", reach.begin);
            return Err(match self.options.accept_loss {
                true => StorageError::refused(self.directory, what + NO_BEGINNING),
                false => StorageError::corrupt(self.directory, 0, what),
            });
        }
        if self.position < reach.end {
            let (path, offset) = match &self.last {
                Some(last) => (&*last.path, last.offset),
                None => (self.directory, 0),
            };
            let what = format!(
                "the log ends here, before record {}, and it had all records before {}: its end was \
                 damaged or cut off",
                self.position, reach.end
            );
            let damage = StorageError::corrupt(path, offset, what);
            self.accept(damage)?;
        }
        if self.replayed.lost.is_some() {
            self.give_up(&segments)?;
        }
        if let Some(path) = unused {
            self.disk.remove(&path).map_err(StorageError::io(&path))?;
        }
        self.settle(noted, first)
    }

    /// The log's note. There is none if the log is new, or was written by a release without notes.
    fn noted(&mut self) -> Result<Option<Note>, StorageError> {
        let LogOptions { identity, existed, .. } = self.options;
        match Note::open(self.directory, identity) {
            Ok(None) if existed => {
                let what = "the file is missing, and the log with it if that is empty";
                self.accept(StorageError::corrupt(&Note::path(self.directory), 0, what))?;
                Ok(None)
            }
            Err(error) => self.accept(error).map(|()| None),
            noted => noted,
        }
    }

    /// The segments in the directory, in order.
    fn segments(&mut self) -> Result<VecDeque<(u64, PathBuf)>, StorageError> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(self.directory).map_err(StorageError::io(self.directory))? {
            let path = entry.map_err(StorageError::io(self.directory))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match name.strip_suffix(".log").and_then(|first| first.parse().ok()) {
                Some(first) => segments.push((first, path)),
                None => self.has_spare |= name == SPARE,
            }
        }
        segments.sort();
        Ok(segments.into())
    }

    fn look(
        &mut self,
        first: u64,
        path: &Path,
        is_last: bool,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<Found, StorageError> {
        let identity = self.options.identity;
        let bytes = fs::read(path).map_err(StorageError::io(path))?;
        let header = segment::read_header(path, &bytes);
        let ours = header
            .as_ref()
            .is_ok_and(|header| (header.identity, header.first) == (identity, first));
        let others = header.as_ref().is_ok_and(|header| header.identity != identity);
        let unused = || segment::find_batch(&bytes, 0, identity, first).is_none();
        if is_last && !ours && !others && unused() {
            // A crash came between its creation and its header: nothing was ever in it.
            return Ok(Found::Unused);
        }
        let header = match header {
            Err(damage @ StorageError::Corrupt { .. }) => return Ok(Found::Damaged(damage)),
            header => header?,
        };
        if others {
            let reason = "this is the log of another node, keyspace or partition";
            return Err(StorageError::refused(path, reason));
        }
        if header.first != first {
            let what = format!("it begins with record {}, not with that of its name", header.first);
            return Ok(Found::Damaged(StorageError::corrupt(path, 16, what)));
        }
        if let Some(previous) = &self.last
            && self.position != first
        {
            let what = format!("records {} to {first} are missing", self.position);
            let damage = StorageError::corrupt(&previous.path, previous.offset, what);
            return Ok(Found::Damaged(damage));
        }
        let replayed = &mut self.replayed;
        let (end, position) =
            segment::read_batches(path, &bytes, identity, first, &mut |position, record| {
                replayed.records += 1;
                each(position, record);
            })?;
        let damage = segment::find_batch(&bytes, end, identity, position + 1).map(|later| {
            let what = format!("a batch is damaged, and another follows at offset {later}");
            StorageError::corrupt(path, end as u64, what)
        });
        let torn = match is_last {
            true => segment::torn(&bytes[end..], header.used, identity, position),
            false => 0,
        };
        Ok(Found::Batches(Batches { end: end as u64, position, torn, damage }))
    }

    /// Continues after a segment's batches. Returns what is wrong behind them.
    fn take(
        &mut self,
        first: u64,
        path: PathBuf,
        batches: Batches,
    ) -> Result<Option<StorageError>, StorageError> {
        if let Some(Last { first, path, .. }) = self.last.take() {
            self.full.push_back((first, path));
        }
        let Batches { end, position, torn, damage } = batches;
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(StorageError::io(&path))?;
        // A process that was killed may have left records that are not on the disk yet. They must be durable before
        // they are replayed.
        if self.options.durability == Durability::Sync {
            self.disk.sync(&file).map_err(StorageError::io(&path))?;
        }
        let length = file.metadata().map_err(StorageError::io(&path))?.len();
        self.replayed.bytes += end;
        self.replayed.torn = torn;
        self.position = position;
        self.last = Some(Last { first, path, file, length, offset: end });
        Ok(damage)
    }

    /// Notes damage as a loss and continues, if losses are accepted. Otherwise returns the error.
    fn accept(&mut self, error: StorageError) -> Result<(), StorageError> {
        let StorageError::Corrupt { path, offset, what } = error else { return Err(error) };
        if !self.options.accept_loss {
            return Err(StorageError::Corrupt { path, offset, what });
        }
        self.replayed.lost.get_or_insert(Loss { path, offset, what });
        Ok(())
    }

    /// Removes everything behind the records that were read, so that none of it is ever read as a record again.
    fn give_up(&mut self, segments: &VecDeque<(u64, PathBuf)>) -> Result<(), StorageError> {
        for (_, path) in segments.iter().rev() {
            self.disk.remove(path).map_err(StorageError::io(path))?;
        }
        let Some(last) = &self.last else { return Ok(()) };
        let cut = || {
            last.file.set_len(last.offset.max(SEGMENT_HEADER as u64))?;
            last.file.set_len(last.length)?;
            last.file.sync_all()
        };
        cut().map_err(StorageError::io(&last.path))
    }

    /// Notes that the log has the records that were read.
    fn settle(&mut self, noted: Option<Note>, first: Option<u64>) -> Result<Note, StorageError> {
        let LogOptions { identity, durability, .. } = self.options;
        let end = self.position;
        let store = noted.as_ref().map_or(0, |note| note.reach().store);
        let Some(mut note) = noted.filter(|_| self.replayed.lost.is_none()) else {
            let begin = first.map_or(end, |first| first.min(end));
            return Note::create(self.disk, self.directory, identity, Reach { begin, end, store });
        };
        note.write(self.disk, Reach { end, ..note.reach() })?;
        if durability == Durability::Sync {
            note.sync(self.disk)?;
        }
        Ok(note)
    }
}
