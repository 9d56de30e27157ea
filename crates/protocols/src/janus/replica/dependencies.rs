//! What comes before a transaction, as it is learned from others.

use core::time::Duration;
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::message::{
    Ancestors, Commit, Edge, End, Entry, Message, NotAccepted, Reply, Request, Results, Vertex,
    Work,
};
use super::super::table::HowExecuted;
use super::live::Live;
use super::{Cx, Replica};
use crate::frameworks::chopped::order::Known;

/// How many transactions are compared with another replica at a time.
pub(super) const COMPARED_AT_ONCE: usize = 4096;
/// How many transactions a replica fetches at a time. It may lack many more.
const FETCHED_AT_ONCE: usize = 256;

impl Replica {
    pub(super) fn on_commit(
        &mut self,
        from: NodeId,
        Commit { vertex, ancestors }: &Commit,
        cx: &mut Cx<'_>,
    ) {
        let txn = vertex.txn;
        if !self.executes() {
            return; // It learns of the transaction later.
        }
        if let Some(live) = self.live.get_mut(&txn) {
            live.heard = cx.now();
            if !live.committers.contains(&from) {
                live.committers.push(from);
            }
        } else if self.table.has_begun(txn) && !self.wanted.contains_key(&txn) {
            return self.answer_commit(from, txn, cx);
        } else if txn.timestamp_us < self.table.windows().gone_us {
            let why = NotAccepted::Forgotten;
            return self.reply(from, Reply::NotAccepted { txn, why }, cx);
        }
        self.learn(ancestors, Some(vertex), cx);
        self.execute_all(vec![txn], cx);
    }

    /// Reports what came of a transaction that was executed.
    pub(super) fn answer_commit(&mut self, to: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let Some(state) = self.table.txn(txn, cx.store()) else { return };
        if let Some(end) = state.end.clone().filter(|_| state.executed.is_some()) {
            let results = state.results.clone();
            self.reply(to, Reply::Executed { txn, end, results }, cx);
        }
    }

    /// A transaction has pieces here. If it is not known, it is asked for.
    fn want(&mut self, txn: Version, cx: &Cx<'_>) {
        let is_known = self.live.contains_key(&txn)
            || self.table.has_begun(txn)
            || txn.timestamp_us < self.table.window().settled_us;
        if !is_known {
            self.wanted.entry(txn).or_insert(cx.now());
        }
    }

    /// The replica takes part in an agreement on a transaction. If it does not know what it does, it asks for that.
    pub(super) fn want_work(&mut self, txn: Version, cx: &mut Cx<'_>) {
        let state = self.table.txn(txn, cx.store());
        let is_executed = state.is_some_and(|state| state.executed.is_some());
        if !is_executed && !self.live.contains_key(&txn) {
            self.wanted.entry(txn).or_insert(cx.now());
        }
    }

    /// Wants the transactions that have pieces here, and no others.
    pub(super) fn want_all_of(&mut self, vertex: &Vertex, cx: &mut Cx<'_>) {
        let own = self.partition();
        if vertex.participants.contains(&own) {
            self.want(vertex.txn, cx);
        } else if self.wanted.contains_key(&vertex.txn) {
            // Somebody who did not know where it has pieces has asked for it here.
            self.on_void(None, vertex.txn, cx);
        }
        if !self.is_alone() {
            for edge in vertex.edges.iter().filter(|edge| edge.at == own) {
                self.want(edge.from, cx);
            }
        }
    }

    /// Learns of transactions, and executes what has become possible.
    pub(super) fn learn(
        &mut self,
        Ancestors { commit, cycles, executed }: &Ancestors,
        own: Option<&Vertex>,
        cx: &mut Cx<'_>,
    ) {
        if !self.executes() {
            return;
        }
        let on_cycles = || cycles.iter().flat_map(|cycle| cycle.iter());
        for vertex in commit.iter().chain(on_cycles()).chain(own) {
            self.want_all_of(vertex, cx);
        }
        let mut open = Vec::new();
        for txn in executed {
            let is_here = self.live.contains_key(txn) || self.wanted.contains_key(txn);
            if !is_here && !self.running.contains_key(txn) {
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
        for vertex in commit.iter().chain(on_cycles()).chain(own) {
            if !self.is_decided(vertex.txn) && self.graph.commit(vertex) {
                open.push(vertex.txn);
            }
        }
        for txn in &open {
            self.agree_on_uses(*txn);
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
        if self.wanted.contains_key(&txn) || self.is_gated(txn) {
            return Known::Open;
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

    /// Whether a transaction that is to be executed here may come after others that have been forgotten elsewhere, and
    /// were perhaps not executed here.
    pub(super) fn is_gated(&self, txn: Version) -> bool {
        let settled_us = self.table.window().settled_us;
        !self.mutation.is(Mutation::IgnoresFloors)
            && self.live.contains_key(&txn)
            && self.graph.vertex(txn).is_some_and(|vertex| vertex.floor_us > settled_us)
    }

    fn is_decided(&self, txn: Version) -> bool {
        if self.live.contains_key(&txn) || self.wanted.contains_key(&txn) {
            return false;
        }
        let is_known = self.table.has_begun(txn) && !self.voids.contains(&txn);
        self.graph.is_decided(txn) || is_known
    }

    /// Whether a transaction is to be asked for, because it was not asked for lately. Returns how often it was, and counts.
    fn asks(&mut self, txn: Version, cx: &Cx<'_>) -> Option<usize> {
        let again = 2 * self.members.round_trip() + Duration::from_millis(50);
        let now = cx.now();
        let (last, times) = self.asked.entry(txn).or_insert((now, 0));
        if *times > 0 && now.since(*last) < again {
            return None;
        }
        (*last, *times) = (now, *times + 1);
        Some(*times - 1)
    }

    /// Asks replicas for an ancestor that is known at a partition, unless they were asked lately.
    pub(super) fn ask(&mut self, txn: Version, at: u16, cx: &mut Cx<'_>) {
        let Some(times) = self.asks(txn, cx) else { return };
        if self.wanted.contains_key(&txn) || at == self.partition() {
            let peers = self.peers.all().to_vec();
            let to = match peers.get(times) {
                Some(peer) => vec![*peer],
                None => peers,
            };
            for peer in to {
                self.send(peer, Request::Fetch { txn }, cx);
            }
            return;
        }
        let first = self.members.counterpart(self.id, at);
        let to = match times {
            0 => first,
            _ => self.members.of(at).nth(times % self.members.count()).unwrap_or(first),
        };
        self.send(to, Request::Ask { txn }, cx);
    }

    /// Asks other replicas of the partition for transactions that are to be executed here, the oldest first.
    pub(super) fn fetch_wanted(&mut self, cx: &mut Cx<'_>) {
        let oldest = self.wanted.keys().take(FETCHED_AT_ONCE).copied();
        for txn in oldest.collect::<Vec<_>>() {
            self.ask(txn, self.partition(), cx);
        }
    }

    pub(super) fn on_ask(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_>) {
        if !self.executes() {
            return;
        }
        if !self.is_alone() {
            self.want(txn, cx);
        }
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
        // An edge says that it has pieces here.
        let ancestors = match self.is_dead(txn) {
            true => Ancestors { executed: vec![txn], ..Ancestors::default() },
            false => self.ancestors([txn].into_iter(), cx),
        };
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

    // Transactions that other replicas of the partition know.

    pub(super) fn on_fetch(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_>) {
        let state = self.table.txn(txn, cx.store());
        let (work, vertex, is_void) = match state {
            Some(state) => (
                state.work.clone(),
                state.vertex.as_ref().map(|vertex| (**vertex).clone()),
                state.end == Some(End::Void),
            ),
            None => (None, None, false),
        };
        if is_void {
            let results = Results::default();
            return self.reply(from, Reply::Executed { txn, end: End::Void, results }, cx);
        }
        if work.is_none() {
            return;
        }
        // The other replica has to execute it, so it needs the edges. It fetches what else it lacks.
        let mut ancestors = self.ancestors([txn].into_iter(), cx);
        if let Some(vertex) = vertex {
            ancestors.executed.retain(|executed| *executed != txn);
            for Edge { from, .. } in vertex.edges.iter() {
                let how = self.table.executed(*from, cx.store());
                if matches!(how, Some(HowExecuted::Alone)) {
                    ancestors.executed.push(*from);
                }
            }
            ancestors.commit.push(vertex);
        }
        self.reply(from, Reply::Fetched { txn, work, ancestors }, cx);
    }

    pub(super) fn on_fetched(
        &mut self,
        txn: Version,
        work: Option<Arc<Work>>,
        ancestors: &Ancestors,
        cx: &mut Cx<'_>,
    ) {
        if !self.executes() {
            return;
        }
        self.asked.remove(&txn);
        if let Some(work) = work
            && self.wanted.contains_key(&txn)
        {
            if !work.participants.contains(&self.partition()) {
                return cx.reject(|| format!("{txn} has no pieces here"));
            }
            self.record(Entry::Begin { txn, work: work.clone(), pre_accepted: None }, cx);
            self.wanted.remove(&txn);
            self.live.insert(txn, Live::new(work, 0, cx.now()));
        }
        self.learn(ancestors, None, cx);
        self.execute_all(vec![txn], cx);
        if self.asked.len() < FETCHED_AT_ONCE / 2 {
            self.fetch_wanted(cx);
            self.fetch_lacking(cx);
        }
    }

    /// Asks the replicas that have executed them for transactions, the oldest first.
    fn fetch_lacking(&mut self, cx: &mut Cx<'_>) {
        while self.asked.len() < FETCHED_AT_ONCE {
            let Some((txn, from)) = self.lacking.pop_first() else { return };
            if self.lacks_edges(txn) && self.asks(txn, cx).is_some() {
                self.send(from, Request::Fetch { txn }, cx);
            }
        }
    }

    /// Whether a transaction is to be executed here, and its edges are not known.
    fn lacks_edges(&self, txn: Version) -> bool {
        match self.live.contains_key(&txn) {
            true => self.graph.vertex(txn).is_none(),
            false => self.wanted.contains_key(&txn),
        }
    }

    /// Another replica has executed these transactions.
    pub(super) fn on_compare(&mut self, from: NodeId, mut txns: Vec<Version>, cx: &mut Cx<'_>) {
        if !self.executes() {
            return;
        }
        txns.truncate(COMPARED_AT_ONCE);
        let mut have = Vec::new();
        for txn in txns {
            let is_settled = txn.timestamp_us < self.table.window().settled_us;
            let is_gone = is_settled && !self.table.has_begun(txn);
            let state = self.table.txn(txn, cx.store());
            if is_gone || state.is_some_and(|state| state.executed.is_some()) {
                have.push(txn);
            } else {
                self.want(txn, cx);
                // No coordinator is needed.
                if let Some(live) = self.live.get_mut(&txn) {
                    live.heard = cx.now();
                } else if let Some(since) = self.wanted.get_mut(&txn) {
                    *since = cx.now();
                }
                if self.lacks_edges(txn) {
                    self.lacking.insert(txn, from);
                }
            }
        }
        self.fetch_lacking(cx);
        if !have.is_empty() {
            let configuration = self.table.vote().chosen.number;
            let copy = self.table.copy();
            self.reply(from, Reply::Have { configuration, copy, txns: have }, cx);
        }
    }

    pub(super) fn on_have(
        &mut self,
        from: NodeId,
        (configuration, copy): (u64, u64),
        txns: &[Version],
        cx: &mut Cx<'_>,
    ) {
        let chosen = &self.table.vote().chosen;
        if chosen.number != configuration || chosen.copy_of(from) != Some(copy) {
            return; // late: it has lost its disk, or others have forgotten what it lacks
        }
        let mut known = Vec::new();
        for txn in txns {
            if self.table.open().contains(txn)
                && let Some(state) = self.table.txn(*txn, cx.store())
                && state.executed.is_some()
            {
                known.push(*txn);
            }
        }
        for txn in self.peers.on_have(from, &known) {
            self.table.end(txn);
            self.peers.end(txn);
        }
    }

    /// A transaction was executed here.
    pub(super) fn has_executed(&mut self, txn: Version) {
        let is_enough = self.mutation.is(Mutation::EndsByMajority)
            && self.peers.all().iter().filter(|peer| !self.peers.lack(**peer, txn)).count() + 1
                >= self.members.majority();
        if self.peers.has_ended(txn) || is_enough {
            self.table.end(txn);
            self.peers.end(txn);
        }
    }
}
