//! Elections, following, and the entries with which a new leader continues.

use super::super::Accepted;
use super::*;

#[test]
fn the_first_member_leads_a_new_group_and_what_a_majority_accepts_is_applied() {
    let mut net = Net::new();
    assert!(net.leads(0) && !net.leads(1) && !net.leads(2));
    net.away = set(&[2]);
    net.propose(0, 7);
    net.settle();
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [7, 0, 0], "one beat is to come");
    net.away = NodeSet::EMPTY;
    net.beat(0);
    net.beat(0);
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [7, 7, 7]);
}

#[test]
fn chosen_entries_survive_a_change_of_leader() {
    let mut net = Net::new();
    net.away = set(&[2]);
    net.propose(0, 7);
    net.settle();
    net.away = set(&[1, 2]);
    net.propose(0, 100);
    net.settle();
    assert_eq!(net.sums(0), 7, "no other replica has the second");
    net.away = set(&[0]);
    net.elect(2);
    assert!(net.leads(2), "with the promise of 1, which has the first");
    net.propose(2, 1);
    net.settle();
    assert_eq!(net.sums(2), 8);
    net.away = NodeSet::EMPTY;
    net.beat(2);
    net.beat(2);
    assert!(!net.leads(0));
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [8, 8, 8]);
}

#[test]
fn a_state_machine_can_remove_entries_of_a_superseded_leader() {
    let mut net = Net::new();
    net.away = set(&[1, 2]);
    net.propose(0, 100);
    net.propose(0, FLEETING);
    net.settle();
    net.away = set(&[0]);
    net.elect(2);
    net.propose(2, 7);
    net.settle();
    net.away = NodeSet::EMPTY;
    net.beat(2);
    net.beat(2);
    // The first leader has the entry of the second, followed by its own.
    net.away = set(&[1]);
    net.nodes[2].log.acceptor.seen = Ballot { round: 9, member: 0 };
    net.act(2, |log, sums, cx| log.campaign(sums, cx));
    net.settle();
    assert!(net.leads(2));
    net.propose(2, 30);
    net.settle();
    net.away = NodeSet::EMPTY;
    net.beat(2);
    net.beat(2);
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [37, 37, 37]);
}

#[test]
fn nobody_leads_without_a_majority_and_a_leader_without_one_gives_up() {
    let mut net = Net::new();
    net.away = set(&[0, 1]);
    net.elect(2);
    assert!(!net.leads(2));
    for _ in 0..8 {
        net.beat(0);
    }
    assert!(!net.leads(0));
}

#[test]
fn followers_ignore_a_candidate_and_their_leader_outbids_it() {
    let mut net = Net::new();
    let before = net.nodes[0].log.acceptor.promised();
    (0..5).for_each(|_| net.beat(0));
    // As if a majority had no leader either.
    net.act(2, |log, sums, cx| log.campaign(sums, cx));
    net.settle();
    assert!(!net.leads(2) && net.leads(0));
    net.beat(0);
    net.propose(0, 7);
    net.settle();
    net.beat(0);
    assert!(net.leads(0) && net.nodes[0].log.acceptor.promised() > before);
    assert_eq!(net.sums(2), 7);
}

#[test]
fn a_replica_that_was_cut_off_disturbs_no_leader() {
    let mut net = Net::new();
    let before = net.nodes[0].log.acceptor.promised();
    (0..5).for_each(|_| net.beat(0));
    // As if the beats to 2 were lost.
    net.nodes[2].log.detector.heard = Timestamp(0);
    net.away = set(&[0]);
    net.timer(2, Timer::Elect);
    net.settle();
    net.away = NodeSet::EMPTY;
    assert_eq!(net.nodes[2].log.acceptor.promised(), before, "1 has a leader");
    assert_eq!(net.nodes[2].log.leader(net.timestamp()), None, "2 has none");
    net.timer(2, Timer::Elect);
    net.settle();
    assert_eq!(net.nodes[2].log.leader(net.timestamp()), Some(NodeId(0)), "the leader answers it");
    net.propose(0, 7);
    net.settle();
    net.beat(0);
    assert_eq!((net.nodes[0].log.acceptor.promised(), net.sums(2)), (before, 7));
}

#[test]
fn late_answers_to_a_canvass_do_not_count() {
    let mut net = Net::new();
    let before = net.nodes[0].log.acceptor.promised();
    (0..5).for_each(|_| net.beat(0));
    // As if the last beats were lost.
    [1, 2].into_iter().for_each(|member| net.nodes[member].log.detector.heard = Timestamp(0));
    net.timer(2, Timer::Elect);
    let ask = net.network.pop_back().unwrap();
    net.deliver((NodeId(2), NodeId(1), ask.2));
    let willing = net.network.pop_back().unwrap();
    assert!(matches!(willing, (NodeId(1), NodeId(2), Message::Willing { .. })));
    net.network.clear();
    net.beat(0);
    net.deliver(willing.clone());
    net.settle();
    assert_eq!(net.nodes[2].log.acceptor.promised(), before);
    // Nor do they count after it asks again.
    net.nodes[2].log.detector.heard = Timestamp(0);
    net.timer(2, Timer::Elect);
    net.deliver(willing);
    assert_eq!(net.nodes[2].log.acceptor.promised(), before);
}

#[test]
fn a_leader_that_hands_over_waits_for_its_successor_and_proposes_nothing() {
    let mut net = Net::new();
    net.beat(0);
    net.away = set(&[1, 2]);
    net.propose(0, 7);
    net.settle();
    net.act(0, |log, _, cx| log.stop(cx));
    assert!(net.leads(0));
    assert!(net.act(0, |log, _, cx| log.propose(Some(Add(1)), cx)).is_none());
    let hands_over = |net: &Net| {
        net.network.iter().any(|(_, _, message)| matches!(message, Message::HandOver { .. }))
    };
    assert!(!hands_over(&net), "nobody else has the entry");
    net.away = NodeSet::EMPTY;
    net.beat(0);
    net.beat(0);
    assert!(!net.leads(0) && net.leads(1) != net.leads(2));
    let leader = if net.leads(1) { 1 } else { 2 };
    assert_eq!(net.sums(leader), 7);
}

#[test]
fn a_replica_whose_node_stops_takes_no_ballot() {
    let mut net = Net::new();
    net.away = set(&[1, 2]);
    net.act(0, |log, _, cx| log.stop(cx));
    let before = net.nodes[0].log.acceptor.promised();
    net.away = NodeSet::EMPTY;
    net.network.clear();
    // If its node did not stop, it would take a higher ballot.
    let promised = Ballot { round: 9, member: 2 };
    net.deliver((NodeId(2), NodeId(0), Message::Refused { promised }));
    assert!(!net.leads(0));
    net.elect(0);
    assert_eq!(net.nodes[0].log.acceptor.promised(), before);
}

/// Announces that the node of the first replica stops.
fn stop(net: &mut Net) {
    net.act(0, |log, _, cx| log.stop(cx));
    net.settle();
}

#[test]
fn a_leader_whose_node_stops_hands_over_to_an_up_to_date_follower() {
    let mut net = Net::new();
    let before = net.nodes[0].log.acceptor.promised();
    net.propose(0, 7);
    // 1 lacks the entry, but 2 has it.
    net.away = set(&[1]);
    net.settle();
    net.away = NodeSet::EMPTY;
    net.network.clear();
    net.beat(0);
    net.away = set(&[1]);
    net.propose(0, 8);
    net.settle();
    stop(&mut net);
    assert!(net.act(0, |log, _, cx| log.propose(Some(Add(1)), cx)).is_none());
    net.away = NodeSet::EMPTY;
    net.settle();
    assert!(!net.leads(0) && !net.leads(1) && net.leads(2), "without a delay");
    assert!(net.nodes[0].log.may_stop());
    let ballots = [0, 2].map(|member| net.nodes[member].log.acceptor.promised());
    assert_eq!(ballots[0], ballots[1]);
    assert!(ballots[1] > before && ballots[1].member == 2, "in a ballot of its own");
    net.away = set(&[0]);
    net.propose(2, 9);
    net.settle();
    net.beat(2);
    net.beat(2);
    assert_eq!(net.sums(2), 24);
}

#[test]
fn followers_promise_a_ballot_only_to_the_successor_of_their_leader() {
    let mut net = Net::new();
    net.act(0, |log, sums, cx| log.campaign(sums, cx));
    net.settle();
    net.propose(0, 7);
    net.settle();
    let ballot = net.nodes[0].log.acceptor.promised();
    let prepare = |member: u64, after| Message::Prepare {
        ballot: Ballot { round: 9, member: member as u8 },
        from: 0,
        after,
    };
    let promises = |net: &mut Net, message| {
        net.deliver((NodeId(2), NodeId(1), message));
        matches!(net.network.pop_back(), Some((_, _, Message::Promise { .. })))
    };
    assert!(!promises(&mut net, prepare(2, Ballot::NONE)));
    let earlier = Ballot { round: ballot.round - 1, ..ballot };
    assert!(!promises(&mut net, prepare(2, earlier)), "another leader has handed over");
    assert!(promises(&mut net, prepare(2, ballot)));
}

#[test]
fn a_failed_hand_over_ends_or_goes_to_another_if_the_node_stops() {
    let mut net = Net::new();
    net.beat(0);
    net.away = set(&[1]);
    net.act(0, |log, _, cx| log.stop(cx));
    // The nearest replica that has all entries is asked first.
    let asked = |net: &Net| {
        let hand_over =
            |(_, to, m): &(_, NodeId, _)| matches!(m, Message::HandOver { .. }).then_some(to.0);
        net.network.iter().filter_map(hand_over).collect::<Vec<_>>()
    };
    assert_eq!(asked(&net), [1]);
    net.settle();
    assert!(net.leads(0) && !net.nodes[0].log.may_stop());
    net.beat(0);
    net.beat(0);
    assert!(net.leads(2) && net.nodes[0].log.may_stop());
}

#[test]
fn the_preferred_member_gets_the_lead_after_it_has_kept_up_for_long() {
    let mut net = Net::new();
    net.away = set(&[0]);
    net.elect(1);
    assert!(net.leads(1));
    net.propose(1, 7);
    net.settle();
    net.away = NodeSet::EMPTY;
    net.beat(1);
    net.beat(1);
    assert!(net.leads(1) && net.sums(0) == 7, "not yet, though it has caught up");
    let patience = net.nodes[0].log.members.patience();
    // It stops and comes back.
    let pass = |net: &mut Net, times: u32| {
        for _ in 0..times {
            net.wait(patience / 4);
            net.timer(1, Timer::Lead);
            net.settle();
        }
    };
    pass(&mut net, 80);
    net.restart(0);
    pass(&mut net, 80);
    assert!(net.leads(1), "it has not kept up for long");
    pass(&mut net, 30);
    assert!(net.leads(0) && !net.leads(1));
    net.propose(0, 8);
    net.settle();
    net.beat(0);
    net.beat(0);
    assert_eq!([net.sums(0), net.sums(1), net.sums(2)], [15; 3]);
}

#[test]
fn a_candidate_proposes_the_entry_of_the_highest_ballot() {
    for (shown, found) in [(2, 30), (4, 40)] {
        let mut net = Net::new();
        let accept = Message::Accept {
            ballot: Ballot { round: 3, member: 1 },
            first: 0,
            chosen: 0,
            entries: [Some(Add(30))].into(),
        };
        net.deliver((NodeId(1), NodeId(0), accept));
        net.nodes[0].log.acceptor.seen = Ballot { round: 9, member: 1 };
        net.act(0, |log, sums, cx| log.campaign(sums, cx));
        let ballot = net.nodes[0].log.acceptor.promised();
        let accepted =
            Accepted { slot: 0, ballot: Ballot { round: shown, member: 2 }, entry: Some(Add(40)) };
        let promise = Message::Promise { ballot, applied: 0, accepted: vec![accepted] };
        net.network.clear();
        net.deliver((NodeId(2), NodeId(0), promise));
        net.settle();
        net.beat(0);
        assert!(net.leads(0));
        assert_eq!([net.sums(0), net.sums(1)], [found; 2]);
    }
}

#[test]
fn a_leader_that_inherits_a_full_window_proposes_more_later() {
    let mut net = Net::new();
    net.away = set(&[2]);
    while net.act(0, |log, _, cx| log.propose(Some(Add(1)), cx)).is_some() {}
    net.timer(0, Timer::Flush);
    let accept = net.network.pop_front().unwrap();
    net.deliver(accept);
    net.network.clear();
    net.away = set(&[0]);
    net.wait(Duration::from_secs(3));
    net.timer(1, Timer::Elect);
    let mut full = false;
    while let Some(next) = net.network.pop_front() {
        net.deliver(next);
        full |= net.leads(1) && net.act(1, |log, _, cx| log.propose(None, cx)).is_none();
    }
    assert!(full, "what it has found is not chosen yet");
    net.settle();
    net.propose(1, 1);
}

#[test]
fn a_deposed_leader_is_refused() {
    let mut net = Net::new();
    net.away = set(&[0]);
    net.elect(1);
    assert!(net.leads(1));
    net.away = set(&[1]);
    net.propose(0, 7);
    net.settle();
    assert_eq!(net.sums(0), 0, "2 has promised 1");
    net.away = NodeSet::EMPTY;
    net.beat(1);
    assert!(net.leads(1) != net.leads(0));
}
