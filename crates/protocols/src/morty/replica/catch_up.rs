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
//! - *During a copy* nothing is settled, no reads are answered, and no writes are reported to readers.
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
//! What lies below the horizon is forgotten bit by bit. A delete there may be forgotten while its transaction is still
//! remembered, because the same key was part of an earlier transaction's turn. A replica that received such a
//! transaction without its delete would keep what was deleted. So nothing below the horizon is listed or sent, and a
//! replica that has received a list from before copies instead. At and above the horizon only those deletes are missing
//! that were overwritten, and what has overwritten them is handed on as well. A replica that is
//! copying sends nothing: its peer may have forgotten deletes that it still has. For the same reason it sends nothing
//! later of what lies below its copy's watermark ([`Progress::whole_from`](super::progress::Progress::whole_from)).

use core::time::Duration;
use std::sync::Arc;

use serried_actor::NodeSet;
use serried_model::{Key, Modification, NodeId, Value, Version};
use serried_parts::{Committed, Effect, decode_versions, try_decode_versions};

use super::log_marks::LogMarks;
use super::setup::Setup;
use super::state::State;
use super::{Cx, Timer};
use crate::morty::digest::Digest;
use crate::morty::message::{
    CatchingUp, Contents, Holds, Message, Overwritten, TaggedWrite, Truncating,
};
use crate::morty::record::Record;

/// How many transactions are listed in one message, and how many are fetched with one message.
const LISTED_AT_ONCE: usize = 4096;
const FETCHED_AT_ONCE: usize = 256;
/// How much of a store is sent in one message, and about how much of what was fetched, in bytes.
const SCANNED_AT_ONCE: usize = 256 << 10;
/// A peer that has not answered for this long, round trips not counted, is asked again, or another peer is.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often a peer is asked before another one is.
const ASKED_AT_MOST: usize = 3;

/// How a replica gets what it has missed.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    run: Option<Run>,
    /// It has just come back, and its state may be too old to answer reads.
    behind: bool,
    /// Whom it has asked since.
    asked: Asked,
    /// How many keys it has copied from others since it started.
    copied: u64,
}

/// A run of catching up with a peer.
#[derive(Debug)]
struct Run {
    peer: NodeId,
    /// How many questions were not answered.
    tried: usize,
    /// Distinguishes its answers from those to earlier runs.
    number: u64,
    /// The peer was behind when it listed something.
    is_behind: bool,
    doing: Doing,
}

/// Whom a replica has asked while it is behind.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    /// Those that have answered, or were given up.
    all: NodeSet,
    /// Those from which it has got everything.
    listed: NodeSet,
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

/// An answer to [`CatchingUp::GetCommitted`].
pub(super) struct List {
    pub(super) since: Version,
    pub(super) run: u64,
    pub(super) versions: Vec<Version>,
    pub(super) more: bool,
    pub(super) reaches: bool,
    pub(super) behind: bool,
}

/// An answer to [`CatchingUp::Scan`].
pub(super) struct Page {
    pub(super) after: Option<Key>,
    pub(super) since: u64,
    pub(super) run: u64,
    pub(super) entries: Vec<(Key, Option<Vec<u8>>)>,
    pub(super) next: Option<Key>,
    pub(super) holds: Holds,
}

impl Run {
    fn with(peer: NodeId, since: Version, cx: &mut Cx) -> Run {
        Run { peer, tried: 0, number: cx.draw(), is_behind: false, doing: Doing::List(since) }
    }

    fn ask(&self, setup: &Setup, cx: &mut Cx) {
        let run = self.number;
        let message = match &self.doing {
            Doing::List(since) => CatchingUp::GetCommitted { since: *since, run },
            Doing::Fetch { missing, .. } => {
                let versions = missing.iter().copied().take(FETCHED_AT_ONCE).collect();
                CatchingUp::Fetch { versions }
            }
            Doing::Scan { after, since, .. } => {
                CatchingUp::Scan { after: after.clone(), since: *since, run }
            }
        };
        cx.send(self.peer, Message::CatchingUp(message));
        cx.set_timer(Timer::CatchUp, PATIENCE + 2 * setup.group.round_trip());
    }
}

impl CatchUp {
    /// Whether the state may be too old to answer reads.
    pub(super) fn is_behind(&self) -> bool {
        self.behind
    }

    /// The replica comes back or is new.
    pub(super) fn set_behind(&mut self) {
        self.behind = true;
    }

    /// Whether this replica may hold only a part of what others have settled.
    pub(super) fn may_lack_something(&self) -> bool {
        self.behind || self.run.is_some()
    }

    /// Whether a copy is in progress, so that the store is complete below no watermark.
    pub(super) fn is_copying(&self) -> bool {
        matches!(self.run, Some(Run { doing: Doing::Scan { .. }, .. }))
    }

    /// How many keys were copied from others since the start.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// Begins to catch up. The peers are asked one after the other.
    pub(super) fn start(&mut self, setup: &Setup, state: &mut State, cx: &mut Cx) {
        if setup.group.size() == 1 {
            self.behind = false;
            return;
        }
        self.begin(setup.peer_at(setup.id.member() + 1), setup, state, cx);
    }

    /// Begins to get everything that `peer` has committed. False if this replica is catching up already.
    pub(super) fn begin(
        &mut self,
        peer: NodeId,
        setup: &Setup,
        state: &mut State,
        cx: &mut Cx,
    ) -> bool {
        let begins = self.run.is_none() && peer != setup.id;
        if begins {
            self.begin_with(peer, setup, state, cx);
        }
        begins
    }

    /// Begins a run with a peer: goes on copying, or asks for a list.
    fn begin_with(&mut self, peer: NodeId, setup: &Setup, state: &mut State, cx: &mut Cx) {
        let run = self.run.insert(Run::with(peer, state.progress.watermark(), cx));
        match state.progress.unfinished_copy() {
            Some(_) => self.start_copy(setup, state, cx),
            None => run.ask(setup, cx),
        }
    }

    /// The peer has not answered in time.
    pub(super) fn go_on(&mut self, setup: &Setup, state: &mut State, cx: &mut Cx) {
        let Some(run) = &mut self.run else { return };
        run.tried += 1;
        if run.tried.is_multiple_of(ASKED_AT_MOST) {
            self.begin_anew(setup, state, cx);
        } else {
            run.ask(setup, cx);
        }
    }

    /// Begins anew with another peer.
    fn begin_anew(&mut self, setup: &Setup, state: &mut State, cx: &mut Cx) {
        let Some(Run { peer, .. }) = self.run else { return };
        self.asked.all.insert(peer);
        self.begin_with(setup.peer_at(peer.member() + 1), setup, state, cx);
    }

    pub(super) fn on_get_committed(
        &self,
        from: NodeId,
        (since, run): (Version, u64),
        state: &State,
        cx: &mut Cx,
    ) {
        if self.is_copying() {
            return; // The list would have gaps.
        }
        let reaches = since >= state.progress.whole_from();
        let (versions, more) = match reaches {
            true => state.settled.list(since, LISTED_AT_ONCE),
            false => (Vec::new(), false),
        };
        let behind = self.behind;
        let list = CatchingUp::Committed { since, run, versions, more, reaches, behind };
        cx.send(from, Message::CatchingUp(list));
    }

    /// A peer lists what has committed. Returns the peer if this replica has got everything from it.
    pub(super) fn on_committed(
        &mut self,
        from: NodeId,
        list: List,
        setup: &Setup,
        state: &mut State,
        cx: &mut Cx,
    ) -> Option<NodeId> {
        let run = self.run.as_mut()?;
        if (from, list.run) != (run.peer, run.number) || run.doing != Doing::List(list.since) {
            return None;
        }
        if !list.reaches || state.progress.unfinished_copy().is_some() {
            self.start_copy(setup, state, cx);
            return None;
        }
        let next = list.versions.last().filter(|_| list.more).copied();
        run.is_behind |= list.behind;
        run.doing = Doing::Fetch { missing: list.versions, next };
        self.fetch_more(setup, state, cx)
    }

    /// Begins to copy what was written since the watermark. Everything below it must be in the store first. If the
    /// watermark is not durable yet, the peer is asked for a list again later.
    fn start_copy(&mut self, setup: &Setup, state: &mut State, cx: &mut Cx) {
        if !state.may_settle(cx) {
            cx.set_timer(Timer::CatchUp, PATIENCE);
            return;
        }
        state.settle_everything(cx);
        self.behind = true;
        let since = state.progress.watermark().timestamp_us;
        let run = self.run.as_mut().expect("a run");
        run.doing = Doing::Scan { after: None, since, began_at: None };
        run.ask(setup, cx);
    }

    /// Fetches what is still missing, then goes on with the list. Returns the peer if that was all.
    fn fetch_more(&mut self, setup: &Setup, state: &State, cx: &mut Cx) -> Option<NodeId> {
        self.fetching(state);
        let run = self.run.as_mut()?;
        let Doing::Fetch { missing, next } = &run.doing else { return None };
        if missing.is_empty() {
            let Some(last) = *next else { return self.end(setup, cx) };
            let coordinator = NodeId(last.coordinator.0 + 1);
            run.doing = Doing::List(Version { coordinator, ..last });
        }
        run.ask(setup, cx);
        None
    }

    /// The peer that this replica is fetching from, and how many transactions are still missing.
    pub(super) fn fetching(&mut self, state: &State) -> Option<(NodeId, usize)> {
        let watermark = state.progress.watermark();
        let run = self.run.as_mut()?;
        let Doing::Fetch { missing, .. } = &mut run.doing else { return None };
        missing.retain(|version| *version >= watermark && state.settled.get(*version).is_none());
        Some((run.peer, missing.len()))
    }

    /// This replica has everything that its peer had when it was asked.
    fn end(&mut self, setup: &Setup, cx: &mut Cx) -> Option<NodeId> {
        let Run { peer, is_behind, .. } = self.run.take()?;
        cx.cancel_timer(Timer::CatchUp);
        self.asked.all.insert(peer);
        self.asked.listed.insert(peer);
        if !is_behind || self.has_asked_enough(setup) {
            self.behind = false;
        }
        if !self.behind {
            self.asked = Asked::default();
        }
        Some(peer)
    }

    /// Whether all others were asked, and those that have answered are a majority together with this replica.
    fn has_asked_enough(&self, setup: &Setup) -> bool {
        let Asked { all, listed } = self.asked;
        all.len() + 1 >= setup.group.size() && listed.len() + 1 >= setup.group.majority()
    }

    pub(super) fn on_fetch(
        &self,
        from: NodeId,
        versions: Vec<Version>,
        setup: &Setup,
        state: &mut State,
        cx: &mut Cx,
    ) {
        if self.is_copying() {
            return; // What this replica had may have been replaced already.
        }
        let State { keys, settled, progress, .. } = state;
        let (mut executions, mut complete, mut bytes) = (Vec::new(), true, 0);
        let (whole_from, readable_from) = (progress.whole_from(), progress.readable_from());
        for version in versions.into_iter().filter(|version| *version >= whole_from) {
            let Some((eid, written)) = settled.execution(version) else { continue };
            let mut contents = Contents::default();
            contents.participants.push(setup.id.partition());
            for key in written {
                // A version that was overwritten and forgotten is gone. One that was forgotten before it got here is
                // not even among the keys, but then the past can't be read here from before it.
                let versions = &keys.load(key, cx.store()).committed;
                let latest = versions.latest_value_before(readable_from);
                let later = latest.filter(|latest| latest.id.version > version);
                let is_certain = |effect: &&Effect| match later {
                    None => true,
                    Some(later) => ![&later.effect, *effect].iter().any(|it| is_result(it)),
                };
                let held = versions.get(version);
                if let Some(Committed { id, effect }) = held.filter(|it| is_certain(&&it.effect)) {
                    let (key, tag, effect) = (key.clone(), id.tag, effect.clone());
                    bytes += effect_bytes(&effect);
                    contents.writes.push(TaggedWrite { key, tag, effect });
                    continue;
                }
                complete = false;
                // The asker may know the later one as a modification, and lack what that rests on. What was executed below it here
                // may have lacked something, too.
                if let Some(Committed { id: by, effect: Effect::Result(value) }) = later {
                    let tag = settled.tag(version, key);
                    let (key, by, value) = (key.clone(), *by, value.clone());
                    bytes += value.as_ref().map_or(0, Value::len);
                    contents.overwritten.push(Overwritten { key, tag, by, value });
                }
            }
            executions.push((version, eid, Arc::new(contents)));
            if bytes > SCANNED_AT_ONCE {
                break; // The asker asks for the rest.
            }
        }
        let readable_from = match complete {
            true => progress.lacks_before(),
            false => progress.readable_from().timestamp_us,
        };
        let fetched = CatchingUp::Fetched { executions, readable_from };
        cx.send(from, Message::CatchingUp(fetched));
    }

    /// What a peer has sent is committed here; `before` is what [`CatchUp::fetching`] said before that, and `nothing` says
    /// whether the answer was empty. Returns the peer if this replica has got everything from it.
    pub(super) fn on_fetched(
        &mut self,
        from: NodeId,
        before: Option<(NodeId, usize)>,
        nothing: bool,
        (setup, state): (&Setup, &mut State),
        cx: &mut Cx,
    ) -> Option<NodeId> {
        match (before, self.fetching(state)) {
            // An answer to a question of another run.
            (Some((peer, _)), _) if peer != from => {}
            (Some((_, before)), Some((_, left))) if left < before => {
                return self.fetch_more(setup, state, cx);
            }
            // The peer has forgotten them after it had listed them.
            (Some(_), Some(_)) if nothing => self.begin_anew(setup, state, cx),
            _ => {}
        }
        None
    }

    pub(super) fn on_scan(
        &self,
        from: NodeId,
        after: Option<Key>,
        (since, run): (u64, u64),
        state: &mut State,
        cx: &mut Cx,
    ) {
        if self.is_copying() || !state.may_settle(cx) {
            return; // The store is complete below no watermark.
        }
        state.settle_everything(cx);
        let (mut entries, mut last) = (Vec::new(), None);
        let start = after.as_ref().map(|key| key.as_bytes());
        let more = cx.store().scan(start, SCANNED_AT_ONCE, &mut |key, bytes| {
            let written = |c: &Committed| c.id.version.timestamp_us >= since;
            let changed =
                since == 0 || bytes.is_empty() || decode_versions(bytes).iter().any(written);
            entries.push((Key::from(key), changed.then(|| bytes.to_vec())));
            last = Some(Key::from(key));
        });
        let (watermark, digest) = state.progress.finished();
        let readable_from = state.progress.readable_from().timestamp_us;
        let holds = Holds { watermark, digest, readable_from };
        let next = last.filter(|_| more);
        let page = CatchingUp::Scanned { after, since, run, entries, next, holds };
        cx.send(from, Message::CatchingUp(page));
    }

    /// A peer sends a page of its store. Returns what is complete below which watermark if the page was the last.
    pub(super) fn on_scanned(
        &mut self,
        from: NodeId,
        page: Page,
        (setup, state, log): (&Setup, &mut State, &mut LogMarks),
        cx: &mut Cx,
    ) -> Option<(u64, Digest)> {
        let Page { after, since, run: number, entries, next, holds } = page;
        let run = self.run.as_mut()?;
        let Doing::Scan { after: asked, since: wanted, began_at } = &mut run.doing else {
            return None;
        };
        if (from, number) != (run.peer, run.number) || (&*asked, *wanted) != (&after, since) {
            return None;
        }
        let decode = |bytes: Option<Vec<u8>>| match bytes {
            Some(bytes) => try_decode_versions(&bytes).map(Some),
            None => Some(None),
        };
        let entries: Option<Entries> =
            entries.into_iter().map(|(key, bytes)| Some((key, decode(bytes)?))).collect();
        let Some(entries) = entries else {
            cx.reject(|| format!("{from} has sent keys that can't be decoded"));
            return None;
        };
        let (upto, digest) = *began_at.get_or_insert((holds.watermark, holds.digest));
        let (least, merged) = state.progress.unfinished_copy().unwrap_or(state.progress.finished());
        if holds.watermark < upto || upto < least {
            // The peer may have everything below, and not know that.
            let finished = Truncating::TruncationFinished { upto: least, merged };
            cx.send(from, Message::Truncating(finished));
            self.begin_anew(setup, state, cx);
            return None;
        }
        run.tried = 0;
        if state.progress.begin_copy(upto, digest) {
            log.append(Record::Copying { upto, digest }, cx);
            state.progress.is_logged_at(cx.log_position());
        }
        state.raise_readable_from(holds.readable_from, log, cx);
        if !state.progress.is_durable(cx.durable_position()) {
            // The same page may come twice. The first answer is not taken for the second.
            run.number = cx.draw();
            run.ask(setup, cx);
            return None;
        }
        *asked = next.clone();
        for key in deleted(after, &next, &entries, cx) {
            state.keys.replace(&key, Version::at(upto), Vec::new(), cx.store());
        }
        self.copied += entries.len() as u64;
        for (key, others) in entries {
            if let Some(others) = others {
                state.keys.replace(&key, Version::at(upto), others, cx.store());
            }
        }
        if next.is_some() {
            run.ask(setup, cx);
            return None;
        }
        Some((upto, digest))
    }

    /// The copy is complete: asks what has committed since.
    pub(super) fn list_the_rest(&mut self, setup: &Setup, state: &State, cx: &mut Cx) {
        let run = self.run.as_mut().expect("the run of the copy");
        (run.doing, run.is_behind) = (Doing::List(state.progress.watermark()), false);
        run.ask(setup, cx);
    }
}

/// Whether it is what a modification has resulted in.
fn is_result(effect: &Effect) -> bool {
    matches!(effect, Effect::Result(_))
}

/// About how many bytes an effect takes in a message.
fn effect_bytes(effect: &Effect) -> usize {
    let value = effect.value().flatten().map_or(0, Value::len);
    value + effect.modifications().iter().map(Modification::value_bytes).sum::<usize>()
}

/// Keys in ascending order, with their versions if they have changed.
type Entries = Vec<(Key, Option<Vec<Committed>>)>;

/// The keys of the own store between `after` and `until` that the peer does not have.
fn deleted(after: Option<Key>, until: &Option<Key>, entries: &Entries, cx: &mut Cx) -> Vec<Key> {
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
