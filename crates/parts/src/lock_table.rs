//! Locks on keys: who holds them, and who waits.

use core::fmt;
use core::hash::Hash;

use smallvec::SmallVec;

use crate::Map;

/// How a lock is held or wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LockMode {
    /// With others that hold it like that, to read.
    Shared,
    /// Alone, to write.
    Exclusive,
}

/// Locks on keys of type `K` for owners of type `O`. The least owner is the oldest.
///
/// An owner that holds a lock shared can get it exclusively, once it holds it alone. Waiters are served oldest
/// first, and nobody gets a lock while an older owner waits for it. So an owner waits only for conflicting
/// holders, and for older ones that wait. Nothing is kept for a key that nobody holds. Every run has the same
/// results.
pub struct LockTable<K, O> {
    locks: Map<K, Lock<O>>,
}

/// The lock of one key.
struct Lock<O> {
    /// Ascending: one that has it exclusively, or any number.
    holders: SmallVec<[(O, LockMode); 1]>,
    /// Ascending. The first can't have it, else it would. Some hold it shared.
    waiters: SmallVec<[(O, LockMode); 1]>,
}

/// Owners that have got a lock, oldest first.
pub type Granted<O> = SmallVec<[O; 2]>;

impl<K: Eq + Hash + Clone, O: Copy + Ord> LockTable<K, O> {
    /// Takes a lock, or makes an own one exclusive, if that can be done without waiting; else nothing changes.
    pub fn try_lock(&mut self, key: &K, owner: O, mode: LockMode) -> bool {
        self.locks.get_or_default(key).try_lock(owner, mode)
    }

    /// The same, but that `owner` waits if it has to: then it is false.
    pub fn lock(&mut self, key: &K, owner: O, mode: LockMode) -> bool {
        let lock = self.locks.get_or_default(key);
        if lock.try_lock(owner, mode) {
            return true;
        }
        put(&mut lock.waiters, owner, mode);
        false
    }

    /// How `owner` holds a lock, if it does.
    pub fn held(&self, key: &K, owner: O) -> Option<LockMode> {
        let holders = &self.locks.get(key)?.holders;
        let place = holders.binary_search_by_key(&owner, |(holder, _)| *holder).ok()?;
        Some(holders[place].1)
    }

    /// Who holds a lock exclusively, if somebody does.
    pub fn held_exclusively(&self, key: &K) -> Option<O> {
        let (holder, mode) = self.locks.get(key)?.holders.first()?;
        (*mode == LockMode::Exclusive).then_some(*holder)
    }

    /// Who holds the lock that `owner` waits for in a way that keeps it from that, oldest first. None if it waits
    /// behind others alone, or not at all.
    pub fn in_the_way_of(&self, key: &K, owner: O) -> SmallVec<[O; 2]> {
        let Some(lock) = self.locks.get(key) else { return SmallVec::new() };
        let waiting = lock.waiters.iter().find(|(waiter, _)| *waiter == owner);
        let Some((_, wanted)) = waiting else { return SmallVec::new() };
        let conflicting = lock.conflicting(owner, *wanted);
        conflicting.collect()
    }

    /// Gives up a lock, or waiting for it. Returns the owners that had to wait and have it now.
    pub fn release(&mut self, key: &K, owner: O) -> Granted<O> {
        self.change(key, |lock| {
            lock.holders.retain(|(holder, _)| *holder != owner);
            lock.waiters.retain(|(waiter, _)| *waiter != owner);
        })
    }

    /// Gives up waiting for a lock. If the owner holds it shared, it keeps it so. Returns the owners that had to wait and have
    /// it now.
    pub fn stop_waiting(&mut self, key: &K, owner: O) -> Granted<O> {
        self.change(key, |lock| lock.waiters.retain(|(waiter, _)| *waiter != owner))
    }

    fn change(&mut self, key: &K, change: impl FnOnce(&mut Lock<O>)) -> Granted<O> {
        let Some(lock) = self.locks.get_mut(key) else { return Granted::new() };
        change(lock);
        let granted = lock.serve();
        if lock.holders.is_empty() {
            self.locks.remove(key);
        }
        granted
    }

    /// How many keys are locked.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }
}

impl<O: Copy + Ord> Lock<O> {
    /// Who holds it so that `owner` can't have it as it wants.
    fn conflicting(&self, owner: O, wanted: LockMode) -> impl Iterator<Item = O> {
        let conflicts = move |(holder, held): &&(O, LockMode)| {
            *holder != owner && LockMode::Exclusive == wanted.max(*held)
        };
        self.holders.iter().filter(conflicts).map(|(holder, _)| *holder)
    }

    fn try_lock(&mut self, owner: O, mode: LockMode) -> bool {
        let held = |(holder, held): &(O, LockMode)| *holder == owner && *held >= mode;
        if self.holders.iter().any(held) {
            return true;
        }
        let is_behind = self.waiters.first().is_some_and(|(oldest, _)| *oldest < owner);
        if is_behind || self.conflicting(owner, mode).next().is_some() {
            return false;
        }
        put(&mut self.holders, owner, mode);
        // It may have waited for less.
        self.waiters.retain(|(waiter, wanted)| *waiter != owner || *wanted > mode);
        true
    }

    /// Grants the lock to owners that wait, as far as possible.
    fn serve(&mut self) -> Granted<O> {
        let mut granted = Granted::new();
        while let Some((owner, mode)) = self.waiters.first().copied()
            && self.try_lock(owner, mode)
        {
            granted.push(owner);
        }
        granted
    }
}

/// Has `owner` among others, in this mode or in one that allows more.
fn put<O: Copy + Ord>(owners: &mut SmallVec<[(O, LockMode); 1]>, owner: O, mode: LockMode) {
    match owners.binary_search_by_key(&owner, |(other, _)| *other) {
        Ok(place) => owners[place].1 = owners[place].1.max(mode),
        Err(place) => owners.insert(place, (owner, mode)),
    }
}

impl<O> Default for Lock<O> {
    fn default() -> Self {
        Lock { holders: SmallVec::new(), waiters: SmallVec::new() }
    }
}

impl<K, O> Default for LockTable<K, O> {
    fn default() -> Self {
        LockTable { locks: Map::default() }
    }
}

impl<K, O> fmt::Debug for LockTable<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockTable of {:?}", self.locks)
    }
}

#[cfg(test)]
mod tests {
    use super::LockMode::{Exclusive, Shared};
    use super::*;

    type Locks = LockTable<char, u32>;

    fn granted(owners: &[u32]) -> Granted<u32> {
        owners.iter().copied().collect()
    }

    #[test]
    fn a_lock_is_shared_by_any_number_or_held_by_one_alone() {
        let mut locks = Locks::default();
        assert!(locks.try_lock(&'x', 1, Shared) && locks.try_lock(&'x', 2, Shared));
        assert!(!locks.try_lock(&'x', 3, Exclusive));
        assert!(locks.try_lock(&'y', 3, Exclusive));
        assert!(!locks.try_lock(&'y', 1, Shared) && !locks.try_lock(&'y', 1, Exclusive));
        assert!(locks.try_lock(&'y', 3, Shared), "it may read what it may write");
        assert_eq!(locks.held(&'y', 3), Some(Exclusive));
        assert_eq!((locks.held(&'x', 2), locks.held(&'x', 3)), (Some(Shared), None));
    }

    #[test]
    fn who_does_not_wait_leaves_nothing_behind() {
        let mut locks = Locks::default();
        assert!(locks.try_lock(&'x', 1, Exclusive));
        assert!(!locks.try_lock(&'x', 2, Shared));
        assert_eq!(locks.release(&'x', 1), granted(&[]));
        assert!(locks.is_empty());
        assert_eq!(locks.release(&'x', 1), granted(&[]), "there is nothing to release");
        assert!(locks.is_empty());
    }

    #[test]
    fn a_shared_lock_becomes_exclusive_once_it_is_held_alone() {
        let mut locks = Locks::default();
        assert!(locks.lock(&'x', 2, Shared) && locks.lock(&'x', 5, Shared));
        assert!(!locks.try_lock(&'x', 5, Exclusive) && !locks.lock(&'x', 5, Exclusive));
        assert_eq!(locks.in_the_way_of(&'x', 5), granted(&[2]));
        assert_eq!(locks.held(&'x', 5), Some(Shared), "until then it is shared");
        assert_eq!(locks.release(&'x', 2), granted(&[5]));
        assert_eq!(locks.held(&'x', 5), Some(Exclusive));
        assert!(!locks.lock(&'x', 6, Shared));
    }

    #[test]
    fn who_stops_waiting_keeps_what_it_holds() {
        let mut locks = Locks::default();
        assert!(locks.lock(&'x', 1, Shared) && locks.lock(&'x', 2, Shared));
        assert!(!locks.lock(&'x', 1, Exclusive) && !locks.lock(&'x', 3, Shared));
        assert_eq!(locks.stop_waiting(&'x', 1), granted(&[3]));
        assert_eq!(locks.held(&'x', 1), Some(Shared));
        assert_eq!(locks.stop_waiting(&'y', 1), granted(&[]));
        assert_eq!(locks.len(), 1);
    }

    #[test]
    fn waiters_are_served_oldest_first_and_readers_together() {
        let mut locks = Locks::default();
        assert!(locks.lock(&'x', 1, Exclusive));
        for (owner, mode) in [(6, Shared), (3, Shared), (5, Exclusive), (4, Shared)] {
            assert!(!locks.lock(&'x', owner, mode));
        }
        assert_eq!(locks.in_the_way_of(&'x', 6), granted(&[1]));
        assert_eq!(locks.release(&'x', 1), granted(&[3, 4]));
        assert_eq!(locks.in_the_way_of(&'x', 6), granted(&[]), "it waits behind another");
        assert_eq!(locks.in_the_way_of(&'x', 5), granted(&[3, 4]));
        assert_eq!(locks.release(&'x', 4), granted(&[]));
        assert_eq!(locks.release(&'x', 3), granted(&[5]));
        assert_eq!(locks.release(&'x', 5), granted(&[6]));
        assert_eq!(locks.release(&'x', 6), granted(&[]));
        assert!(locks.is_empty());
    }

    #[test]
    fn nobody_gets_a_lock_while_an_older_one_waits_for_it() {
        let mut locks = Locks::default();
        assert!(locks.lock(&'x', 3, Shared));
        assert!(!locks.lock(&'x', 2, Exclusive));
        assert!(!locks.try_lock(&'x', 4, Shared), "it would put the older one off");
        assert!(locks.try_lock(&'x', 1, Shared));
        assert_eq!(locks.in_the_way_of(&'x', 2), granted(&[1, 3]));
    }

    #[test]
    fn who_waits_for_a_key_in_both_ways_gets_it_exclusively() {
        let mut locks = Locks::default();
        assert!(locks.lock(&'x', 1, Exclusive) && !locks.lock(&'x', 4, Shared));
        assert!(!locks.lock(&'x', 4, Exclusive) && !locks.lock(&'x', 4, Shared));
        assert_eq!(locks.release(&'x', 1), granted(&[4]));
        assert_eq!(locks.held(&'x', 4), Some(Exclusive));
        assert_eq!(locks.release(&'x', 4), granted(&[]));
        assert!(locks.is_empty());
    }

    #[test]
    fn locks_never_conflict_and_are_granted_as_soon_as_possible() {
        for seed in 0..300 {
            let mut state: u64 = seed;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            let mut locks = Locks::default();
            for _ in 0..200 {
                let (key, owner) = (['x', 'y'][draw(2) as usize], draw(6) as u32);
                let mode = [Shared, Exclusive][draw(2) as usize];
                match draw(5) {
                    0 | 1 => drop(locks.lock(&key, owner, mode)),
                    2 => drop(locks.try_lock(&key, owner, mode)),
                    3 => drop(locks.release(&key, owner)),
                    _ => drop(locks.stop_waiting(&key, owner)),
                }
                for key in ['x', 'y'] {
                    let Some(lock) = locks.locks.get(&key) else { continue };
                    assert!(!lock.holders.is_empty(), "seed {seed}: somebody waits for nothing");
                    let alone = lock.holders.iter().any(|(_, held)| *held == Exclusive);
                    assert!(!alone || lock.holders.len() == 1, "seed {seed}: not alone");
                    let waits = lock.waiters.first();
                    assert!(
                        waits.is_none_or(|(owner, mode)| {
                            lock.conflicting(*owner, *mode).next().is_some()
                        }),
                        "seed {seed}: the oldest waits for nothing"
                    );
                }
            }
            for owner in 0..6 {
                locks.release(&'x', owner);
                locks.release(&'y', owner);
            }
            assert!(locks.is_empty(), "seed {seed}: something is left behind");
        }
    }
}
