//! The server side: validates executions against each other (000 §4.2).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::{Actor, Context, Group, Recover, Store};
use serried_model::{Key, NodeId, Value, Version};
use serried_parts::{Map, WriteId};
use smallvec::SmallVec;

use super::Options;
use super::key_record::{KeyRecord, Missed, Notice};
use super::message::{Contents, Decision, Message, Proposal, Record, Vote};

/// Acknowledgements are sent when there are so many, or after [`ACKNOWLEDGE_AFTER`].
const ACKNOWLEDGE_AT: usize = 16;
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(20);

/// A replica of Morty; with [`Options::re_execution`] off, one of MVTSO.
#[derive(Debug)]
pub struct Replica {
    options: Options,
    /// `vstore`.
    keys: Map<Key, KeyRecord>,
    /// Transactions that are not decided, as far as this replica knows, with their `erecord`.
    transactions: Map<Version, Undecided>,
    /// `decision_log`.
    decisions: Map<Version, Outcome>,
    /// The transactions whose vote for good is still to come, by those whose decision they wait for.
    waiting: Map<Version, SmallVec<[Version; 2]>>,
    /// Decisions carried out and not acknowledged yet, by coordinator.
    acknowledgements: BTreeMap<NodeId, Vec<Version>>,
    acknowledge_set: bool,
    /// Reads to be told that they would now find something else; empty between events.
    notices: Vec<Notice>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Committed,
    Aborted,
}

/// A transaction in progress. Of its executions only the latest that was prepared is kept: a Prepare
/// abandons all earlier ones.
#[derive(Debug, Default)]
struct Undecided {
    /// Keys with an uncommitted read.
    reads: SmallVec<[Key; 4]>,
    /// Keys with an uncommitted write.
    writes: SmallVec<[Key; 4]>,
    /// Puts with smaller tags are superseded.
    next_tag: u32,
    /// Executions before this one are abandoned.
    abandoned_before: u32,
    /// The view below which no decision is accepted.
    view: u32,
    /// The decision accepted for an execution, and in which view.
    accepted: Option<(u32, u32, Proposal)>,
    execution: Option<Execution>,
}

/// An `erecord` entry.
#[derive(Debug)]
struct Execution {
    eid: u32,
    contents: Arc<Contents>,
    /// `None` while it waits for the transactions that it read from, if votes are not provisional.
    vote: Option<Vote>,
    /// The key over which it was not to commit.
    conflict: Option<Key>,
}

/// What a replica does by the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// Send the acknowledgements that are due.
    Acknowledge,
}

type Cx<'a> = Context<'a, Replica>;

impl Replica {
    /// An empty replica.
    pub fn new(_: Group, options: Options) -> Replica {
        Replica {
            options,
            keys: Map::default(),
            transactions: Map::default(),
            decisions: Map::default(),
            waiting: Map::default(),
            acknowledgements: BTreeMap::new(),
            acknowledge_set: false,
            notices: Vec::new(),
        }
    }

    fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        if self.decisions.contains_key(&version) {
            return; // Late: the reader needs no answer, and would never be forgotten again.
        }
        let record = self.keys.get_or_default(&key);
        let (write, value) = record.find(version);
        if self.options.re_execution && record.add_read(version, write) {
            self.transactions.get_or_default(&version).reads.push(key.clone());
        }
        let reply = Message::GetReply { version, key, write, value, instead_of: None };
        cx.send(version.coordinator, reply);
    }

    fn on_put(&mut self, version: Version, key: Key, tag: u32, value: Option<Value>, cx: &mut Cx) {
        if self.decisions.contains_key(&version) {
            return;
        }
        let undecided = self.transactions.get_or_default(&version);
        if tag < undecided.next_tag {
            return; // An execution that was prepared since writes something else, or nothing.
        }
        let record = self.keys.get_or_default(&key);
        if record.add_write(&key, WriteId { version, tag }, &value, &mut self.notices) {
            undecided.writes.push(key);
        }
        self.notify(cx);
    }

    fn on_prepare(
        &mut self,
        version: Version,
        eid: u32,
        next_tag: u32,
        contents: Arc<Contents>,
        cx: &mut Cx,
    ) {
        if self.decisions.contains_key(&version) {
            return; // Late; the coordinator knows.
        }
        if contents.reads.iter().any(|read| read.write.version >= version) {
            return; // Nobody reads from its own future; this is no coordinator of ours.
        }
        let undecided = self.transactions.get_or_default(&version);
        if eid < undecided.abandoned_before {
            return; // Overtaken by what abandoned it.
        }
        if let Some(execution) = &undecided.execution
            && execution.eid == eid
        {
            // Repeated.
            if let Some(vote) = execution.vote {
                let conflict = execution.conflict.clone();
                let reply = Message::PrepareReply { version, eid, vote, conflict };
                cx.send(version.coordinator, reply);
            }
            self.confirm(version, cx);
            return;
        }
        cx.charge(contents.reads.len() + contents.writes.len());
        self.install(version, eid, next_tag, &contents);
        let execution = Execution { eid, contents, vote: None, conflict: None };
        self.transactions.get_or_default(&version).execution = Some(execution);
        self.vote(version, cx);
    }

    /// Validates the transaction's execution, and votes unless it has to wait.
    fn vote(&mut self, version: Version, cx: &mut Cx) {
        let undecided = self.transactions.get(&version).expect("a transaction to vote on");
        let next_tag = undecided.next_tag;
        let execution = undecided.execution.as_ref().expect("an execution to vote on");
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let validated = self.validate(version, &contents);
        self.notify(cx);
        let Some((vote, conflict)) = validated else { return };
        self.prepare(version, vote, conflict.clone());
        cx.append(Record::Voted { version, eid, next_tag, vote, contents });
        cx.send(version.coordinator, Message::PrepareReply { version, eid, vote, conflict });
    }

    /// Abandons the executions before `eid`, and brings the transaction's uncommitted writes in line
    /// with what `eid` writes.
    fn install(&mut self, version: Version, eid: u32, next_tag: u32, contents: &Contents) {
        self.unprepare(version);
        let undecided = self.transactions.get_or_default(&version);
        undecided.abandoned_before = eid;
        undecided.next_tag = next_tag;
        undecided.execution = None;
        let new = contents.writes.iter().map(|write| write.key.clone()).collect();
        let old = core::mem::replace(&mut undecided.writes, new);
        self.withdraw(version, &old, contents);
        for write in &contents.writes {
            let record = self.keys.get_or_default(&write.key);
            let id = WriteId { version, tag: write.tag };
            record.add_write(&write.key, id, &write.value, &mut self.notices);
        }
    }

    /// Withdraws the transaction's uncommitted writes of those `keys` that `contents` does not write.
    fn withdraw(&mut self, version: Version, keys: &[Key], contents: &Contents) {
        if keys.iter().eq(contents.writes.iter().map(|write| &write.key)) {
            return; // As nearly always.
        }
        let written: BTreeSet<&Key> = contents.writes.iter().map(|write| &write.key).collect();
        for key in keys.iter().filter(|key| !written.contains(key)) {
            let record = self.keys.get_mut(key).expect("a key with an uncommitted write");
            record.withdraw_write(key, version, &mut self.notices);
        }
    }

    /// Enters the vote on the transaction's execution, and prepares its reads if it may commit. Its
    /// writes need no more than they are: a read that misses an uncommitted write is not voted for.
    fn prepare(&mut self, version: Version, vote: Vote, conflict: Option<Key>) {
        let undecided = self.transactions.get_mut(&version).expect("a transaction to vote on");
        let execution = undecided.execution.as_mut().expect("an execution to vote on");
        assert!(
            execution.vote.is_none(),
            "{version}: a second vote on execution {}",
            execution.eid
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
        if let Vote::Commit | Vote::Provisional = vote {
            for read in &execution.contents.reads {
                self.keys.get_or_default(&read.key).prepare_read(version, read.write.version);
            }
        }
    }

    /// Takes back what the transaction's execution has prepared, if it has.
    fn unprepare(&mut self, version: Version) {
        let Some(undecided) = self.transactions.get_mut(&version) else { return };
        let Some(execution) = &undecided.execution else { return };
        if let Some(Vote::Commit | Vote::Provisional) = execution.vote {
            for read in &execution.contents.reads {
                let record = self.keys.get_mut(&read.key).expect("a key that was read");
                record.unprepare_read(version);
            }
        }
    }

    /// The serializability validation (000 §4.2, "Prepare"): a vote, and the key that is in its way;
    /// none if it has to wait. Check 4 is about truncation, which this replica does not do.
    fn validate(&mut self, version: Version, contents: &Contents) -> Option<(Vote, Option<Key>)> {
        let checks = self.options.checks;
        let (mut vote, mut conflict) = self.validate_sources(version, contents);
        if vote == Vote::AbandonFinal {
            return Some((vote, conflict));
        }
        if vote == Vote::Provisional && !self.options.provisional_votes {
            return None;
        }
        // Check 1: its reads missed no write.
        for read in contents.reads.iter().filter(|_| checks.missed_by_reads) {
            let record = self.keys.get_or_default(&read.key);
            let Some(missed) = record.missed_by(version, read.write) else { continue };
            let (write, value) = record.find(version);
            let key = read.key.clone();
            self.notices.push(Notice { reader: version, key, write, value, instead_of: None });
            match missed {
                Missed::Committed => vote = Vote::AbandonFinal,
                Missed::Uncommitted if vote != Vote::AbandonFinal => vote = Vote::AbandonTentative,
                Missed::Uncommitted => continue,
            }
            conflict = Some(read.key.clone());
        }
        // Check 2: nobody else's read missed a write of it.
        for write in contents.writes.iter().filter(|_| checks.missed_by_others) {
            match self.keys.get(&write.key).and_then(|record| record.missed_write_of(version)) {
                Some(Missed::Committed) => {
                    return Some((Vote::AbandonFinal, Some(write.key.clone())));
                }
                Some(Missed::Uncommitted) if vote != Vote::AbandonFinal => {
                    (vote, conflict) = (Vote::AbandonTentative, Some(write.key.clone()));
                }
                _ => {}
            }
        }
        Some((vote, conflict))
    }

    /// Whether all that was read is committed as it was read: that no writer has aborted, and check 3.
    /// Where a writer is undecided the answer is provisional, and the transaction waits for it.
    fn validate_sources(&mut self, version: Version, contents: &Contents) -> (Vote, Option<Key>) {
        let check = self.options.checks.dirty_reads;
        let mut conflict = None;
        let mut wait = None;
        for read in &contents.reads {
            let writer = read.write.version;
            let record = self.keys.get_or_default(&read.key);
            let committed = record.committed.get(writer).map(|committed| committed.id);
            let valid = match (committed, self.decisions.get(&writer)) {
                _ if writer == Version::INITIAL => true,
                (Some(committed), _) => committed == read.write || !check,
                (None, Some(Outcome::Committed)) => !check,
                (None, Some(Outcome::Aborted)) => false,
                (None, None) => {
                    wait = wait.or(Some(writer));
                    true
                }
            };
            if !valid {
                conflict = conflict.or(Some(read.key.clone()));
                let (write, value) = record.find(version);
                let (key, instead_of) = (read.key.clone(), Some(read.write));
                self.notices.push(Notice { reader: version, key, write, value, instead_of });
            }
        }
        if conflict.is_some() {
            return (Vote::AbandonFinal, conflict);
        }
        let Some(writer) = wait else { return (Vote::Commit, None) };
        let waiting = self.waiting.get_or_default(&writer);
        if !waiting.contains(&version) {
            waiting.push(version);
        }
        (Vote::Provisional, None)
    }

    /// A transaction that the execution has read from is decided: if it was the last, a provisional
    /// vote is followed by one for good, and one that had to wait is given.
    fn confirm(&mut self, version: Version, cx: &mut Cx) {
        let Some(undecided) = self.transactions.get(&version) else { return };
        let Some(execution) = &undecided.execution else { return };
        match execution.vote {
            None => return self.vote(version, cx),
            Some(Vote::Provisional) => {}
            Some(_) => return,
        }
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let (vote, conflict) = self.validate_sources(version, &contents);
        self.notify(cx);
        if vote == Vote::Provisional {
            return;
        }
        self.settle_vote(version, eid, vote, conflict.clone());
        cx.append(Record::Confirmed { version, eid, vote });
        cx.send(version.coordinator, Message::PrepareReply { version, eid, vote, conflict });
    }

    /// Replaces a provisional vote by one for good.
    fn settle_vote(&mut self, version: Version, eid: u32, vote: Vote, conflict: Option<Key>) {
        if vote == Vote::AbandonFinal {
            self.unprepare(version);
        }
        let undecided = self.transactions.get_mut(&version).expect("a transaction voted on");
        let execution = undecided.execution.as_mut().expect("an execution voted on");
        assert!(
            (execution.eid, execution.vote) == (eid, Some(Vote::Provisional)),
            "{version}: {vote:?} on execution {eid} follows {execution:?}"
        );
        (execution.vote, execution.conflict) = (Some(vote), conflict);
    }

    fn on_finalize(
        &mut self,
        from: NodeId,
        (version, eid, view): (Version, u32, u32),
        decision: Proposal,
        cx: &mut Cx,
    ) {
        if self.decisions.contains_key(&version) {
            // Late, or repeated after an answer was lost: it was decided as it had been accepted.
            cx.send(from, Message::FinalizeReply { version, eid, view });
            return;
        }
        let undecided = self.transactions.get_or_default(&version);
        if undecided.view == view {
            self.accept(version, eid, view, decision);
            cx.append(Record::Accepted { version, eid, view, decision });
        }
        let view = self.transactions.get(&version).map_or(view, |undecided| undecided.view);
        cx.send(from, Message::FinalizeReply { version, eid, view });
    }

    fn accept(&mut self, version: Version, eid: u32, view: u32, decision: Proposal) {
        let undecided = self.transactions.get_or_default(&version);
        let abandons = match &undecided.execution {
            Some(execution) => decision == Proposal::Abandon && execution.eid <= eid,
            None => false,
        };
        undecided.accepted = Some((eid, view, decision));
        if decision == Proposal::Abandon {
            undecided.abandoned_before = undecided.abandoned_before.max(eid.saturating_add(1));
        }
        if abandons {
            self.unprepare(version);
            let undecided = self.transactions.get_mut(&version).expect("a transaction abandoned");
            undecided.execution = None;
        }
    }

    fn on_decide(
        &mut self,
        from: NodeId,
        (version, eid): (Version, u32),
        decision: Decision,
        contents: Option<Arc<Contents>>,
        cx: &mut Cx,
    ) {
        let outcome = match decision {
            Decision::Abandon => {
                if !self.decisions.contains_key(&version) {
                    self.accept(version, eid, 0, Proposal::Abandon);
                }
                return;
            }
            Decision::Commit => Outcome::Committed,
            Decision::Abort => Outcome::Aborted,
        };
        if let Some(earlier) = self.decisions.get(&version) {
            assert_eq!(*earlier, outcome, "{version} was decided twice, and differently");
        } else {
            let contents = match outcome {
                Outcome::Aborted => None,
                Outcome::Committed => {
                    let execution = self.transactions.get(&version).and_then(|undecided| {
                        undecided.execution.as_ref().filter(|execution| execution.eid == eid)
                    });
                    let known = execution.map(|execution| execution.contents.clone());
                    // Unheard of: without an acknowledgement the coordinator will say more.
                    let Some(contents) = known.or(contents) else { return };
                    Some(contents)
                }
            };
            cx.charge(contents.as_ref().map_or(0, |c| c.reads.len() + c.writes.len()));
            let waiters = self.carry_out(version, contents.as_deref());
            self.notify(cx);
            cx.append(Record::Decided { version, contents });
            for waiter in waiters {
                self.confirm(waiter, cx);
            }
        }
        self.acknowledge(from, version, cx);
    }

    /// Carries a decision out, and forgets all that was kept while it was open (000 §4.4, "Decide
    /// Garbage Collection"). Returns who waited for it.
    fn carry_out(
        &mut self,
        version: Version,
        contents: Option<&Contents>,
    ) -> SmallVec<[Version; 2]> {
        self.unprepare(version);
        let undecided = self.transactions.remove(&version).unwrap_or_default();
        for key in &undecided.reads {
            self.keys.get_mut(key).expect("a key that was read").remove_read(version);
        }
        let outcome = match contents {
            Some(_) => Outcome::Committed,
            None => Outcome::Aborted,
        };
        self.decisions.insert(version, outcome);
        let nothing = Contents::default();
        let contents = contents.unwrap_or(&nothing);
        for write in &contents.writes {
            let record = self.keys.get_or_default(&write.key);
            let id = WriteId { version, tag: write.tag };
            record.commit_write(&write.key, id, &write.value, &mut self.notices);
        }
        for read in &contents.reads {
            let record = self.keys.get_or_default(&read.key);
            record.committed_reads.record(read.write.version, version);
        }
        self.withdraw(version, &undecided.writes, contents);
        self.waiting.remove(&version).unwrap_or_default()
    }

    /// Tells those reads that would now find something else. Without re-execution there is nothing
    /// that they could do about it.
    fn notify(&mut self, cx: &mut Cx) {
        if !self.options.re_execution {
            self.notices.clear();
        }
        for Notice { reader, key, write, value, instead_of } in self.notices.drain(..) {
            let reply = Message::GetReply { version: reader, key, write, value, instead_of };
            cx.send(reader.coordinator, reply);
        }
    }

    fn acknowledge(&mut self, to: NodeId, version: Version, cx: &mut Cx) {
        let versions = self.acknowledgements.entry(to).or_default();
        versions.push(version);
        if versions.len() >= ACKNOWLEDGE_AT {
            let versions = core::mem::take(versions);
            cx.send(to, Message::Acknowledge { versions });
        } else if !self.acknowledge_set {
            self.acknowledge_set = true;
            cx.set_timer(Timer::Acknowledge, ACKNOWLEDGE_AFTER);
        }
    }
}

#[cfg(test)]
impl Replica {
    pub(super) fn record(&self, key: &Key) -> Option<&KeyRecord> {
        self.keys.get(key)
    }

    pub(super) fn undecided(&self) -> usize {
        self.transactions.len()
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = Timer;
    type Record = Record;
    type Output = ();

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Cx<'_>) {
        match message {
            Message::Get { version, key } => self.on_get(version, key, cx),
            Message::Put { version, key, tag, value } => self.on_put(version, key, tag, value, cx),
            Message::Prepare { version, eid, next_tag, contents } => {
                self.on_prepare(version, eid, next_tag, contents, cx);
            }
            Message::Finalize { version, eid, view, decision } => {
                self.on_finalize(from, (version, eid, view), decision, cx);
            }
            Message::Decide { version, eid, decision, contents } => {
                self.on_decide(from, (version, eid), decision, contents, cx);
            }
            // For coordinators.
            Message::GetReply { .. }
            | Message::PrepareReply { .. }
            | Message::FinalizeReply { .. }
            | Message::Acknowledge { .. } => {}
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Acknowledge => {
                self.acknowledge_set = false;
                for (to, versions) in core::mem::take(&mut self.acknowledgements) {
                    if !versions.is_empty() {
                        cx.send(to, Message::Acknowledge { versions });
                    }
                }
            }
        }
    }
}

impl Recover for Replica {
    fn replay(&mut self, record: Record, _: &mut dyn Store) {
        match record {
            Record::Voted { version, eid, next_tag, vote, contents } => {
                self.install(version, eid, next_tag, &contents);
                let execution =
                    Execution { eid, contents: contents.clone(), vote: None, conflict: None };
                self.transactions.get_or_default(&version).execution = Some(execution);
                self.prepare(version, vote, None);
                if vote == Vote::Provisional {
                    self.validate_sources(version, &contents); // To be told of them again.
                    self.notices.clear();
                }
            }
            Record::Confirmed { version, eid, vote } => self.settle_vote(version, eid, vote, None),
            Record::Accepted { version, eid, view, decision } => {
                self.accept(version, eid, view, decision);
            }
            Record::Decided { version, contents } => {
                // Those who waited for it have their next record in the log, or are asked again.
                self.carry_out(version, contents.as_deref());
            }
        }
        assert!(self.notices.is_empty(), "nobody's reads survive a crash, so nobody is told");
    }
}
