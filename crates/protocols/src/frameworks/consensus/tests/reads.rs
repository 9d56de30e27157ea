//! Reads of registers, and what their proxies spread (001 Algorithm 7).

use super::super::{Message, OperationId};
use super::net::{client, update};
use super::*;

#[test]
fn a_read_takes_one_round_with_three_replicas_whatever_others_hold() {
    for held in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 2], [1, 0, 0]] {
        let mut net = Net::new(Variant::Gryff, 3);
        for (member, timestamp) in held.into_iter().enumerate() {
            net.make_hold(member as u64, stamped(&timestamp.to_string(), timestamp));
        }
        net.ask(0, 1, Access::Read);
        net.script(&["c0>0 Request", "0>1 Read1", "1>0 Read1Reply", "0>c0 Reply"]);
        let latest = held[0].max(held[1]).to_string();
        let found = if latest == "0" { "-".into() } else { latest.clone() };
        assert_eq!(net.ended(0, 1), format!("{found} Committed"));
        assert_eq!((net.value(0), net.value(1)), (found.clone(), found), "both hold it");
    }
}

#[test]
fn a_read_takes_a_second_round_with_five_only_if_few_hold_the_latest() {
    let mut net = Net::new(Variant::Gryff, 5);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    assert_eq!((net.count("0>c0 Reply"), net.count("0>* Apply")), (0, 3), "two hold it");
    net.script(&["0>4 Apply", "4>0 Applied", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "w Committed");
    // A majority holds it now.
    net.network.clear();
    net.ask(1, 1, Access::Read);
    net.script(&["c1>1 Request", "1>4 Read1", "1>0 Read1", "4>1 Read1Reply", "0>1 Read1Reply"]);
    net.deliver("1>c1 Reply");
    assert_eq!(net.ended(1, 1), "w Committed");
    // What the proxy holds it spreads with its question.
    let mut net = Net::new(Variant::Gryff, 5);
    net.make_hold(0, stamped("w", 5));
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    net.deliver("0>c0 Reply");
    assert_eq!(net.ended(0, 1), "w Committed");
}

#[test]
fn a_read_of_gryff_rsc_takes_one_round_even_if_few_hold_the_latest() {
    let mut net = Net::new(Variant::GryffRsc, 5);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    net.deliver("0>c0 Reply");
    assert_eq!((net.ended(0, 1), net.count("0>* Apply")), ("w Committed".into(), 0));
}

#[test]
fn a_late_reply_about_an_older_value_does_not_count() {
    let mut net = Net::new(Variant::Gryff, 5);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    // The same read was begun before at this proxy, and had others hold what it had found then.
    let operation = OperationId { client: client(0), request: 1 };
    for member in [2, 3, 4] {
        let carstamp = stamped("v", 3).carstamp;
        net.hand(
            NodeId(member),
            NodeId(0),
            Message::Applied { operation, carstamp, incarnations: Vec::new() },
        );
    }
    assert_eq!(net.count("0>c0 Reply"), 0);
    net.script(&["0>4 Apply", "4>0 Applied", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "w Committed");
}

#[test]
fn a_proxy_that_crashed_and_came_back_reads_anew() {
    let mut net = Net::new(Variant::Gryff, 5);
    net.make_hold(1, stamped("w", 5));
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "1>0 Read1Reply"]);
    let late = net.hold("*>0 *");
    net.crash(0);
    net.restart(0);
    net.put_back(late);
    net.pass(core::time::Duration::from_secs(5));
    assert_eq!(net.ended(0, 1), "w Committed");
    assert_eq!(net.gauge(0, "operations"), 0);
}

#[test]
fn a_write_comes_after_a_read_modify_write_that_was_answered_before() {
    let mut net = Net::new(Variant::Gryff, 3);
    assert_eq!(net.run(0, 1, append("a")), "- Committed");
    net.part(&[0]);
    net.ask(1, 1, write("b"));
    net.settle();
    assert_eq!(net.ended(1, 1), "- Committed");
    net.heal();
    assert_eq!(net.run(0, 2, append("c")), "b Committed");
    assert_eq!(
        net.instance(0, update(0, 2)).attributes.base.map(|base| base.carstamp.timestamp),
        Some(1)
    );
}
