//! What is wrong with how a command is called is said in one line.

use std::process::Command;

use crate::{Temporary, code, err, out, serried};

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    for (arguments, choices) in [
        (&["sim", "retwis", "--protocol", "paxos"][..], &["morty", "mvtso"][..]),
        (&["bench", "tpch"], &["retwis", "tpcc", "bank", "list-append", "counter"]),
        (&["sim", "bank", "--geo", "moon"], &["lan", "reg", "con", "glo"]),
        (&["reproduce", "morty-fig5"], &["morty-fig6", "morty-fig9", "gryff-fig7", "ncc-fig8c"]),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        for choice in choices {
            assert!(err(&output).contains(choice), "{}", err(&output));
        }
    }
}

#[test]
fn warehouses_that_cannot_be_are_refused_with_what_can() {
    for (command, number) in [("bench", "0"), ("sim", "0"), ("sim", "65536")] {
        let output = serried(&[command, "tpcc", "--warehouses", number]);
        assert_eq!(code(&output), 2, "{}", out(&output));
        let expected =
            format!("TPC-C with {number} warehouses is not possible: choose from 1 to 65535");
        assert!(err(&output).contains(&expected), "{}", err(&output));
    }
}

#[test]
fn what_cannot_arrive_or_be_written_is_refused_with_what_can() {
    for (arguments, expected) in [
        (&["sim", "f1", "--rate", "0"][..], "choose above 0, and at most 10000000"),
        (&["bench", "tao", "--rate", "nan"], "choose above 0, and at most 10000000"),
        (&["sim", "ycsb", "--rate", "10"], "`ycsb` is one of registers"),
        (&["reproduce", "morty-fig7", "--rate", "10"], "`morty-fig7` is none"),
        (&["reproduce", "ncc-fig7a", "--rate", "20,10"], "--rate must be ascending"),
        (
            &["reproduce", "ncc-fig7a", "--clients", "2,4"],
            "`ncc-fig7a` has one number of --clients",
        ),
        (&["reproduce", "rococo-fig14", "--clients", "8"], "choose --places"),
        (&["reproduce", "rococo-fig14", "--places", "20,10"], "--places must be ascending"),
        (&["reproduce", "rococo-fig15", "--places", "0"], "whole numbers from 1"),
        (&["reproduce", "rococo-fig11", "--places", "3"], "`rococo-fig11` has no --places"),
        (
            &["sim", "tpcc-calls", "--districts", "11"],
            "11 districts, choose from 1 to 10, or a multiple of 10",
        ),
        (&["sim", "tpcc-calls", "--districts", "20", "--warehouses", "2"], "cannot be used with"),
        (&["sim", "f1", "--writes", "1.5"], "1.5 is no share of transactions that write"),
        (&["bench", "tao", "--keys", "5000000000"], "choose from 1 to 4294967296"),
        (&["sim", "f1", "--keys", "4294967296"], "4294967296 keys are not possible"),
        (&["sim", "f1", "--value-bytes", "9"], "a row of 9 bytes is not possible"),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", out(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    // How many may be open is a question of an open loop alone.
    assert_eq!(code(&serried(&["sim", "f1", "--most-open", "3"])), 2);
}

#[test]
fn a_number_out_of_range_is_refused_with_the_range() {
    let from_least = "choose from 0.001 to 1000000";
    for (arguments, expected) in [
        (&["sim", "retwis", "--skew-ms", "nan"][..], "choose from 0 to 60000"),
        (&["sim", "retwis", "--skew-ms", "inf"], "choose from 0 to 60000"),
        (&["sim", "retwis", "--skew-ms", "1e300"], "choose from 0 to 60000"),
        (&["sim", "retwis", "--clients", "0"], "choose from 1 to 100000"),
        (&["sim", "retwis", "--clients", "18446744073709551615"], "choose from 1 to 100000"),
        (&["sim", "retwis", "--theta", "11"], "choose from 0 to 10"),
        (&["sim", "retwis", "--theta", "nan"], "choose from 0 to 10"),
        (&["sim", "retwis", "--deadline", "0"], from_least),
        (&["sim", "retwis", "--value-bytes", "9999999999"], "choose from 8 to 16777216"),
        (&["sim", "retwis", "--key-bytes", "7"], "choose from 8 to 65536"),
        (&["sim", "retwis", "--seconds", "0"], "choose above 0, and at most 1000000"),
        (&["sim", "retwis", "--warm-up=-1"], "choose from 0 to 1000000"),
        (&["sim", "retwis", "--cool-down", "inf"], "choose from 0 to 1000000"),
        (&["sim", "retwis", "--backoff-first-ms", "nan"], "choose from 0 to 1000000"),
        (&["sim", "retwis", "--cores", "0"], "choose from 1 to 4096"),
        (&["sim", "retwis", "--loss", "1"], "choose a share: 0 or more, below 1"),
        (&["sim", "retwis", "--jitter", "nan"], "choose a share: 0 or more, below 1"),
        (&["sim", "retwis", "--cpu-factor", "nan"], "choose from 0 to 1000000"),
        (&["sim", "retwis", "--keys", "15"], "15 keys are not possible: choose 16 or more"),
        (&["sim", "bank", "--keys", "18446744073709551615"], "choose from 1 to 4294967296"),
        (&["sim", "bank", "--keys", "10001"], "choose from 2 to 10000"),
        (&["sim", "counter", "--keys", "0"], "choose from 1 to 4294967296"),
        (&["bench", "register", "--keys", "0"], "choose from 1 to 4294967296"),
        (&["sim", "ycsb", "--conflicts", "nan"], "no share"),
        (&["sim", "ycsb", "--reads", "nan"], "no shares"),
        (&["sim", "tail-at-scale", "--sub-requests", "0"], "choose 1 to 1000"),
        (&["demo", "--keys", "0"], "choose from 1 to 4294967296"),
        (&["demo", "--theta", "1e300"], "choose from 0 to 10"),
        (&["shell", "serried://127.0.0.1:1", "--deadline", "1e300"], from_least),
        (&["torture", "--seconds", "18446744073709551615"], "choose from 0 to 1000000"),
        (&["torture", "--clients", "0"], "choose from 1 to 256"),
        (&["torture", "--kill-within-ms", "0"], "choose from 1 to 3600000"),
        (&["windows", "counter", "--sim", "--hottest", "0"], "choose from 1 to 1000"),
        (&["calibrate", "--seconds", "nan"], "choose from 0.01 to 600"),
        (&["reproduce", "morty-fig7", "--jobs", "0"], "choose from 1 to 1024"),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(expected), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn the_largest_numbers_of_a_simulation_can_be_simulated() {
    for more in [
        &["--theta", "10"][..],
        &["--skew-ms", "60000"],
        &["--deadline", "0.001"],
        &["--cpu-factor", "0"],
        &["--cores", "4096"],
    ] {
        let short = ["sim", "retwis", "--protocol", "morty", "--geo", "lan", "--clients", "2"];
        let times = ["--seconds", "0.1", "--warm-up", "0"];
        let output = serried(&[&short[..], &times, more].concat());
        assert_eq!(code(&output), 0, "{more:?}: {}", err(&output));
    }
}

#[test]
fn a_configuration_with_a_mistake_is_refused_in_one_line_that_says_where() {
    let file = Temporary::new("node.toml", "node = 0\nlisten = \"127.0.0.1:0\"\npears = []\n");
    let output = serried(&["serve", "--config", file.path()]);
    assert_eq!(code(&output), 1);
    let error = err(&output);
    assert!(error.contains("node.toml") && error.contains("pears"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_workload_of_one_family_does_not_run_under_a_protocol_of_the_other() {
    for (arguments, expected) in [
        (
            &["sim", "ycsb", "--protocol", "morty"][..],
            "`ycsb` is a workload of registers, and `morty` has transactions: choose one of ",
        ),
        (
            &["bench", "retwis", "--protocol", "epaxos"],
            "and `epaxos` has registers: choose one of morty, mvtso, tapir, ncc, ncc-rw, two-phase-locking-wound-wait,",
        ),
        (
            &["sim", "ycsb", "--protocol", "abd"],
            "`abd` has no read-modify-writes, and `ycsb` does some",
        ),
        (
            &["reproduce", "gryff-fig7", "--protocol", "morty"],
            "`gryff-fig7` is a figure of registers, and `morty` has transactions",
        ),
        (
            &["sim", "ycsb", "--reads", "0.7", "--writes", "0.4"],
            "0.7 reads and 0.4 writes are no shares",
        ),
        (
            &["sim", "register", "--replicas", "4"],
            "4 replicas survive no more failures than one less",
        ),
        (&["bench", "ycsb", "--replicas", "9"], "9 replicas are too many"),
        (
            &["torture", "--protocol", "plain-transactions"],
            "`plain-transactions` promises nothing that could be broken",
        ),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", out(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
}

#[test]
fn a_misspelt_level_of_the_log_is_refused_with_those_that_there_are() {
    for level in ["warning", "inf", "nonsense", "foo=bar=baz"] {
        let output = serried(&["serve", "--config", "missing.toml", "--log", level]);
        assert_eq!(code(&output), 2, "{}", err(&output));
        assert!(err(&output).contains("error, warn, info, debug, trace"), "{}", err(&output));
        let command = Command::new(env!("CARGO_BIN_EXE_serried"))
            .args(["check", "missing.jsonl"])
            .env("SERRIED_LOG", level)
            .output();
        let output = command.expect("the binary runs");
        assert_eq!(code(&output), 2, "{}", err(&output));
        assert!(err(&output).starts_with("serried: SERRIED_LOG: "), "{}", err(&output));
    }
}
