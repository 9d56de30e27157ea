//! Ending the transactions of clients that have failed (003 §5.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Decision, Message, Refusal, Reply, Request};
use super::super::stamp::{Stamp, Validity};
use super::super::verdict::{Verdict, verdict};
use super::leader::Shard;
use super::open::Standing;
use super::{Replica, Timer};

type Cx<'a, C> = Context<'a, Replica<C>>;

/// How far a backup coordinator has got with a transaction.
#[derive(Debug)]
pub(super) struct Resolving {
    participants: Arc<[u16]>,
    /// When the parts hold of those that are ready.
    ready: BTreeMap<u16, Validity>,
    /// Set while all are asked to hold at another moment.
    to: Option<Stamp>,
    moved: BTreeSet<u16>,
}

impl<C: Control> Shard<C> {
    /// Somebody wants to know how a transaction stands here.
    pub(super) fn on_inspect(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if let Some(decision) = self.table.decision(txn) {
            return cx.send(from, Message::Reply(Reply::Decided { txn, decision }));
        }
        match self.leader_mut().open.get_mut(&txn) {
            Some(open) if open.standing != Standing::Executing => {
                if !open.inspectors.contains(&from) {
                    open.inspectors.push(from);
                }
                self.answer(txn, cx);
            }
            Some(_) => {
                self.discard(txn, cx);
                self.tell_refused(from, txn, cx);
            }
            None => {
                let window = self.table.window();
                if txn.timestamp_us < window.forget_us {
                    let reason = Refusal::Forgotten { from_us: window.from_us };
                    return cx.send(from, Message::Reply(Reply::Refused { txn, reason }));
                }
                if self.refusal(txn).is_none() {
                    let reason = Refusal::Conflict { keys: Vec::new(), after_us: 0 };
                    self.refuse(txn, reason, cx);
                }
                self.tell_refused(from, txn, cx);
            }
        }
    }

    fn tell_refused(&self, to: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if let Some(reason) = self.refusal(txn) {
            cx.send(to, Message::Reply(Reply::Refused { txn, reason }));
        }
    }

    /// Another participant, or a client, wants to know how a transaction ends: this shard is its backup
    /// coordinator.
    pub(super) fn on_resolve(&mut self, from: NodeId, txn: Version, cx: &mut Cx<'_, C>) {
        if from.is_coordinator()
            && let Some(decision) = self.table.decision_of_version(txn)
        {
            return cx.send(from, Message::Reply(Reply::Decided { txn, decision }));
        }
        self.on_inspect(from, txn, cx);
        self.resolve(txn, cx);
    }

    /// Finds out how the transaction ends, unless that is known, and ends it.
    fn resolve(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
        let own = self.id.partition();
        let leader = self.leader_mut();
        let Some(open) = leader.open.get(&txn).filter(|open| open.standing != Standing::Ending)
        else {
            return;
        };
        let Some(participants) = open.participants.clone() else { return };
        if participants.first() != Some(&own) {
            return;
        }
        let resolving = leader.resolving.entry(txn).or_insert_with(|| Resolving {
            participants: participants.clone(),
            ready: BTreeMap::new(),
            to: None,
            moved: BTreeSet::new(),
        });
        let to = resolving.to;
        let missing: Vec<u16> = participants
            .iter()
            .copied()
            .filter(|shard| match to {
                None => !resolving.ready.contains_key(shard),
                Some(_) => !resolving.moved.contains(shard),
            })
            .filter(|shard| *shard != own)
            .collect();
        for shard in missing {
            let request = match to {
                None => Request::Inspect { txn },
                Some(to) => Request::Move { txn, to },
            };
            // It may lead no more.
            self.leader_mut().leaders.remove(&shard);
            self.send_to_shard(shard, request, cx);
        }
        self.resolve_on(txn, cx);
    }

    /// Goes on with a transaction, as far as it can be.
    pub(super) fn resolve_on(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
        let own = self.id.partition();
        let leader = self.leader_mut();
        let Some(resolving) = leader.resolving.get_mut(&txn) else { return };
        let Some(open) = leader.open.get(&txn).filter(|open| open.is_ready()) else { return };
        resolving.ready.insert(own, open.validity);
        if resolving.ready.len() < resolving.participants.len() {
            return;
        }
        if let Some(to) = resolving.to {
            if resolving.moved.len() == resolving.participants.len() {
                self.decide(txn, Decision::Commit(to), cx);
            }
            return;
        }
        match verdict(txn, resolving.ready.values().copied()) {
            Verdict::Commit(at) => self.decide(txn, Decision::Commit(at), cx),
            Verdict::Move(to) => {
                resolving.to = Some(to);
                resolving.moved.insert(own);
                for shard in resolving.participants.clone().iter().filter(|shard| **shard != own) {
                    self.send_to_shard(*shard, Request::Move { txn, to }, cx);
                }
                self.reposition(txn, to, cx);
            }
        }
    }

    /// Another shard's leader says how it stands with a transaction.
    pub(super) fn on_reply(&mut self, from: NodeId, reply: Reply, cx: &mut Cx<'_, C>) {
        let shard = from.partition();
        self.leader_mut().leaders.insert(shard, from);
        match reply {
            Reply::Prepared { txn, validity } => {
                if let Some(resolving) = self.leader_mut().resolving.get_mut(&txn) {
                    resolving.ready.insert(shard, validity);
                    self.resolve_on(txn, cx);
                }
            }
            Reply::Moved { txn } => {
                if let Some(resolving) = self.leader_mut().resolving.get_mut(&txn) {
                    resolving.moved.insert(shard);
                    self.resolve_on(txn, cx);
                }
            }
            Reply::Refused { txn, reason } => {
                let is_open = self.leader_mut().open.contains_key(&txn);
                let forgotten = matches!(reason, Refusal::Forgotten { .. });
                assert!(!is_open || !forgotten, "transaction {txn} is open, and was forgotten");
                self.end(txn, Decision::Abort, cx);
            }
            Reply::Decided { txn, decision } => self.end(txn, decision, cx),
            Reply::Executed(_) | Reply::Ended(_) | Reply::Snapshot { .. } => {}
        }
    }

    /// Has a part that is ready hold at another moment, or aborts its transaction: whoever asks again must not be
    /// told otherwise. Whether it holds then already.
    pub(super) fn reposition(&mut self, txn: Version, to: Stamp, cx: &mut Cx<'_, C>) -> bool {
        if self.leader_mut().open[&txn].validity.holds_at(to) {
            return true;
        }
        if !self.with_control(cx, |control, desk| control.reposition(txn, to, desk)) {
            self.decide(txn, Decision::Abort, cx);
        }
        false
    }

    fn end(&mut self, txn: Version, decision: Decision, cx: &mut Cx<'_, C>) {
        let Some(open) = self.leader_mut().open.get(&txn) else { return };
        match open.standing {
            Standing::Executing => self.discard(txn, cx),
            _ => self.decide(txn, decision, cx),
        }
    }

    /// Tells the other participants how a transaction has ended that was resolved here.
    pub(super) fn tell_participants(
        &mut self,
        txn: Version,
        decision: Decision,
        resolving: &Resolving,
        cx: &mut Cx<'_, C>,
    ) {
        let own = self.id.partition();
        for shard in resolving.participants.iter().filter(|shard| **shard != own) {
            self.send_to_shard(*shard, Request::End { txn, decision }, cx);
        }
    }

    /// Looks after transactions of which nothing has been heard.
    pub(super) fn watch(&mut self, cx: &mut Cx<'_, C>) {
        if !self.serves() {
            return;
        }
        let (now, patience) = (cx.now(), self.settings.recovery_after());
        let longest = core::time::Duration::from_millis(self.settings.truncation_lag_ms);
        let own = self.id.partition();
        let silent: Vec<(Version, Standing)> = self
            .leader_mut()
            .open
            .iter()
            .filter(|(_, open)| {
                let too_long = now.since(open.began) >= longest;
                now.since(open.heard) >= patience
                    || (too_long && open.standing == Standing::Executing)
            })
            .map(|(txn, open)| (*txn, open.standing))
            .collect();
        for (txn, standing) in silent {
            match standing {
                Standing::Executing => self.discard(txn, cx),
                Standing::Ending => {}
                Standing::Preparing(_) | Standing::Prepared => {
                    let backup = self.leader_mut().open[&txn].backup(txn);
                    if backup == own {
                        self.resolve(txn, cx);
                    } else {
                        self.leader_mut().leaders.remove(&backup);
                        self.send_to_shard(backup, Request::Resolve { txn }, cx);
                    }
                }
            }
        }
        self.tidy(cx);
        cx.set_timer(Timer::Watch, self.watch_every());
    }

    /// Tells the other shards below which time all is over here, and forgets what all have said so of.
    fn tidy(&mut self, cx: &mut Cx<'_, C>) {
        let every = core::time::Duration::from_millis(self.settings.truncation_every_ms);
        let (now, now_us) = (cx.now(), cx.clock().midpoint_us());
        let own = self.id.partition();
        let from_us = self.table.window().from_us;
        let leader = self.leader_mut();
        if now.since(leader.tidied) < every {
            return;
        }
        leader.tidied = now;
        let open_us = leader.open.keys().next().map(|txn| txn.timestamp_us);
        let below_us = open_us.map_or(from_us, |us| us.min(from_us));
        leader.over.insert(own, below_us);
        let others = leader.over.values().copied().max().unwrap_or(0);
        // The last has nothing to forget, and the others wait for it.
        let none_refused = leader.refused.is_empty();
        if self.table.remembered() == 0 && none_refused && others <= from_us {
            return;
        }
        let shards = self.group.partitions();
        for shard in (0..shards).filter(|shard| *shard != own) {
            self.send_to_shard(shard, Request::Over { below_us }, cx);
        }
        let kept_us = now_us.saturating_sub(self.settings.outcomes_ms * 1000);
        let over = &self.leader_mut().over;
        let all_over = match over.len() == usize::from(shards) {
            true => over.values().copied().min().unwrap_or(0),
            false => 0,
        };
        self.forget(all_over.min(kept_us), cx);
    }
}
