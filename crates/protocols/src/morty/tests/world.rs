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

/// Replicas without clients. Each event takes a microsecond.
pub(super) struct World {
    net: Actors,
    group: Group,
    options: Options,
}

derefs_to_net!([] World, net: Actors);

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
        World::of_options(group, Options::default())
    }

    pub(super) fn of_options(group: Group, options: Options) -> World {
        let mut net = actors(&group, options, 0);
        (net.now, net.durable_at_once) = (1_000_000, false);
        World { net, group, options }
    }

    fn fresh(&self, id: NodeId) -> Replica {
        Replica::new(id, self.group.clone(), &Settings::default(), self.options)
    }

    /// A replica crashes and is restarted. It keeps what it has put into its store, and loses the records that are not
    /// durable.
    pub(super) fn restart(&mut self, id: NodeId) {
        let fresh = self.fresh(id);
        self.net.restart(id, fresh);
    }

    /// A replica's disk is lost, and another takes its place.
    pub(super) fn lose_disk(&mut self, id: NodeId) {
        let fresh = self.fresh(id);
        self.net.replace(id, fresh);
    }

    /// Delivers a message to a replica, and returns what it sends.
    pub(super) fn tell(&mut self, from: NodeId, to: NodeId, message: Message) -> Vec<Envelope> {
        self.answers(from, to, message)
    }

    /// Delivers the messages of which `wanted` holds, and those that result, until there are none.
    pub(super) fn settle(&mut self, wanted: impl Fn(&Envelope) -> bool) {
        self.settle_where(wanted);
    }

    /// Delivers all messages to replicas, and those that result, until there are none.
    pub(super) fn settle_all(&mut self) {
        self.settle(|(_, to, _)| !to.is_coordinator());
    }

    pub(super) fn timer(&mut self, id: NodeId, timer: ReplicaTimer) {
        self.fire(id, timer);
    }

    /// A peer says that everything below `upto` is settled, and the replica acts on that to the end.
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

    /// Prepares and commits a transaction at these members.
    pub(super) fn commit(&mut self, members: &[usize], txn: Version, what: &Arc<Contents>) {
        for member in members {
            let id = NodeId::replica(0, *member);
            self.tell(txn.coordinator, id, prepare(txn, 0, what));
            self.tell(txn.coordinator, id, decide(txn, 0, Decision::Commit, what));
        }
    }

    pub(super) fn read(&mut self, id: NodeId, key: &str) -> Option<Value> {
        let get =
            Message::Request(Request::Get { version: version(self.now, 9), key: Key::from(key) });
        let answers = self.tell(coordinator_id(9), id, get);
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
pub(super) fn run_asked_for<'a, E>(asked: E) -> u64
where
    E: IntoIterator<Item = &'a Envelope, IntoIter: DoubleEndedIterator>,
{
    let run = asked.into_iter().rev().find_map(|(from, _, message)| match message {
        Message::CatchingUp(
            CatchingUp::GetCommitted { run, .. } | CatchingUp::Scan { run, .. },
        ) if *from == n(0) => Some(*run),
        _ => None,
    });
    run.expect("it has asked")
}
