//! Getting from another replica what this one has missed.
//!
//! What has committed since the watermark comes as a list of transactions, of which those that are not
//! known here are fetched. A replica that was away for longer than the others remember copies, from
//! another's store, the keys that were written since, and does that again until what is missing is
//! remembered.

use core::time::Duration;
use std::sync::Arc;

use serried_model::{Key, NodeId, Version};
use serried_parts::Committed;

use super::{Cx, Replica, Timer, keys};
use crate::morty::digest::Digest;
use crate::morty::message::{Contents, Holds, Message, TaggedWrite};

/// How many transactions are listed in one message, and how many are fetched with one.
const LISTED_AT_ONCE: usize = 4096;
const FETCHED_AT_ONCE: usize = 256;
/// How much of a store is sent in one message, in bytes.
const SCANNED_AT_ONCE: usize = 256 << 10;
/// A peer that has not answered for so long is asked again, or another one is.
const PATIENCE: Duration = Duration::from_millis(500);

/// What this replica is missing.
#[derive(Debug)]
pub(super) struct CatchUp {
    peer: NodeId,
    /// How often nothing has come of it.
    tried: usize,
    doing: Doing,
}

#[derive(Clone, PartialEq, Debug)]
enum Doing {
    /// Asks what has committed since.
    List(Version),
    /// Fetches what these have written, and goes on from `next`.
    Fetch { missing: Vec<Version>, next: Option<Version> },
    /// Copies the keys after this one that were written since then.
    Scan { after: Option<Key>, since: u64, began_at: Option<(u64, Digest)> },
}

impl Replica {
    /// This replica has just come back, or is new, and asks its peers one after the other.
    pub(super) fn start_catch_up(&mut self, cx: &mut Cx) {
        if self.group.size() == 1 {
            self.behind = false;
            return;
        }
        let peer = self.peer(self.id.member() + 1);
        self.catch_up_from(peer, cx);
    }

    fn peer(&self, turn: usize) -> NodeId {
        let member = match turn % self.group.size() {
            own if own == self.id.member() => (own + 1) % self.group.size(),
            other => other,
        };
        NodeId::replica(self.id.partition(), member)
    }

    /// Gets all that `peer` has committed; false if it is busy with that already.
    pub(super) fn catch_up_from(&mut self, peer: NodeId, cx: &mut Cx) -> bool {
        let begins = self.catch_up.is_none() && peer != self.id;
        if begins {
            let doing = Doing::List(self.truncation.watermark());
            self.catch_up = Some(CatchUp { peer, tried: 0, doing });
            self.ask_peer(cx);
        }
        begins
    }

    fn ask_peer(&mut self, cx: &mut Cx) {
        let Some(CatchUp { peer, doing, .. }) = &self.catch_up else { return };
        let message = match doing {
            Doing::List(since) => Message::GetCommitted { since: *since },
            Doing::Fetch { missing, .. } => {
                let versions = missing.iter().copied().take(FETCHED_AT_ONCE).collect();
                Message::Fetch { versions }
            }
            Doing::Scan { after, since, .. } => {
                Message::Scan { after: after.clone(), since: *since }
            }
        };
        cx.send(*peer, message);
        cx.set_timer(Timer::CatchUp, PATIENCE + 2 * self.group.round_trip());
    }

    /// There was no answer.
    pub(super) fn go_on_catching_up(&mut self, cx: &mut Cx) {
        let Some(mut catch_up) = self.catch_up.take() else { return };
        catch_up.tried += 1;
        if catch_up.tried.is_multiple_of(3) {
            // Another may do better, from the beginning.
            catch_up.peer = self.peer(self.id.member() + 1 + catch_up.tried / 3);
            catch_up.doing = Doing::List(self.truncation.watermark());
        }
        self.catch_up = Some(catch_up);
        self.ask_peer(cx);
    }

    pub(super) fn on_get_committed(&mut self, from: NodeId, since: Version, cx: &mut Cx) {
        let reaches = since >= self.remembers_from();
        let (versions, more) = match reaches {
            true => self.settled.list(since, LISTED_AT_ONCE),
            false => (Vec::new(), false),
        };
        cx.send(from, Message::Committed { since, versions, more, reaches });
    }

    /// It can list all that has committed from here on.
    fn remembers_from(&self) -> Version {
        self.truncation.horizon()
    }

    pub(super) fn on_committed(
        &mut self,
        from: NodeId,
        since: Version,
        versions: Vec<Version>,
        (more, reaches): (bool, bool),
        cx: &mut Cx,
    ) {
        let watermark = self.truncation.watermark();
        let Some(catch_up) = &mut self.catch_up else { return };
        if from != catch_up.peer || catch_up.doing != Doing::List(since) {
            return;
        }
        if !reaches {
            let since = watermark.timestamp_us;
            catch_up.doing = Doing::Scan { after: None, since, began_at: None };
            self.ask_peer(cx);
            return;
        }
        let next = versions.last().filter(|_| more).copied();
        let unknown =
            |version: &Version| *version >= watermark && self.settled.get(*version).is_none();
        let missing = versions.into_iter().filter(unknown).collect();
        let catch_up = self.catch_up.as_mut().expect("it is there");
        catch_up.doing = Doing::Fetch { missing, next };
        self.fetch_more(cx);
    }

    /// Fetches what is still missing, then goes on with the list.
    fn fetch_more(&mut self, cx: &mut Cx) {
        let watermark = self.truncation.watermark();
        let Some(catch_up) = &mut self.catch_up else { return };
        let Doing::Fetch { missing, next } = &mut catch_up.doing else { return };
        missing.retain(|version| *version >= watermark && self.settled.get(*version).is_none());
        if missing.is_empty() {
            let Some(last) = *next else { return self.end_catch_up(cx) };
            let coordinator = NodeId(last.coordinator.0 + 1);
            catch_up.doing = Doing::List(Version { coordinator, ..last });
        }
        self.ask_peer(cx);
    }

    /// This replica has all that its peer had when it was asked.
    fn end_catch_up(&mut self, cx: &mut Cx) {
        let Some(catch_up) = self.catch_up.take() else { return };
        cx.cancel_timer(Timer::CatchUp);
        self.behind = false;
        self.has_caught_up_with(catch_up.peer, cx);
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, versions: Vec<Version>, cx: &mut Cx) {
        let (mut executions, mut complete) = (Vec::new(), true);
        for version in versions {
            let Some((eid, keys)) = self.settled.execution(version) else { continue };
            let mut contents = Contents::default();
            contents.participants.push(self.id.partition());
            for key in keys {
                // What was overwritten and forgotten is not there any more.
                let record = self.keys.load(key, cx.store());
                let Some(committed) = record.committed.get(version) else {
                    complete = false;
                    continue;
                };
                let (tag, value) = (committed.id.tag, committed.value.clone());
                contents.writes.push(TaggedWrite { key: key.clone(), tag, value });
            }
            executions.push((version, eid, Arc::new(contents)));
        }
        let readable_from = if complete { 0 } else { self.readable_from() };
        cx.send(from, Message::Fetched { executions, readable_from });
    }

    pub(super) fn on_fetched(
        &mut self,
        executions: Vec<(Version, u32, Arc<Contents>)>,
        readable_from: u64,
        cx: &mut Cx,
    ) {
        self.raise_readable_from(readable_from, cx);
        for (version, eid, contents) in executions {
            if self.settlement(version).is_none() {
                // If it voted on the execution it knows of its reads too.
                let voted_on = self.voted_on(version, eid);
                let logged = voted_on.is_some();
                self.commit(version, eid, voted_on.unwrap_or(contents), logged, cx);
            }
        }
        self.fetch_more(cx);
    }

    pub(super) fn on_scan(&mut self, from: NodeId, after: Option<Key>, since: u64, cx: &mut Cx) {
        self.settle_everything(cx);
        let (mut entries, mut last) = (Vec::new(), None);
        let start = after.as_ref().map(|key| key.as_bytes());
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, bytes| {
            let written = |c: &Committed| c.id.version.timestamp_us >= since;
            let changed = since == 0 || bytes.is_empty() || keys::decode(bytes).iter().any(written);
            entries.push((Key::from(key), changed.then(|| bytes.to_vec())));
            last = Some(Key::from(key));
        });
        let (watermark, digest) = self.truncation.finished();
        let holds = Holds { watermark, digest, readable_from: self.readable_from() };
        let next = last.filter(|_| more);
        cx.send(from, Message::Scanned { after, since, entries, next, holds });
    }

    /// From which version on the past can be read here, in microseconds.
    fn readable_from(&self) -> u64 {
        self.truncation.readable_from(self.settings.history_ms).timestamp_us
    }

    pub(super) fn on_scanned(
        &mut self,
        from: NodeId,
        (after, since): (Option<Key>, u64),
        entries: Vec<(Key, Option<Vec<u8>>)>,
        next: Option<Key>,
        holds: Holds,
        cx: &mut Cx,
    ) {
        let Some(catch_up) = &mut self.catch_up else { return };
        let Doing::Scan { after: asked, since: wanted, began_at } = &mut catch_up.doing else {
            return;
        };
        if from != catch_up.peer || (&*asked, *wanted) != (&after, since) {
            return;
        }
        let (upto, digest) = *began_at.get_or_insert((holds.watermark, holds.digest));
        *asked = next.clone();
        catch_up.tried = 0;
        self.raise_readable_from(holds.readable_from, cx);
        for key in deleted(after, &next, &entries, cx) {
            self.keys.forget_stored(&key, Version::at(upto));
            cx.store().put(key.as_bytes(), None);
        }
        for (key, bytes) in entries {
            if let Some(bytes) = bytes {
                self.keys.copy(&key, &bytes, Version::at(upto), cx.store());
            }
        }
        if next.is_some() {
            self.ask_peer(cx);
            return;
        }
        if upto > self.truncation.watermark().timestamp_us {
            self.raise_watermark(upto, digest, true, cx);
        }
        let catch_up = self.catch_up.as_mut().expect("it is there");
        catch_up.doing = Doing::List(self.truncation.watermark());
        self.ask_peer(cx);
    }

    /// Whether a message is about what this replica takes no part in, as its predecessor may have.
    pub(super) fn is_not_to_take_part(&mut self, message: &Message) -> bool {
        if self.truncation.watermark().timestamp_us >= self.floor {
            self.floor = 0;
            return false;
        }
        match message {
            Message::Get { version, .. }
            | Message::Put { version, .. }
            | Message::Prepare { version, .. }
            | Message::Finalize { version, .. }
            | Message::PaxosPrepare { version, .. }
            | Message::Inquire { version } => version.timestamp_us < self.floor,
            // What it says of a truncation is of all that is below, the floor's other side included.
            Message::Truncate { .. } | Message::TruncationPaxosPrepare { .. } => true,
            Message::ProposeMerge { upto, .. } => *upto <= self.floor,
            _ => false,
        }
    }
}

/// The keys of the own store between `after` and `until` that the peer does not have.
fn deleted(
    after: Option<Key>,
    until: &Option<Key>,
    entries: &[(Key, Option<Vec<u8>>)],
    cx: &mut Cx,
) -> Vec<Key> {
    let mut deleted = Vec::new();
    let (mut from, mut more) = (after, true);
    while more {
        let mut last = None;
        let start = from.as_ref().map(|key| key.as_bytes());
        more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, _| {
            let key = Key::from(key);
            let within = until.as_ref().is_none_or(|until| key <= *until);
            if within && entries.binary_search_by(|(entry, _)| entry.cmp(&key)).is_err() {
                deleted.push(key.clone());
            }
            last = Some(key);
        });
        more &= until.as_ref().is_none_or(|until| last.as_ref().is_some_and(|last| last < until));
        from = last;
    }
    deleted
}
