//! The client side: executes transactions, and decides on them (000 §4.2).

use core::time::Duration;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Actor, Context, Coordinate, Group, NodeSet, Settings, Timestamp};
use serried_model::{
    Key, NodeId, Operation, Outcome, Output, ReadStamp, ReadValue, TxnId, Value, Version, Write,
};
use serried_parts::{Map, VersionClock, WriteId};
use smallvec::SmallVec;

use self::attempt::Attempt;
use self::questions::Question;
use super::Options;
use super::message::{
    Contents, Decision, Message, Proposal, Read, Refusal, Settlement, TaggedWrite, View, Vote,
};
use super::votes::Tally;

mod attempt;
mod questions;

/// The view in which a transaction's own coordinator proposes.
const OWN_VIEW: View = View::OWN;
/// A missing vote is waited for at least so long before a commit goes the slow way.
const FAST_PATH_AT_LEAST: Duration = Duration::from_millis(2);
/// Requests are repeated no less often than this.
const REPEAT_AT_MOST: Duration = Duration::from_secs(1);
/// How many decided transactions are kept to be repeated to replicas that have not acknowledged
/// them. Beyond that the oldest is dropped: such a replica has been away for long.
const UNACKNOWLEDGED_AT_MOST: usize = 1 << 18;
/// How many of them are repeated at once.
const REPEAT_DECISIONS: usize = 256;
/// A transaction is re-executed so often at once. From then on it waits a round trip, or
/// [`REWIND_AT_LEAST`], from one time to the next.
pub(super) const REWINDS_AT_ONCE: u32 = 16;
/// See [`REWINDS_AT_ONCE`].
const REWIND_AT_LEAST: Duration = Duration::from_millis(1);
/// How often an execution is prepared again that was voted down only tentatively.
const TENTATIVE_RETRIES: u32 = 3;
/// A replica that lacks something that was committed is not asked to read for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(1);
/// How many transactions whose session has gone are kept on trial for an abort.
const ORPHANS_AT_MOST: usize = 1 << 16;

/// The coordinator of one client's transactions, under Morty or MVTSO.
#[derive(Debug)]
pub struct Coordinator {
    group: Group,
    options: Options,
    clock: VersionClock,
    transactions: Map<Version, Transaction>,
    versions: Map<TxnId, Version>,
    /// Which of the replicas, in the order of their distance, is asked to read. It moves on when one
    /// does not answer, and back when the nearest is heard of.
    preferred: usize,
    /// Until then the nearest is not asked again, as it lacks something that was committed.
    avoided_until: Timestamp,
    unacknowledged: BTreeMap<Version, Decided>,
    repeat_set: bool,
    orphans: BTreeSet<Version>,
    questions: BTreeMap<TxnId, Question>,
    /// By how much the clocks of this coordinator and of a replica may differ, in microseconds.
    clock_bound_us: u64,
}

/// A transaction that is not decided.
#[derive(Debug)]
struct Transaction {
    /// Its session, unless that has gone.
    session: Option<TxnId>,
    reads: BTreeMap<Key, ReadState>,
    /// What was last written to each key, by whichever run, with its tag.
    writes: BTreeMap<Key, (u32, Option<Value>)>,
    next_tag: u32,
    /// The next execution to be prepared.
    next_eid: u32,
    /// The partition that chooses which of its executions may commit: the first key's of the first
    /// execution that is prepared. It takes part in all of them.
    home: Option<u16>,
    /// Replicas that have been sent something.
    touched: Touched,
    phase: Phase,
    /// Somebody else is deciding on it, and is asked how.
    superseded: bool,
    /// Replicas that take no part in it.
    refused_by: Touched,
    /// How often its session was told that a read had changed, and when it was last.
    rewinds: u32,
    rewound_at: Timestamp,
    /// When to repeat what has not been answered.
    repeat_at: Timestamp,
    repeated: u32,
}

#[derive(Debug)]
struct ReadState {
    /// What was found, once something was.
    found: Option<WriteId>,
    /// How many answers its session has been told.
    stamp: u32,
    /// A newer answer that its session is not told yet.
    held: Option<(WriteId, Option<Value>)>,
    /// The place in the order of their distance of the replica to be asked next.
    asked: usize,
}

#[derive(Debug)]
enum Phase {
    /// The program runs, and no execution is in the commit protocol.
    Executing,
    /// An execution is in the commit protocol.
    Preparing(Attempt),
    /// A decision on it is being made durable.
    Finalizing(Attempt, Proposal),
    /// One of its reads has changed, and the program was told and runs again. From here on it is
    /// never proposed to commit it; the next Prepare abandons it.
    Abandoned(Attempt),
}

/// Replicas of one or a few partitions.
type Touched = SmallVec<[(u16, NodeSet); 1]>;

/// A decision that some replicas have not acknowledged.
#[derive(Debug)]
struct Decided {
    eid: u32,
    /// What each partition is told, and who has not acknowledged it.
    parts: SmallVec<[DecidedPart; 1]>,
    repeat_at: Timestamp,
    repeated: u32,
}

#[derive(Debug)]
struct DecidedPart {
    partition: u16,
    /// What commits there; none if nothing does.
    contents: Option<Arc<Contents>>,
    missing: NodeSet,
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
            transactions: Map::default(),
            versions: Map::default(),
            preferred: 0,
            avoided_until: Timestamp::default(),
            unacknowledged: BTreeMap::new(),
            repeat_set: false,
            orphans: BTreeSet::new(),
            questions: BTreeMap::new(),
            clock_bound_us: settings.clock_bound_ms * 1000,
        }
    }

    /// The nearest replica answers, and is asked again first.
    fn heard_of(&mut self, replica: NodeId, now: Timestamp) {
        let nearest = self.group.choice(0, 0).member();
        if self.preferred != 0 && replica.member() == nearest && now >= self.avoided_until {
            self.preferred = 0;
        }
    }

    fn begin(&mut self, txn: TxnId, cx: &mut Cx) {
        let version = self.clock.next(cx.id(), cx.clock());
        let patience = patience(&self.group, 0);
        let transaction = Transaction {
            session: Some(txn),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            next_tag: 1,
            next_eid: 0,
            home: None,
            touched: Touched::new(),
            phase: Phase::Executing,
            superseded: false,
            refused_by: Touched::new(),
            rewinds: 0,
            rewound_at: Timestamp::default(),
            repeat_at: cx.now() + patience,
            repeated: 0,
        };
        self.transactions.insert(version, transaction);
        self.versions.insert(txn, version);
        cx.set_timer(Timer::Repeat(version), patience);
        cx.output((txn, Output::Began(version)));
    }

    fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        let nearest = self.group.choice(self.group.partition_of(&key), self.preferred);
        let asked = self.preferred + 1;
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Entry::Vacant(read) = transaction.reads.entry(key.clone()) else {
            return; // Asked for by an earlier run; its answer is on the way.
        };
        read.insert(ReadState { found: None, stamp: 0, held: None, asked });
        transaction.touch(nearest);
        cx.send(nearest, Message::Get { version, key });
        transaction.abandon_while_running(version, &self.group, cx);
    }

    fn on_put(&mut self, version: Version, write: Write, cx: &mut Cx) {
        let all = self.group.all();
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let (tag, changed) = transaction.tag(&write);
        if changed {
            let Write { key, value } = write;
            let partition = self.group.partition_of(&key);
            transaction.touch_all(partition, all);
            cx.broadcast(partition, all, Message::Put { version, key, tag, value });
        }
    }

    fn on_commit(
        &mut self,
        version: Version,
        reads: Vec<ReadStamp>,
        writes: Vec<Write>,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        if let Phase::Finalizing(_, Proposal::Commit) = transaction.phase {
            return; // It crossed the last Rewind that was told; the decision stands.
        }
        let current = |read: &ReadStamp| {
            transaction.reads.get(&read.key).is_some_and(|state| state.stamp == read.stamp)
        };
        if !reads.iter().all(current) {
            return; // It has crossed a Rewind; the session will run the program again.
        }
        if reads.is_empty() && writes.is_empty() && transaction.next_eid == 0 {
            let decision = match transaction.touched.is_empty() {
                true => None, // Nobody has heard of it.
                false => Some(Decision::Abort),
            };
            self.conclude(version, decision, Outcome::Committed, cx);
            return;
        }
        let found = |read: ReadStamp| {
            let write = transaction.reads.get(&read.key).and_then(|state| state.found);
            Read { write: write.expect("an answer that was told was found"), key: read.key }
        };
        let reads: Vec<Read> = reads.into_iter().map(found).collect();
        let writes = writes.into_iter().map(|write| {
            let (tag, _) = transaction.tag(&write);
            TaggedWrite { key: write.key, tag, value: write.value }
        });
        let writes: Vec<TaggedWrite> = writes.collect();
        let first_key = writes.first().map(|write| &write.key).or(reads.first().map(|r| &r.key));
        let first = first_key.map(|key| self.group.partition_of(key));
        let home = *transaction.home.get_or_insert(first.unwrap_or_default());
        let parts = attempt::split(&self.group, home, reads, writes);
        self.prepare(version, parts.into_iter(), TENTATIVE_RETRIES, cx);
    }

    /// Has all replicas vote on a new execution, and abandon those before it.
    fn prepare(
        &mut self,
        version: Version,
        parts: impl Iterator<Item = (u16, Arc<Contents>)>,
        retries_left: u32,
        cx: &mut Cx,
    ) {
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let attempt = Attempt::new(transaction.next_eid, parts, retries_left, cx.now());
        transaction.next_eid += 1;
        for part in &attempt.participants {
            transaction.touch_all(part.partition, self.group.all());
        }
        attempt.send_prepare(version, transaction.next_tag, &self.group, cx);
        transaction.phase = Phase::Preparing(attempt);
        let patience = patience(&self.group, 0);
        self.postpone_repeat(version, patience, cx);
    }

    fn on_rollback(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        if transaction.next_eid == 0 {
            // Nobody can have voted on it.
            let decision = (!transaction.touched.is_empty()).then_some(Decision::Abort);
            self.conclude(version, decision, Outcome::Aborted { conflicts: Vec::new() }, cx);
            return;
        }
        // It is seen to its end even if nobody waits for that: others may wait for it.
        if let Some(session) = transaction.session.take() {
            self.versions.remove(&session);
        }
        self.orphans.insert(version);
        if !matches!(transaction.phase, Phase::Finalizing(..)) {
            self.finalize(version, Proposal::Abandon, cx);
        }
        if self.orphans.len() > ORPHANS_AT_MOST
            && let Some(oldest) = self.orphans.pop_first()
        {
            self.transactions.remove(&oldest);
        }
    }

    fn on_get_reply(
        &mut self,
        version: Version,
        mut new: ReadValue,
        write: WriteId,
        instead_of: Option<WriteId>,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Some(read) = transaction.reads.get_mut(&new.key) else { return };
        assert!(write.version < version, "{version} was given {write:?}, from its own future");
        let Some(found) = read.found else {
            (read.found, read.stamp) = (Some(write), read.stamp + 1);
            new.stamp = read.stamp;
            if let Some(session) = transaction.session {
                cx.output((session, Output::Value(new)));
            }
            return;
        };
        if matches!(transaction.phase, Phase::Finalizing(_, Proposal::Commit)) {
            return; // Too late to matter.
        }
        let held = read.held.as_ref().map(|(held, _)| *held);
        if instead_of.is_some() && instead_of == held {
            read.held = None;
        }
        // Newer than what it has, or what it has is withdrawn. Everything else is late.
        let withdrawn = instead_of == Some(found);
        if !withdrawn && write <= read.held.as_ref().map_or(found, |(held, _)| *held) {
            return;
        }
        if read.held.as_ref().is_none_or(|(held, _)| write > *held) {
            read.held = Some((write, new.value));
        }
        // Far back in a chain of transactions that read from each other, changes come thick and fast,
        // and all but the last are for nothing: those that come within a round trip are taken
        // together. What was prepared meanwhile is lost only if it is withdrawn or voted down.
        let interval = self.group.round_trip().max(REWIND_AT_LEAST);
        let due = transaction.rewound_at + interval;
        let holds = matches!(transaction.phase, Phase::Preparing(_))
            && transaction.rewinds >= REWINDS_AT_ONCE
            && cx.now() < due
            && !withdrawn;
        match holds {
            true => cx.set_timer(Timer::Rewind(version), due.since(cx.now())),
            false => {
                self.rewind(version, cx);
            }
        }
    }

    /// Tells a transaction's session of the reads that have changed; whether there are any.
    fn rewind(&mut self, version: Version, cx: &mut Cx) -> bool {
        let Some(transaction) = self.transactions.get_mut(&version) else { return false };
        if matches!(transaction.phase, Phase::Finalizing(_, Proposal::Commit)) {
            return false; // Too late: it may be durable that the execution commits as it is.
        }
        let Transaction { session, reads, phase, .. } = transaction;
        let mut rewound = false;
        for (key, read) in reads {
            let Some((write, value)) = read.held.take() else { continue };
            (read.found, read.stamp) = (Some(write), read.stamp + 1);
            rewound = true;
            // Whether the current run has used the read, its session knows (000 §4.2,
            // "Re-Execution": is the reply's history a prefix of the current one?).
            if let Some(session) = session {
                let (key, stamp) = (key.clone(), read.stamp);
                phase.rewind(&key);
                let new = ReadValue { key, version: write.version, value, stamp };
                cx.output((*session, Output::Rewind(new)));
            }
        }
        if rewound {
            transaction.rewinds += 1;
            transaction.rewound_at = cx.now();
        }
        rewound
    }

    fn on_prepare_reply(
        &mut self,
        from: NodeId,
        version: Version,
        eid: u32,
        vote: Vote,
        conflict: Option<Key>,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Some(attempt) = transaction.phase.attempt() else { return };
        if attempt.eid != eid {
            return; // A vote on an execution that was abandoned since.
        }
        attempt.record(from, vote, conflict, cx.now(), self.group.majority());
        let tally = attempt.tally(&self.group);
        let voted_down =
            matches!(tally, Tally::AbandonFast | Tally::AbandonSlow | Tally::AbandonUnlessMore);
        if voted_down && self.rewind(version, cx) {
            return; // With what it has missed it will do better.
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Some(attempt) = transaction.phase.attempt() else { return };
        let settled = attempt.is_the_only_one(&self.group);
        let committed = attempt.has_committed(&self.group);
        match (&transaction.phase, tally) {
            (Phase::Preparing(_), Tally::CommitFast) => self.commit(version, cx),
            // All votes are there after all, which is as good as having finalized it.
            (Phase::Finalizing(_, Proposal::Commit), _) if committed => self.commit(version, cx),
            (Phase::Preparing(_), Tally::CommitSlow) => {
                self.finalize(version, Proposal::Commit, cx);
            }
            (Phase::Preparing(_), Tally::CommitUnlessMore | Tally::AbandonUnlessMore) => {
                self.wait_for_the_rest(version, cx);
            }
            // Durable as it is, if the earlier executions' ends are; else that is what is missing.
            (Phase::Preparing(_) | Phase::Finalizing(_, Proposal::Abandon), Tally::AbandonFast)
                if settled =>
            {
                self.abort(version, cx)
            }
            (Phase::Preparing(_), Tally::AbandonSlow) => self.abandon_or_retry(version, cx),
            (Phase::Preparing(_), Tally::AbandonFast) => {
                self.finalize(version, Proposal::Abandon, cx);
            }
            _ => {}
        }
    }

    fn commit(&mut self, version: Version, cx: &mut Cx) {
        self.conclude(version, Some(Decision::Commit), Outcome::Committed, cx);
    }

    /// Gives the votes that are missing their time.
    fn wait_for_the_rest(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let Phase::Preparing(attempt) = &mut transaction.phase else { return };
        if core::mem::replace(&mut attempt.waits, true) {
            return; // It was set when the majority was complete.
        }
        let wait = attempt.patience(cx.now(), self.group.round_trip());
        cx.set_timer(Timer::FastPath(version), wait);
    }

    /// Too many have voted tentatively against it. What is in its way is mostly a younger reader that
    /// is told of the write and runs again, so with re-execution it is worth another try.
    fn abandon_or_retry(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        match &transaction.phase {
            Phase::Preparing(attempt) if attempt.retries_left > 0 && self.options.re_execution => {
                let again = attempt.participants.iter();
                let again = again.map(|part| (part.partition, part.contents.clone()));
                let parts: SmallVec<[_; 1]> = again.collect();
                let left = attempt.retries_left - 1;
                self.prepare(version, parts.into_iter(), left, cx);
            }
            _ => self.finalize(version, Proposal::Abandon, cx),
        }
    }

    /// Proposes a decision on the execution to all replicas.
    fn finalize(&mut self, version: Version, proposal: Proposal, cx: &mut Cx) {
        let patience = patience(&self.group, 0);
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let phase = core::mem::replace(&mut transaction.phase, Phase::Executing);
        let (Phase::Preparing(mut attempt)
        | Phase::Abandoned(mut attempt)
        | Phase::Finalizing(mut attempt, _)) = phase
        else {
            unreachable!("{version} has no execution to finalize")
        };
        attempt.participants.iter_mut().for_each(|part| part.accepted = NodeSet::EMPTY);
        attempt.send_finalize(version, proposal, &self.group, cx);
        transaction.phase = Phase::Finalizing(attempt, proposal);
        self.postpone_repeat(version, patience, cx);
    }

    fn on_finalize_reply(
        &mut self,
        from: NodeId,
        version: Version,
        eid: u32,
        view: View,
        cx: &mut Cx,
    ) {
        if view != OWN_VIEW {
            self.on_refused(from, version, Refusal::Superseded, cx);
            return;
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        match &mut transaction.phase {
            Phase::Finalizing(attempt, proposal) if attempt.eid == eid => {
                let Some(part) = attempt.participant(from) else { return };
                part.accepted.insert(from);
                match proposal {
                    Proposal::Commit if attempt.has_committed(&self.group) => {
                        self.commit(version, cx);
                    }
                    Proposal::Abandon if attempt.is_abandoned(&self.group) => {
                        self.abort(version, cx);
                    }
                    _ => {}
                }
            }
            // It was told to while the program was running: it has abandoned those before.
            Phase::Preparing(attempt) | Phase::Finalizing(attempt, _)
                if attempt.eid == eid.saturating_add(1) =>
            {
                if let Some(part) = attempt.participant(from) {
                    part.abandoned.insert(from);
                }
            }
            _ => {}
        }
    }

    /// A replica takes no part in the transaction, or does not any more.
    fn on_refused(&mut self, from: NodeId, version: Version, refusal: Refusal, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        // A single one may be wrong about the time.
        touch(&mut transaction.refused_by, from);
        let refusing = transaction.refused_by.iter().map(|(_, replicas)| replicas.len()).max();
        if refusal != Refusal::Superseded && refusing < Some(self.group.majority()) {
            if self.group.choice(0, self.preferred).member() == from.member() {
                self.preferred = (self.preferred + 1) % self.group.size();
            }
            self.ask_for_reads(version, cx);
            return;
        }
        if transaction.next_eid > 0 {
            // It may commit nevertheless, with the votes of others.
            if !core::mem::replace(&mut transaction.superseded, true) {
                self.find_out(version, 0, cx);
            }
            return;
        }
        let own_us = cx.clock().midpoint_us();
        let ahead_us = match refusal {
            Refusal::Superseded => 0,
            Refusal::Truncated { clock_us } => {
                (own_us as i64).saturating_sub_unsigned(clock_us).min(0)
            }
            Refusal::Ahead { clock_us } => (own_us as i64).saturating_sub_unsigned(clock_us).max(0),
        };
        let outcome = match ahead_us.unsigned_abs() > self.clock_bound_us {
            true => Outcome::ClockSkew { ahead_us },
            false => Outcome::Aborted { conflicts: Vec::new() },
        };
        self.conclude(version, Some(Decision::Abort), outcome, cx);
    }

    /// Asks one of the home partition's replicas how a transaction ends that somebody else decides on.
    fn find_out(&mut self, version: Version, times: u32, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get(&version) else { return };
        let home = transaction.home.expect("what was prepared has a home");
        cx.send(self.group.choice(home, times as usize), Message::Inquire { version });
    }

    /// Somebody else has ended the transaction.
    fn on_settled(&mut self, from: NodeId, version: Version, settlement: Settlement, cx: &mut Cx) {
        self.answer_inquiries(from, version, settlement, cx);
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let committed = match settlement {
            Settlement::Committed { eid } => eid,
            // Elsewhere it may only mean that nothing is left to be done there.
            Settlement::Aborted if transaction.home == Some(from.partition()) => {
                self.abort(version, cx);
                return;
            }
            Settlement::Aborted if transaction.home.is_none() => {
                self.abort(version, cx);
                return;
            }
            Settlement::Aborted => return self.on_refused(from, version, Refusal::Superseded, cx),
            Settlement::Forgotten => return self.conclude(version, None, Outcome::Unknown, cx),
        };
        match &transaction.phase {
            Phase::Preparing(attempt) | Phase::Finalizing(attempt, _)
                if attempt.eid == committed =>
            {
                self.commit(version, cx);
            }
            _ => self.conclude(version, None, Outcome::Unknown, cx),
        }
    }

    fn abort(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        let mut conflicts = Vec::new();
        if let Phase::Preparing(attempt) | Phase::Finalizing(attempt, _) = &transaction.phase {
            conflicts = attempt.conflicts.to_vec();
            let asked = |partition| self.group.choice(partition, self.preferred);
            if attempt.participants.iter().any(|p| p.votes.is_behind(asked(p.partition))) {
                self.preferred = (self.preferred + 1) % self.group.size();
                self.avoided_until = cx.now() + AVOIDED_FOR;
            }
        }
        self.conclude(version, Some(Decision::Abort), Outcome::Aborted { conflicts }, cx);
    }

    /// The transaction is over: tells its session, and the replicas if they have heard of it.
    fn conclude(
        &mut self,
        version: Version,
        decision: Option<Decision>,
        outcome: Outcome,
        cx: &mut Cx,
    ) {
        let transaction = self.transactions.remove(&version).expect("a transaction in progress");
        if let Some(session) = transaction.session {
            self.versions.remove(&session);
            cx.output((session, Output::Outcome(outcome)));
        }
        self.orphans.remove(&version);
        cx.cancel_timer(Timer::Repeat(version));
        cx.cancel_timer(Timer::Rewind(version));
        let Some(decision) = decision else { return };
        let (eid, mut participants) = match transaction.phase {
            Phase::Executing => (0, SmallVec::new()),
            Phase::Preparing(attempt)
            | Phase::Finalizing(attempt, _)
            | Phase::Abandoned(attempt) => {
                cx.cancel_timer(Timer::FastPath(version));
                (attempt.eid, attempt.participants)
            }
        };
        if decision != Decision::Commit {
            participants.clear();
        }
        let mut parts = SmallVec::new();
        for (partition, missing) in transaction.touched {
            // A partition that the last execution has left has nothing to commit.
            let part = participants.iter().find(|part| part.partition == partition);
            let contents = part.map(|part| part.contents.clone());
            cx.broadcast(partition, missing, decide(version, eid, &contents, false));
            parts.push(DecidedPart { partition, contents, missing });
        }
        let patience = patience(&self.group, 0);
        let repeat_at = cx.now() + patience;
        if parts.is_empty() {
            return;
        }
        self.unacknowledged.insert(version, Decided { eid, parts, repeat_at, repeated: 0 });
        if self.unacknowledged.len() > UNACKNOWLEDGED_AT_MOST {
            self.unacknowledged.pop_first();
        }
        if !self.repeat_set {
            self.repeat_set = true;
            cx.set_timer(Timer::RepeatDecisions, patience);
        }
    }

    fn on_acknowledge(&mut self, from: NodeId, versions: Vec<Version>) {
        let partition = from.partition();
        let from: NodeSet = [from].into_iter().collect();
        for version in versions {
            let Some(decided) = self.unacknowledged.get_mut(&version) else { continue };
            for part in decided.parts.iter_mut().filter(|part| part.partition == partition) {
                part.missing = part.missing.without(from);
            }
            if decided.parts.iter().all(|part| part.missing.is_empty()) {
                self.unacknowledged.remove(&version);
            }
        }
    }

    fn repeat_decisions(&mut self, cx: &mut Cx) {
        self.repeat_set = !self.unacknowledged.is_empty();
        if !self.repeat_set {
            return;
        }
        let (now, first) = (cx.now(), patience(&self.group, 0));
        let due = self.unacknowledged.iter_mut().filter(|(_, decided)| decided.repeat_at <= now);
        for (version, decided) in due.take(REPEAT_DECISIONS) {
            for part in decided.parts.iter().filter(|part| !part.missing.is_empty()) {
                let message = decide(*version, decided.eid, &part.contents, true);
                cx.broadcast(part.partition, part.missing, message);
            }
            decided.repeated += 1;
            decided.repeat_at = now + patience(&self.group, decided.repeated);
        }
        cx.set_timer(Timer::RepeatDecisions, first);
    }

    /// Puts the time to repeat off, because something new was sent. The timer notices when it fires,
    /// unless it had slowed down.
    fn postpone_repeat(&mut self, version: Version, patience: Duration, cx: &mut Cx) {
        if let Some(transaction) = self.transactions.get_mut(&version) {
            transaction.repeat_at = cx.now() + patience;
            if core::mem::replace(&mut transaction.repeated, 0) > 0 {
                cx.set_timer(Timer::Repeat(version), patience);
            }
        }
    }

    /// Repeats whatever the transaction waits for, to those who have not answered.
    fn repeat(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let now = cx.now();
        if now < transaction.repeat_at {
            cx.set_timer(Timer::Repeat(version), transaction.repeat_at.since(now));
            return;
        }
        self.ask_for_reads(version, cx);
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        match &transaction.phase {
            Phase::Preparing(attempt) => {
                attempt.send_prepare(version, transaction.next_tag, &self.group, cx);
            }
            Phase::Finalizing(attempt, decision) => {
                attempt.send_finalize(version, *decision, &self.group, cx);
            }
            // The program runs on, for who knows how long; what was prepared is in others' way.
            Phase::Abandoned(attempt) => {
                attempt.send_finalize(version, Proposal::Abandon, &self.group, cx);
            }
            // Writes that were lost are in the Prepare.
            Phase::Executing => {}
        }
        transaction.repeated += 1;
        let (times, superseded) = (transaction.repeated, transaction.superseded);
        let patience = patience(&self.group, times);
        transaction.repeat_at = now + patience;
        cx.set_timer(Timer::Repeat(version), patience);
        if superseded {
            self.find_out(version, times, cx);
        }
    }

    /// Asks other replicas for the reads that have not been answered.
    fn ask_for_reads(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        for (key, read) in transaction.reads.iter_mut().filter(|(_, read)| read.found.is_none()) {
            self.preferred = read.asked % self.group.size();
            let replica = self.group.choice(self.group.partition_of(key), read.asked);
            read.asked += 1;
            touch(&mut transaction.touched, replica);
            cx.send(replica, Message::Get { version, key: key.clone() });
        }
    }

    /// The votes that are missing have had their time.
    fn go_on_without_the_rest(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get(&version) else { return };
        let Phase::Preparing(attempt) = &transaction.phase else { return };
        match attempt.tally(&self.group) {
            Tally::CommitUnlessMore => self.finalize(version, Proposal::Commit, cx),
            Tally::AbandonUnlessMore => self.abandon_or_retry(version, cx),
            _ => {}
        }
    }
}

/// How long to wait for the answer to a request of `group` that was repeated `times` times before
/// repeating it again.
fn patience(group: &Group, times: u32) -> Duration {
    let first = 2 * group.round_trip() + Duration::from_millis(100);
    (first * (1 << times.min(10))).min(first.max(REPEAT_AT_MOST))
}

/// What replicas are told of a transaction that has ended: that `contents` commit, or nothing.
fn decide(version: Version, eid: u32, contents: &Option<Arc<Contents>>, in_full: bool) -> Message {
    let decision = if contents.is_some() { Decision::Commit } else { Decision::Abort };
    let contents = if in_full { contents.clone() } else { None };
    Message::Decide { version, eid, decision, contents }
}

fn touch(touched: &mut Touched, replica: NodeId) {
    touch_all(touched, replica.partition(), [replica].into_iter().collect());
}

fn touch_all(touched: &mut Touched, partition: u16, replicas: NodeSet) {
    match touched.iter_mut().find(|(other, _)| *other == partition) {
        Some((_, those)) => *those = those.union(replicas),
        None => touched.push((partition, replicas)),
    }
}

impl Transaction {
    fn touch(&mut self, replica: NodeId) {
        touch(&mut self.touched, replica);
    }

    fn touch_all(&mut self, partition: u16, replicas: NodeSet) {
        touch_all(&mut self.touched, partition, replicas);
    }

    /// The tag of a write, and whether it is new: a value that the key had before keeps its tag.
    fn tag(&mut self, write: &Write) -> (u32, bool) {
        let tag = self.next_tag;
        match self.writes.entry(write.key.clone()) {
            Entry::Occupied(old) if old.get().1 == write.value => return (old.get().0, false),
            Entry::Occupied(mut old) => *old.get_mut() = (tag, write.value.clone()),
            Entry::Vacant(new) => {
                new.insert((tag, write.value.clone()));
            }
        }
        self.next_tag += 1;
        (tag, true)
    }

    /// The program runs again and waits for a read that it has not made before. Until it ends, the
    /// execution that was prepared only stands in others' way.
    fn abandon_while_running(&mut self, version: Version, group: &Group, cx: &mut Cx) {
        let Phase::Abandoned(attempt) = &mut self.phase else { return };
        if core::mem::replace(&mut attempt.told, true) {
            return;
        }
        if attempt.tally(group) != Tally::AbandonFast {
            attempt.send_finalize(version, Proposal::Abandon, group, cx);
            return;
        }
        for part in &attempt.participants {
            let (eid, decision) = (attempt.eid, Decision::Abandon);
            let message = Message::Decide { version, eid, decision, contents: None };
            cx.broadcast(part.partition, group.all(), message);
        }
    }
}

impl Phase {
    /// The execution in the commit protocol.
    fn attempt(&mut self) -> Option<&mut Attempt> {
        match self {
            Phase::Executing => None,
            Phase::Preparing(attempt)
            | Phase::Finalizing(attempt, _)
            | Phase::Abandoned(attempt) => Some(attempt),
        }
    }

    /// A read of the execution in the commit protocol has changed, and its session is told.
    fn rewind(&mut self, key: &Key) {
        let rests_on_it = |attempt: &Attempt| {
            let mut parts = attempt.participants.iter();
            parts.any(|part| part.contents.reads.iter().any(|read| read.key == *key))
        };
        *self = match core::mem::replace(self, Phase::Executing) {
            Phase::Preparing(attempt) if rests_on_it(&attempt) => Phase::Abandoned(attempt),
            Phase::Finalizing(mut attempt, Proposal::Abandon) if rests_on_it(&attempt) => {
                attempt.told = true;
                Phase::Abandoned(attempt)
            }
            phase => phase,
        };
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = Timer;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::GetReply { version, key, write, value, instead_of } => {
                self.heard_of(from, cx.now());
                let new = ReadValue { key, version: write.version, value, stamp: 0 };
                self.on_get_reply(version, new, write, instead_of, cx);
            }
            Message::PrepareReply { version, eid, vote, conflict } => {
                self.heard_of(from, cx.now());
                self.on_prepare_reply(from, version, eid, vote, conflict, cx);
            }
            Message::FinalizeReply { version, eid, view } => {
                self.on_finalize_reply(from, version, eid, view, cx);
            }
            Message::Acknowledge { versions } => self.on_acknowledge(from, versions),
            Message::Refused { version, refusal } => self.on_refused(from, version, refusal, cx),
            Message::Settled { version, settlement } => {
                self.on_settled(from, version, settlement, cx);
            }
            Message::GetAtReply { request, found } => self.on_get_at_reply(request, found, cx),
            // For replicas.
            _ => {}
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Repeat(version) => self.repeat(version, cx),
            Timer::Rewind(version) => {
                self.rewind(version, cx);
            }
            Timer::FastPath(version) => self.go_on_without_the_rest(version, cx),
            Timer::RepeatDecisions => self.repeat_decisions(cx),
            Timer::Ask(txn) => self.ask(txn, cx),
        }
    }
}

impl Coordinate for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Cx<'_>) {
        match operation {
            Operation::Begin => return self.begin(txn, cx),
            Operation::Inquire { version } => return self.inquire(txn, version, cx),
            Operation::GetAt { key, at } => return self.get_at(txn, key, at, cx),
            Operation::Rollback if self.forget_question(txn, cx) => return,
            _ => {}
        }
        // A session may go on for a moment because it has not heard of the end.
        let Some(&version) = self.versions.get(&txn) else { return };
        match operation {
            Operation::Begin | Operation::Inquire { .. } | Operation::GetAt { .. } => {
                unreachable!("handled above")
            }
            Operation::Get { key } => self.on_get(version, key, cx),
            Operation::Put(write) => self.on_put(version, write, cx),
            Operation::Commit { reads, writes } => self.on_commit(version, reads, writes, cx),
            Operation::Rollback => self.on_rollback(version, cx),
        }
    }
}
