//! Questions outside of transactions: how one ended, and what was there in the past.

use core::future::poll_fn;
use core::task::Poll;
use std::sync::Arc;

use serried_model::{Key, Operation, Outcome, TxnId, Value, Version};

use crate::{Alarm, Attempt, Error, Keyspace};

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ending {
    /// It took effect.
    Committed,
    /// It did not and never will take effect.
    Aborted,
    /// It was so long ago that nobody remembers: `outcomes_ms` of the keyspace's settings says how
    /// long outcomes are kept.
    Forgotten,
}

/// A question that is open; closed when it is dropped.
struct Asking<'a> {
    keyspace: &'a Keyspace,
    txn: TxnId,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let port = &self.keyspace.port;
        port.submit(self.txn, &mut vec![Operation::Rollback]);
        port.close(self.txn);
    }
}

impl Keyspace {
    /// Finds out how the transaction `txn` ended: for what failed with [`Error::Unknown`]. If it has
    /// not ended and its client does nothing, it is ended now. One that has only read may leave nothing behind by
    /// which it could be told from one that was aborted.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too few replicas answer before the deadline.
    pub async fn outcome(&self, txn: Version) -> Result<Ending, Error> {
        let (_, outcome) = self.ask(Operation::Inquire { version: txn }).await;
        let what = || format!("the outcome of transaction {txn}");
        Ok(match outcome.ok_or_else(|| self.unavailable(what()))? {
            Outcome::Committed => Ending::Committed,
            Outcome::Forgotten => Ending::Forgotten,
            _ => Ending::Aborted,
        })
    }

    /// Reads what `key` held when exactly the transactions below `at` had committed. It waits for what
    /// is not settled yet, which takes the keyspace's truncation lag; reads at the same past version
    /// together are a consistent snapshot.
    ///
    /// # Errors
    /// [`Error::NoPast`] if the keyspace's protocol does not read the past; [`Error::Forgotten`] if `at` is
    /// further in the past than the keyspace keeps history for; [`Error::Unavailable`] if there is no answer
    /// before the deadline.
    pub async fn get_at(&self, key: impl Into<Key>, at: Version) -> Result<Option<Value>, Error> {
        let key = key.into();
        self.limits.check_key(&key)?;
        let (attempt, outcome) = self.ask(Operation::GetAt { key: key.clone(), at }).await;
        let what = || format!("the value of `{key}` at {at}");
        match outcome.ok_or_else(|| self.unavailable(what()))? {
            Outcome::Committed => Ok(attempt.answer()),
            Outcome::NotOffered => Err(Error::NoPast { key: key.clone(), at }),
            _ => Err(Error::Forgotten { key: key.clone(), at }),
        }
    }

    /// Has the coordinator do something that is not part of a transaction; none if it has not come to an
    /// end before the deadline.
    pub(crate) async fn ask(&self, question: Operation) -> (Arc<Attempt>, Option<Outcome>) {
        self.ask_and(question, false).await
    }

    /// The same. If it `is_told`, the coordinator says how what is given up has ended: it may have gone on
    /// until it heard of that.
    pub(crate) async fn ask_and(
        &self,
        question: Operation,
        is_told: bool,
    ) -> (Arc<Attempt>, Option<Outcome>) {
        let attempt = Attempt::new(self.limits, false);
        let mut deadline = Alarm::at(self.port.clone(), self.port.now() + self.options.deadline);
        let (mut question, mut asking) = (Some(question), None);
        let mut given_up = false;
        let outcome = poll_fn(|cx| {
            if asking.is_none()
                && let Ok(txn) = self.port.open(&attempt, cx.waker())
            {
                asking = Some(Asking { keyspace: self, txn });
                let question = question.take().expect("it is asked once");
                self.port.submit(txn, &mut vec![question]);
            }
            let outcome = |waker| attempt.signals(waker).and_then(|signals| signals.outcome);
            if let Some(outcome) = outcome(cx.waker()) {
                return Poll::Ready(Some(outcome));
            }
            if !given_up && deadline.poll(cx).is_pending() {
                return Poll::Pending;
            }
            match &asking {
                Some(Asking { txn, .. }) if is_told => {
                    if !core::mem::replace(&mut given_up, true) {
                        self.port.submit(*txn, &mut vec![Operation::Rollback]);
                    }
                    // It may have answered at once.
                    outcome(cx.waker()).map_or(Poll::Pending, |outcome| Poll::Ready(Some(outcome)))
                }
                _ => Poll::Ready(None),
            }
        });
        let outcome = outcome.await;
        (attempt, outcome)
    }

    pub(crate) fn unavailable(&self, waiting_for: String) -> Error {
        Error::Unavailable { deadline: self.options.deadline, waiting_for }
    }
}
