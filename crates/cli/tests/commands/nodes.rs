//! Nodes, and what is asked of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;
use serried_local::{LocalCluster, LocalOptions};
use serried_node::{Durability, KeyspaceConfiguration, Node, NodeConfiguration};

use crate::{Temporary, code, err, out, serried, with_input};

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
    let first = out(&output);
    let version = first.lines().find_map(|line| line.strip_prefix("committed ")).unwrap();
    let output = serried(&["shell", &url, "-e", &format!("outcome {version}; outcome alice")]);
    assert_eq!(out(&output), format!("committed {version}\n"));
    assert!(err(&output).contains("`alice`"), "{}", err(&output));

    let script = "begin\nput alice 1\nget alice\nput bob 2\ncommit\nget alice bob\n\
                  begin\nput alice 99\nrollback\nget alice\n";
    let output = with_input(&["shell", &url], script);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("alice = 1\nbob = 2\n"), "{}", out(&output));
    assert!(out(&output).ends_with("alice = 1\n"), "{}", out(&output));

    // A modification shows its result, unless it is part of a transaction.
    let output = serried(&["shell", &url, "-e", "add n 5; add n 5 0 9; maximum n 7; cas n 7 -"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let unchanged = "unchanged its condition does not hold; what is there follows\nn = 5\n";
    assert_eq!(out(&output), format!("n = 5\n{unchanged}n = 7\nn is absent\n"));
    let script = "begin\nadd n 1\nadd n 1\nappend bob x\ncommit\nget n bob\nadd bob 1\n";
    let output = with_input(&["shell", &url], script);
    assert!(out(&output).ends_with("n = 2\nbob = 2x\n"), "{}", out(&output));
    assert!(err(&output).contains("`bob` was not modified"), "{}", err(&output));

    let output = with_input(&["shell", &url], "frobnicate\nbegin\nput carol 1\n");
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`frobnicate`"), "{}", err(&output));
    let output = serried(&["shell", &url, "-e", "get carol"]);
    assert_eq!(out(&output), "carol is absent\n");

    // Nothing that is meant to take effect together takes effect in part.
    let output = with_input(&["shell", &url], "begin\nput carol 1\nput\ncommit\nput dave 1\n");
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`put`") && err(&output).contains("rolled back"));
    let output = serried(&["shell", &url, "-e", "use nope; put carol 1; put dave 1"]);
    assert_eq!(code(&output), 1);
    let output = serried(&["shell", &url, "-e", "get carol dave"]);
    assert_eq!(out(&output), "carol is absent\ndave is absent\n");

    let output = serried(&["shell", &url, "--keyspace", "nope"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`nope`") && err(&output).contains("`default`"));
}

#[test]
fn the_shell_gives_up_a_transaction_by_hand_that_nobody_answers() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty")];
    let mut cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    for node in [1, 2] {
        cluster.kill_node(node);
    }
    let statements = "begin; get a; put a 1; commit";
    let output = serried(&["shell", &url, "--deadline", "0.5", "-e", statements]);
    assert_eq!(code(&output), 1);
    let said = err(&output);
    assert!(
        said.contains(
            "within 500ms: it is not known whether the transaction takes effect: type `outcome "
        ),
        "{said}"
    );
}

/// It was not asked to commit.
#[test]
fn a_transaction_by_hand_whose_read_nobody_answers_has_no_effect() {
    let keyspaces = [KeyspaceConfiguration::new("default", "ncc")];
    let mut cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    // The first leads, and the last can't lead alone.
    for node in [0, 1] {
        cluster.kill_node(node);
    }
    let output = serried(&["shell", &url, "--deadline", "0.5", "-e", "begin; put b 1; get a"]);
    assert_eq!(code(&output), 1);
    let said = err(&output);
    assert!(
        said.contains("within 500ms: the transaction is over and nothing of it took effect"),
        "{said}"
    );
}

#[test]
fn the_shell_stays_in_a_keyspace_while_a_transaction_is_open() {
    let keyspaces = ["default", "other"].map(|name| KeyspaceConfiguration::new(name, "morty"));
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let output = serried(&["shell", &cluster.url(), "-e", "begin; put a 1; use other; commit"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("`commit` or `rollback` first"), "{}", err(&output));
}

#[test]
fn the_shell_names_a_line_that_is_not_text_and_does_nothing_after_it() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty")];
    let cluster = LocalCluster::start(1, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let output = with_input(&["shell", &url], b"put a 1\nput b \xff\nput c 1\n");
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("line 2 of the input is not UTF-8"), "{}", err(&output));
    let output = serried(&["shell", &url, "-e", "get a b c"]);
    assert_eq!(out(&output), "a = 1\nb is absent\nc is absent\n");
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
    // Each has to reach another one first.
    while (0..3).any(|node| cluster.health(node).is_err()) {
        std::thread::yield_now();
    }
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
    assert!(line.contains("does not answer: "), "{line}");
}

#[test]
fn status_names_keyspaces_that_are_refused_and_says_why() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = [free(), free(), free()];
    let peers = listeners.map(|listener| listener.local_addr().unwrap().to_string());
    let start = |node: usize| {
        // One node alone has `new`, and each means something else by `mixed`.
        let mixed = KeyspaceConfiguration::new("mixed", "morty").with_partitions(node as u16 + 1);
        let mut keyspaces = vec![KeyspaceConfiguration::new("default", "morty"), mixed];
        if node == 0 {
            keyspaces.push(KeyspaceConfiguration::new("new", "morty"));
        }
        let configuration = NodeConfiguration {
            keyspaces,
            durability: Durability::Memory,
            cores: Some(1),
            ..NodeConfiguration::new(node, peers.to_vec())
        };
        runtime.block_on(Node::start(configuration)).unwrap()
    };
    let nodes = [0, 1, 2].map(start);
    while nodes.iter().any(|node| node.status().not_served.len() < 2) {
        std::thread::yield_now();
    }
    let url = format!("serried://{}", peers.join(","));
    let text = out(&serried(&["status", &url]));
    assert!(text.contains("keyspace default: morty, serializable, 1 partition\n"), "{text}");
    for (name, has, other) in [
        ("new", "n0 has new@0 (morty, 1 partition)", "n1 has none"),
        ("mixed", "n0 has mixed@0 (morty, 1 partition)", "n2 has mixed@0 (morty, 3 partitions)"),
    ] {
        let begins = format!("keyspace `{name}` is not served: ");
        let line = text.lines().find(|line| line.starts_with(&begins)).expect("it is named");
        assert!(line.contains(has) && line.contains(other), "{line}");
    }
    let output = serried(&["status", &url, "--json"]);
    for line in out(&output).lines() {
        let node: Value = serde_json::from_str(line).expect("a line of JSON");
        let refused = node["not_served"].as_array().expect("a list");
        let names: Vec<_> = refused.iter().map(|refused| refused["name"].clone()).collect();
        assert_eq!(names, ["mixed", "new"], "{line}");
    }
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
fn a_node_exposes_metrics_and_health_logs_json_and_stops_on_a_signal() {
    let configuration =
        "node = 0\nlisten = \"127.0.0.1:0\"\npeers = [\"127.0.0.1:1\"]\ndurability = \"memory\"\n";
    let file = Temporary::new("operations.toml", configuration);
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(["serve", "--config", file.path(), "--metrics", "127.0.0.1:0"]);
    // There is a directory, and a node that keeps its data in memory does not use it.
    command.arg("--data").arg(std::env::temp_dir());
    // A node whose input has ended goes on.
    command.stdin(Stdio::null());
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
    assert!(err(&output).contains("the data of this directory is not used"), "{}", err(&output));
    for line in err(&output).lines() {
        let entry: Value = serde_json::from_str(line).expect("a line of JSON");
        assert!(entry["level"].is_string(), "{line}");
    }
}

/// The signal that a terminal sends when it goes, or, if tests were started so that it is ignored, the usual one.
fn hang_up() -> &'static str {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    match ignored.is_some_and(|mask| mask.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])) {
        true => "-TERM",
        false => "-HUP",
    }
}

#[test]
fn a_node_that_waits_for_others_says_so_and_stops_when_its_terminal_goes() {
    let configuration = "node = 0\nlisten = \"127.0.0.1:0\"\n\
                         peers = [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]\n";
    let file = Temporary::new("rejoins.toml", configuration);
    let data = std::env::temp_dir().join(format!("serried-{}-rejoins", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(["serve", "--rejoin", "--config", file.path(), "--metrics", "127.0.0.1:0"]);
    command.arg("--data").arg(&data).args(["--log-format", "json"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut line_with = |words: &str| loop {
        let line = lines.next().expect("it says so").unwrap();
        if line.contains(words) {
            break line;
        }
    };
    let bound = line_with("answers /healthz and /metrics");
    let address = bound.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let waits = line_with("waits for the other nodes");
    assert!(waits.contains("this node goes on when they answer"), "{waits}");
    let health = http(address.expect("it says where"), "GET /healthz");
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("start the others"), "{health}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([hang_up(), &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let _ = std::fs::remove_dir_all(data);
}

#[test]
fn a_node_of_another_process_stops_when_its_input_ends() {
    let configuration = "node = 0\nlisten = \"127.0.0.1:0\"\npeers = [\"127.0.0.1:1\"]\n";
    let file = Temporary::new("child.toml", configuration);
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(["serve", "--durability", "memory", "--config", file.path()]);
    command.arg("--until-input-ends").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("serves on"));
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_transaction_by_hand_is_over_when_what_was_read_in_it_changes() {
    let keyspaces = [KeyspaceConfiguration::new("default", "morty")];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    // The second one appends to what it has read, as the first one does, which was begun before.
    assert_eq!(code(&serried(&["shell", &url, "-e", "put list 1"])), 0);
    let mut first = Command::new(env!("CARGO_BIN_EXE_serried"))
        .args(["shell", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut typed = first.stdin.take().unwrap();
    let mut shown = BufReader::new(first.stdout.take().unwrap());
    typed.write_all(b"begin\nget list\n").unwrap();
    let mut line = String::new();
    shown.read_line(&mut line).unwrap();
    assert_eq!(line, "list = 1\n");
    let second = serried(&["shell", &url, "-e", "begin; get list; put list 1,second; commit"]);
    assert!(out(&second).contains("committed"), "{}", err(&second));
    typed.write_all(b"put list 1,first\ncommit\nget list\n").unwrap();
    drop(typed);
    let mut rest = String::new();
    shown.read_to_string(&mut rest).unwrap();
    let output = first.wait_with_output().unwrap();
    assert_eq!(code(&output), 1);
    let said = err(&output);
    assert!(
        said.contains("`list` has changed since it was read, from `1` to `1,second`"),
        "{said}"
    );
    assert!(rest.ends_with("list = 1,second\n") && !rest.contains("committed"), "{rest}");
}
