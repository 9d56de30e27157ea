//! Views, promises and acceptances: who may propose what, and what counts for what (000 §4.2, §4.3).

use std::sync::Arc;

use super::by_hand::{contents, decide, finalize, prepare, version};
use super::world::World;
use super::*;
use crate::morty::message::Contents;

fn of(partition: u16, member: usize) -> NodeId {
    NodeId::replica(partition, member)
}

/// What a transaction writes in one of two partitions.
fn part(key: &str) -> Arc<Contents> {
    let own = contents(&[], &[(key, "1")]);
    Arc::new(Contents { participants: [0, 1].into_iter().collect(), ..(*own).clone() })
}

/// A machine, with a replica of each of two partitions, loses power and comes back.
fn restart_machine(world: &mut World, member: usize) {
    (0..2).for_each(|partition| world.restart(of(partition, member)));
}

/// What a replica has committed for a key last.
fn committed_in(world: &World, id: NodeId, key: &str) -> Option<Value> {
    let record = world.nodes[id].record(&Key::from(key))?;
    record.committed.latest()?.effect.value()?.cloned()
}

fn is_asking((.., message): &Envelope) -> bool {
    matches!(
        message,
        Message::Recovering(Recovering::PaxosPrepare { .. })
            | Message::Recovering(Recovering::PaxosPrepareReply { .. })
    )
}

/// What is proposed, to whom does not matter.
fn proposals(envelopes: &[Envelope]) -> Vec<(View, u32, Proposal)> {
    let proposal = |(.., message): &Envelope| match message {
        Message::Request(Request::Finalize { view, eid, decision, .. }) => {
            Some((*view, *eid, *decision))
        }
        _ => None,
    };
    let mut proposals: Vec<_> = envelopes.iter().filter_map(proposal).collect();
    proposals.dedup();
    proposals
}

/// At home, partition 0, two have voted to commit; in partition 1, where the recoverer is, all three. The first
/// time it hears of one vote at home, then its machine restarts, and the second time it hears of two.
#[test]
fn a_recoverer_that_restarts_does_not_propose_again_in_the_same_view() {
    let (mut world, client, txn) = (World::new(2), coordinator_id(0), version(900_000, 0));
    for to in [of(0, 0), of(0, 1)] {
        world.deliver((client, to, prepare(txn, 0, &part("a"))));
    }
    (0..3).for_each(|member| world.deliver((client, of(1, member), prepare(txn, 0, &part("b")))));
    let mut proposed = Vec::new();
    for silent in [of(0, 1), of(0, 2)] {
        world.deliver((client, of(1, 0), Message::Request(Request::Inquire { version: txn })));
        world.take(|(_, to, _)| *to == silent);
        world.settle(is_asking);
        proposed.push(
            world.take(|(.., message)| {
                matches!(message, Message::Request(Request::Finalize { .. }))
            }),
        );
        world.network.clear();
        restart_machine(&mut world, 0);
        world.network.clear();
    }
    let [first, second] = [proposals(&proposed[0]), proposals(&proposed[1])];
    assert_eq!((first[0].2, second[0].2), (Proposal::Abandon, Proposal::Commit), "as they knew");
    assert!(first[0].0 < second[0].0, "{first:?} and {second:?}");
    // What was proposed first arrives last, and changes nothing.
    restart_machine(&mut world, 0);
    world.network.clear();
    for (from, to, message) in proposed.into_iter().rev().flatten() {
        world.deliver((from, to, message));
    }
    world.network.clear();
    world.deliver((client, of(0, 1), Message::Request(Request::Inquire { version: txn })));
    world.settle(|_| true);
    for member in 0..3 {
        let found = [(0, "a"), (1, "b")].map(|(p, key)| committed_in(&world, of(p, member), key));
        assert_eq!(found, [Some(Value::from("1")), Some(Value::from("1"))], "on machine {member}");
    }
}

/// The replica's answer to a Finalize.
fn answer(said: &[(NodeId, Message)]) -> Option<(View, u32, Proposal)> {
    match said {
        [(_, Message::Status(Status::FinalizeReply { view, eid, decision, .. }))] => {
            Some((*view, *eid, *decision))
        }
        [] => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_accepted_below_the_promised_view_after_a_restart() {
    let (client, recoverer, txn) = (coordinator_id(0), NodeId(1), version(500, 0));
    let (commit, view) = (finalize(txn, 0, Proposal::Commit), View::OWN.next(recoverer));
    for restarts in [false, true] {
        let mut net = morty(1);
        net.tell(client, 0, prepare(txn, 0, &contents(&[], &[("x", "1")])));
        net.tell(
            recoverer,
            0,
            Message::Recovering(Recovering::PaxosPrepare { version: txn, view, vote_on: None }),
        );
        if restarts {
            net.restart(0);
            net.network.clear();
        }
        let said = net.tell(client, 0, commit.clone());
        assert_eq!(answer(&said).map(|(view, ..)| view), Some(view), "restarts: {restarts}");
        let said = net.tell(
            NodeId(2),
            0,
            Message::Recovering(Recovering::PaxosPrepare {
                version: txn,
                view: view.next(NodeId(2)),
                vote_on: None,
            }),
        );
        let [(_, Message::Recovering(Recovering::PaxosPrepareReply { known: Some(known), .. }))] =
            &said[..]
        else {
            panic!("{said:?}")
        };
        assert_eq!(known.accepted, None, "restarts: {restarts}");
    }
}

#[test]
fn a_view_is_its_recoverers_and_one_thing_is_proposed_in_it() {
    let (recoverer, txn) = (NodeId(1), version(500, 0));
    let view = View::OWN.next(recoverer);
    let finalize = |view, decision| {
        Message::Request(Request::Finalize { version: txn, eid: 0, view, decision })
    };
    let mut net = morty(1);
    net.forged = true;
    for (from, view) in [(NodeId(2), view), (recoverer, View::OWN), (coordinator_id(1), View::OWN)]
    {
        let said = net.tell(from, 0, finalize(view, Proposal::Commit));
        assert_eq!(said, [], "{from} proposes in another's view");
    }
    assert_eq!(
        net.tell(
            NodeId(2),
            0,
            Message::Recovering(Recovering::PaxosPrepare { version: txn, view, vote_on: None })
        ),
        []
    );
    let last = View { round: u32::MAX, recoverer };
    assert_eq!(
        net.tell(
            recoverer,
            0,
            Message::Recovering(Recovering::PaxosPrepare {
                version: txn,
                view: last,
                vote_on: None
            })
        ),
        []
    );
    let accepted = (view, 0, Proposal::Abandon);
    for _ in 0..2 {
        let said = net.tell(recoverer, 0, finalize(view, Proposal::Abandon));
        assert_eq!(answer(&said), Some(accepted));
        assert_eq!(net.tell(recoverer, 0, finalize(view, Proposal::Commit)), [], "in one view");
    }
}

#[test]
fn an_acceptance_counts_for_what_it_names_and_for_nothing_else() {
    let (client, txn) = (coordinator_id(0), version(500, 0));
    let mut net = morty(1);
    net.forged = true;
    for member in 0..2 {
        net.tell(client, member, prepare(txn, 0, &contents(&[], &[("x", "1")])));
    }
    net.network.push_back((client, NodeId(0), Message::Request(Request::Inquire { version: txn })));
    net.held = [NodeId(1), NodeId(2)].into_iter().collect();
    net.settle();
    let view = View::OWN.next(NodeId(0));
    net.network.clear();
    let known = |execution| {
        let known = crate::morty::message::Known { execution, ..Default::default() };
        Message::Recovering(Recovering::PaxosPrepareReply {
            version: txn,
            view,
            known: Some(Box::new(known)),
        })
    };
    let voted = Some((0, Some(Vote::Commit), contents(&[], &[("x", "1")])));
    let said = net.tell(NodeId(1), 0, known(voted));
    assert!(!said.is_empty(), "it proposes to commit");
    let reply = |view, eid, decision| {
        Message::Status(Status::FinalizeReply { version: txn, eid, view, decision })
    };
    for (from, eid, decision) in [
        (NodeId(1), 0, Proposal::Abandon),
        (NodeId(1), 1, Proposal::Commit),
        (coordinator_id(0), 0, Proposal::Commit),
        (NodeId(9), 0, Proposal::Commit),
        (of(7, 1), 0, Proposal::Commit),
    ] {
        let said = net.tell(from, 0, reply(view, eid, decision));
        assert_eq!(said, [], "{from} has accepted {eid} {decision:?}");
        let said = net.tell(from, 0, reply(View::OWN, 0, Proposal::Commit));
        assert_eq!(said, [], "{from} has accepted in another view");
    }
    assert_eq!(net.tell(NodeId(0), 0, reply(view, 0, Proposal::Commit)), [], "no majority");
    let said = net.tell(NodeId(1), 0, reply(view, 0, Proposal::Commit));
    let decided = said.iter().filter(|(_, message)| name(message) == "Decide 0 Commit");
    assert_eq!(decided.count(), 3, "{said:?}");
}

/// A replica is asked what it knows in a view of `NodeId(2)`: which executions are abandoned there.
fn abandoned_before(net: &mut Net, member: usize, txn: Version) -> u32 {
    let view = View::OWN.next(NodeId(2));
    let said = net.tell(
        NodeId(2),
        member,
        Message::Recovering(Recovering::PaxosPrepare { version: txn, view, vote_on: None }),
    );
    match &said[..] {
        [(_, Message::Recovering(Recovering::PaxosPrepareReply { known: Some(known), .. }))] => {
            known.abandoned_before
        }
        other => panic!("{other:?}"),
    }
}

/// What an abandoned execution had prepared is given to others, so that it is abandoned has to be as durable
/// as their votes.
#[test]
fn an_execution_that_was_abandoned_is_abandoned_after_a_restart() {
    let (client, txn, other) = (coordinator_id(0), version(500, 0), version(400, 1));
    let reads = contents(&[("x", Version::INITIAL)], &[("y", "1")]);
    let abandon = Message::Request(Request::Decide {
        version: txn,
        eid: 0,
        decision: Decision::Abandon,
        contents: None,
    });
    // The next execution has read from somebody undecided; without provisional votes it waits.
    let waits = contents(&[("z", version(300, 2))], &[("y", "2")]);
    let waiting = Options { provisional_votes: false, ..Options::default() };
    for (options, abandons) in [
        (Options::default(), abandon),
        (Options::default(), finalize(txn, 0, Proposal::Abandon)),
        (waiting, prepare(txn, 1, &waits)),
    ] {
        let mut net = Net::new(options, 1);
        net.tell(client, 0, prepare(txn, 0, &reads));
        net.tell(client, 0, abandons.clone());
        // An older transaction writes what the abandoned execution has read.
        let vote = net.tell(coordinator_id(1), 0, prepare(other, 0, &contents(&[], &[("x", "1")])));
        let lines: Vec<_> = vote.iter().map(|(_, message)| name(message)).collect();
        assert_eq!(lines, ["PrepareReply 0 Commit"]);
        net.restart(0);
        net.network.clear();
        assert_eq!(abandoned_before(&mut net, 0, txn), 1, "after {}", name(&abandons));
    }
}

/// All have committed a value of `x`, by this transaction.
fn all_have_x() -> (Net, Version) {
    let (mut net, first) = (morty(1), version(300, 3));
    for member in 0..3 {
        let decided = decide(first, 0, Decision::Commit, &contents(&[], &[("x", "0")]));
        net.tell(first.coordinator, member, decided);
    }
    (net, first)
}

/// Table 1 lets a coordinator abort on one such vote alone.
#[test]
fn a_recoverer_that_hears_of_a_vote_to_abandon_for_good_abandons() {
    let (client, txn, later) = (coordinator_id(0), version(500, 0), version(400, 1));
    let (mut net, first) = all_have_x();
    let write = contents(&[], &[("x", "1")]);
    net.tell(coordinator_id(1), 2, decide(later, 0, Decision::Commit, &write));
    let reads = contents(&[("x", first)], &[("y", "1")]);
    let votes: Vec<_> =
        (0..3).flat_map(|member| net.tell(client, member, prepare(txn, 0, &reads))).collect();
    let final_votes =
        votes.iter().filter(|(_, message)| name(message) == "PrepareReply 0 AbandonFinal");
    assert_eq!(final_votes.count(), 1, "{votes:?}");
    // With n0 two of three have voted to commit; it is slow.
    net.held.insert(NodeId(0));
    net.network.push_back((client, NodeId(2), Message::Request(Request::Inquire { version: txn })));
    net.settle();
    for replica in net.nodes.values().skip(1) {
        assert!(replica.record(&Key::from("y")).is_none_or(|record| record.committed.is_empty()));
        assert_eq!(replica.undecided(), 0);
    }
}

/// Of what it misses two have voted to commit and one knows that it did. A coordinator aborts on that one's vote
/// alone, so whoever recovers the transaction has to, with whichever majority, after whatever restarts.
#[test]
fn a_vote_to_abandon_for_good_is_a_durable_decision() {
    let (client, txn, missed) = (coordinator_id(0), version(500, 0), version(400, 1));
    let write = contents(&[], &[("x", "1")]);
    for (silent, restarts) in (0..3).flat_map(|silent| [(silent, false), (silent, true)]) {
        let (mut net, first) = all_have_x();
        let reads = contents(&[("x", first)], &[("y", "1")]);
        for member in 0..2 {
            net.tell(coordinator_id(1), member, prepare(missed, 0, &write));
        }
        net.tell(coordinator_id(1), 0, decide(missed, 0, Decision::Commit, &write));
        let vote = |net: &mut Net, member| {
            let said = net.tell(client, member, prepare(txn, 0, &reads));
            said.iter().find_map(|(_, message)| match message {
                Message::Reply(Reply::PrepareReply { vote, .. }) => Some(*vote),
                _ => None,
            })
        };
        let votes = [Vote::AbandonFinal, Vote::AbandonTentative, Vote::Commit].map(Some);
        assert_eq!([0, 1, 2].map(|member| vote(&mut net, member)), votes);
        if restarts {
            (0..3).for_each(|member| net.restart(member));
            net.network.clear();
            assert_eq!([0, 1, 2].map(|member| vote(&mut net, member)), votes, "after a restart");
        }
        net.held.insert(NodeId(silent));
        let asked = NodeId((silent + 1) % 3);
        net.network.push_back((client, asked, Message::Request(Request::Inquire { version: txn })));
        net.settle();
        let found = committed(&net, asked.member(), "y");
        assert_eq!(found, None, "without n{silent}, restarts: {restarts}");
        assert_eq!(net.nodes[asked.member()].undecided(), usize::from(asked == NodeId(1)));
    }
}

/// A replica that catches up has one part of what others have settled, and not the other.
#[test]
fn a_replica_that_catches_up_votes_nothing_down_for_good() {
    let (client, writer, txn) = (coordinator_id(0), version(400, 1), version(500, 0));
    let reads = contents(&[("x", writer)], &[("y", "1")]);
    let nothing = contents(&[], &[]);
    let votes = |said: Vec<(NodeId, Message)>| -> Vec<String> {
        let votes = said.iter().map(|(_, message)| name(message));
        votes.filter(|line| line.starts_with("PrepareReply")).collect()
    };
    for provisional in [false, true] {
        let mut net = morty(2);
        // Something that it is behind by after a restart.
        net.tell(coordinator_id(2), 0, prepare(version(300, 2), 0, &nothing));
        if provisional {
            assert_eq!(
                votes(net.tell(client, 0, prepare(txn, 0, &reads))),
                ["PrepareReply 0 Provisional"]
            );
        }
        net.restart(0);
        let catching_up: Vec<_> = net.network.drain(..).collect();
        // The writer has committed, and what was read of it is not there.
        let decided = decide(writer, 0, Decision::Commit, &nothing);
        assert_eq!(votes(net.tell(coordinator_id(1), 0, decided)), [] as [&str; 0]);
        let vote = match provisional {
            true => "PrepareReply 0 Provisional",
            false => "PrepareReply 0 AbandonTentative",
        };
        assert_eq!(votes(net.tell(client, 0, prepare(txn, 0, &reads))), [vote]);
        net.network.extend(catching_up);
        net.settle();
        assert_eq!(net.gauge(0, "catching_up"), 0);
        let again = votes(net.tell(client, 0, prepare(txn, 0, &reads)));
        let last = if provisional { "PrepareReply 0 AbandonFinal" } else { vote };
        assert_eq!(again.last().unwrap(), last, "provisional: {provisional}");
    }
}

/// What `member` has committed for `key`, last.
fn committed(net: &Net, member: usize, key: &str) -> Option<Value> {
    let record = net.nodes[member].record(&Key::from(key))?;
    record.committed.latest()?.effect.value()?.cloned()
}
