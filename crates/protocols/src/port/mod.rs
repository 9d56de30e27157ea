//! PORT: read-only transactions that do not block, take one round, and need constant metadata, with simple writes
//! (004 §6).
//!
//! ```text
//! session (version clock)       leader of a partition (version clock, versions)
//!   | Read(at, keys) ------------------>|  what the keys had at `at`; no later write is placed up to `at`
//!   |<-------- Values(found, shown) ----|
//!   | Write(requested, key, value) ---->|  omitted, or put into the log
//!   |<- Written(stamp, omitted, shown) -|  once it is applied, and placed after all that was read
//! ```
//!
//! Every write has a *place* in the order of all writes. A read-only transaction reads all its keys *as of* one
//! versionstamp, which its session's version clock gives it: the *stable frontier*, which all servers that the client
//! knows have reached. [`crate::frameworks::simple_writes`] has both sides.
//!
//! # Invariants
//! - *Promotion.* After a leader has answered a read as of `at`, it places no write at or before `at`. Its version
//!   clock shows at least `at` from then on, and a write is placed after what the clock shows when it is applied. So
//!   a read never waits for a write that is under way: that one comes after it.
//! - *Bound.* A leader reads and writes nothing after the bound that the log gives it. Each leader's first entry in
//!   the log makes its version clock begin at the bound before it. So all that it does comes after all that former
//!   leaders have done, although reads log nothing. A leader that was deposed without knowing it can't raise its
//!   bound, since that takes a majority. Up to the bound it may go on answering, because no other leader places a
//!   write there. No lease and no clock is needed.
//! - *Places are the leader's own.* The log names each write by a *versionstamp* that is before its place, and all
//!   replicas omit writes by versionstamps alone. The places are in the leader's memory. A new leader knows only that
//!   all former places are at its beginning or before it. So it answers no read as of a time up to there. And it
//!   refuses to write what was requested between the versionstamp of a key's latest version and its own beginning,
//!   because a former leader may have omitted that. The client then requests the write again with a higher
//!   versionstamp.
//! - *A key has at most one write in the log that is not applied.* Others wait for it, and are mostly omitted then.
//!   So the log has only writes that the leader would not omit, and a key that many sessions write costs one entry a
//!   round trip.
//! - *Exactly once.* A write is omitted if what it requested is not after the versionstamp of the key's latest
//!   version. The version that it has made itself is one, and so are those that come later. So a request that arrives
//!   again changes nothing, and no results need to be remembered. Deleted keys keep their versionstamps for that, as
//!   in ABD.
//!
//! # Why it is process-ordered serializable
//! Order all operations: a write by its place, a read-only transaction by its `at`. At the same versionstamp the
//! write comes before the reads. A write that was omitted comes right before the one that it was omitted for, several
//! of them as they were requested.
//! - *Reads find what this order says.* A leader answers with the latest version whose place is not after `at`, and
//!   promotion keeps later writes from coming before it. Nobody finds an omitted write, and none should be found: the
//!   next write comes right after it.
//! - *The order of each session is kept.* A session requests each write with a versionstamp that is after everything
//!   that the session has done: what it has read as of, and what servers have shown when they answered its writes.
//!   The write is placed after what was requested. If it is omitted, then what was requested is not after the place
//!   of the other write, so right before that place is still after everything that the session has done before. In
//!   both cases the answer shows a clock that has reached the place, and the session adopts it. So everything that it
//!   does later comes after the write.
//!
//! An entry that is found late, after those of another leader, or behind a gap, was acknowledged to nobody, and is
//! removed ([`crate::frameworks::replicated_log::Led`]).
//!
//! # Where this differs from the paper
//! - *Version clocks advance with time, too*, in ticks of 256 ns, and not with writes alone. A partition that nobody
//!   writes does not hold the stable frontier back. A session can bound how far it stays behind
//!   (`SnapshotOptions::freshness`). And if a write was acknowledged long before another one was requested, it counts
//!   as the earlier one. If clocks advanced with writes alone, a session that was idle for an hour would lose its
//!   write to any write of that hour. No wall clock is read, and a clock that runs too fast or too slowly makes reads
//!   newer or older, never wrong.
//! - *Promotion is one number for a partition*, its version clock, and not one for each key (Fig. 2, line 23). A read
//!   stores nothing.
//! - *A write is placed when it is applied*, and not when it arrives (Fig. 2, lines 26 to 35). The paper leaves open
//!   how promotion goes together with replication. If places were given on arrival, a read after such a place would
//!   have to wait until the write is in the logs of a majority.
//! - *A server shows its clock*, and not its latest write (Fig. 1, line 25).
//! - *A read as of a time that is not kept any more is repeated* as of what the servers show. What was
//!   overwritten is kept for twice as long as the states that are read are old, 25 ms to 1 s (or `history_ms`), up to
//!   64 MiB a partition. From before a change of leader, nothing is kept.
//! - *A session that has heard of no server yet* asks those of its keys what they show before it reads or writes.
//!   With the paper's clock at zero it would find nothing at all.
//! - *Fig. 2 returns `maxVS` for an omitted write without more* (line 28). That is enough only since `maxVS` is never
//!   below the versionstamp of the write that it was omitted for. Here, what is shown is never below its place.

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Guarantee, NodeId, Snapshots, Versionstamp};

use crate::Mutated;
use crate::frameworks::{replicated_log, simple_writes};

pub use crate::frameworks::simple_writes::Mutation;

/// A message.
pub type Message = simple_writes::Message<Versionstamp>;
/// One replica of a partition.
pub type Replica = simple_writes::Replica<Versionstamp>;
/// One client's operations.
pub type Coordinator = simple_writes::Coordinator<Versionstamp>;

/// The protocol.
#[derive(Debug)]
pub struct Port;

impl Protocol for Port {
    const NAME: &'static str = "port";
    const SUMMARY: &'static str = "read-only transactions in one round that never wait, and simple writes, in the order of each session";
    const GUARANTEE: Guarantee = Guarantee::ProcessOrdered;
    type Family = Snapshots;
    const OFFERS: Offers =
        Offers { version_clocks: VersionClocks::Promoted, write_transactions: false, sites: false };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Coordinator {
        Coordinator::new(group, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
