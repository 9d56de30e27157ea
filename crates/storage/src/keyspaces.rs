//! Which keyspaces a directory has, and had.

use serde::{Deserialize, Serialize};

use crate::StorageError;

/// How many keyspaces a directory may know of, with those that were dropped.
const MOST_RECORDS: usize = 1024;

/// What of a keyspace its data depends on, as the configuration has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceIdentity {
    /// Its name.
    pub name: String,
    /// The protocol that it runs.
    pub protocol: String,
    /// How many partitions it has.
    pub partitions: u16,
}

/// A keyspace that a directory has or had.
///
/// A keyspace is known by its name and its *generation*: the first of a name has generation 0, and one that
/// is created after another of that name was dropped has the next. A directory remembers the last
/// generation of each name, so that nothing of one ever passes for a part of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceRecord {
    /// Its name, protocol and partitions.
    #[serde(flatten)]
    pub identity: KeyspaceIdentity,
    /// Which of all keyspaces of its name it is.
    #[serde(default)]
    pub generation: u32,
    /// The configuration has it no more.
    #[serde(default)]
    pub dropped: bool,
    /// It was new to the cluster after the directory had taken the place of a lost one: of it nothing was
    /// lost.
    #[serde(default)]
    pub later: bool,
}

/// The records of a directory, each name once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<KeyspaceRecord>);

impl Records {
    pub(crate) fn find(&self, name: &str) -> Option<&KeyspaceRecord> {
        self.0.iter().find(|record| record.identity.name == name)
    }

    /// Marks those that the configuration does not have any more; their names.
    pub(crate) fn drop_others(&mut self, wanted: &[KeyspaceIdentity]) -> Vec<String> {
        let gone = |record: &&mut KeyspaceRecord| {
            !record.dropped && wanted.iter().all(|wanted| wanted.name != record.identity.name)
        };
        let gone = self.0.iter_mut().filter(gone).map(|record| {
            record.dropped = true;
            record.identity.name.clone()
        });
        gone.collect()
    }

    /// Puts a record in the place of the one of its name.
    ///
    /// # Errors
    /// If there are more names than a directory remembers.
    pub(crate) fn put(&mut self, new: KeyspaceRecord) -> Result<(), String> {
        let name = &new.identity.name;
        let known = self.0.len();
        match self.0.iter_mut().find(|record| record.identity.name == *name) {
            Some(record) => *record = new,
            None if known >= MOST_RECORDS => {
                return Err(format!(
                    "it knows {MOST_RECORDS} keyspaces, with those that were dropped, as many as it \
                     may: take a name for `{name}` that was used before"
                ));
            }
            None => self.0.push(new),
        }
        Ok(())
    }

    /// Checks that what the configuration says fits the data that there is.
    pub(crate) fn check(
        &self,
        wanted: &[KeyspaceIdentity],
        refused: impl Fn(String) -> StorageError,
    ) -> Result<(), StorageError> {
        for keyspace in wanted {
            let Some(old) = self.find(&keyspace.name).filter(|old| !old.dropped) else { continue };
            let old = &old.identity;
            if old.partitions != keyspace.partitions {
                return Err(refused(format!(
                    "keyspace `{}` has {} partitions, and the configuration says {}; the number of \
                     partitions of existing data can't be changed: load it into a new keyspace",
                    old.name, old.partitions, keyspace.partitions
                )));
            }
            if old.protocol != keyspace.protocol {
                return Err(refused(format!(
                    "keyspace `{}` has run protocol `{}`, and the configuration says `{}`; the \
                     protocol of existing data can't be changed: load it into a new keyspace",
                    old.name, old.protocol, keyspace.protocol
                )));
            }
        }
        Ok(())
    }
}
