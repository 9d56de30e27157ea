//! A site that has lost the disks of all its nodes, and is rebuilt from the others.
//!
//! ```text
//! a partition's leader       the same partition at each other site       the site's first partition
//!   | Ask ----------------------->|                                            |
//!   |<---- Told(eras, latest) ----|                                            |
//!   |--- Found(eras) --------------------------------------------------------->|  from all partitions of the site
//!   |<------------------------------------------------------ Begin(new eras) --|
//!   |  Rebuild in the log         |                                            |
//!   | Restore(after) ------------>|  Lost in the log
//!   |<------ Restored(versions) --|
//!   |  Restored in the log        |                                            |
//!   |--- Report(stage, is ready) --------------------------------------------->|  of all partitions of the site
//!   |<------------------------------------------------------------ Whole, End -|
//!   |  Whole, Rebuilt in the log  |                                            |
//! ```
//!
//! # What is left of a site
//! What the site had acknowledged and not sent is lost. What another site had received and not admitted is lost, too:
//! the other site may have it at one partition, and not at another. What was admitted is whole, and all that it needs
//! was admitted there. So the site gets back all versions of its own that any other site had admitted. As what two
//! sites have admitted are two beginnings of the same sequence of commit times, this is what one of them had.
//!
//! # Eras
//! Messages between sites name how often each site has been rebuilt: its *era*. A leader that hears of a later era of
//! another site waits until no admission is under way, and takes part in none meanwhile. Then it notes in its log that
//! the site is lost. From then on, what it had received and not admitted does not exist: versions have the era in which
//! they were received. Partitions take part in an admission only if they know the same eras. So what was admitted at
//! one partition before it knew of the loss was prepared at all of them before that, and all admit it.
//!
//! Messages of a former era are dropped, and so are votes and decisions that the site's partitions had sent each other.
//! The site does not begin before all other sites have told it what its eras were, and all partitions of a site begin the
//! same one. A leader tells it that only after its log has confirmed that it still leads. So no era is used twice: before
//! the site had sent anything in an era, the logs of all other sites had it. Only if all sites are lost together, nobody knows
//! former eras: docs/sites.md says what clients have to do then.
//!
//! # Stages
//! The first partition's log says when all partitions have got back what the site had written ([`Stage::Whole`]). Before
//! that the site sends nothing to others and admits nothing: if another site is lost meanwhile that has sent some
//! partitions what they lacked and others not, then the transactions that are there in part never get further. Then
//! this site is *torn*, and serves no clients until it is rebuilt on empty disks once more.
//!
//! What a site gets back may depend on what other sites have written, or may be missing because they have overwritten
//! it. So it comes with how far the sender had got then, by site. What this site copies to others needs all of that, and
//! it serves clients again ([`Stage::Rebuilt`]) when it has admitted it. It forgets how it came there: nobody reads as of
//! an earlier time. What it has admitted is the cut, which is the same at all partitions. So while it lacks something, it
//! admits up to there although nothing was written.
//!
//! # Causes that are lost
//! Let this site have got a version back from site Y, whose clock showed *s* then. What the version depends on was written
//! by Y up to *s*, or by another site X and had been admitted by Y. What this site had written itself and Y has not sent,
//! Y had overwritten up to *s*. That also holds for what other partitions have got: *s* is that of the last part of any
//! of them. If another site is lost while this one is being rebuilt, effects may be here whose causes are nowhere, if
//! - Y is lost, and this site has not admitted all of Y up to *s*; or
//! - Y and X are lost, in any order, and this site had not admitted what it lacks of X when the second one was lost. X gets
//!   back from Y what Y had admitted of it, but perhaps Y was lost before that. X may also have been lost before this site
//!   was, and may be whole again. This site does not know that, and counts it all the same.
//!
//! Then this site is torn, too (`Sites::loses_causes`). Each partition decides this for its own parts, and one that is torn
//! never says that it is ready. One that is ready stays so, because the cut never falls.
//!
//! A site that is torn like this may have sent effects on. At other sites they wait for what they depend on, and that
//! comes only if the lost sites are whole again. They get nothing from this one. So they are whole only after this site was
//! lost once more, and others drop what they have not admitted of it.
//!
//! # Sessions
//! What a session has seen at a site may be lost with it. So a session, and its token, has the era of its site as of when
//! it has first seen something there. Each answer to a client has the era of its leader. A client returns nothing of a
//! later era to a session, and puts no answers of different eras together. A write names the session's era, and is
//! refused if there is a later one: it might be an effect of what is lost. Another site refuses a session that comes
//! from an earlier era of the lost one ([`Request::Reach`]), and does not compare versionstamps of an era that it does
//! not know yet. A session that had moved before the loss goes on: all that it had seen was admitted at its new site,
//! and the lost one gets back what was admitted.
//!
//! # Clocks
//! What the site writes from now on is later than all that any other site has seen when it says that it has sent all.
//! A transaction that was requested before that is refused: nobody knows any more whether it took effect. The clock also
//! begins a minute later. So unless the former clock was ahead by that much, what is lost and what is written later
//! have different versionstamps, although nothing depends on that.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{NodeId, Versionstamp, Write};

use super::super::Mutation;
#[cfg(doc)]
use super::super::message::Request;
use super::super::message::{Across, Entry, Stage};
use super::super::reads::admitted;
use super::super::replica::{Cx, Replica};
use super::receiving::Receiving;
use super::sending::Sending;
use super::state::raise_eras;

/// After how long something is asked again.
const ASKED_EVERY: Duration = Duration::from_millis(300);
/// What a partition has said counts for so long.
const COUNTS_FOR: Duration = Duration::from_secs(1);
/// No clock of another site can show more: it has run for a century.
const CLOCKS_AT_MOST: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// What a leader knows of sites that have lost their disks.
#[derive(Debug, Default)]
pub(super) struct Rebuilding {
    /// Names the question to other sites.
    number: u64,
    asked_at: Option<Timestamp>,
    /// What other sites have answered: the eras, and the latest versionstamp.
    told: BTreeMap<usize, (Vec<u32>, Versionstamp)>,
    /// Who asks that, with the number of the question. They are answered once this slot of the log is applied: then this
    /// leader was not deposed before they asked.
    asking: BTreeMap<NodeId, (u64, u64)>,
    /// At the first partition: what the partitions have found.
    found: BTreeMap<u16, (Timestamp, Vec<u32>)>,
    /// The end, or the beginning, is in the log.
    is_proposed: bool,
    /// By site: when it was asked for versions of this site.
    restored_at: BTreeMap<usize, Timestamp>,
    /// The sites of which versions of this one are in the log, and not applied yet.
    restored: BTreeSet<usize>,
    /// Whether all is in the store that this site had admitted of others before they were lost.
    is_stored: bool,
    /// When the first partition was told last that this one is being rebuilt.
    found_at: Option<Timestamp>,
    /// Other sites that are lost: the new era, and whether it is in the log.
    losing: BTreeMap<usize, (u32, bool)>,
}

impl Rebuilding {
    /// Whether a site is lost, and the log does not say so yet.
    pub(super) fn is_losing(&self, site: usize) -> bool {
        self.losing.contains_key(&site)
    }

    pub(super) fn is_losing_any(&self) -> bool {
        !self.losing.is_empty()
    }
}

impl Replica {
    /// Whether the site has lost all its disks, and what to do is not in the log yet.
    pub(in super::super) fn must_rebuild(&self) -> bool {
        self.log.is_anew() && self.machine.sites.eras[usize::from(self.group.site())] == 0
    }

    /// Whether the site lacks something that it had before it lost its disks.
    pub(in super::super) fn is_rebuilding(&self) -> bool {
        self.machine.sites.is_rebuilding() || self.must_rebuild()
    }

    /// Answers sites that are lost, and have asked.
    pub(in super::super) fn tell_lost_sites(&mut self, cx: &mut Cx<'_>) {
        let applied = self.log.applied();
        let asking = &mut self.exchange.rebuilding.asking;
        let confirmed = asking.iter().filter(|(_, (_, slot))| *slot < applied);
        let confirmed: Vec<(NodeId, u64)> =
            confirmed.map(|(from, (number, _))| (*from, *number)).collect();
        for (from, number) in confirmed {
            self.exchange.rebuilding.asking.remove(&from);
            let latest = self.latest_seen(cx);
            self.send_across(from.partition(), Across::Told { number, latest }, cx);
        }
    }

    /// Asks other sites what they know of this one, and begins to rebuild it once all have answered.
    pub(super) fn look_for_sites(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let first = self.group.all_partitions().start;
        let rebuilding = &mut self.exchange.rebuilding;
        if rebuilding.number == 0 {
            rebuilding.number = cx.draw().max(1);
        }
        let number = rebuilding.number;
        if rebuilding.asked_at.is_none_or(|at| now.since(at) >= ASKED_EVERY) {
            rebuilding.asked_at = Some(now);
            for site in self.other_sites() {
                if !self.exchange.rebuilding.told.contains_key(&site) {
                    let partition = self.group.counterpart(cx.id().partition(), site as u16);
                    self.leaders.remove(&partition);
                    self.repeated += 1;
                    self.send_to_site(site, Across::Ask { number }, cx);
                }
            }
        }
        let rebuilding = &self.exchange.rebuilding;
        if self.other_sites().any(|site| !rebuilding.told.contains_key(&site)) {
            return;
        }
        let mut eras = self.machine.sites.eras.clone();
        for (told, _) in rebuilding.told.values() {
            raise_eras(&mut eras, told);
        }
        if cx.id().partition() == first {
            self.exchange.rebuilding.found.insert(first, (now, eras));
            self.begin_rebuilding(cx);
        } else {
            self.send_across(first, Across::Found(eras), cx);
        }
    }

    /// The leader of the first partition begins, once all partitions of the site have lost their disks, and all have
    /// heard of all other sites.
    fn begin_rebuilding(&mut self, cx: &mut Cx<'_>) {
        let (now, own) = (cx.now(), usize::from(self.group.site()));
        let found = |partition| {
            let (at, eras) = self.exchange.rebuilding.found.get(&partition)?;
            (now.since(*at) < COUNTS_FOR).then_some(eras)
        };
        let all: Option<Vec<&Vec<u32>>> = self.group.all_partitions().map(found).collect();
        let Some(all) = all else { return };
        let mut eras = self.machine.sites.eras.clone();
        for found in all {
            raise_eras(&mut eras, found);
        }
        eras[own] += 1;
        self.propose_rebuild(eras, cx);
    }

    fn propose_rebuild(&mut self, eras: Vec<u32>, cx: &mut Cx<'_>) {
        let (rebuilding, sites) = (&self.exchange.rebuilding, &self.machine.sites);
        let own = usize::from(self.group.site());
        let has_begun = sites.is_rebuilding() && sites.lacks_own();
        let are_told = self.other_sites().all(|site| rebuilding.told.contains_key(&site));
        let may_begin = (self.must_rebuild() && are_told) || has_begun;
        if rebuilding.is_proposed || !may_begin || eras[own] <= sites.eras[own] {
            return;
        }
        let latest = rebuilding.told.values().map(|(_, latest)| *latest).max();
        let entry = Entry::Rebuild { eras, latest: latest.unwrap_or_default() };
        self.exchange.rebuilding.is_proposed = self.log.propose_led(entry, cx).is_some();
    }

    /// Handles what concerns lost sites, whatever the eras are. Returns the rest.
    pub(super) fn on_lost_sites(
        &mut self,
        from: NodeId,
        (eras, across): (&[u32], Across),
        cx: &mut Cx<'_>,
    ) -> Option<Across> {
        let site = usize::from(self.group.site_of(from.partition()));
        let first = self.group.all_partitions().start;
        let own = usize::from(self.group.site());
        match across {
            Across::Ask { number } => {
                let asking = self.exchange.rebuilding.asking.get(&from);
                if asking.is_none_or(|(asked, _)| *asked != number)
                    && let Some(slot) = self.log.confirm(cx)
                {
                    self.exchange.rebuilding.asking.insert(from, (number, slot));
                }
            }
            Across::Told { number, latest } => {
                // The clock of this site begins anew, so others may be years ahead.
                let is_possible = latest < Versionstamp::ZERO.after(CLOCKS_AT_MOST);
                let must_rebuild = self.must_rebuild();
                let rebuilding = &mut self.exchange.rebuilding;
                if must_rebuild && number == rebuilding.number && is_possible {
                    rebuilding.told.insert(site, (eras.to_vec(), latest));
                }
            }
            Across::Found(found) if cx.id().partition() == first => {
                if self.machine.sites.is_rebuilding() {
                    let eras = self.machine.sites.eras.clone();
                    if found[own] <= eras[own] {
                        self.send_across(from.partition(), Across::Begin(eras), cx);
                    }
                } else if self.must_rebuild() {
                    let now = cx.now();
                    self.exchange.rebuilding.found.insert(from.partition(), (now, found));
                    self.begin_rebuilding(cx);
                }
            }
            Across::Begin(eras) if from.partition() == first => self.propose_rebuild(eras, cx),
            Across::Found(_) | Across::Begin(_) => {}
            across => return Some(across),
        }
        None
    }

    /// This leader, and its predecessors, have seen no later versionstamp.
    fn latest_seen(&self, cx: &Cx<'_>) -> Versionstamp {
        let sites = &self.machine.sites;
        let received = sites.received.iter().chain(&sites.needed);
        received.copied().chain([self.clock(cx).shown]).max().unwrap_or_default()
    }

    /// Whether a message may count that its sender has sent when it knew these eras. Notes that sites are lost.
    pub(super) fn is_of_this_era(&mut self, from: u16, eras: &[u32], cx: &mut Cx<'_>) -> bool {
        let own = usize::from(self.group.site());
        let site = usize::from(self.group.site_of(from));
        for other in self.other_sites() {
            if eras[other] > self.machine.sites.eras[other] {
                let losing = self.exchange.rebuilding.losing.entry(other).or_default();
                if losing.0 < eras[other] {
                    *losing = (eras[other], false);
                }
            }
        }
        self.lose_sites(cx);
        let (known, rebuilding) = (&self.machine.sites.eras, &self.exchange.rebuilding);
        match site == own {
            true => known == eras && !rebuilding.is_losing_any(),
            false => {
                let same = |site: usize| known[site] == eras[site];
                same(site) && same(own) && !rebuilding.is_losing(site)
            }
        }
    }

    /// Puts it into the log that sites are lost, unless an admission is under way.
    pub(super) fn lose_sites(&mut self, cx: &mut Cx<'_>) {
        let is_admitting = self.machine.serving.as_ref().is_none_or(|s| s.admission.is_some());
        if is_admitting || !self.stalled.is_empty() {
            return;
        }
        for (site, (era, is_proposed)) in &mut self.exchange.rebuilding.losing {
            if !*is_proposed {
                let entry = Entry::Lost { site: *site as u16, era: *era };
                *is_proposed = self.log.propose_led(entry, cx).is_some();
            }
        }
    }

    /// The log says that a site is lost.
    pub(in super::super) fn on_site_lost(&mut self, site: u16) {
        let site = usize::from(site);
        let sites = &self.machine.sites;
        let exchange = &mut self.exchange;
        let era = sites.eras[site];
        exchange.rebuilding.losing.retain(|other, (to, _)| *other != site || *to > era);
        exchange.sending[site] = Sending::new(Versionstamp::ZERO);
        exchange.receiving[site] = Receiving::new(sites.received[site]);
        exchange.copied[site] = false;
        exchange.reports.clear();
        exchange.reported = Default::default();
        exchange.rebuilding.restored.remove(&site);
        exchange.rebuilding.restored_at.remove(&site);
        exchange.rebuilding.is_stored = false;
        // Its coordinator may not know of the loss.
        exchange.offered = None;
    }

    /// The log says that this site is being rebuilt, and how far, or that it has been.
    pub(in super::super) fn on_rebuilds(&mut self, cx: &mut Cx<'_>) {
        self.exchange.rebuilding.is_proposed = false;
        self.take_over(self.machine.sites.clock_from, cx);
        let (shown, stage) = (self.clock(cx).shown, self.machine.sites.stage);
        let serving = self.machine.serving.as_mut();
        if let Some(serving) = serving.filter(|_| stage == Stage::Rebuilt) {
            // Versions of this site have earlier commit times than the admissions of what they need.
            serving.forget_past(shown);
        }
        self.restore(cx);
    }

    /// Asks other sites for what they had admitted of this one. The first partition looks whether all partitions can go
    /// on to the next stage.
    pub(super) fn restore(&mut self, cx: &mut Cx<'_>) {
        let stage = self.machine.sites.stage;
        if stage == Stage::Rebuilt {
            return;
        }
        let (now, first) = (cx.now(), self.group.all_partitions().start);
        for site in self.other_sites() {
            let Some(restoring) = self.machine.sites.restoring[site].clone() else { continue };
            let rebuilding = &mut self.exchange.rebuilding;
            let asked_at = rebuilding.restored_at.get(&site);
            let is_early = asked_at.is_some_and(|at| now.since(*at) < ASKED_EVERY);
            if !restoring.is_done && !is_early && !rebuilding.restored.contains(&site) {
                rebuilding.restored_at.insert(site, now);
                self.send_to_site(site, Across::Restore { after: restoring.after }, cx);
            }
        }
        if self.mutation.is(Mutation::RebuiltAtOnce) {
            return self.go_on_to(Stage::Rebuilt, cx);
        }
        if cx.id().partition() != first {
            // Perhaps the first partition does not know it, or is in another era.
            let found_at = &mut self.exchange.rebuilding.found_at;
            if stage == Stage::Restoring && found_at.is_none_or(|at| now.since(at) >= ASKED_EVERY) {
                *found_at = Some(now);
                self.send_across(first, Across::Found(self.machine.sites.eras.clone()), cx);
            }
            return;
        }
        let can_go_on = |partition| {
            let report = self.exchange.reports.get(&partition);
            report.is_some_and(|(_, report)| {
                report.stage > stage || (report.stage == stage && report.is_ready)
            })
        };
        if self.group.all_partitions().all(can_go_on) {
            let next = if stage == Stage::Restoring { Stage::Whole } else { Stage::Rebuilt };
            self.go_on_to(next, cx);
        }
    }

    /// Whether this partition has what it needs for the next stage.
    pub(super) fn is_ready(&self) -> bool {
        let sites = &self.machine.sites;
        match sites.stage {
            Stage::Restoring => {
                !sites.is_torn() && sites.restoring.iter().flatten().all(|it| it.is_done)
            }
            Stage::Whole => {
                let has_all = |site: usize| sites.cut[site] >= sites.lacks[site];
                !sites.is_torn() && self.other_sites().all(has_all)
            }
            Stage::Rebuilt => true,
        }
    }

    /// Puts it into the log that the site is rebuilt so far.
    pub(super) fn go_on_to(&mut self, stage: Stage, cx: &mut Cx<'_>) {
        if self.machine.sites.stage < stage && !self.exchange.rebuilding.is_proposed {
            let entry = if stage == Stage::Whole { Entry::Whole } else { Entry::Rebuilt };
            let is_proposed = self.log.propose_led(entry, cx).is_some();
            self.exchange.rebuilding.is_proposed = is_proposed;
        }
    }

    /// Tells a partition that is at an earlier stage than the first one how far the site is.
    pub(super) fn tell_stage(&self, partition: u16, stage: Stage, cx: &mut Cx<'_>) {
        let own = self.machine.sites.stage;
        if stage < own && !self.must_rebuild() {
            let across = if own == Stage::Whole { Across::Whole } else { Across::End };
            self.send_across(partition, across, cx);
        }
    }

    /// A site that is being rebuilt asks for what was admitted of it here.
    pub(super) fn on_restore(&mut self, site: usize, after: Option<Vec<u8>>, cx: &mut Cx<'_>) {
        // Otherwise the other one would go on, and with it what has come from here without its causes.
        if self.machine.sites.may_have_sent_effects() {
            return;
        }
        // A new leader has some of it only in memory.
        if !core::mem::replace(&mut self.exchange.rebuilding.is_stored, true) {
            self.machine.cells_mut().store_some(usize::MAX, cx.store());
        }
        let (sites, group) = (&self.machine.sites, &self.group);
        let is_of_site = |stamp: Versionstamp| {
            usize::from(group.site_of(stamp.partition())) == site && stamp > Versionstamp::ZERO
        };
        let (next, versions, has_more) = self.read_versions(after.clone(), cx, |versions| {
            let latest = (versions.latest.stamp(), &versions.latest.value);
            // If that of another site is later, it counts.
            let received = admitted(versions, &sites.cut, sites, group);
            let received = received.map(|one| (one.stamp, &one.value));
            let all = received.into_iter().chain([latest]).filter(|(stamp, _)| is_of_site(*stamp));
            all.max_by_key(|(stamp, _)| *stamp).map(|(stamp, value)| (stamp, value.clone()))
        });
        let (next, is_last) = (next.unwrap_or_default(), !has_more);
        let latest = self.latest_seen(cx);
        let mut needs = self.machine.sites.needed.clone();
        if self.mutation.is(Mutation::NotWhole) {
            needs.fill(Versionstamp::ZERO);
        }
        // Versions may be missing because this site has overwritten them.
        needs[usize::from(self.group.site())] = self.clock(cx).shown;
        needs[site] = self.machine.sites.cut[site];
        let restored = Across::Restored { after, next, versions, is_last, latest, needs };
        self.send_to_site(site, restored, cx);
    }

    /// Another site has sent a part of what it had admitted of this one.
    pub(super) fn on_restored(
        &mut self,
        site: usize,
        (after, next, is_last): (Option<Vec<u8>>, Vec<u8>, bool),
        versions: Vec<(Versionstamp, Write)>,
        (latest, needs): (Versionstamp, Vec<Versionstamp>),
        cx: &mut Cx<'_>,
    ) {
        let (serving, now) = (self.machine.serving.as_ref(), cx.now());
        let is_possible = |stamp| serving.is_some_and(|serving| serving.is_possible(stamp, now));
        let is_sound = |(stamp, write): &(Versionstamp, Write)| {
            let is_own = self.group.site_of(stamp.partition()) == self.group.site();
            is_own && is_possible(*stamp) && self.is_of_partition(write, cx)
        };
        let are_possible = is_possible(latest) && needs.iter().all(|needed| is_possible(*needed));
        if !are_possible || !versions.iter().all(is_sound) {
            return cx
                .reject(|| format!("site {site} has sent versions that are not of this site"));
        }
        let restoring = self.machine.sites.restoring[site].as_ref();
        let is_next = restoring.is_some_and(|it| !it.is_done && it.after == after);
        let is_proposed = self.exchange.rebuilding.restored.contains(&site);
        if !is_next || is_proposed || !self.stalled.is_empty() {
            return;
        }
        let number = site as u16;
        let entry = Entry::Restored { site: number, next, versions, is_last, latest, needs };
        if self.log.propose_led(entry, cx).is_some() {
            self.exchange.rebuilding.restored.insert(site);
        }
    }

    /// A part is in the log.
    pub(in super::super) fn on_part_restored(&mut self, site: u16, cx: &mut Cx<'_>) {
        let site = usize::from(site);
        self.exchange.rebuilding.restored.remove(&site);
        self.exchange.rebuilding.restored_at.remove(&site);
        self.take_over(self.machine.sites.clock_from, cx);
        self.restore(cx);
    }
}
