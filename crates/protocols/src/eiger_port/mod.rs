//! Eiger-PORT: causal transactions that read in one round that never waits, and write transactions that always commit
//! (004 §8.2).
//!
//! ```text
//! client (safe times)                            leaders of the keys' partitions (safe time, versions)
//!   | Read(safe time, session, written, keys) ------->|
//!   |<------------------------- Values(values) -------|   and the leader's safe time by now
//! ```
//!
//! [`crate::frameworks::write_transactions`] has both sides, and the write transactions.
//!
//! A client knows the *safe time* of each leader: nothing commits there at this time any more, or before it (`lst` in
//! the paper). The least of them is the *global safe time* (`gst`). A session reads all keys as of that, and so finds
//! each transaction whole that has committed up to then. Of its own transactions it also finds later ones, up to the
//! commit time of the last one that was acknowledged to it.
//!
//! # Why it is causal, and convergent
//! A read-only transaction of a session finds a set of transactions: those that have committed up to the global safe
//! time `g`, and its own ones that have committed up to `w`, the highest commit time that was acknowledged to the
//! session. Of each key it finds the write with the highest commit time among this set. No two transactions have the
//! same commit time.
//! - *The set is exact.* At `g` a leader has all that ever commits there up to `g`. For `w`, a leader moves its clock
//!   to `w` before it answers, so what it begins later commits later. If a transaction of this session is pending
//!   there at `w` or since earlier, it waits. That only happens if the session reads while it writes, or after a change of
//!   leader. So each transaction of the set is found whole, wherever its keys are.
//! - *It grows.* Neither `g` nor `w` goes back in a session.
//! - *It contains what it depends on.* A transaction is requested with a versionstamp that is not before the `g` and
//!   the `w` of its session, and commits later. So what it depends on has a lower commit time. If it has committed up
//!   to `g`, that has, too. If it is the session's own, the session has found what it depends on at an earlier `g`, or
//!   has written it itself.
//! - *There is one order of conflicting writes*, that of commit times, for all sessions.
//!
//! Another site's transactions count as committed when they are admitted, which is a transaction of this site. Then of
//! each key the version with the highest commit time at its own site is found. The module
//! [`crate::frameworks::write_transactions`] says why this is causal, too.
//!
//! # Where this differs from the paper
//! - *A session's own writes stay where they are.* Fig. 6 pulls a session's own write back to the `gst` with which it
//!   was requested: once the write is before the safe time, `find_isolated` returns another session's version that
//!   committed in between. So if A writes with `gst` 5 and commits at 10, and B's write commits at 7, A reads B's
//!   value for ever, and all others read A's. That is causal, but what is read does not converge. Here A goes on
//!   reading its own value, like all others. What `find_isolated` protects is the order that the session itself has
//!   observed: first its own write without B's other keys, then those. With one order for all, this means that A's
//!   write overwrites B's, and that A learns of B's transaction later. That is causal convergence, as Eiger has it. It
//!   is not causal memory, in which each session would see all writes in one serial order of its own.
//! - *The versions of a session are found up to an acknowledged commit time* (Fig. 6, line 8: any). Otherwise a read
//!   that overtakes a write of the same session could find a half of it.
//! - *Clocks advance with time*, so a partition that nobody writes does not hold the safe time back. A client asks the
//!   leaders that it has not heard of for some time (`SnapshotOptions::freshness`), beside its reads. With the paper's
//!   `lst_map` alone, a server that a client does not use any more would hold its `gst` back for ever.
//! - *Requests carry a clock*, so that the clocks of leaders stay close together. Otherwise what commits at a leader
//!   whose clock is ahead would be safe only much later.
//! - *The commit time is also after the coordinator's clock* (Fig. 7, line 11: the highest of the prepared times). A
//!   new coordinator so gives no commit time that a former one has promised not to give.
//! - *A version that is not kept any more* is read again as of newer safe times. Versions that were overwritten less
//!   than 1 s before the leader's safe time are kept, and those that clients still read, up to 64 MiB a partition;
//!   from before a change of leader, none.
//! - *Transactions whose client dies half-way are undone.* See [`crate::frameworks::write_transactions`].

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Guarantee, NodeId, Snapshots};

use crate::Mutated;
use crate::frameworks::replicated_log;

pub use crate::frameworks::write_transactions::{Coordinator, Message, Mutation, Reads, Replica};

/// The protocol.
#[derive(Debug)]
pub struct EigerPort;

impl Protocol for EigerPort {
    const NAME: &'static str = "eiger-port";
    const SUMMARY: &'static str = "read-only transactions in one round that never wait, and write transactions that always commit";
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
        Coordinator::new(group, settings, Reads::AtSafeTime, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
