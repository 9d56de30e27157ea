//! Finds out, before a transaction is prepared, whether the replicas take part in it, given its version.
//!
//! A replica refuses a version that is further ahead of its clock than clocks may differ. Once a transaction is
//! prepared, a refusal decides nothing: others may have voted for it, and a copy of its Prepare that arrives later may
//! be admitted. So a coordinator prepares the first execution of a transaction only when it expects that the replicas
//! admit it, because
//! - one of them has answered a read of it; or
//! - its version differs from the replicas' clocks by no more than clocks may differ. A majority of a partition has
//!   reported its clocks, and the coordinator adds the time since by its own timer, which does not jump; or
//! - a majority of its home partition was asked and admits it. The answers contain the replicas' clocks.
//!
//! If the clocks of that majority are all later than the client's own by more than clocks may differ, the client's
//! transaction ends with the error that its clock is behind. Otherwise its writes would come before what others have
//! written meanwhile, and no reader would find them.
//!
//! This costs one more round trip for a client's first transaction, if that reads nothing, and for the first after a jump
//! of the client's clock. Other transactions cost no more.
//!
//! *What is refused has not committed, and never will.* The coordinator ends a transaction with
//! [`Outcome::ClockSkew`](serried_model::Outcome::ClockSkew) only if it has prepared no execution of it. No other node
//! sends its Prepare, and without a Prepare there are no votes to commit it. A recoverer that knows the transaction from
//! an admitted Put finds no votes and aborts it. This does not depend on clocks. They only decide whether the
//! coordinator asks. If it expects wrongly, because the replicas' clocks have jumped too, it finds out how a refused
//! Prepare ended as it always does.

use std::sync::Arc;

use serried_actor::{NodeSet, Timestamp};
use serried_model::transactions::Outcome;
use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::commit::TENTATIVE_RETRIES;
use super::transaction::Phase;
use super::{Coordinator, Cx, patience};
use crate::morty::message::{Contents, Decision, Message, Request};

/// What an execution comes to in each partition, the home first.
pub(super) type Parts = SmallVec<[(u16, Arc<Contents>); 1]>;

/// An execution that is prepared once its transaction is admitted.
#[derive(Debug)]
pub(super) struct Asking {
    parts: Parts,
    /// The replicas of the home partition that admit it.
    admitted: NodeSet,
    /// The lowest of their clocks, in microseconds.
    clock_us: u64,
}

/// A lower bound of the replicas' clocks, and when the coordinator received it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    clock_us: u64,
    at: Timestamp,
}

impl Coordinator {
    /// Prepares the first execution of a transaction, or asks first whether it is admitted.
    pub(super) fn prepare_if_admitted(&mut self, version: Version, parts: Parts, cx: &mut Cx) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        let is_read_for = transaction.reads.values().any(|read| read.found.is_some());
        if transaction.next_eid > 0 || is_read_for || self.expects_admission(version, cx.now()) {
            return self.prepare(version, parts.into_iter(), TENTATIVE_RETRIES, cx);
        }
        let asking = Asking { parts, admitted: NodeSet::EMPTY, clock_us: u64::MAX };
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        transaction.phase = Phase::Asking(asking);
        self.ask_for_admission(version, cx);
        self.postpone_repeat(version, patience(&self.group, 0), cx);
    }

    /// Whether a version is close to what a majority's clocks read by now.
    fn expects_admission(&self, version: Version, now: Timestamp) -> bool {
        self.heard_time.is_some_and(|Heard { clock_us, at }| {
            let passed_us = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
            let expected_us = clock_us.saturating_add(passed_us);
            version.timestamp_us.abs_diff(expected_us) <= self.clock_bound_us
        })
    }

    /// Asks the replicas that have not admitted it yet.
    pub(super) fn ask_for_admission(&self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        let (Phase::Asking(asking), Some(home)) = (&transaction.phase, transaction.home) else {
            return;
        };
        let missing = self.group.all().without(asking.admitted);
        cx.broadcast(home, missing, Message::Request(Request::AskAdmission { version }));
    }

    /// A replica admits a transaction.
    pub(super) fn on_admitted(
        &mut self,
        from: NodeId,
        version: Version,
        clock_us: u64,
        cx: &mut Cx,
    ) {
        let majority = self.group.majority();
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Phase::Asking(asking) = &mut transaction.phase else { return };
        if transaction.home != Some(from.partition()) {
            return;
        }
        asking.admitted.insert(from);
        asking.clock_us = asking.clock_us.min(clock_us);
        if asking.admitted.len() < majority {
            return;
        }
        let behind_us = asking.clock_us.saturating_sub(cx.clock().midpoint_us());
        if behind_us > self.clock_bound_us {
            let ahead_us = i64::try_from(behind_us).map_or(i64::MIN, |us| -us);
            return self.conclude(
                version,
                Some(Decision::Abort),
                Outcome::ClockSkew { ahead_us },
                cx,
            );
        }
        self.heard_time = Some(Heard { clock_us: asking.clock_us, at: cx.now() });
        let parts = core::mem::take(&mut asking.parts);
        self.prepare(version, parts.into_iter(), TENTATIVE_RETRIES, cx);
    }
}

#[cfg(test)]
impl Coordinator {
    /// Sets what it knows of the replicas' clocks.
    pub(in crate::morty) fn hears_time(&mut self, clock_us: u64, at: Timestamp) {
        self.heard_time = Some(Heard { clock_us, at });
    }
}
