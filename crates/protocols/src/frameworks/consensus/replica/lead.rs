//! An instance that this replica leads: it has a command agreed on (001 Algorithm 3), or recovers an instance of another
//! replica (001 Algorithm 5).
//!
//! A [`Lead`] knows which replicas have answered in the present phase, and what follows from that. What is known of the instance
//! itself is in its key's [`Space`](crate::frameworks::consensus::space::Space), where the other roles of the replica find it.

use std::collections::BTreeMap;

use serried_actor::{NodeSet, Timestamp};
use serried_model::NodeId;
use serried_parts::Asked;

use super::members::Members;
use crate::frameworks::consensus::instance::{Attributes, Ballot, Command, Instance};
use crate::frameworks::consensus::message::{Body, Conflict};

/// How often a validation is repeated. After that, replicas that have promised may be gone, and others are asked.
const VALIDATED_AT_MOST: u32 = 3;

/// What replicas agree on for an instance: its command, or none if nothing is done, and its attributes.
pub(super) type Agreed = (Option<Command>, Attributes);

/// An instance that this replica leads.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) ballot: Ballot,
    pub(super) phase: Phase,
    /// How often what was asked for was asked for again.
    pub(super) repeated: u32,
    /// When what was asked for should have been answered.
    pub(super) due: Timestamp,
}

/// What a lead waits for, with the answers so far.
#[derive(Debug)]
pub(super) enum Phase {
    /// The attributes that others give it.
    PreAccepting(BTreeMap<u8, Attributes>),
    /// What others know of it.
    Preparing(BTreeMap<u8, Instance>),
    /// The instances that contradict these attributes, at these replicas.
    Validating(Box<(Command, Attributes)>, NodeSet, BTreeMap<u8, Vec<Conflict>>),
    /// The replicas that have accepted it.
    Accepting(Asked),
    /// The replicas that have executed it, after it was committed.
    Executing(NodeSet),
}

/// What follows from the answers to a PreAccept.
#[derive(Debug)]
pub(super) enum Next {
    /// All of the fast quorum agree.
    Commit(Agreed),
    /// They do not, or some have not answered in time: a majority has to accept this.
    Accept(Ballot, Agreed),
}

impl Lead {
    /// What follows from the answers to a PreAccept, if enough have answered: all of the fast quorum, or any majority if
    /// this replica is `impatient`.
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

    /// Notes that what was asked for was not answered in time. Returns whether to give up.
    pub(super) fn is_hopeless(&mut self) -> bool {
        self.repeated += 1;
        self.repeated > VALIDATED_AT_MOST && matches!(self.phase, Phase::Validating(..))
    }

    /// What to ask again, and whom.
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

    /// A replica has lost its disk: what it has said does not count any more, and it is asked again. Returns whether this
    /// instance has to be given up.
    pub(super) fn count_nothing_of(&mut self, replaced: NodeId) -> bool {
        let member = replaced.member() as u8;
        match &mut self.phase {
            Phase::PreAccepting(replies) => drop(replies.remove(&member)),
            Phase::Preparing(replies) => drop(replies.remove(&member)),
            // The choice was made from answers of which one does not count any more.
            Phase::Validating(_, asked, _) => return asked.contains(replaced),
            // Acceptances are counted by incarnation.
            Phase::Accepting(_) => {}
            Phase::Executing(executed) => {
                *executed = executed.without([replaced].into_iter().collect());
            }
        }
        false
    }

    /// How many replicas have given the answer that the present phase waits for.
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
