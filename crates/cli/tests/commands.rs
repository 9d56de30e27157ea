//! The commands as scripts and people meet them: output, errors and exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use serried_runtime::{KeyspaceConfiguration, LocalCluster, LocalOptions};

fn serried(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child.stdin.take().unwrap().write_all(input.as_bytes()).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file that is gone when the test is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &str) -> Temporary {
        let file = std::env::temp_dir().join(format!("serried-{}-{name}", std::process::id()));
        std::fs::write(&file, content).expect("there is room for a small file");
        Temporary(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
    for (arguments, choices) in [
        (&["sim", "retwis", "--protocol", "paxos"][..], &["morty", "mvtso"][..]),
        (&["bench", "tpch"], &["retwis", "tpcc", "bank", "list-append", "counter"]),
        (&["sim", "bank", "--geo", "moon"], &["lan", "reg", "con", "glo"]),
        (&["reproduce", "morty-fig5"], &["morty-fig6", "morty-fig7", "morty-fig8", "morty-fig9"]),
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

/// One run in simulation, as JSON.
fn simulated(arguments: &[&str]) -> Value {
    let common = ["--geo", "lan", "--protocol", "morty", "--warm-up", "0", "--check", "--json"];
    let output = serried(&[&["sim"], arguments, &common].concat());
    assert_eq!(code(&output), 0, "{}", err(&output));
    serde_json::from_str(&out(&output)).expect("one line of JSON")
}

#[test]
fn workloads_of_the_datacentre_report_reads_and_writes_and_their_histories_hold() {
    for (workload, kinds) in [
        ("f1", ["read-only", "read-write"]),
        ("f1-wf", ["read-only", "read-write"]),
        ("tao", ["read-only", "write"]),
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
fn what_cannot_arrive_or_be_written_is_refused_with_what_can() {
    for (arguments, expected) in [
        (&["sim", "f1", "--rate", "0"][..], "--rate 0"),
        (&["bench", "tao", "--rate", "nan"], "--rate NaN"),
        (&["sim", "ycsb", "--rate", "10"], "`ycsb` is one of registers"),
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
fn every_command_has_help_with_an_example() {
    let commands = ["demo", "serve", "shell", "bench", "sim", "check", "status"];
    for command in commands.into_iter().chain(["windows", "reproduce", "calibrate"]) {
        let output = serried(&[command, "--help"]);
        assert_eq!(code(&output), 0);
        assert!(out(&output).contains(&format!("serried {command}")), "{}", out(&output));
    }
}

#[test]
fn a_simulation_reports_as_json_and_its_history_is_checked_again_from_its_file() {
    let history = Temporary::new("lists.jsonl", "");
    let run = || {
        serried(&[
            "sim",
            "list-append",
            "--geo",
            "reg",
            "--protocol",
            "morty",
            "--clients",
            "6",
            "--seconds",
            "1",
            "--warm-up",
            "0",
            "--seed",
            "3",
            "--loss",
            "0.01",
            "--json",
            "--history",
            history.path(),
        ])
    };
    let (first, second) = (run(), run());
    assert_eq!(code(&first), 0, "{}", err(&first));
    let mut rows = [&first, &second].map(|output| {
        let row: Value = serde_json::from_str(&out(output)).expect("one line of JSON");
        row
    });
    assert_eq!(rows[0]["verdict"], "serializable");
    assert!(rows[0]["committed"].as_u64() > Some(10), "{}", rows[0]);
    // The same seed gives the same run, but for how long the simulation of it took.
    for row in &mut rows {
        row["simulation"]["events_per_second"] = Value::Null;
    }
    assert_eq!(rows[0], rows[1]);
    let checked = serried(&["check", history.path()]);
    assert_eq!(code(&checked), 0, "{}", err(&checked));
    assert!(out(&checked).starts_with("serializable"), "{}", out(&checked));
}

#[test]
fn check_tells_a_violation_from_a_history_that_can_not_be_read() {
    let lost_update = r#"{"index":0,"type":"invoke","process":0,"time":0,"f":"txn","value":[["r",1,null],["append",1,1]]}
{"index":1,"type":"invoke","process":1,"time":1,"f":"txn","value":[["r",1,null],["append",1,2]]}
{"index":2,"type":"ok","process":0,"time":2,"f":"txn","value":[["r",1,[]],["append",1,1]]}
{"index":3,"type":"ok","process":1,"time":3,"f":"txn","value":[["r",1,[]],["append",1,2]]}
{"index":4,"type":"invoke","process":0,"time":4,"f":"txn","value":[["r",1,null]]}
{"index":5,"type":"ok","process":0,"time":5,"f":"txn","value":[["r",1,[1,2]]]}
"#;
    let file = Temporary::new("lost.jsonl", lost_update);
    let output = serried(&["check", file.path()]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    assert!(out(&output).contains("NOT serializable"), "{}", out(&output));

    let file = Temporary::new("broken.jsonl", "{\"index\":0}\n");
    let output = serried(&["check", file.path()]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("line 1") && err(&output).contains("broken.jsonl"));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));

    let output = serried(&["check", "/nonexistent/history.jsonl"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("/nonexistent/history.jsonl"));
}

#[test]
fn check_tells_an_inversion_if_strict_serializability_is_asked_for() {
    // The minimal one of 003 Fig. 3, on lists: the third transaction sees the second and not the first.
    let inverted = r#"{"type":"invoke","process":3,"f":"txn","value":[["r",1,null],["r",2,null]]}
{"type":"invoke","process":1,"f":"txn","value":[["append",1,1]]}
{"type":"ok","process":1,"f":"txn","value":[["append",1,1]]}
{"type":"invoke","process":2,"f":"txn","value":[["append",2,2]]}
{"type":"ok","process":2,"f":"txn","value":[["append",2,2]]}
{"type":"ok","process":3,"f":"txn","value":[["r",1,[]],["r",2,[2]]]}
"#;
    let file = Temporary::new("inverted.jsonl", inverted);
    let output = serried(&["check", file.path()]);
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(out(&output).starts_with("serializable: 3 committed"), "{}", out(&output));
    let strict = ["check", "--guarantee", "strict-serializable"];
    let output = serried(&[strict[0], strict[1], strict[2], file.path()]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    assert!(out(&output).starts_with("NOT strictly serializable\ninversion"), "{}", out(&output));
    assert!(out(&output).contains("T1 -rto-> T2"), "{}", out(&output));

    // Without the third one, all is well.
    let rest: String = inverted
        .lines()
        .filter(|line| !line.contains(":3,"))
        .fold(String::new(), |rest, line| rest + line + "\n");
    let file = Temporary::new("in_time.jsonl", &rest);
    let output = serried(&[strict[0], strict[1], strict[2], "--json", file.path()]);
    assert_eq!(code(&output), 0, "{}", out(&output));
    let verdict: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    assert_eq!(verdict["verdict"], "strictly serializable");
}

#[test]
fn check_judges_registers_by_the_guarantee_that_is_asked_for() {
    // Two reads of different processes are inverted while the second write is going on.
    let inverted = r#"{"type":"invoke","process":0,"time":0,"f":"write","value":[1,1]}
{"type":"ok","process":0,"time":1,"f":"write","value":[1,1]}
{"type":"invoke","process":0,"time":2,"f":"write","value":[1,2]}
{"type":"invoke","process":1,"time":3,"f":"read","value":[1,null]}
{"type":"ok","process":1,"time":4,"f":"read","value":[1,2]}
{"type":"invoke","process":2,"time":5,"f":"read","value":[1,null]}
{"type":"ok","process":2,"time":6,"f":"read","value":[1,1]}
{"type":"ok","process":0,"time":7,"f":"write","value":[1,2]}
"#;
    let file = Temporary::new("registers.jsonl", inverted);
    let output = serried(&["check", file.path()]);
    assert_eq!(code(&output), 3, "{}", err(&output));
    assert!(out(&output).starts_with("NOT linearizable"), "{}", out(&output));
    let output = serried(&["check", "--guarantee", "regular-sequential", file.path()]);
    assert_eq!(code(&output), 0, "{}", out(&output));
    assert!(out(&output).starts_with("regular sequential"), "{}", out(&output));
    let output = serried(&["check", "--guarantee", "serializable", file.path()]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("--guarantee linearizable"), "{}", err(&output));
    let output = serried(&["check", "--guarantee", "strict-serializable", file.path()]);
    assert_eq!(code(&output), 1);
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));

    // Five concurrent writers of two values each need a search, if only a short one.
    let repeated: String = (0..10)
        .map(|at| {
            format!(
                "{{\"type\":\"invoke\",\"process\":{at},\"f\":\"write\",\"value\":[1,{}]}}\n",
                at % 2
            )
        })
        .chain((0..10).map(|at| {
            format!(
                "{{\"type\":\"ok\",\"process\":{at},\"f\":\"write\",\"value\":[1,{}]}}\n",
                at % 2
            )
        }))
        .chain((20..22).flat_map(|at| {
            ["invoke", "ok"].map(|kind| {
                format!("{{\"type\":\"{kind}\",\"process\":{at},\"f\":\"read\",\"value\":[1,1]}}\n")
            })
        }))
        .collect();
    let file = Temporary::new("repeated.jsonl", &repeated);
    assert_eq!(code(&serried(&["check", file.path()])), 0);
    let output = serried(&["check", "--states", "2", "--json", file.path()]);
    assert_eq!(code(&output), 4, "{}", out(&output));
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
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let configuration = format!(
        "node = 0\nlisten = \"{address}\"\npeers = [\"{address}\"]\ndurability = \"memory\"\n"
    );
    let file = Temporary::new("taken.toml", &configuration);
    let output = serried(&["serve", "--config", file.path()]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains(&address), "{}", err(&output));
    assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
}

#[test]
fn the_shell_reads_writes_and_runs_transactions_against_a_cluster() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty")];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let output =
        serried(&["shell", &url, "-e", "put alice 10; get alice bob; delete alice; get alice"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("alice = 10\nbob is absent\n"), "{}", out(&output));
    assert!(out(&output).ends_with("alice is absent\n"), "{}", out(&output));

    let script = "begin\nput alice 1\nget alice\nput bob 2\ncommit\nget alice bob\n\
                  begin\nput alice 99\nrollback\nget alice\n";
    let output = with_input(&["shell", &url], script);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("alice = 1\nbob = 2\n"), "{}", out(&output));
    assert!(out(&output).ends_with("alice = 1\n"), "{}", out(&output));

    let output = with_input(&["shell", &url], "frobnicate\nbegin\nput carol 1\n");
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`frobnicate`"), "{}", err(&output));
    let output = serried(&["shell", &url, "-e", "get carol"]);
    assert_eq!(out(&output), "carol is absent\n");

    let output = serried(&["shell", &url, "--keyspace", "nope"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`nope`") && err(&output).contains("`default`"));
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
fn a_cluster_that_does_not_answer_is_an_error_that_names_it() {
    let output = serried(&["shell", "serried://127.0.0.1:1", "-e", "get a"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("127.0.0.1:1"), "{}", err(&output));
}

#[test]
fn status_tells_nodes_that_serve_from_those_that_do_not() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty").with_partitions(3)];
    let mut cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let output = serried(&["status", &url, "--json"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    for (i, line) in out(&output).lines().enumerate() {
        let node: Value = serde_json::from_str(line).expect("a line of JSON");
        assert_eq!((&node["node"], &node["state"]), (&i.into(), &"serves".into()));
        assert_eq!((&node["partitions"], &node["durability"]), (&3.into(), &"memory".into()));
    }
    cluster.stop_node(1);
    let output = serried(&["status", &url]);
    assert_eq!(code(&output), 1);
    let lines = out(&output);
    assert!(lines.contains("keyspace default: morty, serializable, 3 partitions"), "{lines}");
    let line = lines.lines().find(|line| line.starts_with("n1")).expect("every node has a line");
    assert!(line.ends_with("does not answer"), "{line}");
}

/// Sends a request; the answer as text.
fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("{request} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads requests");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers in text");
    answer
}

#[test]
fn a_node_exposes_metrics_and_health_logs_json_and_stops_when_told() {
    let configuration =
        "node = 0\nlisten = \"127.0.0.1:0\"\npeers = [\"127.0.0.1:1\"]\ndurability = \"memory\"\n";
    let file = Temporary::new("operations.toml", configuration);
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(["serve", "--config", file.path(), "--metrics", "127.0.0.1:0"]);
    command.args(["--log-format", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().expect("it says where it serves").unwrap();
        if let Some(rest) = line.strip_prefix("metrics at http://") {
            break rest.trim_end_matches("/metrics").to_string();
        }
    };
    let metrics = http(&address, "GET /metrics");
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    assert!(
        metrics.contains("serried_partition_messages_total{keyspace=\"default\",partition=\"0\"}")
    );
    let health = http(&address, "GET /healthz");
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
    assert!(http(&address, "POST /metrics").starts_with("HTTP/1.1 405"));
    assert!(http(&address, "GET /elsewhere").starts_with("HTTP/1.1 404"));
    let kill = Command::new("kill").arg(child.id().to_string()).status().expect("there is kill");
    assert!(kill.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(code(&output), 0, "{}", err(&output));
    for line in err(&output).lines() {
        let entry: Value = serde_json::from_str(line).expect("a line of JSON");
        assert!(entry["level"].is_string(), "{line}");
    }
}

#[test]
fn windows_show_what_bounds_a_hot_key_and_who_held_it() {
    let svg = Temporary::new("windows.svg", "");
    let watch = |more: &[&str]| {
        let arguments = ["windows", "--sim", "counter", "--geo", "lan", "--clients", "4"];
        let arguments = [&arguments, &["--protocol", "morty", "--warm-up", "0.1"][..], more];
        let output = serried(&arguments.concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        out(&output)
    };
    let text = watch(&["--svg", svg.path()]);
    assert!(text.contains("serialization windows") && text.contains("counter"), "{text}");
    let drawn = std::fs::read_to_string(svg.path()).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("<rect class=\"s"), "{drawn}");
    let seen: Value = serde_json::from_str(&watch(&["--json"])).expect("one line of JSON");
    let key = &seen["keys"][0];
    let mean = &key["serialization"];
    let (bound, achieved) = (&mean["bound_per_s"], &mean["achieved_per_s"]);
    // Everybody increments one counter, so its windows follow each other without a gap.
    let share = achieved.as_f64().unwrap() / bound.as_f64().unwrap();
    assert!((0.9..1.1).contains(&share), "{key}");
    assert!(key["windows"][0]["version"].is_string(), "{key}");
    assert_eq!(seen, serde_json::from_str::<Value>(&watch(&["--json"])).unwrap());
}

#[test]
fn windows_show_what_a_running_cluster_does_to_a_key() {
    let keyspaces = [KeyspaceConfiguration::new("counters", "morty")];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let address = format!("serried://{}", cluster.addresses()[0]);
    let watched = address.clone();
    let watcher = std::thread::spawn(move || {
        serried(&["windows", &watched, "--keyspace", "counters", "--key", "hits", "--json"])
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Whenever the watcher begins and ends, the counter is incremented all the time.
    runtime.block_on(async {
        let database = serried::Database::connect(&address).await.unwrap();
        let counters = database.keyspace("counters").await.unwrap();
        while !watcher.is_finished() {
            let increment = |tx: serried::Transaction| async move {
                let hits = tx.get("hits").await?;
                let hits = hits.map_or(0, |hits| hits.to_string().parse().unwrap_or(0u64));
                tx.put("hits", (hits + 1).to_string());
                Ok(())
            };
            counters.transact(increment).await.unwrap();
        }
    });
    let output = watcher.join().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let seen: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    assert_eq!((&seen["protocol"], &seen["forgotten"]), (&"morty".into(), &0.into()), "{seen}");
    let key = &seen["keys"][0];
    assert_eq!(key["key"], "hits");
    let mean = &key["serialization"];
    assert!(mean["bound_per_s"].as_f64().unwrap() > 0.0, "{mean}");
    assert_eq!(key["windows"][0]["reads"], true, "{key}");
}

#[test]
fn windows_of_a_cluster_take_an_address_and_no_option_of_a_simulation() {
    for (arguments, said) in [
        (&["windows", "counter"][..], "--sim counter"),
        (&["windows", "serried://127.0.0.1:1", "--clients", "3"], "--sim"),
        (&["windows", "counter", "--sim", "--for", "300"], "write 300ms or 2s"),
        (&["windows", "counter", "--sim", "--key", "a"], "--key"),
    ] {
        let output = serried(arguments);
        assert_ne!(code(&output), 0);
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
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
    assert!(err(&output).contains("of at most 6 runs"), "{}", err(&output));
    for extension in ["json", "csv", "html"] {
        let file = folder.join(format!("morty-fig7.{extension}"));
        assert!(std::fs::metadata(&file).is_ok_and(|file| file.len() > 500), "{extension}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
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
    ] {
        let output = serried(arguments);
        assert_eq!(code(&output), 1, "{arguments:?}: {}", out(&output));
        assert!(err(&output).contains(expected), "{}", err(&output));
        assert_eq!(err(&output).lines().count(), 1, "{}", err(&output));
    }
}

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

    let statements = "\
get k
cas k - 5
add k 3
add k 3 0 9
append k 0
get-and-set k text of it
add k 1
set-if-absent k other
get-and-delete k
get k
begin
use accounts
put a 1
add a 1
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
        "k = text of it",
        "changed",
        "k = text of it",
        "k is absent",
        "committed",
    ];
    let mut lines = said.lines();
    for expected in expected {
        assert!(lines.any(|line| line.starts_with(expected)), "{expected} is missing: {said}");
    }
    let errors = err(&output);
    assert!(errors.contains("`k`: the value is text, and has to be an integer"), "{errors}");
    assert!(errors.contains("has registers and no transactions"), "{errors}");
    assert!(errors.contains("`add` can't be understood"), "{errors}");
    assert!(said.contains("begin               begin a transaction"), "{said}");
}
