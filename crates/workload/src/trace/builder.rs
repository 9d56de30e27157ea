//! Puts a trace together from what clients report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

use serried_model::{Key, NodeId, TransactionReport};

use super::{Bound, MOST_VALUE_BYTES, Trace, TraceHeader, TracedTransaction, lengths};

/// How large a trace may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceBounds {
    /// The most transactions.
    pub transactions: usize,
    /// The most bytes of its file, except for a few that do not depend on the transactions.
    pub bytes: usize,
}

/// Collects reports.
///
/// A connection does not say which of its tasks has run a transaction. So transactions of a connection are given to
/// clients such that those of a client do not overlap, and that there are as few clients as possible. If several are
/// free, the one goes on that has ended last. The think time of a client is the time between its transactions.
#[derive(Debug)]
pub struct TraceBuilder {
    bounds: TraceBounds,
    /// The secret of the hashes that stand for keys, if there are any.
    secret: Option<RandomState>,
    numbers: HashMap<Key, u32>,
    keys: Vec<Key>,
    reports: Vec<(NodeId, TransactionReport<u32>)>,
    bytes: usize,
    reached: Option<Bound>,
}

impl TraceBuilder {
    /// An empty trace. With `hashes_keys` a hash stands for each key. Its secret is random, and is forgotten with this.
    pub fn new(bounds: TraceBounds, hashes_keys: bool) -> TraceBuilder {
        TraceBuilder {
            bounds,
            secret: hashes_keys.then(RandomState::new),
            numbers: HashMap::new(),
            keys: Vec::new(),
            reports: Vec::new(),
            bytes: 0,
            reached: None,
        }
    }

    /// Adds a transaction that a connection has reported. Its times must count from the beginning of the recording.
    /// Returns the bound if one is reached: then the transaction, and all that follow, are left away. One that can't be
    /// is left away, too: that ends before it begins, or has a longer value than any can be.
    pub fn add(&mut self, connection: NodeId, report: TransactionReport<Key>) -> Option<Bound> {
        if self.reached.is_none() && self.reports.len() >= self.bounds.transactions {
            self.reached = Some(Bound::Transactions);
        }
        if self.reached.is_some() {
            return self.reached;
        }
        let is_possible = report.began_ns <= report.ended_ns
            && lengths(&report).all(|bytes| bytes <= MOST_VALUE_BYTES);
        if !is_possible {
            return None;
        }
        let new: BTreeSet<&Key> =
            report.keys().filter(|key| !self.numbers.contains_key(*key)).collect();
        let key_bytes = |key: &&Key| self.secret.as_ref().map_or(key.len(), |_| HASH_BYTES) + 5;
        // A number takes at most 10 bytes, and so do a round and a length together.
        let accesses = report.keys().count()
            + report.modifies.iter().map(|modify| modify.modifications.len()).sum::<usize>();
        let bytes = new.iter().map(key_bytes).sum::<usize>() + 40 + 17 * accesses;
        if self.bytes + bytes > self.bounds.bytes {
            self.reached = Some(Bound::Bytes);
            return self.reached;
        }
        self.bytes += bytes;
        let report = report.map_keys(|key| self.number(key));
        self.reports.push((connection, report));
        None
    }

    /// How many transactions there are.
    pub fn transactions(&self) -> usize {
        self.reports.len()
    }

    fn number(&mut self, key: Key) -> u32 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = self.keys.len() as u32;
        self.keys.push(match &self.secret {
            None => key.clone(),
            Some(secret) => hashed(&key, secret),
        });
        self.numbers.insert(key, number);
        number
    }

    /// The trace. [`TraceHeader::bound`], [`TraceHeader::lasted_ns`] and [`TraceHeader::hashed_keys`] of `header` are
    /// replaced by what is true of it, where that is something else: the time is extended to that of the last
    /// transaction.
    ///
    /// # Errors
    /// If it has no transactions.
    pub fn finish(self, mut header: TraceHeader) -> Result<Trace, String> {
        let TraceBuilder { mut reports, keys, secret, reached, .. } = self;
        for (_, report) in &reports {
            header.lasted_ns = header.lasted_ns.max(report.ended_ns);
        }
        header.bound = reached.unwrap_or(header.bound);
        header.hashed_keys = secret.is_some();
        // They arrive in the order of their ends.
        reports.sort_by_key(|(_, report)| report.began_ns);
        Trace::new(header, keys, deal(reports))
    }
}

/// Gives the transactions of each connection to clients.
fn deal(reports: Vec<(NodeId, TransactionReport<u32>)>) -> Vec<TracedTransaction> {
    let mut clients = 0;
    // By connection: its clients, and when each has ended.
    let mut free: BTreeMap<NodeId, BTreeSet<(u64, u32)>> = BTreeMap::new();
    let deal = |(connection, what): (NodeId, TransactionReport<u32>)| {
        let of_connection = free.entry(connection).or_default();
        let last = of_connection.range(..=(what.began_ns, u32::MAX)).next_back().copied();
        let client = last.map_or(clients, |(_, client)| client);
        match last {
            Some(last) => {
                of_connection.remove(&last);
            }
            None => clients += 1,
        }
        of_connection.insert((what.ended_ns, client));
        TracedTransaction { client, what }
    };
    reports.into_iter().map(deal).collect()
}

/// How long the hash of a key is, in bytes.
const HASH_BYTES: usize = 16;

/// What stands for a key: two keyed hashes of it.
fn hashed(key: &Key, secret: &RandomState) -> Key {
    let halves = [0u8, 1].map(|half| secret.hash_one((half, key.as_bytes())).to_be_bytes());
    Key::from(halves.concat())
}
