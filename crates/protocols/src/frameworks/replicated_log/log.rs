//! One replica's side of a replicated log.
//!
//! [`ReplicatedLog`] passes messages and timers to its components: the [`Acceptor`], the
//! [`FailureDetector`], its [`Role`], and [`Lost`], [`Restore`] and [`Hold`] for replicas that lack
//! entries. The components do not know each other, except that all of them may read the acceptor.
//! The log makes the decisions that concern several of them: which leader it follows and which
//! entries are chosen in this file, changes of its role in `election.rs`, and the recovery of
//! lacking entries in `recovery.rs`.

use std::collections::BTreeMap;

use serried_actor::{Context, Group, Settings, Standing, Timestamp};
use serried_model::NodeId;

use super::acceptor::Acceptor;
use super::candidate::Candidate;
use super::canvass::Canvass;
use super::failure_detector::FailureDetector;
use super::follower::Reached;
use super::host::{Host, StateMachine};
use super::leader::Leader;
use super::lost::Lost;
use super::members::Members;
use super::message::{Ballot, Entries, Entry, Message, Record, Timer};
use super::restore::{Hold, Page, Restore};
use super::sound;

/// One replica's side of a replicated log.
#[derive(Debug)]
pub struct ReplicatedLog<E> {
    pub(super) members: Members,
    pub(super) acceptor: Acceptor<E>,
    pub(super) detector: FailureDetector,
    pub(super) role: Role<E>,
    /// Set after the loss of its disk, while it does not know what its predecessor promised and
    /// accepted.
    pub(super) lost: Option<Lost>,
    /// Set while it copies another replica's state.
    pub(super) restore: Option<Restore>,
    pub(super) hold: Hold,
    /// By member, the last loss of a disk that it reported.
    pub(super) losses: BTreeMap<usize, u64>,
    /// Whether the node is about to stop.
    pub(super) stops: bool,
    /// Whether the group may begin anew if all its disks are lost.
    pub(super) may_begin_anew: bool,
    /// Whether it has done so.
    pub(super) anew: bool,
}

/// The role of a replica.
#[derive(Debug)]
pub(super) enum Role<E> {
    /// Follows the leader of the promised ballot, if there is one.
    Follower,
    /// Has not received a message of a leader for long, and asks the others whether they have one.
    Canvasser(Canvass),
    /// Has asked for promises.
    Candidate(Candidate<E>),
    /// Leads in the promised ballot.
    Leader(Leader<E>),
}

impl<E: Entry> ReplicatedLog<E> {
    /// Creates the empty log of replica `id`.
    pub fn new(id: NodeId, group: Group, settings: &Settings) -> ReplicatedLog<E> {
        let members = Members::new(id, group, settings);
        // Entries are kept for other replicas.
        let kept = if members.is_alone() { 0 } else { settings.resident_keys };
        ReplicatedLog {
            members,
            acceptor: Acceptor::new(kept),
            detector: FailureDetector::new(),
            role: Role::Follower,
            lost: None,
            restore: None,
            hold: Hold::default(),
            losses: BTreeMap::new(),
            stops: false,
            may_begin_anew: false,
            anew: false,
        }
    }

    /// Lets the group begin anew, with an empty log, once all its members have lost their disks. The host
    /// gets its state from elsewhere. Otherwise such a group waits for ever.
    #[must_use]
    pub fn that_may_begin_anew(mut self) -> ReplicatedLog<E> {
        self.may_begin_anew = true;
        self
    }

    /// Changes how many replicas must accept an entry before it counts as chosen. Only a majority
    /// is correct. Tests use other quorums to show that the mistake is found.
    #[must_use]
    pub fn with_quorum(mut self, quorum: usize) -> ReplicatedLog<E> {
        self.members.quorum = quorum;
        self
    }

    /// The ballot in which this replica leads, if it does.
    pub fn leads(&self) -> Option<Ballot> {
        matches!(self.role, Role::Leader(_)).then_some(self.acceptor.promised())
    }

    /// The leader that this replica knows, if it has recently received a message of it.
    pub fn leader(&self, now: Timestamp) -> Option<NodeId> {
        let promised = self.acceptor.promised();
        let member = usize::from(promised.member);
        let known = promised > Ballot::NONE && self.lost.is_none();
        match &self.role {
            Role::Leader(_) => Some(self.members.id),
            Role::Follower if known && member != self.members.own() && self.hears_leader(now) => {
                Some(self.members.node(member))
            }
            _ => None,
        }
    }

    /// How many slots are in memory.
    pub fn kept(&self) -> usize {
        self.acceptor.slots().len()
    }

    /// Whether the group has begun anew, after all its disks were lost. A leader knows it.
    pub fn is_anew(&self) -> bool {
        self.anew
    }

    /// All chosen entries below this slot have been applied.
    pub fn applied(&self) -> u64 {
        self.acceptor.slots().applied()
    }

    /// Whether it is the only replica.
    pub fn is_alone(&self) -> bool {
        self.members.is_alone()
    }

    /// How far it takes part in the group.
    pub fn standing(&self) -> Standing {
        let keys = self.restore.as_ref().map_or(0, Restore::keys);
        match (&self.lost, &self.restore) {
            (Some(_), _) => Standing::Rejoining { keys },
            (None, Some(_)) => Standing::CatchingUp { keys },
            (None, None) => Standing::Full,
        }
    }

    /// Whether it can't take full part at present: it has lost its disk, or is copying a state.
    pub fn is_behind(&self) -> bool {
        self.lost.is_some() || self.restore.is_some()
    }

    pub(super) fn hears_leader(&self, now: Timestamp) -> bool {
        self.detector.hears_leader(now, &self.members)
    }

    pub(super) fn wait_for_leader<H: Host<Entry = E>>(&self, cx: &mut Context<'_, H>) {
        self.detector.wait(&self.members, cx);
    }

    /// Replays a record of the durable log.
    pub fn replay(&mut self, record: Record<E>) {
        if let Record::Mark { lost, anew, .. } = record {
            self.lost = lost.then(Lost::default);
            self.anew = anew;
        }
        self.acceptor.replay(record);
    }

    /// Begins in the place of a node whose disk was lost. [`ReplicatedLog::on_start`] follows.
    pub fn rejoin<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        // If there are no others, nobody knows more.
        if !self.is_alone() {
            self.lost = Some(Lost::default());
            self.mark(cx);
        } else if self.may_begin_anew {
            self.anew = true;
            self.mark(cx);
        }
    }

    /// Handles the start or restart of the node.
    pub fn on_start<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.detector.reset(cx.now());
        self.acceptor.start(machine, cx);
        self.ask_for_standing(cx);
        let is_first = self.members.own() == self.members.preferred();
        if self.acceptor.promised() == Ballot::NONE && is_first && self.lost.is_none() {
            self.campaign(machine, cx);
        } else {
            self.wait_for_leader(cx);
        }
    }

    /// Handles a message of the log.
    pub fn on_message<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        message: Message<E>,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !sound::is_sound(from, &message, &self.members) {
            return cx.reject(|| format!("{from} has sent a message that no replica sends"));
        }
        if !sound::is_of_use(&message, &self.acceptor) {
            return;
        }
        match message {
            Message::Rejoin { nonce, question } => {
                self.on_rejoin(from, (nonce, question), machine, cx);
            }
            Message::Standing { nonce, question, promised, is_blank, is_anew } => {
                let question = (nonce, question);
                self.on_standing(from, question, promised, (is_blank, is_anew), cx);
            }
            _ if self.lost.as_ref().is_some_and(Lost::is_asking) => {}
            Message::Accept { ballot, first, chosen, entries } => {
                self.on_accept(from, ballot, first, (chosen, entries), machine, cx);
            }
            Message::Beat { ballot, number, chosen, base, behind } => {
                self.on_beat(from, (ballot, number), chosen, (base, behind), machine, cx);
            }
            Message::Accepted { ballot, incarnation, beat, matched } => {
                let reached = Reached { incarnation, beat, matched };
                self.on_accepted(from, ballot, reached, machine, cx);
            }
            Message::Prepare { ballot, from: slot, after } => {
                self.on_prepare(from, (ballot, after), slot, cx);
            }
            Message::Promise { ballot, applied, accepted } => {
                self.on_promise(from, ballot, (applied, accepted), machine, cx);
            }
            Message::Behind { ballot } => self.on_behind(from, ballot, cx),
            Message::Refused { promised } => self.on_refused(promised, machine, cx),
            Message::Scan { after } => self.on_scan(from, after, machine, cx),
            Message::Scanned { after, incarnation, at, entries, more } => {
                let page = Page { after, incarnation, at, entries, more };
                self.on_scanned(from, page, machine, cx);
            }
            Message::Canvass { nonce } => self.on_canvass(from, nonce, cx),
            Message::Willing { nonce } => self.on_willing(from, nonce, machine, cx),
            Message::HandOver { ballot } => self.on_hand_over(ballot, machine, cx),
        }
    }

    /// Handles that appended records are durable. The host calls it from its own `on_durable`.
    pub fn on_durable<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.apply(machine, cx);
    }

    /// Handles a timer of the log that is due.
    pub fn on_timer<H: Host<Entry = E>>(
        &mut self,
        timer: Timer,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        match timer {
            Timer::Flush => self.flush(machine, cx),
            Timer::Lead => {
                self.look_after_followers(cx);
                self.look_after_hand_over(cx);
            }
            Timer::Elect => self.look_for_leader(machine, cx),
            Timer::Restore => self.ask_again_for_state(cx),
        }
    }

    /// Trims the durable log, after more state has been written to the machine's store.
    pub fn trim<H: Host<Entry = E>>(
        &mut self,
        machine: &impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.acceptor.trim((self.lost.is_some(), self.anew), machine, cx);
    }

    pub(super) fn mark<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.acceptor.mark((self.lost.is_some(), self.anew), cx);
    }

    /// Promises a higher ballot, durably. The caller decides whether this replica becomes its
    /// candidate.
    pub(super) fn promise<H: Host<Entry = E>>(&mut self, ballot: Ballot, cx: &mut Context<'_, H>) {
        self.acceptor.promise(ballot);
        self.role = Role::Follower;
        self.mark(cx);
    }

    /// Applies the entries that are known to be chosen.
    pub(super) fn apply<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let (led_in, held) = (self.leads(), self.hold.held(cx.now()));
        self.acceptor.apply(led_in, held, machine, cx);
    }
}

/// The leader's side.
impl<E: Entry> ReplicatedLog<E> {
    /// Proposes an entry, or an empty one, and returns its slot. Returns `None` if this replica
    /// does not lead, hands over, or has no room.
    pub fn propose<H: Host<Entry = E>>(
        &mut self,
        entry: Option<E>,
        cx: &mut Context<'_, H>,
    ) -> Option<u64> {
        let Role::Leader(leader) = &mut self.role else { return None };
        leader.propose(entry, &self.acceptor, &self.members, cx)
    }

    /// A slot that can't be chosen unless this replica leads from now until then: that of an entry
    /// that waits to be proposed, or of an empty one. Returns `None` if this replica does not lead
    /// or has no room.
    pub fn confirm<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) -> Option<u64> {
        let Role::Leader(leader) = &mut self.role else { return None };
        leader.confirm(&self.acceptor, &self.members, cx)
    }

    /// Whether any entry waits to be proposed.
    pub fn has_queued(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if leader.has_queued())
    }

    /// Chooses and applies proposed entries, if this replica is the only one. The host calls it
    /// after each proposal. Does nothing in a group of several.
    pub fn choose_alone<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.is_alone() {
            self.flush(machine, cx);
        }
    }

    fn flush<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.flush(&mut self.acceptor, &self.members, cx) {
            self.choose(machine, cx);
        }
    }

    /// Treats entries that a quorum has accepted as chosen.
    pub(super) fn choose<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        let chosen = leader.chosen(self.acceptor.matched(), &self.members);
        if self.acceptor.learn(chosen) {
            self.apply(machine, cx);
        }
    }

    fn on_accepted<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        reached: Reached,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Leader(leader) = &mut self.role else { return };
        if ballot != self.acceptor.promised() {
            return;
        }
        if !leader.on_accepted(from.member(), reached, cx.now()) {
            return; // The follower's current run will answer.
        }
        self.choose(machine, cx);
        let Role::Leader(leader) = &mut self.role else { return };
        leader.feed_after_answer(from.member(), &self.acceptor, &self.members, cx);
        leader.continue_hand_over(&self.acceptor, &self.members, cx);
    }

    /// Sends followers the entries that they lack, and beats. Steps down if this leader has not
    /// received answers from a majority for long.
    pub(super) fn look_after_followers<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let Role::Leader(leader) = &mut self.role else { return };
        if !leader.look_after_followers(&self.acceptor, &self.members, cx) {
            self.role = Role::Follower;
            self.detector.reset(cx.now());
            self.wait_for_leader(cx);
        }
    }

    fn look_after_hand_over<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let Role::Leader(leader) = &mut self.role else { return };
        leader.look_after_hand_over(self.stops, &self.acceptor, &self.members, cx);
    }

    /// Prepares for the end of the node. From now on this replica does not become a leader, and
    /// hands over if it leads.
    pub fn stop<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.stops = true;
        match &self.role {
            Role::Leader(_) => self.look_after_hand_over(cx),
            Role::Candidate(_) | Role::Canvasser(_) => self.role = Role::Follower,
            Role::Follower => {}
        }
    }

    /// Whether the node may stop now: this replica does not lead, or is the only one.
    pub fn may_stop(&self) -> bool {
        self.is_alone() || self.leads().is_none()
    }
}

/// The follower's side.
impl<E: Entry> ReplicatedLog<E> {
    /// Handles a leader's claim to a ballot. Returns whether this replica follows it.
    fn follow<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        cx: &mut Context<'_, H>,
    ) -> bool {
        let promised = self.acceptor.promised();
        if ballot < promised {
            cx.send(from, H::message(Message::Refused { promised }));
            return false;
        }
        if ballot > promised {
            self.promise(ballot, cx);
            self.wait_for_leader(cx);
        }
        if matches!(self.role, Role::Canvasser(_)) {
            self.role = Role::Follower;
        }
        self.detector.reset(cx.now());
        true
    }

    fn on_accept<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        first: u64,
        (chosen, entries): (u64, Entries<E>),
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        self.acceptor.accept(ballot, first, &entries, cx);
        self.acceptor.learn(chosen);
        self.acceptor.report(from, cx);
        self.apply(machine, cx);
    }

    fn on_beat<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        (ballot, number): (Ballot, u64),
        chosen: u64,
        (base, behind): (u64, bool),
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        self.acceptor.on_beat(number);
        self.acceptor.learn(chosen);
        self.apply(machine, cx);
        if self.lost.is_some() && self.acceptor.matched() >= base {
            self.lost = None;
            self.mark(cx);
        }
        if behind && self.restore.is_none() {
            self.restore_from(from, cx);
        }
        self.acceptor.report(from, cx);
    }
}
