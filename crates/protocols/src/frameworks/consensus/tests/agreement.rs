//! Agreement: the fast path, the slow path, bases, and ballots.

use core::time::Duration;

use super::super::{Instance, Status};
use super::net::{X, update};
use super::*;

/// Of five replicas 0 and 1 have accepted one thing of 0's update, in its own ballot; 2, 3 and 4 another, in
/// 2's, who has committed it; then 3 has had 0 and 1 promise a higher ballot, and has got no further.
fn three_ballots(mut net: Net) -> Net {
    // Replica 1 has an update of which nobody hears yet, so that it does not agree with the others.
    net.ask(1, 1, append("b"));
    net.deliver("c1>1 Request");
    net.lose(&["1>* *"]);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.script(&["4>0 PreAccepted", "2>0 PreAccepted", "1>0 PreAccepted", "0>1 Accept"]);
    net.lose(&["*>* *"]);
    net.recover(2);
    net.script(&["2>3 Prepare", "2>4 Prepare", "3>2 Prepared", "4>2 Prepared"]);
    if net.count("2>3 Validate") > 0 {
        net.script(&["2>3 Validate", "2>4 Validate", "3>2 Validated", "4>2 Validated"]);
    }
    net.script(&["2>3 Accept", "2>4 Accept", "3>2 Accepted", "4>2 Accepted"]);
    let late = net.hold("2>* Commit");
    net.part(&[2]);
    net.lose(&["*>* *"]);
    net.recover(3);
    net.script(&["3>0 Prepare", "3>1 Prepare"]);
    net.lose(&["*>* *"]);
    let id = update(0, 1);
    let known: Vec<Instance> = (0..5).map(|member| net.instance(member, id)).collect();
    let accepted: Vec<u64> = known.iter().map(|instance| instance.accepted.number).collect();
    assert_eq!((known[2].status, accepted), (Status::Committed, vec![0, 0, 1, 1, 1]));
    assert!(known[1].promised > known[4].promised);
    assert_ne!(known[1].attributes, known[4].attributes);
    // Replica 0 recovers its own with 1 and 4.
    net.recover(0);
    net.script(&["0>1 Prepare", "0>4 Prepare", "1>0 Prepared", "4>0 Prepared"]);
    net.settle();
    assert_eq!(net.instance(0, id).status, Status::Committed);
    net.heal();
    net.put_back(late);
    net.pass(Duration::from_secs(30));
    net
}

#[test]
fn recovery_takes_what_was_accepted_in_the_highest_ballot() {
    for variant in BOTH {
        let mut net = three_ballots(Net::new(variant, 5));
        assert_eq!(
            (net.ended(0, 1), net.ended(1, 1)),
            ("- Committed".into(), "a Committed".into())
        );
        assert_eq!(net.values(), ["ab"; 5]);
        net.assert_agree(X);
    }
}

#[test]
#[should_panic(expected = "a second, different agreement")]
fn an_epaxos_that_takes_the_promised_ballot_for_the_accepted_one_agrees_twice() {
    three_ballots(Net::broken(Variant::Epaxos, 5, Mutation::PromisedTakenForAccepted));
}

#[test]
#[should_panic(expected = "a second, different agreement")]
fn a_gryff_that_takes_the_promised_ballot_for_the_accepted_one_agrees_twice() {
    three_ballots(Net::broken(Variant::Gryff, 5, Mutation::PromisedTakenForAccepted));
}

#[test]
fn the_fast_quorum_raises_a_base() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    assert_eq!(net.instance(0, update(0, 1)).status, Status::Committed, "in one round trip");
    net.settle();
    assert_eq!(net.ended(0, 1), "w Committed");
    assert_eq!(net.values(), ["wa"; 3]);
}

#[test]
fn a_base_that_few_have_is_taken_in_with_a_second_round() {
    let mut net = Net::new(Variant::Gryff, 5);
    net.make_hold(2, stamped("w", 5));
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.script(&["1>0 PreAccepted", "4>0 PreAccepted", "2>0 PreAccepted"]);
    assert_eq!(net.instance(0, update(0, 1)).status, Status::Accepted);
    net.settle();
    assert_eq!(net.ended(0, 1), "w Committed");
    assert_eq!(net.values(), ["wa"; 5]);
}

#[test]
fn a_base_that_one_of_a_majority_has_is_taken_in_by_who_recovers() {
    let mut net = Net::new(Variant::Gryff, 5);
    // The write was acknowledged before the read-modify-write began.
    for member in [2, 3, 4] {
        net.make_hold(member, stamped("w", 5));
    }
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.crash(0);
    net.lose(&["*>* *"]);
    net.recover(1);
    net.settle();
    net.pass(Duration::from_secs(30));
    assert_eq!(net.ended(0, 1), "w Committed", "whichever instance it is");
    assert_eq!(net.value(1), "wa");
}

#[test]
fn a_base_committed_in_one_round_trip_stands() {
    let mut net = Net::new(Variant::Gryff, 5);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.script(&["1>0 PreAccepted", "4>0 PreAccepted"]);
    assert_eq!(net.instance(0, update(0, 1)).status, Status::PreAccepted, "2f have to agree");
    net.deliver("2>0 PreAccepted");
    let committed = net.instance(0, update(0, 1));
    assert_eq!(committed.status, Status::Committed);
    // Nobody hears of it. The one that was not asked holds a write that came afterwards; of those who
    // were there are two, who make a majority with the coordinator: enough to tell.
    net.lose(&["*>* *"]);
    net.crash(0);
    net.make_hold(3, stamped("w", 5));
    net.part(&[0, 1]);
    net.recover(2);
    net.settle();
    let recovered = net.instance(3, update(0, 1));
    assert_eq!((recovered.status, recovered.attributes), (Status::Committed, committed.attributes));
    assert_eq!((net.value(2), net.value(3)), ("a".into(), "w".into()));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(30));
    net.assert_agree(X);
    assert_eq!(net.run(3, 1, Access::Read), "w Committed");
}

#[test]
fn a_read_modify_write_is_answered_when_a_majority_has_executed_it() {
    for (members, others) in [(3, &["1"][..]), (5, &["1", "4"])] {
        let mut net = Net::new(Variant::Gryff, members);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        while net.instance(0, update(0, 1)).status < Status::Committed {
            let at = net.network.iter().position(|(_, to, _)| !to.is_coordinator());
            let (from, to, message) = net.network.remove(at.expect("a message")).expect("it is");
            net.hand(from, to, message);
        }
        assert_eq!(net.value(0), "a", "it has executed it itself");
        for other in others {
            assert_eq!(net.count("0>c0 Reply"), 0);
            net.script(&[&format!("0>{other} Commit"), &format!("{other}>0 Executed")]);
        }
        assert_eq!(net.count("0>c0 Reply"), 1);
    }
}

#[test]
fn a_read_modify_write_takes_two_rounds_without_conflict_and_three_with() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    net.script(&["0>1 Commit", "1>0 Executed", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    net.settle();
    // With five, one of the fast quorum knows of another that it interferes with.
    let mut net = Net::new(Variant::Gryff, 5);
    net.ask(1, 1, append("b"));
    net.deliver("c1>1 Request");
    let of_1 = net.hold("1>* *");
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.script(&["1>0 PreAccepted", "4>0 PreAccepted", "2>0 PreAccepted"]);
    net.script(&["0>4 Accept", "0>2 Accept", "4>0 Accepted", "2>0 Accepted", "0>4 Commit"]);
    assert_eq!(net.count("*>c0 Reply"), 0);
    net.put_back(of_1);
    net.settle();
    net.pass(Duration::from_secs(10));
    assert!(net.ended(0, 1).ends_with("Committed") && net.ended(1, 1).ends_with("Committed"));
    net.assert_agree(X);
}
