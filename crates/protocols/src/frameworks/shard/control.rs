//! The interface of a shard leader's concurrency control. Protocols differ in their
//! implementations.

use core::fmt::Debug;
use std::sync::Arc;

use serried_actor::{ClockInterval, Contention, Store};
use serried_model::{Guarantee, Key, Version};

use super::Mutation;
use super::calls::Ran;
use super::message::{AsOf, Found, Item, Part, Refusal, Shot};
use super::program::Program;
use super::row::Row;
use super::stamp::{Stamp, Validity};
use super::table::Table;
use crate::Mutated;

/// How many rounds of messages preparing takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounds {
    /// One: the last shot is executed and prepared together.
    Combined,
    /// Two: one for reads, and one in which writes are executed and prepared.
    ReadsFirst,
    /// Two: one in which reads and writes are executed and may wait, and one that prepares.
    ExecuteFirst,
}

/// Which read-only transactions run without parts. These commit without further messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Snapshots {
    /// None. Read-only transactions run like all others.
    Never,
    /// Those whose reads return what their clients knew to be committed at their beginning (003
    /// §5.5). The control checks this.
    OfKnown,
    /// All. They read as of their timestamps. If they are late, they are refused like other
    /// transactions.
    AtTimestamps,
}

/// Which overwritten versions a replica keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// None.
    Nothing,
    /// Those that an admitted transaction may read.
    Admitted,
    /// Those of the last second, and of [`serried_actor::Settings::history_ms`].
    Recent,
}

/// The result of a read by a read-only transaction without parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Glance {
    /// This version.
    Found(Found),
    /// The read waits until this transaction ends.
    Waits(Version),
    /// The read waits until this time is certainly over, in microseconds since the Unix epoch
    /// ([`Desk::clock`]).
    WaitsUntil(u64),
    /// The read is impossible. The transaction has to run with parts, or to restart if that may
    /// help. If it has a timestamp, the version that it would read is no longer kept.
    Refused {
        /// Whether a restart may help.
        anew: bool,
    },
}

/// The concurrency control of one shard. It lives in memory at the shard's leader, and each new
/// leader creates another one. State that must survive a leader is in the parts that the control
/// makes.
///
/// The leader passes it shots and the ends of transactions. The control reports results on the
/// [`Desk`], immediately or later. The leader maintains the log, sends the replies, and recovers
/// from failures.
pub trait Control: Debug + Send + Sized + 'static {
    /// The protocol's name.
    const NAME: &'static str;
    /// A one-line summary.
    const SUMMARY: &'static str;
    /// The consistency that it guarantees.
    const GUARANTEE: Guarantee;
    /// How many rounds preparing takes.
    const ROUNDS: Rounds;
    /// Which read-only transactions run without parts.
    const SNAPSHOTS: Snapshots = Snapshots::Never;
    /// Which versions that were overwritten can be read.
    const KEEPS: Keeps = Keeps::Nothing;
    /// Whether the group of a transaction's first participant decides on it, and reports the end once the moment at which
    /// it takes effect is certainly over (*commit wait*). Read-only transactions without parts then read as of the latest time
    /// that it can be when they begin. If this is false, the client decides, and waits for no clock.
    const GROUPS_DECIDE: bool = false;
    /// Whether others go on as soon as the end of a transaction has its place in the log, before it is chosen and in the rows.
    /// What comes of it is later in the log, and lost if that is. A transaction of a single shard ends when its part is final.
    const RELEASES_EARLY: bool = false;
    /// Whether nobody reads what a transaction writes before its end has its place in the log. Then each replica that is
    /// watched also reports that as written which commits, when it applies that ([`serried_actor::Observation`]).
    const READS_COMMITTED: bool = true;
    /// See [`serried_actor::Protocol::CONTENTION`].
    const CONTENTION: Option<Contention> = None;

    /// Creates the control of a new leader. `mutation` is the only deliberate mistake in it.
    fn new(mutation: Mutated<Mutation>) -> Self;

    /// Executes a shot. The leader passes each shot once.
    fn execute(&mut self, shot: &Shot, desk: &mut Desk<'_>);

    /// The results of a transaction's reads of `keys`, in their order. They can't change any more.
    /// Returns `None` if they are unknown, because the transaction read under a former leader.
    fn found(&mut self, txn: Version, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>>;

    /// Executes a shot that consists of a program. The leader passes each shot once. Only keyspaces of procedures have
    /// such shots, and their controls override this.
    fn run(&mut self, shot: &Shot, _program: Arc<dyn Program>, desk: &mut Desk<'_>) {
        desk.refused(shot.txn, Vec::new());
    }

    /// What the program of a shot has returned, or what all programs of the transaction have. Once the shot is released,
    /// or the transaction settled, it can't change any more.
    fn ran(&self, _txn: Version, _shot: Option<u16>) -> Ran {
        Ran::default()
    }

    /// The part of a transaction whose last shot was executed. Returns `None` if the transaction
    /// has been refused since.
    fn part(&mut self, txn: Version) -> Option<(Validity, Vec<Item>)>;

    /// Discards a transaction that ended before it was prepared.
    fn discard(&mut self, txn: Version, desk: &mut Desk<'_>);

    /// Ends a transaction that was prepared. The rows already contain its end, unless the control
    /// [releases early](Control::RELEASES_EARLY).
    fn decided(&mut self, txn: Version, committed: Option<Stamp>, desk: &mut Desk<'_>);

    /// The rows contain the end of a transaction that was released early.
    fn is_in_rows(&mut self, _txn: Version, _desk: &mut Desk<'_>) {}

    /// Takes over the transactions that former leaders have prepared and that have not ended. The
    /// leader passes all of them in one call, before any shot.
    fn inherit(&mut self, parts: &[Part], desk: &mut Desk<'_>);

    /// Moves a released part to another moment (003 §5.4). Returns false if that is impossible.
    fn reposition(&mut self, _txn: Version, _to: Stamp, _desk: &mut Desk<'_>) -> bool {
        false
    }

    /// Reads a key for a transaction without parts. If any of its keys has to wait, the leader
    /// repeats the reads of all its keys after the conflicting transaction has ended. Meanwhile the
    /// control must prevent writes that the transaction would overlook. A timestamp lies before the
    /// end of the [`AdmissionWindow`](super::AdmissionWindow), and if groups decide, it is no later than the latest time
    /// that it can be.
    fn glance(&mut self, _key: &Key, _as_of: AsOf, _desk: &mut Desk<'_>) -> Glance {
        Glance::Refused { anew: false }
    }
}

/// A result that a control reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A transaction's last shot was executed, so it has a part; or its part has changed.
    Executed(Version),
    /// A shot that is not the last can be answered: nothing that it depends on can change.
    Released(Version, u16),
    /// A transaction's part is final: nothing that it depends on can change any more.
    Settled(Version),
    /// The transaction was refused, and the control has discarded it.
    Refused(Version, Refusal),
}

/// The control's access to rows, and the place where it reports results.
pub struct Desk<'a> {
    table: &'a mut Table,
    store: &'a dyn Store,
    events: &'a mut Vec<Event>,
    clock: ClockInterval,
    /// How many rows programs have read in all of their runs.
    rows_read: usize,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        table: &'a mut Table,
        store: &'a dyn Store,
        events: &'a mut Vec<Event>,
        clock: ClockInterval,
    ) -> Desk<'a> {
        Desk { table, store, events, clock, rows_read: 0 }
    }

    /// The time, with its uncertainty.
    pub fn clock(&self) -> ClockInterval {
        self.clock
    }

    /// The row of a key, with its committed versions and chosen parts.
    pub fn row(&mut self, key: &Key) -> &Row {
        self.table.row(key, self.store)
    }

    /// Has the processor fetch the rows of these keys from memory, together.
    pub(super) fn prefetch(&self, keys: &[Key]) {
        self.table.prefetch(keys);
    }

    /// Whether the keyspace has procedures. Then what a transaction writes depends on what it has read.
    pub fn runs_calls(&self) -> bool {
        self.table.runs_calls()
    }

    /// A program has read a row.
    pub fn read_row(&mut self) {
        self.rows_read += 1;
    }

    pub(super) fn rows_read(&self) -> usize {
        self.rows_read
    }

    /// The newest committed version of a key, as the result of a read.
    pub fn newest(&mut self, key: &Key) -> Found {
        let newest = self.row(key).newest();
        Found { version: newest.stamp.version(), value: newest.value.clone() }
    }

    /// Reports [`Event::Executed`].
    pub fn executed(&mut self, txn: Version) {
        self.events.push(Event::Executed(txn));
    }

    /// Reports [`Event::Released`].
    pub fn released(&mut self, txn: Version, number: u16) {
        self.events.push(Event::Released(txn, number));
    }

    /// Reports [`Event::Settled`].
    pub fn settled(&mut self, txn: Version) {
        self.events.push(Event::Settled(txn));
    }

    /// Reports [`Event::Refused`] because of conflicts with other transactions over `keys`.
    pub fn refused(&mut self, txn: Version, keys: Vec<Key>) {
        self.refused_until(txn, keys, 0);
    }

    /// Like [`Desk::refused`]. A transaction that begins after `after_us`, in microseconds, does
    /// not meet the same conflicts.
    pub fn refused_until(&mut self, txn: Version, keys: Vec<Key>, after_us: u64) {
        self.events.push(Event::Refused(txn, Refusal::Conflict { keys, after_us }));
    }
}
