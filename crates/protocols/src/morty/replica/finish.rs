//! Finishes transactions whose coordinators do not. [`recovery`](super::recovery) describes how.
//!
//! A recovery needs a promise in the log, starts with what the replica knows, and may let a truncation continue. So these
//! handlers belong to the replica.

use serried_model::{NodeId, Version};

use super::recovery::Next;
use super::transactions::Look;
use super::watch::look_every;
use super::{Cx, Replica, Timer};
use crate::morty::message::{Message, Status, View};
use crate::morty::record::Record;

impl Replica {
    /// Recovers the transactions that should have been decided by now, or that others wait for. The replicas do so one after
    /// the other, so that they do not disturb each other.
    pub(super) fn look_after(&mut self, cx: &mut Cx) {
        let now = cx.now();
        while let Some((due, version)) = self.transactions.next_due(now) {
            let due = match self.transactions.look_at(version, due, &self.state, &self.setup) {
                Look::Recover(due) => due,
                Look::Settled(waiters) => {
                    waiters.into_iter().for_each(|waiter| self.confirm(waiter, cx));
                    continue;
                }
                Look::Forget => continue,
            };
            if self.recoveries.contains(version) {
                continue;
            }
            // A replica that replaces a lost disk does not know which views its predecessor has used.
            let may_recover = self.rejoin.takes_part() && !self.recoveries.are_full();
            if due <= now && may_recover {
                self.recover(version, None, cx);
            } else {
                self.transactions.look_again(version, due.max(now + look_every(&self.setup)));
            }
        }
        cx.set_timer(Timer::Watch, look_every(&self.setup));
    }

    /// `from` asks how the transaction ends.
    pub(super) fn on_inquire(&mut self, from: NodeId, version: Version, cx: &mut Cx) {
        match self.settlement(version) {
            Some(settlement) => {
                cx.send(from, Message::Status(Status::Settled { version, settlement }))
            }
            // It was not admitted, and may be later.
            None if self.setup.is_too_far_ahead(version, cx) => {}
            None if self.recoveries.are_full() => {} // `from` will ask again.
            None => self.recover(version, Some(from), cx),
        }
    }

    /// Finishes a transaction.
    pub(super) fn recover(&mut self, version: Version, inquirer: Option<NodeId>, cx: &mut Cx) {
        let undecided = self.transactions.get(version);
        let execution = undecided.and_then(|undecided| undecided.execution.as_ref());
        let contents = execution.map(|execution| &*execution.contents);
        if self.recoveries.add(version, contents, inquirer, &self.setup) {
            self.begin_view(version, View::OWN, cx);
        }
    }

    /// Begins to recover in a view of this replica's own that is later than `last`. The view is logged as a promise before
    /// any message names it.
    pub(super) fn begin_view(&mut self, version: Version, last: View, cx: &mut Cx) {
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        let view = undecided.view.max(last).next(self.setup.id);
        undecided.view = view;
        self.log.append(Record::Promised { version, view }, cx);
        self.recoveries.begin(version, view, &self.setup, cx);
    }

    /// The timer of a recovery has fired.
    pub(super) fn go_on_recovering(&mut self, version: Version, cx: &mut Cx) {
        match self.recoveries.go_on(version, &self.setup, cx) {
            Next::Wait => {}
            Next::NewView(last) => self.begin_view(version, last, cx),
            Next::GiveUp(peer) => {
                if let Some(peer) = peer {
                    self.catch_up.begin(peer, &self.setup, &mut self.state, cx);
                }
            }
        }
    }

    /// A transaction was decided that may have been recovered.
    pub(super) fn recovered(&mut self, version: Version, cx: &mut Cx) {
        let (transactions, state) = (&self.transactions, &self.state);
        let settlement =
            || transactions.settlement(version, state).expect("a transaction that was decided");
        if self.recoveries.end(version, settlement, cx) {
            self.merge(cx);
        }
    }
}
