//! Two-phase commit: what leaders of different partitions tell each other.

use core::time::Duration;

use serried_model::{NodeId, Versionstamp};

use super::Mutation;
use super::cell::{Transaction, coordinator};
use super::message::{Across, Entry, Message, Peer, TransactionId};
use super::replica::{Cx, QUEUED_AT_MOST, Replica};

/// After how many periods without news a transaction is overdue. Its client has sent it again by then, if it lives.
const OVERDUE_AFTER: u32 = 4;

/// After how many periods the coordinator undoes a transaction for which it has not got all votes.
const UNDONE_AFTER: u32 = 16;

/// After how many periods the leader of a partition that does not answer is looked for again.
const LOOKED_FOR_AFTER: u32 = 2;

/// How many transactions an entry of the log finishes at most.
const FINISHED_AT_ONCE: usize = 1024;

impl Replica {
    pub(super) fn send_peer(&self, to: NodeId, peer: Peer, cx: &mut Cx<'_>) {
        // All that it says is durable.
        cx.send_before_durable(to, Message::Peer { era: self.era(), peer });
    }

    /// Tells the leader of a partition something.
    pub(super) fn tell(&self, partition: u16, peer: Peer, cx: &mut Cx<'_>) {
        // Others are named only by messages that no client and no replica should send.
        if !self.group.has(partition) {
            return;
        }
        let other = self.group.choice(partition, self.repeated);
        let to = *self.leaders.get(&partition).unwrap_or(&other);
        self.send_peer(to, peer, cx);
    }

    /// A transaction is prepared here: the coordinator has another vote.
    pub(super) fn on_prepared(&mut self, id: TransactionId, cx: &mut Cx<'_>) {
        let Some(Transaction::Prepared { participants, pending, .. }) =
            self.machine.transactions.get(&id)
        else {
            return;
        };
        let (coordinator, pending) = (coordinator(participants, cx.id().partition()), *pending);
        if coordinator == cx.id().partition() {
            self.on_vote(id, cx.id().partition(), pending, cx);
        } else {
            self.tell(coordinator, Peer::Vote { id, pending, overdue: false }, cx);
        }
    }

    /// The coordinator has a vote for a transaction that it has prepared, or that is in its log.
    fn on_vote(
        &mut self,
        id: TransactionId,
        partition: u16,
        pending: Versionstamp,
        cx: &mut Cx<'_>,
    ) {
        let Some(serving) = self.machine.serving.as_mut() else { return };
        let Some(open) = serving.open.get_mut(&id) else { return };
        open.votes.insert(partition, pending);
        self.decide_if_voted(id, cx);
    }

    /// The coordinator decides that a transaction commits, if all participants have voted.
    fn decide_if_voted(&mut self, id: TransactionId, cx: &mut Cx<'_>) {
        let (own, now) = (cx.id().partition(), cx.now());
        let Some(Transaction::Prepared { participants, pending, .. }) =
            self.machine.transactions.get(&id)
        else {
            return;
        };
        let Some(serving) = self.machine.serving.as_mut() else { return };
        let Some(open) = serving.open.get(&id) else { return };
        let has_all = participants.iter().all(|partition| open.votes.contains_key(partition));
        if coordinator(participants, own) != own || open.is_deciding || !has_all {
            return;
        }
        let votes = open.votes.values().copied();
        let latest = match self.mutation.is(Mutation::VotesIgnored) {
            true => *pending,
            false => votes.max().unwrap_or_default(),
        };
        let commit = serving.stamp(latest, own, now);
        self.decide(id, Some(commit), cx);
    }

    /// Puts a decision into the log, if it has room. Otherwise that is done later.
    fn decide(&mut self, id: TransactionId, commit: Option<Versionstamp>, cx: &mut Cx<'_>) {
        let Some(Transaction::Prepared { writes, cut, .. }) = self.machine.transactions.get(&id)
        else {
            return;
        };
        let Some(serving) = self.machine.serving.as_mut() else { return };
        let Some(open) = serving.open.get_mut(&id).filter(|open| !open.is_deciding) else { return };
        let (writes, cut) = match commit {
            Some(_) => (writes.clone(), cut.clone()),
            None => (Vec::new(), Vec::new()),
        };
        open.is_deciding = true;
        self.propose(Entry::Decide { id, commit, writes, cut }, cx);
    }

    /// Refuses a transaction that is not prepared here, and then handles what another leader has sent again.
    fn refuse(&mut self, id: TransactionId, from: NodeId, peer: Peer, cx: &mut Cx<'_>) {
        let is_open = self.machine.serving.as_ref().is_some_and(|s| s.open.contains_key(&id));
        // It may be prepared soon.
        if is_open {
            return;
        }
        if let Some(waiting) = self.refusing.get_mut(&id) {
            if !waiting.contains(&(from, peer)) {
                waiting.push((from, peer));
            }
            return;
        }
        if self.refusing.len() < QUEUED_AT_MOST {
            self.refusing.insert(id, vec![(from, peer)]);
            self.propose(Entry::Refuse(id), cx);
        }
    }

    /// Tells cohorts what was decided, if they perhaps do not know it.
    pub(super) fn tell_decision(&mut self, id: TransactionId, cx: &mut Cx<'_>) {
        let Some(Transaction::Decided { commit, untold }) = self.machine.transactions.get(&id)
        else {
            return;
        };
        let told = self.machine.serving.as_ref().and_then(|s| s.open.get(&id)).map(|o| &o.told);
        for partition in untold {
            if !told.is_some_and(|told| told.contains(partition)) {
                self.tell(*partition, Self::decision(id, *commit), cx);
            }
        }
    }

    fn decision(id: TransactionId, commit: Option<Versionstamp>) -> Peer {
        commit.map_or(Peer::Undo(id), |commit| Peer::Commit(id, commit))
    }

    /// Whether the outcome of a transaction that is not known here was known once, or it is too late to begin it.
    fn is_past(&self, id: TransactionId) -> bool {
        id.requested <= self.machine.partition.horizon
    }

    /// Another partition's leader has sent this, which this leader handles.
    pub(super) fn on_peer(&mut self, from: NodeId, peer: Peer, cx: &mut Cx<'_>) {
        let (partition, own) = (from.partition(), cx.id().partition());
        match peer {
            Peer::Vote { id, pending, overdue } => match self.machine.transactions.get(&id) {
                // Clients that name different coordinators to different participants get nowhere.
                Some(Transaction::Prepared { participants, .. })
                    if coordinator(participants, own) != own =>
                {
                    self.send_peer(from, Peer::Undo(id), cx);
                }
                Some(Transaction::Prepared { .. }) => self.on_vote(id, partition, pending, cx),
                Some(Transaction::Decided { commit, .. }) => {
                    self.send_peer(from, Self::decision(id, *commit), cx);
                }
                None if self.is_open(id) => self.on_vote(id, partition, pending, cx),
                None if self.is_past(id) => self.send_peer(from, Peer::Undo(id), cx),
                None if overdue => self.refuse(id, from, peer, cx),
                None => {
                    if self.early.len() >= QUEUED_AT_MOST {
                        self.early.pop_first();
                    }
                    self.early.entry(id).or_default().insert(partition, pending);
                }
            },
            Peer::Refused(id) => {
                if let Some(Transaction::Prepared { participants, .. }) =
                    self.machine.transactions.get(&id)
                    && coordinator(participants, own) == own
                    && participants.contains(&partition)
                {
                    self.decide(id, None, cx);
                }
            }
            Peer::Ask(id) => match self.machine.transactions.get(&id) {
                Some(Transaction::Prepared { pending, .. }) => {
                    let pending = *pending;
                    self.send_peer(from, Peer::Vote { id, pending, overdue: false }, cx);
                }
                // If it has committed here, then not by whoever asks, who has not decided: a client has named other
                // participants to this partition.
                Some(Transaction::Decided { .. }) => {
                    self.send_peer(from, Peer::Refused(id), cx);
                }
                None if self.is_past(id) => self.send_peer(from, Peer::Refused(id), cx),
                None => self.refuse(id, from, peer, cx),
            },
            Peer::Commit(id, _) | Peer::Undo(id) => {
                let commit = if let Peer::Commit(_, commit) = peer { Some(commit) } else { None };
                match self.machine.transactions.get(&id) {
                    Some(Transaction::Prepared { participants, .. })
                        if coordinator(participants, own) == partition =>
                    {
                        self.decide(id, commit, cx);
                    }
                    // It does not coordinate it.
                    Some(Transaction::Prepared { .. }) => {}
                    Some(Transaction::Decided { .. }) => {
                        self.send_peer(from, Peer::Done(id), cx);
                    }
                    None if self.is_past(id) => self.send_peer(from, Peer::Done(id), cx),
                    None if commit.is_none() => self.refuse(id, from, peer, cx),
                    // The vote that it commits with was given by a leader that has applied more than this one.
                    None => {}
                }
            }
            Peer::Done(id) => {
                if let Some(serving) = self.machine.serving.as_mut()
                    && let Some(open) = serving.open.get_mut(&id)
                {
                    open.told.insert(partition);
                }
            }
            Peer::Check { number, id, at } => self.on_check(from, number, id, at, cx),
            Peer::Checked { number, commit } => self.on_checked(number, commit, cx),
        }
    }

    fn is_open(&self, id: TransactionId) -> bool {
        self.machine.serving.as_ref().is_some_and(|serving| serving.open.contains_key(&id))
    }

    /// Asks about what takes long, tells others again what was decided, and finishes what all know.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>) {
        let (now, period, own) = (cx.now(), self.period(), cx.id().partition());
        self.repeated += 1;
        let Some(serving) = self.machine.serving.as_ref() else { return };
        let late = serving.open.iter().filter(|(_, open)| now.since(open.since) >= period);
        let late: Vec<_> = late.map(|(id, open)| (*id, now.since(open.since))).collect();
        let mut finished = Vec::new();
        for (id, age) in late {
            let overdue = age >= period * OVERDUE_AFTER;
            match self.machine.transactions.get(&id) {
                Some(Transaction::Prepared { participants, pending, cut, .. }) => {
                    let (pending, cut) = (*pending, cut.clone());
                    let coordinator = coordinator(participants, own);
                    if coordinator != own {
                        if overdue && self.mutation.is(Mutation::UndoneAlone) {
                            self.decide(id, None, cx);
                            continue;
                        }
                        self.look_for(coordinator, age);
                        self.tell(coordinator, Peer::Vote { id, pending, overdue }, cx);
                        continue;
                    }
                    let serving = self.machine.serving.as_ref();
                    let votes = serving.and_then(|s| s.open.get(&id)).map(|open| &open.votes);
                    let has_not_voted =
                        |cohort: &&u16| !votes.is_some_and(|votes| votes.contains_key(cohort));
                    let missing: Vec<u16> =
                        participants.iter().filter(has_not_voted).copied().collect();
                    if !missing.is_empty() && age >= period * UNDONE_AFTER {
                        self.decide(id, None, cx);
                        continue;
                    }
                    for cohort in missing {
                        self.look_for(cohort, age);
                        if overdue {
                            self.tell(cohort, Peer::Ask(id), cx);
                        } else if !cut.is_empty() {
                            self.send_across(cohort, Across::Admit { id, cut: cut.clone() }, cx);
                        }
                    }
                }
                Some(Transaction::Decided { untold, .. }) => {
                    let serving = self.machine.serving.as_ref();
                    let told = serving.and_then(|s| s.open.get(&id)).map(|open| &open.told);
                    let are_told =
                        told.is_some_and(|told| untold.iter().all(|cohort| told.contains(cohort)));
                    if are_told {
                        finished.push(id);
                        continue;
                    }
                    for cohort in untold.clone() {
                        self.look_for(cohort, age);
                    }
                    self.tell_decision(id, cx);
                }
                // It is in the log, and not applied yet.
                None => {}
            }
        }
        // If there are decisions that wait for room, it is not the time for this.
        for finished in finished.chunks(FINISHED_AT_ONCE) {
            if self.stalled.is_empty() {
                self.log.propose_led(Entry::Finish(finished.to_vec()), cx);
            }
        }
        self.ask_again(cx);
    }

    /// A partition has not answered for so long: perhaps another replica leads there now.
    fn look_for(&mut self, partition: u16, age: Duration) {
        if age >= self.period() * LOOKED_FOR_AFTER {
            self.leaders.remove(&partition);
        }
    }
}
