//! How a replica finds out that there is no leader. It asks the others before it takes a ballot, so that a replica that was
//! cut off or paused does not disturb a leader.

use core::time::Duration;

use serried_actor::{Context, NodeSet, Timestamp};
use serried_model::NodeId;

use super::log::{Host, Log, Machine, Role};
use super::message::{Entry, Message, Timer};

/// How many beats a leader sends in the time after which a silent leader is given up.
const BEATS_IN_PATIENCE: u32 = 4;
/// The shortest time after which a leader is given up, round trips not counted.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// How much longer each member waits than the one before it, before it asks the others.
const APART: Duration = Duration::from_millis(5);
/// After how long the others are asked again, round trips not counted.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A question to the others whether they have a leader.
#[derive(Debug)]
pub(super) struct Canvass {
    /// Distinguishes this question from earlier ones.
    nonce: u64,
    /// Those that have no leader and would promise a ballot.
    willing: NodeSet,
}

impl<E: Entry> Log<E> {
    /// The time after which a silent leader is given up.
    pub(super) fn patience(&self) -> Duration {
        self.election_timeout.max(LEAST_PATIENCE) + 2 * self.group.round_trip()
    }

    /// The time between two beats.
    pub(super) fn beat(&self) -> Duration {
        self.patience() / BEATS_IN_PATIENCE
    }

    /// Whether this replica has heard of a leader lately. It doubts a leader one beat before it looks for another one, so
    /// that the first replica that looks finds the others willing.
    pub(super) fn hears_leader(&self, now: Timestamp) -> bool {
        now.since(self.heard) < self.patience() - self.beat()
    }

    /// The member that leads if all members are well. Partitions have different ones, in turn.
    pub(super) fn preferred(&self) -> usize {
        usize::from(self.id.partition()) % self.group.size()
    }

    /// Sets the timer for giving the leader up. The preferred member's is the shortest, then those of its successors.
    pub(super) fn wait_for_leader<H: Host<Entry = E>>(&self, cx: &mut Context<'_, H>) {
        let since = cx.now().since(self.heard);
        let left = self.patience().saturating_sub(since);
        let size = self.group.size();
        let rank = (self.id.member() + size - self.preferred()) % size;
        let apart = (APART + self.group.round_trip()).min(self.beat());
        let own = apart * rank as u32 + cx.jitter(apart);
        cx.set_timer(H::timer(Timer::Elect), left + own);
    }

    pub(super) fn look_for_leader<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        match &self.role {
            Role::Leader(_) => {}
            Role::Candidate(_) => self.prepare_again(cx),
            Role::Follower | Role::Canvasser(_) => {
                let heard = cx.now().since(self.heard) < self.patience();
                if heard || self.is_behind() || self.stops {
                    self.role = Role::Follower;
                    return self.wait_for_leader(cx);
                }
                self.canvass(machine, cx);
            }
        }
    }

    /// Asks the others whether they would promise this replica a ballot.
    fn canvass<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let nonce = cx.draw();
        self.role = Role::Canvasser(Canvass { nonce, willing: NodeSet::EMPTY });
        // The question promises nothing, so it need not wait for a flush.
        for member in self.others().members() {
            cx.send_before_durable(self.node(member), H::message(Message::Canvass { nonce }));
        }
        let again = cx.jitter(ASK_AGAIN) + 2 * self.group.round_trip();
        cx.set_timer(H::timer(Timer::Elect), again);
        self.is_willing(self.id, nonce, machine, cx);
    }

    /// Another replica asks whether this one has a leader.
    pub(super) fn on_canvass<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        cx: &mut Context<'_, H>,
    ) {
        if self.lost.is_some() {
            return; // It could not promise a ballot.
        }
        match &self.role {
            Role::Leader(_) => self.send_beat(from.member(), cx),
            Role::Follower if self.hears_leader(cx.now()) => {}
            _ => cx.send_before_durable(from, H::message(Message::Willing { nonce })),
        }
    }

    /// `from` would promise a ballot. Takes one if a majority would.
    pub(super) fn is_willing<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let majority = self.group.majority();
        let Role::Canvasser(canvass) = &mut self.role else { return };
        if canvass.nonce != nonce {
            return; // An answer to an earlier question: `from` may have heard of a leader since.
        }
        canvass.willing.insert(from);
        if canvass.willing.len() >= majority {
            self.campaign(machine, cx);
        }
    }
}
