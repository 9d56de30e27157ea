//! Transactions whose keys and writes are all known before they begin. A protocol may need only one round for them.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::transactions::{Operation, Outcome};
use serried_model::{Key, TxnId, Unfit, Value, Write};

use super::attempt::modification_bytes;
use super::attempts::Attempts;
use super::execution::Ended;
use super::program::Closure;
use super::{Attempt, Batch};
use crate::{
    Alarm, Committed, Footprint, Transacting, Transaction, TransactionError, TransactionKeyspace,
};

impl TransactionKeyspace {
    /// Reads `reads` and makes `writes`, in one transaction. Returns the values before its own writes, in the order of
    /// `reads`. Of several writes to a key the last one counts.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::batch`].
    pub fn one_shot<K: Into<Key>>(
        &self,
        reads: impl IntoIterator<Item = K>,
        writes: impl IntoIterator<Item = Write>,
    ) -> Transacting<'_, Committed<Vec<Option<Value>>>> {
        self.batch(Batch::of(reads, writes))
    }

    /// As [`TransactionKeyspace::one_shot`], and also returns what the transaction read and wrote.
    /// [`TransactionKeyspace::batch_recorded`] says what `has_begun` is for.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::batch`].
    pub fn one_shot_recorded<'a, K: Into<Key>>(
        &'a self,
        reads: impl IntoIterator<Item = K>,
        writes: impl IntoIterator<Item = Write>,
        has_begun: impl Fn(&Transaction) + Send + Sync + 'a,
    ) -> Transacting<'a, (Committed<Vec<Option<Value>>>, Footprint)> {
        self.batch_recorded(Batch::of(reads, writes), has_begun)
    }

    /// Makes all reads, writes and modifications of `batch`, in one transaction. Returns the values that the reads have found,
    /// in the order in which they were added. These are the values before the writes and modifications.
    ///
    /// Where the protocol offers one-shot transactions, this takes one round. Elsewhere it runs as by
    /// [`TransactionKeyspace::transact`]. Aborted attempts are tried again in both cases.
    ///
    /// ```
    /// # use serried_model::Modification;
    /// # use serried_session::{Batch, TransactionError, TransactionKeyspace};
    /// # async fn example(posts: TransactionKeyspace) -> Result<(), TransactionError> {
    /// let like = Batch::new().get("title").modify("likes", Modification::add(1));
    /// let title = posts.batch(like).await?.value.remove(0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TransactionError::EmptyKey`] if a key is empty. [`TransactionError::TooLarge`] if a key, a value or the whole
    /// transaction is over its limit; the keys that it reads count too. Nothing was sent then. Otherwise as
    /// [`TransactionKeyspace::transact`].
    pub fn batch(&self, batch: Batch) -> Transacting<'_, Committed<Vec<Option<Value>>>> {
        let shooting = self.batch_recorded(batch, |_| {});
        Box::pin(async move { Ok(shooting.await?.0) })
    }

    /// As [`TransactionKeyspace::batch`], and also returns what the transaction read and wrote. Calls `has_begun`
    /// with each attempt before anything of it is sent. The caller can keep the handle to learn the attempt's version
    /// later.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::batch`].
    pub fn batch_recorded<'a>(
        &'a self,
        batch: Batch,
        has_begun: impl Fn(&Transaction) + Send + Sync + 'a,
    ) -> Transacting<'a, (Committed<Vec<Option<Value>>>, Footprint)> {
        Box::pin(self.shoot(batch, has_begun))
    }

    async fn shoot(
        &self,
        mut batch: Batch,
        has_begun: impl Fn(&Transaction) + Send + Sync,
    ) -> Result<(Committed<Vec<Option<Value>>>, Footprint), TransactionError> {
        batch.keep_within(self.limits.value_bytes);
        self.check_batch(&batch)?;
        let can_modify = self.offers.modifies || batch.modifies.is_empty();
        if self.offers.one_shots && can_modify {
            return self.shoot_at_once(&batch, has_begun).await;
        }
        let (only_reads, batch) = (batch.only_reads(), Arc::new(batch));
        let program = move |transaction: Transaction| {
            has_begun(&transaction);
            let batch = batch.clone();
            async move {
                let Batch { reads, writes, .. } = &*batch;
                let getting = transaction.get_many(reads);
                let values = getting.for_update_of(|key| batch.changes(key)).await?;
                for (key, value) in writes {
                    match value {
                        Some(value) => transaction.put(key, value),
                        None => transaction.delete(key),
                    }
                }
                for (key, modification) in batch.modifications() {
                    drop(transaction.modify(key, modification.clone()));
                }
                Ok(values)
            }
        };
        self.run_as(Closure::new(program), only_reads, true).await
    }

    /// Passes each attempt to the coordinator as a whole.
    async fn shoot_at_once(
        &self,
        batch: &Batch,
        has_begun: impl Fn(&Transaction) + Send + Sync,
    ) -> Result<(Committed<Vec<Option<Value>>>, Footprint), TransactionError> {
        let mut attempts = Attempts::new(self);
        let Batch { reads, writes, modifies } = batch;
        loop {
            let attempt = Attempt::new(self.limits, batch.only_reads(), attempts.age, true);
            attempt.begin_one_shot(reads, writes.clone(), modifies.clone());
            // Nothing can be done through this handle: no run has its number.
            has_begun(&Transaction { attempt: attempt.clone(), run: 0 });
            let mut shot = Shot {
                keyspace: self,
                attempt: &attempt,
                deadline: &mut attempts.deadline,
                phase: Phase::New,
                sent_at: Timestamp::default(),
            };
            let ended = (&mut shot).await;
            let written_at = shot.sent_at;
            drop(shot);
            if attempts.after(&attempt, ended).await?.is_some() {
                attempts.report(&attempt, true);
                let values = attempt.values(reads);
                return Ok(attempts.committed(values, &attempt, 0, written_at));
            }
        }
    }

    fn check_batch(&self, batch: &Batch) -> Result<(), Unfit> {
        let (limits, mut bytes) = (&self.limits, 0);
        for key in &batch.reads {
            limits.check_key(key)?;
            bytes += key.len();
            limits.check_transaction(key, bytes)?;
        }
        let written = batch.writes.iter();
        let written = written.map(|(key, value)| (key, value.as_ref().map_or(0, Value::len)));
        for (key, value_bytes) in written {
            limits.check_key(key)?;
            limits.check_value_bytes(key, value_bytes)?;
            bytes += key.len() + value_bytes;
            limits.check_transaction(key, bytes)?;
        }
        for (key, modification) in batch.modifications() {
            limits.check_key(key)?;
            limits.check_value_bytes(key, modification.value_bytes())?;
            bytes += modification_bytes(key, modification);
            limits.check_transaction(key, bytes)?;
        }
        Ok(())
    }
}

/// One attempt in progress. If it is dropped before its end, it is rolled back.
struct Shot<'a> {
    keyspace: &'a TransactionKeyspace,
    attempt: &'a Arc<Attempt>,
    deadline: &'a mut Alarm,
    phase: Phase,
    sent_at: Timestamp,
}

enum Phase {
    /// Not registered with the driver yet.
    New,
    /// All of it was passed to the coordinator.
    Sent(TxnId),
    Over,
}

impl Shot<'_> {
    /// Handles the outcome that the coordinator has reported.
    fn conclude(&mut self, outcome: Outcome) -> Ended<()> {
        self.over(false);
        match outcome {
            Outcome::Committed => Ended::Committed(Ok(())),
            Outcome::Aborted { conflicts } => Ended::Aborted(conflicts),
            Outcome::ClockSkew { ahead_us } => {
                Ended::Failed(TransactionError::ClockSkew { ahead_us })
            }
            Outcome::TooLarge { key, bytes, limit } => {
                Ended::Failed(TransactionError::too_large(key, bytes, limit))
            }
            Outcome::TooLong { limit_ms } => Ended::TooLong(Duration::from_millis(limit_ms)),
            Outcome::Unknown => {
                let txn = self.attempt.version().expect("an attempt that ended had begun");
                Ended::Failed(TransactionError::Unknown {
                    txn,
                    deadline: self.keyspace.options.deadline,
                })
            }
        }
    }

    /// The error if the deadline passes now, or `None` as long as the transaction has no version to name in it.
    fn overdue(&self) -> Option<TransactionError> {
        let waiting_for = match self.phase {
            Phase::New => {
                "one of this client's open transactions in this keyspace to end".to_string()
            }
            Phase::Sent(_) if self.attempt.has_written() => {
                // The request may still be on its way to the coordinator, and then take effect.
                let txn = self.attempt.version_or_wake()?;
                return Some(TransactionError::Unknown {
                    txn,
                    deadline: self.keyspace.options.deadline,
                });
            }
            Phase::Sent(_) | Phase::Over => match self.attempt.unanswered_read() {
                Some(key) => format!("the value of `{key}`"),
                None => super::error::READS_CONFIRMED.to_string(),
            },
        };
        Some(self.keyspace.unavailable(waiting_for))
    }

    /// Ends the attempt for this session.
    fn over(&mut self, rollback: bool) {
        if let Phase::Sent(txn) = core::mem::replace(&mut self.phase, Phase::Over) {
            if rollback {
                self.keyspace.port.submit(txn, &mut vec![Operation::Rollback]);
            }
            self.keyspace.port.close(txn);
        }
    }
}

impl Future for Shot<'_> {
    type Output = Ended<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let port = &this.keyspace.port;
        if matches!(this.phase, Phase::New) {
            if let Some(reason) = port.obstacle() {
                return Poll::Ready(Ended::Failed(TransactionError::ReadOnly { reason }));
            }
            if let Ok(txn) = port.open(this.attempt.clone(), cx.waker()) {
                this.phase = Phase::Sent(txn);
                this.sent_at = port.now();
                port.submit(txn, &mut this.attempt.whole());
            }
        }
        while let Some(signals) = this.attempt.signals(cx.waker()) {
            if let Some(outcome) = signals.outcome {
                return Poll::Ready(this.conclude(outcome));
            }
        }
        if this.deadline.poll(cx).is_ready()
            && let Some(error) = this.overdue()
        {
            this.over(true);
            return Poll::Ready(Ended::Failed(error));
        }
        Poll::Pending
    }
}

impl Drop for Shot<'_> {
    fn drop(&mut self) {
        self.over(true);
    }
}
