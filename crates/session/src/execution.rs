//! Drives one attempt: the program on one side, the coordinator on the other.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use serried_model::{Key, Operation, Outcome, ReadValue, TxnId, Version, Write};

use crate::abort::Reason;
use crate::program::Program;
use crate::{Abort, Alarm, Attempt, Error, Keyspace};

/// A committed transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed<T> {
    /// What the program returned.
    pub value: T,
    /// The version under which it committed.
    pub version: Version,
    /// How many attempts it took, the successful one included.
    pub attempts: u32,
    /// How often the successful attempt's program was run again because a read had changed.
    pub re_executions: u32,
}

/// What a committed transaction read and wrote: for histories and measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// What its last run read.
    pub reads: Vec<ReadValue>,
    /// What it wrote.
    pub writes: Vec<Write>,
    /// How many reads its re-executions had to send for: those of keys not read before.
    pub reads_sent_by_re_executions: u32,
}

/// How an attempt ended for its session.
pub(crate) enum Ended<T> {
    /// It committed, if only its reads because the program gave up.
    Committed(Result<T, Abort>),
    /// It was aborted and can be tried again.
    Aborted(Vec<Key>),
    /// It can't be tried again.
    Failed(Error),
}

/// One attempt in progress.
pub(crate) struct Execution<'a, P: Program> {
    keyspace: &'a Keyspace,
    program: &'a mut P,
    deadline: &'a mut Alarm,
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) re_executions: u32,
    phase: Phase<P::Value>,
    operations: Vec<Operation>,
}

enum Phase<T> {
    /// Not registered with the driver yet.
    New,
    Running(TxnId),
    /// The program has ended and its commit was asked for.
    Committing(TxnId, Result<T, Abort>),
    Over,
}

impl<'a, P: Program> Execution<'a, P> {
    pub(crate) fn new(
        keyspace: &'a Keyspace,
        program: &'a mut P,
        deadline: &'a mut Alarm,
    ) -> Execution<'a, P> {
        let attempt = Attempt::new(keyspace.limits);
        let phase = Phase::New;
        let operations = Vec::new();
        Execution { keyspace, program, deadline, attempt, re_executions: 0, phase, operations }
    }

    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(txn) = self.keyspace.port.open(&self.attempt, cx.waker()) else { return false };
        self.program.start(&self.attempt);
        self.phase = Phase::Running(txn);
        true
    }

    /// Runs the program as far as it goes; an end that needs no commit.
    fn run(&mut self, txn: TxnId, cx: &mut Context<'_>) -> Option<Ended<P::Value>> {
        let result = match self.program.poll(&self.attempt, cx) {
            Poll::Ready(result) => result,
            Poll::Pending => {
                self.attempt.take_operations(&mut self.operations);
                if !self.operations.is_empty() {
                    self.keyspace.port.submit(txn, &mut self.operations);
                }
                return None;
            }
        };
        let result = match result {
            Err(Abort(Reason::TooLarge(error))) => return Some(Ended::Failed(error.into())),
            // An error is the program's answer to what it read, so it is passed on only if that was
            // committed; having read nothing, it stands.
            Err(Abort(Reason::Application(error))) if !self.attempt.has_read() => {
                return Some(Ended::Failed(Error::Application(error)));
            }
            result => result,
        };
        match self.attempt.commit(result.is_ok()) {
            Err(error) => Some(Ended::Failed(error.into())),
            Ok(commit) => {
                self.submit(txn, commit);
                self.phase = Phase::Committing(txn, result);
                None
            }
        }
    }

    fn submit(&mut self, txn: TxnId, operation: Operation) {
        self.operations.push(operation);
        self.keyspace.port.submit(txn, &mut self.operations);
    }

    /// What it means that the deadline has passed now.
    fn overdue(&self) -> Error {
        let deadline = self.keyspace.options.deadline;
        let unavailable = |waiting_for: String| Error::Unavailable { deadline, waiting_for };
        match &self.phase {
            Phase::New => unavailable("one of this client's open transactions to end".to_string()),
            Phase::Committing(_, Ok(_)) => match self.attempt.version() {
                Some(txn) => Error::Unknown { txn, deadline },
                None => unavailable("the transaction to begin".to_string()),
            },
            Phase::Committing(_, Err(_)) => unavailable("its reads to be confirmed".to_string()),
            Phase::Running(_) | Phase::Over => match self.attempt.unanswered_read() {
                Some(key) => unavailable(format!("the value of `{key}`")),
                // Attempts are counted by the caller.
                None => Error::Deadline { deadline, attempts: 0 },
            },
        }
    }

    /// Ends the attempt as far as this session is concerned.
    fn over(&mut self, rollback: bool) -> Phase<P::Value> {
        let phase = core::mem::replace(&mut self.phase, Phase::Over);
        if let Phase::Running(txn) | Phase::Committing(txn, _) = phase {
            if rollback {
                self.operations.clear();
                self.submit(txn, Operation::Rollback);
            }
            self.keyspace.port.close(txn);
        }
        phase
    }
}

/// Nothing in it is pinned: a program keeps its own future in a box.
impl<P: Program> Unpin for Execution<'_, P> {}

impl<P: Program> Future for Execution<'_, P> {
    type Output = Ended<P::Value>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if matches!(this.phase, Phase::New) && !this.begin(cx) {
            return match this.deadline.poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ended::Failed(this.overdue())),
                Poll::Pending => Poll::Pending,
            };
        }
        while let Some(signals) = this.attempt.signals(cx.waker()) {
            if let Some(outcome) = signals.outcome {
                let phase = this.over(false);
                return Poll::Ready(match (outcome, phase) {
                    (Outcome::Committed, Phase::Committing(_, result)) => Ended::Committed(result),
                    (Outcome::Committed, _) => panic!(
                        "transaction {:?} committed before it was asked to",
                        this.attempt.version()
                    ),
                    (Outcome::Aborted { conflicts }, _) => Ended::Aborted(conflicts),
                });
            }
            let (Phase::Running(txn) | Phase::Committing(txn, _)) = this.phase else {
                unreachable!("an attempt that is over is not polled")
            };
            if !signals.rewound.is_empty() {
                this.re_executions += 1;
                this.program.rewind(&this.attempt, &signals.rewound);
                this.phase = Phase::Running(txn);
            } else if let Phase::Committing(_, result) = &this.phase {
                // The same values from other versions: the run stands, what it rests on is new.
                let commit = this.attempt.commit(result.is_ok());
                this.submit(txn, commit.expect("a run that was within its limits"));
            }
        }
        if let Phase::Running(txn) = this.phase
            && let Some(ended) = this.run(txn, cx)
        {
            this.over(true);
            return Poll::Ready(ended);
        }
        if this.deadline.poll(cx).is_ready() {
            let error = this.overdue();
            this.over(true);
            return Poll::Ready(Ended::Failed(error));
        }
        Poll::Pending
    }
}

/// Dropped in the middle, by a panic of its program or because nobody waits any more, an attempt is
/// rolled back.
impl<P: Program> Drop for Execution<'_, P> {
    fn drop(&mut self) {
        self.over(true);
    }
}
