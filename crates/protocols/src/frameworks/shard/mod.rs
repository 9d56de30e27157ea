//! Shards: what the protocols of the datacentre have in common (003 §2.3, §5.6, §6.1).
//!
//! A shard is a partition with a leader and a replicated log. The leader's concurrency [`Control`] decides what happens to
//! requests until they can be answered. That is where the protocols differ. This module has everything else: the
//! client's part, the log, the rows, when outcomes are forgotten, and what happens when a client or a leader fails.
//!
//! ```text
//! client                     leader of each shard                    followers
//!   | Shot(reads) -------------->|  executed by the control
//!   |<-------- Executed(found) --|  nothing is durable yet
//!   | Shot(writes, last) ------->|  executed: the transaction has a part here
//!   |                            | Accept(Prepare(part)) ---------------->|
//!   |<----- Executed(validity) --|  once that is chosen, and the control lets it
//!   |  commits if all parts hold at one moment; the program is told
//!   | End(commit) -------------->| Accept(Decide) ----------------------->|
//!   |<------------------ Ended --|  some time, with others
//! ```
//!
//! If a transaction's program is known as a whole, its reads and writes are one shot, which is the last.
//!
//! # Invariants
//! - *Parts decide.* A transaction commits if every participant has a part of it in its log and all parts hold at one moment,
//!   or can be moved to one ([`verdict`]). All that know the parts come to the same result: the client, or, if the client is
//!   silent, the leader of the first participant, its backup coordinator. So a commit is certain before any `Decide` is in
//!   a log, and the client tells its program at once (*asynchronous commit*).
//! - *A refusal is permanent.* A transaction can be refused at a shard where it has no part yet. The leader remembers the
//!   refusal for as long as it leads, and this need not be durable. Each transaction has a pre-assigned time. A leader
//!   takes only transactions whose times lie in the *window* that is in the log ([`AdmissionWindow`]). A later leader refuses every
//!   transaction that has no part and whose time lies before the end of its predecessors' windows ([`Entry::Lead`]). A
//!   transaction whose time lies after the window is refused by an entry in the log, and the client is told once that
//!   entry is chosen, because the shot may come again, here or at another leader, when the window has reached it. So a
//!   client whose transaction was refused can begin anew. No late or repeated message brings the old transaction back,
//!   and neither does an entry of an earlier leader that only a third leader finds ([`Led`]).
//! - *No single clock matters.* A leader goes by the clocks of a majority of its shard's replicas. Its window ends no later
//!   than these clocks and the bound allow, whatever its own clock says. So the next leader can take transactions at once. A
//!   transaction is refused because of its time only if a majority of the clocks agrees. If the known clocks disagree,
//!   nothing is answered. When a shard tells a client from which time on it takes transactions, this moves the client's
//!   transactions at other shards by half the bound at most.
//! - *Clocks that were ahead close no shard.* If a majority of the clocks was ahead and is set right, the next leader's
//!   window begins far in the future. Clients are told so and begin there, which is not held against them: the end of such
//!   a window is bounded by its beginning and the bound, not by the clocks. Taking a transaction does not move the
//!   beginning. A new leader moves it, and so does one that closes the window for old refusals, each by the bound at most.
//!   Other shards still refuse transactions so far ahead, so until the clocks have reached the window, a transaction that
//!   also goes to other shards is refused because of its time. A client that does not know of the window yet, and whose
//!   first transaction there is a single shot, learns of it from the answer that the shard may have forgotten this
//!   transaction. Its outcome is then unknown to the client.
//! - *A single replica says nothing early.* It takes for chosen what it has proposed, so its answers wait until that is
//!   durable.
//! - *Earlier shots may be lost with the leader.* Then the transaction is refused. Only the last shot makes durable what all
//!   shots have done at the shard. That is one entry instead of one per shot, and earlier shots wait for no follower (003
//!   §5.6 leaves this open).
//! - *A transaction that only reads may have no part*, if the control supports that ([`Snapshots`]). Nothing of it is in the
//!   log, and no message follows its answers. Such an answer is given once the leader is sure that it was still the leader.
//!   If the answer is as of a timestamp, this lies before the end of the window. What the control remembers of it is lost
//!   with the leader.
//! - *A new leader serves* once it has applied everything that former leaders can have had chosen, and its control has been
//!   given the parts of all transactions that are not over.
//! - *Rows are self-contained.* What is prepared lies with each key. So a state that was copied key by key can be continued
//!   with the entries that follow.
//!
//! # Bounds
//! - *A transaction that was moved commits under another version than it began with*. Its program learns that version before
//!   its shards do, and another client may ask them for the outcome by it. Then a shard that has a part of the transaction
//!   refuses nothing: the transaction may commit under that version, as far as the shard knows. The shard finds out how the
//!   transaction ends, and the client asks again.
//! - The outcome of a transaction is remembered for at least [`serried_actor::Settings::outcomes_ms`], and until no shard can
//!   have an undecided part of it. Leaders tell each other below which time everything is over at their shards.
//! - Transactions that run for longer than `truncation_lag_ms` may be refused.
//! - A leader has at most 65,536 open transactions (`OPEN_AT_MOST`). 4096 requests may wait for the log, and as many read-only
//!   ones for transactions (`PENDING_AT_MOST`). It handles no request while something waits to be proposed.
//! - At most 65,536 answers wait until the leadership is confirmed (`CONFIRMING_AT_MOST`).
//! - A leader remembers 2^18 refusals (`REFUSED_AT_MOST`). If there are more, it closes the window for the older half.
//! - At most 65,536 transactions after the window are refused in the log (`BARRED_AT_MOST`). Others get no answer.
//! - A client remembers 65,536 ends that were not acknowledged, and 64 runs of the times that it has given.
//!
//! # Forged messages
//! Messages that no correct sender can have sent are dropped when they arrive (`sound`). No message ends a replica or a
//! client.

mod accesses;
#[cfg(test)]
pub(crate) mod bench;
mod control;
mod coordinator;
#[cfg(test)]
mod forger;
mod message;
mod outcomes;
mod replica;
mod row;
mod sound;
mod stamp;
mod table;
mod verdict;

pub use accesses::{Access, Accesses, Read};
pub use control::{Control, Desk, Event, Glance, Rounds, Snapshots};
pub use coordinator::Coordinator;
pub use message::{
    AdmissionWindow, AsOf, Decision, Entry, Executed, Found, Item, Led, Message, Part, Record,
    Refusal, Reply, Request, Shot, Written,
};
pub use replica::Replica;
pub use row::{Installed, Row};
pub use stamp::{Stamp, Validity};
pub use table::Table;
pub use verdict::{Verdict, verdict};

use crate::Mutated;
use core::marker::PhantomData;

use serried_actor::{Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A part that is not chosen yet is reported as ready.
    AnswersBeforeDurable,
    /// A transaction's end lets others go on before it is chosen, and the rows show it.
    ReleasesBeforeDurable,
    /// A read-only transaction without parts is answered whatever has been written since its client last knew, and
    /// keeps no write off.
    SnapshotsUnchecked,
    /// Responses leave when their requests are executed (003 §5.2).
    NoResponseTimingControl,
    /// No request is refused for its timestamp, whatever it waits for (003 §5.2).
    NoEarlyAbort,
    /// A smart retry does not look at later versions (003 Algorithm 5.4, line 86).
    MovesUnchecked,
    /// A write does not look at when the version before it was read.
    ReadsUnmarked,
    /// A read is answered before what it has found is committed.
    ReadsAnsweredAtOnce,
    /// Reads take no locks (003 §2.3).
    ReadsUnlocked,
    /// An older transaction wounds others that are ready to commit (002 §5.1).
    WoundsPrepared,
}

/// What all controls offer.
pub const OFFERS: Offers = Offers { one_shots: true, past: false };

/// The protocol whose shards are controlled by `C`.
#[derive(Debug)]
pub struct Sharded<C>(PhantomData<C>);

impl<C: Control> Protocol for Sharded<C> {
    const NAME: &'static str = C::NAME;
    const SUMMARY: &'static str = C::SUMMARY;
    const GUARANTEE: Guarantee = C::GUARANTEE;
    type Family = Transactions;
    const OFFERS: Offers = OFFERS;
    const HAS_LEADERS: bool = true;
    type Message = Message;
    type Coordinator = Coordinator<C>;
    type Replica = Replica<C>;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator<C> {
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica<C> {
        Replica::new(id, group, settings, Mutated::NONE)
    }
}
