//! Finishing transactions whose coordinators do not (000 §4.3).
//!
//! A transaction's home partition chooses which of its executions may commit, if any: that is one
//! instance of consensus. Whether the chosen one commits in each of the other partitions that take part
//! in it is one instance each. It commits if it does in all of them. The first view of each instance is
//! the coordinator's own; to a recoverer it counts as a proposal to commit if all replicas voted so.
//!
//! A replica that does not know a transaction's home takes its own partition for it. If nobody there was
//! asked to prepare, nobody ever will be, and the transaction is over as far as the partition is
//! concerned: what it may commit elsewhere, it has nothing to do with.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::NodeSet;
use serried_model::{NodeId, Version};

use super::{Cx, Replica, Timer};
use crate::morty::Mutation;
use crate::morty::message::{
    Contents, Decision, Known, Message, Proposal, Record, Settlement, View, Vote,
};

/// A recovery that is not answered asks again after so long at first, and at most.
const REPEAT_AT_FIRST: Duration = Duration::from_millis(100);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// A transaction that this replica tries to finish.
#[derive(Debug)]
pub(super) struct Recovery {
    view: View,
    /// As far as is known.
    home: u16,
    stage: Stage,
    /// What replicas have said, by partition and member.
    known: BTreeMap<(u16, usize), Known>,
    /// Who has accepted what is proposed, by partition.
    accepted: BTreeMap<u16, NodeSet>,
    /// Who wants to know.
    inquirers: BTreeSet<NodeId>,
    repeated: u32,
}

#[derive(Clone, PartialEq, Debug)]
enum Stage {
    /// The home partition is asked what it knows.
    AskHome,
    /// This is proposed to it: an execution, or to abandon all.
    ProposeHome(Option<u32>),
    /// The other participants are asked what they know of the execution.
    AskOthers(u32),
    /// This is proposed to them: whether it commits there.
    ProposeOthers(u32, BTreeMap<u16, Proposal>),
    /// The execution has committed, and this partition is asked for its contents.
    AskOwn(u32),
    /// The replicas have been told how it ended.
    Over,
}

/// What a partition's replicas have to accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// Not enough is known.
    Open,
    /// It depends on what was read, which is undecided.
    Unresolved,
    /// This execution.
    Commit(u32),
    /// None, or not this one.
    Abandon,
}

impl Recovery {
    /// What those of a partition have said that remember the transaction.
    fn of(&self, partition: u16) -> impl Iterator<Item = &Known> {
        let known = self.known.range((partition, 0)..=(partition, usize::MAX));
        let known = known.map(|(_, known)| known);
        known.filter(|known| known.settlement != Some(Settlement::Forgotten))
    }

    /// Whether a partition says that the transaction has come to nothing.
    fn is_aborted_in(&self, partition: u16) -> bool {
        self.of(partition).any(|known| known.settlement == Some(Settlement::Aborted))
    }

    fn contents(&self, partition: u16, eid: u32) -> Option<Arc<Contents>> {
        self.of(partition).find_map(|known| match &known.execution {
            Some((other, _, contents)) if *other == eid => Some(contents.clone()),
            _ => None,
        })
    }

    /// What the replies of a partition come to, for the execution that home has chosen, or for whichever
    /// comes last.
    fn choose(
        &self,
        partition: u16,
        chosen: Option<u32>,
        majority: usize,
        careless: bool,
    ) -> Choice {
        if self.of(partition).count() < majority {
            return Choice::Open;
        }
        // A decision may have been made with what was accepted last; a coordinator that proposed to
        // abandon an execution may have gone on with the next, but one that proposed to commit stops.
        let accepted = self.of(partition).filter_map(|known| known.accepted).max();
        match accepted.filter(|_| !careless) {
            Some(accepted) if accepted.decision == Proposal::Commit => {
                return Choice::Commit(accepted.eid);
            }
            Some(accepted) if accepted.view > View::OWN => return Choice::Abandon,
            _ => {}
        }
        let executions = || self.of(partition).filter_map(|known| known.execution.as_ref());
        let Some(eid) = chosen.or(executions().map(|(eid, ..)| *eid).max()) else {
            return Choice::Abandon;
        };
        if self.of(partition).any(|known| known.abandoned_before > eid) {
            return Choice::Abandon;
        }
        let votes = |vote| {
            let same = |(other, voted, _): &&(u32, Option<Vote>, Arc<Contents>)| {
                *other == eid && *voted == Some(vote)
            };
            executions().filter(same).count()
        };
        match (votes(Vote::Commit), votes(Vote::Provisional)) {
            (0, provisional) if provisional >= majority => Choice::Unresolved,
            (0, _) => Choice::Abandon,
            (commit, provisional) if commit + provisional >= majority => Choice::Commit(eid),
            _ => Choice::Abandon,
        }
    }
}

impl Replica {
    /// Somebody wants to know how the transaction ends.
    pub(super) fn on_inquire(&mut self, from: NodeId, version: Version, cx: &mut Cx) {
        match self.settlement(version) {
            Some(settlement) => cx.send(from, Message::Settled { version, settlement }),
            // It was never let in, and may be later.
            None if self.is_too_far_ahead(version, cx) => {}
            None => self.recover(version, Some(from), cx),
        }
    }

    /// Finishes a transaction.
    pub(super) fn recover(&mut self, version: Version, inquirer: Option<NodeId>, cx: &mut Cx) {
        if let Some(recovery) = self.recoveries.get_mut(&version) {
            recovery.inquirers.extend(inquirer);
            return;
        }
        let undecided = self.transactions.get(&version);
        let execution = undecided.and_then(|undecided| undecided.execution.as_ref());
        let home = execution.map(|execution| execution.contents.participants[0]);
        let view = undecided.map_or(View::OWN, |undecided| undecided.view);
        let recovery = Recovery {
            view: view.next(self.id),
            home: home.unwrap_or(self.id.partition()),
            stage: Stage::AskHome,
            known: BTreeMap::new(),
            accepted: BTreeMap::new(),
            inquirers: inquirer.into_iter().collect(),
            repeated: 0,
        };
        self.recoveries.insert(version, recovery);
        self.enter_stage(version, Stage::AskHome, cx);
    }

    /// Begins a stage, or begins it again: sends what it takes to those who have not answered.
    fn enter_stage(&mut self, version: Version, stage: Stage, cx: &mut Cx) {
        let recovery = self.recoveries.get_mut(&version).expect("a recovery in progress");
        recovery.stage = stage;
        let asked = match &recovery.stage {
            Stage::AskHome => vec![recovery.home],
            Stage::AskOwn(_) => vec![self.id.partition()],
            Stage::AskOthers(eid) => {
                let contents = recovery.contents(recovery.home, *eid);
                contents.map_or(Vec::new(), |contents| contents.participants[1..].to_vec())
            }
            Stage::ProposeHome(_) | Stage::ProposeOthers(..) | Stage::Over => Vec::new(),
        };
        let view = recovery.view;
        for partition in asked {
            // Whoever has answered may have learned more since.
            let prepare = Message::PaxosPrepare { version, view };
            cx.broadcast(partition, self.group.all(), prepare);
        }
        let finalize = |eid, decision| Message::Finalize { version, eid, view, decision };
        let missing = |partition| {
            self.group.all().without(recovery.accepted.get(&partition).copied().unwrap_or_default())
        };
        match &recovery.stage {
            Stage::ProposeHome(chosen) => {
                let message = match chosen {
                    Some(eid) => finalize(*eid, Proposal::Commit),
                    None => finalize(u32::MAX, Proposal::Abandon),
                };
                cx.broadcast(recovery.home, missing(recovery.home), message);
            }
            Stage::ProposeOthers(eid, proposals) => {
                for (partition, proposal) in proposals {
                    cx.broadcast(*partition, missing(*partition), finalize(*eid, *proposal));
                }
            }
            Stage::AskHome | Stage::AskOthers(_) | Stage::AskOwn(_) | Stage::Over => {}
        }
        self.repeat_recovery(version, cx);
    }

    fn repeat_recovery(&mut self, version: Version, cx: &mut Cx) {
        let recovery = self.recoveries.get_mut(&version).expect("a recovery in progress");
        let first = REPEAT_AT_FIRST + 2 * self.group.round_trip();
        let wait = (first * (1 << recovery.repeated.min(6))).min(first.max(REPEAT_AT_MOST));
        recovery.repeated += 1;
        let wait = cx.jitter(wait);
        cx.set_timer(Timer::Recovery(version), wait);
    }

    /// Nothing has come of it for a while.
    pub(super) fn go_on_recovering(&mut self, version: Version, cx: &mut Cx) {
        if let Some(recovery) = self.recoveries.get(&version) {
            // Some have forgotten it, and the others don't know enough.
            let forgotten = |known: &Known| known.settlement == Some(Settlement::Forgotten);
            if recovery.known.values().any(forgotten) {
                return self.give_up(version, cx);
            }
            let stage = recovery.stage.clone();
            self.enter_stage(version, stage, cx);
            self.advance(version, cx);
        }
    }

    pub(super) fn on_paxos_prepare(
        &mut self,
        from: NodeId,
        version: Version,
        view: View,
        cx: &mut Cx,
    ) {
        if let Some(settlement) = self.settlement(version) {
            let known = Known { settlement: Some(settlement), ..Known::default() };
            let known = Some(Box::new(known));
            cx.send(from, Message::PaxosPrepareReply { version, view, known });
            return;
        }
        if self.is_too_far_ahead(version, cx) && !self.transactions.contains_key(&version) {
            return;
        }
        // What was read may have been decided while this replica was away.
        self.confirm(version, cx);
        let undecided = self.open(version, cx.now());
        if undecided.view > view {
            let view = undecided.view;
            cx.send(from, Message::PaxosPrepareReply { version, view, known: None });
            return;
        }
        let promises = undecided.view < view;
        undecided.view = view;
        let execution = undecided.execution.as_ref();
        let known = Known {
            settlement: None,
            accepted: undecided.accepted,
            abandoned_before: undecided.abandoned_before,
            execution: execution.map(|e| (e.eid, e.vote, e.contents.clone())),
        };
        if promises {
            self.append(Record::Promised { version, view }, cx);
        }
        let known = Some(Box::new(known));
        cx.send(from, Message::PaxosPrepareReply { version, view, known });
    }

    pub(super) fn on_paxos_prepare_reply(
        &mut self,
        from: NodeId,
        version: Version,
        view: View,
        known: Option<Box<Known>>,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        match known {
            Some(known) if view == recovery.view => {
                recovery.known.insert((from.partition(), from.member()), *known);
                self.advance(version, cx);
            }
            Some(_) => {}
            None => self.yield_to(version, view, cx),
        }
    }

    pub(super) fn on_finalize_reply(
        &mut self,
        from: NodeId,
        version: Version,
        _: u32,
        view: View,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        if view > recovery.view {
            self.yield_to(version, view, cx);
        } else if view == recovery.view {
            recovery.accepted.entry(from.partition()).or_default().insert(from);
            self.advance(version, cx);
        }
    }

    /// Somebody else recovers the transaction in a later view. It is given time; if it does not end,
    /// this replica tries again in a later one still.
    fn yield_to(&mut self, version: Version, view: View, cx: &mut Cx) {
        let recovery = self.recoveries.get_mut(&version).expect("a recovery in progress");
        if view <= recovery.view {
            return;
        }
        recovery.view = view.next(self.id);
        recovery.stage = Stage::AskHome;
        recovery.known.clear();
        recovery.accepted.clear();
        self.repeat_recovery(version, cx);
    }

    /// A replica says how the transaction ended, instead of accepting what was proposed.
    pub(super) fn on_settled(
        &mut self,
        from: NodeId,
        version: Version,
        settlement: Settlement,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        let known = Known { settlement: Some(settlement), ..Known::default() };
        recovery.known.insert((from.partition(), from.member()), known);
        self.advance(version, cx);
    }

    /// Goes as far as what is known allows.
    fn advance(&mut self, version: Version, cx: &mut Cx) {
        let majority = self.group.majority();
        let careless = self.options.mutation == Some(Mutation::RecoveryIgnoresFinalize);
        let own = self.id.partition();
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        let home = recovery.home;
        let accepted = |recovery: &Recovery, partition| {
            recovery.accepted.get(&partition).is_some_and(|those| those.len() >= majority)
        };
        // Whoever has committed it in any partition knows that it did in all.
        let committed = recovery.known.values().find_map(|known| match known.settlement {
            Some(Settlement::Committed { eid }) => Some(eid),
            _ => None,
        });
        match (committed, &recovery.stage) {
            (_, Stage::Over) => return,
            (Some(_), Stage::AskOwn(_)) => {}
            (Some(eid), _) => return self.enter_stage(version, Stage::AskOwn(eid), cx),
            // Every partition that is asked has to commit for the transaction to.
            (None, _) if recovery.known.keys().any(|(p, _)| recovery.is_aborted_in(*p)) => {
                return self.end(version, BTreeMap::new(), 0, cx);
            }
            (None, _) => {}
        }
        match recovery.stage.clone() {
            Stage::AskHome => {
                let homes = recovery.of(home).filter_map(|known| known.execution.as_ref());
                let other =
                    homes.map(|(.., contents)| contents.participants[0]).find(|h| *h != home);
                if let Some(other) = other {
                    recovery.home = other;
                    return self.enter_stage(version, Stage::AskHome, cx);
                }
                match recovery.choose(home, None, majority, careless) {
                    Choice::Open | Choice::Unresolved => {}
                    Choice::Commit(eid) => {
                        self.enter_stage(version, Stage::ProposeHome(Some(eid)), cx);
                    }
                    Choice::Abandon => self.enter_stage(version, Stage::ProposeHome(None), cx),
                }
            }
            Stage::ProposeHome(chosen) if accepted(recovery, home) => {
                let Some(eid) = chosen else {
                    return self.end(version, BTreeMap::from([(home, None)]), 0, cx);
                };
                match recovery.contents(home, eid) {
                    Some(contents) if contents.participants.len() == 1 => {
                        self.end(version, BTreeMap::from([(home, Some(contents))]), eid, cx);
                    }
                    Some(_) => self.enter_stage(version, Stage::AskOthers(eid), cx),
                    // One of those that are yet to answer has it.
                    None => cx.broadcast(
                        home,
                        self.group.all(),
                        Message::PaxosPrepare { version, view: recovery.view },
                    ),
                }
            }
            Stage::ProposeHome(_) => {}
            Stage::AskOthers(eid) => {
                let contents =
                    recovery.contents(home, eid).expect("it was there when it was asked");
                let mut proposals = BTreeMap::new();
                for partition in &contents.participants[1..] {
                    match recovery.choose(*partition, Some(eid), majority, careless) {
                        Choice::Open | Choice::Unresolved => return,
                        Choice::Commit(other) if other == eid => {
                            proposals.insert(*partition, Proposal::Commit);
                        }
                        Choice::Commit(_) | Choice::Abandon => {
                            proposals.insert(*partition, Proposal::Abandon);
                        }
                    }
                }
                self.enter_stage(version, Stage::ProposeOthers(eid, proposals), cx);
                self.advance(version, cx);
            }
            Stage::ProposeOthers(eid, proposals) => {
                if !proposals.keys().all(|partition| accepted(recovery, *partition)) {
                    return;
                }
                let contents =
                    recovery.contents(home, eid).expect("it was there when it was asked");
                let participants = &contents.participants;
                let commits = proposals.values().all(|proposal| *proposal == Proposal::Commit);
                let ends = participants.iter().map(|partition| {
                    let contents = recovery.contents(*partition, eid).filter(|_| commits);
                    (*partition, contents)
                });
                let ends: BTreeMap<_, _> = ends.collect();
                if commits && ends.values().any(Option::is_none) {
                    let (all, view) = (self.group.all(), recovery.view);
                    for partition in ends.keys() {
                        cx.broadcast(*partition, all, Message::PaxosPrepare { version, view });
                    }
                    return;
                }
                self.end(version, ends, eid, cx);
            }
            Stage::AskOwn(eid) => {
                if let Some(contents) = recovery.contents(own, eid) {
                    self.end(version, BTreeMap::from([(own, Some(contents))]), eid, cx);
                    return;
                }
                let has_it = |((partition, _), known): &(&(u16, usize), &Known)| {
                    let committed = matches!(known.settlement, Some(Settlement::Committed { .. }));
                    *partition == own && committed
                };
                if let Some(((_, member), _)) = recovery.known.iter().find(has_it) {
                    let peer = NodeId::replica(own, *member);
                    cx.send(peer, Message::Fetch { versions: vec![version] });
                } else if recovery.of(own).count() >= majority || recovery.is_aborted_in(own) {
                    // Had it taken part, one of them would know of it.
                    self.end(version, BTreeMap::new(), eid, cx);
                }
            }
            Stage::Over => {}
        }
    }

    /// The transaction has ended: as `eid` in the partitions for which there are contents, as nothing in
    /// the others, of which this replica's own is always one.
    fn end(
        &mut self,
        version: Version,
        mut ends: BTreeMap<u16, Option<Arc<Contents>>>,
        eid: u32,
        cx: &mut Cx,
    ) {
        if let Some(recovery) = self.recoveries.get_mut(&version) {
            recovery.stage = Stage::Over;
        }
        ends.entry(self.id.partition()).or_default();
        let all = self.group.all();
        for (partition, contents) in ends {
            let decision = if contents.is_some() { Decision::Commit } else { Decision::Abort };
            cx.broadcast(partition, all, Message::Decide { version, eid, decision, contents });
        }
    }

    /// Others have settled the transaction so long ago that they have forgotten how; it is settled here
    /// with everything else of its time.
    pub(super) fn give_up(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.remove(&version) else { return };
        cx.cancel_timer(Timer::Recovery(version));
        for inquirer in recovery.inquirers {
            let settlement = Settlement::Forgotten;
            cx.send(inquirer, Message::Settled { version, settlement });
        }
    }

    /// A transaction was decided: whoever wanted to know is told.
    pub(super) fn recovered(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.remove(&version) else { return };
        cx.cancel_timer(Timer::Recovery(version));
        let settlement = self.settlement(version).expect("a transaction that was decided");
        for inquirer in recovery.inquirers.iter().copied().chain([version.coordinator]) {
            cx.send(inquirer, Message::Settled { version, settlement });
        }
        self.merge(cx);
    }
}
