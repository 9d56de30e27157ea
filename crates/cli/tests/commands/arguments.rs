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
        assert_eq!(code(&output), 1, "{}", out(&output));
        let expected =
            format!("TPC-C with {number} warehouses is not possible: choose from 1 to 65535");
        assert!(err(&output).contains(&expected), "{}", err(&output));
    }
}

#[test]
fn what_cannot_arrive_or_be_written_is_refused_with_what_can() {
    for (arguments, expected) in [
        (&["sim", "f1", "--rate", "0"][..], "--rate 0"),
        (&["bench", "tao", "--rate", "nan"], "--rate NaN"),
        (&["sim", "ycsb", "--rate", "10"], "`ycsb` is one of registers"),
        (&["reproduce", "morty-fig7", "--rate", "10"], "`morty-fig7` is none"),
        (&["reproduce", "ncc-fig7a", "--rate", "20,10"], "--rate must be ascending"),
        (
            &["reproduce", "ncc-fig7a", "--clients", "2,4"],
            "`ncc-fig7a` has one number of --clients",
        ),
        (&["sim", "f1", "--writes", "1.5"], "1.5 is no share of transactions that write"),
        (&["bench", "tao", "--keys", "0"], "0 keys are not possible"),
        (&["sim", "f1", "--value-bytes", "9"], "a row of 9 bytes is not possible"),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 1, "{arguments:?}: {}", out(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
    // How many may be open is a question of an open loop alone.
    assert_eq!(code(&serried(&["sim", "f1", "--most-open", "3"])), 2);
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
            "`retwis` is a workload of transactions, and `epaxos` has registers: choose one of morty",
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
        (&["torture", "--protocol", "plain"], "`plain` promises nothing that could be broken"),
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 1, "{arguments:?}: {}", out(&output));
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
