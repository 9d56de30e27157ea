//! The store of settled state.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use fjall::{PersistMode, Slice};
use serried_actor::{MemoryStore, Store};

use crate::disk::{create_directory, sync_directory};
use crate::engine::{Engine, Puts, failed, find_room, missing};
use crate::run::sync_all;
use crate::{Durability, StorageError, marks};

/// A replica's [`Store`]: in fjall, or in memory.
///
/// A change is visible at once, in memory. [`Flush::flush`] writes it and makes it durable. If the disk is full, the
/// change stays in memory and is written when there is room. If the disk can't be read, the process stops with an error
/// that names the path: a replica that continued without its stored state would break its promises, and the store's
/// methods can't return errors.
pub struct Base(Kind);

enum Kind {
    Memory(MemoryStore),
    Disk(Arc<OnDisk>),
}

/// Makes the changes of a [`Base`] durable, from any thread.
#[derive(Clone)]
pub struct Flush(Option<Arc<OnDisk>>);

struct OnDisk {
    path: PathBuf,
    cache: u64,
    mode: PersistMode,
    unwritten: Mutex<Unwritten>,
    /// `None` if the store could not be opened again.
    engine: RwLock<Option<Engine>>,
    /// Held by the thread that writes.
    writing: Mutex<Writing>,
}

/// Changes that are not durable yet.
#[derive(Default)]
struct Unwritten {
    put: Puts,
    /// Earlier changes that are being written, or could not be written.
    earlier: Arc<Puts>,
}

#[derive(Default)]
struct Writing {
    /// Whether the engine has failed and must be opened again.
    failed: bool,
    /// The changes that the log has up to this position were made before the engine began to move its memtable to
    /// tables.
    settling: Option<u64>,
    /// The number of the last batch that is durable: see [`marks`].
    last: u64,
}

impl Base {
    /// Opens the store in `directory`, or creates one. `cache` is the size of the read cache in bytes.
    /// [`Flush::verify`] checks whether the store has lost anything.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn open(
        directory: &Path,
        durability: Durability,
        cache: u64,
    ) -> Result<Base, StorageError> {
        let mode = match durability {
            Durability::Memory => return Ok(Base(Kind::Memory(MemoryStore::default()))),
            Durability::Buffered => PersistMode::Buffer,
            Durability::Sync => PersistMode::SyncData,
        };
        let engine = open_whole(directory, cache, mode)?;
        let last = engine.marks(directory)?.last().copied();
        if last.is_none() {
            engine.replace_marks(directory, &[], 0)?;
        }
        if last.is_none_or(|last| last == 0) {
            // The store is new, or was written by a release without marks.
            engine.settle_all(directory)?;
        }
        Ok(Base(Kind::Disk(Arc::new(OnDisk {
            path: directory.to_path_buf(),
            cache,
            mode,
            unwritten: Mutex::default(),
            engine: RwLock::new(Some(engine)),
            writing: Mutex::new(Writing { last: last.unwrap_or_default(), ..Writing::default() }),
        }))))
    }

    /// Checks that a store which was created in `directory` is still there. If one of its files is missing, fjall would
    /// begin a new store without an error.
    ///
    /// # Errors
    /// [`StorageError::Store`] if a file is missing.
    pub fn check(directory: &Path) -> Result<(), StorageError> {
        missing(directory).map_or(Ok(()), |path| {
            let what = format!("{} is missing", path.display());
            Err(StorageError::Store { path: directory.to_path_buf(), what })
        })
    }

    /// The handle that makes its changes durable, in the way that the store was opened with.
    pub fn flusher(&self) -> Flush {
        match &self.0 {
            Kind::Memory(_) => Flush(None),
            Kind::Disk(disk) => Flush(Some(disk.clone())),
        }
    }
}

/// Opens a store, or creates one. It is created in another place and then renamed, so that a store under its final name
/// is always complete, also after a power cut. Otherwise a process that is killed during this would leave a store that
/// looks damaged.
fn open_whole(directory: &Path, cache: u64, mode: PersistMode) -> Result<Engine, StorageError> {
    if let Some(parent) = directory.parent() {
        create_directory(parent).map_err(StorageError::io(parent))?;
    }
    if !directory.exists() {
        let unfinished = directory.with_extension("unfinished");
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StorageError::io(&unfinished)(error));
            }
            _ => drop(Engine::open(&unfinished, cache, mode)?),
        }
        sync_all(&unfinished)?;
        fs::rename(&unfinished, directory).map_err(StorageError::io(directory))?;
    }
    // A process that was killed may have left it with a name that is not durable.
    sync_directory(directory).map_err(StorageError::io(directory))?;
    Engine::open(directory, cache, mode)
}

impl Flush {
    /// Makes all earlier changes durable.
    ///
    /// # Errors
    /// If the disk fails. If it is only full, this can be tried again.
    pub fn flush(&self) -> Result<(), StorageError> {
        self.0.as_ref().map_or(Ok(()), |disk| disk.write(&mut lock(&disk.writing)))
    }

    /// The number of the store's last durable batch. The caller notes it for [`Flush::verify`].
    pub fn last(&self) -> u64 {
        self.0.as_ref().map_or(0, |disk| lock(&disk.writing).last)
    }

    /// Checks that the store has all its batches up to number `noted`, and none after a gap. If batches are missing and
    /// the loss is accepted, the store continues with what it has, and the loss is returned.
    ///
    /// # Errors
    /// [`StorageError::Lost`] if batches are missing and this is not accepted. Other errors if the store can't be read
    /// or written.
    pub fn verify(
        &self,
        noted: u64,
        accept_loss: bool,
    ) -> Result<Option<StorageError>, StorageError> {
        let Some(disk) = &self.0 else { return Ok(None) };
        let mut writing = lock(&disk.writing);
        let engine = disk.engine();
        let engine = disk.opened(&engine);
        let found = engine.marks(&disk.path)?;
        let Some(what) = marks::lost(&found, noted) else { return Ok(None) };
        let lost = StorageError::Lost { path: disk.path.clone(), what };
        if !accept_loss {
            return Err(lost);
        }
        let next = noted.max(writing.last) + 1;
        engine.replace_marks(&disk.path, &found, next)?;
        writing.last = next;
        Ok(Some(lost))
    }

    /// Whether there is something to be written.
    pub fn is_needed(&self) -> bool {
        let is_needed = |disk: &Arc<OnDisk>| {
            let unwritten = lock(&disk.unwritten);
            !unwritten.put.is_empty() || !unwritten.earlier.is_empty()
        };
        self.0.as_ref().is_some_and(is_needed)
    }

    /// Moves flushed data to tables, where damage is detected whenever the data is read. In its journal, fjall takes
    /// damage for the end of the journal. The move takes a while. Until it is done, the log must keep its records up to
    /// `position`. Returns the position before which the log no longer needs its records.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn settle(&self, position: u64) -> Result<Option<u64>, StorageError> {
        let Some(disk) = &self.0 else { return Ok(Some(position)) };
        let mut writing = lock(&disk.writing);
        let engine = disk.engine();
        let engine = disk.opened(&engine);
        if writing.settling.is_none() {
            engine.settle(&disk.path)?;
            writing.settling = Some(position);
        }
        Ok(if engine.is_settled() { writing.settling.take() } else { None })
    }
}

impl OnDisk {
    fn write(&self, writing: &mut Writing) -> Result<(), StorageError> {
        if writing.failed {
            let last = self.open_again(writing.last)?;
            *writing = Writing { last, ..Writing::default() };
        }
        let puts = {
            let mut unwritten = lock(&self.unwritten);
            let Unwritten { put, earlier } = &mut *unwritten;
            if earlier.is_empty() {
                *earlier = Arc::new(core::mem::take(put));
            } else {
                Arc::make_mut(earlier).append(put);
            }
            earlier.clone()
        };
        if puts.is_empty() {
            return Ok(());
        }
        let written = self.opened(&self.engine()).write(&self.path, &puts, writing.last);
        writing.failed = written.is_err();
        writing.last = written?;
        lock(&self.unwritten).earlier = Arc::default();
        Ok(())
    }

    /// Opens a store that has failed, once there is room for it. It must have all batches up to number `last`. Returns
    /// the number of the last one that it has.
    fn open_again(&self, last: u64) -> Result<u64, StorageError> {
        find_room(&self.path)?;
        let mut engine = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        // It can't be open twice.
        *engine = None;
        let again = engine.insert(Engine::open(&self.path, self.cache, self.mode)?);
        let found = again.marks(&self.path)?;
        match marks::lost(&found, last) {
            Some(what) => Err(StorageError::Lost { path: self.path.clone(), what }),
            None => Ok(found.last().copied().unwrap_or(last)),
        }
    }

    fn engine(&self) -> RwLockReadGuard<'_, Option<Engine>> {
        self.engine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine. Stops the node if there is none: see [`Base`].
    fn opened<'a>(&self, engine: &'a Option<Engine>) -> &'a Engine {
        let failed = || panic!("the store in {} could not be opened again", self.path.display());
        engine.as_ref().unwrap_or_else(failed)
    }

    /// Stops the node: see [`Base`].
    fn stop<T>(&self, error: fjall::Error) -> T {
        panic!("{}", failed(&self.path, error))
    }

    fn get(&self, key: &[u8]) -> Option<Slice> {
        {
            let unwritten = lock(&self.unwritten);
            let found = unwritten.put.get(key).or_else(|| unwritten.earlier.get(key));
            if let Some(value) = found {
                return value.clone();
            }
        }
        let engine = self.engine();
        self.opened(&engine).get(key).unwrap_or_else(|error| self.stop(error))
    }

    /// The changes of keys after `after` that are not written yet.
    fn unwritten(&self, after: Option<&[u8]>) -> Puts {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let unwritten = lock(&self.unwritten);
        let puts = unwritten.earlier.range::<[u8], _>(from);
        let puts = puts.chain(unwritten.put.range::<[u8], _>(from));
        puts.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let mut unwritten = self.unwritten(after).into_iter().peekable();
        let engine = self.engine();
        let written = self.opened(&engine).after(after);
        let mut written =
            written.map(|entry| entry.unwrap_or_else(|error| self.stop(error))).peekable();
        let mut shown = 0;
        loop {
            let (next, newer) = match (written.peek(), unwritten.peek()) {
                (None, None) => return false,
                (Some((key, _)), Some((newer, _))) => (key <= newer, newer <= key),
                (next, newer) => (next.is_some(), newer.is_some()),
            };
            let next = if next { written.next() } else { None };
            let newer = if newer { unwritten.next() } else { None };
            let entry = match newer {
                Some((key, value)) => value.map(|value| (key, value)),
                None => next,
            };
            let Some((key, value)) = entry else { continue };
            if shown > bytes {
                return true;
            }
            each(&key, &value);
            shown += key.len() + value.len();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for Base {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match &self.0 {
            Kind::Memory(store) => store.get(key),
            Kind::Disk(disk) => disk.get(key).map(|value| value.to_vec()),
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        match &mut self.0 {
            Kind::Memory(store) => store.put(key, value),
            Kind::Disk(disk) => {
                lock(&disk.unwritten).put.insert(key.into(), value.map(Slice::from));
            }
        }
    }

    fn is_behind(&self) -> bool {
        match &self.0 {
            Kind::Memory(_) => false,
            Kind::Disk(disk) => disk.opened(&disk.engine()).is_behind(),
        }
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        match &self.0 {
            Kind::Memory(store) => store.scan(after, bytes, each),
            Kind::Disk(disk) => disk.scan(after, bytes, each),
        }
    }
}
