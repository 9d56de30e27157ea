//! Restarts, and transactions whose coordinators do nothing any more.

use super::by_hand::{contents, finalize, prepare, version};
use super::*;

#[test]
fn a_replica_answers_after_a_restart_as_it_answered_before() {
    let mut net = overlapping(morty(2));
    net.put(0, "x", "1");
    net.settle();
    net.commit(1, &["x"], &[("x", "2")]);
    net.settle();
    // It has voted provisionally on the second, which has read from the first.
    net.restart(0);
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
    assert_eq!(net.told(1).last().unwrap(), "committed");
    let record = net.nodes[0].record(&Key::from("x")).unwrap();
    assert_eq!(
        record.committed.latest().unwrap().effect.value().flatten().cloned(),
        Some(Value::from("2"))
    );
    assert_eq!(net.nodes[0].undecided(), 0);
}

/// What `member` has committed for `key`, last.
fn committed(net: &Net, member: usize, key: &str) -> Option<Value> {
    let record = net.nodes[member].record(&Key::from(key))?;
    record.committed.latest()?.effect.value()?.cloned()
}

#[test]
fn a_late_message_of_an_earlier_execution_does_not_undo_an_accepted_commit() {
    let (txn, client) = (version(500, 0), coordinator_id(0));
    let (first, second) = (contents(&[], &[("x", "first")]), contents(&[], &[("x", "second")]));
    for late in [
        finalize(txn, 0, Proposal::Abandon),
        Message::Request(Request::Decide {
            version: txn,
            eid: 0,
            decision: Decision::Abandon,
            contents: None,
        }),
    ] {
        for restarts in [false, true] {
            let mut net = morty(1);
            // Two of three have accepted that the second execution commits: it is decided.
            for member in 0..2 {
                net.tell(client, member, prepare(txn, 0, &first));
                net.tell(client, member, prepare(txn, 1, &second));
                net.tell(client, member, finalize(txn, 1, Proposal::Commit));
                net.tell(client, member, late.clone());
            }
            if restarts {
                net.restart(0);
            }
            // One of them is asked with the third, which has heard of nothing.
            net.held.insert(NodeId(1));
            net.network.push_back((
                client,
                NodeId(2),
                Message::Request(Request::Inquire { version: txn }),
            ));
            net.settle();
            for member in [0, 2] {
                let found = committed(&net, member, "x");
                assert_eq!(found, Some(Value::from("second")), "n{member} after {}", name(&late));
            }
        }
    }
}

#[test]
fn a_writer_that_a_vote_waits_for_is_looked_after_after_a_restart() {
    let (writer, reader, client) = (version(400, 0), version(500, 0), coordinator_id(0));
    let mut net = morty(1);
    for member in 0..3 {
        let (key, value) = (Key::from("x"), Some(Value::from("1")));
        net.tell(
            client,
            member,
            Message::Request(Request::Put { version: writer, key, tag: 1, rests_on: None, value }),
        );
        let rests_on_it = contents(&[("x", writer)], &[("y", "1")]);
        let vote = net.tell(client, member, prepare(reader, 0, &rests_on_it));
        let lines: Vec<_> = vote.iter().map(|(_, message)| name(message)).collect();
        assert_eq!(lines, ["PrepareReply 0 Provisional"]);
    }
    // Of the writer, of which nothing was durable, no replica knows any more but by that vote.
    for member in 0..3 {
        net.restart(member);
        assert_eq!(net.nodes[member].undecided(), 1);
    }
    net.pass(Duration::from_secs(5));
    for replica in net.nodes.values() {
        assert_eq!(replica.undecided(), 0);
        assert_eq!(replica.waited_for(), []);
    }
    assert_eq!(committed(&net, 0, "y"), None, "it has read what never was");
}

#[test]
fn a_version_too_far_ahead_and_unknown_leaves_nothing_behind() {
    let mut net = morty(1);
    net.forged = true;
    let ahead = version(net.now + 10_000_000, 0);
    let later = View::OWN.next(NodeId(1));
    let decision = Proposal::Commit;
    let messages = [
        Message::Request(Request::Inquire { version: ahead }),
        Message::Recovering(Recovering::PaxosPrepare {
            version: ahead,
            view: later,
            vote_on: None,
        }),
        Message::Request(Request::Finalize { version: ahead, eid: 0, view: later, decision }),
        finalize(ahead, 0, Proposal::Commit),
        finalize(ahead, 0, Proposal::Abandon),
        Message::Request(Request::Decide {
            version: ahead,
            eid: 0,
            decision: Decision::Abandon,
            contents: None,
        }),
    ];
    for message in messages {
        let answers = net.tell(NodeId(1), 0, message.clone());
        assert_eq!(answers, [], "to {message:?}");
        assert_eq!(net.nodes[0].undecided(), 0, "after {message:?}");
        assert_eq!(net.gauge(0, "recoveries_in_progress"), 0, "after {message:?}");
        assert_eq!(net.nodes[0].records, [], "after {message:?}");
    }
    // It may be let in when its time comes.
    net.now += 10_000_000;
    let asked = Message::Recovering(Recovering::PaxosPrepare {
        version: ahead,
        view: later,
        vote_on: None,
    });
    assert_eq!(net.tell(NodeId(1), 0, asked).len(), 1);
}

#[test]
fn a_transaction_is_looked_after_again_once_it_is_prepared() {
    let (client, key) = (coordinator_id(0), Key::from("x"));
    let mut net = morty(1);
    net.start();
    let txn = version(net.now, 0);
    net.tell(client, 0, Message::Request(Request::Get { version: txn, key: key.clone() }));
    net.pass(Duration::from_secs(3));
    assert_eq!(net.nodes[0].undecided(), 1, "a read is in nobody's way");
    // The client's last message; nobody else gets it.
    net.tell(client, 0, prepare(txn, 0, &contents(&[("x", Version::INITIAL)], &[("x", "1")])));
    net.pass(Duration::from_secs(3));
    assert_eq!(net.nodes[0].undecided(), 0);
    assert!(net.nodes[0].record(&key).is_none_or(|record| record.is_idle()));
}

#[test]
fn an_unknown_execution_that_is_abandoned_is_not_recovered_at_once() {
    let mut net = morty(1);
    net.start();
    net.pass(Duration::from_secs(5));
    let txn = version(net.now, 0);
    let decision = Decision::Abandon;
    let abandon =
        Message::Request(Request::Decide { version: txn, eid: 0, decision, contents: None });
    net.tell(coordinator_id(0), 0, abandon);
    net.pass(Duration::from_millis(600));
    assert_eq!(net.nodes[0].undecided(), 1, "its coordinator goes on with the next execution");
    net.pass(Duration::from_secs(2));
    assert_eq!(net.nodes[0].undecided(), 0, "its coordinator does nothing");
}
