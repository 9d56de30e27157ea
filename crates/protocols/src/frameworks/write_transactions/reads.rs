//! Reads of both protocols, at a leader.

use std::collections::BTreeMap;

use serried_actor::{Group, Store, Timestamp};
use serried_model::{Key, NodeId, Versionstamp, Write};

use super::Mutation;
use super::cell::{Received, Transaction, Version, Versions};
use super::machine::is_lost;
use super::message::{Answer, Found, Peer, Request, TransactionId, Valid};
use super::replica::{Client, Cx, QUEUED_AT_MOST, Replica};
use super::serving::Serving;
use super::sites::Sites;

/// A read that waits until coordinators have said what has become of pending transactions.
#[derive(Debug)]
pub(super) struct Checking {
    client: Client,
    since: Timestamp,
    /// The transactions, and their coordinators. With the commit time, once it is known that it has committed.
    asked: BTreeMap<TransactionId, (u16, Option<Option<Versionstamp>>)>,
}

/// The least significant bits of the number of a question: which of the transactions of a read it is about.
const PLACE_BITS: u32 = 16;

fn found(version: &Version) -> Found {
    Found { value: version.value.clone(), commit: version.commit, elsewhere: version.elsewhere }
}

/// The latest version of other sites that is admitted with a cut.
pub(super) fn admitted<'a>(
    versions: &'a Versions,
    cut: &[Versionstamp],
    sites: &Sites,
    group: &Group,
) -> Option<&'a Received> {
    let site = |stamp: Versionstamp| usize::from(group.site_of(stamp.partition()));
    let is_admitted = |one: &&Received| cut.get(site(one.stamp)).is_some_and(|to| one.stamp <= *to);
    versions.received.iter().rev().find(|one| is_admitted(one) && !is_lost(one, sites, group))
}

impl Replica {
    /// Whether keys can be read as of `at` now, with what the session has written up to `written`.
    pub(super) fn may_read(
        &mut self,
        at: Versionstamp,
        session: u64,
        written: Versionstamp,
        cx: &mut Cx<'_>,
    ) -> bool {
        let has_reached = self.take_over(at.max(written), cx);
        let ignores = self.mutation.is(Mutation::OwnPendingIgnored);
        let waits = |serving: &Serving| serving.has_own(session, written);
        let waits = !ignores && self.machine.serving.as_ref().is_some_and(waits);
        has_reached && !waits && at <= self.clock(cx).safe
    }

    /// Reads keys as of a safe time, with the session's own versions that are later (004 Fig. 6, lines 4 to 11).
    pub(super) fn read(&mut self, client: Client, cx: &mut Cx<'_>) {
        let Request::Read { at, session, written, .. } = client.request else { return };
        if !self.may_read(at, session, written, cx) && !self.mutation.is(Mutation::SafeAsMaximum) {
            return self.park(client);
        }
        let Request::Read { keys, .. } = &client.request else { return };
        self.counts.reads += 1;
        cx.charge(keys.len());
        if let Some(serving) = &mut self.machine.serving {
            serving.read_at(at);
        }
        let is_own = |version: &Version| version.session == session && version.commit <= written;
        let stops_early = self.mutation.is(Mutation::SearchStopsEarly);
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let of_key = self.version(key, at, stops_early, is_own, cx.store());
            let Some(version) = of_key else {
                self.counts.too_old += 1;
                let clock = self.clock(cx);
                return Self::answer((client.node, client.number), Answer::TooOld { clock }, cx);
            };
            all.push(version);
        }
        let answer = Answer::Values { found: all, checked: 0, clock: self.clock(cx) };
        Self::answer((client.node, client.number), answer, cx);
    }

    /// The last version of a key that is not after `at`, or that is the session's own. `None` if it is not known any
    /// more.
    fn version(
        &mut self,
        key: &Key,
        at: Versionstamp,
        stops_early: bool,
        is_own: impl Fn(&Version) -> bool,
        store: &dyn Store,
    ) -> Option<Found> {
        let (versions, sites, serving) = self.machine.versions_and_serving(key, store);
        let serving = serving?;
        let latest = &versions.latest;
        let mut admitted_version = None;
        if !versions.received.is_empty() {
            admitted_version = admitted(versions, serving.cut(at)?, sites, &self.group);
        }
        let is_before_admitted = |version: &Version| {
            admitted_version.is_some_and(|admitted| version.stamp() < admitted.stamp)
        };
        let admitted_found = || {
            let Received { value, stamp, .. } = admitted_version?;
            let site = usize::from(self.group.site_of(stamp.partition()));
            let commit = serving.admitted_from(site, *stamp)?;
            Some(Found { value: value.clone(), commit, elsewhere: Some(*stamp) })
        };
        if is_before_admitted(latest) {
            return admitted_found();
        }
        if latest.commit <= at || is_own(latest) {
            return Some(found(latest));
        }
        let fits = |version: &Version| version.commit <= at || (!stops_early && is_own(version));
        // Versions that were admitted so long ago may be among them with too late a time.
        serving.cut(at)?;
        let version = serving.overwritten.find(key, at, fits)?;
        if is_before_admitted(version) {
            return admitted_found();
        }
        Some(found(version))
    }

    /// Reads what the keys have now, and until when at least (Eiger, first round).
    pub(super) fn read_latest(&mut self, client: &Client, cx: &mut Cx<'_>) {
        let Request::ReadLatest { keys } = &client.request else { return };
        self.counts.reads += 1;
        cx.charge(keys.len());
        let clock = self.clock(cx);
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            // If it is admitted, it is valid as of the clock: a pending admission is later.
            let Some(found) = self.version(key, clock.shown, true, |_| true, cx.store()) else {
                return;
            };
            let may_admit = self.machine.may_admit(key, found.stamp(), cx.store());
            let serving = self.machine.serving.as_ref();
            let pending = serving.map_or(&[][..], |s| s.pending(key)).iter();
            let admission = serving.and_then(Serving::admission_since).filter(|_| may_admit);
            let first = pending.map(|(pending, _)| *pending).chain(admission).min();
            let until = first.map_or(clock.shown, |first| {
                clock.shown.min(Versionstamp(first.0.saturating_sub(1)))
            });
            all.push(Valid { found, until });
        }
        Self::answer((client.node, client.number), Answer::Latest { found: all, clock }, cx);
    }

    /// Reads keys as of `at`, whatever is pending (Eiger, second round). If transactions are pending since before that,
    /// their coordinators are asked first (third round).
    pub(super) fn read_at(&mut self, client: Client, cx: &mut Cx<'_>) {
        let Request::ReadAt { at, keys } = &client.request else { return };
        let at = *at;
        if !self.take_over(at, cx) {
            return self.park(client);
        }
        let own = cx.id().partition();
        let Some(serving) = self.machine.serving.as_ref() else { return };
        let mut asked = BTreeMap::new();
        let mut is_undurable = false;
        let checks = !self.mutation.is(Mutation::PendingNotChecked);
        for key in keys.iter().filter(|_| checks) {
            for (pending, id) in serving.pending(key) {
                let Some(open) = serving.open.get(id).filter(|_| *pending <= at) else { continue };
                match open.coordinator {
                    Some(coordinator) if coordinator != own => {
                        asked.insert(*id, (coordinator, None));
                    }
                    // It commits after what this clock shows, unless its commit time is in the log already.
                    Some(_) => is_undurable |= open.is_deciding,
                    None => is_undurable = true,
                }
            }
        }
        // It may commit up to then.
        if serving.admission_since().is_some_and(|since| since <= at) {
            let than_at = match self.mutation.is(Mutation::LaterThanLatestAwaited) {
                true => self.clock(cx).shown,
                false => at,
            };
            for key in keys {
                let version = self.version(key, than_at, true, |_| false, cx.store());
                let than = version.map(|found| found.stamp()).unwrap_or_default();
                is_undurable |= self.machine.may_admit(key, than, cx.store());
            }
        }
        if is_undurable {
            return self.park(client);
        }
        if asked.is_empty() {
            return self.finish_read_at(&client, &asked, cx);
        }
        let is_repeated =
            |it: &Checking| (it.client.node, it.client.number) == (client.node, client.number);
        if self.checking.values().any(is_repeated) {
            return;
        }
        if self.checking.len() >= QUEUED_AT_MOST || asked.len() >= 1 << PLACE_BITS {
            return;
        }
        self.counts.checked += asked.len() as u64;
        self.last_check += 1;
        let number = self.last_check;
        let checking = Checking { client, since: cx.now(), asked };
        self.checking.insert(number, checking);
        self.ask(number, at, cx);
    }

    /// Asks the coordinators that have not answered.
    fn ask(&self, number: u64, at: Versionstamp, cx: &mut Cx<'_>) {
        let Some(checking) = self.checking.get(&number) else { return };
        for (place, (id, (coordinator, answer))) in (0..).zip(&checking.asked) {
            if answer.is_none() {
                let number = number << PLACE_BITS | place;
                self.tell(*coordinator, Peer::Check { number, id: *id, at }, cx);
            }
        }
    }

    /// Asks again what was not answered.
    pub(super) fn ask_again(&mut self, cx: &mut Cx<'_>) {
        let (now, period) = (cx.now(), self.period());
        let late = self.checking.iter().filter(|(_, it)| now.since(it.since) >= period);
        let late: Vec<_> = late.map(|(number, it)| (*number, it.client.request.clone())).collect();
        for (number, request) in late {
            if let Request::ReadAt { at, .. } = request {
                self.ask(number, at, cx);
            }
        }
    }

    /// A cohort asks whether a transaction has committed at `at` or before. From now on it does not.
    pub(super) fn on_check(
        &mut self,
        from: NodeId,
        number: u64,
        id: TransactionId,
        at: Versionstamp,
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now();
        if !self.machine.serving.as_ref().is_some_and(|s| s.is_possible(at, now)) {
            return cx.reject(|| format!("{from} has a versionstamp of the far future"));
        }
        if !self.mutation.is(Mutation::CheckedWithoutClock) && !self.take_over(at, cx) {
            if self.postponed.len() < QUEUED_AT_MOST {
                self.postponed.push((from, Peer::Check { number, id, at }));
            }
            return;
        }
        let commit = match self.machine.transactions.get(&id) {
            Some(Transaction::Decided { commit, .. }) => *commit,
            // It is not known any more. Whoever asks is told to undo it, or learns elsewhere that it is decided.
            None if id.requested <= self.machine.partition.horizon => return,
            _ => None,
        };
        let serving = self.machine.serving.as_mut();
        let open = serving.and_then(|serving| serving.open.get_mut(&id));
        // The commit time is in the log, and perhaps never chosen.
        if let Some(open) = open.filter(|open| open.is_deciding) {
            if open.checks.len() < QUEUED_AT_MOST {
                open.checks.push((from, number));
            }
            return;
        }
        self.send_peer(from, Peer::Checked { number, commit }, cx);
    }

    /// A coordinator has answered.
    pub(super) fn on_checked(
        &mut self,
        number: u64,
        commit: Option<Versionstamp>,
        cx: &mut Cx<'_>,
    ) {
        let place = (number & ((1 << PLACE_BITS) - 1)) as usize;
        let number = number >> PLACE_BITS;
        let Some(checking) = self.checking.get_mut(&number) else { return };
        let Some((_, answer)) = checking.asked.values_mut().nth(place) else { return };
        *answer = Some(commit);
        if checking.asked.values().any(|(_, answer)| answer.is_none()) {
            return;
        }
        let Some(Checking { client, asked, .. }) = self.checking.remove(&number) else { return };
        self.finish_read_at(&client, &asked, cx);
    }

    /// A transaction is decided here: reads that wait for news of it have it.
    pub(super) fn end_checks(&mut self, id: TransactionId, cx: &mut Cx<'_>) {
        let mut ready = Vec::new();
        for (number, checking) in &mut self.checking {
            let Some((_, answer)) = checking.asked.get_mut(&id) else { continue };
            *answer = Some(None);
            if checking.asked.values().all(|(_, answer)| answer.is_some()) {
                ready.push(*number);
            }
        }
        for number in ready {
            if let Some(Checking { client, asked, .. }) = self.checking.remove(&number) {
                self.finish_read_at(&client, &asked, cx);
            }
        }
    }

    /// Answers when it is known which pending transactions have committed at `at` or before.
    fn finish_read_at(
        &mut self,
        client: &Client,
        asked: &BTreeMap<TransactionId, (u16, Option<Option<Versionstamp>>)>,
        cx: &mut Cx<'_>,
    ) {
        let Request::ReadAt { at, keys } = &client.request else { return };
        self.counts.reads += 1;
        cx.charge(keys.len() + asked.len());
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(mut version) = self.version(key, *at, true, |_| false, cx.store()) else {
                self.counts.too_old += 1;
                let clock = self.clock(cx);
                return Self::answer((client.node, client.number), Answer::TooOld { clock }, cx);
            };
            for (id, (_, answer)) in asked {
                let Some(commit) = answer.flatten().filter(|commit| commit <= at) else { continue };
                let writes = match self.machine.transactions.get(id) {
                    Some(Transaction::Prepared { writes, .. }) => writes,
                    // Its version was found.
                    Some(Transaction::Decided { .. }) => continue,
                    // It has committed, and is not prepared here: this leader was deposed. The client asks again.
                    None => return,
                };
                let write = writes.iter().find(|write| write.key == *key);
                if let Some(Write { value, .. }) = write.filter(|_| commit > version.stamp()) {
                    version = Found { value: value.clone(), commit, elsewhere: None };
                }
            }
            all.push(version);
        }
        let (checked, clock) = (asked.len() as u32, self.clock(cx));
        let answer = Answer::Values { found: all, checked, clock };
        Self::answer((client.node, client.number), answer, cx);
    }
}
