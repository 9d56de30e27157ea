//! What transactions that are not over have done to a key, in the order in which they were executed.

use serried_model::{Modification, Value, Version};
use smallvec::SmallVec;

use crate::frameworks::shard::{Row, Stamp};

/// A key's versions from the last that is committed on, with those who have read each (003 Algorithm 5.2, "DS" and
/// "resp_qs": a version's readers are the consecutive reads of the queue that follow its write).
#[derive(Debug)]
pub(super) struct Chain {
    versions: SmallVec<[Link; 2]>,
    /// How many transactions have committed what they have done to the key, and are not in its row yet.
    ends: usize,
    /// How many of them have written.
    writes: usize,
}

/// A version.
#[derive(Debug)]
pub(super) struct Link {
    /// When it was written ("t_w").
    pub(super) stamp: Stamp,
    /// When it was last read ("t_r").
    pub(super) read_at: Stamp,
    /// Its writer, if it is not committed.
    pub(super) writer: Option<Version>,
    pub(super) value: Option<Value>,
    /// Where the value comes from.
    pub(super) origin: Origin,
    /// Its readers that have not ended.
    pub(super) readers: SmallVec<[Version; 2]>,
}

/// Where the value of a version comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// Its writer has sent it, or it is committed.
    Given,
    /// It follows from the version before by these.
    Modified(Vec<Modification>),
    /// It may follow from the version before, and it is not known how: a former leader knew.
    Inherited,
}

impl Link {
    pub(super) fn written(
        txn: Version,
        stamp: Stamp,
        value: Option<Value>,
        origin: Origin,
    ) -> Link {
        let readers = SmallVec::new();
        Link { stamp, read_at: stamp, writer: Some(txn), value, origin, readers }
    }

    fn is_read_by_others(&self, txn: Version) -> bool {
        self.readers.iter().any(|reader| *reader != txn)
    }
}

impl Chain {
    /// The chain of a key whose transactions are all over.
    pub(super) fn new(row: &Row) -> Chain {
        let newest = row.newest();
        let base = Link {
            stamp: newest.stamp,
            read_at: newest.read_at,
            writer: None,
            value: newest.value.clone(),
            origin: Origin::Given,
            readers: SmallVec::new(),
        };
        Chain { versions: SmallVec::from_iter([base]), ends: 0, writes: 0 }
    }

    /// Whether all transactions are over, so that the row says all.
    pub(super) fn is_over(&self) -> bool {
        self.versions.len() == 1 && self.versions[0].readers.is_empty() && self.ends == 0
    }

    /// Whether a transaction has written that is not over, or is not in the row yet.
    pub(super) fn is_being_written(&self) -> bool {
        self.writes > 0 || self.versions.iter().any(|link| link.writer.is_some())
    }

    /// A transaction commits what it has done to the key, and is not in the row yet.
    pub(super) fn place(&mut self, has_written: bool) {
        self.ends += 1;
        self.writes += usize::from(has_written);
    }

    /// The row contains what such a transaction has done.
    pub(super) fn is_in_row(&mut self, has_written: bool) {
        self.ends -= 1;
        self.writes -= usize::from(has_written);
    }

    /// The most recent version.
    pub(super) fn tail(&mut self) -> &mut Link {
        self.versions.last_mut().expect("a chain has a version")
    }

    /// The version of this stamp.
    pub(super) fn of(&mut self, stamp: Stamp) -> Option<&mut Link> {
        self.versions.iter_mut().find(|link| link.stamp == stamp)
    }

    /// The stamp of the version after the one of this stamp, if there are both.
    pub(super) fn after(&self, stamp: Stamp) -> Option<Stamp> {
        let place = self.versions.iter().position(|link| link.stamp == stamp)?;
        self.versions.get(place + 1).map(|next| next.stamp)
    }

    /// Whether a read of the most recent version could be answered at once.
    pub(super) fn answers_read(&self) -> bool {
        self.versions.last().is_some_and(|tail| tail.writer.is_none())
    }

    /// Whether a write of `txn` that comes now could be answered at once.
    pub(super) fn answers_write(&self, txn: Version) -> bool {
        let tail = self.versions.last().expect("a chain has a version");
        tail.writer.is_none() && !tail.is_read_by_others(txn)
    }

    /// A transaction that is not over and began later than `txn`, and has written; or, for `all`, has read.
    pub(super) fn has_younger(&self, txn: Version, all: bool) -> bool {
        self.versions.iter().any(|link| {
            link.writer.is_some_and(|writer| writer > txn)
                || (all && link.readers.iter().any(|reader| *reader > txn))
        })
    }

    /// The stamp of the version before the one that `txn` has written.
    pub(super) fn before(&self, txn: Version) -> Option<Stamp> {
        let place = self.versions.iter().position(|link| link.writer == Some(txn))?;
        self.versions.get(place.checked_sub(1)?).map(|before| before.stamp)
    }

    /// Adds a version in the order of stamps.
    pub(super) fn insert(&mut self, link: Link) {
        let place = self.versions.partition_point(|other| other.stamp < link.stamp);
        self.versions.insert(place, link);
    }

    /// Whether what was read of the version of this stamp is committed (D1).
    pub(super) fn is_committed(&self, stamp: Stamp) -> bool {
        // One that is not there was committed, and then overwritten.
        let mut versions = self.versions.iter();
        versions.find(|link| link.stamp == stamp).is_none_or(|link| link.writer.is_none())
    }

    /// Whether all that was done before `txn` has written is over (D2 and D3).
    pub(super) fn is_next(&self, txn: Version) -> bool {
        let Some(place) = self.versions.iter().position(|link| link.writer == Some(txn)) else {
            return true;
        };
        match place.checked_sub(1).map(|before| &self.versions[before]) {
            Some(before) => before.writer.is_none() && !before.is_read_by_others(txn),
            None => true,
        }
    }

    /// A transaction that has read is over.
    pub(super) fn remove_reader(&mut self, txn: Version) {
        for link in &mut self.versions {
            link.readers.retain(|reader| *reader != txn);
        }
    }

    /// A transaction that has written has committed at this moment.
    pub(super) fn commit(&mut self, txn: Version, at: Stamp) {
        let Some(link) = self.versions.iter_mut().find(|link| link.writer == Some(txn)) else {
            return;
        };
        link.stamp = at;
        link.read_at = link.read_at.max(at);
        link.writer = None;
        link.origin = Origin::Given;
        // What came before it is not read any more, nor waited for.
        while self.versions.get(1).is_some_and(|next| next.writer.is_none()) {
            self.versions.remove(0);
        }
    }

    /// A transaction that has written is aborted: those who have read that, and the version before it.
    pub(super) fn abort(&mut self, txn: Version) -> Option<(SmallVec<[Version; 2]>, Stamp)> {
        let place = self.versions.iter().position(|link| link.writer == Some(txn))?;
        let before = self.versions[place.checked_sub(1)?].stamp;
        Some((self.versions.remove(place).readers, before))
    }

    /// What came before the version that `txn` has written is another version now. Makes its value anew if that follows from
    /// it, and those of the versions behind it. `twice` is a deliberate mistake. Returns their writers if their values have
    /// changed, and `None` if it is not known what follows.
    pub(super) fn make_anew(
        &mut self,
        txn: Version,
        twice: bool,
    ) -> Option<SmallVec<[Version; 2]>> {
        let mut changed = SmallVec::new();
        let first = self.versions.iter().position(|link| link.writer == Some(txn));
        for place in first.unwrap_or(self.versions.len()).max(1)..self.versions.len() {
            let before = self.versions[if twice { place } else { place - 1 }].value.as_ref();
            let value = match &self.versions[place].origin {
                Origin::Given => break,
                Origin::Inherited => return None,
                Origin::Modified(modifications) => Modification::apply_all(modifications, before),
            };
            let link = &mut self.versions[place];
            if link.value == value {
                break;
            }
            link.value = value;
            changed.extend(link.writer);
        }
        Some(changed)
    }

    /// The transactions that may be answered once something before them is over.
    pub(super) fn first_in_line(&self) -> SmallVec<[Version; 4]> {
        let committed = self.versions.iter().filter(|link| link.writer.is_none());
        let readers = committed.flat_map(|link| link.readers.iter().copied());
        let writers = self.versions.iter().filter_map(|link| link.writer).take(1);
        readers.chain(writers).collect()
    }
}
