//! A replica's part in the consensus on a transaction: what it promises to the nodes that propose a decision, and what
//! it accepts from them (000 §4.2, "Finalize", and §4.3).

use serried_model::{NodeId, Version};

use super::{Cx, Replica, reject};
use crate::morty::message::{
    Accepted, Known, LateVote, Message, Proposal, Recovering, Status, View,
};
use crate::morty::record::Record;

impl Replica {
    /// A recoverer asks this replica to enter one of the recoverer's views, and to say what it knows.
    pub(super) fn on_paxos_prepare(
        &mut self,
        from: NodeId,
        (version, view): (Version, View),
        vote_on: Option<LateVote>,
        cx: &mut Cx,
    ) {
        if !view.is_of_recoverer(from) {
            let what = format_args!("PaxosPrepare of {version} in {view:?}, another's view");
            return reject(from, what, cx);
        }
        if let Some(settlement) = self.settlement(version) {
            let known = Known { settlement: Some(settlement), ..Known::default() };
            let known = Some(Box::new(known));
            cx.send(
                from,
                Message::Recovering(Recovering::PaxosPrepareReply { version, view, known }),
            );
            return;
        }
        if self.setup.is_too_far_ahead(version, cx) && !self.transactions.contains(version) {
            return;
        }
        // What was read may have been decided while this replica was away.
        self.confirm(version, cx);
        self.vote_on_abort(version, cx);
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        if undecided.view > view {
            let view = undecided.view;
            cx.send(
                from,
                Message::Recovering(Recovering::PaxosPrepareReply { version, view, known: None }),
            );
            return;
        }
        if undecided.view < view {
            undecided.view = view;
            self.log.append(Record::Promised { version, view }, cx);
        }
        if let Some(late) = vote_on {
            self.vote_late(from, version, late, cx);
        }
        let (vote, missed_nothing_below) = self.testify(version, cx);
        let undecided = self.transactions.get(version).expect("a transaction that is open");
        let execution = undecided.execution.as_ref();
        let known = Known {
            settlement: None,
            accepted: undecided.accepted,
            abandoned_before: undecided.abandoned_before,
            execution: execution.map(|e| (e.eid, vote, e.contents.clone())),
            missed_nothing_below,
        };
        let known = Some(Box::new(known));
        cx.send(from, Message::Recovering(Recovering::PaxosPrepareReply { version, view, known }));
    }

    /// A coordinator or a recoverer proposes a decision.
    pub(super) fn on_finalize(
        &mut self,
        from: NodeId,
        (version, eid, view): (Version, u32, View),
        decision: Proposal,
        cx: &mut Cx,
    ) {
        let own = view == View::OWN && from == version.coordinator;
        if !own && !view.is_of_recoverer(from) {
            let what = format_args!("Finalize of {version} in {view:?}, another's view");
            return reject(from, what, cx);
        }
        if let Some(settlement) = self.settlement(version) {
            // Late, or repeated because an answer was lost. The settlement agrees with what was accepted.
            cx.send(from, Message::Status(Status::Settled { version, settlement }));
            return;
        }
        if self.setup.is_too_far_ahead(version, cx) && !self.transactions.contains(version) {
            return;
        }
        let undecided = self.transactions.open(version, cx.now(), &self.setup);
        let current = undecided.view;
        let accepted = Accepted { view, eid, decision };
        let other = |last: Accepted| !own && last.view == view && last != accepted;
        if undecided.accepted.is_some_and(other) {
            let what = format_args!("a second proposal on {version} in {view:?}: {decision:?}");
            return reject(from, what, cx);
        }
        if current <= view {
            self.accept_durably(version, accepted, cx);
        }
        let view = current.max(view);
        cx.send(from, Message::Status(Status::FinalizeReply { version, eid, view, decision }));
    }

    /// The coordinator says that an execution is abandoned, and expects no answer. This does not end the transaction. It is
    /// accepted and logged like a proposal: what the execution had prepared may be given to others only if this replica
    /// still knows of the abandonment after a restart.
    pub(super) fn on_abandoned(&mut self, from: NodeId, version: Version, eid: u32, cx: &mut Cx) {
        let open = match self.transactions.get(version) {
            Some(undecided) => !undecided.is_superseded(),
            None => !self.setup.is_too_far_ahead(version, cx), // If it is, it was never admitted.
        };
        if from != version.coordinator || !open || self.settlement(version).is_some() {
            return;
        }
        self.transactions.open(version, cx.now(), &self.setup);
        let accepted = Accepted { view: View::OWN, eid, decision: Proposal::Abandon };
        self.accept_durably(version, accepted, cx);
    }

    fn accept_durably(&mut self, version: Version, accepted: Accepted, cx: &mut Cx) {
        self.transactions.accept(version, accepted, &mut self.state.keys, &self.setup);
        self.log.append(Record::Accepted { version, accepted }, cx);
    }
}
