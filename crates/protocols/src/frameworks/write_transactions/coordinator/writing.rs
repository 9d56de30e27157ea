//! Write transactions, at a client.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Group, Timestamp};
use serried_model::snapshots::{Outcome, Output, Written};
use serried_model::{NodeId, TxnId, Versionstamp, Write, WriteToken};

use super::super::message::{Answer, Request, TransactionId};
use super::{Coordinator, Cx, Task};

/// What the last bits of the versionstamp of a request can be: the site, and some of the client's id. So two clients
/// that go on as the same session do not request two transactions with the same one, and another site can tell that it
/// is not its own.
const CLIENTS: u64 = 1 << Versionstamp::PARTITION_BITS;

/// The last bits of a client's requests.
fn mark(client: NodeId, group: &Group) -> u16 {
    let (site, sites) = (u64::from(group.site()), u64::from(group.sites()));
    (client.0 % (CLIENTS / sites) * sites + site) as u16
}

/// A write transaction under way.
#[derive(Debug)]
pub(super) struct Writing {
    /// By partition.
    writes: BTreeMap<u16, Vec<Write>>,
    /// Its commit time must be after this.
    at: Versionstamp,
    session: u64,
    /// Whether it was tried before, perhaps by another client.
    is_repeated: bool,
    /// Its id, and when it got that.
    id: Option<(TransactionId, Timestamp)>,
    /// Its commit time, once a participant has said so.
    pub(super) commit: Option<Versionstamp>,
    /// A participant does not know its outcome any more.
    is_outdated: bool,
}

impl Writing {
    /// The outcome if it has a token of another protocol.
    pub(super) fn new(
        writes: Vec<Write>,
        at: Versionstamp,
        session: u64,
        token: Option<WriteToken>,
        group: &Group,
    ) -> Result<Writing, Outcome> {
        let mut by_partition: BTreeMap<u16, Vec<Write>> = BTreeMap::new();
        for write in writes {
            by_partition.entry(group.partition_of(&write.key)).or_default().push(write);
        }
        let id = match token {
            None => None,
            Some(WriteToken::OfSession(requested, _))
                if requested.partition() % group.sites() != group.site() =>
            {
                return Err(Outcome::OfAnotherSite { site: requested.partition() % group.sites() });
            }
            Some(WriteToken::OfSession(requested, session)) => {
                Some((TransactionId { requested, session }, Timestamp(0)))
            }
            Some(_) => return Err(Outcome::Forgotten),
        };
        Ok(Writing {
            writes: by_partition,
            at,
            session,
            is_repeated: id.is_some(),
            id,
            commit: None,
            is_outdated: false,
        })
    }

    /// Whether anything of it was sent that could take effect.
    pub(super) fn has_begun(&self) -> bool {
        self.id.is_some()
    }
}

impl Coordinator {
    /// Begins a write transaction once a clock is known, or ends it once all participants have answered.
    pub(super) fn go_on_writing(&mut self, txn: TxnId, cx: &mut Cx<'_>) {
        let (now, has_clock) = (cx.now(), self.known.has_any());
        let estimate = self.known.estimate(now).max(self.known.requested);
        let Some(running) = self.operations.get_mut(&txn) else { return };
        let Task::Write(writing) = &mut running.task else { return };
        if let Some(commit) = writing.commit {
            let partition = writing.writes.keys().next().copied().unwrap_or_default();
            let shown = Some((partition, commit));
            let written = Written { stamp: commit, omitted: false, shown };
            return self.finish(txn, Outcome::Written(written), cx);
        }
        if writing.is_outdated {
            return self.finish(txn, Outcome::Forgotten, cx);
        }
        let era = running.era.filter(|_| running.is_pinned);
        let id = match writing.id {
            Some((id, _)) => id,
            None if !has_clock => {
                let participants: Vec<u16> = writing.writes.keys().copied().collect();
                return self.begin_round(txn, Self::clocks(participants.into_iter()), cx);
            }
            None => {
                let client = mark(cx.id(), &self.group);
                let requested = estimate.max(writing.at).next_of(client);
                self.known.requested = requested;
                TransactionId { requested, session: writing.session }
            }
        };
        writing.id = Some((id, now));
        let mut participants: Vec<u16> = writing.writes.keys().copied().collect();
        // The same participants have the same coordinator whenever it is sent again.
        let coordinator = (id.requested.0 >> Versionstamp::PARTITION_BITS) as usize;
        let coordinator = coordinator % participants.len();
        participants.swap(0, coordinator);
        let request = |(partition, writes): (&u16, &Vec<Write>)| {
            let (participants, writes) = (participants.clone(), writes.clone());
            (*partition, Request::Write { id, participants, writes, era })
        };
        let requests = writing.writes.iter().map(request).collect();
        let token = WriteToken::OfSession(id.requested, id.session);
        cx.output((txn, Output::Began(token)));
        self.begin_round(txn, requests, cx);
    }

    /// Takes in a participant's answer. Returns false if it is none.
    pub(super) fn take_in_written(&mut self, txn: TxnId, answer: Answer, cx: &mut Cx<'_>) -> bool {
        let certain_for = Duration::from_millis(self.settings.outcomes_ms) / 4;
        let now = cx.now();
        let Some(running) = self.operations.get_mut(&txn) else { return true };
        let Task::Write(writing) = &mut running.task else { return false };
        match answer {
            Answer::Committed { commit, .. } => writing.commit = Some(commit),
            Answer::Forgotten { .. } => writing.is_outdated = true,
            Answer::Undone { .. } | Answer::Outdated { .. } => {
                let is_undone = matches!(answer, Answer::Undone { .. });
                let age = writing.id.map_or(Duration::ZERO, |(_, since)| now.since(since));
                if writing.is_repeated {
                    // Another client may try it at the same time, and begin it again.
                    if is_undone {
                        self.finish(txn, Outcome::NoEffect, cx);
                        return true;
                    }
                    writing.is_outdated = true;
                } else if is_undone || age < certain_for {
                    // It never commits. It begins again.
                    writing.id = None;
                    self.forget_requests(txn);
                    self.go_on_writing(txn, cx);
                    return true;
                } else {
                    writing.is_outdated = true;
                }
            }
            _ => return false,
        }
        running.open -= 1;
        if running.open == 0 {
            self.go_on_writing(txn, cx);
        }
        true
    }

    /// The requests of an operation need no answers any more.
    pub(super) fn forget_requests(&mut self, txn: TxnId) {
        self.requests.retain(|_, sent| sent.txn != Some(txn));
    }
}
