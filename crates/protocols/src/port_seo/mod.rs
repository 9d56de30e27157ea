//! PORT-SEO: strictly serializable read-only transactions that do not block and take one round, with simple writes that
//! a central sequencer puts into one order (004 §4.3).
//!
//! ```text
//! client                     sequencer: the leader of partition 0         leader of partition p
//!   | Write(key, value) ------------->|  waits until no batch is under way        |
//!   |                                 |  gives numbers to all writes of p         |
//!   |                                 |  (in its log)                             |
//!   |                                 | Batch(first, highest, writes) ----------->|  applies it (in its log)
//!   |                                 |<---------------------- Applied(fates) ----|
//!   |<-------------- Written(number) -|  begins the next batch                    |
//!
//! client                     leaders of the partitions of its keys
//!   | Read(since, keys) ------------->|  at once: the state at `since`, and all that came later
//!   |<- Found(last, versions, marks) -|
//!   |  chooses the latest state that it knows completely
//! ```
//!
//! The paper has one paragraph on it: there is a central write sequencer, and reads need a linear amount of metadata.
//! Its technical report was not at hand, so the algorithm is our own.
//!
//! All writes are numbered. A *batch* is a run of consecutive numbers that belong to keys of one partition. It has a
//! vector, `highest`: for each partition the highest number of a write there, as of the end of the batch. A *mark* is
//! the number of a batch's last write with this vector.
//!
//! A client asks all partitions of its keys in parallel. It names `since`, the highest number of which it knows that it
//! is applied. Each partition answers with what its keys had at that number, all later versions, the marks of its later
//! batches, and `last`, the highest number that is applied there. The client then chooses `n`: the highest mark that
//! any of them has named whose vector is not above the `last` of any partition that it has asked. `since` itself will
//! do if no mark does. It returns what the keys had at `n`.
//!
//! # Invariants
//! - *Prefix.* At every moment, the writes that are applied in all partitions together are those up to some number,
//!   which is the end of a batch. That is so because a batch begins only when the one before is applied, and because a
//!   batch is one entry in the log of its partition.
//! - *Numbers are given once.* A batch gets its numbers when it is chosen in the sequencer's log. A leader proposes its
//!   batches in the order of their numbers, and none follows entries that its leader did not know
//!   ([`crate::frameworks::replicated_log::Led`]). Only chosen batches are handed out. So a sequencer that was deposed
//!   hands out nothing but what its successors have in their logs, too.
//! - *A new sequencer hands out the last batch again* before it begins another one. It can't know whether that was
//!   applied. A partition that has applied it says so again and changes nothing.
//! - *A mark says when it is complete.* A leader keeps what it has overwritten for 1 s (or `history_ms`) and up to 64
//!   MiB, in memory. So it may know less than a client has asked for. Its answer says from which number on it is
//!   complete (`complete_from`), and a client chooses no number below that of any answer. A new leader knows the state
//!   at the last batch before it began, and the mark of that batch. It is in the store.
//! - *Exactly once.* Each key remembers the numbers of its writes by their tokens, until the client will not try them
//!   again, or for `outcomes_ms` by the clocks of the clients (`serried_parts::Results`). A write that is tried again
//!   may get another number. When it is applied, the key knows it, and it changes nothing. What was forgotten is not
//!   executed. The sequencer remembers nothing. If the clock of a client is ahead of those of a majority, a refusal
//!   gets the number, and the key remembers that.
//! - *A leader that answers a read leads.* With several replicas, a read waits for a slot of the log that was proposed
//!   after it had arrived. Reads that arrive together share it, and it is empty. No lease and no clock is needed.
//!
//! # Why it is strictly serializable
//! Let `G(t)` be the highest number that is applied at time `t`: it is in the log of its partition. Because of
//! *prefix*, all lower numbers are applied, too, and no higher one is. A transaction runs from `start` to `end` and
//! reads keys of some partitions, its *read set*. It chooses `n`.
//!
//! - *What it returns is the state at `n`.* Let `i` be in the read set. If `n` is a mark, then all writes up to `n`
//!   that belong to `i` are up to `highest[i]`, which is at most `last` of `i`. If `n` is `since`, they were applied
//!   before `start`. In both cases they were applied at `i` when it answered. And its answer is complete at `n`, since
//!   `complete_from <= n`.
//! - *`n <= G(end)`*, because the batch of `n` was applied when some partition answered.
//! - *It is the state at some number from `G(start)` to `G(end)`.* If `n >= G(start)`, that is clear. Otherwise, let
//!   `g` be the highest number up to `G(start)` that is the end of a batch in the read set, say of partition `k`. If
//!   there is none, no key of the read set was written up to `G(start)`, and nothing has to be shown. Suppose that `n <
//!   g`. `k` had applied `g` when it answered. Its answer is complete from a number that is at most `n`, so it names
//!   the mark of `g`. The vector of `g` is not above `last` of any partition `i`: what it counts is applied at `start`,
//!   and `i` has answered later. So the client would have chosen `g` or more. Hence `n >= g`. Between `g` and
//!   `G(start)` nothing in the read set was written. So the state at `n` is that at `G(start)`, for these keys.
//! - *`since` may be in the middle of a batch*, if it is the number of a write of this client. If the batch belongs to
//!   a partition `k` of the read set, then `k` names its mark, or is complete only from a later number. Every partition
//!   has what the vector counts. So the client chooses that mark or a later one, and never this `since`. Otherwise the
//!   keys of the read set had at `since` what they had at the end of the batch.
//! - *The same holds after later rounds.* In these an answer may be exact: it has the state at `since`, nothing that came
//!   later, and its `last` is not above `since`. Others may be as in the first round, if a leader is new. `n` is not
//!   below `complete_from`, and so not below `since`. If `n` is a mark, then the writes of `i` up to `n` are up to
//!   `highest[i]`, and that is at most `since`. So the state at `since` is that at `n`, for the keys of `i`. And `since`
//!   is not below any `last` of the first round, hence not below `g`. It is the end of a batch, or else one of a
//!   partition that is not in the read set.
//!
//! Now order all operations: writes by their numbers, and a transaction behind the write with the number
//! `max(n, G(start))`, several of them as they have begun. All orders in real time are kept:
//! - A write that was acknowledged before a transaction begins is applied at its start, and comes before it.
//! - A write that begins after a transaction has ended gets its number later than all that was applied at that end. So
//!   it comes after it.
//! - If a transaction begins when another one has ended, then its `G(start)` is not below the `G(end)` of the other.
//! - A write that begins after another one was acknowledged gets a higher number.
//!
//! A write that was tried again counts with its first number, and that lies between the beginning of the first try and
//! the answer to the last one.
//!
//! # N, O and C (004 §3.3)
//! *N:* without replication, a leader answers at once. With several replicas it waits for a round trip inside the
//! partition, which the paper does not consider (`confirmed_reads`). That may be behind a batch that is already in the
//! partition's log, and never waits for another partition. *O:* one round is enough, unless a partition keeps less than
//! is needed: it was asked by a client that has heard of nothing for long, while another partition was asked much
//! earlier; or its leader is new. A read is told of at most 256 batches and 256 KiB of overwritten values. Later rounds
//! ask for exactly the state of the latest number that the round before has shown, however much has happened since. All
//! partitions have reached it, since batches are applied one after the other. The second round is the last one, unless
//! another leader begins meanwhile, or a round takes longer than leaders keep what was overwritten: then a transaction
//! of several partitions ends only when they are written less. *Not C:* metadata grows with the number of batches since
//! the client has last heard of anything, times the number of partitions in the transaction. The client names these, so
//! that the vectors have no others.
//!
//! # What it costs to have one batch at a time
//! All writes of a keyspace wait for one another. A batch of another partition than the first takes two rounds in logs
//! and one between leaders. The writes of a partition that arrive meanwhile share the next batch, so more clients write
//! more per second, but no write is faster than that. Partitions take turns.

mod cell;
mod coordinator;
mod history;
mod machine;
mod message;
mod replica;
mod sequencer;
mod sequencing;
mod snapshot;
#[cfg(test)]
mod tests;

use serried_actor::{Group, Protocol, Settings};
use serried_model::snapshots::{Offers, VersionClocks};
use serried_model::{Guarantee, NodeId, Snapshots};

use crate::Mutated;
use crate::frameworks::replicated_log;

pub use coordinator::{Coordinator, Repeat};
pub use message::{
    Answer, Batch, Entry, Fate, Found, Mark, Message, Record, Request, SEQUENCER, Sequenced,
    Version, Write,
};
pub use replica::{Replica, Timer};

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// The next batch begins before the last one is applied.
    NextBegunEarly,
    /// The client chooses the highest number that it is told, whatever the vectors say.
    VectorsIgnored,
    /// A leader answers reads although it may be deposed.
    ReadsNotConfirmed,
    /// A new sequencer takes for applied what its predecessor has handed out, or not.
    NotHandedOutAgain,
    /// A write that is tried again is executed again.
    ExecutedAgain,
    /// The leader takes for chosen what it alone has accepted.
    AcknowledgedByLeaderAlone,
    /// A replica that has lost its disk takes part at once, like a new one.
    RejoinsAtOnce,
}

/// The protocol.
#[derive(Debug)]
pub struct PortSeo;

impl Protocol for PortSeo {
    const NAME: &'static str = "port-seo";
    const SUMMARY: &'static str = "read-only transactions in one round that never wait for writes, and simple writes that a sequencer puts in order one batch at a time";
    const GUARANTEE: Guarantee = Guarantee::StrictSerializable;
    type Family = Snapshots;
    const OFFERS: Offers =
        Offers { version_clocks: VersionClocks::None, write_transactions: false, sites: false };
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    const FORGETS_BY_CLIENT_CLOCKS: bool = true;
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator {
        Coordinator::new(group, settings, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
