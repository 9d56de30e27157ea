//! How an operation of a session can fail, and what to do about it.

use std::time::Duration;

use serried_model::{Key, TooLarge, Unfit, WriteToken};

use super::BadToken;
use crate::transactions::seconds;

/// Why an operation did not take effect, or is not known to have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Too few replicas answered in time. Nothing took effect. Check that a majority is up and can be reached. If a
    /// write transaction was tried again with its token, it was undone, and never takes effect with this token.
    #[error("too few replicas answered within {deadline:?}, waiting for `{key}`{}", others(*.keys))]
    Unavailable {
        /// The first key.
        key: Key,
        /// How many keys there were.
        keys: usize,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The keys were written so often that no round of a read was the last one. Either no two rounds found the same. Then
    /// try again when fewer write them, or use a keyspace that is process-ordered, in which reads take one round. Or, in
    /// a keyspace that is causal, what was to be read is not kept any more, because a partition has held it up for long.
    /// Then check that all partitions have a majority.
    #[error(
        "`{key}`{} changed too often to be read within {deadline:?}: {rounds} rounds were not enough", others(*.keys)
    )]
    Contended {
        /// The first key.
        key: Key,
        /// How many keys there were.
        keys: usize,
        /// How many rounds there were.
        rounds: u32,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// Too few replicas answered in time when a session was to be resumed. Try again.
    #[error("the clocks of the keyspace were not known within {deadline:?}: try again")]
    NoClocks {
        /// The deadline that was set.
        deadline: Duration,
    },
    /// A majority of the nodes can't write, mostly because their disks are full. Nothing took effect.
    #[error("the keyspace is read-only: {reason}")]
    ReadOnly {
        /// Which nodes can't write, and why.
        reason: String,
    },
    /// Too few replicas answered while a key was being written. The write may have taken effect, or may still take
    /// effect. If it is tried again with its token ([`crate::SnapshotKeyspace::retry`]), it takes effect exactly
    /// once, unless the keyspace promises nothing.
    #[error(
        "the write {token} of `{key}`{} may or may not have taken effect: its outcome was not known within {deadline:?}; try it again with its token", others(*.keys)
    )]
    Unknown {
        /// The first key.
        key: Key,
        /// How many keys it writes.
        keys: usize,
        /// Names the write.
        token: WriteToken,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// A write was tried again so late that the replicas no longer know whether it took effect.
    #[error(
        "the replicas no longer know whether the write {token} of `{key}` took effect: outcomes are kept for `outcomes_ms`, and not if the site has been rebuilt from others; if new writes fail like this, this client's clock is behind: synchronise it"
    )]
    Forgotten {
        /// The key.
        key: Key,
        /// Names the write.
        token: WriteToken,
    },
    /// A write was tried again with the token of one that was begun at another site. Nothing was sent. Only that site
    /// knows whether it took effect.
    #[error(
        "the write {token} of `{key}` was begun at site {site}, and only that site knows whether it took effect: try it again with a client of that site (`home={site}` in its address)"
    )]
    OfAnotherSite {
        /// The key.
        key: Key,
        /// Names the write.
        token: WriteToken,
        /// The site.
        site: u16,
    },
    /// A session of another site was to be resumed, and this site does not have in time what the session has seen.
    #[error(
        "this site did not have what the session has seen at site {site} within {deadline:?}: try again, or go on at that site; `serried status` says how far sites are behind"
    )]
    SiteBehind {
        /// The other site.
        site: u16,
        /// The deadline that was set.
        deadline: Duration,
    },
    /// The site has lost all its disks since the session has seen something of it, and was rebuilt from other sites. What
    /// the session has written and read is perhaps lost, so it can't go on. Begin another one
    /// ([`crate::SnapshotKeyspace::session`]). A write that fails like this has perhaps taken effect, or is lost, or never
    /// takes effect: read the keys and decide.
    #[error(
        "site {site} has lost its disks and was rebuilt from other sites, so what this session has seen and written is perhaps lost: begin a new session"
    )]
    SiteRebuilt {
        /// The site.
        site: u16,
    },
    /// The client's clock is off by more than the keyspace allows. Nothing took effect. Synchronise the clock.
    #[error("this client's clock is {} s {} the nodes' clocks: synchronise it{}", seconds(.ahead_us), if *.ahead_us < 0 { "behind" } else { "ahead of" }, if *.ahead_us < 0 { "" } else { " and connect again" })]
    ClockSkew {
        /// By how much it is ahead, in microseconds; negative if it is behind.
        ahead_us: i64,
    },
    /// A transaction with several writes. Nothing was sent.
    #[error(
        "a write of {writes} keys at once is a transaction, and this keyspace has single writes: write one key after the other, or use a keyspace that is causal and has write transactions, or a keyspace of transactions"
    )]
    ManyWrites {
        /// How many keys it writes.
        writes: usize,
    },
    /// A transaction that writes a key twice. Nothing was sent.
    #[error("the transaction writes `{key}` twice: leave out the write that comes first")]
    TwiceWritten {
        /// The key.
        key: Key,
    },
    /// A transaction that reads and writes. Nothing was sent.
    #[error(
        "a transaction that reads and writes is not possible in this keyspace, which has read-only transactions and writes that read nothing: use a keyspace of transactions, which is serializable or strict-serializable"
    )]
    ReadsAndWrites,
    /// A session can't be resumed with this token.
    #[error("{}", refused(*.0))]
    BadToken(BadToken),
    /// Something was over its limit. Nothing was sent.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A key had no bytes. Nothing was sent.
    #[error("{}", Unfit::EmptyKey)]
    EmptyKey,
}

fn refused(token: BadToken) -> String {
    match token {
        BadToken::NotOffered => token.to_string(),
        _ => format!("the session can't be resumed with this token: {token}; begin a new session"),
    }
}

impl From<BadToken> for SnapshotError {
    fn from(bad: BadToken) -> SnapshotError {
        SnapshotError::BadToken(bad)
    }
}

impl From<Unfit> for SnapshotError {
    fn from(unfit: Unfit) -> SnapshotError {
        match unfit {
            Unfit::EmptyKey => SnapshotError::EmptyKey,
            Unfit::TooLarge(error) => SnapshotError::TooLarge(error),
        }
    }
}

/// That there are more keys than the one that is named.
fn others(keys: usize) -> String {
    match keys {
        0 | 1 => String::new(),
        2 => " and another key".to_string(),
        _ => format!(" and {} other keys", keys - 1),
    }
}
