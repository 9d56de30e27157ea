//! How a leader makes another replica lead in its place, because its node stops or because another member is preferred.
//!
//! It takes no more entries, sends its successor everything that it has, and tells it to become a candidate at once. The
//! others promise the successor a ballot although they have a leader, because its `Prepare` names the ballot of that
//! leader. If this does not succeed in time, the leader continues: its ballot is its own until it promises another one.

use serried_actor::{Context, NodeSet, Timestamp};
use serried_model::NodeId;

use super::lead::SPARED_ENTRIES;
use super::log::{Host, Log, Machine, Role};
use super::message::{Ballot, Entry, Message};

/// How long the preferred member must have been well before the lead is handed to it, in election time-outs.
const WELL_FOR: u32 = 25;

/// A hand-over that is under way.
#[derive(Debug)]
pub(super) struct HandOver {
    to: usize,
    begun: Timestamp,
    /// The replicas that have been asked so far, `to` included.
    tried: NodeSet,
}

impl<E: Entry> Log<E> {
    /// The node is about to stop. From now on this replica does not begin to lead, and hands over if it leads.
    pub fn stop<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.stops = true;
        match &self.role {
            Role::Leader(_) => self.look_after_hand_over(cx),
            Role::Candidate(_) | Role::Canvasser(_) => self.role = Role::Follower,
            Role::Follower => {}
        }
    }

    /// Whether this replica may stop now: it does not lead, or it is the only one.
    pub fn may_stop(&self) -> bool {
        self.is_alone() || self.leads().is_none()
    }

    /// Begins to hand over if there is a reason, continues to, and gives up if it takes too long.
    pub(super) fn look_after_hand_over<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let (now, patience) = (cx.now(), self.patience());
        let Role::Leader(leader) = &mut self.role else { return };
        let mut tried = NodeSet::EMPTY;
        if let Some(begun) = &leader.hand_over {
            if now.since(begun.begun) < patience {
                return self.hand_over_on(cx);
            }
            tried = begun.tried;
            leader.followers[begun.to].well_since = now;
            leader.hand_over = None;
        }
        let to = if self.stops { self.best_but(tried) } else { self.preferred_if_well(now) };
        let (Some(to), Role::Leader(leader)) = (to, &mut self.role) else { return };
        tried.insert(NodeId::replica(self.id.partition(), to));
        leader.hand_over = Some(HandOver { to, begun: now, tried });
        self.hand_over_on(cx);
    }

    /// Asks the successor to lead, once it has everything that this leader has proposed.
    pub(super) fn hand_over_on<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let Role::Leader(leader) = &self.role else { return };
        let Some(HandOver { to, .. }) = leader.hand_over else { return };
        if leader.has_queued() {
            return; // What is queued is proposed first.
        }
        if leader.followers[to].matched < self.slots.end() {
            return self.feed(to, cx);
        }
        self.send(self.node(to), Message::HandOver { ballot: self.promised }, cx);
    }

    /// The leader asks this replica to lead in its place.
    pub(super) fn on_hand_over<H: Host<Entry = E>>(
        &mut self,
        ballot: Ballot,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let follows = matches!(self.role, Role::Follower | Role::Canvasser(_));
        if follows && ballot == self.promised && !self.is_behind() {
            self.campaign_after(ballot, machine, cx);
        }
    }

    /// The best successor: one that was not tried yet, that is not slow, and that lacks least. Of several the nearest.
    fn best_but(&self, tried: NodeSet) -> Option<usize> {
        let Role::Leader(leader) = &self.role else { return None };
        let partition = self.id.partition();
        let nearest = (0..self.group.size()).map(|i| self.group.choice(partition, i));
        let others: Vec<NodeId> = nearest.filter(|node| *node != self.id).collect();
        let worth = |node: &&NodeId| {
            let follower = &leader.followers[node.member()];
            (!tried.contains(**node), !follower.slow, follower.matched)
        };
        // The last of several is taken.
        others.iter().rev().max_by_key(worth).map(|node| node.member())
    }

    /// The preferred member, if it is another one and has been well for long.
    fn preferred_if_well(&self, now: Timestamp) -> Option<usize> {
        let Role::Leader(leader) = &self.role else { return None };
        let to = self.preferred();
        if to == self.id.member() {
            return None;
        }
        let follower = &leader.followers[to];
        let well = now.since(follower.well_since) >= WELL_FOR * self.patience();
        let lags = follower.slow || follower.matched + SPARED_ENTRIES < self.slots.end();
        (well && !lags).then_some(to)
    }
}
