//! Instances that are executed ahead of a gap which a take-over fills.

use core::time::Duration;

use super::super::space::Space;
use super::super::{Dependencies, InstanceId, Message, Status};
use super::net::{Net, update};
use super::*;

/// Delivers the first message that a line tells of and that is about an instance.
fn deliver_of(net: &mut Net, line: &str, of: InstanceId) {
    let about = |(.., message): &(NodeId, NodeId, Message)| matches!(message, Message::Instance { id, .. } if *id == of);
    let mut held = net.hold(line);
    let at = held
        .iter()
        .position(about)
        .unwrap_or_else(|| panic!("no `{line}` of {of:?} among {held:?}"));
    let (from, to, message) = held.remove(at);
    net.put_back(held);
    net.hand(from, to, message);
}

/// A no-op that a replica has executed ahead of an earlier instance of its row counts as something done once the replica
/// has taken over another's state in between. It then refutes what was committed in one round trip and acknowledged.
///
/// Five replicas; 0 and 1 fail at last. 2 was down before and has come back with all that it had.
#[test]
fn a_no_op_executed_ahead_refutes_nothing() {
    let mut net = Net::new(Variant::Epaxos, 5);
    // 4#1 is executed everywhere but at 3, which has helped.
    net.ask(4, 1, append("u"));
    net.script(&[
        "c4>4 Request",
        "4>0 PreAccept",
        "4>3 PreAccept",
        "0>4 PreAccepted",
        "3>4 PreAccepted",
    ]);
    assert_eq!(net.instance(4, update(4, 1)).status, Status::Committed);
    net.lose(&["4>3 Commit"]);
    net.script(&["4>0 Commit", "4>1 Commit", "4>2 Commit"]);
    net.lose(&["4>1 PreAccept", "4>2 PreAccept"]);
    net.settle();
    assert_eq!(net.ended(4, 1), "- Committed");
    // So is 2#1, a little later: its commits are under way.
    net.ask(2, 1, append("v"));
    net.deliver("c2>2 Request");
    net.lose(&["2>0 PreAccept", "2>4 PreAccept"]);
    net.script(&["2>3 PreAccept", "2>1 PreAccept", "3>2 PreAccepted", "1>2 PreAccepted"]);
    if net.count("2>* Accept") > 0 {
        net.lose(&["2>3 Accept", "2>4 Accept"]);
        net.script(&["2>0 Accept", "2>1 Accept", "0>2 Accepted", "1>2 Accepted"]);
    }
    assert_eq!(net.instance(2, update(2, 1)).status, Status::Committed);
    net.settle_but("2>* Commit");
    assert_eq!(net.ended(2, 1), "u Committed");
    let commits = net.hold("2>* Commit");
    // Of 2#2 only 3 hears before 2 goes down. 3 ends it with 1 and 4, who know nothing of it: nothing is done.
    net.ask(2, 2, append("w"));
    net.script(&["c2>2 Request", "2>3 PreAccept"]);
    net.give_up(2, 2);
    net.lose(&["*>* *"]);
    net.crash(2);
    net.recover(3);
    let prepares = net.hold("3>* Prepare");
    let of_no_op = |(.., message): &super::net::Envelope| matches!(message, Message::Instance { id, .. } if *id == update(2, 2));
    let (prepares, of_others): (Vec<_>, Vec<_>) = prepares.into_iter().partition(of_no_op);
    net.put_back(prepares);
    net.script(&["3>1 Prepare", "3>4 Prepare", "1>3 Prepared", "4>3 Prepared"]);
    net.script(&["3>1 Accept", "3>4 Accept", "1>3 Accepted", "4>3 Accepted"]);
    let nothing = net.instance(3, update(2, 2));
    assert_eq!((nothing.status, nothing.command), (Status::Committed, None));
    net.lose(&["*>* *"]);
    // 3 has not executed 2#1 yet. It asks 4 about 4#1 and is given its state.
    for (from, to, message) in of_others {
        if to == NodeId(4) {
            net.hand(from, to, message);
        }
    }
    assert!(net.count("4>3 TakeOver") > 0, "{:?}", net.waiting());
    net.deliver("4>3 TakeOver");
    net.lose(&["*>* *"]);
    // Now the commits of 2#1 arrive.
    for (from, to, message) in commits {
        net.hand(from, to, message);
    }
    net.lose(&["*>* *"]);
    assert_eq!(
        (net.value(0), net.value(1), net.value(3), net.value(4)),
        ("uv".into(), "uv".into(), "uv".into(), "uv".into())
    );
    // 0 has an update committed with 1 and 4, and acknowledged.
    net.ask(0, 1, append("a"));
    net.script(&[
        "c0>0 Request",
        "0>1 PreAccept",
        "0>4 PreAccept",
        "1>0 PreAccepted",
        "4>0 PreAccepted",
    ]);
    assert_eq!(net.instance(0, update(0, 1)).status, Status::Committed);
    net.deliver("0>c0 Reply");
    assert_eq!(net.ended(0, 1), "uv Committed");
    net.lose(&["*>* *"]);
    net.crash(0);
    net.crash(1);
    net.restart(2);
    net.pass(Duration::from_secs(60));
    net.ask(4, 9, Access::Read);
    net.pass(Duration::from_secs(60));
    let read = net.ended(4, 9);
    assert!(read.contains('a'), "an acknowledged update is lost: {read}");
}

/// The same with three replicas, of which one fails: each of the two others has done an update that the other has not, as it
/// seems, so that neither takes over the other's state, and the key can be used no more.
#[test]
fn a_no_op_executed_ahead_holds_nothing_up() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(0, 1, append("u"));
    net.script(&["c0>0 Request", "0>1 PreAccept", "1>0 PreAccepted", "0>c0 Reply", "0>2 Commit"]);
    net.lose(&["*>* *"]);
    // 0 has heard of 2#1 when it begins 0#2, of which 1 hears; the answer is under way.
    net.ask(2, 1, append("v"));
    net.script(&["c2>2 Request", "2>0 PreAccept"]);
    let of_0 = net.hold("0>2 PreAccepted");
    net.lose(&["*>* *"]);
    net.ask(0, 2, append("x"));
    net.script(&["c0>0 Request", "0>1 PreAccept"]);
    let of_1 = net.hold("1>0 PreAccepted");
    net.lose(&["*>* *"]);
    // 2#1 is agreed on; the commits are under way. Of 2#2 only 1 hears, and 2 is no more.
    net.put_back(of_0);
    net.script(&["0>2 PreAccepted", "2>c2 Reply"]);
    let commits = net.hold("2>* Commit");
    net.ask(2, 2, append("w"));
    net.script(&["c2>2 Request", "2>1 PreAccept"]);
    net.give_up(2, 2);
    net.lose(&["*>* *"]);
    net.crash(2);
    // 1 ends 2#2 with 0, which is in its quorum and has not heard of it: nothing is done.
    net.recover(1);
    let prepares = net.hold("1>0 Prepare");
    net.lose(&["*>* *"]);
    net.put_back(prepares.clone());
    deliver_of(&mut net, "1>0 Prepare", update(2, 2));
    net.lose(&["1>* *"]);
    net.script(&["0>1 Prepared", "1>0 Accept", "0>1 Accepted"]);
    let nothing = net.instance(1, update(2, 2));
    assert_eq!((nothing.status, nothing.command), (Status::Committed, None));
    net.lose(&["*>* *"]);
    // 1 is given 0's state, as 0 has executed 0#1.
    net.put_back(prepares);
    deliver_of(&mut net, "1>0 Prepare", update(0, 1));
    net.lose(&["1>* *"]);
    net.deliver("0>1 TakeOver");
    net.lose(&["*>* *"]);
    // The commits of 2#1 arrive, and 0 has 0#2 agreed on; that commit is lost.
    for (from, to, message) in commits {
        net.hand(from, to, message);
    }
    net.lose(&["*>* *"]);
    net.put_back(of_1);
    net.script(&["1>0 PreAccepted", "0>c0 Reply"]);
    net.lose(&["*>* *"]);
    assert_eq!((net.ended(0, 2), net.value(1)), ("uv Committed".into(), "uv".into()));
    net.ask(1, 9, Access::Read);
    net.pass(Duration::from_secs(120));
    assert_eq!(net.ended(1, 9), "uvx Committed", "two of three replicas are there");
}

/// What was executed beyond a gap that a take-over fills is forgotten, however many there are.
#[test]
fn what_was_executed_ahead_is_forgotten_when_the_gap_is_filled() {
    let mut space = Space::new(3, Dependencies::none(3));
    for number in [2, 3] {
        space.get_mut(update(0, number)).status = Status::Committed;
        space.set_executed(update(0, number));
    }
    let mut executed = Dependencies::none(3);
    *executed.row_mut(update(0, 0)) = 1;
    space.skip_to(&executed);
    assert_eq!(space.executed().row(update(0, 0)), 3);
    assert!(space.is_empty(), "the key stays active for good");
}
