//! Calls that others than their clients finish, or ask about.

use serried_model::{TxnId, Version};

use super::replicated::{began, group_of, is_accept, node, replica, texts, world_with};
use super::*;
use crate::janus::coordinator::Timer;
use crate::janus::message::{
    Accept, Ancestors, Ballot, Commit, Dependencies, Edge, End, Kind, NotAccepted, PreAccept,
    PreAccepted, Results, Task, Vertex, Work,
};
use crate::janus::run::{Requests, Run, Step};

// One coordinator, with answers made by hand.

const ASKED: Ballot = Ballot { number: 7, by: NodeId(0) };

fn members() -> Members {
    Members::replicated(group_of(3))
}

fn call_at(participants: &[u16]) -> Arc<Work> {
    let task = Task::Call(CallOf { set: 1, procedure: 0, inputs: Vec::new() });
    Arc::new(Work { participants: participants.into(), task })
}

fn asked() -> Run {
    Run::unknown(Version::at(5), 0..2, ASKED, &Default::default())
}

fn edges() -> Dependencies {
    Dependencies { edges: Some([].into()), floor_us: 0 }
}

fn pre_accepted() -> PreAccepted {
    PreAccepted {
        txn: Version::at(5),
        ballot: ASKED,
        dependencies: None,
        accepted: None,
        work: None,
        ancestors: Ancestors::default(),
        incarnations: vec![0; 3],
        is_closed: false,
    }
}

fn answer(run: &mut Run, from: NodeId, reply: PreAccepted) -> Step {
    run.on_reply(from, Reply::PreAccepted(Box::new(reply)), &members())
}

fn accepted(run: &mut Run, from: NodeId) -> Step {
    let accepted = Reply::Accepted { txn: Version::at(5), ballot: ASKED, incarnations: vec![0; 3] };
    run.on_reply(from, accepted, &members())
}

fn not_accepted(run: &mut Run, from: NodeId) -> Step {
    let why = NotAccepted::Forgotten;
    run.on_reply(from, Reply::NotAccepted { txn: Version::at(5), why }, &members())
}

fn executed(run: &mut Run, from: NodeId, end: End) -> Step {
    let results = Results::default();
    run.on_reply(from, Reply::Executed { txn: Version::at(5), end, results }, &members())
}

fn sent(step: Step) -> Requests {
    match step {
        Step::Send(requests) => requests,
        other => panic!("{other:?}"),
    }
}

/// Nobody at a partition knows the call.
fn agree_on_void(run: &mut Run, partition: u16) -> Step {
    answer(run, node(partition, 1), pre_accepted());
    answer(run, node(partition, 2), pre_accepted());
    accepted(run, node(partition, 1));
    accepted(run, node(partition, 2))
}

#[test]
fn a_call_that_one_knows_and_another_will_never_take_on_is_void_if_the_third_is_silent() {
    let mut run = asked();
    let work = Some(call_at(&[0]));
    let known = || PreAccepted { dependencies: Some(edges()), ..pre_accepted() };
    answer(&mut run, node(0, 0), PreAccepted { work, ..known() });
    answer(&mut run, node(0, 0), known());
    let closed = PreAccepted { is_closed: true, ..pre_accepted() };
    let requests = sent(answer(&mut run, node(0, 1), closed));
    assert!(requests.is_empty(), "the third one may have taken it on");
    let requests = sent(run.hurry(&members()));
    let is_void = |request: &Request| match request {
        Request::Accept(accept) => accept.dependencies.edges.is_none(),
        _ => false,
    };
    assert!(requests.iter().any(|(_, request)| is_void(request)), "{requests:?}");
}

#[test]
fn a_call_that_only_one_knows_is_taken_on_by_others_that_can() {
    let mut run = asked();
    let known = || PreAccepted { dependencies: Some(edges()), ..pre_accepted() };
    answer(&mut run, node(0, 0), PreAccepted { work: Some(call_at(&[0])), ..known() });
    answer(&mut run, node(0, 0), known());
    answer(&mut run, node(0, 1), pre_accepted());
    let requests = sent(run.hurry(&members()));
    assert!(requests.iter().all(|(_, request)| matches!(request, Request::PreAccept(_))));
}

/// A replica that has reported in one attempt has not promised to take part in the next one.
#[test]
fn what_was_reported_in_a_former_attempt_does_not_count_in_the_next_one() {
    let mut run = asked();
    let known = || PreAccepted { dependencies: Some(edges()), ..pre_accepted() };
    answer(&mut run, node(0, 0), PreAccepted { work: Some(call_at(&[0])), ..known() });
    answer(&mut run, node(0, 0), known());
    let ballot = Ballot { number: 8, ..ASKED };
    assert_eq!(run.restart(ballot, &members()).len(), 3, "all are asked again");
    answer(&mut run, node(0, 1), PreAccepted { ballot, ..known() });
    let requests = sent(run.hurry(&members()));
    let asks = |(_, request): &(NodeId, Request)| matches!(request, Request::PreAccept(_));
    assert!(requests.len() == 2 && requests.iter().all(asks), "{requests:?}");
}

/// One partition has settled everything of the call's time and does not know it. The other one knows it.
#[test]
fn an_inquiry_is_not_over_when_one_partition_does_not_know_the_call() {
    let mut run = asked();
    assert!(sent(not_accepted(&mut run, node(1, 0))).is_empty());
    assert!(run.unanswered(&members()).iter().all(|(to, _)| to.partition() == 0));
    let vertex =
        Vertex { txn: Version::at(5), participants: [0].into(), edges: [].into(), floor_us: 0 };
    let commit = Arc::new(Commit { vertex, ancestors: Ancestors::default() });
    let work = Some(call_at(&[0]));
    let committed = Reply::Committed { txn: Version::at(5), work, commit };
    sent(run.on_reply(node(0, 0), committed, &members()));
    let step = executed(&mut run, node(0, 0), End::Executed);
    assert!(matches!(step, Step::Executed(Some(End::Executed), _)), "{step:?}");
}

/// Each partition may have forgotten the call, or have none of its pieces.
#[test]
fn an_inquiry_about_a_call_that_nobody_knows_any_more_does_not_say_that_it_had_no_effect() {
    for void_is_first in [true, false] {
        let mut run = asked();
        if void_is_first {
            sent(agree_on_void(&mut run, 0));
        } else {
            sent(not_accepted(&mut run, node(1, 0)));
        }
        let step = match void_is_first {
            true => not_accepted(&mut run, node(1, 0)),
            false => agree_on_void(&mut run, 0),
        };
        assert!(matches!(step, Step::NotAccepted(NotAccepted::Forgotten)), "{step:?}");
    }
}

/// The partitions that had promised to take part, and have none of its pieces, learn that.
#[test]
fn an_inquiry_says_where_the_call_has_no_pieces_once_that_is_known() {
    let mut run = asked();
    assert!(sent(agree_on_void(&mut run, 1)).is_empty(), "it may have pieces elsewhere");
    let known = || PreAccepted { dependencies: Some(edges()), ..pre_accepted() };
    let first = PreAccepted { work: Some(call_at(&[0])), ..known() };
    let requests = sent(answer(&mut run, node(0, 0), first));
    let voids = requests
        .iter()
        .filter(|(to, request)| to.partition() == 1 && matches!(request, Request::Void { .. }));
    assert_eq!(voids.count(), 3, "{requests:?}");
    for member in 0..2 {
        assert!(sent(answer(&mut run, node(0, member), known())).is_empty());
    }
    let requests = sent(answer(&mut run, node(0, 2), known()));
    let is_commit = |(to, request): &(NodeId, Request)| {
        to.partition() == 0 && matches!(request, Request::Commit(_))
    };
    assert_eq!(requests.iter().filter(|request| is_commit(request)).count(), 3, "{requests:?}");
}

/// Somebody has proposed edges for a call that nobody has taken on: the message was damaged.
#[test]
fn edges_that_nobody_can_have_proposed_do_not_keep_a_call_from_being_void() {
    let mut run = asked();
    let accepted = Some((Ballot::FIRST, edges()));
    sent(answer(&mut run, node(0, 1), PreAccepted { accepted, ..pre_accepted() }));
    let requests = sent(answer(&mut run, node(0, 2), pre_accepted()));
    let is_void = |request: &Request| match request {
        Request::Accept(accept) => accept.dependencies.edges.is_none(),
        _ => false,
    };
    assert!(requests.iter().any(|(_, request)| is_void(request)), "{requests:?}");
}

/// The call is void, and one partition has settled everything of its time.
#[test]
fn an_inquiry_about_a_void_call_ends_although_a_partition_has_nothing_of_it() {
    let mut run = asked();
    sent(agree_on_void(&mut run, 0));
    sent(agree_on_void(&mut run, 1));
    assert!(sent(executed(&mut run, node(0, 0), End::Void)).is_empty());
    let step = not_accepted(&mut run, node(1, 0));
    assert!(matches!(step, Step::Executed(Some(End::Void), _)), "{step:?}");
}

#[test]
fn of_replicas_that_outbid_each_other_those_with_higher_numbers_wait_longer() {
    let looks = |member: usize, restarts: usize| {
        let mut run = asked();
        for _ in 0..restarts {
            run.restart(ASKED, &members());
        }
        (0..).take_while(|_| !run.is_due(member)).count()
    };
    assert_eq!([looks(0, 0), looks(1, 0), looks(0, 3)], [0, 0, 0]);
    assert_eq!([looks(1, 1), looks(2, 1), looks(1, 3)], [1, 2, 3]);
    assert_eq!(looks(1, 1000), looks(1, 5));
}

// Whole partitions.

/// A partition has settled the time of a call that has no pieces there.
#[test]
fn an_inquiry_about_a_call_that_is_over_finds_its_results() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    net.settle();
    let call = began(&net);
    net.pass(Duration::from_secs(1));
    net.operate(2, 3, Operation::Inquire { call });
    net.settle_where(|(from, to, _)| from.partition() != 0 && to.partition() != 0);
    net.settle_where(|(from, to, _)| from.is_coordinator() && to.partition() == 1);
    net.settle();
    assert_eq!(results(&net).last().map(|(txn, _)| *txn), Some(3));
}

/// Somebody has begun to make a call void, and another coordinator has overtaken that and committed it.
#[test]
fn an_inquiry_that_was_overtaken_learns_the_outcome() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    let sent = net.take(|(from, ..)| *from == client_id(1));
    net.leave(client_id(1));
    let call_id = began(&net);
    net.operate(2, 3, Operation::Inquire { call: call_id });
    for envelope in net.take(|(from, to, _)| *from == client_id(2) && to.member() > 0) {
        net.deliver(envelope);
    }
    net.settle_where(|(from, ..)| *from != client_id(2));
    net.clients_idle = true;
    let accepts = net.take(|(from, ..)| *from == client_id(2));
    assert!(accepts.iter().any(|(.., message)| is_accept(message)));
    for envelope in sent.into_iter().filter(|(_, to, _)| to.member() == 0) {
        net.deliver(envelope);
    }
    net.pass(Duration::from_millis(1200));
    assert_eq!(texts(&mut net, at(0)), vec![Some("7 ".to_owned()); 3]);
    for envelope in accepts {
        net.deliver(envelope);
    }
    net.settle();
    assert_eq!(results(&net), [(3, vec![String::new(); 2])]);
}

/// Another coordinator has begun a later attempt, of which the client has not heard.
#[test]
fn edges_of_an_attempt_before_the_promised_one_are_not_accepted() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let txn = began(&net);
    net.settle_where(|(_, to, _)| *to != client_id(1));
    let own = node(0, 0);
    let later = Ballot { number: 9, by: client_id(2) };
    let promise = PreAccept { txn, work: None, insist: true, ballot: later };
    let promise = Message::Request(Request::PreAccept(promise));
    let answers = net.answers(client_id(2), own, promise);
    let [(.., Message::Reply(Reply::PreAccepted(_)))] = &answers[..] else {
        panic!("{answers:?}");
    };
    let accepted = Reply::Accepted { txn, ballot: later, incarnations: Vec::new() };
    for (by, ballot, wanted) in [
        (client_id(1), Ballot::FIRST, Reply::Promised { txn, ballot: later }),
        (client_id(2), later, accepted),
    ] {
        let accept = Accept { txn, ballot, dependencies: edges(), incarnations: Vec::new() };
        let answers = net.answers(by, own, Message::Request(Request::Accept(accept)));
        assert_eq!(answers, [(own, by, Message::Reply(wanted))]);
    }
}

/// Another coordinator has begun a later attempt, and is gone. The client begins one that is later still, of which nobody
/// hears.
#[test]
fn an_attempt_that_was_begun_again_is_repeated_until_it_is_answered() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let txn = began(&net);
    let first = net.take(|(from, ..)| *from == client_id(1));
    let ballot = Ballot { number: 1, by: client_id(2) };
    let later = PreAccept { txn, work: None, insist: true, ballot };
    for member in 0..3 {
        let message = Message::Request(Request::PreAccept(later.clone()));
        net.deliver((client_id(2), node(0, member), message));
    }
    net.take(|(_, to, _)| *to == client_id(2));
    first.into_iter().for_each(|envelope| net.deliver(envelope));
    net.settle();
    net.fire_client(client_id(1), Timer::Repeat(TxnId(2)));
    let lost = net.take(|(from, ..)| *from == client_id(1));
    assert_eq!(lost.len(), 3);
    net.pass(Duration::from_millis(500));
    assert_eq!(results(&net).len(), 1);
}

/// A client asks everywhere for the outcome of a call. It is on a cycle with another one, which also has pieces where this
/// one has none.
#[test]
fn a_question_blocks_nothing_once_it_is_known_where_the_call_has_pieces() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let call_id = began(&net);
    net.operate(2, 3, Operation::Inquire { call: call_id });
    for envelope in net.take(|(from, to, _)| *from == client_id(2) && to.partition() == 1) {
        net.deliver(envelope);
    }
    call(&mut net, 0, 4, "both", &[at(0), at(1), 7]);
    // One replica takes them on in the opposite order.
    let late = net.take_first(|(from, to, _)| *from == client_id(1) && *to == node(0, 2));
    let early = net.take_first(|(from, to, _)| *from == client_id(0) && *to == node(0, 2));
    net.deliver(early.unwrap());
    net.deliver(late.unwrap());
    net.settle();
    let mut done: Vec<u64> = results(&net).iter().map(|(txn, _)| *txn).collect();
    done.sort_unstable();
    assert_eq!(done, [2, 3, 4]);
}

/// Nobody has executed the ancestor, and everything of its time was executed everywhere.
#[test]
fn an_edge_to_a_call_that_never_took_place_is_no_obstacle() {
    let mut net = world_with(Mutated::NONE);
    net.pass(Duration::from_secs(3));
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let call_id = began(&net);
    net.settle_where(|(_, to, _)| *to != client_id(1));
    net.leave(client_id(1));
    let dead = Version::at(net.clock_us() - 1_600_000);
    let edges = [Edge { from: dead, kind: Kind::Deferred, at: 0 }].into();
    let vertex = Vertex { txn: call_id, participants: [0].into(), edges, floor_us: 0 };
    let commit = Arc::new(Commit { vertex, ancestors: Ancestors::default() });
    for member in 0..3 {
        let message = Message::Request(Request::Commit(commit.clone()));
        net.deliver((client_id(1), node(0, member), message));
    }
    assert_eq!(texts(&mut net, at(0)), vec![Some("7 7 ".to_owned()); 3]);
}

/// Another client has registered a later set, under which the call began.
#[test]
fn a_client_with_an_older_set_learns_the_outcome_of_a_call_under_a_later_one() {
    let mut net = world_with(Mutated::NONE);
    assert_eq!(register(&mut net, other_set()), Registration::InUse { version: 2 });
    net.operate(1, 1, Operation::List);
    net.settle();
    call(&mut net, 1, 2, "both", &[at(0), at(1), 7]);
    net.settle();
    let call_id = net.outputs.iter().rev().find_map(|(_, (_, output))| match output {
        Output::Began(call) => Some(*call),
        _ => None,
    });
    net.operate(2, 3, Operation::Inquire { call: call_id.expect("it has begun") });
    net.pass(Duration::from_secs(1));
    assert_eq!(results(&net).last().map(|(txn, _)| *txn), Some(3));
}

/// The servers have registered a set and forgotten how, while its client heard nothing.
#[test]
fn a_registration_that_was_forgotten_is_in_use() {
    for replaces in [None, Some(1)] {
        let mut net = world_with(Mutated::NONE);
        net.operate(0, 0, Operation::Register { set: other_set(), replaces });
        net.settle_where(|(_, to, _)| *to != client_id(0));
        net.clients_idle = true;
        let replicas = (0..6).map(|number| node(number / 3, usize::from(number % 3)));
        net.cut.extend(replicas.map(|replica| (replica, client_id(0))));
        net.take(|(_, to, _)| *to == client_id(0));
        net.pass(Duration::from_secs(9));
        net.cut.clear();
        net.clients_idle = false;
        net.pass(Duration::from_secs(2));
        let registered = net.outputs.iter().find_map(|(_, (_, output))| match output {
            Output::Registered(registration) => Some(registration.clone()),
            _ => None,
        });
        assert_eq!(registered, Some(Registration::InUse { version: 2 }));
    }
}

/// A replica hears of nobody after it has learned that a call commits, which waits for another one.
#[test]
fn a_replica_that_restarts_knows_the_edges_of_calls_that_have_waited() {
    let mut net = world_with(Mutated::NONE);
    call(&mut net, 1, 2, "both", &[at(0), at(0), 7]);
    let call_id = began(&net);
    net.settle_where(|(_, to, _)| *to != client_id(1));
    net.leave(client_id(1));
    let own = node(0, 2);
    let others: Vec<NodeId> = net.ids().into_iter().filter(|other| *other != own).collect();
    net.cut.extend(others.iter().flat_map(|other| [(own, *other), (*other, own)]));
    let unknown = Version::at(net.clock_us());
    let edges = [Edge { from: unknown, kind: Kind::Deferred, at: 1 }].into();
    let vertex = Vertex { txn: call_id, participants: [0].into(), edges, floor_us: 0 };
    let commit = Arc::new(Commit { vertex, ancestors: Ancestors::default() });
    net.deliver((client_id(2), own, Message::Request(Request::Commit(commit))));
    net.pass(Duration::from_millis(600));
    net.crash(own);
    net.restart(own, replica(own, Mutated::NONE));
    assert_eq!(net.gauge(own, "known_vertices"), 1);
    assert_eq!(texts(&mut net, at(0))[2], None, "it waits");
}

/// Janus-CC: what was executed before a restart is forgotten like everything else.
#[test]
fn a_replica_that_is_alone_forgets_what_it_executed_before_a_restart() {
    let settings = Settings { truncation_lag_ms: 300, outcomes_ms: 2000, ..Settings::default() };
    let alone = |id| Replica::new(id, Members::alone(group(1)), &settings, Mutated::NONE);
    let mut net = Net::new(2, 1, alone)
        .with_clients(1, |_| Coordinator::new(Members::alone(group(1)), &settings));
    net.set_clock_us(1_000_000_000);
    net.tick = 1;
    net.start();
    assert_eq!(register(&mut net, set()), Registration::InUse { version: 1 });
    call(&mut net, 0, 1, "both", &[at(0), at(1), 7]);
    net.settle();
    for partition in 0..2 {
        let id = NodeId::replica(partition, 0);
        net.crash(id);
        net.restart(id, alone(id));
        assert!(net.gauge(id, "remembered_transactions") > 0);
    }
    net.pass(Duration::from_secs(9));
    for partition in 0..2 {
        let id = NodeId::replica(partition, 0);
        assert_eq!(net.gauge(id, "remembered_transactions"), 0);
    }
}
