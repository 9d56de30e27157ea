//! An execution in the commit protocol, in all partitions that it takes part in.

use core::time::Duration;
use std::sync::Arc;

use serried_actor::{Context, Group, NodeSet, Timestamp};
use serried_model::{Key, NodeId, Version};
use smallvec::{SmallVec, smallvec};

use super::{Coordinator, FAST_PATH_AT_LEAST};
use crate::morty::message::{
    Conflict, Contents, Message, Proposal, Read, Request, TaggedWrite, Vote,
};
use crate::morty::votes::{Quorums, Tally, Votes};

/// At most so many of the keys over which an execution was voted down are reported.
const CONFLICTS_AT_MOST: usize = 64;

/// An execution for which the replicas were asked to vote.
#[derive(Debug)]
pub(super) struct PreparedExecution {
    pub eid: u32,
    /// Its participants, the transaction's home first.
    pub participants: SmallVec<[Participant; 1]>,
    pub conflicts: SmallVec<[Key; 1]>,
    /// What the replicas say is in its way.
    pub in_the_way: InTheWay,
    /// By how much the readers that the votes name were ahead of the clock, in microseconds: the least of it.
    pub ahead_us: Option<u64>,
    /// A replica has forgotten what a read may have missed.
    pub forgotten: bool,
    /// The replicas were asked to abandon it.
    pub told: bool,
    /// How often it may be prepared again if it is voted down tentatively.
    pub retries_left: u32,
    pub prepared_at: Timestamp,
    /// How long it took until a majority of each had voted, if only provisionally.
    pub majority_after: Option<Duration>,
    /// Missing votes are being waited for.
    pub waits: bool,
    quorums: Quorums,
}

/// What is in the way of an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum InTheWay {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// Reads that would have missed its writes, up to that of this transaction.
    Readers(Version),
    /// Something that is in the way at every version.
    Other,
}

impl InTheWay {
    /// The same with another conflict.
    fn and(self, readers: Option<Version>) -> InTheWay {
        match (self, readers) {
            (InTheWay::Nothing, Some(reader)) => InTheWay::Readers(reader),
            (InTheWay::Readers(other), Some(reader)) => InTheWay::Readers(reader.max(other)),
            (InTheWay::Other, _) | (_, None) => InTheWay::Other,
        }
    }
}

/// One partition's part in an execution.
#[derive(Debug)]
pub(super) struct Participant {
    pub partition: u16,
    pub contents: Arc<Contents>,
    pub votes: Votes,
    /// The replicas that have accepted the decision proposed in Finalize.
    pub accepted: NodeSet,
    /// The replicas that have accepted to abandon all earlier executions.
    pub abandoned: NodeSet,
}

impl PreparedExecution {
    pub(super) fn new(
        eid: u32,
        parts: impl Iterator<Item = (u16, Arc<Contents>)>,
        retries_left: u32,
        quorums: Quorums,
        now: Timestamp,
    ) -> PreparedExecution {
        let participant = |(partition, contents)| Participant {
            partition,
            contents,
            votes: Votes::default(),
            accepted: NodeSet::EMPTY,
            abandoned: NodeSet::EMPTY,
        };
        PreparedExecution {
            eid,
            participants: parts.map(participant).collect(),
            conflicts: SmallVec::new(),
            in_the_way: InTheWay::Nothing,
            ahead_us: None,
            forgotten: false,
            told: false,
            retries_left,
            prepared_at: now,
            majority_after: None,
            waits: false,
            quorums,
        }
    }

    /// The part of the partition that `replica` is of.
    pub(super) fn participant(&mut self, replica: NodeId) -> Option<&mut Participant> {
        self.participants.iter_mut().find(|part| part.partition == replica.partition())
    }

    /// Counts a vote.
    pub(super) fn record(
        &mut self,
        replica: NodeId,
        vote: Vote,
        conflict: Option<Conflict>,
        now: Timestamp,
    ) {
        let majority = self.quorums.majority;
        let Some(part) = self.participant(replica) else { return };
        part.abandoned.insert(replica);
        part.votes.record(replica, vote);
        if self.participants.iter().all(|part| part.votes.count() >= majority) {
            self.majority_after.get_or_insert(now.since(self.prepared_at));
        }
        let Some(Conflict { key, readers, forgotten }) = conflict else { return };
        self.forgotten |= forgotten;
        self.in_the_way = self.in_the_way.and(readers);
        if self.conflicts.len() < CONFLICTS_AT_MOST && !self.conflicts.contains(&key) {
            self.conflicts.push(key);
        }
    }

    /// What the votes of all participants come to: to commit, all must.
    pub(super) fn tally(&self) -> Tally {
        let mut worst = Tally::CommitFast;
        for part in &self.participants {
            let tally = part.votes.tally(self.quorums);
            if rank(tally) > rank(worst) {
                worst = tally;
            }
        }
        worst
    }

    /// Whether the execution has committed: it is durable in each partition, by the votes alone or by
    /// Finalize.
    pub(super) fn has_committed(&self) -> bool {
        self.participants
            .iter()
            .all(|part| part.accepted.len() >= self.quorums.majority || self.is_fast(part))
    }

    /// Whether the votes alone make it durable in a partition that it commits there.
    fn is_fast(&self, part: &Participant) -> bool {
        part.votes.tally(self.quorums) == Tally::CommitFast
    }

    /// Whether it is durable that no earlier execution commits: the home partition decides which does.
    pub(super) fn is_the_only_one(&self) -> bool {
        self.eid == 0 || self.participants[0].abandoned.len() >= self.quorums.majority
    }

    /// Whether the home partition has accepted to abandon it.
    pub(super) fn is_abandoned(&self) -> bool {
        self.participants[0].accepted.len() >= self.quorums.majority
    }

    /// Sends the replicas that have not answered yet what they are to vote on.
    pub(super) fn send_prepare(
        &self,
        version: Version,
        next_tag: u32,
        group: &Group,
        cx: &mut Context<'_, Coordinator>,
    ) {
        for part in &self.participants {
            let missing = group.all().without(part.votes.settled());
            if !missing.is_empty() {
                let (eid, contents) = (self.eid, part.contents.clone());
                let prepare =
                    Message::Request(Request::Prepare { version, eid, next_tag, contents });
                cx.broadcast(part.partition, missing, prepare);
            }
        }
    }

    /// Proposes a decision to the replicas that have not accepted it yet. A commit needs that only
    /// where the votes alone don't make it durable.
    pub(super) fn send_finalize(
        &self,
        version: Version,
        decision: Proposal,
        group: &Group,
        cx: &mut Context<'_, Coordinator>,
    ) {
        for part in &self.participants {
            let fast = self.is_fast(part);
            let missing = group.all().without(part.accepted);
            if !(missing.is_empty() || decision == Proposal::Commit && fast) {
                let (eid, view) = (self.eid, super::OWN_VIEW);
                cx.broadcast(
                    part.partition,
                    missing,
                    Message::Request(Request::Finalize { version, eid, view, decision }),
                );
            }
        }
    }

    /// How much longer to wait for votes that are missing: as long as a majority took, and no longer
    /// than a round trip. Going on without them costs about as much.
    pub(super) fn patience(&self, now: Timestamp, round_trip: Duration) -> Duration {
        let round_trip = round_trip.max(FAST_PATH_AT_LEAST);
        let majority_after = self.majority_after.unwrap_or_default();
        let due = self.prepared_at + majority_after + majority_after.max(FAST_PATH_AT_LEAST);
        due.since(now).min(round_trip)
    }
}

/// Of the tallies of several partitions the one of the highest rank decides.
fn rank(tally: Tally) -> u8 {
    match tally {
        Tally::CommitFast => 0,
        Tally::CommitSlow => 1,
        Tally::CommitUnlessMore => 2,
        Tally::Undecided => 3,
        Tally::AbandonUnlessMore => 4,
        Tally::AbandonSlow => 5,
        Tally::AbandonFast => 6,
    }
}

/// Gives each partition its contents, the home first, even if it has nothing to do.
pub(super) fn split(
    group: &Group,
    home: u16,
    reads: Vec<Read>,
    writes: Vec<TaggedWrite>,
) -> SmallVec<[(u16, Arc<Contents>); 1]> {
    if group.partitions() == 1 {
        let participants = smallvec![home];
        let contents = Contents { participants, reads, writes, ..Contents::default() };
        return smallvec![(home, Arc::new(contents))];
    }
    let mut parts: SmallVec<[(u16, Contents); 1]> = smallvec![(home, Contents::default())];
    let part_of = |key: &Key, parts: &mut SmallVec<[(u16, Contents); 1]>| {
        let partition = group.partition_of(key);
        parts.iter().position(|(other, _)| *other == partition).unwrap_or_else(|| {
            parts.push((partition, Contents::default()));
            parts.len() - 1
        })
    };
    for read in reads {
        let part = part_of(&read.key, &mut parts);
        parts[part].1.reads.push(read);
    }
    for write in writes {
        let part = part_of(&write.key, &mut parts);
        parts[part].1.writes.push(write);
    }
    let participants: SmallVec<[u16; 4]> = parts.iter().map(|(partition, _)| *partition).collect();
    let with_participants = |(partition, contents)| {
        (partition, Arc::new(Contents { participants: participants.clone(), ..contents }))
    };
    parts.into_iter().map(with_participants).collect()
}
