//! A pre-vote: the question whether another replica has a leader. A replica asks it before it takes
//! a ballot. So a replica that was cut off or paused does not disturb a leader.

use core::time::Duration;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::host::Host;
use super::members::Members;
use super::message::{Message, Timer};

/// How long a replica waits before it asks the others again, plus round trips.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// A question to the other replicas whether they have a leader.
#[derive(Debug)]
pub(super) struct Canvass {
    /// Distinguishes this question from earlier ones.
    nonce: u64,
    /// The replicas that have no leader and would promise a ballot.
    willing: NodeSet,
}

impl Canvass {
    /// Asks the others whether they would promise this replica a ballot. This replica itself would.
    pub(super) fn begin<H: Host>(members: &Members, cx: &mut Context<'_, H>) -> Canvass {
        let nonce = cx.draw();
        // The question promises nothing, so it need not wait for a flush.
        for member in members.others().members() {
            let question = H::message(Message::Canvass { nonce });
            cx.send_before_durable(members.node(member), question);
        }
        let again = cx.jitter(ASK_AGAIN) + 2 * members.group.round_trip();
        cx.set_timer(H::timer(Timer::Elect), again);
        Canvass { nonce, willing: [members.id].into_iter().collect() }
    }

    /// Records that `from` would promise a ballot.
    pub(super) fn on_willing(&mut self, from: NodeId, nonce: u64) {
        // An answer to an earlier question does not count: `from` may have found a leader since.
        if self.nonce == nonce {
            self.willing.insert(from);
        }
    }

    /// Whether a majority would promise a ballot.
    pub(super) fn has_majority(&self, members: &Members) -> bool {
        self.willing.len() >= members.group.majority()
    }
}
