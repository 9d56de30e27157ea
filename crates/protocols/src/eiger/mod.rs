//! Eiger: causal transactions that read in one to three rounds, and write transactions that always commit (Lloyd et
//! al., NSDI 2013; 004 §8.1 describes it).
//!
//! ```text
//! client                                         leaders of the keys' partitions
//!   | ReadLatest(keys) ------------------------------>|   first round
//!   |<--- Latest(value, commit time, valid until) ----|   by key
//!   |      done if all are valid at the latest of the commit times
//!   | ReadAt(time, keys) ---------------------------->|   second round, for the keys that are not
//!   |                                                 |--- Check(transaction, time) --> coordinators of transactions
//!   |                                                 |<-- Checked(commit time) -------  that are pending: third round
//!   |<------------------------------ Values(values) --|
//! ```
//!
//! [`crate::frameworks::write_transactions`] has both sides, and the write transactions.
//!
//! # Invariants
//! - *A version is valid* from its commit time until the next one. A leader shows until when it is certainly valid:
//!   before the first pending time of a transaction that writes the key, and not after what the clock shows. Later
//!   transactions get later pending times, and commit after them.
//! - *What is pending at the chosen time* has committed before it or never will: its coordinator's clock takes over the
//!   time when it is asked, and a transaction that it has not decided gets a later commit time.
//!
//! # Why it is causal, and convergent
//! Order write transactions by their commit times, which no two have in common: the lower bits name the partition that
//! has given them. A read-only transaction reads as of a time that is not before what its session has read as of, nor
//! before the commit times of what the session has written. It finds all transactions that have committed up to then,
//! whole, and the last one of each key by commit time. A transaction that depends on another one has a later commit
//! time, because it was requested with a versionstamp that is not before what its session has seen and written. So what
//! is found contains all that it depends on. And all sessions take the same order of conflicting writes for granted.
//!
//! It is not strict: a session may read as of a time before that of a transaction that others know has committed.
//!
//! # Where this differs from the paper
//! - *Replication inside a site.* Eiger's servers are single machines. Here each is a group of replicas with a log,
//!   and a read waits for a commit time that is in the log and not chosen yet.
//! - *Clocks advance with time*, too, as those of [`crate::port`].
//! - *Transactions whose client dies half-way are undone.* See [`crate::frameworks::write_transactions`].

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Guarantee, NodeId, Snapshots};

use crate::Mutated;
use crate::frameworks::replicated_log;

pub use crate::frameworks::write_transactions::{Coordinator, Message, Mutation, Reads, Replica};

/// The protocol.
#[derive(Debug)]
pub struct Eiger;

impl Protocol for Eiger {
    const NAME: &'static str = "eiger";
    const SUMMARY: &'static str =
        "read-only transactions in one to three rounds, and write transactions that always commit";
    const GUARANTEE: Guarantee = Guarantee::Causal;
    type Family = Snapshots;
    const OFFERS: Offers =
        Offers { version_clocks: VersionClocks::Safe, write_transactions: true, sites: true };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Reads::Optimistically, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
