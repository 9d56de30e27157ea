//! The keyspaces that a directory has or had.

use serde::{Deserialize, Serialize};

use crate::directory::FORMAT;

/// How many keyspaces a directory may remember, dropped ones included.
pub(crate) const MOST_RECORDS: usize = 1024;

/// The properties of a keyspace that its data depends on, as configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceIdentity {
    /// Its name.
    pub name: String,
    /// The protocol that it runs.
    pub protocol: String,
    /// How many partitions it has, at each of its sites.
    pub partitions: u16,
    /// How many sites it has.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub sites: u16,
}

fn one() -> u16 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(sites: &u16) -> bool {
    *sites == 1
}

/// A keyspace that a directory has or had.
///
/// A keyspace is identified by its name and its *generation*. The first keyspace of a name has generation 0. If it is
/// dropped and created again, the new one has the next generation. A directory remembers the last generation of each
/// name, so that data of one generation is never taken for that of another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyspaceRecord {
    /// Its name, protocol and partitions.
    #[serde(flatten)]
    pub identity: KeyspaceIdentity,
    /// Its generation.
    #[serde(default)]
    pub generation: u32,
    /// Whether it was dropped: the configuration does not list it any more.
    #[serde(default)]
    pub dropped: bool,
    /// Whether it was created after this directory had replaced a lost one, so that nothing of it was lost.
    #[serde(default)]
    pub later: bool,
    /// If it was dropped when the directory had an earlier format than the present one: that format. Its data is still so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
}

/// The records of a directory, each name once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Records(pub(crate) Vec<KeyspaceRecord>);

impl Records {
    pub(crate) fn find(&self, name: &str) -> Option<&KeyspaceRecord> {
        self.0.iter().find(|record| record.identity.name == name)
    }

    /// Marks the keyspaces that are not `wanted` as dropped. Returns their names.
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

    /// Notes the format of the directory's data with the keyspaces that were dropped, if that is not the present format. Returns
    /// whether something has changed.
    pub(crate) fn note_format(&mut self, format: u32) -> bool {
        if format >= FORMAT {
            return false;
        }
        let unnoted = |record: &&mut KeyspaceRecord| record.dropped && record.format.is_none();
        let noted = self.0.iter_mut().filter(unnoted).map(|record| record.format = Some(format));
        noted.count() > 0
    }

    /// Adds a record, or replaces the one of the same name.
    ///
    /// # Errors
    /// If the directory remembers [`MOST_RECORDS`] names already.
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
}

impl KeyspaceRecord {
    /// Checks that its data fits the configured keyspace.
    ///
    /// # Errors
    /// If it does not fit. The error says how they differ, and what to do.
    pub(crate) fn check(&self, wanted: &KeyspaceIdentity) -> Result<(), String> {
        let KeyspaceIdentity { name, protocol, partitions, sites } = &self.identity;
        let again = "drop it on all nodes and create it again, or load it into a new keyspace; if it was dropped \
                     and created again while this node was away, start this node while the others run";
        if *partitions != wanted.partitions {
            return Err(format!(
                "keyspace `{name}` has {partitions} partitions, and the configuration says {}; the number of \
                 partitions of existing data can't be changed: {again}",
                wanted.partitions
            ));
        }
        if *sites != wanted.sites {
            return Err(format!(
                "keyspace `{name}` has {sites} sites, and the configuration says {}; the number of sites of existing \
                 data can't be changed: {again}",
                wanted.sites
            ));
        }
        if *protocol != wanted.protocol {
            return Err(format!(
                "keyspace `{name}` has run protocol `{protocol}`, and the configuration says `{}`; the \
                 protocol of existing data can't be changed: {again}",
                wanted.protocol
            ));
        }
        Ok(())
    }
}
