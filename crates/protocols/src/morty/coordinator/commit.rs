//! The commit protocol: Prepare, Finalize, and what comes of them (000 §4.2, "Commit").

use core::time::Duration;
use std::sync::Arc;

use serried_actor::NodeSet;
use serried_model::transactions::Outcome;
use serried_model::{Modify, NodeId, ReadStamp, Version, Write};
use serried_parts::{Effect, WriteId};
use smallvec::SmallVec;

use super::prepared::{self, Participant, PreparedExecution};
use super::transaction::{Phase, touch};
use super::{Coordinator, Cx, OWN_VIEW, Timer, patience};
use crate::morty::Control;
use crate::morty::message::{
    Conflict, Contents, Decision, Message, Proposal, Read, Refusal, Request, Settlement,
    TaggedWrite, View, Vote,
};
use crate::morty::votes::{Quorums, Tally};

/// How often an execution is prepared again that was voted down only tentatively.
pub(super) const TENTATIVE_RETRIES: u32 = 3;
/// A replica that only reads what is committed may lack something for so many transactions in a row.
const BEHIND_IN_A_ROW: u32 = 8;
/// A replica that lacks something that was committed is not asked to read for so long.
const AVOIDED_FOR: Duration = Duration::from_secs(1);

impl Coordinator {
    pub(super) fn on_commit(
        &mut self,
        version: Version,
        reads: Vec<ReadStamp>,
        writes: Vec<Write>,
        modifies: Vec<Modify>,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        if let Phase::Finalizing(_, Proposal::Commit) = transaction.phase {
            return; // The session had not received the last Rewind yet. The decision stands.
        }
        let current = |read: &ReadStamp| {
            transaction.reads.get(&read.key).is_some_and(|state| state.stamp == read.stamp)
        };
        if !reads.iter().all(current) {
            return; // The session had not received a Rewind yet. It will run the program again.
        }
        if reads.is_empty() && writes.is_empty() && modifies.is_empty() && transaction.next_eid == 0
        {
            let decision = match transaction.touched.is_empty() {
                true => None, // No replica knows of it.
                false => Some(Decision::Abort),
            };
            self.conclude(version, decision, Outcome::Committed, cx);
            return;
        }
        let found = |read: ReadStamp| {
            let found = transaction.reads.get(&read.key).and_then(|state| state.found.clone());
            Read { found: found.expect("an answer that was told was found"), key: read.key }
        };
        let reads: Vec<Read> = reads.into_iter().map(found).collect();
        let writes = writes.into_iter().map(|Write { key, value }| (key, Effect::Put(value)));
        let modifies = modifies
            .into_iter()
            .map(|modify| (modify.key, Effect::Modify(modify.modifications.into())));
        let writes = writes.chain(modifies).map(|(key, effect)| {
            let (tag, _) = transaction.tag(&key, &effect);
            TaggedWrite { key, tag, effect }
        });
        let writes: Vec<TaggedWrite> = writes.collect();
        let latest_read = reads.iter().map(|read| read.found.latest().version);
        let latest_read = latest_read.max().unwrap_or_default();
        let first_key = writes.first().map(|write| &write.key).or(reads.first().map(|r| &r.key));
        let first = first_key.map(|key| self.group.partition_of(key));
        let home = *transaction.home.get_or_insert(first.unwrap_or_default());
        let parts = prepared::split(&self.group, home, reads, writes);
        let version = match self.options.control {
            Control::Ordering => version,
            Control::Validation => self.take_version(version, latest_read, cx),
        };
        self.prepare_if_admitted(version, parts, cx);
    }

    /// Asks all replicas to vote on a new execution, and to abandon those before it.
    pub(super) fn prepare(
        &mut self,
        version: Version,
        parts: impl Iterator<Item = (u16, Arc<Contents>)>,
        retries_left: u32,
        cx: &mut Cx,
    ) {
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let (eid, quorums) = (transaction.next_eid, Quorums::of(&self.group, &self.options));
        let execution = PreparedExecution::new(eid, parts, retries_left, quorums, cx.now());
        transaction.next_eid += 1;
        for part in &execution.participants {
            transaction.touch_all(part.partition, self.group.all());
        }
        execution.send_prepare(version, transaction.next_tag, &self.group, cx);
        transaction.phase = Phase::Preparing(execution);
        let patience = patience(&self.group, 0);
        self.postpone_repeat(version, patience, cx);
    }

    pub(super) fn on_prepare_reply(
        &mut self,
        from: NodeId,
        version: Version,
        eid: u32,
        vote: Vote,
        conflict: Option<Conflict>,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else {
            return self.on_late_vote(from, version, eid, vote, cx);
        };
        let Some(execution) = transaction.phase.execution() else { return };
        if execution.eid != eid {
            return; // A vote on an execution that was abandoned since.
        }
        if let Some(reader) = conflict.as_ref().and_then(|conflict| conflict.readers) {
            let us = self.lead.ahead_us(reader, cx.clock());
            execution.ahead_us = Some(execution.ahead_us.map_or(us, |other| other.min(us)));
        }
        self.lead.answered(cx.now().since(execution.prepared_at));
        execution.record(from, vote, conflict, cx.now());
        let tally = execution.tally();
        let voted_down =
            matches!(tally, Tally::AbandonFast | Tally::AbandonSlow | Tally::AbandonUnlessMore);
        if voted_down && self.rewind(version, cx) {
            return; // It runs again with what it had missed.
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Some(execution) = transaction.phase.execution() else { return };
        let settled = execution.is_the_only_one();
        let committed = execution.has_committed();
        match (&transaction.phase, tally) {
            (Phase::Preparing(_), Tally::CommitFast) => self.commit(version, cx),
            // All votes have arrived after all, so the decision is durable without Finalize.
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

    pub(super) fn commit(&mut self, version: Version, cx: &mut Cx) {
        self.behind_in_a_row = 0;
        self.conclude(version, Some(Decision::Commit), Outcome::Committed, cx);
    }

    /// Waits for the missing votes.
    pub(super) fn wait_for_the_rest(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let Phase::Preparing(execution) = &mut transaction.phase else { return };
        if core::mem::replace(&mut execution.waits, true) {
            return; // It was set when the majority was complete.
        }
        let wait = execution.patience(cx.now(), self.group.round_trip());
        cx.set_timer(Timer::FastPath(version), wait);
    }

    /// The time for the missing votes is over.
    pub(super) fn go_on_without_the_rest(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Phase::Preparing(execution) = &mut transaction.phase else { return };
        match execution.tally() {
            Tally::CommitUnlessMore => self.finalize(version, Proposal::Commit, cx),
            Tally::AbandonUnlessMore => self.abandon_or_retry(version, cx),
            // Another partition has not voted yet. When it has, there may be something to wait for again.
            _ => execution.waits = false,
        }
    }

    /// Too many have voted tentatively against it. What is in its way is mostly a younger reader that
    /// receives the write and runs again, so with re-execution another try may succeed.
    pub(super) fn abandon_or_retry(&mut self, version: Version, cx: &mut Cx) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        match &transaction.phase {
            Phase::Preparing(execution)
                if execution.retries_left > 0 && self.options.re_execution =>
            {
                let again = execution.participants.iter();
                let again = again.map(|part| (part.partition, part.contents.clone()));
                let parts: SmallVec<[_; 1]> = again.collect();
                let left = execution.retries_left - 1;
                self.prepare(version, parts.into_iter(), left, cx);
            }
            _ => self.finalize(version, Proposal::Abandon, cx),
        }
    }

    /// Proposes a decision on the execution to all replicas.
    pub(super) fn finalize(&mut self, version: Version, proposal: Proposal, cx: &mut Cx) {
        let patience = patience(&self.group, 0);
        let transaction = self.transactions.get_mut(&version).expect("a transaction in progress");
        let phase = core::mem::replace(&mut transaction.phase, Phase::Executing);
        let (Phase::Preparing(mut execution)
        | Phase::Abandoned(mut execution)
        | Phase::Finalizing(mut execution, _)) = phase
        else {
            unreachable!("{version} has no execution to finalize")
        };
        execution.participants.iter_mut().for_each(|part| part.accepted = NodeSet::EMPTY);
        execution.send_finalize(version, proposal, &self.group, cx);
        transaction.phase = Phase::Finalizing(execution, proposal);
        self.postpone_repeat(version, patience, cx);
    }

    pub(super) fn on_finalize_reply(
        &mut self,
        from: NodeId,
        version: Version,
        view: View,
        (eid, accepted): (u32, Proposal),
        cx: &mut Cx,
    ) {
        if view != OWN_VIEW {
            self.on_refused(from, version, Refusal::Superseded, cx);
            return;
        }
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        match &mut transaction.phase {
            Phase::Finalizing(execution, proposal)
                if (execution.eid, *proposal) == (eid, accepted) =>
            {
                let Some(part) = execution.participant(from) else { return };
                part.accepted.insert(from);
                match proposal {
                    Proposal::Commit if execution.has_committed() => {
                        self.commit(version, cx);
                    }
                    Proposal::Abandon if execution.is_abandoned() => {
                        self.abort(version, cx);
                    }
                    _ => {}
                }
            }
            // A Finalize(Abandon) sent while the program was running: the replica has abandoned the earlier executions.
            Phase::Preparing(execution) | Phase::Finalizing(execution, _)
                if accepted == Proposal::Abandon && execution.eid == eid.saturating_add(1) =>
            {
                if let Some(part) = execution.participant(from) {
                    part.abandoned.insert(from);
                }
            }
            _ => {}
        }
    }

    /// A replica takes no part in the transaction, or does not any more.
    pub(super) fn on_refused(
        &mut self,
        from: NodeId,
        version: Version,
        refusal: Refusal,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        // A single replica's clock may be wrong.
        touch(&mut transaction.refused_by, from);
        let refusing = transaction.refused_by.iter().map(|(_, replicas)| replicas.len()).max();
        if refusal != Refusal::Superseded && refusing < Some(self.group.majority()) {
            if self.group.choice(0, self.preferred).member() == from.member() {
                self.preferred = (self.preferred + 1) % self.group.size();
            }
            self.ask_another_for_reads(version, |asked, _| asked == from, cx);
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
            Refusal::Ahead { clock_us } => {
                let is_led = self.lead.explains(version, cx.clock(), self.clock_bound_us);
                let own_us = match is_led {
                    true => own_us,
                    // If the client's clock has been set right since, its versions go on from where they were.
                    false => own_us.max(version.timestamp_us),
                };
                if is_led {
                    self.lead.end();
                }
                (own_us as i64).saturating_sub_unsigned(clock_us).max(0)
            }
        };
        let outcome = match ahead_us.unsigned_abs() > self.clock_bound_us {
            true => Outcome::ClockSkew { ahead_us },
            false => Outcome::Aborted { conflicts: Vec::new() },
        };
        self.conclude(version, Some(Decision::Abort), outcome, cx);
    }

    /// Asks a replica of the home partition how a transaction ended that another node decides on.
    pub(super) fn find_out(&mut self, version: Version, times: u32, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get(&version) else { return };
        let home = transaction.home.expect("what was prepared has a home");
        cx.send(
            self.group.choice(home, times as usize),
            Message::Request(Request::Inquire { version }),
        );
    }

    /// Somebody else has ended the transaction.
    pub(super) fn on_settled(
        &mut self,
        from: NodeId,
        version: Version,
        settlement: Settlement,
        cx: &mut Cx,
    ) {
        self.questions.on_settled(from, version, settlement, &self.group, cx);
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let committed = match settlement {
            Settlement::Committed { eid } => eid,
            // Elsewhere it may only mean that nothing is left to be done there. Others were told the same, so it is not tried
            // again at a later version.
            Settlement::Aborted if transaction.home.is_none_or(|home| home == from.partition()) => {
                transaction.superseded = true;
                self.abort(version, cx);
                return;
            }
            Settlement::Aborted => return self.on_refused(from, version, Refusal::Superseded, cx),
            Settlement::Forgotten => return self.conclude(version, None, Outcome::Unknown, cx),
        };
        match &transaction.phase {
            Phase::Preparing(execution) | Phase::Finalizing(execution, _)
                if execution.eid == committed =>
            {
                self.commit(version, cx);
            }
            _ => self.conclude(version, None, Outcome::Unknown, cx),
        }
    }

    /// The transaction has aborted under this version, durably.
    pub(super) fn abort(&mut self, version: Version, cx: &mut Cx) {
        if self.try_a_later_version(version, cx) {
            return;
        }
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        let mut conflicts = Vec::new();
        if let Phase::Preparing(execution) | Phase::Finalizing(execution, _) = &transaction.phase {
            conflicts = execution.conflicts.to_vec();
            if let (Some(us), Control::Ordering) = (execution.ahead_us, self.options.control) {
                self.lead.follow(us, cx.clock(), self.clock_bound_us);
            }
            let asked = |partition| self.group.choice(partition, self.preferred);
            let mut parts = execution.participants.iter();
            let majority = self.group.majority();
            let is_behind = |part: &Participant| {
                let mut reads = part.contents.reads.iter();
                let is_absent = reads.any(|read| read.found.write.tag == WriteId::INITIAL.tag);
                let asked = asked(part.partition);
                match self.options.control {
                    Control::Ordering => part.votes.is_behind(asked, is_absent, majority),
                    Control::Validation => part.votes.lacks_a_decision(asked),
                }
            };
            if execution.forgotten {
                // The replica that was asked has settled so little that others have forgotten more. It is behind until the next
                // truncation at least.
                self.ask_another(cx);
            } else if parts.clone().any(|part| is_behind(part) == Some(true)) {
                self.note_behind(cx);
            } else if parts.any(|part| is_behind(part).is_none()) {
                self.aborted_without_it = Some((version, execution.eid));
            }
        }
        self.conclude(version, Some(Decision::Abort), Outcome::Aborted { conflicts }, cx);
    }

    /// A vote on a transaction that has aborted: the replica that it has read from may have been the last to vote, and does
    /// not know what was in the way.
    fn on_late_vote(&mut self, from: NodeId, version: Version, eid: u32, vote: Vote, cx: &mut Cx) {
        let asked = self.group.choice(from.partition(), self.preferred) == from;
        let is_behind = match self.options.control {
            Control::Ordering => vote == Vote::Commit,
            Control::Validation => vote != Vote::AbandonFinal,
        };
        if asked && is_behind && self.aborted_without_it == Some((version, eid)) {
            self.aborted_without_it = None;
            self.note_behind(cx);
        }
    }

    /// Notes that the replica which a transaction has read from lacks something that was committed, and turns to another
    /// one. If only committed writes are read, that happens whenever a decision is on its way. So it counts only if it happens often.
    fn note_behind(&mut self, cx: &Cx) {
        let patience = match self.options.control {
            Control::Ordering => 0,
            Control::Validation => BEHIND_IN_A_ROW,
        };
        self.behind_in_a_row += 1;
        if self.behind_in_a_row > patience {
            self.behind_in_a_row = 0;
            self.ask_another(cx);
        }
    }

    /// Reads from another replica from now on, and does not return to the nearest for a while.
    fn ask_another(&mut self, cx: &Cx) {
        self.preferred = (self.preferred + 1) % self.group.size();
        self.avoided_until = cx.now() + AVOIDED_FOR;
    }
}
