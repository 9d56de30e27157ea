//! What a replica that has lost its disk is shown page by page, and that it remembers that it has lost it.

use core::time::Duration;
use std::collections::BTreeSet;

use super::super::Timer;
use super::super::message::Message;
use super::*;

#[test]
fn pages_show_all_keys_in_order() {
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

/// A write was agreed on with the help of a replica that is then lost, and is executed between two pages. It is to a new
/// key, which is neither in the store nor among the keys with instances when the second page is put together.
#[test]
fn what_is_executed_between_two_pages_is_shown() {
    let mut net = Net::new(Variant::Epaxos, 3);
    // Two keys, of which the first fills a page.
    let large = "v".repeat(100 << 10);
    for (txn, key, value) in [(1, "a", large.as_str()), (2, "b", "b")] {
        net.ask_of(0, txn, key, write(value));
        net.settle();
    }
    net.pass(Duration::from_secs(1));
    net.ask(2, 1, write("y"));
    net.script(&["c2>2 Request", "2>0 PreAccept"]);
    let of_y = net.hold("0>2 PreAccepted");
    net.lose(&["*>* *"]);
    // With the help of 1, 0 has a write agreed on that comes after that of 2. 2 hears nothing of it.
    net.ask(0, 3, write("k"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 3), "- Committed");
    net.lose(&["*>* *"]);
    net.lose_disk(1);
    net.script(&["1>0 Scan"]);
    let page = net.hold("0>1 Scanned");
    net.put_back(of_y);
    net.script(&["0>2 PreAccepted", "2>0 Commit"]);
    net.put_back(page);
    net.script(&["0>1 Scanned"]);
    net.settle();
    assert_eq!(net.gauge(1, "catching_up"), 0, "it takes part again");
    net.crash(0);
    net.ask(2, 9, Access::Read);
    net.pass(Duration::from_secs(60));
    assert_eq!(net.ended(2, 9), "k Committed", "the write was acknowledged");
}

/// The state may lack what was agreed on since, with the help of another replica that was lost too.
#[test]
fn a_page_that_was_sent_to_an_earlier_incarnation_does_not_count() {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.lose_disk(0);
    let scan = net.hold("0>2 Scan");
    let [(.., Message::Scan { incarnation, .. })] = scan[..] else { panic!("{scan:?}") };
    net.script(&["0>1 Scan"]);
    let page = net.hold("1>0 Scanned");
    net.hand(NodeId(4), NodeId(0), Message::AlsoLost { incarnation });
    net.lose(&["*>* *"]);
    net.put_back(page);
    net.script(&["1>0 Scanned"]);
    net.fire(NodeId(0), Timer::Scan);
    assert_eq!(net.count("0>1 Scan"), 1, "it asks again");
}
