//! What a leader does about read-only transactions that have no parts.

use std::collections::{BTreeMap, VecDeque};

use serried_actor::Context;
use serried_model::{Key, NodeId, Version};

use super::super::control::{Control, Desk, Glance, Snapshots};
use super::super::message::{AsOf, Found, Led, Message, Refusal, Reply, Request, Unseen};
use super::leader::Shard;
use super::windows::Admission;
use super::{PENDING_AT_MOST, Replica};
use crate::frameworks::replicated_log::ReplicatedLog;

type Cx<'a, C> = Context<'a, Replica<C>>;

/// A [`Request::Snapshot`], and whose it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SnapshotRequest {
    pub(super) from: NodeId,
    pub(super) number: u64,
    pub(super) as_of: AsOf,
    pub(super) keys: Vec<Key>,
}

/// Those that wait for transactions to end.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_writer: BTreeMap<Version, Vec<SnapshotRequest>>,
    /// Those whose transactions have ended.
    ready: VecDeque<SnapshotRequest>,
    /// How many there are of both.
    len: usize,
}

/// What comes of a look at all keys.
enum Glanced {
    Found(Vec<Found>),
    Waits(Version),
    Refused(Unseen),
}

impl From<SnapshotRequest> for Request {
    fn from(request: SnapshotRequest) -> Request {
        let SnapshotRequest { number, as_of, keys, .. } = request;
        Request::Snapshot { number, as_of, keys }
    }
}

impl Parked {
    /// A request waits; where very many do it is forgotten, and comes again.
    fn insert(&mut self, writer: Version, request: SnapshotRequest) {
        if self.len >= PENDING_AT_MOST {
            return;
        }
        let others = self.by_writer.entry(writer).or_default();
        if !others.contains(&request) {
            others.push(request);
            self.len += 1;
        }
    }

    /// A transaction is over.
    pub(super) fn release(&mut self, writer: Version) {
        self.ready.extend(self.by_writer.remove(&writer).into_iter().flatten());
    }

    fn pop(&mut self) -> Option<SnapshotRequest> {
        let request = self.ready.pop_front()?;
        self.len -= 1;
        Some(request)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<C: Control> Shard<C> {
    /// Answers what is asked, or notes for whom that waits. It is returned if it waits for the log.
    pub(super) fn on_snapshot(
        &mut self,
        request: SnapshotRequest,
        log: &mut ReplicatedLog<Led>,
        cx: &mut Cx<'_, C>,
    ) -> Option<Request> {
        match (C::SNAPSHOTS, request.as_of) {
            (Snapshots::OfKnown, AsOf::Slot(_)) | (Snapshots::AtTimestamps, AsOf::Time(_)) => {}
            _ => return None, // No client asks for that.
        }
        let window = self.table.window();
        if let AsOf::Time(txn) = request.as_of {
            match self.admission(txn, cx) {
                // The versions that it reads may still be kept.
                Admission::Taken | Admission::Late => {}
                Admission::Waits => return Some(request.into()),
                Admission::Unclear => return None,
                Admission::Skewed { ahead_us } => {
                    // It only reads, so the refusal need not be permanent.
                    let reason = Refusal::ClockSkew { ahead_us };
                    cx.send(request.from, Message::Reply(Reply::Refused { txn, reason }));
                    return None;
                }
            }
        }
        if !self.has_proposed_all() {
            // What the control takes for over may not be in the log, nor come before what confirms this.
            return Some(request.into());
        }
        let SnapshotRequest { from, number, as_of, ref keys } = request;
        cx.charge(keys.len());
        let glanced = self.with_control(cx, |control, desk| glance_all(control, as_of, keys, desk));
        let known = self.known;
        match (glanced, as_of) {
            (Glanced::Waits(writer), _) => self.leader_mut().parked.insert(writer, request),
            (Glanced::Found(found), _) => {
                let reply = Reply::Snapshot { number, known, found: Ok(found) };
                self.reply_confirmed(from, reply, log, cx);
            }
            // Nothing rests on a refusal, so it need not be sure who leads.
            (Glanced::Refused(unseen), AsOf::Slot(_)) => {
                let reply = Reply::Snapshot { number, known, found: Err(unseen) };
                cx.send(from, Message::Reply(reply));
            }
            (Glanced::Refused(_), AsOf::Time(txn)) => {
                // All versions are kept that one could read who is not late.
                let reason = Refusal::Late { from_us: window.from_us };
                cx.send(from, Message::Reply(Reply::Refused { txn, reason }));
            }
        }
        None
    }

    /// Answers those who have waited for transactions that are over now.
    pub(super) fn answer_parked(&mut self, log: &mut ReplicatedLog<Led>, cx: &mut Cx<'_, C>) {
        while self.has_proposed_all()
            && let Some(request) = self.leader_mut().parked.pop()
        {
            let waits = self.on_snapshot(request, log, cx);
            debug_assert_eq!(waits, None, "it has waited for the log before");
        }
    }
}

/// Looks at all keys, unless one is refused: the control has to know of all that are read.
fn glance_all(
    control: &mut impl Control,
    as_of: AsOf,
    keys: &[Key],
    desk: &mut Desk<'_>,
) -> Glanced {
    let (mut found, mut writer) = (Vec::with_capacity(keys.len()), None);
    for key in keys {
        match control.glance(key, as_of, desk) {
            Glance::Found(version) => found.push(version),
            Glance::Waits(of) => writer = Some(of),
            Glance::Refused { anew } => {
                return Glanced::Refused(Unseen { key: key.clone(), anew });
            }
        }
    }
    writer.map_or(Glanced::Found(found), Glanced::Waits)
}
