//! The ends of a run that a directory survives.

use std::fs;

use super::Scratch;
use crate::{Boot, Durability, Run, Start, StorageError};

use Durability::{Buffered, Sync};

fn begin(
    scratch: &Scratch,
    boot: &str,
    durability: Durability,
    start: Start,
) -> Result<Run, StorageError> {
    Run::begin(scratch.path(), Boot::named(boot), durability, start)
}

#[track_caller]
fn refused(run: Result<Run, StorageError>) {
    let error = run.map(drop).unwrap_err();
    assert!(matches!(error, StorageError::Refused { .. }), "{error}");
    for word in ["machine", "--rejoin", "--accept-loss"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[test]
fn a_power_cut_under_buffered_counts_as_a_lost_disk() {
    let scratch = Scratch::new();
    begin(&scratch, "monday", Buffered, Start::Usual).unwrap();
    begin(&scratch, "monday", Buffered, Start::Usual).expect("only the process has ended");
    for durability in [Buffered, Sync] {
        refused(begin(&scratch, "tuesday", durability, Start::Usual));
    }
    refused(begin(&scratch, "tuesday", Buffered, Start::Usual));
    begin(&scratch, "tuesday", Buffered, Start::AcceptLoss).unwrap();
    begin(&scratch, "tuesday", Buffered, Start::Usual).expect("it was accepted once and for all");
}

#[test]
fn a_power_cut_does_no_harm_after_a_stop_or_under_sync() {
    let scratch = Scratch::new();
    begin(&scratch, "monday", Buffered, Start::Usual).unwrap().end().unwrap();
    begin(&scratch, "tuesday", Sync, Start::Usual).unwrap();
    begin(&scratch, "wednesday", Buffered, Start::Usual).unwrap();
    refused(begin(&scratch, "thursday", Buffered, Start::Usual));
    begin(&scratch, "wednesday", Buffered, Start::Usual).unwrap().end().unwrap();
    begin(&scratch, "thursday", Buffered, Start::Usual).unwrap();
    refused(begin(&scratch, "friday", Buffered, Start::Usual));
}

#[test]
fn a_node_that_continues_after_a_stop_can_lose_data_again() {
    let scratch = Scratch::new();
    let run = begin(&scratch, "monday", Buffered, Start::Usual).unwrap();
    run.end().unwrap();
    run.go_on().unwrap();
    drop(run);
    refused(begin(&scratch, "tuesday", Buffered, Start::Usual));
}

#[test]
fn buffered_data_is_synced_before_a_run_under_sync() {
    let scratch = Scratch::new();
    begin(&scratch, "monday", Buffered, Start::Usual).unwrap();
    begin(&scratch, "monday", Sync, Start::Usual).unwrap();
    begin(&scratch, "tuesday", Sync, Start::Usual).unwrap();
}

#[test]
fn noted_keyspaces_are_known_in_later_runs() {
    let scratch = Scratch::new();
    let run = begin(&scratch, "monday", Sync, Start::Usual).unwrap();
    assert!(!run.knows("accounts"));
    run.note("accounts").unwrap();
    drop(run);
    let run = begin(&scratch, "tuesday", Sync, Start::Usual).unwrap();
    assert!(run.knows("accounts") && !run.knows("carts"));
}

#[test]
fn a_damaged_file_is_damage_that_can_be_accepted() {
    let scratch = Scratch::new();
    begin(&scratch, "monday", Buffered, Start::Usual).unwrap();
    let file = scratch.path().join("run.toml");
    let text = fs::read_to_string(&file).unwrap();
    for text in [&text[..text.len() / 2], ""] {
        fs::write(&file, text).unwrap();
        let error = begin(&scratch, "monday", Buffered, Start::Usual).map(drop).unwrap_err();
        assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    }
    begin(&scratch, "monday", Buffered, Start::AcceptLoss).unwrap();
    begin(&scratch, "monday", Buffered, Start::Usual).unwrap();
}

#[test]
fn the_machine_tells_its_boot() {
    assert_eq!(Boot::current(), Boot::current());
    assert_ne!(Boot::current(), Boot::named(""), "this is Linux");
}
