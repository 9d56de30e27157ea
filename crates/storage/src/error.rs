//! Errors of storage.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("{}: the disk is full: {needed} bytes are needed; free some space", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// How much was to be written or allocated, in bytes.
        needed: u64,
    },
    /// A file does not contain what was written to it.
    #[error("{}: corrupt at offset {offset}: {what}; have this node start with an empty directory and --rejoin, or, where too few others are whole for that, with --accept-loss", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A store does not contain what was written to it. It does not say which of its files is damaged.
    #[error("{}: the store in this directory is damaged: {what}; have this node start with an empty directory and --rejoin", path.display())]
    Store {
        /// The store's directory.
        path: PathBuf,
        /// The damage that the store reports.
        what: String,
    },
    /// A store has lost some of what was written to it.
    #[error("{}: the store in this directory has lost some of what it had: {what}; have this node start with an empty directory and --rejoin, or, where too few others are whole for that, with --accept-loss", path.display())]
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

/// Advice on an error of the operating system, if there is any.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; have its file system mounted for writing, or choose another directory with --data"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is where a directory is needed: move it away, or choose another directory with --data"
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

    pub(crate) fn refused(path: &Path, reason: impl Into<String>) -> StorageError {
        StorageError::Refused { path: path.to_path_buf(), reason: reason.into() }
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
        assert!(!told(io::ErrorKind::UnexpectedEof).contains(';'));
    }
}
