//! The file that says which node a directory belongs to.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serried_model::Provenance;

use crate::StorageError;
use crate::disk::replace;
use crate::keyspaces::{KeyspaceIdentity, KeyspaceRecord, Records};

/// Its name.
pub(super) const NAME: &str = "identity.toml";

/// The format of the directory. A format that the release before can't read has the next number. In format 1,
/// keyspaces had no generations. Up to format 2, stores had no marks (`marks.rs`). Up to format 3, some
/// protocols had other records ([`Identity::first_formats`]).
pub(crate) const FORMAT: u32 = 4;

/// The first format with the present stores and logs, whatever protocols put into them. Opening a partition brings its store
/// into this format, so the directory has it before.
pub(super) const FORMAT_OF_STORES: u32 = 3;

/// The node and the keyspaces that a directory belongs to.
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
    /// The first format of directories whose records a protocol can read, for each protocol that can't read all.
    pub first_formats: BTreeMap<String, u32>,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// Distinguishes this data from other data that the node had before: see [`Provenance::incarnation`].
    incarnation: u64,
    /// Whether it was created to replace a lost disk.
    #[serde(default)]
    rejoined: bool,
    /// See [`Held::lost`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<BTreeMap<String, u32>>,
    /// In format 1: the keyspaces that are [`KeyspaceRecord::later`].
    #[serde(default, skip_serializing)]
    later: Vec<String>,
    cluster: String,
    node: u64,
    nodes: usize,
    keyspaces: Vec<KeyspaceRecord>,
}

/// What the identity file says that may change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Held {
    pub(super) provenance: Provenance,
    pub(super) records: Records,
    /// For a directory that replaces a lost one, as soon as it is known: the last generation of each name that the lost
    /// one may have held. It may have held earlier ones as well.
    pub(super) lost: Option<BTreeMap<String, u32>>,
    /// The format in which it is: [`FORMAT`], or that in which it was found until all partitions were opened. From format 2
    /// on, each use of a directory is noted.
    pub(super) format: u32,
}

impl Held {
    /// An identity without keyspaces.
    pub(super) fn nothing(provenance: Provenance) -> Held {
        Held { provenance, records: Records::default(), lost: None, format: FORMAT }
    }

    /// Whether a generation was created after the disk was lost.
    pub(super) fn is_later(&self, keyspace: &str, generation: u32) -> bool {
        let lost = |lost: &BTreeMap<String, u32>| lost.get(keyspace).copied();
        self.lost.as_ref().is_some_and(|all| lost(all).is_none_or(|lost| generation > lost))
    }
}

/// Checks a directory's identity file against the configuration. Its keyspaces are checked later, when their
/// generations are known.
pub(super) fn check(file: &Path, text: &str, wanted: &Identity) -> Result<Held, StorageError> {
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
        Err(error) => return Err(StorageError::unreadable(file, text, &error)),
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
    let format = contents.format;
    // Nobody reads the records of a keyspace that is about to be dropped.
    let is_kept = |record: &KeyspaceRecord| {
        let name = &record.identity.name;
        !record.dropped && wanted.keyspaces.iter().any(|keyspace| keyspace.name == *name)
    };
    for record in records.0.iter().filter(|record| is_kept(record)) {
        check_format(record, format, wanted)
            .map_err(|reason| StorageError::refused(file, reason))?;
    }
    Ok(Held { provenance, records, lost: contents.lost, format })
}

/// Checks that this release can read the records of a keyspace whose data has this format.
pub(super) fn check_format(
    record: &KeyspaceRecord,
    format: u32,
    wanted: &Identity,
) -> Result<(), String> {
    let KeyspaceIdentity { name, protocol, .. } = &record.identity;
    if wanted.first_formats.get(protocol).is_none_or(|first| format >= *first) {
        return Ok(());
    }
    Err(format!(
        "keyspace `{name}` was written by an earlier release, whose records of `{protocol}` this \
         release can't read; go on with that release, or let the applications copy what they need into \
         a new cluster"
    ))
}

/// Writes the file.
pub(super) fn write(file: &Path, identity: &Identity, held: &Held) -> Result<(), StorageError> {
    let Provenance { incarnation, rejoined } = held.provenance;
    let contents = Contents {
        format: held.format,
        incarnation,
        rejoined,
        lost: held.lost.clone(),
        later: Vec::new(),
        cluster: identity.cluster.clone(),
        node: identity.node,
        nodes: identity.nodes,
        keyspaces: held.records.0.clone(),
    };
    let text = toml::to_string(&contents).expect("an identity can be written as TOML");
    replace(
        file,
        &format!("# Whose data this is. It is checked at each start; do not edit it.\n{text}"),
    )
}
