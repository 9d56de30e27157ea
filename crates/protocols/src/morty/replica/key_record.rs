//! What a replica knows of one key (000 Fig. 5, `vstore`).

use core::cmp::Ordering;

use serried_model::{Key, Modification, Value, Version};
use serried_parts::{Committed, Effect, ReadMarks, StoredVersions, WriteId};
use smallvec::SmallVec;

use super::uncommitted_writes::{UncommittedWrite, UncommittedWrites};
use crate::morty::message::{Read, Source};
use crate::morty::{Control, Crowds};

/// The modifications that follow on a value are counted once in so many votes.
const COUNTED_EVERY: u16 = 64;
/// The same while no more are accepted.
pub(in crate::morty) const COUNTED_WHEN_FULL: u16 = 8;

/// One key's `vrecord`.
#[derive(Debug, Default)]
pub(in crate::morty) struct KeyRecord {
    /// `committed_writes`.
    pub committed: StoredVersions,
    /// `committed_reads`.
    pub committed_reads: ReadMarks,
    /// It was used since it was last examined for removal.
    pub used: bool,
    crowd: Crowd,
    /// What is in progress. Most keys have nothing.
    active: Option<Box<Active>>,
}

/// What is in progress on a key. Where the paper keeps `prepared_writes`, nothing is kept: a
/// prepared write is also an uncommitted one, and that alone makes a reader that missed it fail.
#[derive(Debug, Default)]
struct Active {
    reads: SmallVec<[UncommittedRead; 1]>,
    writes: UncommittedWrites,
    prepared_reads: SmallVec<[PreparedRead; 1]>,
}

/// About how many modifications follow on the latest value. To count them takes as long as there are many, so it is seldom done.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    size: u32,
    /// How many modifications were voted on since they were counted, and since a coordinator was asked to seal the key; or more
    /// than that.
    since_counted: u16,
    since_asked: u16,
}

impl Crowd {
    /// There are fewer now, since a value or a result has come. The next vote counts them.
    fn count_again(&mut self) {
        self.since_counted = u16::MAX;
    }
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd { size: 0, since_counted: u16::MAX, since_asked: u16::MAX }
    }
}

/// `(ver, last_reply)`: a read whose reader receives a notice when it would find something else.
#[derive(Debug)]
struct UncommittedRead {
    reader: Version,
    replied: Source,
    /// A reader that has named so many modifications receives no notices of others.
    told_up_to: usize,
}

impl UncommittedRead {
    /// Whether its reader receives a notice of each modification that comes or goes. While thousands modify a key, each would take as
    /// long as executing all of them. A reader that has named many learns what it has missed when it is prepared.
    fn is_told_all(&self) -> bool {
        self.replied.modified.len() < self.told_up_to
    }
}

/// `(ver, r_ver)`: a read on which this replica has voted Commit.
#[derive(Debug)]
struct PreparedRead {
    reader: Version,
    found: Version,
    /// The transactions whose modifications it has found, in ascending order.
    modified: Box<[Version]>,
}

impl PreparedRead {
    /// Whether it has missed a write of `writer`.
    fn misses(&self, writer: Version) -> bool {
        let is_between = self.found < writer && writer < self.reader;
        is_between && self.modified.binary_search(&writer).is_err()
    }
}

/// A notice to a reader that it would now find something else.
#[derive(Debug)]
pub(super) struct Notice {
    pub reader: Version,
    pub key: Key,
    pub found: Found,
    /// A write that it had found before, if that is withdrawn.
    pub instead_of: Option<WriteId>,
}

/// What a reader finds in a key.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    pub source: Source,
    pub value: Option<Value>,
}

impl Found {
    fn value(id: WriteId, value: Option<&Value>) -> Found {
        Found { source: Source::from(id), value: value.cloned() }
    }
}

/// Many modifications follow on a key's value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowded {
    /// A coordinator should seal the key.
    pub asks: bool,
    /// No more are accepted.
    pub is_full: bool,
}

/// A read did not see a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missed {
    /// Reader and writer can't both commit, and one of them has.
    ForGood,
    /// It may turn out otherwise. One of the two is undecided, or the reader found nothing: what it found may be a delete
    /// that this replica does not have, and that is later than the write.
    Perhaps,
    /// This replica can't say. It may have missed a delete that is forgotten here.
    Forgotten,
}

impl KeyRecord {
    fn active(&mut self) -> &mut Active {
        self.active.get_or_insert_default()
    }

    /// What is written below `reader`'s version, committed or not. A delete below `settled` is reported as if nothing was there,
    /// because other replicas may have forgotten it already.
    pub(super) fn find_for(&self, reader: Version, settled: Version) -> Found {
        let mut found = self.find(reader);
        let Source { write, modified } = &mut found.source;
        let is_delete = match modified.is_empty() {
            true => found.value.is_none(),
            false => {
                self.committed.get(write.version).is_some_and(|write| write.effect.is_delete())
            }
        };
        if is_delete && write.version < settled {
            *write = WriteId::INITIAL;
        }
        found
    }

    /// The latest write that is committed. If it is a delete, or there is none, the answer says from which version on
    /// nothing was there: from that of the delete, or from `settled`, below which everything is known.
    pub(super) fn find_committed(&self, settled: Version) -> Found {
        match self.committed.latest() {
            // There are no modifications under validation.
            Some(Committed { id, effect }) => match effect.value().flatten() {
                Some(value) => Found::value(*id, Some(value)),
                None => Found::value(absent_from(id.version.max(settled)), None),
            },
            None => Found::value(absent_from(settled), None),
        }
    }

    /// What is written below `reader`'s version, committed or not: the write of a value with the largest version, and the
    /// modifications above it.
    pub(super) fn find(&self, reader: Version) -> Found {
        let mut uncommitted = self.uncommitted_before(reader);
        if uncommitted.is_empty() && !self.committed.may_modify() {
            let latest = self.committed.latest_before(reader);
            return match latest {
                Some(Committed { id, effect }) => Found::value(*id, effect.value().flatten()),
                None => Found::value(WriteId::INITIAL, None),
            };
        }
        let mut committed = self.committed.before(reader);
        let mut modifies: SmallVec<[(WriteId, &Effect); 1]> = SmallVec::new();
        let (write, value) = loop {
            let (id, effect) = match (committed.split_last(), uncommitted.split_last()) {
                (Some((latest, rest)), other)
                    if other.is_none_or(|(write, _)| latest.id.version >= write.id.version) =>
                {
                    committed = rest;
                    if let Some((write, rest)) = other
                        && write.id.version == latest.id.version
                    {
                        uncommitted = rest;
                    }
                    (latest.id, &latest.effect)
                }
                (_, Some((latest, rest))) => {
                    uncommitted = rest;
                    (latest.id, &latest.effect)
                }
                (_, None) => break (WriteId::INITIAL, None),
            };
            match effect.value() {
                Some(value) => break (id, value),
                None => modifies.push((id, effect)),
            }
        };
        if modifies.is_empty() {
            return Found::value(write, value);
        }
        let steps = modifies.iter().rev().flat_map(|(_, effect)| effect.modifications());
        let value = Modification::apply_all(steps, value);
        let modified = modifies.iter().rev().map(|(id, _)| *id).collect();
        Found { source: Source { write, modified }, value }
    }

    /// A modification is voted on, whose uncommitted write has been added. Returns whether the key is crowded then.
    pub(super) fn join_crowd(&mut self, settled: Version, crowds: Crowds) -> Crowded {
        let limit = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let Crowd { size, since_counted, since_asked } = self.crowd;
        let was_full = size as usize > crowds.most;
        let every = if was_full { COUNTED_WHEN_FULL } else { COUNTED_EVERY };
        let (size, since_counted) = match since_counted >= every.min(limit(crowds.many)) {
            true => (self.active().writes.len() + self.unsettled(settled), 0),
            false => (size as usize + 1, since_counted),
        };
        let is_full = size > crowds.most;
        let was_asked = since_asked < limit(crowds.many);
        let asks = (is_full || size >= crowds.many) && !was_asked;
        self.crowd = Crowd {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            since_counted: since_counted + 1,
            since_asked: if asks { 1 } else { since_asked.saturating_add(1) },
        };
        Crowded { asks, is_full }
    }

    /// How many committed modifications there are above `settled` and above the latest value.
    fn unsettled(&self, settled: Version) -> usize {
        let committed = self.committed.all().iter().rev();
        let unsettled = committed.take_while(|committed| committed.id.version >= settled);
        unsettled.take_while(|committed| committed.effect.value().is_none()).count()
    }

    fn uncommitted_before(&self, reader: Version) -> &[UncommittedWrite] {
        let Some(active) = self.active.as_deref() else { return &[] };
        &active.writes[..active.writes.partition_point(|write| write.id.version < reader)]
    }

    /// Adds a read, whose reader receives a notice when it would find something else than `replied`. Returns whether it is new.
    pub(super) fn add_read(&mut self, reader: Version, replied: Source, crowds: Crowds) -> bool {
        let reads = &mut self.active().reads;
        match reads.iter_mut().find(|read| read.reader == reader) {
            Some(read) => {
                read.replied = replied;
                false
            }
            None => {
                let told_up_to = crowds.told_up_to();
                reads.push(UncommittedRead { reader, replied, told_up_to });
                true
            }
        }
    }

    /// Removes a read that needs no further notice.
    pub(super) fn remove_read(&mut self, reader: Version) {
        self.tidy(|active| active.reads.retain(|read| read.reader != reader));
    }

    /// Adds an uncommitted write or supersedes an earlier value of it, and adds notices for the
    /// reads that missed it. Returns whether the transaction had not written the key before. `rests_on` is what the transaction
    /// had found in the key, if it has read it.
    ///
    /// Notices of a later value are added only when it is fresh: otherwise the transactions behind it in a chain would run in
    /// vain, once for each transaction before it. Notices of the first value are added at once, because reads that have missed it
    /// may be prepared, and nothing that its writer prepares can commit until they run again.
    pub(super) fn add_write(
        &mut self,
        key: &Key,
        (id, rests_on): (WriteId, Option<WriteId>),
        effect: &Effect,
        notices: &mut Vec<Notice>,
    ) -> bool {
        let writes = &mut self.active().writes;
        let position = writes.partition_point(|write| write.id.version < id.version);
        // Until it is known to be fresh.
        let mut write = UncommittedWrite { id, effect: effect.clone(), rests_on, stale: true };
        let new = match writes.get_mut(position) {
            Some(old) if old.id.version == id.version => {
                match old.id.tag.cmp(&id.tag) {
                    Ordering::Greater => return false,
                    // The same value again, of another execution.
                    Ordering::Equal => write.stale = old.stale,
                    Ordering::Less => {}
                }
                *old = write;
                false
            }
            _ => {
                writes.insert(position, write);
                true
            }
        };
        self.reconsider(key, position, notices);
        if new && self.active().writes[position].stale {
            self.announce(key, id, effect, notices);
        }
        new
    }

    /// The uncommitted write at `position` has changed, or what is below it: finds out whether it and
    /// those above are stale now, and adds notices for those that are not any more.
    fn reconsider(&mut self, key: &Key, position: usize, notices: &mut Vec<Notice>) {
        for i in position.. {
            let Some(active) = self.active.as_deref() else { return };
            let Some(write) = active.writes.get(i) else { return };
            let below = i.checked_sub(1).map(|i| &active.writes[i]);
            let committed = self.committed.latest_before(write.id.version).map(|write| write.id);
            let latest = committed.max(below.map(|write| write.id));
            let stale = write.rests_on.is_some_and(|found| {
                latest > Some(found) || below.is_some_and(|write| write.stale && write.id == found)
            });
            let was_stale = write.stale;
            if stale == was_stale && i > position {
                return;
            }
            let write = &mut self.active().writes[i];
            write.stale = stale;
            if was_stale && !stale {
                let (id, effect) = (write.id, write.effect.clone());
                self.announce(key, id, &effect, notices);
            }
        }
    }

    /// Withdraws a transaction's uncommitted write, and adds notices of what its readers would find now.
    pub(super) fn withdraw_write(
        &mut self,
        key: &Key,
        version: Version,
        notices: &mut Vec<Notice>,
    ) {
        let above = self.remove_write(version);
        self.reconsider(key, above, notices);
        let Some(active) = self.active.as_deref() else { return };
        for i in 0..active.reads.len() {
            let read = &self.active().reads[i];
            let reader = read.reader;
            let Some(replied) = read.replied.of(version).filter(|_| read.is_told_all()) else {
                continue;
            };
            let Some(found) = self.find_known(reader) else { continue };
            self.active().reads[i].replied = found.source.clone();
            let (key, instead_of) = (key.clone(), Some(replied));
            notices.push(Notice { reader, key, found, instead_of });
        }
    }

    /// Commits a write, which need not have been known before.
    pub(super) fn commit_write(
        &mut self,
        key: &Key,
        id: WriteId,
        effect: &Effect,
        notices: &mut Vec<Notice>,
    ) {
        self.committed.insert(Committed { id, effect: effect.clone() });
        if effect.value().is_some() {
            self.crowd.count_again();
        }
        self.announce(key, id, effect, notices);
        let above = self.remove_write(id.version);
        self.reconsider(key, above, notices);
    }

    /// A modification is committed, and the key has this value afterwards.
    pub(super) fn commit_result(
        &mut self,
        key: &Key,
        id: WriteId,
        value: &Option<Value>,
        notices: &mut Vec<Notice>,
    ) {
        let effect = Effect::Result(value.clone());
        if self.committed.insert(Committed { id, effect: effect.clone() }) {
            self.announce(key, id, &effect, notices);
        }
    }

    /// Removes a transaction's uncommitted write, if there is one. Returns where those above it begin.
    fn remove_write(&mut self, version: Version) -> usize {
        let mut above = 0;
        self.tidy(|active| {
            above = active.writes.partition_point(|write| write.id.version < version);
            if active.writes.get(above).is_some_and(|write| write.id.version == version) {
                active.writes.remove(above);
            }
        });
        above
    }

    /// Adds notices for the reads that would find `id` and don't know it. A read misses a write if it has found
    /// an older one, or another value of the same transaction (000 §4.2, "Put"). It misses a modification if that is not among those
    /// that it has found.
    fn announce(&mut self, key: &Key, id: WriteId, effect: &Effect, notices: &mut Vec<Notice>) {
        let Some(active) = self.active.as_deref() else { return };
        let misses = |read: &UncommittedRead| match read.replied.of(id.version) {
            Some(known) => known.tag != id.tag,
            None => read.replied.write.version < id.version,
        };
        for i in 0..active.reads.len() {
            let read = &self.active().reads[i];
            let is_told = effect.value().is_some() || read.is_told_all();
            if read.reader <= id.version || !misses(read) || !is_told {
                continue;
            }
            let (reader, known) = (read.reader, read.replied.of(id.version));
            let Some(found) = self.find_with(reader, id, effect) else { continue };
            let instead_of = known.filter(|known| known.tag > id.tag);
            self.active().reads[i].replied = found.source.clone();
            notices.push(Notice { reader, key: key.clone(), found, instead_of });
        }
    }

    /// What a reader of `id` finds. Values above it that are stale are not shown. None if it is not known; then the reader
    /// learns it when it is prepared.
    fn find_with(&self, reader: Version, id: WriteId, effect: &Effect) -> Option<Found> {
        let above = |version: Version| version > id.version;
        let committed = self.committed.before(reader).iter().rev();
        let mut committed = committed.take_while(|write| above(write.id.version));
        let uncommitted = self.uncommitted_before(reader).iter().rev();
        let mut uncommitted = uncommitted.take_while(|write| above(write.id.version));
        // A reader that has not heard of this value may know what is committed above it as modifications.
        if let Some(value) = effect.value()
            && committed.next().is_none()
            && uncommitted.all(|write| write.effect.value().is_some())
        {
            return Some(Found::value(id, value));
        }
        self.find_known(reader)
    }

    /// What is written below `reader`'s version, unless it depends on what is in the store and was not loaded.
    fn find_known(&self, reader: Version) -> Option<Found> {
        let found = self.find(reader);
        let is_known = found.source.modified.is_empty() || self.committed.is_loaded();
        is_known.then_some(found)
    }

    /// Adds a read on which this replica votes Commit.
    pub(super) fn prepare_read(&mut self, reader: Version, found: &Source) {
        let modified = found.modified.iter().map(|write| write.version).collect();
        let found = found.write.version;
        self.active().prepared_reads.push(PreparedRead { reader, found, modified });
    }

    /// Removes it again.
    pub(super) fn unprepare_read(&mut self, reader: Version) {
        self.tidy(|active| active.prepared_reads.retain(|read| read.reader != reader));
    }

    /// Whether `reader`, which found `found`, missed a write (check 1). A reader that found nothing has not missed a
    /// delete: it would have found nothing either way. Nor has it missed a value for good, since it may have found a
    /// later delete that is not known here.
    pub(super) fn missed_by(&self, reader: Version, found: &Source) -> Option<Missed> {
        let is_nothing = found.write == WriteId::INITIAL;
        // The version below which nothing is named.
        let first = found.modified.first().map_or(reader, |write| write.version);
        let latest = self.committed.latest_before(first);
        let from = match latest {
            Some(delete) if is_nothing && delete.effect.is_delete() => delete.id.version,
            _ => found.write.version,
        };
        if found.modified.is_empty() {
            // Most reads name no modifications. What is missed is then the latest write, or none is.
            if latest.is_some_and(|write| write.id.version > from) {
                return Some(if is_nothing { Missed::Perhaps } else { Missed::ForGood });
            }
            let uncommitted = self.uncommitted_before(reader).last();
            return uncommitted.filter(|it| it.id.version > from).map(|_| Missed::Perhaps);
        }
        let is_missed = |version: &Version| *version > from && found.of(*version).is_none();
        let committed = self.committed.before(reader).iter().rev().map(|write| write.id.version);
        let latest = committed.take_while(|version| *version > from).find(is_missed);
        if let Some(version) = latest {
            return Some(match is_nothing && version < first {
                true => Missed::Perhaps,
                false => Missed::ForGood,
            });
        }
        let uncommitted = self.uncommitted_before(reader).iter().rev().map(|it| it.id.version);
        let latest = uncommitted.take_while(|version| *version > from).find(is_missed);
        latest.map(|_| Missed::Perhaps)
    }

    /// Whether `reader`, which found what was there from `found` on, missed a write.
    pub(super) fn missed_after(&self, reader: Version, found: Version) -> Option<Missed> {
        let committed = self.committed.latest_before(reader);
        if committed.is_some_and(|write| write.id.version > found) {
            return Some(Missed::ForGood);
        }
        let uncommitted = self.uncommitted_before(reader).last();
        uncommitted.is_some_and(|write| write.id.version > found).then_some(Missed::Perhaps)
    }

    /// Whether another transaction's read has missed a write of `writer` (check 2), and the latest reader that has. If
    /// under timestamp ordering the reader found nothing, that may have been a delete later than the write, which has then
    /// committed, perhaps, where this replica does not know of it.
    pub(super) fn missed_write_of(
        &self,
        writer: Version,
        control: Control,
    ) -> Option<(Missed, Version)> {
        let prepared = self.active.as_deref().map_or(&[][..], |active| &active.prepared_reads);
        let missed = |read: &&PreparedRead| read.misses(writer);
        let prepared = prepared.iter().filter(missed).map(|read| read.reader).max();
        match self.committed_reads.who_misses(writer) {
            Some((found, reader)) => {
                let is_nothing = found == Version::INITIAL && control == Control::Ordering;
                let missed = if is_nothing { Missed::Perhaps } else { Missed::ForGood };
                Some((missed, prepared.map_or(reader, |other| other.max(reader))))
            }
            None => prepared.map(|reader| (Missed::Perhaps, reader)),
        }
    }

    /// A transaction that has read the key has committed. No write below `settled_below` is voted on any more, so reads that
    /// could only miss one of those are forgotten. If nothing is found under validation, each watermark is found by other
    /// readers, and their reads would add up.
    ///
    /// A read that has found modifications has missed every write that lies between two of them. So it counts as if each
    /// modification had read the one before it. Nothing that it does not name can commit below it any more. So if it names many, what
    /// they led to is remembered, and later readers name no more than the last of them.
    pub(super) fn commit_read(
        &mut self,
        read: &Read,
        reader: Version,
        settled_below: Version,
        crowds: Crowds,
    ) {
        self.committed_reads.forget_before(settled_below);
        let mut found = read.found.write.version;
        for write in &read.found.modified {
            if write.version > settled_below {
                self.committed_reads.record(found, write.version);
            }
            found = write.version;
        }
        self.committed_reads.record(found, reader);
        let Source { write, modified } = &read.found;
        let is_long = modified.len() >= crowds.executed_from();
        let sealed = &self.committed_reads;
        if is_long && self.committed.execute_named(*write, modified, crowds.many, sealed) {
            self.crowd.count_again();
        }
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

/// What a read has found under validation that has found nothing: nothing was there from `version` on.
fn absent_from(version: Version) -> WriteId {
    WriteId { version, tag: WriteId::INITIAL.tag }
}

#[cfg(test)]
mod tests {
    use serried_actor::MemoryStore;

    use super::*;

    /// The readers that receive notices of a change, and of which write.
    fn told(change: impl FnOnce(&Key, &mut Vec<Notice>)) -> Vec<(u64, WriteId)> {
        let mut notices = Vec::new();
        change(&Key::from("key"), &mut notices);
        notices.iter().map(|it| (it.reader.timestamp_us, it.found.source.write)).collect()
    }

    fn id(at: u64, tag: u32) -> WriteId {
        WriteId { version: Version::at(at), tag }
    }

    fn add(record: &mut KeyRecord, id: WriteId, rests_on: WriteId) -> Vec<(u64, WriteId)> {
        told(|key, notices| {
            record.add_write(key, (id, Some(rests_on)), &Effect::Put(None), notices);
        })
    }

    /// Transactions 2 to 5 have read the key, and 3 and 4 have written it, each what rests on the one
    /// before.
    fn chain() -> KeyRecord {
        let mut record = KeyRecord::default();
        for reader in 2..=5 {
            record.add_read(Version::at(reader), WriteId::INITIAL.into(), Crowds::USUAL);
        }
        let (third, fourth) = (id(3, 1), id(4, 1));
        assert_eq!(add(&mut record, third, WriteId::INITIAL), [(4, third), (5, third)]);
        assert_eq!(add(&mut record, fourth, third), [(5, fourth)]);
        record
    }

    #[test]
    fn a_write_behind_a_change_is_told_when_it_rests_on_what_is_there() {
        let mut record = chain();
        assert_eq!(add(&mut record, id(2, 1), WriteId::INITIAL), [(3, id(2, 1))]);
        assert_eq!(add(&mut record, id(4, 2), id(3, 1)), [], "3 is going to write anew");
        assert_eq!(
            add(&mut record, id(3, 2), WriteId::INITIAL),
            [],
            "3 had not heard of 2's write"
        );
        assert_eq!(add(&mut record, id(3, 3), id(2, 1)), [(4, id(3, 3))]);
        assert_eq!(add(&mut record, id(4, 3), id(3, 3)), [(5, id(4, 3))]);
    }

    #[test]
    fn what_was_written_before_is_fresh_again_when_it_is_written_anew() {
        let mut record = chain();
        assert_eq!(add(&mut record, id(2, 1), WriteId::INITIAL), [(3, id(2, 1))]);
        assert_eq!(add(&mut record, id(4, 2), id(3, 1)), []);
        // What 3 writes does not depend on what it reads, so 4 was right.
        assert_eq!(add(&mut record, id(3, 1), id(2, 1)), [(5, id(4, 2))]);
    }

    #[test]
    fn a_late_value_does_not_hide_a_result_above_it_from_a_reader() {
        let mut record = KeyRecord::default();
        record.committed.load(&Key::from("key"), &MemoryStore::default());
        let modify = Effect::Modify([Modification::add(1)].into());
        let effects = [Effect::Put(Some(Value::from("5"))), modify.clone(), modify];
        for (id, effect) in [id(10, 1), id(20, 1), id(30, 1)].into_iter().zip(effects) {
            told(|key, notices| record.commit_write(key, id, &effect, notices));
        }
        let found = Source { write: id(10, 1), modified: [id(20, 1), id(30, 1)].into() };
        record.add_read(Version::at(40), found.clone(), Crowds::USUAL);
        let read = Read { key: Key::from("key"), found };
        let crowds = Crowds { many: 1, most: 100 };
        record.commit_read(&read, Version::at(35), Version::INITIAL, crowds);
        assert_eq!(record.find(Version::at(40)).source, Source::from(id(30, 1)));
        let put = Effect::Put(Some(Value::from("9")));
        let late = told(|key, notices| {
            record.add_write(key, (id(25, 1), None), &put, notices);
        });
        assert!(late.iter().all(|(_, found)| *found == id(30, 1)), "{late:?}");
    }

    #[test]
    fn a_write_that_is_known_already_may_come_to_rest_on_a_later_one() {
        let mut record = chain();
        assert_eq!(add(&mut record, id(3, 1), id(2, 1)), [], "2's write is still on its way");
        assert_eq!(add(&mut record, id(2, 1), WriteId::INITIAL), [(3, id(2, 1))]);
        assert_eq!(add(&mut record, id(4, 2), id(3, 1)), [(5, id(4, 2))]);
    }

    #[test]
    fn what_rested_on_a_write_that_is_withdrawn_is_told() {
        let mut record = chain();
        assert_eq!(add(&mut record, id(2, 1), WriteId::INITIAL), [(3, id(2, 1))]);
        assert_eq!(add(&mut record, id(4, 2), id(3, 1)), []);
        let left = told(|key, notices| record.withdraw_write(key, Version::at(3), notices));
        assert_eq!(left, [(5, id(4, 2)), (4, id(2, 1))]);
    }

    #[test]
    fn a_write_that_an_execution_makes_without_a_read_is_fresh() {
        let mut record = chain();
        assert_eq!(add(&mut record, id(2, 1), WriteId::INITIAL), [(3, id(2, 1))]);
        assert_eq!(add(&mut record, id(4, 2), id(3, 1)), []);
        let blind = |key: &Key, notices: &mut Vec<Notice>| {
            record.add_write(key, (id(3, 1), None), &Effect::Put(None), notices);
        };
        assert_eq!(told(blind), [(5, id(4, 2))]);
    }
}
