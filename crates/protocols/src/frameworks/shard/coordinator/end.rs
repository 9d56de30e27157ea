//! Transactions that have ended for their client, but perhaps not yet at their shards.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Actor, Context, Timestamp};
use serried_model::{NodeId, Version};

use super::super::message::{Decision, Message, Request};
use super::leaders::Leaders;

/// How many ended transactions a client remembers. Shards resolve others by themselves.
const ENDING_AT_MOST: usize = 1 << 16;
/// How often the client sends an end to a shard that does not answer. Then the shard resolves the
/// transaction by itself.
const TOLD_AT_MOST: u32 = 8;

/// A coordinator that notifies shards of ends.
pub(super) trait Client: Actor<Message = Message> {
    /// The timer after which it repeats them.
    const TELL: Self::Timer;
}

/// The transactions that have ended for the client, until their shards confirm it.
#[derive(Debug, Default)]
pub(super) struct Endings(BTreeMap<Version, Ending>);

/// A transaction that has ended for the client.
#[derive(Debug)]
struct Ending {
    decision: Decision,
    /// The shards that have not confirmed the end.
    missing: Vec<u16>,
    told: Timestamp,
    times: u32,
}

impl Endings {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sends a transaction's outcome to its shards. The client's program has the outcome already,
    /// or gets it now.
    pub(super) fn tell<A: Client>(
        &mut self,
        txn: Version,
        decision: Decision,
        shards: Vec<u16>,
        leaders: &Leaders,
        cx: &mut Context<'_, A>,
    ) {
        for shard in &shards {
            let request = Request::End { txn, decision };
            cx.send(leaders.of(*shard, 0), Message::Request(request));
        }
        if self.0.is_empty() {
            cx.set_timer(A::TELL, tell_again_after(leaders));
        }
        if self.0.len() >= ENDING_AT_MOST {
            self.0.pop_first();
        }
        self.0.insert(txn, Ending { decision, missing: shards, told: cx.now(), times: 1 });
    }

    /// A shard confirms the ends of these transactions.
    pub(super) fn on_ended(&mut self, from: NodeId, txns: &[Version]) {
        for txn in txns {
            let Some(ending) = self.0.get_mut(txn) else { continue };
            ending.missing.retain(|shard| *shard != from.partition());
            if ending.missing.is_empty() {
                self.0.remove(txn);
            }
        }
    }

    /// Sends the new leader of a shard all ends that the former one has not confirmed.
    pub(super) fn tell_new_leader<A: Client>(&self, leader: NodeId, cx: &mut Context<'_, A>) {
        for (txn, ending) in &self.0 {
            if ending.missing.contains(&leader.partition()) {
                let request = Request::End { txn: *txn, decision: ending.decision };
                cx.send(leader, Message::Request(request));
            }
        }
    }

    /// Repeats the ends that shards have not confirmed.
    pub(super) fn tell_again<A: Client>(&mut self, leaders: &mut Leaders, cx: &mut Context<'_, A>) {
        let (now, after) = (cx.now(), tell_again_after(leaders));
        for (txn, ending) in &mut self.0 {
            if now.since(ending.told) < after {
                continue;
            }
            ending.told = now;
            ending.times += 1;
            for shard in &ending.missing {
                leaders.forget(*shard);
                let request = Request::End { txn: *txn, decision: ending.decision };
                cx.send(leaders.of(*shard, ending.times), Message::Request(request));
            }
        }
        self.0.retain(|_, ending| ending.times <= TOLD_AT_MOST);
        if !self.0.is_empty() {
            cx.set_timer(A::TELL, after);
        }
    }
}

fn tell_again_after(leaders: &Leaders) -> Duration {
    4 * leaders.group.round_trip() + Duration::from_millis(200)
}
