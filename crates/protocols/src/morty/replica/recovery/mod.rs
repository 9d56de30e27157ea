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

use self::choose::{Instance, Rules};
use super::setup::Setup;
use super::{Cx, Timer, reject};
use crate::morty::Mutation;
use crate::morty::message::{
    Ballot, CatchingUp, Contents, Decision, Known, LateVote, Message, Proposal, Recovering,
    Request, Settlement, Status, View,
};
use crate::morty::votes::Quorums;

/// No more transactions than these are recovered at the same time; the others wait.
const RECOVERIES_AT_MOST: usize = 1024;
/// How long a recovery waits for answers before it asks again, round trips not counted: at first, and at most.
const REPEAT_AT_FIRST: Duration = Duration::from_millis(100);
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

const _: () = assert!(
    REPEAT_AT_FIRST.as_millis() < REPEAT_AT_MOST.as_millis(),
    "waits grow from the first to the longest"
);

/// A transaction that this replica tries to finish.
#[derive(Debug)]
struct Recovery {
    view: View,
    /// This replica's partition.
    own: u16,
    /// The home partition, as far as is known.
    home: u16,
    stage: Stage,
    /// The partitions that were asked in this view, and what they have answered.
    instances: BTreeMap<u16, Instance>,
    /// The nodes that wait for the outcome.
    inquirers: BTreeSet<NodeId>,
    repeated: u32,
    /// A ballot of a truncation of the own partition that is cleared. The truncation waits for the transaction.
    cleared: Option<Ballot>,
    rules: Rules,
}

/// The transactions that this replica tries to finish.
#[derive(Debug, Default)]
pub(super) struct Recoveries {
    all: BTreeMap<Version, Recovery>,
}

/// What follows when a recovery was not answered for a while.
#[derive(Debug)]
pub(super) enum Next {
    /// It goes on.
    Wait,
    /// It begins anew, in a view of this replica's own that is later than this one.
    NewView(View),
    /// It is given up, since others have forgotten the transaction. What this replica of the own partition has settled for
    /// good is still open here.
    GiveUp(Option<NodeId>),
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
    /// The end was announced to the replicas.
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
        } else if instance.answers().count() >= self.rules.quorums.majority || instance.is_aborted()
        {
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
            Some(_) if instance.decided(self.rules.quorums.majority).is_none() => {
                Some(Action::Propose(*partition))
            }
            Some(_) => None,
        };
        match &self.stage {
            // Home's and, if home is in doubt, those of the others.
            Stage::Home => actions.extend(self.instances.iter().filter_map(unfinished)),
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

impl Recoveries {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn contains(&self, version: Version) -> bool {
        self.all.contains_key(&version)
    }

    /// Whether other transactions have to wait until one of these is finished.
    pub(super) fn are_full(&self) -> bool {
        self.all.len() >= RECOVERIES_AT_MOST
    }

    /// The transactions below `version`.
    pub(super) fn below(&self, version: Version) -> Vec<Version> {
        self.all.range(..version).map(|(version, _)| *version).collect()
    }

    /// Adds a transaction, whose home is that of `execution` if there is one. Returns false if it is being recovered already;
    /// `inquirer` then waits for the outcome as well.
    pub(super) fn add(
        &mut self,
        version: Version,
        execution: Option<&Contents>,
        inquirer: Option<NodeId>,
        setup: &Setup,
    ) -> bool {
        if let Some(recovery) = self.all.get_mut(&version) {
            recovery.inquirers.extend(inquirer);
            return false;
        }
        let (own, mutation) = (setup.id.partition(), setup.options.mutation);
        let recovery = Recovery {
            view: View::OWN,
            own,
            home: execution.map_or(own, |contents| contents.participants[0]),
            stage: Stage::Yields(View::OWN),
            instances: BTreeMap::new(),
            inquirers: inquirer.into_iter().collect(),
            repeated: 0,
            cleared: None,
            rules: Rules {
                quorums: Quorums::of(&setup.group, &setup.options),
                ignores_accepted: mutation.is(Mutation::RecoveryIgnoresFinalize),
                trusts_few: mutation.is(Mutation::RecoveryTrustsFewVotes),
            },
        };
        self.all.insert(version, recovery);
        true
    }

    /// Begins to recover in a view of this replica's own, which is logged as a promise. So after a restart it is not used
    /// again, in any partition.
    pub(super) fn begin(&mut self, version: Version, view: View, setup: &Setup, cx: &mut Cx) {
        self.go_on_with(version, setup, cx, |recovery, actions| recovery.begin(view, actions));
    }

    /// Changes a recovery by `act`, and carries out the actions that result.
    fn go_on_with(
        &mut self,
        version: Version,
        setup: &Setup,
        cx: &mut Cx,
        act: impl FnOnce(&mut Recovery, &mut Vec<Action>),
    ) {
        let Some(recovery) = self.all.get_mut(&version) else { return };
        let mut actions = Vec::new();
        act(recovery, &mut actions);
        if !actions.is_empty() {
            recovery.set_timer(version, setup, cx);
        }
        for action in actions {
            recovery.carry_out(version, action, setup, cx);
        }
    }

    /// The timer of a recovery has fired: nothing was answered for a while.
    pub(super) fn go_on(&mut self, version: Version, setup: &Setup, cx: &mut Cx) -> Next {
        let Some(recovery) = self.all.get_mut(&version) else { return Next::Wait };
        // Some replicas have forgotten the transaction, and the others do not know enough. As long as home is in doubt, the
        // other participants are only asked whether they abandon it.
        let (own, home) = (recovery.own, recovery.home);
        let is_at_home = matches!(recovery.stage, Stage::Home);
        let counts = |partition: u16| !is_at_home || partition == own || partition == home;
        let mut asked = recovery.instances.iter().filter(|(partition, _)| counts(**partition));
        if asked.any(|(_, instance)| instance.forgotten_by().is_some()) {
            let member = recovery.instances.get(&own).and_then(Instance::forgotten_by);
            self.give_up(version, cx);
            return Next::GiveUp(member.map(|member| NodeId::replica(own, member)));
        }
        if let Stage::Yields(last) = recovery.stage {
            return Next::NewView(last);
        }
        recovery.set_timer(version, setup, cx);
        self.go_on_with(version, setup, cx, Recovery::repeat);
        self.go_on_with(version, setup, cx, Recovery::go_on);
        Next::Wait
    }

    /// A truncation of the own partition waits for a transaction, and replicas that have stopped for it and are in this
    /// ballot may vote on the transaction. They are asked now if it is in doubt. If another replica recovers it in a later
    /// view, that one is not given any more time, since it can't ask them. `view` is the one that this replica has promised.
    pub(super) fn ask_the_stopped(
        &mut self,
        (version, view): (Version, View),
        cleared: Ballot,
        setup: &Setup,
        cx: &mut Cx,
    ) -> Next {
        let Some(recovery) = self.all.get_mut(&version) else { return Next::Wait };
        recovery.cleared = Some(cleared);
        match recovery.stage {
            Stage::Over => {}
            Stage::Yields(last) => return Next::NewView(last),
            _ if view > recovery.view => return Next::NewView(view),
            Stage::Home | Stage::Others(..) | Stage::Own(_) => {
                self.go_on_with(version, setup, cx, Recovery::repeat);
            }
        }
        Next::Wait
    }

    /// A replica has entered the view and says what it knows, or it is in a later view.
    pub(super) fn on_paxos_prepare_reply(
        &mut self,
        from: NodeId,
        (version, view): (Version, View),
        known: Option<Box<Known>>,
        setup: &Setup,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.all.get_mut(&version) else { return };
        match known {
            Some(known) if view == recovery.view => self.learn(from, version, *known, setup, cx),
            Some(_) => {} // From a view that this replica has left.
            None => recovery.yield_to(version, view, setup, cx),
        }
    }

    /// A replica says how the transaction ended, instead of accepting a proposal.
    pub(super) fn on_settled(
        &mut self,
        from: NodeId,
        version: Version,
        settlement: Settlement,
        setup: &Setup,
        cx: &mut Cx,
    ) {
        let known = Known { settlement: Some(settlement), ..Known::default() };
        self.learn(from, version, known, setup, cx);
    }

    /// Takes in what a replica knows.
    fn learn(&mut self, from: NodeId, version: Version, known: Known, setup: &Setup, cx: &mut Cx) {
        let partition = from.partition();
        let execution = known.execution.as_ref();
        if execution.is_some_and(|(.., contents)| !setup.is_sound(version, partition, contents)) {
            let what = format_args!("an execution of {version} that can't be");
            return reject(from, what, cx);
        }
        self.go_on_with(version, setup, cx, |recovery, actions| {
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
        (version, view): (Version, View),
        (eid, decision): (u32, Proposal),
        setup: &Setup,
        cx: &mut Cx,
    ) {
        let Some(recovery) = self.all.get_mut(&version) else { return };
        if view > recovery.view {
            return recovery.yield_to(version, view, setup, cx);
        }
        if view < recovery.view {
            return; // From a view that this replica has left.
        }
        self.go_on_with(version, setup, cx, |recovery, actions| {
            if let Some(instance) = recovery.instances.get_mut(&from.partition())
                && instance.accept(from, eid, decision)
            {
                recovery.go_on(actions);
            }
        });
    }

    /// Gives a recovery up. Others have settled the transaction so long ago that they have forgotten how it ended. Here it
    /// is settled together with everything else of its time.
    pub(super) fn give_up(&mut self, version: Version, cx: &mut Cx) {
        let Some(recovery) = self.all.remove(&version) else { return };
        cx.cancel_timer(Timer::Recovery(version));
        recovery.answer(version, Settlement::Forgotten, None, cx);
    }

    /// A transaction was decided: sends the outcome to its coordinator and to all nodes that wait for it. Returns whether
    /// the transaction was being recovered.
    pub(super) fn end(
        &mut self,
        version: Version,
        settlement: impl FnOnce() -> Settlement,
        cx: &mut Cx,
    ) -> bool {
        let Some(recovery) = self.all.remove(&version) else { return false };
        cx.cancel_timer(Timer::Recovery(version));
        recovery.answer(version, settlement(), Some(version.coordinator), cx);
        true
    }
}

impl Recovery {
    /// What the replicas of a partition have to vote on so that the recovery can go on, if there is something.
    fn doubtful(&self, partition: u16) -> Option<LateVote> {
        let instance = self.instances.get(&partition)?;
        let late = match &self.stage {
            Stage::Home if partition == self.home => instance.doubtful(None, self.rules)?,
            Stage::Others(eid, _) => instance.doubtful(Some(*eid), self.rules)?,
            Stage::Home | Stage::Own(_) | Stage::Yields(_) | Stage::Over => return None,
        };
        Some(LateVote { cleared: self.cleared.filter(|_| partition == self.own), ..late })
    }

    fn carry_out(&self, version: Version, action: Action, setup: &Setup, cx: &mut Cx) {
        let (view, all) = (self.view, setup.group.all());
        match action {
            Action::Ask(partition) => {
                // Replicas that have answered are asked too: they may have learned more since.
                let vote_on = self.doubtful(partition);
                let message = Recovering::PaxosPrepare { version, view, vote_on };
                cx.broadcast(partition, all, Message::Recovering(message));
            }
            Action::Propose(partition) => {
                let Some(instance) = self.instances.get(&partition) else { return };
                let Some(proposed) = instance.proposed() else { return };
                let (eid, decision) = (proposed.eid(), proposed.decision());
                let finalize = Message::Request(Request::Finalize { version, eid, view, decision });
                cx.broadcast(partition, all.without(instance.accepted()), finalize);
            }
            Action::Fetch(member) => {
                let peer = NodeId::replica(self.own, member);
                cx.send(peer, Message::CatchingUp(CatchingUp::Fetch { versions: vec![version] }));
            }
            Action::End(eid, ends) => {
                for (partition, contents) in ends {
                    let decision =
                        if contents.is_some() { Decision::Commit } else { Decision::Abort };
                    let decide = Request::Decide { version, eid, decision, contents };
                    cx.broadcast(partition, all, Message::Request(decide));
                }
            }
        }
    }

    /// Waits for answers, longer each time.
    fn set_timer(&mut self, version: Version, setup: &Setup, cx: &mut Cx) {
        let first = REPEAT_AT_FIRST + 2 * setup.group.round_trip();
        let wait = (first * (1 << self.repeated.min(6))).min(first.max(REPEAT_AT_MOST));
        self.repeated += 1;
        let wait = cx.jitter(wait);
        cx.set_timer(Timer::Recovery(version), wait);
    }

    /// Another replica recovers the transaction in a later view.
    fn yield_to(&mut self, version: Version, view: View, setup: &Setup, cx: &mut Cx) {
        let last = match self.stage {
            Stage::Over => return,
            Stage::Yields(last) => last,
            Stage::Home | Stage::Others(..) | Stage::Own(_) => self.view,
        };
        if view > last {
            self.stage = Stage::Yields(view);
            self.instances.clear();
            self.set_timer(version, setup, cx);
        }
    }

    /// Sends the outcome to the nodes that wait for it, and to one more if there is one.
    fn answer(self, version: Version, settlement: Settlement, other: Option<NodeId>, cx: &mut Cx) {
        for inquirer in self.inquirers.into_iter().chain(other) {
            cx.send(inquirer, Message::Status(Status::Settled { version, settlement }));
        }
    }
}
