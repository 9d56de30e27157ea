//! How a directory was last used. This distinguishes a power cut from the end of a process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::disk::{read_text, replace};
use crate::{Durability, Start, StorageError};

pub(crate) const NAME: &str = "run.toml";
const HEADING: &str =
    "# How this directory was last used. It is checked at each start; do not edit it.";
/// The file of Linux's boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identifies one run of the machine, from its start to its end. Data that the operating system has not written to the
/// disk yet lasts only that long.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Boot(String);

impl Boot {
    /// The run of this name, for tests.
    pub fn named(name: impl Into<String>) -> Boot {
        Boot(name.into())
    }

    /// The present run. If the operating system has no boot id, all runs are the same, and power cuts go unnoticed.
    pub fn current() -> Boot {
        Boot(fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_string())
    }
}

/// The contents of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    boot: Boot,
    /// The durability that the node ran with.
    durability: Durability,
    /// Whether the node was stopped and the disk has everything that it wrote.
    stopped: bool,
    /// The folders of the keyspaces whose logs have all been created.
    keyspaces: Vec<String>,
}

/// The use of a directory by the node that runs in it.
#[derive(Debug)]
pub struct Run {
    directory: PathBuf,
    contents: Mutex<Contents>,
}

impl Run {
    /// Begins to use `directory`, which must be locked.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if a power cut may have taken acknowledged data, unless `start` accepts that;
    /// [`StorageError::Corrupt`] if the file can't be read as TOML.
    pub fn begin(
        directory: &Path,
        boot: Boot,
        durability: Durability,
        start: Start,
    ) -> Result<Run, StorageError> {
        let last = read(&directory.join(NAME), start)?;
        if let Some(last) = &last {
            let may_lack = !last.stopped && last.durability != Durability::Sync;
            if may_lack && last.boot != boot && start != Start::AcceptLoss {
                return Err(StorageError::refused(directory, POWER_CUT));
            }
            // Data that the last run left to the operating system must survive a power cut from now on.
            if may_lack && durability == Durability::Sync {
                sync_all(directory)?;
            }
        }
        let keyspaces = last.map(|last| last.keyspaces).unwrap_or_default();
        let contents = Mutex::new(Contents { boot, durability, stopped: false, keyspaces });
        let run = Run { directory: directory.to_path_buf(), contents };
        run.write(&run.contents())?;
        Ok(run)
    }

    /// Whether the last use of a directory was noted. It is noted from the first use on.
    pub fn is_noted(directory: &Path) -> bool {
        directory.join(NAME).exists()
    }

    /// Whether all logs of the keyspace in this folder have been created.
    pub fn knows(&self, keyspace: &str) -> bool {
        self.contents().keyspaces.iter().any(|known| known == keyspace)
    }

    /// Notes that all logs of the keyspace in this folder are created. From now on a missing one is damage.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn note(&self, keyspace: &str) -> Result<(), StorageError> {
        let mut contents = self.contents();
        if contents.keyspaces.iter().any(|known| known == keyspace) {
            return Ok(());
        }
        contents.keyspaces.push(keyspace.to_string());
        self.write(&contents)
    }

    /// Notes that the node runs again after a stop.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn go_on(&self) -> Result<(), StorageError> {
        let mut contents = self.contents();
        if !contents.stopped {
            return Ok(());
        }
        contents.stopped = false;
        self.write(&contents)
    }

    /// Notes that the node has stopped and writes nothing more. Syncs everything to the disk first.
    ///
    /// # Errors
    /// If the disk fails. The node then counts as one that was not stopped.
    pub fn end(&self) -> Result<(), StorageError> {
        sync_all(&self.directory)?;
        let mut contents = self.contents();
        contents.stopped = true;
        self.write(&contents)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, contents: &Contents) -> Result<(), StorageError> {
        let text = toml::to_string(contents).expect("a run can be written as TOML");
        replace(&self.directory.join(NAME), &format!("{HEADING}\n{text}"))
    }
}

const POWER_CUT: &str = "\
the machine has gone down and this node had not been stopped, which with durability `buffered` may have \
taken back what it had acknowledged: start it on an empty directory with --rejoin, as if its disk was lost; \
if too few of the other nodes are whole for that, as after a power cut of all, start all of them with \
--accept-loss, with which the last that was acknowledged may be missing, and transactions be there in part";

fn read(file: &Path, start: Start) -> Result<Option<Contents>, StorageError> {
    let text = match read_text(file) {
        Err(StorageError::Unreadable { .. }) if start == Start::AcceptLoss => return Ok(None),
        Err(StorageError::Unreadable { path, what }) => {
            return Err(StorageError::corrupt(&path, 0, what));
        }
        text => text?,
    };
    let Some(text) = text else { return Ok(None) };
    match toml::from_str(&text) {
        Ok(contents) => Ok(Some(contents)),
        // Without it, the start counts as one after a power cut, and that loss is accepted.
        Err(_) if start == Start::AcceptLoss => Ok(None),
        Err(error) => {
            let offset = error.span().map_or(0, |span| span.start as u64);
            Err(StorageError::corrupt(file, offset, error.message()))
        }
    }
}

/// Syncs all files in `directory` and below to the disk.
pub(crate) fn sync_all(directory: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(directory).map_err(StorageError::io(directory))? {
        let path = entry.map_err(StorageError::io(directory))?.path();
        if path.is_dir() {
            sync_all(&path)?;
        } else {
            sync(&path)?;
        }
    }
    sync(directory)
}

fn sync(path: &Path) -> Result<(), StorageError> {
    match File::open(path) {
        // The store removes files in the background.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => file.and_then(|file| file.sync_all()).map_err(StorageError::io(path)),
    }
}
