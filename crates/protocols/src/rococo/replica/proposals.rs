//! What a leader proposes, and what it answers once that is chosen.

use std::collections::VecDeque;

use serried_model::{NodeId, Version};

use super::super::message::{Entry, Led, Reply};
use super::Cx;
use crate::frameworks::replicated_log::ReplicatedLog;

/// An entry with what is answered once it is chosen.
#[derive(Debug)]
pub(super) struct Proposal {
    /// Counts the entries of this leader.
    pub(super) number: u64,
    /// None stands for the confirmation that this replica leads.
    pub(super) entry: Option<Entry>,
    pub(super) replies: Vec<(NodeId, Reply)>,
}

/// The proposals of a leader, in their order.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    /// Those for which the log has had no room yet.
    waiting: VecDeque<Proposal>,
    /// Those that are not chosen, by slot.
    open: VecDeque<(u64, Proposal)>,
    next: u64,
}

impl Proposals {
    /// The number of the next entry.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether the log has all of them.
    pub(super) fn are_in_log(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Proposes an entry, and sends replies once it is chosen.
    pub(super) fn put(&mut self, entry: Entry, replies: Vec<(NodeId, Reply)>) {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Proposal { number, entry: Some(entry), replies });
    }

    /// Sends a reply once everything that was proposed before is chosen, and this replica still leads.
    pub(super) fn confirm(&mut self, to: NodeId, reply: Reply) {
        match self.waiting.back_mut() {
            Some(last) => last.replies.push((to, reply)),
            None => {
                let replies = vec![(to, reply)];
                self.waiting.push_back(Proposal { number: self.next, entry: None, replies });
            }
        }
    }

    /// Puts proposals into the log, as far as it has room.
    pub(super) fn propose(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_>) {
        while let Some(first) = self.waiting.front() {
            let slot = match first.entry.clone() {
                Some(entry) => log.propose_led(entry, cx),
                None => log.confirm(cx),
            };
            let Some(slot) = slot else { return };
            let proposal = self.waiting.pop_front().expect("there is a first");
            self.open.push_back((slot, proposal));
        }
    }

    /// Removes the first proposal if it is chosen: its slot is not after this one.
    pub(super) fn pop_chosen(&mut self, slot: u64) -> Option<Proposal> {
        self.open.front().filter(|(first, _)| *first <= slot)?;
        self.open.pop_front().map(|(_, proposal)| proposal)
    }

    /// The proposal with which a transaction is executed.
    pub(super) fn execution_of(&mut self, txn: Version) -> Option<&mut Proposal> {
        let open = self.open.iter_mut().map(|(_, proposal)| proposal);
        open.chain(&mut self.waiting).find(|proposal| match &proposal.entry {
            Some(Entry::Execute(entry)) => entry.txns.iter().any(|(other, _)| *other == txn),
            _ => false,
        })
    }
}
