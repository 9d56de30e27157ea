//! Optimistic validation. A read returns the committed value at once. A transaction is checked when
//! it prepares, against committed versions and against other prepared transactions. A [`Rule`]
//! defines the check.

use core::fmt;
use core::marker::PhantomData;
use std::sync::Arc;

use serried_model::{Guarantee, Key, Modification, Version};
use serried_parts::Map;
use smallvec::SmallVec;

use crate::Mutated;
use crate::frameworks::shard::{
    Access, Accesses, AsOf, Control, Desk, Found, Glance, Item, Mutation, Part, Program, Ran, Read,
    Results, Rounds, Row, Shot, Snapshots, Stamp, Validity, run,
};

/// The check of a protocol, and the interval in which a checked transaction holds.
pub trait Rule: fmt::Debug + Send + Sized + 'static {
    /// See [`Control::NAME`].
    const NAME: &'static str;
    /// See [`Control::SUMMARY`].
    const SUMMARY: &'static str;
    /// See [`Control::GUARANTEE`].
    const GUARANTEE: Guarantee;
    /// See [`Control::ROUNDS`].
    const ROUNDS: Rounds;
    /// See [`Control::SNAPSHOTS`]. Validation does not check them.
    const SNAPSHOTS: Snapshots = Snapshots::Never;

    /// Checks a transaction's access to a key. `others` are the transactions that are prepared
    /// there.
    ///
    /// # Errors
    /// The transaction is refused. A transaction that begins after the returned time, in
    /// microseconds, does not meet the same conflict. The time is zero if it does not matter.
    fn check(txn: Version, access: &Access, row: &Row, others: &[Holder]) -> Result<(), u64>;

    /// The interval in which a transaction holds that has passed all checks. No committed read or
    /// write of its keys is later than `latest`.
    fn validity(txn: Version, latest: Stamp) -> Validity;
}

/// A prepared transaction at a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The transaction.
    pub txn: Version,
    /// Whether it has read the key.
    pub reads: bool,
    /// Whether it writes the key.
    pub writes: bool,
}

/// A shard's open transactions, and the keys of those that are prepared.
pub struct Validation<R> {
    txns: Map<Version, Txn>,
    holders: Map<Key, SmallVec<[Holder; 2]>>,
    rule: PhantomData<R>,
}

/// An open transaction.
#[derive(Default)]
struct Txn {
    accesses: Accesses,
    /// The interval in which it holds, once it is prepared.
    validity: Option<Validity>,
    /// What its programs have returned.
    results: Results,
}

impl<R> fmt::Debug for Validation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Validation of {} transactions", self.txns.len())
    }
}

/// The keys over which a transaction is refused, and the time until which it would be.
struct Conflict {
    keys: Vec<Key>,
    after_us: u64,
}

impl Conflict {
    fn over(key: &Key) -> Conflict {
        Conflict { keys: vec![key.clone()], after_us: 0 }
    }
}

impl<R: Rule> Validation<R> {
    fn execute_all(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), Conflict> {
        let own = &mut self.txns.get_or_default(&shot.txn).accesses;
        let modified = shot.modifies.iter().map(|modify| &modify.key);
        for key in shot.reads.iter().chain(modified) {
            let (read, access) = (Read::newest(key, desk), own.of_mut(key));
            if access.read.as_ref().is_some_and(|before| before.stamp != read.stamp) {
                return Err(Conflict::over(key));
            }
            access.read = Some(read);
        }
        for write in &shot.writes {
            own.of_mut(&write.key).write = Some(write.value.clone());
        }
        for modify in &shot.modifies {
            let access = own.of_mut(&modify.key);
            let value = Modification::apply_all(&modify.modifications, access.value());
            access.write = Some(value);
        }
        self.end_shot(shot, desk)
    }

    /// Runs a program at once. It reads what is committed, and what its transaction has written.
    fn run_program(
        &mut self,
        shot: &Shot,
        program: &dyn Program,
        desk: &mut Desk<'_>,
    ) -> Result<(), Conflict> {
        let Txn { accesses: own, results, .. } = self.txns.get_or_default(&shot.txn);
        let mut changed = None;
        let done = run(program, &mut |key, _| {
            desk.read_row();
            let access = own.of_mut(key);
            if let Some(written) = &access.write {
                return Some(written.clone());
            }
            let read = Read::newest(key, desk);
            if access.read.as_ref().is_some_and(|before| before.stamp != read.stamp) {
                changed = Some(key.clone());
                return None;
            }
            let value = read.found.as_ref().and_then(|found| found.value.clone());
            access.read = Some(read);
            Some(value)
        });
        let Some((ran, writes)) = done else {
            return Err(Conflict { keys: changed.into_iter().collect(), after_us: 0 });
        };
        for (key, value) in writes {
            own.of_mut(&key).write = Some(value);
        }
        results.set(shot.number, ran);
        self.end_shot(shot, desk)
    }

    fn end_shot(&mut self, shot: &Shot, desk: &mut Desk<'_>) -> Result<(), Conflict> {
        match shot.participants {
            Some(_) => self.validate(shot.txn, desk)?,
            None => desk.released(shot.txn, shot.number),
        }
        Ok(())
    }

    /// Checks a transaction, and prepares it if there is no conflict.
    fn validate(&mut self, txn: Version, desk: &mut Desk<'_>) -> Result<(), Conflict> {
        let own = self.txns.get_or_default(&txn);
        let (mut latest, mut found) = (Stamp::INITIAL, Conflict { keys: Vec::new(), after_us: 0 });
        for access in own.accesses.iter() {
            let others = self.holders.get(&access.key);
            let others = others.map_or(&[][..], |others| others.as_slice());
            let row = desk.row(&access.key);
            latest = latest.max(row.newest().read_at);
            if let Err(after_us) = R::check(txn, access, row, others) {
                found.keys.push(access.key.clone());
                found.after_us = found.after_us.max(after_us);
            }
        }
        if !found.keys.is_empty() {
            return Err(found);
        }
        own.validity = Some(R::validity(txn, latest));
        hold(&mut self.holders, txn, &own.accesses);
        desk.executed(txn);
        desk.settled(txn);
        Ok(())
    }

    /// Removes a transaction that has ended or will never be prepared.
    fn end(&mut self, txn: Version) {
        let Some(own) = self.txns.remove(&txn) else { return };
        for Access { key, .. } in own.accesses.iter().filter(|_| own.validity.is_some()) {
            let Some(holders) = self.holders.get_mut(key) else { continue };
            holders.retain(|holder| holder.txn != txn);
            if holders.is_empty() {
                self.holders.remove(key);
            }
        }
    }
}

fn hold(holders: &mut Map<Key, SmallVec<[Holder; 2]>>, txn: Version, accesses: &Accesses) {
    for Access { key, read, write } in accesses.iter() {
        let holder = Holder { txn, reads: read.is_some(), writes: write.is_some() };
        holders.get_or_default(key).push(holder);
    }
}

impl<R: Rule> Control for Validation<R> {
    const NAME: &'static str = R::NAME;
    const SUMMARY: &'static str = R::SUMMARY;
    const GUARANTEE: Guarantee = R::GUARANTEE;
    const ROUNDS: Rounds = R::ROUNDS;
    const SNAPSHOTS: Snapshots = R::SNAPSHOTS;

    fn new(_: Mutated<Mutation>) -> Self {
        Validation { txns: Map::default(), holders: Map::default(), rule: PhantomData }
    }

    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>) {
        if let Err(Conflict { keys, after_us }) = self.execute_all(shot, desk) {
            self.end(shot.txn);
            desk.refused_until(shot.txn, keys, after_us);
        }
    }

    fn run(&mut self, shot: &Shot, program: Arc<dyn Program>, desk: &mut Desk<'_>) {
        if let Err(Conflict { keys, after_us }) = self.run_program(shot, &*program, desk) {
            self.end(shot.txn);
            desk.refused_until(shot.txn, keys, after_us);
        }
    }

    fn ran(&self, txn: Version, shot: Option<u16>) -> Ran {
        self.txns.get(&txn).map_or_else(Ran::default, |own| own.results.of(shot))
    }

    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        self.txns.get(&txn)?.accesses.found(keys, desk)
    }

    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)> {
        let own = self.txns.get(&txn)?;
        let validity = own.validity?;
        Some((validity, own.accesses.items(validity.from)))
    }

    fn discard(&mut self, txn: Version, _: &mut Desk<'_>) {
        self.end(txn);
    }

    fn decided(&mut self, txn: Version, _: Option<Stamp>, _: &mut Desk<'_>) {
        self.end(txn);
    }

    fn glance(&mut self, key: &Key, _: AsOf, desk: &mut Desk<'_>) -> Glance {
        Glance::Found(desk.newest(key))
    }

    /// Inherited parts still hold: their transactions hold their keys, as they did at the leader
    /// that checked them.
    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for part in parts {
            let accesses = Accesses::inherited(part);
            hold(&mut self.holders, part.txn, &accesses);
            let validity = Some(part.validity);
            self.txns.insert(part.txn, Txn { accesses, validity, results: Results::default() });
            desk.settled(part.txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::shard::Event;
    use crate::frameworks::shard::bench::{Bench, appends, last, ready, shot, stamp, txn};
    use crate::occ::Locks;

    #[test]
    fn nothing_is_kept_of_keys_whose_transactions_are_over() {
        let mut leader = Bench::<Validation<Locks>>::new();
        leader.commit(10, &["x"], &["y"]);
        leader.execute(&last(20, &["x"], &["z"]));
        leader.prepare(20);
        leader.end(20, None);
        leader.execute(&shot(30, 1, &["x"], &[]));
        leader.discard(30);
        leader.execute(&last(40, &[], &["y"]));
        leader.prepare(40);
        assert_eq!((leader.control.txns.len(), leader.control.holders.len()), (1, 1));
        leader.end(40, Some(stamp(40)));
        assert_eq!((leader.control.txns.len(), leader.control.holders.len()), (0, 0));
    }

    #[test]
    fn a_modification_is_validated_as_a_read_and_a_write() {
        let mut leader = Bench::<Validation<Locks>>::new();
        leader.commit(5, &[], &["x"]);
        leader.execute(&shot(10, 1, &["x"], &[]));
        assert_eq!(leader.execute(&appends(20, &["x"])), ready(20));
        assert_eq!(leader.written(20, "x"), "520");
        leader.prepare(20);
        let refused =
            |told: &[Event], us| matches!(told, [Event::Refused(who, _)] if *who == txn(us));
        assert!(refused(&leader.execute(&appends(30, &["x"])), 30), "20 is not over");
        leader.end(20, Some(stamp(20)));
        assert!(refused(&leader.execute(&appends(10, &["x"])), 10), "it has read what was before");
        leader.execute(&appends(40, &["x"]));
        assert_eq!(leader.written(40, "x"), "52040");
    }
}
