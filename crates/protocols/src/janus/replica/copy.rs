//! Copying the data of another replica: after the loss of the disk, or after so long an absence that the others have
//! forgotten what this replica lacks.
//!
//! The source goes on executing. It sends what its store has, in the order of names, and then what has changed since the
//! copy began, until nothing is left. The last part has the state of one moment. The source sends it when the copying replica
//! is counted again ([`super::configure`]). So the source keeps what it executes from that moment on. If the
//! replica is left out after the last part was sent, this copy is not counted again: others may have forgotten what was
//! executed meanwhile.
//!
//! A replica that still has its disk may have executed transactions that the source has not. They are executed again, in the
//! order that was agreed on: the replica takes over the source's state of each row and transaction, also if the source has
//! none ([`CopyRequest::lacking`]).
//!
//! What has changed since the copy began is known until the source restarts. So each copy at a source is a *session* with a
//! random number, which both name with each part. A source that was restarted begins another session when a request for the
//! first part comes once more, and answers none of the former session. The copying replica then begins again.
//!
//! # Agreement after the loss of a disk
//! The replica does not know what its predecessor promised, reported and accepted. So it agrees on nothing until every
//! transaction has been executed that any other replica knew when it learned of the loss ([`Request::Join`]). A quorum with
//! the predecessor contains a replica that has not lost its disk. Either that one had taken part before it learned of the
//! loss: then it knew the transaction. Or it took part later: then its answers name the new incarnation, and coordinators do
//! not count answers of the predecessor any more ([`serried_parts::Incarnations`]). Replicas that have lost their disks at
//! the same time tell each other their incarnations, and need answers of a majority that has not.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{NodeId, Version};

use super::super::Mutation;
use super::super::message::{
    Configuration, Copied, CopyFrom, CopyRequest, Entry, Part, Reply, Request,
};
use super::{Cx, Replica};

/// How long a replica waits for a part of a copy before it begins again.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far a copy has come.
#[derive(Debug, Default)]
pub(super) struct Copying {
    /// The replica whose data is copied, what was asked for in which session, and when that was asked for first.
    from: Option<(NodeId, (CopyRequest, u64), Timestamp)>,
    /// How many copies were begun.
    attempts: usize,
    /// The number of the last one.
    last: u64,
    /// How many names were copied.
    keys: u64,
    /// The others that know of the loss of the disk, and whether they have lost theirs, too.
    joined: BTreeMap<NodeId, bool>,
    /// What they knew at that time.
    known: BTreeSet<Version>,
    /// The replica that copies from here, when it was last heard of, and the part that it was sent in which session.
    to: Option<(NodeId, Timestamp, (Copied, u64))>,
}

impl Copying {
    pub(super) fn keys(&self) -> u64 {
        self.keys
    }
}

impl Replica {
    /// Goes on with a copy, if one is needed.
    pub(super) fn catch_up(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.copying.to.as_ref().is_some_and(|(_, heard, _)| now.since(*heard) > 2 * PATIENCE) {
            self.copying.to = None;
            self.configuring.add(None);
            self.table.end_copy();
        }
        let part = self.table.part();
        if part == Part::Full || self.is_alone() {
            return;
        }
        if matches!(part, Part::Lost | Part::Restored) {
            let incarnation = self.incarnations.of(self.id);
            for peer in self.peers.all().to_vec() {
                if self.copying.joined.get(&peer) != Some(&false) {
                    self.send(peer, Request::Join { incarnation }, cx);
                }
            }
        }
        if part == Part::Restored {
            return self.agree_again(cx);
        }
        match self.copying.from.clone() {
            // The request or its answer may be lost.
            Some((source, request, asked)) if now.since(asked) <= PATIENCE => {
                let (request, session) = request;
                self.send(source, Request::Copy { request, session }, cx);
            }
            _ => self.begin_copy(cx),
        }
    }

    fn begin_copy(&mut self, cx: &mut Cx<'_>) {
        self.copying.from = None;
        let attempt = self.copying.attempts;
        let Some(source) = self.peers.source(attempt) else { return };
        self.copying.attempts += 1;
        self.copying.keys = 0;
        // It is greater than those of former copies, also of those before a restart.
        let counted = self.table.vote().chosen.copy_of(self.id).unwrap_or(0);
        let former = counted.max(self.table.copy()).max(self.copying.last);
        let copy = cx.clock().latest_us.max(former + 1);
        self.copying.last = copy;
        self.ask_to_copy(
            source,
            (CopyRequest { copy, part: 0, from: CopyFrom::First, lacking: Vec::new() }, 0),
            cx,
        );
    }

    fn ask_to_copy(
        &mut self,
        source: NodeId,
        (request, session): (CopyRequest, u64),
        cx: &mut Cx<'_>,
    ) {
        self.copying.from = Some((source, (request.clone(), session), cx.now()));
        self.send(source, Request::Copy { request, session }, cx);
    }

    /// Another replica copies the data that is here.
    pub(super) fn on_copy(
        &mut self,
        from: NodeId,
        request: CopyRequest,
        session: u64,
        cx: &mut Cx<'_>,
    ) {
        if !self.executes() {
            return;
        }
        let now = cx.now();
        let last = match &mut self.copying.to {
            Some((other, ..)) if *other != from => return, // One at a time.
            Some((_, heard, last)) => {
                *heard = now;
                Some(&*last)
            }
            None => None,
        };
        let begins = request.part == 0;
        let mut own_session = None;
        if let Some((last, of)) = last {
            let is_same = begins || session == *of || self.mutation.is(Mutation::MixesSessions);
            if last.request == request && is_same {
                // The answer was lost.
                let (copied, session) = (Box::new(last.clone()), *of);
                return self.reply(from, Reply::Copied { copied, session }, cx);
            }
            own_session = Some(*of);
            let is_next = is_same
                && request.copy == last.request.copy
                && request.part == last.request.part + 1
                && last.next.as_ref() == Some(&request.from);
            let is_later = begins && request.copy > last.request.copy;
            if !is_next && !is_later {
                return; // late
            }
        } else if !begins {
            return;
        }
        let session = match own_session {
            Some(session) if !begins => session,
            _ => {
                self.configuring.add(None);
                self.table.begin_copy();
                cx.draw()
            }
        };
        self.table.send_again(&request.lacking);
        let configuration = self.table.vote().chosen.clone();
        let (cells, next) = match &request.from {
            CopyFrom::First => self.table.page(None, cx.store()),
            CopyFrom::After(after) => self.table.page(Some(after), cx.store()),
            CopyFrom::Changed => {
                // The last part is sent when the copy is counted, and the copy is counted when one part is left. Until its
                // replica has the last part, it reports under its former copy, so others take it for silent.
                let (cells, next) = self.table.changed_page(cx.store());
                if next.is_none() {
                    self.configuring.add(Some((from, request.copy)));
                }
                let may_end = configuration.copy_of(from) == Some(request.copy)
                    || self.mutation.is(Mutation::CopiesUncounted);
                if !may_end && cells.is_empty() {
                    return; // The request comes again.
                }
                (cells, next.or((!may_end).then_some(CopyFrom::Changed)))
            }
        };
        if next.is_none() {
            self.table.end_copy();
            if !self.mutation.is(Mutation::CountsAgain) {
                self.configuring.add(None);
            }
        }
        let copied = Copied { request, cells, next, configuration };
        self.copying.to = Some((from, now, (copied.clone(), session)));
        self.reply(from, Reply::Copied { copied: Box::new(copied), session }, cx);
    }

    /// A configuration was chosen. If it does not count a copy that has ended, the replica has to copy once more, so the last
    /// part is not sent again.
    pub(super) fn drop_uncounted_copy(&mut self, chosen: &Configuration) {
        let is_uncounted = |(to, _, (last, _)): &(NodeId, Timestamp, (Copied, u64))| {
            last.next.is_none() && chosen.copy_of(*to) != Some(last.request.copy)
        };
        if self.copying.to.as_ref().is_some_and(is_uncounted) {
            self.copying.to = None;
        }
    }

    pub(super) fn on_copied(
        &mut self,
        from: NodeId,
        copied: Copied,
        session: u64,
        cx: &mut Cx<'_>,
    ) {
        let is_due = self.copying.from.as_ref().is_some_and(|(source, (request, of), _)| {
            let is_same = request.part == 0 || session == *of;
            let is_same = is_same || self.mutation.is(Mutation::MixesSessions);
            *source == from && *request == copied.request && is_same
        });
        if !is_due || !matches!(self.table.part(), Part::Lost | Part::Behind) {
            return;
        }
        if copied.configuration.number > self.table.vote().chosen.number {
            self.adopt(&copied.configuration, cx);
        }
        let is_counted = self.table.vote().chosen.copy_of(self.id) == Some(copied.request.copy);
        if copied.next.is_none() && !is_counted && !self.mutation.is(Mutation::CopiesUncounted) {
            self.copying.from = None; // It is not counted any more.
            return;
        }
        cx.charge(copied.cells.len());
        self.copying.keys += copied.cells.len() as u64;
        let (next, CopyRequest { copy, part, .. }) = (copied.next.clone(), copied.request.clone());
        let lacking = self.table.lacking(&copied, cx.store());
        let gone_us = self.table.windows().gone_us;
        self.record(Entry::Copy { copied: Box::new(copied), gone_us }, cx);
        if let Some(next) = next {
            let request = CopyRequest { copy, part: part + 1, from: next, lacking };
            return self.ask_to_copy(from, (request, session), cx);
        }
        self.copying.from = None;
        let part = match self.table.part() {
            Part::Lost if !self.mutation.is(Mutation::AgreesAtOnce) => Part::Restored,
            _ => Part::Full,
        };
        self.stand(part, copy, cx);
        self.resume(cx);
        self.send_reports(cx);
    }

    // The loss of a disk.

    pub(super) fn learn_incarnations(&mut self, named: &[u64], cx: &mut Cx<'_>) {
        let mut is_news = false;
        for (member, incarnation) in named.iter().enumerate() {
            let node = NodeId::replica(self.partition(), member);
            if node != self.id && *incarnation > self.incarnations.of(node) {
                self.incarnations.set(node, *incarnation);
                is_news = true;
            }
        }
        if is_news {
            self.record_incarnations(cx);
        }
    }

    /// Another replica has lost its disk.
    pub(super) fn on_join(&mut self, from: NodeId, incarnation: u64, cx: &mut Cx<'_>) {
        if incarnation > self.incarnations.of(from) {
            self.incarnations.set(from, incarnation);
            self.record_incarnations(cx);
        }
        let open = self.table.open().iter().chain(self.wanted.keys()).copied();
        let open: BTreeSet<Version> = open.collect();
        let reply = Reply::Joined {
            incarnation: self.incarnations.of(from),
            incarnations: self.incarnations.named(),
            open: open.into_iter().collect(),
            is_lost: !self.votes(),
        };
        self.reply(from, reply, cx);
    }

    pub(super) fn on_joined(
        &mut self,
        from: NodeId,
        (incarnation, is_lost): (u64, bool),
        named: &[u64],
        open: Vec<Version>,
        cx: &mut Cx<'_>,
    ) {
        if !matches!(self.table.part(), Part::Lost | Part::Restored) {
            return;
        }
        self.learn_incarnations(named, cx);
        let own = self.incarnations.of(self.id);
        if incarnation > own {
            // A predecessor's clock was ahead.
            self.incarnations.set(self.id, incarnation + 1);
            self.record_incarnations(cx);
            self.copying.joined.clear();
        } else if incarnation == own {
            self.copying.joined.insert(from, is_lost);
            self.copying.known.extend(open);
        }
    }

    /// Takes part in agreements again, if all has been executed that a predecessor may have taken part in.
    fn agree_again(&mut self, cx: &mut Cx<'_>) {
        let joined = &self.copying.joined;
        let able = joined.values().filter(|is_lost| !**is_lost).count();
        if joined.len() < self.peers.all().len() || able < self.members.majority() {
            return;
        }
        let gone = Version::at(self.table.windows().gone_us);
        let settled = Version::at(self.table.window().settled_us);
        let mut known = core::mem::take(&mut self.copying.known);
        known.retain(|txn| {
            let state = self.table.txn(*txn, cx.store());
            let is_dead = state.is_none() && *txn < settled;
            *txn >= gone && !is_dead && state.is_none_or(|state| state.executed.is_none())
        });
        let is_over = known.is_empty();
        self.copying.known = known;
        if is_over {
            self.stand(Part::Full, self.table.copy(), cx);
            self.send_reports(cx);
        }
    }
}
