//! Inquiries into the outcome of another client's transaction.

use std::collections::{BTreeMap, BTreeSet};

use serried_model::transactions::{Ending, Output};
use serried_model::{TxnId, Version};
use serried_parts::patience_with_leader;

use super::super::control::Control;
use super::super::message::{Decision, Message, Refusal, Request};
use super::leaders::Leaders;
use super::{Cx, Timer};

/// The inquiries of a client.
#[derive(Debug, Default)]
pub(super) struct Inquiries(BTreeMap<TxnId, Inquiry>);

/// The answers so far.
#[derive(Debug)]
struct Inquiry {
    version: Version,
    /// Shards in which it has not committed, and never will commit.
    refused: BTreeSet<u16>,
    /// Whether one of these shards may have forgotten it.
    forgotten: bool,
    repeated: u32,
}

impl Inquiry {
    /// Asks all shards that have not refused the transaction. Any of them may have a part of it.
    fn ask<C: Control>(&self, txn: TxnId, leaders: &Leaders, cx: &mut Cx<'_, C>) {
        let shards = 0..leaders.group.partitions();
        for shard in shards.filter(|shard| !self.refused.contains(shard)) {
            let request = Request::Resolve { txn: self.version };
            cx.send(leaders.of(shard, 0), Message::Request(request));
        }
        cx.set_timer(Timer::Repeat(txn), patience_with_leader(&leaders.group, self.repeated));
    }
}

impl Inquiries {
    /// Begins an inquiry into the outcome of a transaction.
    pub(super) fn begin<C: Control>(
        &mut self,
        txn: TxnId,
        version: Version,
        leaders: &Leaders,
        cx: &mut Cx<'_, C>,
    ) {
        let refused = BTreeSet::new();
        let inquiry = Inquiry { version, refused, forgotten: false, repeated: 0 };
        inquiry.ask(txn, leaders, cx);
        self.0.insert(txn, inquiry);
    }

    /// Forgets an inquiry. Returns whether there was one.
    pub(super) fn forget<C: Control>(&mut self, txn: TxnId, cx: &mut Cx<'_, C>) -> bool {
        let known = self.0.remove(&txn).is_some();
        if known {
            cx.cancel_timer(Timer::Repeat(txn));
        }
        known
    }

    /// Asks again, at other replicas. Returns false if the inquiry does not exist.
    pub(super) fn repeat<C: Control>(
        &mut self,
        txn: TxnId,
        leaders: &mut Leaders,
        cx: &mut Cx<'_, C>,
    ) -> bool {
        let Some(inquiry) = self.0.get_mut(&txn) else { return false };
        inquiry.repeated += 1;
        for shard in 0..leaders.group.partitions() {
            leaders.rotate(shard, inquiry.repeated);
        }
        inquiry.ask(txn, leaders, cx);
        true
    }

    /// A shard reports the outcome of a transaction.
    pub(super) fn on_decided<C: Control>(
        &mut self,
        (shard, shards): (u16, u16),
        version: Version,
        decision: Decision,
        cx: &mut Cx<'_, C>,
    ) {
        match decision {
            Decision::Commit(_) => {
                self.end(|inquiry| inquiry.version == version, Ending::Committed, cx);
            }
            // The shard may have no part in it, and may only have been asked before.
            Decision::Abort => self.on_refused(shard, shards, version, &Refusal::CONFLICT, cx),
        }
    }

    /// A shard reports that it has no part of a transaction, or will never commit it. There are
    /// `shards` shards.
    pub(super) fn on_refused<C: Control>(
        &mut self,
        shard: u16,
        shards: u16,
        version: Version,
        reason: &Refusal,
        cx: &mut Cx<'_, C>,
    ) {
        for inquiry in self.0.values_mut().filter(|one| one.version == version) {
            inquiry.refused.insert(shard);
            inquiry.forgotten |= matches!(reason, Refusal::Forgotten { .. });
        }
        let refused = |inquiry: &Inquiry| inquiry.refused.len() == usize::from(shards);
        let forgotten = |inquiry: &Inquiry| refused(inquiry) && inquiry.forgotten;
        self.end(forgotten, Ending::Forgotten, cx);
        self.end(refused, Ending::Aborted, cx);
    }

    fn end<C: Control>(
        &mut self,
        which: impl Fn(&Inquiry) -> bool,
        ending: Ending,
        cx: &mut Cx<'_, C>,
    ) {
        let ended = self.0.iter().filter(|(_, inquiry)| which(inquiry));
        for txn in ended.map(|(txn, _)| *txn).collect::<Vec<_>>() {
            self.0.remove(&txn);
            cx.cancel_timer(Timer::Repeat(txn));
            cx.output((txn, Output::Ending(ending)));
        }
    }
}
