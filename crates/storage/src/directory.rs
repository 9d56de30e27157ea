//! A node's directory, and whose it is.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::StorageError;
use crate::disk::sync_directory;
use crate::engine::{ROOM, find_room};

/// The format of the directory; each that can't be read by the release before has the next number.
const FORMAT: u32 = 1;
const IDENTITY: &str = "identity.toml";
const PEERS: &str = "peers.toml";
const LOCK: &str = "lock";

/// Whose a directory is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// The node's number in it.
    pub node: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// Its keyspaces.
    pub keyspaces: Vec<KeyspaceIdentity>,
}

/// What of a keyspace its data depends on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceIdentity {
    /// Its name.
    pub name: String,
    /// The protocol that it runs.
    pub protocol: String,
    /// How many partitions it has.
    pub partitions: u16,
}

/// What lies in the file.
#[derive(Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// Which of the data it is that ever were this node's.
    incarnation: u64,
    /// It was made to take the place of what was lost.
    #[serde(default)]
    rejoined: bool,
    /// The keyspaces that were new to the cluster after that: of those nothing was lost.
    #[serde(default)]
    later: Vec<String>,
    #[serde(flatten)]
    identity: Identity,
}

/// How a node means to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// As what it was, or as new if it never was.
    Usual,
    /// In the place of one whose disk was lost: the directory must be empty.
    Rejoin,
}

/// Which data a node has, as it tells the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// Tells it from what the node had before. Of two that replace each other the later has the greater
    /// number.
    pub incarnation: u64,
    /// It was made to take the place of what was lost.
    pub rejoined: bool,
}

/// A node's directory, locked for as long as this lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    provenance: Provenance,
    later: Vec<String>,
    is_new: bool,
    /// Which data the other nodes had when they were met.
    peers: Mutex<BTreeMap<String, u64>>,
    _lock: File,
}

impl DataDirectory {
    /// Opens the directory at `path`, or makes it.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if it is in use, or is another node's, another cluster's or of a newer
    /// format, or if the configuration has changed in a way that its data can't follow;
    /// [`StorageError::Full`] if its disk is too full to start on.
    pub fn open(path: &Path, identity: &Identity, start: Start) -> Result<Self, StorageError> {
        fs::create_dir_all(path).map_err(StorageError::write(path, ROOM))?;
        let lock = lock(path)?;
        let file = path.join(IDENTITY);
        let existing = match fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(StorageError::Io { path: file, source }),
        };
        let holds_data = holds_data(path).map_err(StorageError::io(path))?;
        if holds_data && start == Start::Rejoin {
            let reason = "this directory holds a node's data, so its disk was not lost; start without \
                          --rejoin, or move the directory away";
            return Err(StorageError::refused(path, reason));
        }
        let found = existing.map(|text| check(&file, &text, identity)).transpose()?;
        find_room(path)?;
        let (provenance, later) = match found {
            Some(found) if found.0.rejoined || start == Start::Usual => found,
            _ => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let incarnation = now.map_or(0, |now| now.as_micros() as u64);
                let provenance = Provenance { incarnation, rejoined: start == Start::Rejoin };
                write(&file, (provenance, &[]), identity)?;
                (provenance, Vec::new())
            }
        };
        let peers = Mutex::new(read_peers(&path.join(PEERS))?);
        let (path, is_new) = (path.to_path_buf(), !holds_data);
        Ok(DataDirectory { path, provenance, later, is_new, peers, _lock: lock })
    }

    /// Whether it held no data when it was opened, and does not take the place of what was lost.
    pub fn is_new(&self) -> bool {
        self.is_new && !self.provenance.rejoined
    }

    /// Notes which data another node has.
    ///
    /// # Errors
    /// If that node had other data before, which it does not take the place of: it has promised what it
    /// does not know. If the directory can't be written.
    pub fn meet(&self, node: u64, has: Provenance) -> Result<(), StorageError> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = peers.get(&node.to_string()).copied();
        if known == Some(has.incarnation) {
            return Ok(());
        }
        let file = self.path.join(PEERS);
        if known.is_some_and(|known| known > has.incarnation || !has.rejoined) {
            return Err(StorageError::refused(
                &file,
                format!(
                    "n{node} had other data before, and what it has promised with that it does not know \
                     any more: if its disk was lost, start it on an empty directory with --rejoin"
                ),
            ));
        }
        let mut met = peers.clone();
        met.insert(node.to_string(), has.incarnation);
        let text = toml::to_string(&met).expect("numbers can be written as TOML");
        let heading = "# Which data the other nodes had when they were last met.";
        replace(&file, &format!("{heading}\n{text}"))?;
        *peers = met;
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which data it holds, as the others are told.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Whether what a keyspace has here takes the place of what was lost. Where a partition has a log, it
    /// has come far enough to say for itself how far it has got with that.
    pub fn rejoins(&self, keyspace: &str) -> bool {
        self.provenance.rejoined && !self.later.iter().any(|later| later == keyspace)
    }

    /// Where a partition's data lies.
    pub fn partition(&self, keyspace: &str, partition: u16) -> PathBuf {
        self.path.join(keyspace).join(partition.to_string())
    }

    /// A number for whose a partition's log is.
    pub fn log_identity(&self, identity: &Identity, keyspace: &str, partition: u16) -> u64 {
        let text = format!(
            "{}/{}/{}/{keyspace}/{partition}",
            identity.cluster, identity.node, self.provenance.incarnation
        );
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

fn lock(path: &Path) -> Result<File, StorageError> {
    let file = path.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
    let lock = lock.map_err(StorageError::write(&file, ROOM))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            let reason =
                "another node uses this directory; give each node its own, or stop the other";
            Err(StorageError::refused(path, reason))
        }
        Err(TryLockError::Error(source)) => Err(StorageError::Io { path: file, source }),
    }
}

/// Whether any partition lies there: whatever keyspaces the configuration has.
fn holds_data(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        if entry?.file_type()?.is_dir() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_peers(file: &Path) -> Result<BTreeMap<String, u64>, StorageError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(source) => return Err(StorageError::Io { path: file.to_path_buf(), source }),
    };
    toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start as u64);
        StorageError::corrupt(file, offset, error.message())
    })
}

/// Compares what a directory says with what the configuration does; returns which data it holds, and which
/// keyspaces have come later.
fn check(
    file: &Path,
    text: &str,
    wanted: &Identity,
) -> Result<(Provenance, Vec<String>), StorageError> {
    let refused = |reason: String| Err(StorageError::refused(file, reason));
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let format = toml::from_str::<Format>(text).map(|contents| contents.format);
    if let Ok(format) = format
        && format > FORMAT
    {
        return refused(format!(
            "this data has format {format}, and this release knows formats up to {FORMAT}; use a newer release"
        ));
    }
    let contents: Contents = match toml::from_str(text) {
        Ok(contents) => contents,
        Err(error) => {
            let offset = error.span().map_or(0, |span| span.start as u64);
            return Err(StorageError::corrupt(file, offset, error.message()));
        }
    };
    let provenance = Provenance { incarnation: contents.incarnation, rejoined: contents.rejoined };
    let found = contents.identity;
    if found.cluster != wanted.cluster {
        return refused(format!(
            "this is data of cluster `{}`, and the configuration is that of `{}`",
            found.cluster, wanted.cluster
        ));
    }
    if found.node != wanted.node {
        return refused(format!(
            "this is data of node {}, and this is node {}; start it with its own directory",
            found.node, wanted.node
        ));
    }
    if found.nodes != wanted.nodes {
        return refused(format!(
            "this data is of {} replicas, and the configuration has {}; the number of replicas of \
             existing data can't be changed",
            found.nodes, wanted.nodes
        ));
    }
    for keyspace in &wanted.keyspaces {
        let Some(old) = found.keyspaces.iter().find(|old| old.name == keyspace.name) else {
            continue;
        };
        if old.partitions != keyspace.partitions {
            return refused(format!(
                "keyspace `{}` has {} partitions, and the configuration says {}; the number of \
                 partitions of existing data can't be changed: load it into a new keyspace",
                old.name, old.partitions, keyspace.partitions
            ));
        }
        if old.protocol != keyspace.protocol {
            return refused(format!(
                "keyspace `{}` has run protocol `{}`, and the configuration says `{}`; the protocol of \
                 existing data can't be changed: load it into a new keyspace",
                old.name, old.protocol, keyspace.protocol
            ));
        }
    }
    let (mut later, mut keyspaces) = (contents.later, found.keyspaces);
    let is_new = |new: &&KeyspaceIdentity| keyspaces.iter().all(|old| old.name != new.name);
    let new: Vec<KeyspaceIdentity> = wanted.keyspaces.iter().filter(is_new).cloned().collect();
    if !new.is_empty() {
        later.extend(new.iter().map(|new| new.name.clone()));
        keyspaces.extend(new);
        write(file, (provenance, &later), &Identity { keyspaces, ..wanted.clone() })?;
    }
    Ok((provenance, later))
}

fn write(
    file: &Path,
    (has, later): (Provenance, &[String]),
    identity: &Identity,
) -> Result<(), StorageError> {
    let Provenance { incarnation, rejoined } = has;
    let (later, identity) = (later.to_vec(), identity.clone());
    let contents = Contents { format: FORMAT, incarnation, rejoined, later, identity };
    let text = toml::to_string(&contents).expect("an identity can be written as TOML");
    replace(
        file,
        &format!("# Whose data this is. It is checked at each start; do not edit it.\n{text}"),
    )
}

/// Replaces the file, or leaves it as it was.
fn replace(file: &Path, text: &str) -> Result<(), StorageError> {
    let temporary = file.with_extension("new");
    let replace = || {
        let mut new = File::create(&temporary)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&temporary, file)?;
        sync_directory(file)
    };
    replace().map_err(StorageError::io(file))
}
