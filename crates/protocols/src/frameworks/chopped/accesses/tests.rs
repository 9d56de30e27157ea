//! Replicas that find edges each for itself.

use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::order::{self, Known};
use super::super::vertex::Edge;
use super::*;

const REPLICAS: usize = 3;

struct Txn {
    uses: Vec<(KnownRow, RowUse)>,
    /// By replica, the edges that it has reported.
    reported: [Option<BTreeSet<Version>>; REPLICAS],
    /// The edges on which replicas have agreed.
    agreed: Option<Vec<Edge>>,
    is_known: [bool; REPLICAS],
    is_executed: [bool; REPLICAS],
    /// The transactions that were executed anywhere before this one began.
    after: Vec<Version>,
}

impl Txn {
    fn conflicts(&self, other: &Txn) -> bool {
        let conflict = |(row, used): &(KnownRow, RowUse), (other, others): &(KnownRow, RowUse)| {
            let (own, key) = (row.key.as_bytes(), other.key.as_bytes());
            let may_be_same = own == key
                || (!row.is_whole && key.starts_with(own))
                || (!other.is_whole && own.starts_with(key));
            may_be_same && used.conflicts(others)
        };
        self.uses.iter().any(|own| other.uses.iter().any(|other| conflict(own, other)))
    }
}

/// Replicas of a partition that take on, agree on and execute transactions, in random orders.
struct Partition {
    rng: Pcg64Mcg,
    accesses: [Accesses; REPLICAS],
    txns: BTreeMap<Version, Txn>,
}

impl Partition {
    fn new(seed: u64) -> Partition {
        let accesses = core::array::from_fn(|_| Accesses::replicated());
        Partition { rng: Pcg64Mcg::seed_from_u64(seed), accesses, txns: BTreeMap::new() }
    }

    fn begin(&mut self) {
        let mut uses = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let key = ["a", "aa", "ab", "b"][self.rng.random_range(0..4)];
            let is_whole = key != "a" || self.rng.random_bool(0.2);
            let mut some =
                |chance| -> Vec<u16> { (0..3).filter(|_| self.rng.random_bool(chance)).collect() };
            let (reads, writes) = (some(0.4), some(0.1));
            uses.push((KnownRow { key: key.into(), is_whole }, RowUse::of(&reads, &writes)));
        }
        let is_executed = |txn: &&Txn| txn.is_executed.contains(&true);
        let after = self.txns.iter().filter(|(_, txn)| is_executed(txn)).map(|(at, _)| *at);
        let txn = Txn {
            uses,
            reported: Default::default(),
            agreed: None,
            is_known: [false; REPLICAS],
            is_executed: [false; REPLICAS],
            after: after.collect(),
        };
        // Clocks differ, so transactions are not numbered in the order in which they begin.
        let us = self.txns.len() as u64 * 10 + self.rng.random_range(0..100) * 10;
        let free = (us..).find(|us| !self.txns.contains_key(&Version::at(*us))).unwrap();
        self.txns.insert(Version::at(free), txn);
    }

    /// Does something at a replica, if there is such a thing to do.
    fn step(&mut self, replica: usize) {
        match self.rng.random_range(0..4) {
            0 => {
                let is_new = |txn: &Txn| txn.reported[replica].is_none() && txn.agreed.is_none();
                let Some(txn) = self.pick(is_new) else { return };
                let before = self.take_on(txn, replica);
                self.txns.get_mut(&txn).unwrap().reported[replica] = Some(before);
            }
            1 => {
                let is_ready =
                    |txn: &Txn| txn.agreed.is_none() && txn.reported.iter().flatten().count() >= 2;
                let Some(txn) = self.pick(is_ready) else { return };
                let txn = self.txns.get_mut(&txn).unwrap();
                let reports = txn.reported.iter().flatten().sample(&mut self.rng, 2);
                let before: BTreeSet<Version> = reports.into_iter().flatten().copied().collect();
                let edge = |from| Edge { from, kind: Kind::Deferred, at: 0 };
                txn.agreed = Some(before.into_iter().map(edge).collect());
            }
            2 => {
                let is_news = |txn: &Txn| txn.agreed.is_some() && !txn.is_known[replica];
                let Some(txn) = self.pick(is_news) else { return };
                self.txns.get_mut(&txn).unwrap().is_known[replica] = true;
                if self.accesses[replica].contains(txn) {
                    self.agree(txn, replica);
                }
            }
            _ => {
                let is_open = |txn: &Txn| txn.is_known[replica] && !txn.is_executed[replica];
                let Some(txn) = self.pick(is_open) else { return };
                let groups = order::groups(txn, |txn| self.known(txn, replica));
                for txn in groups.into_iter().flatten().flatten() {
                    self.execute(txn, replica);
                }
            }
        }
    }

    /// Returns the transactions that come before this one.
    fn take_on(&mut self, txn: Version, replica: usize) -> BTreeSet<Version> {
        let mut before = BTreeSet::new();
        for (row, used) in &self.txns[&txn].uses {
            self.accesses[replica].add(txn, Kind::Deferred, row, *used, &mut |other, _| {
                before.insert(other);
            });
        }
        before
    }

    fn pick(&mut self, is_wanted: impl Fn(&Txn) -> bool) -> Option<Version> {
        let wanted = self.txns.iter().filter(|(_, txn)| is_wanted(txn)).map(|(at, _)| *at);
        wanted.choose(&mut self.rng)
    }

    fn known(&self, txn: Version, replica: usize) -> Known<'_> {
        let txn = &self.txns[&txn];
        match &txn.agreed {
            _ if txn.is_executed[replica] => Known::Decided,
            Some(edges) if txn.is_known[replica] => Known::Committing(edges),
            _ => Known::Open,
        }
    }

    fn agree(&mut self, txn: Version, replica: usize) {
        let edges = self.txns[&txn].agreed.iter().flatten();
        let before = edges.map(|edge| edge.from).collect();
        self.accesses[replica].agree(txn, &before);
    }

    fn execute(&mut self, txn: Version, replica: usize) {
        if !self.accesses[replica].contains(txn) {
            self.take_on(txn, replica);
        }
        self.agree(txn, replica);
        self.accesses[replica].settle(txn);
        self.txns.get_mut(&txn).unwrap().is_executed[replica] = true;
    }

    /// The transactions that come before one, as has been agreed on.
    fn ancestors(&self, txn: Version) -> BTreeSet<Version> {
        let (mut known, mut open) = (BTreeSet::new(), vec![txn]);
        while let Some(txn) = open.pop() {
            for edge in self.txns[&txn].agreed.iter().flatten() {
                if known.insert(edge.from) {
                    open.push(edge.from);
                }
            }
        }
        known
    }
}

#[test]
fn of_two_that_conflict_one_comes_after_the_other_as_agreed() {
    let mut most = 0;
    for seed in 0..60 {
        let mut partition = Partition::new(seed);
        let lagging = 2 + seed as usize % 40;
        for step in 0..8000 {
            if step % 20 == 0 && partition.txns.len() < 150 {
                partition.begin();
            }
            let replica = match step % lagging {
                0 => 2,
                _ => partition.rng.random_range(0..2),
            };
            partition.step(replica);
        }
        let agreed: Vec<_> =
            partition.txns.iter().filter(|(_, txn)| txn.agreed.is_some()).collect();
        assert!(agreed.len() > 100, "seed {seed}: {} transactions", agreed.len());
        for (at, txn) in &agreed {
            most = most.max(txn.agreed.iter().flatten().count());
            let before = partition.ancestors(**at);
            for (other_at, other) in agreed.iter().filter(|(other, _)| *other != *at) {
                if !txn.conflicts(other) {
                    continue;
                }
                let is_ordered =
                    before.contains(other_at) || partition.ancestors(**other_at).contains(at);
                assert!(is_ordered, "seed {seed}: {at} and {other_at}");
                // One that began when the other was executed somewhere comes after it, and not on a cycle with it.
                if txn.after.contains(other_at) {
                    assert!(before.contains(other_at), "seed {seed}: {at} after {other_at}");
                    let others = partition.ancestors(**other_at);
                    assert!(!others.contains(at), "seed {seed}: {at} before {other_at}");
                }
            }
        }
    }
    assert!(most > KEPT_AT_MOST, "nothing was gathered: at most {most} edges");
}

#[test]
fn a_lagging_replica_does_not_add_to_the_edges_of_those_that_come_later() {
    for key in ["row", "prefix"] {
        let row = KnownRow { key: key.into(), is_whole: key == "row" };
        let mut accesses = Accesses::replicated();
        let edges = |accesses: &mut Accesses, us, row: &KnownRow, used| {
            let mut before = BTreeSet::new();
            accesses.add(Version::at(us), Kind::Deferred, row, used, &mut |other, _| {
                before.insert(other);
            });
            before
        };
        let read = RowUse::of(&[1], &[]);
        let mut all = 0;
        for us in 0..1000 {
            let before = edges(&mut accesses, us, &row, read);
            all += before.len();
            accesses.agree(Version::at(us), &before);
            accesses.settle(Version::at(us));
        }
        assert!(all < 1100, "{all} edges of 1000 transactions");
        let write = RowUse::of(&[], &[1]);
        let before = edges(&mut accesses, 2000, &row, write);
        assert!(before.len() <= KEPT_AT_MOST + 1, "{} edges", before.len());
        // The same for one that may use many rows.
        if row.is_whole {
            continue;
        }
        for us in 3000..3500 {
            let one = KnownRow { key: format!("prefix{us}").into(), is_whole: true };
            let before = edges(&mut accesses, us, &one, RowUse::of(&[1], &[1]));
            accesses.agree(Version::at(us), &before);
            accesses.settle(Version::at(us));
        }
        let many = edges(&mut accesses, 4000, &row, read);
        assert!(many.len() >= 500);
        accesses.agree(Version::at(4000), &many);
        let few = edges(&mut accesses, 5000, &row, read);
        assert!(few.len() <= KEPT_AT_MOST + 1, "{} edges", few.len());
        let one = KnownRow { key: "prefix3000".into(), is_whole: true };
        let before = edges(&mut accesses, 6000, &one, read);
        assert!(before.contains(&Version::at(4000)) && !before.contains(&Version::at(3000)));
    }
}
