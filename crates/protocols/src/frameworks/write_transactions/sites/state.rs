//! What replicas know of other sites.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serried_actor::Group;
use serried_model::{Versionstamp, Write};

use super::super::Mutation;
use super::super::message::{Batch, Outgoing, Run, Stage, size};
use crate::Mutated;

/// How many batches wait to be admitted at most. Then early ones are put together.
const BATCHES_AT_MOST: usize = 4096;
/// So many of the latest are not put together.
const LATEST: usize = 16;

/// By how much the clock of a site that is rebuilt is ahead of what others have seen of it.
const CLOCK_AHEAD: Duration = Duration::from_secs(60);

/// What the log says of other sites, by site. All times only rise, unless a site loses its disks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Sites {
    /// The slot after that of the last entry of the log that has changed it.
    since: u64,
    /// What was admitted: all that has committed there up to this. There is nothing to admit of this site itself.
    pub(in super::super) cut: Vec<Versionstamp>,
    /// At least that, and what admissions that are prepared here would admit: another partition may show it already.
    pub(in super::super) needed: Vec<Versionstamp>,
    /// The commit time of the last admission.
    pub(in super::super) cut_at: Versionstamp,
    /// What is here: all that has committed there up to this.
    pub(in super::super) received: Vec<Versionstamp>,
    /// What is here and was not admitted.
    pub(in super::super) waiting: Vec<VecDeque<Batch>>,
    /// What is here of a copy of the site's versions.
    pub(in super::super) copies: Vec<Option<Copy>>,
    /// What the site has: all that has committed here up to this.
    pub(in super::super) acknowledged: Vec<Versionstamp>,
    /// Whether nothing is kept for the site.
    pub(in super::super) given_up: Vec<bool>,
    /// What has committed here up to this, and is not in the outbox, is not kept any more.
    pub(in super::super) dropped: Versionstamp,
    /// How often the site was rebuilt, as far as it is known here.
    pub(in super::super) eras: Vec<u32>,
    /// When the site was rebuilt: how often it had been then, and what was admitted of it before.
    losses: Vec<Vec<(u32, Versionstamp)>>,
    /// How far this site is rebuilt.
    pub(in super::super) stage: Stage,
    /// While this site is being rebuilt: what the site has sent of what it had admitted of this one.
    pub(in super::super) restoring: Vec<Option<Restoring>>,
    /// What this site has to admit before it is rebuilt.
    pub(super) lacks: Vec<Versionstamp>,
    /// While this site is being rebuilt: what the site's clock showed when it sent what it had admitted of this one, if it
    /// had admitted something. That may depend on all that it had written by then.
    sent_at: Vec<Versionstamp>,
    /// Another site has lost its disks when it had sent only a part of what it had admitted of this one. So what is here
    /// is not whole.
    is_torn: bool,
    /// Other sites have lost their disks when they had sent what they had admitted of this one, and not yet what that
    /// depends on. So there are perhaps effects here whose causes are nowhere.
    lacks_causes: bool,
    /// Transactions that were requested up to this have perhaps committed before this site was rebuilt.
    pub(in super::super) rebuilt_at: Versionstamp,
    /// What the clock shows at least since this site was rebuilt.
    pub(in super::super) clock_from: Versionstamp,
}

/// What another site has sent of what it had admitted of this one, while this one is being rebuilt.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Restoring {
    /// The name in the other site's store after which the next part begins.
    pub(in super::super) after: Option<Vec<u8>>,
    /// Whether it has sent all.
    pub(in super::super) is_done: bool,
}

/// What is here of a copy of another site's versions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in super::super) struct Copy {
    /// With it, all is here that has committed there up to this.
    pub(in super::super) to: Versionstamp,
    /// The name in the other site's store after which the next part begins.
    pub(in super::super) after: Vec<u8>,
    /// The latest commit time in it.
    pub(in super::super) latest: Versionstamp,
}

/// Raises times to others.
fn raise(times: &mut [Versionstamp], others: &[Versionstamp]) {
    for (time, other) in times.iter_mut().zip(others) {
        *time = (*time).max(*other);
    }
}

/// Raises numbers of times that sites were rebuilt to others.
pub(super) fn raise_eras(eras: &mut [u32], others: &[u32]) {
    eras.iter_mut().zip(others).for_each(|(era, other)| *era = (*era).max(*other));
}

/// Two batches that follow one another as one.
fn joined(mut one: Batch, other: &Batch) -> Batch {
    one.last = other.last;
    raise(&mut one.needs, &other.needs);
    one
}

/// The same batches, of which early ones are put together in twos.
fn coarser(batches: &VecDeque<Batch>) -> Vec<Batch> {
    let early = batches.len().saturating_sub(LATEST);
    let mut coarser: Vec<Batch> = Vec::new();
    let mut is_second = false;
    for (place, batch) in batches.iter().enumerate() {
        let last = coarser.last().filter(|last| is_second && !last.is_copy && !batch.is_copy);
        is_second = !is_second && place < early;
        match last {
            Some(last) => {
                let joined = joined(last.clone(), batch);
                *coarser.last_mut().expect("it has a last one") = joined;
                is_second = false;
            }
            None => coarser.push(batch.clone()),
        }
    }
    coarser
}

impl Sites {
    /// What waits of a site, as not too many batches. The earlier they are, the larger.
    pub(super) fn summary(&self, site: usize) -> Vec<Batch> {
        let mut summary = self.waiting[site].clone();
        while summary.len() > 4 * LATEST {
            let coarser = coarser(&summary);
            if coarser.len() == summary.len() {
                break;
            }
            summary = coarser.into();
        }
        summary.into()
    }

    /// Nothing is known of so many sites.
    pub(in super::super) fn new(sites: usize) -> Sites {
        Sites {
            since: 0,
            cut: vec![Versionstamp::ZERO; sites],
            needed: vec![Versionstamp::ZERO; sites],
            cut_at: Versionstamp::ZERO,
            received: vec![Versionstamp::ZERO; sites],
            waiting: vec![VecDeque::new(); sites],
            copies: vec![None; sites],
            acknowledged: vec![Versionstamp::ZERO; sites],
            given_up: vec![false; sites],
            dropped: Versionstamp::ZERO,
            eras: vec![0; sites],
            losses: vec![Vec::new(); sites],
            stage: Stage::Rebuilt,
            restoring: vec![None; sites],
            lacks: vec![Versionstamp::ZERO; sites],
            sent_at: vec![Versionstamp::ZERO; sites],
            is_torn: false,
            lacks_causes: false,
            rebuilt_at: Versionstamp::ZERO,
            clock_from: Versionstamp::ZERO,
        }
    }

    /// This site, `own`, begins to be rebuilt.
    pub(in super::super) fn rebuild(&mut self, own: usize, eras: &[u32], latest: Versionstamp) {
        if eras[own] <= self.eras[own] {
            return;
        }
        raise_eras(&mut self.eras, eras);
        self.stage = Stage::Restoring;
        self.is_torn = false;
        self.lacks_causes = false;
        self.rebuilt_at = self.rebuilt_at.max(latest);
        self.clock_from = self.rebuilt_at.after(CLOCK_AHEAD);
        for site in (0..self.eras.len()).filter(|site| *site != own) {
            self.restoring[site] = Some(Restoring::default());
            self.given_up[site] = true;
        }
    }

    /// A part is here of what another site had admitted of this one.
    pub(in super::super) fn restored(
        &mut self,
        site: usize,
        next: &[u8],
        is_last: bool,
        latest: Versionstamp,
        needs: &[Versionstamp],
    ) {
        self.rebuilt_at = self.rebuilt_at.max(latest);
        self.clock_from = self.clock_from.max(latest);
        // What this site writes, and its copies for others, may depend on that.
        raise(&mut self.needed, needs);
        raise(&mut self.lacks, needs);
        if let Some(restoring) = &mut self.restoring[site] {
            restoring.after = Some(next.to_vec());
            restoring.is_done = is_last;
        }
    }

    /// Another site had admitted something of this one when its clock showed this, and has sent a part of that.
    pub(in super::super) fn depends_on(&mut self, site: usize, at: Versionstamp) {
        self.sent_at[site] = self.sent_at[site].max(at);
    }

    /// All partitions of this site have got back what they had written themselves.
    pub(in super::super) fn whole(&mut self) {
        self.stage = self.stage.max(Stage::Whole);
        self.is_torn = false;
        self.restoring.fill(None);
    }

    /// This site has all that it lacked.
    pub(in super::super) fn rebuilt(&mut self) {
        self.whole();
        self.stage = Stage::Rebuilt;
        self.lacks_causes = false;
        self.lacks.fill(Versionstamp::ZERO);
        self.sent_at.fill(Versionstamp::ZERO);
    }

    /// Whether this site has to be rebuilt once more: another one has sent only a part of what it had admitted of this one,
    /// or not what that depends on, and can't send the rest.
    pub(in super::super) fn is_torn(&self) -> bool {
        self.is_torn || self.lacks_causes
    }

    /// Whether other sites have perhaps received effects from here whose causes are nowhere.
    pub(super) fn may_have_sent_effects(&self) -> bool {
        self.lacks_causes && !self.lacks_own()
    }

    /// Whether this site is being rebuilt.
    pub(in super::super) fn is_rebuilding(&self) -> bool {
        self.stage < Stage::Rebuilt
    }

    /// Whether another partition of this site may lack something that it has written itself.
    pub(super) fn lacks_own(&self) -> bool {
        self.stage < Stage::Whole
    }

    /// All that has committed at a site up to this is admitted, if all of it up to `received` is here.
    pub(super) fn admitted_up_to(&self, site: usize, received: Versionstamp) -> Versionstamp {
        let first = self.waiting[site].front();
        first.map_or(received, |batch| received.min(Versionstamp(batch.first.0.saturating_sub(1))))
    }

    /// Another site has lost its disks. What was not admitted of it by now, it does not know any more. This one is `own`.
    pub(in super::super) fn lose(
        &mut self,
        site: usize,
        era: u32,
        own: usize,
        mutation: Mutated<Mutation>,
    ) {
        if era <= self.eras[site] {
            return;
        }
        self.eras[site] = era;
        if mutation.is(Mutation::UnadmittedKept) {
            return;
        }
        let cut = self.cut[site];
        self.lacks_causes |= self.is_rebuilding() && self.loses_causes(site, own);
        self.losses[site].push((era, cut));
        self.received[site] = cut;
        self.waiting[site].clear();
        self.copies[site] = None;
        if let Some(restoring) = &mut self.restoring[site] {
            self.is_torn |= *restoring != Restoring::default();
            *restoring = Restoring::default();
        }
    }

    /// Whether the causes of something are perhaps nowhere if a site is lost now, while this one, `own`, is being rebuilt. `cut`
    /// is the same at all partitions then. This site may have been told when it began that another one was lost, and does
    /// not know whether that one has got everything back. So it counts.
    fn loses_causes(&self, site: usize, own: usize) -> bool {
        let has_sent = |site: usize| self.sent_at[site] > Versionstamp::ZERO;
        let lacks_of = |site: usize| self.lacks[site] > self.cut[site];
        let was_lost = |other: &usize| *other != site && *other != own && self.eras[*other] > 0;
        // What a site has sent depends on what it had written itself, and on what it had of another one. That one gets it
        // back, unless both are lost.
        let mut lost = (0..self.cut.len()).filter(was_lost);
        self.sent_at[site] > self.cut[site]
            || lost.any(|other| {
                (has_sent(site) && lacks_of(other)) || (has_sent(other) && lacks_of(site))
            })
    }

    /// Whether the site of a version has lost it before it could be admitted here.
    pub(in super::super) fn is_lost(&self, site: usize, stamp: Versionstamp, era: u32) -> bool {
        let Some(losses) = self.losses.get(site) else { return false };
        losses.iter().any(|(after, cut)| era < *after && *cut < stamp)
    }

    /// The entry of a slot changes this. Returns false if it has done so before.
    pub(in super::super) fn apply(&mut self, slot: u64) -> bool {
        let is_new = self.since <= slot;
        self.since = self.since.max(slot + 1);
        is_new
    }

    /// An admission is prepared. From now on it may have committed.
    pub(in super::super) fn prepare(&mut self, cut: &[Versionstamp]) {
        raise(&mut self.needed, cut);
    }

    /// Whether it is about so many sites.
    pub(in super::super) fn is_of(&self, sites: usize) -> bool {
        let times = [&self.cut, &self.needed, &self.received, &self.acknowledged, &self.lacks];
        let batches = self.waiting.iter().flatten();
        times.iter().all(|times| times.len() == sites)
            && batches.map(|batch| batch.needs.len()).all(|needs| needs == sites)
            && [self.waiting.len(), self.copies.len(), self.given_up.len()] == [sites; 3]
            && [self.eras.len(), self.losses.len(), self.restoring.len()] == [sites; 3]
            && self.sent_at.len() == sites
    }

    /// An admission has committed.
    pub(in super::super) fn admit(&mut self, cut: &[Versionstamp], commit: Versionstamp) {
        raise(&mut self.cut, cut);
        raise(&mut self.needed, cut);
        self.cut_at = self.cut_at.max(commit);
        for (site, waiting) in self.waiting.iter_mut().enumerate() {
            let cut = self.cut[site];
            self.received[site] = self.received[site].max(cut);
            while waiting.front().is_some_and(|batch| batch.last <= cut) {
                waiting.pop_front();
            }
        }
    }

    /// All that has committed at a site up to `to` is here, with this batch.
    pub(in super::super) fn receive(&mut self, site: usize, to: Versionstamp, batch: Batch) {
        self.received[site] = self.received[site].max(to);
        if batch.last <= self.cut[site] {
            return;
        }
        let waiting = &mut self.waiting[site];
        match waiting.back_mut() {
            Some(last) if last.needs == batch.needs && !last.is_copy && !batch.is_copy => {
                last.last = batch.last;
            }
            _ => waiting.push_back(batch),
        }
        if waiting.len() > BATCHES_AT_MOST {
            *waiting = coarser(waiting).into();
        }
    }

    /// A part of a copy is here. `needs` are there with the last one.
    pub(in super::super) fn copy(
        &mut self,
        site: usize,
        Copy { to, after, mut latest }: Copy,
        needs: Option<&[Versionstamp]>,
        is_whole: bool,
    ) {
        if to <= self.received[site] {
            return;
        }
        if let Some(former) = self.copies[site].take().filter(|former| former.to == to) {
            latest = latest.max(former.latest);
        }
        let Some(needs) = needs else {
            self.copies[site] = Some(Copy { to, after, latest });
            return;
        };
        // Something may be there that has committed later. Nothing between can be read without it.
        let (first, last) = (self.received[site].next(), latest.max(to));
        self.receive(site, to, Batch { first, last, is_copy: is_whole, needs: needs.to_vec() });
    }

    /// All that has committed at a site up to `to` is here.
    pub(in super::super) fn reach(&mut self, site: usize, to: Versionstamp) {
        self.received[site] = self.received[site].max(to);
    }

    /// A site begins to copy. From now on, what commits after `to` is kept for it, or after what is not kept any more.
    pub(in super::super) fn take_back(&mut self, site: usize, to: Versionstamp) {
        self.given_up[site] = false;
        self.acknowledged[site] = self.acknowledged[site].max(to).max(self.dropped);
    }

    /// What other sites have is raised.
    pub(in super::super) fn acknowledge(&mut self, acknowledged: &[Versionstamp]) {
        raise(&mut self.acknowledged, acknowledged);
    }

    /// Takes over what another replica knows, if it has applied more.
    pub(in super::super) fn take_over(&mut self, other: &Sites) {
        if other.since > self.since {
            self.clone_from(other);
        }
    }

    /// What was admitted of the site that has given a transaction this stamp.
    pub(in super::super) fn cut_of(&self, stamp: Versionstamp, group: &Group) -> Versionstamp {
        let site = usize::from(group.site_of(stamp.partition()));
        self.cut.get(site).copied().unwrap_or_default()
    }

    /// What all sites have that are not given up, but for the site `own`.
    pub(in super::super) fn all_have(&self, own: usize) -> Versionstamp {
        let counts = |site: &usize| *site != own && !self.given_up[*site];
        let all = (0..self.cut.len()).filter(counts).map(|site| self.acknowledged[site]);
        all.min().unwrap_or(Versionstamp(u64::MAX))
    }
}

/// What transactions of this site have written, by commit time, as long as other sites may lack it.
#[derive(Debug, Default)]
pub(in super::super) struct Outbox {
    transactions: BTreeMap<Versionstamp, Kept>,
    bytes: usize,
}

/// What is kept of a transaction for other sites.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in super::super) struct Kept {
    /// By site, up to when it may depend on that site.
    pub(in super::super) needs: Vec<Versionstamp>,
    /// What it has written.
    pub(in super::super) writes: Vec<Write>,
}

/// What a transaction takes up beside its keys and values.
const OVERHEAD: usize = 64;

/// What the writes of a transaction take up.
fn bytes(writes: &[Write]) -> usize {
    OVERHEAD + writes.iter().map(size).sum::<usize>()
}

impl Outbox {
    pub(in super::super) fn insert(&mut self, commit: Versionstamp, kept: Kept) {
        self.bytes += bytes(&kept.writes);
        if let Some(before) = self.transactions.insert(commit, kept) {
            self.bytes -= bytes(&before.writes);
        }
    }

    /// Removes what has committed up to this. Returns the commit times.
    pub(in super::super) fn remove_up_to(&mut self, to: Versionstamp) -> Vec<Versionstamp> {
        let mut removed = Vec::new();
        while let Some(first) = self.transactions.first_entry().filter(|first| *first.key() <= to) {
            removed.push(*first.key());
            self.bytes -= bytes(&first.remove().writes);
        }
        removed
    }

    pub(in super::super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has committed after the first time and up to the second one, in runs, and up to when that is: about as many
    /// bytes, or all. And how many bytes these are.
    pub(super) fn between(
        &self,
        after: Versionstamp,
        to: Versionstamp,
        most_bytes: usize,
    ) -> (Vec<Run>, Versionstamp, usize) {
        let (mut runs, mut sum, mut last) = (Vec::<Run>::new(), 0, after);
        if after >= to {
            return (runs, to, 0);
        }
        for (commit, Kept { needs, writes }) in self.transactions.range(after.next()..=to) {
            if sum >= most_bytes {
                return (runs, last, sum);
            }
            let outgoing = Outgoing { commit: *commit, writes: writes.clone() };
            match runs.last_mut().filter(|run| run.needs == *needs) {
                Some(run) => run.transactions.push(outgoing),
                None => runs.push(Run { needs: needs.clone(), transactions: vec![outgoing] }),
            }
            sum += bytes(writes);
            last = *commit;
        }
        (runs, to, sum)
    }

    /// The commit time of the last one up to this.
    pub(super) fn last_up_to(&self, to: Versionstamp) -> Option<Versionstamp> {
        self.transactions.range(..=to).next_back().map(|(commit, _)| *commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(first: u64, last: u64) -> Batch {
        let needs = vec![Versionstamp(first); 3];
        Batch { first: Versionstamp(first), last: Versionstamp(last), is_copy: false, needs }
    }

    #[test]
    fn what_was_admitted_does_not_wait_and_nothing_is_received_twice() {
        let mut sites = Sites::new(3);
        sites.receive(1, Versionstamp(10), batch(3, 7));
        sites.receive(1, Versionstamp(10), batch(3, 7));
        sites.receive(1, Versionstamp(20), batch(12, 15));
        assert_eq!(sites.waiting[1].len(), 2);
        sites.admit(&[Versionstamp(0), Versionstamp(14), Versionstamp(30)], Versionstamp(50));
        assert_eq!(sites.waiting[1], [batch(12, 15)]);
        assert_eq!((sites.received[1], sites.received[2]), (Versionstamp(20), Versionstamp(30)));
        let mut other = Sites::new(3);
        assert!(sites.apply(5) && !sites.apply(5) && sites.apply(6));
        other.take_over(&sites);
        assert_eq!(other, sites);
    }

    #[test]
    fn early_batches_are_put_together_if_there_are_many() {
        let mut sites = Sites::new(3);
        for i in 0..10_000 {
            sites.receive(1, Versionstamp(10 * i + 9), batch(10 * i, 10 * i + 5));
        }
        let summary = sites.summary(1);
        assert!(sites.waiting[1].len() <= BATCHES_AT_MOST && summary.len() <= 4 * LATEST);
        let ends = |batches: &[Batch]| (batches[0].first.0, batches[batches.len() - 1].last.0);
        assert_eq!(ends(&summary), (0, 99_995));
        assert!(summary.is_sorted_by(|one, other| one.last < other.first));
        let latest = &summary[summary.len() - (LATEST - 1)..];
        assert!(
            latest.iter().all(|batch| batch.first.0 + 5 == batch.last.0),
            "they are as they came"
        );
        let needs = |batch: &Batch| batch.needs[0].0 + 5 == batch.last.0;
        assert!(summary.iter().all(needs), "each needs what its last one needs");
    }

    #[test]
    fn a_copy_reaches_to_the_latest_of_all_its_parts() {
        let mut sites = Sites::new(3);
        let copy = |after: u8, latest| Copy {
            to: Versionstamp(10),
            after: vec![after],
            latest: Versionstamp(latest),
        };
        let needs = vec![Versionstamp(1); 3];
        sites.copy(1, copy(1, 20), None, true);
        sites.copy(1, copy(2, 5), None, true);
        sites.copy(1, copy(3, 7), Some(&needs), true);
        let last = sites.waiting[1].back().expect("it waits");
        assert_eq!(
            (last.first, last.last, last.is_copy),
            (Versionstamp(1), Versionstamp(20), true)
        );
        assert_eq!(sites.received[1], Versionstamp(10));
    }

    #[test]
    fn what_was_not_admitted_of_a_site_before_it_was_lost_is_lost_and_what_came_later_is_not() {
        let mut sites = Sites::new(3);
        sites.receive(1, Versionstamp(10), batch(3, 7));
        sites.admit(&[Versionstamp(0), Versionstamp(5), Versionstamp(0)], Versionstamp(50));
        sites.lose(1, 1, 0, Mutated::NONE);
        assert_eq!((sites.received[1], sites.waiting[1].len()), (Versionstamp(5), 0));
        let is_lost = |sites: &Sites, stamp, era| sites.is_lost(1, Versionstamp(stamp), era);
        assert_eq!([5, 6, 7].map(|stamp| is_lost(&sites, stamp, 0)), [false, true, true]);
        assert!(!is_lost(&sites, 6, 1), "it was sent again");
        sites.receive(1, Versionstamp(9), batch(6, 8));
        sites.admit(&[Versionstamp(0), Versionstamp(6), Versionstamp(0)], Versionstamp(60));
        sites.lose(1, 3, 0, Mutated::NONE);
        assert_eq!([6, 8].map(|stamp| is_lost(&sites, stamp, 1)), [false, true]);
        assert!(is_lost(&sites, 6, 0), "it was lost the first time");
    }

    #[test]
    fn a_site_is_torn_if_another_one_is_lost_that_has_sent_it_a_part() {
        let mut sites = Sites::new(3);
        sites.rebuild(0, &[1, 0, 0], Versionstamp(9));
        assert!(sites.is_rebuilding() && sites.lacks_own());
        assert_eq!(sites.clock_from, Versionstamp(9).after(CLOCK_AHEAD));
        let mut other = sites.clone();
        other.lose(1, 1, 0, Mutated::NONE);
        assert!(!other.is_torn(), "it had sent nothing");
        let needs = [Versionstamp(0), Versionstamp(20), Versionstamp(7)];
        sites.restored(1, b"a", false, Versionstamp(20), &needs);
        assert_eq!((sites.rebuilt_at, sites.needed[2]), (Versionstamp(20), Versionstamp(7)));
        sites.receive(1, Versionstamp(30), batch(19, 25));
        let mut nothing = sites.clone();
        nothing.whole();
        nothing.lose(1, 1, 0, Mutated::NONE);
        assert!(!nothing.is_torn(), "it had nothing of this site");
        sites.depends_on(1, needs[1]);
        let mut late = sites.clone();
        sites.admit(&[Versionstamp(0), Versionstamp(26), Versionstamp(0)], Versionstamp(50));
        sites.lose(1, 1, 0, Mutated::NONE);
        assert!(sites.is_torn());
        // The first partition has found before that that all have everything.
        sites.whole();
        assert!(sites.is_rebuilding() && !sites.lacks_own() && !sites.is_torn());
        sites.rebuilt();
        assert!(!sites.is_rebuilding() && !sites.is_torn());
        // What the other site has sent may depend on what is not admitted.
        late.whole();
        let mut later = late.clone();
        late.lose(1, 1, 0, Mutated::NONE);
        assert!(late.is_torn() && late.may_have_sent_effects());
        late.whole();
        assert!(late.is_torn(), "whoever has found that all have everything");
        late.rebuild(0, &[2, 1, 0], Versionstamp(9));
        assert!(!late.is_torn());
        // It makes no difference once the site serves.
        later.rebuilt();
        later.lose(1, 1, 0, Mutated::NONE);
        assert!(!later.is_torn());
    }

    /// A site that was lost, and has effects back from site 1 that depend on that up to 20, and on site 2 up to 7. Site 2
    /// had nothing of it, and its clock showed 20.
    fn whole_with_effects() -> Sites {
        let mut sites = Sites::new(3);
        sites.rebuild(0, &[1, 0, 0], Versionstamp(9));
        let needs = [Versionstamp(3), Versionstamp(20), Versionstamp(7)];
        sites.restored(1, b"a", true, Versionstamp(20), &needs);
        sites.depends_on(1, needs[1]);
        let of_other = [Versionstamp(0), Versionstamp(0), Versionstamp(20)];
        sites.restored(2, b"a", true, Versionstamp(20), &of_other);
        sites.whole();
        sites
    }

    #[test]
    fn a_site_is_torn_if_what_its_versions_depend_on_is_lost_at_both_sites_that_had_it() {
        let cut = |cuts: [u64; 3]| cuts.map(Versionstamp);
        for (first, second) in [(1, 2), (2, 1)] {
            let mut sites = whole_with_effects();
            sites.admit(&cut([0, 30, 0]), Versionstamp(50));
            sites.lose(first, 1, 0, Mutated::NONE);
            assert!(!sites.is_torn(), "site {second} has what is lacking, or gets it back");
            let mut has_all = sites.clone();
            sites.lose(second, 1, 0, Mutated::NONE);
            assert!(sites.is_torn() && sites.may_have_sent_effects());
            has_all.admit(&cut([0, 30, 30]), Versionstamp(60));
            has_all.lose(second, 1, 0, Mutated::NONE);
            assert!(!has_all.is_torn(), "it had everything");
        }
        // It is told when it begins that site 2 is lost, and not whether that one has what was there.
        let mut sites = Sites::new(3);
        sites.rebuild(0, &[2, 0, 1], Versionstamp(9));
        sites.restored(1, b"a", true, Versionstamp(20), &[3, 20, 7].map(Versionstamp));
        sites.depends_on(1, Versionstamp(20));
        sites.whole();
        sites.admit(&cut([0, 30, 0]), Versionstamp(50));
        sites.lose(1, 1, 0, Mutated::NONE);
        assert!(sites.is_torn());
        let mut sites = whole_with_effects();
        sites.reach(1, Versionstamp(30));
        sites.lose(1, 1, 0, Mutated::NONE);
        assert!(sites.is_torn(), "another partition perhaps has not got as far");
        let mut sites = whole_with_effects();
        sites.lose(2, 1, 0, Mutated::NONE);
        sites.lose(2, 2, 0, Mutated::NONE);
        assert!(!sites.is_torn(), "site 1 has everything");
        // The others find out late that it had everything.
        sites.lose(1, 1, 0, Mutated::NONE);
        sites.rebuilt();
        assert!(!sites.is_torn() && !sites.may_have_sent_effects());
    }

    #[test]
    fn what_was_admitted_does_not_wait_if_it_comes_again() {
        let mut sites = Sites::new(3);
        sites.admit(&[Versionstamp(0), Versionstamp(7), Versionstamp(0)], Versionstamp(50));
        sites.receive(1, Versionstamp(10), batch(3, 7));
        assert_eq!(sites.admitted_up_to(1, Versionstamp(10)), Versionstamp(10));
    }
}
