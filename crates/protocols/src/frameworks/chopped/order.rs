//! In which order transactions are executed (002 §3.2, Fig. 7).
//!
//! A server knows of each transaction which others came before it: its *edges*. They are complete once the transaction
//! commits, since all of its pieces have been started then. A transaction is executed when the edges of all of its
//! ancestors are complete. From then on every server knows the same graph. Transactions on a cycle form a group, a
//! strongly connected component. Groups are executed in the order of the graph. Within a group, the immediate edges
//! decide, since immediate pieces have been executed in their order; otherwise the versions of the transactions do.

use std::collections::{BTreeMap, BTreeSet};

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

/// The groups up to and with that of `txn`, in their order, if nothing is missing: what [`super::Blocked`] has to find.
#[cfg(test)]
pub(crate) fn groups<'g>(
    txn: Version,
    known: impl Fn(Version) -> Known<'g>,
) -> Option<Vec<Vec<Version>>> {
    use petgraph::algo::tarjan_scc;
    use petgraph::graph::{DiGraph, NodeIndex};

    let mut graph = DiGraph::<Version, ()>::new();
    let mut places = BTreeMap::from([(txn, graph.add_node(txn))]);
    let mut open = vec![txn];
    while let Some(txn) = open.pop() {
        let (Known::Committing(edges) | Known::OnCycle(edges, _)) = known(txn) else { return None };
        for Edge { from, .. } in edges.iter().filter(|edge| known(edge.from) != Known::Decided) {
            let before = *places.entry(*from).or_insert_with(|| {
                open.push(*from);
                graph.add_node(*from)
            });
            graph.update_edge(places[&txn], before, ());
        }
    }
    // An edge leads to a transaction that comes before, so groups that come before are found first.
    let name = |members: Vec<NodeIndex>| members.into_iter().map(|at| graph[at]).collect();
    Some(tarjan_scc(&graph).into_iter().map(name).map(|group| sorted(group, &known)).collect())
}
