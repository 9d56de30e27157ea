//! A node's directory, and whose it is.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::StorageError;
use crate::disk::sync_directory;
use crate::engine::{ROOM, find_room};
use crate::keyspaces::{KeyspaceIdentity, KeyspaceRecord, Records};
use crate::run;

/// The format of the directory. A format that the release before can't read has the next number. In format 1,
/// keyspaces had no generations. Up to format 2, stores had no marks (`marks.rs`).
pub(crate) const FORMAT: u32 = 3;
const IDENTITY: &str = "identity.toml";
const PEERS: &str = "peers.toml";
const LOCK: &str = "lock";
/// The extension of a file's next version, until it is complete.
const TEMPORARY: &str = "new";

/// Whose a directory is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster's name.
    pub cluster: String,
    /// The node's number in it.
    pub node: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// The keyspaces of its configuration.
    pub keyspaces: Vec<KeyspaceIdentity>,
}

/// What lies in the file.
#[derive(Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// Distinguishes this data from other data that the node had before: see [`Provenance::incarnation`].
    incarnation: u64,
    /// It was created to replace a lost disk.
    #[serde(default)]
    rejoined: bool,
    /// In format 1: the keyspaces that are [`KeyspaceRecord::later`].
    #[serde(default, skip_serializing)]
    later: Vec<String>,
    cluster: String,
    node: u64,
    nodes: usize,
    keyspaces: Vec<KeyspaceRecord>,
}

/// How a node means to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// With its data; as a new node if it has none.
    Usual,
    /// As a replacement for a node whose disk was lost. The directory must be empty.
    Rejoin,
    /// With what is left of its data, although acknowledged records may be missing: see [`crate`].
    AcceptLoss,
}

/// What a node tells the others about its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// When the directory was created, in microseconds since the Unix epoch. It distinguishes this data from other data
    /// that the node had before. Data that replaces other data has the greater number.
    pub incarnation: u64,
    /// It was created to replace a lost disk.
    pub rejoined: bool,
}

/// A node's directory, locked for as long as this lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    provenance: Provenance,
    identity: Identity,
    is_new: bool,
    keyspaces: Mutex<Records>,
    /// The keyspaces that were dropped when the directory was opened: their names, and where their data lies.
    dropped: Vec<(String, PathBuf)>,
    /// The incarnations of the other nodes' data when they were last met, by node.
    peers: Mutex<BTreeMap<String, u64>>,
    _lock: File,
}

impl DataDirectory {
    /// Whether a data directory has a file of this name, or may have one for a moment, so that no keyspace can be called so:
    /// a keyspace's data lies in a folder of its name.
    pub fn is_reserved(name: &str) -> bool {
        let is_file = |file: &str| {
            name == file || Path::new(name) == Path::new(file).with_extension(TEMPORARY)
        };
        [LOCK, IDENTITY, PEERS, run::NAME].into_iter().any(is_file)
    }

    /// Opens the directory at `path`, or creates it. Drops the keyspaces that it has and the configuration does not
    /// list. New keyspaces are added by [`DataDirectory::settle`].
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
        let (provenance, mut records, is_older) = match found {
            Some(found) if found.0.rejoined || start != Start::Rejoin => found,
            _ => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let incarnation = now.map_or(0, |now| now.as_micros() as u64);
                let provenance = Provenance { incarnation, rejoined: start == Start::Rejoin };
                write(&file, provenance, identity, &Records::default())?;
                (provenance, Records::default(), false)
            }
        };
        let dropped = records.drop_others(&identity.keyspaces);
        if is_older || !dropped.is_empty() {
            write(&file, provenance, identity, &records)?;
        }
        let mut directory = DataDirectory {
            path: path.to_path_buf(),
            provenance,
            identity: identity.clone(),
            is_new: !holds_data,
            keyspaces: Mutex::new(records),
            dropped: Vec::new(),
            peers: Mutex::new(read_peers(&path.join(PEERS))?),
            _lock: lock,
        };
        let moved = dropped.iter().map(|name| (name.clone(), path.join(directory.folder(name))));
        directory.dropped = moved.collect();
        Ok(directory)
    }

    /// The keyspaces that were dropped when the directory was opened: their names, and where their data stays until
    /// somebody removes it.
    pub fn dropped(&self) -> &[(String, PathBuf)] {
        &self.dropped
    }

    /// The keyspaces that it has, and those that were dropped.
    pub fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        self.records().0.clone()
    }

    /// Notes which keyspaces the node has from now on, with their generations.
    ///
    /// If the directory replaces a lost one, the keyspaces of the first call are those of which data was lost. Later
    /// ones are new to the cluster, so nothing of them was lost.
    ///
    /// # Errors
    /// If the directory can't be written, or knows as many keyspaces as it may.
    pub fn settle(&self, keyspaces: &[(KeyspaceIdentity, u32)]) -> Result<(), StorageError> {
        let mut present = self.records();
        let file = self.path.join(IDENTITY);
        let mut records = present.clone();
        let first = records.0.is_empty();
        for (identity, generation) in keyspaces {
            let known = records.find(&identity.name);
            let later = match known {
                // What it had of an earlier one that was not dropped here, it may have had of this one.
                Some(known) if known.generation == *generation || !known.dropped => known.later,
                _ => self.provenance.rejoined && !first,
            };
            let (identity, generation) = (identity.clone(), *generation);
            let new = KeyspaceRecord { identity, generation, dropped: false, later };
            records.put(new).map_err(|reason| StorageError::refused(&file, reason))?;
        }
        if records != *present {
            write(&file, self.provenance, &self.identity, &records)?;
            *present = records;
        }
        Ok(())
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.keyspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self, keyspace: &str) -> u32 {
        self.records().find(keyspace).map_or(0, |record| record.generation)
    }

    /// Whether it contained no data when it was opened and does not replace a lost disk.
    pub fn is_new(&self) -> bool {
        self.is_new && !self.provenance.rejoined
    }

    /// Notes which data another node has, which connects now.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if that node had other data before and does not rejoin: it has made promises that it
    /// does not know of. Other errors if the directory can't be written.
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
        if i64::try_from(has.incarnation).is_err() {
            // TOML has no such number.
            let reason = format!("n{node} says that its data is {}, as none is", has.incarnation);
            return Err(StorageError::refused(
                &file,
                format!("{reason}: it is no node, or is damaged"),
            ));
        }
        let mut met = peers.clone();
        met.insert(node.to_string(), has.incarnation);
        let text = toml::to_string(&met).expect("numbers can be written");
        let heading = "# Which data the other nodes had when they were last met.";
        replace(&file, &format!("{heading}\n{text}"))?;
        *peers = met;
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the other nodes are told about its data.
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Whether the data of a keyspace replaces lost data. A partition that has a log already knows from its log how far
    /// it has got with rejoining.
    pub fn rejoins(&self, keyspace: &str) -> bool {
        self.provenance.rejoined && !self.records().find(keyspace).is_some_and(|found| found.later)
    }

    /// The name of the folder of a keyspace's present generation. Each generation has a folder of its own.
    pub fn folder(&self, keyspace: &str) -> String {
        named(keyspace, self.generation(keyspace))
    }

    /// Where a partition's data lies.
    pub fn partition(&self, keyspace: &str, partition: u16) -> PathBuf {
        self.path.join(self.folder(keyspace)).join(partition.to_string())
    }

    /// A number that identifies a partition's log. Logs of other nodes, generations or incarnations have other numbers.
    pub fn log_identity(&self, keyspace: &str, partition: u16) -> u64 {
        let Identity { cluster, node, .. } = &self.identity;
        let keyspace = self.folder(keyspace);
        let incarnation = self.provenance.incarnation;
        let text = format!("{cluster}/{node}/{incarnation}/{keyspace}/{partition}");
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

/// The folder of a generation. Generation 0 lies under the plain name, as in format 1.
fn named(keyspace: &str, generation: u32) -> String {
    match generation {
        0 => keyspace.to_string(),
        later => format!("{keyspace}@{later}"),
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

/// Whether the directory contains a partition of any keyspace, configured or not.
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

/// Checks a directory's identity file against the configuration. Returns the provenance of its data, its keyspaces and
/// whether its format is older than that of this release.
fn check(
    file: &Path,
    text: &str,
    wanted: &Identity,
) -> Result<(Provenance, Records, bool), StorageError> {
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
    let found = &contents;
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
    let mut records = Records(contents.keyspaces);
    for record in &mut records.0 {
        record.later |= contents.later.contains(&record.identity.name);
    }
    records.check(&wanted.keyspaces, |reason| StorageError::refused(file, reason))?;
    Ok((provenance, records, contents.format < FORMAT))
}

fn write(
    file: &Path,
    Provenance { incarnation, rejoined }: Provenance,
    identity: &Identity,
    records: &Records,
) -> Result<(), StorageError> {
    let contents = Contents {
        format: FORMAT,
        incarnation,
        rejoined,
        later: Vec::new(),
        cluster: identity.cluster.clone(),
        node: identity.node,
        nodes: identity.nodes,
        keyspaces: records.0.clone(),
    };
    let text = toml::to_string(&contents).expect("an identity can be written as TOML");
    replace(
        file,
        &format!("# Whose data this is. It is checked at each start; do not edit it.\n{text}"),
    )
}

/// Replaces the file, or leaves it as it was.
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
