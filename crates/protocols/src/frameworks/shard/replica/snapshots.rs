//! Read-only transactions without parts.

use std::collections::{BTreeMap, VecDeque};

use serried_model::{Key, NodeId, Version};

use super::super::control::{Control, Desk, Glance};
use super::super::message::{AsOf, Found, Request, Unseen};
use super::PENDING_AT_MOST;

/// A [`Request::Snapshot`], and its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SnapshotRequest {
    pub(super) from: NodeId,
    pub(super) number: u64,
    pub(super) as_of: AsOf,
    pub(super) keys: Vec<Key>,
}

/// The requests that wait for transactions to end.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_writer: BTreeMap<Version, Vec<SnapshotRequest>>,
    /// The requests whose transactions have ended.
    ready: VecDeque<SnapshotRequest>,
    /// How many requests there are of both kinds.
    len: usize,
}

/// The result of reading all keys of a request.
pub(super) enum Glanced {
    /// The results of all reads.
    Found(Vec<Found>),
    /// The request has to wait until this transaction ends.
    Waits(Version),
    /// One of the keys can't be read.
    Refused(Unseen),
}

impl From<SnapshotRequest> for Request {
    fn from(request: SnapshotRequest) -> Request {
        let SnapshotRequest { number, as_of, keys, .. } = request;
        Request::Snapshot { number, as_of, keys }
    }
}

impl Parked {
    /// Parks a request until a transaction ends. If too many wait, drops it; the client sends it
    /// again.
    pub(super) fn insert(&mut self, writer: Version, request: SnapshotRequest) {
        if self.len >= PENDING_AT_MOST {
            return;
        }
        let others = self.by_writer.entry(writer).or_default();
        if !others.contains(&request) {
            others.push(request);
            self.len += 1;
        }
    }

    /// Releases the requests that wait for a transaction, which has ended.
    pub(super) fn release(&mut self, writer: Version) {
        self.ready.extend(self.by_writer.remove(&writer).into_iter().flatten());
    }

    pub(super) fn pop(&mut self) -> Option<SnapshotRequest> {
        let request = self.ready.pop_front()?;
        self.len -= 1;
        Some(request)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Reads all keys, even if one of them has to wait: the control has to know all keys that are read.
pub(super) fn glance_all(
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
