//! Errors of storage.

use std::io;
use std::path::{Path, PathBuf};

use crate::engine::ROOM;

/// Why data could not be read from disk or written to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// An error of the operating system.
    #[error("{}: {source}{}", path.display(), advice(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The disk is full. Nothing is lost, and the data can be written later.
    #[error("{}: the disk is full: {} MB must be free; free some space", path.display(), room_mb(*needed))]
    Full {
        /// The file.
        path: PathBuf,
        /// How much was to be written or allocated, in bytes.
        needed: u64,
    },
    /// A file does not contain what was written to it.
    #[error("{}: corrupt at offset {offset}: {what}; {REJOIN}, or, where too few others are whole for that, with --accept-loss", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A file without which the directory's data counts for nothing does not contain what was written to it.
    #[error("{}: this file is damaged: {what}; {REJOIN}; --accept-loss does not help", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A store does not contain what was written to it. It does not say which of its files is damaged.
    #[error("{}: the store in this directory is damaged: {what}; {REJOIN}", path.display())]
    Store {
        /// The store's directory.
        path: PathBuf,
        /// The damage that the store reports.
        what: String,
    },
    /// A store has lost some of what was written to it.
    #[error("{}: the store in this directory has lost some of what it had: {what}; {REJOIN}, or, where too few others are whole for that, with --accept-loss", path.display())]
    Lost {
        /// The store's directory.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The directory can't be used by this node.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The directory.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
}

/// What to do about data that is damaged.
pub const REJOIN: &str = "have this node start with an empty directory and --rejoin";

/// How many MB must be free for a node to go on: a single write needs less, but stores need more.
fn room_mb(needed: u64) -> u64 {
    needed.max(ROOM).div_ceil(1 << 20)
}

/// Advice on an error of the operating system, if there is any.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; have its file system mounted for writing, or choose another directory with --data"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is where a directory is needed: move it away, or choose another directory with --data"
        }
        io::ErrorKind::IsADirectory => {
            "; a directory is where a file of the node's data was: have this node start with an empty directory and --rejoin"
        }
        io::ErrorKind::PermissionDenied => {
            "; give the user of this process the right to read and write it, or choose another directory with --data"
        }
        _ => "",
    }
}

impl StorageError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.to_path_buf();
        move |source| StorageError::Io { path, source }
    }

    /// The error of a failed write of `needed` bytes.
    pub(crate) fn write(path: &Path, needed: u64) -> impl FnOnce(io::Error) -> StorageError {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => StorageError::Full { path, needed },
            _ => StorageError::Io { path, source },
        }
    }

    pub(crate) fn corrupt(path: &Path, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Corrupt { path: path.to_path_buf(), offset, what: what.into() }
    }

    /// The error of a file of TOML.
    pub(crate) fn unreadable(path: &Path, text: &str, error: &toml::de::Error) -> StorageError {
        let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let line = error.span().map_or(1, |span| line(span.start));
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        StorageError::Unreadable { path: path.to_path_buf(), what: format!("line {line}: {what}") }
    }

    pub(crate) fn refused(path: &Path, reason: impl Into<String>) -> StorageError {
        StorageError::Refused { path: path.to_path_buf(), reason: reason.into() }
    }

    /// The place and the room that it needs, if the only problem is that the disk is full.
    pub fn needs_room(&self) -> Option<String> {
        match self {
            StorageError::Full { path, needed } => {
                Some(format!("{} needs {} MB", path.display(), room_mb(*needed)))
            }
            _ => None,
        }
    }

    /// Whether the only problem is that the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(self, StorageError::Full { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_operating_system_says_what_to_do() {
        let told = |kind: io::ErrorKind| StorageError::io(Path::new("d"))(kind.into()).to_string();
        assert!(told(io::ErrorKind::ReadOnlyFilesystem).contains("mounted for writing"));
        assert!(told(io::ErrorKind::NotADirectory).contains("a file is where a directory"));
        assert!(told(io::ErrorKind::AlreadyExists).contains("a file is where a directory"));
        assert!(told(io::ErrorKind::PermissionDenied).contains("the right to read and write"));
        assert!(told(io::ErrorKind::IsADirectory).contains("--rejoin"));
        assert!(!told(io::ErrorKind::UnexpectedEof).contains(';'));
    }

    #[test]
    fn a_full_disk_is_told_how_much_must_be_free_for_the_node_to_go_on() {
        let full = StorageError::write(Path::new("d"), 32 << 20)(io::ErrorKind::StorageFull.into());
        assert_eq!(full.to_string(), "d: the disk is full: 128 MB must be free; free some space");
        assert_eq!(full.needs_room().unwrap(), "d needs 128 MB");
    }
}
