//! Merged pieces at several servers that conflict with each other, with simple immediate pieces, and, by what follows them,
//! with deferred ones.

use std::panic::RefUnwindSafe;

use super::super::merged::{HoldEnd, HoldReply};
use super::super::message::{
    Ancestors, CallOf, Inputs, Occurrence, Reply, Request, Started, StartedPiece,
};
use super::super::registered::Registered;
use super::super::run::{Requests, Run, Step};
use super::*;
use hunted::{Hunt, explore_more, explore_more_all};
use serried_procedures::Call;

/// `fork` appends to two heads by a merged piece that needs one round, and then to a list that depends on what it has found.
/// `hop` appends to heads of which each but the first depends on what was found before, in three rounds.
pub(super) const MERGED: &str = r#"
[procedures.fork]
inputs = { a = "int", b = "int", x = "int" }
returns = { one = "one.text", two = "two.text", list = "list.text" }
[procedures.fork.pieces.one]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.fork.pieces.two]
rows = { row = { table = "head", key = ["b"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.fork.pieces.list]
rows = { row = { table = "list", key = ["size(one.text) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"

[procedures.hop]
inputs = { a = "int", x = "int" }
returns = { one = "one.text", two = "two.text", three = "three.text" }
[procedures.hop.pieces.one]
rows = { row = { table = "head", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.hop.pieces.two]
rows = { row = { table = "head", key = ["size(one.text) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.hop.pieces.three]
rows = { row = { table = "head", key = ["(size(one.text) + size(two.text)) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
"#;

/// `peek` finds out by what it reads in a list to which other list it appends.
pub(super) const UNSPREAD: &str = r#"
[procedures.peek]
inputs = { a = "int", x = "int" }
returns = { one = "one.text", two = "two.text" }
[procedures.peek.pieces.one]
rows = { row = { table = "list", key = ["a"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.peek.pieces.two]
rows = { row = { table = "list", key = ["size(one.text) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
"#;

/// `all` appends to all heads by one piece that is repeated, and whose outputs another piece needs.
pub(super) const REPEATED: &str = r#"
[procedures.all]
inputs = { x = "int" }
returns = { heads = "each.text", list = "list.text" }
[procedures.all.pieces.each]
for_each = { at = "range(0, 4, 4)" }
rows = { row = { table = "head", key = ["at"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
[procedures.all.pieces.list]
rows = { row = { table = "list", key = ["size(each.text) % 4"] } }
reads = ["row.text"]
writes.row.text = "left(row.text + string(x) + ' ', 4000)"
outputs.text = "row.text"
"#;

fn explore_merged(seeds: u64, faults: Faults) {
    for seed in 0..seeds * factor() {
        if let Err(wrong) = explore_with(seed, faults, Mutated::NONE, More::Merged) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn merged_pieces_take_effect_at_one_moment_whatever_the_order_of_messages() {
    let faults = Faults { members: 1, lossy: false, crashes: false, clients_leave: false };
    explore_merged(60, faults);
}

#[test]
fn merged_pieces_survive_loss_and_crashes() {
    for members in [1, 3] {
        let faults = Faults { members, lossy: true, crashes: true, clients_leave: false };
        explore_merged(40, faults);
    }
}

#[test]
fn rows_are_held_no_more_when_clients_have_left() {
    for members in [1, 3] {
        let faults = Faults { members, lossy: true, crashes: true, clients_leave: true };
        explore_merged(40, faults);
    }
}

#[test]
fn merged_pieces_are_forgotten_with_their_calls() {
    let merged = Hunt { more: More::Merged, ..hunted::NONE };
    explore_more_all("merged", 15, 1, hand::short(), merged);
    let settings = Settings { outcomes_ms: 5000, ..hand::short() };
    explore_more_all("merged and cut", 10, 3, settings, Hunt { cuts: true, ..merged });
}

#[test]
fn calls_with_merged_pieces_end_before_the_next_set_is_in_use() {
    for more in [More::None, More::Merged] {
        let registers = Hunt { more, registers: true, ..hunted::NONE };
        explore_more_all("registers", 10, 1, hand::short(), registers);
    }
}

fn sent(step: Step) -> Requests {
    match step {
        Step::Send(requests) => requests,
        step => panic!("{step:?}"),
    }
}

fn outcomes(pieces: &[Occurrence], text: &str) -> Vec<StartedPiece> {
    let outcome = Some(Ok(vec![Datum::String(text.into())]));
    let started = |piece: &Occurrence| StartedPiece {
        piece: piece.piece,
        number: piece.number,
        outcome: outcome.clone(),
    };
    pieces.iter().map(started).collect()
}

/// Another coordinator's second attempt has succeeded while the answers to the first one were under way.
#[test]
fn what_two_attempts_have_found_is_not_mixed() {
    let group = Group::new(1, Duration::from_millis(1)).with_partitions(3);
    let set = Arc::new(Registered::new(1, set(More::Merged)));
    let at = set.set().procedures.iter().position(|procedure| &*procedure.name == "fork");
    let procedure = at.expect("there is one") as u16;
    let txn = Version::at(1_000_000);
    let begun = |b: i64| {
        let inputs: Vec<Datum> = [0, b, 7].into_iter().map(Datum::Int).collect();
        let encoded = Inputs::new(&inputs);
        let of = Arc::new(CallOf { set: 1, procedure, inputs: encoded, reads: Vec::new() });
        let call = Call::new(set.procedure(procedure).unwrap(), inputs).unwrap();
        let mut run = Run::new(txn, of, set.clone(), call);
        let holds = sent(run.begin(&group));
        (holds.len() == 2).then_some((run, holds))
    };
    let (mut run, holds) = (1..LISTS).find_map(begun).expect("heads are at several partitions");
    let [(p, Request::Hold(at_p)), (q, Request::Hold(at_q))] = &holds[..] else {
        panic!("{holds:?}");
    };
    let held = |attempt, pieces: &[Occurrence], text: &str| {
        let end = HoldEnd::Held(outcomes(pieces, text));
        Reply::Hold(HoldReply { txn, group: at_p.group, attempt, end })
    };
    let (of_p, of_q) = (at_p.start.pieces.clone(), at_q.start.pieces.clone());
    assert!(sent(run.on_reply(*p, held(1, &of_p, "old "), &group)).is_empty());
    let started = Reply::Started(Started {
        txn,
        pieces: outcomes(&of_q, "new "),
        attempts: vec![(at_q.group, 2)],
        edges: Vec::new(),
        ancestors: Ancestors::default(),
        is_over: false,
        is_closed: false,
    });
    let requests = sent(run.on_reply(*q, started.clone(), &group));
    let releases = |(_, request): &(u16, Request)| matches!(request, Request::Release(hold) if hold.attempt == 1);
    assert!(requests.len() == 2 && requests.iter().all(releases), "{requests:?}");
    let released = |attempt| {
        let (group, end) = (at_p.group, HoldEnd::Released);
        Reply::Hold(HoldReply { txn, group, attempt, end })
    };
    assert!(sent(run.on_reply(*p, released(1), &group)).is_empty());
    let requests = sent(run.on_reply(*q, released(1), &group));
    let holds =
        |(_, request): &(u16, Request)| matches!(request, Request::Hold(hold) if hold.attempt == 2);
    assert!(requests.len() == 2 && requests.iter().all(holds), "{requests:?}");
    assert!(sent(run.on_reply(*q, started, &group)).is_empty());
    let requests = sent(run.on_reply(*p, held(2, &of_p, "new "), &group));
    let starts = |(_, request): &(u16, Request)| matches!(request, Request::Start(_));
    assert!(requests.len() >= 2 && requests.iter().all(starts), "{requests:?}");
}

const QUIET: Faults = Faults { members: 1, lossy: false, crashes: false, clients_leave: false };

pub(super) fn is_found(
    seeds: u64,
    explored: impl Fn(u64) -> Result<(), String> + RefUnwindSafe,
) -> bool {
    (0..seeds).any(|seed| !matches!(std::panic::catch_unwind(|| explored(seed)), Ok(Ok(()))))
}

#[test]
fn a_merged_piece_that_is_not_atomic_is_found() {
    let mutation = Mutated::by(Mutation::HoldsNothing);
    assert!(is_found(100, |seed| explore_with(seed, QUIET, mutation, More::Merged)));
}

#[test]
fn immediacy_that_does_not_spread_is_found() {
    assert!(is_found(100, |seed| explore_with(seed, QUIET, Mutated::NONE, More::Unspread)));
}

#[test]
fn a_repeated_piece_that_stands_once_is_found() {
    assert!(is_found(100, |seed| explore_with(seed, QUIET, Mutated::NONE, More::StandingOnce)));
}

#[test]
fn forgetting_before_all_have_ended_is_found() {
    let hunt = Hunt { mutation: Mutated::by(Mutation::ForgetsEarly), ..hunted::NONE };
    assert!(is_found(30, |seed| explore_more(seed, 1, hand::short(), hunt)));
}

#[test]
fn a_new_set_without_draining_is_found() {
    let mutation = Mutated::by(Mutation::DoesNotDrain);
    let hunt = Hunt { mutation, registers: true, ..hunted::NONE };
    assert!(is_found(30, |seed| explore_more(seed, 1, hand::short(), hunt)));
}
