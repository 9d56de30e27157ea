//! Crashes, lost disks and what was missed.

use core::time::Duration;

use super::super::{Attributes, Ballot, Body, Instance, Message, Status};
use super::net::{X, update};
use super::*;
use serried_model::{Key, NodeId, Token};

#[test]
fn a_state_that_can_not_be_taken_over_changes_nothing_in_epaxos() {
    let mut net = Net::new(Variant::Epaxos, 5);
    // Of an update of replica 1, which has died, nothing comes; 0 is the only one that is told.
    net.ask(1, 1, append("z"));
    net.script(&["c1>1 Request", "1>0 PreAccept"]);
    net.give_up(1, 1);
    net.crash(1);
    net.lose(&["*>* *"]);
    net.recover(0);
    net.script(&["0>2 Prepare", "0>3 Prepare", "2>0 Prepared", "3>0 Prepared"]);
    net.script(&["0>2 Accept", "0>3 Accept", "2>0 Accepted", "3>0 Accepted"]);
    assert_eq!(net.instance(0, update(1, 1)).command, None);
    net.lose(&["*>* *"]);
    // Others execute an update of which 0 hears nothing.
    net.part(&[0, 1]);
    net.ask(2, 1, append("u"));
    net.pass(Duration::from_millis(500));
    assert_eq!(net.ended(2, 1), "- Committed");
    let of_2 = Message::TakeOver { key: Key::from(X), state: Box::new(net.state(2, X)) };
    net.heal();
    net.part(&[1]);
    net.hand(NodeId(2), NodeId(0), of_2);
    let Instance { command, attributes, .. } = net.instance(2, update(2, 1));
    let body = Box::new(Body::Commit { command, attributes });
    let commit = Message::Instance { key: Key::from(X), id: update(2, 1), incarnation: 0, body };
    net.hand(NodeId(2), NodeId(0), commit);
    net.pass(Duration::from_secs(30));
    assert_eq!(net.value(0), "u");
    net.ask(0, 2, append("v"));
    net.pass(Duration::from_secs(1));
    assert_eq!(net.ended(0, 2), "u Committed");
}

#[test]
fn an_instance_that_all_others_have_forgotten_is_made_up_for() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        // Replica 2 knows of the update, not of its commit; 1 has been given the state and has
        // forgotten the instance; and 0, which alone has it, dies.
        net.ask(0, 1, add(1));
        net.script(&["c0>0 Request", "0>2 PreAccept", "0>1 PreAccept", "1>0 PreAccepted"]);
        net.lose(&["0>* Commit"]);
        let of_0 = Message::TakeOver { key: Key::from(X), state: Box::new(net.state(0, X)) };
        net.hand(NodeId(0), NodeId(1), of_0);
        net.crash(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.run(1, 2, add(1)), "1 Committed", "{variant:?}");
        assert_eq!((net.value(1), net.value(2)), ("2".into(), "2".into()));
    }
}

/// Two updates by two clients, with a replica failing after so many messages. Whether so many were needed.
fn survives(net: &mut Net, after: usize, fail: impl Fn(&mut Net)) -> bool {
    net.ask(0, 1, append("a"));
    net.ask(1, 1, append("b"));
    let mut sent = 0;
    while sent < after
        && let Some((from, to, message)) = net.network.pop_front()
    {
        net.hand(from, to, message);
        sent += 1;
    }
    fail(net);
    net.pass(Duration::from_secs(60));
    for number in [0, 1] {
        assert!(net.ended(number, 1).ends_with("Committed"), "after {after} messages");
    }
    let value = net.value(2);
    assert!(value == "ab" || value == "ba", "{value} after {after} messages");
    net.assert_agree(X);
    sent == after
}

#[test]
fn a_crash_at_any_step_keeps_promises() {
    for variant in BOTH {
        for member in 0..3 {
            let crash = |net: &mut Net| {
                net.crash(member);
                net.restart(member);
            };
            let mut after = 0;
            while survives(&mut Net::new(variant, 3), after, crash) {
                after += 1;
            }
            assert!(after > 12, "{after}");
        }
    }
}

#[test]
fn a_lost_disk_at_any_step_breaks_no_promise() {
    for (variant, members) in [
        (Variant::Epaxos, 3),
        (Variant::Gryff, 3),
        (Variant::Epaxos, 5),
        (Variant::Gryff, 5),
        (Variant::Epaxos, 7),
    ] {
        for member in 0..3 {
            let replace = |net: &mut Net| net.lose_disk(member);
            let mut after = 0;
            while survives(&mut Net::new(variant, members), after, replace) {
                after += 1;
            }
            assert!(after > 12, "{after}");
        }
    }
}

#[test]
fn a_replacement_first_learns_what_others_have() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, append("a"));
        net.crash(2);
        net.ask(0, 2, append("b"));
        net.script(&["c0>0 Request"]);
        net.crash(1);
        net.replace(2);
        // Replica 0 shows what it has, and 1 does not.
        net.pass(Duration::from_secs(20));
        assert_eq!(net.ended(0, 2), "");
        assert_eq!(net.value(2), "a", "what is agreed on it takes over");
        net.restart(1);
        net.pass(Duration::from_secs(20));
        assert_eq!(net.ended(0, 2), "a Committed");
        assert_eq!(net.values(), ["ab"; 3]);
    }
}

#[test]
fn a_replacement_waits_until_all_earlier_instances_are_decided() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>2 PreAccept", "0>1 PreAccept"]);
    net.lose(&["*>* *"]);
    net.lose_disk(2);
    net.settle();
    assert_eq!(net.gauge(2, "catching_up"), 1, "that is not decided");
    net.recover(0);
    net.lose(&["*>1 *", "1>* *"]);
    net.settle();
    assert_eq!(net.instance(0, update(0, 1)).status, Status::PreAccepted);
    // The others decide it. The new one takes part in what is begun then, and has its own numbers.
    net.pass(Duration::from_secs(30));
    assert_eq!(net.gauge(2, "catching_up"), 0);
    net.ask(2, 1, append("b"));
    net.pass(Duration::from_secs(30));
    assert!(net.ended(2, 1).ends_with("Committed") && net.ended(0, 1).ends_with("Committed"));
    assert_eq!(net.value(0).len(), 2);
    net.assert_agree(X);
}

#[test]
fn a_replica_does_not_use_the_numbers_of_its_predecessor_again() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, append("a"));
        net.pass(Duration::from_secs(5));
        net.ask(0, 2, append("b"));
        net.script(&["c0>0 Request", "0>2 PreAccept"]);
        net.lose(&["*>* *"]);
        net.lose_disk(0);
        net.pass(Duration::from_secs(30));
        net.ask(0, 3, append("c"));
        net.deliver("c0>0 Request");
        assert!(net.instances(0).contains_key(&update(0, 3)), "{variant:?}");
        net.pass(Duration::from_secs(30));
        assert!(net.ended(0, 3).ends_with("Committed"));
        net.assert_agree(X);
    }
}

#[test]
fn a_lost_replicas_late_messages_begin_nothing() {
    for variant in BOTH {
        let (mut net, late) = Net::with_late_pre_accept(variant);
        net.give_up(0, 1);
        net.lose_disk(0);
        net.settle();
        // The same number, for something else.
        net.ask(0, 2, append("b"));
        net.deliver("c0>0 Request");
        let begun = net.instance(0, update(0, 1)).command;
        for (from, to, message) in late {
            net.hand(from, to, message);
        }
        net.script(&["0>1 PreAccept", "1>0 PreAccepted"]);
        assert_eq!(net.instance(0, update(0, 1)).status, Status::Committed);
        // It is agreed on, which another finds out.
        net.lose(&["*>* *"]);
        net.crash(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.instance(1, update(0, 1)).command, begun, "{variant:?}");
        net.restart(0);
        net.touch(1);
        assert_eq!(net.values(), ["b"; 3], "{variant:?}");
        net.assert_agree(X);
    }
}

#[test]
fn a_replica_that_takes_over_a_state_executes_nothing_twice() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, add(1));
        net.part(&[2]);
        for txn in 2..=600 {
            net.ask(0, txn, add(1));
            net.settle();
            net.wait(Duration::from_millis(1));
            net.pass(Duration::from_millis(if txn % 100 == 0 { 2000 } else { 0 }));
        }
        assert_eq!(net.ended(0, 600), "599 Committed");
        net.heal();
        net.pass(Duration::from_secs(10));
        net.touch(2);
        assert_eq!(net.values(), ["600"; 3], "{variant:?}");
        // What was executed while it was away it knows, too, when it is tried again.
        let token = Token { id: net.token(0, 600), carstamp: None };
        net.ask_again(2, 1, add(1), token);
        net.settle();
        assert_eq!(net.ended(2, 1), "599 Committed");
        assert_eq!(net.run(2, 2, add(1)), "600 Committed");
        net.pass(Duration::from_secs(10));
        net.assert_agree(X);
    }
}

#[test]
fn what_was_promised_and_accepted_is_known_after_a_crash() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, append("a"));
        net.script(&["c0>0 Request", "0>1 PreAccept", "0>2 PreAccept"]);
        let of_0 = net.hold("*>0 PreAccepted");
        net.recover(2);
        net.script(&["2>1 Prepare", "1>2 Prepared", "2>1 Accept"]);
        let before = net.instance(1, update(0, 1));
        assert_eq!((before.status, before.promised.number), (Status::Accepted, 1));
        net.lose(&["*>* *"]);
        net.crash(1);
        net.restart(1);
        let after = net.instance(1, update(0, 1));
        assert_eq!(Instance { recorded: before.recorded, ..after }, before);
        // In a lower ballot it takes part no more.
        let body = Body::Accept {
            ballot: Ballot::default(),
            command: None,
            attributes: before.attributes.clone(),
        };
        let (key, id) = (Key::from(X), update(0, 1));
        let accept = Message::Instance { key, id, incarnation: 0, body: Box::new(body) };
        net.hand(NodeId(0), NodeId(1), accept);
        assert_eq!((net.count("1>0 Refused"), net.count("1>0 Accepted")), (1, 0));
        let after = net.instance(1, update(0, 1));
        assert_eq!(Instance { recorded: before.recorded, ..after }, before);
        drop(of_0);
    }
}

#[test]
fn a_rejoining_replica_answers_nobody() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, append("a"));
        net.lose_disk(2);
        net.network.clear();
        net.ask(0, 2, append("b"));
        net.script(&["c0>0 Request", "0>2 PreAccept"]);
        net.ask(2, 1, append("c"));
        net.deliver("c2>2 Request");
        let body = Body::Prepare { ballot: Ballot { number: 7, member: 1 } };
        let prepare = Message::Instance {
            key: Key::from(X),
            id: update(1, 9),
            incarnation: 0,
            body: Box::new(body),
        };
        net.hand(NodeId(1), NodeId(2), prepare);
        if variant == Variant::Gryff {
            net.ask(0, 3, Access::Read);
            net.script(&["c0>0 Request", "0>2 Read1"]);
            net.ask(2, 2, Access::Read);
            net.deliver("c2>2 Request");
            net.ask(1, 1, write("w"));
            net.deliver("c1>2 Write1");
        }
        assert_eq!(net.count("2>* *"), 0, "{:?}", net.waiting());
    }
}

#[test]
fn a_number_in_which_nothing_is_done_is_not_used_again_either() {
    let mut net = Net::new(Variant::Epaxos, 3);
    // Others end what replica 0 has begun, and nobody has heard of its command.
    let body = Body::Accept {
        ballot: Ballot { number: 1, member: 1 },
        command: None,
        attributes: Attributes::of_no_op(3),
    };
    let accept = Message::Instance {
        key: Key::from(X),
        id: update(0, 1),
        incarnation: 0,
        body: Box::new(body),
    };
    net.hand(NodeId(1), NodeId(2), accept);
    net.network.clear();
    net.lose_disk(0);
    net.pass(Duration::from_secs(30));
    net.ask(0, 1, append("a"));
    net.deliver("c0>0 Request");
    assert_eq!(net.instance(0, update(0, 2)).status, Status::PreAccepted);
}
