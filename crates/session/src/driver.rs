//! What a driver provides for sessions.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;

use serried_actor::Timestamp;
use serried_model::{Family, Key, TransactionReport, TxnId};

use crate::{Full, Recipient};

/// A session's access to its driver: time, randomness and the state of the cluster.
pub trait Driver: Send + Sync + 'static {
    /// Why nothing can be written at present, if a majority of the nodes has reported that.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// The driver's monotonic time.
    fn now(&self) -> Timestamp;

    /// Wakes `waker` at `at`. Returns a number that cancels the alarm.
    fn set_alarm(&self, at: Timestamp, waker: Waker) -> u64;

    /// Undoes [`Driver::set_alarm`]. Does nothing if the alarm has gone off.
    fn cancel_alarm(&self, at: Timestamp, alarm: u64);

    /// A uniformly random number.
    fn random(&self) -> u64;
}

/// A session's access to the coordinator of a keyspace.
pub trait Port<F: Family>: Driver {
    /// Registers a recipient of outputs.
    ///
    /// # Errors
    /// If too many recipients are open. `waker` is then woken as soon as that may have changed.
    fn open(&self, recipient: Arc<dyn Recipient<F>>, waker: &Waker) -> Result<TxnId, Full>;

    /// Passes operations to the coordinator, in order, and leaves `operations` empty.
    fn submit(&self, txn: TxnId, operations: &mut Vec<F::Operation>);

    /// Unregisters the recipient of `txn`: it gets no more outputs.
    fn close(&self, txn: TxnId);

    /// A number that this keyspace and no other one has, as far as that matters to people.
    fn keyspace_id(&self) -> u64 {
        0
    }

    /// The site to which the coordinator belongs, if the keyspace has several. Otherwise 0.
    fn site(&self) -> u16 {
        0
    }

    /// Whether somebody records what the keyspace's clients do. Then sessions report it.
    fn is_recorded(&self) -> bool {
        false
    }

    /// Takes a report of a committed transaction.
    fn report(&self, _: TransactionReport<Key>) {}
}

/// A point in a driver's time that a task can wait for.
pub struct Alarm {
    driver: Arc<dyn Driver>,
    at: Timestamp,
    set: Option<(u64, Waker)>,
}

impl Alarm {
    /// An alarm at `at`, set when it is first polled.
    pub fn at(driver: Arc<dyn Driver>, at: Timestamp) -> Alarm {
        Alarm { driver, at, set: None }
    }

    /// Ready once the time has come.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.driver.now() >= self.at {
            return Poll::Ready(());
        }
        if !self.set.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            self.unset();
            let waker = cx.waker().clone();
            self.set = Some((self.driver.set_alarm(self.at, waker.clone()), waker));
        }
        Poll::Pending
    }

    fn unset(&mut self) {
        if let Some((alarm, _)) = self.set.take() {
            self.driver.cancel_alarm(self.at, alarm);
        }
    }

    /// Waits until the time has come.
    pub async fn wait(mut self) {
        core::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.unset();
    }
}
