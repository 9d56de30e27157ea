//! An instance that this replica leads: its own command that it proposes (001 Algorithm 3), or an
//! instance of another replica that it recovers (001 Algorithm 5).
//!
//! A [`Lead`] records the answers of the current phase, and derives the next step from them. The
//! instance itself is in its key's [`Space`](crate::frameworks::consensus::space::Space), where the
//! replica's other roles find it.

use std::collections::BTreeMap;

use serried_actor::{NodeSet, Timestamp};
use serried_model::NodeId;
use serried_parts::Asked;

use super::members::Members;
use crate::frameworks::consensus::instance::{Attributes, Ballot, Command, Instance};
use crate::frameworks::consensus::message::{Body, Conflict};

/// How often a validation is repeated. After that, replicas that have promised may have failed, and
/// others are asked.
const VALIDATED_AT_MOST: u32 = 3;

/// An agreement on an instance: its command, or `None` for a no-op, and its attributes.
pub(super) type Agreed = (Option<Command>, Attributes);

/// An instance that this replica leads.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) phase: Phase,
    /// How often the current messages were repeated.
    pub(super) repeated: u32,
    /// When the current messages should have been answered.
    pub(super) due: Timestamp,
}

/// The current phase, with the answers so far.
#[derive(Debug)]
pub(super) enum Phase {
    /// Collects the attributes that others assign to it.
    PreAccepting(BTreeMap<u8, Attributes>),
    /// Collects what others know of it.
    Preparing(BTreeMap<u8, Instance>),
    /// Collects the instances that contradict these attributes, from these replicas.
    Validating(Box<(Command, Attributes)>, NodeSet, BTreeMap<u8, Vec<Conflict>>),
    /// Collects the replicas that have accepted it.
    Accepting(Asked),
    /// Collects the replicas that have executed it, after it was committed.
    Executing(NodeSet),
}

/// The next step after the answers to a PreAccept.
#[derive(Debug)]
pub(super) enum Next {
    /// Commit: all of the fast quorum agree.
    Commit(Agreed),
    /// Ask a majority to accept: the fast quorum disagrees, or some have not answered in time.
    Accept(Ballot, Agreed),
}

impl Lead {
    /// The next step after the answers to a PreAccept, if enough have arrived: from all of the fast
    /// quorum, or from any majority if this replica is `impatient`.
    pub(super) fn pre_accepted(
        &self,
        instance: &Instance,
        members: &Members,
        impatient: bool,
    ) -> Option<Next> {
        let Phase::PreAccepting(replies) = &self.phase else { return None };
        let own = usize::from(members.own());
        let mut quorum = instance.quorum.members().filter(|member| *member != own);
        let quick: Option<Vec<&Attributes>> =
            quorum.by_ref().map(|member| replies.get(&(member as u8))).collect();
        let agreed = match quick.as_deref() {
            Some([]) => Some(&instance.attributes),
            Some([first, rest @ ..]) => rest.iter().all(|other| other == first).then_some(*first),
            None => None,
        };
        if let Some(attributes) = agreed {
            return Some(Next::Commit((instance.command.clone(), attributes.clone())));
        }
        let majority = replies.len() + 1 >= members.group().majority();
        (majority && (quick.is_some() || impatient)).then(|| {
            let mut attributes = instance.attributes.clone();
            replies.values().for_each(|other| attributes.add(other));
            Next::Accept(self.ballot, (instance.command.clone(), attributes))
        })
    }

    /// Records that the current messages were not answered in time. Returns whether to give up.
    pub(super) fn is_hopeless(&mut self) -> bool {
        self.repeated += 1;
        self.repeated > VALIDATED_AT_MOST && matches!(self.phase, Phase::Validating(..))
    }

    /// The message to repeat, and its receivers.
    pub(super) fn repeat(
        &mut self,
        instance: &Instance,
        members: &mut Members,
    ) -> Option<(NodeSet, Body)> {
        let (ballot, me, others) = (self.ballot, members.me(), members.others());
        let (command, attributes) = (instance.command.clone(), instance.attributes.clone());
        Some(match &mut self.phase {
            Phase::PreAccepting(replies) => {
                let waiting = others.without(of(replies.keys()));
                let quick = instance.quorum.without(me);
                members.quorums.are_slow(quick.without(others.without(waiting)));
                let quorum = instance.quorum;
                (waiting, Body::PreAccept { command: command?, attributes, quorum })
            }
            Phase::Preparing(replies) => {
                (others.without(of(replies.keys())), Body::Prepare { ballot })
            }
            Phase::Validating(agreed, asked, replies) => {
                let waiting = asked.without(of(replies.keys()));
                let (command, attributes) = (**agreed).clone();
                (waiting.without(me), Body::Validate { ballot, command, attributes })
            }
            Phase::Accepting(asked) => {
                members.quorums.ask_again(asked);
                (asked.waiting(), Body::Accept { ballot, command, attributes })
            }
            Phase::Executing(executed) => {
                (others.without(*executed), Body::Commit { command, attributes })
            }
        })
    }

    /// Removes a replica that has lost its disk from the answers. It is asked again. Returns
    /// whether to give up this instance.
    pub(super) fn count_nothing_of(&mut self, replaced: NodeId) -> bool {
        let member = replaced.member() as u8;
        match &mut self.phase {
            Phase::PreAccepting(replies) => drop(replies.remove(&member)),
            Phase::Preparing(replies) => drop(replies.remove(&member)),
            // The choice depends on an answer that no longer counts.
            Phase::Validating(_, asked, _) => return asked.contains(replaced),
            // Acceptances are counted by incarnation.
            Phase::Accepting(_) => {}
            Phase::Executing(executed) => {
                *executed = executed.without([replaced].into_iter().collect());
            }
        }
        false
    }

    /// How many replicas have sent the answer of the current phase.
    #[cfg(test)]
    pub(super) fn said(&self, members: &Members) -> usize {
        match &self.phase {
            Phase::PreAccepting(replies) => replies.len(),
            Phase::Preparing(replies) => replies.len(),
            Phase::Validating(.., replies) => replies.len(),
            Phase::Executing(executed) => executed.len(),
            Phase::Accepting(asked) => members.quorums.counted(asked).len(),
        }
    }
}

/// The replicas with these numbers.
fn of<'a>(members: impl Iterator<Item = &'a u8>) -> NodeSet {
    members.map(|member| NodeId::replica(0, usize::from(*member))).collect()
}
