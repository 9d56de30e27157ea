//! What transactions are called in a store.

use serried_model::{Key, NodeId, Version};

/// The first bytes of the names of transactions. Names of rows begin with the number of a table, which is lower.
pub(crate) const OF_TXN: [u8; 2] = [0xff, 0xff];

/// The name of a transaction. Names are in the order of versions.
pub(crate) fn name_of_txn(txn: Version) -> Key {
    let mut name = [0; 18];
    name[..2].copy_from_slice(&OF_TXN);
    name[2..10].copy_from_slice(&txn.timestamp_us.to_be_bytes());
    name[10..].copy_from_slice(&txn.coordinator.0.to_be_bytes());
    Key::from(name)
}

/// The transaction with a name. `None` if it is the name of something else.
pub(crate) fn txn_of_name(name: &[u8]) -> Option<Version> {
    let (us, coordinator) = name.strip_prefix(&OF_TXN)?.split_first_chunk()?;
    let coordinator = NodeId(u64::from_be_bytes(coordinator.try_into().ok()?));
    Some(Version { timestamp_us: u64::from_be_bytes(*us), coordinator })
}

/// The name of what concerns no row and no transaction. It comes before those of transactions.
pub(crate) fn name_of_control() -> Key {
    Key::from(OF_TXN)
}
