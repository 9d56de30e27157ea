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
//! Commands are about single keys, so each key has its own instances. A command on one key never waits for a command on
//! another, and its dependencies are two numbers for each coordinator, one for updates and one for reads, however many
//! commands there are.
//!
//! # Invariants
//! - *An instance is agreed on once.* A replica takes part in no ballot below the one that it has promised. The promised
//!   ballot and the ballot of what it has accepted are different things. Both are durable before it answers.
//! - *If two commands interfere, one comes after the other, or each after the other.* Each is known to a majority before it
//!   is agreed on, and its attributes contain what that majority knew of the other.
//! - *A command is executed once*, however often it is agreed on: its token is remembered with its result.
//! - *If there are registers, everything that was acknowledged is held by a majority*, durably.
//! - *If there are registers, a base is at least as late as everything that was acknowledged before its command began*: it
//!   is the latest value that a majority has held since then.
//! - *Only replicas that still have their disks count.* Everything that a replica says names its incarnation, or all
//!   incarnations that it knows. Messages of a former incarnation are dropped by whoever knows a later one. If one was
//!   counted for something that is not complete, it does not count any more. Two replicas that have lost their disks at the
//!   same time may not know each other's incarnation; but one that learns that the other is lost too asks all again.
//! - *A replica that has lost its disk takes part in nothing until everything is decided that its predecessor may have taken
//!   part in.* Until then it counts among the `f` that may fail, and the others decide without it. So it never reuses a
//!   number, a ballot or a vote of its predecessor that counted. (It may reuse a number that others know only as a dependency
//!   of an instance in which nothing is done.) It needs answers from all others, because any single one may know of
//!   something that it has to know.
//! - *A refusal is permanent.* If a request is refused because of its client's clock, the refusal is in the log, and the
//!   request is refused again if it comes again. (A replica that has lost its disk does not know its earlier refusals.)
//! - *No single clock refuses an update.* A client that is refused because of its clock asks one replica after the other. It
//!   believes that its clock is off when a majority has refused. All that it has asked have refused then, so the update has
//!   no effect.
//!
//! # Fast quorums
//! EPaxos' fast quorums have `f + ⌈f/2⌉` members; Gryff's have `2f`. A replica that recovers an instance asks a majority. It
//! has to find out which attributes may have been committed after one round trip. Dependencies can be validated against
//! what a majority knows, so the answers of a few are enough. A base can't be validated. Suppose that an update is later
//! than the base. If it was acknowledged before the command began, the base must not stand. If it came after the base was
//! committed, the base must stand. Replicas outside the fast quorum hold the update in both cases. So the members of the
//! majority that were in the fast quorum must, together with the coordinator, be a majority themselves, as in 001
//! Algorithm 5, line 10. With three replicas both sizes are the same.
//!
//! # When a write is acknowledged
//! The place of a command in the order is fixed when it is executed. Then everything that it depends on, directly or not,
//! is agreed on, so a command that begins later is not part of that. The later command comes after it, because it depends
//! on everything that was agreed on before it began. This does not use sequence numbers. They only make all replicas
//! execute the commands of a cycle in the same order.
//!
//! EPaxos acknowledges a write that does not read when it is agreed on, before it is executed (001 §4.3.1). Then two things
//! must be certain.
//!
//! - *Its place is fixed.* The write may depend on a command that is not agreed on yet, and that comes to depend on a later
//!   command. The three are then in a cycle, and the later command must not come first. So the later command needs the
//!   greater sequence number. *With three replicas it has one.* An agreed command is known to a majority, with its sequence
//!   number. The attributes of a recovered command come from a majority, its coordinator included. The two majorities share
//!   a replica. That replica has either given the later command a greater number, or it had executed the earlier command;
//!   then the two are in no cycle.
//! - *It is executed.* Results of updates are remembered for a limited time, by the tokens' times. An update whose result may
//!   be forgotten is not executed, because it may have been executed before, in another place. Clocks can't exclude that:
//!   one machine whose clock is far ahead can make others forget. So a write is agreed on as *fresh* if all of its quorum,
//!   which is a majority, know its token from nowhere else, have heard of every command that the write depends on because
//!   of them, and leave it the sequence number that its coordinator has given it. A fresh write is executed in any case.
//!   It was not executed before. Suppose that there is another place with the same token. A replica is in both quorums.
//!   If it knew of the other place first, this one is not fresh. Else it has made the other place depend on the fresh one,
//!   and has given it a sequence number above that of the fresh one, which nobody has raised since. So the fresh one is
//!   executed first, even if the two are in a cycle.
//!
//! So with three replicas a fresh write is acknowledged when it is agreed on. All other commands are acknowledged when they
//! are executed. With five or more replicas the first condition may not hold: the fast quorum without its coordinator may
//! be the minority of the replicas that a recovery asks. Their attributes can be neither taken nor rejected because of a
//! sequence number: that of a conflicting command may have been raised in a second round, so it proves nothing about what
//! the fast quorum knew. (In the EPaxos report, a command goes the fast way only if its dependencies are committed. That
//! costs a round. The solution here only costs waiting for commands that were under way.) Validation needs to look at
//! dependencies only.

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

use crate::Mutated;

/// Which operations are commands, and how reads end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All are agreed on.
    Epaxos,
    /// Read-modify-writes are; reads take a second round where few hold what they have found.
    Gryff,
    /// As Gryff, but reads take one round, and clients make a majority hold what they have read.
    GryffRsc,
}

/// A deliberate mistake, for tests that show that it is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A read returns the latest value that it has found, however few hold it.
    SecondReadRoundSkipped,
    /// A read-modify-write is complete when the replica that coordinates it has executed it.
    AcknowledgedAfterOneExecution,
    /// The base in an Accept is that of the coordinating replica, whatever others hold.
    BaseDroppedInAccept,
    /// A recovery takes what was accepted by the replicas that have promised the highest ballot.
    PromisedTakenForAccepted,
    /// A client brings what it has read along with one operation only.
    DependencyClearedAtSend,
    /// A client brings what it has read along with its next operations in the partition, whatever their keys, and no
    /// operation waits (001 Algorithm 8, as printed).
    AsPrinted,
}

/// The protocol that the participants run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Which.
    pub variant: Variant,
    /// What they do wrong.
    pub mutation: Mutated<Mutation>,
}

impl Rules {
    /// Those of a protocol as it is.
    pub fn of(variant: Variant) -> Rules {
        Rules { variant, mutation: Mutated::NONE }
    }

    /// Whether reads and writes go to registers at a quorum.
    fn have_registers(&self) -> bool {
        self.variant != Variant::Epaxos
    }
}
