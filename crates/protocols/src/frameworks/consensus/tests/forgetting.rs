//! Executed instances are forgotten.

use core::time::Duration;

use super::net::X;
use super::*;

fn assert_nothing_is_left(net: &Net) {
    for member in 0..3 {
        assert_eq!(net.gauge(member, "active_keys"), 0, "at replica {member}");
        assert_eq!(net.gauge(member, "operations"), 0, "at replica {member}");
        assert_eq!(net.log_length(member), 0, "at replica {member}");
    }
}

#[test]
fn an_instance_is_forgotten_once_it_is_executed() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.run(0, 1, add(1));
        assert!((0..3).all(|member| net.gauge(member, "active_keys") == 0), "{variant:?}");
    }
}

#[test]
fn two_who_have_executed_different_reads_make_up_for_them() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    net.ask(1, 1, Access::Read);
    net.script(&["c1>1 Request", "1>0 PreAccept", "1>2 PreAccept", "2>1 PreAccepted"]);
    net.lose(&["0>* Commit", "1>* Commit"]);
    net.settle();
    net.ask(2, 1, add(1));
    net.pass(Duration::from_secs(30));
    assert_eq!(net.ended(2, 1), "- Committed");
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
fn a_replica_that_was_away_catches_up_and_nothing_is_kept_for_it() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        net.part(&[2]);
        for txn in 1..=300 {
            net.ask(0, txn, add(1));
            net.settle();
            net.pass(Duration::from_millis(1));
        }
        net.pass(Duration::from_secs(3));
        for member in [0, 1] {
            assert_eq!(net.gauge(member, "active_keys"), 0, "{variant:?}");
            assert_eq!(net.log_length(member), 0, "{variant:?}");
        }
        net.heal();
        net.ask(2, 1, add(1));
        net.pass(Duration::from_secs(20));
        assert_eq!(net.ended(2, 1), "300 Committed", "{variant:?}");
        net.assert_agree(X);
        assert_nothing_is_left(&net);
    }
}

#[test]
fn a_replacement_keeps_no_key_active() {
    let mut net = Net::new(Variant::Gryff, 3);
    for txn in 0..50 {
        net.ask_of(0, txn, &format!("k{txn}"), add(1));
        net.settle();
    }
    net.pass(Duration::from_secs(5));
    net.lose_disk(2);
    net.pass(Duration::from_secs(5));
    for member in 0..3 {
        assert_eq!(net.gauge(member, "active_keys"), 0, "at replica {member}");
    }
}

#[test]
fn a_disk_that_was_lost_long_ago_does_not_keep_the_log() {
    for variant in [Variant::Epaxos, Variant::Gryff] {
        let mut net = Net::new(variant, 3);
        net.lose_disk(2);
        net.pass(Duration::from_secs(5));
        for txn in 0..3000 {
            net.ask_of(0, txn, X, add(1));
            net.settle();
            net.pass(Duration::from_millis(10));
        }
        net.pass(Duration::from_secs(20));
        let records = net.nodes[NodeId(0)].records.len();
        assert!(records < 1000, "{variant:?}: {records}");
    }
}
