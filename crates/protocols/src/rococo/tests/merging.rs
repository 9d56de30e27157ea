//! Merged pieces at several servers that conflict with each other, with simple immediate pieces, and, by what follows them,
//! with deferred ones.

use std::panic::RefUnwindSafe;

use super::*;
use hunted::{Hunt, explore_more, explore_more_all};

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
    explore_more_all("merged", 15, 1, hunted::short(), merged);
    let settings = Settings { outcomes_ms: 5000, ..hunted::short() };
    explore_more_all("merged and cut", 10, 3, settings, Hunt { cuts: true, ..merged });
}

#[test]
fn calls_with_merged_pieces_end_before_the_next_set_is_in_use() {
    for more in [More::None, More::Merged] {
        let registers = Hunt { more, registers: true, ..hunted::NONE };
        explore_more_all("registers", 10, 1, hunted::short(), registers);
    }
}

const QUIET: Faults = Faults { members: 1, lossy: false, crashes: false, clients_leave: false };

fn is_found(seeds: u64, explored: impl Fn(u64) -> Result<(), String> + RefUnwindSafe) -> bool {
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
    assert!(is_found(30, |seed| explore_more(seed, 1, hunted::short(), hunt)));
}

#[test]
fn a_new_set_without_draining_is_found() {
    let mutation = Mutated::by(Mutation::DoesNotDrain);
    let hunt = Hunt { mutation, registers: true, ..hunted::NONE };
    assert!(is_found(30, |seed| explore_more(seed, 1, hunted::short(), hunt)));
}
