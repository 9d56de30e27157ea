//! What a driver gives the session.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::{Operation, TxnId};

use crate::{Attempt, Full};

/// A session's access to a coordinator and to its driver's time.
pub trait Port: Send + Sync + 'static {
    /// Registers an attempt, to which outputs are then delivered; its first operation begins it. If
    /// too many are open, `waker` is woken once that may have changed.
    fn open(&self, attempt: &Arc<Attempt>, waker: &Waker) -> Result<TxnId, Full>;

    /// Passes operations to the coordinator, in order, leaving `operations` empty.
    fn submit(&self, txn: TxnId, operations: &mut Vec<Operation>);

    /// No more outputs are wanted for `txn`.
    fn close(&self, txn: TxnId);

    /// Why no transaction can commit at present, if a majority of the nodes has said so.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// The driver's monotonic time.
    fn now(&self) -> Timestamp;

    /// Has `waker` woken at `at`; the number cancels it.
    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64;

    /// Undoes [`Port::set_alarm`]; nothing if it has gone off.
    fn cancel_alarm(&self, at: Timestamp, alarm: u64);

    /// A uniformly random number.
    fn random(&self) -> u64;
}

/// A point in a driver's time that a task can wait for.
pub struct Alarm {
    port: Arc<dyn Port>,
    at: Timestamp,
    set: Option<(u64, Waker)>,
}

impl Alarm {
    /// An alarm at `at`, set when it is first polled.
    pub fn at(port: Arc<dyn Port>, at: Timestamp) -> Alarm {
        Alarm { port, at, set: None }
    }

    /// Ready from the set time on.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.port.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.set.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            self.unset();
            let waker = cx.waker().clone();
            self.set = Some((self.port.set_alarm(self.at, waker.clone()), waker));
        }
        Poll::Pending
    }

    fn unset(&mut self) {
        if let Some((alarm, _)) = self.set.take() {
            self.port.cancel_alarm(self.at, alarm);
        }
    }

    /// Waits for it.
    pub async fn wait(mut self) {
        core::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.unset();
    }
}
