//! A log of records.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, RealDisk};
use crate::segment::{self, SEGMENT_HEADER};
use crate::{Batch, Durability, StorageError};

/// How long a segment is, unless a single batch is longer.
const SEGMENT: u64 = 32 << 20;
/// The name of a segment that was trimmed and waits to be used again.
const SPARE: &str = "spare";

/// The writing end of a log. It is for one thread, which may be another than the one that fills
/// [`Batch`]es.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    identity: u64,
    durability: Durability,
    disk: Box<dyn Disk>,
    segment_length: u64,
    /// All but the last, by the position of their first record.
    full: VecDeque<(u64, PathBuf)>,
    last: Option<Last>,
    /// The position of the next record.
    position: u64,
    has_spare: bool,
    /// While it is opened: the last segment that was read, and where its last batch ends.
    read_up_to: Option<(PathBuf, u64)>,
}

/// The segment that is written to.
#[derive(Debug)]
struct Last {
    first: u64,
    path: PathBuf,
    file: File,
    length: u64,
    /// Where the next batch goes.
    offset: u64,
}

/// What was found when a log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// How many records.
    pub records: u64,
    /// How many bytes they took.
    pub bytes: u64,
    /// How many bytes, that were not zero, lay behind the last whole record: a crash has torn them.
    pub torn: u64,
}

impl Log {
    /// Opens the log in `directory`, or begins one, and shows `each` record with its position, in order.
    /// `identity` is whose it is.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] if what lies before the last whole record is damaged, in whichever
    /// way; [`StorageError::Refused`] if it is the log of somebody else or of a newer format.
    pub fn open(
        directory: &Path,
        identity: u64,
        durability: Durability,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Log, Replayed), StorageError> {
        Log::open_on(Box::new(RealDisk), SEGMENT, directory, identity, durability, each)
    }

    pub(crate) fn open_on(
        disk: Box<dyn Disk>,
        segment_length: u64,
        directory: &Path,
        identity: u64,
        durability: Durability,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(Log, Replayed), StorageError> {
        let mut log = Log {
            directory: directory.to_path_buf(),
            identity,
            durability,
            disk,
            segment_length,
            full: VecDeque::new(),
            last: None,
            position: 0,
            has_spare: false,
            read_up_to: None,
        };
        let mut replayed = Replayed::default();
        if durability == Durability::Memory {
            return Ok((log, replayed));
        }
        fs::create_dir_all(directory).map_err(StorageError::io(directory))?;
        let segments = log.segments()?;
        let count = segments.len();
        for (i, (first, path)) in segments.into_iter().enumerate() {
            log.read(first, path, i + 1 == count, &mut replayed, each)?;
        }
        Ok((log, replayed))
    }

    /// The segments in the directory, in order.
    fn segments(&mut self) -> Result<Vec<(u64, PathBuf)>, StorageError> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(StorageError::io(&self.directory))? {
            let path = entry.map_err(StorageError::io(&self.directory))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match name.strip_suffix(".log").and_then(|first| first.parse().ok()) {
                Some(first) => segments.push((first, path)),
                None => self.has_spare |= name == SPARE,
            }
        }
        segments.sort();
        Ok(segments)
    }

    fn read(
        &mut self,
        first: u64,
        path: PathBuf,
        is_last: bool,
        replayed: &mut Replayed,
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), StorageError> {
        let bytes = fs::read(&path).map_err(StorageError::io(&path))?;
        let header = segment::read_header(&path, &bytes);
        let ours = header
            .as_ref()
            .is_ok_and(|header| (header.identity, header.first) == (self.identity, first));
        let others = header.as_ref().is_ok_and(|header| header.identity != self.identity);
        let unused = || segment::find_batch(&bytes, 0, self.identity, first).is_none();
        if is_last && !ours && !others && unused() {
            // A crash came between its creation and its header: nothing was ever in it.
            return fs::remove_file(&path).map_err(StorageError::io(&path));
        }
        let header = header?;
        if others {
            let reason = "this is the log of another node, keyspace or partition";
            return Err(StorageError::refused(&path, reason));
        }
        if header.first != first {
            let what = format!("it begins with record {}, not with that of its name", header.first);
            return Err(StorageError::corrupt(&path, 16, what));
        }
        let identity = self.identity;
        if let Some((previous, end)) = &self.read_up_to
            && self.position != first
        {
            let what = format!("records {} to {first} are missing", self.position);
            return Err(StorageError::corrupt(previous, *end, what));
        }
        let (end, position) =
            segment::read_batches(&path, &bytes, identity, first, &mut |position, record| {
                replayed.records += 1;
                each(position, record);
            })?;
        replayed.bytes += end as u64;
        let later = segment::find_batch(&bytes, end, identity, position + 1);
        if let Some(later) = later {
            let what = format!("a batch is damaged, and another follows at offset {later}");
            return Err(StorageError::corrupt(&path, end as u64, what));
        }
        self.position = position;
        self.read_up_to = Some((path.clone(), end as u64));
        if !is_last {
            self.full.push_back((first, path));
            return Ok(());
        }
        replayed.torn = segment::torn(&bytes[end..], header.used, identity, position);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(StorageError::io(&path))?;
        // A process that was killed may have left behind what the disk does not have yet, and what is
        // replayed is acted on.
        if self.durability == Durability::Sync {
            self.disk.sync(&file).map_err(StorageError::io(&path))?;
        }
        let (length, offset) = (bytes.len() as u64, end as u64);
        self.last = Some(Last { first, path, file, length, offset });
        Ok(())
    }

    /// The position of the next record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes a batch, and makes it durable in the way that the log was opened with. Returns the
    /// position before which everything then is.
    ///
    /// # Errors
    /// [`StorageError::Full`] if there is no room: nothing of it was written then, and it can be tried
    /// again. After any other error the log must not be used.
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
        last.offset += length;
        self.position = batch.next_position();
        Ok(self.position)
    }

    /// Begins another segment, with room for a batch of so many bytes.
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

    /// Whether [`Log::trim`] would give anything up.
    pub fn releases(&self, position: u64) -> bool {
        let next = self.full.get(1).map(|(first, _)| *first);
        let end = next.or(self.last.as_ref().map(|last| last.first));
        !self.full.is_empty() && end.is_some_and(|end| end <= position)
    }

    /// Gives up the segments all of whose records lie before `position`.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn trim(&mut self, position: u64) -> Result<(), StorageError> {
        while let Some((_, path)) = self.full.front() {
            let next = self.full.get(1).map(|(first, _)| *first);
            let end = next.or(self.last.as_ref().map(|last| last.first));
            if end.is_none_or(|end| end > position) {
                break;
            }
            let path = path.clone();
            let spare = self.directory.join(SPARE);
            let length = fs::metadata(&path).map_err(StorageError::io(&path))?.len();
            if self.has_spare || length != self.segment_length {
                self.disk.remove(&path).map_err(StorageError::io(&path))?;
            } else {
                self.disk.rename(&path, &spare).map_err(StorageError::io(&path))?;
                self.has_spare = true;
            }
            self.full.pop_front();
        }
        Ok(())
    }

    /// How many bytes the log takes on the disk.
    pub fn bytes(&self) -> u64 {
        let full: u64 =
            self.full.iter().filter_map(|(_, path)| Some(fs::metadata(path).ok()?.len())).sum();
        full + self.last.as_ref().map_or(0, |last| last.length)
    }
}
