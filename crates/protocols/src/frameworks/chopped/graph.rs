//! What a leader knows of transactions that commit, here and elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serried_model::Version;

use super::order::Known;
use super::vertex::Vertex;

/// How many transactions of other partitions are remembered as decided. If there are more, the earlier half is forgotten;
/// then another partition is asked for them again.
const REMOTE_AT_MOST: usize = 65_536;

/// The transactions that commit and are not executed here, and those of other partitions that are decided.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    vertices: BTreeMap<Version, Vertex>,
    /// Those of them that another server has executed on a cycle, and the others on it.
    cycles: BTreeMap<Version, Arc<[Version]>>,
    /// Transactions of other partitions that are decided.
    decided: BTreeSet<Version>,
}

impl Graph {
    /// The edges of a transaction that commits.
    pub(crate) fn vertex(&self, txn: Version) -> Option<&Vertex> {
        self.vertices.get(&txn)
    }

    /// Whether a transaction of other partitions is decided.
    pub(crate) fn is_decided(&self, txn: Version) -> bool {
        self.decided.contains(&txn)
    }

    /// What is known of a transaction that is not decided.
    pub(crate) fn known(&self, txn: Version) -> Known<'_> {
        match (self.vertices.get(&txn), self.cycles.get(&txn)) {
            (None, _) => Known::Open,
            (Some(vertex), Some(cycle)) => Known::OnCycle(&vertex.edges, cycle),
            (Some(vertex), None) => Known::Committing(&vertex.edges),
        }
    }

    /// A transaction commits. Returns whether this is news.
    pub(crate) fn commit(&mut self, vertex: &Vertex) -> bool {
        let is_new = !self.vertices.contains_key(&vertex.txn);
        if is_new {
            self.vertices.insert(vertex.txn, vertex.clone());
        }
        is_new
    }

    /// Another server has executed a transaction that is not executed here, on a cycle with these.
    pub(crate) fn is_on_cycle(&mut self, txn: Version, cycle: Arc<[Version]>) {
        self.cycles.insert(txn, cycle);
    }

    /// A transaction of other partitions is decided.
    pub(crate) fn decide(&mut self, txn: Version) {
        self.remove(txn);
        self.decided.insert(txn);
        if self.decided.len() > REMOTE_AT_MOST {
            let middle = *self.decided.iter().nth(REMOTE_AT_MOST / 2).expect("there are more");
            self.decided = self.decided.split_off(&middle);
        }
    }

    /// A transaction was executed here.
    pub(crate) fn remove(&mut self, txn: Version) {
        self.vertices.remove(&txn);
        self.cycles.remove(&txn);
    }

    /// All transactions of a group; nothing, if there is only one.
    ///
    /// A server that still has to execute one of them needs to know that it belongs to the group.
    pub(crate) fn cycle(&self, group: &[Version]) -> Arc<[Vertex]> {
        match group.len() {
            1 => Arc::default(),
            _ => group.iter().filter_map(|txn| self.vertices.get(txn)).cloned().collect(),
        }
    }

    /// Forgets transactions of other partitions that come before none of `open`. Those that are decided and began at
    /// `forget_us` or later are remembered.
    pub(crate) fn prune(&mut self, mut open: Vec<Version>, forget_us: u64) {
        let mut needed: BTreeSet<Version> = BTreeSet::new();
        while let Some(txn) = open.pop() {
            if !needed.insert(txn) {
                continue;
            }
            let edges = self.vertices.get(&txn).into_iter().flat_map(|vertex| vertex.edges.iter());
            let cycle = self.cycles.get(&txn).into_iter().flat_map(|cycle| cycle.iter()).copied();
            open.extend(edges.map(|edge| edge.from).chain(cycle));
        }
        self.vertices.retain(|txn, _| needed.contains(txn));
        self.cycles.retain(|txn, _| needed.contains(txn));
        self.decided.retain(|txn| needed.contains(txn) || txn.timestamp_us >= forget_us);
    }

    /// How many transactions it knows that are not decided.
    pub(crate) fn len(&self) -> usize {
        self.vertices.len() + self.cycles.len()
    }
}
