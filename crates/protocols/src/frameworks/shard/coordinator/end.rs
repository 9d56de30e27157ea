//! Transactions that are over, as far as their client is concerned, and whose shards may not know it.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Context, Timestamp};
use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Decision, Message, Request};
use super::{Coordinator, Timer};

/// How many a client remembers; of others the shards find out by themselves.
const ENDING_AT_MOST: usize = 1 << 16;
/// How often a shard is told, beyond which it finds out by itself.
const TOLD_AT_MOST: u32 = 8;

type Cx<'a, C> = Context<'a, Coordinator<C>>;

/// A transaction that is over.
#[derive(Debug)]
pub(super) struct Ending {
    decision: Decision,
    /// The shards that have not said that they know.
    missing: Vec<u16>,
    told: Timestamp,
    times: u32,
}

impl<C: Control> Coordinator<C> {
    /// Tells shards how a transaction has ended. The client's program knows already, or is told now.
    pub(super) fn tell(
        &mut self,
        txn: Version,
        decision: Decision,
        shards: Vec<u16>,
        cx: &mut Cx<'_, C>,
    ) {
        for shard in &shards {
            let request = Request::End { txn, decision };
            cx.send(self.leader_of(*shard, 0), Message::Request(request));
        }
        if self.ending.is_empty() {
            cx.set_timer(Timer::Tell, self.tell_again_after());
        }
        if self.ending.len() >= ENDING_AT_MOST {
            self.ending.pop_first();
        }
        self.ending.insert(txn, Ending { decision, missing: shards, told: cx.now(), times: 1 });
    }

    fn tell_again_after(&self) -> Duration {
        4 * self.group.round_trip() + Duration::from_millis(200)
    }

    /// A shard knows how these ended.
    pub(super) fn on_ended(&mut self, from: NodeId, txns: &[Version]) {
        for txn in txns {
            let Some(ending) = self.ending.get_mut(txn) else { continue };
            ending.missing.retain(|shard| *shard != from.partition());
            if ending.missing.is_empty() {
                self.ending.remove(txn);
            }
        }
    }

    /// Tells the new leader of a shard what the former one has not confirmed.
    pub(super) fn tell_new_leader(&self, leader: NodeId, cx: &mut Cx<'_, C>) {
        for (txn, ending) in &self.ending {
            if ending.missing.contains(&leader.partition()) {
                let request = Request::End { txn: *txn, decision: ending.decision };
                cx.send(leader, Message::Request(request));
            }
        }
    }

    /// Tells shards again that have not answered.
    pub(super) fn tell_again(&mut self, cx: &mut Cx<'_, C>) {
        let (now, after) = (cx.now(), self.tell_again_after());
        let mut ending: BTreeMap<Version, Ending> = core::mem::take(&mut self.ending);
        for (txn, ending) in &mut ending {
            if now.since(ending.told) < after {
                continue;
            }
            ending.told = now;
            ending.times += 1;
            for shard in &ending.missing {
                // It may lead no more.
                self.leaders.remove(shard);
                let request = Request::End { txn: *txn, decision: ending.decision };
                let to = self.leader_of(*shard, ending.times);
                cx.send(to, Message::Request(request));
            }
        }
        ending.retain(|_, ending| ending.times <= TOLD_AT_MOST);
        self.ending = ending;
        if !self.ending.is_empty() {
            cx.set_timer(Timer::Tell, after);
        }
    }
}
