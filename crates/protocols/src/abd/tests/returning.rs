//! What a replica that has lost its disk must not do before it knows what others hold.

use super::*;
use crate::abd::replica::Timer;

/// A net in which the first replica has lost its disk, and what it asks the others is lost.
fn first_is_lost() -> Net {
    let mut net = Net::new(false);
    net.replace(0);
    net.network.clear();
    net
}

/// Whether a replica answers the first phase of a read.
fn answers_a_read(net: &mut Net, member: usize) -> bool {
    let read = Message::Read1 { request: 98, key: Key::from("x") };
    net.act(member, |replica, cx| replica.on_message(client(0), read, cx));
    net.network.drain(..).any(|(.., message)| matches!(message, Message::Read1Reply { .. }))
}

#[test]
fn a_replica_that_lost_its_disk_shows_nobody_what_it_holds() {
    let mut net = first_is_lost();
    let scan = Message::Scan { after: None, incarnation: 7 };
    net.act(0, |replica, cx| replica.on_message(NodeId(1), scan, cx));
    assert!(net.network.is_empty(), "who has lost its disk too would take it for everything");
}

#[test]
fn what_was_shown_to_an_earlier_incarnation_does_not_make_a_replica_whole() {
    // Its incarnation is 5, as its clock says.
    for (incarnation, is_whole) in [(4, false), (5, true)] {
        let mut net = first_is_lost();
        for member in [1, 2] {
            let (after, entries, more) = (None, Vec::new(), false);
            let incarnations = vec![incarnation, 0, 0];
            let shown = Message::Scanned { after, entries, more, incarnations };
            net.act(0, |replica, cx| replica.on_message(NodeId(member), shown, cx));
        }
        assert_eq!(answers_a_read(&mut net, 0), is_whole, "shown to {incarnation}");
    }
}

#[test]
fn the_record_that_a_disk_was_lost_is_kept_until_the_replica_is_whole() {
    let mut net = first_is_lost();
    let carstamp = Carstamp { timestamp: 1, ..Carstamp::INITIAL };
    let stamped = Stamped { value: Some(Value::from("v")), carstamp };
    let apply = Message::Apply { request: 99, key: Key::from("x"), stamped };
    net.act(0, |replica, cx| replica.on_message(client(0), apply, cx));
    net.network.clear();
    net.fire(0, Timer::Store);
    net.act(0, |replica, cx| replica.on_start(cx));
    assert!(net.nodes[0].records.contains(&Record::Lost));
    assert_eq!(net.nodes[0].trimmed, None, "after another restart it would take part at once");
}

#[test]
fn a_replica_that_crashes_as_it_rejoins_comes_back_in_a_new_incarnation() {
    let mut net = Net::new(false);
    // Of what it recorded only this was durable.
    net.nodes[0].records.push_back(Record::Lost);
    net.0.restart(0, fresh(NodeId(0)));
    let scans = net.network.drain(..).filter_map(|(.., message)| match message {
        Message::Scan { incarnation, .. } => Some(incarnation),
        _ => None,
    });
    let scans: Vec<u64> = scans.collect();
    assert!(!scans.is_empty() && scans.iter().all(|incarnation| *incarnation > 0), "{scans:?}");
}
