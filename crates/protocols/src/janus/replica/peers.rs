//! What a replica knows of the other replicas of its partition: which have executed what, and how far they are.
//!
//! A transaction has *ended* at a partition when all replicas that are counted have executed it
//! ([`super::configure`]). Each replica keeps what others need to execute it until then.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{NodeId, Version};

use super::super::message::{Configuration, Report, Vote, Window};

/// What is known of the other replicas of the partition.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// All of them.
    all: Vec<NodeId>,
    /// The last configuration that is known.
    configuration: Configuration,
    /// When each was last heard of with the copy that is counted.
    heard: BTreeMap<NodeId, Timestamp>,
    /// Their last reports.
    reports: BTreeMap<NodeId, Report>,
    /// By transaction that was executed here and has not ended, the others that have executed it.
    have: BTreeMap<Version, BTreeSet<NodeId>>,
}

impl Peers {
    pub(super) fn new(all: Vec<NodeId>, configuration: Configuration, now: Timestamp) -> Peers {
        let heard = all.iter().map(|peer| (*peer, now)).collect();
        Peers { heard, configuration, all, ..Peers::default() }
    }

    pub(super) fn all(&self) -> &[NodeId] {
        &self.all
    }

    /// Another configuration was chosen.
    pub(super) fn configure(&mut self, configuration: Configuration, now: Timestamp) {
        for peer in &self.all {
            if configuration.copy_of(*peer) != self.configuration.copy_of(*peer) {
                self.heard.insert(*peer, now);
                for have in self.have.values_mut() {
                    have.remove(peer);
                }
            }
        }
        self.configuration = configuration;
    }

    /// The others that are counted.
    fn counted(&self) -> impl Iterator<Item = NodeId> {
        self.all.iter().copied().filter(|peer| self.configuration.copy_of(*peer).is_some())
    }

    /// How many others are not counted.
    pub(super) fn absent(&self) -> usize {
        self.all.len() - self.counted().count()
    }

    pub(super) fn on_report(&mut self, from: NodeId, report: Report, now: Timestamp) {
        if self.configuration.copy_of(from) == Some(report.copy) {
            self.heard.insert(from, now);
        }
        self.reports.insert(from, report);
    }

    /// Whether a replica, with the copy that is counted, was silent for long.
    pub(super) fn is_silent(&self, peer: NodeId, now: Timestamp, after: Duration) -> bool {
        self.heard.get(&peer).is_some_and(|heard| now.since(*heard) > after)
    }

    /// Whether a replica has all data, with the copy that is counted.
    pub(super) fn is_whole(&self, peer: NodeId) -> bool {
        let counted = self.configuration.copy_of(peer);
        let is_whole = |report: &Report| report.is_whole && Some(report.copy) == counted;
        self.reports.get(&peer).is_some_and(is_whole)
    }

    /// The votes of others for the next configuration.
    pub(super) fn voters(&self) -> impl Iterator<Item = &Vote> {
        let number = self.configuration.number;
        let voters = self.reports.values().filter(|report| report.is_voter);
        voters.map(|report| &report.vote).filter(move |vote| vote.chosen.number == number)
    }

    /// Others have executed these transactions.
    pub(super) fn on_have(&mut self, from: NodeId, txns: &[Version]) -> Vec<Version> {
        for txn in txns {
            self.have.entry(*txn).or_default().insert(from);
        }
        txns.iter().copied().filter(|txn| self.has_ended(*txn)).collect()
    }

    /// Whether all that are counted have executed a transaction that was executed here.
    pub(super) fn has_ended(&self, txn: Version) -> bool {
        let have = self.have.get(&txn);
        self.counted().all(|peer| have.is_some_and(|have| have.contains(&peer)))
    }

    /// A transaction has ended.
    pub(super) fn end(&mut self, txn: Version) {
        self.have.remove(&txn);
    }

    /// Forgets who has executed transactions that are not open.
    pub(super) fn prune(&mut self, open: &BTreeSet<Version>) {
        self.have.retain(|txn, _| open.contains(txn));
    }

    /// Those that have not executed a transaction, as far as is known.
    pub(super) fn lack(&self, peer: NodeId, txn: Version) -> bool {
        !self.have.get(&txn).is_some_and(|have| have.contains(&peer))
    }

    /// The report of a replica that is counted, if it has all data and knows the same configuration.
    fn usable_of(&self, peer: NodeId) -> Option<&Report> {
        self.reports.get(&peer).filter(|report| {
            report.is_whole
                && report.vote.chosen.number == self.configuration.number
                && self.configuration.copy_of(peer) == Some(report.copy)
        })
    }

    /// The reports of all replicas that are counted, if they are usable.
    fn usable(&self) -> Option<Vec<&Report>> {
        self.counted().map(|peer| self.usable_of(peer)).collect()
    }

    /// The time before which everything is settled, as far as the others know. They count this replica.
    pub(super) fn settled_us(&self) -> u64 {
        let usable = self.counted().filter_map(|peer| self.usable_of(peer));
        usable.map(|report| report.window.settled_us).max().unwrap_or(0)
    }

    /// The time below which all transactions of the partition have ended, if this replica's own is `below_us`, and the one
    /// below which no other will be taken on, either, if this replica takes on none before `closed_us`.
    pub(super) fn below(&self, below_us: u64, closed_us: u64) -> Option<(u64, u64)> {
        let reports = self.usable()?;
        let of_peers = reports.iter().map(|report| (report.below_us, report.window.closed_us));
        let all = || of_peers.clone().chain([(below_us, closed_us)]);
        let below = all().map(|(below_us, _)| below_us).min()?;
        Some((below, all().map(|(below_us, closed_us)| below_us.min(closed_us)).min()?))
    }

    /// What all that are counted know to be settled, and to be forgotten.
    pub(super) fn floors(&self, window: Window) -> Option<(u64, u64)> {
        let reports = self.usable()?;
        let windows = || reports.iter().map(|report| report.window).chain([window]);
        let settled = windows().map(|window| window.settled_us).min()?;
        Some((settled, windows().map(|window| window.forget_us).min()?))
    }

    /// A replica that has all data, as far as is known.
    pub(super) fn source(&self, attempt: usize) -> Option<NodeId> {
        let latest = self.reports.values().map(|report| report.vote.chosen.number).max();
        let is_able =
            |report: &Report| report.is_whole && Some(report.vote.chosen.number) == latest;
        let is_able = |peer: &&NodeId| self.reports.get(peer).is_some_and(is_able);
        let able: Vec<NodeId> = self.all.iter().filter(is_able).copied().collect();
        (!able.is_empty()).then(|| able[attempt % able.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_firm_when_all_replicas_have_closed_it() {
        let others = [1, 2].map(|member| NodeId::replica(0, member));
        for closed_us in [[30, 50, 60], [60, 30, 50], [50, 60, 30]] {
            let report = |member: usize| Report {
                below_us: 70,
                window: Window { closed_us: closed_us[member], ..Window::default() },
                copy: 0,
                is_whole: true,
                is_voter: true,
                vote: Vote::default(),
                incarnations: Vec::new(),
            };
            let (configuration, now) = (Configuration::default(), Timestamp::default());
            let mut peers = Peers::new(others.to_vec(), configuration, now);
            peers.on_report(others[0], report(1), now);
            assert_eq!(peers.below(80, closed_us[0]), None, "one has not reported");
            peers.on_report(others[1], report(2), now);
            assert_eq!(peers.below(80, closed_us[0]), Some((70, 30)));
        }
    }
}
