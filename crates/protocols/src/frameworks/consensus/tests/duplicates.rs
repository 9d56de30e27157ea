//! What comes twice is done once.

use core::time::Duration;

use serried_model::{Key, Token, Version};

use super::super::{Answer, Command, Message, Status};
use super::net::{X, client, update};
use super::*;

#[test]
fn two_replicas_with_one_request_execute_it_once() {
    for variant in BOTH {
        for members in [3, 5] {
            let mut net = Net::new(variant, members);
            net.run(2, 1, append("x"));
            net.ask(0, 1, append("a"));
            let token = Token { id: net.token(0, 1), carstamp: None };
            net.ask_again(1, 1, append("a"), token);
            net.settle();
            net.pass(Duration::from_secs(10));
            assert_eq!(net.ended(0, 1), "x Committed");
            assert_eq!(net.ended(1, 1), "x Committed");
            assert_eq!(net.value(2), "xa");
            net.assert_agree(X);
            // And when it is all over.
            net.ask_again(2, 2, append("a"), token);
            net.settle();
            assert_eq!(net.ended(2, 2), "x Committed");
            assert_eq!(net.value(2), "xa");
        }
    }
}

#[test]
fn an_unknown_instance_becomes_a_no_op_and_its_command_is_done_once() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        net.crash(0);
        net.pass(Duration::from_secs(5));
        assert_eq!(net.ended(0, 1), "- Committed", "another has done it");
        assert_eq!(net.instance(0, update(0, 1)).status, Status::PreAccepted);
        net.restart(0);
        net.touch(0);
        assert_eq!(net.values(), ["a"; 3]);
        net.assert_agree(X);
    }
}

#[test]
fn a_client_whose_instance_others_have_ended_is_served_by_another() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        net.lose(&["0>* PreAccept"]);
        // Others end it: 1 has it done, and nobody but its coordinator knows its command.
        net.ask(1, 1, append("b"));
        net.script(&["c1>1 Request", "1>0 PreAccept", "0>1 PreAccepted"]);
        net.lose(&["*>0 *"]);
        net.part(&[0]);
        net.pass(Duration::from_secs(20));
        assert!(net.ended(0, 1).ends_with("Committed"));
        net.heal();
        net.pass(Duration::from_secs(60));
        let value = net.value(0);
        assert!(value == "ab" || value == "ba", "{value}");
        net.assert_agree(X);
    }
}

#[test]
fn a_replica_whose_clock_is_off_does_not_end_what_another_may_do() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, append("a"));
        net.deliver("c0>0 Request");
        net.lose(&["*>* *"]);
        net.part(&[0, 1, 2]);
        net.pass(Duration::from_millis(200));
        let answer = Answer::ClockSkew { ahead_us: 9_000_000 };
        net.hand(NodeId(1), client(0), Message::Reply { request: 1, answer });
        net.heal();
        net.pass(Duration::from_secs(30));
        assert_eq!(net.ended(0, 1), "- Committed", "{variant:?}");
    }
}

#[test]
fn only_a_majority_of_clocks_refuses_a_client() {
    let skewed = |ahead_us| Message::Reply { request: 1, answer: Answer::ClockSkew { ahead_us } };
    for variant in BOTH {
        for majority in [false, true] {
            let mut net = Net::new(variant, 3);
            net.ask(0, 1, append("a"));
            net.lose(&["c0>0 Request"]);
            // It comes twice, and counts once.
            net.hand(NodeId(0), client(0), skewed(9_000_000));
            net.hand(NodeId(0), client(0), skewed(9_000_000));
            assert_eq!(net.ended(0, 1), "", "{variant:?}");
            assert_eq!(net.waiting(), ["c0>n1 Request"], "{variant:?}: nobody else is asked yet");
            if majority {
                net.lose(&["c0>1 Request"]);
                net.hand(NodeId(1), client(0), skewed(8_000_000));
            }
            net.settle();
            let ended = net.ended(0, 1);
            assert_eq!(ended.contains("ClockSkew"), majority, "{variant:?}: {ended}");
            assert_eq!(ended.contains("Committed"), !majority, "{variant:?}: {ended}");
        }
    }
}

/// A request of a client whose clock is ahead by so much of the time that begins now.
fn request_ahead(request: u64, ahead: Duration, net: &Net) -> Message {
    let timestamp_us = net.clock_us() + ahead.as_micros() as u64;
    let token = Version { timestamp_us, coordinator: client(0) };
    let command = Command { token, settled: token, access: append("a"), brings: Vec::new() };
    Message::Request { request, key: Key::from(X), command }
}

#[test]
fn a_request_from_the_end_of_time_is_refused_for_its_clock() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        // What names a later time is dropped.
        let timestamp_us = (1 << 62) - 1;
        let token = Version { timestamp_us, coordinator: client(0) };
        let command = Command { token, settled: token, access: append("a"), brings: Vec::new() };
        let request = Message::Request { request: 7, key: Key::from(X), command };
        net.hand(client(0), NodeId(0), request);
        let told = net.hold("0>c0 Reply");
        let is_refused = |message: &Message| matches!(message, Message::Reply { answer: Answer::ClockSkew { ahead_us }, .. } if *ahead_us > 0);
        assert!(told.len() == 1 && is_refused(&told[0].2), "{variant:?}: {told:?}");
        assert_eq!(net.count("0>* *"), 0, "{variant:?}: no other replica hears of it");
    }
}

#[test]
fn what_was_refused_for_its_clients_clock_is_refused_for_ever() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        let request = request_ahead(7, Duration::from_secs(20), &net);
        net.hand(client(0), NodeId(0), request.clone());
        let refused = |net: &mut Net| {
            let skew = |answer: &Answer| matches!(answer, Answer::ClockSkew { .. });
            let told = net.hold("0>c0 Reply");
            let is_skew = |message: &Message| matches!(message, Message::Reply { request: 7, answer } if skew(answer));
            told.len() == 1 && is_skew(&told[0].2) && net.count("0>* *") == 0
        };
        assert!(refused(&mut net), "{variant:?}");
        // It is delivered again when the clock has come so far, and after a restart, and long after that.
        net.pass(Duration::from_secs(60));
        net.hand(client(0), NodeId(0), request.clone());
        assert!(refused(&mut net), "{variant:?}");
        net.crash(0);
        net.restart(0);
        net.settle();
        net.hand(client(0), NodeId(0), request.clone());
        assert!(refused(&mut net), "{variant:?}, after a restart");
        for txn in 1..=1500 {
            net.ask(0, txn + 100, add(1));
            net.settle();
            net.pass(Duration::from_millis(1));
        }
        net.pass(Duration::from_secs(1));
        assert!(net.log_length(0) < 10, "{}", net.log_length(0));
        net.crash(0);
        net.restart(0);
        net.settle();
        net.hand(client(0), NodeId(0), request);
        assert!(refused(&mut net), "{variant:?}, after its record was given up");
        assert_eq!(net.value(0), "1500", "{variant:?}");
    }
}

#[test]
fn a_repeated_request_under_way_is_not_refused() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        let request = request_ahead(7, Duration::from_secs(1), &net);
        net.hand(client(0), NodeId(0), request.clone());
        net.deliver("0>1 PreAccept");
        net.lose(&["*>* *"]);
        net.crash(0);
        // To those who start now it is too far ahead.
        net.settings.clock_bound_ms = 0;
        net.restart(0);
        net.settle();
        net.hand(client(0), NodeId(0), request);
        assert_eq!(net.count("0>c0 Reply"), 0, "{variant:?}");
        net.pass(Duration::from_secs(30));
        assert_eq!(net.values(), ["a"; 3], "{variant:?}");
    }
}

#[test]
fn a_retry_of_what_took_effect_is_not_refused() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.crash(2);
        let timestamp_us = net.clock_us() + 1_000_000;
        let token = Token { id: Version { timestamp_us, coordinator: client(0) }, carstamp: None };
        net.ask_again(0, 1, append("a"), token);
        net.settle_but("*>c0 Reply");
        net.lose(&["*>c0 Reply"]);
        net.give_up(0, 1);
        assert_eq!(net.value(0), "a", "{variant:?}");
        assert_eq!(net.ended(0, 1), "Unknown", "{variant:?}");
        // To 2, whose clock is behind, the token is too far ahead. It has not heard of the update.
        net.settings.clock_bound_ms = 0;
        net.restart(2);
        net.ask_again(2, 1, append("a"), token);
        net.settle();
        let ended = net.ended(2, 1);
        assert!(!ended.contains("ClockSkew"), "{variant:?}: {ended} of an update that took effect");
    }
}

/// An earlier try may have taken effect, or may still.
#[test]
fn an_update_that_is_tried_again_is_never_said_to_be_refused() {
    let skewed = |ahead_us| Message::Reply { request: 2, answer: Answer::ClockSkew { ahead_us } };
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.ask(0, 1, append("a"));
        let token = Token { id: net.token(0, 1), carstamp: None };
        net.lose(&["c0>0 Request"]);
        net.give_up(0, 1);
        net.ask_again(0, 2, append("a"), token);
        net.lose(&["c0>0 Request"]);
        net.hand(NodeId(0), client(0), skewed(9_000_000));
        net.lose(&["*>* *"]);
        net.hand(NodeId(1), client(0), skewed(9_000_000));
        assert_eq!(net.ended(0, 2), "", "{variant:?}");
        net.give_up(0, 2);
        assert_eq!(net.ended(0, 2), "Unknown", "{variant:?}");
    }
}
