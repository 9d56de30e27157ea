//! Recovery of entries that a replica lacks, on both sides.
//!
//! These handlers are methods of the log: a replica that lacks entries takes no part in elections,
//! and a copied state replaces entries that its acceptor lacks.

use serried_actor::Context;
use serried_model::{Key, NodeId};

use super::host::{Host, StateMachine};
use super::log::{ReplicatedLog, Role};
use super::message::{Ballot, Entry, Message, Timer};
use super::restore::{self, Page, Progress, Restore};

impl<E: Entry> ReplicatedLog<E> {
    pub(super) fn ask_for_standing<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        if let Some(lost) = &mut self.lost {
            lost.ask(self.acceptor.incarnation(), &self.members, cx);
        }
    }

    /// Handles that another replica has lost its disk. This one abandons its ballot if the other
    /// may have promised or accepted in it.
    pub(super) fn on_rejoin<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let repeated = self.losses.insert(from.member(), nonce) == Some(nonce);
        if !repeated && matches!(self.role, Role::Leader(_) | Role::Candidate(_)) {
            self.campaign(machine, cx);
        }
        let promised = self.acceptor.promised();
        cx.send(from, H::message(Message::Standing { nonce, promised }));
    }

    pub(super) fn on_standing<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        promised: Ballot,
        cx: &mut Context<'_, H>,
    ) {
        let Some(lost) = &mut self.lost else { return };
        if let Some(above) = lost.on_standing(from, nonce, promised, &self.members) {
            self.promise(above.max(self.acceptor.promised()), cx);
        }
    }

    /// Begins to copy the state of another replica.
    pub(super) fn restore_from<H: Host<Entry = E>>(
        &mut self,
        source: NodeId,
        cx: &mut Context<'_, H>,
    ) {
        self.restore = Some(Restore::begin(source, &self.members, cx));
    }

    pub(super) fn ask_again_for_state<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        self.ask_for_standing(cx);
        match &mut self.restore {
            // The leader reports again if the state is still needed.
            Some(restore) if restore.is_given_up() => self.restore = None,
            Some(restore) => restore.ask(&self.members, cx),
            None => {}
        }
    }

    pub(super) fn on_scan<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        if self.is_behind() {
            return;
        }
        let applied = self.applied();
        self.hold.extend(applied, cx.now());
        restore::show(from, after, (self.acceptor.incarnation(), applied), machine, cx);
    }

    pub(super) fn on_scanned<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        page: Page,
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let Some(restore) = &mut self.restore else { return };
        let at = match restore.on_page(from, page, machine, cx) {
            Progress::None => return,
            Progress::Restarted => return self.restore_from(from, cx),
            Progress::More => return restore.ask(&self.members, cx),
            Progress::Complete(at) => at,
        };
        self.restore = None;
        cx.cancel_timer(H::timer(Timer::Restore));
        if at > self.applied() {
            self.acceptor.skip_to(at, cx);
            self.apply(machine, cx);
        }
        if let (Role::Follower, Some(leader)) = (&self.role, self.leader(cx.now())) {
            self.acceptor.report(leader, cx);
        }
    }
}
