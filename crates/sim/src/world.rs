//! What all nodes share: time, the network and statistics.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use serried_actor::{Timestamp, Wire};
use serried_model::NodeId;

use crate::disk::Receivers;
use crate::hash::Hash;
use crate::host::SharedCores;
use crate::network::Network;
use crate::scheduler::Scheduler;
use crate::statistics::{Messages, Traffic};
use crate::timers::Setting;

/// A message as it leaves its sender.
#[derive(Debug)]
pub struct Passing<'a, M> {
    /// When it leaves.
    pub at: Timestamp,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The message.
    pub message: &'a M,
}

/// What an [`Interceptor`] decides about a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The network takes it.
    Pass,
    /// It is lost.
    Lose,
    /// The network takes it, and it arrives this much later.
    Delay(Duration),
}

/// Receives every message as it leaves, to trace it or to build a scenario that random runs rarely reach.
pub type Interceptor<M> = Box<dyn FnMut(Passing<'_, M>) -> Fate>;

/// A future event. Nodes are numbered densely: replicas first, then clients.
pub(crate) enum Event<M> {
    Start {
        node: u32,
    },
    Message {
        from: u32,
        to: u32,
        length: u32,
        digest: u64,
        message: M,
    },
    Timer {
        node: u32,
        setting: Setting,
    },
    /// A core has served an event.
    Served {
        node: u32,
        incarnation: u32,
        number: u64,
    },
    /// A process has used its turn on a machine that all nodes share.
    TurnEnded {
        process: u32,
    },
    /// A flush is done.
    Flushed {
        node: u32,
        incarnation: u32,
    },
    /// A client's next alarm may be due.
    Alarm {
        client: u32,
    },
    FaultBegins {
        fault: u32,
    },
    FaultEnds {
        fault: u32,
    },
    Heal,
}

/// What kind of event it was, for the event hash.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Start,
    Message,
    Timer,
    Served,
    Flushed,
    Alarm,
    Operations,
    FaultBegins,
    FaultEnds,
    Heal,
    TurnEnded,
}

/// What all nodes share.
pub(crate) struct World<M> {
    pub(crate) now: Timestamp,
    pub(crate) scheduler: Scheduler<Event<M>>,
    pub(crate) network: Network,
    pub(crate) hash: Hash,
    /// Whether messages were forged. Then nodes may send messages to nodes that do not exist, and may reject messages.
    pub(crate) forged: bool,
    pub(crate) interceptor: Option<Interceptor<M>>,
    /// How many replicas there are in all partitions of all sites.
    pub(crate) replicas: u32,
    /// How many members a group has.
    members: u32,
    pub(crate) nodes: u32,
    pub(crate) counts: Counts,
    pub(crate) hash_contents: bool,
    /// Whether messages are encoded to measure them.
    pub(crate) measures: bool,
    /// Clients that die, and after how many more messages.
    pub(crate) doomed: BTreeMap<u32, u64>,
    /// The machine on which all nodes run, if they do.
    pub(crate) shared_cores: Option<SharedCores>,
    /// Clients whose messages are counted.
    pub(crate) counted: BTreeMap<u32, Arc<Traffic>>,
    scratch: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) events: u64,
    pub(crate) messages: Messages,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) partitioned: u64,
    pub(crate) undeliverable: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
    pub(crate) rejected: u64,
}

impl<M> World<M> {
    /// The process whose turn it is on a machine that all nodes share, and its nodes that have something to do.
    pub(crate) fn next_turn(&mut self) -> Option<(u32, Vec<u32>)> {
        self.shared_cores.as_mut()?.next_turn()
    }
}

impl<M: Wire> World<M> {
    pub(crate) fn new(network: Network, (replicas, members): (u32, u32), nodes: u32) -> World<M> {
        World {
            now: Timestamp(0),
            scheduler: Scheduler::new(),
            network,
            hash: Hash::new(0),
            forged: false,
            interceptor: None,
            replicas,
            members,
            nodes,
            counts: Counts::default(),
            hash_contents: false,
            measures: false,
            doomed: BTreeMap::new(),
            shared_cores: None,
            counted: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Schedules an event.
    pub(crate) fn after(&mut self, delay: Duration, event: Event<M>) {
        self.scheduler.schedule(self.now + delay, event);
    }

    /// Counts and hashes an event that is about to be handled.
    pub(crate) fn record(&mut self, kind: Kind, node: u32, from: u32) {
        self.counts.events += 1;
        self.hash.fold(self.now.0);
        self.hash.fold(u64::from(from) << 32 ^ u64::from(node) << 8 ^ kind as u64);
    }

    /// Hands a message to the network.
    pub(crate) fn transmit(&mut self, from: u32, receivers: Receivers, message: M) {
        let (length, digest) = self.measure(&message);
        match receivers {
            Receivers::One(to) => self.pass(from, to, length, digest, message),
            Receivers::All(partition, set) => {
                let mut message = Some(message);
                for (i, member) in set.members().enumerate() {
                    let to = NodeId::replica(partition, member);
                    let last = i + 1 == set.len();
                    let copy = if last { message.take() } else { message.clone() };
                    self.pass(from, to, length, digest, copy.expect("only the last one is taken"));
                }
            }
        }
    }

    /// A node receives a message in the turn of its process.
    pub(crate) fn note_sender(&mut self, node: u32, from: NodeId) {
        let from = self.find(from);
        if let (Some(cores), Some(from)) = (&mut self.shared_cores, from) {
            cores.receives(node, from);
        }
    }

    /// A node sends a message in the turn of its process.
    pub(crate) fn note_receiver(&mut self, node: u32, to: NodeId) {
        let to = self.find(to);
        if let (Some(cores), Some(to)) = (&mut self.shared_cores, to) {
            cores.sends(node, to);
        }
    }

    /// A message's encoded length and a digest of its bytes, if messages are measured.
    fn measure(&mut self, message: &M) -> (u32, u64) {
        if !self.measures {
            return (0, 0);
        }
        self.scratch.clear();
        message.encode(&mut self.scratch);
        let mut digest = Hash::new(0);
        if self.hash_contents {
            digest.fold_bytes(&self.scratch);
        }
        (self.scratch.len() as u32, digest.value())
    }

    /// Delivers a message now that its sender has not sent.
    pub(crate) fn forge(&mut self, from: NodeId, to: NodeId, message: M) {
        self.forged = true;
        let (from, to) = (self.number(from), self.number(to));
        let (length, digest) = self.measure(&message);
        self.scheduler.schedule(self.now, Event::Message { from, to, length, digest, message });
    }

    fn pass(&mut self, from: u32, receiver: NodeId, length: u32, digest: u64, message: M) {
        if self.forged && self.find(receiver).is_none() {
            self.counts.lost += 1;
            return;
        }
        let to = self.number(receiver);
        if let Some(left) = self.doomed.get_mut(&from) {
            let Some(fewer) = left.checked_sub(1) else { return };
            *left = fewer;
        }
        self.counts.messages.count(from < self.replicas, to < self.replicas);
        self.counts.bytes += u64::from(length);
        if !self.counted.is_empty() {
            self.counted.get(&from).inspect(|client| client.sends(self.now, length));
            self.counted.get(&to).inspect(|client| client.is_sent(length));
        }
        let mut held_up = Duration::ZERO;
        if self.interceptor.is_some() {
            match self.intercept(from, receiver, &message) {
                Fate::Pass => {}
                Fate::Delay(delay) => held_up = delay,
                Fate::Lose => {
                    self.counts.lost += 1;
                    return;
                }
            }
        }
        let route = self.network.route(self.now, from, to, held_up);
        self.counts.reordered += u64::from(route.reordered);
        let Some(arrives) = route.arrives else {
            let lost = if route.partitioned {
                &mut self.counts.partitioned
            } else {
                &mut self.counts.lost
            };
            *lost += 1;
            return;
        };
        if let Some(again) = route.arrives_again {
            self.counts.duplicated += 1;
            let message = message.clone();
            self.scheduler.schedule(again, Event::Message { from, to, length, digest, message });
        }
        self.scheduler.schedule(arrives, Event::Message { from, to, length, digest, message });
    }

    fn intercept(&mut self, from: u32, to: NodeId, message: &M) -> Fate {
        let (at, from) = (self.now, self.id(from));
        match &mut self.interceptor {
            Some(interceptor) => interceptor(Passing { at, from, to, message }),
            None => Fate::Pass,
        }
    }

    /// The identity of the node with this number.
    pub(crate) fn id(&self, node: u32) -> NodeId {
        match node.checked_sub(self.replicas) {
            None => NodeId::replica((node / self.members) as u16, (node % self.members) as usize),
            Some(client) => NodeId(NodeId::FIRST_COORDINATOR + u64::from(client)),
        }
    }

    /// The number of the node with this identity.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn number(&self, node: NodeId) -> u32 {
        self.find(node).unwrap_or_else(|| panic!("there is no node {node} in this cluster"))
    }

    fn find(&self, node: NodeId) -> Option<u32> {
        let number = match node.0.checked_sub(NodeId::FIRST_COORDINATOR) {
            None => {
                let number = u64::from(node.partition()) * u64::from(self.members);
                let number = Some(number + node.member() as u64);
                number.filter(|number| {
                    *number < u64::from(self.replicas) && node.member() < self.members as usize
                })
            }
            Some(client) => Some(client.saturating_add(u64::from(self.replicas)))
                .filter(|number| *number < u64::from(self.nodes)),
        };
        number.map(|number| number as u32)
    }
}
