//! Replicas that find edges each for itself, and a server that finds them alone.

use rand::seq::IteratorRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serried_procedures::{Body, Footprint, RowAccess, Slot};

use super::super::order::{self, Known};
use super::super::vertex::Edge;
use super::*;

const REPLICAS: usize = 3;
/// The partition of the replicas.
const OWN: u16 = 0;
/// Another partition. It has one replica.
const OTHER: u16 = 1;

/// A use that asks whether a row exists, or deletes the row.
fn of_row(asks: bool, deletes: bool) -> RowUse {
    let (key, reads, exists) = (Vec::new(), Vec::new(), asks.then_some(Slot(0)));
    let rows = vec![RowAccess { table: 0, key, known: 0, reads, exists }];
    let deletes = if deletes { vec![0] } else { Vec::new() };
    let footprint = Footprint::of(&Body { rows, deletes, ..Body::default() });
    *footprint.uses().next().expect("it uses a row")
}

fn any_use(rng: &mut Pcg64Mcg) -> (KnownRow, RowUse) {
    let key = ["a", "aa", "ab", "b"][rng.random_range(0..4)];
    let is_whole = key != "a" || rng.random_bool(0.2);
    let mut some = |chance| -> Vec<u16> { (0..3).filter(|_| rng.random_bool(chance)).collect() };
    let (reads, writes) = (some(0.4), some(0.1));
    let (asks, deletes) = (rng.random_bool(0.1), rng.random_bool(0.04));
    let used = RowUse::of(&reads, &writes).with(of_row(asks, deletes));
    (KnownRow { key: key.into(), is_whole }, used)
}

/// Whether two uses may be of one row, and conflict.
fn conflict((row, used): &(KnownRow, RowUse), (other, others): &(KnownRow, RowUse)) -> bool {
    let (own, key) = (row.key.as_bytes(), other.key.as_bytes());
    let may_be_same = own == key
        || (!row.is_whole && key.starts_with(own))
        || (!other.is_whole && own.starts_with(key));
    may_be_same && used.conflicts(others)
}

struct Txn {
    uses: Vec<(KnownRow, RowUse)>,
    /// By replica, the edges that it has reported.
    reported: [Option<BTreeSet<Version>>; REPLICAS],
    /// The row that it uses at the other partition, if it uses one.
    row_elsewhere: Option<usize>,
    /// The transactions before it at the other partition. None until that has taken it on.
    before_elsewhere: Option<Vec<Version>>,
    /// The edges on which both partitions have agreed.
    agreed: Option<Vec<Edge>>,
    /// Whether it is never executed.
    is_void: bool,
    is_known: [bool; REPLICAS],
    is_executed: [bool; REPLICAS],
    /// Whether a replica has removed it because all have executed it.
    is_forgotten: bool,
    /// The transactions that were executed anywhere before this one began.
    after: Vec<Version>,
    /// The transactions that were forgotten anywhere before partitions have agreed on this one, and all before them.
    /// All replicas have executed them, so this one needs no edges to them.
    settled: BTreeSet<Version>,
}

impl Txn {
    fn conflicts(&self, other: &Txn) -> bool {
        self.uses.iter().any(|own| other.uses.iter().any(|other| conflict(own, other)))
    }

    /// Whether all replicas have executed it, or know that nobody does.
    fn is_over(&self) -> bool {
        !self.is_executed.contains(&false) || (self.is_void && !self.is_known.contains(&false))
    }
}

/// Replicas of a partition that take on, agree on, execute and forget transactions, in random orders.
struct Partition {
    rng: Pcg64Mcg,
    accesses: [Accesses; REPLICAS],
    txns: BTreeMap<Version, Txn>,
    /// By row of the other partition, the transaction that has used it last.
    last_elsewhere: BTreeMap<usize, Version>,
    /// The transactions before this one are over, and none begins before it any more.
    floor: Version,
    /// Whether transactions become void, and are forgotten.
    forgets: bool,
    /// A mistake: a use stands for others also by edges of the other partition.
    counts_all_edges: bool,
}

impl Partition {
    fn new(seed: u64, counts_all_edges: bool) -> Partition {
        Partition {
            rng: Pcg64Mcg::seed_from_u64(seed),
            accesses: core::array::from_fn(|_| Accesses::replicated()),
            txns: BTreeMap::new(),
            last_elsewhere: BTreeMap::new(),
            floor: Version::at(0),
            forgets: seed % 2 == 1,
            counts_all_edges,
        }
    }

    fn begin(&mut self) {
        let count = self.rng.random_range(1..4);
        let uses = (0..count).map(|_| any_use(&mut self.rng)).collect();
        let is_elsewhere = self.rng.random_bool(0.5);
        let row_elsewhere = is_elsewhere.then(|| self.rng.random_range(0..3));
        let is_executed = |txn: &&Txn| txn.is_executed.contains(&true);
        let after = self.txns.iter().filter(|(_, txn)| is_executed(txn)).map(|(at, _)| *at);
        let txn = Txn {
            uses,
            reported: Default::default(),
            row_elsewhere,
            before_elsewhere: (!is_elsewhere).then(Vec::new),
            agreed: None,
            is_void: false,
            is_known: [false; REPLICAS],
            is_executed: [false; REPLICAS],
            is_forgotten: false,
            after: after.collect(),
            settled: BTreeSet::new(),
        };
        // Clocks differ, so transactions are not numbered in the order in which they begin.
        let us = self.txns.len() as u64 * 10 + self.rng.random_range(0..100) * 10;
        let us = us.max(self.floor.timestamp_us);
        let free = (us..).find(|us| !self.txns.contains_key(&Version::at(*us))).unwrap();
        self.txns.insert(Version::at(free), txn);
    }

    /// Does something at a replica, if there is such a thing to do.
    fn step(&mut self, replica: usize) {
        match self.rng.random_range(0..400) {
            0..80 => self.report(replica),
            80..160 => self.agree_on_some(),
            160..240 => self.learn(replica),
            240..320 => self.execute_some(replica),
            320..380 => self.take_on_elsewhere(),
            _ if !self.forgets => {}
            380..399 => self.forget(replica),
            _ => self.make_void(),
        }
    }

    fn report(&mut self, replica: usize) {
        let is_new = |txn: &Txn| {
            let is_known_as_void = txn.is_void && txn.is_known[replica];
            txn.reported[replica].is_none() && txn.agreed.is_none() && !is_known_as_void
        };
        let Some(txn) = self.pick(is_new) else { return };
        let before = self.take_on(txn, replica);
        self.txns.get_mut(&txn).unwrap().reported[replica] = Some(before);
    }

    fn agree_on_some(&mut self) {
        let is_ready = |txn: &Txn| {
            let is_open = txn.agreed.is_none() && !txn.is_void;
            let are_enough = txn.reported.iter().flatten().count() >= 2;
            is_open && are_enough && txn.before_elsewhere.is_some()
        };
        let Some(txn) = self.pick(is_ready) else { return };
        let settled = self.settled();
        let txn = self.txns.get_mut(&txn).unwrap();
        let reports = txn.reported.iter().flatten().sample(&mut self.rng, 2);
        let own: BTreeSet<Version> = reports.into_iter().flatten().copied().collect();
        let edge = |from, at| Edge { from, kind: Kind::Deferred, at };
        let elsewhere = txn.before_elsewhere.iter().flatten();
        let elsewhere = elsewhere.map(|from| edge(*from, OTHER));
        let all = own.into_iter().map(|from| edge(from, OWN)).chain(elsewhere).collect();
        txn.agreed = Some(all);
        txn.settled = settled;
    }

    fn learn(&mut self, replica: usize) {
        let is_news = |txn: &Txn| {
            let is_decided = txn.agreed.is_some() || txn.is_void;
            is_decided && !txn.is_known[replica]
        };
        let Some(txn) = self.pick(is_news) else { return };
        self.txns.get_mut(&txn).unwrap().is_known[replica] = true;
        if self.txns[&txn].is_void {
            self.accesses[replica].remove(txn);
        } else if self.accesses[replica].contains(txn) {
            self.agree(txn, replica);
        }
    }

    fn execute_some(&mut self, replica: usize) {
        let is_open =
            |txn: &Txn| txn.agreed.is_some() && txn.is_known[replica] && !txn.is_executed[replica];
        let Some(txn) = self.pick(is_open) else { return };
        let groups = order::groups(txn, |txn| self.known(txn, replica));
        for txn in groups.into_iter().flatten().flatten() {
            self.execute(txn, replica);
        }
    }

    fn take_on_elsewhere(&mut self) {
        let Some(at) = self.pick(|txn| txn.before_elsewhere.is_none()) else { return };
        let txn = self.txns.get_mut(&at).unwrap();
        let row = txn.row_elsewhere.expect("it uses a row there");
        txn.before_elsewhere = Some(self.last_elsewhere.insert(row, at).into_iter().collect());
    }

    /// A replica removes what is over, as far as everything before it is over, too.
    fn forget(&mut self, replica: usize) {
        let first = self.txns.iter().find(|(_, txn)| !txn.is_over()).map(|(at, _)| *at);
        self.floor = self.floor.max(first.unwrap_or(self.floor));
        let known = self.accesses[replica].txns();
        let old: Vec<Version> = known.take_while(|txn| *txn < self.floor).collect();
        for txn in old {
            self.accesses[replica].remove(txn);
            self.txns.get_mut(&txn).unwrap().is_forgotten = true;
        }
    }

    /// Nobody executes a transaction on which nobody has agreed.
    fn make_void(&mut self) {
        let is_open = |txn: &Txn| txn.agreed.is_none() && !txn.is_void;
        let Some(txn) = self.pick(is_open) else { return };
        self.txns.get_mut(&txn).unwrap().is_void = true;
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
            _ if txn.is_void && txn.is_known[replica] => Known::Decided,
            Some(edges) if txn.is_known[replica] => Known::Committing(edges),
            _ => Known::Open,
        }
    }

    fn agree(&mut self, txn: Version, replica: usize) {
        let edges = self.txns[&txn].agreed.iter().flatten();
        let counted = edges.filter(|edge| edge.at == OWN || self.counts_all_edges);
        let before = counted.map(|edge| edge.from).collect();
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

    /// The transactions that come before others, as has been agreed on, by the edges that count.
    fn ancestors(
        &self,
        mut open: Vec<Version>,
        counts: impl Fn(Version, &Edge) -> bool,
    ) -> BTreeSet<Version> {
        let mut known = BTreeSet::new();
        while let Some(txn) = open.pop() {
            for edge in self.txns[&txn].agreed.iter().flatten() {
                if counts(txn, edge) && known.insert(edge.from) {
                    open.push(edge.from);
                }
            }
        }
        known
    }

    /// The transactions that were forgotten anywhere, and all before them.
    fn settled(&self) -> BTreeSet<Version> {
        let forgotten = self.txns.iter().filter(|(_, txn)| txn.is_forgotten);
        let forgotten: Vec<Version> = forgotten.map(|(at, _)| *at).collect();
        let mut settled = self.ancestors(forgotten.clone(), |_, _| true);
        settled.extend(forgotten);
        assert!(settled.iter().all(|txn| self.txns[txn].is_over()), "{settled:?}");
        settled
    }

    /// Says which transactions are not ordered as they have to be. Otherwise returns how many edges of the partition a
    /// transaction has at most.
    fn check(&self) -> Result<usize, String> {
        let agreed = self.txns.iter().filter(|(_, txn)| txn.agreed.is_some());
        let agreed: Vec<(Version, &Txn)> = agreed.map(|(at, txn)| (*at, txn)).collect();
        assert!(agreed.len() > 80, "{} transactions", agreed.len());
        let all_before = |(at, _): &(Version, &Txn)| (*at, self.ancestors(vec![*at], |_, _| true));
        let all: BTreeMap<Version, BTreeSet<Version>> = agreed.iter().map(all_before).collect();
        // An edge of the other partition counts if it is on a cycle: that is reported as a whole.
        let counts = |txn: Version, edge: &Edge| {
            let is_on_cycle = || all.get(&edge.from).is_some_and(|before| before.contains(&txn));
            edge.at == OWN || is_on_cycle()
        };
        let own_before = |(at, _): &(Version, &Txn)| (*at, self.ancestors(vec![*at], counts));
        let own: BTreeMap<Version, BTreeSet<Version>> = agreed.iter().map(own_before).collect();
        for (at, txn) in &agreed {
            for (other_at, other) in agreed.iter().filter(|(other_at, _)| other_at != at) {
                if !txn.conflicts(other) || other.settled.contains(at) {
                    continue;
                }
                let is_before = all[other_at].contains(at);
                if txn.settled.contains(other_at) {
                    if is_before {
                        return Err(format!("{at} is before {other_at}, which is settled"));
                    }
                    continue;
                }
                let is_after = own[at].contains(other_at);
                if !is_after && !own[other_at].contains(at) {
                    return Err(format!("{at} and {other_at} are in no order"));
                }
                // One that began when the other was executed somewhere comes after it, and not on a cycle with it.
                if txn.after.contains(other_at) && (is_before || !is_after) {
                    return Err(format!("{at} has begun after {other_at}"));
                }
            }
        }
        let is_own = |edge: &&Edge| edge.at == OWN;
        let edges = |(_, txn): &(Version, &Txn)| txn.agreed.iter().flatten().filter(is_own).count();
        Ok(agreed.iter().map(edges).max().unwrap_or(0))
    }
}

fn explore(seed: u64, counts_all_edges: bool) -> Result<usize, String> {
    let mut partition = Partition::new(seed, counts_all_edges);
    let lagging = 2 + seed as usize % 40;
    for step in 0..5000 {
        if step % 20 == 0 && partition.txns.len() < 100 {
            partition.begin();
        }
        let replica = match step % lagging {
            0 => 2,
            _ => partition.rng.random_range(0..2),
        };
        partition.step(replica);
    }
    partition.check()
}

#[test]
fn of_two_that_conflict_one_comes_after_the_other_by_edges_of_their_partition() {
    let mut most = 0;
    for seed in 0..60 {
        match explore(seed, false) {
            Ok(edges) => most = most.max(edges),
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    assert!(most > KEPT_AT_MOST, "nothing was gathered: at most {most} edges");
}

#[test]
fn a_use_that_stands_for_another_one_by_an_edge_of_another_partition_is_found() {
    // Those that forget nothing.
    let mut seeds = (0..20).map(|seed| 2 * seed);
    assert!(seeds.any(|seed| explore(seed, true).is_err()));
}

/// A transaction and all to which edges lead from it.
fn with_ancestors(txn: Version, edges: &BTreeMap<Version, BTreeSet<Version>>) -> BTreeSet<Version> {
    let (mut known, mut open) = (BTreeSet::from([txn]), vec![txn]);
    while let Some(txn) = open.pop() {
        for from in edges.get(&txn).into_iter().flatten() {
            if known.insert(*from) {
                open.push(*from);
            }
        }
    }
    known
}

/// Transactions start pieces one after the other, and are executed and removed with all before them.
#[test]
fn a_use_at_a_server_that_is_alone_comes_after_all_that_conflict_with_it() {
    let mut covered = 0;
    for seed in 0..60 {
        let rng = &mut Pcg64Mcg::seed_from_u64(seed);
        let mut accesses = Accesses::default();
        let mut uses: Vec<(Version, (KnownRow, RowUse))> = Vec::new();
        let mut edges: BTreeMap<Version, BTreeSet<Version>> = BTreeMap::new();
        for us in 1..300 {
            let known = edges.keys().copied().choose(rng);
            if rng.random_bool(0.2) {
                let Some(txn) = known else { continue };
                let gone = with_ancestors(txn, &edges);
                gone.iter().for_each(|txn| accesses.remove(*txn));
                edges.retain(|txn, _| !gone.contains(txn));
                uses.retain(|(txn, _)| !gone.contains(txn));
                let rows: BTreeSet<&Key> = uses.iter().map(|(_, (row, _))| &row.key).collect();
                assert_eq!(accesses.len(), rows.len(), "seed {seed}");
                continue;
            }
            let txn = known.filter(|_| rng.random_bool(0.5)).unwrap_or(Version::at(us));
            let new = any_use(rng);
            let conflicting = uses.iter().filter(|(_, other)| conflict(&new, other));
            let conflicting: BTreeSet<Version> = conflicting.map(|(txn, _)| *txn).collect();
            assert_eq!(accesses.all_conflicts(&new.0, new.1), conflicting, "seed {seed}");
            let found = accesses.conflict(&new.0, new.1);
            let is_right = match found {
                Some(found) => conflicting.contains(&found),
                None => conflicting.is_empty(),
            };
            assert!(is_right, "seed {seed}: {found:?} of {conflicting:?}");
            let before = edges.entry(txn).or_default();
            accesses.add(txn, Kind::Deferred, &new.0, new.1, &mut |other, _| {
                before.insert(other);
            });
            let is_covered = |other: &&Version| **other != txn && !before.contains(*other);
            covered += conflicting.iter().filter(is_covered).count();
            uses.push((txn, new));
            let comes_after = with_ancestors(txn, &edges);
            assert!(conflicting.is_subset(&comes_after), "seed {seed}: {txn}");
        }
    }
    assert!(covered > 100, "{covered}");
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

/// A call has an immediate and a deferred piece that use one row.
#[test]
fn uses_of_one_row_stay_apart_by_kind() {
    let mut accesses = Accesses::default();
    let row = KnownRow { key: "a".into(), is_whole: true };
    let (first, second) = (RowUse::of(&[0], &[0]), RowUse::of(&[1], &[1]));
    let (one, other) = (Version::at(1), Version::at(2));
    accesses.add(one, Kind::Immediate, &row, first, &mut |_, _| panic!("nothing comes before"));
    accesses.add(one, Kind::Deferred, &row, second, &mut |_, _| panic!("nothing comes before"));
    let mut found = Vec::new();
    accesses.add(other, Kind::Deferred, &row, second, &mut |txn, kind| found.push((txn, kind)));
    assert_eq!(found, [(one, Kind::Deferred)]);
}
