//! Admissions: transactions of a site that make readable what others have written.

use core::time::Duration;

use serried_actor::Timestamp;
use serried_model::Versionstamp;

use super::super::Mutation;
use super::super::cell::Transaction;
use super::super::message::{Across, Entry, TransactionId};
use super::super::replica::{Cx, Replica};
use super::ADMISSION;

/// How long after an admission the next one begins at the earliest.
const APART: Duration = Duration::from_millis(5);
/// The same if the last one was undone: a partition can't take part.
const APART_IF_UNDONE: Duration = Duration::from_secs(1);
/// How long after it was computed what could be admitted this is computed again at the earliest.
const TRIED_EVERY: Duration = Duration::from_millis(2);
/// What a partition has said counts for so long. Then it may not be able to take part.
const COUNTS_FOR: Duration = Duration::from_secs(1);

impl Replica {
    /// What the site could admit: all that is here at all its partitions, but for what depends on something that is
    /// not. The site's first partition knows it.
    fn admissible(&self, now: Timestamp) -> Option<Vec<Versionstamp>> {
        let own = usize::from(self.group.site());
        let report = |partition| {
            let (at, report) = self.exchange.reports.get(&partition)?;
            (now.since(*at) < COUNTS_FOR).then_some(report)
        };
        let all: Option<Vec<_>> = self.group.all_partitions().map(report).collect();
        let all = all?;
        let mut cut = self.machine.sites.cut.clone();
        for (site, cut) in cut.iter_mut().enumerate().filter(|(site, _)| *site != own) {
            let here = all.iter().map(|report| report.here[site]);
            let here = match self.mutation.is(Mutation::CutAsMaximum) {
                true => here.max(),
                false => here.min(),
            };
            *cut = here.unwrap_or_default().max(*cut);
        }
        let of_sites = || all.iter().flat_map(|report| report.waiting.iter().enumerate());
        let batches =
            || of_sites().flat_map(|(site, all)| all.iter().map(move |batch| (site, batch)));
        // What depends on something that is not in the cut leaves it, until there is no such thing any more.
        let ignores = self.mutation.is(Mutation::DependenciesIgnored);
        let mut has_changed = true;
        while core::mem::take(&mut has_changed) {
            for (site, batch) in batches().filter(|(site, _)| *site != own) {
                if batch.first > cut[site] {
                    continue;
                }
                let is_met = |other: usize| other == site || batch.needs[other] <= cut[other];
                let are_met = ignores || self.other_sites().all(is_met);
                if !are_met || (batch.is_copy && batch.last > cut[site]) {
                    cut[site] = Versionstamp(batch.first.0.saturating_sub(1));
                    has_changed = true;
                }
            }
        }
        // It need not be more than there is, and than a site must have that is being rebuilt.
        for site in self.other_sites() {
            let of_site =
                batches().filter(|(other, batch)| *other == site && batch.first <= cut[site]);
            let last = of_site.map(|(_, batch)| batch.last);
            let lacks = all.iter().map(|report| report.lacks[site]);
            let wanted = last.chain(lacks).max().unwrap_or_default();
            let former = self.machine.sites.cut[site];
            cut[site] = cut[site].min(wanted).max(former);
        }
        (cut != self.machine.sites.cut).then_some(cut)
    }

    /// The leader of the site's first partition begins an admission, if there is something to admit and none is under
    /// way.
    pub(super) fn admit_if_ready(&mut self, cx: &mut Cx<'_>) {
        let (now, own) = (cx.now(), cx.id().partition());
        let last = self.exchange.last_admission.and_then(|id| self.machine.transactions.get(&id));
        let is_undone = matches!(last, Some(Transaction::Decided { commit: None, .. }));
        let apart = if is_undone { APART_IF_UNDONE } else { APART };
        let is_early = self.exchange.admitted_at.is_some_and(|at| now.since(at) < apart)
            || self.exchange.tried_at.is_some_and(|at| now.since(at) < TRIED_EVERY);
        let lacks_own = self.machine.sites.lacks_own() && !self.mutation.is(Mutation::NotWhole);
        if own != self.group.all_partitions().start || is_early || lacks_own {
            return;
        }
        let Some(serving) = self.machine.serving.as_ref().filter(|s| s.admission.is_none()) else {
            return;
        };
        let shown = serving.clock(self.machine.partition.bound, now).shown;
        self.exchange.tried_at = Some(now);
        let Some(cut) = self.admissible(now) else { return };
        // The commit time is later than all that it admits. No partition finds that it was requested long ago.
        let others = self.exchange.reports.values().map(|(_, report)| report.shown);
        let latest = cut.iter().copied().chain(others).max().unwrap_or_default().max(shown);
        let session = ADMISSION | cx.draw() >> 16;
        let id = TransactionId { requested: latest.next_of(own), session };
        self.exchange.admitted_at = Some(now);
        self.exchange.last_admission = Some(id);
        self.prepare_admission(id, cut.clone(), cx);
        if self.machine.serving.as_ref().is_some_and(|s| s.admission == Some(id)) {
            for partition in self.group.all_partitions().filter(|partition| *partition != own) {
                self.send_across(partition, Across::Admit { id, cut: cut.clone() }, cx);
            }
        }
    }

    /// Takes part in the admission that was last offered, as soon as it can. It may have to wait until what it admits is in the
    /// log here, or until the admission before it has ended here: its coordinator knows that earlier.
    pub(in super::super) fn take_part(&mut self, cx: &mut Cx<'_>) {
        let Some((id, cut)) = self.exchange.offered.take() else { return };
        let is_known =
            self.machine.transactions.contains_key(&id) || self.refusing.contains_key(&id);
        let is_past = id.requested <= self.machine.partition.horizon;
        if is_known || is_past || self.machine.serving.is_none() {
            return;
        }
        self.prepare_admission(id, cut.clone(), cx);
        if self.machine.serving.as_ref().is_some_and(|serving| serving.admission != Some(id)) {
            self.exchange.offered = Some((id, cut));
        }
    }

    /// Takes part in an admission, if all is here that it admits, and no other one is under way here. Otherwise it is tried
    /// again, its coordinator asks later, and it is undone.
    pub(super) fn prepare_admission(
        &mut self,
        id: TransactionId,
        cut: Vec<Versionstamp>,
        cx: &mut Cx<'_>,
    ) {
        let (now, own) = (cx.now(), cx.id().partition());
        let is_here = self.other_sites().all(|site| self.durable_of(site) >= cut[site])
            || self.mutation.is(Mutation::CutAsMaximum);
        let refused = self.machine.partition.refused.max(self.machine.partition.horizon);
        let is_known =
            self.machine.transactions.contains_key(&id) || self.refusing.contains_key(&id);
        let Some(serving) = self.machine.serving.as_mut() else { return };
        let is_later =
            cut.iter().all(|to| *to < id.requested) && id.session & ADMISSION == ADMISSION;
        let is_possible = serving.is_possible(id.requested, now) && is_later;
        if !is_here
            || self.exchange.rebuilding.is_losing_any()
            || (self.machine.sites.lacks_own() && !self.mutation.is(Mutation::NotWhole))
            || !is_possible
            || is_known
            || serving.admission.is_some()
            || id.requested <= refused
        {
            return;
        }
        let participants: Vec<u16> = self.group.all_partitions().collect();
        let pending = serving.stamp(id.requested, own, now);
        let (all, writes) = (participants.clone(), Vec::new());
        let entry = Entry::Prepare { id, participants: all, pending, writes, cut };
        if !self.stalled.is_empty() || self.log.propose_led(entry, cx).is_none() {
            return;
        }
        serving.begin(id, pending, &participants, &[], now);
        serving.admission = Some(id);
        if let Some(votes) = self.early.remove(&id)
            && let Some(open) = serving.open.get_mut(&id)
        {
            open.votes = votes;
        }
    }
}
