//! Registers with agreement on what needs it: the core of EPaxos and of Gryff.
//!
//! Replicas agree on *instances*, each a command with its attributes: what it comes after, and a sequence
//! number that breaks cycles (001 §4.3.1, "EPaxos"). Which operations are commands is what the protocols
//! differ in ([`Variant`]): in EPaxos all; in Gryff read-modify-writes alone, each with a base update among
//! its attributes, while reads and writes go to registers at a quorum (001 §4.3.2, §4.3.3).
//!
//! ```text
//! replica that coordinates                              others
//!   | PreAccept(command, attributes) ----------------->|  the fast quorum at least
//!   |<------------------- PreAccepted(attributes) -----|
//!   | Accept(command, attributes) -------------------->|  unless all of the fast quorum agreed
//!   |<---------------------------------- Accepted -----|  from a majority
//!   | Commit(command, attributes) -------------------->|
//!   |<---------------------------------- Executed -----|  Gryff: from a majority, before the reply
//! ```
//!
//! # Instance spaces
//! Commands are about single keys, so each key has instances of its own: a command on one key never waits
//! for one on another, and what it comes after is a number for each coordinator, however many there are.
//!
//! # Invariants
//! - *An instance is agreed on once.* A replica takes part in no ballot below the one that it has promised,
//!   which is another than that of what it has accepted; both are durable before it answers.
//! - *Of two interfering commands one comes after the other, or both*: each is known to a majority before it
//!   is agreed on, and what was known of the other there is among its attributes.
//! - *A command is executed once*, however often it is agreed on: its token is remembered with its result.
//! - *Where there are registers, what was acknowledged is held by a majority*, durably.
//! - *Where there are registers, a base is at least as late as all that was acknowledged before its command
//!   began*: it is the latest that a majority held since.
//! - *What counts was said by replicas that still have their disks.* All that a replica says names its
//!   incarnation, or all incarnations that it has heard of. What a former one has said is dropped, and not counted
//!   any more if it was counted for something that is not complete.
//! - *A replica that has lost its disk takes part in nothing until all that its predecessor may have taken part
//!   in is decided.* Till then it counts among the `f` that may fail; the others decide without it, as without
//!   any that fails. It never reuses a number, a ballot or a vote of its predecessor: it has nothing to do with
//!   what that was in. It needs the word of all others, since what it does not know of may be known to any one.
//! - *A refusal is for ever*: a request that is refused for its client's clock is in the log, and is refused when
//!   it comes again. (Not by a replica that has lost its disk since.)
//!
//! # Fast quorums
//! EPaxos' have `f + ⌈f/2⌉` members. Gryff's have `2f`: who recovers an instance meets a majority, and has to
//! tell the attributes that may have been committed in one round trip. What it comes after can be checked
//! against what a majority knows, and so may be the word of a few. A base can't be checked: an update that
//! is later than the base may have been acknowledged before the command began, when the base must not
//! stand, or may have come after the base was committed, when it must; replicas that were not asked hold it
//! in both cases. So those among the majority who had been asked have to be, with the coordinator, a
//! majority themselves, as in 001 Algorithm 5, line 10. With three replicas the two are the same.

//! # When a write is acknowledged
//! A command has its place when it is executed: then all that it depends on, directly or not, is agreed on, so
//! a command that begins later can't be among that. It comes after, as it depends on what was agreed on before
//! it began. Nothing of this rests on sequence numbers. They only make all replicas execute the commands of a
//! cycle in the same order.
//!
//! EPaxos acknowledges a write that does not read when it is agreed on, before it is executed (001 §4.3.1). Then
//! its place does rest on sequence numbers: it may depend on something that is not agreed on yet and that comes
//! to depend on a later command, and of the three in that cycle the later command must not come first. So it
//! must have the greater sequence number.
//!
//! - *With three replicas* it has. What was agreed on is known, with its sequence number, to a majority; a
//!   recovered command has attributes that a majority, its coordinator counted, has made; the two share a
//!   replica, which either gave a greater number or had executed the earlier command, and then the two are in no
//!   cycle. So a write is acknowledged when it is agreed on.
//! - *With five or more* the fast quorum less its coordinator may be the minority of those whom a recovery
//!   meets. These attributes can be neither taken nor rejected for their sequence number: that of a conflicting
//!   command, too low or not, may have been raised in a second round, which proves nothing of what the fast
//!   quorum knew. (The EPaxos report has a command go the fast way only if what it depends on is committed. That
//!   costs a round where this costs nothing but waiting for what was under way.) So there a write is acknowledged
//!   when it is executed, as a read is. Validation then needs to look at dependencies alone.

mod coordinator;
mod instance;
mod message;
mod replica;
mod rows;
mod sound;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod unsettled;

pub use coordinator::{Coordinator, Repeat};
pub use instance::{
    Attributes, Ballot, Command, Dependencies, Instance, InstanceId, Kind, Numbers, Status,
};
pub use message::{Answer, Body, Conflict, Found, Message, OperationId, Record, Shown};
pub use replica::{Replica, Timer};
pub use state::State;

/// Which operations are agreed on, and how reads end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All are agreed on.
    Epaxos,
    /// Read-modify-writes are; reads take a second round where few hold what they have found.
    Gryff,
    /// The same, and reads take one round: clients have a majority hold what they have read.
    GryffRsc,
}

/// Something to be done wrong on purpose, in tests that show that it would be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A read returns the latest that it has found, whoever else holds that.
    SecondReadRoundSkipped,
    /// A read-modify-write is complete when the replica that coordinates it has executed it.
    AcknowledgedAfterOneExecution,
    /// What is accepted has the base of the replica that coordinates it, whatever others hold.
    BaseDroppedInAccept,
    /// Who recovers takes what was accepted by those who have promised the highest ballot.
    PromisedTakenForAccepted,
    /// What a client has read is not brought along again once it was sent.
    DependencyClearedAtSend,
    /// What a client has read is brought along with its next operations in the partition, whatever their keys
    /// are, and nothing waits for it (001 Algorithm 8).
    AsPrinted,
}

/// What protocol the participants run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Which.
    pub variant: Variant,
    /// What they do wrong.
    pub mutation: Option<Mutation>,
}

impl Rules {
    /// Those of a protocol as it is.
    pub fn of(variant: Variant) -> Rules {
        Rules { variant, mutation: None }
    }

    /// Whether reads and writes go to registers at a quorum.
    fn have_registers(&self) -> bool {
        self.variant != Variant::Epaxos
    }

    fn break_by(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
