//! Keyspaces of registers.

use serde_json::Value;
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};

use crate::{Temporary, code, err, out, serried, with_input};

#[test]
fn registers_are_simulated_with_their_latencies_by_kind_and_thrifty_saves_messages() {
    let run = |more: &[&str]| {
        let usual = [
            "sim",
            "ycsb",
            "--protocol",
            "epaxos",
            "--geo",
            "gryff-3",
            "--clients",
            "6",
            "--seconds",
            "3",
            "--warm-up",
            "0",
            "--reads",
            "0.6",
            "--writes",
            "0.3",
            "--conflicts",
            "0.25",
            "--check",
            "--json",
        ];
        let output = serried(&[&usual, more].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        row
    };
    let (usual, thrifty) = (run(&[]), run(&["--thrifty"]));
    assert_eq!(
        (&usual["verdict"], &thrifty["verdict"]),
        (&"linearizable".into(), &"linearizable".into())
    );
    let kinds = usual["kinds"].as_array().expect("a list");
    let names: Vec<_> = kinds.iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "rmw", "write"]);
    // Nothing is nearer than 72 ms.
    assert!(kinds.iter().all(|kind| kind["latency_us_p999"].as_u64() >= Some(72_000)), "{usual}");
    let messages = |row: &Value| row["simulation"]["messages_per_txn"].as_f64();
    assert!(messages(&thrifty) < messages(&usual));
}

#[test]
fn a_request_that_fans_out_is_as_slow_as_its_slowest_operation() {
    let output = serried(&[
        "sim",
        "tail-at-scale",
        "--protocol",
        "abd",
        "--reads",
        "0.9",
        "--sub-requests",
        "20",
        "--geo",
        "gryff-3",
        "--clients",
        "3",
        "--seconds",
        "3",
        "--warm-up",
        "0",
        "--check",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    let operations: u64 =
        row["kinds"].as_array().unwrap().iter().filter_map(|kind| kind["committed"].as_u64()).sum();
    assert_eq!(Some(operations), row["committed"].as_u64().map(|requests| requests * 20));
    let read = row["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "read").unwrap();
    assert!(row["latency_us_p50"].as_u64() > read["latency_us_p50"].as_u64(), "{row}");
    assert_eq!(row["verdict"], "linearizable");
}

#[test]
fn registers_of_a_running_cluster_are_measured_checked_and_spoken_with() {
    let keyspaces = [
        KeyspaceConfiguration::new("accounts", "morty"),
        KeyspaceConfiguration::new("flags", "epaxos"),
    ];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let history = Temporary::new("registers-bench.jsonl", "");
    // Twice: what the first run leaves behind is no part of the second one's history.
    for _ in 0..2 {
        let output = serried(&[
            "bench",
            "register",
            "--connect",
            &url,
            "--keyspace",
            "flags",
            "--clients",
            "3",
            "--seconds",
            "0.5",
            "--warm-up",
            "0",
            "--history",
            history.path(),
            "--json",
        ]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        assert_eq!((&row["verdict"], &row["protocol"]), (&"linearizable".into(), &"epaxos".into()));
        assert!(row["costs"]["cpu_us_per_txn"].as_f64() > Some(0.0), "{row}");
        let checked = serried(&["check", history.path()]);
        assert!(out(&checked).starts_with("linearizable"), "{}", out(&checked));
    }
    let refused = serried(&["bench", "ycsb", "--connect", &url, "--keyspace", "accounts"]);
    assert!(err(&refused).contains("`ycsb` is a workload of registers, and `morty`"));

    // An update that is tried again with its token takes effect exactly once.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let again = format!("again {now}.{} add n 3", u64::MAX);
    let statements = format!("{again}\n{again}\nget n\nagain {now} put n 1\nagain {now}.1 get n\n");
    let output = with_input(&["shell", &url, "--keyspace", "flags"], &statements);
    assert_eq!(out(&output).matches("n is absent").count(), 2, "{}", out(&output));
    assert!(out(&output).ends_with("n = 3\n"), "{}", out(&output));
    assert!(err(&output).contains("`again` is for an update"), "{}", err(&output));

    let statements = "\
get k
cas k - 5
add k 3
add k 3 0 9
append k 0
get-and-set k 'text of it'
add k 1
set-if-absent k other
get-and-delete k
get k
use accounts
put a 1
add a 1
again 7.1 add a 1
help
";
    let output = with_input(&["shell", &url, "--keyspace", "flags"], statements);
    assert_eq!(code(&output), 1, "some statements failed");
    let said = out(&output);
    let expected = [
        "k is absent",
        "k = 5",
        "k = 8",
        "unchanged",
        "k = 8",
        "k = 80",
        "changed",
        "k = 80",
        "unchanged",
        "k = \"text of it\"",
        "changed",
        "k = \"text of it\"",
        "k is absent",
        "committed",
        "a = 2",
    ];
    let mut lines = said.lines();
    for expected in expected {
        assert!(lines.any(|line| line.starts_with(expected)), "{expected} is missing: {said}");
    }
    let errors = err(&output);
    assert!(errors.contains("`k`: the value is text, and has to be an integer"), "{errors}");
    assert!(errors.contains("`again` can't be understood"), "{errors}");
    assert!(said.contains("begin                         begin a transaction"), "{said}");

    // What was meant for a transaction is not run without one.
    let output = with_input(&["shell", &url, "--keyspace", "flags"], "begin\nput k 1\nget k\n");
    assert_eq!((code(&output), &*out(&output)), (1, ""));
    assert!(err(&output).contains("has registers and no transactions"), "{}", err(&output));
}
