//! Calls that are finished by other nodes than the client, when some partitions have executed them already.

use super::super::merged::{Hold, HoldEnd, HoldReply};
use super::super::message::{
    Ancestors, CallOf, Inputs, Message, Occurrence, Reply, Request, Start, Started, StartedPiece,
};
use super::super::registered::Registered;
use super::super::run::{Requests, Run, Step};
use super::super::sound;
use super::*;
use hand::{Hand, r};
use hunted::{Hunt, explore_more};
use serried_procedures::limits::MAX_DATA_OF_CALL;
use serried_procedures::{Call, PieceId, placement_key};

fn sent(step: Step) -> Requests {
    match step {
        Step::Send(requests) => requests,
        step => panic!("{step:?}"),
    }
}

fn procedure(set: &Registered, name: &str) -> u16 {
    let at = set.set().procedures.iter().position(|procedure| &*procedure.name == name);
    at.expect("there is one") as u16
}

fn started(txn: Version, piece: u16, outcome: Option<&str>) -> Started {
    let outcome = outcome.map(|text| Ok(vec![Datum::String(text.into())]));
    Started {
        txn,
        pieces: vec![StartedPiece { piece: PieceId(piece), number: 0, outcome }],
        attempts: Vec::new(),
        edges: Vec::new(),
        ancestors: Ancestors::default(),
        is_over: true,
        is_closed: false,
    }
}

/// A leader that has executed its part finishes the call, and finds out later that it has this part.
#[test]
fn a_start_that_is_lost_is_repeated_although_the_partition_has_executed_the_call() {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(3);
    let set = Arc::new(Registered::new(1, set(More::None)));
    let procedure = procedure(&set, "chain");
    let txn = Version::at(1_000_000);
    let partition = |id: i64| group.partition_of(&placement_key(&[Datum::Int(id)]));
    // What `chain` finds is empty, so that it appends to list 0.
    let q = partition(0);
    let head =
        (1..LISTS).find(|head| partition(*head) != q).expect("several partitions have heads");
    let p = partition(head);
    let inputs: Vec<Datum> = [head, 7].into_iter().map(Datum::Int).collect();
    let encoded = Inputs::new(&inputs);
    let of = Arc::new(CallOf { set: 1, procedure, inputs: encoded, reads: Vec::new() });
    let call = Call::new(set.procedure(procedure).unwrap(), inputs).unwrap();
    let mut run = Run::new(txn, of, set, call).insisting().with_participant(q);
    let requests = sent(run.begin(&group));
    assert!(matches!(requests[..], [(at, Request::Start(_))] if at == p), "{requests:?}");
    assert!(sent(run.on_reply(q, Reply::Started(started(txn, 1, None)), &group)).is_empty());
    let requests = sent(run.on_reply(p, Reply::Started(started(txn, 0, Some(""))), &group));
    let asks_q = |requests: &[(u16, Request)]| matches!(requests, [(at, Request::Start(start))] if *at == q && start.pieces.len() == 1);
    assert!(asks_q(&requests), "{requests:?}");
    assert!(asks_q(&run.unanswered()), "{:?}", run.unanswered());
    let requests = sent(run.on_reply(q, Reply::Started(started(txn, 1, None)), &group));
    let commits = |(_, request): &(u16, Request)| matches!(request, Request::Commit(_));
    assert!(requests.len() == 2 && requests.iter().all(commits), "{requests:?}");
}

/// In these, a partition has executed a call and tells so a leader that finishes it, before this has found out all of its
/// pieces.
#[test]
fn calls_that_are_over_at_some_partitions_end_at_all() {
    for (seed, registers) in [(575, true), (801, true), (32, false), (130, false), (139, false)] {
        let hunt = Hunt { registers, ..hunted::NONE };
        assert_eq!(explore_more(seed, 1, hand::short(), hunt), Ok(()), "seed {seed}");
    }
}

/// In this, no partition answers a call for longer than outcomes are known. It may have been executed meanwhile.
#[test]
fn a_call_that_is_not_answered_for_long_may_be_forgotten() {
    let merged = Hunt { more: More::Merged, ..hunted::NONE };
    assert_eq!(explore_more(111, 1, hand::short(), merged), Ok(()));
}

fn occurrence(piece: u16, argument: Datum) -> Occurrence {
    Occurrence { piece: PieceId(piece), number: 0, arguments: [argument, Datum::Int(7)].into() }
}

/// A `hop` at a partition, of which the test plays the client.
struct Hop {
    hand: Hand,
    txn: Version,
    call: Arc<CallOf>,
}

impl Hop {
    fn new() -> Hop {
        // Nobody else finishes it.
        let settings = Settings { recovery_after_ms: 10_000, ..Settings::default() };
        let mut hand = Hand::new(1, 1, settings);
        let set = set(More::Merged);
        hand.register(set.clone());
        let procedure = procedure(&Registered::new(1, set), "hop");
        let inputs = Inputs::new(&[Datum::Int(0), Datum::Int(7)]);
        let call = Arc::new(CallOf { set: 1, procedure, inputs, reads: Vec::new() });
        let coordinator = testing::client_id(0);
        let txn = Version { timestamp_us: hand.net.clock_us(), coordinator };
        Hop { hand, txn, call }
    }

    fn start(&self, piece: Occurrence) -> Start {
        Start { txn: self.txn, call: self.call.clone(), insist: true, pieces: vec![piece] }
    }

    fn hold(&self, piece: Occurrence, attempt: u64) -> Hold {
        Hold { start: self.start(piece), group: 0, attempt }
    }

    /// Sends a request, and returns the answers.
    fn ask(&mut self, request: Request) -> Vec<Message> {
        let (client, net) = (self.txn.coordinator, &mut self.hand.net);
        net.deliver((client, r(0), Message::Request(request)));
        let replies = net.take(|(_, to, _)| *to == client);
        replies.into_iter().map(|(.., message)| message).collect()
    }

    /// How many merged pieces hold rows.
    fn held(&self) -> u64 {
        self.hand.net.gauge(r(0), "held_merged_pieces")
    }

    fn restart_server(&mut self) {
        let Hand { net, group, settings, .. } = &mut self.hand;
        net.crash(r(0));
        net.restart(r(0), Replica::new(r(0), group.clone(), settings, Mutated::NONE));
        net.pass(Duration::from_secs(1));
    }
}

/// The second attempt of a `hop` has succeeded. Then a request of the first one comes, in which other pieces were due.
#[test]
fn nothing_is_held_for_a_failed_attempt_once_pieces_of_the_merged_piece_are_started() {
    let mut hop = Hop::new();
    let one = || occurrence(0, Datum::Int(0));
    let two = || occurrence(1, Datum::String("".into()));
    hop.ask(Request::Hold(hop.hold(one(), 2)));
    assert_eq!(hop.held(), 1);
    hop.ask(Request::Start(hop.start(one())));
    assert_eq!(hop.held(), 0);
    // The next leader knows it too.
    for restarts in [false, true] {
        if restarts {
            hop.restart_server();
        }
        let replies = hop.ask(Request::Hold(hop.hold(two(), 1)));
        assert_eq!(hop.held(), 0);
        let names_attempt = |message: &Message| matches!(message, Message::Reply(Reply::Started(started)) if started.attempts == [(0, 2)]);
        assert!(replies.iter().any(names_attempt), "{replies:?}");
    }
}

/// An attempt is given up. Then a request of it comes that was repeated.
#[test]
fn nothing_is_held_again_for_an_attempt_that_has_failed() {
    let mut hop = Hop::new();
    let hold = |hop: &Hop, attempt| hop.hold(occurrence(0, Datum::Int(0)), attempt);
    hop.ask(Request::Hold(hold(&hop, 1)));
    assert_eq!(hop.held(), 1);
    hop.ask(Request::Release(hold(&hop, 1)));
    assert_eq!(hop.held(), 0);
    // The next leader knows it too.
    for restarts in [false, true] {
        if restarts {
            hop.restart_server();
        }
        let replies = hop.ask(Request::Hold(hold(&hop, 1)));
        assert_eq!(hop.held(), 0);
        let is_failure = |message: &Message| match message {
            Message::Reply(Reply::Hold(HoldReply { attempt, end, .. })) => {
                (*attempt, end) == (1, &HoldEnd::NotHeld)
            }
            _ => false,
        };
        assert!(replies.iter().any(is_failure), "{replies:?}");
    }
    hop.ask(Request::Hold(hold(&hop, 2)));
    assert_eq!(hop.held(), 1, "the next attempt can succeed");
}

#[test]
fn the_inputs_of_merged_pieces_are_bounded() {
    let hop = Hop::new();
    let mut hold = hop.hold(occurrence(0, Datum::Int(0)), 1);
    let are_sound = |hold: &Hold| {
        [Request::Hold(hold.clone()), Request::Release(hold.clone())].map(|request| {
            let message = Message::Request(request);
            sound::to_replica(hop.txn.coordinator, &message, 0, &hop.hand.group)
        })
    };
    assert_eq!(are_sound(&hold), [true; 2]);
    let large = Datum::Bytes(vec![0; MAX_DATA_OF_CALL as usize].into());
    Arc::make_mut(&mut hold.start.call).inputs = Inputs::new(&[large]);
    assert_eq!(are_sound(&hold), [false; 2]);
}
