//! Gets from another replica what this one has missed.
//!
//! The peer lists the transactions that have committed since this replica's watermark. Those that are not known here are
//! fetched. If this replica was away for longer than the peer remembers, it copies all keys that were written since from
//! the peer's store. It repeats that until the peer remembers the rest.
//!
//! # Copies
//! - *A page contains a range of keys, complete below a watermark.* It comes from a peer that takes part (see `rejoin`) and
//!   is not copying itself. The copy as a whole is complete below the watermark of its first page. Later pages may have
//!   later watermarks. If one has an earlier watermark, the peer has lost state, and the copy begins anew.
//! - *A key that is missing in the page is absent:* the peer may have forgotten its delete. So everything that this
//!   replica has below the watermark is replaced: in the store page by page, in memory and for the log at the end.
//! - *During a copy* nothing is settled, no reads are answered, and no reader is told of writes.
//! - *A copy that has begun is completed.* A page may lack a delete at or above the own watermark which its sender has
//!   forgotten. If the peer is lost, or this replica restarts, the store is therefore copied anew, from a peer whose
//!   watermark is not below that of any page ([`Record::Copying`]). It ends if the own watermark gets there first. A peer
//!   whose watermark is lower receives the truncation that the page's sender had finished, and can raise it.
//! - *The log is ahead of the store.* What a page may lack is durable in the log before the page is put into the store,
//!   because a crash may keep the page and lose records that were appended earlier. So a page that brings news of that is
//!   asked for once more: the question leaves when the records are durable.
//!
//! # Peers that are behind themselves
//! A replica that has just come back is *behind*: it answers no reads. A peer that is behind too says so in its list, which
//! may lack what both have missed. So the asker goes on with the next peer. It is not behind any more
//! - when it has everything that a peer has which is not behind,
//! - or when it has asked all others and got everything from so many that they are a majority together with it. So if all
//!   are behind, for instance after a loss of power everywhere, a majority suffices for all of them to get out, however
//!   long the others stay away. Those that do not answer are given up after a while ([`ASKED_AT_MOST`]).
//!
//! Safety does not depend on this: a replica that is not behind may lack something as well.
//!
//! # Runs
//! Each list and each copy is a *run* with a number of its own. Answers to earlier runs are ignored, since they may be
//! out of date.
//!
//! # What is not handed on
//! What lies behind the horizon is forgotten bit by bit. A delete there may be forgotten while the transaction
//! that made it is still remembered: its key was in an earlier transaction's turn, too. Whoever was handed such
//! a transaction without its delete would keep what was deleted. So nothing behind the horizon is listed or
//! sent, and whoever has listed it before copies instead. At and above the horizon all deletes are there, but
//! for those that were overwritten, and what has overwritten them is handed on as well. A replica that is
//! copying sends nothing: its peer may have forgotten deletes that it still has. For the same reason it sends nothing
//! later of what lies below its copy's watermark ([`Progress::whole_from`](super::progress::Progress::whole_from)).

use core::time::Duration;
use std::sync::Arc;

use serried_actor::NodeSet;
use serried_model::{Key, NodeId, Version};
use serried_parts::{Committed, decode_versions};

use super::{Cx, Replica, Timer};
use crate::morty::digest::Digest;
use crate::morty::message::{
    CatchingUp, Contents, Holds, Message, Record, TaggedWrite, Truncating,
};

/// How many transactions are listed in one message, and how many are fetched with one message.
const LISTED_AT_ONCE: usize = 4096;
const FETCHED_AT_ONCE: usize = 256;
/// How much of a store is sent in one message, in bytes.
const SCANNED_AT_ONCE: usize = 256 << 10;
/// A peer that has not answered for this long, round trips not counted, is asked again, or another peer is.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a peer is asked before another one is.
const ASKED_AT_MOST: usize = 3;

/// A run of catching up with a peer.
#[derive(Debug)]
pub(super) struct CatchUp {
    peer: NodeId,
    /// How many questions were not answered.
    tried: usize,
    /// Distinguishes its answers from those to earlier runs.
    run: u64,
    /// The peer was behind when it listed something.
    is_behind: bool,
    doing: Doing,
}

/// Whom a replica has asked while it is behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// Those that have answered, or were given up.
    all: NodeSet,
    /// Those from which it has got everything.
    listed: NodeSet,
}

impl CatchUp {
    /// A new run.
    fn with(peer: NodeId, since: Version, cx: &mut Cx) -> CatchUp {
        CatchUp { peer, tried: 0, run: cx.draw(), is_behind: false, doing: Doing::List(since) }
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Doing {
    /// Asks which transactions have committed since this version.
    List(Version),
    /// Fetches the writes of these, then lists those after `next`.
    Fetch { missing: Vec<Version>, next: Option<Version> },
    /// Copies the keys after `after` that were written since `since`, in microseconds of version time. `began_at` is the
    /// watermark and the digest of the first page.
    Scan { after: Option<Key>, since: u64, began_at: Option<(u64, Digest)> },
}

impl Replica {
    /// Begins to catch up. The peers are asked one after the other.
    pub(super) fn start_catch_up(&mut self, cx: &mut Cx) {
        if self.setup.group.size() == 1 {
            self.behind = false;
            return;
        }
        let peer = self.peer(self.setup.id.member() + 1);
        self.catch_up_from(peer, cx);
    }

    fn peer(&self, turn: usize) -> NodeId {
        let member = match turn % self.setup.group.size() {
            own if own == self.setup.id.member() => (own + 1) % self.setup.group.size(),
            other => other,
        };
        NodeId::replica(self.setup.id.partition(), member)
    }

    /// Begins to get everything that `peer` has committed. False if this replica is catching up already.
    pub(super) fn catch_up_from(&mut self, peer: NodeId, cx: &mut Cx) -> bool {
        let begins = self.catch_up.is_none() && peer != self.setup.id;
        if begins {
            self.begin_with(peer, cx);
        }
        begins
    }

    /// Begins a run with a peer: goes on copying, or asks for a list.
    fn begin_with(&mut self, peer: NodeId, cx: &mut Cx) {
        self.catch_up = Some(CatchUp::with(peer, self.state.progress.watermark(), cx));
        match self.state.progress.unfinished_copy() {
            Some(_) => self.start_copy(cx),
            None => self.ask_peer(cx),
        }
    }

    fn ask_peer(&mut self, cx: &mut Cx) {
        let Some(CatchUp { peer, doing, run, .. }) = &self.catch_up else { return };
        let run = *run;
        let message = match doing {
            Doing::List(since) => {
                Message::CatchingUp(CatchingUp::GetCommitted { since: *since, run })
            }
            Doing::Fetch { missing, .. } => {
                let versions = missing.iter().copied().take(FETCHED_AT_ONCE).collect();
                Message::CatchingUp(CatchingUp::Fetch { versions })
            }
            Doing::Scan { after, since, .. } => {
                Message::CatchingUp(CatchingUp::Scan { after: after.clone(), since: *since, run })
            }
        };
        cx.send(*peer, message);
        cx.set_timer(Timer::CatchUp, PATIENCE + 2 * self.setup.group.round_trip());
    }

    /// The peer has not answered in time.
    pub(super) fn go_on_catching_up(&mut self, cx: &mut Cx) {
        let Some(catch_up) = &mut self.catch_up else { return };
        catch_up.tried += 1;
        if catch_up.tried.is_multiple_of(ASKED_AT_MOST) {
            self.begin_anew(cx);
        } else {
            self.ask_peer(cx);
        }
    }

    /// Begins anew with another peer.
    fn begin_anew(&mut self, cx: &mut Cx) {
        let Some(CatchUp { peer, .. }) = self.catch_up else { return };
        self.asked.all.insert(peer);
        self.begin_with(self.peer(peer.member() + 1), cx);
    }

    /// Whether a copy is in progress, so that the store is complete below no watermark.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self.catch_up, Some(CatchUp { doing: Doing::Scan { .. }, .. }))
    }

    pub(super) fn on_get_committed(&mut self, from: NodeId, since: Version, run: u64, cx: &mut Cx) {
        if self.is_copying() {
            return; // The list would have gaps.
        }
        let reaches = since >= self.state.progress.whole_from();
        let (versions, more) = match reaches {
            true => self.state.settled.list(since, LISTED_AT_ONCE),
            false => (Vec::new(), false),
        };
        let behind = self.behind;
        cx.send(
            from,
            Message::CatchingUp(CatchingUp::Committed {
                since,
                run,
                versions,
                more,
                reaches,
                behind,
            }),
        );
    }

    pub(super) fn on_committed(
        &mut self,
        (from, run): (NodeId, u64),
        since: Version,
        versions: Vec<Version>,
        (more, reaches, behind): (bool, bool, bool),
        cx: &mut Cx,
    ) {
        let watermark = self.state.progress.watermark();
        let Some(catch_up) = &mut self.catch_up else { return };
        if (from, run) != (catch_up.peer, catch_up.run) || catch_up.doing != Doing::List(since) {
            return;
        }
        if !reaches || self.state.progress.unfinished_copy().is_some() {
            self.start_copy(cx);
            return;
        }
        let next = versions.last().filter(|_| more).copied();
        let unknown =
            |version: &Version| *version >= watermark && self.state.settled.get(*version).is_none();
        let missing = versions.into_iter().filter(unknown).collect();
        let catch_up = self.catch_up.as_mut().expect("it is there");
        catch_up.is_behind |= behind;
        catch_up.doing = Doing::Fetch { missing, next };
        self.fetch_more(cx);
    }

    /// Begins to copy what was written since the watermark. Everything below it must be in the store first. If the
    /// watermark is not durable yet, the peer is asked for a list again later.
    fn start_copy(&mut self, cx: &mut Cx) {
        if !self.state.may_settle(cx) {
            cx.set_timer(Timer::CatchUp, PATIENCE);
            return;
        }
        self.state.settle_everything(cx);
        self.behind = true;
        let since = self.state.progress.watermark().timestamp_us;
        let catch_up = self.catch_up.as_mut().expect("a run");
        catch_up.doing = Doing::Scan { after: None, since, began_at: None };
        self.ask_peer(cx);
    }

    /// Fetches what is still missing, then goes on with the list.
    fn fetch_more(&mut self, cx: &mut Cx) {
        self.is_fetching();
        let Some(catch_up) = &mut self.catch_up else { return };
        let Doing::Fetch { missing, next } = &catch_up.doing else { return };
        if missing.is_empty() {
            let Some(last) = *next else { return self.end_catch_up(cx) };
            let coordinator = NodeId(last.coordinator.0 + 1);
            catch_up.doing = Doing::List(Version { coordinator, ..last });
        }
        self.ask_peer(cx);
    }

    /// The peer that it is fetching from, and how many transactions are still missing.
    fn is_fetching(&mut self) -> Option<(NodeId, usize)> {
        let watermark = self.state.progress.watermark();
        let catch_up = self.catch_up.as_mut()?;
        let Doing::Fetch { missing, .. } = &mut catch_up.doing else { return None };
        missing
            .retain(|version| *version >= watermark && self.state.settled.get(*version).is_none());
        Some((catch_up.peer, missing.len()))
    }

    /// This replica has everything that its peer had when it was asked.
    fn end_catch_up(&mut self, cx: &mut Cx) {
        let Some(CatchUp { peer, is_behind, .. }) = self.catch_up.take() else { return };
        cx.cancel_timer(Timer::CatchUp);
        self.asked.all.insert(peer);
        self.asked.listed.insert(peer);
        if !is_behind || self.has_asked_enough() {
            self.behind = false;
        }
        if !self.behind {
            self.asked = Asked::default();
        }
        self.has_caught_up_with(peer, cx);
        if self.behind {
            self.catch_up_from(self.peer(peer.member() + 1), cx);
        } else if self.truncation.target.is_some()
            && let Some(peer) = self.truncation.announced_by.take()
        {
            self.catch_up_from(peer, cx);
        }
    }

    /// Whether all others were asked, and those that have answered are a majority together with this replica.
    fn has_asked_enough(&self) -> bool {
        let Asked { all, listed } = self.asked;
        all.len() + 1 >= self.setup.group.size() && listed.len() + 1 >= self.setup.group.majority()
    }

    pub(super) fn on_fetch(&mut self, from: NodeId, versions: Vec<Version>, cx: &mut Cx) {
        if self.is_copying() {
            return; // What this replica had may have been replaced already.
        }
        let (mut executions, mut complete) = (Vec::new(), true);
        let whole_from = self.state.progress.whole_from();
        for version in versions.into_iter().filter(|version| *version >= whole_from) {
            let Some((eid, keys)) = self.state.settled.execution(version) else { continue };
            let mut contents = Contents::default();
            contents.participants.push(self.setup.id.partition());
            for key in keys {
                // A version that was overwritten and forgotten is gone. One that was forgotten before it got here is
                // not even among the keys, but then the past can't be read here from before it.
                let record = self.state.keys.load(key, cx.store());
                let Some(committed) = record.committed.get(version) else {
                    complete = false;
                    continue;
                };
                let (tag, value) = (committed.id.tag, committed.value.clone());
                contents.writes.push(TaggedWrite { key: key.clone(), tag, value });
            }
            executions.push((version, eid, Arc::new(contents)));
        }
        let readable_from = match complete {
            true => self.state.progress.lacks_before(),
            false => self.readable_from(),
        };
        cx.send(from, Message::CatchingUp(CatchingUp::Fetched { executions, readable_from }));
    }

    pub(super) fn on_fetched(
        &mut self,
        from: NodeId,
        executions: Vec<(Version, u32, Arc<Contents>)>,
        readable_from: u64,
        cx: &mut Cx,
    ) {
        self.state.raise_readable_from(readable_from, &mut self.log, cx);
        let (before, nothing) = (self.is_fetching(), executions.is_empty());
        for (version, eid, contents) in executions {
            if self.settlement(version).is_none() {
                // If this replica has voted on the execution, it knows its reads too.
                let voted_on = self.transactions.voted_on(version, eid);
                let logged = voted_on.is_some();
                self.commit(version, eid, voted_on.unwrap_or(contents), logged, cx);
            }
        }
        match (before, self.is_fetching()) {
            // An answer to a question of another run.
            (Some((peer, _)), _) if peer != from => {}
            (Some((_, before)), Some((_, left))) if left < before => self.fetch_more(cx),
            // The peer has forgotten them after it had listed them.
            (Some(_), Some(_)) if nothing => self.begin_anew(cx),
            _ => {}
        }
    }

    pub(super) fn on_scan(
        &mut self,
        from: NodeId,
        after: Option<Key>,
        since: u64,
        run: u64,
        cx: &mut Cx,
    ) {
        if self.is_copying() || !self.state.may_settle(cx) {
            return; // The store is complete below no watermark.
        }
        self.state.settle_everything(cx);
        let (mut entries, mut last) = (Vec::new(), None);
        let start = after.as_ref().map(|key| key.as_bytes());
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, bytes| {
            let written = |c: &Committed| c.id.version.timestamp_us >= since;
            let changed =
                since == 0 || bytes.is_empty() || decode_versions(bytes).iter().any(written);
            entries.push((Key::from(key), changed.then(|| bytes.to_vec())));
            last = Some(Key::from(key));
        });
        let (watermark, digest) = self.state.progress.finished();
        let holds = Holds { watermark, digest, readable_from: self.readable_from() };
        let next = last.filter(|_| more);
        cx.send(
            from,
            Message::CatchingUp(CatchingUp::Scanned { after, since, run, entries, next, holds }),
        );
    }

    /// From which version on the past can be read here, in microseconds.
    fn readable_from(&self) -> u64 {
        self.state.progress.readable_from().timestamp_us
    }

    pub(super) fn on_scanned(
        &mut self,
        (from, run): (NodeId, u64),
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
        if (from, run) != (catch_up.peer, catch_up.run) || (&*asked, *wanted) != (&after, since) {
            return;
        }
        let (upto, digest) = *began_at.get_or_insert((holds.watermark, holds.digest));
        let (least, merged) =
            self.state.progress.unfinished_copy().unwrap_or(self.state.progress.finished());
        if holds.watermark < upto || upto < least {
            // The peer may have everything below, and not know that.
            cx.send(
                from,
                Message::Truncating(Truncating::TruncationFinished { upto: least, merged }),
            );
            self.begin_anew(cx);
            return;
        }
        catch_up.tried = 0;
        if self.state.progress.begin_copy(upto, digest) {
            self.log.append(Record::Copying { upto, digest }, cx);
            self.state.progress.is_logged_at(cx.log_position());
        }
        self.state.raise_readable_from(holds.readable_from, &mut self.log, cx);
        let catch_up = self.catch_up.as_mut().expect("it is there");
        if !self.state.progress.is_durable(cx.durable_position()) {
            // The same page may come twice. The first answer is not taken for the second.
            catch_up.run = cx.draw();
            self.ask_peer(cx);
            return;
        }
        let Doing::Scan { after: asked, .. } = &mut catch_up.doing else { return };
        *asked = next.clone();
        for key in deleted(after, &next, &entries, cx) {
            self.state.keys.replace(&key, Version::at(upto), Vec::new(), cx.store());
        }
        self.copied += entries.len() as u64;
        for (key, bytes) in entries {
            if let Some(bytes) = bytes {
                let others = decode_versions(&bytes);
                self.state.keys.replace(&key, Version::at(upto), others, cx.store());
            }
        }
        if next.is_some() {
            self.ask_peer(cx);
            return;
        }
        if upto > self.state.progress.watermark().timestamp_us {
            self.raise_watermark(upto, digest, true, cx);
        }
        let catch_up = self.catch_up.as_mut().expect("it is there");
        (catch_up.doing, catch_up.is_behind) =
            (Doing::List(self.state.progress.watermark()), false);
        self.ask_peer(cx);
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
