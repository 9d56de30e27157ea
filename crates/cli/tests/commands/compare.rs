//! Which protocol to take: `compare`, `record`, and traces.

use std::time::Duration;

use serde_json::Value;
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};
use serried_model::{Form, Key, NodeId, ReportedRead, ReportedWrite, TransactionReport};
use serried_workload::{Bound, TraceBounds, TraceBuilder, TraceHeader};

use crate::{Temporary, code, err, out, serried};

/// A comparison that takes a moment.
const QUICK: [&str; 6] = ["--seconds", "0.1", "--warm-up", "0.02", "--seeds", "1"];

fn compared(arguments: &[&str]) -> String {
    let output = serried(&[&["compare"], arguments, &QUICK].concat());
    assert_eq!(code(&output), 0, "{arguments:?}: {}", err(&output));
    out(&output)
}

fn parsed(arguments: &[&str]) -> Value {
    serde_json::from_str(&compared(&[arguments, &["--json"]].concat())).expect("one line of JSON")
}

#[test]
fn a_comparison_runs_every_protocol_of_the_workloads_family_and_says_what_to_take() {
    for (workload, family) in [("bank", "transactions"), ("bank-calls", "procedures")] {
        let seen = parsed(&[workload, "--clients", "4"]);
        let all = serried_protocols::list().iter().filter(|p| p.family.to_string() == family);
        let mut expected: Vec<&str> = all.map(|protocol| protocol.name).collect();
        expected.sort_unstable();
        let runs = seen["runs"].as_array().unwrap();
        let mut ran: Vec<&str> = runs.iter().map(|run| run["protocol"].as_str().unwrap()).collect();
        ran.sort_unstable();
        assert_eq!(ran, expected, "{workload}");
        let goodputs = runs.iter().map(|run| run["goodput_per_s"].as_f64().unwrap());
        assert!(goodputs.is_sorted_by(|one, other| one >= other), "{seen}");
        for run in runs {
            let promises = run["promises"].as_str().unwrap();
            let info = serried_protocols::info(run["protocol"].as_str().unwrap()).unwrap();
            assert_eq!(promises, info.guarantee.name());
        }
        for of in seen["advice"]["guarantees"].as_array().unwrap() {
            for best in of["best"].as_array().unwrap() {
                let info = serried_protocols::info(best["protocol"].as_str().unwrap()).unwrap();
                assert_eq!(of["guarantee"], info.guarantee.name(), "{of}");
            }
        }
        let plain = format!("plain-{family}");
        assert_eq!(seen["advice"]["bounds"], serde_json::json!([plain]));
    }
}

#[test]
fn a_comparison_depends_on_its_seed_alone() {
    let with = |seed| compared(&["counter", "--clients", "4", "--seed", seed, "--json"]);
    assert_eq!(with("7"), with("7"));
    assert_ne!(with("7"), with("8"));
    let usual = ["counter", "--clients", "4", "--protocol", "morty,ncc,plain-transactions"];
    let output = serried(&[&["compare", "--seeds", "3"], &usual[..], &QUICK[..4]].concat());
    let text = out(&output);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(text.starts_with("seeds 1 to 3, medians: counter with 4 clients"), "{text}");
    assert!(text.contains("CPU costs: built-in"), "{text}");
    assert!(text.contains("strict-serializable, best goodput: ncc"), "{text}");
    assert!(text.contains("serializable, best goodput: morty"), "{text}");
}

#[test]
fn disks_that_take_time_and_cores_that_all_share_make_a_difference() {
    let run = |more: &[&str]| {
        let one = ["counter", "--clients", "4", "--protocol", "morty"];
        parsed(&[&one, more].concat())["runs"][0].clone()
    };
    let goodput = |more: &[&str]| run(more)["goodput_per_s"].as_f64().unwrap();
    let usual = goodput(&[]);
    let synced = goodput(&["--durability", "sync", "--flush-us", "3000"]);
    let shared = goodput(&["--shared-cores", "1"]);
    assert!(synced < usual / 2.0 && shared < usual, "{usual} {synced} {shared}");
    let busy = run(&["--shared-cores", "1"])["simulation"]["replica_cpu"].as_f64().unwrap();
    assert!(
        (0.1..1.0).contains(&busy),
        "the share of the one core that replicas have used: {busy}"
    );
}

#[test]
fn workloads_that_a_protocol_can_not_run_are_refused() {
    for (arguments, said) in [
        (&["retwis", "--protocol", "gryff"][..], "`gryff` has registers"),
        (&["eiger", "--protocol", "port"], "`port` has no write transactions"),
        (&["trace"], "write --trace FILE"),
        (&["--trace", "nowhere.trace"], "can't read nowhere.trace"),
        (&["retwis", "--trace", "nowhere.trace"], "cannot be used with"),
        (&[], "WORKLOAD"),
        (&["retwis", "--closed"], "--trace"),
    ] {
        let output = serried(&[&["compare"], arguments].concat());
        assert_ne!(code(&output), 0, "{arguments:?}");
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
}

#[test]
fn the_same_seed_gives_the_same_events_on_one_machine_also_with_crashes_and_pauses() {
    let hash = |seed| {
        let run = ["sim", "list-append", "--shared-cores", "2", "--faults", "crashes,pauses"];
        let more = ["--check", "--seconds", "1", "--protocol", "morty,ncc", "--json", "--seed"];
        let output = serried(&[&run[..], &more, &[seed]].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        let hash = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            assert!(row["committed"].as_u64().unwrap() > 0, "{row}");
            row["simulation"]["event_hash"].as_str().unwrap().to_string()
        };
        out(&output).lines().map(hash).collect::<Vec<_>>()
    };
    assert_eq!(hash("3"), hash("3"));
    assert_ne!(hash("3"), hash("4"));
}

#[test]
fn the_clients_of_one_machine_do_not_share_a_coordinator_that_runs_out_of_versions() {
    let run = ["sim", "bank", "--shared-cores", "2", "--clients", "48", "--keys", "20", "--check"];
    let more = ["--seconds", "0.3", "--warm-up", "0", "--protocol", "ncc,spanner"];
    let output = serried(&[&run[..], &more].concat());
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
}

#[test]
fn a_comparison_in_which_nothing_commits_fails_and_says_why() {
    // No transaction can commit in a millisecond, as messages take longer.
    let usual = ["counter", "--geo", "reg", "--deadline", "0.001", "--protocol", "morty,ncc"];
    let output = serried(&[&["compare"], &usual[..], &QUICK].concat());
    assert_eq!(code(&output), 1, "{}", out(&output));
    assert!(err(&output).contains("no protocol has committed anything"), "{}", err(&output));
    let text = out(&output);
    assert!(text.contains("ncc, 16 clients: ") && text.contains(" failed, the last with: "));
    assert!(text.contains("serializable: no protocol has committed enough"), "{text}");
    let output = serried(&[&["sim"], &usual[..], &QUICK[..4]].concat());
    assert!(out(&output).contains(" failed, the last with: "), "{}", out(&output));
}

#[test]
fn values_above_the_usual_limits_are_run_again_all_the_same() {
    let mut builder = TraceBuilder::new(
        TraceBounds { transactions: 9, bytes: 1 << 20, lasts: Duration::from_secs(1) },
        false,
    );
    let key = || Key::from("large");
    let large = Some(3 << 20);
    builder.add(
        NodeId(1),
        TransactionReport {
            began_ns: 1000,
            ended_ns: 2000,
            attempts: 1,
            form: Form::Program,
            reads: vec![ReportedRead { key: key(), round: 0, for_update: false, bytes: large }],
            writes: vec![ReportedWrite { key: key(), bytes: large }],
            modifies: Vec::new(),
        },
    );
    let header = TraceHeader {
        family: "transactions".to_string(),
        cluster: "elsewhere".to_string(),
        keyspace: "accounts".to_string(),
        protocol: "morty".to_string(),
        recorded_at_s: 1,
        lasted_ns: 5000,
        bound: Bound::Time,
        missed: 0,
        hashed_keys: false,
    };
    let file = builder.finish(header).unwrap().encode();
    let trace = Temporary::new("large.trace", "");
    std::fs::write(trace.path(), file).unwrap();
    for command in [&["sim"][..], &["bench"], &["bench", "--processes"]] {
        let more = ["--trace", trace.path(), "--protocol", "morty", "--json", "--seconds", "0.3"];
        let output = serried(&[command, &more, &["--warm-up", "0"]].concat());
        assert_eq!(code(&output), 0, "{}", err(&output));
        let row: Value = serde_json::from_str(&out(&output)).unwrap();
        assert!(row["committed"].as_u64().unwrap() > 0 && row["failed"] == 0, "{row}");
    }
    let rate = serried(&["sim", "--trace", trace.path(), "--rate", "100"]);
    assert_eq!(code(&rate), 2);
    assert!(err(&rate).contains("the pauses of a trace would be lost: add --closed"));
}

/// A cluster whose keyspace `accounts` is used by two clients, until what `observe` starts has ended.
fn while_used<T: Send + 'static>(observe: impl FnOnce(String) -> T + Send + 'static) -> T {
    let keyspaces = [
        KeyspaceConfiguration::new("accounts", "morty"),
        KeyspaceConfiguration::new("flags", "gryff"),
        KeyspaceConfiguration::new("spare", "morty"),
    ];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let address = cluster.url();
    let observer = std::thread::spawn({
        let address = address.clone();
        move || observe(address)
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let database = serried::Database::connect(&address).await.unwrap();
        let accounts = database.keyspace("accounts").await.unwrap();
        let transfer = |tx: serried::Transaction| async move {
            let found = tx.get_many(["account-alice", "account-bob"]).for_update(..).await?;
            let length = found.iter().flatten().count();
            tx.put("account-alice", "x".repeat(20 + length));
            tx.put("account-bob", "y".repeat(30));
            Ok(())
        };
        while !observer.is_finished() {
            let both = tokio::join!(accounts.transact(transfer), accounts.get("account-alice"));
            both.0.unwrap();
            both.1.unwrap();
        }
    });
    observer.join().expect("it does not panic")
}

#[test]
fn what_clients_do_is_recorded_and_can_be_run_again_under_any_protocol() {
    let trace = Temporary::new("accounts.trace", "");
    let file = trace.path().to_string();
    let output = while_used(move |address| {
        let recorded = serried(&[
            "record",
            &address,
            "--keyspace",
            "accounts",
            "--for",
            "60s",
            "--transactions",
            "300",
            "--output",
            &file,
            "--json",
        ]);
        let refused =
            serried(&["record", &address, "--keyspace", "flags", "--output", "unused.trace"]);
        assert_eq!(code(&refused), 1);
        assert!(err(&refused).contains("only transactions can be recorded"), "{}", err(&refused));
        let nowhere =
            serried(&["record", &address, "--keyspace", "accounts", "--output", "no/such/place"]);
        assert!(err(&nowhere).contains("can't write no/such/place"), "{}", err(&nowhere));
        overwriting_is_refused(&address, &file);
        recorded
    });
    assert_eq!(code(&output), 0, "{}", err(&output));
    let seen: Value = serde_json::from_str(&out(&output)).expect("one line of JSON");
    let of = |name: &str| &seen[name];
    assert_eq!((of("transactions"), of("bound")), (&300.into(), &"Transactions".into()));
    assert_eq!((of("keyspace"), of("protocol")), (&"accounts".into(), &"morty".into()));
    assert_eq!((of("clients"), of("keys"), of("missed")), (&2.into(), &2.into(), &0.into()));

    let seen = parsed(&["--trace", trace.path(), "--closed"]);
    let runs = seen["runs"].as_array().unwrap();
    assert!(runs.len() > 10 && seen["clients"] == 2, "{seen}");
    assert!(runs.iter().all(|run| run["committed"].as_u64().unwrap() > 0), "{seen}");
    for (command, more) in [
        ("sim", &["--protocol", "morty,ncc", "--clients", "5"][..]),
        ("bench", &["--protocol", "occ", "--seconds", "0.1", "--warm-up", "0"]),
    ] {
        let output = serried(&[&[command, "--trace", trace.path(), "--json"], more].concat());
        assert_eq!(code(&output), 0, "{command}: {}", err(&output));
        for line in out(&output).lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert!(row["committed"].as_u64().unwrap() > 0 && row["workload"] == "trace", "{row}");
        }
    }

    let check = serried(&["sim", "--trace", trace.path(), "--check"]);
    assert_eq!(code(&check), 2);
    assert!(err(&check).contains("--check and --history are not for `trace`"), "{}", err(&check));
    let other = serried(&["bench", "--trace", trace.path(), "--protocol", "gryff"]);
    assert_eq!(code(&other), 2);
    assert!(err(&other).contains("`trace` is a workload of transactions"), "{}", err(&other));
    let mut bytes = std::fs::read(trace.path()).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(trace.path(), bytes).unwrap();
    let damaged = serried(&["compare", "--trace", trace.path()]);
    assert_eq!(code(&damaged), 1);
    let said = format!("{}: it is damaged at byte ", trace.path());
    assert!(err(&damaged).contains(&said), "{}", err(&damaged));
}

/// A trace does not overwrite the keys of others.
fn overwriting_is_refused(address: &str, trace: &str) {
    let bench = |keyspace: &str, more: &[&str]| {
        let usual = ["bench", "--trace", trace, "--connect", address, "--keyspace", keyspace];
        serried(&[&usual[..], &["--seconds", "0.1", "--warm-up", "0"], more].concat())
    };
    for more in [&[][..], &["--no-load"]] {
        let same = bench("accounts", more);
        assert_eq!(code(&same), 2, "{}", out(&same));
        assert!(err(&same).contains("was recorded in keyspace `accounts`"), "{}", err(&same));
    }
    let empty = bench("spare", &[]);
    assert_eq!(code(&empty), 0, "{}", err(&empty));
    // Now it has the trace's keys.
    for more in [&[][..], &["--no-load"]] {
        let used = bench("spare", more);
        assert_eq!(code(&used), 2, "{}", out(&used));
        assert!(err(&used).contains("has the trace's key `account-"), "{}", err(&used));
    }
    assert_eq!(code(&bench("spare", &["--overwrite"])), 0);
}

#[test]
fn hashes_take_the_place_of_keys_if_asked() {
    let trace = Temporary::new("hashed.trace", "");
    let file = trace.path().to_string();
    let output = while_used(move |address| {
        serried(&[
            "record",
            &address,
            "--keyspace",
            "accounts",
            "--transactions",
            "50",
            "--hash-keys",
            "--output",
            &file,
        ])
    });
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("of 2 hashed keys"), "{}", out(&output));
    assert!(out(&output).contains("it had as many transactions as it may have"));
    let bytes = std::fs::read(trace.path()).unwrap();
    assert!(!bytes.windows(5).any(|part| part == b"alice"));
    assert!(compared(&["--trace", trace.path()]).contains("hashed keys"));
}
