//! What old transactions come to, and who has a say in it.

use super::by_hand::{contents, decide, prepare, version};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{
    Ballot, CatchingUp, Merged, Reply, Request, Settlement, Snapshot, Status, Truncating,
};

/// The truncations of the default settings are two seconds apart, and ten seconds late; the replicas
/// take turns at coordinating them, and this one is the turn of n0.
const UPTO: u64 = 6_000_000;
const UPTO_IS_DUE: u64 = UPTO + 10_000_000;

fn truncated_below(net: &Net, member: usize) -> u64 {
    net.gauge(member, "truncated_below_us")
}

#[test]
fn a_replica_whose_clock_was_ahead_shows_until_when_it_votes_on_nothing() {
    let mut net = morty(0);
    let stopped = |net: &Net| net.gauge(0, "stopped_below_us");
    net.now = UPTO_IS_DUE;
    for member in 0..3 {
        net.act(member, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
    }
    assert_eq!(stopped(&net), UPTO, "in the past, as usual");
    net.settle();
    let hour = 3_600_000_000;
    net.now += hour;
    net.act(0, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
    net.network.clear();
    net.now -= hour;
    assert_eq!(stopped(&net), UPTO + hour);
    net.restart(0);
    assert_eq!(stopped(&net), UPTO + hour, "its log says so too");
}

#[test]
fn a_list_begun_before_a_snapshot_may_lack_some_of_it() {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.commit(0, &[], &[("y", "1")]);
    net.settle();
    // n1 lists for n0, which was away, what has committed, and the list is long under way.
    net.restart(0);
    let asked = net.network.pop_front().unwrap();
    net.deliver(asked);
    let list = net.network.pop_front().unwrap();
    assert!(
        matches!(&list, (_, NodeId(0), Message::CatchingUp(CatchingUp::Committed { versions, .. })) if versions.len() == 1)
    );
    // Meanwhile another transaction commits, of which n0 hears nothing.
    let (txn, writes) = (version(net.now, 0), contents(&[], &[("x", "1")]));
    for member in [1, 2] {
        net.tell(client, member, prepare(txn, 0, &writes));
        net.tell(client, member, decide(txn, 0, Decision::Commit, &writes));
    }
    // The snapshots of n0 and n1 come before the list.
    net.held.insert(NodeId(2));
    net.now = UPTO_IS_DUE;
    for member in [1, 0] {
        net.act(member, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
    }
    net.settle();
    assert_eq!(truncated_below(&net, 0), 0);
    net.network.push_back(list);
    net.settle();
    for member in [0, 1] {
        assert_eq!(truncated_below(&net, member), UPTO, "n{member}");
        let record = net.nodes[member].record(&Key::from("x")).unwrap();
        assert_eq!(record.committed.latest().unwrap().id.version, txn, "n{member}");
    }
}

#[test]
fn a_replacement_has_no_say_in_what_its_predecessor_may_have_known() {
    let view = View::OWN.next(NodeId(1));
    for restarts in [false, true] {
        let mut net = morty(0);
        net.replace(0);
        if restarts {
            net.restart(0);
        }
        net.settle();
        net.now = UPTO_IS_DUE;
        let logged = net.nodes[0].records.len();
        // What its predecessor may have promised or voted on is below four seconds and a bit.
        for upto in [UPTO - 2_000_000, UPTO] {
            let snapshot = Snapshot::default();
            let truncate =
                Message::Truncating(Truncating::Truncate { ballot: Ballot::first(upto), snapshot });
            for member in 1..3 {
                let answers = net.tell(NodeId(member), 0, truncate.clone());
                // It would merge what others have with what it has.
                assert_eq!(
                    answers,
                    [(NodeId(member), Message::Truncating(Truncating::CannotMerge { upto }))]
                );
            }
            let enter = Message::Truncating(Truncating::TruncationPaxosPrepare {
                ballot: Ballot { upto, view },
            });
            assert_eq!(net.tell(NodeId(1), 0, enter), [], "for {upto}");
        }
        let merged = Digest::default();
        let proposed = |upto| (Ballot { upto, view }, Merged { upto, digest: merged });
        let propose = |upto| {
            let (ballot, merged) = proposed(upto);
            Message::Truncating(Truncating::ProposeMerge { ballot, merged })
        };
        assert_eq!(net.tell(NodeId(1), 0, propose(UPTO - 2_000_000)), []);
        net.act(0, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
        let speaks =
            |message: &Message| matches!(message, Message::Truncating(Truncating::Truncate { .. }));
        assert!(!net.network.drain(..).any(|(.., message)| speaks(&message)));
        assert_eq!(net.nodes[0].records.len(), logged);
        // A truncation above that is a promise that nobody has made yet.
        let accepted = net.tell(NodeId(1), 0, propose(UPTO));
        let (ballot, merge) = proposed(UPTO);
        let reply = Truncating::ProposeMergeReply { ballot, merged: Some(merge) };
        assert_eq!(accepted, [(NodeId(1), Message::Truncating(reply))]);
        // Once all of it is settled it is like any other.
        net.tell(
            NodeId(1),
            0,
            Message::Truncating(Truncating::TruncationFinished { upto: UPTO, merged }),
        );
        assert_eq!(truncated_below(&net, 0), UPTO);
        net.now += 2_000_000;
        let ballot = Ballot { upto: UPTO + 2_000_000, view };
        let enter = Message::Truncating(Truncating::TruncationPaxosPrepare { ballot });
        let answers = net.tell(NodeId(1), 0, enter);
        assert!(
            matches!(&answers[..], [(NodeId(1), Message::Truncating(Truncating::Truncate { .. }))]),
            "{answers:?}"
        );
    }
}

/// The second watermark is so far that the horizon passes all that is waited for, too.
#[test]
fn a_waiter_goes_on_when_the_watermark_passes() {
    for upto in [UPTO, UPTO + 60_000_000] {
        who_waits_goes_on_when_the_watermark_passes(upto);
    }
}

fn who_waits_goes_on_when_the_watermark_passes(upto: u64) {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.now = UPTO_IS_DUE + upto - UPTO;
    let (known, unknown, later) = (version(1, 0), version(2, 0), version(upto, 0));
    let (key, value) = (Key::from("x"), Some(Value::from("1")));
    net.tell(
        client,
        0,
        Message::Request(Request::Put { version: known, key, tag: 1, rests_on: None, value }),
    );
    // Each of the last three has read from one of them; the first is itself below, and over with it.
    let readers = [
        (version(3, 0), unknown),
        (version(upto + 1, 0), known),
        (version(upto + 2, 0), unknown),
        (version(upto + 3, 0), later),
    ];
    for (reader, writer) in readers {
        // Keys of their own, or a later writer would be missed.
        let key = if writer == known {
            "x"
        } else if writer == unknown {
            "y"
        } else {
            "z"
        };
        let votes = net.tell(client, 0, prepare(reader, 0, &contents(&[(key, writer)], &[])));
        let lines: Vec<_> = votes.iter().map(|(_, message)| name(message)).collect();
        assert_eq!(lines, ["PrepareReply 0 Provisional"]);
    }
    // Another waits for the earlier of two, though it has read from the later one first.
    let both = version(upto + 4, 0);
    net.tell(client, 0, prepare(both, 0, &contents(&[("z", later), ("y", unknown)], &[])));
    assert_eq!(net.nodes[0].waited_for(), [known, unknown, later]);
    let merged = Digest::default();
    let sent = net.tell(
        NodeId(1),
        0,
        Message::Truncating(Truncating::TruncationFinished { upto, merged }),
    );
    let vote = |message: &Message| match message {
        Message::Reply(Reply::PrepareReply { version, vote, .. }) => Some((*version, *vote)),
        _ => None,
    };
    let votes: BTreeMap<_, _> = sent.iter().filter_map(|(_, message)| vote(message)).collect();
    let [_, first, second, _] = readers.map(|(reader, _)| (reader, Vote::AbandonFinal));
    let third = (both, Vote::AbandonFinal);
    assert_eq!(
        votes,
        BTreeMap::from([first, second, third]),
        "what they have read never committed"
    );
    assert_eq!(net.nodes[0].waited_for(), [later]);
    net.restart(0);
    assert_eq!(net.nodes[0].waited_for(), [later]);
}

#[test]
fn a_waiter_goes_on_below_the_watermark_though_the_replica_is_behind() {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.now = UPTO_IS_DUE;
    let (writer, reader) = (version(2, 0), version(UPTO + 1, 0));
    let what = contents(&[("x", writer)], &[]);
    net.tell(client, 0, prepare(reader, 0, &what));
    net.restart(0);
    net.network.clear();
    assert_eq!(net.gauge(0, "catching_up"), 1);
    // Later it has forgotten that the writer has not committed.
    let merged = Digest::default();
    let sent = net.tell(
        NodeId(1),
        0,
        Message::Truncating(Truncating::TruncationFinished { upto: UPTO, merged }),
    );
    let lines: Vec<_> = sent.iter().map(|(_, message)| name(message)).collect();
    assert!(lines.contains(&"PrepareReply 0 AbandonFinal".to_string()), "{lines:?}");
}

/// Below [`UPTO`] one transaction has committed, which n0 lacks. n1 can't list it any more, so n0 begins to copy n1's store.
fn n0_copies_what_n1_has(net: &mut Net, committed: Version) {
    let mut merged = Digest::default();
    merged.add(committed, 0);
    let finished = Message::Truncating(Truncating::TruncationFinished { upto: UPTO, merged });
    net.tell(NodeId(1), 1, finished.clone());
    let asked = net.tell(NodeId(1), 0, finished);
    assert_eq!((truncated_below(net, 0), truncated_below(net, 1)), (0, UPTO));
    let [(_, Message::CatchingUp(CatchingUp::GetCommitted { run, .. }))] = asked[..] else {
        panic!("{asked:?}")
    };
    let (since, versions) = (Version::INITIAL, Vec::new());
    let list = Message::CatchingUp(CatchingUp::Committed {
        since,
        run,
        versions,
        more: false,
        reaches: false,
        behind: false,
    });
    net.network.push_back((NodeId(1), NodeId(0), list));
}

#[test]
fn a_waiter_commits_when_its_writer_is_copied_as_committed() {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.now = UPTO_IS_DUE;
    let (writer, reader) = (version(1, 0), version(UPTO, 0));
    let writes = contents(&[], &[("x", "1")]);
    net.tell(client, 1, decide(writer, 0, Decision::Commit, &writes));
    let votes = net.tell(client, 0, prepare(reader, 0, &contents(&[("x", writer)], &[("y", "1")])));
    assert_eq!(name(&votes[0].1), "PrepareReply 0 Provisional");
    n0_copies_what_n1_has(&mut net, writer);
    let lines = net.trace();
    assert!(lines.contains(&"n0 -> c0 PrepareReply 0 Commit".to_string()), "{lines:?}");
    assert_eq!(truncated_below(&net, 0), UPTO);
    assert_eq!(net.nodes[0].waited_for(), []);
}

#[test]
fn a_store_that_is_behind_is_given_nothing_to_settle_until_it_is_not() {
    let mut net = morty(1);
    net.commit(0, &[], &[("x", "1")]);
    net.settle();
    for member in 0..3 {
        net.act(member, |replica, cx| replica.on_start(cx));
    }
    net.nodes[0].store.is_behind = true;
    net.pass(Duration::from_secs(60));
    let stored = |net: &Net| [0, 1].map(|member| net.nodes[member].store.get(b"x").is_some());
    assert_eq!(stored(&net), [false, true]);
    net.nodes[0].store.is_behind = false;
    net.pass(Duration::from_millis(10));
    assert_eq!(stored(&net), [true, true]);
}

#[test]
fn a_vote_waits_for_the_next_writer_though_another_is_forgotten() {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.now = UPTO_IS_DUE;
    let (other, unheard_of) = (version(2, 0), version(1, 0));
    let (writer, reader) = (version(UPTO, 0), version(UPTO + 1, 0));
    let reads = contents(&[("x", unheard_of), ("y", writer)], &[("z", "1")]);
    let votes = net.tell(client, 0, prepare(reader, 0, &reads));
    assert_eq!(name(&votes[0].1), "PrepareReply 0 Provisional");
    assert_eq!(net.nodes[0].waited_for(), [unheard_of]);
    // n0 copies the store of n1, which has forgotten what became of the first writer.
    let writes = contents(&[], &[("w", "1")]);
    net.tell(client, 1, decide(other, 0, Decision::Commit, &writes));
    n0_copies_what_n1_has(&mut net, other);
    net.settle();
    assert_eq!(truncated_below(&net, 0), UPTO);
    assert_eq!(net.nodes[0].waited_for(), [writer]);
    let aborts = decide(writer, 0, Decision::Abort, &contents(&[], &[]));
    let sent = net.tell(client, 0, aborts);
    let lines: Vec<_> = sent.iter().map(|(_, message)| name(message)).collect();
    assert!(lines.contains(&"PrepareReply 0 AbandonFinal".to_string()), "{lines:?}");
}

#[test]
fn a_replica_that_lags_in_rounds_gets_its_turn_at_a_truncation() {
    let next = UPTO + 2_000_000;
    let mut net = morty(1);
    net.held.insert(NodeId(0));
    net.now = next + 10_000_000;
    // n2 has tried for a while before n1 hears of the truncation.
    net.held.insert(NodeId(1));
    for _ in 0..30 {
        net.act(2, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
        net.settle();
    }
    net.network.clear();
    net.held = [NodeId(0)].into_iter().collect();
    // The messages that would let n2 finish are lost.
    let for_n2 = |(_, to, message): &Envelope| {
        *to == NodeId(2) && matches!(message, Message::Truncating(Truncating::Truncate { .. }))
    };
    for _ in 0..30 {
        for member in [2, 1] {
            net.act(member, |replica, cx| replica.on_timer(ReplicaTimer::Truncation, cx));
            while let Some(envelope) = net.network.pop_front() {
                let lost = for_n2(&envelope) || net.held.contains(envelope.1);
                if !lost {
                    net.deliver(envelope);
                }
            }
        }
    }
    assert_eq!([1, 2].map(|member| truncated_below(&net, member)), [next; 2]);
}

#[test]
fn what_others_have_forgotten_is_copied_and_not_recovered_for_ever() {
    let (client, lost, upto) = (coordinator_id(0), version(1000, 0), 100_000_000);
    let mut net = morty(1);
    net.tell(client, 2, prepare(lost, 0, &contents(&[], &[("x", "1")])));
    // n1 settles everything and forgets it, and n0 goes away. n2 hears of neither.
    let merged = Digest::default();
    net.tell(NodeId(0), 1, Message::Truncating(Truncating::TruncationFinished { upto, merged }));
    net.held.insert(NodeId(0));
    net.now = upto + 10_000_000;
    net.network.push_back((
        client,
        NodeId(2),
        Message::Request(Request::Inquire { version: lost }),
    ));
    net.settle();
    assert_eq!(net.nodes[2].undecided(), 1);
    net.act(2, |replica, cx| replica.on_timer(ReplicaTimer::Recovery(lost), cx));
    net.settle();
    assert_eq!((truncated_below(&net, 2), net.nodes[2].undecided()), (upto, 0));
}

#[test]
fn what_a_copy_passes_while_open_is_not_said_to_have_aborted() {
    let client = coordinator_id(0);
    let mut net = morty(1);
    net.now = UPTO_IS_DUE;
    let writer = version(1, 0);
    let writes = contents(&[], &[("x", "1")]);
    net.tell(client, 0, prepare(writer, 0, &writes));
    net.tell(client, 1, decide(writer, 0, Decision::Commit, &writes));
    n0_copies_what_n1_has(&mut net, writer);
    net.settle();
    assert_eq!((truncated_below(&net, 0), net.nodes[0].undecided()), (UPTO, 0));
    for restarts in [false, true] {
        if restarts {
            net.restart(0);
            net.network.clear();
        }
        let said = net.tell(client, 0, Message::Request(Request::Inquire { version: writer }));
        let settlement = Settlement::Forgotten;
        assert_eq!(
            said,
            [(client, Message::Status(Status::Settled { version: writer, settlement }))],
            "it committed"
        );
    }
}
