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
    /// Those that wait for a time to be over, in microseconds since the Unix epoch.
    by_time: BTreeMap<u64, Vec<SnapshotRequest>>,
    /// The requests that wait for nothing any more.
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
    /// The request has to wait until this time is over.
    WaitsUntil(u64),
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
        if self.len < PENDING_AT_MOST {
            self.len += add(self.by_writer.entry(writer).or_default(), request);
        }
    }

    /// Parks a request until a time is over. If too many wait, drops it.
    pub(super) fn insert_until(&mut self, us: u64, request: SnapshotRequest) {
        if self.len < PENDING_AT_MOST {
            self.len += add(self.by_time.entry(us).or_default(), request);
        }
    }

    /// The first time that a request waits for.
    pub(super) fn first_us(&self) -> Option<u64> {
        self.by_time.keys().next().copied()
    }

    /// Releases the requests that wait for times before this one.
    pub(super) fn release_before(&mut self, earliest_us: u64) {
        let later = self.by_time.split_off(&earliest_us);
        let over = core::mem::replace(&mut self.by_time, later);
        self.ready.extend(over.into_values().flatten());
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

    /// A request that was released has to wait for the log, and is the next again.
    pub(super) fn put_back(&mut self, request: SnapshotRequest) {
        self.ready.push_front(request);
        self.len += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Adds a request, unless it is there. Returns how many it has added.
fn add(others: &mut Vec<SnapshotRequest>, request: SnapshotRequest) -> usize {
    let is_new = !others.contains(&request);
    if is_new {
        others.push(request);
    }
    usize::from(is_new)
}

/// From so many keys on their rows are fetched from memory together. Measured with TAO and F1.
const FETCHED_TOGETHER: usize = 4;

/// Reads all keys, even if one of them has to wait: the control has to know all keys that are read.
pub(super) fn glance_all(
    control: &mut impl Control,
    as_of: AsOf,
    keys: &[Key],
    desk: &mut Desk<'_>,
) -> Glanced {
    let (mut found, mut waits) = (Vec::with_capacity(keys.len()), None);
    if keys.len() >= FETCHED_TOGETHER {
        desk.prefetch(keys);
    }
    for key in keys {
        match control.glance(key, as_of, desk) {
            Glance::Found(version) => found.push(version),
            Glance::Waits(writer) => waits = Some(Glanced::Waits(writer)),
            Glance::WaitsUntil(us) => waits = Some(Glanced::WaitsUntil(us)),
            Glance::Refused { anew } => {
                return Glanced::Refused(Unseen { key: key.clone(), anew });
            }
        }
    }
    waits.unwrap_or(Glanced::Found(found))
}
