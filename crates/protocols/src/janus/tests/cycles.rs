//! Calls on a cycle, one of which has no pieces at a partition.

use serried_model::Version;

use super::broken::{is_news_for_third, pass_without};
use super::replicated::{began, node, replica, texts, world_with};
use super::*;
use crate::janus::message::{Ancestors, Ballot, Commit, Edge, Kind, PreAccept, Vertex};

/// Texts at a partition.
fn ids_at<const N: usize>(partition: u16) -> [i64; N] {
    let mut ids = (0..).filter(|id| place(*id) == partition);
    core::array::from_fn(|_| ids.next().expect("there are more"))
}

/// A client begins calls. Returns their ids, which rise.
fn begin(net: &mut Net, calls: &[(&str, &[i64])]) -> Vec<Version> {
    let mut ids = Vec::new();
    for (txn, (procedure, inputs)) in (2..).zip(calls) {
        net.outputs.clear();
        call(net, 1, txn, procedure, inputs);
        ids.push(began(net));
    }
    ids
}

/// All replicas of a partition take calls on, in this order.
fn announce(net: &mut Net, partition: u16, calls: &[Version]) {
    for next in calls {
        let announces = |(_, to, message): &Envelope<Message>| match message {
            Message::Request(Request::PreAccept(PreAccept { txn, .. })) => {
                to.partition() == partition && txn == next
            }
            _ => false,
        };
        for envelope in net.take(announces) {
            net.deliver(envelope);
        }
    }
}

/// Four calls on a cycle that all replicas have taken on. The last one has no pieces at partition 0. Returns their ids, and
/// what each text is after them.
fn cycle() -> (Net, Vec<Version>, [(i64, &'static str); 4]) {
    let ([a, b], [c, d]) = (ids_at(0), ids_at(1));
    let mut net = world_with(Mutated::NONE);
    let calls = [
        ("both", &[b, d, 2][..]),
        ("both", &[a, c, 3][..]),
        ("both", &[a, b, 4][..]),
        ("both", &[c, d, 5][..]),
    ];
    let calls = begin(&mut net, &calls);
    announce(&mut net, 0, &[calls[0], calls[2], calls[1]]);
    announce(&mut net, 1, &[calls[1], calls[3], calls[0]]);
    (net, calls, [(a, "3 4 "), (b, "2 4 "), (c, "3 5 "), (d, "2 5 ")])
}

/// All replicas have these texts.
fn check(net: &mut Net, wanted: &[(i64, &str)]) {
    for (id, text) in wanted {
        assert_eq!(texts(net, *id), vec![Some((*text).to_owned()); 3], "text {id}");
    }
}

/// The last of the four is void at partition 0, because somebody has asked everywhere for its outcome. A replica that was
/// away fetches another one, or goes on with it.
#[test]
fn a_call_stays_on_its_cycle_where_it_has_no_pieces_and_is_void() {
    for is_fetched in [true, false] {
        let (mut net, calls, wanted) = cycle();
        net.crash(node(0, 2));
        net.settle();
        assert_eq!(results(&net).len(), 4, "the others have executed them");
        net.operate(2, 6, Operation::Inquire { call: calls[3] });
        net.settle();
        net.restart(node(0, 2), replica(node(0, 2), Mutated::NONE));
        let txn = calls[0];
        let ballot = Ballot { number: 1, by: node(0, 2) };
        let request = match is_fetched {
            true => Request::Fetch { txn },
            false => Request::PreAccept(PreAccept { txn, work: None, insist: true, ballot }),
        };
        net.deliver((node(0, 2), node(0, 0), Message::Request(request)));
        net.pass(Duration::from_secs(5));
        check(&mut net, &wanted);
    }
}

/// A partition waits for outputs that the last of four calls on a cycle needs. The third one has no pieces there, and becomes
/// void there meanwhile. A replica that was away fetches the first one.
#[test]
fn a_call_that_becomes_void_while_its_cycle_is_executed_stays_on_it() {
    let here = place(0);
    let ([zero, other], [first, c, d]) = (ids_at(here), ids_at(1 - here));
    let mut net = world_with(Mutated::NONE);
    let calls = [
        ("both", &[zero, c, 2][..]),
        ("both", &[other, d, 3][..]),
        ("both", &[c, d, 4][..]),
        ("chain", &[first, 5][..]),
    ];
    let calls = begin(&mut net, &calls);
    announce(&mut net, here, &[calls[1], calls[3], calls[0]]);
    announce(&mut net, 1 - here, &[calls[3], calls[0], calls[2], calls[1]]);
    let late = node(here, 2);
    net.crash(late);
    net.settle_where(|envelope| !is_report(envelope));
    assert_eq!(net.gauge(node(here, 0), "waiting_groups"), 1);
    net.operate(2, 6, Operation::Inquire { call: calls[2] });
    net.settle_where(|envelope| !is_report(envelope));
    assert_eq!(net.gauge(node(here, 0), "waiting_groups"), 1);
    net.settle();
    assert_eq!(results(&net).len(), 5, "the others have executed them");
    net.restart(late, replica(late, Mutated::NONE));
    let fetch = Message::Request(Request::Fetch { txn: calls[0] });
    net.deliver((late, node(here, 0), fetch));
    net.pass(Duration::from_secs(5));
    check(&mut net, &[(zero, "2 5 "), (other, "3 "), (first, "5 "), (c, "2 4 "), (d, "3 4 ")]);
}

/// One replica of partition 0 has executed the four, and the two others don't hear of them. It is left out, and copies the
/// data of one of these.
#[test]
fn a_call_that_was_decided_before_a_copy_is_on_its_cycle_again() {
    let (mut net, _, wanted) = cycle();
    let (a, text) = wanted[0];
    net.settle_where(|(from, ..)| !from.is_coordinator());
    let is_cut_off = |(from, to, _): &Envelope<Message>| {
        let is_one_of_two = |id: &NodeId| [node(0, 0), node(0, 1)].contains(id);
        is_one_of_two(from) != is_one_of_two(to)
    };
    pass_without(&mut net, Duration::from_secs(4), is_cut_off);
    assert_eq!(texts(&mut net, a), [None, None, Some(text.to_owned())]);
    assert_eq!(net.gauge(node(0, 0), "absent_replicas"), 1);
    let is_of_copy = |message: &Message| {
        matches!(
            message,
            Message::Request(Request::Report(_) | Request::Copy { .. })
                | Message::Reply(Reply::Copied { .. })
        )
    };
    pass_without(&mut net, Duration::from_secs(4), |envelope| {
        is_cut_off(envelope) && !is_of_copy(&envelope.2)
    });
    assert_eq!(net.gauge(node(0, 0), "absent_replicas"), 0);
    assert_eq!(net.gauge(node(0, 2), "catching_up"), 0);
    assert_eq!(texts(&mut net, a)[0], None, "the source has not executed them");
    net.pass(Duration::from_secs(5));
    check(&mut net, &wanted);
}

/// `note` reads a text, and appends it to another one of the same partition. It appends to a third text, too.
const NOTE: &str = r#"
[procedures.note]
inputs = { a = "int", b = "int", c = "int", x = "int" }
returns = { seen = "seen.text" }
[procedures.note.pieces.seen]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
outputs.text = "row.text"
[procedures.note.pieces.copy]
rows = { row = { table = "list", key = ["b"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + seen.text + string(x) + ' ', 400)"
[procedures.note.pieces.third]
rows = { row = { table = "list", key = ["c"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 400)"
"#;

/// Two calls read the same text, and conflict at the other partition alone. One replica has not heard of the first one. A
/// third call writes what they have read.
#[test]
fn a_call_that_stands_for_another_by_an_edge_of_another_partition_is_no_substitute() {
    let ([a, b, other], [c]) = (ids_at(0), ids_at(1));
    let mut net = world_with(Mutated::NONE);
    let set = serried_chop::compile(&format!("{FILE}{NOTE}"));
    let set = Arc::new(set.unwrap_or_else(|mistake| panic!("{mistake}")));
    assert_eq!(register(&mut net, set), Registration::InUse { version: 2 });
    for client in 1..3 {
        net.operate(client, 0, Operation::List);
    }
    net.pass(Duration::from_secs(1));
    call(&mut net, 1, 2, "note", &[a, b, c, 2]);
    pass_without(&mut net, Duration::from_millis(600), is_news_for_third);
    call(&mut net, 2, 3, "note", &[a, other, c, 3]);
    net.settle();
    call(&mut net, 2, 4, "both", &[a, a, 4]);
    net.settle();
    assert_eq!(results(&net).len(), 3);
    net.pass(Duration::from_secs(5));
    assert_eq!(texts(&mut net, b), vec![Some("2 ".to_owned()); 3]);
}

/// Of four calls on a cycle, the first one has no pieces at partition 0. A replica there is heard of, and learns how far the
/// others are, but hears of no commit until the time of the first call is forgotten.
#[test]
fn a_call_stays_on_its_cycle_where_it_has_no_pieces_and_its_time_is_forgotten() {
    let ([a, b], [c, d]) = (ids_at(0), ids_at(1));
    let mut net = world_with(Mutated::NONE);
    let calls = [
        ("both", &[c, d, 2][..]),
        ("both", &[b, d, 3][..]),
        ("both", &[a, c, 4][..]),
        ("both", &[a, b, 5][..]),
    ];
    let calls = begin(&mut net, &calls);
    announce(&mut net, 0, &[calls[1], calls[3], calls[2]]);
    announce(&mut net, 1, &[calls[2], calls[0], calls[1]]);
    net.settle_where(|(from, ..)| !from.is_coordinator());
    pass_without(&mut net, Duration::from_secs(6), |(from, to, message)| {
        let tells_how_far =
            matches!(message, Message::Request(Request::Report(_) | Request::Over { .. }));
        (*from == node(0, 2) || *to == node(0, 2)) && !tells_how_far
    });
    assert_eq!(texts(&mut net, a)[2], None);
    net.pass(Duration::from_secs(5));
    for (id, text) in [(a, "4 5 "), (b, "3 5 "), (c, "2 4 "), (d, "2 3 ")] {
        assert_eq!(texts(&mut net, id), vec![Some(text.to_owned()); 3], "text {id}");
    }
}

/// A call comes after another one at partition 1, which began long ago. Partition 0 knows nothing of that one: perhaps it
/// is on a cycle.
#[test]
fn what_began_long_ago_is_not_reported_as_executed_where_it_has_no_pieces() {
    let mut net = world_with(Mutated::NONE);
    net.pass(Duration::from_secs(6));
    let long_ago = Version::at(net.clock_us() - 4_000_000);
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    let txn = began(&net);
    net.settle_where(|(_, to, _)| *to != client_id(1));
    net.leave(client_id(1));
    let edges = [Edge { from: long_ago, kind: Kind::Deferred, at: 1 }].into();
    let vertex = Vertex { txn, participants: [0, 1].into(), edges, floor_us: 0 };
    let commit = Arc::new(Commit { vertex, ancestors: Ancestors::default() });
    net.deliver((client_id(1), node(0, 0), Message::Request(Request::Commit(commit))));
    let answers = net.answers(node(1, 0), node(0, 0), Message::Request(Request::Ask { txn }));
    let told = answers.iter().find_map(|(.., message)| match message {
        Message::Reply(Reply::Status { ancestors, .. }) => Some(ancestors),
        _ => None,
    });
    let told = told.expect("the call commits");
    assert_eq!(told.commit.iter().map(|vertex| vertex.txn).collect::<Vec<_>>(), [txn]);
    assert_eq!(told.executed, []);
}
