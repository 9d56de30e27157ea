//! Agreement on commands, and registers: the core of EPaxos and of Gryff.
//!
//! Replicas agree on *instances*. Each is a command with its attributes: the instances that precede
//! it, and a sequence number that breaks cycles (001 §4.3.1, "EPaxos"). The protocols differ in
//! which operations are commands ([`Variant`]). In EPaxos, all are. In Gryff, only
//! read-modify-writes are, each with a base update among its attributes; reads and writes go to
//! registers at a quorum (001 §4.3.2, §4.3.3).
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
//! Commands access single keys, so each key has its own instances. A command on one key never waits
//! for a command on another. The dependencies of a command are two numbers for each coordinator,
//! one for updates and one for reads, however many commands there are.
//!
//! # Invariants
//! - *An instance is agreed on once.* A replica takes part in no ballot below the one that it has
//!   promised. The promised ballot and the ballot in which it has accepted attributes may differ.
//!   Both are durable before it answers.
//! - *If two commands interfere, one comes after the other, or each after the other.* Each is known to a majority before it
//!   is agreed on, and its attributes contain what that majority knew of the other.
//! - *A command is executed once*, even if it is agreed on in several instances: replicas remember
//!   its token with its result.
//! - *If there are registers, every acknowledged value, or a later one, is held durably by a
//!   majority.*
//! - *If there are registers, a base is at least as late as every value that was acknowledged
//!   before its command began*: it is the latest of the values that a majority has held since then.
//! - *Only replicas that still have their disks count.* Every message of a replica names its
//!   incarnation, or all incarnations that it knows. A replica drops messages of a former
//!   incarnation if it knows a later one. If such a message was counted for a step that is not
//!   complete, it no longer counts. Two replicas that have lost their disks at the same time may
//!   not know each other's incarnation; but a replica that learns of the other's loss asks all
//!   others again.
//! - *A replica that has lost its disk takes part in nothing until every instance is decided in
//!   which its predecessor may have taken part.* Until then it counts among the `f` that may fail,
//!   and the others decide without it. So it never reuses a number, a ballot or a vote of its
//!   predecessor that counted. (It may reuse a number that others know only as a dependency of a
//!   no-op.) It needs answers from all others, because each of them may know an instance that no
//!   other knows.
//! - *A refusal is permanent.* If a request is refused because of its client's clock, the refusal
//!   is in the log, and a repeated request is refused again. (A replica that has lost its disk does
//!   not know its earlier refusals.)
//! - *No single clock refuses an update.* A client that is refused because of its clock asks one
//!   replica after the other. It concludes that its clock is off when a majority has refused. Then
//!   all replicas that it has asked have refused, so the update has no effect.
//!
//! # Fast quorums
//! EPaxos' fast quorums have `f + ⌈f/2⌉` members; Gryff's have `2f`. A replica that recovers an
//! instance asks a majority. It has to find out which attributes may have been committed after one
//! round trip. Dependencies can be validated against what a majority knows, so the answers of a few
//! are enough. A base can't be validated. Suppose that an update is later than the base. If it was
//! acknowledged before the command began, the base is invalid. If it followed the commit of the
//! base, the base is valid. Replicas outside the fast quorum hold the update in both cases. So the
//! members of the majority that were in the fast quorum must, together with the coordinator, be a
//! majority themselves, as in 001 Algorithm 5, line 10. With three replicas both sizes are the
//! same.
//!
//! # When a write is acknowledged
//! The position of a command in the order is fixed when it is executed. Then every command that it
//! depends on, directly or indirectly, is agreed on. A command that begins later is not among them.
//! It follows the earlier command, because it depends on every command that was agreed on before it
//! began. This argument does not use sequence numbers. They only ensure that all replicas execute
//! the commands of a cycle in the same order.
//!
//! EPaxos acknowledges a blind write when it is agreed on, before it is executed (001 §4.3.1). This
//! requires two conditions.
//!
//! - *Its position is fixed.* The write may depend on a command that is not agreed on yet, and that
//!   command may get a dependency on a later one. Then the three are in a cycle, and the later
//!   command must not precede the write. So the later command needs the greater sequence number.
//!   *With three replicas it has one.* An agreed command is known to a majority, with its sequence
//!   number. The attributes of a recovered command come from a majority, its coordinator included.
//!   The two majorities share a replica. That replica has either given the later command a greater
//!   number, or it had executed the earlier command; then the two are in no cycle.
//! - *It is executed.* Results of updates are remembered for a limited time, by the tokens' times.
//!   An update whose result may be forgotten is not executed, because it may have been executed
//!   before, in another instance. Clocks can't exclude this: one machine whose clock is far ahead
//!   can make replicas forget results. So a write is agreed on as *fresh* under three conditions,
//!   at each replica of its quorum, which is a majority: the replica knows its token from no other
//!   instance, knows every command that it adds as a dependency of the write, and keeps the
//!   sequence number that the coordinator has assigned. A fresh write is executed in any case. It
//!   was not executed before: suppose that there is another instance with the same token. A replica
//!   is in both quorums. If it knew the other instance first, this one is not fresh. Otherwise it
//!   has made the other instance depend on the fresh one, and has assigned to it a sequence number
//!   above that of the fresh one, which no replica has raised since. So the fresh one is executed
//!   first, even if the two are in a cycle.
//!
//! So with three replicas a fresh write is acknowledged when it is agreed on. All other commands
//! are acknowledged when they are executed. With five or more replicas the first condition may not
//! hold: the fast quorum without its coordinator may be the minority of the replicas that a
//! recovery asks. Their attributes can be neither accepted nor rejected because of a sequence
//! number: that of a conflicting command may have been raised in a second round, so it proves
//! nothing about what the fast quorum knew. (In the EPaxos report, a command takes the fast path
//! only if its dependencies are committed. That costs a round. The solution here only costs waiting
//! for commands that were under way.) Validation needs to look at dependencies only.

//! # A store that is ahead of its log
//! A write to the store may be durable before records that were appended earlier. After a crash,
//! the store may then contain the effects of commands, or values of registers, that are not in the
//! log. The [replicated log](crate::frameworks::replicated_log) executes entries only after they
//! are durable here. This framework need not wait.
//!
//! - *Several replicas.* An executed command is determined by durable records. It was agreed on,
//!   and each message for the agreement was sent after its sender's records were durable. That
//!   includes the coordinator's own: its first record was durable before any other replica could
//!   answer. So if the store survives and the record of the commit does not, the others still come
//!   to the same command with the same attributes.
//! - *A replica that is alone in its partition* agrees with nobody, so it may execute a command of
//!   which no record is durable anywhere. There the store itself is the durable record. The state
//!   of a key is put as a whole: its value, which instances were executed, and their results. The
//!   replica has been in that state, and commands access single keys, so no other key's state has
//!   to match. After a restart, records of executed instances are skipped, new instances are
//!   numbered after them, and a retried update finds its result.
//! - *A value of a register* is held or not. A client counts a replica only after its record is durable. If the store
//!   keeps a value whose record is lost, it is a write that may take effect, like any that was not acknowledged.
//!
//! In each case, no other node received what the lost records contained: answers leave after every
//! record that was appended before them is durable. `tests/alone.rs` crashes single replicas with
//! slow disks while many operations are under way.

mod coordinator;
mod executed;
mod instance;
mod message;
mod order;
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

/// Which operations are commands, and how reads complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// All operations are commands.
    Epaxos,
    /// Only read-modify-writes are commands. A read takes a second round if less than a majority
    /// holds its value.
    Gryff,
    /// As in Gryff, but reads take one round, and clients ensure that a majority holds the values
    /// that they have read.
    GryffRsc,
}

/// A deliberate mistake. Tests show that checkers find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// A read returns the latest value that it has found, even if less than a majority holds it.
    SecondReadRoundSkipped,
    /// A read-modify-write is complete when the replica that coordinates it has executed it.
    AcknowledgedAfterOneExecution,
    /// The base in an Accept is that of the coordinating replica, whatever other replicas hold.
    BaseDroppedInAccept,
    /// A recovery adopts the attributes of the replicas that have promised the highest ballot,
    /// instead of the highest accepted ones.
    PromisedTakenForAccepted,
    /// A client brings the values that it has read with one operation only.
    DependencyClearedAtSend,
    /// A client brings the values that it has read with its next operations in the partition, on
    /// any keys, and no operation waits (001 Algorithm 8, as printed).
    AsPrinted,
}

/// The protocol that the participants run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Which operations are commands.
    pub variant: Variant,
    /// The deliberate mistake that they make, if they make one.
    pub mutation: Mutated<Mutation>,
}

impl Rules {
    /// The rules of a protocol without mistakes.
    pub fn of(variant: Variant) -> Rules {
        Rules { variant, mutation: Mutated::NONE }
    }

    /// Whether reads and writes go to registers at a quorum.
    fn have_registers(&self) -> bool {
        self.variant != Variant::Epaxos
    }
}
