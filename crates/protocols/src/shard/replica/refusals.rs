//! Transactions that a leader refuses, for ever.
//!
//! A leader remembers whom it has refused as long as it leads. A later leader refuses all who began before its window; so
//! whoever is refused from memory began before the end of the window that is in the log. Who begins later is refused by
//! an entry in the log, and is told once that is chosen.

use serried_actor::Context;
use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::super::control::Control;
use super::super::message::{Decision, Entry, Message, Refusal, Reply};
use super::Replica;
use super::leader::Shard;
use super::open::Standing;

/// How many a leader remembers. If there are more, the window is closed for those who began when the older half did.
pub(super) const REFUSED_AT_MOST: usize = 1 << 18;
/// How many there may be in the log who begin after the window. Others hear nothing.
const BARRED_AT_MOST: usize = 1 << 16;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// A transaction that begins after the window and is about to be refused in the log.
#[derive(Debug)]
pub(super) struct Barred {
    reason: Refusal,
    /// Who is to be told.
    to: SmallVec<[NodeId; 1]>,
}

impl<C: Control> Shard<C> {
    /// Answers what rests on nothing but the window, or promises nothing. The window was chosen, so a majority has it on
    /// disk; but a replica that is alone takes for chosen what it has not made durable yet.
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

    /// A transaction will never commit; the concurrency control has nothing to do with it any more.
    pub(super) fn refuse(&mut self, txn: Version, reason: Refusal, cx: &mut Cx<'_, C>) {
        let to_us = self.table.window().to_us;
        let leader = self.leader_mut();
        let standing = leader.open.get(&txn).map(|open| open.standing);
        if standing.is_some_and(|standing| standing != Standing::Executing) {
            // Nobody was told that it is ready, but a later leader may find its part.
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
        // It may be in the log already that these are taken no more.
        let closed = oldest.is_none_or(|us| us < leader.proposed.from_us);
        if refused.len() <= REFUSED_AT_MOST || closed {
            return;
        }
        let half = refused.keys().nth(refused.len() / 2).map(|txn| txn.timestamp_us);
        self.close_before(half.map_or(0, |us| us + 1));
    }

    /// Refusals of transactions that would be late are not needed.
    pub(super) fn forget_refused(&mut self) {
        let from_us = self.table.window().from_us;
        let leader = self.leader_mut();
        leader.refused = leader.refused.split_off(&Version::at(from_us));
    }

    /// Refuses a transaction, which is not known, for ever, and tells `to` when that is sure.
    pub(super) fn bar(&mut self, txn: Version, reason: Refusal, to: NodeId, cx: &mut Cx<'_, C>) {
        if txn.timestamp_us < self.table.window().to_us {
            if self.refusal(txn).is_none() {
                self.refuse(txn, reason, cx);
            }
            return self.tell_refused(to, txn, cx);
        }
        let leader = self.leader_mut();
        if let Some(barred) = leader.barred.get_mut(&txn) {
            if !barred.to.contains(&to) {
                barred.to.push(to);
            }
            return;
        }
        if leader.ahead >= BARRED_AT_MOST {
            return;
        }
        leader.ahead += 1;
        leader.barred.insert(txn, Barred { reason, to: [to].into_iter().collect() });
        let (decision, keys) = (Decision::Abort, [].into());
        leader.unproposed.push_back(Entry::Decide { txn, decision, keys });
    }

    /// Whether a transaction that has ended was barred; if so, all are told who wait for that.
    pub(super) fn tell_barred(&mut self, txn: Version, cx: &mut Cx<'_, C>) -> bool {
        let Some(Barred { reason, to }) = self.leader_mut().barred.remove(&txn) else {
            return false;
        };
        for to in to {
            cx.send(to, Message::Reply(Reply::Refused { txn, reason: reason.clone() }));
        }
        true
    }

    /// Counts those who are refused in the log and begin after the window.
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
