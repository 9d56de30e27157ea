//! Distinguishes replicas from those that they replace.
//!
//! A replica whose disk was lost comes back in a later *incarnation*. It does not have what its predecessor has
//! acknowledged. So every acknowledgement names, for each member, the latest incarnation that its sender knows, its own
//! among them. Acknowledgements count together only if none of them names a later incarnation of a replica that is
//! counted.
//!
//! This is enough under one condition. Before a replaced replica acknowledges anything, others must have shown it what
//! they have: so many that every quorum of its predecessor contains one of them besides the predecessor. Such a member has
//! acknowledged either before it showed what it had, and then the new incarnation was shown that. Or it has acknowledged
//! later, and then its acknowledgement names the new incarnation.
//!
//! Incarnations of a member must rise, although clocks may be wrong. So a replaced replica asks the others which
//! incarnation of it they know, and chooses a greater one. It also copies which incarnations of other members they
//! know. Otherwise a member's incarnation would be forgotten when all replicas that knew it have been replaced one
//! after the other.

use serried_model::NodeId;

/// How many records may follow the incarnations in a log before they are recorded again.
const RECORDS_BEHIND: u64 = 1024;

/// The latest incarnation of each member of a replica's group that the replica knows. An incarnation is named by when it
/// began, in microseconds since the Unix epoch, or 0 for a member that has not lost its disk. They are in the replica's
/// log. The replica must not name an incarnation to others before its record is durable.
#[derive(Debug)]
pub struct Incarnations {
    of: Vec<u64>,
    /// The position of their last record in the log, if there is one.
    position: Option<u64>,
}

impl Incarnations {
    /// Those of a group with `members` members, none of which has lost its disk.
    pub fn new(members: usize) -> Incarnations {
        Incarnations { of: vec![0; members], position: None }
    }

    /// The incarnation of a replica; 0 for a coordinator.
    pub fn of(&self, node: NodeId) -> u64 {
        if node.is_coordinator() { 0 } else { self.of[node.member()] }
    }

    /// What an acknowledgement names: the incarnation of each member. Empty if no member has lost its disk.
    pub fn named(&self) -> Vec<u64> {
        if self.are_there() { self.of.clone() } else { Vec::new() }
    }

    /// Restores them from a record.
    pub fn replay(&mut self, of: Vec<u64>) {
        self.of = of;
    }

    /// Notes the incarnation of a replica. The caller has to record that.
    pub fn set(&mut self, node: NodeId, incarnation: u64) {
        self.of[node.member()] = incarnation;
    }

    /// The record to append to the log at `position`, if any member has lost its disk.
    pub fn record_at(&mut self, position: u64) -> Option<Vec<u64>> {
        self.are_there().then(|| {
            self.position = Some(position);
            self.of.clone()
        })
    }

    /// Whether their last record lies so far before `position` in the log that they should be recorded again.
    pub fn are_far_before(&self, position: u64) -> bool {
        self.position.is_some_and(|at| at + RECORDS_BEHIND < position)
    }

    /// From which position on the log is needed, if everything else needs it from `position` on.
    pub fn need_log_from(&self, position: u64) -> u64 {
        self.position.map_or(position, |at| at.min(position))
    }

    fn are_there(&self) -> bool {
        self.of.iter().any(|incarnation| *incarnation > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_named_or_recorded_before_a_disk_was_lost() {
        let mut incarnations = Incarnations::new(3);
        assert_eq!((incarnations.named(), incarnations.record_at(7)), (vec![], None));
        assert_eq!(incarnations.need_log_from(5000), 5000);
        incarnations.set(NodeId(2), 40);
        assert_eq!(incarnations.record_at(9), Some(vec![0, 0, 40]));
        assert_eq!((incarnations.named(), incarnations.of(NodeId(2))), (vec![0, 0, 40], 40));
    }

    #[test]
    fn incarnations_keep_the_log_until_they_are_recorded_again() {
        let mut incarnations = Incarnations::new(3);
        incarnations.set(NodeId(0), 40);
        incarnations.record_at(9);
        assert_eq!((incarnations.need_log_from(5), incarnations.need_log_from(100)), (5, 9));
        assert!(!incarnations.are_far_before(1000) && incarnations.are_far_before(2000));
        incarnations.record_at(2000);
        assert_eq!(incarnations.need_log_from(3000), 2000);
    }
}
