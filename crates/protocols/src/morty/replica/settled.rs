//! How transactions ended, for those that are remembered.

use std::collections::BTreeMap;

use serried_model::{Key, Version};
use serried_parts::Effect;

use crate::morty::digest::Digest;
use crate::morty::message::{Contents, Settlement};

/// `decision_log`.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// A tree, because most lookups concern the latest entries, which lie side by side there.
    entries: BTreeMap<Version, Entry>,
    /// How many writes all entries have.
    writes: usize,
}

#[derive(Debug)]
struct Entry {
    /// The execution that committed. `None` if the transaction aborted.
    eid: Option<u32>,
    writes: Box<[Key]>,
    /// More about some of the writes. Most transactions have none of these.
    special: Option<Box<Special>>,
}

#[derive(Debug, Default)]
struct Special {
    /// The writes that may have deleted the key.
    deletes: Vec<Key>,
    /// The modifications, with their tags.
    tags: Vec<(Key, u32)>,
}

impl Settled {
    pub(super) fn get(&self, version: Version) -> Option<Settlement> {
        let eid = self.entries.get(&version)?.eid;
        Some(eid.map_or(Settlement::Aborted, |eid| Settlement::Committed { eid }))
    }

    pub(super) fn committed(&mut self, version: Version, eid: u32, contents: &Contents) {
        let mut special = Special::default();
        for write in &contents.writes {
            if write.effect.may_delete() {
                special.deletes.push(write.key.clone());
            }
            if !matches!(write.effect, Effect::Put(_)) {
                special.tags.push((write.key.clone(), write.tag));
            }
        }
        let overwritten = contents.overwritten.iter();
        special.tags.extend(overwritten.filter_map(|it| Some((it.key.clone(), it.tag?))));
        let writes = contents.writes.iter().map(|write| &write.key);
        let writes = writes.chain(contents.overwritten.iter().map(|it| &it.key));
        let is_special = !(special.deletes.is_empty() && special.tags.is_empty());
        let special = is_special.then(|| Box::new(special));
        self.insert(version, Entry { eid: Some(eid), writes: writes.cloned().collect(), special });
    }

    pub(super) fn aborted(&mut self, version: Version) {
        self.insert(version, Entry { eid: None, writes: Box::default(), special: None });
    }

    fn insert(&mut self, version: Version, entry: Entry) {
        self.writes += entry.writes.len();
        let old = self.entries.insert(version, entry);
        self.writes -= old.map_or(0, |old| old.writes.len());
    }

    /// How many writes are remembered.
    pub(super) fn writes(&self) -> usize {
        self.writes
    }

    /// How many transactions are remembered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds the commits from `from` on and below `below` to `digest`.
    pub(super) fn digest(&self, mut digest: Digest, from: Version, below: Version) -> Digest {
        if from < below {
            for (version, entry) in self.entries.range(from..below) {
                if let Some(eid) = entry.eid {
                    digest.add(*version, eid);
                }
            }
        }
        digest
    }

    /// The first `at_most` commits from `since` on, and whether there are more.
    pub(super) fn list(&self, since: Version, at_most: usize) -> (Vec<Version>, bool) {
        let committed = self.entries.range(since..).filter(|(_, entry)| entry.eid.is_some());
        let mut versions: Vec<_> =
            committed.map(|(version, _)| *version).take(at_most + 1).collect();
        let more = versions.len() > at_most;
        versions.truncate(at_most);
        (versions, more)
    }

    /// The tag of a committed transaction's modification of a key, if that is remembered.
    pub(super) fn tag(&self, version: Version, key: &Key) -> Option<u32> {
        let special = self.entries.get(&version)?.special.as_ref()?;
        special.tags.iter().find(|(other, _)| other == key).map(|(_, tag)| *tag)
    }

    /// The execution of a committed transaction, and the keys that it wrote.
    pub(super) fn execution(&self, version: Version) -> Option<(u32, &[Key])> {
        let entry = self.entries.get(&version)?;
        Some((entry.eid?, &entry.writes))
    }

    /// The keys that transactions wrote (or only those that they deleted) from `from` on and below `below`: about `at_most`,
    /// some perhaps more than once. Also returns the version from which to continue.
    pub(super) fn written(
        &self,
        from: Version,
        below: Version,
        only_deleted: bool,
        at_most: usize,
    ) -> (Vec<Key>, Version) {
        let (mut keys, mut looked_at, mut next) = (Vec::new(), 0, below);
        for (version, entry) in self.entries.range(from..below.max(from)) {
            if looked_at >= at_most {
                next = *version;
                break;
            }
            let deletes = || entry.special.as_ref().map_or(&[][..], |special| &special.deletes);
            keys.extend_from_slice(if only_deleted { deletes() } else { &entry.writes });
            looked_at += entry.writes.len().max(1);
        }
        (keys, next.max(from))
    }

    /// The first transaction that is remembered.
    pub(super) fn first(&self) -> Option<Version> {
        self.entries.first_key_value().map(|(version, _)| *version)
    }

    /// Forgets which transactions below `version` have aborted, since state was copied that may say otherwise.
    pub(super) fn doubt_before(&mut self, version: Version) {
        let aborted = self.entries.range(..version).filter(|(_, entry)| entry.eid.is_none());
        let aborted: Vec<Version> = aborted.map(|(version, _)| *version).collect();
        for version in aborted {
            self.entries.remove(&version);
        }
    }

    /// Forgets all below `version`.
    pub(super) fn forget_before(&mut self, version: Version) {
        while let Some(entry) = self.entries.first_entry().filter(|entry| *entry.key() < version) {
            self.writes -= entry.remove().writes.len();
        }
    }
}
