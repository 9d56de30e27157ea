//! Questions outside of transactions: how a transaction ended, and what a key held in the past.

use serried_model::transactions::{Ending, Operation, Output, Past};
use serried_model::{Key, Transactions, Value, Version};

use crate::call::{Answer, Call};
use crate::{TransactionError, TransactionKeyspace};

/// The answer to a question.
#[derive(Default)]
struct Answered(Option<Output>);

impl Answer<Transactions> for Answered {
    fn take_in(&mut self, output: Output) -> bool {
        self.0 = Some(output);
        true
    }
}

impl TransactionKeyspace {
    /// Finds out how the transaction `txn` ended, for example after [`TransactionError::Unknown`]. If it has not ended
    /// and its client is silent, it is ended now. A transaction that only read may leave no trace; then it can't be
    /// distinguished from an aborted one.
    ///
    /// # Errors
    /// [`TransactionError::Unavailable`] if too few replicas answer before the deadline.
    pub async fn outcome(&self, txn: Version) -> Result<Ending, TransactionError> {
        match self.ask(Operation::Inquire { version: txn }).await {
            Some(Output::Ending(ending)) => Ok(ending),
            _ => Err(self.unavailable(format!("the outcome of transaction {txn}"))),
        }
    }

    /// Reads the value of `key` after exactly those transactions whose versions are below `at`. This waits until they
    /// are settled, which takes the keyspace's truncation lag. Reads at the same past version form a consistent
    /// snapshot.
    ///
    /// # Errors
    /// [`TransactionError::NoPast`] if the keyspace's protocol does not read the past. [`TransactionError::Forgotten`]
    /// if `at` is older than the history that the keyspace keeps. [`TransactionError::Unavailable`] if there is no
    /// answer before the deadline.
    pub async fn get_at(
        &self,
        key: impl Into<Key>,
        at: Version,
    ) -> Result<Option<Value>, TransactionError> {
        let key = key.into();
        self.limits.check_key(&key)?;
        if !self.offers.past {
            return Err(TransactionError::NoPast { key, at });
        }
        match self.ask(Operation::GetAt { key: key.clone(), at }).await {
            Some(Output::Past(Past::Held(value))) => Ok(value),
            Some(Output::Past(Past::Forgotten)) => Err(TransactionError::Forgotten { key, at }),
            _ => Err(self.unavailable(format!("the value of `{key}` at {at}"))),
        }
    }

    /// Asks the coordinator a question. Returns `None` if there is no answer before the deadline.
    async fn ask(&self, operation: Operation) -> Option<Output> {
        let call = Call {
            operation,
            give_up: Operation::Rollback,
            answers_when_given_up: false,
            deadline: self.options.deadline,
        };
        call.answer(&self.port).await.and_then(|Answered(output)| output)
    }

    pub(crate) fn unavailable(&self, waiting_for: String) -> TransactionError {
        TransactionError::Unavailable { deadline: self.options.deadline, waiting_for }
    }
}
