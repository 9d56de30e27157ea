//! What comes before a transaction: it is found when the transaction is taken on, and learned from others.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::message::{
    Ancestors, Commit, Edge, Entry, Inquired, Kind, Message, NotAccepted, PreAccept, Reply,
    Request, Task, Vertex, Work,
};
use super::super::table::HowExecuted;
use super::live::Live;
use super::{Cx, Replica};
use crate::frameworks::chopped::order::Known;

/// How many transactions are taken on and not executed. A further one is dropped, unless another partition has taken it
/// on, and its coordinator repeats it.
const LIVE_AT_MOST: usize = 65_536;

impl Replica {
    pub(super) fn on_pre_accept(&mut self, from: NodeId, pre_accept: PreAccept, cx: &mut Cx<'_>) {
        let PreAccept { txn, work, insist } = pre_accept;
        if let Some(live) = self.live.get_mut(&txn) {
            if live.work != work {
                return cx.reject(|| format!("{from} has sent other work of {txn}"));
            }
            live.heard = cx.now();
        } else if !self.table.has_begun(txn) {
            match self.refusal(txn, &work, insist) {
                Ok(()) => {}
                Err(Some(why)) => return self.reply(from, Reply::NotAccepted { txn, why }, cx),
                Err(None) => return, // It comes again.
            }
            if !self.is_call_of_set(&work) {
                return cx.reject(|| format!("{from} has sent a call that no set in use has"));
            }
            self.take_on(txn, work, cx);
        }
        let edges = match self.live.get(&txn) {
            Some(live) => live.edges.clone(),
            None => match self.table.txn(txn, cx.store()) {
                Some(state) => state.edges.clone(),
                None => return,
            },
        };
        let ancestors = self.ancestors(edges.iter().map(|edge| edge.from), cx);
        self.reply(from, Reply::PreAccepted { txn, edges, ancestors }, cx);
    }

    /// Whether a transaction that is not known can be taken on; if not, why, or nothing if it may be possible soon.
    fn refusal(&self, txn: Version, work: &Work, insist: bool) -> Result<(), Option<NotAccepted>> {
        let window = self.table.window();
        if txn.timestamp_us < window.forget_us {
            return Err(Some(NotAccepted::Forgotten));
        }
        if let Task::Call(of) = &work.task {
            let version = self.table.version();
            if of.set > version {
                return Err(None); // The registration of that set has not been executed here yet.
            }
            if of.set < version && !insist {
                return Err(Some(NotAccepted::OtherSet));
            }
        }
        match insist {
            true => Ok(()),
            false if txn.timestamp_us < window.from_us => {
                Err(Some(NotAccepted::Late { from_us: window.from_us }))
            }
            false if self.live.len() >= LIVE_AT_MOST => Err(None),
            false => Ok(()),
        }
    }

    /// Whether this is no call, one of the set in use with its participants, or one of another set. That one will do
    /// nothing.
    fn is_call_of_set(&self, work: &Work) -> bool {
        match (&work.task, self.table.set()) {
            (Task::Call(of), Some(set)) if of.set == set.version() => {
                set.call(of).is_some() && set.participants(of, &self.group) == work.participants
            }
            _ => true,
        }
    }

    /// Takes a transaction on: finds those that come before it, and has all that recorded.
    fn take_on(&mut self, txn: Version, work: Arc<Work>, cx: &mut Cx<'_>) {
        let mut before = BTreeSet::new();
        self.use_rows(txn, &work, &mut |other| {
            before.insert(other);
        });
        if self.mutation.is(Mutation::ForgetsEdges) {
            before.clear();
        }
        let at = cx.id().partition();
        let edge = |from| Edge { from, kind: Kind::Deferred, at };
        let edges: Vec<Edge> = before.into_iter().map(edge).collect();
        let began = cx.log_position();
        self.record(Entry::Begin { txn, work: work.clone(), edges: edges.clone() }, cx);
        self.live.insert(txn, Live::new(work, edges, began, cx.now()));
    }

    /// Notes which rows a transaction may use here, and passes the transactions to `each` that do so already.
    pub(super) fn use_rows(&mut self, txn: Version, work: &Work, each: &mut impl FnMut(Version)) {
        match &work.task {
            Task::Register { .. } => {
                self.live.keys().filter(|other| **other != txn).for_each(|other| each(*other));
                self.registrations.insert(txn);
            }
            Task::Call(of) => {
                self.registrations.iter().for_each(|other| each(*other));
                let Some(set) = self.table.set().filter(|set| set.version() == of.set) else {
                    return; // It will do nothing.
                };
                for (row, used) in set.rows(of, self.id.partition(), &self.group) {
                    self.accesses.add(txn, Kind::Deferred, &row, used, &mut |other, _| each(other));
                }
            }
        }
    }

    pub(super) fn on_commit(
        &mut self,
        from: NodeId,
        Commit { vertex, ancestors }: &Commit,
        cx: &mut Cx<'_>,
    ) {
        let txn = vertex.txn;
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
            if !live.committers.contains(&from) {
                live.committers.push(from);
            }
            self.learn(ancestors, Some(vertex), cx);
        } else if self.table.has_begun(txn) {
            self.answer_commit(from, txn, cx);
        } else if txn.timestamp_us < self.table.window().forget_us {
            let why = NotAccepted::Forgotten;
            self.reply(from, Reply::NotAccepted { txn, why }, cx);
        }
    }

    /// Reports what came of a transaction that was executed.
    pub(super) fn answer_commit(&mut self, to: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let Some(state) = self.table.txn(txn, cx.store()) else { return };
        if let Some(end) = state.end.clone().filter(|_| state.is_executed) {
            let results = state.results.clone();
            self.reply(to, Reply::Executed { txn, end, results }, cx);
        }
    }

    /// Learns of transactions, and executes what has become possible.
    fn learn(
        &mut self,
        Ancestors { commit, cycles, executed }: &Ancestors,
        own: Option<&Vertex>,
        cx: &mut Cx<'_>,
    ) {
        let mut open = Vec::new();
        for txn in executed {
            if !self.live.contains_key(txn) && !self.running.contains_key(txn) {
                self.graph.decide(*txn);
                open.push(*txn);
            }
        }
        for cycle in cycles {
            let members: Arc<[Version]> = cycle.iter().map(|vertex| vertex.txn).collect();
            for txn in members.iter() {
                if !self.is_decided(*txn) && !self.running.contains_key(txn) {
                    self.graph.is_on_cycle(*txn, members.clone());
                    open.push(*txn);
                }
            }
        }
        let on_cycles = cycles.iter().flat_map(|cycle| cycle.iter());
        for vertex in commit.iter().chain(on_cycles).chain(own) {
            if !self.is_decided(vertex.txn) && self.graph.commit(vertex) {
                open.push(vertex.txn);
            }
        }
        for txn in &open {
            self.answer_askers(*txn, cx);
        }
        self.execute_all(open, cx);
    }

    /// What is known of a transaction.
    pub(super) fn known(&self, txn: Version) -> Known<'_> {
        if self.is_decided(txn) {
            return Known::Decided;
        }
        if self.running.contains_key(&txn) {
            // Others wait until its whole group is executed.
            return match self.mutation.is(Mutation::HoldsNoPlace) {
                true => Known::Decided,
                false => Known::Open,
            };
        }
        match self.graph.known(txn) {
            Known::Open
                if !self.live.contains_key(&txn)
                    && self.mutation.is(Mutation::IgnoresOtherServers) =>
            {
                Known::Decided
            }
            known => known,
        }
    }

    fn is_decided(&self, txn: Version) -> bool {
        if self.live.contains_key(&txn) {
            return false;
        }
        self.graph.is_decided(txn) || self.table.has_begun(txn)
    }

    /// Asks the server of another partition for an ancestor, unless it was asked lately.
    pub(super) fn ask(&mut self, txn: Version, at: u16, cx: &mut Cx<'_>) {
        if at == cx.id().partition() {
            return; // A forged edge: it would be known here.
        }
        let again = 2 * self.group.round_trip() + Duration::from_millis(50);
        let now = cx.now();
        if self.asked.get(&txn).is_some_and(|asked| now.since(*asked) < again) {
            return;
        }
        self.asked.insert(txn, now);
        self.send(at, Request::Ask { txn }, cx);
    }

    pub(super) fn on_ask(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let askers = self.askers.entry(txn).or_default();
        if !askers.contains(&from) {
            askers.push(from);
        }
        self.answer_askers(txn, cx);
        if !self.live.contains_key(&txn) {
            // It is not known, and the question comes again.
            self.askers.remove(&txn);
        }
    }

    /// Answers questions for a transaction, if it commits or has been executed.
    pub(super) fn answer_askers(&mut self, txn: Version, cx: &mut Cx<'_>) {
        if !self.askers.contains_key(&txn) {
            return;
        }
        let ancestors = self.ancestors([txn].into_iter(), cx);
        if ancestors == Ancestors::default() {
            return;
        }
        for to in self.askers.remove(&txn).into_iter().flatten() {
            let ancestors = ancestors.clone();
            cx.send(to, Message::Reply(Reply::Status { txn, ancestors }));
        }
    }

    pub(super) fn on_status(&mut self, txn: Version, ancestors: &Ancestors, cx: &mut Cx<'_>) {
        self.asked.remove(&txn);
        self.learn(ancestors, None, cx);
    }

    /// What is known of these transactions, and of others before them: that they commit, or have been executed.
    fn ancestors(&mut self, txns: impl Iterator<Item = Version>, cx: &mut Cx<'_>) -> Ancestors {
        let mut open: Vec<Version> = txns.collect();
        let mut known = BTreeSet::new();
        let mut ancestors = Ancestors::default();
        while let Some(txn) = open.pop() {
            if !known.insert(txn) {
                continue;
            }
            if let Some(vertex) = self.graph.vertex(txn) {
                open.extend(vertex.edges.iter().map(|edge| edge.from));
                ancestors.commit.push(vertex.clone());
            } else if self.table.has_begun(txn) {
                match self.table.executed(txn, cx.store()) {
                    None => {}
                    Some(HowExecuted::Alone) => ancestors.executed.push(txn),
                    Some(HowExecuted::OnCycle(cycle)) => {
                        known.extend(cycle.iter().map(|vertex| vertex.txn));
                        ancestors.cycles.push(cycle);
                    }
                }
            } else if txn.timestamp_us < self.table.window().forget_us {
                ancestors.executed.push(txn);
            }
        }
        ancestors
    }

    pub(super) fn on_inquire(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let window = self.table.window();
        let known = match self.table.txn(txn, cx.store()).map(|state| state.work.clone()) {
            Some(work) => Inquired::Begun(work),
            None if txn.timestamp_us < window.forget_us => Inquired::Forgotten,
            None => Inquired::Unknown { from_us: window.from_us },
        };
        self.reply(from, Reply::Known { txn, known }, cx);
    }
}
