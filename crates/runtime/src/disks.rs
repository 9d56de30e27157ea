//! A node's partitions on a real disk.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serried_storage::{
    Base, DataDirectory, Flush, Identity, KeyspaceIdentity, Start, StorageError,
};

use crate::NodeConfiguration;
use crate::durable::{Batch, Disks, Durability, Log, Opened, Provenance, Replay};

/// How much of all partitions' stores is kept in memory for reading, in bytes.
const CACHE: u64 = 256 << 20;

/// A node's data directory, locked while this lives.
pub struct NodeDisks {
    directory: DataDirectory,
    identity: Identity,
    durability: Durability,
    cache: u64,
}

impl NodeDisks {
    /// Opens a node's data directory, or makes it. With `rejoin` the node takes the place of one whose
    /// disk was lost.
    ///
    /// # Errors
    /// If it is in use, is another node's, or holds what the configuration can't be used with.
    pub fn open(
        path: PathBuf,
        configuration: &NodeConfiguration,
        rejoin: bool,
    ) -> Result<NodeDisks, StorageError> {
        let keyspaces = configuration.keyspaces.iter().map(|keyspace| KeyspaceIdentity {
            name: keyspace.name.clone(),
            protocol: keyspace.protocol.clone(),
            partitions: keyspace.partitions,
        });
        let identity = Identity {
            cluster: configuration.cluster.clone(),
            node: configuration.node as u64,
            nodes: configuration.peers.len(),
            keyspaces: keyspaces.collect(),
        };
        let start = if rejoin { Start::Rejoin } else { Start::Usual };
        let directory = DataDirectory::open(&path, &identity, start)?;
        let partitions = identity.keyspaces.iter().map(|keyspace| u64::from(keyspace.partitions));
        let cache = CACHE / partitions.sum::<u64>().max(1);
        let durability = configuration.durability;
        Ok(NodeDisks { directory, identity, durability, cache })
    }
}

impl Disks for NodeDisks {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        let place = self.directory.partition(keyspace, partition);
        let base = Base::open(&place.join("base"), self.durability, self.cache);
        let base = base.map_err(|error| error.to_string())?;
        let flush = base.flusher();
        let identity = self.directory.log_identity(&self.identity, keyspace, partition);
        let log = PartitionLog {
            path: place.join("log"),
            identity,
            durability: self.durability,
            flush,
            shared: None,
            batch: serried_storage::Batch::starting_at(0),
            trim: None,
        };
        let (log, store) = (Box::new(log), Box::new(base));
        Ok(Opened { log, store, rejoins: self.directory.rejoins(keyspace) })
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(self.directory.provenance())
    }

    fn is_new(&self) -> bool {
        self.directory.is_new()
    }

    fn meet(&self, member: usize, has: Provenance) -> Result<(), String> {
        self.directory.meet(member as u64, has).map_err(|error| match error {
            StorageError::Refused { reason, .. } => reason,
            error => error.to_string(),
        })
    }
}

/// A partition's log, as its core sees it.
struct PartitionLog {
    path: PathBuf,
    identity: u64,
    durability: Durability,
    flush: Flush,
    /// Set when it has been replayed.
    shared: Option<Arc<Mutex<Shared>>>,
    /// What was appended since the last batch was taken.
    batch: serried_storage::Batch,
    trim: Option<u64>,
}

/// What the threads that write batches share.
struct Shared {
    log: serried_storage::Log,
    /// A batch that was written, to be filled again.
    spare: Option<serried_storage::Batch>,
    /// What the disk said when it failed. What it may have lost then it won't tell again, so nothing is
    /// written from then on.
    failed: Option<String>,
}

impl Log for PartitionLog {
    fn replay(&mut self, each: &mut Replay<'_>) -> Result<u64, String> {
        let mut wrong = None;
        let opened = serried_storage::Log::open(
            &self.path,
            self.identity,
            self.durability,
            &mut |position, record| {
                if wrong.is_none() {
                    wrong = each(position, record).err();
                }
            },
        );
        let (log, replayed) = opened.map_err(|error| error.to_string())?;
        if let Some(wrong) = wrong {
            return Err(format!("{}: {wrong}", self.path.display()));
        }
        if replayed.torn > 0 {
            let (path, bytes) = (self.path.display(), replayed.torn);
            tracing::info!(%path, bytes, "cut off what was being written when the node stopped");
        }
        let position = log.position();
        self.batch.restart_at(position);
        self.shared = Some(Arc::new(Mutex::new(Shared { log, spare: None, failed: None })));
        Ok(position)
    }

    fn append(&mut self, encode: &mut dyn FnMut(&mut Vec<u8>)) {
        self.batch.push(encode);
    }

    fn trim(&mut self, position: u64) {
        self.trim = Some(position.max(self.trim.unwrap_or_default()));
    }

    fn take_batch(&mut self) -> Option<Box<dyn Batch>> {
        if self.batch.is_empty() && self.trim.is_none() {
            return None;
        }
        let shared = self.shared.clone().expect("a log is replayed before it is used");
        let next = self.batch.next_position();
        let spare = shared.lock().unwrap_or_else(PoisonError::into_inner).spare.take();
        let mut spare = spare.unwrap_or_else(|| serried_storage::Batch::starting_at(next));
        spare.restart_at(next);
        let batch = core::mem::replace(&mut self.batch, spare);
        let (flush, trim) = (self.flush.clone(), self.trim.take());
        Some(Box::new(PartitionBatch { shared, flush, batch: Some(batch), trim }))
    }
}

struct PartitionBatch {
    shared: Arc<Mutex<Shared>>,
    flush: Flush,
    /// None once it is written.
    batch: Option<serried_storage::Batch>,
    trim: Option<u64>,
}

impl Batch for PartitionBatch {
    fn write(&mut self, _: bool) -> io::Result<()> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failed) = &shared.failed {
            return Err(io::Error::other(failed.clone()));
        }
        let result = write(&mut shared, &self.flush, &mut self.batch, self.trim);
        result.map_err(|error| match error.is_full() {
            true => io::Error::new(io::ErrorKind::StorageFull, error.to_string()),
            false => {
                shared.failed = Some(format!("{error}; restart the node once the disk is sound"));
                io::Error::other(error.to_string())
            }
        })
    }

    fn bytes(&self) -> usize {
        self.batch.as_ref().map_or(0, serried_storage::Batch::len)
    }

    fn waits(&self) -> bool {
        self.trim.is_some() || self.flush.is_needed()
    }
}

/// What was put into the store goes first: what is in the log may rest on it.
fn write(
    shared: &mut Shared,
    flush: &Flush,
    batch: &mut Option<serried_storage::Batch>,
    trim: Option<u64>,
) -> Result<(), StorageError> {
    flush.flush()?;
    if let Some(records) = batch {
        shared.log.write(records)?;
        shared.spare = batch.take();
    }
    match trim.filter(|position| shared.log.releases(*position)) {
        Some(position) => match flush.settle(position)? {
            Some(position) => shared.log.trim(position),
            None => Ok(()),
        },
        None => Ok(()),
    }
}
