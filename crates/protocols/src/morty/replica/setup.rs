//! What a replica is given when it is created.

use serried_actor::{Group, Settings};
use serried_model::{NodeId, Version};
use serried_parts::Effect;

use super::Cx;
use crate::morty::message::{Contents, Message, TaggedWrite, Truncating};
use crate::morty::{Control, Options};

/// Who the replica is, and how it is configured. It never changes.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) id: NodeId,
    pub(super) group: Group,
    pub(super) options: Options,
    pub(super) settings: Settings,
}

impl Setup {
    /// Whether a node is a replica of this one's partition.
    pub(super) fn is_peer(&self, node: NodeId) -> bool {
        self.group.contains(node) && node.partition() == self.id.partition()
    }

    /// The replica of this one's partition whose turn it is, other than this one.
    pub(super) fn peer_at(&self, turn: usize) -> NodeId {
        let member = match turn % self.group.size() {
            own if own == self.id.member() => (own + 1) % self.group.size(),
            other => other,
        };
        NodeId::replica(self.id.partition(), member)
    }

    /// Whether a node is a replica on this one's machine.
    pub(super) fn is_on_same_machine(&self, node: NodeId) -> bool {
        self.group.contains(node) && node.member() == self.id.member()
    }

    /// The time between two truncations, in microseconds.
    pub(super) fn truncation_every_us(&self) -> u64 {
        self.settings.truncation_every_ms.max(1) * 1000
    }

    /// How old everything below a truncation is when it begins, in microseconds.
    pub(super) fn truncation_lag_us(&self) -> u64 {
        self.settings.truncation_lag_ms * 1000
    }

    /// Sends to all replicas of this one's partition, itself included.
    pub(super) fn broadcast(&self, message: Truncating, cx: &mut Cx) {
        cx.broadcast(self.id.partition(), self.group.all(), Message::Truncating(message));
    }

    /// Whether a version is further ahead of this replica's clock than clocks may differ.
    pub(super) fn is_too_far_ahead(&self, version: Version, cx: &Cx) -> bool {
        let bound_us = self.settings.clock_bound_ms.saturating_mul(1000);
        version.timestamp_us > cx.clock().latest_us.saturating_add(bound_us)
    }

    /// Whether a transaction can read and write this in `partition`. A correct coordinator sends nothing else, and the
    /// code behind relies on it.
    pub(super) fn is_sound(&self, version: Version, partition: u16, contents: &Contents) -> bool {
        let is_result = |write: &TaggedWrite| matches!(write.effect, Effect::Result(_));
        contents.overwritten.is_empty()
            && !contents.writes.iter().any(is_result)
            && self.can_be_fetched(version, partition, contents)
    }

    /// Whether another replica may have committed this.
    pub(super) fn can_be_fetched(
        &self,
        version: Version,
        partition: u16,
        contents: &Contents,
    ) -> bool {
        let (participants, most) = (&contents.participants, self.group.partitions());
        participants.len() <= usize::from(most)
            && participants.contains(&partition)
            && participants.iter().enumerate().all(|(i, participant)| {
                *participant < most && !participants[..i].contains(participant)
            })
            // Nobody reads from its own future.
            && contents.reads.iter().all(|read| read.found.is_sound(version))
            && (self.options.control == Control::Ordering || !has_modifications(contents))
            && !contents.writes.iter().any(|it| it.effect == Effect::Modify(Box::default()))
    }
}

/// Whether something in it needs replicas that execute modifications.
fn has_modifications(contents: &Contents) -> bool {
    contents.writes.iter().any(|write| matches!(write.effect, Effect::Modify(_)))
        || contents.reads.iter().any(|read| !read.found.modified.is_empty())
}
