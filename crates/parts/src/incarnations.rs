//! Telling replicas from those whose places they took.
//!
//! A replica whose disk was lost comes back in a later *incarnation*. It does not have what its predecessor
//! acknowledged. So every acknowledgement names the latest incarnations that its sender has heard of, its own
//! among them, and acknowledgements count together only if none of them names a later incarnation of a replica
//! that is counted.
//!
//! That is enough if a replica acknowledges nothing before some of the others have shown it what they have, so
//! many that each quorum of its predecessor's has one of them besides it. Such a one has either acknowledged
//! before it showed what it had, and then the new incarnation was shown that; or later, and then its
//! acknowledgement names the new incarnation.

use serried_model::NodeId;

/// How many records may follow the last of these in a log before it is written anew.
const RECORDS_BEHIND: u64 = 1024;

/// Of each member of a replica's group the latest incarnation that the replica has heard of, by when it
/// began in microseconds since the Unix epoch; 0 if it has not lost its disk. They lie in the log of the
/// replica, which must not say that it has heard of one before that is durable.
#[derive(Debug)]
pub struct Incarnations {
    of: Vec<u64>,
    /// Where they lie in the log, if there are any.
    position: Option<u64>,
}

impl Incarnations {
    /// Those of a group of so many that have lost nothing.
    pub fn new(members: usize) -> Incarnations {
        Incarnations { of: vec![0; members], position: None }
    }

    /// That of a replica.
    pub fn of(&self, node: NodeId) -> u64 {
        if node.is_coordinator() { 0 } else { self.of[node.member()] }
    }

    /// What an acknowledgement names: of each member the incarnation; nothing where none has lost its disk.
    pub fn named(&self) -> Vec<u64> {
        if self.are_there() { self.of.clone() } else { Vec::new() }
    }

    /// Takes them from a record.
    pub fn replay(&mut self, of: Vec<u64>) {
        self.of = of;
    }

    /// A replica is in an incarnation. They have to be recorded then.
    pub fn set(&mut self, node: NodeId, incarnation: u64) {
        self.of[node.member()] = incarnation;
    }

    /// What to append to the log at `position`, if there are any.
    pub fn record_at(&mut self, position: u64) -> Option<Vec<u64>> {
        self.are_there().then(|| {
            self.position = Some(position);
            self.of.clone()
        })
    }

    /// Whether they lie so far before `position` in the log that they should be recorded anew.
    pub fn are_far_before(&self, position: u64) -> bool {
        self.position.is_some_and(|at| at + RECORDS_BEHIND < position)
    }

    /// From where on the log is needed, if otherwise it were from `position` on.
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
    fn the_log_is_needed_from_the_last_record_on_which_is_written_anew_at_times() {
        let mut incarnations = Incarnations::new(3);
        incarnations.set(NodeId(0), 40);
        incarnations.record_at(9);
        assert_eq!((incarnations.need_log_from(5), incarnations.need_log_from(100)), (5, 9));
        assert!(!incarnations.are_far_before(1000) && incarnations.are_far_before(2000));
        incarnations.record_at(2000);
        assert_eq!(incarnations.need_log_from(3000), 2000);
    }
}
