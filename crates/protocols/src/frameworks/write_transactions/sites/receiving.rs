//! What a leader receives from other sites.

use core::time::Duration;

use serried_model::{Versionstamp, Write};

use super::super::message::{Across, Entry, Report, Run};
use super::super::replica::{Cx, Replica};

/// What a partition has is reported again after so long, although it is the same.
const REPORTED_EVERY: Duration = Duration::from_millis(100);

/// How often the log is told at least how far a site has sent everything, although that has written nothing.
const NOTED_EVERY: Duration = Duration::from_secs(10);

/// How far the clocks of a site's partitions are apart at most before they are set.
const APART_AT_MOST: Duration = Duration::from_millis(100);

/// What a site has sent.
#[derive(Debug)]
pub(super) struct Receiving {
    /// All that has committed there up to this is here, or in the log.
    heard: Versionstamp,
    /// All but that up to this is in the log, and not applied yet.
    proposed: Versionstamp,
    /// The epoch of the sender.
    epoch: u64,
    /// What the site had admitted, by site, when its clock showed a time.
    pub(super) admitted: (Versionstamp, Vec<Versionstamp>),
}

impl Receiving {
    /// It has sent this.
    pub(super) fn new(received: Versionstamp) -> Receiving {
        Receiving { heard: received, proposed: received, epoch: 0, admitted: Default::default() }
    }
}

impl Replica {
    /// All that has committed at a site up to this is durable here.
    pub(super) fn durable_of(&self, site: usize) -> Versionstamp {
        let received = self.machine.sites.received[site];
        match self.exchange.receiving.get(site) {
            Some(receiving) if received >= receiving.proposed => receiving.heard.max(received),
            _ => received,
        }
    }

    /// A site has sent what has committed there.
    pub(super) fn on_ship(
        &mut self,
        site: usize,
        (epoch, after, to): (u64, Versionstamp, Versionstamp),
        (mut runs, cut): (Vec<Run>, Vec<Versionstamp>),
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now();
        if !self.machine.serving.as_ref().is_some_and(|s| s.is_possible(to, now)) {
            return cx.reject(|| format!("site {site} has a versionstamp of the far future"));
        }
        self.has_admitted(site, to, cut);
        let durable = self.durable_of(site);
        let receiving = &mut self.exchange.receiving[site];
        receiving.epoch = epoch;
        receiving.heard = receiving.heard.max(durable);
        if after > receiving.heard {
            let gap = Across::Shipped { epoch, to: durable, is_gap: true };
            return self.send_to_site(site, gap, cx);
        }
        let heard = receiving.heard;
        for run in &mut runs {
            run.transactions.retain(|transaction| transaction.commit > heard);
        }
        runs.retain(|run| !run.transactions.is_empty());
        let all = || runs.iter().flat_map(|run| &run.transactions).map(|one| one.commit);
        let is_of_site =
            |commit: Versionstamp| self.group.site_of(commit.partition()) == site as u16;
        let mut writes = runs.iter().flat_map(|run| &run.transactions).flat_map(|one| &one.writes);
        let are_sound = writes.all(|write| self.is_of_partition(write, cx))
            && all().is_sorted_by(|one, other| one < other)
            && all().next_back().is_none_or(|last| last <= to)
            && all().all(is_of_site);
        if !are_sound {
            return cx.reject(|| format!("site {site} has sent transactions that are not its own"));
        }
        // Otherwise a new leader would believe that nothing was heard since the last transaction.
        let received = self.machine.sites.received[site];
        let is_noted = self.exchange.receiving[site].proposed <= received;
        if !runs.is_empty() || (is_noted && to.since(received) >= NOTED_EVERY) {
            let era = self.machine.sites.eras[site];
            let entry = Entry::Receive { site: site as u16, era, to, runs };
            if !self.stalled.is_empty() || self.log.propose_led(entry, cx).is_none() {
                return;
            }
            self.exchange.receiving[site].proposed = to;
        }
        let receiving = &mut self.exchange.receiving[site];
        receiving.heard = receiving.heard.max(to);
        // Otherwise what this site writes later would be older than what the other one has written before.
        self.take_over(to, cx);
        self.acknowledge_to(site, cx);
        self.report(cx);
    }

    /// Tells a site what is durable here.
    pub(super) fn acknowledge_to(&mut self, site: usize, cx: &mut Cx<'_>) {
        let to = self.durable_of(site);
        let epoch = self.exchange.receiving[site].epoch;
        self.send_to_site(site, Across::Shipped { epoch, to, is_gap: false }, cx);
    }

    /// Whether another site can have written this to this partition.
    pub(super) fn is_of_partition(&self, write: &Write, cx: &Cx<'_>) -> bool {
        !write.key.is_empty() && self.group.partition_of(&write.key) == cx.id().partition()
    }

    /// What this partition has of other sites.
    fn report_of_own(&self, shown: Versionstamp) -> Report {
        let all = self.machine.sites.cut.len();
        let (here, waiting) = (vec![Versionstamp::ZERO; all], vec![Vec::new(); all]);
        let (stage, is_ready) = (self.machine.sites.stage, self.is_ready());
        let lacks = self.machine.sites.lacks.clone();
        let mut report = Report { here, waiting, lacks, shown, stage, is_ready };
        for site in self.other_sites() {
            report.here[site] = self.durable_of(site);
            report.waiting[site] = self.machine.sites.summary(site);
        }
        report
    }

    /// All that has committed at a site up to this is admitted here.
    pub(super) fn admitted_of(&self, site: usize) -> Versionstamp {
        self.machine.sites.admitted_up_to(site, self.durable_of(site))
    }

    /// Tells the leader of the first partition what this one has, if that has changed.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let (at, reported) = &self.exchange.reported;
        let is_old = at.is_none_or(|at| now.since(at) >= REPORTED_EVERY);
        let report = self.report_of_own(self.clock(cx).shown);
        let is_same = Report { shown: reported.shown, ..report.clone() } == *reported;
        if !is_old && is_same {
            return;
        }
        self.exchange.reported = (Some(now), report.clone());
        let first = self.group.all_partitions().start;
        if cx.id().partition() == first {
            self.exchange.reports.insert(first, (now, report));
        } else {
            self.send_across(first, Across::Report(report), cx);
        }
    }

    /// The first partition takes over the clocks of the others, and they take over its clock. What was received can only
    /// be admitted up to what all clocks show, and without clients nobody else brings them together.
    pub(super) fn tell_clock(&mut self, partition: u16, shown: Versionstamp, cx: &mut Cx<'_>) {
        self.take_over_possible(shown, cx);
        let own = self.clock(cx).shown;
        if own.since(shown) > APART_AT_MOST {
            self.send_across(partition, Across::Clock(own), cx);
        }
    }

    /// The clock shows at least this, if it is not of the far future.
    pub(super) fn take_over_possible(&mut self, stamp: Versionstamp, cx: &mut Cx<'_>) {
        let now = cx.now();
        if self.machine.serving.as_ref().is_some_and(|s| s.is_possible(stamp, now)) {
            self.take_over(stamp, cx);
        }
    }

    /// What another site has sent is in the log.
    pub(in super::super) fn on_received(&mut self, site: u16, cx: &mut Cx<'_>) {
        if self.is_serving() {
            self.acknowledge_to(usize::from(site), cx);
            self.report(cx);
            self.admit_if_ready(cx);
        }
    }
}
