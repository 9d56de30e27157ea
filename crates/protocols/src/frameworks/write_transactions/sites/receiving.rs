//! What a leader receives from other sites.

use serried_model::Versionstamp;

use super::super::Mutation;
use super::super::message::{Across, Entry, Outgoing, Report};
use super::super::replica::{Cx, Replica};
use super::state::Batch;

/// What a site has sent.
#[derive(Debug)]
pub(super) struct Receiving {
    /// All that has committed there up to this is here, or in the log.
    heard: Versionstamp,
    /// All but that up to this is in the log, and not applied yet.
    proposed: Versionstamp,
    /// The epoch of the sender.
    epoch: u64,
}

impl Receiving {
    /// It has sent this.
    pub(super) fn new(received: Versionstamp) -> Receiving {
        Receiving { heard: received, proposed: received, epoch: 0 }
    }
}

/// What a site sends at once.
pub(super) struct Shipment {
    pub(super) epoch: u64,
    pub(super) after: Versionstamp,
    pub(super) to: Versionstamp,
    pub(super) needs: Vec<Versionstamp>,
    pub(super) transactions: Vec<Outgoing>,
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
    pub(super) fn on_ship(&mut self, site: usize, shipment: Shipment, cx: &mut Cx<'_>) {
        let Shipment { epoch, after, to, needs, mut transactions } = shipment;
        let now = cx.now();
        if !self.machine.serving.as_ref().is_some_and(|s| s.is_possible(to, now)) {
            return cx.reject(|| format!("site {site} has a versionstamp of the far future"));
        }
        let durable = self.durable_of(site);
        let receiving = &mut self.exchange.receiving[site];
        receiving.epoch = epoch;
        receiving.heard = receiving.heard.max(durable);
        if after > receiving.heard {
            let gap = Across::Shipped { epoch, to: durable, is_gap: true };
            return self.send_to_site(site, gap, cx);
        }
        let heard = receiving.heard;
        transactions.retain(|transaction| transaction.commit > heard);
        let is_ordered = transactions.is_sorted_by(|one, other| one.commit < other.commit)
            && transactions.last().is_none_or(|last| last.commit <= to)
            && transactions
                .iter()
                .all(|one| self.group.site_of(one.commit.partition()) == site as u16);
        if !is_ordered {
            return cx.reject(|| format!("site {site} has sent transactions that are not its own"));
        }
        if !transactions.is_empty() {
            let entry = Entry::Receive { site: site as u16, to, needs, transactions };
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

    /// What this partition could admit.
    pub(super) fn report_of_own(&self) -> Report {
        let sites = &self.machine.sites;
        let all = sites.cut.len();
        let mut report = Report {
            ready: vec![Versionstamp::ZERO; all],
            last: vec![Versionstamp::ZERO; all],
            least: vec![Versionstamp::ZERO; all],
        };
        for site in self.other_sites() {
            let durable = self.durable_of(site);
            report.ready[site] = durable;
            for Batch { first, last, is_copy, needs } in &sites.waiting[site] {
                let is_met = |other: usize| other == site || needs[other] <= sites.cut[other];
                let are_met = self.other_sites().all(is_met)
                    || self.mutation.is(Mutation::DependenciesIgnored);
                if !are_met || (*is_copy && durable < *last) {
                    report.ready[site] = durable.min(Versionstamp(first.0.saturating_sub(1)));
                    break;
                }
                report.last[site] = *last;
                if *is_copy {
                    report.least[site] = *last;
                }
            }
        }
        report
    }

    /// Tells the leader of the first partition what this one could admit, if that has changed.
    pub(super) fn report(&mut self, cx: &mut Cx<'_>) {
        let report = self.report_of_own();
        if report == self.exchange.reported {
            return;
        }
        self.exchange.reported = report.clone();
        let first = self.group.all_partitions().start;
        if cx.id().partition() == first {
            self.exchange.reports.insert(first, report);
        } else {
            self.send_across(first, Across::Report(report), cx);
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
