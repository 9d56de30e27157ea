//! Identities of participants and of attempts.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A participant in the message exchange: a replica or a coordinator.
///
/// A replica is a member of the group that holds a partition. Its identity consists of the partition and its number
/// within the group. Coordinators have identities from [`NodeId::FIRST_COORDINATOR`] on. Drivers draw them at random,
/// so that no two clients share one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct NodeId(pub u64);

const _: () = assert!(
    NodeId::PARTITIONS * NodeId::MEMBERS == NodeId::FIRST_COORDINATOR as usize,
    "every identity below the coordinators' belongs to one replica"
);
const _: () =
    assert!(NodeId::PARTITIONS <= u16::MAX as usize + 1, "the number of a partition is a u16");

impl NodeId {
    /// The least identity of a coordinator. All identities below it are those of replicas.
    pub const FIRST_COORDINATOR: u64 = 1 << 16;
    /// How many members a group may have.
    pub const MEMBERS: usize = 64;
    /// How many partitions a keyspace may have.
    pub const PARTITIONS: usize = Self::FIRST_COORDINATOR as usize / Self::MEMBERS;

    /// The `member`-th replica of `partition`. In a keyspace with one partition this is `NodeId(member)`.
    ///
    /// # Panics
    /// If `member` or `partition` is out of range.
    pub fn replica(partition: u16, member: usize) -> NodeId {
        assert!(member < Self::MEMBERS, "no group has a member {member}");
        assert!(usize::from(partition) < Self::PARTITIONS, "no keyspace has partition {partition}");
        NodeId(u64::from(partition) * Self::MEMBERS as u64 + member as u64)
    }

    /// The partition of a replica.
    pub fn partition(self) -> u16 {
        (self.0 / Self::MEMBERS as u64) as u16
    }

    /// Which member of its group a replica is.
    pub fn member(self) -> usize {
        (self.0 % Self::MEMBERS as u64) as usize
    }

    /// Whether this names a coordinator rather than a replica.
    pub fn is_coordinator(self) -> bool {
        self.0 >= Self::FIRST_COORDINATOR
    }
}

/// `n3` for a replica, `n3/p5` for one of partition 5, `c7` for a coordinator.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(Self::FIRST_COORDINATOR) {
            Some(number) => write!(f, "c{number}"),
            None if self.partition() == 0 => write!(f, "n{}", self.member()),
            None => write!(f, "n{}/p{}", self.member(), self.partition()),
        }
    }
}

/// One attempt of a transaction, between its session and its coordinator.
///
/// It never leaves the client. Other participants see the [`crate::Version`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_named_by_its_member_number_and_its_partition() {
        let replica = NodeId::replica(5, 3);
        assert_eq!((replica.partition(), replica.member()), (5, 3));
        assert_eq!(replica.to_string(), "n3/p5");
        assert_eq!(NodeId::replica(0, 2), NodeId(2));
        assert_eq!(NodeId(2).to_string(), "n2");
        let last = NodeId::replica(NodeId::PARTITIONS as u16 - 1, NodeId::MEMBERS - 1);
        assert!(!last.is_coordinator() && NodeId(last.0 + 1).is_coordinator());
    }
}
