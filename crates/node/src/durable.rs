//! What a node needs of a disk.

use std::collections::BTreeMap;
use std::io;

use serried_actor::Store;
use serried_model::Provenance;
use serried_storage::{KeyspaceIdentity, KeyspaceRecord};

/// Where a node keeps its partitions.
pub trait Disks: Send + Sync + 'static {
    /// Opens the log and the store of a partition. They are empty if it never had any.
    ///
    /// # Errors
    /// If it can't be read or is damaged, with the file, the offset and what to do.
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String>;

    /// Whether nothing may be written into any log before all were opened and [`Disks::opened`] was called. Otherwise each
    /// core serves as soon as it has opened its own.
    fn waits_for_all(&self) -> bool {
        false
    }

    /// All partitions that the node has were opened and replayed.
    ///
    /// # Errors
    /// If that can't be noted.
    fn opened(&self) -> Result<(), String> {
        Ok(())
    }

    /// Which data the node has, if that can be distinguished from data that the node had before.
    fn provenance(&self) -> Option<Provenance> {
        None
    }

    /// Whether the node starts for the first time, and not in the place of another.
    fn is_new(&self) -> bool {
        false
    }

    /// The keyspaces that the node has, and those that were dropped.
    fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        Vec::new()
    }

    /// Where the data replaces lost data: the last generation of each keyspace's name that may have been lost; `None`
    /// while that is not known.
    fn lost(&self) -> Option<BTreeMap<String, u32>> {
        None
    }

    /// Whether the disks of all other nodes of its site were lost, too. It does not wait for them before it starts.
    fn rebuilds_site(&self) -> bool {
        false
    }

    /// Notes which keyspaces the node has from now on, with their generations, before any of their
    /// partitions is opened. `_others` is the last generation of each name that other nodes know, if enough of
    /// them have answered: see [`DataDirectory::settle`](serried_storage::DataDirectory::settle).
    ///
    /// # Errors
    /// If that can't be written, or existing data contradicts it.
    fn settle(
        &self,
        _keyspaces: &[(KeyspaceIdentity, u32)],
        _others: Option<&BTreeMap<String, u32>>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Gives the data, which replaces lost data and is not known to other nodes yet, at least the number `_incarnation`.
    ///
    /// # Errors
    /// If that can't be written.
    fn raise(&self, _incarnation: u64) -> Result<(), String> {
        Ok(())
    }

    /// The number of the data that node `_member` had when it was last met.
    fn met(&self, _member: usize) -> Option<u64> {
        None
    }

    /// Judges the data that node `_member` says it has. Returns whether it is the data that the node was last met with; if
    /// not, it is new, and has not been noted.
    ///
    /// # Errors
    /// If it does not count, or not any more: why, and what to do.
    fn judge(&self, _member: usize, _has: Provenance) -> Result<bool, String> {
        Ok(true)
    }

    /// Notes which data node `_member` has.
    ///
    /// # Errors
    /// As [`Disks::judge`], and if that can't be written.
    fn meet(&self, _member: usize, _has: Provenance) -> Result<(), String> {
        Ok(())
    }

    /// The node has stopped and writes nothing more. Syncs everything to the disk.
    ///
    /// # Errors
    /// The error of the disk. The node then counts as one that was killed.
    fn close(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A partition's log and store.
pub struct Opened {
    /// Its log, to be replayed before it is appended to.
    pub log: Box<dyn PartitionLog>,
    /// Its store.
    pub store: Box<dyn Store>,
    /// Whether it takes the place of what was lost, and begins with that if its log is empty.
    pub rejoins: bool,
}

/// Takes a record with its position, or says what is wrong with it.
pub type Replay<'a> = dyn FnMut(u64, &[u8]) -> Result<(), String> + 'a;

/// A partition's log. One thread uses it, and never waits for the disk: what has to be written is taken as a [`Batch`]
/// and written elsewhere.
pub trait PartitionLog: Send {
    /// Passes each record that was not trimmed to `each`, in order and with its position.
    /// Returns the position of the next record to be appended.
    ///
    /// # Errors
    /// If the log is damaged, with the file, the offset and what to do, or what `each` returns.
    fn replay(&mut self, each: &mut Replay<'_>) -> Result<u64, String>;

    /// Appends a record in memory. `encode` adds it to the end of the vector that it gets.
    fn append(&mut self, encode: &mut dyn FnMut(&mut Vec<u8>));

    /// Removes the records before `position`, in one of the next batches, when that batch and everything that was put
    /// into the store by now is durable.
    fn trim(&mut self, position: u64);

    /// The records that were appended since the last call, and the position to trim to. `None` if there is nothing to
    /// write.
    fn take_batch(&mut self) -> Option<Box<dyn Batch>>;
}

/// Records of one log that have to be written. Batches of a log are written in the order in which they were taken.
pub trait Batch: Send {
    /// Writes them, and syncs them to the disk if `sync`.
    ///
    /// # Errors
    /// What the operating system said. The batch can then be written again, as if it had not been.
    fn write(&mut self, sync: bool) -> io::Result<()>;

    /// How many bytes there are.
    fn bytes(&self) -> usize;

    /// Whether writing them may take the disk's time even if they are not synced.
    fn waits(&self) -> bool {
        false
    }
}
