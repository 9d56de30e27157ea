//! What a log needs of the actor that it belongs to, and of the state machine that its entries go to.

use serried_actor::{Actor, Context, Store};
use serried_model::Key;

use super::message::{Ballot, Entry, Message, Record, Timer};

/// An actor that has a log.
pub trait Host: Actor {
    /// What the log holds.
    type Entry: Entry;

    /// Wraps a message of the log.
    fn message(message: Message<Self::Entry>) -> Self::Message;

    /// Wraps a record of the log.
    fn record(record: Record<Self::Entry>) -> Self::Record;

    /// Wraps a timer of the log.
    fn timer(timer: Timer) -> Self::Timer;
}

/// The state machine that a log's entries are applied to.
pub trait StateMachine<H: Host> {
    /// Applies a chosen entry. All entries before it are applied.
    fn apply(&mut self, chosen: Chosen<'_, H::Entry>, cx: &mut Context<'_, H>);

    /// Removes entries that were found too late. This replica is about to lead, and to propose `inherited` again, from slot
    /// `first` on. It has applied everything below.
    ///
    /// The state machine may remove an entry if it was first proposed in a lower ballot than an entry that comes earlier,
    /// in `inherited` or among those that were applied; it may remove nothing else. The leader that proposed the earlier
    /// entry had not found the one that is removed, so that one was not chosen. It can't have been chosen since, because a
    /// leader that finds both removes it.
    fn revise(&self, _first: u64, _inherited: &mut [Option<H::Entry>]) {}

    /// Puts everything that was applied into the store.
    fn store_all(&mut self, store: &mut dyn Store);

    /// The position in the durable log of the first record that is needed to replay what is not in the
    /// store; none if all is there.
    fn needs_log_from(&self) -> Option<u64>;

    /// Takes over a key's state from another replica's store, unless the machine's own is as of a later slot. The state must
    /// be in the store afterwards. Returns false if `state` is not a valid state.
    fn take_over(&mut self, key: &Key, state: &[u8], store: &mut dyn Store) -> bool;
}

/// An entry that was chosen.
#[derive(Debug)]
pub struct Chosen<'a, E> {
    /// Its slot.
    pub slot: u64,
    /// The effects of the entry can be replayed as long as the durable log is kept from this position.
    pub position: u64,
    /// The entry. An empty entry has no effect.
    pub entry: Option<&'a E>,
    /// The ballot in which this replica has proposed it, if it leads.
    pub led_in: Option<Ballot>,
}
