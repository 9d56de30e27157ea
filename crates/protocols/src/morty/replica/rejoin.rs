//! A replica in the place of one whose disk was lost.
//!
//! Its predecessor has voted, promised and accepted, others have counted that, and it knows nothing of it. A
//! transaction may have committed of which one of the others knows at most, and which is still counted with
//! the predecessor's vote. So until it can do no harm, the replica takes part in nothing: it votes on no
//! transaction, whatever its version, promises nothing and has no say in truncations.
//!
//! - *The floor.* The predecessor has taken part in nothing at or above the floor. To find it the replica asks
//!   the others, and with the answers of a majority of the group, none of them its own, sets it above all
//!   their clocks, its own clock, and all that they have in their logs, by twice the clocks' bound.
//! - *The end.* It takes part again once its watermark has passed the floor. The truncation that passes it is
//!   merged from what a majority has, without this replica. So it is in all of that what may have been decided
//!   below the floor, with the predecessor's votes or not: whatever had a majority with the predecessor has
//!   one of the others too. Below the watermark nothing is voted on, so that the votes, promises and read
//!   marks that were lost are wanted no more.
//!
//! A single peer may lack what has committed; that is why its store alone is not enough. That this replica is
//! not ready is durable before it asks, and a replica that is not ready answers nobody who asks the same.
//!
//! The floor rests on clocks in one respect: on the predecessor's having been ahead of the others' by no more
//! than their bound, while it also took part in what was further ahead than any of them would have let in.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::NodeId;

use super::{Cx, Replica, Timer};
use crate::morty::message::{Message, Record};

/// Whoever has not answered is asked again after so long.
const PATIENCE: Duration = Duration::from_millis(500);

/// From which version on, in microseconds, the replica takes part.
#[derive(PartialEq, Debug, Default)]
pub(super) enum Floor {
    /// In everything: what it has promised it knows.
    #[default]
    None,
    /// In nothing. The others are asked how far its predecessor may have come.
    Unknown {
        /// Tells the answers from those to an earlier question.
        question: u64,
        answers: BTreeMap<usize, u64>,
    },
    /// In nothing until everything below this is settled.
    At(u64),
}

impl Floor {
    pub(super) fn is_known(&self) -> bool {
        !matches!(self, Floor::Unknown { .. })
    }

    /// Everything below `watermark` is settled.
    pub(super) fn pass(&mut self, watermark: u64) {
        if matches!(self, Floor::At(floor) if *floor <= watermark) {
            *self = Floor::None;
        }
    }

    pub(super) fn unknown() -> Floor {
        Floor::Unknown { question: 0, answers: BTreeMap::new() }
    }
}

impl Replica {
    /// Whether it knows all that it has promised.
    pub(super) fn takes_part(&self) -> bool {
        self.floor == Floor::None
    }

    /// Whether a message is for those who take part alone.
    pub(super) fn is_for_those_who_take_part(&self, message: &Message) -> bool {
        match message {
            Message::Get { .. }
            | Message::Put { .. }
            | Message::AskAdmission { .. }
            | Message::Prepare { .. }
            | Message::Finalize { .. }
            | Message::PaxosPrepare { .. } => true,
            Message::Inquire { version } => self.settled.get(*version).is_none(),
            // What it says of a truncation is of all that is below, the floor's other side included.
            Message::Truncate { .. } | Message::TruncationPaxosPrepare { .. } => true,
            // One that is above is a promise that nobody has made yet.
            Message::ProposeMerge { upto, .. } => {
                !matches!(self.floor, Floor::At(floor) if *upto > floor)
            }
            // Others would take what it has for all there is.
            Message::GetCommitted { .. } | Message::Scan { .. } => true,
            Message::Replaced { .. } => true,
            _ => false,
        }
    }

    /// Asks the others how far its predecessor may have come.
    pub(super) fn ask_for_the_floor(&mut self, cx: &mut Cx) {
        let Floor::Unknown { question, answers } = &mut self.floor else { return };
        if answers.is_empty() {
            *question = cx.draw();
        }
        let question = *question;
        let own = [self.id].into_iter().collect();
        let others = self.group.all().without(own);
        cx.broadcast(self.id.partition(), others, Message::Replaced { question });
        cx.set_timer(Timer::Floor, PATIENCE + 2 * self.group.round_trip());
    }

    /// A replica has come in the place of one whose disk was lost.
    pub(super) fn on_replaced(&mut self, from: NodeId, question: u64, cx: &mut Cx) {
        let reached = cx.clock().latest_us.max(self.log_marks.reaches());
        cx.send(from, Message::ReplacedReply { question, reached });
    }

    pub(super) fn on_replaced_reply(
        &mut self,
        from: NodeId,
        question: u64,
        reached: u64,
        cx: &mut Cx,
    ) {
        let majority = self.group.majority();
        let Floor::Unknown { question: asked, answers } = &mut self.floor else { return };
        if *asked != question {
            return;
        }
        answers.insert(from.member(), reached);
        if answers.len() < majority {
            return;
        }
        let reached = answers.values().copied().fold(cx.clock().latest_us, u64::max);
        let bound_us = 2 * self.settings.clock_bound_ms * 1000;
        let floor = reached.saturating_add(bound_us);
        self.floor = Floor::At(floor);
        self.append(Record::Floor { floor }, cx);
        cx.cancel_timer(Timer::Floor);
    }
}
