//! The writes of one key that are not decided.

use core::ops::{Deref, DerefMut};

use serried_parts::{Effect, WriteId};
use smallvec::SmallVec;

/// `(ver, val)`: a write that others may read before it is decided.
#[derive(Debug)]
pub(super) struct UncommittedWrite {
    pub id: WriteId,
    pub effect: Effect,
    /// What its transaction found in the key, if it has read it.
    pub rests_on: Option<WriteId>,
    /// There is something newer, or what it rests on is stale itself: its transaction runs again, and
    /// is going to write something else. What it rests on may also be withdrawn, or not be here yet;
    /// these look the same, and it counts as fresh.
    pub stale: bool,
}

/// Uncommitted writes in the order of their versions. Most keys have none or one. When thousands modify a key, the earliest
/// are mostly decided first, so to remove one of these does not move all others.
#[derive(Debug, Default)]
pub(super) struct UncommittedWrites {
    ascending: SmallVec<[UncommittedWrite; 1]>,
    /// So many at the front are removed.
    removed: usize,
}

impl Deref for UncommittedWrites {
    type Target = [UncommittedWrite];

    #[inline]
    fn deref(&self) -> &[UncommittedWrite] {
        &self.ascending[self.removed..]
    }
}

impl DerefMut for UncommittedWrites {
    #[inline]
    fn deref_mut(&mut self) -> &mut [UncommittedWrite] {
        &mut self.ascending[self.removed..]
    }
}

impl UncommittedWrites {
    pub(super) fn insert(&mut self, position: usize, write: UncommittedWrite) {
        self.ascending.insert(self.removed + position, write);
    }

    pub(super) fn remove(&mut self, position: usize) {
        if position >= self.len() / 2 {
            self.ascending.remove(self.removed + position);
        } else {
            self[..=position].rotate_right(1);
            // It keeps no value until it goes.
            self[0].effect = Effect::Put(None);
            self.removed += 1;
        }
        if self.removed > self.len() {
            self.ascending.drain(..self.removed);
            self.removed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::{Value, Version};

    #[test]
    fn what_is_removed_takes_no_memory() {
        let mut writes = UncommittedWrites::default();
        for at in 1..=3 {
            let id = WriteId { version: Version::at(at), tag: 1 };
            let effect = Effect::Put(Some(Value::from("value")));
            let write = UncommittedWrite { id, effect, rests_on: None, stale: false };
            writes.insert(writes.len(), write);
        }
        writes.remove(0);
        assert_eq!((writes.removed, &writes.ascending[0].effect), (1, &Effect::Put(None)));
    }

    #[test]
    fn writes_are_removed_wherever_they_are() {
        for earliest in 0..9 {
            let mut writes = UncommittedWrites::default();
            let mut left = Vec::new();
            for at in [3, 1, 2, 5, 4, 9, 8, 7, 6] {
                let id = WriteId { version: Version::at(at), tag: 1 };
                let position = writes.partition_point(|write| write.id.version < id.version);
                let effect = Effect::Put(None);
                writes.insert(
                    position,
                    UncommittedWrite { id, effect, rests_on: None, stale: false },
                );
                left.insert(position, at);
            }
            let mut position = 0;
            while !left.is_empty() {
                writes.remove(position);
                left.remove(position);
                let have: Vec<u64> = writes.iter().map(|it| it.id.version.timestamp_us).collect();
                assert_eq!(have, left);
                // Every other one first, and then the earliest.
                position = if left.len() > earliest { position + 1 } else { 0 };
                position = position.min(left.len().saturating_sub(1));
                assert!(writes.removed <= writes.len());
            }
        }
    }
}
