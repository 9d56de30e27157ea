//! Votes (000 §4.2, "Prepare").
//!
//! Voting crosses all components: it changes transactions and keys, is logged, and depends on how complete the state
//! is. So it belongs to the replica.

use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::execute::{observe_writes, refuse};
use super::key_record::Missed;
use super::transactions::{Execution, Sources};
use super::validate::{Validated, Validation};
use super::{Cx, Replica, reject};
use crate::morty::message::{
    Accepted, Conflict, Contents, LateVote, Message, Proposal, Refusal, Reply, View, Vote,
};
use crate::morty::record::Record;
use crate::morty::{Control, Mutation};

/// A provisional vote that waits for so many transactions, one after the other, is in no hurry.
const DEEP: u32 = 16;

impl Replica {
    pub(super) fn on_prepare(
        &mut self,
        version: Version,
        eid: u32,
        next_tag: u32,
        contents: Arc<Contents>,
        cx: &mut Cx,
    ) {
        if !self.admits(version, true, cx) {
            return;
        }
        if !self.setup.is_sound(version, self.setup.id.partition(), &contents) {
            let what = format_args!("a Prepare of {version} with what no transaction can do");
            return reject(version.coordinator, what, cx);
        }
        let mutation = self.setup.options.mutation;
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        undecided.heard = cx.now();
        if eid < undecided.abandoned_before {
            return; // Overtaken by what abandoned it.
        }
        let is_superseded = undecided.is_superseded() && !mutation.is(Mutation::LatePrepare);
        // Under validation the vote may be a late one, which its coordinator must not count.
        let may_repeat = !is_superseded || self.setup.options.control == Control::Ordering;
        if let Some(execution) = &undecided.execution
            && execution.eid == eid
            && may_repeat
        {
            // Repeated.
            if let Some(vote) = execution.vote {
                let conflict = execution.conflict.clone();
                let reply = Message::Reply(Reply::PrepareReply { version, eid, vote, conflict });
                cx.send(version.coordinator, reply);
            }
            self.confirm(version, cx);
            return;
        }
        if is_superseded {
            refuse(version, Refusal::Superseded, cx);
            return;
        }
        cx.charge(contents.source_count() + contents.writes.len());
        if self.setup.options.control == Control::Ordering {
            observe_writes(version, &contents, cx); // Otherwise they are seen when they are committed.
        }
        let keys = &mut self.state.keys;
        keys.prefetch(&contents);
        self.transactions.install(version, (eid, next_tag), contents, keys);
        self.vote(version, cx);
    }

    /// A recoverer knows of too few votes to commit an execution, and it may have committed nevertheless. This replica votes
    /// to commit it if it has not done so and nothing is in the way. [`crate::tapir`] says why that is safe although it has
    /// entered the recoverer's view. Below a truncation for which it has stopped it votes only in a ballot that is cleared
    /// ([`truncation`](super::truncation)).
    pub(super) fn vote_late(
        &mut self,
        from: NodeId,
        version: Version,
        late: LateVote,
        cx: &mut Cx,
    ) {
        let LateVote { eid, contents, missed_nothing_below, cleared } = late;
        if !self.setup.is_sound(version, self.setup.id.partition(), &contents) {
            let what = format_args!("what no transaction can do, to vote on {version}");
            return reject(from, what, cx);
        }
        let Some(undecided) = self.transactions.get(version) else { return };
        let execution = undecided.execution.as_ref();
        let voted = execution.filter(|execution| execution.eid == eid).and_then(|it| it.vote);
        let is_open = undecided.is_superseded() && undecided.abandoned_before <= eid;
        let has_stopped = version < self.truncation.stopped()
            && !cleared.is_some_and(|ballot| self.truncation.is_undecided_in(ballot));
        if has_stopped || !is_open || !matches!(voted, None | Some(Vote::AbandonTentative)) {
            return;
        }
        cx.charge(contents.reads.len() + contents.writes.len());
        let next_tag = undecided.next_tag;
        self.transactions.install(version, (eid, next_tag), contents, &mut self.state.keys);
        self.decide_vote(version, (voted, Version::at(missed_nothing_below)), cx);
    }

    /// What a recoverer receives as this replica's vote, and below which version the execution's reads have missed nothing that
    /// has committed, in microseconds. Only under validation this can be more than what it has voted: if it has learned since
    /// that a write which they have missed has committed, the transaction has not, and never will.
    pub(super) fn testify(&mut self, version: Version, cx: &mut Cx) -> (Option<Vote>, u64) {
        let undecided = self.transactions.get(version);
        let Some(execution) = undecided.and_then(|undecided| undecided.execution.as_ref()) else {
            return (None, 0);
        };
        let (vote, contents) = (execution.vote, execution.contents.clone());
        if self.setup.options.control == Control::Ordering {
            return (vote, 0);
        }
        match self.validation().missed_by_reads(version, &contents, cx) {
            None => (vote, self.state.progress.watermark().timestamp_us),
            Some(Missed::ForGood) if !self.catch_up.may_lack_something() => {
                (Some(Vote::AbandonFinal), 0)
            }
            Some(_) => (vote, 0),
        }
    }

    /// Validates the transaction's execution, and votes unless it has to wait.
    fn vote(&mut self, version: Version, cx: &mut Cx) {
        let last = (None, Version::INITIAL);
        let Some((eid, vote, conflict)) = self.decide_vote(version, last, cx) else { return };
        let reply = Message::Reply(Reply::PrepareReply { version, eid, vote, conflict });
        let execution = self.transactions.get(version).and_then(|open| open.execution.as_ref());
        let is_deep = execution.is_some_and(|execution| execution.depth >= DEEP);
        self.send_vote(version, reply, vote == Vote::Provisional && is_deep, cx);
    }

    /// Validates the transaction's execution, and enters and logs this replica's vote on it, unless it has to wait. `last` is
    /// the vote on it that is in the log. Another replica has found that its reads have missed nothing that has committed below
    /// `missed_nothing_below`.
    fn decide_vote(
        &mut self,
        version: Version,
        (last, missed_nothing_below): (Option<Vote>, Version),
        cx: &mut Cx,
    ) -> Option<(u32, Vote, Option<Conflict>)> {
        let undecided = self.transactions.get(version).expect("a transaction to vote on");
        let next_tag = undecided.next_tag;
        let execution = undecided.execution.as_ref().expect("an execution to vote on");
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let mut validation = Validation { missed_nothing_below, ..self.validation() };
        let validated = validation.validate(version, &contents, cx);
        self.notify(cx);
        let Some(Validated { vote, conflict, unconfirmed }) = validated else {
            self.log_abandonment(version, eid, cx);
            return None;
        };
        let vote = match vote {
            // A version that it can't find may have been overwritten or deleted after the reader had read it.
            // If it is asked again later, it may vote AbandonFinal.
            Vote::AbandonFinal if self.catch_up.may_lack_something() => Vote::AbandonTentative,
            vote => vote,
        };
        if vote == Vote::Commit && self.setup.options.mutation.is(Mutation::ExecutesBeforeCommit) {
            for read in contents.reads.iter().filter(|read| !read.found.modified.is_empty()) {
                let record = self.state.keys.load(&read.key, cx.store());
                record.committed.execute_latest_before(version);
            }
        }
        let (control, keys) = (self.setup.options.control, &mut self.state.keys);
        self.transactions.prepare(version, (vote, conflict.clone()), control, keys);
        let some_are_confirmed = unconfirmed.len() < contents.source_count();
        let depth = self.transactions.depth(&contents, &unconfirmed);
        self.transactions.note_depth(version, depth);
        if last != Some(vote) {
            self.log.append(Record::Voted { version, eid, next_tag, vote, contents }, cx);
            self.transactions.logged(version, cx.log_position());
        }
        if vote == Vote::Provisional {
            self.wait_with(version, eid, unconfirmed, some_are_confirmed, cx);
        }
        Some((eid, vote, conflict))
    }

    fn validation(&mut self) -> Validation<'_> {
        let Replica { transactions, state, setup, .. } = self;
        Validation { transactions, state, setup, missed_nothing_below: Version::INITIAL }
    }

    /// The execution has to wait, and there is no vote to log. What earlier executions had prepared is released already, so
    /// the log has to say that they are abandoned.
    fn log_abandonment(&mut self, version: Version, eid: u32, cx: &mut Cx) {
        if let Some(before) = eid.checked_sub(1) {
            let (view, decision) = (View::OWN, Proposal::Abandon);
            let accepted = Accepted { view, eid: before, decision };
            self.log.append(Record::Accepted { version, accepted }, cx);
        }
    }

    /// Sends a vote, once it is durable.
    fn send_vote(&self, version: Version, reply: Message, is_unhurried: bool, cx: &mut Cx) {
        if self.setup.options.mutation.is(Mutation::VotesBeforeDurable) {
            cx.send_before_durable(version.coordinator, reply);
        } else if is_unhurried {
            cx.send_unhurried(version.coordinator, reply);
        } else {
            cx.send(version.coordinator, reply);
        }
    }

    /// Notes which writes a provisional vote waits for. What was committed as it was read remains so, even when the replica
    /// has forgotten it: a delete, for instance, that all replicas know. Without this note no replica might be able to say at
    /// the end that the transaction may commit, or that it may not. `log` says whether to log it.
    fn wait_with(&mut self, version: Version, eid: u32, sources: Sources, log: bool, cx: &mut Cx) {
        if self.transactions.wait_with(version, sources.clone()) && log {
            self.log.append(Record::Waits { version, eid, sources: sources.to_vec() }, cx);
        }
    }

    /// A transaction that the execution has read from is decided. If it was the last one, this replica sends its final
    /// vote after a provisional one, or votes now if it had waited.
    pub(super) fn confirm(&mut self, version: Version, cx: &mut Cx) {
        let Some(undecided) = self.transactions.get(version) else { return };
        let Some(execution) = &undecided.execution else { return };
        match execution.vote {
            // A recoverer may have asked about the transaction while it waited. A vote would come too late.
            None if undecided.is_superseded() => return,
            None => return self.vote(version, cx),
            Some(Vote::Provisional) => {}
            Some(_) => return,
        }
        let (eid, contents) = (execution.eid, execution.contents.clone());
        let waits_for = execution.unconfirmed.clone();
        let Validated { vote, conflict, unconfirmed } =
            self.validation().validate_sources(version, &contents, Some(&waits_for), None, cx);
        self.notify(cx);
        match vote {
            // The coordinator may have counted the provisional vote already, with another replica's vote to commit.
            Vote::Provisional | Vote::AbandonTentative => {
                return self.wait_with(version, eid, unconfirmed, true, cx);
            }
            Vote::AbandonFinal
                if self.catch_up.may_lack_something()
                    && self.validation().aborted_read(&contents).is_none() =>
            {
                return;
            }
            _ => {}
        }
        self.settle_vote(version, eid, vote, conflict, cx);
    }

    /// If an execution with a provisional vote has read from a transaction that has aborted, this replica sends its final vote.
    /// It does so as soon as it hears of the abort, unless the vote waits for earlier transactions.
    pub(super) fn vote_on_abort(&mut self, version: Version, cx: &mut Cx) {
        let undecided = self.transactions.get(version);
        let execution = undecided.and_then(|undecided| undecided.execution.as_ref());
        let is_provisional = |it: &&Execution| it.vote == Some(Vote::Provisional);
        let Some(execution) = execution.filter(is_provisional) else { return };
        let (eid, contents) = (execution.eid, execution.contents.clone());
        if let Some(key) = self.validation().aborted_read(&contents) {
            let conflict = Some(Conflict::over(key.clone()));
            self.settle_vote(version, eid, Vote::AbandonFinal, conflict, cx);
        }
    }

    /// Sends the final vote after a provisional one.
    fn settle_vote(
        &mut self,
        version: Version,
        eid: u32,
        vote: Vote,
        conflict: Option<Conflict>,
        cx: &mut Cx,
    ) {
        let keys = &mut self.state.keys;
        let logged_at = self.transactions.settle_vote(version, eid, vote, conflict.clone(), keys);
        self.log.append(Record::Confirmed { version, eid, vote }, cx);
        let reply = Message::Reply(Reply::PrepareReply { version, eid, vote, conflict });
        let is_careless = self.setup.options.mutation.is(Mutation::ConfirmsBeforeDurable);
        if vote == Vote::Commit && (logged_at <= cx.durable_position() || is_careless) {
            // The provisional vote is durable, and a recoverer that finds it counts it like this one ("Invariants").
            cx.send_before_durable(version.coordinator, reply);
        } else {
            self.send_vote(version, reply, false, cx);
        }
    }
}
