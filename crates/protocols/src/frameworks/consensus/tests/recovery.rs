//! Instances are ended by others than their coordinators, and as they may have been committed.

use core::time::Duration;

use super::super::Status;
use super::net::{X, update};
use super::*;

/// Of five replicas 0 has committed its update in one round trip with 1 and 4, answered its client and died
/// before anybody heard of the commit.
fn committed_at_a_coordinator_that_died() -> Net {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept"]);
    net.script(&["1>0 PreAccepted", "4>0 PreAccepted", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    net.crash(0);
    net
}

#[test]
fn an_instance_known_only_by_validation_refutes_nothing() {
    let mut net = committed_at_a_coordinator_that_died();
    // Replica 1 has an update of its own that comes after it, of which 2 alone hears.
    net.ask(1, 1, append("b"));
    net.script(&["c1>1 Request", "1>2 PreAccept"]);
    net.part(&[0, 1]);
    // Replica 2 recovers that; 3 is asked what stands against it, and hears of it for the first time.
    net.recover(2);
    net.script(&["2>3 Prepare", "2>4 Prepare", "3>2 Prepared", "4>2 Prepared", "2>3 Validate"]);
    net.hold("*>* *");
    // Replica 4 recovers what was committed; 3 does not know that the other comes after it.
    net.recover(4);
    net.settle();
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(30));
    assert_eq!(net.values(), ["ab"; 5]);
    net.assert_agree(X);
}

#[test]
fn what_was_executed_at_one_is_taken_over_by_who_recovers() {
    for variant in BOTH {
        for members in [3, 5] {
            let mut net = Net::new(variant, members);
            net.ask(0, 1, append("a"));
            while net.count("0>1 Commit") == 0 {
                let (from, to, message) = net.network.pop_front().expect("a message");
                net.hand(from, to, message);
            }
            net.deliver("0>1 Commit");
            net.crash(0);
            net.lose(&["*>* *"]);
            net.recover(2);
            net.script(&["2>1 Prepare", "1>2 TakeOver"]);
            assert_eq!((net.value(1), net.value(2)), ("a".into(), "a".into()));
            net.restart(0);
            net.touch(2);
            net.assert_agree(X);
        }
    }
}

#[test]
fn what_one_has_accepted_is_committed_by_who_recovers() {
    for variant in BOTH {
        let mut net = Net::new(variant, 5);
        net.ask(1, 1, append("b"));
        net.deliver("c1>1 Request");
        net.lose(&["1>* *"]);
        net.ask(0, 1, append("a"));
        net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
        net.script(&["4>0 PreAccepted", "2>0 PreAccepted", "1>0 PreAccepted", "0>3 Accept"]);
        let accepted = net.instance(3, update(0, 1));
        assert_eq!(accepted.status, Status::Accepted);
        net.crash(0);
        net.lose(&["*>* *"]);
        net.recover(2);
        net.script(&["2>3 Prepare", "2>4 Prepare", "3>2 Prepared", "4>2 Prepared"]);
        net.settle();
        let recovered = net.instance(2, update(0, 1));
        assert_eq!(
            (recovered.status, recovered.attributes),
            (Status::Committed, accepted.attributes)
        );
        net.restart(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.values(), ["ab"; 5].map(|_| net.value(0)));
        net.assert_agree(X);
    }
}

#[test]
fn what_may_have_been_committed_is_committed_unless_refuted() {
    let mut net = committed_at_a_coordinator_that_died();
    // Only one of those who had to agree is there.
    net.part(&[0, 1]);
    net.recover(4);
    net.script(&["4>2 Prepare", "4>3 Prepare", "2>4 Prepared", "3>4 Prepared"]);
    assert_eq!((net.count("4>2 Validate"), net.count("4>3 Validate")), (1, 1));
    net.settle();
    assert_eq!((net.value(2), net.value(3), net.value(4)), ("a".into(), "a".into(), "a".into()));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(30));
    assert_eq!(net.values(), ["a"; 5]);
}

#[test]
fn what_the_quorum_did_not_agree_on_is_refuted() {
    let mut net = Net::new(Variant::Epaxos, 5);
    // Replica 4 would have had to agree to what 0 began, and began an update without knowing of it.
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.ask(4, 1, append("b"));
    net.deliver("c4>4 Request");
    net.script(&["4>3 PreAccept"]);
    net.crash(0);
    net.part(&[0, 4]);
    net.lose(&["*>* *"]);
    net.recover(1);
    net.script(&["1>2 Prepare", "1>3 Prepare", "2>1 Prepared", "3>1 Prepared"]);
    net.settle();
    let refuted = net.instance(1, update(0, 1));
    assert_eq!((refuted.status, refuted.command), (Status::Committed, None));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(60));
    assert!(net.ended(0, 1).ends_with("Committed"));
    net.assert_agree(X);
    let value = net.value(0);
    assert!(value.matches('a').count() == 1 && value.matches('b').count() == 1, "{value}");
}

#[test]
fn one_that_something_undecided_stands_against_waits_for_that() {
    let mut net = Net::new(Variant::Epaxos, 5);
    // Replica 2 need not have agreed to what 0 began, and began an update without knowing of it.
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.ask(2, 1, append("b"));
    net.script(&["c2>2 Request", "2>3 PreAccept"]);
    net.crash(0);
    net.part(&[0, 4]);
    net.lose(&["*>* *"]);
    net.recover(1);
    net.script(&["1>2 Prepare", "1>3 Prepare", "2>1 Prepared", "3>1 Prepared"]);
    net.script(&["1>2 Validate", "1>3 Validate", "2>1 Validated", "3>1 Validated"]);
    assert_eq!(net.instance(1, update(0, 1)).status, Status::PreAccepted, "nothing is decided");
    assert!(net.instance(1, update(0, 1)).command.is_some());
    net.pass(Duration::from_secs(60));
    assert!(net.ended(2, 1).ends_with("Committed"));
    assert!(net.ended(0, 1).ends_with("Committed"));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(60));
    let value = net.value(0);
    assert!(value == "ab" || value == "ba", "{value}");
    net.assert_agree(X);
}

#[test]
fn who_recovers_without_knowing_the_quorum_learns_it() {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.crash(0);
    net.part(&[0, 4]);
    net.lose(&["*>* *"]);
    net.recover(1);
    net.script(&["1>2 Prepare"]);
    net.lose(&["*>* *"]);
    // Replica 2 has heard of it by that, and goes on.
    net.recover(2);
    net.script(&["2>1 Prepare", "2>3 Prepare", "1>2 Prepared", "3>2 Prepared"]);
    assert_eq!(net.count("2>* Validate"), 2);
    assert_eq!(net.instance(2, update(0, 1)).quorum, net.instance(1, update(0, 1)).quorum);
}

#[test]
fn what_was_executed_long_ago_still_refutes() {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.give_up(0, 1);
    net.crash(0);
    // Replica 2 has an update executed, of which 1 hears nothing.
    net.part(&[0, 1]);
    net.ask(2, 1, append("b"));
    net.pass(Duration::from_millis(500));
    assert_eq!(net.ended(2, 1), "- Committed");
    // Of those who would have had to agree to the first only 1 is there: it could have been committed,
    // but for the second, which comes neither before nor after it.
    net.heal();
    net.part(&[0, 4]);
    net.recover(1);
    net.script(&["1>2 Prepare", "1>3 Prepare", "2>1 Prepared", "3>1 Prepared"]);
    net.settle();
    net.pass(Duration::from_secs(60));
    net.touch(1);
    assert_eq!((net.value(1), net.value(2), net.value(3)), ("b".into(), "b".into(), "b".into()));
}
