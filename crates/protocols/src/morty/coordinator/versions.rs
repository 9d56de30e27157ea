//! The versions of transactions that choose them when they commit (TAPIR).
//!
//! A transaction reads what is committed, under a provisional version that orders nothing. When its program ends, it takes
//! a version from its client's clock, later than all that it has read, and is prepared under that. If all that is in its
//! way are reads that would have missed its writes, it is prepared once more at a version after theirs: that is TAPIR's
//! retry at a proposed timestamp.
//!
//! *Each version is a transaction of its own to the replicas.* So it must be certain that the transaction has not
//! committed under an earlier version before it is prepared under the next, or it might take effect twice. The
//! coordinator goes on to the next only when it would otherwise report that the transaction has aborted. The session
//! learns each version ([`Output::Began`]), so that it can ask how the transaction ended.

use serried_model::Version;
use serried_model::transactions::Output;
use smallvec::SmallVec;

use super::prepared::InTheWay;
use super::transaction::{Phase, Transaction};
use super::{Coordinator, Cx, Timer, patience};
use crate::morty::Control;
use crate::morty::message::Decision;

impl Coordinator {
    /// Gives a transaction a version above `after`, and no earlier than now. Returns it.
    pub(super) fn take_version(&mut self, old: Version, after: Version, cx: &mut Cx) -> Version {
        let transaction = self.transactions.remove(&old).expect("a transaction in progress");
        cx.cancel_timer(Timer::Repeat(old));
        self.enter(transaction, after, cx)
    }

    /// By how much this client's clock is behind if a transaction has this version, in microseconds; zero if that is within
    /// the bounds. A replica admits versions that are ahead of its clock by the bound, and its clock may be ahead of this
    /// one by as much.
    pub(super) fn behind_us(&self, version: Version, cx: &Cx) -> u64 {
        let latest_us = cx.clock().latest_us;
        let behind_us = version.timestamp_us.saturating_sub(latest_us);
        if behind_us > self.clock_bound_us.saturating_mul(2) { behind_us } else { 0 }
    }

    /// Enters a transaction that nobody knows under a new version.
    fn enter(&mut self, mut transaction: Transaction, after: Version, cx: &mut Cx) -> Version {
        let version = self.clock.next_after(after, cx.id(), cx.clock());
        transaction.refused_by.clear();
        // What the program has not waited for is not needed any more.
        transaction.reads.retain(|_, read| read.found.is_some());
        let wait = patience(&self.group, 0);
        transaction.repeat_at = cx.now() + wait;
        transaction.wakes_at = transaction.repeat_at;
        cx.set_timer(Timer::Repeat(version), wait);
        if let Some(session) = transaction.session {
            self.versions.insert(session, version);
            cx.output((session, Output::Began(version)));
        }
        self.transactions.insert(version, transaction);
        version
    }

    /// A transaction has aborted under this version. If it may commit at a later one as it is, prepares it there, and
    /// returns true.
    pub(super) fn try_a_later_version(&mut self, version: Version, cx: &mut Cx) -> bool {
        let Some(transaction) = self.transactions.get(&version) else { return false };
        let (Phase::Preparing(execution) | Phase::Finalizing(execution, _)) = &transaction.phase
        else {
            return false;
        };
        let InTheWay::Readers(reader) = execution.in_the_way else { return false };
        if self.behind_us(reader, cx) > 0 {
            return false;
        }
        let is_over = transaction.session.is_none() || transaction.superseded;
        if self.options.control != Control::Validation || is_over || execution.retries_left == 0 {
            return false;
        }
        let retries_left = execution.retries_left - 1;
        let again = execution.participants.iter();
        let again = again.map(|part| (part.partition, part.contents.clone()));
        let parts: SmallVec<[_; 1]> = again.collect();
        let Transaction { session, home, next_tag, .. } = *transaction;
        let session = session.expect("it has not gone");
        let mut next = Transaction::new(Some(session), cx.now());
        (next.home, next.next_tag) = (home, next_tag);
        self.settle(version, Some(Decision::Abort), cx);
        let version = self.enter(next, reader, cx);
        self.prepare(version, parts.into_iter(), retries_left, cx);
        true
    }
}
