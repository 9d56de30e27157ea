//! Ending the transactions of clients that have failed (003 §5.6).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_actor::Context;
use serried_model::{NodeId, Version};

use super::super::control::Control;
use super::super::message::{Decision, Message, Refusal, Reply, Request};
use super::super::stamp::{Stamp, Validity};
use super::super::verdict::{Verdict, verdict};
use super::leader::Shard;
use super::open::{Open, Standing};
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
        if let Some(open) = self.leader_mut().open.get_mut(&txn) {
            if open.standing == Standing::Executing {
                self.discard(txn, Refusal::CONFLICT, cx);
                return self.tell_refused(from, txn, cx);
            }
            if !open.inspectors.contains(&from) {
                open.inspectors.push(from);
            }
            return self.answer(txn, cx);
        }
        if self.refusal(txn).is_some() {
            self.tell_refused(from, txn, cx);
        } else if txn.timestamp_us < self.table.window().from_us {
            let reason = self.late(txn);
            cx.send(from, Message::Reply(Reply::Refused { txn, reason }));
        } else {
            self.bar(txn, Refusal::CONFLICT, from, cx);
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

    /// The open transaction that is ready here and may commit under this version, though it began with another one. Until the
    /// shards are told how it has ended, they know it by the version with which it began, but its program may know the
    /// other one already.
    pub(super) fn is_to_commit_as(&mut self, version: Version) -> Option<Version> {
        if self.table.decision_of_version(version).is_some() {
            return None;
        }
        let open = &self.leader_mut().open;
        if open.contains_key(&version) {
            return None;
        }
        let of_client = open.iter().filter(|(first, _)| first.coordinator == version.coordinator);
        let may = of_client.filter(|(first, open)| {
            let at = Stamp { us: version.timestamp_us, txn: **first };
            open.is_ready() && open.validity.holds_at(at)
        });
        may.map(|(first, _)| *first).next()
    }

    /// Finds out how the transaction ends, unless that is known, and ends it.
    pub(super) fn resolve(&mut self, txn: Version, cx: &mut Cx<'_, C>) {
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
                if let Some(resolving) = self.resolving_with(txn, shard) {
                    resolving.ready.insert(shard, validity);
                    self.resolve_on(txn, cx);
                }
            }
            Reply::Moved { txn } => {
                if let Some(resolving) = self.resolving_with(txn, shard) {
                    resolving.moved.insert(shard);
                    self.resolve_on(txn, cx);
                }
            }
            Reply::Refused { txn, reason } => {
                // No shard forgets the outcome of a transaction that is open here, so this can't be a correct answer.
                if !matches!(reason, Refusal::Forgotten { .. }) {
                    self.end(txn, Decision::Abort, cx);
                }
            }
            Reply::Decided { txn, decision } => self.end(txn, decision, cx),
            // Those are for clients.
            Reply::Executed(_)
            | Reply::Ended(_)
            | Reply::Snapshot { .. }
            | Reply::Follow { .. } => {}
        }
    }

    /// A transaction that is being resolved here and has a part in `shard`.
    fn resolving_with(&mut self, txn: Version, shard: u16) -> Option<&mut Resolving> {
        let resolving = self.leader_mut().resolving.get_mut(&txn);
        resolving.filter(|resolving| resolving.participants.contains(&shard))
    }

    /// Has a part that is ready hold at another moment, or aborts its transaction: whoever asks again must not be
    /// told otherwise. Whether it holds then already.
    pub(super) fn reposition(&mut self, txn: Version, to: Stamp, cx: &mut Cx<'_, C>) -> bool {
        let Some(open) = self.leader_mut().open.get(&txn) else { return false };
        if open.validity.holds_at(to) {
            return true;
        }
        if to < open.validity.from {
            return false; // Nobody who knows when it holds asks for that.
        }
        if !self.with_control(cx, |control, desk| control.reposition(txn, to, desk)) {
            self.decide(txn, Decision::Abort, cx);
        }
        false
    }

    fn end(&mut self, txn: Version, decision: Decision, cx: &mut Cx<'_, C>) {
        let Some(open) = self.leader_mut().open.get(&txn) else { return };
        match open.standing {
            Standing::Executing => self.discard(txn, Refusal::CONFLICT, cx),
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
        self.ask_clocks(cx);
        self.count_barred();
        let (now, patience) = (cx.now(), self.settings.recovery_after());
        let limit_ms = self.settings.truncation_lag_ms;
        let longest = Duration::from_millis(limit_ms);
        let own = self.id.partition();
        let runs_too_long =
            |open: &Open| open.standing == Standing::Executing && now.since(open.began) >= longest;
        let overdue: Vec<(Version, Standing, bool)> = self
            .leader_mut()
            .open
            .iter()
            .filter(|(_, open)| now.since(open.heard) >= patience || runs_too_long(open))
            .map(|(txn, open)| (*txn, open.standing, runs_too_long(open)))
            .collect();
        for (txn, standing, too_long) in overdue {
            match standing {
                Standing::Executing if too_long => {
                    self.discard(txn, Refusal::TooLong { limit_ms }, cx);
                }
                Standing::Executing => self.discard(txn, Refusal::CONFLICT, cx),
                Standing::Ending => {}
                Standing::Preparing(_) | Standing::Prepared => {
                    let open = self.leader_mut().open.get(&txn);
                    let Some(backup) = open.and_then(Open::backup) else { continue };
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
        let every = Duration::from_millis(self.settings.truncation_every_ms);
        let now = cx.now();
        // Entries that the log can't take now must not pile up.
        let Some(time) = self.time(cx).filter(|_| self.has_proposed_all()) else { return };
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
        let kept_us =
            time.earliest_us.saturating_sub(self.settings.outcomes_ms.saturating_mul(1000));
        let over = &self.leader_mut().over;
        let all_over = match over.len() == usize::from(shards) {
            true => over.values().copied().min().unwrap_or(0),
            false => 0,
        };
        self.forget(all_over.min(kept_us), cx);
    }
}
