//! What a replica keeps in its store.

use serde::{Deserialize, Serialize};
use serried_model::{Key, Value, Versionstamp, Write};

use super::message::TransactionId;
use super::sites::{Kept, Sites};
use crate::frameworks::replicated_log::Last;
use crate::frameworks::stored_names::ESCAPE;

/// The second byte of the name of a transaction in the store.
const OF_TRANSACTION: u8 = 2;
/// The second byte of the name of what is known of other sites.
const OF_SITES: u8 = 3;
/// The second byte of the name of what other sites lack.
const OF_OUTGOING: u8 = 4;

/// What a replica keeps under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Cell {
    /// A key.
    Key(Versions),
    /// The partition.
    Partition(Partition),
    /// A transaction.
    Transaction(Transaction),
    /// What is known of other sites.
    Sites(Box<Sites>),
    /// What a transaction of this site has written here, which other sites perhaps lack.
    Outgoing(Kept),
}

/// What a key has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Versions {
    /// Its latest version.
    pub(super) latest: Version,
    /// Versions of other sites that were received, in the order of their commit times there. They can be read once
    /// they are admitted.
    pub(super) received: Vec<Received>,
}

/// A version of another site.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Received {
    /// The value; `None` if the key was deleted.
    pub(super) value: Option<Value>,
    /// The commit time of its transaction at the site that it is from.
    pub(super) stamp: Versionstamp,
    /// How often that site had been rebuilt.
    pub(super) era: u32,
}

/// A version of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Version {
    /// The value; `None` if the key was deleted, or never written.
    pub(super) value: Option<Value>,
    /// The commit time of the transaction that has written it. [`Versionstamp::ZERO`] if it was never written. If it
    /// is from another site: that of the admission with which it could be read here.
    pub(super) commit: Versionstamp,
    /// The session of that transaction.
    pub(super) session: u64,
    /// The commit time at the site that it is from, if that is another one.
    pub(super) elsewhere: Option<Versionstamp>,
}

impl Version {
    /// The commit time at the site that it is from. Of two versions, the one with the later one is later, at all sites.
    pub(super) fn stamp(&self) -> Versionstamp {
        self.elsewhere.unwrap_or(self.commit)
    }
}

/// What a replica knows of its partition beside keys and transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Partition {
    /// The last entry of the log.
    pub(super) last: Last,
    /// No leader's version clock has gone beyond this.
    pub(super) bound: Versionstamp,
    /// Outcomes of transactions that were requested up to this are forgotten.
    pub(super) horizon: Versionstamp,
    /// Transactions that were requested up to this, and are not known, are refused.
    pub(super) refused: Versionstamp,
}

/// How far a transaction is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Transaction {
    /// It is prepared.
    Prepared {
        /// The partitions that take part. The first one coordinates.
        participants: Vec<u16>,
        /// Its pending time here.
        pending: Versionstamp,
        /// Its writes here.
        writes: Vec<Write>,
        /// If it admits transactions of other sites: up to when, by site.
        cut: Vec<Versionstamp>,
    },
    /// It is decided.
    Decided {
        /// Its commit time; `None` if it was undone, or refused.
        commit: Option<Versionstamp>,
        /// The cohorts that perhaps do not know that. Others than the coordinator have none.
        untold: Vec<u16>,
    },
}

impl Transaction {
    /// What is known later comes later.
    pub(super) fn stage(&self) -> u8 {
        match self {
            Transaction::Prepared { .. } => 0,
            Transaction::Decided { untold, .. } if !untold.is_empty() => 1,
            Transaction::Decided { .. } => 2,
        }
    }
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::Key(Versions::default())
    }
}

impl Cell {
    /// The versions of a key.
    pub(super) fn versions(&self) -> &Versions {
        match self {
            Cell::Key(versions) => versions,
            _ => unreachable!("no key has the name of something else"),
        }
    }

    /// The versions of a key, to change.
    pub(super) fn versions_mut(&mut self) -> &mut Versions {
        match self {
            Cell::Key(versions) => versions,
            _ => unreachable!("no key has the name of something else"),
        }
    }
}

/// The partition that coordinates a transaction with these participants, which is known to the partition `own`. There
/// are none if another replica has sent what it should not.
pub(super) fn coordinator(participants: &[u16], own: u16) -> u16 {
    participants.first().copied().unwrap_or(own)
}

/// The name of a transaction.
pub(super) fn name_of_transaction(id: TransactionId) -> Key {
    let TransactionId { requested, session } = id;
    let (requested, session) = (requested.0.to_be_bytes(), session.to_be_bytes());
    Key::from([&[ESCAPE, OF_TRANSACTION][..], &requested, &session].concat().as_slice())
}

/// The transaction that has this name, if one can have it.
pub(super) fn transaction_of_name(name: &[u8]) -> Option<TransactionId> {
    let name = name.strip_prefix(&[ESCAPE, OF_TRANSACTION])?;
    let (requested, session) = name.split_first_chunk()?;
    let (requested, session) = (u64::from_be_bytes(*requested), session.try_into().ok()?);
    let session = u64::from_be_bytes(session);
    Some(TransactionId { requested: Versionstamp(requested), session })
}

/// The name of what is known of other sites.
pub(super) fn name_of_sites() -> Key {
    Key::from([ESCAPE, OF_SITES])
}

/// The name of what a transaction with this commit time has written.
pub(super) fn name_of_outgoing(commit: Versionstamp) -> Key {
    Key::from([&[ESCAPE, OF_OUTGOING][..], &commit.0.to_be_bytes()].concat().as_slice())
}

/// The commit time of the transaction whose writes have this name, if they can have it.
pub(super) fn outgoing_of_name(name: &[u8]) -> Option<Versionstamp> {
    let commit = name.strip_prefix(&[ESCAPE, OF_OUTGOING])?;
    Some(Versionstamp(u64::from_be_bytes(commit.try_into().ok()?)))
}

/// All names of transactions come after this one, and all names of what concerns other sites.
pub(super) fn before_transactions() -> [u8; 2] {
    [ESCAPE, OF_TRANSACTION]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::stored_names::name_of;

    #[test]
    fn a_transaction_has_its_name_and_no_key_has_one() {
        let id = TransactionId { requested: Versionstamp(0x1234_5678), session: u64::MAX - 5 };
        let name = name_of_transaction(id);
        assert_eq!(transaction_of_name(name.as_bytes()), Some(id));
        assert!(name.as_bytes() > before_transactions().as_slice());
        assert_ne!(*name_of(&name), name);
        for other in [&name.as_bytes()[1..], &name.as_bytes()[..17], b"a"] {
            assert_eq!(transaction_of_name(other), None);
        }
        let outgoing = name_of_outgoing(Versionstamp(0x1234));
        assert_eq!(outgoing_of_name(outgoing.as_bytes()), Some(Versionstamp(0x1234)));
        assert_eq!(outgoing_of_name(name.as_bytes()), None);
        assert_eq!(transaction_of_name(outgoing.as_bytes()), None);
        assert!(name_of_sites().as_bytes() > before_transactions().as_slice());
    }
}
