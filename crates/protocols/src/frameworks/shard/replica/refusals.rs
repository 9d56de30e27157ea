//! Transactions that a leader refuses permanently.
//!
//! A leader remembers its refusals in memory, for as long as it leads. A later leader refuses all transactions that began
//! before its own window. So a leader refuses a transaction in memory only if it began before the end of the window that
//! is in the log. A transaction that begins later is refused by an entry in the log, and the client is told once the entry
//! is chosen. Until then it is not taken, even if the window is extended meanwhile. Nor is it refused in the log if a window
//! on its way to the log allows it.

use serried_actor::Context;
use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::super::control::Control;
use super::super::message::{Decision, Entry, Message, Refusal, Reply};
use super::Replica;
use super::leader::Shard;
use super::open::Standing;

/// How many refusals a leader remembers. If there are more, it closes the window for times up to that of the older half.
pub(super) const REFUSED_AT_MOST: usize = 1 << 18;
/// How many transactions after the window may be refused in the log at a time. Others get no answer.
const BARRED_AT_MOST: usize = 1 << 16;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// A transaction that begins after the window and is about to be refused in the log.
#[derive(Debug)]
pub(super) struct Barred {
    reason: Refusal,
    /// Those that are told once it is.
    to: SmallVec<[NodeId; 1]>,
}

impl<C: Control> Shard<C> {
    /// Sends an answer that depends only on the window, or that promises nothing. It need not wait for a flush, because the
    /// window was chosen, so a majority has it on disk. A single replica waits: it takes for chosen what may not be durable
    /// yet.
    pub(super) fn say(&self, to: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        match self.group.size() {
            1 => cx.send(to, Message::Reply(reply)),
            _ => cx.send_before_durable(to, Message::Reply(reply)),
        }
    }

    /// Why a transaction is refused, if it is.
    pub(super) fn refusal(&self, txn: Version) -> Option<Refusal> {
        self.leader.as_ref().and_then(|leader| leader.refused.get(&txn).cloned())
    }

    /// Refuses a transaction. The concurrency control must have given it up.
    pub(super) fn refuse(&mut self, txn: Version, reason: Refusal, cx: &mut Cx<'_, C>) {
        let to_us = self.table.window().to_us;
        let leader = self.leader_mut();
        let standing = leader.open.get(&txn).map(|open| open.standing);
        if standing.is_some_and(|standing| standing != Standing::Executing) {
            // No client was told that it is ready, but a later leader may find its part.
            return self.decide(txn, Decision::Abort, cx);
        }
        assert!(txn.timestamp_us < to_us, "transaction {txn} is refused beyond the window");
        leader.refused.insert(txn, reason.clone());
        leader.parked.release(txn);
        if let Some(open) = leader.open.remove(&txn) {
            for to in open.waiting().chain(open.inspectors.iter().copied()) {
                self.say(to, Reply::Refused { txn, reason: reason.clone() }, cx);
            }
            for to in open.enders {
                self.acknowledge_soon(to, txn, cx);
            }
        }
        self.bound_refused();
    }

    fn bound_refused(&mut self) {
        let leader = self.leader_mut();
        let refused = &leader.refused;
        let oldest = refused.first_key_value().map(|(txn, _)| txn.timestamp_us);
        // An entry that closes the window for these may be on its way already.
        let closed = oldest.is_none_or(|us| us < leader.proposed.from_us);
        if refused.len() <= REFUSED_AT_MOST || closed {
            return;
        }
        let half = refused.keys().nth(refused.len() / 2).map(|txn| txn.timestamp_us);
        self.close_before(half.map_or(0, |us| us + 1));
    }

    /// Forgets refusals of transactions before the window, which are late anyway.
    pub(super) fn forget_refused(&mut self) {
        let from_us = self.table.window().from_us;
        let leader = self.leader_mut();
        leader.refused = leader.refused.split_off(&Version::at(from_us));
    }

    /// Refuses an unknown transaction permanently, and tells `to` when that is certain.
    pub(super) fn bar(&mut self, txn: Version, reason: Refusal, to: NodeId, cx: &mut Cx<'_, C>) {
        if txn.timestamp_us < self.table.window().to_us {
            if self.refusal(txn).is_none() {
                self.refuse(txn, reason, cx);
            }
            return self.tell_refused(to, txn, cx);
        }
        if self.waits_to_be_barred(txn, to) {
            return;
        }
        let leader = self.leader_mut();
        if leader.ahead >= BARRED_AT_MOST {
            return;
        }
        leader.ahead += 1;
        leader.barred.insert(txn, Barred { reason, to: [to].into_iter().collect() });
        let (decision, keys) = (Decision::Abort, [].into());
        leader.unproposed.push_back(Entry::Decide { txn, decision, keys });
    }

    /// Whether a transaction is about to be refused in the log. If so, `to` is told with the others. The window may have
    /// reached it since, but what is in the log comes first.
    pub(super) fn waits_to_be_barred(&mut self, txn: Version, to: NodeId) -> bool {
        let Some(barred) = self.leader_mut().barred.get_mut(&txn) else { return false };
        if !barred.to.contains(&to) {
            barred.to.push(to);
        }
        true
    }

    /// Whether a transaction that has ended was refused in the log. If so, everybody who waits for that is told.
    pub(super) fn tell_barred(&mut self, txn: Version, cx: &mut Cx<'_, C>) -> bool {
        let Some(Barred { reason, to }) = self.leader_mut().barred.remove(&txn) else {
            return false;
        };
        for to in to {
            cx.send(to, Message::Reply(Reply::Refused { txn, reason: reason.clone() }));
        }
        true
    }

    /// Counts the transactions that begin after the window and are refused in the log.
    pub(super) fn count_barred(&mut self) {
        let ahead = self.table.decided_from(self.table.window().to_us);
        let leader = self.leader_mut();
        leader.ahead = ahead + leader.barred.len();
    }

    pub(super) fn tell_refused(&self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if let Some(reason) = self.refusal(txn) {
            cx.send(to, Message::Reply(Reply::Refused { txn, reason }));
        }
    }
}
