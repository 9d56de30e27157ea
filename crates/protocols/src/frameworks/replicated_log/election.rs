//! Elections: how the leader changes.
//!
//! These handlers are methods of the log, because an election changes its role and needs all of its
//! components: the failure detector reports whether there is a leader, the acceptor has the ballot
//! and the entries, and a replica that lacks too many entries can't lead.

use serried_actor::Context;
use serried_model::NodeId;

use super::candidate::{Candidate, Mandate, SHOWN_BYTES};
use super::canvass::Canvass;
use super::host::{Host, StateMachine};
use super::leader::Leader;
use super::log::{ReplicatedLog, Role};
use super::message::{Accepted, Ballot, Entry, Message, Timer};

impl<E: Entry> ReplicatedLog<E> {
    /// Begins to look for a leader, if there seems to be none.
    pub(super) fn look_for_leader<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        match &self.role {
            Role::Leader(_) => {}
            Role::Candidate(candidate) => candidate.ask(&self.acceptor, &self.members, cx),
            Role::Follower | Role::Canvasser(_) => {
                let suspects = self.detector.suspects(cx.now(), &self.members);
                if !suspects || self.is_behind() || self.stops {
                    self.role = Role::Follower;
                    return self.wait_for_leader(cx);
                }
                self.role = Role::Canvasser(Canvass::begin(&self.members, cx));
                self.campaign_if_willing(machine, cx);
            }
        }
    }

    /// Answers another replica's question whether this one has a leader.
    pub(super) fn on_canvass<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        cx: &mut Context<'_, H>,
    ) {
        if self.lost.is_some() {
            return; // It could not promise a ballot.
        }
        match &self.role {
            Role::Leader(leader) => {
                leader.send_beat(from.member(), &self.acceptor, &self.members, cx);
            }
            Role::Follower if self.hears_leader(cx.now()) => {}
            _ => cx.send_before_durable(from, H::message(Message::Willing { nonce })),
        }
    }

    pub(super) fn on_willing<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if let Role::Canvasser(canvass) = &mut self.role {
            canvass.on_willing(from, nonce);
            self.campaign_if_willing(machine, cx);
        }
    }

    /// Takes a ballot if a majority would promise one.
    fn campaign_if_willing<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if let Role::Canvasser(canvass) = &self.role
            && canvass.has_majority(&self.members)
        {
            self.campaign(machine, cx);
        }
    }

    pub(super) fn on_prepare<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        (ballot, after): (Ballot, Ballot),
        slot: u64,
        cx: &mut Context<'_, H>,
    ) {
        self.acceptor.seen = self.acceptor.seen.max(ballot);
        if self.lost.is_some() {
            return; // Its predecessor may have accepted entries that it does not know.
        }
        let promised = self.acceptor.promised();
        if ballot < promised {
            return cx.send(from, H::message(Message::Refused { promised }));
        }
        let another = ballot.member != promised.member;
        let follows = match &self.role {
            Role::Leader(_) => true,
            Role::Candidate(_) => false,
            Role::Follower | Role::Canvasser(_) => self.hears_leader(cx.now()),
        };
        let handed_over = after > Ballot::NONE && after >= promised;
        if another && follows && promised > Ballot::NONE && !handed_over {
            return; // There is a leader. The candidate is late or was cut off.
        }
        let Some(accepted) = self.acceptor.slots().show(slot, SHOWN_BYTES) else {
            return cx.send(from, H::message(Message::Behind { ballot }));
        };
        if ballot > promised {
            self.promise(ballot, cx);
            self.detector.reset(cx.now());
            self.wait_for_leader(cx);
        }
        let applied = self.applied();
        cx.send(from, H::message(Message::Promise { ballot, applied, accepted }));
    }

    /// The leader asks this replica to lead in its place.
    pub(super) fn on_hand_over<H: Host<Entry = E>>(
        &mut self,
        ballot: Ballot,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let follows = matches!(self.role, Role::Follower | Role::Canvasser(_));
        if follows && ballot == self.acceptor.promised() && !self.is_behind() {
            self.campaign_after(ballot, machine, cx);
        }
    }

    /// Becomes a candidate, in a ballot higher than any that it knows.
    pub(super) fn campaign<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.campaign_after(Ballot::NONE, machine, cx);
    }

    /// Becomes a candidate after the leader of the ballot `after` has handed over. A replica whose node is about to stop does
    /// not.
    fn campaign_after<H: Host<Entry = E>>(
        &mut self,
        after: Ballot,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.stops {
            self.role = Role::Follower;
            self.detector.reset(cx.now());
            return self.wait_for_leader(cx);
        }
        let highest = self.acceptor.seen.max(self.acceptor.promised());
        self.promise(highest.next(self.members.own()), cx);
        let candidate = Candidate::new(after, &self.acceptor, &self.members);
        candidate.ask(&self.acceptor, &self.members, cx);
        self.role = Role::Candidate(candidate);
        self.lead_if_promised(machine, cx);
    }

    pub(super) fn on_promise<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (applied, accepted): (u64, Vec<Accepted<E>>),
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if ballot == self.acceptor.promised() && candidate.on_promise(from, applied, accepted) {
            self.lead_if_promised(machine, cx);
        }
    }

    /// Becomes the leader, if a majority has promised. Proposes again, in each slot, the entry that
    /// was accepted in the highest ballot, and an empty entry where none was accepted.
    fn lead_if_promised<H: Host<Entry = E>>(
        &mut self,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if !candidate.has_majority(&self.members) {
            return;
        }
        let first = self.acceptor.slots().applied();
        let Mandate { mut entries, chosen, applied } = candidate.mandate(first);
        if !entries.is_empty() {
            machine.revise(first, &mut entries);
        }
        let base = first + entries.len() as u64;
        self.acceptor.accept_own(first, &entries.into(), cx);
        self.acceptor.learn(chosen);
        cx.cancel_timer(H::timer(Timer::Elect));
        let mut leader = Leader::new(base, &applied, cx.now());
        for member in self.members.others().members() {
            if applied[member].is_some() {
                leader.feed(member, &self.acceptor, &self.members, cx);
            }
        }
        self.role = Role::Leader(leader);
        self.look_after_followers(cx);
        self.apply(machine, cx);
        self.choose(machine, cx);
    }

    /// A replica that was asked for a promise keeps less of the log than this candidate lacks.
    pub(super) fn on_behind<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        cx: &mut Context<'_, H>,
    ) {
        if matches!(self.role, Role::Candidate(_)) && ballot == self.acceptor.promised() {
            self.role = Role::Follower;
            self.detector.reset(cx.now());
            self.restore_from(from, cx);
            self.wait_for_leader(cx);
        }
    }

    /// Another replica has promised a higher ballot. A leader takes a still higher one. A candidate
    /// first waits to see whether that ballot's candidate leads.
    pub(super) fn on_refused<H: Host<Entry = E>>(
        &mut self,
        promised: Ballot,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        self.acceptor.seen = self.acceptor.seen.max(promised);
        if promised <= self.acceptor.promised() {
            return;
        }
        match &self.role {
            Role::Leader(_) => self.campaign(machine, cx),
            Role::Candidate(_) => {
                self.role = Role::Follower;
                let soon = cx.jitter(self.members.beat());
                cx.set_timer(H::timer(Timer::Elect), soon);
            }
            Role::Follower | Role::Canvasser(_) => {}
        }
    }
}
