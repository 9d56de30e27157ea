//! A replica that lacks a delete which others have settled, and has the value before it. Who finds nothing elsewhere may
//! have found that delete.

use super::by_hand::{contents, prepare, version};
use super::world::{SECOND, World, digest, n, votes};
use super::*;
use crate::morty::message::Settlement;
use crate::morty::votes::{Quorums, Tally, Votes};

/// `k` is written everywhere, and then deleted while these members are away. The others forget the delete.
fn deleted_while_away(members: usize, away: &[usize]) -> World {
    let mut world = World::of(members);
    let (first, second) = (version(SECOND, 0), version(14 * SECOND, 0));
    let all: Vec<usize> = (0..members).collect();
    let others: Vec<usize> = (0..members).filter(|member| !away.contains(member)).collect();
    world.commit(&all, first, &contents(&[], &[("k", "a")]));
    world.now = 15 * SECOND;
    world.commit(&others, second, &contents(&[], &[("k", "")]));
    world.now = 100 * SECOND;
    for member in others {
        world.settle_below(n(member), 80 * SECOND, digest(&[first, second]));
        assert_eq!(world.nodes[&n(member)].store.get(b"k"), None, "forgotten");
    }
    world.network.clear();
    world
}

/// The delete's client has died after n1 and n2 had heard of its commit. Then these have settled it. That this truncation
/// is over is on its way to n0, which was not away at all. Nobody has forgotten anything.
fn missed_by_n0(first_is_at: &[usize]) -> World {
    let mut world = World::new(1);
    let (first, second) = (version(SECOND, 0), version(14 * SECOND, 0));
    world.commit(first_is_at, first, &contents(&[], &[("k", "a")]));
    world.now = 15 * SECOND;
    world.commit(&[1, 2], second, &contents(&[], &[("k", "")]));
    world.now = 28 * SECOND;
    for member in [1, 2] {
        world.settle_below(n(member), 15 * SECOND, digest(&[first, second]));
        let reader = version(world.now, 9);
        let get = Message::Request(Request::Get { version: reader, key: Key::from("k") });
        let said = world.tell(reader.coordinator, n(member), get);
        let [(_, _, Message::Reply(Reply::GetReply { found, .. }))] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(found.write.version, Version::INITIAL, "a settled delete is nothing");
    }
    world.network.clear();
    world
}

/// All vote on a transaction that has found nothing in `k`. If its coordinator may tell its client at once that it has
/// aborted, it ends after that, and its decision is lost. The others end the transaction without those that were away.
fn ends_once(mut world: World, away: &[usize]) {
    let reader = version(world.now, 5);
    let what = contents(&[("k", Version::INITIAL)], &[("counter", "1")]);
    let members = world.nodes.len();
    let asked = |member| world.tell(reader.coordinator, n(member), prepare(reader, 0, &what));
    let cast: Vec<Vote> = (0..members).map(asked).flat_map(|said| votes(&said)).collect();
    assert_eq!(cast.len(), members, "all vote");
    let mut counted = Votes::default();
    (0..members).zip(&cast).for_each(|(member, vote)| counted.record(n(member), *vote));
    let is_told_aborted = counted
        .tally(Quorums::of(&Group::new(members, Duration::ZERO), &Options::default()))
        == Tally::AbandonFast;
    let lead = (0..members).find(|member| !away.contains(member)).unwrap();
    let gone = |node: NodeId| away.iter().any(|member| n(*member) == node);
    let inquire = Message::Request(Request::Inquire { version: reader });
    world.network = world.tell(coordinator_id(8), n(lead), inquire.clone()).into();
    world.settle(|e| !gone(e.0) && !gone(e.1) && !e.1.is_coordinator());
    world.network.clear();
    let said = world.tell(coordinator_id(8), n(lead), inquire);
    let settlement = Settlement::Committed { eid: 0 };
    let committed = Message::Status(Status::Settled { version: reader, settlement });
    let committed = said.iter().any(|(.., message)| *message == committed);
    assert!(committed && !is_told_aborted, "{cast:?}, committed: {committed}");
}

#[test]
fn a_replica_cut_off_for_long_votes_nothing_down_for_good_over_deletes() {
    // n0 was not restarted, and does not know yet that it has missed anything.
    ends_once(deleted_while_away(3, &[0]), &[0]);
}

#[test]
fn a_replica_that_missed_a_delete_votes_nothing_down_for_good_over_it() {
    ends_once(missed_by_n0(&[0, 1, 2]), &[0]);
}

#[test]
fn after_catching_up_with_one_that_was_away_nothing_is_voted_down_for_good() {
    // n0 and n1 come back together, and hear only each other at first.
    let mut world = deleted_while_away(5, &[0, 1]);
    for member in [1, 0] {
        world.restart(n(member));
    }
    world.settle(|e| [n(0), n(1)].contains(&e.0) && [n(0), n(1)].contains(&e.1));
    world.network.clear();
    ends_once(world, &[0, 1]);
}

#[test]
fn a_write_that_was_deleted_before_it_was_read_is_not_voted_down_for_good() {
    // n1 and n2 have committed it, perhaps without its coordinator. n0 hears of the reader first.
    let mut world = missed_by_n0(&[1, 2]);
    let (writer, reader) = (version(SECOND, 0), version(world.now, 5));
    world.commit(&[0, 1, 2], reader, &contents(&[("k", Version::INITIAL)], &[]));
    let late = prepare(writer, 0, &contents(&[], &[("k", "a")]));
    let cast = votes(&world.tell(writer.coordinator, n(0), late));
    assert_eq!(cast, [Vote::AbandonTentative]);
}

#[test]
fn a_write_missing_in_a_fetched_commit_is_not_said_to_be_unwritten() {
    let (writer, peer_forgets_below) = (version(900_000, 0), 16 * SECOND);
    for (at, vote) in [(15, Vote::AbandonTentative), (17, Vote::AbandonFinal)] {
        let mut world = World::new(1);
        world.now = 30 * SECOND;
        let fetched = Message::CatchingUp(CatchingUp::Fetched {
            executions: vec![(writer, 0, contents(&[], &[]))],
            readable_from: peer_forgets_below,
        });
        world.tell(n(1), n(0), fetched);
        let reader = version(at * SECOND, 5);
        let what = contents(&[("k", writer)], &[("counter", "1")]);
        let cast = votes(&world.tell(reader.coordinator, n(0), prepare(reader, 0, &what)));
        assert_eq!(cast, [vote], "of a reader at {at} s");
    }
}

#[test]
fn an_abort_over_a_missed_delete_has_no_effect_under_mvtso() {
    what_a_client_was_told_has_aborted_takes_no_effect(mvtso(4));
}

#[test]
fn an_abort_over_a_missed_delete_has_no_effect_under_morty() {
    what_a_client_was_told_has_aborted_takes_no_effect(morty(4));
}

fn concerns_n0(e: &Envelope) -> bool {
    e.0 == n(0) || e.1 == n(0)
}

/// A client reads a key while n0 is away: it asks another replica when that does not answer.
fn reads_without_n0(net: &mut Net, client: u64, key: &str) -> Vec<String> {
    net.get(client, key);
    net.settle();
    net.network.retain(|e| !concerns_n0(e));
    net.now += SECOND;
    net.fire_now(client, |timer| matches!(timer, Timer::Repeat(_)));
    net.settle();
    net.network.retain(|e| !concerns_n0(e));
    net.told(client)
}

/// `k` is written, and then deleted while n0 hears nothing for a minute. A third client finds nothing there.
fn finds_what_n0_has_missed(net: &mut Net) {
    net.now = 2 * SECOND;
    net.start();
    net.commit(0, &[], &[("k", "a")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    net.held.insert(n(0));
    net.now += SECOND;
    net.commit(1, &[], &[("k", "")]);
    net.settle();
    net.fire_now(1, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(1), ["committed"]);
    net.pass(Duration::from_secs(60));
    net.network.retain(|e| !concerns_n0(e));
    let (now, timestamp) = (net.now, net.timestamp());
    net.clients[coordinator_id(2)].hears_time(now, timestamp);
    assert_eq!(reads_without_n0(net, 2, "k"), ["value k = absent"]);
}

/// The client is told how its transaction has ended, if its coordinator can say so with all votes, and ends. Then the
/// replicas end the transaction without n0, which has voted against it.
fn what_a_client_was_told_has_aborted_takes_no_effect(mut net: Net) {
    finds_what_n0_has_missed(&mut net);
    net.held = NodeSet::EMPTY;
    net.commit(2, &["k"], &[("counter", "1")]);
    let is_vote = |message: &Message| matches!(message, Message::Reply(Reply::PrepareReply { .. }));
    let mut voted = 0;
    while voted < 3 {
        // Under Morty, n0 also says what would be found there. That is lost.
        net.network.retain(|e| !matches!(e.2, Message::Reply(Reply::GetReply { .. })));
        let envelope = net.network.pop_front().expect("Prepares and votes");
        voted += usize::from(is_vote(&envelope.2));
        net.deliver(envelope);
    }
    let told = net.told(2);
    net.network.retain(|e| e.0 != coordinator_id(2) && e.1 != coordinator_id(2));
    net.held.insert(n(0));
    net.pass(Duration::from_secs(8));
    // Two of three have voted to commit, so what they end it with is that.
    assert_eq!(told, [] as [&str; 0], "n0 alone does not decide");
    assert_eq!(reads_without_n0(&mut net, 3, "counter"), ["value counter = 1"]);
}
