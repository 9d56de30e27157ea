//! What a replica does from time to time: it finishes transactions of silent coordinators, compares what it has executed
//! with other replicas, and finds out what can be forgotten.

use std::collections::BTreeSet;
use std::sync::Arc;

use serried_model::{NodeId, Version};

use super::super::message::{Ballot, Entry, Reply, Report, Request, Window, WindowEntry, Work};
use super::super::run::{Run, Step};
use super::dependencies::COMPARED_AT_ONCE;
use super::live::Edges;
use super::{Cx, Replica};
use crate::frameworks::chopped::order::Known;

/// How many transactions of silent coordinators a replica coordinates at a time. Others wait for the next look.
const RUNS_AT_MOST: usize = 256;

impl Replica {
    /// Looks for transactions whose coordinators are silent, and for what can be forgotten.
    pub(super) fn watch(&mut self, cx: &mut Cx<'_>) {
        self.catch_up(cx);
        if self.votes() {
            self.finish_silent(cx);
        }
        if self.executes() {
            // What is blocked may have lost its question or the answer.
            for (ancestor, at) in self.blocked.ancestors() {
                match self.known(ancestor) {
                    Known::Open if at == self.partition() && self.is_dead(ancestor) => {
                        self.graph.decide(ancestor);
                        self.execute_all(vec![ancestor], cx);
                    }
                    Known::Open => self.ask_if_absent(ancestor, at, cx),
                    _ if self.blocked.waits(ancestor) => {}
                    _ => self.execute_all(vec![ancestor], cx),
                }
            }
            self.record_edges(cx);
            self.ask_for_results(cx);
            self.lacking.clear();
            self.fetch_wanted(cx);
            self.compare(cx);
        }
        self.report_set(cx);
        self.prune();
        self.report(cx);
    }

    /// Records the edges of transactions that wait for others. A replica that has fallen behind does not have to learn them
    /// again after a restart.
    fn record_edges(&mut self, cx: &mut Cx<'_>) {
        let mut due = Vec::new();
        for (txn, live) in &mut self.live {
            let Some(vertex) = self.graph.vertex(*txn) else { continue };
            live.edges = match live.edges {
                Edges::New => Edges::Seen,
                Edges::Seen => {
                    due.push(vertex.clone());
                    Edges::Recorded
                }
                Edges::Recorded => Edges::Recorded,
            };
        }
        for vertex in due {
            self.record(Entry::Commit(vertex), cx);
        }
    }

    fn finish_silent(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let after = self.settings.recovery_after();
        let silent = self
            .live
            .iter()
            .filter(|(txn, live)| now.since(live.heard) > after && !self.running.contains_key(txn));
        let mut due: Vec<(Version, Option<Arc<Work>>)> = Vec::new();
        let wanted = self.wanted.iter().filter(|(_, since)| now.since(**since) > 2 * after);
        due.extend(wanted.map(|(txn, _)| (*txn, None)));
        due.extend(silent.map(|(txn, live)| (*txn, Some(live.work.clone()))));
        for (txn, _) in &due {
            if let Some(live) = self.live.get_mut(txn) {
                live.heard = now;
            } else {
                self.wanted.insert(*txn, now);
            }
        }
        // Those that commit may wait for the others. They need no coordinator: replicas that lack something ask for it.
        let commits = |replica: &Replica, txn: &Version| replica.graph.vertex(*txn).is_some();
        due.sort_by_key(|(txn, _)| commits(self, txn));
        let others = due.iter().filter(|(txn, _)| !commits(self, txn)).count();
        if self.runs.len() + others > RUNS_AT_MOST {
            self.runs.retain(|_, run| !run.commits());
        }
        for (txn, work) in due {
            self.finish(txn, work, cx);
        }
        // A run whose transaction has been executed here is of no use: others learn of it by comparing.
        let (live, wanted) = (&self.live, &self.wanted);
        self.runs.retain(|txn, _| live.contains_key(txn) || wanted.contains_key(txn));
        let members = self.members.clone();
        let own = self.id.member();
        let outbid: Vec<Version> = self
            .runs
            .iter_mut()
            .filter_map(|(txn, run)| (run.outbid().is_some() && run.is_due(own)).then_some(*txn))
            .collect();
        for txn in outbid {
            let Some(ballot) = self.next_ballot(txn, cx) else { continue };
            let Some(run) = self.runs.get_mut(&txn) else { continue };
            let requests = run.restart(ballot, &members);
            self.take(txn, Step::Send(requests), cx);
        }
        let all: Vec<Version> = self.runs.keys().copied().collect();
        for txn in all {
            let Some(run) = self.runs.get_mut(&txn) else { continue };
            let step = run.hurry(&members);
            self.take(txn, step, cx);
        }
    }

    /// A ballot in which no other attempt has been made, later than all that this replica knows.
    fn next_ballot(&mut self, txn: Version, cx: &mut Cx<'_>) -> Option<Ballot> {
        let promised = self.table.txn(txn, cx.store()).map(|state| state.vote.promised);
        let promised = promised.unwrap_or(Ballot::FIRST);
        let outbid = self.runs.get(&txn).and_then(Run::outbid).unwrap_or(Ballot::FIRST);
        let ballot = Ballot { number: promised.max(outbid).number + 1, by: self.id };
        // After a restart, it is not used again.
        self.record(Entry::Promise { txn, ballot }, cx);
        self.want_work(txn, cx);
        Some(ballot)
    }

    /// Coordinates a transaction, unless that is done already.
    fn finish(&mut self, txn: Version, work: Option<Arc<Work>>, cx: &mut Cx<'_>) {
        if self.runs.contains_key(&txn) || self.runs.len() >= RUNS_AT_MOST {
            return;
        }
        let Some(ballot) = self.next_ballot(txn, cx) else { return };
        let slow = BTreeSet::new();
        let run = match work {
            Some(work) => Run::new(txn, work, &slow).in_ballot(ballot),
            None => Run::unknown(txn, [self.partition()], ballot, &slow),
        };
        let step = run.begin(&self.members);
        self.runs.insert(txn, run);
        self.take(txn, step, cx);
    }

    /// Handles a reply that belongs to a transaction which this replica coordinates, if there is one.
    pub(super) fn on_reply_to_run(
        &mut self,
        from: NodeId,
        txn: Version,
        reply: Reply,
        cx: &mut Cx<'_>,
    ) {
        let Some(run) = self.runs.get_mut(&txn) else { return };
        let step = run.on_reply(from, reply, &self.members);
        self.take(txn, step, cx);
    }

    fn take(&mut self, txn: Version, step: Step, cx: &mut Cx<'_>) {
        match step {
            Step::Send(requests) => {
                for (to, request) in requests {
                    self.send(to, request, cx);
                }
            }
            Step::NotAccepted(_) | Step::Executed(..) => {
                self.runs.remove(&txn);
            }
        }
    }

    /// Asks the other replicas which of the transactions that were executed here they have executed.
    fn compare(&mut self, cx: &mut Cx<'_>) {
        let is_executed =
            |txn: &&Version| !self.live.contains_key(txn) && !self.wanted.contains_key(txn);
        let executed: Vec<Version> =
            self.table.open().iter().filter(is_executed).take(COMPARED_AT_ONCE).copied().collect();
        for txn in &executed {
            self.has_executed(*txn);
        }
        for peer in self.peers.all().to_vec() {
            let lacks = |txn: &&Version| self.peers.lack(peer, **txn);
            let lacking: Vec<Version> = executed.iter().filter(lacks).copied().collect();
            if !lacking.is_empty() {
                self.send(peer, Request::Compare(lacking), cx);
            }
        }
    }

    /// Forgets what was learned of transactions that come before none which is to be executed here.
    fn prune(&mut self) {
        let own = self.live.keys().chain(self.running.keys()).chain(self.wanted.keys()).copied();
        let open = own.collect();
        self.graph.prune(open, self.table.window().forget_us);
        let (live, graph) = (&self.live, &self.graph);
        self.blocked.retain(|txn| live.contains_key(&txn) || graph.vertex(txn).is_some());
        self.voids.retain(|txn| self.table.has_begun(*txn));
        // Everything earlier was executed here, or never begins.
        let settled = Version::at(self.table.window().settled_us);
        self.wanted.retain(|txn, _| *txn >= settled);
        self.asked.retain(|txn, _| self.blocked.waits_for(*txn) || self.wanted.contains_key(txn));
        self.askers.retain(|txn, _| self.live.contains_key(txn));
        self.peers.prune(self.table.open());
    }

    /// Reports to other replicas up to when everything has ended here, and moves the window.
    fn report(&mut self, cx: &mut Cx<'_>) {
        self.propose(cx);
        self.send_reports(cx);
        if !self.executes() {
            return;
        }
        if let Some(over) = self.peers.below(self.below_us(), self.table.window().closed_us) {
            let (below_us, firm_us) = self.learn_over(self.partition(), over);
            for at in (0..self.members.partitions()).filter(|at| *at != self.partition()) {
                for to in self.members.of(at) {
                    self.send(to, Request::Over { below_us, firm_us }, cx);
                }
            }
        }
        self.move_window(cx);
    }

    /// Everything has ended at a partition up to a time, and up to another one this is firm. Returns what is known of it.
    pub(super) fn learn_over(&mut self, at: u16, (below_us, firm_us): (u64, u64)) -> (u64, u64) {
        let known = self.over.entry(at).or_default();
        *known = (known.0.max(below_us), known.1.max(firm_us));
        *known
    }

    /// The time below which every transaction that is known here has ended, and below which none begins here.
    fn below_us(&self) -> u64 {
        let oldest = self.table.open().first().map_or(u64::MAX, |txn| txn.timestamp_us);
        let wanted = self.wanted.keys().next().map_or(u64::MAX, |txn| txn.timestamp_us);
        self.table.window().from_us.min(oldest).min(wanted)
    }

    pub(super) fn send_reports(&mut self, cx: &mut Cx<'_>) {
        let report = Report {
            below_us: self.below_us(),
            window: self.table.window(),
            copy: self.table.copy(),
            is_whole: self.executes(),
            is_voter: self.votes_on_configurations(),
            vote: self.table.vote().clone(),
            incarnations: self.incarnations.named(),
        };
        for peer in self.peers.all().to_vec() {
            self.send(peer, Request::Report(report.clone()), cx);
        }
    }

    fn move_window(&mut self, cx: &mut Cx<'_>) {
        let now_us = cx.clock().midpoint_us();
        let ago = |ms: u64| now_us.saturating_sub(ms.saturating_mul(1000));
        let is_complete = self.over.len() == usize::from(self.members.partitions());
        let first =
            |times: &mut dyn Iterator<Item = u64>| times.min().filter(|_| is_complete).unwrap_or(0);
        let closed_us = first(&mut self.over.values().map(|(below_us, _)| *below_us));
        let settled_us = first(&mut self.over.values().map(|(_, firm_us)| *firm_us));
        // What others have counted as settled is settled here, too, although a later question may have left a promise here.
        let settled_us = settled_us.max(self.peers.settled_us());
        let new = Window {
            from_us: ago(self.settings.truncation_lag_ms),
            closed_us: closed_us.max(settled_us),
            settled_us,
            forget_us: settled_us.min(ago(self.settings.outcomes_ms)),
        };
        let known = *self.table.windows();
        let window = new.and(known.window);
        let (floor_us, gone_us) = self.peers.floors(window).unwrap_or((0, 0));
        let (floor_us, gone_us) = (floor_us.max(known.floor_us), gone_us.max(known.gone_us));
        let new = WindowEntry { window, floor_us, gone_us };
        if new == known {
            return;
        }
        self.record(Entry::Window(new), cx);
        let gated = core::mem::take(&mut self.gated);
        self.execute_all(gated.into_iter().collect(), cx);
        // What all have executed comes before everything that begins.
        let floor = Version::at(floor_us);
        if !self.is_alone() {
            let old: Vec<Version> = self.accesses.txns().take_while(|txn| *txn < floor).collect();
            for txn in old {
                if !self.live.contains_key(&txn) {
                    self.accesses.remove(txn);
                    self.registrations.remove(&txn);
                }
            }
            let live = &self.live;
            self.registrations.retain(|txn| *txn >= floor || live.contains_key(txn));
        }
    }
}
