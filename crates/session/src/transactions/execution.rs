//! Drives one attempt: the program on one side, the coordinator on the other.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::time::Duration;

use serried_actor::Timestamp;
use serried_model::transactions::{Operation, Outcome};
use serried_model::{Key, ReadValue, TxnId, Version, Write};

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
    /// The same, with another value in place of its own.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Committed<U> {
        let Committed { value, version, attempts, re_executions } = self;
        Committed { value: map(value), version, attempts, re_executions }
    }
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
    /// When the values that it wrote became what they are: where the serialization windows of those
    /// who read them begin (000 §2.1).
    pub written_at: Timestamp,
}

/// How far a program ran.
enum Ran<T> {
    /// It waits for something, or its commit does.
    Waits,
    /// It ended, and needs no commit.
    Ended(Ended<T>),
    /// It ended, but one of its reads has changed.
    Overtaken,
}

/// How an attempt ended for its session.
pub(crate) enum Ended<T> {
    /// It committed, if only its reads because the program gave up.
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
    /// What the last run wrote, if there was more than one.
    written: Vec<Write>,
    /// A run has asked to commit writes. From then on they may take effect, whatever later runs do: a changed read does not
    /// mean that the execution which depends on it is abandoned.
    may_take_effect: bool,
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
        keyspace: &'a TransactionKeyspace,
        program: &'a mut P,
        deadline: &'a mut Alarm,
        only_reads: bool,
    ) -> Execution<'a, P> {
        let attempt = Attempt::new(keyspace.limits, only_reads);
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
            operations: Vec::new(),
        }
    }

    /// Whether it could begin: not if too many others are open.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let Ok(txn) = self.keyspace.port.open(self.attempt.clone(), cx.waker()) else {
            return false;
        };
        self.operations.push(Operation::Begin { only_reads: self.attempt.only_reads });
        self.program.start(&self.attempt);
        self.phase = Phase::Running(txn);
        true
    }

    /// Runs the program as far as it goes.
    fn run(&mut self, txn: TxnId, cx: &mut Context<'_>) -> Ran<P::Value> {
        let polled = self.program.poll(&self.attempt, cx);
        if let Some(key) = self.attempt.forbidden_write() {
            return Ran::Ended(Ended::Failed(TransactionError::OnlyReads { key }));
        }
        let mut result = match polled {
            Poll::Ready(result) => result,
            Poll::Pending => {
                self.attempt.take_operations(&mut self.operations);
                if !self.operations.is_empty() {
                    self.keyspace.port.submit(txn, &mut self.operations);
                }
                return Ran::Waits;
            }
        };
        if let (Ok(_), Some(error)) = (&result, self.attempt.unfit()) {
            result = Err(Abort::unfit(error));
        }
        if result.is_err() && !self.attempt.has_read() && !self.may_take_effect {
            // An error is the program's answer to what it read, so it is passed on only if that was
            // committed; having read nothing, it stands. If an earlier run may take effect, the commit of
            // this one, without writes, makes sure that it does not.
            return Ran::Ended(Ended::Committed(result));
        }
        let Some(commit) = self.attempt.commit(result.is_ok()) else { return Ran::Overtaken };
        self.note_writes(&commit);
        self.submit(txn, commit);
        self.phase = Phase::Committing(txn, result);
        Ran::Waits
    }

    /// Notes when what is written has last changed.
    fn note_writes(&mut self, commit: &Operation) {
        let Operation::Commit { writes, .. } = commit else { return };
        self.may_take_effect |= !writes.is_empty();
        if self.re_executions == 0 || *writes != self.written {
            self.written_at = self.keyspace.port.now();
        }
        if self.re_executions > 0 {
            self.written.clone_from(writes);
        }
    }

    /// Takes in that reads have changed.
    fn take_in(&mut self, signals: &Signals) {
        let (Phase::Running(txn) | Phase::Committing(txn, _)) = self.phase else {
            unreachable!("an attempt that is over is not polled")
        };
        if !signals.rewound.is_empty() {
            self.re_executions += 1;
            self.program.rewind(&self.attempt, &signals.rewound);
            self.phase = Phase::Running(txn);
        } else if let Phase::Committing(_, result) = &self.phase {
            // The same values from other versions: the run stands, what it rests on is new. If yet
            // another change has come, it is the next to be taken in.
            if let Some(commit) = self.attempt.commit(result.is_ok()) {
                self.submit(txn, commit);
            }
        }
    }

    /// The coordinator says that the attempt is over.
    fn conclude(&mut self, outcome: Outcome) -> Ended<P::Value> {
        match (outcome, self.over(false)) {
            (Outcome::Committed, Phase::Committing(_, result)) => Ended::Committed(result),
            (Outcome::Committed, _) => {
                panic!("transaction {:?} committed unasked", self.attempt.version())
            }
            (Outcome::Aborted { conflicts }, _) => Ended::Aborted(conflicts),
            (Outcome::ClockSkew { ahead_us }, _) => {
                Ended::Failed(TransactionError::ClockSkew { ahead_us })
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

    /// The error if the deadline passes now. `None` if it can't be told yet.
    fn overdue(&self) -> Option<TransactionError> {
        let deadline = self.keyspace.options.deadline;
        let unavailable =
            |waiting_for: String| TransactionError::Unavailable { deadline, waiting_for };
        if self.may_take_effect {
            // Its coordinator may have yet to be told of it, and has it take effect then.
            let txn = self.attempt.version_or_wake()?;
            return Some(TransactionError::Unknown { txn, deadline });
        }
        Some(match &self.phase {
            Phase::New => unavailable(
                "one of this client's open transactions in this keyspace to end".to_string(),
            ),
            Phase::Committing(..) => unavailable("its reads to be confirmed".to_string()),
            Phase::Running(_) | Phase::Over => match self.attempt.unanswered_read() {
                Some(key) => unavailable(format!("the value of `{key}`")),
                // Attempts are counted by the caller.
                None => TransactionError::Deadline { deadline, attempts: 0 },
            },
        })
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
