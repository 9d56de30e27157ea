//! What a replica that has lost its disk is shown page by page, and that it remembers that it has lost it.

use core::time::Duration;
use std::collections::BTreeSet;

use super::super::message::Message;
use super::*;

#[test]
fn pages_show_all_keys_in_order_those_with_nothing_but_an_undecided_update_too() {
    let mut net = Net::new(Variant::Gryff, 3);
    let large = "v".repeat(100 << 10);
    for key in ["a", "c"] {
        net.make_hold_of(NodeId(1), key, stamped(&large, 5));
    }
    for (txn, key) in [(1, "b"), (2, "z")] {
        net.ask_of(1, txn, key, append("u"));
        net.deliver("c1>1 Request");
    }
    let (mut after, mut shown, mut pages) = (None, Vec::new(), 0);
    loop {
        net.hand(NodeId(0), NodeId(1), Message::Scan { after, incarnation: 1 });
        let said = net.hold("1>0 Scanned");
        let [(.., Message::Scanned { entries, more, .. })] = &said[..] else { panic!("{said:?}") };
        shown.extend(entries.iter().map(|entry| entry.key.to_string()));
        after = entries.last().map(|entry| entry.key.clone());
        pages += 1;
        if !more {
            break;
        }
    }
    assert!(pages > 1 && shown.is_sorted(), "who asks goes on after the last key: {shown:?}");
    assert_eq!(
        shown.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        ["a", "b", "c", "z"].into()
    );
}

#[test]
fn a_replica_remembers_that_its_disk_was_lost_until_it_is_whole() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.lose_disk(0);
    net.part(&[0]);
    net.make_hold(0, stamped("v", 5));
    net.pass(Duration::from_secs(2));
    net.crash(0);
    net.restart(0);
    assert_eq!(net.gauge(0, "catching_up"), 1, "nobody has shown it anything");
    net.heal();
    net.pass(Duration::from_secs(5));
    assert_eq!(net.gauge(0, "catching_up"), 0);
}
