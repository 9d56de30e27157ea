//! The client side: executes transactions, and decides on them (000 §4.2).

use core::time::Duration;
use std::collections::BTreeSet;

use serried_actor::{Actor, Context, Coordinate, Group, Settings, Timestamp};
use serried_model::transactions::{Operation, Outcome, Output};
use serried_model::{Key, NodeId, ReadValue, Transactions, TxnId, Version};
use serried_parts::{Map, VersionClock};

use self::admission::Heard;
use self::decided::Unacknowledged;
use self::lead::Lead;
use self::questions::Questions;
use self::transaction::{Phase, Transaction};
use super::message::{Message, Proposal, Reply, Status, View};
use super::{Control, Options};

mod admission;
mod commit;
mod decided;
pub(super) mod execution;
mod lead;
mod prepared;
mod questions;
mod sealing;
mod transaction;
mod versions;

/// The view in which a transaction's own coordinator proposes.
const OWN_VIEW: View = View::OWN;
/// How long the coordinator waits for a missing vote, at least, before it takes the slow path.
const FAST_PATH_AT_LEAST: Duration = Duration::from_millis(2);
/// Requests are repeated no less often than this.
const REPEAT_AT_MOST: Duration = Duration::from_secs(1);

const _: () = assert!(
    FAST_PATH_AT_LEAST.as_millis() < REPEAT_AT_MOST.as_millis(),
    "a missing vote is waited for before requests are repeated"
);

/// The coordinator of one client's transactions, under Morty, MVTSO or TAPIR.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    options: Options,
    clock: VersionClock,
    /// By how much versions are ahead of the clock.
    lead: Lead,
    transactions: Map<Version, Transaction>,
    versions: Map<TxnId, Version>,
    /// The replica that is asked to read, by its place in the order of distance. It moves on when one does not
    /// answer, and back when the nearest sends something.
    preferred: usize,
    /// The nearest replica is not asked before this time, because it lacks something that was committed.
    avoided_until: Timestamp,
    unacknowledged: Unacknowledged,
    orphans: BTreeSet<Version>,
    questions: Questions,
    /// The last execution that was aborted before the replica that it had read from had voted.
    aborted_without_it: Option<(Version, u32)>,
    /// How many transactions in a row were aborted because that replica lacks something.
    behind_in_a_row: u32,
    /// By how much the clocks of this coordinator and of a replica may differ, in microseconds.
    clock_bound_us: u64,
    /// What the replicas' clocks read when one of its transactions was let in last.
    heard_time: Option<Heard>,
    /// The keys that transactions of its own seal.
    sealing: BTreeSet<Key>,
}

/// What a coordinator does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Repeat what a transaction waits for.
    Repeat(Version),
    /// Tell a session of reads that have changed.
    Rewind(Version),
    /// Stop waiting for a vote that would save the Finalize phase.
    FastPath(Version),
    /// Repeat decisions that were not acknowledged.
    RepeatDecisions,
    /// Read a key to seal it.
    Seal(Version),
    /// Ask a question again.
    Ask(TxnId),
}

type Cx<'a> = Context<'a, Coordinator>;

impl Coordinator {
    /// A coordinator for a client of `group`.
    pub fn new(group: Group, settings: &Settings, options: Options) -> Coordinator {
        Coordinator {
            group,
            options,
            clock: VersionClock::default(),
            lead: Lead::default(),
            transactions: Map::default(),
            versions: Map::default(),
            preferred: 0,
            avoided_until: Timestamp::default(),
            unacknowledged: Unacknowledged::default(),
            orphans: BTreeSet::new(),
            questions: Questions::default(),
            aborted_without_it: None,
            behind_in_a_row: 0,
            clock_bound_us: settings.clock_bound_ms.saturating_mul(1000),
            heard_time: None,
            sealing: BTreeSet::new(),
        }
    }

    fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx) {
        match reply {
            Reply::GetReply { version, key, found, value, instead_of } => {
                self.heard_of(from, cx.now());
                let latest = found.latest().version;
                // Under validation, what was found says from when on nothing was there.
                let version_read = value.as_ref().map_or(Version::INITIAL, |_| latest);
                let read = match self.options.control {
                    Control::Ordering => latest,
                    Control::Validation => version_read,
                };
                let new = ReadValue { key, version: read, value, stamp: 0 };
                self.on_get_reply(version, new, found, instead_of, cx);
            }
            Reply::Crowded { version, key, clock_us } => {
                self.on_crowded(from, (version, key), clock_us, cx);
            }
            Reply::Admitted { version, clock_us } => self.on_admitted(from, version, clock_us, cx),
            Reply::PrepareReply { version, eid, vote, conflict } => {
                self.heard_of(from, cx.now());
                self.on_prepare_reply(from, version, eid, vote, conflict, cx);
            }
            Reply::Acknowledge { versions } => self.unacknowledged.on_acknowledge(from, versions),
            Reply::Refused { version, refusal } => self.on_refused(from, version, refusal, cx),
            Reply::GetAtReply { request, found } => {
                self.questions.on_get_at_reply(request, found, cx)
            }
        }
    }

    fn on_status(&mut self, from: NodeId, status: Status, cx: &mut Cx) {
        match status {
            Status::FinalizeReply { version, eid, view, decision } => {
                self.on_finalize_reply(from, version, view, (eid, decision), cx);
            }
            Status::Settled { version, settlement } => {
                self.on_settled(from, version, settlement, cx);
            }
        }
    }

    /// The nearest replica answers, and is asked again first.
    fn heard_of(&mut self, replica: NodeId, now: Timestamp) {
        let nearest = self.group.choice(0, 0).member();
        if self.preferred != 0 && replica.member() == nearest && now >= self.avoided_until {
            self.preferred = 0;
        }
    }

    /// Puts off the next repetition, because something new was sent.
    fn postpone_repeat(&mut self, version: Version, patience: Duration, cx: &mut Cx) {
        if let Some(transaction) = self.transactions.get_mut(&version) {
            transaction.repeat_at = cx.now() + patience;
            transaction.repeated = 0;
        }
        self.wake(version, patience, cx);
    }

    /// Sets the transaction's timer so that it fires after this time at the latest.
    fn wake(&mut self, version: Version, after: Duration, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let at = cx.now() + after;
        if at < transaction.wakes_at {
            transaction.wakes_at = at;
            cx.set_timer(Timer::Repeat(version), after);
        }
    }

    /// Repeats the messages that were not answered in time.
    fn repeat(&mut self, version: Version, cx: &mut Cx) {
        let now = cx.now();
        self.ask_another_for_reads(version, |_, read| read.due <= now, cx);
        let Some(transaction) = self.transactions.get(&version) else { return };
        if transaction.repeat_at <= now {
            self.repeat_phase(version, cx);
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        transaction.wakes_at = transaction.next_repeat();
        cx.set_timer(Timer::Repeat(version), transaction.wakes_at.since(now));
    }

    /// Repeats what was sent to have the transaction committed or abandoned.
    fn repeat_phase(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        match &transaction.phase {
            Phase::Preparing(execution) => {
                execution.send_prepare(version, transaction.next_tag, &self.group, cx);
            }
            Phase::Finalizing(execution, decision) => {
                execution.send_finalize(version, *decision, &self.group, cx);
            }
            // The program may run for long, and what was prepared is in the way of others.
            Phase::Abandoned(execution) => {
                execution.send_finalize(version, Proposal::Abandon, &self.group, cx);
            }
            Phase::Asking(_) => self.ask_for_admission(version, cx),
            // Writes that were lost are in the Prepare.
            Phase::Executing => {}
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        transaction.repeated += 1;
        let (times, superseded) = (transaction.repeated, transaction.superseded);
        transaction.repeat_at = cx.now() + patience(&self.group, times);
        if superseded {
            self.find_out(version, times, cx);
        }
    }
}

/// How long to wait for the answer to a request of `group` that was repeated `times` times before
/// repeating it again.
fn patience(group: &Group, times: u32) -> Duration {
    let first = 2 * group.round_trip() + Duration::from_millis(100);
    (first * (1 << times.min(10))).min(first.max(REPEAT_AT_MOST))
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Timer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        if !self.group.contains(from) {
            return cx.reject(|| format!("{from} has sent what only replicas send"));
        }
        match message {
            Message::Reply(reply) => self.on_reply(from, reply, cx),
            Message::Status(status) => self.on_status(from, status, cx),
            Message::Request(_)
            | Message::Recovering(_)
            | Message::Truncating(_)
            | Message::CatchingUp(_)
            | Message::Rejoining(_)
            | Message::Watermark { .. } => {
                cx.reject(|| format!("{from} has sent what only replicas receive"));
            }
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Repeat(version) => self.repeat(version, cx),
            Timer::Rewind(version) => {
                self.rewind(version, cx);
            }
            Timer::FastPath(version) => self.go_on_without_the_rest(version, cx),
            Timer::RepeatDecisions => self.unacknowledged.repeat(&self.group, cx),
            Timer::Seal(version) => self.read_to_seal(version, cx),
            Timer::Ask(txn) => self.questions.ask(txn, &self.group, cx),
        }
    }
}

impl Coordinate<Transactions> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        // A session may continue for a moment, before it learns that its attempt has ended.
        let version = self.versions.get(&txn).copied();
        match (operation, version) {
            (Operation::Begin { .. }, _) => self.begin(txn, cx),
            (Operation::Inquire { version }, _) => {
                self.questions.inquire(txn, version, &self.group, cx)
            }
            (Operation::GetAt { key, at }, _) => {
                self.questions.get_at(txn, key, at, &self.group, cx)
            }
            (Operation::Rollback, _) if self.questions.forget(txn, cx) => {}
            (Operation::Get { key, .. }, Some(version)) => self.on_get(version, key, cx),
            (Operation::Put(write), Some(version)) => self.on_put(version, write, cx),
            (Operation::Commit { reads, writes, modifies }, Some(version))
                if modifies.is_empty() || self.options.control == Control::Ordering =>
            {
                self.on_commit(version, reads, writes, modifies, cx);
            }
            (Operation::Rollback, Some(version)) => self.on_rollback(version, cx),
            // Not offered: no session asks for it.
            (Operation::OneShot { .. } | Operation::Commit { .. }, Some(version)) => {
                self.conclude(version, None, Outcome::Aborted { conflicts: Vec::new() }, cx);
            }
            (_, None) => {}
        }
    }
}
