//! The locks of a shard, and what transactions do under them.

use core::fmt;

use serried_model::{Guarantee, Key, Value, Version};
use serried_parts::{LockMode, LockTable, Map};
use smallvec::SmallVec;

use crate::Mutated;
use crate::frameworks::shard::{
    Accesses, Control, Desk, Found, Item, Mutation, Part, Read, Rounds, Shot, Stamp, Validity,
};

/// The keys of a shard that are locked, and the transactions that have locked them or wait; they wait only if
/// `WAITS`.
pub struct Locking<const WAITS: bool> {
    locks: LockTable<Key, Version>,
    txns: Map<Version, Txn>,
    mutation: Mutated<Mutation>,
}

impl<const WAITS: bool> fmt::Debug for Locking<WAITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locking of {} keys by {} transactions", self.locks.len(), self.txns.len())
    }
}

/// A transaction that is not over.
struct Txn {
    /// The first moment at which all that it has done can hold.
    from: Stamp,
    /// What it has locked.
    accesses: Accesses,
    /// What it waits for.
    wants: SmallVec<[Want; 1]>,
    /// The shots that wait.
    shots: SmallVec<[u16; 1]>,
    /// Its last shot was executed: it waits for nothing, and can't be wounded.
    has_part: bool,
}

/// What a shot does to a key, for which it needs a lock.
struct Want {
    shot: u16,
    key: Key,
    /// What it writes; none if it reads.
    write: Option<Option<Value>>,
}

impl Want {
    fn mode(&self) -> LockMode {
        mode(self.write.as_ref())
    }
}

fn mode(write: Option<&Option<Value>>) -> LockMode {
    match write {
        Some(_) => LockMode::Exclusive,
        None => LockMode::Shared,
    }
}

/// Writes come first, as a read needs nothing more than they do.
fn wants(shot: &Shot) -> impl Iterator<Item = Want> {
    let number = shot.number;
    let writes = shot.writes.iter().map(move |write| Want {
        shot: number,
        key: write.key.clone(),
        write: Some(write.value.clone()),
    });
    let read = move |key: &Key| Want { shot: number, key: key.clone(), write: None };
    writes.chain(shot.reads.iter().map(read))
}

impl Txn {
    fn new(txn: Version) -> Txn {
        Txn {
            from: Stamp::assigned(txn),
            accesses: Accesses::default(),
            wants: SmallVec::new(),
            shots: SmallVec::new(),
            has_part: false,
        }
    }

    /// It has the lock that it needs.
    fn take(&mut self, txn: Version, want: Want, desk: &mut Desk<'_>) {
        let newest = desk.row(&want.key).newest();
        self.from = self.from.max(newest.stamp.next_of(txn));
        if want.write.is_some() {
            self.from = self.from.max(newest.read_at.next_of(txn));
        }
        let access = self.accesses.of_mut(&want.key);
        match want.write {
            None => access.read = Some(Read::newest(&want.key, desk)),
            write => access.write = write,
        }
    }
}

impl<const WAITS: bool> Locking<WAITS> {
    fn txn(&mut self, txn: Version) -> &mut Txn {
        self.txns.get_mut(&txn).unwrap_or_else(|| panic!("transaction {txn} has locked nothing"))
    }

    fn needs_no_lock(&self, want: &Want) -> bool {
        want.write.is_none() && self.mutation.is(Mutation::ReadsUnlocked)
    }

    fn can_be_wounded(&mut self, holder: Version) -> bool {
        !self.txn(holder).has_part || self.mutation.is(Mutation::WoundsPrepared)
    }

    /// Takes the locks that a shot needs; else the key of the first that can't be had without waiting.
    fn lock_at_once(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), Key> {
        let txn = shot.txn;
        for want in wants(shot) {
            if !self.needs_no_lock(&want) && !self.locks.try_lock(&want.key, txn, want.mode()) {
                return Err(want.key);
            }
            self.txn(txn).take(txn, want, desk);
        }
        Ok(())
    }

    /// Takes the locks that a shot needs, or waits for them.
    fn lock_or_wait(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let (txn, number) = (shot.txn, shot.number);
        let mut waits: SmallVec<[Key; 4]> = SmallVec::new();
        for want in wants(shot) {
            if self.needs_no_lock(&want) || self.locks.lock(&want.key, txn, want.mode()) {
                self.txn(txn).take(txn, want, desk);
            } else {
                waits.push(want.key.clone());
                self.txn(txn).wants.push(want);
            }
        }
        // It is in all queues by now, so nobody younger gets what it frees.
        for key in waits {
            for holder in self.locks.in_the_way_of(&key, txn) {
                if holder > txn && self.can_be_wounded(holder) {
                    self.end(holder, desk);
                    desk.refused(holder, vec![key.clone()]);
                }
            }
        }
        let own = self.txn(txn);
        match own.wants.iter().any(|want| want.shot == number) {
            true => own.shots.push(number),
            false => desk.released(txn, number),
        }
    }

    /// A transaction has got a lock for which it has waited.
    fn granted(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) {
        let own = self.txn(txn);
        for want in core::mem::take(&mut own.wants) {
            if want.key == *key {
                own.take(txn, want, desk);
            } else {
                own.wants.push(want);
            }
        }
        let wants = &own.wants;
        own.shots.retain(|number| {
            let waits = wants.iter().any(|want| want.shot == *number);
            if !waits {
                desk.released(txn, *number);
            }
            waits
        });
    }

    /// The program has ended, and does not need what it still waits for.
    fn stop_waiting(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let own = self.txn(txn);
        own.shots.clear();
        for want in core::mem::take(&mut own.wants) {
            for next in self.locks.stop_waiting(&want.key, txn) {
                self.granted(next, &want.key, desk);
            }
        }
    }

    /// A transaction is over.
    fn end(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let Some(own) = self.txns.remove(&txn) else { return };
        let locked = own.accesses.iter().map(|access| &access.key);
        for key in locked.chain(own.wants.iter().map(|want| &want.key)) {
            for next in self.locks.release(key, txn) {
                self.granted(next, key, desk);
            }
        }
    }
}

impl<const WAITS: bool> Control for Locking<WAITS> {
    const NAME: &'static str =
        if WAITS { "two-phase-locking-wound-wait" } else { "two-phase-locking-no-wait" };
    const SUMMARY: &'static str = if WAITS {
        "locks what it reads and writes; waits for older transactions and has younger ones abort"
    } else {
        "locks what it reads and writes, and aborts where it would have to wait"
    };
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    const ROUNDS: Rounds = if WAITS { Rounds::ExecuteFirst } else { Rounds::Combined };

    fn new(mutation: Mutated<Mutation>) -> Self {
        Locking { locks: LockTable::default(), txns: Map::default(), mutation }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let txn = shot.txn;
        if !self.txns.contains_key(&txn) {
            self.txns.insert(txn, Txn::new(txn));
        }
        let is_last = shot.participants.is_some();
        if WAITS && !is_last {
            return self.lock_or_wait(shot, desk);
        }
        self.stop_waiting(txn, desk);
        if let Err(key) = self.lock_at_once(shot, desk) {
            self.end(txn, desk);
            return desk.refused(txn, vec![key]);
        }
        if !is_last {
            return desk.released(txn, shot.number);
        }
        self.txn(txn).has_part = true;
        desk.executed(txn);
        desk.settled(txn);
    }

    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        self.txns.get(&txn)?.accesses.found(keys, desk)
    }

    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        let Txn { from, accesses, .. } = self.txns.get(&txn)?;
        Some((Validity { from: *from, until: None }, accesses.items(*from)))
    }

    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>) {
        self.end(txn, desk);
    }

    fn decided(&mut self, txn: Version, _: Option<Stamp>, desk: &mut Desk<'_>) {
        self.end(txn, desk);
    }

    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for part in parts {
            let txn = part.txn;
            let accesses = Accesses::inherited(part);
            for access in accesses.iter() {
                let mode = mode(access.write.as_ref());
                let can = self.locks.try_lock(&access.key, txn, mode);
                assert!(can, "transaction {txn} is ready to commit, and {} is locked", access.key);
            }
            let from = part.validity.from;
            self.txns.insert(txn, Txn { from, accesses, has_part: true, ..Txn::new(txn) });
            desk.settled(txn);
        }
    }
}
