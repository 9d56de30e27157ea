//! The interfaces between a log, the actor that owns it, and the state machine that applies its
//! entries.

use serried_actor::{Actor, Context, Store};
use serried_model::Key;

use super::message::{Ballot, Entry, Message, Record, Timer};

/// An actor that owns a log.
pub trait Host: Actor {
    /// The entries of the log.
    type Entry: Entry;

    /// Wraps a message of the log.
    fn message(message: Message<Self::Entry>) -> Self::Message;

    /// Wraps a record of the log.
    fn record(record: Record<Self::Entry>) -> Self::Record;

    /// Wraps a timer of the log.
    fn timer(timer: Timer) -> Self::Timer;
}

/// The state machine to which a log's entries are applied.
pub trait StateMachine<H: Host> {
    /// Applies a chosen entry. All entries before it have been applied.
    fn apply(&mut self, chosen: Chosen<'_, H::Entry>, cx: &mut Context<'_, H>);

    /// Removes entries that were found too late. This replica is about to lead, and to propose
    /// `inherited` again, from slot `first` on. It has applied all entries below that slot.
    ///
    /// The state machine may remove an entry in two cases, and in no other:
    /// - It was first proposed in a lower ballot than an entry that comes earlier, in `inherited` or among those that were
    ///   applied. The leader that proposed the earlier entry had not found the one that is removed, so that one was not chosen.
    ///   It can't have been chosen since, because a leader that finds both removes it.
    /// - Its leader had proposed another entry before it that is not found there, neither in `inherited` nor among those
    ///   that were applied. Entries are chosen in their order, so neither of them was.
    fn revise(&self, _first: u64, _inherited: &mut [Option<H::Entry>]) {}

    /// Writes everything that was applied to the store.
    fn store_all(&mut self, store: &mut dyn Store);

    /// The position in the durable log of the first record that is needed to replay state which is
    /// not in the store. Returns `None` if the store has all of it.
    fn needs_log_from(&self) -> Option<u64>;

    /// Takes over a key's state from another replica's store, unless the machine's own state is
    /// later. The state must be in the store afterwards. Returns false if `state` is not valid.
    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool;
}

/// A chosen entry.
#[derive(Debug)]
pub struct Chosen<'a, E> {
    /// Its slot.
    pub slot: u64,
    /// The entry's effects can be replayed as long as the durable log is kept from this position
    /// on.
    pub position: u64,
    /// The entry. An empty entry has no effect.
    pub entry: Option<&'a E>,
    /// The ballot in which this replica proposed it, if it leads.
    pub led_in: Option<Ballot>,
}
