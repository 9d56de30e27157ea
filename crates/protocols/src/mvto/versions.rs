//! Reads and writes at timestamps.

use core::fmt;

use serried_model::{Guarantee, Key, Modification, Modify, Value, Version};
use serried_parts::Map;
use smallvec::SmallVec;

use super::marks::Marks;
use crate::Mutated;
use crate::frameworks::shard::{
    Access, Accesses, AsOf, Control, Desk, Found, Glance, Item, Keeps, Mutation, Part, Read,
    Rounds, Shot, Snapshots, Stamp, Validity,
};

/// The transactions of a shard that are not over, and what they have done to its keys.
#[derive(Default)]
pub struct Versions {
    keys: Map<Key, Open>,
    txns: Map<Version, Txn>,
    marks: Marks,
    mutation: Mutated<Mutation>,
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versions of {} keys, {} transactions", self.keys.len(), self.txns.len())
    }
}

/// What open transactions have done to a key.
#[derive(Default)]
struct Open {
    /// What they have written, at their timestamps and in the order of these.
    written: SmallVec<[(Version, Option<Value>); 2]>,
    /// Their reads, and the stamp of the version that each has found.
    readers: SmallVec<[(Version, Stamp); 2]>,
}

/// A transaction that is not over.
#[derive(Default)]
struct Txn {
    accesses: Accesses,
    /// The shots that were not released, but for the last, and the keys that they have read.
    shots: SmallVec<[(u16, Vec<Key>); 1]>,
    /// The keys where what it has written may follow from what it has read there. It can't read these again.
    modified: SmallVec<[Key; 1]>,
    /// Its last shot was executed.
    has_part: bool,
    settled: bool,
}

impl Open {
    fn is_over(&self) -> bool {
        self.written.is_empty() && self.readers.is_empty()
    }

    /// Whether the version of this stamp is written by a transaction that is not over.
    fn is_open(&self, stamp: Stamp) -> bool {
        self.written.iter().any(|(writer, _)| Stamp::assigned(*writer) == stamp)
    }

    /// The last version before `txn`.
    fn before(&self, txn: Version) -> Option<&(Version, Option<Value>)> {
        self.written.iter().rfind(|(writer, _)| *writer < txn)
    }

    /// The last timestamp of a read of what was written before `txn`.
    fn read_at(&self, txn: Version) -> Option<Version> {
        let before = Stamp::assigned(txn);
        let readers = self.readers.iter().filter(|(_, stamp)| *stamp < before);
        readers.map(|(reader, _)| *reader).max()
    }

    fn write(&mut self, txn: Version, value: Option<Value>) {
        let place = self.written.partition_point(|(writer, _)| *writer < txn);
        match self.written.get_mut(place) {
            Some((writer, written)) if *writer == txn => *written = value,
            _ => self.written.insert(place, (txn, value)),
        }
    }
}

impl Versions {
    /// Reads the last version before `txn`, if it is there.
    fn read(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) -> Option<()> {
        let at = Stamp::assigned(txn);
        let committed = desk.row(key).versions().find(|version| version.stamp < at)?;
        let open = self.keys.get_or_default(key);
        let (stamp, value) = match open.before(txn) {
            Some((writer, value)) if Stamp::assigned(*writer) > committed.stamp => {
                (Stamp::assigned(*writer), value.clone())
            }
            _ => (committed.stamp, committed.value.clone()),
        };
        open.readers.push((txn, stamp));
        let found = Some(Found { version: stamp.version(), value });
        let own = self.txns.get_or_default(&txn);
        own.accesses.of_mut(key).read = Some(Read { stamp, found });
        Some(())
    }

    /// Writes a version, unless the one before it was read at a later timestamp.
    ///
    /// # Errors
    /// When it was read; zero if that is not known.
    fn write(
        &mut self,
        txn: Version,
        key: &Key,
        value: Option<&Value>,
        desk: &mut Desk<'_>,
    ) -> Result<(), u64> {
        let at = Stamp::assigned(txn);
        let before = desk.row(key).versions().find(|version| version.stamp < at).ok_or(0_u64)?;
        let open = self.keys.get(key).and_then(|open| open.read_at(txn));
        let read_at = open.unwrap_or_default().max(self.marks.of(key));
        let read_at = before.read_at.max(Stamp::assigned(read_at));
        if read_at > at && !self.mutation.is(Mutation::ReadsUnmarked) {
            return Err(read_at.us);
        }
        self.txns.get_or_default(&txn).accesses.of_mut(key).write = Some(value.cloned());
        self.keys.get_or_default(key).write(txn, value.cloned());
        Ok(())
    }

    /// Executes a shot; else the key at which that can't be done, and until when.
    fn execute_all(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), (Key, u64)> {
        let txn = shot.txn;
        for key in &shot.reads {
            let known = self.txns.get(&txn).and_then(|own| own.accesses.read_of(key));
            if known.is_none() {
                self.read(txn, key, desk).ok_or_else(|| (key.clone(), 0))?;
            }
        }
        for write in &shot.writes {
            let written = self.write(txn, &write.key, write.value.as_ref(), desk);
            written.map_err(|after_us| (write.key.clone(), after_us))?;
        }
        for Modify { key, modifications } in &shot.modifies {
            let accesses = self.txns.get(&txn).map(|own| &own.accesses);
            if accesses.and_then(|accesses| accesses.read_of(key)).is_none() {
                self.read(txn, key, desk).ok_or_else(|| (key.clone(), 0))?;
            }
            let own = self.txns.get_or_default(&txn);
            own.modified.push(key.clone());
            let before = own.accesses.of(key).and_then(Access::value);
            let value = Modification::apply_all(modifications, before);
            let written = self.write(txn, key, value.as_ref(), desk);
            written.map_err(|after_us| (key.clone(), after_us))?;
        }
        Ok(())
    }

    /// Says what can be answered of a transaction: what it has read is committed.
    fn release(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let Some(own) = self.txns.get_mut(&txn) else { return };
        let Txn { accesses, shots, has_part, settled, .. } = own;
        let (keys, at_once) = (&self.keys, self.mutation.is(Mutation::ReadsAnsweredAtOnce));
        let waits = |key: &Key| {
            let read = accesses.read_of(key).filter(|_| !at_once);
            read.is_some_and(|read| keys.get(key).is_some_and(|open| open.is_open(read.stamp)))
        };
        shots.retain(|(number, reads)| {
            let retained = reads.iter().any(waits);
            if !retained {
                desk.released(txn, *number);
            }
            retained
        });
        if *has_part && !*settled && !accesses.iter().any(|access| waits(&access.key)) {
            *settled = true;
            desk.settled(txn);
        }
    }

    /// A transaction is over. If it is aborted, others may have read what it has written, and lack what was before
    /// that, so that they are aborted as well.
    fn end(&mut self, txn: Version, is_committed: bool, desk: &mut Desk<'_>) {
        let own = self.txns.remove(&txn);
        let mut over: SmallVec<[_; 1]> = own.map(|own| (txn, own)).into_iter().collect();
        let mut affected = Vec::new();
        while let Some((txn, own)) = over.pop() {
            for (reader, key) in self.forget(txn, &own) {
                // It may be over already, as it lacked another version.
                let reads_again = !is_committed && self.txns.contains_key(&reader);
                if reads_again && !self.read_again(reader, &key, desk) {
                    let lacks = self.txns.remove(&reader);
                    over.extend(lacks.map(|own| (reader, own)));
                    desk.refused(reader, vec![key]);
                }
                affected.push(reader);
            }
        }
        affected.sort_unstable();
        affected.dedup();
        for reader in affected {
            match self.txns.get(&reader) {
                Some(own) if own.has_part && !is_committed => desk.executed(reader),
                _ => {}
            }
            self.release(reader, desk);
        }
    }

    /// Forgets what a transaction has done; those who have read what it has written.
    fn forget(&mut self, txn: Version, own: &Txn) -> Vec<(Version, Key)> {
        let mut affected = Vec::new();
        for Access { key, .. } in own.accesses.iter() {
            // One that could not read again may not be there any more.
            let Some(open) = self.keys.get_mut(key) else { continue };
            open.readers.retain(|(reader, _)| *reader != txn);
            open.written.retain(|(writer, _)| *writer != txn);
            let stamp = Stamp::assigned(txn);
            let readers = open.readers.iter().filter(|(_, read)| *read == stamp);
            affected.extend(readers.map(|(reader, _)| (*reader, key.clone())));
            if open.is_over() {
                self.keys.remove(key);
            }
        }
        affected
    }

    /// What a transaction has read will not be committed. It reads the version before that, if it is kept and nothing was written
    /// because of what it had read.
    fn read_again(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) -> bool {
        if self.txns.get(&txn).is_some_and(|own| own.modified.contains(key)) {
            return false;
        }
        let open = self.keys.get_mut(key).expect("a key that a transaction is at");
        open.readers.retain(|(reader, _)| *reader != txn);
        self.read(txn, key, desk).is_some()
    }

    /// Whether what a part has read was never committed, for certain, and is not about to be.
    fn is_void(&self, key: &Key, stamp: Stamp, desk: &mut Desk<'_>) -> bool {
        if self.keys.get(key).is_some_and(|open| open.is_open(stamp)) {
            return false;
        }
        let row = desk.row(key);
        let is_kept = row.versions().any(|version| version.stamp == stamp);
        !is_kept && row.versions().last().is_some_and(|oldest| oldest.stamp < stamp)
    }
}

impl Control for Versions {
    const NAME: &'static str = "mvto";
    const SUMMARY: &'static str =
        "multi-version timestamp ordering: reads the version of its time, and waits for it";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    const ROUNDS: Rounds = Rounds::Combined;
    const SNAPSHOTS: Snapshots = Snapshots::AtTimestamps;
    const KEEPS: Keeps = Keeps::Admitted;

    fn new(mutation: Mutated<Mutation>) -> Self {
        Versions { mutation, ..Versions::default() }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let txn = shot.txn;
        if let Err((key, after_us)) = self.execute_all(shot, desk) {
            self.end(txn, false, desk);
            return desk.refused_until(txn, vec![key], after_us);
        }
        let own = self.txns.get_or_default(&txn);
        match shot.participants {
            Some(_) => {
                own.has_part = true;
                desk.executed(txn);
            }
            None => own.shots.push((shot.number, shot.reads.clone())),
        }
        self.release(txn, desk);
    }

    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        self.txns.get(&txn)?.accesses.found(keys, desk)
    }

    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        let own = self.txns.get(&txn).filter(|own| own.has_part)?;
        let at = Stamp::assigned(txn);
        Some((Validity::at(at), own.accesses.items(at)))
    }

    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>) {
        self.end(txn, false, desk);
    }

    fn decided(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>) {
        self.end(txn, committed.is_some(), desk);
    }

    fn glance(&mut self, key: &Key, as_of: AsOf, desk: &mut Desk<'_>) -> Glance {
        let AsOf::Time(txn) = as_of else { return Glance::Refused { anew: false } };
        let at = Stamp::assigned(txn);
        let Some(committed) = desk.row(key).versions().find(|version| version.stamp < at) else {
            return Glance::Refused { anew: false };
        };
        if !self.mutation.is(Mutation::SnapshotsUnchecked) {
            self.marks.mark(key, txn);
        }
        let open = self.keys.get(key).and_then(|open| open.before(txn));
        let (stamp, value) = match open {
            Some((writer, value)) if Stamp::assigned(*writer) > committed.stamp => {
                if !self.mutation.is(Mutation::ReadsAnsweredAtOnce) {
                    return Glance::Waits(*writer);
                }
                (Stamp::assigned(*writer), value)
            }
            _ => (committed.stamp, &committed.value),
        };
        Glance::Found(Found { version: stamp.version(), value: value.clone() })
    }

    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for part @ Part { txn, items, .. } in parts {
            for Item { key, read, write } in items {
                let open = self.keys.get_or_default(key);
                open.readers.extend(read.map(|stamp| (*txn, stamp)));
                if let Some(write) = write {
                    open.write(*txn, write.value.clone());
                }
            }
            let accesses = Accesses::inherited(part);
            let both = items.iter().filter(|item| item.read.is_some() && item.write.is_some());
            let modified = both.map(|item| item.key.clone()).collect();
            self.txns.insert(*txn, Txn { accesses, modified, has_part: true, ..Txn::default() });
        }
        // All read again that can, before the others are refused, and before anything is answered.
        let (mut again, mut cannot) = (Vec::new(), Vec::new());
        for Part { txn, items, .. } in parts {
            for Item { key, read, .. } in items {
                if read.is_some_and(|stamp| self.is_void(key, stamp, desk)) {
                    match self.read_again(*txn, key, desk) {
                        true => again.push(*txn),
                        false => cannot.push((*txn, key)),
                    }
                }
            }
        }
        for (txn, key) in cannot {
            // It may have been refused with another one.
            if self.txns.contains_key(&txn) {
                self.end(txn, false, desk);
                desk.refused(txn, vec![key.clone()]);
            }
        }
        again.dedup();
        for txn in again.into_iter().filter(|txn| self.txns.contains_key(txn)) {
            desk.executed(txn);
        }
        for Part { txn, .. } in parts {
            self.release(*txn, desk);
        }
    }
}
