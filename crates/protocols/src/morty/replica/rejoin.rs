//! Replaces a replica whose disk was lost.
//!
//! The lost replica, the *predecessor*, has voted, promised and accepted. Others have counted that, but the new replica
//! does not know of it. A transaction may have committed of which only one other replica knows, and which still counts on
//! the predecessor's vote. So the new replica takes part in nothing at first: it votes on no transaction of any version,
//! promises nothing, and has no say in truncations.
//!
//! - *The floor.* The predecessor has taken part in nothing at or above the floor. To find it, the replica asks the others
//!   for their clocks and the latest versions in their logs. When f + 1 others have answered, the floor is the latest of
//!   these and of its own clock, plus twice the clocks' bound.
//! - *The end.* The replica takes part again when its watermark has passed the floor. The truncation that passes it is
//!   merged from what a majority has, without this replica. It contains everything below the floor that may have been
//!   decided with the predecessor's votes: a decision that had a majority together with the predecessor has a replica
//!   in every majority of the others. Nothing is voted on below the watermark, so the votes, promises and read marks that
//!   were lost are not needed any more.
//!
//! A copy of a single peer's store is not enough, because the peer may lack something that has committed. Before the
//! replica asks the others, its log says that it replaces another. A replica that does not take part yet does not answer such
//! a question.
//!
//! # Where this depends on clocks
//! The predecessor may have taken part in a transaction that is further ahead than any of the others would admit. Then the
//! floor is high enough only if the predecessor's clock was ahead of the others' by no more than their bound.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::NodeId;

use super::log_marks::LogMarks;
use super::setup::Setup;
use super::{Cx, Timer};
use crate::morty::message::{Message, Rejoining};
use crate::morty::record::Record;

/// Replicas that have not answered are asked again after this, round trips not counted.
const PATIENCE: Duration = Duration::from_millis(500);

/// Whether the replica takes part, and what it does until then.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    floor: Floor,
}

/// Below which version the predecessor may have taken part.
#[derive(PartialEq, Debug, Default)]
enum Floor {
    /// The replica takes part in everything: it knows what it has promised.
    #[default]
    None,
    /// It takes part in nothing, and asks the others up to which version its predecessor may have.
    Unknown {
        /// Distinguishes the answers from those to an earlier question.
        question: u64,
        /// By member: what it has answered, in microseconds of version time.
        answers: BTreeMap<usize, u64>,
    },
    /// It takes part in nothing until everything below this is settled, in microseconds of version time.
    At(u64),
}

impl Floor {
    fn unknown() -> Floor {
        Floor::Unknown { question: 0, answers: BTreeMap::new() }
    }
}

impl Rejoin {
    /// Whether this replica takes part, since it knows everything that it has promised.
    pub(super) fn takes_part(&self) -> bool {
        self.floor == Floor::None
    }

    pub(super) fn is_floor_known(&self) -> bool {
        !matches!(self.floor, Floor::Unknown { .. })
    }

    /// Whether the replica may accept something about a truncation. The predecessor has accepted nothing about one above the
    /// floor.
    pub(super) fn may_accept(&self, upto: u64) -> bool {
        match self.floor {
            Floor::None => true,
            Floor::Unknown { .. } => false,
            Floor::At(floor) => upto > floor,
        }
    }

    /// The replica replaces one whose disk was lost.
    pub(super) fn begin(&mut self, log: &mut LogMarks, cx: &mut Cx) {
        self.floor = Floor::unknown();
        log.append(Record::Replaces, cx);
    }

    pub(super) fn replay_replaces(&mut self) {
        self.floor = Floor::unknown();
    }

    pub(super) fn replay_floor(&mut self, floor: u64) {
        self.floor = Floor::At(floor);
    }

    /// Everything below `watermark` is settled, in microseconds of version time.
    pub(super) fn pass(&mut self, watermark: u64) {
        if matches!(self.floor, Floor::At(floor) if floor <= watermark) {
            self.floor = Floor::None;
        }
    }

    /// Asks the others up to which version the predecessor may have taken part, if that is not known.
    pub(super) fn ask(&mut self, setup: &Setup, cx: &mut Cx) {
        let Floor::Unknown { question, answers } = &mut self.floor else { return };
        if answers.is_empty() {
            *question = cx.draw();
        }
        let question = *question;
        let own = [setup.id].into_iter().collect();
        let others = setup.group.all().without(own);
        let message = Message::Rejoining(Rejoining::Replaced { question });
        cx.broadcast(setup.id.partition(), others, message);
        cx.set_timer(Timer::Floor, PATIENCE + 2 * setup.group.round_trip());
    }

    /// A replica that replaces a lost one asks up to which version that one may have taken part.
    pub(super) fn on_replaced(&self, from: NodeId, question: u64, log: &LogMarks, cx: &mut Cx) {
        let reached = cx.clock().latest_us.max(log.reaches());
        cx.send(from, Message::Rejoining(Rejoining::ReplacedReply { question, reached }));
    }

    pub(super) fn on_replaced_reply(
        &mut self,
        from: NodeId,
        (question, reached): (u64, u64),
        setup: &Setup,
        log: &mut LogMarks,
        cx: &mut Cx,
    ) {
        let Floor::Unknown { question: asked, answers } = &mut self.floor else { return };
        if *asked != question {
            return;
        }
        answers.insert(from.member(), reached);
        if answers.len() < setup.group.majority() {
            return;
        }
        let reached = answers.values().copied().fold(cx.clock().latest_us, u64::max);
        let bound_us = 2 * setup.settings.clock_bound_ms * 1000;
        let floor = reached.saturating_add(bound_us);
        self.floor = Floor::At(floor);
        log.append(Record::Floor { floor }, cx);
        cx.cancel_timer(Timer::Floor);
    }
}
