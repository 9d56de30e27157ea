//! Who is who.

use core::fmt;

use serde::{Deserialize, Serialize};

/// A participant in the message exchange: a replica or a coordinator.
///
/// Replicas are numbered from 0 within their cluster; coordinators have identities from
/// [`NodeId::FIRST_COORDINATOR`] on, drawn at random by the drivers so that no two clients share one.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The least identity of a coordinator; everything below is a replica.
    pub const FIRST_COORDINATOR: u64 = 1 << 16;

    /// Whether this names a coordinator rather than a replica.
    pub fn is_coordinator(self) -> bool {
        self.0 >= Self::FIRST_COORDINATOR
    }
}

/// `n3` for a replica, `c7` for a coordinator.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(Self::FIRST_COORDINATOR) {
            Some(number) => write!(f, "c{number}"),
            None => write!(f, "n{}", self.0),
        }
    }
}

/// One attempt of a transaction, as its session and its coordinator call it between themselves.
///
/// It never leaves the client; what other participants see is the [`crate::Version`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub u64);
