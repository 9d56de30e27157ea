//! Thrifty messages (001 §4.5.1).

use core::time::Duration;

use super::*;

fn net(variant: Variant, members: usize) -> Net {
    Net::with(Rules::of(variant), members, thrifty(), 1)
}

#[test]
fn messages_go_to_no_more_replicas_than_have_to_answer() {
    for (variant, members, fast) in [
        (Variant::Epaxos, 3, 1),
        (Variant::Gryff, 3, 1),
        (Variant::Epaxos, 5, 2),
        (Variant::Gryff, 5, 3),
        (Variant::Epaxos, 7, 4),
        (Variant::Gryff, 7, 5),
    ] {
        let mut net = net(variant, members);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        assert_eq!(net.count("0>* PreAccept"), fast, "{variant:?} with {members}");
        net.settle();
        assert_eq!(net.ended(0, 1), "- Committed");
        if variant == Variant::Gryff {
            net.ask(0, 2, Access::Read);
            net.deliver("c0>0 Request");
            assert_eq!(net.count("0>* Read1"), members / 2);
            net.ask(1, 1, write("b"));
            assert_eq!(net.count("c1>* Write1"), members / 2 + 1);
        }
    }
}

#[test]
fn an_accept_goes_to_a_majority() {
    let mut net = net(Variant::Gryff, 5);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept", "0>2 PreAccept"]);
    net.script(&["1>0 PreAccepted", "4>0 PreAccepted", "2>0 PreAccepted"]);
    assert_eq!(net.count("0>* Accept"), 2);
    net.settle();
    assert_eq!(net.ended(0, 1), "w Committed");
}

#[test]
fn when_one_is_silent_the_others_are_asked_and_it_is_asked_last_from_then_on() {
    for variant in BOTH {
        for members in [3, 5] {
            let mut net = net(variant, members);
            net.part(&[1]);
            net.ask(0, 1, append("a"));
            net.pass(Duration::from_millis(500));
            assert_eq!(net.ended(0, 1), "- Committed", "{variant:?} with {members}");
            net.heal();
            net.ask(0, 2, append("b"));
            net.deliver("c0>0 Request");
            assert_eq!(net.count("0>1 PreAccept"), 0, "{variant:?} with {members}");
            net.settle();
            assert_eq!(net.ended(0, 2), "a Committed");
        }
    }
}

#[test]
fn when_one_is_silent_a_read_goes_to_the_others_and_to_that_one_last_from_then_on() {
    let mut net = net(Variant::Gryff, 5);
    net.part(&[1]);
    net.ask(0, 1, Access::Read);
    net.pass(Duration::from_millis(200));
    assert_eq!(net.ended(0, 1), "- Committed");
    net.heal();
    net.ask(0, 2, Access::Read);
    net.deliver("c0>0 Request");
    assert_eq!((net.count("0>1 Read1"), net.count("0>* Read1")), (0, 2));
    net.settle();
    assert_eq!(net.ended(0, 2), "- Committed");
}

#[test]
fn the_next_operation_goes_to_the_replica_that_answered() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.part(&[1]);
    net.ask(0, 1, append("a"));
    net.deliver("c0>0 Request");
    let held = net.hold("0>* *");
    // It has turned to 1 by now, which is not there.
    net.pass(Duration::from_millis(100));
    net.put_back(held);
    net.settle();
    assert_eq!(net.ended(0, 1), "- Committed");
    net.ask(0, 2, append("b"));
    assert_eq!(net.count("c0>0 Request"), 1);
}
