//! Replicas that take the places of others whose disks were lost: what those had said, and what is decided
//! meanwhile.

use core::time::Duration;

use super::super::{Message, Status};
use super::net::{X, update};
use super::*;

#[test]
fn what_a_replica_applied_before_its_disk_was_lost_does_not_count() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.ask(0, 1, write("v"));
    net.script(&["c0>0 Write1", "c0>1 Write1", "0>c0 Write1Reply", "1>c0 Write1Reply"]);
    net.lose(&["c0>2 Write1"]);
    net.script(&["c0>0 Apply", "0>c0 Applied"]);
    let late = net.hold("c0>* Apply");
    net.lose_disk(0);
    net.settle();
    assert_eq!(net.gauge(0, "catching_up"), 0);
    net.put_back(late);
    net.script(&["c0>1 Apply", "1>c0 Applied"]);
    assert_eq!(net.ended(0, 1), "", "1 alone holds it");
    net.deliver("c0>2 Apply");
    net.settle();
    assert_eq!(net.ended(0, 1), "- Committed");
    net.ask(2, 1, Access::Read);
    net.script(&["c2>2 Request", "2>0 Read1", "0>2 Read1Reply", "2>c2 Reply"]);
    assert_eq!(net.ended(2, 1), "v Committed");
}

#[test]
fn what_a_lost_disk_held_does_not_end_a_read() {
    let mut net = Net::new(Variant::Gryff, 5);
    for member in [1, 4] {
        net.make_hold(member, stamped("v", 5));
    }
    net.ask(0, 1, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "1>0 Read1Reply", "0>4 Read1", "0>2 Read1"]);
    // Of the three that hold it now one is replaced, and one of the others has not shown it.
    let late = net.hold("*>0 Read1Reply");
    net.lose(&["*>* *"]);
    net.lose_disk(1);
    net.settle();
    net.put_back(late);
    net.script(&["4>0 Read1Reply", "2>0 Read1Reply"]);
    assert_eq!(net.count("0>c0 Reply"), 0, "only 0 and 4 are known to hold it");
    net.pass(Duration::from_secs(1));
    assert_eq!(net.ended(0, 1), "v Committed");
}

#[test]
fn replies_from_before_a_lost_disk_do_not_count() {
    for (upto, said) in [(1, "PreAccepted"), (2, "Accepted"), (3, "Executed")] {
        for late in [true, false] {
            let mut net = Net::with(Rules::of(Variant::Gryff), 5, thrifty(), 1);
            // It takes two rounds, as 1 knows of an update of which 0 does not.
            net.ask(1, 1, append("b"));
            net.deliver("c1>1 Request");
            let of_1 = net.hold("1>* *");
            net.ask(0, 1, append("a"));
            net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept"]);
            if upto > 1 {
                net.script(&["0>2 PreAccept", "1>0 PreAccepted", "4>0 PreAccepted"]);
                net.script(&["2>0 PreAccepted", "0>4 Accept"]);
            }
            if upto > 2 {
                net.script(&["0>1 Accept", "4>0 Accepted", "1>0 Accepted"]);
                // What it comes after is decided, so that it can be executed.
                net.put_back(of_1);
                net.settle_but("*>0 Executed");
            }
            let of_4 = net.hold(&format!("4>0 {said}"));
            assert_eq!(of_4.len(), 1, "{said}");
            let before = net.count_said(0, update(0, 1));
            if !late {
                net.put_back(of_4.clone());
                net.deliver(&format!("4>0 {said}"));
                assert_eq!(net.count_said(0, update(0, 1)), before + 1, "{said}");
            }
            net.lose(&["*>* *"]);
            net.lose_disk(4);
            net.script(&["4>0 Scan"]);
            if late {
                net.put_back(of_4);
                net.deliver(&format!("4>0 {said}"));
            }
            assert_eq!(net.count_said(0, update(0, 1)), before, "{said}, late: {late}");
            net.pass(Duration::from_secs(60));
            assert!(net.ended(0, 1).ends_with("Committed"), "{said}, late: {late}");
            assert_eq!(net.gauge(4, "catching_up"), 0, "{said}, late: {late}");
        }
    }
}

#[test]
fn promises_from_before_a_lost_disk_do_not_count() {
    for variant in BOTH {
        let mut net = Net::new(variant, 5);
        net.ask(0, 1, append("a"));
        net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept"]);
        net.lose(&["*>* *"]);
        net.crash(0);
        net.recover(1);
        let before = net.count_said(1, update(0, 1));
        net.script(&["1>4 Prepare", "4>1 Prepared"]);
        assert_eq!(net.count_said(1, update(0, 1)), before + 1, "{variant:?}");
        net.lose(&["*>* *"]);
        net.lose_disk(4);
        net.deliver("4>1 Scan");
        assert_eq!(net.count_said(1, update(0, 1)), before, "{variant:?}");
    }
}

#[test]
fn a_replica_knows_after_a_restart_whose_disks_were_lost() {
    for variant in BOTH {
        let (mut net, late) = Net::with_late_pre_accept(variant);
        net.give_up(0, 1);
        net.lose_disk(0);
        net.pass(Duration::from_secs(5));
        net.crash(1);
        net.restart(1);
        net.settle();
        net.put_back(late);
        net.deliver("0>1 PreAccept");
        assert_eq!(net.count("1>* *"), 0, "{variant:?}");
    }
}

/// Of three replicas 0 has executed the write `x` with the help of 1, who has not heard of that. Meanwhile 2
/// has had 1 agree that nothing is done in its first instance, `y`, has executed that, and has not heard of
/// `x`. Then 1 is replaced. With the net come the messages of `y` to 0, and of `x` to 2.
fn executed_different_things() -> (Net, Vec<net::Envelope>, Vec<net::Envelope>) {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(0, 1, write("x"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    let commit = net.hold("0>2 Commit");
    net.lose(&["*>* *"]);
    net.ask(2, 1, write("A"));
    net.deliver("c2>2 Request");
    let late = net.hold("2>0 PreAccept");
    net.give_up(2, 1);
    net.crash(2);
    net.restart(2);
    net.cut.extend([(NodeId(0), NodeId(2)), (NodeId(2), NodeId(0))]);
    net.recover(2);
    net.script(&["2>1 Prepare", "1>2 Prepared", "2>1 Accept", "1>2 Accepted"]);
    let y = net.instance(2, update(2, 1));
    assert_eq!((y.status, y.command), (Status::Committed, None));
    net.lose(&["*>* *"]);
    net.lose_disk(1);
    (net, late, commit)
}

#[test]
fn a_replacement_joins_what_two_others_have_executed() {
    for order in [[0, 2], [2, 0]] {
        let (mut net, late, commit) = executed_different_things();
        for other in order {
            net.deliver(&format!("1>{other} Scan"));
            net.deliver(&format!("{other}>1 Scanned"));
        }
        net.settle();
        assert_eq!((net.gauge(1, "catching_up"), net.value(1)), (0, "x".into()));
        // Now 0 hears of `y`, and recovers it with 1.
        net.put_back(late);
        net.deliver("2>0 PreAccept");
        net.recover(0);
        net.settle();
        net.put_back(commit);
        net.settle();
        net.heal();
        net.pass(Duration::from_secs(30));
        assert_eq!(net.values(), ["x"; 3], "nothing was done in y");
        for number in [0, 2] {
            assert_eq!(net.run(number, 8, Access::Read), "x Committed");
        }
        net.assert_agree(X);
    }
}

#[test]
fn a_no_ops_number_is_not_used_again() {
    let mut net = Net::new(Variant::Epaxos, 3);
    // The first is executed at 0 and 1; 2 hears nothing of it.
    net.ask(0, 1, write("x"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted", "0>c0 Reply", "0>1 Commit"]);
    let commit = net.hold("0>2 Commit");
    net.lose(&["*>* *"]);
    // Replica 1 begins another, of which nobody hears, and has 2 agree that nothing is done in its place.
    net.ask(1, 1, write("A"));
    net.deliver("c1>1 Request");
    net.lose(&["1>* PreAccept"]);
    net.give_up(1, 1);
    net.crash(1);
    net.restart(1);
    net.recover(1);
    net.lose(&["1>0 *"]);
    net.script(&["1>2 Prepare", "2>1 Prepared", "1>2 Accept", "2>1 Accepted", "1>2 Commit"]);
    assert_eq!(net.instance(2, update(1, 1)).command, None);
    net.lose(&["*>* *"]);
    net.lose_disk(1);
    net.script(&["1>0 Scan", "0>1 Scanned", "1>2 Scan", "2>1 Scanned"]);
    net.settle();
    net.ask(1, 2, write("B"));
    net.pass(Duration::from_secs(30));
    assert_eq!(net.ended(1, 2), "- Committed");
    assert_eq!(net.instance(1, update(1, 2)).status, Status::Committed);
    net.put_back(commit);
    net.settle();
    for number in [0, 2] {
        net.ask(number, 9, Access::Read);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.ended(number, 9), "B Committed");
    }
    net.assert_agree(X);
}

#[test]
fn an_instance_of_a_dead_and_a_replaced_replica_blocks_nothing() {
    for variant in BOTH {
        let mut net = Net::new(variant, 5);
        net.ask(0, 1, append("a"));
        net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept"]);
        net.lose(&["*>* *"]);
        net.lose_disk(4);
        net.settle();
        assert_eq!(net.gauge(4, "catching_up"), 1, "{variant:?}: that is not decided");
        net.crash(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.gauge(4, "catching_up"), 0, "{variant:?}");
        // Of five two may fail.
        net.crash(1);
        net.ask(2, 1, append("b"));
        net.pass(Duration::from_secs(30));
        assert!(net.ended(2, 1).ends_with("Committed"), "{variant:?}");
        assert!(net.ended(0, 1).ends_with("Committed"), "{variant:?}: by another");
        net.restart(0);
        net.restart(1);
        net.touch(0);
        net.touch(1);
        assert_eq!(net.value(4).len(), 2, "{variant:?}");
        net.assert_agree(X);
    }
}

#[test]
fn what_only_a_restarted_coordinator_knows_holds_nothing_up() {
    for variant in BOTH {
        let mut net = Net::new(variant, 3);
        // It has begun an update of which nobody has heard but one that was replaced.
        net.ask(0, 1, append("a"));
        net.script(&["c0>0 Request", "0>2 PreAccept"]);
        net.lose(&["*>* *"]);
        net.lose_disk(2);
        net.settle();
        net.crash(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.gauge(2, "catching_up"), 1, "{variant:?}: two of three have failed");
        net.restart(0);
        net.pass(Duration::from_secs(30));
        assert_eq!(net.gauge(2, "catching_up"), 0, "{variant:?}");
        net.crash(0);
        net.touch(1);
        assert!(net.ended(0, 1).ends_with("Committed"), "{variant:?}");
        assert_eq!((net.value(1), net.value(2)), ("a".into(), "a".into()), "{variant:?}");
    }
}

/// Of five replicas 0 commits a write with the help of 1 and 4, and answers its client; 4 has shown 1's
/// successor what it had before it heard of the write. Then 0 is lost as well.
#[test]
fn the_others_know_what_a_second_lost_replica_agreed_on() {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(0, 1, write("v"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted"]);
    let late = net.hold("0>4 PreAccept");
    net.lose(&["*>* *"]);
    net.lose_disk(1);
    net.lose(&["1>0 Scan"]);
    net.settle();
    net.put_back(late);
    net.script(&["0>4 PreAccept", "4>0 PreAccepted", "0>c0 Reply"]);
    assert_eq!(net.ended(0, 1), "- Committed");
    net.lose(&["*>* *"]);
    net.lose_disk(0);
    net.pass(Duration::from_secs(30));
    assert_eq!((net.gauge(0, "catching_up"), net.gauge(1, "catching_up")), (0, 0));
    // The one that knows of it fails as the third, now that two have come back.
    net.crash(4);
    assert_eq!(net.run(2, 1, Access::Read), "v Committed");
}

#[test]
fn two_that_are_lost_at_once_take_the_places_of_theirs() {
    for variant in BOTH {
        let mut net = Net::new(variant, 5);
        assert_eq!(net.run(0, 1, append("a")), "- Committed");
        net.pass(Duration::from_secs(5));
        net.crash(0);
        net.crash(3);
        net.replace(0);
        net.replace(3);
        net.pass(Duration::from_secs(30));
        assert_eq!((net.gauge(0, "catching_up"), net.gauge(3, "catching_up")), (0, 0));
        net.crash(1);
        net.crash(2);
        net.ask(3, 1, append("b"));
        net.pass(Duration::from_secs(30));
        assert!(net.ended(3, 1).starts_with("a "), "{variant:?}: {}", net.ended(3, 1));
    }
}

#[test]
fn of_a_majority_that_is_lost_nobody_says_that_nothing_was_there() {
    for (variant, replicas, lost) in [(Variant::Gryff, 3, 2), (Variant::Epaxos, 5, 3)] {
        let mut net = Net::new(variant, replicas);
        let up: Vec<usize> = (1..=replicas / 2 + 1).collect();
        (0..replicas).filter(|member| !up.contains(member)).for_each(|member| net.crash(member));
        net.ask(1, 1, write("v"));
        net.pass(Duration::from_secs(5));
        assert_eq!(net.ended(1, 1), "- Committed");
        up[..lost].iter().for_each(|member| net.crash(*member));
        (0..replicas).filter(|member| !up.contains(member)).for_each(|member| net.restart(member));
        up[..lost].iter().for_each(|member| net.replace(*member));
        net.pass(Duration::from_secs(60));
        for member in &up[..lost] {
            assert_ne!(net.gauge(*member as u64, "catching_up"), 0, "{variant:?}");
        }
        net.ask(0, 2, Access::Read);
        net.pass(Duration::from_secs(60));
        assert_eq!(net.ended(0, 2), "", "{variant:?}");
    }
}

#[test]
fn a_replica_that_has_promised_a_ballot_pre_accepts_nothing_below_it() {
    for variant in BOTH {
        let (mut net, late) = Net::with_late_pre_accept(variant);
        net.ask(2, 1, append("b"));
        net.script(&["c2>2 Request", "2>0 PreAccept", "0>2 PreAccepted"]);
        net.lose(&["2>* Commit", "2>* PreAccept"]);
        // Replica 2 knows that there is such an instance, and ends it with 1, who knows nothing of it.
        net.part(&[0]);
        net.recover(2);
        net.deliver("2>1 Prepare");
        assert_eq!(net.instance(1, update(0, 1)).promised.number, 1);
        net.heal();
        net.put_back(late);
        net.deliver("0>1 PreAccept");
        assert_eq!((net.count("1>0 PreAccepted"), net.count("1>0 Refused")), (0, 1), "{variant:?}");
        net.settle();
        net.pass(Duration::from_secs(30));
        assert!(net.ended(0, 1).ends_with("Committed") && net.ended(2, 1).ends_with("Committed"));
        assert_eq!(net.value(0).len(), 2, "{variant:?}");
        net.assert_agree(X);
    }
}

/// Replica 0's clock was ahead when it replaced a lost disk. The others, who know its number, are replaced one after the
/// other, and then replica 0 is again.
#[test]
fn who_replaces_a_lost_disk_takes_over_which_numbers_the_others_know() {
    let mut net = Net::new(Variant::Gryff, 3);
    let ahead = net.clock_us() + 1_000_000_000;
    for member in [1, 2] {
        let scan = Message::Scan { after: None, incarnation: ahead };
        net.hand(NodeId(0), NodeId(member), scan);
    }
    net.lose(&["*>* *"]);
    for member in [1, 2] {
        net.lose_disk(member);
        net.settle();
    }
    net.lose_disk(0);
    net.script(&["0>1 Scan", "1>0 Scanned"]);
    let again = net.hold("0>1 Scan");
    assert!(
        matches!(&again[..], [(.., Message::Scan { incarnation, .. })] if *incarnation > ahead),
        "{again:?}"
    );
}

#[test]
fn a_choice_that_rests_on_a_lost_disk_is_made_again() {
    let mut net = Net::new(Variant::Epaxos, 5);
    net.ask(0, 1, append("a"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "0>4 PreAccept"]);
    net.lose(&["*>* *"]);
    net.crash(0);
    net.part(&[0, 1]);
    net.recover(4);
    net.script(&["4>2 Prepare", "4>3 Prepare", "2>4 Prepared", "3>4 Prepared"]);
    net.script(&["4>2 Validate", "4>3 Validate", "2>4 Validated"]);
    let late = net.hold("3>4 Validated");
    net.lose_disk(2);
    net.deliver("2>4 Scan");
    net.lose(&["*>* *"]);
    net.put_back(late);
    net.deliver("3>4 Validated");
    assert_eq!(net.count("4>* Accept"), 0, "2 has promised nothing any more");
    net.restart(0);
    net.heal();
    net.pass(Duration::from_secs(60));
    assert_eq!(net.values(), ["a"; 5]);
}
