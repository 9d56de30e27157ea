//! Drives one attempt: the program on one side, the coordinator on the other.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::transactions::{Operation, Outcome};
use serried_model::{Key, Modify, ReadValue, TxnId, Unfit, Version, Write};

use super::Attempt;
use super::attempt::Signals;
use super::program::Program;
use crate::{Abort, Alarm, TransactionError, TransactionKeyspace};

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

impl<T> Committed<T> {
    /// Replaces the value by what `map` returns for it.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Committed<U> {
        let Committed { value, version, attempts, re_executions } = self;
        Committed { value: map(value), version, attempts, re_executions }
    }
}

/// What a committed transaction read and wrote: for histories and measurements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// The reads of its last run.
    pub reads: Vec<ReadValue>,
    /// Its writes.
    pub writes: Vec<Write>,
    /// Its modifications of keys whose values it has not looked at. What the session wrote for these is not among the writes, and
    /// what it read for them is not among the reads.
    pub modifies: Vec<Modify>,
    /// How many reads its re-executions had to request: those of keys that no earlier run had read.
    pub reads_sent_by_re_executions: u32,
    /// When the written values last changed. The serialization windows of their readers begin then (000 §2.1).
    pub written_at: Timestamp,
}

/// How far a program ran.
enum Ran<T> {
    /// The program waits, or its commit does.
    Waits,
    /// The program ended, and needs no commit.
    Ended(Ended<T>),
    /// The program ended, but one of its reads has changed.
    Overtaken,
}

/// How an attempt ended for its session.
pub(crate) enum Ended<T> {
    /// It committed. If the program gave up, only its reads did.
    Committed(Result<T, Abort>),
    /// It was aborted and can be tried again.
    Aborted(Vec<Key>),
    /// It was refused because it had run for longer than this. It can be tried again.
    TooLong(Duration),
    /// It can't be tried again.
    Failed(TransactionError),
}

/// One attempt in progress.
pub(crate) struct Execution<'a, P: Program> {
    keyspace: &'a TransactionKeyspace,
    program: &'a mut P,
    deadline: &'a mut Alarm,
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) re_executions: u32,
    pub(crate) written_at: Timestamp,
    /// The writes of the last run, if there was more than one run.
    written: Vec<Write>,
    /// A run has asked to commit writes. From then on they may take effect, whatever later runs do: a changed read does not
    /// mean that the execution which depends on it is abandoned.
    may_take_effect: bool,
    phase: Phase<P::Value>,
    /// What the program has returned, if the session has to read the values that it modifies before it can commit.
    result: Option<Result<P::Value, Abort>>,
    /// The limit over which the last commit was, with what modifications have made of the values that they have found.
    /// So it was one of the reads alone.
    unfit: Option<Unfit>,
    operations: Vec<Operation>,
}

enum Phase<T> {
    /// Not registered with the driver yet.
    New,
    Running(TxnId),
    /// The program has ended, and its commit was requested.
    Committing(TxnId, Result<T, Abort>),
    Over,
}

impl<'a, P: Program> Execution<'a, P> {
    pub(crate) fn new(
        keyspace: &'a TransactionKeyspace,
        program: &'a mut P,
        deadline: &'a mut Alarm,
        attempt: Arc<Attempt>,
    ) -> Execution<'a, P> {
        Execution {
            keyspace,
            program,
            deadline,
            attempt,
            re_executions: 0,
            written_at: Timestamp::default(),
            written: Vec::new(),
            may_take_effect: false,
            phase: Phase::New,
            result: None,
            unfit: None,
            operations: Vec::new(),
        }
    }

    /// Begins the attempt. Returns false if too many others are open.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(txn) = self.keyspace.port.open(self.attempt.clone(), cx.waker()) else {
            return false;
        };
        self.operations.push(self.attempt.begin());
        self.program.start(&self.attempt);
        self.phase = Phase::Running(txn);
        true
    }

    /// Runs the program as far as it goes.
    fn run(&mut self, txn: TxnId, cx: &mut Context<'_>) -> Ran<P::Value> {
        let polled = match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => self.program.poll(&self.attempt, cx),
        };
        if let Some(key) = self.attempt.forbidden_write() {
            return Ran::Ended(Ended::Failed(TransactionError::OnlyReads { key }));
        }
        let mut result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => return self.wait(txn),
        };
        if let (Ok(_), Some(error)) = (&result, self.attempt.unfit()) {
            result = Err(Abort::unfit(error));
        }
        if result.is_err() && !self.attempt.has_read() && !self.may_take_effect {
            // An error may follow from values that never commit, so it is passed on only once the program's reads are
            // committed. A program that has read nothing needs no commit, unless an earlier run may take effect: then
            // this run commits without writes, so that the earlier one does not.
            return Ran::Ended(Ended::Committed(result));
        }
        if result.is_ok() && !self.attempt.knows_bases() {
            self.result = Some(result);
            return self.wait(txn);
        }
        if !self.commit(txn, result.is_ok()) {
            return Ran::Overtaken;
        }
        self.phase = Phase::Committing(txn, result);
        Ran::Waits
    }

    /// Asks to commit the finished run. Returns false if one of its reads has changed.
    fn commit(&mut self, txn: TxnId, is_done: bool) -> bool {
        let Some((commit, unfit)) = self.attempt.commit(is_done) else { return false };
        self.unfit = unfit;
        self.note_writes(&commit);
        self.submit(txn, commit);
        true
    }

    /// Passes on what the program waits for.
    fn wait(&mut self, txn: TxnId) -> Ran<P::Value> {
        self.attempt.take_operations(&mut self.operations);
        if !self.operations.is_empty() {
            self.keyspace.port.submit(txn, &mut self.operations);
        }
        Ran::Waits
    }

    /// Records when the written values last changed.
    fn note_writes(&mut self, commit: &Operation) {
        let Operation::Commit { writes, modifies, .. } = commit else { return };
        self.may_take_effect |= !writes.is_empty() || !modifies.is_empty();
        if self.re_executions == 0 || *writes != self.written {
            self.written_at = self.keyspace.port.now();
        }
        if self.re_executions > 0 {
            self.written.clone_from(writes);
        }
    }

    /// Reacts to changed reads.
    fn take_in(&mut self, signals: &Signals) {
        let (Phase::Running(txn) | Phase::Committing(txn, _)) = self.phase else {
            unreachable!("an attempt that is over is not polled")
        };
        if !signals.rewound.is_empty() {
            self.re_executions += 1;
            self.result = None;
            self.program.rewind(&self.attempt, &signals.rewound);
            self.phase = Phase::Running(txn);
        } else if matches!(self.phase, Phase::Committing(_, Ok(_))) && !self.attempt.knows_bases() {
            // The servers did not execute a modification. The run commits again when the session has read the value.
            if let Phase::Committing(_, result) =
                core::mem::replace(&mut self.phase, Phase::Running(txn))
            {
                self.result = Some(result);
            }
        } else if let Phase::Committing(_, result) = &self.phase {
            // The values that the program has read are the same, but their versions are new, or the values that it modifies
            // are: the run stands, and commits again. If yet another read has changed, the next signals say so.
            self.commit(txn, result.is_ok());
        }
    }

    /// Handles the outcome that the coordinator has reported.
    fn conclude(&mut self, outcome: Outcome) -> Ended<P::Value> {
        match (outcome, self.over(false)) {
            (Outcome::Committed, Phase::Committing(_, result)) => {
                Ended::Committed(match self.unfit.take() {
                    Some(error) if result.is_ok() => Err(Abort::unfit(error)),
                    _ => result,
                })
            }
            (Outcome::Committed, _) => {
                panic!("transaction {:?} committed unasked", self.attempt.version())
            }
            (Outcome::Aborted { conflicts }, _) => Ended::Aborted(conflicts),
            (Outcome::ClockSkew { ahead_us }, _) => {
                Ended::Failed(TransactionError::ClockSkew { ahead_us })
            }
            (Outcome::TooLarge { key, bytes, limit }, _) => {
                Ended::Failed(TransactionError::too_large(key, bytes, limit))
            }
            (Outcome::TooLong { limit_ms }, _) => Ended::TooLong(Duration::from_millis(limit_ms)),
            (Outcome::Unknown, _) => {
                let txn = self.attempt.version().expect("an attempt that ended had begun");
                Ended::Failed(TransactionError::Unknown {
                    txn,
                    deadline: self.keyspace.options.deadline,
                })
            }
        }
    }

    fn submit(&mut self, txn: TxnId, operation: Operation) {
        self.operations.push(operation);
        self.keyspace.port.submit(txn, &mut self.operations);
    }

    /// The error if the deadline passes now, or `None` as long as the transaction has no version to name in it.
    fn overdue(&self) -> Option<TransactionError> {
        let deadline = self.keyspace.options.deadline;
        let unavailable =
            |waiting_for: String| TransactionError::Unavailable { deadline, waiting_for };
        if self.may_take_effect {
            // The request may still be on its way to the coordinator, and then take effect.
            let txn = self.attempt.version_or_wake()?;
            return Some(TransactionError::Unknown { txn, deadline });
        }
        Some(match &self.phase {
            Phase::New => unavailable(
                "one of this client's open transactions in this keyspace to end".to_string(),
            ),
            Phase::Committing(..) => unavailable(super::error::READS_CONFIRMED.to_string()),
            Phase::Running(_) | Phase::Over => match self.attempt.unanswered_read() {
                Some(key) => unavailable(format!("the value of `{key}`")),
                // The caller counts the attempts.
                None => TransactionError::Deadline { deadline, attempts: 0 },
            },
        })
    }

    /// Ends the attempt for this session.
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

/// Nothing in it is pinned: a program keeps its future in a box of its own.
impl<P: Program> Unpin for Execution<'_, P> {}

impl<P: Program> Future for Execution<'_, P> {
    type Output = Ended<P::Value>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if matches!(this.phase, Phase::New)
            && let Some(reason) = this.keyspace.port.obstacle()
        {
            return Poll::Ready(Ended::Failed(TransactionError::ReadOnly { reason }));
        }
        if matches!(this.phase, Phase::New) && !this.begin(cx) {
            if this.deadline.poll(cx).is_ready()
                && let Some(error) = this.overdue()
            {
                return Poll::Ready(Ended::Failed(error));
            }
            return Poll::Pending;
        }
        loop {
            while let Some(signals) = this.attempt.signals(cx.waker()) {
                if let Some(outcome) = signals.outcome {
                    return Poll::Ready(this.conclude(outcome));
                }
                this.take_in(&signals);
            }
            let Phase::Running(txn) = this.phase else { break };
            match this.run(txn, cx) {
                Ran::Waits => break,
                Ran::Overtaken => {}
                Ran::Ended(ended) => {
                    this.over(true);
                    return Poll::Ready(ended);
                }
            }
        }
        if this.deadline.poll(cx).is_ready()
            && let Some(error) = this.overdue()
        {
            this.over(true);
            // The coordinator may have tried it at a later version up to now.
            let error = match (error, this.attempt.version()) {
                (TransactionError::Unknown { deadline, .. }, Some(txn)) => {
                    TransactionError::Unknown { txn, deadline }
                }
                (error, _) => error,
            };
            return Poll::Ready(Ended::Failed(error));
        }
        Poll::Pending
    }
}

/// An attempt that is dropped before its end is rolled back: its program has panicked, or nothing waits for it any
/// more.
impl<P: Program> Drop for Execution<'_, P> {
    fn drop(&mut self) {
        self.over(true);
    }
}
