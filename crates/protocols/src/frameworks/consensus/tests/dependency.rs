//! What a client of Gryff-RSC has read and what may be held by few (001 §4.6.2).

use core::time::Duration;

use serried_actor::Group;
use serried_history::{
    Budget, RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterVerdict,
    check_regular_sequential,
};
use serried_model::{Key, Token};

use super::super::Message;
use super::net::{Envelope, X};
use super::*;
use crate::Mutated;

const READ: RegisterOperation = RegisterOperation::Read;
const WRITE: RegisterOperation = RegisterOperation::Write { value: Some(5) };

fn ok(found: Option<i64>) -> RegisterOutcome {
    RegisterOutcome::Ok { found, version: None }
}

/// What a read has found.
fn found(ended: &str) -> Option<i64> {
    ended.split(' ').next().and_then(|value| value.parse().ok())
}

/// Client 0 reads `x`, and finds what process 9 is writing: replica 1 alone has it so far, besides the
/// replica nearby from then on. Returns the messages with which the client has a majority hold it.
fn read_what_few_hold(net: &mut Net, recorder: &RegisterRecorder, x: &str) -> Vec<Envelope> {
    recorder.invoke(9, 0, 0, WRITE);
    net.make_hold_of(NodeId(1), x, stamped("5", 5));
    recorder.invoke(0, 1, 0, READ);
    net.ask_of(0, 1, x, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    net.deliver("0>c0 Reply");
    assert_eq!(net.ended(0, 1), "5 Committed", "it takes one round");
    recorder.complete(0, 2, 0, READ, ok(Some(5)));
    let settling = net.hold("c0>* Apply");
    net.network.clear();
    settling
}

fn verdict(recorder: RegisterRecorder) -> RegisterVerdict {
    check_regular_sequential(&recorder.into_history(), &Budget::default())
}

/// Keys of two partitions.
fn of_two_partitions() -> (String, String) {
    let group = Group::new(5, Duration::ZERO).with_partitions(2);
    let of = |partition| {
        let mut names = (0..).map(|number| format!("k{number}"));
        names.find(|name| group.partition_of(&Key::from(name.as_str())) == partition).expect("one")
    };
    (of(0), of(1))
}

fn rules(mutation: Mutated<Mutation>) -> Rules {
    Rules { variant: Variant::GryffRsc, mutation }
}

/// Client 0 reads `x` and finds what few hold; gives up a read of it; and writes `y` with the help of others
/// than hold that. Client 3 reads `y` after that, and `x`, with the help of the others, too. What the last
/// finds.
fn given_up_and_on(mut net: Net) -> (String, RegisterVerdict) {
    let recorder = RegisterRecorder::new();
    // What it sends in the background is lost.
    read_what_few_hold(&mut net, &recorder, X);
    net.ask_of(0, 2, X, Access::Read);
    net.network.clear();
    net.give_up(0, 2);
    assert_eq!(net.ended(0, 2), "NoEffect");

    net.part(&[0, 1]);
    recorder.invoke(0, 3, 1, WRITE);
    net.ask_of(0, 3, "y", write("5"));
    net.pass(Duration::from_secs(3));
    assert_eq!(net.ended(0, 3), "- Committed");
    recorder.complete(0, 4, 1, WRITE, ok(None));
    recorder.invoke(3, 5, 1, READ);
    net.ask_of(3, 1, "y", Access::Read);
    net.pass(Duration::from_secs(3));
    assert_eq!(net.ended(3, 1), "5 Committed");
    recorder.complete(3, 6, 1, READ, ok(Some(5)));
    recorder.invoke(3, 7, 0, READ);
    net.ask_of(3, 2, X, Access::Read);
    net.pass(Duration::from_secs(3));
    recorder.complete(3, 8, 0, READ, ok(found(&net.ended(3, 2))));
    (net.ended(3, 2), verdict(recorder))
}

#[test]
fn what_was_read_is_brought_along_until_a_majority_is_known_to_hold_it() {
    let (found, verdict) = given_up_and_on(Net::new(Variant::GryffRsc, 5));
    assert_eq!(found, "5 Committed");
    assert!(matches!(verdict, RegisterVerdict::Holds(_)), "{verdict:?}");
}

#[test]
fn a_gryff_rsc_that_clears_the_dependency_when_it_is_sent_is_caught() {
    let net = Net::broken(Variant::GryffRsc, 5, Mutation::DependencyClearedAtSend);
    let (found, verdict) = given_up_and_on(net);
    assert_eq!(found, "- Committed");
    assert!(matches!(verdict, RegisterVerdict::Violation(_)), "{verdict:?}");
}

/// The execution that 001 Algorithms 8 and 9 allow: A (client 0) reads `x`, which few hold, and then `y`, where
/// replica 1 answers before and replica 4 after B (client 3) has written `y` and read `x` without them.
fn two_keys_of_one_partition(mutation: Mutated<Mutation>) -> RegisterVerdict {
    let mut net = Net::with(rules(mutation), 5, Settings::default(), 1);
    let recorder = RegisterRecorder::new();
    let settling = read_what_few_hold(&mut net, &recorder, X);
    recorder.invoke(0, 3, 1, READ);
    net.ask_of(0, 2, "y", Access::Read);
    let mut late = settling;
    if net.count("c0>0 Request") > 0 {
        net.script(&["c0>0 Request", "0>1 Read1", "1>0 Read1Reply"]);
        late.extend(net.hold("0>* Read1"));
    }
    recorder.invoke(3, 4, 1, WRITE);
    net.ask_of(3, 1, "y", write("5"));
    net.script(&["c3>2 Write1", "c3>3 Write1", "c3>4 Write1"]);
    net.script(&["2>c3 Write1Reply", "3>c3 Write1Reply", "4>c3 Write1Reply"]);
    net.script(&["c3>1 Apply", "c3>2 Apply", "c3>3 Apply"]);
    net.script(&["1>c3 Applied", "2>c3 Applied", "3>c3 Applied"]);
    net.network.clear();
    assert_eq!(net.ended(3, 1), "- Committed");
    recorder.complete(3, 5, 1, WRITE, ok(None));
    recorder.invoke(3, 6, 0, READ);
    net.ask_of(3, 2, X, Access::Read);
    net.script(&["c3>3 Request", "3>2 Read1", "3>4 Read1", "2>3 Read1Reply", "4>3 Read1Reply"]);
    net.deliver("3>c3 Reply");
    net.network.clear();
    assert_eq!(net.ended(3, 2), "- Committed");
    recorder.complete(3, 7, 0, READ, ok(None));
    // What A waits for arrives at 4 first, which has not heard of what B has written.
    late.sort_by_key(|(_, to, _)| *to != NodeId(4));
    net.put_back(late);
    net.settle();
    recorder.complete(0, 8, 1, READ, ok(found(&net.ended(0, 2))));
    verdict(recorder)
}

/// The same with `y` in another partition, to which what was read of `x` can't be brought: A's read of it ends
/// before B begins.
fn two_keys_of_two_partitions(mutation: Mutated<Mutation>) -> RegisterVerdict {
    let mut net = Net::with(rules(mutation), 5, Settings::default(), 2);
    let (x, y) = of_two_partitions();
    let recorder = RegisterRecorder::new();
    let settling = read_what_few_hold(&mut net, &recorder, &x);
    recorder.invoke(0, 3, 1, READ);
    net.ask_of(0, 2, &y, Access::Read);
    net.settle();
    let at_once = net.ended(0, 2);
    if !at_once.is_empty() {
        recorder.complete(0, 4, 1, READ, ok(found(&at_once)));
    }
    recorder.invoke(3, 5, 1, WRITE);
    net.ask_of(3, 1, &y, write("5"));
    net.settle();
    assert_eq!(net.ended(3, 1), "- Committed");
    recorder.complete(3, 6, 1, WRITE, ok(None));
    recorder.invoke(3, 7, 0, READ);
    net.ask_of(3, 2, &x, Access::Read);
    net.script(&["c3>3 Request", "3>2 Read1", "3>4 Read1", "2>3 Read1Reply", "4>3 Read1Reply"]);
    net.deliver("3>c3 Reply");
    net.network.clear();
    assert_eq!(net.ended(3, 2), "- Committed");
    recorder.complete(3, 8, 0, READ, ok(None));
    net.put_back(settling);
    net.settle();
    if at_once.is_empty() {
        recorder.complete(0, 9, 1, READ, ok(found(&net.ended(0, 2))));
    }
    verdict(recorder)
}

#[test]
fn operations_on_several_keys_are_regular_sequential() {
    for verdict in
        [two_keys_of_one_partition(Mutated::NONE), two_keys_of_two_partitions(Mutated::NONE)]
    {
        assert!(matches!(verdict, RegisterVerdict::Holds(_)), "{verdict:?}");
    }
}

#[test]
fn a_gryff_rsc_as_printed_is_not_regular_sequential_across_keys() {
    let mutation = Mutated::by(Mutation::AsPrinted);
    for verdict in [two_keys_of_one_partition(mutation), two_keys_of_two_partitions(mutation)] {
        assert!(matches!(verdict, RegisterVerdict::Violation(_)), "{verdict:?}");
    }
}

/// How many values the requests bring that a client has sent.
fn brought(net: &Net) -> Vec<usize> {
    let brings = |message: &Message| match message {
        Message::Request { command, .. } => Some(command.brings.len()),
        Message::Write1 { brings, .. } => Some(brings.len()),
        _ => None,
    };
    let sent = net.network.iter().filter(|(from, ..)| from.is_coordinator());
    sent.filter_map(|(.., message)| brings(message)).collect()
}

#[test]
fn operations_of_any_kind_on_the_same_key_go_at_once_and_bring_what_was_read() {
    for access in [Access::Read, write("8"), append("8")] {
        let mut net = Net::new(Variant::GryffRsc, 5);
        // What it sends in the background is lost.
        read_what_few_hold(&mut net, &RegisterRecorder::new(), X);
        net.part(&[1]);
        net.ask(0, 2, access.clone());
        let brought_by_it = brought(&net);
        assert!(!brought_by_it.is_empty() && brought_by_it.iter().all(|values| *values == 1));
        net.settle();
        net.pass(Duration::from_secs(3));
        assert!(net.ended(0, 2).ends_with("Committed"));
        let expected = match access {
            Access::Read => "5",
            Access::Write(_) => "8",
            Access::Modify(_) => "58",
        };
        assert_eq!((net.value(0), net.value(3)), (expected.into(), expected.into()));
        // From then on a majority is known to hold it.
        net.ask_of(0, 3, "z", Access::Read);
        assert_eq!(brought(&net), [0]);
        net.ask(0, 4, Access::Read);
        assert_eq!(brought(&net), [0, 0]);
    }
}

#[test]
fn operations_of_any_kind_on_another_key_wait_until_a_majority_holds_what_was_read() {
    let (here, there) = of_two_partitions();
    for (partitions, other) in [(1, "y"), (2, &*there)] {
        for access in [Access::Read, write("8"), append("8")] {
            let mut net = Net::with(rules(Mutated::NONE), 5, Settings::default(), partitions);
            let settling = read_what_few_hold(&mut net, &RegisterRecorder::new(), &here);
            assert_eq!(settling.len(), 5, "at once, and in the background");
            net.ask_of(0, 2, other, access);
            assert!(net.network.is_empty());
            net.put_back(settling);
            net.script(&["c0>0 Apply", "c0>4 Apply", "0>c0 Applied", "4>c0 Applied"]);
            assert!(brought(&net).is_empty(), "two hold it");
            net.script(&["c0>3 Apply", "3>c0 Applied"]);
            let brought_by_it = brought(&net);
            assert!(!brought_by_it.is_empty() && brought_by_it.iter().all(|values| *values == 0));
            net.settle();
            assert!(net.ended(0, 2).ends_with("Committed"));
            assert_eq!(net.coordinator_gauge(0, "operations_that_waited"), 1);
        }
    }
}

#[test]
fn an_operation_waits_for_what_its_client_had_read_when_it_began_and_for_nothing_later() {
    let mut net = Net::new(Variant::GryffRsc, 5);
    let first = read_what_few_hold(&mut net, &RegisterRecorder::new(), X);
    net.ask_of(0, 2, "y", Access::Read);
    // Meanwhile another read of the client's finds something later, which few hold as well.
    net.make_hold(1, stamped("6", 6));
    net.ask(0, 3, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    let reply = net.hold("0>c0 Reply");
    net.network.clear();
    net.put_back(first);
    net.script(&["c0>0 Apply", "c0>4 Apply", "c0>3 Apply"]);
    net.script(&["0>c0 Applied", "4>c0 Applied"]);
    net.put_back(reply);
    net.deliver("0>c0 Reply");
    assert_eq!(net.ended(0, 3), "6 Committed");
    assert_eq!(net.count("c0>0 Request"), 1, "what was read first was brought along");
    net.ask_of(0, 4, "z", Access::Read);
    assert_eq!(net.count("c0>0 Request"), 1, "this one began when the later value had been read");
    net.settle();
    assert!(net.ended(0, 2).ends_with("Committed") && net.ended(0, 4).ends_with("Committed"));
}

#[test]
fn what_was_read_is_given_to_a_majority_however_often_that_is_lost() {
    let mut net = Net::new(Variant::GryffRsc, 5);
    read_what_few_hold(&mut net, &RegisterRecorder::new(), X);
    net.ask_of(0, 2, "y", Access::Read);
    net.part(&[2, 3, 4]);
    net.pass(Duration::from_secs(60));
    assert_eq!((net.ended(0, 2), net.value(3)), (String::new(), "-".into()));
    net.heal();
    net.pass(Duration::from_secs(3));
    assert_eq!((net.ended(0, 2), net.value(3)), ("- Committed".into(), "5".into()));
}

#[test]
fn an_update_that_waits_is_given_up_without_an_effect() {
    let mut net = Net::new(Variant::GryffRsc, 5);
    read_what_few_hold(&mut net, &RegisterRecorder::new(), X);
    for (txn, access) in [(2, Access::Read), (3, write("8")), (4, append("8"))] {
        net.ask_of(0, txn, "y", access);
        net.give_up(0, txn);
        assert_eq!(net.ended(0, txn), "NoEffect");
    }
    net.pass(Duration::from_secs(3));
    net.ask_of(0, 5, "y", Access::Read);
    net.settle();
    assert_eq!(net.ended(0, 5), "- Committed");
}

/// A read-modify-write takes effect, and the answer is lost. Its client reads another key, of which few hold what
/// is found, tries the update again, and gives it up while it waits for that.
#[test]
fn an_update_that_is_tried_again_is_never_told_to_be_nowhere_and_its_token_stays_open() {
    let mut net = Net::new(Variant::GryffRsc, 5);
    net.ask(0, 9, append("once"));
    let token = Token { id: net.token(0, 9), carstamp: None };
    net.deliver("c0>0 Request");
    net.settle_but("0>c0 Reply");
    net.lose(&["0>c0 Reply"]);
    net.give_up(0, 9);
    assert_eq!(net.ended(0, 9), "Unknown");
    read_what_few_hold(&mut net, &RegisterRecorder::new(), "y");
    net.ask_again(0, 10, append("once"), token);
    net.part(&[1, 2, 3, 4]);
    net.give_up(0, 10);
    assert_eq!(net.ended(0, 10), "Unknown");
    net.heal();
    net.pass(Duration::from_secs(3));
    // What it came to is remembered while its client does something else.
    assert_eq!(net.run(0, 11, append(" and more")), "once Committed");
    net.ask_again(0, 12, append("once"), token);
    net.settle();
    assert_eq!((net.ended(0, 12), net.value(0)), ("- Committed".into(), "once and more".into()));
}
