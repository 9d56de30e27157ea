//! A node's partitions on a real disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serried_model::{Durability, Provenance};
use serried_storage::{
    Base, Boot, DataDirectory, Flush, Identity, KeyspaceIdentity, KeyspaceRecord, LogOptions, Run,
    Start, StorageError,
};

use crate::configuration::NodeConfiguration;
use crate::durable::{Batch, Disks, Opened, PartitionLog, Replay};
use crate::joining::identity;

/// How much of all partitions' stores is kept in memory for reading, in bytes.
const CACHE: u64 = 256 << 20;

const EMPTIED: &str = "\
`run.toml` is missing, although this node has had keyspaces here, so their data may be missing, too: move what \
is left away, and start the node on an empty directory with --rejoin";

/// A node's data directory, locked while this lives.
pub struct NodeDisks {
    directory: DataDirectory,
    durability: Durability,
    cache: u64,
    start: Start,
    logs: Arc<Logs>,
    is_given_up: AtomicBool,
}

impl NodeDisks {
    /// Opens a node's data directory, or makes it.
    ///
    /// # Errors
    /// If the directory is in use, belongs to another node, does not fit the configuration, or may have lost acknowledged
    /// data in a power cut.
    pub fn open(
        path: PathBuf,
        configuration: &NodeConfiguration,
        start: Start,
    ) -> Result<NodeDisks, StorageError> {
        NodeDisks::open_on(Boot::current(), path, configuration, start)
    }

    /// As [`NodeDisks::open`], in the machine's run `boot`. For tests.
    ///
    /// # Errors
    /// As [`NodeDisks::open`].
    pub fn open_on(
        boot: Boot,
        path: PathBuf,
        configuration: &NodeConfiguration,
        start: Start,
    ) -> Result<NodeDisks, StorageError> {
        let keyspaces = configuration.keyspaces.iter().map(identity);
        let changed = serried_protocols::list().iter().filter(|protocol| protocol.first_format > 1);
        let first_formats =
            changed.map(|protocol| (protocol.name.to_string(), protocol.first_format)).collect();
        let identity = Identity {
            cluster: configuration.cluster.clone(),
            node: configuration.node as u64,
            nodes: configuration.peers.len(),
            keyspaces: keyspaces.collect(),
            first_formats,
        };
        let directory = DataDirectory::open(&path, &identity, start)?;
        // The note is made before a keyspace is.
        let emptied = directory.was_used() && !Run::is_noted(&path);
        if emptied && start != Start::AcceptLoss {
            return Err(StorageError::Refused { path, reason: EMPTIED.to_string() });
        }
        for (keyspace, place) in directory.dropped() {
            let path = place.display();
            tracing::warn!(keyspace, %path, "dropped a keyspace, as the configuration does not have it any more: its data stays there until you remove it");
        }
        let durability = configuration.durability;
        let run = Run::begin(directory.path(), boot, durability, start)?;
        let partitions = identity.keyspaces.iter().map(|keyspace| u64::from(keyspace.partitions));
        let cache = CACHE / partitions.sum::<u64>().max(1);
        let unopened = identity.keyspaces.iter();
        let unopened =
            unopened.map(|keyspace| (keyspace.name.clone(), (0..keyspace.partitions).collect()));
        let logs = Arc::new(Logs { run, unopened: Mutex::new(unopened.collect()) });
        let is_given_up = AtomicBool::new(false);
        Ok(NodeDisks { directory, durability, cache, start, logs, is_given_up })
    }

    /// Opens no more partitions: a node that starts on them ends after the one that it opens now.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// Which logs are there: those of a keyspace that had all of them must be there when it is opened again.
struct Logs {
    run: Run,
    /// The partitions of each keyspace whose logs have not been opened in this run.
    unopened: Mutex<BTreeMap<String, BTreeSet<u16>>>,
}

impl Logs {
    /// One of a keyspace's logs is there, whose present generation lies in `folder`.
    fn opened(&self, keyspace: &str, folder: &str, partition: u16) -> Result<(), StorageError> {
        let mut unopened = self.unopened.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = unopened.get_mut(keyspace) else { return Ok(()) };
        left.remove(&partition);
        if left.is_empty() { self.run.note(folder) } else { Ok(()) }
    }
}

impl Disks for NodeDisks {
    fn open(&self, keyspace: &str, partition: u16) -> Result<Opened, String> {
        if self.is_given_up.load(Ordering::Relaxed) {
            return Err("the node is stopped before it has started".to_string());
        }
        self.logs.run.go_on().map_err(|error| error.to_string())?;
        let place = self.directory.partition(keyspace, partition);
        if self.durability != Durability::Memory
            && self.logs.run.knows(&self.directory.folder(keyspace))
        {
            Base::check(&place.join("base")).map_err(|error| error.to_string())?;
        }
        let base = Base::open(&place.join("base"), self.durability, self.cache);
        let base = base.map_err(|error| error.to_string())?;
        let flush = base.flusher();
        let identity = self.directory.log_identity(keyspace, partition);
        let folder = self.directory.folder(keyspace);
        let log = LogOnDisk {
            path: place.join("log"),
            options: LogOptions {
                existed: self.logs.run.knows(&folder),
                accept_loss: self.start == Start::AcceptLoss,
                ..LogOptions::new(identity, self.durability)
            },
            keyspace: keyspace.to_string(),
            folder,
            partition,
            logs: self.logs.clone(),
            flush,
            shared: None,
            batch: serried_storage::Batch::starting_at(0),
            trim: None,
        };
        let (log, store) = (Box::new(log), Box::new(base));
        Ok(Opened { log, store, rejoins: self.directory.rejoins(keyspace) })
    }

    fn waits_for_all(&self) -> bool {
        self.directory.has_earlier_format()
    }

    fn opened(&self) -> Result<(), String> {
        self.directory.opened().map_err(|error| error.to_string())
    }

    fn close(&self) -> Result<(), String> {
        self.logs.run.end().map_err(|error| error.to_string())
    }

    fn provenance(&self) -> Option<Provenance> {
        Some(self.directory.provenance())
    }

    fn rebuilds_site(&self) -> bool {
        self.start == Start::RebuildSite
    }

    fn is_new(&self) -> bool {
        self.directory.is_new()
    }

    fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        self.directory.keyspaces()
    }

    fn lost(&self) -> Option<BTreeMap<String, u32>> {
        self.directory.lost()
    }

    fn settle(
        &self,
        keyspaces: &[(KeyspaceIdentity, u32)],
        others: Option<&BTreeMap<String, u32>>,
    ) -> Result<(), String> {
        self.directory.settle(keyspaces, others).map_err(|error| error.to_string())
    }

    fn raise(&self, incarnation: u64) -> Result<(), String> {
        self.directory.raise(incarnation).map_err(|error| error.to_string())
    }

    fn met(&self, member: usize) -> Option<u64> {
        self.directory.met(member as u64)
    }

    fn judge(&self, member: usize, has: Provenance) -> Result<bool, String> {
        self.directory.judge(member as u64, has)
    }

    fn meet(&self, member: usize, has: Provenance) -> Result<(), String> {
        self.directory.meet(member as u64, has).map_err(|error| match error {
            StorageError::Refused { reason, .. } => reason,
            error => error.to_string(),
        })
    }
}

/// A partition's log, as its core sees it.
struct LogOnDisk {
    path: PathBuf,
    options: LogOptions,
    keyspace: String,
    folder: String,
    partition: u16,
    logs: Arc<Logs>,
    flush: Flush,
    /// Set when it has been replayed.
    shared: Option<Arc<Mutex<Shared>>>,
    /// What was appended since the last batch was taken.
    batch: serried_storage::Batch,
    trim: Option<u64>,
}

/// What the threads that write batches share.
struct Shared {
    log: serried_storage::LogFiles,
    /// A batch that was written, to be filled again.
    spare: Option<serried_storage::Batch>,
    /// The error of the disk, if it has failed. The disk does not report again what it may have lost then, so nothing
    /// more is written.
    failed: Option<String>,
}

impl PartitionLog for LogOnDisk {
    fn replay(&mut self, each: &mut Replay<'_>) -> Result<u64, String> {
        let mut wrong = None;
        let mut show = |position, record: &[u8]| {
            if wrong.is_none() {
                wrong = each(position, record).err();
            }
        };
        let LogOptions { identity, accept_loss, .. } = self.options;
        let noted = serried_storage::LogFiles::noted_store(&self.path, identity);
        let lost = self.flush.verify(noted, accept_loss).map_err(|error| error.to_string())?;
        if let Some(lost) = lost {
            tracing::warn!(%lost, "goes on with what a store has left");
        }
        let opened = serried_storage::LogFiles::open(&self.path, self.options, &mut show);
        let (log, replayed) = opened.map_err(|error| error.to_string())?;
        let noted = self.logs.opened(&self.keyspace, &self.folder, self.partition);
        noted.map_err(|error| error.to_string())?;
        if let Some(wrong) = wrong {
            return Err(format!("{}: {wrong}", self.path.display()));
        }
        if let Some(loss) = replayed.lost {
            let (path, offset, what) = (loss.path.display(), loss.offset, loss.what);
            tracing::warn!(%path, offset, what, "gave up what a log had from here on");
        } else if replayed.torn > 0 {
            let (path, bytes) = (self.path.display(), replayed.torn);
            tracing::info!(%path, bytes, "cut off what was being written when the node stopped");
        }
        let position = log.position();
        self.batch.restart_at(position);
        let mut shared = Shared { log, spare: None, failed: None };
        // The log may depend on a batch of the store that was not noted.
        shared.log.note_store(self.flush.last()).map_err(|error| error.to_string())?;
        self.shared = Some(Arc::new(Mutex::new(shared)));
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
        result.map_err(|error| match error.needs_room() {
            Some(needs) => io::Error::new(io::ErrorKind::StorageFull, needs),
            None => {
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

/// What was put into the store is written first, because records of the log may depend on it. Before these are written,
/// it is noted that the store has it.
fn write(
    shared: &mut Shared,
    flush: &Flush,
    batch: &mut Option<serried_storage::Batch>,
    trim: Option<u64>,
) -> Result<(), StorageError> {
    flush.flush()?;
    shared.log.note_store(flush.last())?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use serried_actor::Store;

    use crate::configuration::KeyspaceConfiguration;

    use super::*;

    #[test]
    fn what_the_store_has_is_noted_before_the_log_has_what_rests_on_it() {
        let name = format!("serried-disks-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut base = Base::open(&directory.join("base"), Durability::Buffered, 0).unwrap();
        let flush = base.flusher();
        let (log, options) = (directory.join("log"), LogOptions::new(7, Durability::Buffered));
        let opened = serried_storage::LogFiles::open(&log, options, &mut |_, _| {}).unwrap();
        let mut shared = Shared { log: opened.0, spare: None, failed: None };
        base.put(b"key", Some(b"value"));
        // The log ends the process on a batch that does not continue it.
        let mut batch = serried_storage::Batch::starting_at(9);
        batch.push(|_| {});
        let written = || write(&mut shared, &flush, &mut Some(batch), None);
        assert!(catch_unwind(AssertUnwindSafe(written)).is_err());
        assert_eq!((flush.last(), serried_storage::LogFiles::noted_store(&log, 7)), (1, 1));
        drop((base, flush));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_node_that_is_stopped_while_it_starts_opens_no_more_partitions() {
        let name = format!("serried-disks-given-up-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let usual = NodeConfiguration::new(0, vec!["127.0.0.1:1".to_string()]);
        let configuration = NodeConfiguration { durability: Durability::Buffered, ..usual };
        let disks = NodeDisks::open(directory.clone(), &configuration, Start::Usual).unwrap();
        disks.open("default", 0).map(drop).unwrap();
        disks.give_up();
        let refused = disks.open("default", 1).map(drop).unwrap_err();
        assert!(refused.contains("stopped before it has started"), "{refused}");
        let place = directory.join("default");
        assert!(place.join("0").exists() && !place.join("1").exists());
        drop(disks);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn data_that_its_protocol_can_not_read_any_more_is_refused() {
        let name = format!("serried-disks-formats-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        for protocol in serried_protocols::list() {
            let keyspaces = vec![KeyspaceConfiguration::new("accounts", protocol.name)];
            let usual = NodeConfiguration::new(0, vec!["127.0.0.1:1".to_string()]);
            let configuration =
                NodeConfiguration { durability: Durability::Buffered, keyspaces, ..usual };
            let open = || NodeDisks::open(directory.clone(), &configuration, Start::Usual);
            let disks = open().unwrap();
            disks.settle(&[(identity(&configuration.keyspaces[0]), 0)], None).unwrap();
            drop(disks);
            let file = directory.join("identity.toml");
            let text = fs::read_to_string(&file).unwrap();
            let is_format = |line: &&str| line.starts_with("format = ");
            let format = text.lines().find(is_format).unwrap();
            fs::write(&file, text.replace(format, "format = 3")).unwrap();
            match open() {
                Ok(disks) => {
                    assert!(protocol.first_format <= 3, "{}", protocol.name);
                    let has = |format: &str| {
                        fs::read_to_string(&file).unwrap().lines().any(|line| line == format)
                    };
                    assert!(has("format = 3"), "no partition was opened");
                    assert!(disks.waits_for_all());
                    disks.opened().unwrap();
                    assert!(!disks.waits_for_all());
                    assert!(has(format));
                }
                Err(error) => {
                    assert!(protocol.first_format > 3, "{}: {error}", protocol.name);
                    assert!(error.to_string().contains(protocol.name), "{error}");
                }
            }
            fs::remove_dir_all(&directory).unwrap();
        }
    }

    #[test]
    fn after_the_disk_has_failed_nothing_is_written_although_it_could_be_again() {
        let name = format!("serried-disks-failed-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let base = Base::open(&directory.join("base"), Durability::Sync, 0).unwrap();
        let flush = base.flusher();
        let (log, away) = (directory.join("log"), directory.join("away"));
        let options = LogOptions::new(7, Durability::Sync);
        let (opened, _) = serried_storage::LogFiles::open(&log, options, &mut |_, _| {}).unwrap();
        let shared = Shared { log: opened, spare: None, failed: None };
        let mut records = serried_storage::Batch::starting_at(0);
        records.push(|bytes| bytes.push(1));
        let (shared, batch) = (Arc::new(Mutex::new(shared)), Some(records));
        let mut batch = PartitionBatch { shared, flush, batch, trim: None };
        fs::rename(&log, &away).unwrap();
        let failed = batch.write(true).unwrap_err();
        assert_ne!(failed.kind(), io::ErrorKind::StorageFull, "{failed}");
        fs::rename(&away, &log).unwrap();
        for _ in 0..2 {
            let error = batch.write(true).unwrap_err().to_string();
            assert!(error.contains("restart the node once the disk is sound"), "{error}");
        }
        drop((base, batch));
        fs::remove_dir_all(directory).unwrap();
    }
}
