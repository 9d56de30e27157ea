//! A protocol just large enough to use everything that nodes and clients offer: a replica takes writes,
//! passes them on to all replicas of the partitions that they are for, itself perhaps included, and
//! answers once a majority of each has them on disk. What is lost is sent again. It isolates nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serried_actor::{
    Actor, Context, Coordinate, Group, NodeSet, Observation, Protocol, Recover, Settings, Standing,
    Store,
};
use serried_model::transactions::{Offers, Operation, Outcome, Output};
use serried_model::{
    Guarantee, Key, NodeId, ReadValue, Transactions, TxnId, Value, Version, Write,
};

const RETRY: Duration = Duration::from_millis(200);
/// A replica that is asked for this key panics.
pub(crate) const POISON: &str = "poison";
/// A replica takes a read of this key for one that no correct client sends.
pub(crate) const FORGED: &str = "forged";
/// A replica looks for this key in its store.
pub(crate) const STORED: &str = "stored";
/// A replica that has this key says that it votes on nothing for very long.
pub(crate) const AHEAD: &str = "ahead";
/// A replica that has this key says that it catches up.
pub(crate) const BEHIND: &str = "behind";

/// A read of a key that begins with this returns how many such keys were requested in the same batch.
pub(crate) const BATCH: &str = "batch";

pub(crate) struct Toy;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Read { txn: u64, key: Key },
    ReadReply { txn: u64, key: Key, version: Version, value: Option<Value> },
    Commit { txn: u64, version: Version, writes: Vec<Write> },
    Store { from: NodeId, txn: u64, version: Version, writes: Vec<Write> },
    Stored { from: NodeId, txn: u64 },
    Committed { txn: u64 },
}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const SUMMARY: &'static str = "reads and writes without isolation, for tests";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Coordinator {
        Coordinator { group, last: 0, open: BTreeMap::new(), batch: Vec::new() }
    }

    fn replica(_: NodeId, group: Group, _: &Settings) -> Replica {
        Replica { group, data: HashMap::new(), waiting: BTreeMap::new() }
    }
}

pub(crate) struct Coordinator {
    group: Group,
    last: u64,
    open: BTreeMap<u64, Open>,
    batch: Vec<(TxnId, Key)>,
}

struct Open {
    version: Version,
    reads: Vec<Key>,
    commit: Option<Vec<Write>>,
    attempt: usize,
}

impl Coordinator {
    fn send(&self, txn: u64, cx: &mut Context<'_, Self>) {
        let Some(open) = self.open.get(&txn) else { return };
        for key in &open.reads {
            let to = self.group.choice(self.group.partition_of(key), open.attempt);
            cx.send(to, Message::Read { txn, key: key.clone() });
        }
        if let Some(writes) = &open.commit {
            // Any replica will do; those of other partitions than the writes' have to pass on all of it.
            let partition = (txn % u64::from(self.group.partitions())) as u16;
            let to = self.group.choice(partition, open.attempt);
            let (version, writes) = (open.version, writes.clone());
            cx.send(to, Message::Commit { txn, version, writes });
        }
        cx.set_timer(txn, RETRY);
    }
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = u64;
    type Record = u8;
    type Output = (TxnId, Output);

    fn on_message(&mut self, _: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::ReadReply { txn, key, version, value } => {
                let Some(open) = self.open.get_mut(&txn) else { return };
                let before = open.reads.len();
                open.reads.retain(|read| *read != key);
                if open.reads.len() < before {
                    cx.output((
                        TxnId(txn),
                        Output::Value(ReadValue { key, version, value, stamp: 0 }),
                    ));
                }
            }
            Message::Committed { txn } if self.open.remove(&txn).is_some() => {
                cx.cancel_timer(txn);
                cx.output((TxnId(txn), Output::Outcome(Outcome::Committed)));
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, txn: u64, cx: &mut Context<'_, Self>) {
        if let Some(open) = self.open.get_mut(&txn) {
            open.attempt += 1;
        }
        self.send(txn, cx);
    }
}

impl Coordinate<Transactions> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Context<'_, Self>) {
        let coordinator = cx.id();
        if !self.open.contains_key(&txn.0) {
            self.last = cx.clock().midpoint_us().max(self.last + 1);
            let version = Version { timestamp_us: self.last, coordinator };
            let open = Open { version, reads: Vec::new(), commit: None, attempt: 0 };
            self.open.insert(txn.0, open);
            cx.output((txn, Output::Began(version)));
        }
        let open = self.open.get_mut(&txn.0).expect("it was just opened");
        match operation {
            Operation::Get { key, .. } if key.as_bytes().starts_with(BATCH.as_bytes()) => {
                return self.batch.push((txn, key));
            }
            Operation::Get { key, .. } => open.reads.push(key),
            Operation::Begin { .. }
            | Operation::Put(_)
            | Operation::Inquire { .. }
            | Operation::GetAt { .. }
            | Operation::OneShot { .. } => return,
            Operation::Commit { writes, .. } => open.commit = Some(writes),
            Operation::Rollback => {
                self.open.remove(&txn.0);
                return cx.cancel_timer(txn.0);
            }
        }
        self.send(txn.0, cx);
    }

    /// Answers the reads of a batch with their number.
    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        let value = Some(Value::from(self.batch.len().to_string()));
        for (txn, key) in self.batch.drain(..) {
            let version = Version::INITIAL;
            let read = ReadValue { key, version, value: value.clone(), stamp: 0 };
            cx.output((txn, Output::Value(read)));
        }
    }
}

pub(crate) struct Replica {
    group: Group,
    data: HashMap<Key, (Version, Option<Value>)>,
    /// Commits by client and transaction, with the replicas of each partition that have stored them.
    waiting: BTreeMap<(NodeId, u64), BTreeMap<u16, NodeSet>>,
}

impl Replica {
    fn store(&mut self, version: Version, writes: Vec<Write>) {
        for Write { key, value } in writes {
            let entry = self.data.entry(key).or_insert((Version::INITIAL, None));
            if version > entry.0 {
                *entry = (version, value);
            }
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = ();
    type Record = (Version, Vec<Write>);
    type Output = ();

    fn on_message(&mut self, sender: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Read { txn, key } => {
                assert_ne!(key, Key::from(POISON), "asked for the poisoned key");
                if key == Key::from(FORGED) {
                    return cx.reject(|| format!("{sender} has sent what is forged"));
                }
                if key == Key::from(STORED) {
                    let _ = cx.store().get(key.as_bytes());
                }
                let (version, value) =
                    self.data.get(&key).cloned().unwrap_or((Version::INITIAL, None));
                cx.send(sender, Message::ReadReply { txn, key, version, value });
            }
            Message::Commit { txn, version, writes } => {
                let mut parts: BTreeMap<u16, Vec<Write>> = BTreeMap::new();
                for write in writes {
                    parts.entry(self.group.partition_of(&write.key)).or_default().push(write);
                }
                if parts.is_empty() {
                    return cx.send(sender, Message::Committed { txn });
                }
                let missing = parts.keys().map(|partition| (*partition, NodeSet::EMPTY)).collect();
                self.waiting.entry((sender, txn)).or_insert(missing);
                for (partition, writes) in parts {
                    let store = Message::Store { from: sender, txn, version, writes };
                    cx.broadcast(partition, self.group.all(), store);
                }
            }
            Message::Store { from, txn, version, writes } => {
                cx.append((version, writes.clone()));
                let keys = writes.iter().map(|write| write.key.clone());
                for key in keys.clone() {
                    cx.observe(|| Observation::Written { key, version, revision: 0 });
                }
                cx.observe(|| {
                    let (reads, writes) = (Vec::new(), keys.collect());
                    Observation::Committed { version, reads, writes, leads: true }
                });
                self.store(version, writes);
                cx.send(sender, Message::Stored { from, txn });
            }
            Message::Stored { from, txn } => {
                let Some(parts) = self.waiting.get_mut(&(from, txn)) else { return };
                parts.entry(sender.partition()).or_default().insert(sender);
                if parts.values().all(|stored| stored.len() >= self.group.majority()) {
                    self.waiting.remove(&(from, txn));
                    cx.send(from, Message::Committed { txn });
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}

    fn gauges(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let ahead = self.data.contains_key(&Key::from(AHEAD));
        each("stopped_below_us", if ahead { u64::MAX } else { 0 });
    }
}

impl Recover for Replica {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {}

    fn replay(&mut self, (version, writes): (Version, Vec<Write>), _: &mut dyn Store) {
        self.store(version, writes);
    }

    fn standing(&self) -> Standing {
        let has = self.data.get(&Key::from(BEHIND)).is_some_and(|(_, value)| value.is_some());
        if has { Standing::CatchingUp { keys: 1 } } else { Standing::Full }
    }
}
