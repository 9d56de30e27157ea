//! What a client of Gryff-RSC has read and what may be held by few (001 §4.6.2).

use core::time::Duration;

use serried_actor::Group;
use serried_history::{
    Budget, RegisterOperation, RegisterOutcome, RegisterRecorder, RegisterVerdict,
    check_regular_sequential,
};
use serried_model::Key;

use super::super::Message;
use super::net::X;
use super::*;

const READ: RegisterOperation = RegisterOperation::Read;
const WRITE: RegisterOperation = RegisterOperation::Write { value: Some(5) };

/// Client 0 reads `x` and finds what few hold; gives up a read of it; and writes `y` with the help of others
/// than hold that. Client 3 reads `y` after that, and `x`, with the help of the others, too. What the last
/// finds.
fn given_up_and_on(mut net: Net) -> (String, RegisterVerdict) {
    let recorder = RegisterRecorder::new();
    let found = |text: &str| text.split(' ').next().and_then(|value| value.parse().ok());
    let ok = |found| RegisterOutcome::Ok { found, version: None };
    recorder.invoke(9, 0, 0, WRITE);
    net.make_hold(1, stamped("5", 5));
    recorder.invoke(0, 1, 0, READ);
    net.ask_of(0, 1, X, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    net.deliver("0>c0 Reply");
    net.network.clear();
    assert_eq!(net.ended(0, 1), "5 Committed");
    recorder.complete(0, 2, 0, READ, ok(Some(5)));
    net.ask_of(0, 2, X, Access::Read);
    net.network.clear();
    net.give_up(0, 2);
    assert_eq!(net.ended(0, 2), "Aborted { conflicts: [] }");

    net.part(&[0, 1]);
    recorder.invoke(0, 3, 1, WRITE);
    net.ask_of(0, 3, "y", write("5"));
    net.settle();
    assert_eq!(net.ended(0, 3), "- Committed");
    recorder.complete(0, 4, 1, WRITE, ok(None));
    recorder.invoke(3, 5, 1, READ);
    net.ask_of(3, 1, "y", Access::Read);
    net.settle();
    assert_eq!(net.ended(3, 1), "5 Committed");
    recorder.complete(3, 6, 1, READ, ok(Some(5)));
    recorder.invoke(3, 7, 0, READ);
    net.ask_of(3, 2, X, Access::Read);
    net.settle();
    recorder.complete(3, 8, 0, READ, ok(found(&net.ended(3, 2))));
    let verdict = check_regular_sequential(&recorder.into_history(), &Budget::default());
    (net.ended(3, 2), verdict)
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

#[test]
fn what_was_read_is_brought_along_by_operations_of_any_kind() {
    for access in [Access::Read, write("8"), append("8")] {
        let mut net = Net::new(Variant::GryffRsc, 5);
        net.make_hold(1, stamped("5", 5));
        net.ask(0, 1, Access::Read);
        net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
        net.deliver("0>c0 Reply");
        net.network.clear();
        net.part(&[0, 1]);
        net.ask_of(0, 2, "y", access);
        net.pass(Duration::from_secs(3));
        assert!(net.ended(0, 2).ends_with("Committed"));
        assert_eq!(
            (net.value(2), net.value(3), net.value(4)),
            ("5".into(), "5".into(), "5".into())
        );
        // From then on it is not.
        net.heal();
        net.ask_of(0, 3, "z", Access::Read);
        let brings = |message: &Message| match message {
            Message::Request { command, .. } => command.brings.len(),
            _ => panic!("a read is handed to a replica"),
        };
        let request = net.network.iter().find(|(from, ..)| from.is_coordinator());
        assert_eq!(request.map(|(.., message)| brings(message)), Some(0));
    }
}

#[test]
fn an_update_of_another_partition_waits_until_a_majority_holds_what_was_read_and_a_read_does_not() {
    let rules = Rules::of(Variant::GryffRsc);
    let mut net = Net::with(rules, 5, Settings::default(), 2);
    let group = Group::new(5, Duration::ZERO).with_partitions(2);
    let of = |partition| {
        let mut names = (0..).map(|number| format!("k{number}"));
        names.find(|name| group.partition_of(&Key::from(name.as_str())) == partition).expect("one")
    };
    let (here, there) = (of(0), of(1));
    net.make_hold_of(NodeId(1), &here, stamped("w", 5));
    net.ask_of(0, 1, &here, Access::Read);
    net.script(&["c0>0 Request", "0>1 Read1", "0>4 Read1", "4>0 Read1Reply", "1>0 Read1Reply"]);
    net.deliver("0>c0 Reply");
    assert_eq!(net.ended(0, 1), "w Committed");
    net.network.clear();
    // The other partition's replicas are 64 and up.
    net.ask_of(0, 2, &there, write("v"));
    net.ask_of(0, 3, &there, Access::Read);
    assert_eq!((net.count("c0>* Write1"), net.count("c0>64 Request")), (0, 1));
    net.script(&["c0>0 Apply", "c0>4 Apply", "0>c0 Applied", "4>c0 Applied"]);
    assert_eq!(net.count("c0>* Write1"), 0, "two hold it");
    net.script(&["c0>3 Apply", "3>c0 Applied"]);
    assert_eq!(net.count("c0>* Write1"), 5);
    net.settle();
    assert_eq!((net.ended(0, 2), net.ended(0, 3)), ("- Committed".into(), "- Committed".into()));
}
