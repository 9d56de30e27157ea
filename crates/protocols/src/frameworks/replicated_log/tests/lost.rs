//! Lost disks, and state that survives a restart or does not.

use serried_model::Value;
use serried_parts::encode_cell;

use super::super::follower::{Follower, Reached};
use super::super::lost::Lost;
use super::super::slots::Slots;
use super::*;

/// A network whose last member has lost its disk and receives only the promises of the others.
fn hears_of_promises_only(away: &[u64]) -> Net {
    let mut net = Net::new();
    net.propose(0, 7);
    net.settle();
    net.away = set(away);
    net.lose(2);
    while let Some(next) = net.network.pop_front() {
        if matches!(next.2, Message::Rejoin { .. } | Message::Standing { .. }) {
            net.deliver(next);
        }
    }
    net.away = NodeSet::EMPTY;
    net
}

fn is_asking(net: &Net) -> bool {
    net.nodes[2].log.lost.as_ref().is_some_and(Lost::is_asking)
}

#[test]
fn a_replica_that_lost_its_disk_first_needs_answers_from_all_others() {
    for (away, asks) in [(&[0][..], true), (&[1], true), (&[], false)] {
        let net = hears_of_promises_only(away);
        assert_eq!(is_asking(&net), asks, "without {away:?}");
    }
}

#[test]
fn a_replica_that_lost_its_disk_promises_nothing_before_it_has_chosen_entries() {
    let mut net = hears_of_promises_only(&[]);
    assert!(net.nodes[2].log.lost.is_some() && !is_asking(&net));
    let promised = net.nodes[2].log.acceptor.promised().max(net.nodes[0].log.acceptor.promised());
    // As after a hand-over, so that no leader prevents a promise.
    let prepare = Message::Prepare { ballot: promised.next(1), from: 0, after: promised };
    net.deliver((NodeId(1), NodeId(2), prepare));
    let answers = net.network.iter().filter(|(from, ..)| *from == NodeId(2));
    let promises = answers.filter(|(.., message)| matches!(message, Message::Promise { .. }));
    assert_eq!(promises.count(), 0, "its predecessor may have accepted unknown entries");
}

#[test]
fn a_candidate_does_not_take_its_ballot_a_second_time_after_a_restart() {
    let mut net = Net::new();
    net.away = set(&[0, 1, 2]);
    net.act(1, |log, sums, cx| log.campaign(sums, cx));
    let ballot = net.nodes[1].log.acceptor.promised();
    net.restart(1);
    assert!(net.nodes[1].log.acceptor.promised() >= ballot, "{ballot:?}");
}

#[test]
fn a_copied_state_counts_as_applied_after_a_restart() {
    let mut net = Net::new();
    net.away = set(&[2]);
    net.propose(0, 7);
    net.settle();
    net.away = NodeSet::EMPTY;
    net.act(2, |log, _, cx| log.restore_from(NodeId(0), cx));
    net.settle();
    let applied = net.nodes[2].log.applied();
    assert!(applied > 0 && net.sums(2) == 7);
    net.away = set(&[0, 1]);
    net.restart(2);
    assert_eq!(net.nodes[2].log.applied(), applied);
    assert_eq!(net.sums(2), 7);
}

#[test]
fn a_copied_state_is_from_one_run_of_its_source() {
    for (second, is_behind) in [(1, false), (2, true)] {
        let mut net = Net::new();
        net.act(2, |log, _, cx| log.restore_from(NodeId(0), cx));
        let key = Key::from(1u64.to_be_bytes());
        let entries = vec![(key.clone(), Value::from(&encode_cell(&(1u64, 7u64))[..]))];
        let (after, at) = (None, 5);
        let first = Message::Scanned { after, incarnation: 1, at, entries, more: true };
        net.deliver((NodeId(0), NodeId(2), first));
        let (after, entries) = (Some(key), Vec::new());
        let rest = Message::Scanned { after, incarnation: second, at, entries, more: false };
        net.deliver((NodeId(0), NodeId(2), rest));
        assert_eq!(net.nodes[2].log.is_behind(), is_behind, "the rest is from run {second}");
    }
}

#[test]
fn an_answer_that_may_be_from_before_the_known_run_is_ignored() {
    let now = Timestamp(1);
    for (beat, counts) in [(3, false), (4, false), (5, true)] {
        let mut follower = Follower::new(Some(0), now);
        assert!(follower.answered(Reached { incarnation: 7, beat: 2, matched: 10 }, 4, now));
        let other = Reached { incarnation: 9, beat, matched: 6 };
        assert_eq!(follower.answered(other, 8, now), counts, "it has received beat {beat}");
        assert_eq!(follower.matched, if counts { 6 } else { 10 });
    }
}

#[test]
fn the_log_is_kept_for_records_that_are_out_of_order() {
    let mut slots = Slots::new(10);
    let ballot = Ballot::NONE.next(0);
    slots.accept(1, ballot, 5, Some(Add(1)));
    slots.accept(0, ballot, 9, Some(Add(2)));
    assert_eq!(slots.needs_log_from(), Some(5));
    slots.apply_next();
    assert_eq!(slots.needs_log_from(), Some(5));
}

/// A group that may begin anew, with an entry, all of whose disks are then lost but those of `intact`.
fn lost_but(intact: &[usize]) -> Net {
    let mut net = Net::that_may_begin_anew();
    net.propose(0, 7);
    net.settle();
    let late = net.network_of_leader(9);
    for member in (0..3).filter(|member| !intact.contains(member)) {
        net.lose(member);
    }
    net.network.extend(late);
    for _ in 0..5 {
        net.settle();
        net.wait(Duration::from_secs(3));
        (0..3).for_each(|member| net.timer(member, Timer::Restore));
        (0..3).for_each(|member| net.timer(member, Timer::Elect));
    }
    net.settle();
    net
}

#[test]
fn a_group_begins_anew_once_all_its_disks_are_lost_and_not_before() {
    let mut net = lost_but(&[]);
    let leader = (0..3).find(|member| net.leads(*member)).expect("it has begun anew");
    assert!((0..3).all(|member| net.nodes[member].log.is_anew()));
    net.propose(leader, 1);
    net.settle();
    net.beat(leader);
    assert_eq!(
        [0, 1, 2].map(|member| net.sums(member)),
        [1; 3],
        "nothing of the former log is left"
    );
    let net = lost_but(&[1]);
    assert!((0..3).all(|member| !net.leads(member) && !net.nodes[member].log.is_anew()));
    let mut net = lost_but(&[0, 2]);
    net.elect(0);
    net.beat(0);
    assert_eq!([0, 1, 2].map(|member| net.sums(member)), [7 + 9; 3]);
    assert!((0..3).all(|member| !net.nodes[member].log.is_anew()));
}

#[test]
fn a_disk_that_is_lost_in_a_group_that_has_begun_anew_is_replaced_as_usual() {
    let mut net = lost_but(&[]);
    let leader = (0..3).find(|member| net.leads(*member)).expect("it has begun anew");
    let other = (leader + 1) % 3;
    net.away = set(&[((leader + 2) % 3) as u64]);
    net.propose(leader, 1);
    net.settle();
    // The leader and this one have chosen it. The third one has nothing.
    net.lose(other);
    net.away = NodeSet::EMPTY;
    for _ in 0..3 {
        net.settle();
        net.wait(Duration::from_secs(1));
        (0..3).for_each(|member| net.timer(member, Timer::Restore));
        (0..3).for_each(|member| net.timer(member, Timer::Elect));
        net.timer(leader, Timer::Lead);
    }
    net.settle();
    assert!(net.nodes[other].log.is_anew(), "another replica has said so");
    assert_eq!([0, 1, 2].map(|member| net.sums(member)), [1; 3]);
    net.restart(other);
    assert!(net.nodes[other].log.is_anew());
}

#[test]
fn a_replica_with_a_part_of_the_former_state_prevents_a_group_from_beginning_anew() {
    let mut net = Net::that_may_begin_anew();
    net.propose(0, 7);
    net.settle();
    (0..3).for_each(|member| net.lose(member));
    // It had begun to copy, and was started again since.
    let (key, state) = (Key::from(1u64.to_be_bytes()), encode_cell(&(1u64, 7u64)));
    net.nodes[1].store.put(key.as_bytes(), Some(&state));
    for _ in 0..3 {
        net.settle();
        net.wait(Duration::from_secs(3));
        (0..3).for_each(|member| net.timer(member, Timer::Restore));
    }
    assert!((0..3).all(|member| !net.nodes[member].log.is_anew()));
}

#[test]
fn what_a_replica_has_reported_before_its_own_disk_was_lost_does_not_count() {
    let mut net = Net::that_may_begin_anew();
    net.propose(0, 7);
    net.settle();
    // The first one hears of both others while they still have everything. Nobody leads it.
    net.lose(0);
    while let Some(next) = net.network.pop_front() {
        if matches!(next.2, Message::Rejoin { .. } | Message::Standing { .. }) {
            net.deliver(next);
        }
    }
    assert!(net.nodes[0].log.lost.is_some());
    net.lose(1);
    net.lose(2);
    for _ in 0..5 {
        net.settle();
        net.wait(Duration::from_secs(3));
        (0..3).for_each(|member| net.timer(member, Timer::Restore));
        (0..3).for_each(|member| net.timer(member, Timer::Elect));
    }
    assert_eq!([0, 1, 2].map(|member| net.nodes[member].log.is_anew()), [true; 3]);
}
