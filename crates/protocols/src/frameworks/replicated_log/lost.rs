//! Replacement of a replica whose disk was lost. [`super`] explains why this is safe.

use core::time::Duration;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::host::Host;
use super::members::Members;
use super::message::{Ballot, Message, Timer};

/// How long a replica waits before it asks the others again, plus round trips.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// The progress of a replica that has lost its disk.
#[derive(Debug, Default)]
pub(super) struct Lost {
    nonce: u64,
    /// How often it has asked anew, because another replica has lost its disk, too.
    question: u64,
    /// The replicas that have reported their promises.
    heard: NodeSet,
    /// The highest ballot that they have promised.
    floor: Ballot,
    /// Whether all have reported.
    has_floor: bool,
    /// Whether one has something that was accepted before.
    has_something: bool,
    /// Whether one says that the group has begun anew.
    is_anew: bool,
}

/// What another replica reports.
pub(super) struct Report {
    /// The ballot that it has promised.
    pub(super) promised: Ballot,
    /// Whether it has nothing.
    pub(super) is_blank: bool,
    /// Whether the group has begun anew.
    pub(super) is_anew: bool,
}

/// What all others have reported.
pub(super) struct Heard {
    /// The first ballot above all that they have promised.
    pub(super) above: Ballot,
    /// Whether none of them has anything.
    pub(super) are_blank: bool,
    /// Whether the group has begun anew.
    pub(super) is_anew: bool,
}

impl Lost {
    /// Whether it does not know yet which ballots are above all that its predecessor may have
    /// promised.
    pub(super) fn is_asking(&self) -> bool {
        !self.has_floor
    }

    /// Asks the replicas that have not reported for the ballots that they have promised.
    pub(super) fn ask<H: Host>(
        &mut self,
        incarnation: u64,
        members: &Members,
        cx: &mut Context<'_, H>,
    ) {
        if !self.is_asking() {
            return;
        }
        self.nonce = incarnation;
        let (to, nonce) = (members.others().without(self.heard), self.nonce);
        members.send(to, Message::Rejoin { nonce, question: self.question }, cx);
        cx.set_timer(H::timer(Timer::Restore), ASK_AGAIN + 2 * members.group.round_trip());
    }

    /// What others have reported does not count any more.
    pub(super) fn ask_anew(&self) -> Lost {
        Lost { question: self.question + 1, ..Lost::default() }
    }

    /// Handles another replica's report. If it is the last one, returns what all have reported.
    pub(super) fn on_standing(
        &mut self,
        from: NodeId,
        (nonce, question): (u64, u64),
        Report { promised, is_blank, is_anew }: Report,
        members: &Members,
    ) -> Option<Heard> {
        if !self.is_asking() || (self.nonce, self.question) != (nonce, question) {
            return None;
        }
        self.heard.insert(from);
        self.floor = self.floor.max(promised);
        self.has_something |= !is_blank;
        self.is_anew |= is_anew;
        self.has_floor = members.others().without(self.heard).is_empty();
        let (are_blank, is_anew) = (!self.has_something, self.is_anew);
        self.has_floor.then(|| Heard { above: self.floor.next(0), are_blank, is_anew })
    }
}
