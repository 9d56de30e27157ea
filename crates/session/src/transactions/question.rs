//! Questions outside of transactions: how one ended, and what was there in the past.

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
    /// Finds out how the transaction `txn` ended: for what failed with [`TransactionError::Unknown`]. If it has
    /// not ended and its client does nothing, it is ended now. One that has only read may leave nothing behind by
    /// which it could be told from one that was aborted.
    ///
    /// # Errors
    /// [`TransactionError::Unavailable`] if too few replicas answer before the deadline.
    pub async fn outcome(&self, txn: Version) -> Result<Ending, TransactionError> {
        match self.ask(Operation::Inquire { version: txn }).await {
            Some(Output::Ending(ending)) => Ok(ending),
            _ => Err(self.unavailable(format!("the outcome of transaction {txn}"))),
        }
    }

    /// Reads what `key` held when exactly the transactions below `at` had committed. It waits for what
    /// is not settled yet, which takes the keyspace's truncation lag; reads at the same past version
    /// together are a consistent snapshot.
    ///
    /// # Errors
    /// [`TransactionError::NoPast`] if the keyspace's protocol does not read the past; [`TransactionError::Forgotten`] if `at` is
    /// further in the past than the keyspace keeps history for; [`TransactionError::Unavailable`] if there is no answer
    /// before the deadline.
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

    /// Asks the coordinator something. `None` if there is no answer before the deadline.
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
