//! The execution phase: reads, their changes, and writes that are seen before they are committed
//! (000 §4.2, "Execution" and "Re-Execution").
//!
//! # Which replica is asked
//! The nearest is asked until it does not answer in time. Then the next one is asked, for this read and all later ones. The
//! time of each read counts from when it was sent, because a transaction that reads one key after the other may take
//! longer than any single answer. If the time of the first read counted for all, the transaction would turn half way
//! from a replica that answers to one that is down, and might not end before it is too old for the truncation.

use core::time::Duration;
use std::collections::btree_map::Entry;

use serried_model::transactions::{Outcome, Output};
use serried_model::{Key, NodeId, ReadValue, TxnId, Version, Write};
use serried_parts::{Effect, WriteId};

use super::transaction::{Phase, ReadState, Transaction, touch};
use super::{Coordinator, Cx, Timer, patience};
use crate::morty::Control;
use crate::morty::message::{Decision, Message, Proposal, Request, Source};

/// A transaction begins to take changes that come fast together when so many of the values that it has
/// written are superseded by later ones of its own.
pub(in crate::morty) const REVISIONS_AT_ONCE: usize = 2;
/// A change within a round trip of the last one, or within this, comes fast.
const REWIND_AT_LEAST: Duration = Duration::from_millis(1);
/// How many transactions are kept, at most, that are to be aborted and whose session has gone.
const ORPHANS_AT_MOST: usize = 1 << 16;

impl Coordinator {
    pub(super) fn begin(&mut self, txn: TxnId, cx: &mut Cx) {
        let version = self.begin_for(Some(txn), cx);
        self.versions.insert(txn, version);
        cx.output((txn, Output::Began(version)));
    }

    /// Begins a transaction of a session, or one of the coordinator's own.
    pub(super) fn begin_for(&mut self, session: Option<TxnId>, cx: &mut Cx) -> Version {
        let after = self.lead.reaches(cx.clock());
        let version = self.clock.next_after(after, cx.id(), cx.clock());
        self.lead.took(version, cx.clock());
        let patience = patience(&self.group, 0);
        let transaction = Transaction::new(session, cx.now() + patience);
        self.transactions.insert(version, transaction);
        cx.set_timer(Timer::Repeat(version), patience);
        version
    }

    pub(super) fn on_get(&mut self, version: Version, key: Key, cx: &mut Cx) {
        let nearest = self.group.choice(self.group.partition_of(&key), self.preferred);
        self.get_at(nearest, version, key, cx);
    }

    /// Reads at this replica, and if it does not answer in time at others.
    pub(super) fn get_at(&mut self, replica: NodeId, version: Version, key: Key, cx: &mut Cx) {
        let asked = self.preferred + 1;
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Entry::Vacant(read) = transaction.reads.entry(key.clone()) else {
            return; // Asked for by an earlier run; its answer is on the way.
        };
        let patience = patience(&self.group, 0);
        let due = cx.now() + patience;
        read.insert(ReadState {
            found: None,
            stamp: 0,
            held: None,
            asked,
            repeated: 0,
            sent_at: cx.now(),
            due,
        });
        if self.options.control == Control::Ordering {
            transaction.touch(replica); // Under validation it keeps nothing of a read.
        }
        cx.send(replica, Message::Request(Request::Get { version, key }));
        transaction.abandon_while_running(version, &self.group, cx);
        self.wake(version, patience, cx);
    }

    pub(super) fn on_put(&mut self, version: Version, write: Write, cx: &mut Cx) {
        if self.options.control == Control::Validation {
            return; // Nobody reads it before it is committed. It is in the Prepare.
        }
        let all = self.group.all();
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Write { key, value } = write;
        let effect = Effect::Put(value);
        let (tag, changed) = transaction.tag(&key, &effect);
        if let (true, Effect::Put(value)) = (changed, effect) {
            let partition = self.group.partition_of(&key);
            transaction.touch_all(partition, all);
            let read = transaction.reads.get(&key);
            let rests_on = read.and_then(|read| Some(read.found.as_ref()?.latest()));
            cx.broadcast(
                partition,
                all,
                Message::Request(Request::Put { version, key, tag, rests_on, value }),
            );
        }
    }

    pub(super) fn on_rollback(&mut self, version: Version, cx: &mut Cx) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        if transaction.next_eid == 0 {
            // Nobody can have voted on it.
            let decision = (!transaction.touched.is_empty()).then_some(Decision::Abort);
            self.conclude(version, decision, Outcome::Aborted { conflicts: Vec::new() }, cx);
            return;
        }
        // It is finished even without a session, because other transactions may wait for it.
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

    pub(super) fn on_get_reply(
        &mut self,
        version: Version,
        mut new: ReadValue,
        source: Source,
        instead_of: Option<WriteId>,
        cx: &mut Cx,
    ) {
        let behind_us = self.behind_us(source.latest().version, cx);
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        let Some(read) = transaction.reads.get_mut(&new.key) else { return };
        match self.options.control {
            Control::Ordering if !source.is_sound(version) => {
                let from_future = format_args!(
                    "{version} was given {source:?}, from its own future or out of order"
                );
                return cx.reject(|| from_future.to_string());
            }
            // It would have to commit above that, in the future.
            Control::Validation if behind_us > 0 => {
                let ahead_us = i64::try_from(behind_us).map_or(i64::MIN, |us| -us);
                return self.conclude(version, None, Outcome::ClockSkew { ahead_us }, cx);
            }
            Control::Ordering | Control::Validation => {}
        }
        let Some(found) = &read.found else {
            if read.repeated == 0 {
                self.lead.answered(cx.now().since(read.sent_at));
            }
            (read.found, read.stamp) = (Some(source), read.stamp + 1);
            new.stamp = read.stamp;
            match transaction.session {
                Some(session) => cx.output((session, Output::Value(new))),
                None => self.seal(version, cx),
            }
            return;
        };
        let is_too_late = matches!(transaction.phase, Phase::Finalizing(_, Proposal::Commit));
        if is_too_late || self.options.control == Control::Validation {
            return; // Or a second replica was asked, and nothing is executed again.
        }
        let is_withdrawn =
            |from: &Source| instead_of.is_some_and(|old| from.of(old.version) == Some(old));
        let withdrawn = is_withdrawn(found);
        if read.held.as_ref().is_some_and(|(held, _)| is_withdrawn(held)) {
            read.held = None;
        }
        // Newer than what it has, or what it has is withdrawn. Everything else is late.
        let known = read.held.as_ref().map_or(found, |(held, _)| held);
        let differs = known.is_news_to(&source);
        if !withdrawn && !source.is_news_to(known) {
            return;
        }
        if read.held.as_ref().is_none_or(|(held, _)| source.is_news_to(held)) {
            read.held = Some((source, new.value));
        }
        // If replicas lack different modifications, each says what the other lacks, until they have them.
        // In a chain of transactions whose writes depend on what they read from each other, a change
        // runs through all behind it, and all but the last are for nothing: those that come within a
        // round trip are taken together. What was prepared meanwhile is lost only if it is withdrawn or
        // voted down.
        let interval = self.group.round_trip().max(REWIND_AT_LEAST);
        let due = transaction.rewound_at + interval;
        let holds = matches!(transaction.phase, Phase::Preparing(_))
            && (transaction.revisions() >= REVISIONS_AT_ONCE
                || differs
                || transaction.seals.is_some())
            && cx.now() < due
            && !withdrawn;
        match holds {
            true => cx.set_timer(Timer::Rewind(version), due.since(cx.now())),
            false => {
                self.rewind(version, cx);
            }
        }
    }

    /// Reports changed reads to a transaction's session. Returns whether there are any.
    pub(super) fn rewind(&mut self, version: Version, cx: &mut Cx) -> bool {
        let Some(transaction) = self.transactions.get_mut(&version) else { return false };
        if matches!(transaction.phase, Phase::Finalizing(_, Proposal::Commit)) {
            return false; // Too late: it may be durable that the execution commits as it is.
        }
        let Transaction { session, reads, phase, .. } = transaction;
        let mut rewound = false;
        for (key, read) in reads {
            let Some((source, value)) = read.held.take() else { continue };
            let latest = source.latest().version;
            (read.found, read.stamp) = (Some(source), read.stamp + 1);
            rewound = true;
            // Whether the current run has used the read, its session knows (000 §4.2,
            // "Re-Execution": is the reply's history a prefix of the current one?).
            if let Some(session) = session {
                let (key, stamp) = (key.clone(), read.stamp);
                phase.rewind(&key);
                let new = ReadValue { key, version: latest, value, stamp };
                cx.output((*session, Output::Rewind(new)));
            }
        }
        if rewound {
            transaction.rewound_at = cx.now();
            self.seal(version, cx);
        }
        rewound
    }

    /// Asks another replica for each unanswered read for which `is_for_another` holds, given the replica that was asked last.
    pub(super) fn ask_another_for_reads(
        &mut self,
        version: Version,
        is_for_another: impl Fn(NodeId, &ReadState) -> bool,
        cx: &mut Cx,
    ) {
        let Some(transaction) = self.transactions.get_mut(&version) else { return };
        for (key, read) in &mut transaction.reads {
            let partition = self.group.partition_of(key);
            let last = self.group.choice(partition, read.asked - 1);
            if read.found.is_some() || !is_for_another(last, read) {
                continue;
            }
            self.preferred = read.asked % self.group.size();
            let replica = self.group.choice(partition, read.asked);
            read.asked += 1;
            read.repeated += 1;
            read.due = cx.now() + patience(&self.group, read.repeated);
            if self.options.control == Control::Ordering {
                touch(&mut transaction.touched, replica);
            }
            cx.send(replica, Message::Request(Request::Get { version, key: key.clone() }));
        }
    }
}
