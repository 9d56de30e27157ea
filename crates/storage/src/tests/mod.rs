//! Tests with disks that tear writes, flip bits and fill up, and with directories of other nodes.

mod base;
mod directory;
mod durable;
mod end;
mod journal;
mod log;
mod note;
mod run;
mod syncs;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is gone when the test is over.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("serried-storage-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

thread_local! {
    static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// Records that this thread has synced a folder.
pub(crate) fn note_synced(folder: &Path) {
    SYNCED.with_borrow_mut(|synced| synced.push(folder.to_path_buf()));
}

/// The folders that this thread has synced since the last call, in order.
fn take_synced() -> Vec<PathBuf> {
    SYNCED.take()
}
