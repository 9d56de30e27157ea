//! Validation: reads are answered at once with what is committed. Only a transaction that is ready to commit is
//! checked, against what is committed and against other transactions that are ready to commit. A [`Rule`] says what is
//! checked.

use core::fmt;
use core::marker::PhantomData;

use serried_model::{Guarantee, Key, Version};
use serried_parts::Map;
use smallvec::SmallVec;

use crate::Mutated;
use crate::frameworks::shard::{
    Access, Accesses, AsOf, Control, Desk, Found, Glance, Item, Mutation, Part, Read, Rounds, Row,
    Shot, Snapshots, Stamp, Validity,
};

/// What a transaction is checked by, and when it holds.
pub trait Rule: fmt::Debug + Send + Sized + 'static {
    /// See [`Control::NAME`].
    const NAME: &'static str;
    /// See [`Control::SUMMARY`].
    const SUMMARY: &'static str;
    /// See [`Control::GUARANTEE`].
    const GUARANTEE: Guarantee;
    /// See [`Control::ROUNDS`].
    const ROUNDS: Rounds;
    /// See [`Control::SNAPSHOTS`]. They are not checked.
    const SNAPSHOTS: Snapshots = Snapshots::Never;

    /// Checks what a transaction has done to a key that these others are at, which are ready to commit.
    ///
    /// # Errors
    /// It is refused. One that begins later than this, in microseconds, does not meet what it has met; zero if
    /// time is not the matter.
    fn check(txn: Version, access: &Access, row: &Row, others: &[Holder]) -> Result<(), u64>;

    /// When a transaction holds that has passed all checks: the keys that it is at were written and read by this
    /// moment, as far as that is committed.
    fn validity(txn: Version, latest: Stamp) -> Validity;
}

/// A transaction that is ready to commit, at a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The transaction.
    pub txn: Version,
    /// Whether it has read the key.
    pub reads: bool,
    /// Whether it writes it.
    pub writes: bool,
}

/// The transactions of a shard that are not over, and the keys that those are at that are ready to commit.
pub struct Validation<R> {
    txns: Map<Version, Txn>,
    holders: Map<Key, SmallVec<[Holder; 2]>>,
    rule: PhantomData<R>,
}

/// A transaction that is not over.
#[derive(Default)]
struct Txn {
    accesses: Accesses,
    /// Once it is ready to commit.
    validity: Option<Validity>,
}

impl<R> fmt::Debug for Validation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Validation of {} transactions", self.txns.len())
    }
}

/// Why a transaction is refused: over these keys, and until then.
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
        for key in &shot.reads {
            let (read, access) = (Read::newest(key, desk), own.of_mut(key));
            if access.read.as_ref().is_some_and(|before| before.stamp != read.stamp) {
                return Err(Conflict::over(key));
            }
            access.read = Some(read);
        }
        for write in &shot.writes {
            own.of_mut(&write.key).write = Some(write.value.clone());
        }
        match shot.participants {
            Some(_) => self.validate(shot.txn, desk)?,
            None => desk.released(shot.txn, shot.number),
        }
        Ok(())
    }

    /// Checks a transaction, which is ready to commit if nothing stands against it.
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

    /// A transaction is over, or will never be ready to commit.
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

    /// What was checked is so still: each of these holds its keys, as it did at the leader that has checked it.
    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>) {
        for part in parts {
            let accesses = Accesses::inherited(part);
            hold(&mut self.holders, part.txn, &accesses);
            self.txns.insert(part.txn, Txn { accesses, validity: Some(part.validity) });
            desk.settled(part.txn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::shard::bench::{Bench, last, shot, stamp};
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
}
