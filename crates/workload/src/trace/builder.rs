//! Puts a trace together from what clients report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;
use serried_model::{Key, NodeId, TransactionReport};
use siphasher::sip128::SipHasher24;

use super::{
    Bound, HeldBytes, MOST_HELD_BYTES, Trace, TraceHeader, TracedTransaction, held_lengths,
    impossible, is_possible_key,
};

/// How large a trace may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceBounds {
    /// The most transactions.
    pub transactions: usize,
    /// The most bytes of its file, except for a few that do not depend on the transactions.
    pub bytes: usize,
    /// How long it may last. Nothing is taken that ends later.
    pub lasts: Duration,
}

/// Collects reports.
///
/// A connection does not say which of its tasks has run a transaction. So transactions of a connection are given to
/// clients such that those of a client do not overlap, and that there are as few clients as possible. If several are
/// free, the one goes on that has waited longest, so that they have about as many transactions each. The think time of a
/// client is the time between its transactions.
pub struct TraceBuilder {
    bounds: TraceBounds,
    /// The secret of the hashes that stand for keys, if there are any.
    secret: Option<SipHasher24>,
    numbers: HashMap<Key, u32>,
    keys: Vec<Key>,
    reports: Vec<(NodeId, TransactionReport<u32>)>,
    bytes: usize,
    held: HeldBytes,
    reached: Option<Bound>,
    refused: u64,
}

impl TraceBuilder {
    /// An empty trace. With `hashes_keys` a keyed hash stands for each key: SipHash-2-4 with 128 bits. Its
    /// secret is from the system's source of random numbers, and is forgotten with this.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn new(bounds: TraceBounds, hashes_keys: bool) -> TraceBuilder {
        let secret = || {
            let mut secret = [0; 16];
            SysRng.try_fill_bytes(&mut secret).expect("the system has random numbers");
            SipHasher24::new_with_key(&secret)
        };
        TraceBuilder {
            bounds,
            secret: hashes_keys.then(secret),
            numbers: HashMap::new(),
            keys: Vec::new(),
            reports: Vec::new(),
            bytes: 0,
            held: HeldBytes::default(),
            reached: None,
            refused: 0,
        }
    }

    /// Adds a transaction that a connection has reported. Its times must count from the beginning of the recording.
    /// Returns the bound if one is reached: then the transaction, and all that follow, are left out. One that no client can
    /// have run is left out and counted, too: one that ends before it begins or after the recording, that has a longer key
    /// or value than any can be, or that only reads and writes.
    pub fn add(&mut self, connection: NodeId, report: TransactionReport<Key>) -> Option<Bound> {
        if self.reached.is_none() && self.reports.len() >= self.bounds.transactions {
            self.reached = Some(Bound::Transactions);
        }
        if self.reached.is_some() {
            return self.reached;
        }
        let is_in_time = u128::from(report.ended_ns) <= self.bounds.lasts.as_nanos();
        if !is_in_time
            || !report.keys().all(is_possible_key)
            || impossible(&report, |key| self.key_bytes(key)).is_some()
        {
            self.refused += 1;
            return None;
        }
        let new: BTreeSet<&Key> =
            report.keys().filter(|key| !self.numbers.contains_key(*key)).collect();
        let new_bytes: usize = new.iter().map(|key| self.key_bytes(key) + 5).sum();
        // A number takes at most 10 bytes, and so do a round and a length together.
        let accesses = report.keys().count()
            + report.modifies.iter().map(|modify| modify.modifications.len()).sum::<usize>();
        let bytes = new_bytes + 40 + 17 * accesses;
        // More than it comes to, as a new key may be there several times.
        let growth = held_lengths(&report).map(|(key, bytes)| match self.numbers.get(key) {
            Some(number) => self.held.growth(*number, bytes),
            None => u64::from(bytes),
        });
        let held = self.held.all + growth.sum::<u64>();
        if self.bytes + bytes > self.bounds.bytes || held > MOST_HELD_BYTES {
            self.reached = Some(Bound::Bytes);
            return self.reached;
        }
        self.bytes += bytes;
        let report = report.map_keys(|key| self.number(key));
        for (key, bytes) in held_lengths(&report) {
            self.held.note(*key, bytes);
        }
        self.reports.push((connection, report));
        None
    }

    /// How many bytes a key has in the trace.
    fn key_bytes(&self, key: &Key) -> usize {
        self.secret.as_ref().map_or(key.len(), |_| HASH_BYTES)
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
    /// transaction. What no client can have run counts as missed.
    ///
    /// # Errors
    /// If it has no transactions.
    pub fn finish(self, mut header: TraceHeader) -> Result<Trace, String> {
        let TraceBuilder { mut reports, keys, secret, reached, refused, .. } = self;
        for (_, report) in &reports {
            header.lasted_ns = header.lasted_ns.max(report.ended_ns);
        }
        header.bound = reached.unwrap_or(header.bound);
        header.hashed_keys = secret.is_some();
        header.missed = header.missed.saturating_add(refused);
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
        let first =
            of_connection.first().copied().filter(|(ended_ns, _)| *ended_ns <= what.began_ns);
        let client = first.map_or(clients, |(_, client)| client);
        match first {
            Some(first) => {
                of_connection.remove(&first);
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

/// What stands for a key.
fn hashed(key: &Key, secret: &SipHasher24) -> Key {
    Key::from(secret.hash(key.as_bytes()).as_bytes())
}
