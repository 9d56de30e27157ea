//! Shards: what the systems of the datacentre have in common.

mod control;
mod coordinator;
mod message;
mod replica;
mod row;
mod stamp;
mod table;
mod verdict;

pub use control::{Control, Desk, Event, Rounds};
pub use coordinator::Coordinator;
pub use message::{
    Decision, Entry, Executed, Found, Item, Message, Part, Record, Refusal, Reply, Request, Shot,
    Window, Written,
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
    /// A read-only transaction is answered whatever has been written since its client last knew.
    SnapshotsUnchecked,
    /// Responses leave when their requests are executed (003 §5.2).
    NoResponseTimingControl,
    /// No request is refused for its timestamp, whatever it waits for (003 §5.2).
    NoEarlyAbort,
    /// A smart retry does not look at later versions (003 Algorithm 5.4, line 86).
    MovesUnchecked,
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
