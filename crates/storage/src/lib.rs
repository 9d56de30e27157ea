//! What a node keeps on disk.
//!
//! Each partition of a keyspace has two things there, which its replica sees through the seam:
//!
//! - a **log** ([`Log`]): records, grouped into batches, each written and flushed as one; preallocated
//!   segments, checksums, and a clear difference between a tail that was torn by a crash, which is cut
//!   off, and damage, which is reported by file and offset;
//! - a **base** ([`Base`]): an ordered store of what is settled, in fjall.
//!
//! Both lie in the node's [`DataDirectory`], which knows whose it is.
//!
//! # What can be told apart
//!
//! A crash tears the batch that is being written, and nobody has heard of that. Damage takes what was
//! acknowledged. The two are told apart by what is noted beside each log once a batch is durable and before
//! anybody hears of it (`note.rs`): what ends or is damaged before the noted end is damage, is reported by
//! file and offset, and is never cut off.
//!
//! - **The end of the process**, in whichever way, loses nothing that was written: note and log are as they
//!   were.
//! - **A power cut, or the machine's crash**, is seen by the boot id that the directory notes when it is
//!   opened, if the node had not been stopped (`run.rs`). With [`Durability::Buffered`] anything that was
//!   written may be missing then, the note included, and the directory is refused: the node counts as one
//!   whose disk was lost. With [`Durability::Sync`] everything that was acknowledged is on the disk, but the
//!   note may be older than the log. So of what lies behind the noted end, a last batch that is not whole is
//!   taken for torn, although it may have been acknowledged and damaged by the disk since. Damage before the
//!   last batch, or before the noted end, is still found. A disk that says it has what it has not, or
//!   damage in the very batch that was the last at a power cut: those go unnoticed.
//! - **Loss can be accepted** ([`Start::AcceptLoss`]), where too few nodes are whole for the others to
//!   rejoin: each log is then read up to the first damage, and what follows is given up.
//!
//! The log is our own because that is what makes commits cheap: one flush for all that a wake-up
//! appended, where an engine makes one for each transaction. `candidates/` has the program that measured
//! it, and its README the figures.

mod base;
mod batch;
mod directory;
mod disk;
mod engine;
mod error;
mod hostile;
mod keyspaces;
mod log;
mod note;
mod opening;
mod run;
mod segment;
mod tail;
#[cfg(test)]
mod tests;

pub use base::{Base, Flush};
pub use batch::Batch;
pub use directory::{DataDirectory, Identity, Provenance, Start};
pub use engine::STORE_THREAD;
pub use error::StorageError;
#[doc(hidden)]
pub use hostile::{example_segment, read_hostile_segment};
pub use keyspaces::{KeyspaceIdentity, KeyspaceRecord};
pub use log::{Log, LogOptions, Loss, Replayed};
pub use run::{Boot, Run};
pub use tail::acknowledged_tail;

use serde::{Deserialize, Serialize};

/// When what a node has appended counts as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When it is on the disk: it survives a power cut.
    Sync,
    /// When the operating system has it: it survives the end of the process, but not a power cut.
    Buffered,
    /// At once: nothing is written, and nothing survives.
    #[default]
    Memory,
}

impl Durability {
    /// All of them, the most durable first.
    pub const ALL: [Durability; 3] = [Durability::Sync, Durability::Buffered, Durability::Memory];

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Buffered => "buffered",
            Durability::Memory => "memory",
        }
    }
}

impl core::str::FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Durability::ALL.into_iter().find(|durability| durability.name() == text).ok_or_else(|| {
            format!("there is no durability `{text}`; choose one of sync, buffered, memory")
        })
    }
}

impl core::fmt::Display for Durability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
