//! Keyspaces of stored procedures.

use serde_json::Value;
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};

use crate::{Temporary, code, err, out, serried};

/// The protocol of these keyspaces.
const PROTOCOL: &str = "rococo";

#[test]
fn procedures_are_simulated_and_what_they_did_is_checked() {
    for (workload, verdict) in [
        ("list-append-calls", "strictly serializable"),
        ("counter-calls", "consistent"),
        ("bank-calls", "consistent"),
    ] {
        let history = Temporary::new(&format!("{workload}.jsonl"), "");
        let output = serried(&[
            "sim",
            workload,
            "--geo",
            "lan",
            "--partitions",
            "2",
            "--clients",
            "4",
            "--seconds",
            "0.3",
            "--warm-up",
            "1",
            "--history",
            history.path(),
            "--json",
        ]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let text = out(&output);
        let row: Value = serde_json::from_str(&text).expect("one line of JSON");
        assert_eq!((&row["verdict"], &row["failed"]), (&verdict.into(), &0.into()), "{row}");
        assert!(row["committed"].as_u64() > Some(20), "{row}");
        let checked = serried(&["check", history.path()]);
        let (wanted, text) = match workload {
            "list-append-calls" => (0, "strictly serializable: "),
            _ => (4, "it can't be decided: no call of the history uses a list"),
        };
        assert_eq!(code(&checked), wanted);
        assert!(out(&checked).starts_with(text), "{}", out(&checked));
    }
}

const SHOP: &str = r#"
[tables.items]
key = { item = "int" }
columns = { left = "int", note = "bytes(4)" }

[procedures.fill]
inputs = { item = "int", count = "int", note = "bytes(4)" }
[procedures.fill.pieces.fill]
rows = { row = { table = "items", key = ["item"] } }
writes.row = { left = "count", note = "note" }

[procedures.sell]
inputs = { item = "int", count = "int" }
returns = { left = "take.left", note = "take.note" }
[procedures.sell.pieces.take]
rows = { row = { table = "items", key = ["item"] } }
reads = ["row.left", "row.note"]
checks = [{ that = "row.left >= count", otherwise = "there are not so many" }]
writes.row.left = "row.left - count"
outputs = { left = "row.left - count", note = "row.note" }
"#;

/// The same table, and a procedure that only reads.
const LOOK: &str = r#"
[tables.items]
key = { item = "int" }
columns = { left = "int", note = "bytes(4)" }

[procedures.look]
inputs = { items = { list = "int", max = 3 } }
returns = { left = "look.left" }
[procedures.look.pieces.look]
for_each = { item = "items" }
rows = { row = { table = "items", key = ["item"] } }
reads = ["row.left"]
outputs.left = "row.left"
"#;

#[test]
fn procedures_are_added_called_and_removed_at_a_running_cluster() {
    let keyspaces = [
        KeyspaceConfiguration::new("accounts", "morty"),
        KeyspaceConfiguration::new("shop", PROTOCOL).with_partitions(2),
    ];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let (shop, look) = (Temporary::new("shop.toml", SHOP), Temporary::new("look.toml", LOOK));
    let procedure = |action: &str, more: &[&str]| {
        serried(&[&["procedure", action, &url, "--keyspace", "shop"], more].concat())
    };
    let good = |output: std::process::Output| {
        assert_eq!(code(&output), 0, "{}", err(&output));
        out(&output)
    };
    assert_eq!(good(procedure("list", &[])), "no procedures were ever registered\n");
    assert_eq!(good(procedure("add", &[shop.path()])), "version 1 is in use\n");
    assert_eq!(good(procedure("add", &[look.path()])), "version 2 is in use\n");
    let listed = good(procedure("list", &[]));
    assert!(
        listed.contains(
            "sell\n  takes    item (int), count (int)\n  returns  left (int), note (bytes(4))\n"
        ),
        "{listed}"
    );
    assert!(listed.contains("look (read-only)\n"), "{listed}");

    let shell = |statements: &str, more: &[&str]| {
        let usual = ["shell", &url, "--keyspace", "shop", "-e", statements];
        serried(&[&usual, more].concat())
    };
    let filled = shell("call fill item=7 count=3 note=00ff; call sell item=7 count=2", &[]);
    assert_eq!(good(filled), "done\nleft = 1\nnote = \"00ff\"\n");
    let refused = shell("call sell item=7 count=2", &[]);
    assert_eq!(code(&refused), 1);
    assert!(
        err(&refused).contains("`sell` was refused: there are not so many"),
        "{}",
        err(&refused)
    );
    let wanted = "{\"result\":\"done\",\"results\":{\"left\":[1,0]}}\n";
    assert_eq!(good(shell("call look {items: [7, 8]}", &["--json"])), wanted);
    let looked = shell(r#"call look '{"items": [7, 8]}'"#, &["--json"]);
    assert_eq!(good(looked), wanted);
    for (statement, wrong) in [
        (
            "call buy",
            "there is no procedure `buy` in version 2 of the set; there are `fill`, `sell`, `look`",
        ),
        (
            "call sell {item: 7, count: }",
            "line 1, column 18 of the inputs: wanted a value, found `}`",
        ),
        (
            "call sell {item: 7, count: 'x'}",
            "the inputs of `sell`: `count`: wanted int, found \"x\"",
        ),
        ("call sell item=7", "the inputs of `sell`: `count` is missing: item (int), count (int)"),
        ("call sell item=x count=1", "the inputs of `sell`: `item`: wanted int, found \"x\""),
        ("get a", "this keyspace has stored procedures"),
    ] {
        let output = shell(statement, &[]);
        assert_eq!(code(&output), 1);
        assert!(err(&output).contains(wrong), "{}", err(&output));
    }

    assert_eq!(good(procedure("remove", &["sell"])), "version 3 is in use\n");
    let again = procedure("remove", &["sell"]);
    assert!(
        err(&again).contains("there is no procedure `sell`; there are: fill, look"),
        "{}",
        err(&again)
    );
    let other = Temporary::new("other.toml", &LOOK.replace("bytes(4)", "bytes(5)"));
    let other = procedure("add", &[other.path()]);
    assert!(err(&other).contains("the table `items` is declared otherwise"), "{}", err(&other));
    // The rows are still there.
    assert_eq!(good(shell("call look items=[7]", &[])), "left = [1]\n");

    let elsewhere = serried(&["procedure", "list", &url, "--keyspace", "accounts"]);
    assert_eq!(code(&elsewhere), 1);
    assert!(err(&elsewhere).contains("accounts"), "{}", err(&elsewhere));
    let bench = serried(&[
        "bench",
        "bank-calls",
        "--connect",
        &url,
        "--keyspace",
        "shop",
        "--seconds",
        "0.1",
    ]);
    assert_eq!(code(&bench), 1);
    assert!(err(&bench).contains("are not those of `bank-calls`: fill, look"), "{}", err(&bench));
}

#[test]
fn a_keyspace_of_procedures_is_measured_again_and_again() {
    let keyspaces = [KeyspaceConfiguration::new("lists", PROTOCOL).with_partitions(2)];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    // What the first run leaves behind is no part of the second one's history.
    for _ in 0..2 {
        let output = serried(&[
            "bench",
            "list-append-calls",
            "--connect",
            &url,
            "--keyspace",
            "lists",
            "--clients",
            "3",
            "--seconds",
            "0.5",
            "--warm-up",
            "0",
            "--check",
            "--json",
        ]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
        assert_eq!(row["verdict"], "strictly serializable", "{row}");
    }
}

#[test]
fn calls_arrive_in_an_open_loop() {
    let output = serried(&[
        "sim",
        "counter-calls",
        "--geo",
        "lan",
        "--clients",
        "2",
        "--rate",
        "1000",
        "--most-open",
        "4",
        "--seconds",
        "0.3",
        "--warm-up",
        "1",
        "--check",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let row: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    let count = |name: &str| row["arrivals"][name].as_u64().expect("a number");
    assert_eq!(count("offered"), count("done") + count("failed") + count("dropped"));
    assert!((220..380).contains(&count("offered")) && count("done") > 200, "{row}");
    assert_eq!(row["verdict"], "consistent", "{row}");
    let flood = serried(&[
        "sim",
        "counter-calls",
        "--geo",
        "lan",
        "--clients",
        "1",
        "--rate",
        "100000",
        "--most-open",
        "2",
        "--seconds",
        "0.05",
        "--warm-up",
        "1",
    ]);
    assert!(out(&flood).contains("offered  done %  dropped %  late ms  call/s"), "{}", out(&flood));
}
