//! Handing over: a leader passes the lead to another replica, because its node stops or because
//! another member is preferred.
//!
//! If the leader merely stopped, the others would have to wait for a time-out. So the leader
//! proposes no more entries, sends its successor everything that it has proposed, and asks it to
//! become a candidate at once. The others promise the successor a ballot although they have a
//! leader, because its `Prepare` names the ballot of that leader. If the successor does not succeed
//! in time, the leader continues: its ballot is valid until it promises another one.

use serried_actor::{NodeSet, Timestamp};
use serried_model::NodeId;

use super::follower::Follower;
use super::leader::SPARED_ENTRIES;
use super::members::Members;

/// How long the preferred member must have kept up before it gets the lead, in election time-outs.
const WELL_FOR: u32 = 25;

const _: () =
    assert!(WELL_FOR > 2, "a member keeps up for longer than a leader waits for a majority");

/// A hand-over that is under way.
#[derive(Debug)]
pub(super) struct HandOver {
    to: NodeId,
    begun: Timestamp,
    /// The replicas that were asked so far, including `to`.
    tried: NodeSet,
}

impl HandOver {
    /// Begins a hand-over to `to`, after others were tried without success.
    pub(super) fn begin(to: NodeId, mut tried: NodeSet, now: Timestamp) -> HandOver {
        tried.insert(to);
        HandOver { to, begun: now, tried }
    }

    /// The number of the successor.
    pub(super) fn to(&self) -> usize {
        self.to.member()
    }

    pub(super) fn tried(&self) -> NodeSet {
        self.tried
    }

    /// Whether it takes too long.
    pub(super) fn is_overdue(&self, now: Timestamp, members: &Members) -> bool {
        now.since(self.begun) >= members.patience()
    }
}

/// The best successor: a replica that was not tried, is not slow, and lacks the fewest entries. Of
/// several such replicas, the nearest.
pub(super) fn best_but(tried: NodeSet, followers: &[Follower], members: &Members) -> Option<usize> {
    let others: Vec<NodeId> = members.others_by_distance().collect();
    let worth = |node: &&NodeId| {
        let follower = &followers[node.member()];
        (!tried.contains(**node), !follower.slow, follower.matched)
    };
    // The last maximum is the nearest one.
    others.iter().rev().max_by_key(worth).map(|node| node.member())
}

/// The preferred member, if it is another one, has kept up for long, and has almost all slots below
/// `end`.
pub(super) fn preferred_if_well(
    followers: &[Follower],
    end: u64,
    members: &Members,
    now: Timestamp,
) -> Option<usize> {
    let to = members.preferred();
    if to == members.own() {
        return None;
    }
    let follower = &followers[to];
    let well = now.since(follower.well_since) >= WELL_FOR * members.patience();
    let lags = follower.slow || follower.matched + SPARED_ENTRIES < end;
    (well && !lags).then_some(to)
}
