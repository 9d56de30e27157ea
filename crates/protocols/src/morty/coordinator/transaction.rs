//! A transaction that its coordinator has not decided yet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serried_actor::{Group, NodeSet, Timestamp};
use serried_model::{Key, NodeId, TxnId, Value, Version};
use serried_parts::Effect;
use smallvec::SmallVec;

use super::Cx;
use super::admission::Asking;
use super::prepared::PreparedExecution;
use super::sealing::Seal;
use crate::morty::message::{Decision, Message, Proposal, Request, Source};
use crate::morty::votes::Tally;

/// A transaction that is not decided.
#[derive(Debug)]
pub(super) struct Transaction {
    /// Its session, unless that has gone, or the coordinator began it to seal a key.
    pub session: Option<TxnId>,
    /// What it seals.
    pub seals: Option<Seal>,
    pub reads: BTreeMap<Key, ReadState>,
    /// What was last written to each key, by whichever run, with its tag.
    pub writes: BTreeMap<Key, (u32, Effect)>,
    pub next_tag: u32,
    /// The next execution to be prepared.
    pub next_eid: u32,
    /// The partition that chooses which of its executions may commit. It is that of the first key which the first prepared
    /// execution writes, or of the first key that it reads if it writes nothing. It takes part in all executions.
    pub home: Option<u16>,
    /// Replicas that have been sent something.
    pub touched: Touched,
    pub phase: Phase,
    /// Another node is deciding on it, and is asked for the outcome.
    pub superseded: bool,
    /// Replicas that take no part in it.
    pub refused_by: Touched,
    /// When a changed read was last reported to its session.
    pub rewound_at: Timestamp,
    /// When to repeat the messages of the commit protocol. Each read has a time of its own.
    pub repeat_at: Timestamp,
    pub repeated: u32,
    /// For when its timer is set.
    pub wakes_at: Timestamp,
}

#[derive(Debug)]
pub(super) struct ReadState {
    /// What was found, once something was.
    pub found: Option<Source>,
    /// How many answers were given to its session.
    pub stamp: u32,
    /// A newer answer that was not given to its session yet.
    pub held: Option<(Source, Option<Value>)>,
    /// The replica to ask next, by its place in the order of distance.
    pub asked: usize,
    /// How often another replica was asked.
    pub repeated: u32,
    /// When the first replica was asked.
    pub sent_at: Timestamp,
    /// How long the replica that was asked last has time to answer.
    pub due: Timestamp,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The program runs, and no execution is in the commit protocol.
    Executing,
    /// The first execution is ready, and the replicas are asked whether they admit the transaction.
    Asking(Asking),
    /// An execution is in the commit protocol.
    Preparing(PreparedExecution),
    /// A decision on it is being made durable.
    Finalizing(PreparedExecution, Proposal),
    /// One of its reads has changed, and the program runs again. The coordinator never proposes to commit this
    /// execution any more; the next Prepare abandons it.
    Abandoned(PreparedExecution),
}

/// Replicas of one or a few partitions.
pub(super) type Touched = SmallVec<[(u16, NodeSet); 1]>;

pub(super) fn touch(touched: &mut Touched, replica: NodeId) {
    touch_all(touched, replica.partition(), [replica].into_iter().collect());
}

pub(super) fn touch_all(touched: &mut Touched, partition: u16, replicas: NodeSet) {
    match touched.iter_mut().find(|(other, _)| *other == partition) {
        Some((_, those)) => *those = those.union(replicas),
        None => touched.push((partition, replicas)),
    }
}

impl Transaction {
    pub(super) fn new(session: Option<TxnId>, repeat_at: Timestamp) -> Transaction {
        Transaction {
            session,
            seals: None,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            next_tag: 1,
            next_eid: 0,
            home: None,
            touched: Touched::new(),
            phase: Phase::Executing,
            superseded: false,
            refused_by: Touched::new(),
            rewound_at: Timestamp::default(),
            repeat_at,
            repeated: 0,
            wakes_at: repeat_at,
        }
    }

    /// When the next unanswered message is due to be repeated.
    pub(super) fn next_repeat(&self) -> Timestamp {
        let unanswered = self.reads.values().filter(|read| read.found.is_none());
        unanswered.map(|read| read.due).fold(self.repeat_at, Timestamp::min)
    }

    pub(super) fn touch(&mut self, replica: NodeId) {
        touch(&mut self.touched, replica);
    }

    pub(super) fn touch_all(&mut self, partition: u16, replicas: NodeSet) {
        touch_all(&mut self.touched, partition, replicas);
    }

    /// The tag of a write, and whether it is new: what was last done to the key keeps its tag.
    pub(super) fn tag(&mut self, key: &Key, effect: &Effect) -> (u32, bool) {
        let tag = self.next_tag;
        match self.writes.entry(key.clone()) {
            Entry::Occupied(old) if old.get().1 == *effect => return (old.get().0, false),
            Entry::Occupied(mut old) => *old.get_mut() = (tag, effect.clone()),
            Entry::Vacant(new) => {
                new.insert((tag, effect.clone()));
            }
        }
        self.next_tag += 1;
        (tag, true)
    }

    /// How many of the values that it has written were superseded by later ones of its own.
    pub(super) fn revisions(&self) -> usize {
        self.next_tag as usize - 1 - self.writes.len()
    }

    /// The program runs again and waits for a read that it has not made before. Until it ends, the
    /// execution that was prepared only stands in others' way.
    pub(super) fn abandon_while_running(&mut self, version: Version, group: &Group, cx: &mut Cx) {
        let Phase::Abandoned(execution) = &mut self.phase else { return };
        if core::mem::replace(&mut execution.told, true) {
            return;
        }
        if execution.tally() != Tally::AbandonFast {
            execution.send_finalize(version, Proposal::Abandon, group, cx);
            return;
        }
        for part in &execution.participants {
            let (eid, decision) = (execution.eid, Decision::Abandon);
            let message =
                Message::Request(Request::Decide { version, eid, decision, contents: None });
            cx.broadcast(part.partition, group.all(), message);
        }
    }
}

impl Phase {
    /// The execution in the commit protocol.
    pub(super) fn execution(&mut self) -> Option<&mut PreparedExecution> {
        match self {
            Phase::Executing | Phase::Asking(_) => None,
            Phase::Preparing(execution)
            | Phase::Finalizing(execution, _)
            | Phase::Abandoned(execution) => Some(execution),
        }
    }

    /// A changed read is reported to the session. The execution in the commit protocol is abandoned if it made that read.
    pub(super) fn rewind(&mut self, key: &Key) {
        let rests_on_it = |execution: &PreparedExecution| {
            let mut parts = execution.participants.iter();
            parts.any(|part| part.contents.reads.iter().any(|read| read.key == *key))
        };
        *self = match core::mem::replace(self, Phase::Executing) {
            Phase::Preparing(execution) if rests_on_it(&execution) => Phase::Abandoned(execution),
            Phase::Finalizing(mut execution, Proposal::Abandon) if rests_on_it(&execution) => {
                execution.told = true;
                Phase::Abandoned(execution)
            }
            phase => phase,
        };
    }
}
