//! The causal order: for each transaction, which ones come before it.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::super::transaction::Context;
use super::facts::Facts;
use super::{ENTRIES, Step};
use crate::counted;
use crate::digraph::{Digraph, Edge};

/// No chain.
const NONE: u32 = u32::MAX;

/// Transactions that come one after the other: the committed ones of a process that wrote anything, or a single one of
/// unknown outcome.
///
/// Processes that only read need no chain, because none of their transactions comes before one of another process.
pub(super) struct Chains {
    /// The chain of each transaction, or [`NONE`].
    of: Vec<u32>,
    /// The place of each transaction in its chain.
    place: Vec<u32>,
    count: usize,
}

impl Chains {
    fn new(context: &Context<'_>, facts: &Facts) -> Self {
        let count = context.transactions.len();
        let mut chains = Chains { of: vec![NONE; count], place: vec![0; count], count: 0 };
        let mut lengths: HashMap<u64, (u32, u32), FixedState> = HashMap::default();
        for &writer in facts.writers.iter().flatten() {
            let transaction = context.at(writer);
            if transaction.is_committed() {
                lengths.entry(transaction.process()).or_insert_with(|| (chains.add(), 0));
            } else if chains.of[writer as usize] == NONE {
                chains.of[writer as usize] = chains.add();
            }
        }
        for (at, transaction) in context.transactions.iter().enumerate() {
            if transaction.is_committed()
                && let Some((chain, length)) = lengths.get_mut(&transaction.process())
            {
                (chains.of[at], chains.place[at]) = (*chain, *length);
                *length += 1;
            }
        }
        chains
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    fn add(&mut self) -> u32 {
        self.count += 1;
        self.count as u32 - 1
    }

    /// A transaction's chain, and its place in it.
    pub(super) fn of(&self, transaction: u32) -> Option<(u32, u32)> {
        let chain = self.of[transaction as usize];
        (chain != NONE).then(|| (chain, self.place[transaction as usize]))
    }
}

/// For each transaction, how many transactions of each chain come before it.
#[derive(Clone)]
pub(super) struct Before {
    chains: usize,
    counts: Vec<u32>,
}

impl Before {
    fn row(&self, transaction: u32) -> &[u32] {
        &self.counts[transaction as usize * self.chains..][..self.chains]
    }

    /// How many transactions of a chain come before this one.
    pub(super) fn count(&self, transaction: u32, chain: u32) -> u32 {
        self.counts[transaction as usize * self.chains + chain as usize]
    }

    /// Takes over what comes before one transaction.
    pub(super) fn copy(&mut self, other: &Before, transaction: u32) {
        let start = transaction as usize * self.chains;
        self.counts[start..][..self.chains].copy_from_slice(other.row(transaction));
    }

    /// Adds that `first` comes before `second`, with all that comes before `first`. Returns whether that is new.
    pub(super) fn add(&mut self, chains: &Chains, first: u32, second: u32) -> bool {
        let [from, to] = [first, second].map(|it| it as usize * self.chains);
        let mut is_new = false;
        for chain in 0..self.chains {
            let count = self.counts[from + chain];
            let known = &mut self.counts[to + chain];
            is_new |= count > *known;
            *known = count.max(*known);
        }
        if let Some((chain, place)) = chains.of(first) {
            let known = &mut self.counts[to + chain as usize];
            is_new |= place >= *known;
            *known = (place + 1).max(*known);
        }
        is_new
    }

    /// Whether `first` comes before `second`. It must have a chain.
    pub(super) fn is_before(&self, chains: &Chains, first: u32, second: u32) -> bool {
        let (chain, place) = chains.of(first).expect("a writer without a chain");
        self.count(second, chain) > place
    }
}

/// The writers of one key in one chain, in its order.
pub(super) struct ChainWriters {
    pub(super) chain: u32,
    writers: Vec<u32>,
}

impl ChainWriters {
    pub(super) fn first(&self) -> u32 {
        self.writers[0]
    }
}

/// The causal order. It has no cycle.
pub(super) struct Causes {
    pub(super) chains: Chains,
    /// The edges of the order: from each transaction to the next one of its process, and to its readers.
    pub(super) graph: Digraph<Step>,
    /// All transactions, in an order in which every edge leads forward.
    pub(super) order: Vec<u32>,
    pub(super) before: Before,
    /// For each key, its writers by chain.
    pub(super) writers: Vec<Vec<ChainWriters>>,
}

impl Causes {
    /// # Errors
    ///
    /// The history is too large.
    pub(super) fn new(context: &Context<'_>, facts: &Facts) -> Result<Self, String> {
        let chains = Chains::new(context, facts);
        let count = context.transactions.len();
        let entries = count.saturating_mul(chains.count);
        if entries > ENTRIES {
            return Err(format!(
                "{} of {} processes that write are more than can be judged: use fewer processes",
                counted(count as u64, "transaction"),
                chains.count,
            ));
        }
        let graph = graph(context, facts);
        let order = graph.topological_order().expect("a cycle that has been ruled out");
        let mut before = Before { chains: chains.count, counts: vec![0; entries] };
        for &first in &order {
            for edge in graph.edges_from(first) {
                before.add(&chains, first, edge.to);
            }
        }
        let by_chain = |writers: &Vec<u32>| {
            let mut writers: Vec<((u32, u32), u32)> = writers
                .iter()
                .map(|&writer| (chains.of(writer).expect("a writer without a chain"), writer))
                .collect();
            writers.sort_unstable();
            let chunks = writers.chunk_by(|((left, _), _), ((right, _), _)| left == right);
            let chain = |chunk: &[((u32, u32), u32)]| ChainWriters {
                chain: chunk[0].0.0,
                writers: chunk.iter().map(|&(_, writer)| writer).collect(),
            };
            chunks.map(chain).collect()
        };
        let writers = facts.writers.iter().map(by_chain).collect();
        Ok(Causes { chains, graph, order, before, writers })
    }

    /// The last of these writers that is among the first `count` transactions of their chain.
    pub(super) fn last(&self, writers: &ChainWriters, count: u32) -> Option<u32> {
        let place = |writer: &u32| self.chains.place[*writer as usize];
        let before = writers.writers.partition_point(|writer| place(writer) < count);
        before.checked_sub(1).map(|last| writers.writers[last])
    }

    /// For each chain, its writers of a key if any of them come before a transaction, and the last of these.
    pub(super) fn writers_before<'c>(
        &'c self,
        before: &'c Before,
        key: u32,
        transaction: u32,
    ) -> impl Iterator<Item = (&'c ChainWriters, u32)> {
        let row = before.row(transaction);
        self.writers[key as usize]
            .iter()
            .filter_map(|writers| Some((writers, self.last(writers, row[writers.chain as usize])?)))
    }
}

/// The edges of the causal order.
fn graph(context: &Context<'_>, facts: &Facts) -> Digraph<Step> {
    let mut edges = Vec::new();
    let mut latest: HashMap<u64, u32, FixedState> = HashMap::default();
    for (to, transaction) in (0..).zip(&context.transactions) {
        if !facts.included[to as usize] {
            continue;
        }
        let latest = match transaction.is_committed() {
            true => latest.insert(transaction.process(), to),
            false => latest.get(&transaction.process()).copied(),
        };
        edges.extend(latest.map(|from| Edge { from, to, label: Step::PROCESS_ORDER }));
    }
    let reads = facts.reads_from();
    edges.extend(reads.map(|(from, to, key)| Edge { from, to, label: Step::read(key) }));
    let count = context.transactions.len();
    Digraph::new(count, count, edges)
}
