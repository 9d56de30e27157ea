//! Finding out how a transaction of another client ended.

use std::collections::BTreeSet;

use serried_actor::Context;
use serried_model::transactions::{Ending, Output};
use serried_model::{TxnId, Version};
use serried_parts::patience_with_leader;

use super::super::control::Control;
use super::super::message::{Decision, Message, Refusal, Request};
use super::{Coordinator, Timer};

type Cx<'a, C> = Context<'a, Coordinator<C>>;

/// What is known so far.
#[derive(Debug)]
pub(super) struct Inquiry {
    version: Version,
    /// Shards in which it has not committed, and never will.
    refused: BTreeSet<u16>,
    /// One of them might have forgotten it.
    forgotten: bool,
    repeated: u32,
}

impl<C: Control> Coordinator<C> {
    /// Asks all shards, as it is not known which have a part in it.
    pub(super) fn inquire(&mut self, txn: TxnId, version: Version, cx: &mut Cx<'_, C>) {
        let refused = BTreeSet::new();
        let inquiry = Inquiry { version, refused, forgotten: false, repeated: 0 };
        self.inquiries.insert(txn, inquiry);
        self.ask_all(txn, cx);
    }

    pub(super) fn inquire_again(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let inquiry = self.inquiries.get_mut(&txn).expect("an inquiry");
        inquiry.repeated += 1;
        let repeated = inquiry.repeated;
        for shard in 0..self.group.partitions() {
            self.rotate(shard, repeated);
        }
        self.ask_all(txn, cx);
    }

    fn ask_all(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) {
        let inquiry = &self.inquiries[&txn];
        for shard in (0..self.group.partitions()).filter(|shard| !inquiry.refused.contains(shard)) {
            let request = Request::Resolve { txn: inquiry.version };
            cx.send(self.leader_of(shard, 0), Message::Request(request));
        }
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&self.group, inquiry.repeated));
    }

    /// A shard has decided.
    pub(super) fn inquiry_decided(
        &mut self,
        version: Version,
        decision: Decision,
        cx: &mut Cx<'_, C>,
    ) {
        let ending = match decision {
            Decision::Commit(_) => Ending::Committed,
            Decision::Abort => Ending::Aborted,
        };
        self.end_inquiries(|inquiry| inquiry.version == version, ending, cx);
    }

    /// A shard has no part in it, or will never commit it.
    pub(super) fn inquiry_refused(
        &mut self,
        shard: u16,
        version: Version,
        reason: &Refusal,
        cx: &mut Cx<'_, C>,
    ) {
        for inquiry in self.inquiries.values_mut().filter(|one| one.version == version) {
            inquiry.refused.insert(shard);
            inquiry.forgotten |= matches!(reason, Refusal::Forgotten { .. });
        }
        let all = usize::from(self.group.partitions());
        let refused = |inquiry: &Inquiry| inquiry.refused.len() == all;
        let forgotten = |inquiry: &Inquiry| refused(inquiry) && inquiry.forgotten;
        self.end_inquiries(forgotten, Ending::Forgotten, cx);
        self.end_inquiries(refused, Ending::Aborted, cx);
    }

    fn end_inquiries(
        &mut self,
        which: impl Fn(&Inquiry) -> bool,
        ending: Ending,
        cx: &mut Cx<'_, C>,
    ) {
        let ended = self.inquiries.iter().filter(|(_, inquiry)| which(inquiry));
        for txn in ended.map(|(txn, _)| *txn).collect::<Vec<_>>() {
            self.inquiries.remove(&txn);
            cx.cancel_timer(Timer::Repeat(txn));
            cx.output((txn, Output::Ending(ending)));
        }
    }
}
