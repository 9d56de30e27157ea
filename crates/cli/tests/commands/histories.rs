//! Histories, and what `check` says of them.

use serde_json::Value;

use crate::{Temporary, code, err, out, serried, with_input};

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
fn a_history_in_which_nothing_has_succeeded_is_no_pass() {
    let failed = "{\"type\":\"invoke\",\"process\":0,\"time\":1,\"f\":\"write\",\"value\":[1,2]}\n\
                  {\"type\":\"fail\",\"process\":0,\"time\":2,\"f\":\"write\",\"value\":[1,2]}\n";
    for text in ["", "\n\n", failed] {
        let history = Temporary::new("empty.jsonl", text);
        let output = serried(&["check", history.path()]);
        assert_eq!(code(&output), 4, "{text:?}: {}", out(&output));
        assert!(out(&output).contains("nothing in the history has succeeded"), "{}", out(&output));
    }
}

#[test]
fn a_byte_order_mark_and_the_faults_that_jepsen_notes_are_skipped() {
    let nemesis = r#"{"type":"info","process":"nemesis","f":"start-partition","value":"majority"}"#;
    let read = r#""process":0,"f":"read","value":[5,null]}"#;
    let history = format!(
        "\u{feff}{nemesis}\n{{\"type\":\"invoke\",{read}\n{nemesis}\n{{\"type\":\"ok\",{read}\n"
    );
    let output = with_input(&["check", "-"], &history);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(
        out(&output).starts_with("linearizable: 1 completed operation on 1 key ("),
        "{}",
        out(&output)
    );
}
