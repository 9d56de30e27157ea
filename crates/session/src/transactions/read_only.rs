//! Transactions that write nothing. A protocol may have a better way to run them.

use core::future::Future;

use serried_model::{Key, Value, Version};

use super::program::Closure;
use crate::{
    Abort, Committed, Footprint, Get, GetMany, Transacting, Transaction, TransactionError,
    TransactionKeyspace,
};

/// A read-only program's handle to its transaction. Cheap to clone.
///
/// It can read:
///
/// ```
/// # fn program(snapshot: serried_session::Snapshot) {
/// let balance = snapshot.get("alice");
/// # drop(balance);
/// # }
/// ```
///
/// And it has no way to write:
///
/// ```compile_fail,E0599
/// # fn program(snapshot: serried_session::Snapshot) {
/// snapshot.put("alice", "10");
/// # }
/// ```
///
/// As with a [`Transaction`], it may read values that never commit.
#[derive(Clone)]
pub struct Snapshot {
    transaction: Transaction,
}

impl Snapshot {
    /// The version of this attempt: its place in the order of all transactions. `None` until the coordinator has given
    /// it one.
    pub fn version(&self) -> Option<Version> {
        self.transaction.version()
    }

    /// Reads a key; `None` if it is absent.
    pub fn get(&self, key: impl Into<Key>) -> Get {
        self.transaction.get(key)
    }

    /// Reads several keys at once, in parallel; the values come in the order of the keys.
    pub fn get_many<K: Into<Key>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        self.transaction.get_many(keys)
    }
}

impl TransactionKeyspace {
    /// Runs `program`, which only reads, as a transaction. Everything that it reads was there at one moment.
    ///
    /// This is [`TransactionKeyspace::transact`] for a program that can't write. Some protocols have a better way to
    /// run such transactions.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub fn read_only<'a, T, F, Fut>(&'a self, program: F) -> Transacting<'a, Committed<T>>
    where
        T: Send + 'a,
        F: Fn(Snapshot) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, Abort>> + Send + 'a,
    {
        let program = move |transaction| program(Snapshot { transaction });
        Box::pin(async move { Ok(self.run(Closure::new(program), true).await?.0) })
    }

    /// As [`TransactionKeyspace::read_only`], and also returns what the transaction read.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub fn read_only_recorded<'a, T, F, Fut>(
        &'a self,
        program: F,
    ) -> Transacting<'a, (Committed<T>, Footprint)>
    where
        T: Send + 'a,
        F: Fn(Snapshot) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, Abort>> + Send + 'a,
    {
        self.transact_read_only_recorded(move |transaction| program(Snapshot { transaction }))
    }

    /// As [`TransactionKeyspace::read_only_recorded`], for a program that could write but does not.
    ///
    /// # Errors
    /// [`TransactionError::OnlyReads`] if it does write; that ends its run. Otherwise as
    /// [`TransactionKeyspace::transact`].
    pub fn transact_read_only_recorded<'a, T, F, Fut>(
        &'a self,
        program: F,
    ) -> Transacting<'a, (Committed<T>, Footprint)>
    where
        T: Send + 'a,
        F: Fn(Transaction) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, Abort>> + Send + 'a,
    {
        Box::pin(self.run(Closure::new(program), true))
    }

    /// Reads one key in a transaction of its own.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub async fn get(&self, key: impl Into<Key>) -> Result<Option<Value>, TransactionError> {
        let key = &key.into();
        Ok(self.read_only(|snapshot| async move { snapshot.get(key).await }).await?.value)
    }

    /// Reads several keys in a transaction of their own.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub async fn get_many<K: Into<Key>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>, TransactionError> {
        let keys: &Vec<Key> = &keys.into_iter().map(Into::into).collect();
        Ok(self.read_only(|snapshot| async move { snapshot.get_many(keys).await }).await?.value)
    }
}
