//! Taking the place of a replica whose disk was lost; why this is right is said in [`super`].

use core::time::Duration;

use serried_actor::{Context, NodeSet};
use serried_model::NodeId;

use super::log::{Host, Log, Machine, Role};
use super::message::{Ballot, Entry, Message, Timer};

/// How long to wait before asking again.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// How far a replica that has lost its disk has got.
#[derive(Debug, Default)]
pub(super) struct Lost {
    nonce: u64,
    /// Those who have said what they have promised.
    heard: NodeSet,
    /// The highest of that.
    floor: Ballot,
    /// All have.
    stands: bool,
}

impl Lost {
    /// Whether it does not know yet which ballots are above all that its predecessor can have promised.
    pub(super) fn is_asking(&self) -> bool {
        !self.stands
    }
}

impl<E: Entry> Log<E> {
    /// The node takes the place of one whose disk was lost; [`Log::on_start`] follows.
    pub fn rejoin<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        // Where there are no others, nobody knows more.
        if self.group.size() > 1 {
            self.lost = Some(Lost::default());
            self.mark(cx);
        }
    }

    /// Asks all who have not said what they have promised.
    pub(super) fn ask_for_standing<H: Host<Entry = E>>(&mut self, cx: &mut Context<'_, H>) {
        let (others, incarnation) = (self.others(), self.incarnation);
        let Some(lost) = self.lost.as_mut().filter(|lost| lost.is_asking()) else { return };
        lost.nonce = incarnation;
        let (to, nonce) = (others.without(lost.heard), lost.nonce);
        self.broadcast(to, Message::Rejoin { nonce }, cx);
        cx.set_timer(H::timer(Timer::Restore), ASK_AGAIN + 2 * self.group.round_trip());
    }

    /// Another has lost its disk: no ballot in which it may have promised or accepted is gone on with.
    pub(super) fn on_rejoin<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        machine: &mut impl Machine<H>,
        cx: &mut Context<'_, H>,
    ) {
        let repeated = self.rejoined.insert(from.member(), nonce) == Some(nonce);
        if !repeated && matches!(self.role, Role::Leader(_) | Role::Candidate(_)) {
            self.campaign(machine, cx);
        }
        let promised = self.promised;
        self.send(from, Message::Standing { nonce, promised }, cx);
    }

    pub(super) fn on_standing<H: Host<Entry = E>>(
        &mut self,
        from: NodeId,
        nonce: u64,
        promised: Ballot,
        cx: &mut Context<'_, H>,
    ) {
        let others = self.others();
        let Some(lost) = self.lost.as_mut().filter(|lost| lost.is_asking()) else { return };
        if lost.nonce != nonce {
            return;
        }
        lost.heard.insert(from);
        lost.floor = lost.floor.max(promised);
        if others.without(lost.heard).is_empty() {
            lost.stands = true;
            let above = lost.floor.next(0);
            self.promise(above.max(self.promised));
            self.mark(cx);
        }
    }
}
