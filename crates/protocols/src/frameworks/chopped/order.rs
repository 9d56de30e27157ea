//! In which order transactions are executed (002 §3.2, Fig. 7).
//!
//! A server knows of each transaction which others came before it: its *edges*. They are complete once the transaction
//! commits, since all of its pieces have been started then. A transaction is executed when the edges of all of its
//! ancestors are complete. From then on every server knows the same graph. Transactions on a cycle form a group, a
//! strongly connected component. Groups are executed in the order of the graph. Within a group, the immediate edges
//! decide, since immediate pieces have been executed in their order; otherwise the versions of the transactions do.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use serried_model::Version;

use super::vertex::{Edge, Kind};

/// What a server knows of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known<'g> {
    /// It is executed here, or nothing of it is to be executed here any more.
    Decided,
    /// It commits: these are all transactions before it.
    Committing(&'g [Edge]),
    /// Another server has executed it, with these others on a cycle. So all other transactions before it are decided. Those
    /// have to be executed first that are not executed here.
    OnCycle(&'g [Edge], &'g [Version]),
    /// More edges may come.
    Open,
}

/// An ancestor whose edges are not complete here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    /// The ancestor.
    pub(crate) txn: Version,
    /// A partition that knows it.
    pub(crate) at: u16,
}

/// How many further edges are looked at once an ancestor is known to be missing. There may be many more.
const MORE_AT_MOST: usize = 256;

/// Returns the groups that are to be executed up to and with that of `txn`, in their order, or some of what is missing to
/// know them. `is_here` is whether a transaction waits to be executed at this server.
pub(crate) fn groups<'g>(
    txn: Version,
    known: impl Fn(Version) -> Known<'g>,
    is_here: impl Fn(Version) -> bool,
) -> Result<Vec<Vec<Version>>, Vec<Missing>> {
    let (edges, on_cycle) = match known(txn) {
        Known::Committing(edges) => (edges, None),
        Known::OnCycle(edges, cycle) => (edges, Some(cycle)),
        Known::Decided | Known::Open => return Ok(Vec::new()),
    };
    if edges.iter().all(|edge| known(edge.from) == Known::Decided) {
        return Ok(vec![vec![txn]]);
    }
    let mut graph = DiGraph::<Version, ()>::new();
    let mut places = BTreeMap::from([(txn, graph.add_node(txn))]);
    let mut missing = Vec::new();
    let mut more = MORE_AT_MOST;
    let mut open = vec![(places[&txn], edges, on_cycle)];
    while let Some((place, edges, on_cycle)) = open.pop() {
        for Edge { from, at, .. } in edges {
            if !missing.is_empty() {
                more -= 1;
                if more == 0 {
                    return Err(missing);
                }
            }
            if on_cycle.is_some_and(|cycle| !cycle.contains(from) && !is_here(*from)) {
                continue;
            }
            if let Some(before) = places.get(from) {
                graph.update_edge(place, *before, ());
                continue;
            }
            match known(*from) {
                Known::Decided => {}
                Known::Open => {
                    let (txn, at) = (*from, *at);
                    if !missing.iter().any(|other: &Missing| other.txn == txn) {
                        missing.push(Missing { txn, at });
                    }
                }
                Known::Committing(edges) => {
                    let before = graph.add_node(*from);
                    places.insert(*from, before);
                    graph.update_edge(place, before, ());
                    open.push((before, edges, None));
                }
                Known::OnCycle(edges, cycle) => {
                    let before = graph.add_node(*from);
                    places.insert(*from, before);
                    graph.update_edge(place, before, ());
                    open.push((before, edges, Some(cycle)));
                }
            }
        }
    }
    if !missing.is_empty() {
        return Err(missing);
    }
    // An edge leads to a transaction that comes before, so groups that come before are found first.
    let name = |members: Vec<NodeIndex>| members.into_iter().map(|at| graph[at]).collect();
    Ok(tarjan_scc(&graph).into_iter().map(name).map(|group| sorted(group, &known)).collect())
}

/// Sorts the members of a group.
///
/// If the immediate edges form a cycle, the versions decide there too. The offline checker refuses sets of procedures with
/// which this can happen, so a client has sent false edges.
pub(crate) fn sorted<'g>(
    members: Vec<Version>,
    known: &impl Fn(Version) -> Known<'g>,
) -> Vec<Version> {
    if members.len() == 1 {
        return members;
    }
    let mut before: BTreeMap<Version, BTreeSet<Version>> =
        members.iter().map(|txn| (*txn, BTreeSet::new())).collect();
    for txn in &members {
        let (Known::Committing(edges) | Known::OnCycle(edges, _)) = known(*txn) else { continue };
        let immediate = edges.iter().filter(|edge| edge.kind == Kind::Immediate);
        let within = immediate.map(|edge| edge.from).filter(|from| members.contains(from));
        let within: BTreeSet<Version> = within.filter(|from| from != txn).collect();
        before.insert(*txn, within);
    }
    let mut sorted = Vec::with_capacity(members.len());
    while let Some((first, _)) = before.first_key_value() {
        let free = before.iter().find(|(_, before)| before.is_empty());
        let next = free.map_or(*first, |(next, _)| *next);
        before.remove(&next);
        before.values_mut().for_each(|others| {
            others.remove(&next);
        });
        sorted.push(next);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    use Kind::{Deferred, Immediate};

    fn txn(us: u64) -> Version {
        Version::at(us)
    }

    fn edge(from: u64, kind: Kind) -> Edge {
        Edge { from: txn(from), kind, at: 3 }
    }

    /// What is executed up to transaction 1, if these commit with these edges and others are open.
    fn executed(all: &[(u64, Vec<Edge>)]) -> Result<Vec<Vec<u64>>, Vec<u64>> {
        let known = |wanted| match all.iter().find(|(us, _)| txn(*us) == wanted) {
            Some((_, edges)) => Known::Committing(edges),
            None if wanted.timestamp_us >= 90 => Known::Decided,
            None => Known::Open,
        };
        let us = |all: Vec<Version>| all.into_iter().map(|txn| txn.timestamp_us).collect();
        let groups = groups(txn(1), known, |_| true);
        groups.map(|groups| groups.into_iter().map(us).collect()).map_err(|missing| {
            assert!(missing.iter().all(|missing| missing.at == 3));
            us(missing.into_iter().map(|missing| missing.txn).collect())
        })
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
        assert_eq!(executed(&chain[..2]), Err(vec![3]));
        let two = [(1, vec![edge(5, Deferred), edge(2, Immediate)]), (2, vec![edge(6, Deferred)])];
        let mut missing = executed(&two).unwrap_err();
        missing.sort();
        assert_eq!(missing, [5, 6]);
    }

    #[test]
    fn a_cycle_is_a_group_in_the_order_of_immediate_edges_and_then_of_versions() {
        let cycle = |kind| {
            [(1, vec![edge(2, Deferred)]), (2, vec![edge(3, kind)]), (3, vec![edge(1, kind)])]
        };
        assert_eq!(executed(&cycle(Deferred)), Ok(vec![vec![1, 2, 3]]));
        assert_eq!(executed(&cycle(Immediate)), Ok(vec![vec![1, 3, 2]]));
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
}
