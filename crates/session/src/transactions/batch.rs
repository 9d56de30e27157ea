//! Transactions that are known as a whole before they begin.

use serried_model::{Key, Modification, Value, Write};

use super::attempt::{Modifies, Writes};

/// Reads, writes and modifications of a transaction, all known before it begins. [`crate::TransactionKeyspace::batch`] runs it.
///
/// Reads find the values before the transaction, wherever they stand. Writes and modifications of one key take effect in
/// their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    pub(super) reads: Vec<Key>,
    pub(super) writes: Writes,
    /// Of keys that are written, too, until [`Batch::keep_within`] has executed them.
    pub(super) modifies: Modifies,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Reads these keys and makes these writes.
    pub fn of<K: Into<Key>>(
        reads: impl IntoIterator<Item = K>,
        writes: impl IntoIterator<Item = Write>,
    ) -> Batch {
        let reads = reads.into_iter().map(Into::into).collect();
        let batch = Batch { reads, ..Batch::default() };
        writes.into_iter().fold(batch, |batch, Write { key, value }| batch.write(key, value))
    }

    /// Reads a key. [`crate::TransactionKeyspace::batch`] returns the values in the order in which this was called.
    #[must_use]
    pub fn get(mut self, key: impl Into<Key>) -> Batch {
        self.reads.push(key.into());
        self
    }

    /// Writes a key.
    #[must_use]
    pub fn put(self, key: impl Into<Key>, value: impl Into<Value>) -> Batch {
        self.write(key.into(), Some(value.into()))
    }

    /// Deletes a key; deleting an absent key is no error.
    #[must_use]
    pub fn delete(self, key: impl Into<Key>) -> Batch {
        self.write(key.into(), None)
    }

    fn write(mut self, key: Key, value: Option<Value>) -> Batch {
        self.modifies.shift_remove(&key);
        self.writes.insert(key, value);
        self
    }

    /// Modifies the value of a key, as [`crate::Transaction::modify`] does. Read the key, too, to know what comes of it:
    /// [`serried_model::Modified::by`] says that, given the value that was read.
    #[must_use]
    pub fn modify(mut self, key: impl Into<Key>, modification: Modification) -> Batch {
        self.modifies.entry(key.into()).or_default().push(modification);
        self
    }

    /// Has all modifications keep to the limit on values, and executes those of values that the batch writes itself.
    pub(super) fn keep_within(&mut self, value_bytes: usize) {
        let Batch { writes, modifies, .. } = self;
        modifies.retain(|key, modifications| {
            for modification in modifications.iter_mut() {
                *modification = modification.clone().within(value_bytes);
            }
            if let Some(written) = writes.get_mut(key) {
                *written = Modification::apply_all(&*modifications, written.as_ref());
                return false;
            }
            true
        });
    }

    /// Its modifications, and the key of each.
    pub(super) fn modifications(&self) -> impl Iterator<Item = (&Key, &Modification)> {
        self.modifies.iter().flat_map(|(key, all)| all.iter().map(move |each| (key, each)))
    }

    /// Whether it writes or modifies the key.
    pub(super) fn changes(&self, key: &Key) -> bool {
        self.writes.contains_key(key) || self.modifies.contains_key(key)
    }

    /// Whether it writes and modifies nothing.
    pub(super) fn only_reads(&self) -> bool {
        self.writes.is_empty() && self.modifies.is_empty()
    }
}
