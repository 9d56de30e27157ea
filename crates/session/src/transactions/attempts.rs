//! The attempts of one transaction, which share a deadline.

use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::Version;

use super::Attempt;
use super::abort::Reason;
use super::execution::Ended;
use crate::{Abort, Alarm, Committed, Footprint, TransactionError, TransactionKeyspace};

/// Counts the attempts of a transaction, and limits their number and their time.
pub(crate) struct Attempts<'a> {
    keyspace: &'a TransactionKeyspace,
    /// Which attempt this is, from 1.
    number: u32,
    /// When the first one began.
    first_began: Timestamp,
    /// When this one began.
    began: Timestamp,
    /// The version of the first attempt. It is the transaction's age.
    pub(crate) age: Option<Version>,
    limit: Timestamp,
    /// The limit, if the last attempt was refused because it had run for longer.
    too_long: Option<Duration>,
    /// Goes off at the deadline that all attempts share.
    pub(crate) deadline: Alarm,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(keyspace: &'a TransactionKeyspace) -> Attempts<'a> {
        let began = keyspace.port.now();
        let limit = began + keyspace.options.deadline;
        let deadline = Alarm::at(keyspace.port.clone(), limit);
        Attempts {
            keyspace,
            number: 1,
            first_began: began,
            began,
            age: None,
            limit,
            too_long: None,
            deadline,
        }
    }

    /// Handles the end of this attempt. If the transaction can be tried again, waits until the next attempt may begin and
    /// returns `None`.
    pub(crate) async fn after<T>(
        &mut self,
        attempt: &Attempt,
        ended: Ended<T>,
    ) -> Result<Option<T>, TransactionError> {
        let (attempts, options) = (self.number, &self.keyspace.options);
        match ended {
            Ended::Committed(Ok(value)) => return Ok(Some(value)),
            Ended::Committed(Err(Abort(Reason::Application(error)))) => {
                return Err(TransactionError::Application(error));
            }
            Ended::Committed(Err(Abort(Reason::Unfit(error)))) => return Err(error.into()),
            Ended::Committed(Err(Abort(Reason::WrongType { key, wrong }))) => {
                return Err(TransactionError::WrongType { key, wrong });
            }
            Ended::Failed(TransactionError::Deadline { .. }) => return Err(self.overdue()),
            Ended::Failed(error) => return Err(error),
            Ended::TooLong(limit) => {
                self.too_long = Some(limit);
                if attempts >= options.attempts {
                    return Err(self.overdue());
                }
            }
            Ended::Aborted(keys) if attempts >= options.attempts => {
                return Err(TransactionError::Conflict { keys, attempts });
            }
            Ended::Aborted(_) => self.too_long = None,
        }
        let port = &self.keyspace.port;
        let took = port.now().since(self.began);
        let resume = port.now() + options.backoff.wait(attempts, took, port.random());
        if resume >= self.limit {
            return Err(self.overdue());
        }
        self.keyspace.sleep_until(resume).await;
        self.number += 1;
        self.began = self.keyspace.port.now();
        self.age = self.age.or(attempt.version());
        Ok(None)
    }

    /// The error if there is no time for another attempt, or for this one to end.
    fn overdue(&self) -> TransactionError {
        let (attempts, deadline) = (self.number, self.keyspace.options.deadline);
        match self.too_long {
            Some(limit) => TransactionError::TooLong { limit, attempts },
            None => TransactionError::Deadline { deadline, attempts },
        }
    }

    /// Reports the transaction to those who record the keyspace, if there are any: the last attempt has committed.
    pub(crate) fn report(&self, attempt: &Attempt, is_batch: bool) {
        let port = &self.keyspace.port;
        if port.is_recorded() {
            port.report(attempt.report((self.first_began, port.now()), self.number, is_batch));
        }
    }

    /// The result and the footprint of the last attempt, which has committed.
    pub(crate) fn committed<T>(
        &self,
        value: T,
        attempt: &Arc<Attempt>,
        re_executions: u32,
        written_at: Timestamp,
    ) -> (Committed<T>, Footprint) {
        let version = attempt.version().expect("a committed transaction has a version");
        let (reads, writes, modifies, reads_sent_by_re_executions) = attempt.footprint();
        (
            Committed { value, version, attempts: self.number, re_executions },
            Footprint { reads, writes, modifies, reads_sent_by_re_executions, written_at },
        )
    }
}
