//! Sends decisions to the replicas until all of them have acknowledged them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::{Group, NodeSet, Timestamp};
use serried_model::transactions::{Outcome, Output};
use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use super::transaction::Phase;
use super::{Coordinator, Cx, Timer, patience};
use crate::morty::message::{Contents, Decision, Message, Request};

/// How many decided transactions are kept to be repeated to replicas that have not acknowledged
/// them. Beyond that the oldest is dropped: such a replica has been away for long.
const UNACKNOWLEDGED_AT_MOST: usize = 1 << 18;
/// How many of them are repeated at once.
const REPEAT_DECISIONS: usize = 256;

/// The decisions that some replicas have not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    decisions: BTreeMap<Version, Decided>,
    timer_is_set: bool,
}

#[derive(Debug)]
struct Decided {
    eid: u32,
    /// What is sent to each partition, and which replicas have not acknowledged it.
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

impl Coordinator {
    /// The transaction is over: reports that to its session, and to the replicas that know of it.
    pub(super) fn conclude(
        &mut self,
        version: Version,
        decision: Option<Decision>,
        outcome: Outcome,
        cx: &mut Cx,
    ) {
        let transaction = self.transactions.get(&version).expect("a transaction in progress");
        if let Some(session) = transaction.session {
            self.versions.remove(&session);
            cx.output((session, Output::Outcome(outcome)));
        }
        self.settle(version, decision, cx);
    }

    /// The transaction is over under this version: reports that to the replicas that know of it.
    pub(super) fn settle(&mut self, version: Version, decision: Option<Decision>, cx: &mut Cx) {
        let transaction = self.transactions.remove(&version).expect("a transaction in progress");
        self.orphans.remove(&version);
        if let Some(seal) = &transaction.seals {
            self.sealing.remove(&seal.key);
            cx.cancel_timer(Timer::Seal(version));
        }
        cx.cancel_timer(Timer::Repeat(version));
        cx.cancel_timer(Timer::Rewind(version));
        let Some(decision) = decision else { return };
        let (eid, mut participants) = match transaction.phase {
            Phase::Executing | Phase::Asking(_) => (0, SmallVec::new()),
            Phase::Preparing(execution)
            | Phase::Finalizing(execution, _)
            | Phase::Abandoned(execution) => {
                cx.cancel_timer(Timer::FastPath(version));
                (execution.eid, execution.participants)
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
        self.unacknowledged.add(version, eid, parts, &self.group, cx);
    }
}

impl Unacknowledged {
    /// Repeats a decision until all replicas in `parts` have acknowledged it.
    fn add(
        &mut self,
        version: Version,
        eid: u32,
        parts: SmallVec<[DecidedPart; 1]>,
        group: &Group,
        cx: &mut Cx,
    ) {
        if parts.is_empty() {
            return;
        }
        let patience = patience(group, 0);
        let repeat_at = cx.now() + patience;
        self.decisions.insert(version, Decided { eid, parts, repeat_at, repeated: 0 });
        if self.decisions.len() > UNACKNOWLEDGED_AT_MOST {
            self.decisions.pop_first();
        }
        if !self.timer_is_set {
            self.timer_is_set = true;
            cx.set_timer(Timer::RepeatDecisions, patience);
        }
    }

    pub(super) fn on_acknowledge(&mut self, from: NodeId, versions: Vec<Version>) {
        let partition = from.partition();
        let from: NodeSet = [from].into_iter().collect();
        for version in versions {
            let Some(decided) = self.decisions.get_mut(&version) else { continue };
            for part in decided.parts.iter_mut().filter(|part| part.partition == partition) {
                part.missing = part.missing.without(from);
            }
            if decided.parts.iter().all(|part| part.missing.is_empty()) {
                self.decisions.remove(&version);
            }
        }
    }

    pub(super) fn repeat(&mut self, group: &Group, cx: &mut Cx) {
        self.timer_is_set = !self.decisions.is_empty();
        if !self.timer_is_set {
            return;
        }
        let (now, first) = (cx.now(), patience(group, 0));
        let due = self.decisions.iter_mut().filter(|(_, decided)| decided.repeat_at <= now);
        for (version, decided) in due.take(REPEAT_DECISIONS) {
            for part in decided.parts.iter().filter(|part| !part.missing.is_empty()) {
                let message = decide(*version, decided.eid, &part.contents, true);
                cx.broadcast(part.partition, part.missing, message);
            }
            decided.repeated += 1;
            decided.repeat_at = now + patience(group, decided.repeated);
        }
        cx.set_timer(Timer::RepeatDecisions, first);
    }
}

/// The message about a transaction that has ended: `contents` commit, or nothing does.
fn decide(version: Version, eid: u32, contents: &Option<Arc<Contents>>, in_full: bool) -> Message {
    let decision = if contents.is_some() { Decision::Commit } else { Decision::Abort };
    let contents = if in_full { contents.clone() } else { None };
    Message::Request(Request::Decide { version, eid, decision, contents })
}
