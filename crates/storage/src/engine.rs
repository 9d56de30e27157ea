//! fjall, as a [`crate::Base`] uses it.
//!
//! By default, every insertion into a full fjall memtable requests a new memtable, and when a thousand such requests
//! wait, fjall's worker waits for itself. So all background work is requested here, at times that we choose.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::iter::once_with;
use std::ops::Bound;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{
    AbstractTree, Database, Keyspace, KeyspaceCreateOptions, LsmError, PersistMode, Slice,
};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::{StorageError, marks};

/// Changes to write: values, and `None` for removed keys.
pub(crate) type Puts = BTreeMap<Slice, Option<Slice>>;

/// The name of the thread that does fjall's background work.
pub const STORE_THREAD: &str = "fjall:worker";
/// A memtable is moved to a table when it has about this many bytes.
const MEMTABLE: u64 = 32 << 20;
/// How many writes are passed to fjall at once.
const BATCH: usize = 1024;
/// With this many memtables that are being moved to tables, or this many tables that are not merged yet, fjall is
/// behind. It stops accepting writes at 4 and 20.
const MEMTABLES_BEHIND: usize = 2;
const TABLES_BEHIND: usize = 10;
/// How much free space a store needs to be opened and to continue: for a journal, memtables that are being moved to
/// tables, and merging tables.
pub(crate) const ROOM: u64 = 128 << 20;
/// The file that is made to find out whether there is room, and removed at once.
pub(crate) const ROOM_FILE: &str = "room";

/// An open store.
pub(crate) struct Engine {
    items: Keyspace,
    database: Database,
    mode: PersistMode,
    /// How many bytes were added to the memtable.
    in_memtable: AtomicU64,
}

impl Engine {
    pub(crate) fn open(path: &Path, cache: u64, mode: PersistMode) -> Result<Engine, StorageError> {
        let open = || {
            let builder = Database::builder(path).cache_size(cache).worker_threads(1);
            let database = builder.manual_journal_persist(true).open()?;
            let options = || {
                let options = KeyspaceCreateOptions::default();
                options.max_memtable_size(u64::MAX).manual_journal_persist(true)
            };
            let items = database.keyspace("items", options)?;
            let in_memtable = AtomicU64::new(items.tree.active_memtable().size());
            Ok(Engine { items, database, mode, in_memtable })
        };
        if let Some(place) = misplaced(path).map_err(StorageError::io(path))? {
            let what = format!("{} is a directory, and was a file", place.display());
            return Err(StorageError::Store { path: path.to_path_buf(), what });
        }
        // fjall panics if some of its files are damaged, and does not say which.
        let opened = catch_unwind(open).map_err(|panic| {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            let what = what.unwrap_or_else(|| "one of its files can't be read".to_string());
            StorageError::Store { path: path.to_path_buf(), what: what.replace('\n', ",") }
        })?;
        opened.map_err(|error| failed(path, error))
    }

    pub(crate) fn get(&self, key: &[u8]) -> fjall::Result<Option<Slice>> {
        self.items.get(marks::stored(key))
    }

    /// The entries after `after`.
    pub(crate) fn after(
        &self,
        after: Option<&[u8]>,
    ) -> impl Iterator<Item = fjall::Result<(Slice, Slice)>> + use<'_> {
        let from = after.map(|key| marks::stored(key).into_owned());
        let is_below = from.as_ref().is_none_or(|from| *from < marks::first());
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let (below, above) = match is_below {
            true => {
                let end = Bound::Excluded(marks::first());
                (Some((from, end)), Bound::Included(marks::after_last()))
            }
            false => (None, from),
        };
        let below = below.map(|range| self.items.range(range)).into_iter().flatten();
        let above = once_with(move || self.items.range((above, Bound::Unbounded))).flatten();
        let shown = |(key, value)| (marks::shown(key), value);
        below.chain(above).map(move |entry| entry.into_inner().map(shown))
    }

    /// The numbers of the visible marks: see [`marks`].
    pub(crate) fn marks(&self, path: &Path) -> Result<Vec<u64>, StorageError> {
        let keys = self.items.prefix(marks::first()).map(fjall::Guard::key);
        let keys = keys.collect::<fjall::Result<Vec<_>>>().map_err(|error| failed(path, error))?;
        Ok(keys.iter().filter_map(|key| marks::number(key)).collect())
    }

    /// Removes these marks and adds another, durably.
    pub(crate) fn replace_marks(
        &self,
        path: &Path,
        old: &[u64],
        new: u64,
    ) -> Result<(), StorageError> {
        let write = || {
            let mut batch = self.database.batch();
            old.iter().for_each(|old| batch.remove(&self.items, marks::key(*old)));
            batch.insert(&self.items, marks::key(new), []);
            batch.commit()?;
            self.database.persist(self.mode)
        };
        write().map_err(|error| failed(path, error))
    }

    /// Waits until everything that was written is in tables.
    pub(crate) fn settle_all(&self, path: &Path) -> Result<(), StorageError> {
        self.settle(path)?;
        while !self.is_settled() {
            // This returns an error if fjall's own thread has failed.
            self.database.persist(PersistMode::Buffer).map_err(|error| failed(path, error))?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Writes all of `puts`, durably, in batches with numbers after `last`. Returns the number of the last one. After
    /// an error nothing more can be written. Keys that are not in `puts` can still be read.
    pub(crate) fn write(&self, path: &Path, puts: &Puts, last: u64) -> Result<u64, StorageError> {
        let write = || {
            let (mut puts, mut bytes, mut last) = (puts.iter().peekable(), 0, last);
            while puts.peek().is_some() {
                let mut batch = self.database.batch();
                for (key, value) in puts.by_ref().take(BATCH) {
                    bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
                    let key = match marks::stored(key) {
                        Cow::Borrowed(_) => key.clone(),
                        Cow::Owned(stored) => stored.into(),
                    };
                    match value {
                        Some(value) => batch.insert(&self.items, key, value.clone()),
                        None => batch.remove(&self.items, key),
                    }
                }
                let (before, mark) = (marks::key(last), marks::key(last + 1));
                bytes += before.len() + mark.len();
                batch.remove(&self.items, before);
                batch.insert(&self.items, mark, []);
                batch.commit()?;
                last += 1;
            }
            self.database.persist(self.mode)?;
            let bytes = bytes as u64;
            if self.in_memtable.fetch_add(bytes, Ordering::Relaxed) + bytes >= MEMTABLE {
                self.rotate()?;
            }
            Ok(last)
        };
        write().map_err(|error| failed(path, error))
    }

    /// Begins to move everything that was written to tables.
    pub(crate) fn settle(&self, path: &Path) -> Result<(), StorageError> {
        self.rotate().map_err(|error| failed(path, error))
    }

    fn rotate(&self) -> fjall::Result<()> {
        self.in_memtable.store(0, Ordering::Relaxed);
        self.items.rotate_memtable().map(drop)
    }

    /// Whether everything that was written before [`Engine::settle`] is in tables.
    pub(crate) fn is_settled(&self) -> bool {
        self.items.tree.sealed_memtable_count() == 0
    }

    /// Whether its background work is behind.
    pub(crate) fn is_behind(&self) -> bool {
        self.items.tree.sealed_memtable_count() >= MEMTABLES_BEHIND
            || self.items.tree.l0_run_count() >= TABLES_BEHIND
    }
}

/// A file that is missing from a store, if any. A store has two of fjall's keyspaces: fjall's own list, and ours. Each
/// has a file that lists its tables.
pub(crate) fn missing(path: &Path) -> Option<PathBuf> {
    let currents = ["0", "1"].map(|keyspace| path.join("keyspaces").join(keyspace).join("current"));
    currents.into_iter().find(|current| !current.exists())
}

/// A directory in the place of one of a store's files, if any. fjall would end the process.
fn misplaced(path: &Path) -> io::Result<Option<PathBuf>> {
    let directories = |of: &Path| match fs::read_dir(of) {
        Ok(entries) => {
            let paths = entries.map(|entry| Ok(entry?.path()));
            let paths = paths.collect::<io::Result<Vec<_>>>()?;
            Ok(paths.into_iter().filter(|path| path.is_dir()).collect::<Vec<_>>())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let (keyspaces, mut wrong) = (path.join("keyspaces"), directories(path)?);
    wrong.retain(|found| *found != keyspaces);
    for keyspace in directories(&keyspaces)? {
        let tables = keyspace.join("tables");
        wrong.extend(directories(&keyspace)?.into_iter().filter(|found| *found != tables));
        wrong.extend(directories(&tables)?);
    }
    Ok(wrong.into_iter().next())
}

/// Checks that the disk of `directory` has room for a store, by allocating that much. This includes limits of the
/// process and of its user.
///
/// # Errors
/// [`StorageError::Full`] if there is no room.
pub(crate) fn find_room(directory: &Path) -> Result<(), StorageError> {
    let path = directory.join(ROOM_FILE);
    let file = File::create(&path).map_err(StorageError::write(&path, ROOM))?;
    // The file is removed, even if allocating failed.
    fs::remove_file(&path).map_err(StorageError::io(&path))?;
    match fallocate(&file, FallocateFlags::empty(), 0, ROOM) {
        // Not every file system can.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(StorageError::write(directory, ROOM)(error.into())),
    }
}

pub(crate) fn failed(path: &Path, error: fjall::Error) -> StorageError {
    use io::ErrorKind::{AlreadyExists, InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) => {
            match source.kind() {
                // Its own files are missing or damaged.
                AlreadyExists | InvalidData | InvalidInput | NotFound | UnexpectedEof => {
                    StorageError::Store { path: path.to_path_buf(), what: source.to_string() }
                }
                _ => StorageError::write(path, ROOM)(source),
            }
        }
        // fjall failed in the background, and does not say why.
        fjall::Error::Poisoned if find_room(path).is_err_and(|error| error.is_full()) => {
            StorageError::Full { path: path.to_path_buf(), needed: ROOM }
        }
        fjall::Error::Poisoned => {
            let what = "the store has failed in the background: restart the node";
            StorageError::io(path)(io::Error::other(what))
        }
        fjall::Error::Locked => StorageError::io(path)(io::Error::other(error.to_string())),
        damage => StorageError::Store { path: path.to_path_buf(), what: damage.to_string() },
    }
}
