//! Replicas whose logs can be trimmed, with messages that are taken, lost and delivered one by one.

use std::sync::Arc;

use super::by_hand::{decide, prepare, version};
use super::*;
use crate::morty::Digest;
use crate::morty::message::Contents;

/// A second, in microseconds.
pub(super) const SECOND: u64 = 1_000_000;

/// A replica of the first partition.
pub(super) fn n(member: usize) -> NodeId {
    NodeId::replica(0, member)
}

/// The digest of these transactions, each of which has committed as its first execution.
pub(super) fn digest(of: &[Version]) -> Digest {
    let mut digest = Digest::default();
    of.iter().for_each(|version| digest.add(*version, 0));
    digest
}

/// One replica with a log that can be trimmed.
pub(super) struct Node {
    pub(super) group: Group,
    pub(super) replica: Replica,
    pub(super) log: Vec<Record>,
    pub(super) trimmed: u64,
    pub(super) store: MemoryStore,
    /// The records before this position are durable; all of them if it is not set.
    pub(super) durable: Option<u64>,
}

pub(super) struct World {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) network: Vec<Envelope>,
    pub(super) random: Random,
    pub(super) now: u64,
}

impl World {
    /// Three replicas of each partition.
    pub(super) fn new(partitions: u16) -> World {
        World::with(Group::new(3, Duration::from_millis(1)).with_partitions(partitions))
    }

    /// So many replicas of one partition.
    pub(super) fn of(members: usize) -> World {
        World::with(Group::new(members, Duration::from_millis(1)))
    }

    pub(super) fn with(group: Group) -> World {
        let mut nodes = BTreeMap::new();
        for partition in 0..group.partitions() {
            for member in 0..group.size() {
                let id = NodeId::replica(partition, member);
                let replica =
                    Replica::new(id, group.clone(), &Settings::default(), Options::default());
                let (log, store) = (Vec::new(), MemoryStore::default());
                let group = group.clone();
                nodes.insert(id, Node { group, replica, log, trimmed: 0, store, durable: None });
            }
        }
        World { nodes, network: Vec::new(), random: rand_pcg(), now: 1_000_000 }
    }

    pub(super) fn act(
        &mut self,
        id: NodeId,
        does: impl FnOnce(&mut Replica, &mut Context<'_, Replica>),
    ) {
        self.now += 1;
        let us = self.now;
        let clock = ClockInterval { earliest_us: us, latest_us: us };
        let node = self.nodes.get_mut(&id).unwrap();
        let mut effects = Vec::new();
        let log_position = node.trimmed + node.log.len() as u64;
        let durable = Durable {
            store: &mut node.store,
            log_position,
            durable_position: node.durable.unwrap_or(log_position),
        };
        let mut cx =
            Context::new(id, Timestamp(us * 1000), clock, &mut self.random, &mut effects, durable);
        does(&mut node.replica, &mut cx);
        for effect in effects {
            match effect {
                Effect::Send { to, message } | Effect::SendBeforeDurable { to, message } => {
                    self.network.push((id, to, message));
                }
                Effect::Broadcast { partition, to, message } => {
                    for to in to.members() {
                        self.network.push((id, NodeId::replica(partition, to), message.clone()));
                    }
                }
                Effect::Append(record) => node.log.push(record),
                Effect::TrimLog(position) => {
                    let count = position.saturating_sub(node.trimmed) as usize;
                    node.log.drain(..count.min(node.log.len()));
                    node.trimmed = node.trimmed.max(position);
                }
                Effect::SetTimer { .. } | Effect::CancelTimer(_) | Effect::Output(()) => {}
            }
        }
    }

    /// From now on nothing that a replica appends is durable, until it crashes.
    pub(super) fn hold_log(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.durable = Some(node.trimmed + node.log.len() as u64);
    }

    /// A replica crashes and is restarted. It keeps what it has put into its store, and loses the records that are not
    /// durable.
    pub(super) fn crash(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        if let Some(durable) = node.durable.take() {
            node.log.truncate((durable - node.trimmed) as usize);
        }
        self.restart(id);
    }

    /// A replica's disk is lost, and another takes its place.
    pub(super) fn lose_disk(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        (node.log, node.trimmed, node.store, node.durable) = Default::default();
        node.replica =
            Replica::new(id, node.group.clone(), &Settings::default(), Options::default());
        self.act(id, Replica::rejoin);
        self.act(id, Replica::on_start);
    }

    /// One of the numbers that a replica shows of its state.
    pub(super) fn gauge(&self, id: NodeId, name: &str) -> u64 {
        let mut found = None;
        self.nodes[&id].replica.gauges(&mut |other, value| {
            if name == other {
                found = Some(value);
            }
        });
        found.unwrap_or_else(|| panic!("there is no gauge {name}"))
    }

    pub(super) fn restart(&mut self, id: NodeId) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.replica =
            Replica::new(id, node.group.clone(), &Settings::default(), Options::default());
        for record in node.log.clone() {
            node.replica.replay(record, &mut node.store);
        }
        self.act(id, Replica::on_start);
    }

    pub(super) fn deliver(&mut self, (from, to, message): Envelope) {
        if to.is_coordinator() {
            return;
        }
        self.act(to, |replica, cx| replica.on_message(from, message, cx));
    }

    /// Tells a replica, and returns what it says.
    pub(super) fn tell(&mut self, from: NodeId, to: NodeId, message: Message) -> Vec<Envelope> {
        let before = core::mem::take(&mut self.network);
        self.deliver((from, to, message));
        core::mem::replace(&mut self.network, before)
    }

    /// Takes the messages out of the network of which this holds.
    pub(super) fn take(&mut self, wanted: impl Fn(&Envelope) -> bool) -> Vec<Envelope> {
        let (taken, left) = core::mem::take(&mut self.network).into_iter().partition(wanted);
        self.network = left;
        taken
    }

    /// Delivers those of which this holds, and what comes of them, until there are none.
    pub(super) fn settle(&mut self, wanted: impl Fn(&Envelope) -> bool) {
        loop {
            let these = self.take(&wanted);
            if these.is_empty() {
                return;
            }
            these.into_iter().for_each(|envelope| self.deliver(envelope));
        }
    }

    /// Delivers all messages to replicas, and those that result, until there are none.
    pub(super) fn settle_all(&mut self) {
        self.settle(|(_, to, _)| !to.is_coordinator());
    }

    pub(super) fn timer(&mut self, id: NodeId, timer: ReplicaTimer) {
        self.act(id, |replica, cx| replica.on_timer(timer, cx));
    }

    /// Below this everything is settled, as others say, and what that leaves to be done is done.
    pub(super) fn settle_below(&mut self, id: NodeId, upto: u64, merged: Digest) {
        self.tell(
            NodeId(2),
            id,
            Message::Truncating(Truncating::TruncationFinished { upto, merged }),
        );
        for _ in 0..50 {
            self.timer(id, ReplicaTimer::Settle);
        }
        self.network.clear();
    }

    /// A transaction is prepared and committed at these members.
    pub(super) fn commit(&mut self, members: &[usize], txn: Version, what: &Arc<Contents>) {
        for member in members {
            let id = NodeId::replica(0, *member);
            self.tell(txn.coordinator, id, prepare(txn, 0, what));
            self.tell(txn.coordinator, id, decide(txn, 0, Decision::Commit, what));
        }
    }

    pub(super) fn read(&mut self, id: NodeId, key: &str) -> Option<Value> {
        let reader = version(self.now, 9);
        let answers = self.tell(
            coordinator_id(9),
            id,
            Message::Request(Request::Get { version: reader, key: Key::from(key) }),
        );
        match &answers[..] {
            [(_, _, Message::Reply(Reply::GetReply { value, .. }))] => value.clone(),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn votes(answers: &[Envelope]) -> Vec<Vote> {
    let vote = |(_, _, message): &Envelope| match message {
        Message::Reply(Reply::PrepareReply { vote, .. }) => Some(*vote),
        _ => None,
    };
    answers.iter().filter_map(vote).collect()
}

/// The run of the list or copy that `n0` has asked for last.
pub(super) fn run_asked_for(asked: &[Envelope]) -> u64 {
    let run = asked.iter().rev().find_map(|(from, _, message)| match message {
        Message::CatchingUp(CatchingUp::GetCommitted { run, .. })
        | Message::CatchingUp(CatchingUp::Scan { run, .. })
            if *from == n(0) =>
        {
            Some(*run)
        }
        _ => None,
    });
    run.unwrap_or_else(|| panic!("{asked:?}"))
}
