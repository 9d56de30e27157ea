//! Confirming votes, and what is durable before they leave.

use super::by_hand::{contents, decide, finalize, prepare, version};
use super::world::{World, n, votes};
use super::*;
use crate::Mutated;
use crate::morty::Mutation;
use crate::morty::message::Settlement;

/// A writer, and a reader of what it writes. All replicas have voted for both, for the reader provisionally. What the first
/// replica logs from the reader's Prepare on, or after that, is not durable.
fn writer_and_reader(mutation: Mutated<Mutation>, is_vote_durable: bool) -> (World, [Version; 2]) {
    let options = Options { mutation, ..Options::default() };
    let mut world = World::of_options(Group::new(3, Duration::from_millis(1)), options);
    world.now = 2_000_200;
    let [writer, reader] = [version(2_000_000, 0), version(2_000_100, 1)];
    let reads = contents(&[("x", writer)], &[("x", "2")]);
    for member in 0..3 {
        let first = prepare(writer, 0, &contents(&[], &[("x", "1")]));
        assert_eq!(votes(&world.tell(writer.coordinator, n(member), first)), [Vote::Commit]);
        if member == 0 && !is_vote_durable {
            world.nodes[n(0)].hold_log();
        }
        let told = world.tell(reader.coordinator, n(member), prepare(reader, 0, &reads));
        assert_eq!(votes(&told), [Vote::Provisional]);
    }
    if is_vote_durable {
        (0..3).for_each(|member| world.nodes[n(member)].hold_log());
    }
    world.early.clear();
    (world, [writer, reader])
}

/// The writer ends at the first replica, which votes on the reader. Returns its vote, and whether that leaves before anything
/// more is durable.
fn end_writer(world: &mut World, writer: Version, decision: Decision) -> (Vote, bool) {
    let ends = decide(writer, 0, decision, &contents(&[], &[("x", "1")]));
    let told = world.tell(writer.coordinator, n(0), ends);
    let [vote] = votes(&told)[..] else { panic!("{told:?}") };
    let early: Vec<Envelope> = world.early.drain(..).collect();
    (vote, votes(&early) == [vote])
}

#[test]
fn a_confirming_vote_waits_for_the_provisional_one_only() {
    for is_vote_durable in [true, false] {
        let (mut world, [writer, _]) = writer_and_reader(Mutated::NONE, is_vote_durable);
        let told = end_writer(&mut world, writer, Decision::Commit);
        assert_eq!(told, (Vote::Commit, is_vote_durable));
    }
}

/// The coordinator aborts the reader because of this vote alone.
#[test]
fn a_vote_to_abandon_waits_until_it_is_durable_itself() {
    let (mut world, [writer, _]) = writer_and_reader(Mutated::NONE, true);
    let told = end_writer(&mut world, writer, Decision::Abort);
    assert_eq!(told, (Vote::AbandonFinal, false));
}

/// The confirming vote has left, and with the provisional ones it commits the reader. Then all lose power. `up` of them come
/// back, and recover the reader.
fn after_a_power_cut(
    mutation: Mutated<Mutation>,
    is_vote_durable: bool,
    up: &[usize],
) -> Option<Settlement> {
    let (mut world, [writer, reader]) = writer_and_reader(mutation, is_vote_durable);
    assert_eq!(end_writer(&mut world, writer, Decision::Commit), (Vote::Commit, true));
    for member in 0..3 {
        world.restart(n(member));
    }
    world.network.clear();
    let inquirer = NodeId(99);
    let inquire = Message::Request(Request::Inquire { version: reader });
    world.deliver((inquirer, n(up[0]), inquire));
    let mut settled = None;
    for _ in 0..40 {
        world.settle(|(_, to, _)| up.iter().any(|member| *to == n(*member)));
        for (_, to, message) in world.network.drain(..) {
            if let Message::Status(Status::Settled { version, settlement }) = message
                && (to, version) == (inquirer, reader)
            {
                settled = Some(settlement);
            }
        }
        world.now += 500_000;
        up.iter().for_each(|member| world.fire_due(n(*member)));
    }
    settled
}

#[test]
fn what_a_confirming_vote_has_committed_outlasts_a_power_cut() {
    let committed = Some(Settlement::Committed { eid: 0 });
    for up in [[0, 1], [1, 0], [1, 2]] {
        assert_eq!(after_a_power_cut(Mutated::NONE, true, &up), committed, "{up:?}");
    }
    let careless = Mutated::by(Mutation::ConfirmsBeforeDurable);
    assert_eq!(after_a_power_cut(careless, false, &[0, 1]), Some(Settlement::Aborted));
}

#[test]
fn a_vote_deep_in_a_chain_waits_until_it_is_durable() {
    let mut world = World::of(3);
    world.now = 2_000_200;
    let mut before = version(2_000_000, 0);
    let first = prepare(before, 0, &contents(&[], &[("x", "0")]));
    world.tell(before.coordinator, n(0), first);
    world.early.clear();
    for link in 1..=20 {
        let reader = version(2_000_000 + link, link);
        let reads = contents(&[("x", before)], &[("x", "1")]);
        let told = world.tell(reader.coordinator, n(0), prepare(reader, 0, &reads));
        assert_eq!(votes(&told), [Vote::Provisional], "link {link}");
        before = reader;
    }
    assert_eq!(votes(&world.early), []);
}

#[test]
fn what_a_replica_accepts_promises_or_has_carried_out_is_said_when_it_is_durable() {
    let mut world = World::of(3);
    world.now = 2_000_200;
    let txn = version(2_000_000, 0);
    let writes = contents(&[], &[("x", "1")]);
    world.tell(txn.coordinator, n(0), prepare(txn, 0, &writes));
    let accepts = finalize(txn, 0, Proposal::Commit);
    let view = View::OWN.next(n(1));
    let promises =
        Message::Recovering(Recovering::PaxosPrepare { version: txn, view, vote_on: None });
    world.early.clear();
    for (from, message) in [(txn.coordinator, accepts), (n(1), promises)] {
        let said = world.tell(from, n(0), message);
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(world.early, [], "before it is durable");
    }
    world.tell(txn.coordinator, n(0), decide(txn, 0, Decision::Commit, &writes));
    world.timer(n(0), ReplicaTimer::Acknowledge);
    let is_acknowledged =
        |(.., message): &Envelope| matches!(message, Message::Reply(Reply::Acknowledge { .. }));
    assert!(world.network.iter().any(is_acknowledged), "{:?}", world.network);
    assert_eq!(world.early, [], "before it is durable");
}
