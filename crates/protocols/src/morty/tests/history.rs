//! Reads of the past, and what is told where nothing can be written.

use super::by_hand::{contents, decide, prepare, version};
use super::*;
use crate::morty::Digest;
use crate::morty::message::{CatchingUp, PastRead, Reply, Request, Settlement, Status, Truncating};

const UPTO: u64 = 10_000_000;

fn get_at(at: u64) -> Message {
    Message::Request(Request::GetAt { request: 1, key: Key::from("x"), at: Version::at(at) })
}

fn found(answers: &[(NodeId, Message)]) -> &PastRead {
    match answers {
        [(_, Message::Reply(Reply::GetAtReply { found, .. }))] => found,
        other => panic!("{other:?} answers no read of the past"),
    }
}

/// Three replicas that have settled two writes of `x`, and forgotten the first.
fn overwritten() -> (Net, [Version; 2]) {
    let mut net = morty(1);
    net.start();
    net.now = UPTO - 1_000_000;
    let versions = [version(net.now, 0), version(net.now + 1, 0)];
    let mut merged = Digest::default();
    for (txn, value) in versions.into_iter().zip(["1", "2"]) {
        merged.add(txn, 0);
        let writes = contents(&[], &[("x", value)]);
        (0..3).for_each(|n| {
            net.tell(coordinator_id(0), n, decide(txn, 0, Decision::Commit, &writes));
        });
    }
    for member in 0..3 {
        net.act(member, |replica, cx| {
            let finished =
                Message::Truncating(Truncating::TruncationFinished { upto: UPTO, merged });
            replica.on_message(NodeId(1), finished, cx);
        });
    }
    net.pass(Duration::from_millis(100));
    (net, versions)
}

#[test]
fn the_past_is_readable_as_far_back_as_where_it_was_copied_from() {
    let client = coordinator_id(0);
    let (mut net, [first, second]) = overwritten();
    // What is fetched is complete, unless something was overwritten and forgotten.
    for (txn, from) in [(first, UPTO), (second, 0)] {
        let answers =
            net.tell(NodeId(0), 1, Message::CatchingUp(CatchingUp::Fetch { versions: vec![txn] }));
        let [(_, Message::CatchingUp(CatchingUp::Fetched { readable_from, .. }))] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(*readable_from, from);
    }
    assert!(
        matches!(found(&net.tell(client, 0, get_at(UPTO))), PastRead::Value(id, _) if id.version == second)
    );
    let fetched = Message::CatchingUp(CatchingUp::Fetched {
        executions: Vec::new(),
        readable_from: UPTO + 1,
    });
    net.tell(NodeId(1), 0, fetched);
    assert_eq!(found(&net.tell(client, 0, get_at(UPTO))), &PastRead::Forgotten);
    net.restart(0);
    net.network.clear();
    assert_eq!(
        found(&net.tell(client, 0, get_at(UPTO))),
        &PastRead::Forgotten,
        "after a restart too"
    );
    assert_eq!(found(&net.tell(client, 0, get_at(UPTO + 1))), &PastRead::NotSettled);
}

#[test]
fn a_replica_that_cannot_write_tells_what_leaves_nothing_behind() {
    let client = coordinator_id(0);
    let (mut net, [first, _]) = overwritten();
    let logged = net.nodes[0].records.len();
    let mut tell = |message: Message| {
        let mut answered = false;
        net.act(0, |replica, cx| answered = replica.on_message_read_only(client, message, cx));
        let answers: Vec<_> = net.network.drain(..).map(|(_, to, message)| (to, message)).collect();
        assert_eq!(answered, !answers.is_empty());
        answers
    };
    assert!(matches!(found(&tell(get_at(UPTO))), PastRead::Value(..)));
    let settlement = Settlement::Committed { eid: 0 };
    let settled = Message::Status(Status::Settled { version: first, settlement });
    assert_eq!(tell(Message::Request(Request::Inquire { version: first })), [(client, settled)]);
    let open = version(UPTO + 1_000_000, 0);
    let key = Key::from("x");
    for message in [
        Message::Request(Request::Inquire { version: open }),
        Message::Request(Request::Get { version: open, key }),
        prepare(open, 0, &contents(&[], &[("x", "3")])),
    ] {
        assert_eq!(tell(message), []);
    }
    assert_eq!((net.nodes[0].records.len(), net.nodes[0].undecided()), (logged, 0));
}
