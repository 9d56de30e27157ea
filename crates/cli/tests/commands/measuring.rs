//! Measuring: `sim`, `bench` and `reproduce`.

use serde_json::Value;
use serried_local::{LocalCluster, LocalOptions};
use serried_node::KeyspaceConfiguration;

use crate::{Temporary, code, err, out, serried};

/// One run in simulation, as JSON.
fn simulated(arguments: &[&str]) -> Value {
    simulated_under("morty", arguments)
}

fn simulated_under(protocol: &str, arguments: &[&str]) -> Value {
    let common = ["--geo", "lan", "--protocol", protocol, "--warm-up", "0", "--check", "--json"];
    let output = serried(&[&["sim"], arguments, &common].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    serde_json::from_str(&out(&output)).expect("one line of JSON")
}

#[test]
fn tpcc_reports_its_transactions_and_new_orders_and_its_conditions_are_checked() {
    let output = serried(&[
        "sim",
        "tpcc",
        "--small",
        "--warehouses",
        "1",
        "--protocol",
        "morty",
        "--clients",
        "4",
        "--seconds",
        "2",
        "--warm-up",
        "0",
        "--check",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    assert_eq!(row["verdict"], "serializable");
    let kinds = row["kinds"].as_array().expect("a list");
    let kind = |name: &str| kinds.iter().find(|kind| kind["kind"] == name).expect("it is there");
    let orders = kind("new-order")["goodput_per_s"].as_f64().expect("a number");
    assert!(orders > 1.0 && kind("payment")["committed"].as_u64() > Some(1), "{row}");
    assert_eq!(row["figures"]["new_orders_per_min"].as_f64(), Some(orders * 60.0));
}

#[test]
fn workloads_of_the_datacentre_report_reads_and_writes_and_their_histories_hold() {
    for (workload, kinds) in [
        ("f1", ["read-only", "read-write"]),
        ("f1-wf", ["read-only", "read-write"]),
        ("tao", ["read-only", "write"]),
        ("ycsb-transactions", ["read-only", "write"]),
    ] {
        let row = simulated(&[workload, "--keys", "2000", "--writes", "0.2", "--seconds", "0.05"]);
        assert_eq!(row["verdict"], "serializable");
        let found = row["kinds"].as_array().expect("a list");
        for (kind, found) in kinds.iter().zip(found) {
            assert_eq!(found["kind"], *kind);
            assert!(found["committed"].as_u64() > Some(0), "{row}");
        }
        for figure in ["read_latency_us_p50", "write_latency_us_p50"] {
            assert!(row["figures"][figure].as_f64() > Some(0.0), "{row}");
        }
        assert!(row.get("arrivals").is_none(), "the loop was a closed one: {row}");
    }
}

#[test]
fn an_open_loop_reports_what_was_offered_done_and_dropped() {
    let run = |rate| {
        let arguments = ["f1", "--keys", "2000", "--clients", "2", "--most-open", "4"];
        let times = ["--seconds", "0.2", "--rate", rate];
        let row = simulated(&[&arguments[..], &times].concat());
        assert_eq!(row["verdict"], "serializable");
        let count = |name: &str| row["arrivals"][name].as_u64().expect("a number");
        assert_eq!(count("offered"), count("done") + count("failed") + count("dropped"));
        (count("offered"), count("dropped"))
    };
    let (offered, dropped) = run("1000");
    assert!((140..260).contains(&offered) && dropped == 0, "{offered} {dropped}");
    let (offered, dropped) = run("100000");
    assert!((19_000..21_000).contains(&offered) && dropped > 10_000, "{offered} {dropped}");
}

#[test]
fn of_what_promises_nothing_nothing_is_checked() {
    let arguments = ["f1", "--keys", "20", "--writes", "0.9", "--seconds", "0.05"];
    let row = simulated_under("plain-transactions", &arguments);
    assert_eq!(
        (row["verdict"].as_str(), row["commit_rate"].as_f64()),
        (Some("unchecked"), Some(1.0))
    );
}

#[test]
fn bench_runs_on_threads_and_processes_and_its_history_holds() {
    for how in [&[][..], &["--processes"][..]] {
        let mut arguments = vec![
            "bench",
            "bank",
            "--clients",
            "4",
            "--seconds",
            "0.3",
            "--warm-up",
            "0.1",
            "--check",
            "--json",
            "--protocol",
            "morty",
        ];
        arguments.extend(how);
        let output = serried(&arguments);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        assert_eq!(row["verdict"], "serializable");
        assert!(row["costs"]["messages_per_txn"].as_f64() > Some(1.0), "{row}");
    }
}

#[test]
fn the_results_of_clients_in_several_processes_are_added_up() {
    let times = ["--seconds", "0.4", "--warm-up", "0.1", "--cool-down", "0.1", "--json"];
    for more in [
        &["counter", "--modify", "--protocol", "ncc", "--processes"][..],
        &["retwis", "--keys", "500", "--sequential", "--protocol", "morty"],
        &["ycsb", "--keys", "100", "--protocol", "abd", "--writes", "0.5"],
    ] {
        let clients = ["--clients", "5", "--client-processes", "3"];
        let output = serried(&[&["bench"], more, &clients, &times].concat());
        assert_eq!(code(&output), 0, "{more:?}: {}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        assert_eq!(row["clients"], 5);
        assert!(row["committed"].as_u64() > Some(20), "{row}");
        assert!(row["latency_us_p50"].as_u64() > Some(0) && row["failed"] == 0, "{row}");
        let kinds = row["kinds"].as_array().unwrap();
        let of_kinds: u64 = kinds.iter().map(|kind| kind["committed"].as_u64().unwrap()).sum();
        // A request of registers is one operation here.
        assert_eq!(row["committed"].as_u64(), Some(of_kinds), "{row}");
        // The messages of the clients count, too: a transaction takes a request and an answer at least.
        assert!(row["costs"]["messages_per_txn"].as_f64() > Some(2.0), "{row}");
        assert!(row["costs"]["client_cpu_us_per_txn"].as_f64() > Some(1.0), "{row}");
    }
    for (arguments, expected) in [
        (&["counter", "--client-processes", "2", "--check"][..], "--check"),
        (&["snapshot", "--client-processes", "2"], "not for workloads of snapshots"),
        (&["counter", "--client-processes", "0"], "choose from 1 to 256"),
    ] {
        let output = serried(&[&["bench"], arguments].concat());
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
}

#[test]
fn a_workload_can_be_checked_again_on_the_keyspace_that_it_has_used() {
    let keyspaces = [
        KeyspaceConfiguration::new("default", "morty"),
        KeyspaceConfiguration::new("flags", "gryff"),
    ];
    let cluster = LocalCluster::start(1, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    for (workload, more) in [
        ("list-append", &[][..]),
        ("bank", &[]),
        ("counter", &[]),
        ("f1", &["--keys", "500"]),
        ("register", &["--keyspace", "flags"]),
    ] {
        let times = ["--clients", "4", "--seconds", "0.3", "--warm-up", "0", "--check", "--json"];
        let run = [&["bench", workload, "--connect", &url], more, &times].concat();
        for _ in 0..2 {
            let output = serried(&run);
            assert_eq!(code(&output), 0, "{workload}: {}{}", out(&output), err(&output));
        }
    }
}

#[test]
fn a_workload_that_leaves_wrong_keys_behind_is_not_checked_again_on_the_same_keyspace() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty")];
    let cluster = LocalCluster::start(1, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let run = ["bench", "tpcc", "--connect", &url, "--small", "--warehouses", "1"];
    let times = ["--clients", "1", "--seconds", "0.2", "--warm-up", "0", "--json"];
    let run = [&run[..], &times].concat();
    let checked = [&run[..], &["--check"]].concat();
    for (arguments, expected) in [(&checked, 0), (&run, 0), (&checked, 2)] {
        let output = serried(arguments);
        assert_eq!(code(&output), expected, "{}{}", out(&output), err(&output));
        assert_eq!(err(&output).contains("choose a keyspace"), expected == 2, "{}", err(&output));
    }
}

#[test]
fn costs_are_taken_from_a_file_and_a_mistake_in_it_is_named() {
    let file = Temporary::new(
        "costs.toml",
        "[replica]\nevent_ns = 1\nsent_message_ns = 1\nwork_unit_ns = 1\nbyte_ps = 0\n\
         [client]\nevent_ns = 1000000\nsent_message_ns = 1\nwork_unit_ns = 1\nbyte_ps = 0\n",
    );
    let simulate = |more: &[&str]| {
        let arguments = ["sim", "counter", "--geo", "lan", "--clients", "1", "--seconds", "0.5"];
        let more = [&["--protocol", "morty", "--json"][..], more].concat();
        let output = serried(&[&arguments[..], &more].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        row["goodput_per_s"].as_f64().expect("a number")
    };
    let (usual, slow) = (simulate(&[]), simulate(&["--costs", file.path()]));
    assert!(usual > 2.0 * slow, "{usual} {slow}");
    let slower = simulate(&["--costs", file.path(), "--cpu-factor", "10"]);
    assert!(slow > 5.0 * slower, "{slow} {slower}");

    let file = Temporary::new("bad-costs.toml", "[replica]\nevent_ns = 1\ncoffee = 2\n");
    let output = serried(&["sim", "counter", "--costs", file.path()]);
    assert_eq!(code(&output), 1);
    let error = err(&output);
    assert!(error.contains("bad-costs.toml") && error.contains("coffee"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_figure_is_reproduced_into_files() {
    let folder = std::env::temp_dir().join(format!("serried-{}-figures", std::process::id()));
    let output = serried(&[
        "reproduce",
        "morty-fig7",
        "--quick",
        "--clients",
        "3",
        "--keys",
        "1000",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.1",
        "--output",
        folder.to_str().expect("the path is text"),
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("morty / mvtso"), "{}", out(&output));
    assert!(err(&output).contains("of at most 12 runs"), "{}", err(&output));
    for extension in ["json", "csv", "html"] {
        let file = folder.join(format!("morty-fig7.{extension}"));
        assert!(std::fs::metadata(&file).is_ok_and(|file| file.len() > 500), "{extension}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_figure_of_load_is_reproduced_with_whichever_systems_there_are() {
    let folder = std::env::temp_dir().join(format!("serried-{}-load", std::process::id()));
    let output = serried(&[
        "reproduce",
        "ncc-fig7a",
        "--quick",
        "--protocol",
        "mvtso",
        "--rate",
        "500,1000",
        "--keys",
        "1000",
        "--seconds",
        "0.3",
        "--warm-up",
        "0.1",
        "--output",
        folder.to_str().expect("the path is text"),
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("ncc / occ"), "{}", out(&output));
    assert!(err(&output).contains("of at most 2 runs"), "{}", err(&output));
    for extension in ["json", "csv", "html"] {
        let file = folder.join(format!("ncc-fig7a.{extension}"));
        assert!(std::fs::metadata(&file).is_ok_and(|file| file.len() > 500), "{extension}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
