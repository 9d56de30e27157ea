//! Decisions of single components that no other test depends on.

use serried_model::Value;
use serried_parts::encode_cell;

use super::super::restore::Hold;
use super::*;

/// Delivers a message of the first member to the last one, and returns what that one answers.
fn answer(net: &mut Net, message: Message<Add>) -> Option<Message<Add>> {
    net.network.clear();
    net.deliver((NodeId(0), NodeId(2), message));
    net.network.pop_back().map(|(.., message)| message)
}

/// The last member has lost its disk, has heard what `heard` have promised, and nothing else.
fn lost(heard: &[u64]) -> Net {
    let mut net = Net::new();
    net.propose(0, 7);
    net.settle();
    net.lose(2);
    let heard = set(heard);
    net.settle_where(|(from, to, message)| match message {
        Message::Rejoin { .. } => heard.contains(*to),
        Message::Standing { .. } => heard.contains(*from),
        _ => false,
    });
    net.network.clear();
    net
}

/// Later pages may be as of later slots, and say nothing of what has become of the keys of earlier ones.
#[test]
fn a_state_is_complete_up_to_the_slot_of_its_first_page() {
    let mut net = Net::new();
    net.act(2, |log, _, cx| log.restore_from(NodeId(0), cx));
    let key = Key::from(1u64.to_be_bytes());
    let entries = vec![(key.clone(), Value::from(&encode_cell(&(1u64, 7u64))[..]))];
    let first = Message::Scanned { after: None, incarnation: 1, at: 5, entries, more: true };
    net.deliver((NodeId(0), NodeId(2), first));
    let (after, entries) = (Some(key), Vec::new());
    let rest = Message::Scanned { after, incarnation: 1, at: 9, entries, more: false };
    net.deliver((NodeId(0), NodeId(2), rest));
    assert_eq!((net.nodes[2].log.is_behind(), net.nodes[2].log.applied()), (false, 5));
}

#[test]
fn a_replica_that_lost_its_disk_is_whole_when_it_has_the_entries_and_not_when_it_hears_of_them() {
    let mut net = lost(&[0, 1]);
    let ballot = net.nodes[2].log.acceptor.promised().next(0);
    let beat = |number| Message::Beat { ballot, number, chosen: 1, base: 1, behind: false };
    answer(&mut net, beat(1));
    assert!(net.nodes[2].log.is_behind(), "it has no entry yet");
    let entries = [Some(Add(7))].into();
    answer(&mut net, Message::Accept { ballot, first: 0, chosen: 1, entries });
    answer(&mut net, beat(2));
    assert!(!net.nodes[2].log.is_behind());
}

/// Its sender may have promised and led since.
#[test]
fn what_was_answered_to_an_earlier_run_of_a_lost_replica_does_not_count() {
    let mut net = lost(&[1]);
    let is_asking = |net: &Net| net.nodes[2].log.lost.as_ref().is_some_and(|lost| lost.is_asking());
    let (nonce, promised) = (net.nodes[2].log.acceptor.incarnation(), Ballot::NONE.next(0));
    answer(
        &mut net,
        Message::Standing {
            nonce: nonce ^ 1,
            question: 0,
            promised,
            is_blank: false,
            is_anew: false,
        },
    );
    assert!(is_asking(&net), "that was another question");
    answer(
        &mut net,
        Message::Standing { nonce, question: 0, promised, is_blank: false, is_anew: false },
    );
    assert!(!is_asking(&net));
}

/// Else the answer of an earlier run could pass for one of a later run.
#[test]
fn a_follower_counts_the_beats_of_each_ballot_by_themselves() {
    let mut net = Net::new();
    (0..5).for_each(|_| net.beat(0));
    let after = net.nodes[0].log.acceptor.promised();
    let ballot = Ballot { round: 9, member: 0 };
    assert!(matches!(
        answer(&mut net, Message::Prepare { ballot, from: 0, after }),
        Some(Message::Promise { .. })
    ));
    let accept = Message::Accept { ballot, first: 0, chosen: 0, entries: [None].into() };
    let Some(Message::Accepted { beat, .. }) = answer(&mut net, accept) else {
        panic!("it answers")
    };
    assert_eq!(beat, 0, "the new leader has sent none");
}

/// The copy is as of its first page, and needs the entries from there on.
#[test]
fn entries_are_kept_from_where_a_copy_has_begun() {
    let (mut hold, at) = (Hold::default(), |s: u64| Timestamp(s * 1_000_000_000));
    let held = |hold: &Hold, s| hold.held(at(s)).map(|(from, _)| from);
    hold.extend(5, at(1));
    hold.extend(9, at(8));
    assert_eq!([held(&hold, 8), held(&hold, 17), held(&hold, 18)], [Some(5), Some(5), None]);
    hold.extend(20, at(18));
    assert_eq!(held(&hold, 18), Some(20));
}

#[test]
fn a_leader_goes_on_when_the_preferred_member_does_not_take_over() {
    let mut net = Net::new();
    net.away = set(&[0]);
    net.elect(1);
    net.away = NodeSet::EMPTY;
    let patience = net.nodes[1].log.members.patience();
    let mut refused = Vec::new();
    for _ in 0..160 {
        net.wait(patience / 4);
        net.timer(1, Timer::Lead);
        refused.push(net.act(1, |log, _, cx| log.propose(Some(Add(1)), cx)).is_none());
        net.fire_where_set(Timer::Flush);
        net.settle_where(|(.., message)| !matches!(message, Message::HandOver { .. }));
        net.network.clear();
    }
    assert!(net.leads(1));
    let first = refused.iter().position(|refused| *refused).expect("it hands over");
    let refused = refused[first..].iter().filter(|refused| **refused).count();
    assert!(refused < 10, "{refused} times in {}", 160 - first);
}

#[test]
fn a_replica_that_copies_the_state_is_not_made_leader() {
    let mut net = Net::new();
    net.act(2, |log, _, cx| log.restore_from(NodeId(0), cx));
    let ballot = net.nodes[2].log.acceptor.promised();
    answer(&mut net, Message::HandOver { ballot });
    assert_eq!(net.nodes[2].log.acceptor.promised(), ballot);
}

/// The last member asks for promises, and nobody hears it.
fn unheard() -> (Net, Ballot) {
    let mut net = Net::new();
    net.wait(Duration::from_secs(3));
    net.act(2, |log, sums, cx| log.campaign(sums, cx));
    net.network.clear();
    let ballot = net.nodes[2].log.acceptor.promised();
    (net, ballot)
}

#[test]
fn a_candidate_whose_node_stops_does_not_lead_though_others_promise() {
    let (mut net, ballot) = unheard();
    net.act(2, |log, _, cx| log.stop(cx));
    let applied = net.nodes[2].log.applied();
    answer(&mut net, Message::Promise { ballot, applied, accepted: vec![] });
    assert!(!net.leads(2) && net.nodes[2].log.may_stop());
}

#[test]
fn a_candidate_that_was_refused_does_not_ask_again_in_its_ballot() {
    let (mut net, ballot) = unheard();
    answer(&mut net, Message::Refused { promised: Ballot { round: ballot.round + 5, member: 1 } });
    net.timer(2, Timer::Elect);
    let asks = |(.., message): &(_, _, Message<Add>)| matches!(message, Message::Prepare { .. });
    assert!(!net.network.iter().any(asks));
    let applied = net.nodes[2].log.applied();
    answer(&mut net, Message::Promise { ballot, applied, accepted: vec![] });
    assert!(!net.leads(2));
}

/// Otherwise it could never apply anything again.
#[test]
fn a_follower_that_is_full_still_accepts_the_next_entry() {
    let mut net = Net::new();
    let ballot = net.nodes[2].log.acceptor.promised();
    let mut matched = |first| {
        let entries = [Some(Add(LARGE))].into();
        match answer(&mut net, Message::Accept { ballot, first, chosen: 0, entries }) {
            Some(Message::Accepted { matched, .. }) => matched,
            answer => panic!("{answer:?}"),
        }
    };
    for slot in 1..100 {
        assert_eq!(matched(slot), 0);
    }
    let after = matched(0);
    assert!((2..99).contains(&after), "it has the next one, and {after} in total");
}
