//! A program's handle to its transaction.

use core::future::Future;
use core::ops::RangeBounds;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use serried_model::{Key, Modification, Value, Version};

use super::{Attempt, Modifying};
use crate::Abort;

/// A program's handle to its transaction. Cheap to clone.
///
/// Reads may return values that never commit. The transaction then does not commit either, but runs again. So a program
/// may see values that contradict each other. It should respond with an error rather than a panic: an error is passed
/// on only if the values that led to it were committed.
#[derive(Clone)]
pub struct Transaction {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) run: u32,
}

impl Transaction {
    /// The version of this attempt: its place in the order of all transactions. [`crate::TransactionKeyspace::outcome`]
    /// takes it. `None` until the coordinator has given it one.
    ///
    /// Under a protocol that chooses versions when transactions commit (`tapir`), it is provisional while the program runs:
    /// the version to ask for the outcome is that of the error or of [`crate::Committed`].
    pub fn version(&self) -> Option<Version> {
        self.attempt.version()
    }

    /// Reads a key; `None` if it is absent. A key that this transaction has written reads as written.
    pub fn get(&self, key: impl Into<Key>) -> Get {
        Get { transaction: self.clone(), key: key.into(), for_update: false }
    }

    /// Reads a key that this transaction is going to write. The result is that of [`Transaction::get`].
    ///
    /// A protocol whose transactions wait for locks takes the lock for writing at once. With [`Transaction::get`], two
    /// transactions can both read a key, and then one of them has to be aborted when both want to write it. Other protocols
    /// read as they always do. If the transaction has read the key before, that read stays as it was.
    pub fn get_for_update(&self, key: impl Into<Key>) -> Get {
        Get { for_update: true, ..self.get(key) }
    }

    /// Reads several keys at once, in parallel; the values come in the order of the keys.
    pub fn get_many<K: Into<Key>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        let keys: Vec<Key> = keys.into_iter().map(Into::into).collect();
        GetMany {
            transaction: self.clone(),
            values: Vec::with_capacity(keys.len()),
            keys,
            for_update: Vec::new(),
            one_by_one: false,
            asked: false,
        }
    }

    /// Writes a key. A key or value over its limit fails the transaction before anything of it is
    /// committed.
    pub fn put(&self, key: impl Into<Key>, value: impl Into<Value>) {
        self.attempt.write(self.run, key.into(), Some(value.into()));
    }

    /// Deletes a key; deleting an absent key is no error.
    pub fn delete(&self, key: impl Into<Key>) {
        self.attempt.write(self.run, key.into(), None);
    }

    /// Modifies the value of a key: adds to a number, appends, replaces one value by another. The result can be awaited. The
    /// key is modified whether it is or not.
    ///
    /// A program that does not await the result reads nothing: the servers execute the modification where the protocol has a
    /// way for that, and elsewhere the session does, after the program has ended. So the program never runs again because of the
    /// key, and where the servers execute it, a counter takes many more additions. If the condition of the modification does
    /// not hold, or the value has another type than it needs, the key stays as it is, and the transaction commits all the
    /// same. Await the result if that matters:
    ///
    /// ```
    /// # use serried_model::Modification;
    /// # use serried_session::{Abort, Transaction};
    /// async fn order(tx: Transaction) -> Result<(), Abort> {
    ///     tx.modify("orders", Modification::add(1));
    ///     let take_one = Modification::Add { delta: -1, least: 0, most: i64::MAX };
    ///     if !tx.modify("stock", take_one).await?.applied {
    ///         return Err(Abort::new("out of stock"));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// A key, a value in the modification, or a transaction over its limit fails the transaction, as with
    /// [`Transaction::put`]. A modification whose result would be over the limit on values changes nothing.
    pub fn modify(&self, key: impl Into<Key>, modification: Modification) -> Modifying {
        Modifying::new(self.clone(), key.into(), modification)
    }
}

/// A read in progress.
#[must_use = "a read does nothing until it is awaited"]
pub struct Get {
    transaction: Transaction,
    key: Key,
    for_update: bool,
}

impl Future for Get {
    type Output = Result<Option<Value>, Abort>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let read = (&self.key, self.for_update);
        self.transaction.attempt.poll_read(self.transaction.run, read, cx)
    }
}

/// Several reads in progress.
#[must_use = "reads do nothing until they are awaited"]
pub struct GetMany {
    transaction: Transaction,
    keys: Vec<Key>,
    /// Which keys are read for update; none of those that it has no place for.
    for_update: Vec<bool>,
    /// Whether a key is requested only when the one before it is known.
    one_by_one: bool,
    /// The values of the first keys, up to the first one that is missing.
    values: Vec<Option<Value>>,
    /// Whether all keys have been asked for.
    asked: bool,
}

impl GetMany {
    /// Reads the keys at these places as [`Transaction::get_for_update`] does. The first key has place 0.
    pub fn for_update(mut self, places: impl RangeBounds<usize>) -> GetMany {
        self.for_update.resize(self.keys.len(), false);
        for (place, for_update) in self.for_update.iter_mut().enumerate() {
            *for_update |= places.contains(&place);
        }
        self
    }

    /// Reads those keys for update for which `is_changed` is true.
    pub(super) fn for_update_of(mut self, is_changed: impl Fn(&Key) -> bool) -> GetMany {
        self.for_update = self.keys.iter().map(is_changed).collect();
        self
    }

    /// Reads the keys one after the other, if `one_by_one` is true. That takes longer. It is there for comparisons with
    /// systems that can't read several keys at once.
    pub fn one_by_one(self, one_by_one: bool) -> GetMany {
        GetMany { one_by_one, ..self }
    }
}

impl Future for GetMany {
    type Output = Result<Vec<Option<Value>>, Abort>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let GetMany { transaction, keys, for_update, one_by_one, values, asked } = self.get_mut();
        let Transaction { attempt, run } = transaction;
        // All keys are requested together. After that only the first missing value wakes the task. Values before it are
        // not polled again, and values after it not yet.
        let mut nobody = Context::from_waker(Waker::noop());
        for (i, key) in keys.iter().enumerate().skip(values.len()) {
            let is_next = i == values.len();
            let read = (key, for_update.get(i).is_some_and(|for_update| *for_update));
            match attempt.poll_read(*run, read, if is_next { cx } else { &mut nobody }) {
                Poll::Ready(Ok(value)) if is_next => values.push(value),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(abort)) => return Poll::Ready(Err(abort)),
                Poll::Pending if *asked || *one_by_one => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        *asked = true;
        if values.len() < keys.len() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(core::mem::take(values)))
    }
}
