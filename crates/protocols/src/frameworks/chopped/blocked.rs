//! Which transactions wait for which ancestors, and which can be executed next.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_model::Version;

use super::order::{self, Known};
use super::vertex::Edge;

/// Servers are far away from each other if a round trip takes at least this long.
pub(crate) const FAR: Duration = Duration::from_millis(5);

/// What a server knows of the transactions that it may execute.
pub(crate) trait View {
    /// What is known of a transaction.
    fn known(&self, txn: Version) -> Known<'_>;

    /// Whether a transaction is to be executed at this server.
    fn is_here(&self, txn: Version) -> bool;

    /// Whether a round trip to other servers takes so long that all questions are sent at once. Otherwise each waits for the
    /// answer to the one before, which mostly answers it: that takes fewer messages.
    fn is_far(&self) -> bool;

    /// Whether an ancestor will never be executed, although an edge says that it has pieces at partition `at`.
    fn is_void(&self, _ancestor: Version, _at: u16) -> bool {
        false
    }
}

/// What is next for a transaction that commits.
#[derive(Debug)]
pub(crate) enum Next {
    /// These are executed now, in this order: it alone, or all that are on a cycle with it.
    Execute(Vec<Version>),
    /// It waits for an ancestor.
    Wait {
        /// The ancestors for whose edges this server asks now: this one, if they are not complete here, and others if
        /// [`View::is_far`].
        missing: Vec<Missing>,
        /// An ancestor that has to be looked at, since perhaps nobody has: it has no pieces here.
        look_at: Option<Version>,
    },
    /// This ancestor will never be executed.
    Void(Version),
}

/// An ancestor whose edges are not complete here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    /// The ancestor.
    pub(crate) txn: Version,
    /// A partition that knows it.
    pub(crate) at: u16,
}

/// The transactions that commit and can't be executed yet, each with one ancestor that has to be executed before.
///
/// That ancestor may wait for another one in turn. They never wait in a circle: a transaction whose ancestor waits for it is
/// on a cycle of edges with that one, and is not blocked by it.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    /// By ancestor, a partition that knows it, and those that wait for it. Some of them may wait no longer.
    by: BTreeMap<Version, (u16, Vec<Version>)>,
    /// By transaction that waits, the ancestor.
    causes: BTreeMap<Version, Version>,
}

impl Blocked {
    /// What is next for a transaction that commits. If it waits, that is noted.
    ///
    /// Each transaction waits for one ancestor at a time. If that ancestor waits for the transaction in turn, all that wait
    /// in between are on a cycle, and go on as one group. When no edge of the group leads to anything else that is open, the
    /// group is complete: it is a strongly connected component of the graph, and all of its ancestors are executed. So each
    /// edge is looked at few times, however many transactions wait.
    pub(crate) fn next(&mut self, txn: Version, view: &impl View) -> Next {
        self.unblock(txn);
        let mut group = vec![txn];
        let mut looked_at = 0;
        while let Some(member) = group.get(looked_at).copied() {
            looked_at += 1;
            let edges = open_edges(member, view);
            for Edge { from, at, .. } in edges.iter().copied() {
                if group.contains(&from) {
                    continue;
                }
                if view.known(from) == Known::Open {
                    if view.is_void(from, at) {
                        return Next::Void(from);
                    }
                    // It may be noted as waiting from a time when more was known of it, and for this transaction.
                    self.unblock(from);
                    return self.wait(txn, (from, at), &edges, None, view);
                }
                let waits_for_group = self.chain(from).position(|next| group.contains(&next));
                let Some(length) = waits_for_group else {
                    let last = self.chain(from).last();
                    return self.wait(txn, (from, at), &edges, last, view);
                };
                let chain: Vec<Version> = self.chain(from).take(length).collect();
                if let Some(wanting) = chain.iter().find(|next| view.known(**next) == Known::Open) {
                    // It is not known any more what it does.
                    let at = self.by.get(wanting).map_or(at, |(at, _)| *at);
                    self.unblock(*wanting);
                    return self.wait(txn, (*wanting, at), &edges, None, view);
                }
                group.extend(chain);
            }
        }
        group.iter().for_each(|member| self.unblock(*member));
        Next::Execute(order::sorted(group, &|txn| view.known(txn)))
    }

    fn wait(
        &mut self,
        txn: Version,
        by: (Version, u16),
        edges: &[Edge],
        look_at: Option<Version>,
        view: &impl View,
    ) -> Next {
        self.block(txn, by);
        let others = if view.is_far() { edges } else { &[] };
        let others = others.iter().map(|edge| (edge.from, edge.at)).filter(|other| other.0 != by.0);
        let missing = [by].into_iter().chain(others);
        let missing = missing.filter(|(txn, _)| view.known(*txn) == Known::Open);
        let missing = missing.map(|(txn, at)| Missing { txn, at }).collect();
        Next::Wait { missing, look_at }
    }

    /// A transaction waits for an ancestor, which is known at a partition.
    fn block(&mut self, txn: Version, (by, at): (Version, u16)) {
        debug_assert!(self.chain(by).take(1000).all(|next| next != txn), "{txn} waits for itself");
        if self.causes.insert(txn, by).is_none_or(|cause| cause != by) {
            self.by.entry(by).or_insert((at, Vec::new())).1.push(txn);
        }
    }

    /// A transaction waits no longer.
    pub(crate) fn unblock(&mut self, txn: Version) {
        self.causes.remove(&txn);
    }

    /// Whether a transaction waits for an ancestor.
    pub(crate) fn waits(&self, txn: Version) -> bool {
        self.causes.contains_key(&txn)
    }

    /// The transaction, the ancestor for which it waits, that ancestor's, and so on.
    fn chain(&self, txn: Version) -> impl Iterator<Item = Version> {
        core::iter::successors(Some(txn), |txn| self.causes.get(txn).copied())
    }

    /// An ancestor is executed, or never will be. Returns the transactions that have waited for it.
    pub(crate) fn release(&mut self, by: Version) -> Vec<Version> {
        let (_, mut waiting) = self.by.remove(&by).unwrap_or_default();
        waiting.retain(|txn| match self.causes.get(txn) {
            Some(cause) if *cause == by => self.causes.remove(txn).is_some(),
            _ => false,
        });
        waiting
    }

    /// The ancestors, each with a partition that knows it.
    pub(crate) fn ancestors(&self) -> Vec<(Version, u16)> {
        self.by.iter().map(|(by, (at, _))| (*by, *at)).collect()
    }

    /// Whether something waits for an ancestor.
    pub(crate) fn waits_for(&self, by: Version) -> bool {
        self.by.contains_key(&by)
    }

    /// Forgets the transactions that are not to be executed any more.
    pub(crate) fn retain(&mut self, is_open: impl Fn(Version) -> bool) {
        self.causes.retain(|txn, _| is_open(*txn));
        self.by.retain(|by, (_, waiting)| {
            waiting.retain(|txn| self.causes.get(txn) == Some(by));
            !waiting.is_empty()
        });
    }

    pub(crate) fn clear(&mut self) {
        *self = Blocked::default();
    }
}

/// The edges of a transaction to others that have to be executed before, the newest first.
fn open_edges(txn: Version, view: &impl View) -> Vec<Edge> {
    let (edges, on_cycle) = match view.known(txn) {
        Known::Committing(edges) => (edges, None),
        Known::OnCycle(edges, cycle) => (edges, Some(cycle)),
        Known::Decided | Known::Open => return Vec::new(),
    };
    let is_relevant = |edge: &&Edge| {
        on_cycle.is_none_or(|cycle| cycle.contains(&edge.from) || view.is_here(edge.from))
    };
    let relevant = edges.iter().rev().filter(is_relevant);
    relevant.filter(|edge| view.known(edge.from) != Known::Decided).copied().collect()
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;
    use std::collections::BTreeSet;

    use rand::seq::IteratorRandom;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::super::vertex::Kind;
    use super::*;

    use Kind::{Deferred, Immediate};

    /// Transactions that commit with edges, and those of them that are decided. All from 90 on are decided, too.
    struct Commits<'a>(&'a [(u64, Vec<Edge>)], RefCell<BTreeSet<Version>>);

    /// The same at a server to which others are near.
    struct Near<'a>(&'a Commits<'a>);

    impl View for Near<'_> {
        fn known(&self, txn: Version) -> Known<'_> {
            self.0.known(txn)
        }

        fn is_here(&self, txn: Version) -> bool {
            self.0.is_here(txn)
        }

        fn is_far(&self) -> bool {
            false
        }
    }

    impl View for Commits<'_> {
        fn known(&self, txn: Version) -> Known<'_> {
            if txn.timestamp_us >= 90 || self.1.borrow().contains(&txn) {
                return Known::Decided;
            }
            match self.0.iter().find(|(us, _)| *us == txn.timestamp_us) {
                Some((_, edges)) => Known::Committing(edges),
                None => Known::Open,
            }
        }

        fn is_here(&self, _: Version) -> bool {
            true
        }

        fn is_far(&self) -> bool {
            true
        }
    }

    fn edge(from: u64, kind: Kind) -> Edge {
        Edge { from: Version::at(from), kind, at: 3 }
    }

    /// What was executed, in groups, and what is missing.
    #[derive(Default)]
    struct Executed {
        groups: Vec<Vec<Version>>,
        missing: BTreeSet<u64>,
    }

    impl Executed {
        fn execute_all(&mut self, txn: Version, blocked: &mut Blocked, view: &Commits<'_>) {
            let mut open = vec![txn];
            while let Some(txn) = open.pop() {
                match view.known(txn) {
                    Known::Decided => open.extend(blocked.release(txn)),
                    Known::Open => {}
                    Known::Committing(_) | Known::OnCycle(..) => match blocked.next(txn, view) {
                        Next::Execute(group) => {
                            view.1.borrow_mut().extend(group.iter().copied());
                            open.extend(group.iter().copied());
                            self.groups.push(group);
                        }
                        Next::Wait { missing, look_at } => {
                            assert!(missing.iter().all(|missing| missing.at == 3));
                            let missing = missing.iter().map(|missing| missing.txn.timestamp_us);
                            self.missing.extend(missing);
                            open.extend(look_at);
                        }
                        Next::Void(_) => unreachable!(),
                    },
                }
            }
        }
    }

    /// What is executed up to transaction 1, or what is missing.
    fn executed(all: &[(u64, Vec<Edge>)]) -> Result<Vec<Vec<u64>>, BTreeSet<u64>> {
        let view = Commits(all, RefCell::default());
        let mut executed = Executed::default();
        executed.execute_all(Version::at(1), &mut Blocked::default(), &view);
        let Executed { groups, missing } = executed;
        let us = |group: Vec<Version>| group.into_iter().map(|txn| txn.timestamp_us).collect();
        if missing.is_empty() { Ok(groups.into_iter().map(us).collect()) } else { Err(missing) }
    }

    #[test]
    fn what_has_no_undecided_ancestor_is_executed_alone() {
        assert_eq!(executed(&[(1, vec![])]), Ok(vec![vec![1]]));
        assert_eq!(executed(&[(1, vec![edge(91, Deferred)])]), Ok(vec![vec![1]]));
        assert_eq!(executed(&[]), Ok(vec![]), "it does not commit");
    }

    #[test]
    fn ancestors_come_first_and_all_that_are_open_are_missing() {
        let chain = [(1, vec![edge(2, Deferred)]), (2, vec![edge(3, Deferred)]), (3, vec![])];
        assert_eq!(executed(&chain), Ok(vec![vec![3], vec![2], vec![1]]));
        assert_eq!(executed(&chain[..2]), Err([3].into()));
        let two = [(1, vec![edge(5, Deferred), edge(2, Immediate)]), (2, vec![edge(6, Deferred)])];
        assert_eq!(executed(&two), Err([5, 6].into()));
    }

    /// Of two that are missing, a server to which others are near asks for the one that is looked at first.
    #[test]
    fn one_ancestor_is_asked_for_at_a_time_if_servers_are_near() {
        let two = [(1, vec![edge(5, Deferred), edge(6, Deferred)])];
        let far = Commits(&two, RefCell::default());
        let missing = |next: Next| match next {
            Next::Wait { missing, .. } => missing.into_iter().map(|missing| missing.txn).collect(),
            other => panic!("{other:?}"),
        };
        let [one, fifth, sixth] = [1, 5, 6].map(Version::at);
        let all: Vec<Version> = missing(Blocked::default().next(one, &far));
        assert_eq!(all, [sixth, fifth]);
        let mut blocked = Blocked::default();
        assert_eq!(missing(blocked.next(one, &Near(&far))), [sixth]);
        far.1.borrow_mut().insert(sixth);
        assert_eq!(blocked.release(sixth), [one]);
        assert_eq!(missing(blocked.next(one, &Near(&far))), [fifth]);
    }

    /// 3 and 2 wait for 1 in the end. Then 1 comes after 2, and what 3 does was forgotten.
    #[test]
    fn one_that_is_open_again_is_asked_for_where_it_was_known() {
        let to = |from, at| Edge { at, ..edge(from, Deferred) };
        let before = [(2, vec![to(3, 4)]), (3, vec![to(1, 5)])];
        let after = [(1, vec![to(2, 3)]), (2, vec![to(3, 4)])];
        let [before, after] = [&before, &after].map(|all| Commits(all, RefCell::default()));
        let [one, two, three] = [1, 2, 3].map(Version::at);
        let missing = |next: Next| match next {
            Next::Wait { missing, .. } => missing,
            other => panic!("{other:?}"),
        };
        let mut blocked = Blocked::default();
        assert_eq!(missing(blocked.next(three, &before)), [Missing { txn: one, at: 5 }]);
        assert_eq!(missing(blocked.next(two, &before)), []);
        let again = missing(blocked.next(one, &Near(&after)));
        assert_eq!(again, [Missing { txn: three, at: 4 }]);
    }

    #[test]
    fn a_cycle_is_a_group_in_the_order_of_immediate_edges_and_then_of_versions() {
        let cycle = |kind| {
            [(1, vec![edge(2, Deferred)]), (2, vec![edge(3, kind)]), (3, vec![edge(1, kind)])]
        };
        assert_eq!(executed(&cycle(Deferred)), Ok(vec![vec![1, 2, 3]]));
        assert_eq!(executed(&cycle(Immediate)), Ok(vec![vec![1, 3, 2]]));
    }

    /// Each of three comes after the next one in a circle, and one of them comes after another one, which commits last.
    #[test]
    fn a_cycle_waits_for_what_comes_before_any_of_its_members() {
        for member in 0..3 {
            let mut all = vec![
                (1, vec![edge(2, Deferred)]),
                (2, vec![edge(3, Deferred)]),
                (3, vec![edge(1, Deferred)]),
            ];
            // This edge is looked at last.
            all[member].1.insert(0, edge(4, Deferred));
            let (mut blocked, mut executed) = (Blocked::default(), Executed::default());
            let view = Commits(&all, RefCell::default());
            executed.execute_all(Version::at(1), &mut blocked, &view);
            assert!(executed.groups.is_empty(), "{:?}", executed.groups);
            assert_eq!(executed.missing, BTreeSet::from([4]));
            all.push((4, Vec::new()));
            let view = Commits(&all, RefCell::default());
            executed.execute_all(Version::at(4), &mut blocked, &view);
            let groups = [vec![4], vec![1, 2, 3]].into_iter();
            let groups = groups.map(|group| group.into_iter().map(Version::at).collect());
            assert_eq!(executed.groups, groups.collect::<Vec<Vec<Version>>>());
        }
    }

    /// Transactions 1 and 2 were executed on a cycle elsewhere. Those up to 3 are to be executed here.
    struct ExecutedElsewhere {
        edges: [Vec<Edge>; 2],
        cycle: [Version; 2],
        third_is_decided: bool,
    }

    impl View for ExecutedElsewhere {
        fn known(&self, txn: Version) -> Known<'_> {
            match txn.timestamp_us {
                1 => Known::OnCycle(&self.edges[0], &self.cycle),
                2 => Known::OnCycle(&self.edges[1], &self.cycle),
                3 if self.third_is_decided => Known::Decided,
                _ => Known::Open,
            }
        }

        fn is_here(&self, txn: Version) -> bool {
            txn.timestamp_us <= 3
        }

        fn is_far(&self) -> bool {
            true
        }
    }

    /// The second one comes after two others, of which one is to be executed here.
    #[test]
    fn a_cycle_that_was_executed_elsewhere_waits_for_what_comes_before_it_here() {
        let [one, other, third] = [1, 2, 3].map(Version::at);
        let edges = [
            vec![edge(2, Deferred)],
            vec![edge(1, Deferred), edge(3, Deferred), edge(4, Deferred)],
        ];
        let mut view = ExecutedElsewhere { edges, cycle: [one, other], third_is_decided: false };
        let mut blocked = Blocked::default();
        let missing = |next: Next| match next {
            Next::Wait { missing, .. } => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(blocked.next(one, &view)), [], "it waits for the other one");
        let waits_for = missing(blocked.next(other, &view));
        assert_eq!(waits_for, [Missing { txn: third, at: 3 }]);
        view.third_is_decided = true;
        assert_eq!(blocked.release(third), [other]);
        match blocked.next(other, &view) {
            Next::Execute(group) => assert_eq!(group, [one, other]),
            next => panic!("{next:?}"),
        }
    }

    #[test]
    fn the_order_does_not_depend_on_how_the_graph_arrived() {
        let mut all = vec![
            (1, vec![edge(2, Deferred), edge(4, Immediate)]),
            (2, vec![edge(3, Deferred), edge(1, Deferred)]),
            (3, vec![edge(2, Deferred), edge(4, Deferred)]),
            (4, vec![edge(5, Deferred)]),
            (5, vec![edge(4, Deferred)]),
        ];
        let wanted = executed(&all);
        assert_eq!(wanted, Ok(vec![vec![4, 5], vec![1, 2, 3]]));
        for _ in 0..all.len() {
            all.rotate_left(1);
            all.iter_mut().for_each(|(_, edges)| edges.reverse());
            assert_eq!(executed(&all), wanted);
        }
    }

    #[test]
    fn false_edges_stop_nobody() {
        let cycle = [(1, vec![edge(2, Immediate)]), (2, vec![edge(1, Immediate)])];
        assert_eq!(executed(&cycle), Ok(vec![vec![1, 2]]));
    }

    /// Transactions commit in any order. Whatever waits for what meanwhile, the groups are those of the whole graph.
    #[test]
    fn groups_are_the_strongly_connected_components_however_commits_arrive() {
        let mut largest = 0;
        for seed in 0..300 {
            let random = &mut Pcg64Mcg::seed_from_u64(seed);
            let count = random.random_range(2..30);
            let all: Vec<(u64, Vec<Edge>)> = (0..count)
                .map(|txn| {
                    let froms = (0..count).filter(|from| *from != txn);
                    let drawn = froms.filter(|_| random.random_bool(1.5 / count as f64));
                    (txn, drawn.map(|from| edge(from, Deferred)).collect())
                })
                .collect();
            let whole = Commits(&all, RefCell::default());
            let (mut blocked, mut executed) = (Blocked::default(), Executed::default());
            let mut arrived: Vec<(u64, Vec<Edge>)> = Vec::new();
            let mut decided = BTreeSet::new();
            while arrived.len() < all.len() {
                let has_arrived = |txn: &u64| arrived.iter().any(|(known, _)| known == txn);
                let next = (0..count).filter(|txn| !has_arrived(txn)).choose(random).unwrap();
                arrived.push(all[next as usize].clone());
                let view = Commits(&arrived, RefCell::new(decided));
                executed.execute_all(Version::at(next), &mut blocked, &view);
                decided = view.1.into_inner();
            }
            assert_eq!(decided.len(), all.len(), "seed {seed}");
            let place = |txn: Version| {
                executed.groups.iter().position(|group| group.contains(&txn)).unwrap()
            };
            for txn in (0..count).map(Version::at) {
                let groups = order::groups(txn, |txn| whole.known(txn)).unwrap();
                let own = groups.iter().find(|group| group.contains(&txn)).unwrap();
                assert_eq!(&executed.groups[place(txn)], own, "seed {seed}");
                assert!(groups.iter().flatten().all(|before| place(*before) <= place(txn)));
                largest = largest.max(own.len());
            }
        }
        assert!(largest > 5, "{largest}");
    }
}
