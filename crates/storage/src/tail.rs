//! For tests that damage logs and stores: finds the acknowledged end of a log, and whether a store has lost data.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::note::Note;
use crate::segment::{self, SEGMENT_HEADER};
use crate::{Base, Durability, LogFiles, StorageError};

/// The segment file and the byte range of the last batch that may have been acknowledged, in the log in `directory`.
/// Returns `None` if there is no such batch.
///
/// # Errors
/// If the log can't be read.
pub fn acknowledged_tail(directory: &Path) -> Result<Option<(PathBuf, Range<u64>)>, StorageError> {
    for path in segments(directory)?.into_iter().rev() {
        let bytes = fs::read(&path).map_err(StorageError::io(&path))?;
        // A crash may have come before it was used.
        let Ok(header) = segment::read_header(&path, &bytes) else { continue };
        let Some(note) = Note::open(directory, header.identity)? else { return Ok(None) };
        let (mut offset, mut position, mut last) = (SEGMENT_HEADER, header.first, None);
        while let Some((length, first, count)) =
            segment::read_batch(&bytes[offset..], header.identity)
        {
            if first != position || first >= note.reach().end {
                break;
            }
            last = Some(offset as u64..(offset + length) as u64);
            (position, offset) = (position + u64::from(count), offset + length);
        }
        if let Some(last) = last {
            return Ok(Some((path, last)));
        }
    }
    Ok(None)
}

/// Whether the store in `base` is refused because it is damaged, or lacks batches that are noted beside the log in
/// `log`. The store must not be in use.
///
/// # Errors
/// If the log can't be read.
pub fn is_store_refused(base: &Path, log: &Path) -> Result<bool, StorageError> {
    let identity = segments(log)?.iter().find_map(|path| {
        let bytes = fs::read(path).ok()?;
        Some(segment::read_header(path, &bytes).ok()?.identity)
    });
    let noted = identity.map_or(0, |identity| LogFiles::noted_store(log, identity));
    let opened = Base::open(base, Durability::Buffered, 0);
    let verified = opened.and_then(|base| base.flusher().verify(noted, false));
    Ok(verified.is_err_and(|error| {
        matches!(error, StorageError::Store { .. } | StorageError::Lost { .. })
    }))
}

/// The files of a log's segments, in order.
fn segments(directory: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory).map_err(StorageError::io(directory))? {
        let path = entry.map_err(StorageError::io(directory))?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path);
        }
    }
    segments.sort();
    Ok(segments)
}
