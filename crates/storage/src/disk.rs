//! The file operations of a log, behind a trait so that tests can make them fail.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::StorageError;
use crate::engine::ROOM;

/// The extension of a file's next version, until it is complete.
pub(crate) const TEMPORARY: &str = "new";

/// A file system.
pub(crate) trait Disk: Send + std::fmt::Debug {
    /// Creates a file of `length` bytes, with space allocated for all of them. Its name is durable.
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File>;
    /// Renames a file, durably.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn sync(&mut self, file: &File) -> io::Result<()>;
    /// Removes a file, durably.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// The real file system.
#[derive(Debug)]
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn create(&mut self, path: &Path, length: u64) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let set_aside =
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length);
        match set_aside {
            // Not every file system supports this.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(length)?,
            Err(error) => {
                drop(fs::remove_file(path));
                return Err(error.into());
            }
            Ok(()) => {}
        }
        file.sync_all()?;
        sync_directory(path)?;
        Ok(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        sync_directory(to)
    }

    fn write_at(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)?;
        sync_directory(path)
    }
}

/// Creates a directory and its missing parents, durably. If it exists, its name is made durable all the same: a process that
/// was killed may have created it.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let existed = path.is_dir();
    if !existed {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_directory(parent)?;
        }
        match fs::create_dir(path) {
            // Another thread creates a directory in the same parent.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
    }
    match sync_directory(path) {
        // A process that may write there has created it.
        Err(error) if existed && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    #[cfg(test)]
    crate::tests::note_synced(parent);
    File::open(parent)?.sync_all()
}

/// The text of a file, if there is one.
///
/// # Errors
/// If it can't be read, or is no text.
pub(crate) fn read_text(file: &Path) -> Result<Option<String>, StorageError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let what = "it is no text in UTF-8".to_string();
            Err(StorageError::Unreadable { path: file.to_path_buf(), what })
        }
        Err(error) => Err(StorageError::io(file)(error)),
    }
}

/// Replaces the file atomically.
pub(crate) fn replace(file: &Path, text: &str) -> Result<(), StorageError> {
    let temporary = file.with_extension(TEMPORARY);
    let replace = || {
        let mut new = File::create(&temporary)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&temporary, file)?;
        sync_directory(file)
    };
    replace().map_err(StorageError::write(file, ROOM))
}
