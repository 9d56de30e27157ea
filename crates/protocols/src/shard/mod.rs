//! Shards: what the systems of the datacentre have in common (003 §2.3, §5.6, §6.1).
//!
//! A shard is a partition with a leader and a replicated log. What a leader does with requests until they can be
//! answered is its concurrency [`Control`], which makes one system of another; all else is here: the client's
//! part, the log, the rows, who is forgotten when, and what happens when somebody dies.
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
//! Reads and writes of a transaction whose program is known as a whole are one shot, which is the last.
//!
//! # Invariants
//! - *Parts decide.* A transaction commits if every participant has a part of it in its log and all hold at one
//!   moment, or can be moved to one ([`verdict`]). Whoever finds the same parts comes to the same end: the client,
//!   or the leader of the first participant, its backup coordinator, if the client is silent. So a commit is
//!   certain before any `Decide` is in a log, and the client tells its program at once (*asynchronous commit*).
//! - *A refusal is for ever.* Who has no part yet can be refused, and that need not be durable: the leader remembers
//!   it as long as it leads, and a later leader refuses all that began before it and has no part
//!   ([`Entry::Lead`]). Who begins after the window is refused by an entry in the log, and told once that is chosen:
//!   its shot may come again when the window reaches it, at this leader or another. It knows which those are by their pre-assigned times: a leader takes only those that
//!   began before a time which is in the log ([`Window`]), on which a leader relies that no former one has taken
//!   others. So a client whose transaction was refused can begin anew, and no message that is late or
//!   repeated brings the old one back; nor does an entry of an earlier leader that only a third one finds ([`Led`]).
//! - *One clock bounds nobody.* A leader goes by the clocks of a majority of its shard's replicas, which it asks what they
//!   say. A window ends no later than these and the bound allow, whatever the leader's own clock says. So the next leader
//!   can take transactions at once. A transaction is refused for its clock if a majority of clocks says so; if they
//!   do not agree on it nothing is said. What a shard says of the time moves a client's transactions elsewhere by half the
//!   bound at most.
//! - *One that is alone says nothing early.* It takes for chosen what it has proposed, so all that it says waits until
//!   that is durable.
//! - *What is read before the last shot may be lost* with its leader, and then the transaction is refused: it is
//!   the last shot alone that makes durable what all have done at the shard. One entry instead of one for each
//!   shot, and earlier shots wait for no follower (what 003 §5.6 leaves open).
//! - *Who only reads may have no part*, where the control can do without ([`Snapshots`]): nothing of it is in the log,
//!   and no message follows its answers. Such an answer is given once the leader is sure to have led until then, and if
//!   it has a timestamp, only one before the end of the window. All that the control remembers of it dies with the
//!   leader.
//! - *A new leader serves once it has applied all that former ones can have had chosen*, and its control has been
//!   given the parts of transactions that are not over.
//! - *Rows say all of themselves*: what is prepared lies with each key, so that a state that was taken over key by
//!   key can be gone on with by the entries that follow.
//!
//! # What is kept how long
//! How a transaction ended is known for [`serried_actor::Settings::outcomes_ms`] at least, and until no shard can
//! have a part of it that is not decided: leaders tell each other below which time all is over with them.
//! Transactions that take longer than `truncation_lag_ms` may be refused. A leader has 65,536 transactions open at
//! most (`OPEN_AT_MOST`) and lets 4096 requests wait for the log, and as many of those that only read for
//! transactions (`PENDING_AT_MOST`): it handles none while something waits to be proposed. 65,536 answers wait to be
//! confirmed (`CONFIRMING_AT_MOST`). It remembers 2^18 refusals (`REFUSED_AT_MOST`); if there are more it closes the
//! window for the older half. 65,536 are refused in the log who begin after the window (`BARRED_AT_MOST`); others hear
//! nothing. A client remembers 65,536 ends that were not acknowledged, and 64 runs of the times that it has given.
//!
//! # Messages that can't be meant
//! They are dropped at the door (`sound`): no message ends a replica or a client.

mod accesses;
#[cfg(test)]
pub(crate) mod bench;
mod control;
mod coordinator;
#[cfg(test)]
mod forger;
mod message;
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
    AsOf, Decision, Entry, Executed, Found, Item, Led, Message, Part, Record, Refusal, Reply,
    Request, Shot, Time, Window, Written,
};
pub use replica::Replica;
pub use row::{Installed, Row};
pub use stamp::{Stamp, Validity};
pub use table::Table;
pub use verdict::{Verdict, verdict};

use core::marker::PhantomData;

use serried_actor::{Group, Protocol, Settings};
use serried_model::{Guarantee, NodeId};

/// Something to be done wrong on purpose, in tests that show that it would be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A part that is not chosen yet is told of as if it were.
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
    /// What was read is told before it is committed.
    ReadsAnsweredAtOnce,
    /// Reads take no locks (003 §2.3).
    ReadsUnlocked,
    /// Who is older has others refused that are ready to commit (002 §5.1).
    WoundsPrepared,
}

/// The protocol whose shards are controlled by `C`.
#[derive(Debug)]
pub struct Sharded<C>(PhantomData<C>);

impl<C: Control> Protocol for Sharded<C> {
    const NAME: &'static str = C::NAME;
    const SUMMARY: &'static str = C::SUMMARY;
    const GUARANTEE: Guarantee = C::GUARANTEE;
    type Message = Message;
    type Coordinator = Coordinator<C>;
    type Replica = Replica<C>;

    fn coordinator(group: Group, settings: &Settings) -> Coordinator<C> {
        Coordinator::new(group, settings)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica<C> {
        Replica::new(id, group, settings, None)
    }
}
