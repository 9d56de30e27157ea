//! Votes, decisions, and what becomes of executions that were voted on.

use super::by_hand::{contents, decide, version};
use serried_parts::Effect;

use super::*;

#[test]
fn two_votes_of_three_commit_the_slow_way_once_the_third_is_given_up() {
    let mut net = morty(1);
    net.held.insert(NodeId(2));
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), [] as [&str; 0]);
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    // The third replica hears of the decision, and what it is about, when the network is whole.
    net.held = NodeSet::EMPTY;
    net.network.clear();
    net.fire(0, |timer| *timer == Timer::RepeatDecisions);
    net.settle();
    net.get(0, "x");
    net.settle();
    let id = |replica: usize| {
        let record = net.nodes[replica].record(&Key::from("x")).unwrap();
        record.committed.latest().unwrap().effect.clone()
    };
    assert_eq!(id(2), Effect::Put(Some(Value::from("1"))));
    assert_eq!(id(2), id(0));
}

#[test]
fn without_a_majority_nothing_is_decided() {
    let mut net = morty(1);
    net.held = [NodeId(1), NodeId(2)].into_iter().collect();
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    net.fire(0, |timer| matches!(timer, Timer::Repeat(_)));
    net.settle();
    assert_eq!(net.told(0), [] as [&str; 0]);
    net.held = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
}

#[test]
fn a_prepared_execution_is_abandoned_by_the_prepare_of_the_next() {
    let mut net = morty(2);
    net.get(1, "x"); // the older of the two
    net.settle();
    net.get(0, "x");
    net.settle();
    net.commit(0, &["x"], &[("x", "old")]);
    // One replica votes for it; the others do not hear of it.
    net.network.retain(|(_, to, _)| *to == NodeId(0));
    net.settle();
    net.commit(1, &["x"], &[("x", "new")]);
    net.settle();
    assert_eq!(net.told(0), ["value x = absent", "rewind x = new"]);
    net.commit(0, &["x"], &[("x", "newer")]);
    net.settle();
    assert_eq!(net.told(1)[1..], ["committed"]);
    assert_eq!(net.told(0), ["committed"]);
    let record = net.nodes[1].record(&Key::from("x")).unwrap();
    assert_eq!(record.committed.len(), 2);
    assert_eq!(
        record.committed.latest().unwrap().effect.value().flatten().cloned(),
        Some(Value::from("newer"))
    );
    assert!(record.is_idle(), "nothing is left of a decided transaction: {record:?}");
}

#[test]
fn a_vote_for_an_execution_that_was_abandoned_counts_no_more() {
    let mut net = overlapping(morty(2));
    net.commit(1, &["x"], &[("x", "old")]);
    net.held = [NodeId(0), NodeId(1), NodeId(2)].into_iter().collect();
    for _ in 0..3 {
        let prepare = net.network.pop_front().unwrap();
        net.deliver(prepare);
    }
    // All three votes to commit are on their way when the older transaction's write arrives.
    let votes: Vec<_> = net.network.drain(..).collect();
    net.put(0, "x", "1");
    net.held = NodeSet::EMPTY;
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.commit(1, &["x"], &[("x", "new")]);
    net.network.extend(votes);
    net.settle();
    assert_eq!(net.told(1), [] as [&str; 0], "it waits for the one it has read from");
    net.commit(0, &["x"], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    assert_eq!(net.told(1), ["committed"]);
}

#[test]
fn a_program_that_runs_again_and_reads_more_gives_up_what_it_had_prepared() {
    let mut net = overlapping(morty(2));
    net.held.insert(NodeId(2));
    net.commit(1, &["x"], &[("x", "old")]);
    net.settle();
    net.put(0, "x", "1");
    net.settle();
    assert_eq!(net.told(1), ["rewind x = 1"]);
    net.get(1, "y");
    let sent: Vec<_> = net.network.iter().map(|(_, to, message)| (*to, name(message))).collect();
    assert!(sent.contains(&(NodeId(1), "Finalize 0 Abandon".to_string())), "{sent:?}");
}

#[test]
fn late_messages_of_a_decided_transaction_leave_nothing_behind() {
    let mut net = morty(1);
    let version = Version { timestamp_us: 5, coordinator: coordinator_id(0) };
    let key = Key::from("x");
    let from = coordinator_id(0);
    let decide = Message::Request(Request::Decide {
        version,
        eid: 0,
        decision: Decision::Abort,
        contents: None,
    });
    net.deliver((from, NodeId(0), decide.clone()));
    let late = [
        Message::Request(Request::Get { version, key: key.clone() }),
        Message::Request(Request::Put {
            version,
            key: key.clone(),
            tag: 1,
            rests_on: None,
            value: None,
        }),
        Message::Request(Request::Prepare {
            version,
            eid: 0,
            next_tag: 1,
            contents: Default::default(),
        }),
        decide,
    ];
    for message in late {
        net.deliver((from, NodeId(0), message));
    }
    let finalize = Message::Request(Request::Finalize {
        version,
        eid: 0,
        view: View::OWN,
        decision: Proposal::Abandon,
    });
    net.deliver((from, NodeId(0), finalize));
    assert!(net.nodes[0].record(&key).is_none());
    assert_eq!(net.nodes[0].undecided(), 0);
}

#[test]
fn a_write_too_late_for_a_committed_read_is_refused_for_good() {
    let mut net = morty(2);
    net.commit(1, &[], &[("x", "0")]);
    net.settle();
    net.get(0, "y"); // Takes the older version.
    net.settle();
    net.get(1, "x");
    net.settle();
    net.commit(1, &["x"], &[]);
    net.settle();
    net.commit(0, &["y"], &[("x", "1")]);
    let trace = net.trace();
    assert!(trace.contains(&format!("n0 -> c0 PrepareReply 0 {:?}", Vote::AbandonFinal)));
    assert_eq!(net.told(0), ["value y = absent", "aborted over [\"x\"]"]);
}

#[test]
fn what_is_asked_of_a_transaction_that_has_ended_is_ignored() {
    let mut net = morty(1);
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    assert_eq!(net.told(0), ["committed"]);
    net.ask(0, Operation::Get { key: Key::from("x"), for_update: false });
    net.ask(0, Operation::Put(write("x", "2")));
    net.ask(
        0,
        Operation::Commit {
            reads: Vec::new(),
            writes: vec![write("x", "2")],
            modifies: Vec::new(),
        },
    );
    assert!(net.network.is_empty());
}

#[test]
fn a_tentative_vote_is_overcome_although_a_replica_is_down() {
    let mut net = morty(2);
    net.get(1, "x"); // The older of the two.
    net.settle();
    net.get(0, "x");
    net.settle();
    net.held.insert(NodeId(2));
    net.commit(0, &["x"], &[("x", "young")]);
    net.network.retain(|(_, to, _)| *to != NodeId(1));
    net.settle();
    // One replica has prepared the younger read, one is free, one is down.
    net.commit(1, &["x"], &[("x", "old")]);
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "rewind x = old");
    net.commit(0, &["x"], &[("x", "younger")]);
    net.settle();
    net.fire(1, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    net.fire(1, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(1).last().unwrap(), "committed");
    net.fire(0, |timer| matches!(timer, Timer::FastPath(_)));
    net.settle();
    assert_eq!(net.told(0).last().unwrap(), "committed");
}

#[test]
fn a_replica_that_lacks_a_commit_is_not_asked_again_though_it_votes_last() {
    let mut net = mvtso(1);
    let writer = contents(&[], &[("x", "1")]);
    for member in [1, 2] {
        let decided = decide(version(1, 9), 0, Decision::Commit, &writer);
        net.tell(coordinator_id(9), member, decided);
    }
    net.get(0, "x");
    net.settle();
    net.held.insert(NodeId(0));
    net.commit(0, &["x"], &[]);
    net.settle();
    assert_eq!(net.told(0), ["value x = absent", "aborted over [\"x\"]"]);
    net.held = NodeSet::EMPTY;
    net.settle();
    net.get(0, "x");
    assert_eq!(net.trace(), ["c0 -> n1 Get x", "n1 -> c0 GetReply x = 1"]);
}
