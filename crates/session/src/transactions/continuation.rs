//! The continuation API: a program written as steps, each of which is given a read's value.
//!
//! A closure is run again from its start when a read changes. That is too expensive for some programs. In a chain of
//! continuations only the steps from the changed read on are run again, with the context that they had (000 §4.1.1).

use core::task::{Context, Poll};
use std::sync::Arc;

use serried_model::{Key, Modification, Value};

use super::Attempt;
use super::attempt::Checkpoint;
use super::program::Program;
use crate::{Abort, Transaction};

/// A continuation: what to do with a read's value.
type Continuation<C, T> = Arc<dyn Fn(&Step, C, Option<Value>) -> Next<C, T> + Send + Sync>;

/// What a step does next.
pub enum Next<C, T> {
    /// Read a key, then continue.
    #[doc(hidden)]
    Get(C, Key, Continuation<C, T>),
    /// Commit, and return this value.
    Commit(T),
    /// Give up: none of the writes take effect.
    GiveUp(Abort),
}

/// A step's access to its transaction.
pub struct Step {
    transaction: Transaction,
}

impl Step {
    /// Reads `key` and continues with its value, which is `None` if the key is absent. The session keeps `context`, and
    /// clones it for `continuation` whenever this read's value changes.
    pub fn get<C, T>(
        &self,
        context: C,
        key: impl Into<Key>,
        continuation: impl Fn(&Step, C, Option<Value>) -> Next<C, T> + Send + Sync + 'static,
    ) -> Next<C, T> {
        Next::Get(context, key.into(), Arc::new(continuation))
    }

    /// Writes a key.
    pub fn put(&self, key: impl Into<Key>, value: impl Into<Value>) {
        self.transaction.put(key, value);
    }

    /// Deletes a key.
    pub fn delete(&self, key: impl Into<Key>) {
        self.transaction.delete(key);
    }

    /// Modifies the value of a key, as [`Transaction::modify`] does whose result is not awaited.
    pub fn modify(&self, key: impl Into<Key>, modification: Modification) {
        drop(self.transaction.modify(key, modification));
    }
}

/// A read that the program has made, with everything that is needed to continue from it again.
struct Frame<C, T> {
    checkpoint: Checkpoint,
    context: C,
    key: Key,
    continuation: Continuation<C, T>,
}

/// The running program: its first step, and a frame for each read so far.
pub(crate) struct Steps<F, C, T> {
    first: F,
    run: u32,
    frames: Vec<Frame<C, T>>,
    next: Option<Next<C, T>>,
}

impl<F, C, T> Steps<F, C, T> {
    pub(crate) fn new(first: F) -> Self {
        Steps { first, run: 0, frames: Vec::new(), next: None }
    }
}

impl<F, C, T> Program for Steps<F, C, T>
where
    F: Fn(&Step) -> Next<C, T>,
    C: Clone,
{
    type Value = T;

    fn start(&mut self, attempt: &Arc<Attempt>) {
        self.run = attempt.begin_run();
        self.frames.clear();
        self.next = Some((self.first)(&self.step(attempt)));
    }

    fn poll(&mut self, attempt: &Arc<Attempt>, cx: &mut Context<'_>) -> Poll<Result<T, Abort>> {
        loop {
            match self.next.take() {
                Some(Next::Commit(value)) => return Poll::Ready(Ok(value)),
                Some(Next::GiveUp(abort)) => return Poll::Ready(Err(abort)),
                Some(Next::Get(context, key, continuation)) => {
                    let checkpoint = attempt.checkpoint();
                    self.frames.push(Frame { checkpoint, context, key, continuation });
                }
                None => {}
            }
            let frame = self.frames.last().expect("a step that is not the last one made a read");
            match attempt.poll_read(self.run, (&frame.key, false), cx) {
                Poll::Ready(Ok(value)) => {
                    let context = frame.context.clone();
                    self.next = Some((frame.continuation)(&self.step(attempt), context, value));
                }
                Poll::Ready(Err(abort)) => return Poll::Ready(Err(abort)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn rewind(&mut self, attempt: &Arc<Attempt>, keys: &[Key]) {
        let used = self.frames.iter().position(|frame| keys.contains(&frame.key));
        let Some(position) = used else { return };
        self.frames.truncate(position + 1);
        self.next = None;
        self.run = attempt.restore(&self.frames[position].checkpoint);
    }
}

impl<F, C, T> Steps<F, C, T> {
    fn step(&self, attempt: &Arc<Attempt>) -> Step {
        Step { transaction: Transaction { attempt: attempt.clone(), run: self.run } }
    }
}
