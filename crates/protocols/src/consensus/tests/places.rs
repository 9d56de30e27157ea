//! What was acknowledged comes before all that begins later.

use core::time::Duration;

use super::super::Status;
use super::net::{X, update};
use super::*;

/// Replica 2 has begun `e`, of which 4 alone has heard; 3 has begun the write `d`, which is agreed on and
/// depends on `e`. What `e` will depend on is not known yet. With it the messages that bring `e` to others.
fn agreed_on_before_what_it_depends_on() -> (Net, Vec<net::Envelope>) {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(2, 1, append("e"));
    net.script(&["c2>2 Request", "2>4 PreAccept"]);
    let late = net.hold("2>* PreAccept");
    net.lose(&["4>2 PreAccepted"]);
    net.ask(3, 1, write("d"));
    net.deliver("c3>3 Request");
    net.script(&["3>0 PreAccept", "3>1 PreAccept", "3>2 PreAccept", "3>4 PreAccept"]);
    net.script(&["2>3 PreAccepted", "4>3 PreAccepted"]);
    assert_eq!(net.instance(3, update(3, 1)).status, Status::Committed);
    (net, late)
}

#[test]
fn with_five_replicas_a_write_is_acknowledged_when_all_that_it_depends_on_is_agreed_on() {
    let (mut net, late) = agreed_on_before_what_it_depends_on();
    assert_eq!(net.count("3>c3 Reply"), 0, "its place is not known yet");
    // Another write begins, of which 1 alone hears.
    net.lose(&["*>* *"]);
    net.ask(0, 1, write("g"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.crash(0);
    net.lose(&["*>* *"]);
    // Now `e` is agreed on, and depends on both. That is a cycle with `d`, and with `g` as 1 recovers it.
    net.put_back(late);
    net.script(&["2>1 PreAccept", "2>3 PreAccept", "1>2 PreAccepted", "3>2 PreAccepted"]);
    net.settle();
    net.part(&[0, 4]);
    net.recover(1);
    net.settle();
    net.pass(Duration::from_secs(30));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(30));
    for (number, access) in [(3, "d"), (0, "g"), (2, "e")] {
        assert!(net.ended(number, 1).ends_with("Committed"), "{access}");
    }
    net.assert_agree(X);
}

#[test]
fn what_begins_after_a_write_was_acknowledged_comes_after_it_though_both_are_recovered() {
    let (mut net, late) = agreed_on_before_what_it_depends_on();
    net.put_back(late);
    net.settle();
    assert_eq!(net.ended(3, 1), "- Committed");
    net.lose(&["*>* *"]);
    net.ask(0, 1, write("g"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    net.crash(0);
    net.lose(&["*>* *"]);
    net.part(&[0, 4]);
    net.recover(1);
    net.settle();
    net.pass(Duration::from_secs(30));
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(30));
    assert_eq!(net.values(), ["g"; 5]);
}

#[test]
fn with_three_replicas_too_a_write_is_acknowledged_when_all_that_it_depends_on_is_agreed_on() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(2, 1, append("e"));
    net.script(&["c2>2 Request", "2>0 PreAccept"]);
    let late = net.hold("0>2 PreAccepted");
    net.lose(&["*>* *"]);
    net.ask(0, 1, write("d"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    assert_eq!(net.instance(0, update(0, 1)).status, Status::Committed);
    assert_eq!(net.count("0>c0 Reply"), 0, "what comes before it is not known");
    net.put_back(late);
    net.script(&["0>2 PreAccepted", "2>0 Commit", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    net.settle();
    net.pass(Duration::from_secs(30));
    assert_eq!(net.values(), ["d"; 3]);
}
