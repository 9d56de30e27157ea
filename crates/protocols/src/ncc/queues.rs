//! Non-blocking execution, response timing control and smart retry (003 Algorithms 5.2 to 5.4).

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serried_actor::{Contention, Turns};
use serried_model::{Guarantee, Key, Modification, Modify, Value, Version};
use serried_parts::Map;
use smallvec::SmallVec;

use super::chain::{Chain, Link, Origin};
use super::intents::{Intents, Turn};
use crate::Mutated;
use crate::frameworks::shard::{
    AsOf, Control, Desk, Found, Glance, Item, Mutation, Part, Program, Ran, Results, Rounds, Shot,
    Snapshots, Stamp, Validity, Written,
};

/// With so many accesses, a transaction finds them by an index.
const INDEXED_FROM: usize = 32;

/// The keys of a shard that transactions are at, and those transactions.
pub struct Queues<const READ_ONLY: bool> {
    pub(super) chains: Map<Key, Chain>,
    pub(super) txns: Map<Version, Txn>,
    intents: Intents,
    /// Those whose turn has come at a key, and who have not gone on yet.
    next: VecDeque<Version>,
    goes_on: bool,
    /// By transaction whose end is not in the rows yet, the keys that it has accessed, and whether it has written them.
    placed: Map<Version, SmallVec<[(Key, bool); 4]>>,
    mutation: Mutated<Mutation>,
}

impl<const READ_ONLY: bool> fmt::Debug for Queues<READ_ONLY> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, txns, intents) = (self.chains.len(), self.txns.len(), self.intents.len());
        write!(f, "Queues of {keys} keys, {intents} of them read for update, {txns} transactions")
    }
}

/// A transaction that is not over.
#[derive(Default)]
pub(super) struct Txn {
    pub(super) accesses: SmallVec<[Access; 4]>,
    /// The places of all accesses by their keys, if there are many. Of several accesses to a key, the place of the first.
    places: BTreeMap<Key, usize>,
    /// The shots that were not released, but for the last.
    shots: SmallVec<[u16; 1]>,
    /// Its last shot was executed.
    pub(super) has_part: bool,
    settled: bool,
    /// The programs of its shots, in their order.
    pub(super) programs: SmallVec<[(u16, Arc<dyn Program>); 1]>,
    /// What they have returned.
    pub(super) results: Results,
    /// Whether a shot that is not the last was released. What it has read can't change any more.
    pub(super) was_released: bool,
    /// Whether its programs ran under a former leader. They can't be run again.
    pub(super) is_inherited: bool,
    /// Whether all that it has done was withdrawn, and is about to be done again.
    pub(super) is_withdrawn: bool,
    /// The keys that it reads for update, now or when its turn comes.
    intends: SmallVec<[Key; 1]>,
    /// Shots that wait for its turn at a key.
    waiting: Vec<Shot>,
}

/// What it has done to a key.
pub(super) struct Access {
    pub(super) key: Key,
    pub(super) shot: u16,
    pub(super) read: Option<Read>,
    /// When what it has written takes effect.
    pub(super) written: Option<Stamp>,
    pub(super) released: bool,
}

/// What it has read there.
pub(super) struct Read {
    /// Which version.
    pub(super) stamp: Stamp,
    /// Until when that was the most recent one, at least.
    until: Stamp,
}

impl Txn {
    fn place(&self, key: &Key) -> Option<usize> {
        match self.places.is_empty() {
            true => self.accesses.iter().position(|access| access.key == *key),
            false => self.places.get(key).copied(),
        }
    }

    fn add(&mut self, access: Access) {
        self.accesses.push(access);
        if self.accesses.len() < INDEXED_FROM {
            return;
        }
        let indexed = if self.places.is_empty() { 0 } else { self.accesses.len() - 1 };
        for (place, access) in self.accesses.iter().enumerate().skip(indexed) {
            self.places.entry(access.key.clone()).or_insert(place);
        }
    }

    pub(super) fn access(&mut self, key: &Key) -> Option<&mut Access> {
        let place = self.place(key)?;
        Some(&mut self.accesses[place])
    }

    /// The access to a key. If there is none, this shot makes it.
    pub(super) fn access_at(&mut self, key: &Key, shot: u16) -> &mut Access {
        let place = self.place(key);
        let place = place.unwrap_or_else(|| {
            let key = key.clone();
            self.add(Access { key, shot, read: None, written: None, released: false });
            self.accesses.len() - 1
        });
        &mut self.accesses[place]
    }
}

impl Access {
    /// The version that the transaction sees at the key.
    pub(super) fn version(&self) -> Option<Stamp> {
        self.written.or_else(|| self.read.as_ref().map(|read| read.stamp))
    }
}

impl<const READ_ONLY: bool> Queues<READ_ONLY> {
    pub(super) fn chain<'a>(&'a mut self, key: &Key, desk: &mut Desk<'_>) -> &'a mut Chain {
        if !self.chains.contains_key(key) {
            self.chains.insert(key.clone(), Chain::new(desk.row(key)));
        }
        self.chains.get_mut(key).expect("it is there")
    }

    /// Reads the most recent version, unless that might wait for one who waits for this transaction (003 §5.2,
    /// "early abort").
    pub(super) fn read(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) -> Option<Read> {
        let may_wait = self.mutation.is(Mutation::NoEarlyAbort);
        let chain = self.chain(key, desk);
        if !chain.answers_read() && chain.has_younger(txn, false) && !may_wait {
            return None;
        }
        let tail = chain.tail();
        tail.read_at = tail.read_at.max(Stamp::assigned(txn));
        tail.readers.push(txn);
        Some(Read { stamp: tail.stamp, until: tail.read_at })
    }

    /// Makes a new version, with the same exception; and only if what the transaction has read of the key is the
    /// most recent one (003 §5.1, "a single logical request").
    pub(super) fn write(
        &mut self,
        txn: Version,
        key: &Key,
        (value, origin): (Option<Value>, Origin),
        desk: &mut Desk<'_>,
    ) -> Option<Stamp> {
        let may_wait = self.mutation.is(Mutation::NoEarlyAbort);
        let access = self.txns.get_mut(&txn).and_then(|own| own.access(key));
        let read = access.and_then(|access| access.read.as_ref()).map(|read| read.stamp);
        let chain = self.chain(key, desk);
        if read.is_some_and(|stamp| stamp != chain.tail().stamp) {
            return None;
        }
        if !chain.answers_write(txn) && chain.has_younger(txn, true) && !may_wait {
            return None;
        }
        // What it has read itself does not put it off, but it comes after what was written.
        let tail = chain.tail();
        let stamp = tail.read_at.next_of(txn).max(tail.stamp.next_of(txn));
        chain.insert(Link::written(txn, stamp, value, origin));
        Some(stamp)
    }

    /// Executes the requests of a shot; else the key at which that can't be done.
    fn execute_all(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), Key> {
        let Shot { txn, number, reads, writes, modifies, .. } = shot;
        let written = |own: &Txn| own.accesses.iter().any(|access| access.written.is_some());
        let is_last = shot.participants.is_some();
        if is_last && !reads.is_empty() && self.txns.get(txn).is_some_and(written) {
            return Err(reads[0].clone()); // A correct client's last shot is the only one that writes.
        }
        for key in reads {
            let read = self.read(*txn, key, desk).ok_or_else(|| key.clone())?;
            let (read, key) = (Some(read), key.clone());
            let access = Access { key, shot: *number, read, written: None, released: false };
            self.txns.get_or_default(txn).add(access);
        }
        for write in writes {
            let key = &write.key;
            let stamp = self.write(*txn, key, (write.value.clone(), Origin::Given), desk);
            let written = Some(stamp.ok_or_else(|| key.clone())?);
            let access = self.txns.get_or_default(txn).access_at(key, *number);
            access.written = written;
            access.released = false;
        }
        for Modify { key, modifications } in modifies {
            self.modify((*txn, *number), key, modifications, desk).ok_or_else(|| key.clone())?;
        }
        Ok(())
    }

    /// Modifies the most recent version, with the same exception. That is a single logical request (003 §5.1): the version that
    /// is made follows from the one that is read.
    fn modify(
        &mut self,
        (txn, number): (Version, u16),
        key: &Key,
        modifications: &[Modification],
        desk: &mut Desk<'_>,
    ) -> Option<()> {
        let own = self.txns.get_or_default(&txn);
        if own.access(key).is_some_and(|access| access.written.is_some()) {
            return None; // No correct client writes and modifies one key.
        }
        if own.access(key).is_none_or(|access| access.read.is_none()) {
            let read = self.read(txn, key, desk)?;
            self.txns.get_or_default(&txn).access_at(key, number).read = Some(read);
        }
        let before = self.chain(key, desk).tail().value.as_ref();
        let value = Modification::apply_all(modifications, before);
        let made = (value, Origin::Modified(modifications.to_vec()));
        let written = self.write(txn, key, made, desk)?;
        let access = self.txns.get_or_default(&txn).access_at(key, number);
        access.written = Some(written);
        access.released = false;
        Some(())
    }

    /// Says what can be answered of a transaction (003 Algorithm 5.3).
    pub(super) fn release(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let at_once = self.mutation.is(Mutation::NoResponseTimingControl);
        let waits = |own: &&mut Txn| !own.settled && !own.is_withdrawn;
        let Some(own) = self.txns.get_mut(&txn).filter(waits) else { return };
        for access in own.accesses.iter_mut().filter(|access| !access.released) {
            let chain = self.chains.get(&access.key);
            access.released = at_once
                || chain.is_none_or(|chain| match (&access.read, access.written) {
                    (_, Some(_)) => chain.is_next(txn),
                    (Some(read), None) => chain.is_committed(read.stamp),
                    (None, None) => true,
                });
        }
        let Txn { accesses, shots, was_released, .. } = own;
        shots.retain(|number| {
            let waits = accesses.iter().any(|access| access.shot == *number && !access.released);
            if !waits {
                *was_released = true;
                desk.released(txn, *number);
            }
            waits
        });
        if own.has_part && accesses.iter().all(|access| access.released) {
            own.settled = true;
            desk.settled(txn);
        }
    }

    /// A transaction is over.
    fn end(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>) {
        let Some(mut own) = self.txns.remove(&txn) else { return };
        let intends = core::mem::take(&mut own.intends);
        self.end_accesses(txn, own, committed, desk);
        self.leave_intents(txn, &intends, desk);
    }

    fn end_accesses(
        &mut self,
        txn: Version,
        own: Txn,
        committed: Option<Stamp>,
        desk: &mut Desk<'_>,
    ) {
        if desk.runs_calls() && !self.mutation.is(Mutation::KeepsOldWrites) {
            return self.end_call(txn, own, committed, desk);
        }
        let mut keys = BTreeSet::new();
        let again = self.leave(txn, own, committed, &mut keys);
        self.read_all_again(again, &mut keys, desk);
        self.tidy(keys, desk);
    }

    /// A transaction that is over leaves its keys. Returns the reads that others have to make again.
    fn leave(
        &mut self,
        txn: Version,
        own: Txn,
        committed: Option<Stamp>,
        keys: &mut BTreeSet<Key>,
    ) -> Vec<(Version, Key)> {
        let mut again = Vec::new();
        for Access { key, read, written, .. } in own.accesses {
            if committed.is_some() {
                self.place(txn, &key, written.is_some());
            }
            // It is there, unless responses leave too early.
            let Some(chain) = self.chains.get_mut(&key) else { continue };
            if read.is_some() {
                chain.remove_reader(txn);
            }
            match (written, committed) {
                (Some(_), Some(at)) => chain.commit(txn, at),
                (Some(_), None) => {
                    let readers =
                        chain.abort(txn).map_or_else(SmallVec::new, |(readers, _)| readers);
                    again.extend(readers.into_iter().map(|reader| (reader, key.clone())));
                }
                (None, _) => {}
            }
            keys.insert(key);
        }
        again
    }

    /// What transactions have read was aborted. They read again (003 §5.2, "fixing reads locally"). One that can't is refused,
    /// and others may have read what it has written. Nothing is answered before all have read. Adds the keys that are left
    /// to `keys`.
    fn read_all_again(
        &mut self,
        reads: Vec<(Version, Key)>,
        keys: &mut BTreeSet<Key>,
        desk: &mut Desk<'_>,
    ) {
        let mut reads = VecDeque::from(reads);
        let (mut readers, mut refused) = (Vec::new(), Vec::new());
        while let Some((txn, key)) = reads.pop_front() {
            // One that has read several such versions may have been refused.
            if !self.txns.contains_key(&txn) {
                continue;
            }
            if let Some(changed) = self.read_again(txn, &key, desk) {
                readers.push(txn);
                readers.extend(changed);
            } else if let Some(mut own) = self.txns.remove(&txn) {
                let intends = core::mem::take(&mut own.intends);
                reads.extend(self.leave(txn, own, None, keys));
                desk.refused(txn, vec![key]);
                refused.push((txn, intends));
            }
        }
        // The latest comes first in the log. If one of the new parts is lost with this leader, so are those that it follows
        // from. Then the next leader finds that what these had read is not there, and refuses them and what follows from them.
        readers.sort_unstable();
        readers.dedup();
        for txn in readers.iter().rev() {
            if self.txns.get(txn).is_some_and(|own| own.has_part) {
                desk.executed(*txn);
            }
        }
        for txn in readers {
            self.release(txn, desk);
        }
        // Whose turn it is then may end, and others be released because of that. So all must have read before.
        for (txn, intends) in refused {
            self.leave_intents(txn, &intends, desk);
        }
    }

    /// Returns `None` if the transaction can't read the key again; else the transactions that write something else because of
    /// that.
    fn read_again(
        &mut self,
        txn: Version,
        key: &Key,
        desk: &mut Desk<'_>,
    ) -> Option<SmallVec<[Version; 2]>> {
        let access = self.txns.get_mut(&txn).and_then(|own| own.access(key));
        let (keeps, twice) = (
            self.mutation.is(Mutation::KeepsOldModifications),
            self.mutation.is(Mutation::ModifiesTwice),
        );
        let mut changed = SmallVec::new();
        let read = match access.is_some_and(|access| access.written.is_some()) {
            // Its own version comes next, so it has read the one before that.
            true => {
                let before = self.before_own(txn, key, desk);
                let chain = self.chain(key, desk);
                changed = match keeps {
                    true => SmallVec::new(),
                    false => chain.make_anew(txn, twice)?,
                };
                chain.of(before).map(|link| {
                    link.readers.push(txn);
                    Read { stamp: link.stamp, until: link.read_at }
                })
            }
            false => self.read(txn, key, desk),
        };
        let can = read.is_some().then_some(changed);
        if let Some(access) = self.txns.get_mut(&txn).and_then(|own| own.access(key)) {
            access.read = read;
        }
        can
    }

    /// Whether an access can be had at another moment (003 Algorithm 5.4).
    fn can_move(&mut self, access: &Access, to: Stamp) -> bool {
        let unchecked = self.mutation.is(Mutation::MovesUnchecked);
        let Some(chain) = self.chains.get_mut(&access.key) else { return false };
        let stamp = match (access.written, &access.read) {
            (Some(stamp), _) => stamp,
            (None, Some(read)) if to <= read.until => return true,
            (None, Some(read)) => read.stamp,
            (None, None) => return true,
        };
        if stamp == to {
            return true;
        }
        let overtaken = chain.after(stamp).is_some_and(|next| next.us <= to.us);
        let Some(link) = chain.of(stamp) else { return false };
        // A transaction that began earlier has left no trace in the timestamps.
        let was_read = link.read_at != link.stamp || !link.readers.is_empty();
        let was_read = access.written.is_some() && was_read;
        (!overtaken || unchecked) && !was_read
    }
}

impl<const READ_ONLY: bool> Control for Queues<READ_ONLY> {
    const NAME: &'static str = if READ_ONLY { "ncc" } else { "ncc-rw" };
    const SUMMARY: &'static str = if READ_ONLY {
        "executes at once in the order of arrival, and answers when that is safe"
    } else {
        "ncc without its protocol for read-only transactions"
    };
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    const ROUNDS: Rounds = Rounds::Combined;
    const READS_COMMITTED: bool = false;
    const RELEASES_EARLY: bool = true;
    const CONTENTION: Option<Contention> =
        Some(Contention { turns: Turns::ForUpdate, merges: true, ..Contention::LED });
    const SNAPSHOTS: Snapshots = if READ_ONLY { Snapshots::OfKnown } else { Snapshots::Never };

    fn new(mutation: Mutated<Mutation>) -> Self {
        let (chains, txns, intents, next, placed) = Default::default();
        Queues { chains, txns, intents, next, goes_on: false, placed, mutation }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let txn = shot.txn;
        if shot.participants.is_some() {
            // The program has ended, and does not need what it still waits for.
            self.txns.get_or_default(&txn).waiting.clear();
            if self.has_to_wait(shot) {
                return self.txns.get_or_default(&txn).waiting.push(shot.clone());
            }
        } else if !self.has_turn(shot) {
            return self.txns.get_or_default(&txn).waiting.push(shot.clone());
        }
        if let Err(key) = self.execute_all(shot, desk) {
            self.end(txn, None, desk);
            return desk.refused(txn, vec![key]);
        }
        let passed_on = self.passes_on(shot);
        self.end_shot(shot, desk);
        self.leave_intents(txn, &passed_on, desk);
    }

    fn run(&mut self, shot: &Shot, program: Arc<dyn Program>, desk: &mut Desk<'_>) {
        let (txn, number) = (shot.txn, shot.number);
        if let Err(key) = self.run_program(txn, number, &*program, desk) {
            self.end(txn, None, desk);
            return desk.refused(txn, vec![key]);
        }
        self.txns.get_or_default(&txn).programs.push((number, program));
        self.end_shot(shot, desk);
    }

    fn ran(&self, txn: Version, shot: Option<u16>) -> Ran {
        self.txns.get(&txn).map_or_else(Ran::default, |own| own.results.of(shot))
    }

    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        let own = self.txns.get_mut(&txn)?;
        let found = keys.iter().map(|key| {
            let read = own.access(key)?.read.as_ref()?;
            let chain = self.chains.get_mut(key)?;
            if let Some(link) = chain.of(read.stamp) {
                return Some(Found { version: link.stamp.version(), value: link.value.clone() });
            }
            let newest = desk.row(key).newest();
            (newest.stamp == read.stamp).then(|| desk.newest(key))
        });
        found.collect()
    }

    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        let own = self.txns.get(&txn)?;
        let mut validity = Validity::ALWAYS;
        let mut items = Vec::with_capacity(own.accesses.len());
        for Access { key, read, written, .. } in &own.accesses {
            let holds = match (written, read) {
                (Some(at), _) => Validity::at(*at),
                (None, Some(read)) => Validity { from: read.stamp, until: Some(read.until) },
                (None, None) => Validity::ALWAYS,
            };
            validity = validity.and(holds);
            let write = written.map(|at| {
                let link = self.chains.get_mut(key).and_then(|chain| chain.of(at));
                Written { value: link.and_then(|link| link.value.clone()), at }
            });
            items.push(Item {
                key: key.clone(),
                read: read.as_ref().map(|read| read.stamp),
                write,
            });
        }
        Some((validity, items))
    }

    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>) {
        self.end(txn, None, desk);
    }

    fn decided(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>) {
        self.end(txn, committed, desk);
    }

    fn is_in_rows(&mut self, txn: Version, _: &mut Desk<'_>) {
        for (key, has_written) in self.placed.remove(&txn).into_iter().flatten() {
            let chain = self.chains.get_mut(&key).expect("its row lacked something");
            chain.is_in_row(has_written);
            if chain.is_over() {
                self.chains.remove(&key);
            }
        }
    }

    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for Part { txn, items, .. } in parts {
            for item in items {
                let write = item.write.clone();
                if let Some(Written { value, at }) = write {
                    let origin = item.read.map_or(Origin::Given, |_| Origin::Inherited);
                    let chain = self.chain(&item.key, desk);
                    chain.insert(Link::written(*txn, at, value, origin));
                }
            }
        }
        for Part { txn, items, validity, .. } in parts {
            let until = validity.until.map_or(validity.from, |until| until.max(validity.from));
            for item in items {
                let read = item.read.and_then(|stamp| {
                    let link = self.chain(&item.key, desk).of(stamp)?;
                    link.read_at = link.read_at.max(until);
                    link.readers.push(*txn);
                    // Its part may begin where it writes, beyond the moments at which this holds.
                    let until = validity.until.map_or(stamp, |until| until.max(stamp));
                    Some(Read { stamp, until })
                });
                let access = Access {
                    key: item.key.clone(),
                    shot: 0,
                    read,
                    written: item.write.as_ref().map(|write| write.at),
                    released: false,
                };
                let own = self.txns.get_or_default(txn);
                own.add(access);
                own.has_part = true;
                own.is_inherited = true;
            }
        }
        let (mut again, mut keys) = (Vec::new(), BTreeSet::new());
        for Part { txn, items, .. } in parts {
            for item in items.iter().filter(|item| item.read.is_some()) {
                let access = self.txns.get_mut(txn).and_then(|own| own.access(&item.key));
                if access.is_some_and(|access| access.read.is_none()) {
                    // What it has written may depend on what it had read.
                    if desk.runs_calls() {
                        desk.refused(*txn, vec![item.key.clone()]);
                        self.end(*txn, None, desk);
                        break;
                    }
                    if item.write.is_some()
                        && let Some(own) = self.txns.remove(txn)
                    {
                        desk.refused(*txn, vec![item.key.clone()]);
                        // Others are answered when all have read again.
                        again.extend(self.leave(*txn, own, None, &mut keys));
                        break;
                    }
                    // What it had read was never ready to commit, so it was not shown to any client.
                    again.push((*txn, item.key.clone()));
                }
            }
        }
        self.read_all_again(again, &mut keys, desk);
        self.tidy(keys, desk);
        for Part { txn, .. } in parts {
            self.release(*txn, desk);
        }
    }

    fn reposition(&mut self, txn: Version, to: Stamp, desk: &mut Desk<'_>) -> bool {
        let Some(mut own) = self.txns.remove(&txn) else { return false };
        let can = own.accesses.iter().all(|access| self.can_move(access, to));
        if can {
            for access in &mut own.accesses {
                let Some(chain) = self.chains.get_mut(&access.key) else { continue };
                if let Some(stamp) = &mut access.written {
                    if let Some(link) = chain.of(*stamp) {
                        link.stamp = to;
                        link.read_at = link.read_at.max(to);
                        *stamp = to;
                    }
                } else if let Some(read) = &mut access.read {
                    if let Some(link) = chain.of(read.stamp) {
                        link.read_at = link.read_at.max(to);
                    }
                    read.until = read.until.max(to);
                }
            }
            desk.executed(txn);
        }
        self.txns.insert(txn, own);
        can
    }

    fn glance(&mut self, key: &Key, as_of: AsOf, desk: &mut Desk<'_>) -> Glance {
        let AsOf::Slot(known) = as_of else { return Glance::Refused { anew: false } };
        let is_being_written = self.chains.get(key).is_some_and(Chain::is_being_written);
        let newest = desk.row(key).newest();
        let has_changed = is_being_written || newest.since > known;
        if has_changed && !self.mutation.is(Mutation::SnapshotsUnchecked) {
            return Glance::Refused { anew: !is_being_written };
        }
        Glance::Found(Found { version: newest.stamp.version(), value: newest.value.clone() })
    }
}

impl<const READ_ONLY: bool> Queues<READ_ONLY> {
    /// The version before the one that a transaction has written, if it has.
    fn before_own(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) -> Stamp {
        self.chain(key, desk).before(txn).unwrap_or(Stamp::INITIAL)
    }
}

impl<const READ_ONLY: bool> Queues<READ_ONLY> {
    /// A transaction commits what it has done to a key, and is not in the key's row yet.
    pub(super) fn place(&mut self, txn: Version, key: &Key, has_written: bool) {
        if self.mutation.is(Mutation::ForgetsPlaced) {
            return;
        }
        if let Some(chain) = self.chains.get_mut(key) {
            chain.place(has_written);
            self.placed.get_or_default(&txn).push((key.clone(), has_written));
        }
    }

    /// Whether a shot may be executed now, as far as its reads for update are concerned. Otherwise it is when its turn comes.
    fn has_turn(&mut self, shot: &Shot) -> bool {
        let for_update = &shot.reads[..shot.for_update as usize];
        for_update.iter().all(|key| {
            let turn = self.intents.take(key, shot.txn);
            let own = self.txns.get_or_default(&shot.txn);
            if turn != Turn::Without && !own.intends.contains(key) {
                own.intends.push(key.clone());
            }
            turn != Turn::Waits
        })
    }

    /// Whether the modifications of a last shot have to wait for transactions that have read for update.
    fn has_to_wait(&mut self, shot: &Shot) -> bool {
        let mut waits = false;
        for Modify { key, .. } in &shot.modifies {
            let own = self.txns.get_or_default(&shot.txn);
            if !own.intends.contains(key) && self.intents.has_earlier(key, shot.txn) {
                own.intends.push(key.clone());
            }
            waits |= own.intends.contains(key) && self.intents.take(key, shot.txn) == Turn::Waits;
        }
        waits
    }

    /// The turns that a last shot does not need any more, since it is executed: those at keys that it has modified.
    fn passes_on(&mut self, shot: &Shot) -> SmallVec<[Key; 1]> {
        let mut keys = SmallVec::new();
        if let Some(own) = self.txns.get_mut(&shot.txn)
            && !own.intends.is_empty()
        {
            own.intends.retain(|key| {
                let is_modified = shot.modifies.iter().any(|modify| modify.key == *key);
                keys.extend(is_modified.then(|| key.clone()));
                !is_modified
            });
        }
        keys
    }

    /// A transaction that has intended to write these keys is over. Those go on whose turn comes.
    fn leave_intents(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) {
        self.next.extend(self.intents.leave(txn, keys));
        // One that goes on may be refused, and then others go on.
        if core::mem::replace(&mut self.goes_on, true) {
            return;
        }
        while let Some(next) = self.next.pop_front() {
            let Some(own) = self.txns.get_mut(&next) else { continue };
            for shot in core::mem::take(&mut own.waiting) {
                // It may be refused over the first of them.
                if self.txns.contains_key(&next) {
                    self.execute(&shot, desk);
                }
            }
        }
        self.goes_on = false;
    }

    /// The requests of a shot were executed.
    fn end_shot(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let txn = shot.txn;
        let own = self.txns.get_or_default(&txn);
        match shot.participants {
            Some(_) => {
                own.has_part = true;
                desk.executed(txn);
            }
            None => own.shots.push(shot.number),
        }
        self.release(txn, desk);
    }
}
