//! Executed instances are forgotten everywhere.

use core::time::Duration;

use super::super::replica::Timer;
use super::net::X;
use super::*;
use serried_model::NodeId;

fn assert_nothing_is_left(net: &Net) {
    for member in 0..3 {
        assert_eq!(net.gauge(member, "active_keys"), 0, "at replica {member}");
        assert_eq!(net.gauge(member, "operations"), 0, "at replica {member}");
        assert_eq!(net.log_length(member), 0, "at replica {member}");
    }
}

#[test]
fn the_last_to_tell_what_it_has_executed_tells_it_though_it_has_nothing_left() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, add(1));
        for member in 0..3 {
            net.fire(NodeId(member), Timer::Tell);
            net.settle();
        }
        assert!((0..3).all(|member| net.gauge(member, "active_keys") == 0), "{variant:?}");
    }
}

#[test]
fn who_was_not_told_that_all_have_executed_asks_again() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, add(1));
        for member in 0..3 {
            net.fire(NodeId(member), Timer::Tell);
            net.lose(&["2>0 Progress"]);
            net.settle();
        }
        net.pass(Duration::from_secs(5));
        assert_nothing_is_left(&net);
    }
}

#[test]
fn two_who_have_executed_different_reads_do_not_go_on_telling_each_other() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    net.ask(1, 1, Access::Read);
    net.script(&["c1>1 Request", "1>0 PreAccept", "1>2 PreAccept", "2>1 PreAccepted"]);
    net.lose(&["0>1 Commit", "1>0 Commit"]);
    net.settle();
    net.fire(NodeId(0), Timer::Tell);
    net.fire(NodeId(1), Timer::Tell);
    net.settle();
    net.pass(Duration::from_secs(30));
    net.assert_agree(X);
    assert_nothing_is_left(&net);
}

#[test]
fn thousands_of_commands_leave_nothing_behind() {
    for variant in [Variant::Epaxos, Variant::Gryff, Variant::GryffRsc] {
        let mut net = Net::new(variant, 3);
        for txn in 0..2000 {
            let key = if txn % 2 == 0 { X.to_string() } else { format!("k{txn}") };
            let access = if txn % 3 == 0 { Access::Read } else { add(1) };
            net.ask_of(txn % 3, txn, &key, access);
            net.settle();
            net.pass(Duration::from_millis(1));
        }
        net.pass(Duration::from_secs(10));
        assert_nothing_is_left(&net);
    }
}

#[test]
fn while_a_replica_is_away_a_key_keeps_so_many_instances_and_no_more() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.part(&[2]);
        let mut kept = Vec::new();
        for txn in 1..=900 {
            net.ask(0, txn, add(1));
            net.settle();
            net.pass(Duration::from_millis(1));
            if txn % 300 == 0 {
                net.pass(Duration::from_secs(3));
                kept.push((net.instances(0).len(), net.instances(1).len()));
            }
        }
        assert_eq!(kept, [(256, 256); 3], "{variant:?}");
        // Of each a record, and of what came of it.
        assert!(net.log_length(0) < 256 * 6, "{}", net.log_length(0));
    }
}

#[test]
fn a_replica_that_has_taken_the_place_of_another_keeps_no_key_in_mind() {
    let mut net = Net::new(Variant::Gryff, 3);
    for txn in 0..50 {
        net.ask_of(0, txn, &format!("k{txn}"), add(1));
        net.settle();
    }
    net.pass(Duration::from_secs(5));
    net.crash(2);
    net.replace(2);
    net.pass(Duration::from_secs(5));
    assert_nothing_is_left(&net);
}

#[test]
fn while_a_replica_is_away_so_many_keys_keep_instances_and_no_more() {
    let keys: u64 = 17_000;
    let mut net = Net::new(Variant::Gryff, 3);
    net.part(&[2]);
    for txn in 0..keys {
        net.ask_of(0, txn, &format!("k{txn}"), add(1));
        net.settle();
    }
    net.pass(Duration::from_secs(3));
    assert!(net.gauge(0, "active_keys") <= 1 << 14, "{}", net.gauge(0, "active_keys"));
    assert!(net.log_length(0) < 3 << 14, "{}", net.log_length(0));
    // When it is back it makes up for what it has missed where that matters.
    net.heal();
    net.pass(Duration::from_secs(3));
    for txn in 0..keys {
        if net.state(2, &format!("k{txn}")).held.value.is_none() {
            net.ask_of(2, txn, &format!("k{txn}"), add(1));
            net.pass(Duration::from_secs(20));
            assert_eq!(net.ended(2, txn), "1 Committed");
            return net.assert_agree(&format!("k{txn}"));
        }
    }
    panic!("it has missed nothing");
}
