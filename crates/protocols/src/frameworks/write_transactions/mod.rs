//! Write transactions: each partition has a leader that answers reads of many keys at once, and takes part in write
//! transactions, which always commit.
//!
//! It is the server side and the client side of two protocols, which differ in how they read: [`crate::eiger`] and
//! [`crate::eiger_port`] (004 §8). They document the reads and why they are causal.
//!
//! ```text
//! client                 coordinator, the leader of a partition     cohort, the leader of another one
//!   | Write(id, writes) --------->|                                          |   to all participants at once
//!   | Write(id, writes) --------------------------------------------------->|
//!   |                             |  Prepare in the log                      |  Prepare in the log, at a pending time
//!   |                             |<------------------- Vote(id, pending) ---|
//!   |                             |  Decide(commit time) in the log          |
//!   |                             |--- Commit(id, commit time) ------------->|
//!   |<-- Committed(commit time) --|                                          |  Decide(commit time) in the log
//!   |                             |<------------------------------ Done(id) -|
//!   |<------------------------------------------- Committed(commit time) ----|
//! ```
//!
//! A transaction with one participant is one entry of the log.
//!
//! # Invariants
//! - *Clocks.* Each leader has a version clock, which is a Lamport clock that advances with time, too. It takes over
//!   what clients and other leaders have seen. The log bounds it, and a new leader begins at the bound, as in
//!   [`crate::port`]. So whatever a new leader does has a later versionstamp than all that a former one has shown.
//! - *Pending times.* A participant gives a transaction a pending time before it is in the log: after all that its
//!   clock has shown. The commit time is after the pending times of all participants, and after all that the
//!   coordinator's clock has shown.
//! - *Safe time.* A leader's safe time is before the pending times of all transactions that are not decided here, and
//!   not after what its clock shows. So no transaction ever commits here at a safe time, or before one, that this
//!   leader or a former one has shown. A leader that was deposed without knowing it shows safe times up to its bound,
//!   and transactions that only its successor knows have later pending times.
//! - *One decision.* The coordinator decides that a transaction commits once all participants have voted. It decides in its log, so the decision
//!   outlives each leader. Participants that are not told ask again until they are.
//!
//! # A client that stops half-way
//! A client that dies may have sent its writes to some participants only. These would hold back their safe times for
//! ever, and 004 §8 does not say what to do. Here they ask. A cohort that has voted and hears nothing for some time
//! says so to the coordinator, and a coordinator that lacks votes asks the cohorts. One that has not prepared the
//! transaction then refuses it for good, in its log, and the coordinator undoes it. It also does so if a cohort can't
//! be reached for long. So a transaction always commits unless its client stops, or too few replicas are up.
//!
//! If a majority of the coordinator's replicas is down, its cohorts wait: only the coordinator can know whether the
//! transaction was acknowledged. Their safe times stand still in the meantime. New transactions
//! of other partitions commit. With Eiger-PORT, whose clients read as of what all partitions have reached, everything
//! is read as of the time when the partition failed, and what was overwritten since then is kept for these reads, up to
//! 64 MiB a partition.
//!
//! # Exactly once
//! A transaction has the versionstamp with which it was requested, and the number of its session. Participants remember
//! its outcome until their clock has shown a later versionstamp for `outcomes_ms`. They accept no transaction that they
//! do not know if their clock has shown a later versionstamp than the request's for half of this time. Both are in the
//! log, so all leaders agree. What is accepted is so remembered for nearly half of `outcomes_ms` at least. A client
//! whose transaction is refused as too late within a quarter of this time knows that it has never been accepted. Only
//! the site where a transaction was begun knows it, so it can only be tried again there.
//!
//! # Several sites
//! Each site does all this by itself. The module `sites` says how what one site has written gets to the others, and
//! when it can be read there.

mod cell;
mod coordinator;
mod horizon;
mod machine;
mod message;
mod open;
mod peers;
mod reads;
mod replica;
mod serving;
mod sites;
#[cfg(test)]
mod tests;
mod versions;

pub use coordinator::{Coordinator, Reads, Timer as ClientTimer};
pub use message::{
    Across, Answer, Batch, Clock, Entry, Found, Message, Peer, Record, Request, Stage,
    TransactionId, Valid,
};
pub use replica::{Replica, Timer};

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Transactions that are not decided do not hold the safe time back.
    PendingNotCounted,
    /// A session's own version is looked for one version less deep: only among the latest.
    SearchStopsEarly,
    /// A read does not wait for a pending transaction of its own session.
    OwnPendingIgnored,
    /// A client takes the highest safe time for the one that all have reached.
    SafeAsMaximum,
    /// A new leader begins with the clock at its last write, and not at the bound.
    BoundForgotten,
    /// The commit time is after the coordinator's pending time, but perhaps not after those of cohorts.
    VotesIgnored,
    /// A cohort that hears nothing for some time undoes the transaction without asking.
    UndoneAlone,
    /// The second round of Eiger does not ask what has become of pending transactions.
    PendingNotChecked,
    /// A coordinator that is asked about a transaction does not move its clock.
    CheckedWithoutClock,
    /// Outcomes are not remembered.
    OutcomesForgotten,
    /// The leader takes for chosen what it alone has accepted.
    AcknowledgedByLeaderAlone,
    /// A replica that has lost its disk takes part at once, like a new one.
    RejoinsAtOnce,
    /// What other sites have sent is admitted before what it depends on.
    DependenciesIgnored,
    /// A deleted key is forgotten at once, before other sites know that it is deleted.
    DeletesForgotten,
    /// An admission takes what one partition could admit for what all could.
    CutAsMaximum,
    /// What may still commit counts as sent to other sites.
    ShippedUnsafe,
    /// What a transaction needs is only what is admitted at its partition, and not what may be at others.
    PreparedNotNeeded,
    /// The second round of Eiger waits for an admission only if that may make a version readable that is later than the
    /// latest one, and not than the one as of its time.
    LaterThanLatestAwaited,
    /// A copy is admitted in parts.
    CopyInParts,
    /// What a site that is lost has sent, and what is not admitted, still counts.
    UnadmittedKept,
    /// A session goes on although its site was rebuilt.
    ErasNotChecked,
    /// A site that is being rebuilt serves clients at once.
    RebuiltAtOnce,
    /// A site that is being rebuilt does not wait until all its partitions have got back what it had written, and
    /// forgets what that needs.
    NotWhole,
}
