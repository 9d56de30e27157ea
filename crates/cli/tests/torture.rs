//! Processes that are killed at random, for a few seconds.

use std::process::{Command, Stdio};

/// The number before `what` in `text`.
fn count(text: &str, what: &str) -> u64 {
    let before = text.split(what).next().unwrap_or_default();
    before.rsplit(' ').next().unwrap_or_default().parse().unwrap_or_default()
}

/// Tortures for a few seconds; returns what it says it has done.
fn torture(workload: &[&str], done: &str) -> String {
    // The ports that it takes differ from process to process all the same.
    let seed = "1";
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(["torture", "--seconds", "4", "--nodes", "3", "--workload"]).args(workload);
    command.args(["--clients", "1", "--kill-within-ms", "800", "--seed", seed]);
    let output = command.stdin(Stdio::null()).output().expect("the binary runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "seed {seed}: {out}{err}");
    assert!(out.contains("nothing acknowledged is lost, and all nodes serve"), "{out}");
    let summary = out.lines().find(|line| line.contains(&format!(" {done}, ")));
    let summary = summary.expect("it says what it has done");
    assert!(count(summary, " nodes killed") > 0, "seed {seed}: {summary}");
    assert!(count(summary, &format!(" {done}")) > 0, "seed {seed}: {summary}");
    out.into_owned()
}

#[test]
fn a_short_torture_kills_nodes_commits_transactions_and_finds_nothing_lost() {
    torture(&["both"], "transactions committed");
}

#[test]
fn a_short_torture_of_registers_finds_their_history_linearizable() {
    for protocol in ["abd", "epaxos"] {
        let options = ["register", "--protocol", protocol, "--thrifty", "--cut-links"];
        let out = torture(&options, "operations done");
        assert!(out.contains("register: linearizable: "), "{out}");
        assert!(count(&out, " times") > 0, "{out}");
    }
}

#[test]
fn a_short_torture_of_disks_finds_damage_named_and_nothing_lost() {
    let options = ["register", "--protocol", "abd", "--lose-disks", "--damage", "--all-at-once"];
    // It goes on for longer if a kind of fault has not happened.
    let out = torture(&options, "operations done");
    let summary = out.lines().find(|line| line.contains(" disks lost, ")).unwrap();
    assert!(count(summary, " disks lost") > 0, "{summary}");
    assert!(count(summary, " damaged,") > 0, "{summary}");
}

#[test]
fn a_short_torture_of_procedures_finds_that_each_call_took_effect_once() {
    let out = torture(&["calls", "--cut-links"], "calls done");
    for found in [
        "bank-calls: 10 accounts hold 1000, as before",
        "counter-calls: the counters add up to ",
        "list-append-calls: strictly serializable: ",
    ] {
        assert!(out.contains(found), "{out}");
    }
}
