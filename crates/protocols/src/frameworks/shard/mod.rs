//! Shards: the common framework of the protocols for one datacentre (003 §2.3, §5.6, §6.1).
//!
//! A shard is a partition with a leader and a replicated log. Several protocols use the same shards
//! and differ only in when a request can be answered. Copies of everything else in each protocol
//! would drift apart. So a protocol supplies the leader's concurrency [`Control`]. This module
//! supplies the coordinator, the log, the rows, the retention of outcomes, and the recovery from
//! failures of clients and leaders.
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
//! - *Parts decide.* A transaction commits if every participant has a part of it in its log and all
//!   parts hold at one moment, or can be moved to one ([`verdict`]). Every node that knows the
//!   parts comes to the same result: the client, or, if the client is silent, the leader of the
//!   first participant, its backup coordinator. So a commit is certain before any `Decide` is in a
//!   log, and the client reports it to its program at once (*asynchronous commit*). A control can
//!   have the backup coordinator decide in every case ([`Control::GROUPS_DECIDE`],
//!   `replica/deciding.rs`).
//! - *Others go on from an end that has its place in the log*, if the control [releases early](Control::RELEASES_EARLY). A
//!   transaction with a single part commits if that part is final, and everybody who knows it says so. So the leader puts
//!   its end into the log together with the part, and its client's `End` only confirms it. What others do from then on is
//!   later in the same log. A part that rests on an end is therefore chosen, applied and reported only with it, and removed
//!   if the end is lost (see below). A part that was made before the end is another matter: the end may only have made it
//!   final. That is safe if the end is certain: a client has asked for it, or it follows from a part that stands before.
//!   An end is not certain if the leader has decided it by itself, as when it refuses a transaction that can't read again,
//!   or if it follows from a part that was made again. Then the part that has become final is put into the log once more,
//!   behind that end (`replica/uncertain.rs`). If an end is lost with the leader, shots that were not the last may have
//!   been answered with what it wrote. Their transactions have no part, and the next leader refuses them.
//! - *A refusal is permanent.* A transaction can be refused at a shard where it has no part yet.
//!   The leader remembers the refusal for as long as it leads, and this need not be durable. Each
//!   transaction has a pre-assigned time. A leader admits only transactions whose times lie in the
//!   *window* that is in the log ([`AdmissionWindow`]). A later leader refuses every transaction
//!   that has no part and whose time lies before the end of its predecessors' windows
//!   ([`Entry::Lead`]). A transaction whose time lies after the window is refused by an entry in
//!   the log, and the client is notified after that entry is chosen, because the shot may arrive
//!   again, here or at another leader, when the window has reached it. So a client whose
//!   transaction was refused can start another one. No late or repeated message brings the old
//!   transaction back, and neither does an entry of an earlier leader that only a third leader
//!   finds ([`Led`]).
//! - *No single clock matters.* A leader goes by the clocks of a majority of its shard's replicas.
//!   Its window ends no later than these clocks and the bound allow, whatever its own clock says.
//!   So the next leader can admit transactions at once. A transaction is refused because of its
//!   time only if a majority of the clocks agrees. If the known clocks disagree, the leader sends
//!   no answer. A shard reports to clients the time from which it admits transactions. This moves a
//!   client's transactions at other shards by half the bound at most.
//! - *Clocks that were ahead close no shard.* If a majority of the clocks was ahead and is set
//!   right, the next leader's window begins far in the future. The leader reports this to clients,
//!   and their transactions begin there. They are not refused for clock skew: the end of such a
//!   window is limited by its beginning and the bound, not by the clocks. Admitting a transaction
//!   does not move the beginning. A new leader moves it, and so does one that closes the window for
//!   old refusals, each by the bound at most. Other shards still refuse transactions so far ahead,
//!   so until the clocks have reached the window, a transaction that also goes to other shards is
//!   refused because of its time. A client that does not know of the window yet, and whose first
//!   transaction there is a single shot, learns of it from the answer that the shard may have
//!   forgotten this transaction. Its outcome is then unknown to the client.
//! - *A single replica answers nothing early.* It treats its proposals as chosen, so its answers
//!   wait until these are durable.
//! - *Earlier shots may be lost with the leader.* Then the transaction is refused. Only the last shot makes durable what all
//!   shots have done at the shard. That is one entry instead of one per shot, and earlier shots wait for no follower (003
//!   §5.6 leaves this open).
//! - *A transaction that only reads may have no part*, if the control supports that
//!   ([`Snapshots`]). The log contains nothing of it, and no message follows its answers. The
//!   leader answers after it has confirmed that it still led. If the answer is as of a timestamp,
//!   this lies before the end of the window. The control's state for it is lost with the leader.
//! - *A new leader serves* after it has applied every entry that may have been chosen under former
//!   leaders, and has passed its control the parts of all undecided transactions.
//! - *A leader's entries rely on all before them.* A control acts on an entry when it is proposed: a transaction that it
//!   refuses after the part was proposed is gone from then on, and others come in its place before its end is chosen. So an
//!   entry without an earlier one of the same leader would be wrong, and is removed ([`Led`]). See below.
//! - *Rows are self-contained.* Prepared accesses are stored with each key. So after a copy key by
//!   key, a replica can continue with the entries that follow.
//!
//! # Entries that rely on others
//! A new leader may find some of the last entries of the former one, and not those before. What does each rely on?
//! - A part relies on the window that admits its transaction and on the set of procedures under which it ran. The leader
//!   waits for these until they are chosen. It relies on the ends of transactions whose versions it has read. These are
//!   chosen, or before it in the log of the same leader. *They must not be lost alone* either.
//! - It also relies on parts of transactions that are still open. If such a part is lost, its transaction is refused.
//!   Validation and locking lose nothing by that: the part was made although there was one more in its way. Under `ncc`
//!   and `mvto` it may have read what the other one was to write. Then a new leader has it read again, or refuses it
//!   ([`Control::inherit`]).
//! - It relies on ends that the control has acted on and that are not chosen: those of transactions that had a part when
//!   the control refused them. That happens under `ncc` and `mvto`, if what such a transaction had read was aborted. *This
//!   is what must not be lost alone.* The refused transaction would be open again, together with one that was executed as
//!   if it were not. Two transactions then waited for each other for ever, or one did not see what the other wrote
//!   (`replica/tests/gaps.rs`).
//! - Under `ncc`, the value that a modification makes follows from the version before it. If that is aborted, several parts are
//!   made anew, and each value follows from another new one. The *latest comes first* in the log. So if any of them is
//!   lost, the first of the chain is. Its old part has read what was aborted, so the next leader refuses it, and all that
//!   follows from it ([`Control::inherit`]). In the other order the next leader could keep an old value whose stamp fits.
//! - The end of a transaction that commits relies on its part, which is chosen. That of one that is aborted relies on
//!   nothing.
//! - Windows contain what the windows before them granted. A set of procedures is proposed when the one before is in use at
//!   all shards. [`Entry::Lead`] is chosen before anything else of its leader is proposed.
//! - An answer is sent when the entry that it follows from is chosen under the leader that proposed it, so all before it are
//!   chosen too. This holds for reads without parts, whose slot is that of a later entry. Answers to shots that are not the
//!   last, and refusals within the window, promise nothing that a new leader would not keep: it refuses every transaction
//!   without a part.
//!
//! # Bounds
//! - *A transaction that was moved commits under another version than it began with*. Its program learns that version before
//!   its shards do, and another client may ask them for the outcome by it. Then a shard that has a part of the transaction
//!   refuses nothing: the transaction may commit under that version, as far as the shard knows. The shard finds out how the
//!   transaction ends, and the client asks again.
//! - The outcome of a transaction is remembered for at least
//!   [`serried_actor::Settings::outcomes_ms`], and until no shard can have an undecided part of it.
//!   Leaders report to each other the time below which all transactions of their shards have ended.
//! - Transactions that run for longer than `truncation_lag_ms` may be refused.
//! - A part has at most 32 MiB ([`Part::MOST_BYTES`]), with the values that modifications make. The limit on transactions, which
//!   clients check, counts the modifications alone. A transaction with a larger part is refused ([`Refusal::TooLarge`]). A
//!   shot has at most 2^18 modifications.
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
mod calls;
mod control;
mod coordinator;
#[cfg(test)]
mod forger;
mod horizon;
mod message;
mod outcomes;
mod placed;
mod program;
mod replica;
mod row;
mod sound;
mod stamp;
mod table;
mod verdict;

pub use accesses::{Access, Accesses, Read};
pub use calls::{CallOf, InUse, Occurrence, Pieces, Ran, Returned};
pub use control::{Control, Desk, Event, Glance, Keeps, Rounds, Snapshots};
pub use coordinator::{CallCoordinator, CallTimer, Coordinator};
pub use message::{
    AdmissionWindow, AsOf, Decision, Entry, Executed, Found, Item, Kept, Led, Message, Part,
    Record, Refusal, Reply, Request, Run, Shot, Written,
};
pub use placed::Placed;
pub use program::{Answer, Program, Results, Rows, Use, Writes, run};
pub use replica::Replica;
pub use row::{Installed, Row};
pub use stamp::{Stamp, Validity};
pub use table::Table;
pub use verdict::{Verdict, verdict};

use crate::Mutated;
use crate::frameworks::replicated_log;
use core::marker::PhantomData;

use serried_actor::{Contention, Group, Protocol, Settings};
use serried_model::transactions::Offers;
use serried_model::{Guarantee, NodeId, Transactions};
use serried_procedures::Procedures;

/// A deliberate mistake. Tests show that checkers find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A part is reported as ready before it is chosen.
    AnswersBeforeDurable,
    /// Others do not see what a transaction has done whose end is not in the rows yet.
    ForgetsPlaced,
    /// What may be due to an end that is not certain yet is reported at once.
    TrustsUncertainEnds,
    /// A transaction that is tried again is as young as its new version.
    AgesAnew,
    /// A read-only transaction without parts is answered even if its keys were written since its
    /// client's last reply, and prevents no write.
    SnapshotsUnchecked,
    /// Responses are sent as soon as their requests are executed (003 §5.2).
    NoResponseTimingControl,
    /// No request is refused for its timestamp, even if it waits (003 §5.2).
    NoEarlyAbort,
    /// A smart retry ignores later versions (003 Algorithm 5.4, line 86).
    MovesUnchecked,
    /// A write ignores when the version before it was read.
    ReadsUnmarked,
    /// A read is answered before the version that it found is committed.
    ReadsAnsweredAtOnce,
    /// Reads take no locks (003 §2.3).
    ReadsUnlocked,
    /// An older transaction wounds others that are prepared (002 §5.1).
    WoundsPrepared,
    /// If what a program has read is aborted, the read is made again, and the program is not run again.
    KeepsOldWrites,
    /// A modification keeps its value if what it follows from is aborted.
    KeepsOldModifications,
    /// A modification that is made anew is made of its own value.
    ModifiesTwice,
    /// A call is reported as refused before what it has read is validated.
    RefusalsUnvalidated,
    /// A new leader keeps entries although earlier ones of their leader are lost.
    KeepsEntriesBehindGaps,
    /// A commit is reported, and visible, before its moment is over.
    NoCommitWait,
    /// A read at a timestamp does not wait for transactions that may take effect before.
    SafeTimeIgnoresPrepared,
}

/// The shard that decides which set of procedures is in use.
const OF_SETS: u16 = 0;

/// The optional operations that a control supports.
pub const fn offers<C: Control>() -> Offers {
    Offers { one_shots: true, past: matches!(C::KEEPS, Keeps::Recent), modifies: true }
}

/// The protocol whose shards use the control `C`.
#[derive(Debug)]
pub struct Sharded<C>(PhantomData<C>);

impl<C: Control> Protocol for Sharded<C> {
    const NAME: &'static str = C::NAME;
    const SUMMARY: &'static str = C::SUMMARY;
    const GUARANTEE: Guarantee = C::GUARANTEE;
    type Family = Transactions;
    const OFFERS: Offers = offers::<C>();
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    const RELIES_ON_CLOCKS: bool = C::GROUPS_DECIDE;
    const CONTENTION: Option<Contention> = C::CONTENTION;
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

/// A control that also runs the pieces of stored procedures ([`Control::run`]).
pub trait RunsCalls: Control {
    /// The name of the protocol of procedures.
    const NAME: &'static str;
    /// A one-line summary.
    const SUMMARY: &'static str;
}

/// The protocol of stored procedures whose shards use the control `C`. Replicas, logs, parts and recovery are those of
/// [`Sharded`]; the coordinator drives calls.
#[derive(Debug)]
pub struct ShardedCalls<C>(PhantomData<C>);

/// The optional operations of procedures. A call is atomic as a whole, so merged pieces need nothing more.
pub const CALL_OFFERS: serried_procedures::Offers = serried_procedures::Offers { merged: true };

impl<C: RunsCalls> Protocol for ShardedCalls<C> {
    const NAME: &'static str = <C as RunsCalls>::NAME;
    const SUMMARY: &'static str = <C as RunsCalls>::SUMMARY;
    const GUARANTEE: Guarantee = C::GUARANTEE;
    type Family = Procedures;
    const OFFERS: serried_procedures::Offers = CALL_OFFERS;
    const HAS_LEADERS: bool = true;
    const FIRST_FORMAT: u32 = replicated_log::FIRST_FORMAT;
    type Message = Message;
    type Coordinator = CallCoordinator<C>;
    type Replica = Replica<C>;

    fn coordinator(group: Group, settings: &Settings) -> CallCoordinator<C> {
        CallCoordinator::new(group, settings, Mutated::NONE)
    }

    fn replica(id: NodeId, group: Group, settings: &Settings) -> Replica<C> {
        Replica::running_calls(id, group, settings, Mutated::NONE)
    }
}
