//! Further rounds of read-only calls, which name the answers of former ones.

use super::super::message::{Again, Message, OnConflict, Read, Reply, Request};
use super::*;
use hand::{Hand, OF_HAND, compiled, r, short, with};

pub(super) type Envelope = testing::Envelope<Message>;

pub(super) const LAST: &str = r#"
[tables.head]
key = { id = "int" }
columns = { n = "int" }

[procedures.advance]
inputs = { a = "int" }
[procedures.advance.pieces.one]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
writes.row.n = "row.n + 1"

[procedures.last]
inputs = { a = "int" }
returns = { n = "size(row.n)", sum = "sum(row.n)" }
[procedures.last.pieces.head]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.n"]
outputs.numbers = "range(row.n - 3, row.n, 3)"
[procedures.last.pieces.row]
for_each = { number = "head.numbers" }
rows = { row = { table = "t", key = ["number"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

/// Two partitions. The first input is a row of the first one, which is 5.
pub(super) fn two_partitions() -> (Hand, [i64; 2]) {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(1, 0)];
    hand.call(1, "put", &[inputs[0], 5]);
    hand.call(0, "get", &inputs);
    (hand, inputs)
}

/// Takes the requests of read-only calls that are under way, in the order of their partitions.
pub(super) fn requests(hand: &mut Hand) -> Vec<Envelope> {
    let mut requests = hand.net.take(|(.., message)| is_read(message));
    requests.sort_by_key(|(_, to, _)| *to);
    requests
}

pub(super) fn is_read(message: &Message) -> bool {
    matches!(message, Message::Request(Request::Read(_)))
}

pub(super) fn read((.., message): &Envelope) -> &Read {
    match message {
        Message::Request(Request::Read(read)) => read,
        other => panic!("{other:?}"),
    }
}

/// Whether a request does not wait for transactions that conflict.
pub(super) fn fails(envelope: &Envelope) -> bool {
    read(envelope).on_conflict == OnConflict::Fail
}

/// Whether a request sends no pieces, as it names a former answer.
fn is_named(envelope: &Envelope) -> bool {
    let read = read(envelope);
    read.pieces.is_empty() && read.known.is_empty() && read.again.len() == 1
}

/// Delivers a request, and takes the answer to it.
fn answer(hand: &mut Hand, request: Envelope) -> Envelope {
    let (client, server) = (request.0, request.1);
    let is_answer = |envelope: &Envelope| {
        let (from, to, message) = envelope;
        let is_read = matches!(message, Message::Reply(Reply::Read { .. }));
        (*from, *to) == (server, client)
            && (is_read || is_forgotten(envelope) || is_conflict(envelope))
    };
    hand.net.deliver(request);
    loop {
        if let Some(answer) = hand.net.take_first(is_answer) {
            return answer;
        }
        assert!(hand.net.step(), "there is no answer");
    }
}

/// Delivers these requests, and the answers to them.
pub(super) fn answer_all(hand: &mut Hand, requests: Vec<Envelope>) {
    for request in requests {
        let answer = answer(hand, request);
        hand.net.deliver(answer);
    }
}

/// Begins a call, and returns its number and the requests of its second round.
pub(super) fn second_round(hand: &mut Hand, inputs: &[i64]) -> (u64, Vec<Envelope>) {
    let call = hand.begin(0, "get", inputs);
    let first = requests(hand);
    answer_all(hand, first);
    (call, requests(hand))
}

/// Another client calls something. What client 0 repeats meanwhile is lost.
pub(super) fn call_meanwhile(hand: &mut Hand, procedure: &str, inputs: &[i64]) {
    let links = hand.net.ids().into_iter().map(|server| (testing::client_id(0), server));
    hand.net.cut.extend(links);
    hand.call(1, procedure, inputs);
    hand.net.cut.clear();
}

/// The results of a call, which ends without further ado.
pub(super) fn results(hand: &mut Hand, number: u64) -> Vec<i64> {
    hand.run(2000);
    let Some(Outcome::Done(results)) = hand.outcome(number) else { panic!("no results") };
    let int = |datum: &Datum| match datum {
        Datum::Int(int) => *int,
        other => panic!("{other}"),
    };
    results.data.iter().map(int).collect()
}

fn is_forgotten((.., message): &Envelope) -> bool {
    matches!(message, Message::Reply(Reply::ReadForgotten { .. }))
}

#[test]
fn a_further_round_names_the_answers_of_the_one_before() {
    let (mut hand, inputs) = two_partitions();
    let call = hand.begin(0, "get", &inputs);
    let first = requests(&mut hand);
    assert!(first.len() == 2 && !first.iter().any(is_named), "{first:?}");
    answer_all(&mut hand, first);
    let second = requests(&mut hand);
    assert!(second.len() == 2 && second.iter().all(is_named), "{second:?}");
    answer_all(&mut hand, second);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [5, 0]);
}

#[test]
fn a_row_that_was_written_between_rounds_is_another_one_though_its_value_is_the_same() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    call_meanwhile(&mut hand, "put", &[inputs[0], 5]);
    answer_all(&mut hand, second);
    let third = requests(&mut hand);
    assert!(third.len() == 2 && third.iter().all(is_named), "{third:?}");
    answer_all(&mut hand, third);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [5, 0]);
}

/// A request is repeated, and its answers differ. The client gets the first one.
#[test]
fn what_a_repeated_request_has_read_is_not_taken_for_what_the_client_knows() {
    let (mut hand, inputs) = two_partitions();
    let call = hand.begin(0, "get", &inputs);
    let first = requests(&mut hand);
    let [one, other] = &first[..] else { panic!("{first:?}") };
    let early = answer(&mut hand, one.clone());
    call_meanwhile(&mut hand, "two", &inputs);
    assert_ne!(answer(&mut hand, one.clone()), early);
    let late = answer(&mut hand, other.clone());
    hand.net.deliver(early);
    hand.net.deliver(late);
    let second = requests(&mut hand);
    assert!(second.iter().all(is_named), "{second:?}");
    answer_all(&mut hand, second);
    assert_eq!(requests(&mut hand).len(), 2, "the rounds have found different versions");
    assert_eq!(results(&mut hand, call), [6, 1]);
}

/// The answer to the second request is that its pieces are forgotten, and it comes first.
#[test]
fn a_request_that_names_an_answer_and_is_repeated_does_no_harm() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    let [one, other] = &second[..] else { panic!("{second:?}") };
    let read = answer(&mut hand, one.clone());
    call_meanwhile(&mut hand, "two", &inputs);
    let forgotten = answer(&mut hand, one.clone());
    assert!(!is_forgotten(&read) && is_forgotten(&forgotten), "{read:?} {forgotten:?}");
    hand.net.deliver(forgotten);
    hand.net.deliver(read);
    answer_all(&mut hand, vec![other.clone()]);
    let again = requests(&mut hand);
    assert!(again.len() == 1 && !is_named(&again[0]), "{again:?}");
    answer_all(&mut hand, again);
    assert_eq!(results(&mut hand, call), [6, 1]);
}

#[test]
fn a_leader_that_restarts_gets_the_pieces_again_and_the_versions() {
    for changes in [false, true] {
        let (mut hand, inputs) = two_partitions();
        let (call, second) = second_round(&mut hand, &inputs);
        let [one, other] = &second[..] else { panic!("{second:?}") };
        // The client's own repetitions are lost.
        hand.net.cut.extend([r(0), r(1)].map(|server| (testing::client_id(0), server)));
        hand.net.crash(r(0));
        let fresh = Replica::new(r(0), hand.group.clone(), &hand.settings, Mutated::NONE);
        hand.net.restart(r(0), fresh);
        hand.run(1000);
        if changes {
            hand.call(1, "put", &[inputs[0], 7]);
        }
        hand.net.cut.clear();
        let forgotten = answer(&mut hand, one.clone());
        let known = answer(&mut hand, other.clone());
        assert!(is_forgotten(&forgotten) && !is_forgotten(&known), "{forgotten:?} {known:?}");
        hand.net.deliver(known);
        hand.net.deliver(forgotten);
        let again = requests(&mut hand);
        assert!(again.len() == 1 && !is_named(&again[0]), "{again:?}");
        answer_all(&mut hand, again);
        assert_eq!(requests(&mut hand).is_empty(), !changes, "a change takes another round");
        let wanted = if changes { [7, 0] } else { [5, 0] };
        assert_eq!(results(&mut hand, call), wanted, "{changes}");
    }
}

#[test]
fn a_request_that_was_not_answered_is_repeated_with_its_pieces() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    assert!(second.iter().all(is_named), "{second:?}");
    hand.net.wait(Duration::from_secs(5));
    hand.net.fire_due_clients();
    let repeated = requests(&mut hand);
    let sends = |envelope: &Envelope| read(envelope).again.is_empty() && !is_named(envelope);
    assert!(repeated.len() == 2 && repeated.iter().all(sends), "{repeated:?}");
    answer_all(&mut hand, repeated);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [5, 0]);
}

#[test]
fn pieces_that_a_call_does_not_read_any_more_are_not_read_again() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with(LAST));
    hand.run(1000);
    hand.call(1, "advance", &[0]);
    hand.call(0, "last", &[0]);
    let call = hand.begin(0, "last", &[0]);
    for _ in 0..2 {
        let first = requests(&mut hand);
        assert!(first.len() == 1 && !is_named(&first[0]), "{first:?}");
        answer_all(&mut hand, first);
    }
    let second = requests(&mut hand);
    call_meanwhile(&mut hand, "advance", &[0]);
    answer_all(&mut hand, second);
    let more = requests(&mut hand);
    assert!(more.len() == 1 && read(&more[0]).pieces.len() == 1, "a row came in: {more:?}");
    answer_all(&mut hand, more);
    let third = requests(&mut hand);
    let again = &read(&third[0]).again;
    let kept: Vec<_> = again.iter().map(|Again { kept, .. }| kept.as_slice()).collect();
    // The head, and the rows but for the first; then the row that came in.
    assert_eq!(kept, [&[(0, 1), (2, 4)][..], &[(0, 1)]], "{third:?}");
    answer_all(&mut hand, third);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [3, 0]);
}

#[test]
fn each_round_finds_its_pieces_anew() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(with(LAST));
    hand.run(1000);
    for number in 0..6 {
        hand.call(1, "put", &[number, 1 << number]);
    }
    for _ in 0..3 {
        hand.call(1, "advance", &[0]);
    }
    assert_eq!(hand.call(0, "last", &[0]), [3, 0b111]);
    let call = hand.begin(0, "last", &[0]);
    for _ in 0..2 {
        let first = requests(&mut hand);
        answer_all(&mut hand, first);
    }
    // Two rounds in a row, each with another first row than the one before.
    for _ in 0..2 {
        let round = requests(&mut hand);
        call_meanwhile(&mut hand, "advance", &[0]);
        answer_all(&mut hand, round);
        let more = requests(&mut hand);
        assert!(more.len() == 1 && read(&more[0]).pieces.len() == 1, "a row came in: {more:?}");
        answer_all(&mut hand, more);
    }
    let last = requests(&mut hand);
    answer_all(&mut hand, last);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [3, 0b11100]);
}

const FOUND: &str = r#"
[tables.head]
key = { g = "int" }
columns = { n = "int" }

[tables.t]
key = { g = "int", id = "int" }
placed_by = 1
columns = { n = "int" }

[procedures.put]
inputs = { g = "int", id = "int", n = "int" }
[procedures.put.pieces.one]
rows = { row = { table = "t", key = ["g", "id"] } }
writes.row.n = "n"

[procedures.find]
inputs = { g = "int" }
returns = { n = "one.n" }
[procedures.find.pieces.one]
rows = { head = ["g"], row = { table = "t", key = ["g", "head.n"] } }
reads = ["head.n", "row.n"]
outputs.n = "row.n"
"#;

/// Which row it is follows from another one. It is not there in the first round.
#[test]
fn a_row_whose_key_is_known_in_part_has_changed_when_it_is_written_for_the_first_time() {
    let mut hand = Hand::new(1, 1, short());
    hand.register(compiled(FOUND));
    hand.run(1000);
    assert_eq!(hand.call(0, "find", &[1]), [0]);
    hand.call(1, "put", &[2, 0, 3]);
    let (call, second) = {
        let call = hand.begin(0, "find", &[1]);
        let first = requests(&mut hand);
        answer_all(&mut hand, first);
        (call, requests(&mut hand))
    };
    call_meanwhile(&mut hand, "put", &[1, 0, 7]);
    answer_all(&mut hand, second);
    let third = requests(&mut hand);
    assert_eq!(third.len(), 1, "the second round has found something else");
    answer_all(&mut hand, third);
    assert_eq!(results(&mut hand, call), [7]);
}

// Rounds that do not wait.

pub(super) fn is_commit((.., message): &Envelope) -> bool {
    matches!(message, Message::Request(Request::Commit(_)))
}

fn is_conflict((.., message): &Envelope) -> bool {
    matches!(message, Message::Reply(Reply::ReadConflict { .. }))
}

/// Another client begins to write the first row. Returns its commit, which waits.
pub(super) fn begin_to_add(hand: &mut Hand, inputs: [i64; 2]) -> Envelope {
    hand.begin(1, "add", &inputs[..1]);
    hand.net.settle_where(|envelope| !is_commit(envelope));
    hand.net.take_first(is_commit).expect("all is started")
}

/// A leader drops requests when too many pieces wait.
#[test]
fn pieces_that_have_waited_do_not_count_any_more() {
    let (mut hand, inputs) = two_partitions();
    let commit = begin_to_add(&mut hand, inputs);
    let call = hand.begin(0, "get", &inputs);
    for request in requests(&mut hand) {
        hand.net.deliver(request);
    }
    assert_eq!(hand.net.gauge(r(0), "waiting_reads"), 1);
    hand.net.deliver(commit);
    assert_eq!(hand.net.gauge(r(0), "waiting_reads"), 0);
    assert_eq!(results(&mut hand, call), [6, 0]);
}

/// Lets time pass until the client goes on. Returns how long it has paused, and the requests.
fn after_pause(hand: &mut Hand) -> (u64, Vec<Envelope>) {
    for paused_us in (0..).step_by(100) {
        let requests = requests(hand);
        if !requests.is_empty() {
            return (paused_us, requests);
        }
        hand.net.wait(Duration::from_micros(100));
        hand.net.fire_due_clients();
    }
    unreachable!();
}

#[test]
fn a_further_round_begins_again_when_nothing_conflicts_any_more() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    let commit = begin_to_add(&mut hand, inputs);
    assert!(second.iter().all(fails));
    hand.net.wait(Duration::from_millis(4));
    let answers: Vec<_> = second.into_iter().map(|request| answer(&mut hand, request)).collect();
    assert!(is_conflict(&answers[0]) && !is_conflict(&answers[1]), "{answers:?}");
    answers.into_iter().for_each(|answer| hand.net.deliver(answer));
    for took_us in [2000, 1000, 500] {
        let (paused_us, again) = after_pause(&mut hand);
        assert_eq!(paused_us / 1000, 2);
        assert!(again.len() == 1 && is_named(&again[0]) && fails(&again[0]), "{again:?}");
        hand.net.wait(Duration::from_micros(took_us));
        answer_all(&mut hand, again);
    }
    hand.net.deliver(commit);
    let (_, again) = after_pause(&mut hand);
    assert_eq!(again.len(), 1);
    answer_all(&mut hand, again);
    for _ in 0..2 {
        let round = requests(&mut hand);
        assert!(round.len() == 2 && round.iter().all(fails), "{round:?}");
        answer_all(&mut hand, round);
    }
    assert_eq!(results(&mut hand, call), [6, 0]);
}

#[test]
fn a_round_that_conflicted_counts_if_nothing_has_changed() {
    let (mut hand, inputs) = two_partitions();
    hand.call(1, "put", &[inputs[1], 1]);
    let call = hand.begin(0, "get", &inputs);
    let first = requests(&mut hand);
    answer_all(&mut hand, first);
    let second = requests(&mut hand);
    // Something that conflicts, and writes another row.
    let commit = begin_to_add(&mut hand, inputs);
    let (one, other): (Vec<_>, Vec<_>) = second.into_iter().partition(|(_, to, _)| *to == r(0));
    answer_all(&mut hand, one);
    hand.net.deliver(commit);
    answer_all(&mut hand, other);
    let (_, again) = after_pause(&mut hand);
    answer_all(&mut hand, again);
    let round = requests(&mut hand);
    assert_eq!(round.len(), 2, "the first row has changed in the round that has conflicted");
    answer_all(&mut hand, round);
    let last = requests(&mut hand);
    assert_eq!(last.len(), 2);
    answer_all(&mut hand, last);
    assert_eq!(requests(&mut hand), []);
    assert_eq!(results(&mut hand, call), [6, 1]);
}

/// Leaders have taken 104 ms to answer. Pauses become longer, up to 250 ms and four round trips.
#[test]
fn a_call_pauses_when_rounds_in_a_row_have_differed() {
    let (mut hand, inputs) = two_partitions();
    let (call, mut round) = second_round(&mut hand, &inputs);
    let mut pauses = Vec::new();
    for number in 3..30 {
        call_meanwhile(&mut hand, "two", &inputs);
        hand.net.wait(Duration::from_millis(4));
        answer_all(&mut hand, round);
        let paused_us;
        (paused_us, round) = after_pause(&mut hand);
        if paused_us > 0 {
            pauses.push((number, paused_us / 1000));
        }
        assert!(round.len() == 2 && round.iter().all(fails), "{round:?}");
    }
    assert_eq!(pauses, [(5, 52), (9, 104), (13, 208), (17, 254), (21, 254), (25, 254), (29, 254)]);
    answer_all(&mut hand, round);
    assert_eq!(results(&mut hand, call), [32, 27]);
}

/// What a leader has read before it found the conflict is not taken for what the client knows.
#[test]
fn pieces_of_a_request_that_conflicted_are_read_again() {
    let mut hand = Hand::new(2, 1, short());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(0, 1)];
    hand.call(1, "put", &[inputs[0], 5]);
    hand.call(0, "get", &inputs);
    for conflicting in [0, 1] {
        let before = hand.call(0, "get", &inputs);
        let (call, second) = second_round(&mut hand, &inputs);
        assert_eq!(second.len(), 1);
        call_meanwhile(&mut hand, "add", &[inputs[1 - conflicting]]);
        let row = inputs[conflicting];
        let commit = begin_to_add(&mut hand, [row, row]);
        let conflict = answer(&mut hand, second[0].clone());
        assert!(is_conflict(&conflict), "{conflict:?}");
        hand.net.deliver(conflict);
        hand.net.deliver(commit);
        let after: Vec<i64> = before.iter().map(|n| n + 1).collect();
        assert_eq!(results(&mut hand, call), after);
    }
}

#[test]
fn a_request_that_is_lost_after_a_pause_is_repeated() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    let commit = begin_to_add(&mut hand, inputs);
    answer_all(&mut hand, second);
    let (_, lost) = after_pause(&mut hand);
    assert_eq!(lost.len(), 1);
    hand.net.deliver(commit);
    hand.run(5000);
    assert_eq!(results(&mut hand, call), [6, 0]);
}

#[test]
fn a_call_that_pauses_can_be_given_up() {
    let (mut hand, inputs) = two_partitions();
    let (call, second) = second_round(&mut hand, &inputs);
    let commit = begin_to_add(&mut hand, inputs);
    answer_all(&mut hand, second);
    hand.net.operate(0, call, Operation::GiveUp);
    hand.net.deliver(commit);
    hand.run(100);
    assert!(matches!(hand.outcome(call), Some(Outcome::NoEffect)));
    assert_eq!(hand.call(0, "get", &inputs), [6, 0]);
}

// Damaged messages, and rows that a call does not read any more.

fn of_read((.., message): &mut Envelope) -> &mut Read {
    match message {
        Message::Request(Request::Read(read)) => read,
        other => panic!("{other:?}"),
    }
}

/// One bit of a request of the first round is damaged: whether it waits.
#[test]
fn a_conflict_that_was_not_asked_for_does_not_hang_the_call() {
    let (mut hand, inputs) = two_partitions();
    let commit = begin_to_add(&mut hand, inputs);
    let call = hand.begin(0, "get", &inputs);
    let mut first = requests(&mut hand);
    first.iter_mut().for_each(|request| of_read(request).on_conflict = OnConflict::Fail);
    answer_all(&mut hand, first);
    hand.net.deliver(commit);
    hand.run(60_000);
    assert!(hand.outcome(call).is_some(), "it hangs");
}

/// One byte of a request is damaged, so that it names one piece and not two.
#[test]
fn an_answer_with_too_few_pieces_does_not_count() {
    let mut hand = Hand::new(2, 1, Settings::default());
    hand.register(compiled(OF_HAND));
    hand.run(1000);
    let inputs = [hand.at(0, 0), hand.at(0, 1)];
    let [a, b] = inputs;
    for client in 0..3 {
        hand.call(client, "get", &inputs);
    }
    let t = begin_to_add(&mut hand, [b, a]);
    let call = hand.begin(0, "get", &inputs);
    for request in requests(&mut hand) {
        hand.net.deliver(request); // Row a is read, and b waits for t.
    }
    hand.net.cut.extend([0, 1].map(|client| (testing::client_id(client), r(0))));
    hand.call(2, "add", &[a]); // It has ended,
    let later = hand.begin(2, "add", &[b]); // and then this one begins.
    hand.net.settle_where(|(.., message)| !is_read(message));
    hand.net.cut.clear();
    hand.net.deliver(t);
    hand.net.settle_where(|(.., message)| !is_read(message));
    let mut second = requests(&mut hand);
    assert_eq!(second.len(), 1, "{second:?}");
    assert_eq!(of_read(&mut second[0]).again[0].kept, [(0, 2)]);
    of_read(&mut second[0]).again[0].kept = vec![(1, 2)];
    answer_all(&mut hand, second);
    assert_ne!(results(&mut hand, call), [0, 2], "it has seen the later one only");
    assert!(hand.outcome(later).is_some());
}

const FOLLOW: &str = r#"
[procedures.follow]
inputs = { a = "int" }
returns = { n = "row.n" }
[procedures.follow.pieces.head]
rows = { row = { table = "t", key = ["a"] } }
reads = ["row.n"]
outputs.n = "row.n"
[procedures.follow.pieces.row]
rows = { row = { table = "t", key = ["head.n"] } }
reads = ["row.n"]
outputs.n = "row.n"
"#;

/// The head names another row now. The former one has a transaction that waits for a partition which is down.
#[test]
fn a_call_does_not_wait_for_rows_that_it_does_not_read_any_more() {
    let mut hand = Hand::new(2, 1, Settings::default());
    hand.register(with(FOLLOW));
    hand.run(1000);
    let [head, x, y] = [0, 1, 2].map(|number| hand.at(0, number));
    let z = hand.at(1, 0);
    hand.call(1, "put", &[head, x]);
    hand.call(1, "put", &[y, 7]);
    for client in 0..3 {
        hand.call(client, "follow", &[head]);
    }
    let call = hand.begin(0, "follow", &[head]);
    for _ in 0..2 {
        let first = requests(&mut hand);
        answer_all(&mut hand, first);
    }
    let second = requests(&mut hand);
    assert!(second.len() == 1 && fails(&second[0]), "{second:?}");
    hand.net.crash(r(1));
    hand.begin(2, "two", &[x, z]);
    hand.net.settle();
    call_meanwhile(&mut hand, "put", &[head, y]);
    answer_all(&mut hand, second);
    hand.run(30_000);
    assert_eq!(hand.call(1, "follow", &[head]), [7], "a new call ends at once");
    assert!(hand.outcome(call).is_some(), "it waits for a row that it does not read");
}

/// A request names answers of another call beside those of its own.
#[test]
fn answers_to_two_calls_are_not_read_as_one() {
    let (mut hand, inputs) = two_partitions();
    let mut one = second_round(&mut hand, &inputs).1.swap_remove(0);
    let other = second_round(&mut hand, &inputs).1.swap_remove(0);
    let is_answer =
        |(.., message): &Envelope| matches!(message, Message::Reply(Reply::Read { .. }));
    hand.net.deliver(one.clone());
    assert_eq!(hand.net.take(is_answer).len(), 1);
    of_read(&mut one).again.extend(read(&other).again.clone());
    hand.net.forged = true;
    hand.net.deliver(one);
    assert_eq!(hand.net.take(is_answer).len(), 0);
}
