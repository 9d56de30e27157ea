//! The store of what is settled.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use serried_actor::{MemoryStore, Store};

use crate::{Durability, StorageError};

/// A replica's [`Store`]: in fjall, or in memory.
///
/// What is put is visible at once, and durable after [`Flush::flush`]. A disk that fails stops the
/// process with the path and what went wrong: the store's methods have no other way to tell, and a
/// replica that goes on without what it has stored would break its promises.
pub struct Base(Kind);

enum Kind {
    Memory(MemoryStore),
    Disk { database: Database, items: Keyspace, path: PathBuf, dirty: Arc<AtomicBool> },
}

/// Makes durable what was put into a [`Base`], from any thread.
#[derive(Clone)]
pub struct Flush(Option<OnDisk>);

#[derive(Clone)]
struct OnDisk {
    database: Database,
    items: Keyspace,
    path: PathBuf,
    dirty: Arc<AtomicBool>,
    mode: PersistMode,
}

impl Base {
    /// Opens the store in `directory`, or begins one. `cache` is how much of it is kept in memory for
    /// reading, in bytes.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn open(
        directory: &Path,
        durability: Durability,
        cache: u64,
    ) -> Result<Base, StorageError> {
        if durability == Durability::Memory {
            return Ok(Base(Kind::Memory(MemoryStore::default())));
        }
        let open = || {
            let database =
                Database::builder(directory).cache_size(cache).worker_threads(1).open()?;
            let items = database.keyspace("items", KeyspaceCreateOptions::default)?;
            Ok((database, items))
        };
        let (database, items) = open().map_err(|error| failed(directory, error))?;
        let (path, dirty) = (directory.to_path_buf(), Arc::default());
        Ok(Base(Kind::Disk { database, items, path, dirty }))
    }

    /// What makes it durable, in the way that the keyspace is set to.
    pub fn flusher(&self, durability: Durability) -> Flush {
        Flush(match (&self.0, durability) {
            (Kind::Memory(_), _) | (_, Durability::Memory) => None,
            (Kind::Disk { database, items, path, dirty }, _) => {
                let mode = match durability {
                    Durability::Sync => PersistMode::SyncData,
                    Durability::Buffered | Durability::Memory => PersistMode::Buffer,
                };
                let (database, items) = (database.clone(), items.clone());
                Some(OnDisk { database, items, path: path.clone(), dirty: dirty.clone(), mode })
            }
        })
    }
}

impl Flush {
    /// Makes durable what was put before.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn flush(&self) -> Result<(), StorageError> {
        let Some(OnDisk { database, path, dirty, mode, .. }) = &self.0 else { return Ok(()) };
        if dirty.swap(false, Ordering::AcqRel) {
            database.persist(*mode).map_err(|error| failed(path, error))?;
        }
        Ok(())
    }

    /// Has what was put before checked whenever it is read: fjall takes damage in its journal for the
    /// journal's end, and what is in its tables for damage. To be called before a log is trimmed, which
    /// has it too until then.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn settle(&self) -> Result<(), StorageError> {
        let Some(OnDisk { items, path, .. }) = &self.0 else { return Ok(()) };
        items.rotate_memtable_and_wait().map_err(|error| failed(path, error))
    }
}

fn failed(path: &Path, error: fjall::Error) -> StorageError {
    let source = match error {
        fjall::Error::Io(source) => source,
        other => std::io::Error::other(other.to_string()),
    };
    match source.kind() {
        std::io::ErrorKind::StorageFull => {
            StorageError::Full { path: path.to_path_buf(), needed: 0 }
        }
        _ => StorageError::Io { path: path.to_path_buf(), source },
    }
}

/// Stops the node: see [`Base`].
fn stop<T>(path: &Path) -> impl FnOnce(fjall::Error) -> T {
    move |error| panic!("the store in {} fails: {error}", path.display())
}

impl Store for Base {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        match &self.0 {
            Kind::Memory(store) => store.get(key),
            Kind::Disk { items, path, .. } => {
                let found = items.get(key).unwrap_or_else(stop(path));
                found.map(|value| value.to_vec())
            }
        }
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        match &mut self.0 {
            Kind::Memory(store) => store.put(key, value),
            Kind::Disk { items, path, dirty, .. } => {
                let done = match value {
                    Some(value) => items.insert(key, value),
                    None => items.remove(key),
                };
                done.unwrap_or_else(stop(path));
                dirty.store(true, Ordering::Release);
            }
        }
    }

    fn scan(&self, after: Option<&[u8]>, bytes: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let (items, path) = match &self.0 {
            Kind::Memory(store) => return store.scan(after, bytes, each),
            Kind::Disk { items, path, .. } => (items, path),
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut shown = 0;
        for entry in items.range::<&[u8], _>((from, Bound::Unbounded)) {
            if shown > bytes {
                return true;
            }
            let (key, value) = entry.into_inner().unwrap_or_else(stop(path));
            each(&key, &value);
            shown += key.len() + value.len();
        }
        false
    }
}
