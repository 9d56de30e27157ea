//! What a node keeps on disk.
//!
//! Each partition of a keyspace has two parts there, which its replica uses through the interface of `serried-actor`:
//!
//! - a **log** ([`LogFiles`]) of records, in batches that are written and flushed as one. Segments are preallocated and
//!   have checksums. A tail that a crash has torn is cut off; damage is reported with file and offset;
//! - a **base** ([`Base`]): an ordered store of settled state, in fjall.
//!
//! Both lie in the node's [`DataDirectory`], which knows the node that it belongs to.
//!
//! # Torn batches and damage
//!
//! A crash tears the batch that is being written. Nothing depends on that batch yet, so it is cut off. Damage destroys
//! records that were acknowledged, so it is reported and never cut off. A small file beside each log distinguishes the
//! two (`note.rs`). It notes up to which record the log is complete. It is written after a batch is durable and before
//! this is reported. A log that ends before the noted end, or is damaged before it, has lost records.
//!
//! The file also notes the last batch of the base. A base that lacks batches has lost part of its journal (`marks.rs`).
//!
//! What this detects depends on how the last run of the node ended:
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
//! Two kinds of damage are not detected: a disk that reports writes that it has not made, and damage in the last batch
//! before a power cut under `sync`.
//!
//! # Names
//!
//! A file survives a power cut only if its name and the names of the folders above it are on the disk too. So before
//! anything depends on a file, its folder is synced (`disk.rs`). Whenever a folder is used, its own name is synced too,
//! even if the folder existed: the process that created it may have been killed before it synced the name. This applies
//! to the data directory, the folders of keyspaces and partitions, logs with their segments and notes, stores, and the
//! files that identify a directory. The removal of a segment is durable before the next one is removed, so that a log
//! has no gaps after a power cut. fjall does the same within a store.
//!
//! # Why the log is our own
//!
//! An engine makes one flush for each transaction. Our log makes one for everything that was appended in one wake-up,
//! so commits are cheap. `candidates/` has the program that measured this, and its README has the figures.

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
pub use error::{REJOIN, StorageError};
#[doc(hidden)]
pub use hostile::{example_segment, read_hostile_segment};
pub use keyspaces::{KeyspaceIdentity, KeyspaceRecord};
pub use log::{LogFiles, LogOptions, Loss, Replayed};
pub use run::{Boot, Run};
pub use serried_model::{Durability, Provenance};
pub use tail::{acknowledged_tail, is_store_refused};
