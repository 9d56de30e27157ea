//! What a server does from time to time: it finishes transactions of silent coordinators, and finds out what can be
//! forgotten.

use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::message::{Entry, Reply, Request, Window, Work};
use super::super::run::{Run, Step};
use super::{Cx, Replica};

/// How many transactions of silent coordinators a server coordinates at a time. Others wait for the next look.
const RUNS_AT_MOST: usize = 256;

/// How many transactions that were executed here, and perhaps not elsewhere, are looked at in one look.
const NOT_OVER_AT_ONCE: usize = 64;

impl Replica {
    /// Looks for transactions whose coordinators are silent, and for what can be forgotten.
    pub(super) fn watch(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let after = self.settings.recovery_after();
        let silent = self.live.iter().filter(|(_, live)| now.since(live.heard) > after);
        let silent: Vec<(Version, Arc<Work>)> =
            silent.map(|(txn, live)| (*txn, live.work.clone())).collect();
        for (txn, work) in silent {
            if let Some(live) = self.live.get_mut(&txn) {
                live.heard = now;
            }
            self.finish(txn, work, cx);
        }
        // Those that were executed here, and perhaps not elsewhere.
        let old_us = cx.clock().midpoint_us().saturating_sub(2 * after.as_micros() as u64);
        let not_over = self.table.open().range(..Version::at(old_us)).copied();
        let not_over: Vec<Version> =
            not_over.filter(|txn| !self.live.contains_key(txn)).take(NOT_OVER_AT_ONCE).collect();
        for txn in not_over {
            if let Some(state) = self.table.txn(txn, cx.store()) {
                let work = state.work.clone();
                self.finish(txn, work, cx);
            }
        }
        // What is blocked may have lost its question or the answer.
        let blocked: Vec<Version> = self.blocked.values().flatten().copied().collect();
        self.execute_all(blocked, cx);
        self.ask_for_results(cx);
        self.prune();
        self.report_over(cx);
        let unanswered: Vec<_> = self.runs.values().flat_map(Run::unanswered).collect();
        for (at, request) in unanswered {
            self.send(at, request, cx);
        }
        // A run whose transaction has ended is of no use.
        self.runs.retain(|txn, _| self.table.open().contains(txn));
    }

    /// Coordinates a transaction, unless that is done already.
    fn finish(&mut self, txn: Version, work: Arc<Work>, cx: &mut Cx<'_>) {
        if self.runs.contains_key(&txn) || self.runs.len() >= RUNS_AT_MOST {
            return;
        }
        let run = Run::new(txn, work).insisting();
        let step = run.begin();
        self.runs.insert(txn, run);
        self.take(txn, step, cx);
    }

    /// Handles a reply that belongs to a transaction which this server coordinates, if there is one.
    pub(super) fn on_reply_to_run(
        &mut self,
        from: NodeId,
        txn: Version,
        reply: Reply,
        cx: &mut Cx<'_>,
    ) {
        let Some(run) = self.runs.get_mut(&txn) else { return };
        let step = run.on_reply(from.partition(), reply);
        self.take(txn, step, cx);
    }

    fn take(&mut self, txn: Version, step: Step, cx: &mut Cx<'_>) {
        match step {
            Step::Send(requests) => {
                for (at, request) in requests {
                    self.send(at, request, cx);
                }
            }
            Step::NotAccepted(_) => {
                self.runs.remove(&txn);
            }
            Step::Executed(..) => {
                let Some(run) = self.runs.remove(&txn) else { return };
                for at in run.work().participants.iter() {
                    self.send(*at, Request::End(vec![txn]), cx);
                }
            }
        }
    }

    pub(super) fn on_end(&mut self, mut txns: Vec<Version>, cx: &mut Cx<'_>) {
        txns.retain(|txn| self.table.open().contains(txn) && !self.live.contains_key(txn));
        if !txns.is_empty() {
            self.record(Entry::End(txns), cx);
        }
    }

    /// Forgets what was learned of transactions that come before none which is to be executed here.
    fn prune(&mut self) {
        let before = self.live.values().flat_map(|live| &live.edges).map(|edge| edge.from);
        let open = self.live.keys().chain(self.running.keys()).copied().chain(before).collect();
        self.graph.prune(open, self.table.window().forget_us);
        let live = &self.live;
        let is_needed = |waiting: &Vec<Version>| waiting.iter().any(|txn| live.contains_key(txn));
        self.blocked.retain(|_, waiting| is_needed(waiting));
        self.asked.retain(|txn, _| self.blocked.contains_key(txn));
        self.askers.retain(|txn, _| self.live.contains_key(txn));
    }

    /// Reports to the other partitions the time below which everything has ended here, and moves the window.
    fn report_over(&mut self, cx: &mut Cx<'_>) {
        let own = cx.id().partition();
        let Window { from_us, .. } = self.table.window();
        let oldest = self.table.open().first().map_or(u64::MAX, |txn| txn.timestamp_us);
        let below_us = from_us.min(oldest);
        self.horizon.is_over(own, below_us);
        for at in (0..self.group.partitions()).filter(|at| *at != own) {
            self.send(at, Request::Over { below_us }, cx);
        }
        let (partitions, now_us) = (self.group.partitions(), cx.clock().midpoint_us());
        if let Some(window) = self.horizon.advance(partitions, now_us, &self.settings) {
            self.record(Entry::Window(window), cx);
        }
    }
}
