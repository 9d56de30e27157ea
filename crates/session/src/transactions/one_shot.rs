//! Transactions whose keys and writes are all known before they begin. A protocol may need only one round for them.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::transactions::{Operation, Outcome};
use serried_model::{Key, TxnId, Unfit, Value, Write};

use super::Attempt;
use super::attempts::Attempts;
use super::execution::Ended;
use super::program::Closure;
use crate::{
    Alarm, Committed, Footprint, Transacting, Transaction, TransactionError, TransactionKeyspace,
};

impl TransactionKeyspace {
    /// Reads `reads` and makes `writes`, in one transaction. Returns the values before its own writes, in the order of
    /// `reads`. Of several writes to a key the last one counts.
    ///
    /// Where the protocol offers one-shot transactions, this takes one round. Elsewhere it runs as by
    /// [`TransactionKeyspace::transact`]. Aborted attempts are tried again in both cases.
    ///
    /// # Errors
    /// [`TransactionError::EmptyKey`] if a key is empty. [`TransactionError::TooLarge`] if a key, a value or the whole
    /// transaction is over its limit; the keys that it reads count too. Nothing was sent then. Otherwise as
    /// [`TransactionKeyspace::transact`].
    pub fn one_shot<K: Into<Key>>(
        &self,
        reads: impl IntoIterator<Item = K>,
        writes: impl IntoIterator<Item = Write>,
    ) -> Transacting<'_, Committed<Vec<Option<Value>>>> {
        let shooting = self.one_shot_recorded(reads, writes, |_| {});
        Box::pin(async move { Ok(shooting.await?.0) })
    }

    /// As [`TransactionKeyspace::one_shot`], and also returns what the transaction read and wrote. Calls `has_begun`
    /// with each attempt before anything of it is sent. The caller can keep the handle to learn the attempt's version
    /// later.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::one_shot`].
    pub fn one_shot_recorded<'a, K: Into<Key>>(
        &'a self,
        reads: impl IntoIterator<Item = K>,
        writes: impl IntoIterator<Item = Write>,
        has_begun: impl Fn(&Transaction) + Send + Sync + 'a,
    ) -> Transacting<'a, (Committed<Vec<Option<Value>>>, Footprint)> {
        let reads = reads.into_iter().map(Into::into).collect();
        let writes = writes.into_iter().collect();
        Box::pin(self.shoot(reads, writes, has_begun))
    }

    async fn shoot(
        &self,
        reads: Vec<Key>,
        writes: Vec<Write>,
        has_begun: impl Fn(&Transaction) + Send + Sync,
    ) -> Result<(Committed<Vec<Option<Value>>>, Footprint), TransactionError> {
        self.check_one_shot(&reads, &writes)?;
        if self.offers.one_shots {
            return self.shoot_at_once(&reads, &writes, has_begun).await;
        }
        let (only_reads, all) = (writes.is_empty(), Arc::new((reads, writes)));
        let program = move |transaction: Transaction| {
            has_begun(&transaction);
            let all = all.clone();
            async move {
                let (reads, writes) = &*all;
                let values = transaction.get_many(reads).await?;
                for Write { key, value } in writes {
                    match value {
                        Some(value) => transaction.put(key, value),
                        None => transaction.delete(key),
                    }
                }
                Ok(values)
            }
        };
        self.run(Closure::new(program), only_reads).await
    }

    /// Passes each attempt to the coordinator as a whole.
    async fn shoot_at_once(
        &self,
        reads: &[Key],
        writes: &[Write],
        has_begun: impl Fn(&Transaction) + Send + Sync,
    ) -> Result<(Committed<Vec<Option<Value>>>, Footprint), TransactionError> {
        let mut attempts = Attempts::new(self);
        loop {
            let attempt = Attempt::new(self.limits, writes.is_empty(), attempts.age);
            attempt.begin_one_shot(reads, writes);
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
                let values = attempt.values(reads);
                return Ok(attempts.committed(values, &attempt, 0, written_at));
            }
        }
    }

    fn check_one_shot(&self, reads: &[Key], writes: &[Write]) -> Result<(), Unfit> {
        let (limits, mut bytes) = (&self.limits, 0);
        for key in reads {
            limits.check_key(key)?;
            bytes += key.len();
            limits.check_transaction(key, bytes)?;
        }
        for Write { key, value } in writes {
            limits.check_key(key)?;
            let value_bytes = value.as_ref().map_or(0, Value::len);
            limits.check_value_bytes(key, value_bytes)?;
            bytes += key.len() + value_bytes;
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
                None => "its reads to be confirmed".to_string(),
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
