//! What was acknowledged comes before all that begins later.

use core::time::Duration;

use serried_model::{Token, Version};

use super::super::Status;
use super::net::{X, client, update};
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
fn five_replicas_acknowledge_a_write_when_its_dependencies_are_agreed_on() {
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
fn a_recovered_command_comes_after_an_acknowledged_write() {
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
fn with_three_replicas_a_write_is_acknowledged_when_it_is_agreed_on() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(2, 1, append("e"));
    net.script(&["c2>2 Request", "2>0 PreAccept"]);
    let late = net.hold("2>* PreAccept");
    net.lose(&["*>* *"]);
    net.ask(0, 1, write("d"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    // What begins now comes after it, though both are in a cycle with `e`.
    net.lose(&["*>* *"]);
    net.ask(1, 1, write("g"));
    net.deliver("c1>1 Request");
    net.put_back(late);
    net.settle();
    net.pass(Duration::from_secs(30));
    let value = net.value(1);
    assert!(value == "g" || value == "ge", "{value}");
    net.assert_agree(X);
}

#[test]
fn a_retry_elsewhere_is_acknowledged_early_at_most_once() {
    for first_is_late in [false, true] {
        let mut net = Net::new(Variant::Epaxos, 3);
        net.ask(0, 1, write("v"));
        net.deliver("c0>0 Request");
        let token = Token { id: net.token(0, 1), carstamp: None };
        if !first_is_late {
            net.script(&["0>1 PreAccept"]);
        }
        let held = net.hold("0>* PreAccept");
        let answers = net.hold("1>0 PreAccepted");
        // The client tries it again, at 2. Of 2's quorum, 0 knows it already.
        net.ask_again(2, 1, write("v"), token);
        net.script(&["c2>2 Request", "2>0 PreAccept", "0>2 PreAccepted"]);
        let again = net.instance(2, update(2, 1));
        assert_eq!((again.status, again.attributes.fresh), (Status::Committed, false));
        net.put_back(held);
        net.put_back(answers);
        net.settle();
        net.pass(Duration::from_secs(1));
        assert!(net.ended(0, 1).ends_with("Committed") && net.ended(2, 1).ends_with("Committed"));
        assert_eq!(net.values(), ["v"; 3]);
    }
}

/// Another update is agreed on before a write, and makes replicas forget what is older than itself by far. It is executed
/// after the write was acknowledged.
#[test]
fn an_acknowledged_write_is_executed_however_old_it_is() {
    // Clocks may be so far off that both are let in.
    let settings = Settings { clock_bound_ms: 10_000_000, ..Settings::default() };
    let mut net = Net::with(Rules::of(Variant::Epaxos), 3, settings, 1);
    net.ask(1, 1, append("a"));
    net.settle();
    net.pass(Duration::from_secs(1));
    let before = net.token(1, 1).timestamp_us;
    let at = |timestamp_us, number| Token {
        id: Version { timestamp_us, coordinator: client(number) },
        carstamp: None,
    };
    net.ask_again(0, 1, append("b"), at(before + 3_600_000_000, 0));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>2 PreAccept"]);
    let late = net.hold("1>0 PreAccepted");
    net.lose(&["2>0 PreAccepted"]);
    net.ask_again(2, 1, write("v"), at(before - 1, 2));
    net.script(&["c2>2 Request", "2>0 PreAccept", "0>2 PreAccepted", "2>c2 Reply"]);
    assert_eq!(net.ended(2, 1), "- Committed");
    net.put_back(late);
    net.settle();
    assert_eq!(net.ended(0, 1), "a Committed");
    assert_eq!(net.values(), ["v"; 3]);
    net.ask_again(1, 2, write("v"), at(before - 1, 2));
    net.settle();
    assert_eq!(net.ended(1, 2), "Forgotten");
}
