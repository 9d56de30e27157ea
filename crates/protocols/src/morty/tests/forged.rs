//! Messages that no sound sender sends, as their bytes are damaged or forged: they are dropped and counted, and
//! change nothing.

use core::time::Duration;
use std::sync::Arc;

use serried_actor::{
    Actor, ClockInterval, Context, Durable, Group, MemoryStore, Random, Settings, Timestamp,
};
use serried_parts::WriteId;

use super::by_hand::{contents, decide, prepare, version};
use super::*;
use crate::morty::Coordinator;
use crate::morty::message::{
    Ballot, CatchingUp, Contents, Known, Merged, Recovering, Rejoining, Reply, Request, Settlement,
    Status, Truncating,
};

const TXN: u64 = 500;

fn txn() -> Version {
    version(TXN, 0)
}

/// The write of `x`, in partitions that are not all there are, or not only those.
fn spread(participants: &[u16]) -> Arc<Contents> {
    let own = contents(&[], &[("x", "1")]);
    Arc::new(Contents { participants: participants.iter().copied().collect(), ..(*own).clone() })
}

/// Contents that no transaction has.
fn impossible() -> Vec<Arc<Contents>> {
    let mut all: Vec<_> = [&[][..], &[1], &[0, 0], &[0, 7], &[u16::MAX]].map(spread).into();
    all.push(contents(&[("x", txn())], &[("y", "1")]));
    all.push(contents(&[("x", version(u64::MAX, 0))], &[]));
    all
}

/// A replica gets a message: it sends nothing, keeps nothing of it, and has counted it.
fn is_dropped(net: &mut Net, from: NodeId, member: usize, message: Message) {
    let before = (net.nodes[member].rejected, net.nodes[member].records.len());
    let open = net.nodes[member].undecided();
    assert_eq!(net.tell(from, member, message.clone()), [], "to {message:?}");
    let after = (net.nodes[member].rejected, net.nodes[member].records.len());
    assert_eq!(after, (before.0 + 1, before.1), "after {message:?}");
    assert!(net.nodes[member].undecided() <= open.max(1), "after {message:?}");
}

#[test]
fn a_decision_that_is_not_what_was_decided_is_dropped() {
    let (client, write) = (coordinator_id(0), contents(&[], &[("x", "1")]));
    let decisions = [(0, Decision::Commit), (1, Decision::Commit), (0, Decision::Abort)];
    for (eid, decision) in &decisions[..] {
        let mut net = morty(1);
        net.forged = true;
        net.tell(client, 0, decide(txn(), *eid, *decision, &write));
        let log = net.nodes[0].records.clone();
        for (other, contradiction) in &decisions {
            let same = contradiction == decision && (other == eid || *decision == Decision::Abort);
            if !same {
                is_dropped(&mut net, client, 0, decide(txn(), *other, *contradiction, &write));
            }
        }
        assert_eq!(net.nodes[0].records, log);
    }
}

#[test]
fn contents_that_no_transaction_has_are_dropped_wherever_they_come_from() {
    let (client, peer) = (coordinator_id(0), NodeId(1));
    for contents in impossible() {
        let mut net = morty(1);
        net.forged = true;
        is_dropped(&mut net, client, 0, prepare(txn(), 0, &contents));
        is_dropped(&mut net, client, 0, decide(txn(), 0, Decision::Commit, &contents));
        let executions = vec![(txn(), 0, contents.clone())];
        is_dropped(
            &mut net,
            peer,
            0,
            Message::CatchingUp(CatchingUp::Fetched { executions, readable_from: 0 }),
        );
        // A recoverer is told of them.
        net.tell(client, 0, Message::Request(Request::Inquire { version: txn() }));
        let execution = Some((0, Some(Vote::Commit), contents));
        let known = Some(Box::new(Known { execution, ..Known::default() }));
        let view = View::OWN.next(NodeId(0));
        is_dropped(
            &mut net,
            peer,
            0,
            Message::Recovering(Recovering::PaxosPrepareReply { version: txn(), view, known }),
        );
    }
}

#[test]
fn what_only_replicas_of_the_partition_send_is_dropped_from_others() {
    let far = NodeId::replica(7, 1);
    let outsiders = [coordinator_id(0), NodeId(NodeId::MEMBERS as u64 - 1), far];
    let (upto, view) = (100, View::OWN.next(NodeId(1)));
    let ballot = Ballot { upto, view };
    let (snapshot, digest) = Default::default();
    let messages = [
        Message::Truncating(Truncating::Truncate { ballot, snapshot }),
        Message::Truncating(Truncating::TruncationPaxosPrepare { ballot }),
        Message::Truncating(Truncating::ProposeMerge { ballot, merged: Merged { upto, digest } }),
        Message::Truncating(Truncating::Clear { ballot, watermark: 0 }),
        Message::Truncating(Truncating::BallotIsOver { ballot }),
        Message::Truncating(Truncating::ProposeMergeReply { ballot, merged: None }),
        Message::Truncating(Truncating::TruncationFinished { upto, merged: Default::default() }),
        Message::Truncating(Truncating::CannotMerge { upto }),
        Message::CatchingUp(CatchingUp::GetCommitted { since: txn(), run: 0 }),
        Message::Rejoining(Rejoining::Replaced { question: 0 }),
        Message::Rejoining(Rejoining::ReplacedReply { question: 0, reached: 0 }),
        Message::CatchingUp(CatchingUp::Fetch { versions: vec![txn()] }),
        Message::Recovering(Recovering::PaxosPrepare { version: txn(), view, vote_on: None }),
        Message::Recovering(Recovering::PaxosPrepareReply { version: txn(), view, known: None }),
        Message::Status(Status::FinalizeReply {
            version: txn(),
            eid: 0,
            view,
            decision: Proposal::Commit,
        }),
        Message::Status(Status::Settled { version: txn(), settlement: Settlement::Aborted }),
    ];
    let mut net = morty(1);
    net.forged = true;
    for from in outsiders {
        for message in &messages {
            is_dropped(&mut net, from, 0, message.clone());
        }
    }
    for from in [coordinator_id(0), far, NodeId(1)] {
        is_dropped(&mut net, from, 0, Message::Watermark { upto });
    }
}

#[test]
fn a_coordinator_believes_replicas_only_and_nothing_from_its_future() {
    let mut net = morty(1);
    net.forged = true;
    net.get(0, "x");
    net.network.clear();
    net.hear();
    let began = net.outputs.iter().find_map(|(_, output)| match output {
        Output::Began(version) => Some(*version),
        _ => None,
    });
    let began = began.unwrap();
    let write = |version| WriteId { version, tag: 1 };
    let reply = |found| {
        Message::Reply(Reply::GetReply {
            version: began,
            key: Key::from("x"),
            found: write(found).into(),
            value: None,
            instead_of: None,
        })
    };
    let later = Version { timestamp_us: began.timestamp_us + 1, ..began };
    for (from, found) in [
        (NodeId(0), began),
        (NodeId(0), later),
        (NodeId(5), txn()),
        (coordinator_id(7), txn()),
        (NodeId::replica(3, 0), txn()),
    ] {
        net.deliver((from, coordinator_id(0), reply(found)));
        net.hear();
        assert!(net.outputs.iter().all(|(_, output)| matches!(output, Output::Began(_))));
    }
    net.deliver((NodeId(0), coordinator_id(0), reply(txn())));
    assert_eq!(net.told(0), ["value x = absent"]);
    net.commit(0, &["x"], &[("y", "1")]);
    net.network.clear();
    for member in 3..6 {
        let (eid, vote, conflict) = (0, Vote::Commit, None);
        let vote = Message::Reply(Reply::PrepareReply { version: began, eid, vote, conflict });
        net.deliver((NodeId(member), coordinator_id(0), vote));
    }
    assert_eq!(net.told(0), [] as [&str; 0], "there are no such replicas");
}

#[test]
fn what_arrives_at_the_wrong_side_is_dropped() {
    let mut net = morty(1);
    net.forged = true;
    let reply = Message::Reply(Reply::Acknowledge { versions: vec![txn()] });
    is_dropped(&mut net, NodeId(1), 0, reply);
    let (group, settings) = (Group::new(3, Duration::from_millis(1)), Settings::default());
    let mut coordinator = Coordinator::new(group, &settings, Options::default());
    let upto = 100;
    for message in [
        Message::Request(Request::Inquire { version: txn() }),
        Message::Recovering(Recovering::PaxosPrepare {
            version: txn(),
            view: View::OWN,
            vote_on: None,
        }),
        Message::Truncating(Truncating::CannotMerge { upto }),
        Message::CatchingUp(CatchingUp::Fetch { versions: vec![txn()] }),
        Message::Rejoining(Rejoining::Replaced { question: 0 }),
        Message::Watermark { upto },
    ] {
        let (mut effects, mut store, mut random) =
            (Vec::new(), MemoryStore::default(), Random::new(1));
        let durable = Durable { store: &mut store, log_position: 0, durable_position: u64::MAX };
        let clock = ClockInterval { earliest_us: 1000, latest_us: 1000 };
        let (id, now) = (coordinator_id(0), Timestamp(1_000_000));
        let mut cx = Context::new(id, now, clock, &mut random, &mut effects, durable);
        coordinator.on_message(NodeId(0), message.clone(), &mut cx);
        assert!(cx.take_rejected().is_some(), "{message:?}");
        assert!(effects.is_empty(), "{message:?}");
    }
}
