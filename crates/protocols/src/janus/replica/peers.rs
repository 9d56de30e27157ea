//! What a replica knows of the other replicas of its partition: which have executed what, and which are counted.
//!
//! A transaction has *ended* at a partition when all replicas that are counted have executed it. Each replica keeps what
//! others need to execute it until then. A replica that was silent for long is not counted any more, if a majority is left.
//! Then the others may forget what it lacks. When it comes back, their reports say that it is not counted, and it copies the
//! data of one of them before it executes anything else.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use serried_actor::Timestamp;
use serried_model::{NodeId, Version};

use super::super::message::{Absent, Report, Window};

/// What is known of the other replicas of the partition.
#[derive(Debug, Default)]
pub(super) struct Peers {
    /// All of them.
    all: Vec<NodeId>,
    /// When each was last heard of.
    heard: BTreeMap<NodeId, Timestamp>,
    /// Their last reports.
    reports: BTreeMap<NodeId, Report>,
    /// Those that are not counted, and how often they had copied data.
    absent: BTreeMap<NodeId, u64>,
    /// By transaction that was executed here and has not ended, the others that have executed it.
    have: BTreeMap<Version, BTreeSet<NodeId>>,
}

impl Peers {
    pub(super) fn new(all: Vec<NodeId>, absent: &[Absent], now: Timestamp) -> Peers {
        let heard = all.iter().map(|peer| (*peer, now)).collect();
        let of =
            |absent: &Absent| all.iter().find(|peer| peer.member() == usize::from(absent.member));
        let absent =
            absent.iter().filter_map(|absent| Some((*of(absent)?, absent.copies))).collect();
        Peers { heard, absent, all, ..Peers::default() }
    }

    pub(super) fn all(&self) -> &[NodeId] {
        &self.all
    }

    pub(super) fn is_heard(&mut self, from: NodeId, now: Timestamp) {
        if let Some(heard) = self.heard.get_mut(&from) {
            *heard = now;
        }
    }

    /// The others that are counted.
    fn counted(&self) -> impl Iterator<Item = NodeId> {
        self.all.iter().copied().filter(|peer| !self.absent.contains_key(peer))
    }

    /// The others that are not counted.
    pub(super) fn absent(&self) -> Vec<Absent> {
        let absent = |(node, copies): (&NodeId, &u64)| Absent {
            member: node.member() as u8,
            copies: *copies,
        };
        self.absent.iter().map(absent).collect()
    }

    /// A replica reports. Returns whether it does not count this one, which has copied data so often.
    pub(super) fn on_report(&mut self, from: NodeId, own: (NodeId, u64), report: Report) -> bool {
        let excludes =
            report.absent.contains(&Absent { member: own.0.member() as u8, copies: own.1 });
        if report.is_whole && self.absent.get(&from).is_some_and(|copies| *copies < report.copies) {
            self.absent.remove(&from);
        }
        self.reports.insert(from, report);
        excludes
    }

    /// A replica has copied all data that is here. It is counted from now on.
    pub(super) fn has_copied(&mut self, from: NodeId) {
        self.absent.remove(&from);
        self.reports.remove(&from);
        for have in self.have.values_mut() {
            have.remove(&from);
        }
    }

    /// Does not count those any more that have been silent for long, if a majority is left.
    pub(super) fn leave_out_silent(&mut self, now: Timestamp, after: Duration, majority: usize) {
        let silent: Vec<NodeId> =
            self.counted().filter(|peer| now.since(self.heard[peer]) > after).collect();
        if 1 + self.counted().count() - silent.len() < majority {
            return;
        }
        for peer in silent {
            let copies = self.reports.get(&peer).map_or(0, |report| report.copies);
            self.absent.insert(peer, copies);
        }
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

    /// The reports of all replicas that are counted, if each of them counts this one, and they are a majority together
    /// with it.
    fn usable(&self, own: (NodeId, u64), majority: usize) -> Option<Vec<&Report>> {
        let reports: Option<Vec<&Report>> =
            self.counted().map(|peer| self.reports.get(&peer)).collect();
        let is_counted = |report: &&Report| {
            report.is_whole
                && !report.absent.iter().any(|absent| usize::from(absent.member) == own.0.member())
        };
        reports.filter(|all| all.len() + 1 >= majority && all.iter().all(is_counted))
    }

    /// The time below which all transactions of the partition have ended, and below which no other begins, if this
    /// replica's own is `below_us`.
    pub(super) fn below(&self, own: (NodeId, u64), majority: usize, below_us: u64) -> Option<u64> {
        let reports = self.usable(own, majority)?;
        Some(reports.iter().map(|report| report.below_us).chain([below_us]).min().unwrap_or(0))
    }

    /// What all that are counted know to be settled, and to be forgotten.
    pub(super) fn floors(
        &self,
        own: (NodeId, u64),
        majority: usize,
        window: Window,
    ) -> Option<(u64, u64)> {
        let reports = self.usable(own, majority)?;
        let windows = || reports.iter().map(|report| report.window).chain([window]);
        let settled = windows().map(|window| window.settled_us).min()?;
        Some((settled, windows().map(|window| window.forget_us).min()?))
    }

    /// A replica that has all data, and in which everything has settled that began up to `latest_us`.
    pub(super) fn source(&self, latest_us: u64, attempt: usize) -> Option<NodeId> {
        let is_able = |peer: &&NodeId| {
            self.reports.get(peer).is_some_and(|report| {
                report.is_whole && (latest_us == 0 || report.window.settled_us > latest_us)
            })
        };
        let able: Vec<NodeId> = self.all.iter().filter(is_able).copied().collect();
        (!able.is_empty()).then(|| able[attempt % able.len()])
    }
}
