//! The agreement on what comes before a transaction: what a replica promises, reports and accepts.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::message::{
    Accept, Ancestors, Ballot, Commit, Dependencies, Edge, End, Entry, Kind, NotAccepted, Part,
    PreAccept, PreAccepted, Reply, Results, Task, Vertex, Work,
};
use super::super::table::Vote;
use super::live::Live;
use super::{Cx, Replica};
use crate::frameworks::chopped::{ANCESTORS_AT_MOST, EDGES_AT_MOST};

/// How many transactions are taken on and not executed. A further one is dropped, unless another replica has taken it
/// on, and its coordinator repeats it.
const LIVE_AT_MOST: usize = 65_536;

impl Replica {
    pub(super) fn on_pre_accept(&mut self, from: NodeId, pre_accept: PreAccept, cx: &mut Cx<'_>) {
        let PreAccept { txn, work, insist, ballot } = pre_accept;
        if !self.votes() {
            return;
        }
        if let Some(reply) = self.decided(txn, work.is_none(), cx) {
            return self.reply(from, reply, cx);
        }
        let (known, vote) = match self.table.txn(txn, cx.store()) {
            Some(state) => (state.work.clone(), state.vote.clone()),
            None => (None, Vote::default()),
        };
        if vote.promised > ballot {
            return self.reply(from, Reply::Promised { txn, ballot: vote.promised }, cx);
        }
        // A later attempt goes on all the same. If each of three replicas has other work, none finds a majority for its own.
        let is_first = ballot == Ballot::FIRST;
        if is_first && work.is_some() && known.is_some() && work != known {
            return cx.reject(|| format!("{from} has sent other work of {txn}"));
        }
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
        }
        let mut is_closed = false;
        if vote.dependencies.is_none() {
            let is_new = known.is_none();
            match known.or(work) {
                _ if insist && self.is_settled(txn) && !self.table.has_begun(txn) => {
                    let why = NotAccepted::Forgotten;
                    return self.reply(from, Reply::NotAccepted { txn, why }, cx);
                }
                None => {}
                Some(_) if insist && txn.timestamp_us < self.table.window().closed_us => {
                    is_closed = true;
                }
                Some(work) => {
                    match self.refusal(txn, &work, insist || !is_new) {
                        Ok(()) => {}
                        Err(Some(why)) => {
                            return self.reply(from, Reply::NotAccepted { txn, why }, cx);
                        }
                        Err(None) => return, // It comes again.
                    }
                    if !self.is_call_of_set(&work) {
                        return cx
                            .reject(|| format!("{from} has sent a call that no set in use has"));
                    }
                    self.take_on(txn, work, ballot, cx);
                }
            }
        }
        self.report_vote(from, txn, ballot, is_closed, cx);
    }

    /// Promises to take part in no earlier attempt, and reports what is known of the transaction.
    fn report_vote(
        &mut self,
        to: NodeId,
        txn: Version,
        ballot: Ballot,
        is_closed: bool,
        cx: &mut Cx<'_>,
    ) {
        let promised = self.table.txn(txn, cx.store()).map(|state| state.vote.promised);
        if promised.is_none_or(|promised| promised < ballot) {
            self.record(Entry::Promise { txn, ballot }, cx);
            self.want_work(txn, cx);
        }
        let Some(state) = self.table.txn(txn, cx.store()) else { return };
        let Vote { dependencies, mut accepted, .. } = state.vote.clone();
        if self.mutation.is(Mutation::ReportsNothingAccepted) {
            accepted = None;
        }
        let work = state.work.clone();
        let edges = dependencies.iter().flat_map(|known| known.edges.iter());
        let before: Vec<Version> =
            edges.flat_map(|edges| edges.iter()).map(|edge| edge.from).collect();
        // The replicas of the own partition find out what comes before by themselves.
        let is_local = work.as_ref().is_some_and(|work| work.participants.len() == 1);
        let ancestors = match is_local {
            true => Ancestors::default(),
            false => self.ancestors(before.into_iter(), cx),
        };
        let work = work.filter(|_| ballot != Ballot::FIRST);
        let incarnations = self.incarnations.named();
        let reply = PreAccepted {
            txn,
            ballot,
            dependencies,
            accepted,
            work,
            ancestors,
            incarnations,
            is_closed,
        };
        self.reply(to, Reply::PreAccepted(Box::new(reply)), cx);
    }

    /// What has become of a transaction, if that is known here.
    fn decided(&mut self, txn: Version, wants_work: bool, cx: &mut Cx<'_>) -> Option<Reply> {
        let state = self.table.txn(txn, cx.store());
        let work = state.and_then(|state| state.work.clone()).filter(|_| wants_work);
        let executed = state.filter(|state| state.executed.is_some());
        if executed.is_some_and(|state| state.end == Some(End::Void)) {
            let results = Results::default();
            return Some(Reply::Executed { txn, end: End::Void, results });
        }
        let vertex = executed.and_then(|state| state.vertex.as_deref());
        if wants_work && work.is_none() && vertex.is_none() {
            return None; // Perhaps nobody knows the work. Then it is void, and came to commit by a damaged message.
        }
        let vertex = vertex.or(self.graph.vertex(txn)).cloned()?;
        let before: Vec<Version> = vertex.edges.iter().map(|edge| edge.from).collect();
        let ancestors = self.ancestors(before.into_iter(), cx);
        Some(Reply::Committed { txn, work, commit: Arc::new(Commit { vertex, ancestors }) })
    }

    /// Whether a transaction that is not known began so long ago that no replica takes it on.
    fn is_settled(&self, txn: Version) -> bool {
        txn.timestamp_us < self.table.window().settled_us
    }

    /// Whether a transaction is never executed, if it has pieces here: everything of its time was executed here, and it was
    /// not, or it is void.
    pub(super) fn is_dead(&self, txn: Version) -> bool {
        self.voids.contains(&txn) || (self.is_settled(txn) && !self.table.has_begun(txn))
    }

    /// Whether a transaction that is not known can be taken on; if not, why, or nothing if it may be possible soon.
    fn refusal(&self, txn: Version, work: &Work, insist: bool) -> Result<(), Option<NotAccepted>> {
        let window = self.table.window();
        if insist && self.is_settled(txn) && !self.table.has_begun(txn) {
            return Err(Some(NotAccepted::Forgotten));
        }
        if !insist && self.table.part() != Part::Full {
            return Err(None); // Its window may be an old one.
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
                let participants = || set.participants(of, self.members.group());
                set.call(of).is_some() && participants() == work.participants
            }
            _ => true,
        }
    }

    /// Takes a transaction on: finds those that come before it, and has all that recorded.
    fn take_on(&mut self, txn: Version, work: Arc<Work>, ballot: Ballot, cx: &mut Cx<'_>) {
        let mut before = BTreeSet::new();
        self.use_rows(txn, &work, &mut |other| {
            before.insert(other);
        });
        if self.mutation.is(Mutation::ForgetsEdges) {
            before.clear();
        }
        before.remove(&txn);
        let at = self.partition();
        let edge = |from| Edge { from, kind: Kind::Deferred, at };
        let edges: Arc<[Edge]> = before.into_iter().map(edge).collect();
        let floor_us = if self.is_alone() { 0 } else { self.table.windows().floor_us };
        let began = cx.log_position();
        let pre_accepted = Some((ballot, Dependencies { edges: Some(edges), floor_us }));
        self.record(Entry::Begin { txn, work: work.clone(), pre_accepted }, cx);
        self.wanted.remove(&txn);
        match self.live.get_mut(&txn) {
            Some(live) => live.began = began,
            None => drop(self.live.insert(txn, Live::new(work, began, cx.now()))),
        }
        if self.graph.vertex(txn).is_some() {
            self.agree_on_uses(txn);
            self.execute_all(vec![txn], cx);
        }
    }

    /// Notes which rows a transaction may use here, and passes the transactions to `each` that do so already.
    pub(super) fn use_rows(&mut self, txn: Version, work: &Work, each: &mut impl FnMut(Version)) {
        match &work.task {
            Task::Register { .. } => {
                let standing = self.accesses.standing();
                self.live.keys().copied().chain(standing).for_each(&mut *each);
                self.registrations.iter().for_each(|other| each(*other));
                self.registrations.insert(txn);
            }
            Task::Call(of) => {
                self.registrations.iter().for_each(|other| each(*other));
                let Some(set) = self.table.set().filter(|set| set.version() == of.set) else {
                    return; // It will do nothing.
                };
                for (row, used) in set.rows(of, self.id.partition(), self.members.group()) {
                    self.accesses.add(txn, Kind::Deferred, &row, used, &mut |other, _| each(other));
                }
            }
        }
    }

    /// A transaction commits, so it comes after those to which it has edges.
    pub(super) fn agree_on_uses(&mut self, txn: Version) {
        if self.is_alone() || !self.accesses.contains(txn) {
            return;
        }
        if let Some(vertex) = self.graph.vertex(txn) {
            self.accesses.agree(txn, &self.before(vertex));
        }
    }

    /// The transactions that come before one by an edge of this partition. All replicas of the partition execute them. One
    /// that does not know them wants them, so that what comes after them waits. Another partition's edges say neither.
    pub(super) fn before(&self, vertex: &Vertex) -> BTreeSet<Version> {
        let own = vertex.edges.iter().filter(|edge| edge.at == self.partition());
        own.map(|edge| edge.from).collect()
    }

    pub(super) fn on_accept(&mut self, from: NodeId, accept: Accept, cx: &mut Cx<'_>) {
        let Accept { txn, ballot, dependencies, incarnations: of_reports } = accept;
        if !self.votes() {
            return;
        }
        // Who asks for an outcome may not know the work.
        if let Some(reply) = self.decided(txn, true, cx) {
            return self.reply(from, reply, cx);
        }
        let incarnations = self.incarnations.named();
        let is_later =
            |(member, known): (usize, &u64)| *known > of_reports.get(member).copied().unwrap_or(0);
        if incarnations.iter().enumerate().any(is_later) {
            return self.reply(from, Reply::Replaced { txn, ballot, incarnations }, cx);
        }
        if !self.table.has_begun(txn) && self.is_settled(txn) {
            let why = NotAccepted::Forgotten;
            return self.reply(from, Reply::NotAccepted { txn, why }, cx);
        }
        let vote = self.table.txn(txn, cx.store()).map(|state| state.vote.clone());
        let vote = vote.unwrap_or_default();
        if vote.promised > ballot {
            return self.reply(from, Reply::Promised { txn, ballot: vote.promised }, cx);
        }
        if vote.accepted.as_ref().is_none_or(|(accepted, _)| *accepted < ballot) {
            self.record(Entry::Accept { txn, ballot, dependencies }, cx);
            self.want_work(txn, cx);
        }
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
        }
        self.reply(from, Reply::Accepted { txn, ballot, incarnations }, cx);
    }

    /// A transaction is void. `from` wants an answer, if there is one.
    pub(super) fn on_void(&mut self, from: Option<NodeId>, txn: Version, cx: &mut Cx<'_>) {
        let is_new = self.live.contains_key(&txn)
            || !self.table.has_begun(txn)
            || self.wanted.contains_key(&txn);
        let may_begin = self.table.has_begun(txn) || !self.is_settled(txn);
        if is_new && may_begin && self.executes() {
            self.record(Entry::Void(txn), cx);
            if !self.live.contains_key(&txn) {
                self.voids.insert(txn);
            }
            self.live.remove(&txn);
            self.wanted.remove(&txn);
            self.accesses.remove(txn);
            self.registrations.remove(&txn);
            let own = self.partition();
            let is_here = |vertex: &Vertex| vertex.participants.contains(&own);
            // Elsewhere it commits, and is perhaps on a cycle.
            if self.graph.vertex(txn).is_none_or(is_here) {
                self.graph.remove(txn);
                self.blocked.unblock(txn);
            }
            self.answer_askers(txn, cx);
            self.has_executed(txn);
            self.execute_all(vec![txn], cx);
        }
        let Some(from) = from else { return };
        if !self.table.has_begun(txn) && self.is_settled(txn) {
            let why = NotAccepted::Forgotten;
            return self.reply(from, Reply::NotAccepted { txn, why }, cx);
        }
        self.answer_commit(from, txn, cx);
    }

    /// What is known of these transactions, and of others before them: that they commit, or have been executed. If there
    /// are many, others are left out. Who needs them asks for them.
    pub(super) fn ancestors(
        &mut self,
        txns: impl Iterator<Item = Version>,
        cx: &mut Cx<'_>,
    ) -> Ancestors {
        use super::super::table::HowExecuted;
        let mut open: VecDeque<Version> = txns.collect();
        let mut known = BTreeSet::new();
        let mut ancestors = Ancestors::default();
        let mut edges = 0;
        while let Some(txn) = open.pop_front() {
            if !known.insert(txn) {
                continue;
            }
            if edges >= EDGES_AT_MOST || known.len() > ANCESTORS_AT_MOST {
                break;
            }
            if let Some(vertex) = self.graph.vertex(txn) {
                edges += vertex.edges.len();
                open.extend(vertex.edges.iter().map(|edge| edge.from));
                ancestors.commit.push(vertex.clone());
            } else if self.table.has_begun(txn) {
                match self.table.executed(txn, cx.store()) {
                    None => {}
                    Some(HowExecuted::Alone) => ancestors.executed.push(txn),
                    Some(HowExecuted::OnCycle(cycle)) => {
                        edges += cycle.iter().map(|vertex| vertex.edges.len()).sum::<usize>();
                        known.extend(cycle.iter().map(|vertex| vertex.txn));
                        ancestors.cycles.push(cycle);
                    }
                }
            }
        }
        ancestors
    }
}
