//! What a node keeps on disk.
//!
//! Each partition of a keyspace has two things there, which its replica uses through the seam:
//!
//! - a **log** ([`LogFiles`]) of records, in batches that are written and flushed as one. Segments are preallocated and
//!   have checksums. A tail that a crash has torn is cut off; damage is reported with file and offset;
//! - a **base** ([`Base`]): an ordered store of settled state, in fjall.
//!
//! Both lie in the node's [`DataDirectory`], which knows whose it is.
//!
//! # Torn batches and damage
//!
//! A crash tears the batch that is being written. Nothing depends on that batch yet, so it is cut off. Damage
//! destroys records that were acknowledged, so it is reported and never cut off. A small file beside each log
//! tells the two apart (`note.rs`). It notes up to which record the log is complete. It is written after a batch is
//! durable and before anybody is told so. A log that ends or is damaged before the noted end is damaged.
//!
//! The file also notes how far the base had got. A base that has less, or has a gap, has lost what its journal had
//! (`marks.rs`).
//!
//! What this can tell depends on how the last run of the node ended:
//!
//! - **The process ended**, in whatever way: the operating system has everything that was written, so note and log are
//!   up to date.
//! - **The machine crashed or lost power.** The node recognises this by the boot id that the directory notes, if the node
//!   had not been stopped (`run.rs`).
//!   - With [`Durability::Buffered`] anything that was written may be missing, the note included. The directory is
//!     refused, and the node counts as one whose disk was lost.
//!   - With [`Durability::Sync`] everything that was acknowledged is on the disk, but the note may be older than the
//!     log. A last batch that lies behind the noted end and is not complete is taken for torn. Damage anywhere else is
//!     still found.
//! - **Loss was accepted** ([`Start::AcceptLoss`]), because too few nodes have all their data for the others to rejoin:
//!   each log is read up to the first damage, and the rest is given up.
//!
//! Two kinds of damage go unnoticed: a disk that says it has written what it has not, and damage in the very batch
//! that was the last one at a power cut under `sync`.
//!
//! # Names
//!
//! A file outlives a power cut only if its name is on the disk too, and so are the names of the folders in which it lies.
//! So before anything rests on a file, its folder is synced (`disk.rs`), and whenever a folder is used, its
//! own name, also if it is found: the process that made it may have been killed before it had done that. This goes for the
//! data directory, the folders of keyspaces and partitions, logs with their segments and notes, stores, and the files by
//! which a directory is recognised. A removed segment is gone for good before the next one is removed, so that what is left
//! of a log after a power cut has no gaps. Inside of a store fjall does the same.
//!
//! # Why the log is our own
//!
//! It makes commits cheap: one flush for everything that a wake-up has appended, where an engine makes one for each
//! transaction. `candidates/` has the program that measured it, and its README the figures.

mod base;
mod batch;
mod directory;
mod disk;
mod engine;
mod error;
mod hostile;
mod keyspaces;
mod log;
mod marks;
mod note;
mod opening;
mod run;
mod segment;
mod tail;
#[cfg(test)]
mod tests;

pub use base::{Base, Flush};
pub use batch::Batch;
pub use directory::{DataDirectory, Identity, Start};
pub use engine::STORE_THREAD;
pub use error::StorageError;
#[doc(hidden)]
pub use hostile::{example_segment, read_hostile_segment};
pub use keyspaces::{KeyspaceIdentity, KeyspaceRecord};
pub use log::{LogFiles, LogOptions, Loss, Replayed};
pub use run::{Boot, Run};
pub use serried_model::{Durability, Provenance};
pub use tail::{acknowledged_tail, is_store_refused};
