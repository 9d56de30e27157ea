//! Recovery of entries that a replica lacks, on both sides.
//!
//! These handlers are methods of the log: a replica that lacks entries takes no part in elections,
//! and a copied state replaces entries that its acceptor lacks.

use serried_actor::Context;
use serried_model::{Key, NodeId};

use super::host::{Host, StateMachine};
use super::log::{ReplicatedLog, Role};
use super::lost::Report;
use super::message::{Ballot, Entry, Message, Timer};
use super::restore::{self, Page, Progress, Restore};
use super::sound::NEVER;

/// A group that begins anew begins with a round that is as high as the wall clock, in units of 2 to the
/// power of so many microseconds. Elections are further apart, so earlier rounds are lower.
const CLOCK_SHIFT: u32 = 4;
/// It is not above this, so that there are rounds left, whatever the wall clock says. It says so in the year 2111.
const ROUND_AT_MOST: u64 = NEVER - (1 << 40);

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
        (nonce, question): (u64, u64),
        machine: &mut impl StateMachine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let repeated = self.losses.insert(from.member(), nonce) == Some(nonce);
        if !repeated && matches!(self.role, Role::Leader(_) | Role::Candidate(_)) {
            self.campaign(machine, cx);
        }
        // What the other has reported before is not so any more.
        if let Some(lost) = self.lost.as_mut().filter(|_| !repeated && self.may_begin_anew) {
            *lost = lost.ask_anew();
            self.ask_for_standing(cx);
        }
        let (promised, is_blank) = (self.acceptor.promised(), self.is_blank(cx));
        let is_anew = self.anew;
        let standing = Message::Standing { nonce, question, promised, is_blank, is_anew };
        cx.send(from, H::message(standing));
    }

    /// Whether it has nothing that a member of the group has ever chosen: it has lost its disk, or the
    /// group has begun anew, and it has accepted and copied nothing since.
    fn is_blank<H: Host<Entry = E>>(&self, cx: &mut Context<'_, H>) -> bool {
        let may_be = self.may_begin_anew && (self.lost.is_some() || self.anew);
        if !may_be || !self.acceptor.is_blank() {
            return false;
        }
        let mut is_empty = true;
        cx.store().scan(None, 1, &mut |_, state| is_empty &= state.is_empty());
        is_empty
    }

    pub(super) fn on_standing<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        question: (u64, u64),
        promised: Ballot,
        (is_blank, is_anew): (bool, bool),
        cx: &mut Context<'_, H>,
    ) {
        let own_is_blank = self.is_blank(cx);
        let Some(lost) = &mut self.lost else { return };
        let report = Report { promised, is_blank, is_anew };
        let Some(heard) = lost.on_standing(from, question, report, &self.members) else { return };
        let mut above = heard.above;
        self.anew |= heard.is_anew;
        if heard.are_blank && own_is_blank {
            (self.lost, self.anew) = (None, true);
            // Messages of leaders may still be on their way that no disk knows any more.
            let round = (cx.clock().midpoint_us() >> CLOCK_SHIFT).min(ROUND_AT_MOST);
            above = above.max(Ballot { round, member: 0 });
        }
        self.promise(above.max(self.acceptor.promised()), cx);
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
