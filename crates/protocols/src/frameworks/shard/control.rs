//! What makes one system of another: the concurrency control of a shard's leader.

use core::fmt::Debug;

use serried_actor::Store;
use serried_model::{Guarantee, Key, Version};

use super::Mutation;
use super::message::{AsOf, Found, Item, Part, Refusal, Shot};
use super::row::Row;
use super::stamp::{Stamp, Validity};
use super::table::Table;
use crate::Mutated;

/// In how many rounds a transaction that is ready to commit gets its parts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounds {
    /// The last shot is executed and prepared at once.
    Combined,
    /// Reads have a round of their own; writes are prepared at once.
    ReadsFirst,
    /// Reads and writes have a round of their own, in which they may wait; then all is prepared.
    ExecuteFirst,
}

/// Which read-only transactions have no parts: they commit without further messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Snapshots {
    /// None: they are like others.
    Never,
    /// Those that find what was committed when they began, as far as their clients know (003 §5.5); if the control
    /// looks at that.
    OfKnown,
    /// All. They read at the moments of their timestamps, and are refused like others if they are late.
    AtTimestamps,
}

/// What there is of a key for a read-only transaction that has no parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Glance {
    /// This.
    Found(Found),
    /// Nothing before this transaction is over.
    Waits(Version),
    /// Nothing that it could have: it has to be like others, or to begin anew, where that may help. If it has a
    /// timestamp, it is too late for what it would have read.
    Refused {
        /// Whether it may help.
        anew: bool,
    },
}

/// The concurrency control of one shard. It lives at the shard's leader, in memory, and begins anew with each
/// leader: what has to survive is in the parts that it makes.
///
/// It is told of shots and of how transactions end, and says on the [`Desk`] what comes of them: then or
/// later. The leader sees to the log, to answers and to whoever fails.
pub trait Control: Debug + Send + Sized + 'static {
    /// The system's name.
    const NAME: &'static str;
    /// One line on what it does.
    const SUMMARY: &'static str;
    /// What it promises.
    const GUARANTEE: Guarantee;
    /// How it prepares.
    const ROUNDS: Rounds;
    /// Which read-only transactions have no parts.
    const SNAPSHOTS: Snapshots = Snapshots::Never;
    /// Whether versions that were overwritten can be read.
    const MULTI_VERSION: bool = false;

    /// That of a new leader, which does nothing wrong but `mutation`.
    fn new(mutation: Mutated<Mutation>) -> Self;

    /// A shot has come that has not come before.
    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>);

    /// What a transaction has found under keys that it has read, in their order; what they rest on can't change
    /// any more. None if that is not known: it was asked for by a former leader.
    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>>;

    /// The part of a transaction whose last shot was executed; none if it was refused since.
    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)>;

    /// A transaction is over that was not ready to commit.
    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>);

    /// A transaction is over that was ready to commit, and the rows show it.
    fn decided(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>);

    /// Former leaders had made these transactions ready to commit, and they are not over. All come at once, before
    /// any shot.
    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>);

    /// Has a part that was released hold at another moment (003 §5.4): whether that can be done.
    fn reposition(&mut self, _txn: Version, _to: Stamp, _desk: &mut Desk<'_>) -> bool {
        false
    }

    /// Reads a key for a transaction that has no parts. If any of its keys waits, it is asked for all of them again
    /// once that may be over, but what it would overlook then has to be kept off from now on. A timestamp is
    /// before the end of the [`Window`](super::Window).
    fn glance(&mut self, _key: &Key, _as_of: AsOf, _desk: &mut Desk<'_>) -> Glance {
        Glance::Refused { anew: false }
    }
}

/// What has come of shots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A transaction's last shot was executed, so that it has a part; or its part is another now.
    Executed(Version),
    /// Nothing that a shot rests on can change any more, which is not the last: it can be answered.
    Released(Version, u16),
    /// Nothing that a transaction's part rests on can change any more.
    Settled(Version),
    /// The transaction was refused, and discarded.
    Refused(Version, Refusal),
}

/// What a concurrency control is lent for an event.
pub struct Desk<'a> {
    table: &'a mut Table,
    store: &'a dyn Store,
    events: &'a mut Vec<Event>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        table: &'a mut Table,
        store: &'a dyn Store,
        events: &'a mut Vec<Event>,
    ) -> Desk<'a> {
        Desk { table, store, events }
    }

    /// What is committed of a key, and was chosen.
    pub fn row(&mut self, key: &Key) -> &Row {
        self.table.row(key, self.store)
    }

    /// What is committed of a key, as an answer to a read.
    pub fn newest(&mut self, key: &Key) -> Found {
        let newest = self.row(key).newest();
        Found { version: newest.stamp.version(), value: newest.value.clone() }
    }

    /// See [`Event::Executed`].
    pub fn executed(&mut self, txn: Version) {
        self.events.push(Event::Executed(txn));
    }

    /// See [`Event::Released`].
    pub fn released(&mut self, txn: Version, number: u16) {
        self.events.push(Event::Released(txn, number));
    }

    /// See [`Event::Settled`].
    pub fn settled(&mut self, txn: Version) {
        self.events.push(Event::Settled(txn));
    }

    /// See [`Event::Refused`]: it conflicts over these keys with others.
    pub fn refused(&mut self, txn: Version, keys: Vec<Key>) {
        self.refused_until(txn, keys, 0);
    }

    /// The same, but that a transaction which begins later than this, in microseconds, will not meet what it
    /// has met.
    pub fn refused_until(&mut self, txn: Version, keys: Vec<Key>, after_us: u64) {
        self.events.push(Event::Refused(txn, Refusal::Conflict { keys, after_us }));
    }
}
