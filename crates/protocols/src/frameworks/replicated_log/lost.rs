//! Taking the place of a replica whose disk was lost. [`super`] says why this is right.

use core::time::Duration;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::host::Host;
use super::members::Members;
use super::message::{Ballot, Message, Timer};

/// After how long the others are asked again, round trips not counted.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// How far a replica that has lost its disk has got.
#[derive(Debug, Default)]
pub(super) struct Lost {
    nonce: u64,
    /// Those that have reported what they have promised.
    heard: NodeSet,
    /// The highest ballot that they have promised.
    floor: Ballot,
    /// Whether all have reported.
    has_floor: bool,
}

impl Lost {
    /// Whether it does not know yet which ballots are above all that its predecessor can have promised.
    pub(super) fn is_asking(&self) -> bool {
        !self.has_floor
    }

    /// Asks the replicas that have not reported what they have promised.
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
        members.send(to, Message::Rejoin { nonce }, cx);
        cx.set_timer(H::timer(Timer::Restore), ASK_AGAIN + 2 * members.group.round_trip());
    }

    /// Another replica reports what it has promised. If it is the last one, returns the first ballot above the floor.
    pub(super) fn on_standing(
        &mut self,
        from: NodeId,
        nonce: u64,
        promised: Ballot,
        members: &Members,
    ) -> Option<Ballot> {
        if !self.is_asking() || self.nonce != nonce {
            return None;
        }
        self.heard.insert(from);
        self.floor = self.floor.max(promised);
        self.has_floor = members.others().without(self.heard).is_empty();
        self.has_floor.then(|| self.floor.next(0))
    }
}
