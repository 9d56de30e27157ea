//! Tokens and numbers that come again: neither counts twice.

use core::time::Duration;

use serried_model::{Key, Token, Version};

use super::super::instance::{Attributes, Ballot, Command, Dependencies, Status};
use super::super::{Body, Message, Timer};
use super::net::{Net, X, update};
use super::*;

/// A write `v` is begun at 0, which is cut off for longer than results are remembered; its client gives up. When the net
/// is whole again the client tries `v` again, at 1, while another appends `z` at 2. All clocks are right.
#[test]
fn a_write_tried_again_after_long_takes_effect_once() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(0, 1, write("v"));
    net.deliver("c0>0 Request");
    net.give_up(0, 1);
    assert_eq!(net.ended(0, 1), "Unknown");
    let token = Token { id: net.token(0, 1), carstamp: None };
    net.part(&[0]);
    let outcomes_ms = net.settings.outcomes_ms;
    net.pass(Duration::from_millis(outcomes_ms + 60_000));
    net.heal();
    // Replica 0 repeats its PreAccept of `v`.
    for _ in 0..100 {
        if net.count("0>1 PreAccept") > 0 {
            break;
        }
        net.wait(Duration::from_secs(1));
        net.fire(NodeId(0), Timer::Tick);
    }
    assert_eq!((net.count("0>1 PreAccept"), net.count("0>2 PreAccept")), (1, 1));
    let late = net.hold("0>1 PreAccept");
    net.lose(&["0>2 PreAccept"]);
    // The append is agreed on by 2 and 0, and comes after `v` at 0, of which 2 has not heard.
    net.ask(2, 1, append("z"));
    net.script(&["c2>2 Request", "2>0 PreAccept", "0>2 PreAccepted"]);
    assert_eq!(net.instance(2, update(2, 1)).status, Status::Committed);
    net.lose(&["2>* *"]);
    // The client tries `v` again at 1, which then hears of it from 0, too.
    net.ask_again(1, 1, write("v"), token);
    net.deliver("c1>1 Request");
    net.put_back(late);
    net.script(&["0>1 PreAccept", "1>0 PreAccepted"]);
    net.script(&["1>2 PreAccept", "2>1 PreAccepted"]);
    net.settle();
    net.pass(Duration::from_secs(30));
    net.assert_agree(X);
    net.ask(0, 9, Access::Read);
    net.pass(Duration::from_secs(1));
    let of_append = net.ended(2, 1);
    match of_append.as_str() {
        "v Committed" => assert_eq!(net.ended(0, 9), "vz Committed", "the append found v"),
        "- Committed" => assert_eq!(net.ended(0, 9), "v Committed"),
        other => panic!("{other}"),
    }
}

/// The write `i` of 2 comes after 1's first command, of which nobody else has heard. While `i` is not agreed on yet, 1 is
/// replaced. It takes over `i` and takes part again. Then it is restarted. It must not use its predecessor's number again:
/// others are ending that instance, and it has promised to help them.
#[test]
fn a_replacement_that_restarts_reuses_no_number() {
    let mut net = Net::new(Variant::Epaxos, 3);
    net.ask(1, 1, write("q"));
    net.deliver("c1>1 Request");
    net.lose(&["1>* PreAccept"]);
    net.give_up(1, 1);
    net.ask(2, 1, write("i"));
    net.script(&["c2>2 Request", "2>1 PreAccept", "1>2 PreAccepted"]);
    // Replica 0, the other of the fast quorum, is slow.
    net.lose(&["*>* *"]);
    net.wait(Duration::from_secs(1));
    net.fire(NodeId(2), Timer::Tick);
    assert_eq!(net.instance(2, update(2, 1)).status, Status::Accepted);
    net.lose(&["2>1 *", "2>0 PreAccept"]);
    let accept = net.hold("2>0 Accept");
    net.lose_disk(1);
    net.script(&["1>2 Scan", "2>1 Scanned", "1>0 Scan", "0>1 Scanned"]);
    net.lose(&["*>* *"]);
    net.put_back(accept);
    net.script(&["2>0 Accept", "0>2 Accepted", "2>1 Commit", "2>0 Commit"]);
    assert_eq!(net.gauge(1, "catching_up"), 0);
    net.lose(&["*>* *"]);
    // Replica 0 ends the instance that `i` waits for: nothing is done there. 1 promises.
    net.recover(0);
    net.script(&["0>1 Prepare", "1>0 Prepared"]);
    let accept = net.hold("0>2 Accept");
    assert_eq!(accept.len(), 1);
    net.lose(&["*>* *"]);
    net.crash(1);
    net.restart(1);
    net.ask(1, 2, write("g"));
    net.deliver("c1>1 Request");
    net.script(&["1>2 PreAccept", "2>1 PreAccepted"]);
    net.lose(&["1>0 *", "1>2 *"]);
    net.settle();
    net.part(&[1]);
    net.put_back(accept);
    net.settle();
    net.ask(0, 9, Access::Read);
    net.pass(Duration::from_secs(10));
    assert_eq!((net.ended(1, 2), net.ended(0, 9)), ("- Committed".into(), "g Committed".into()));
    net.heal();
    net.pass(Duration::from_secs(30));
    net.assert_agree(X);
}

/// 1 has begun no instance, but its predecessor has: others are ending its first, or wait for it.
#[test]
fn a_replacement_reuses_no_number_that_it_hears_of() {
    let prepare = (update(1, 1), Body::Prepare { ballot: Ballot { number: 1, member: 0 } });
    let mut dependencies = Dependencies::none(3);
    *dependencies.row_mut(update(1, 1)) = 1;
    let attributes = Attributes { sequence: 2, dependencies, base: None, fresh: false };
    let token = Version { timestamp_us: 1, coordinator: NodeId(1 << 16) };
    let command = Command { token, settled: token, access: write("i"), brings: Vec::new() };
    let commit = (update(2, 1), Body::Commit { command: Some(command), attributes });
    for (id, body) in [prepare, commit] {
        for restarts in [false, true] {
            let mut net = Net::new(Variant::Epaxos, 3);
            let (key, body) = (Key::from(X), Box::new(body.clone()));
            let message = Message::Instance { key, id, incarnation: 0, body };
            net.hand(NodeId(id.member.into()), NodeId(1), message);
            if restarts {
                net.crash(1);
                net.restart(1);
            }
            net.ask(1, 1, write("g"));
            net.deliver("c1>1 Request");
            assert_eq!(
                net.instance(1, update(1, 2)).status,
                Status::PreAccepted,
                "{id:?} {restarts}"
            );
        }
    }
}

/// Of what a replica records when it takes the place of one whose disk was lost, only the first record is durable when it
/// crashes: that it has to rejoin. Its incarnation was not recorded. It must not come back in its predecessor's.
#[test]
fn a_replica_that_crashes_as_it_rejoins_comes_back_in_a_new_incarnation() {
    let mut net = Net::new(Variant::Gryff, 3);
    net.ask(0, 1, write("v"));
    net.script(&["c0>0 Write1", "c0>1 Write1", "0>c0 Write1Reply", "1>c0 Write1Reply"]);
    net.lose(&["c0>2 Write1"]);
    net.script(&["c0>0 Apply", "0>c0 Applied"]);
    let late = net.hold("c0>* Apply");
    net.lose_disk(0);
    net.crash(0);
    net.keep_records(0, 1);
    net.lose(&["*>* *"]);
    net.restart(0);
    net.settle();
    assert_eq!(net.gauge(0, "catching_up"), 0);
    // Now 1 holds the value, as the only one.
    net.put_back(late);
    net.script(&["c0>1 Apply", "1>c0 Applied"]);
    net.lose(&["c0>2 Apply"]);
    let acknowledged = net.ended(0, 1);
    net.crash(1);
    net.ask(2, 1, Access::Read);
    net.pass(Duration::from_secs(1));
    let read = net.ended(2, 1);
    assert!(
        acknowledged.is_empty() || read == "v Committed",
        "told `{acknowledged}`, then read `{read}`"
    );
}
