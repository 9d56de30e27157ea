//! What a command does when it can't write to standard output.

use std::io::pipe;
use std::process::{Command, Output, Stdio};

use crate::{code, err};

fn with_output(arguments: &[&str], output: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(arguments).stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    command.spawn().expect("the binary runs").wait_with_output().expect("it ends")
}

const SIMULATION: [&str; 10] =
    ["sim", "bank", "--geo", "lan", "--clients", "2", "--warm-up", "0", "--seconds", "0.01"];

#[test]
fn a_command_without_a_reader_ends_quietly_as_if_by_sigpipe() {
    let history =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/histories/serializable.jsonl");
    let check = ["check", history];
    for arguments in [&SIMULATION[..], &check] {
        let (reader, writer) = pipe().expect("there are descriptors");
        drop(reader);
        let output = with_output(arguments, writer);
        assert_eq!((err(&output).as_str(), code(&output)), ("", 141), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_whose_output_finds_no_room_says_so() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    let output = with_output(&SIMULATION, full);
    assert!(err(&output).starts_with("serried: can't write to standard output: No space left"));
    assert_eq!(code(&output), 1);
}
