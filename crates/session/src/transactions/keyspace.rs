//! A client's handle to a keyspace of transactions.

use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::transactions::Offers;
use serried_model::{Key, Limits, Transactions, Value};

use super::Attempt;
use super::attempts::Attempts;
use super::continuation::Steps;
use super::execution::Execution;
use super::program::{Closure, Program};
use crate::{
    Abort, Alarm, Committed, Driver, Footprint, Next, Port, Session, Step, TransactOptions,
    Transaction, TransactionError,
};

/// A transaction in progress. It is boxed so that a program can borrow from the task that runs it, and the task can
/// still be spawned.
pub type Transacting<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, TransactionError>> + Send + 'a>>;

/// A client's handle to a keyspace of transactions. Cheap to clone. Many tasks can use it at once.
#[derive(Clone)]
pub struct TransactionKeyspace {
    pub(crate) port: Arc<dyn Port<Transactions>>,
    pub(crate) limits: Limits,
    pub(crate) offers: Offers,
    pub(crate) options: TransactOptions,
}

impl Session for Transactions {
    type Keyspace = TransactionKeyspace;
    type Options = TransactOptions;
    type Error = TransactionError;

    fn keyspace(port: Arc<dyn Port<Self>>, limits: Limits, offers: Offers) -> TransactionKeyspace {
        TransactionKeyspace { port, limits, offers, options: TransactOptions::default() }
    }

    fn with_options(
        keyspace: &TransactionKeyspace,
        options: TransactOptions,
    ) -> TransactionKeyspace {
        keyspace.with_options(options)
    }

    fn driver(keyspace: &TransactionKeyspace) -> Arc<dyn Driver> {
        keyspace.port.clone()
    }
}

impl TransactionKeyspace {
    /// The same keyspace with other options for its transactions.
    pub fn with_options(&self, options: TransactOptions) -> TransactionKeyspace {
        TransactionKeyspace { options, ..self.clone() }
    }

    /// The options of its transactions.
    pub fn options(&self) -> &TransactOptions {
        &self.options
    }

    /// The driver's monotonic time, for measurements.
    pub fn now(&self) -> Timestamp {
        self.port.now()
    }

    /// Waits until the driver's time is `at`.
    pub fn sleep_until(&self, at: Timestamp) -> impl Future<Output = ()> + Send + 'static {
        Alarm::at(self.port.clone(), at).wait()
    }

    /// Runs `program` as a transaction and commits it.
    ///
    /// The program may be run several times, so it must have no side effects except through its [`Transaction`]. If it
    /// returns an error, none of its writes take effect. The error is returned as [`TransactionError::Application`] as
    /// soon as what the program had read is known to be committed. If the program panics or the returned future is
    /// dropped, the transaction is rolled back, unless its commit is already in progress: then it may still commit.
    ///
    /// # Errors
    /// See [`TransactionError`]. Only [`TransactionError::Unknown`] leaves open whether the transaction took effect.
    pub fn transact<'a, T, F, Fut>(&'a self, program: F) -> Transacting<'a, Committed<T>>
    where
        T: Send + 'a,
        F: Fn(Transaction) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, Abort>> + Send + 'a,
    {
        Box::pin(async move { Ok(self.run(Closure::new(program), false).await?.0) })
    }

    /// As [`TransactionKeyspace::transact`], and also returns what the transaction read and wrote.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub fn transact_recorded<'a, T, F, Fut>(
        &'a self,
        program: F,
    ) -> Transacting<'a, (Committed<T>, Footprint)>
    where
        T: Send + 'a,
        F: Fn(Transaction) -> Fut + Send + Sync + 'a,
        Fut: Future<Output = Result<T, Abort>> + Send + 'a,
    {
        Box::pin(self.run(Closure::new(program), false))
    }

    /// Runs a program that is written as continuations: `first` is the first step, and each [`Step::get`] takes the
    /// function that continues with the value. When a read changes, the program continues from that read, not from the
    /// start.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub fn transact_in_steps<'a, C, T, F>(&'a self, first: F) -> Transacting<'a, Committed<T>>
    where
        C: Clone + Send + 'a,
        T: Send + 'a,
        F: Fn(&Step) -> Next<C, T> + Send + Sync + 'a,
    {
        Box::pin(async move { Ok(self.run(Steps::new(first), false).await?.0) })
    }

    /// Writes one key in a transaction of its own.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub async fn put(
        &self,
        key: impl Into<Key>,
        value: impl Into<Value>,
    ) -> Result<Committed<()>, TransactionError> {
        let (key, value) = (&key.into(), &value.into());
        self.transact(|tx| async move {
            tx.put(key, value);
            Ok(())
        })
        .await
    }

    /// Deletes one key in a transaction of its own.
    ///
    /// # Errors
    /// As [`TransactionKeyspace::transact`].
    pub async fn delete(&self, key: impl Into<Key>) -> Result<Committed<()>, TransactionError> {
        let key = &key.into();
        self.transact(|tx| async move {
            tx.delete(key);
            Ok(())
        })
        .await
    }

    /// Runs a program. `only_reads` announces to the coordinator that it writes nothing.
    pub(crate) fn run<P: Program>(
        &self,
        program: P,
        only_reads: bool,
    ) -> impl Future<Output = Result<(Committed<P::Value>, Footprint), TransactionError>> {
        self.run_as(program, only_reads, false)
    }

    /// The same, for a program that may make the requests of a batch.
    pub(super) async fn run_as<P: Program>(
        &self,
        mut program: P,
        only_reads: bool,
        is_batch: bool,
    ) -> Result<(Committed<P::Value>, Footprint), TransactionError> {
        let mut attempts = Attempts::new(self);
        loop {
            let modifies = self.offers.modifies;
            let attempt = Attempt::new(self.limits, only_reads, attempts.age, modifies);
            let deadline = &mut attempts.deadline;
            let mut execution = Execution::new(self, &mut program, deadline, attempt.clone());
            let ended = (&mut execution).await;
            let (re_executions, written_at) = (execution.re_executions, execution.written_at);
            drop(execution);
            if let Some(value) = attempts.after(&attempt, ended).await? {
                attempts.report(&attempt, is_batch);
                return Ok(attempts.committed(value, &attempt, re_executions, written_at));
            }
        }
    }
}
