//! The concurrency control of a shard's leader, in which the protocols differ.

use core::fmt::Debug;

use serried_actor::Store;
use serried_model::{Guarantee, Key, Version};

use super::Mutation;
use super::message::{AsOf, Found, Item, Part, Refusal, Shot};
use super::row::Row;
use super::stamp::{Stamp, Validity};
use super::table::Table;
use crate::Mutated;

/// How many rounds preparing takes.
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
    /// None. They are like others.
    Never,
    /// Those that find what their clients knew to be committed when they began (003 §5.5), if the control checks that.
    OfKnown,
    /// All. They read at the moments of their timestamps, and are refused like others if they are late.
    AtTimestamps,
}

/// What a read-only transaction without parts finds under a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Glance {
    /// This version.
    Found(Found),
    /// Nothing, until this transaction is over.
    Waits(Version),
    /// Nothing that it may read. It has to become like others, or to begin anew if that may help. If it has a timestamp, the
    /// version that it would read is not kept any more.
    Refused {
        /// Whether beginning anew may help.
        anew: bool,
    },
}

/// The concurrency control of one shard. It lives at the shard's leader, in memory, and begins anew with each leader. What
/// must survive is in the parts that it makes.
///
/// The leader hands it shots, and the ends of transactions. It reports their results on the [`Desk`], at once or later. The
/// leader does the rest: the log, the answers, and recovery.
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

    /// The control of a new leader. `mutation` is the only mistake that it makes.
    fn new(mutation: Mutated<Mutation>) -> Self;

    /// A shot has come that has not come before.
    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>);

    /// What a transaction has found under keys that it has read, in their order. It can't change any more. None if it is not
    /// known, because the transaction has read under a former leader.
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

    /// Moves a part that was released to another moment (003 §5.4). Returns false if that can't be done.
    fn reposition(&mut self, _txn: Version, _to: Stamp, _desk: &mut Desk<'_>) -> bool {
        false
    }

    /// Reads a key for a transaction that has no parts. If any of its keys waits, it is asked for all of them again
    /// once that may be over, but what it would overlook then has to be kept off from now on. A timestamp is
    /// before the end of the [`AdmissionWindow`](super::AdmissionWindow).
    fn glance(&mut self, _key: &Key, _as_of: AsOf, _desk: &mut Desk<'_>) -> Glance {
        Glance::Refused { anew: false }
    }
}

/// What a control reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A transaction's last shot was executed, so that it has a part; or its part is another now.
    Executed(Version),
    /// A shot that is not the last can be answered, because nothing that it rests on can change any more.
    Released(Version, u16),
    /// Nothing that a transaction's part rests on can change any more.
    Settled(Version),
    /// The transaction was refused, and discarded.
    Refused(Version, Refusal),
}

/// What a control works with: it reads rows, and reports results.
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

    /// The row of a key: what is committed there, and chosen.
    pub fn row(&mut self, key: &Key) -> &Row {
        self.table.row(key, self.store)
    }

    /// The newest committed version of a key, as an answer to a read.
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

    /// Like [`Desk::refused`]. A transaction that begins later than this, in microseconds, does not meet the same conflicts.
    pub fn refused_until(&mut self, txn: Version, keys: Vec<Key>, after_us: u64) {
        self.events.push(Event::Refused(txn, Refusal::Conflict { keys, after_us }));
    }
}
