//! What a replica knows of one key (000 Fig. 5, `vstore`).

use serried_model::{Key, Value, Version};
use serried_parts::{Committed, ReadMarks, Versions, WriteId};
use smallvec::SmallVec;

/// One key's `vrecord`.
#[derive(Debug, Default)]
pub(in crate::morty) struct KeyRecord {
    /// `committed_writes`.
    pub committed: Versions,
    /// `committed_reads`.
    pub committed_reads: ReadMarks,
    /// `committed` holds what lies in the store.
    pub loaded: bool,
    /// What was committed below, in microseconds, has been put into the store last.
    pub stored: u64,
    /// It was used since it was last considered to go.
    pub used: bool,
    /// What is not committed; most keys have nothing.
    active: Option<Box<Active>>,
}

/// What is in progress on a key. Where the paper keeps `prepared_writes`, nothing is kept: a
/// prepared write is also an uncommitted one, and that alone makes a reader that missed it fail.
#[derive(Debug, Default)]
struct Active {
    reads: SmallVec<[UncommittedRead; 1]>,
    writes: SmallVec<[UncommittedWrite; 1]>,
    prepared_reads: SmallVec<[PreparedRead; 1]>,
}

/// `(ver, last_reply)`: a read that is told when it would find something else.
#[derive(Debug)]
struct UncommittedRead {
    reader: Version,
    replied: WriteId,
}

/// `(ver, val)`: a write that others may read before it is decided.
#[derive(Debug)]
struct UncommittedWrite {
    id: WriteId,
    value: Option<Value>,
}

/// `(ver, r_ver)`: a read on which this replica has voted Commit.
#[derive(Debug)]
struct PreparedRead {
    reader: Version,
    found: Version,
}

/// A read that has to be told that it would now find something else.
#[derive(Debug)]
pub(super) struct Notice {
    pub reader: Version,
    pub key: Key,
    pub write: WriteId,
    pub value: Option<Value>,
    /// The write it was told before, if that is withdrawn.
    pub instead_of: Option<WriteId>,
}

/// A write that a read did not see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missed {
    Committed,
    Uncommitted,
}

impl KeyRecord {
    fn active(&mut self) -> &mut Active {
        self.active.get_or_insert_default()
    }

    /// The write with the largest version below `reader`'s, committed or not.
    pub(super) fn find(&self, reader: Version) -> (WriteId, Option<Value>) {
        let committed = self.committed.latest_before(reader);
        let uncommitted = self.uncommitted_before(reader);
        match (committed, uncommitted) {
            (Some(committed), Some(write)) if committed.id.version >= write.id.version => {
                (committed.id, committed.value.clone())
            }
            (_, Some(write)) => (write.id, write.value.clone()),
            (Some(committed), None) => (committed.id, committed.value.clone()),
            (None, None) => (WriteId::INITIAL, None),
        }
    }

    fn uncommitted_before(&self, reader: Version) -> Option<&UncommittedWrite> {
        let writes = &self.active.as_deref()?.writes;
        writes[..writes.partition_point(|write| write.id.version < reader)].last()
    }

    /// Adds a read, to be told when it would find something else than `replied`; whether it is new.
    pub(super) fn add_read(&mut self, reader: Version, replied: WriteId) -> bool {
        let reads = &mut self.active().reads;
        match reads.iter_mut().find(|read| read.reader == reader) {
            Some(read) => {
                read.replied = replied;
                false
            }
            None => {
                reads.push(UncommittedRead { reader, replied });
                true
            }
        }
    }

    /// Removes a read that needs no more notice.
    pub(super) fn remove_read(&mut self, reader: Version) {
        self.tidy(|active| active.reads.retain(|read| read.reader != reader));
    }

    /// Adds an uncommitted write or supersedes an earlier value of it, and notes the reads that missed
    /// it; whether the transaction had not written the key before.
    pub(super) fn add_write(
        &mut self,
        key: &Key,
        id: WriteId,
        value: &Option<Value>,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let writes = &mut self.active().writes;
        let position = writes.partition_point(|write| write.id.version < id.version);
        let new = match writes.get_mut(position) {
            Some(old) if old.id.version == id.version => {
                if old.id.tag >= id.tag {
                    return false;
                }
                *old = UncommittedWrite { id, value: value.clone() };
                false
            }
            _ => {
                writes.insert(position, UncommittedWrite { id, value: value.clone() });
                true
            }
        };
        self.announce(key, id, value, notices);
        new
    }

    /// Withdraws a transaction's uncommitted write, and tells those who read it what they would find
    /// now.
    pub(super) fn withdraw_write(
        &mut self,
        key: &Key,
        version: Version,
        notices: &mut Vec<Notice>,
    ) {
        self.tidy(|active| active.writes.retain(|write| write.id.version != version));
        let Some(active) = self.active.as_deref() else { return };
        let told = active.reads.iter().filter(|read| read.replied.version == version);
        let told: Vec<_> = told.map(|read| (read.reader, read.replied)).collect();
        for (reader, replied) in told {
            let (write, value) = self.find(reader);
            self.add_read(reader, write);
            let (key, instead_of) = (key.clone(), Some(replied));
            notices.push(Notice { reader, key, write, value, instead_of });
        }
    }

    /// Commits a write, which need not have been known before.
    pub(super) fn commit_write(
        &mut self,
        key: &Key,
        id: WriteId,
        value: &Option<Value>,
        notices: &mut Vec<Notice>,
    ) {
        self.committed.insert(Committed { id, value: value.clone() });
        self.announce(key, id, value, notices);
        self.tidy(|active| active.writes.retain(|write| write.id.version != id.version));
    }

    /// Tells the reads that would find `id` and don't know it. A read misses a write if it was told
    /// an older one, or another value of the same transaction (000 §4.2, "Put").
    fn announce(
        &mut self,
        key: &Key,
        id: WriteId,
        value: &Option<Value>,
        notices: &mut Vec<Notice>,
    ) {
        let Some(active) = self.active.as_deref_mut() else { return };
        for read in &mut active.reads {
            let same_writer = read.replied.version == id.version;
            if read.reader <= id.version
                || read.replied.version > id.version
                || read.replied.tag == id.tag && same_writer
            {
                continue;
            }
            let instead_of = (same_writer && read.replied.tag > id.tag).then_some(read.replied);
            read.replied = id;
            let (reader, key, value) = (read.reader, key.clone(), value.clone());
            notices.push(Notice { reader, key, write: id, value, instead_of });
        }
    }

    /// Adds a read on which this replica votes Commit.
    pub(super) fn prepare_read(&mut self, reader: Version, found: Version) {
        self.active().prepared_reads.push(PreparedRead { reader, found });
    }

    /// Removes it again.
    pub(super) fn unprepare_read(&mut self, reader: Version) {
        self.tidy(|active| active.prepared_reads.retain(|read| read.reader != reader));
    }

    /// Whether `reader`, which found `found`, missed a write (check 1).
    pub(super) fn missed_by(&self, reader: Version, found: WriteId) -> Option<Missed> {
        let between = |version: Version| version > found.version;
        if self.committed.latest_before(reader).is_some_and(|write| between(write.id.version)) {
            Some(Missed::Committed)
        } else if self.uncommitted_before(reader).is_some_and(|write| between(write.id.version)) {
            Some(Missed::Uncommitted)
        } else {
            None
        }
    }

    /// Whether somebody's read has missed a write of `writer` (check 2).
    pub(super) fn missed_write_of(&self, writer: Version) -> Option<Missed> {
        if self.committed_reads.would_miss(writer) {
            return Some(Missed::Committed);
        }
        let prepared = &self.active.as_deref()?.prepared_reads;
        let missed = |read: &PreparedRead| read.found < writer && writer < read.reader;
        prepared.iter().any(missed).then_some(Missed::Uncommitted)
    }

    /// Changes what is in progress, and gives its memory back if nothing is left.
    fn tidy(&mut self, change: impl FnOnce(&mut Active)) {
        if let Some(active) = &mut self.active {
            change(active);
            let Active { reads, writes, prepared_reads } = &**active;
            if reads.is_empty() && writes.is_empty() && prepared_reads.is_empty() {
                self.active = None;
            }
        }
    }

    /// Whether nothing is in progress on the key.
    pub(in crate::morty) fn is_idle(&self) -> bool {
        self.active.is_none()
    }
}
