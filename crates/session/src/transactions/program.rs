//! Programs as the session runs them: they can be started, polled and rewound.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;

use serried_model::Key;

use super::Attempt;
use crate::{Abort, Transaction};

/// A transaction's program, in one of the two forms in which an application can write it.
pub(crate) trait Program {
    type Value;

    /// Starts from the beginning, for a new attempt.
    fn start(&mut self, attempt: &Arc<Attempt>);

    /// Runs until it ends or has to wait.
    fn poll(
        &mut self,
        attempt: &Arc<Attempt>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Self::Value, Abort>>;

    /// Goes back to where the first of these reads was used.
    fn rewind(&mut self, attempt: &Arc<Attempt>, keys: &[Key]);
}

/// A closure that returns a future. To go back, it is run again from the start, with its reads in memory.
pub(crate) struct Closure<F, Fut> {
    closure: F,
    future: Pin<Box<Option<Fut>>>,
}

impl<F, Fut> Closure<F, Fut> {
    pub(crate) fn new(closure: F) -> Self {
        Closure { closure, future: Box::pin(None) }
    }
}

impl<F, Fut, T> Program for Closure<F, Fut>
where
    F: Fn(Transaction) -> Fut,
    Fut: Future<Output = Result<T, Abort>>,
{
    type Value = T;

    fn start(&mut self, attempt: &Arc<Attempt>) {
        self.future.set(None);
        let run = attempt.begin_run();
        let transaction = Transaction { attempt: attempt.clone(), run };
        self.future.set(Some((self.closure)(transaction)));
    }

    fn poll(&mut self, _: &Arc<Attempt>, cx: &mut Context<'_>) -> Poll<Result<T, Abort>> {
        let future = self.future.as_mut().as_pin_mut();
        future.expect("a closure is polled between its start and its end").poll(cx)
    }

    fn rewind(&mut self, attempt: &Arc<Attempt>, _: &[Key]) {
        self.start(attempt);
    }
}
