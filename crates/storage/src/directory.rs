//! A node's directory, and which node it belongs to.
//!
//! # What a lost disk may have held
//!
//! A directory that replaces a lost disk must rejoin in each keyspace of which the lost disk may have held acknowledged
//! data. A keyspace that was created after the loss is as new there as on any other node. The directory may have to
//! distinguish the two long afterwards, when its configuration gets a keyspace that it lacked at first. So when it is
//! first settled, it notes the generations that the other nodes report ([`DataDirectory::settle`]). A generation that
//! is not after the noted one of its name rejoins.
//!
//! There are n = 2f + 1 nodes, and the lost disk counts among the f that may fail. Of the 2f other nodes, f + 1 have to
//! answer. What the lost disk had helped to acknowledge in a generation, f others had acknowledged too, and each of
//! these had noted the generation on its disk before it served it. Since (f + 1) + f > 2f, one of them answers. It
//! still reports the generation: a directory never forgets a name, and its generations only rise. If its own disk was
//! replaced in the meantime, it had learned of the generation in the same way. It reports what it has noted, whether it
//! serves the keyspace or not. So the claim follows by induction over the order in which the directories were settled.
//! A node that itself heard from too few others says so, and does not count among the f + 1.
//!
//! If too few answer, the directory is not settled, and its node does not start (`runtime/joining.rs`). Otherwise it
//! might be settled in an earlier generation than the lost one was in, because those that know the later one are away.
//! It could not leave that generation again: it may have copied data of the others there and acknowledged new data, so
//! only a majority in a later generation shows that the earlier one no longer counts. And the later generation would
//! lack this node. Waiting loses nothing: if f or fewer of the others run, they are no majority. The node would not
//! make them one, because it counts as failed until it has copied the data of f + 1 of them.
//!
//! Directories that an earlier release has settled while too few answered have noted nothing. In these everything rejoins,
//! until a later start hears enough of them. A start that comes later may note too much, but never too little. A keyspace
//! of the first settlement rejoins anyway.
//!
//! One case remains: an operation that was in progress all the time. If the lost disk had acknowledged it, and the
//! other nodes that acknowledge it got the keyspace only after this node had noted the generations, then the note is
//! too low.
//!
//! # Which data is newer
//!
//! Data that replaces other data has the greater number ([`Provenance::incarnation`]). The number is the time, but the
//! clock of the node that made the lost directory may have been ahead. So before a new directory is settled, its node
//! asks the others for the number that they know, and makes its own greater ([`DataDirectory::raise`]). The question
//! does not contain the new number, which is durable before any other node learns it. If another node has seen the
//! number that the directory had before, it takes the greater one for a replacement of that. If two directories are
//! made at the same time to replace the same one, they differ by their clocks, or by the random number that is added
//! where the clocks do not count. If a node that knows a greater number could not be asked, it refuses the new
//! directory, and says what to do. For which nodes note a number, and what happens to older data, see
//! `node/server/replaced.rs`.

mod identity;
mod peers;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serried_model::Provenance;

pub(crate) use self::identity::FORMAT;
use self::identity::FORMAT_OF_STORES;
pub use self::identity::Identity;
use self::identity::{Held, check, write};
use self::peers::Peers;
use crate::disk::{TEMPORARY, create_directory, read_text};
use crate::engine::{ROOM, ROOM_FILE, find_room};
use crate::keyspaces::{KeyspaceIdentity, KeyspaceRecord, MOST_RECORDS};
use crate::{StorageError, run};

/// The lock file.
const LOCK: &str = "lock";
/// The directory that a file system itself has at its top.
const RECOVERED: &str = "lost+found";

/// How a node starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// With its data; as a new node if it has none.
    Usual,
    /// As a replacement for a node whose disk was lost. The directory must be empty.
    Rejoin,
    /// The same, and the disks of all other nodes of its site were lost, too.
    RebuildSite,
    /// With the data that is left, although acknowledged records may be missing: see [`crate`].
    AcceptLoss,
}

impl Start {
    /// Whether the node replaces one whose disk was lost.
    pub fn rejoins(self) -> bool {
        matches!(self, Start::Rejoin | Start::RebuildSite)
    }
}

/// A node's directory, locked for as long as this lives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    identity: Identity,
    is_new: bool,
    was_used: bool,
    held: Mutex<Held>,
    /// The keyspaces that were dropped when the directory was opened: their names, and the folders of their data.
    dropped: Vec<(String, PathBuf)>,
    peers: Peers,
    _lock: File,
}

impl DataDirectory {
    /// Whether the name is reserved, because a data directory has a file of this name at some time. No keyspace can
    /// have such a name, because a keyspace's data lies in a folder of its name.
    pub fn is_reserved(name: &str) -> bool {
        let is_file = |file: &str| {
            name == file || Path::new(name) == Path::new(file).with_extension(TEMPORARY)
        };
        [LOCK, identity::NAME, peers::NAME, run::NAME].into_iter().any(is_file)
    }

    /// Opens the directory at `path`, or creates it. Drops the keyspaces that it has and the configuration does not
    /// list. New keyspaces are added by [`DataDirectory::settle`].
    ///
    /// # Errors
    /// [`StorageError::Refused`] if it is in use, belongs to another node or cluster, has a newer format, or if its
    /// data does not fit the changed configuration. [`StorageError::Full`] if its disk is too full to start.
    pub fn open(path: &Path, identity: &Identity, start: Start) -> Result<Self, StorageError> {
        create_directory(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let reason =
                    format!("this directory can't be made ({error}): choose another with --data");
                StorageError::refused(path, reason)
            }
            _ => StorageError::write(path, ROOM)(error),
        })?;
        let file = path.join(identity::NAME);
        if !file.exists()
            && let Some(name) = foreign(path).map_err(StorageError::io(path))?
        {
            let reason = format!(
                "this directory has `{name}` and no `{}`, so it is neither empty nor a node's data: choose an \
                 empty directory with --data, or a new one; if it was this node's, move it away and start with \
                 --rejoin",
                identity::NAME
            );
            return Err(StorageError::refused(path, reason));
        }
        let lock = lock(path)?;
        let existing = read_text(&file)?;
        let holds_data = holds_data(path).map_err(StorageError::io(path))?;
        if holds_data && start.rejoins() {
            let reason = "this directory holds a node's data, so its disk was not lost; start without \
                          --rejoin and --rebuild-site, or move the directory away";
            return Err(StorageError::refused(path, reason));
        }
        let found = existing.map(|text| check(&file, &text, identity)).transpose()?;
        find_room(path)?;
        let mut held = match found {
            Some(found) if found.provenance.rejoined || !start.rejoins() => found,
            _ => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let incarnation = now.map_or(0, |now| now.as_micros() as u64);
                let provenance = Provenance { incarnation, rejoined: start.rejoins() };
                let held = Held::nothing(provenance);
                write(&file, identity, &held)?;
                held
            }
        };
        let was_used = held.format > 1 && !held.records.0.is_empty();
        let dropped = held.records.drop_others(&identity.keyspaces);
        // Earlier releases have not noted it.
        let noted = held.records.note_format(held.format);
        if held.format < FORMAT_OF_STORES || !dropped.is_empty() || noted {
            held.format = held.format.max(FORMAT_OF_STORES);
            write(&file, identity, &held)?;
        }
        let mut directory = DataDirectory {
            path: path.to_path_buf(),
            identity: identity.clone(),
            is_new: !holds_data,
            was_used,
            held: Mutex::new(held),
            dropped: Vec::new(),
            peers: Peers::open(path)?,
            _lock: lock,
        };
        let moved = dropped.iter().map(|name| (name.clone(), path.join(directory.folder(name))));
        directory.dropped = moved.collect();
        Ok(directory)
    }

    /// The keyspaces that were dropped when the directory was opened: their names, and the folders of their data, which
    /// stay until the operator removes them.
    pub fn dropped(&self) -> &[(String, PathBuf)] {
        &self.dropped
    }

    /// The keyspaces that it has, and those that were dropped.
    pub fn keyspaces(&self) -> Vec<KeyspaceRecord> {
        self.held().records.0.clone()
    }

    /// For a directory that replaces a lost one: the last generation of each name that the lost one may have held.
    /// `None` while this is not known.
    pub fn lost(&self) -> Option<BTreeMap<String, u32>> {
        self.held().lost.clone()
    }

    /// Notes the keyspaces that the node has from now on, with their generations. `told` are the generations that the
    /// others know, the last one of each name, if enough of them have answered.
    ///
    /// If the directory replaces a lost one, the keyspaces of the first call rejoin. Later ones do so unless they were
    /// created after the loss (see the module).
    ///
    /// # Errors
    /// If the directory can't be written, knows as many keyspaces as it may, or has data of a generation that the
    /// configuration contradicts.
    pub fn settle(
        &self,
        keyspaces: &[(KeyspaceIdentity, u32)],
        told: Option<&BTreeMap<String, u32>>,
    ) -> Result<(), StorageError> {
        let mut present = self.held();
        let file = self.path.join(identity::NAME);
        let refused = |reason| StorageError::refused(&file, reason);
        let mut held = present.clone();
        let first = held.records.0.is_empty();
        if held.provenance.rejoined && held.lost.is_none() {
            // If there are too many names, none are noted, and all keyspaces rejoin.
            held.lost = told.filter(|told| told.len() <= MOST_RECORDS).cloned();
        }
        for (identity, generation) in keyspaces {
            let later = match held.records.find(&identity.name) {
                Some(known) if known.generation == *generation => {
                    known.check(identity).map_err(refused)?;
                    if let Some(format) = known.format {
                        identity::check_format(known, format, &self.identity).map_err(refused)?;
                    }
                    known.later
                }
                // If an earlier generation was not dropped here, what holds for it may hold for this one.
                Some(known) if !known.dropped => known.later,
                _ => !first && held.is_later(&identity.name, *generation),
            };
            let (identity, generation) = (identity.clone(), *generation);
            let is_known = |known: &KeyspaceRecord| known.generation == generation;
            if !held.records.find(&identity.name).is_some_and(is_known) {
                // Its records will be those of this format.
                held.format = FORMAT;
            }
            let new = KeyspaceRecord { identity, generation, dropped: false, later, format: None };
            held.records.put(new).map_err(refused)?;
        }
        if held != *present {
            write(&file, &self.identity, &held)?;
            *present = held;
        }
        Ok(())
    }

    /// Whether the directory has an earlier format until [`DataDirectory::opened`] is called.
    pub fn has_earlier_format(&self) -> bool {
        self.held().format < FORMAT
    }

    /// All partitions were opened. Nothing has been written into their logs since. From now on the directory has the present
    /// format, which earlier releases refuse.
    ///
    /// # Errors
    /// If the directory can't be written.
    pub fn opened(&self) -> Result<(), StorageError> {
        let mut present = self.held();
        if present.format < FORMAT {
            let held = Held { format: FORMAT, ..present.clone() };
            write(&self.path.join(identity::NAME), &self.identity, &held)?;
            *present = held;
        }
        Ok(())
    }

    /// Raises the number of the data of a directory that replaces a lost one to at least `incarnation`.
    ///
    /// # Errors
    /// If the directory can't be written, or was settled already, so that others know its number.
    pub fn raise(&self, incarnation: u64) -> Result<(), StorageError> {
        let mut present = self.held();
        if incarnation <= present.provenance.incarnation {
            return Ok(());
        }
        let file = self.path.join(identity::NAME);
        let is_number = i64::try_from(incarnation).is_ok();
        if !present.provenance.rejoined || !present.records.0.is_empty() || !is_number {
            let reason = format!("its data can't become number {incarnation}");
            return Err(StorageError::refused(&file, reason));
        }
        let mut held = present.clone();
        held.provenance.incarnation = incarnation;
        write(&file, &self.identity, &held)?;
        *present = held;
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generation(&self, keyspace: &str) -> u32 {
        self.held().records.find(keyspace).map_or(0, |record| record.generation)
    }

    /// Whether a node had keyspaces here before the directory was opened, so that its last use must have been noted.
    /// Format 1 did not note this.
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Whether it contained no data when it was opened and does not replace a lost disk.
    pub fn is_new(&self) -> bool {
        self.is_new && !self.provenance().rejoined
    }

    /// Judges the data that another node reports. Returns true if it is the data that the node had when it was last
    /// met. Otherwise the data is new and has not been noted.
    ///
    /// # Errors
    /// If it does not count, or no longer. The error says why, and what to do.
    pub fn judge(&self, node: u64, has: Provenance) -> Result<bool, String> {
        peers::judge(node, self.met(node), has)
    }

    /// Notes the data that another node has.
    ///
    /// # Errors
    /// [`StorageError::Refused`] if [`DataDirectory::judge`] says that the data does not count; other errors if the
    /// directory can't be written.
    pub fn meet(&self, node: u64, has: Provenance) -> Result<(), StorageError> {
        self.peers.meet(node, has)
    }

    /// The number of the data that another node had when it was last met.
    pub fn met(&self, node: u64) -> Option<u64> {
        self.peers.met(node)
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What this node reports to others about its data.
    pub fn provenance(&self) -> Provenance {
        self.held().provenance
    }

    /// Whether the data of a keyspace replaces lost data. A partition that already has a log knows from it how far
    /// rejoining has come.
    pub fn rejoins(&self, keyspace: &str) -> bool {
        let held = self.held();
        held.provenance.rejoined && !held.records.find(keyspace).is_some_and(|found| found.later)
    }

    /// The name of the folder of a keyspace's present generation. Each generation has a folder of its own.
    pub fn folder(&self, keyspace: &str) -> String {
        named(keyspace, self.generation(keyspace))
    }

    /// The folder of a partition's data.
    pub fn partition(&self, keyspace: &str, partition: u16) -> PathBuf {
        self.path.join(self.folder(keyspace)).join(partition.to_string())
    }

    /// A number that identifies a partition's log. Logs of other nodes, generations or incarnations have other numbers.
    pub fn log_identity(&self, keyspace: &str, partition: u16) -> u64 {
        let Identity { cluster, node, .. } = &self.identity;
        let keyspace = self.folder(keyspace);
        let incarnation = self.provenance().incarnation;
        let text = format!("{cluster}/{node}/{incarnation}/{keyspace}/{partition}");
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, fold)
    }
}

/// The folder of a generation. Generation 0 has the plain name, as in format 1.
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

/// The name of something in a directory without an identity that a node has not left there.
fn foreign(path: &Path) -> io::Result<Option<String>> {
    let new = Path::new(identity::NAME).with_extension(TEMPORARY);
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        // A node that was killed in its first moments has left no more. The others are the file system's own.
        let is_known =
            [LOCK, ROOM_FILE, RECOVERED, identity::NAME].iter().any(|known| name == *known)
                || Path::new(&name) == new
                || name.to_string_lossy().starts_with('.');
        if !is_known {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

/// Whether the directory contains a partition of any keyspace, configured or not.
fn holds_data(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && entry.file_name() != RECOVERED {
            return Ok(true);
        }
    }
    Ok(false)
}
