//! The locks of a shard, and what transactions do under them.

use core::fmt;
use std::sync::Arc;

use serried_actor::{Contention, Turns};
use serried_model::{Guarantee, Key, Modification, Value, Version};
use serried_parts::{LockMode, LockTable, Map};
use smallvec::SmallVec;

use crate::Mutated;
use crate::frameworks::shard::{
    Accesses, Control, Desk, Found, Item, Mutation, Part, Placed, Program, Ran, Read, Results,
    Rounds, RunsCalls, Shot, Stamp, Validity, run,
};

/// The keys of a shard that are locked, and the transactions that have locked them or wait; they wait only if
/// `WAITS`.
pub struct Locking<const WAITS: bool> {
    locks: LockTable<Key, Owner>,
    txns: Map<Version, Txn>,
    /// What those have done that have released their locks, and whose ends are not in the rows yet.
    placed: Placed,
    mutation: Mutated<Mutation>,
}

impl<const WAITS: bool> fmt::Debug for Locking<WAITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locking of {} keys by {} transactions", self.locks.len(), self.txns.len())
    }
}

/// A transaction as the locks know it. The least one is the oldest. A transaction that is tried again keeps the version
/// of its first attempt as its age, so it becomes the oldest in time, and nobody wounds it any more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Owner {
    age: Version,
    txn: Version,
}

/// A transaction that is not over.
struct Txn {
    age: Version,
    /// The first moment at which all that it has done can hold.
    from: Stamp,
    /// The keys that it has locked.
    accesses: Accesses,
    /// The locks that it waits for.
    wants: SmallVec<[Want; 1]>,
    /// The shots that wait.
    shots: SmallVec<[u16; 1]>,
    /// The programs of shots that wait for locks. When such a shot waits for nothing any more, its program is run again.
    programs: SmallVec<[(u16, Arc<dyn Program>); 1]>,
    /// What its programs have returned.
    results: Results,
    /// Its last shot was executed: it waits for nothing, and can't be wounded.
    has_part: bool,
}

/// What a shot does to a key, for which it needs a lock.
struct Want {
    shot: u16,
    key: Key,
    action: Action,
}

/// What it does there.
enum Action {
    Read,
    /// Reads what the transaction may write later.
    ReadForUpdate,
    Write(Option<Value>),
    Modify(Vec<Modification>),
}

impl Action {
    fn read(may_write: bool) -> Action {
        if may_write { Action::ReadForUpdate } else { Action::Read }
    }
}

impl Want {
    fn mode(&self) -> LockMode {
        match self.action {
            Action::Read => LockMode::Shared,
            Action::ReadForUpdate | Action::Write(_) | Action::Modify(_) => LockMode::Exclusive,
        }
    }
}

fn mode(write: Option<&Option<Value>>) -> LockMode {
    match write {
        Some(_) => LockMode::Exclusive,
        None => LockMode::Shared,
    }
}

impl Txn {
    fn new(txn: Version, age: Version) -> Txn {
        Txn {
            age,
            from: Stamp::assigned(txn),
            accesses: Accesses::default(),
            wants: SmallVec::new(),
            shots: SmallVec::new(),
            programs: SmallVec::new(),
            results: Results::default(),
            has_part: false,
        }
    }

    /// It has the lock that it needs.
    fn take(&mut self, txn: Version, want: Want, placed: &Placed, desk: &mut Desk<'_>) {
        let writes = matches!(want.action, Action::Write(_) | Action::Modify(_));
        self.come_after(txn, &want.key, writes, placed, desk);
        let access = self.accesses.of_mut(&want.key);
        if let Action::Write(value) = want.action {
            access.write = Some(value);
            return;
        }
        let newest = placed.newest(&want.key, desk);
        let (stamp, value) = (newest.stamp, newest.value.clone());
        if let Action::Modify(modifications) = want.action {
            let before = access.write.as_ref().unwrap_or(&value).as_ref();
            access.write = Some(Modification::apply_all(&modifications, before));
        }
        access.read = Some(Read { stamp, found: Some(Found { version: stamp.version(), value }) });
    }

    /// It reads or writes a key, and so comes after what was done to it.
    fn come_after(
        &mut self,
        txn: Version,
        key: &Key,
        writes: bool,
        placed: &Placed,
        desk: &mut Desk<'_>,
    ) {
        let newest = placed.newest(key, desk);
        self.from = self.from.max(newest.stamp.next_of(txn));
        if writes {
            self.from = self.from.max(newest.read_at.next_of(txn));
        }
    }

    /// What a program reads: what its transaction has written, or the newest version.
    fn value(
        &mut self,
        txn: Version,
        key: &Key,
        placed: &Placed,
        desk: &mut Desk<'_>,
    ) -> Option<Value> {
        if self
            .accesses
            .of(key)
            .is_none_or(|access| access.read.is_none() && access.write.is_none())
        {
            let want = Want { shot: 0, key: key.clone(), action: Action::Read };
            self.take(txn, want, placed, desk);
        }
        self.accesses.of(key)?.value().cloned()
    }
}

impl<const WAITS: bool> Locking<WAITS> {
    fn txn(&mut self, txn: Version) -> &mut Txn {
        self.txns.get_mut(&txn).unwrap_or_else(|| panic!("transaction {txn} has locked nothing"))
    }

    /// An open transaction, as the locks know it.
    fn owner(&mut self, txn: Version) -> Owner {
        Owner { age: self.txn(txn).age, txn }
    }

    /// Has a transaction among the open ones, from its first shot on.
    fn open(&mut self, shot: &Shot) {
        let txn = shot.txn;
        if !self.txns.contains_key(&txn) {
            let age = match self.mutation.is(Mutation::AgesAnew) {
                true => txn,
                false => shot.age.unwrap_or(txn),
            };
            self.txns.insert(txn, Txn::new(txn, age));
        }
    }

    /// A transaction has the lock that it needs.
    fn take(&mut self, txn: Version, want: Want, desk: &mut Desk<'_>) {
        let own = self.txns.get_mut(&txn);
        let own = own.unwrap_or_else(|| panic!("transaction {txn} has locked nothing"));
        own.take(txn, want, &self.placed, desk);
    }

    /// What a shot needs. Writes come first, as a read needs nothing more than they do.
    ///
    /// Reads for update need exclusive locks. Without waiting they do not: a second reader would be refused at once,
    /// although the first one may be refused over another key before it writes.
    fn wants(shot: &Shot) -> impl Iterator<Item = Want> {
        let number = shot.number;
        let writes = shot.writes.iter().map(move |write| Want {
            shot: number,
            key: write.key.clone(),
            action: Action::Write(write.value.clone()),
        });
        let modifies = shot.modifies.iter().map(move |modify| Want {
            shot: number,
            key: modify.key.clone(),
            action: Action::Modify(modify.modifications.clone()),
        });
        let for_update = if WAITS { shot.for_update as usize } else { 0 };
        let read = move |(place, key): (usize, &Key)| Want {
            shot: number,
            key: key.clone(),
            action: Action::read(place < for_update),
        };
        writes.chain(modifies).chain(shot.reads.iter().enumerate().map(read))
    }

    fn needs_no_lock(&self, want: &Want) -> bool {
        want.mode() == LockMode::Shared && self.mutation.is(Mutation::ReadsUnlocked)
    }

    fn can_be_wounded(&mut self, holder: Version) -> bool {
        !self.txn(holder).has_part || self.mutation.is(Mutation::WoundsPrepared)
    }

    /// Takes the locks that a shot needs; else the key of the first that can't be had without waiting.
    fn lock_at_once(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), Key> {
        let txn = shot.txn;
        let owner = self.owner(txn);
        for want in Self::wants(shot) {
            if !self.needs_no_lock(&want) && !self.locks.try_lock(&want.key, owner, want.mode()) {
                return Err(want.key);
            }
            self.take(txn, want, desk);
        }
        Ok(())
    }

    /// Takes the locks that a shot needs, or waits for them.
    fn lock_or_wait(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let (txn, number) = (shot.txn, shot.number);
        self.request(txn, Self::wants(shot), desk);
        let own = self.txn(txn);
        match own.wants.iter().any(|want| want.shot == number) {
            true => own.shots.push(number),
            false => desk.released(txn, number),
        }
    }

    /// Takes these locks, or has the transaction wait for them. Younger transactions in its way are refused.
    fn request(&mut self, txn: Version, wants: impl Iterator<Item = Want>, desk: &mut Desk<'_>) {
        let mut waits: SmallVec<[Key; 4]> = SmallVec::new();
        let owner = self.owner(txn);
        for want in wants {
            if self.needs_no_lock(&want) || self.locks.lock(&want.key, owner, want.mode()) {
                self.take(txn, want, desk);
            } else {
                waits.push(want.key.clone());
                self.txn(txn).wants.push(want);
            }
        }
        // It is in all queues by now, so no younger transaction gets the locks.
        for key in waits {
            for holder in self.locks.in_the_way_of(&key, owner) {
                // One that was ended before may have been another that is in the way.
                let is_open = self.txns.contains_key(&holder.txn);
                if is_open && holder > owner && self.can_be_wounded(holder.txn) {
                    self.end(holder.txn, desk);
                    desk.refused(holder.txn, vec![key.clone()]);
                }
            }
        }
    }

    /// Runs the program of a shot, as soon as it has all locks. A program finds some of its rows only by others. If it has to
    /// wait for the lock of such a row, it is run again with that. Returns false if the transaction has been refused.
    fn run_program(&mut self, txn: Version, number: u16, desk: &mut Desk<'_>) -> bool {
        loop {
            let unlocked = self.mutation.is(Mutation::ReadsUnlocked);
            let Locking { locks, txns, placed, .. } = self;
            // One that waited may have been wounded for a transaction that got a lock before it.
            let Some(own) = txns.get_mut(&txn) else { return false };
            if own.wants.iter().any(|want| want.shot == number) {
                own.shots.push(number);
                return true;
            }
            let place = own.programs.iter().position(|(of, _)| *of == number);
            let Some(place) = place else { return true };
            let program = own.programs[place].1.clone();
            let owner = Owner { age: own.age, txn };
            let mut missing = None;
            let done = run(&*program, &mut |key, may_write| {
                desk.read_row();
                let mode = if may_write { LockMode::Exclusive } else { LockMode::Shared };
                if locks.held(key, owner) < Some(mode) && (may_write || !unlocked) {
                    if !locks.try_lock(key, owner, mode) {
                        missing = Some((key.clone(), may_write));
                        return None;
                    }
                    let action = Action::read(may_write);
                    let want = Want { shot: number, key: key.clone(), action };
                    own.take(txn, want, placed, desk);
                }
                Some(own.value(txn, key, placed, desk))
            });
            if let Some((ran, writes)) = done {
                for (key, value) in writes {
                    own.come_after(txn, &key, true, placed, desk);
                    own.accesses.of_mut(&key).write = Some(value);
                }
                own.results.set(number, ran);
                own.programs.remove(place);
                return true;
            }
            let Some((key, may_write)) = missing else { return true };
            let want = Want { shot: number, key, action: Action::read(may_write) };
            if !self.lock_for_program(txn, core::iter::once(want), desk) {
                return false;
            }
        }
    }

    /// Takes locks for a program, or waits for them. Returns false if that can't be, and the transaction has been refused.
    fn lock_for_program(
        &mut self,
        txn: Version,
        wants: impl Iterator<Item = Want>,
        desk: &mut Desk<'_>,
    ) -> bool {
        if WAITS {
            self.request(txn, wants, desk);
            return self.txns.contains_key(&txn);
        }
        let owner = self.owner(txn);
        for want in wants {
            if !self.needs_no_lock(&want) && !self.locks.try_lock(&want.key, owner, want.mode()) {
                self.end(txn, desk);
                desk.refused(txn, vec![want.key]);
                return false;
            }
            self.take(txn, want, desk);
        }
        true
    }

    /// A transaction has got a lock for which it has waited.
    fn granted(&mut self, txn: Version, key: &Key, desk: &mut Desk<'_>) {
        // It may have been wounded for a transaction that got a lock at the same time, and has run its program.
        let Some(own) = self.txns.get_mut(&txn) else { return };
        for want in core::mem::take(&mut own.wants) {
            if want.key == *key {
                own.take(txn, want, &self.placed, desk);
            } else {
                own.wants.push(want);
            }
        }
        let Txn { wants, programs, shots, .. } = own;
        let mut to_run: SmallVec<[u16; 1]> = SmallVec::new();
        shots.retain(|number| {
            let waits = wants.iter().any(|want| want.shot == *number);
            if !waits && programs.iter().any(|(of, _)| of == number) {
                to_run.push(*number);
            } else if !waits {
                desk.released(txn, *number);
            }
            waits
        });
        for number in to_run {
            self.run_and_release(txn, number, desk);
        }
    }

    /// Runs the program of a shot, and reports the shot as executed when it has been.
    fn run_and_release(&mut self, txn: Version, number: u16, desk: &mut Desk<'_>) {
        if self.run_program(txn, number, desk)
            && !self.txn(txn).programs.iter().any(|(of, _)| *of == number)
        {
            desk.released(txn, number);
        }
    }

    /// The program has ended, and does not need what it still waits for.
    fn stop_waiting(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let own = self.txn(txn);
        own.shots.clear();
        own.programs.clear();
        let owner = Owner { age: own.age, txn };
        for want in core::mem::take(&mut own.wants) {
            for next in self.locks.stop_waiting(&want.key, owner) {
                self.granted(next.txn, &want.key, desk);
            }
        }
    }

    /// Whether a transaction has executed a shot, and is not over.
    pub(crate) fn knows(&self, txn: Version) -> bool {
        self.txns.contains_key(&txn)
    }

    /// A transaction takes effect after this time, in microseconds, if it is not over. It is not ready to commit yet, or has
    /// become so just now.
    pub(crate) fn begin_after(&mut self, txn: Version, us: u64) {
        if let Some(own) = self.txns.get_mut(&txn) {
            let time = Stamp { us, txn: Version::INITIAL };
            own.from = own.from.max(time.next_of(txn));
        }
    }

    /// The transaction that has a part in which it writes a key, if it may take effect at `us` microseconds or before.
    pub(crate) fn writes_by(&self, key: &Key, us: u64) -> Option<Version> {
        let txn = self.locks.held_exclusively(key)?.txn;
        let own = self.txns.get(&txn)?;
        let writes = || own.accesses.of(key).is_some_and(|access| access.write.is_some());
        (own.has_part && own.from.us <= us && writes()).then_some(txn)
    }

    /// A transaction is over, and the rows contain its end if it was prepared.
    pub(crate) fn end(&mut self, txn: Version, desk: &mut Desk<'_>) {
        let Some(own) = self.txns.remove(&txn) else { return };
        let owner = Owner { age: own.age, txn };
        let locked = own.accesses.iter().map(|access| &access.key);
        for key in locked.chain(own.wants.iter().map(|want| &want.key)) {
            for next in self.locks.release(key, owner) {
                self.granted(next.txn, key, desk);
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
    const RELEASES_EARLY: bool = true;
    const CONTENTION: Option<Contention> = Some(match WAITS {
        true => Contention { turns: Turns::ForUpdate, ..Contention::LED },
        false => Contention { merges: true, ..Contention::LED },
    });

    fn new(mutation: Mutated<Mutation>) -> Self {
        let (locks, txns, placed) = Default::default();
        Locking { locks, txns, placed, mutation }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        let txn = shot.txn;
        self.open(shot);
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

    fn run(&mut self, shot: &Shot, program: Arc<dyn Program>, desk: &mut Desk<'_>) {
        let (txn, number) = (shot.txn, shot.number);
        self.open(shot);
        let is_last = shot.participants.is_some();
        if WAITS && is_last {
            // A last shot must not wait, so it has no program. No correct client sends this.
            self.end(txn, desk);
            return desk.refused(txn, Vec::new());
        }
        self.txn(txn).programs.push((number, program.clone()));
        let known = program.known().iter().map(|known| Want {
            shot: number,
            key: known.key.clone(),
            action: Action::read(known.writes),
        });
        if !self.lock_for_program(txn, known, desk) {
            return;
        }
        if !is_last {
            return self.run_and_release(txn, number, desk);
        }
        if self.run_program(txn, number, desk) {
            self.txn(txn).has_part = true;
            desk.executed(txn);
            desk.settled(txn);
        }
    }

    fn ran(&self, txn: Version, shot: Option<u16>) -> Ran {
        self.txns.get(&txn).map_or_else(Ran::default, |own| own.results.of(shot))
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

    fn decided(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>) {
        if let (Some(at), Some(own)) = (committed, self.txns.get(&txn))
            && !self.mutation.is(Mutation::ForgetsPlaced)
        {
            self.placed.place(txn, at, &own.accesses, desk);
        }
        self.end(txn, desk);
    }

    fn is_in_rows(&mut self, txn: Version, _: &mut Desk<'_>) {
        self.placed.is_in_rows(txn);
    }

    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for part in parts {
            let txn = part.txn;
            let accesses = Accesses::inherited(part);
            // It is ready to commit, so its age matters no more.
            let owner = Owner { age: txn, txn };
            for access in accesses.iter() {
                let mode = mode(access.write.as_ref());
                let can = self.locks.try_lock(&access.key, owner, mode);
                assert!(can, "transaction {txn} is ready to commit, and {} is locked", access.key);
            }
            let from = part.validity.from;
            self.txns.insert(txn, Txn { from, accesses, has_part: true, ..Txn::new(txn, txn) });
            desk.settled(txn);
        }
    }
}

impl<const WAITS: bool> RunsCalls for Locking<WAITS> {
    const NAME: &'static str = if WAITS {
        "two-phase-locking-wound-wait-procedures"
    } else {
        "two-phase-locking-no-wait-procedures"
    };
    const SUMMARY: &'static str = if WAITS {
        "procedures that lock their rows, wait for older calls and have younger ones abort"
    } else {
        "procedures that lock their rows, and abort where they would have to wait"
    };
}
