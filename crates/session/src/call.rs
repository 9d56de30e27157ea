//! A single operation, and its answer.

use core::future::poll_fn;
use core::task::{Poll, Waker};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serried_model::{Family, TxnId};

use crate::{Alarm, Port, Recipient};

/// The answer to one operation, put together from its outputs.
pub(crate) trait Answer<F: Family>: Default + Send + 'static {
    /// Adds an output. Returns whether the answer is complete.
    fn take_in(&mut self, output: F::Output) -> bool;
}

/// One operation, and what to do when its deadline passes.
pub(crate) struct Call<F: Family> {
    /// The request.
    pub(crate) operation: F::Operation,
    /// The request that gives it up.
    pub(crate) give_up: F::Operation,
    /// Whether the coordinator still answers after the operation was given up, because it may have continued until
    /// then.
    pub(crate) answers_when_given_up: bool,
    /// How long to wait for the answer.
    pub(crate) deadline: Duration,
}

/// An answer that is awaited.
struct Awaited<A>(Mutex<State<A>>);

struct State<A> {
    answer: A,
    is_complete: bool,
    waker: Option<Waker>,
}

impl<A: Default> Awaited<A> {
    fn new(answer: A) -> Arc<Self> {
        let state = State { answer, is_complete: false, waker: None };
        Arc::new(Awaited(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The complete answer. If there is none yet, `waker` is woken when there is.
    fn take(&self, waker: &Waker) -> Option<A> {
        let mut state = self.lock();
        if state.is_complete {
            return Some(core::mem::take(&mut state.answer));
        }
        state.waker = Some(waker.clone());
        None
    }
}

impl<F: Family, A: Answer<F>> Recipient<F> for Awaited<A> {
    fn deliver(&self, output: F::Output) {
        let mut state = self.lock();
        state.is_complete |= state.answer.take_in(output);
        let waker = if state.is_complete { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// An open call. Dropping it closes it.
struct Open<'a, F: Family> {
    port: &'a Arc<dyn Port<F>>,
    give_up: &'a F::Operation,
    txn: TxnId,
}

impl<F: Family> Open<'_, F> {
    fn give_up(&self) {
        self.port.submit(self.txn, &mut vec![self.give_up.clone()]);
    }
}

impl<F: Family> Drop for Open<'_, F> {
    fn drop(&mut self) {
        self.give_up();
        self.port.close(self.txn);
    }
}

impl<F: Family> Call<F> {
    /// Passes the operation to the coordinator and waits for the answer. Returns `None` if the answer is incomplete at
    /// the deadline. If the coordinator also answers operations that were given up, this waits for that answer. `None`
    /// then means that the operation was never passed on.
    pub(crate) async fn answer<A: Answer<F>>(self, port: &Arc<dyn Port<F>>) -> Option<A> {
        self.answer_into(A::default(), port).await
    }

    /// As [`Call::answer`], and adds the outputs to this answer.
    pub(crate) async fn answer_into<A: Answer<F>>(
        self,
        answer: A,
        port: &Arc<dyn Port<F>>,
    ) -> Option<A> {
        let Call { operation, give_up, answers_when_given_up, deadline } = self;
        let mut deadline = Alarm::at(port.clone(), port.now() + deadline);
        let (awaited, mut operation) = (Awaited::new(answer), vec![operation]);
        let (mut open, mut given_up) = (None, false);
        poll_fn(|cx| {
            if open.is_none()
                && let Ok(txn) = port.open(awaited.clone(), cx.waker())
            {
                open = Some(Open { port, give_up: &give_up, txn });
                port.submit(txn, &mut operation);
            }
            if let Some(answer) = awaited.take(cx.waker()) {
                return Poll::Ready(Some(answer));
            }
            if !given_up && deadline.poll(cx).is_pending() {
                return Poll::Pending;
            }
            let Some(open) = open.as_ref().filter(|_| answers_when_given_up) else {
                return Poll::Ready(None);
            };
            if !core::mem::replace(&mut given_up, true) {
                open.give_up();
            }
            // It may have answered at once.
            awaited.take(cx.waker()).map_or(Poll::Pending, |answer| Poll::Ready(Some(answer)))
        })
        .await
    }
}
