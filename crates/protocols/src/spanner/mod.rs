//! Spanner: two-phase locking, and timestamps that agree with real time (000 §5, "Baselines", after its authors' description
//! of 2012).
//!
//! ```text
//! client                leader of the first participant       leaders of the others
//!   | Shot(reads) -------->| locks, may wait                       |
//!   |<--------- Executed --|                                       |
//!   | Shot(writes) ------->| locks, may wait --------------------->| locks, may wait
//!   |<--------- Executed --|<--------------------------- Executed --|
//!   | last Shot() -------->| Prepare into the log                   |
//!   | last Shot() ------------------------------------------------>| Prepare into the log
//!   |                      |<----------------- Prepared(validity) --|
//!   |                      | Decide into the log; waits until the timestamp is past
//!   |<---------- Decided --| End(commit) ------------------------->| Decide into the log; releases
//!
//!   | Snapshot(reads, timestamp) -->|  if it only reads: no locks, nothing in the log
//!   |<----------- Snapshot(values) -|
//! ```
//!
//! The locks are those of [`crate::two_phase_locking`] with wound-wait, and [`crate::frameworks::shard`] has the log, the
//! two-phase commit, and what happens when a leader or a client fails. This module gives the timestamps.
//!
//! A clock shows an interval: its reading, and [`serried_actor::Settings::uncertainty_us`] before and after. *Latest* and
//! *earliest* are its ends. If every clock is off by no more than that, true time is in the interval.
//!
//! # Invariants
//! - *The order of timestamps is that of the locks.* A part begins after the timestamps of what its transaction has read
//!   and overwritten, as under two-phase locking. The transaction takes effect at the latest beginning of its parts, so
//!   all of them hold then.
//! - *Reads at a timestamp are consistent.* They find, at each shard, what was committed at earlier timestamps, and no
//!   more of that comes later: a read waits for parts that may commit before its timestamp, and a part begins after every
//!   timestamp that its leader has read at. A former leader has read within its window
//!   ([`crate::frameworks::shard::AdmissionWindow`]), and a later leader takes transactions after it only. So
//!   *serializability rests on no clock*.
//! - *A timestamp is past before anybody learns of the commit* (*commit wait*): neither its client nor a read at a timestamp
//!   does before the leader's earliest is after it. Others see what was written under locks only after the end was put into
//!   the log, and their own commits have later timestamps.
//! - *A transaction has a timestamp after the latest time at which it can have begun.* A part begins after its leader's latest
//!   when the first shot arrived there, and within [`Stamp::LANES`] microseconds of its latest when the last one arrives. A
//!   read-only transaction has its client's latest as its timestamp. So what has ended before another begins has an
//!   earlier timestamp, and the other sees it: the order is strict. This, and nothing else, relies on clocks.
//! - *A read ahead of a leader's clock waits for it.* Otherwise a client whose clock is ahead would have writers take later
//!   timestamps, and wait for them.
//!
//! # Clocks that are off by more than they may be
//! - *A leader's:* the replicas of a shard tell each other what their clocks show. What another clock shows is known to within
//!   the time that question and answer have taken. A leader whose clock certainly disagrees with a majority's by more than
//!   twice the uncertainty uses the majority's. It says so in the gauge `clock_off_ms`. If a majority is off, timestamps
//!   are.
//! - *A client's that is behind:* each answer says what time is certainly past at the leader, and so what its latest is. If the
//!   first one shows that a read-only transaction began before the leader's latest, it begins again with a later timestamp.
//!   From then on the client's latest is not before the leaders', so what its own clock shows does not matter.
//! - *A client's that is ahead:* its reads wait until the leaders' clocks are there, and are refused if they are ahead by
//!   more than `clock_bound_ms`. Its other transactions go by the leaders' clocks, from the second one on.
//! - *By less than can be noticed:* a transaction may not see what another has written that ended up to as much before it
//!   began. All transactions remain serializable.
//!
//! # Where this differs from Spanner
//! - *A commit is reported when its parts are chosen and its timestamp is past*, even if the coordinator's entry is not
//!   chosen yet: another leader would come to the same end.
//! - *Safe time is that of a key.* A read waits for parts that write the key, not for all parts of the shard.
//! - *There are no leases.* A leader confirms that it leads before it answers a read without locks, with one exchange with a
//!   majority, for as many reads as there are. No clock decides who leads.
//! - *Reads are answered by leaders.* Followers answer none.
//! - *A timestamp of a read-only transaction of one shard is that of others*, its client's latest, and not the last commit
//!   of the shard.

mod control;
#[cfg(test)]
mod tests;

pub use control::Timestamping;

use crate::frameworks::shard::Sharded;
#[cfg(doc)]
use crate::frameworks::shard::Stamp;

/// The protocol.
pub type Spanner = Sharded<Timestamping>;
