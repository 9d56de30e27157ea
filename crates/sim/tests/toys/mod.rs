//! Protocols that are too simple to be useful, for testing drivers.
#![allow(dead_code, reason = "each test uses some of them")]

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};
use serried_actor::{
    Actor, Context, Coordinate, Group, Observation, Protocol, Recover, Settings, Store, Wire,
};
use serried_model::transactions::{Offers, Operation, Outcome, Output};
use serried_model::{
    Guarantee, Key, NodeId, ReadValue, Transactions, TxnId, Value, Version, Write,
};

/// A coordinator that does nothing.
pub(crate) struct Idle<M>(PhantomData<fn() -> M>);

impl<M> Idle<M> {
    pub(crate) fn new() -> Self {
        Idle(PhantomData)
    }
}

impl<M: Wire> Actor for Idle<M> {
    type Message = M;
    type Timer = ();
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, _: NodeId, _: M, _: &mut Context<'_, Self>) {}

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl<M: Wire> Coordinate<Transactions> for Idle<M> {
    fn on_operation(&mut self, _: TxnId, _: Operation, _: &mut Context<'_, Self>) {}
}

/// A read of a key that begins with this returns how many such keys were requested in the same batch.
pub(crate) const BATCH: &str = "batch";

/// Last writer wins. A read asks the nearest replica, and a write waits for a majority. There is no isolation.
pub(crate) struct Register;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    Read {
        key: Key,
    },
    Found {
        key: Key,
        version: Version,
        value: Option<Value>,
    },
    Store {
        version: Version,
        writes: Vec<Write>,
    },
    /// Promises nothing: the write may not be durable yet.
    Noted {
        version: Version,
    },
    /// The write is durable.
    Stored {
        version: Version,
    },
}

impl Protocol for Register {
    const NAME: &'static str = "register";
    const SUMMARY: &'static str = "last writer wins";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = Message;
    type Coordinator = Coordinator;
    type Replica = Replica;

    fn coordinator(group: Group, _: &Settings) -> Coordinator {
        Coordinator { group, last_us: 0, open: BTreeMap::new(), batch: Vec::new() }
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Replica {
        Replica::default()
    }
}

pub(crate) struct Coordinator {
    group: Group,
    last_us: u64,
    open: BTreeMap<TxnId, Open>,
    batch: Vec<(TxnId, Key)>,
}

struct Open {
    version: Version,
    reads: Vec<Key>,
    writes: Option<Vec<Write>>,
    stored: serried_actor::NodeSet,
    attempt: usize,
}

impl Actor for Coordinator {
    type Message = Message;
    type Timer = TxnId;
    type Record = ();
    type Output = (TxnId, Output);

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Found { key, version, value } => {
                for (txn, open) in &mut self.open {
                    if let Some(position) = open.reads.iter().position(|read| *read == key) {
                        open.reads.remove(position);
                        let (key, value) = (key.clone(), value.clone());
                        cx.output((
                            *txn,
                            Output::Value(ReadValue { key, version, value, stamp: 0 }),
                        ));
                    }
                }
            }
            Message::Stored { version } => {
                let found = self.open.iter_mut().find(|(_, open)| open.version == version);
                let Some((txn, open)) = found else { return };
                let txn = *txn;
                open.stored.insert(from);
                if open.stored.len() >= self.group.majority() {
                    self.open.remove(&txn);
                    cx.cancel_timer(txn);
                    cx.output((txn, Output::Outcome(Outcome::Committed)));
                }
            }
            Message::Noted { .. } => {}
            Message::Read { .. } | Message::Store { .. } => panic!("{message:?} at a coordinator"),
        }
    }

    fn on_timer(&mut self, txn: TxnId, cx: &mut Context<'_, Self>) {
        let Some(open) = self.open.get_mut(&txn) else { return };
        open.attempt += 1;
        self.send(txn, cx);
    }
}

impl Coordinator {
    fn send(&mut self, txn: TxnId, cx: &mut Context<'_, Self>) {
        let open = &self.open[&txn];
        for key in &open.reads {
            cx.send(self.group.choice(0, open.attempt), Message::Read { key: key.clone() });
        }
        if let Some(writes) = &open.writes {
            let (version, writes) = (open.version, writes.clone());
            cx.broadcast(0, self.group.all(), Message::Store { version, writes });
        }
        cx.set_timer(txn, self.group.round_trip() * 3);
    }
}

impl Coordinate<Transactions> for Coordinator {
    fn on_operation(&mut self, txn: TxnId, operation: Operation, cx: &mut Context<'_, Self>) {
        let now_us = cx.clock().midpoint_us();
        let last_us = &mut self.last_us;
        let open = self.open.entry(txn).or_insert_with(|| {
            *last_us = now_us.max(*last_us + 1);
            let version = Version { timestamp_us: *last_us, coordinator: cx.id() };
            cx.output((txn, Output::Began(version)));
            let stored = serried_actor::NodeSet::EMPTY;
            Open { version, reads: Vec::new(), writes: None, stored, attempt: 0 }
        });
        match operation {
            Operation::Get { key, .. } if key.as_bytes().starts_with(BATCH.as_bytes()) => {
                return self.batch.push((txn, key));
            }
            Operation::Get { key, .. } => open.reads.push(key),
            Operation::Begin { .. } | Operation::Put(_) => return,
            Operation::Commit { writes, .. } if writes.is_empty() => {
                self.open.remove(&txn);
                cx.cancel_timer(txn);
                cx.output((txn, Output::Outcome(Outcome::Committed)));
                return;
            }
            Operation::Commit { writes, .. } => open.writes = Some(writes),
            Operation::Inquire { .. } | Operation::GetAt { .. } | Operation::OneShot { .. } => {
                unreachable!("not in these tests")
            }
            Operation::Rollback => {
                self.open.remove(&txn);
                cx.cancel_timer(txn);
                return;
            }
        }
        self.send(txn, cx);
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

#[derive(Default)]
pub(crate) struct Replica {
    pub(crate) values: BTreeMap<Key, (Version, Option<Value>)>,
    pub(crate) replayed: usize,
}

impl Replica {
    fn apply(&mut self, version: Version, writes: &[Write]) {
        for Write { key, value } in writes {
            let current = self.values.entry(key.clone()).or_default();
            if current.0 < version {
                *current = (version, value.clone());
            }
        }
    }
}

impl Actor for Replica {
    type Message = Message;
    type Timer = ();
    type Record = (Version, Vec<Write>);
    /// The version of a write that it has applied.
    type Output = Version;

    fn on_message(&mut self, from: NodeId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Read { key } => {
                let (version, value) = self.values.get(&key).cloned().unwrap_or_default();
                cx.send(from, Message::Found { key, version, value });
            }
            Message::Store { version, writes } => {
                self.apply(version, &writes);
                for Write { key, .. } in &writes {
                    let key = || key.clone();
                    cx.observe(|| Observation::Written { key: key(), version, revision: 0 });
                }
                cx.append((version, writes));
                cx.send(from, Message::Stored { version });
                cx.send_before_durable(from, Message::Noted { version });
                cx.output(version);
            }
            _ => panic!("{message:?} at a replica"),
        }
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl Recover for Replica {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {}

    fn replay(&mut self, (version, writes): Self::Record, _: &mut dyn Store) {
        self.apply(version, &writes);
        self.replayed += 1;
    }
}

/// Each client sends this many numbers to replica 0 at once, which outputs them.
pub(crate) const BURST: u64 = 1000;

pub(crate) struct Flood;

impl Protocol for Flood {
    const NAME: &'static str = "flood";
    const SUMMARY: &'static str = "every client sends many messages at once";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = u64;
    type Coordinator = Source;
    type Replica = Sink;

    fn coordinator(_: Group, _: &Settings) -> Source {
        Source
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Sink {
        Sink
    }
}

pub(crate) struct Source;

impl Actor for Source {
    type Message = u64;
    type Timer = ();
    type Record = ();
    type Output = (TxnId, Output);

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        for number in 0..BURST {
            cx.send(NodeId(0), number);
        }
    }

    fn on_message(&mut self, _: NodeId, _: u64, _: &mut Context<'_, Self>) {}

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl Coordinate<Transactions> for Source {
    fn on_operation(&mut self, _: TxnId, _: Operation, _: &mut Context<'_, Self>) {}
}

pub(crate) struct Sink;

impl Actor for Sink {
    type Message = u64;
    type Timer = ();
    type Record = ();
    type Output = u64;

    fn on_message(&mut self, _: NodeId, number: u64, cx: &mut Context<'_, Self>) {
        cx.output(number);
    }

    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

impl Recover for Sink {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {}

    fn replay(&mut self, (): (), _: &mut dyn Store) {}
}

/// Replica 0 sets, moves and cancels timers, and outputs those that fire.
pub(crate) struct Clockwork;

impl Protocol for Clockwork {
    const NAME: &'static str = "clockwork";
    const SUMMARY: &'static str = "timers only";
    const GUARANTEE: Guarantee = Guarantee::Serializable;
    type Family = Transactions;
    const OFFERS: Offers = Offers { one_shots: false, past: false, modifies: false };
    type Message = ();
    type Coordinator = Idle<()>;
    type Replica = Bell;

    fn coordinator(_: Group, _: &Settings) -> Idle<()> {
        Idle::new()
    }

    fn replica(_: NodeId, _: Group, _: &Settings) -> Bell {
        Bell
    }
}

pub(crate) struct Bell;

impl Actor for Bell {
    type Message = ();
    type Timer = char;
    type Record = ();
    /// The timer, the time on this node's clock at which it fired, and the node's wall clock.
    type Output = (char, std::time::Duration, serried_actor::ClockInterval);

    fn on_start(&mut self, cx: &mut Context<'_, Self>) {
        let microseconds = std::time::Duration::from_micros;
        if cx.id() == NodeId(0) {
            cx.set_timer('a', microseconds(100));
            cx.set_timer('b', microseconds(50));
            cx.set_timer('c', microseconds(300));
            cx.set_timer('d', microseconds(400));
            cx.set_timer('a', microseconds(200));
            cx.cancel_timer('b');
        }
    }

    fn on_message(&mut self, _: NodeId, (): (), _: &mut Context<'_, Self>) {}

    fn on_timer(&mut self, timer: char, cx: &mut Context<'_, Self>) {
        if timer == 'c' {
            cx.set_timer('d', std::time::Duration::from_micros(400));
        }
        cx.output((timer, cx.now().since(serried_actor::Timestamp(0)), cx.clock()));
    }
}

impl Recover for Bell {
    fn rejoin(&mut self, _: &mut Context<'_, Self>) {}

    fn replay(&mut self, (): (), _: &mut dyn Store) {}
}
