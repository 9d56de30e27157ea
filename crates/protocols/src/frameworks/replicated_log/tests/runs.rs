//! Replicas that restart: with their whole disk, without the end of their log, and with an empty
//! disk.

use super::*;

#[test]
fn a_promise_outlives_a_restart() {
    let mut net = Net::new();
    let prepare = Message::Prepare {
        ballot: Ballot { round: 9, member: 2 },
        from: 0,
        after: net.nodes[0].log.acceptor.promised(),
    };
    net.deliver((NodeId(2), NodeId(1), prepare));
    assert!(matches!(net.network.pop_back(), Some((_, _, Message::Promise { .. }))));
    net.restart(1);
    net.away = set(&[2]);
    net.propose(0, 7);
    net.timer(0, Timer::Flush);
    let accept = net.network.pop_front().unwrap();
    assert!(matches!(accept, (NodeId(0), NodeId(1), Message::Accept { .. })));
    net.deliver(accept);
    let answer = net.network.pop_back().unwrap().2;
    let promised = Ballot { round: 9, member: 2 };
    assert_eq!(answer, Message::Refused { promised }, "1 accepts nothing in a lower ballot");
}

#[test]
fn a_restart_loses_nothing_that_was_accepted() {
    let mut net = Net::new();
    net.away = set(&[2]);
    net.propose(0, 7);
    net.settle();
    net.restart(0);
    net.restart(1);
    let promised = net.nodes[1].log.acceptor.promised();
    assert_eq!(promised, Ballot { round: 1, member: 0 });
    net.away = set(&[0]);
    net.elect(1);
    assert!(net.leads(1), "2 is there");
    assert_eq!(net.sums(1), 7);
}

#[test]
fn a_restarted_follower_keeps_accepted_entries_and_accepts_more() {
    let mut net = Net::new();
    net.propose(0, 7);
    net.settle();
    net.beat(0);
    net.away = set(&[0]);
    net.elect(1);
    net.propose(1, 8);
    net.settle();
    // The entries accepted in the first ballot were chosen, which no record of an entry shows.
    net.restart(2);
    net.propose(1, 9);
    net.settle();
    net.beat(1);
    net.beat(1);
    assert_eq!([net.sums(1), net.sums(2)], [24, 24]);
}

#[test]
fn stored_and_trimmed_entries_are_not_applied_again() {
    let mut net = Net::new();
    for round in 0..3 {
        for number in 0..20 {
            net.propose(0, number);
        }
        net.settle();
        net.beat(0);
        net.act(1, |_, sums, cx| sums.0.store_some(3 + round, cx.store()));
        net.act(1, |log, sums, cx| log.trim(sums, cx));
        net.restart(1);
        net.settle();
        net.beat(0);
        let sum = (round as u64 + 1) * 190;
        assert_eq!([net.sums(0), net.sums(1)], [sum, sum]);
    }
}

#[test]
fn a_replica_that_lost_its_disk_unchooses_nothing() {
    let mut net = Net::new();
    net.away = set(&[2]);
    net.propose(0, 7);
    net.settle();
    assert_eq!(net.sums(0), 7, "with the help of 1");
    // 0 is cut off before 2 learns of it.
    net.away = set(&[0]);
    net.lose(1);
    net.settle();
    net.elect(2);
    net.elect(1);
    assert!(!net.leads(1) && !net.leads(2), "1 does not know the entry that it helped to choose");
    net.away = NodeSet::EMPTY;
    net.timer(1, Timer::Restore);
    net.settle();
    for member in [0, 2, 0, 2] {
        net.elect(member);
        net.beat(member);
    }
    assert!(!net.nodes[1].log.is_behind());
    net.away = set(&[0]);
    net.elect(1);
    net.elect(2);
    assert!(net.leads(1) || net.leads(2));
    assert_eq!(net.sums(if net.leads(1) { 1 } else { 2 }), 7);
}

#[test]
fn a_leader_takes_a_higher_ballot_after_another_replica_lost_its_disk() {
    let mut net = Net::new();
    let before = net.nodes[0].log.acceptor.promised();
    net.propose(0, 7);
    net.settle();
    net.lose(1);
    net.settle();
    let after = net.nodes[0].log.acceptor.promised();
    // One higher ballot, because earlier messages of 1 no longer count. Another, because 1 follows
    // none up to that one.
    assert!(net.leads(0) && after.round > before.round + 1);
    net.beat(0);
    net.beat(0);
    assert!(net.leads(0) && net.nodes[0].log.acceptor.promised() == after);
    assert!(!net.nodes[1].log.is_behind());
    assert_eq!(net.sums(1), 7);
}

#[test]
fn a_follower_gets_the_lost_end_of_its_log_again() {
    let mut net = Net::new();
    for number in [7, 8, 9] {
        net.propose(0, number);
        net.settle();
    }
    net.restart_without_last(1, 2);
    net.beat(0);
    net.beat(0);
    assert_eq!(net.sums(1), 24);
    // So that it can replace the other.
    net.away = set(&[2]);
    net.propose(0, 10);
    net.settle();
    assert_eq!(net.sums(0), 34);
    net.away = set(&[0]);
    net.elect(1);
    assert!(net.leads(1));
    assert_eq!(net.sums(1), 34);
}

#[test]
fn entries_of_a_followers_former_run_do_not_count() {
    let mut net = Net::new();
    net.beat(0);
    net.away = set(&[2]);
    net.propose(0, 7);
    net.timer(0, Timer::Flush);
    let accept = net.network.iter().position(|(_, to, _)| *to == NodeId(1)).unwrap();
    let accept = net.network.remove(accept).unwrap();
    net.deliver(accept);
    let late = net.network.pop_back().unwrap();
    assert!(matches!(late, (NodeId(1), _, Message::Accepted { matched: 1, .. })));
    net.restart_without_last(1, 1);
    // Its answer to a beat identifies another run, before it gets any entries again.
    net.network.clear();
    net.wait(Duration::from_millis(400));
    net.timer(0, Timer::Lead);
    let beat = |(_, to, m): &(_, NodeId, _)| *to == NodeId(1) && matches!(m, Message::Beat { .. });
    let beat = net.network.iter().position(beat).unwrap();
    let beat = net.network.remove(beat).unwrap();
    net.network.clear();
    net.deliver(beat);
    let answer = net.network.pop_back().unwrap();
    net.deliver(answer);
    net.deliver(late);
    assert_eq!(net.sums(0), 0, "no other replica has it");
    net.settle();
    assert_eq!(net.sums(0), 7, "it was sent again");
}

#[test]
fn memory_and_log_stay_small_while_a_replica_is_down() {
    let settings = Settings { resident_keys: 50, ..Settings::default() };
    let mut net = Net::led(settings, false);
    net.away = set(&[2]);
    let mut sum = 0;
    for number in 0..2000 {
        net.propose(0, number);
        sum += number;
        net.settle();
        if number % 10 == 0 {
            net.beat(0);
            for member in [0, 1] {
                net.act(member, |_, sums, cx| sums.0.store_some(100, cx.store()));
                net.act(member, |log, sums, cx| log.trim(sums, cx));
                let node = &net.nodes[member];
                assert!(node.log.kept() <= 60, "{}", node.log.kept());
                assert!(node.records.len() < 40, "{}", node.records.len());
            }
        }
    }
    net.away = NodeSet::EMPTY;
    for _ in 0..4 {
        net.beat(0);
    }
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [sum; 3]);
    net.restart(2);
    assert_eq!(net.sums(2), sum);
    net.propose(0, 1);
    net.settle();
    net.beat(0);
    net.beat(0);
    assert_eq!(net.sums(2), sum + 1);
}
