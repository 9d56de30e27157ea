//! Finishes transactions whose coordinators do not (000 §4.3).
//!
//! A recovery consists of instances of consensus:
//!
//! 1. The transaction's home partition chooses which of its executions may commit, if any. That is one instance
//!    ([`home`]).
//! 2. Each other partition that takes part in the chosen execution decides whether it commits there. That is one instance
//!    each ([`participants`]). The transaction commits if all of them decide to commit.
//!
//! The first view of each instance belongs to the coordinator. If the replicas have all voted to commit, a recoverer
//! treats this as the coordinator's proposal to commit ([`choose`]).
//!
//! A recoverer uses the same view in all instances. *A view is used once:* the recoverer logs it as its own promise before
//! it sends it, so after a restart it uses a later one. A replica that replaces a lost disk does not know which views its
//! predecessor has used, so it does not recover transactions; it asks its peers.
//!
//! A replica that does not know a transaction's home takes its own partition for it. If no replica there was asked to
//! prepare, none ever will be. Then the transaction is over as far as this partition is concerned, whatever it may commit
//! elsewhere.

mod choose;
mod home;
mod participants;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::{NodeId, Version};

use self::choose::Instance;
use super::watch::RECOVERIES_AT_MOST;
use super::{Cx, Replica, Timer};
use crate::morty::Mutation;
use crate::morty::message::{
    Contents, Decision, Known, Message, Proposal, Record, Settlement, View,
};

/// How long a recovery waits for answers before it asks again, round trips not counted: at first, and at most.
const REPEAT_AT_FIRST: Duration = Duration::from_millis(100);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

/// A transaction that this replica tries to finish.
#[derive(Debug)]
pub(super) struct Recovery {
    view: View,
    /// This replica's partition.
    own: u16,
    /// The home partition, as far as is known.
    home: u16,
    stage: Stage,
    /// The partitions that were asked in this view, and what they have answered.
    instances: BTreeMap<u16, Instance>,
    /// Those who wait for the outcome.
    inquirers: BTreeSet<NodeId>,
    repeated: u32,
    majority: usize,
    /// A mutation: see [`Instance::choose`].
    careless: bool,
}

#[derive(Debug)]
enum Stage {
    /// The home partition chooses.
    Home,
    /// It has chosen this execution, with these contents at home; the other participants are asked.
    Others(u32, Arc<Contents>),
    /// The execution has committed, and this partition is asked for its contents.
    Own(u32),
    /// Another replica recovers the transaction in this view, which is later than this replica's own. It is given time.
    /// Then this replica begins anew in an even later view. It does not enter that view earlier, because this would stop
    /// the other.
    Yields(View),
    /// The replicas have been told how it ended.
    Over,
}

/// What the replica has to do for a recovery.
#[derive(Debug)]
enum Action {
    /// Ask the replicas of this partition what they know.
    Ask(u16),
    /// Send the proposal to the replicas of this partition that have not accepted it.
    Propose(u16),
    /// Fetch the transaction from this member of the own partition.
    Fetch(usize),
    /// Announce the end: this execution commits in the partitions for which there are contents, and aborts in the
    /// others.
    End(u32, BTreeMap<u16, Option<Arc<Contents>>>),
}

impl Recovery {
    /// Asks the replicas of a partition what they know.
    fn ask(&mut self, partition: u16, actions: &mut Vec<Action>) {
        self.instances.entry(partition).or_default();
        actions.push(Action::Ask(partition));
    }

    /// Continues as far as the known answers allow.
    fn go_on(&mut self, actions: &mut Vec<Action>) {
        if matches!(self.stage, Stage::Over | Stage::Yields(_)) {
            return;
        }
        // A replica of any partition that has committed the transaction knows that all partitions commit it.
        let committed = self.instances.values().find_map(Instance::committed);
        match (committed, &self.stage) {
            (Some(_), Stage::Own(_)) => {}
            (Some((_, eid)), _) => {
                self.stage = Stage::Own(eid);
                self.ask(self.own, actions);
            }
            // Every partition that is asked has to commit for the transaction to.
            (None, _) if self.instances.values().any(Instance::is_aborted) => {
                return self.end(BTreeMap::new(), 0, actions);
            }
            (None, _) => {}
        }
        match self.stage {
            Stage::Home => self.go_on_at_home(actions),
            Stage::Others(..) => self.go_on_at_others(actions),
            Stage::Own(eid) => self.go_on_here(eid, actions),
            Stage::Yields(_) | Stage::Over => {}
        }
    }

    /// The transaction has committed as `eid`. Finds out what it writes in this partition.
    fn go_on_here(&mut self, eid: u32, actions: &mut Vec<Action>) {
        let instance = self.instances.entry(self.own).or_default();
        if let Some(contents) = instance.contents(eid) {
            self.end([(self.own, Some(contents))].into(), eid, actions);
        } else if let Some((member, _)) = instance.committed() {
            actions.push(Action::Fetch(member));
        } else if instance.answers().count() >= self.majority || instance.is_aborted() {
            // If this partition took part, one replica of any majority would know of it.
            self.end(BTreeMap::new(), eid, actions);
        }
    }

    /// Announces how the transaction has ended, always to this replica's own partition too.
    fn end(
        &mut self,
        mut ends: BTreeMap<u16, Option<Arc<Contents>>>,
        eid: u32,
        actions: &mut Vec<Action>,
    ) {
        self.stage = Stage::Over;
        ends.entry(self.own).or_default();
        actions.push(Action::End(eid, ends));
    }

    /// Asks and proposes again what was not answered.
    fn repeat(&mut self, actions: &mut Vec<Action>) {
        let unfinished = |(partition, instance): (&u16, &Instance)| match instance.proposed() {
            None => Some(Action::Ask(*partition)),
            Some(_) if instance.decided(self.majority).is_none() => {
                Some(Action::Propose(*partition))
            }
            Some(_) => None,
        };
        match &self.stage {
            Stage::Home => {
                let home = self.instances.get_key_value(&self.home);
                actions.extend(home.and_then(unfinished));
            }
            Stage::Others(_, contents) => {
                let others = contents.participants[1..].iter();
                let others = others.filter_map(|other| self.instances.get_key_value(other));
                actions.extend(others.filter_map(unfinished));
            }
            Stage::Own(_) => actions.push(Action::Ask(self.own)),
            Stage::Yields(_) | Stage::Over => {}
        }
    }

    /// Begins in this view, or begins anew.
    fn begin(&mut self, view: View, actions: &mut Vec<Action>) {
        self.view = view;
        self.stage = Stage::Home;
        self.instances.clear();
        self.ask(self.home, actions);
    }
}

impl Replica {
    /// `from` asks how the transaction ends.
    pub(super) fn on_inquire(&mut self, from: NodeId, version: Version, cx: &mut Cx) {
        match self.settlement(version) {
            Some(settlement) => cx.send(from, Message::Settled { version, settlement }),
            // It was not admitted, and may be later.
            None if self.is_too_far_ahead(version, cx) => {}
            None if self.recoveries.len() >= RECOVERIES_AT_MOST => {} // `from` will ask again.
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
        let own = self.id.partition();
        let recovery = Recovery {
            view: View::OWN,
            own,
            home: home.unwrap_or(own),
            stage: Stage::Yields(View::OWN),
            instances: BTreeMap::new(),
            inquirers: inquirer.into_iter().collect(),
            repeated: 0,
            majority: self.group.majority(),
            careless: self.options.mutation.is(Mutation::RecoveryIgnoresFinalize),
        };
        self.recoveries.insert(version, recovery);
        self.begin_view(version, View::OWN, cx);
    }

    /// Begins to recover in a view of this replica's own that is later than `last`. The view is logged as a promise before
    /// any message names it. So after a restart it is not used again, in any partition.
    fn begin_view(&mut self, version: Version, last: View, cx: &mut Cx) {
        let id = self.id;
        let undecided = self.open(version, cx.now());
        let view = undecided.view.max(last).next(id);
        undecided.view = view;
        self.append(Record::Promised { version, view }, cx);
        self.go_on_with(version, cx, |recovery, actions| recovery.begin(view, actions));
    }

    /// Changes a recovery by `act`, and carries out the actions that result.
    fn go_on_with(
        &mut self,
        version: Version,
        cx: &mut Cx,
        act: impl FnOnce(&mut Recovery, &mut Vec<Action>),
    ) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        let mut actions = Vec::new();
        act(recovery, &mut actions);
        if !actions.is_empty() {
            self.repeat_recovery(version, cx);
        }
        for action in actions {
            self.carry_out_for(version, action, cx);
        }
    }

    fn carry_out_for(&self, version: Version, action: Action, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.get(&version) else { return };
        let (view, all) = (recovery.view, self.group.all());
        match action {
            Action::Ask(partition) => {
                // Replicas that have answered are asked too: they may have learned more since.
                cx.broadcast(partition, all, Message::PaxosPrepare { version, view });
            }
            Action::Propose(partition) => {
                let Some(instance) = recovery.instances.get(&partition) else { return };
                let Some(proposed) = instance.proposed() else { return };
                let (eid, decision) = (proposed.eid(), proposed.decision());
                let finalize = Message::Finalize { version, eid, view, decision };
                cx.broadcast(partition, all.without(instance.accepted()), finalize);
            }
            Action::Fetch(member) => {
                let peer = NodeId::replica(recovery.own, member);
                cx.send(peer, Message::Fetch { versions: vec![version] });
            }
            Action::End(eid, ends) => {
                for (partition, contents) in ends {
                    let decision =
                        if contents.is_some() { Decision::Commit } else { Decision::Abort };
                    let decide = Message::Decide { version, eid, decision, contents };
                    cx.broadcast(partition, all, decide);
                }
            }
        }
    }

    fn repeat_recovery(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        let first = REPEAT_AT_FIRST + 2 * self.group.round_trip();
        let wait = (first * (1 << recovery.repeated.min(6))).min(first.max(REPEAT_AT_MOST));
        recovery.repeated += 1;
        let wait = cx.jitter(wait);
        cx.set_timer(Timer::Recovery(version), wait);
    }

    /// The timer of a recovery has fired: nothing was answered for a while.
    pub(super) fn go_on_recovering(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.get(&version) else { return };
        // Some replicas have forgotten the transaction, and the others do not know enough.
        if recovery.instances.values().any(|instance| instance.forgotten_by().is_some()) {
            let peer = recovery.instances.get(&recovery.own).and_then(Instance::forgotten_by);
            self.give_up(version, cx);
            // What that replica has settled for good is still open here. So this one copies it.
            if let Some(member) = peer {
                self.catch_up_from(NodeId::replica(self.id.partition(), member), cx);
            }
            return;
        }
        if let Stage::Yields(last) = recovery.stage {
            return self.begin_view(version, last, cx);
        }
        self.repeat_recovery(version, cx);
        self.go_on_with(version, cx, Recovery::repeat);
        self.go_on_with(version, cx, Recovery::go_on);
    }

    /// A replica has entered the view and says what it knows, or it is in a later view.
    pub(super) fn on_paxos_prepare_reply(
        &mut self,
        from: NodeId,
        version: Version,
        view: View,
        known: Option<Box<Known>>,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.recoveries.get(&version) else { return };
        match known {
            Some(known) if view == recovery.view => self.learn(from, version, *known, cx),
            Some(_) => {} // From a view that this replica has left.
            None => self.yield_to(version, view, cx),
        }
    }

    /// A replica says how the transaction ended, instead of accepting a proposal.
    pub(super) fn on_settled(
        &mut self,
        from: NodeId,
        version: Version,
        settlement: Settlement,
        cx: &mut Cx,
    ) {
        self.learn(from, version, Known { settlement: Some(settlement), ..Known::default() }, cx);
    }

    /// Takes in what a replica knows.
    fn learn(&mut self, from: NodeId, version: Version, known: Known, cx: &mut Cx) {
        let partition = from.partition();
        let execution = known.execution.as_ref();
        if execution.is_some_and(|(.., contents)| !self.is_sound(version, partition, contents)) {
            let what = format_args!("an execution of {version} that can't be");
            return self.reject(from, what, cx);
        }
        self.go_on_with(version, cx, |recovery, actions| {
            if let Some(instance) = recovery.instances.get_mut(&partition) {
                instance.learn(from.member(), known);
                recovery.go_on(actions);
            }
        });
    }

    /// A replica has accepted a proposal, or is in a later view.
    pub(super) fn on_finalize_reply(
        &mut self,
        from: NodeId,
        version: Version,
        view: View,
        (eid, decision): (u32, Proposal),
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.recoveries.get(&version) else { return };
        if view > recovery.view {
            return self.yield_to(version, view, cx);
        }
        if view < recovery.view {
            return; // From a view that this replica has left.
        }
        self.go_on_with(version, cx, |recovery, actions| {
            if let Some(instance) = recovery.instances.get_mut(&from.partition())
                && instance.accept(from, eid, decision)
            {
                recovery.go_on(actions);
            }
        });
    }

    /// Another replica recovers the transaction in a later view.
    fn yield_to(&mut self, version: Version, view: View, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.get_mut(&version) else { return };
        let last = match recovery.stage {
            Stage::Over => return,
            Stage::Yields(last) => last,
            _ => recovery.view,
        };
        if view > last {
            recovery.stage = Stage::Yields(view);
            recovery.instances.clear();
            self.repeat_recovery(version, cx);
        }
    }

    /// Gives a recovery up. Others have settled the transaction so long ago that they have forgotten how it ended. Here it
    /// is settled together with everything else of its time.
    pub(super) fn give_up(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.recoveries.remove(&version) else { return };
        cx.cancel_timer(Timer::Recovery(version));
        for inquirer in recovery.inquirers {
            let settlement = Settlement::Forgotten;
            cx.send(inquirer, Message::Settled { version, settlement });
        }
    }

    /// A transaction was decided: those who wait for the outcome are told.
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
