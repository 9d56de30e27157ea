//! The group that keeps a log, as one of its members knows it.

use core::time::Duration;

use serried_actor::{Context, Group, NodeSet, Settings};
use serried_model::NodeId;

use super::host::Host;
use super::message::{Entry, Message};

/// How many beats a leader sends within the time-out for a silent leader.
const BEATS_IN_PATIENCE: u32 = 4;
/// The shortest time-out for a silent leader, without round trips.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);

const _: () = assert!(
    BEATS_IN_PATIENCE >= 3,
    "a leader is doubted one beat before it is given up, and not for one lost beat"
);

/// The members of the group, and the settings for all components of a log.
#[derive(Debug)]
pub(super) struct Members {
    /// This replica.
    pub(super) id: NodeId,
    pub(super) group: Group,
    /// Whether the leader sends entries only to as many followers as it needs.
    pub(super) thrifty: bool,
    /// How many replicas must accept an entry before it is chosen: a majority, except in tests of
    /// smaller quorums.
    pub(super) quorum: usize,
    election_timeout: Duration,
}

impl Members {
    pub(super) fn new(id: NodeId, group: Group, settings: &Settings) -> Members {
        let (quorum, thrifty) = (group.majority(), settings.thrifty);
        Members { id, group, thrifty, quorum, election_timeout: settings.election_timeout() }
    }

    /// The number of this replica.
    pub(super) fn own(&self) -> usize {
        self.id.member()
    }

    /// The number of the member that leads if all members are well. It differs between partitions,
    /// in turn.
    pub(super) fn preferred(&self) -> usize {
        usize::from(self.id.partition()) % self.group.size()
    }

    /// Whether this is the only replica.
    pub(super) fn is_alone(&self) -> bool {
        self.group.size() == 1
    }

    pub(super) fn node(&self, member: usize) -> NodeId {
        NodeId::replica(self.id.partition(), member)
    }

    /// All replicas but this one.
    pub(super) fn others(&self) -> NodeSet {
        self.group.all().without([self.id].into_iter().collect())
    }

    /// All replicas but this one, the nearest first.
    pub(super) fn others_by_distance(&self) -> impl Iterator<Item = NodeId> + Clone {
        let nearest = (0..self.group.size()).map(|i| self.group.choice(self.id.partition(), i));
        nearest.filter(|node| *node != self.id)
    }

    /// The time-out for a silent leader.
    pub(super) fn patience(&self) -> Duration {
        self.election_timeout.max(LEAST_PATIENCE) + 2 * self.group.round_trip()
    }

    /// The time between two beats.
    pub(super) fn beat(&self) -> Duration {
        self.patience() / BEATS_IN_PATIENCE
    }

    pub(super) fn send<E: Entry, H: Host<Entry = E>>(
        &self,
        to: NodeSet,
        message: Message<E>,
        cx: &mut Context<'_, H>,
    ) {
        cx.broadcast(self.id.partition(), to, H::message(message));
    }
}
