//! Advice on hot keys is held to the truth: each remedy is simulated, and compared with what `serried windows` expects.

use serde_json::Value;

use crate::{code, err, out, serried};

/// How far the factor may be from the one that was expected.
const WITHIN: f64 = 0.3;

fn simulated(arguments: &str) -> Value {
    let arguments: Vec<&str> =
        arguments.split(' ').chain(["--warm-up", "1", "--seed", "3", "--json"]).collect();
    let output = serried(&arguments);
    assert_eq!(code(&output), 0, "{}", err(&output));
    serde_json::from_str(&out(&output)).expect("one line of JSON")
}

/// The advice on the hottest key.
fn advice(run: &str) -> Vec<Value> {
    let seen = simulated(&format!("windows --sim {run} --for 2s"));
    let advice = seen["advice"][0]["advice"].as_array().expect("advice on a key").clone();
    let factors: Vec<f64> = advice.iter().map(|one| one["factor"].as_f64().unwrap()).collect();
    assert!(factors.is_sorted_by(|one, other| one >= other), "{factors:?}");
    advice
}

fn per_s(run: &str) -> f64 {
    let rows = simulated(&format!("sim {run} --seconds 3"));
    let row = rows.as_array().map_or(&rows, |rows| &rows[0]);
    row["goodput_per_s"].as_f64().expect("a throughput")
}

/// Takes the advice `what` on the hottest key of `run`, and compares.
fn comes_true(run: &str, what: &str, taken: &str) {
    let advice = advice(run);
    let one = advice.iter().find(|one| one["what"] == what);
    let one = one.unwrap_or_else(|| panic!("{run}: no advice `{what}` in {advice:?}"));
    let expected = one["factor"].as_f64().expect("a factor");
    let came = per_s(taken) / per_s(run);
    println!("{run}: {what} expected {expected:.2}, came {came:.2}");
    assert!(
        (came / expected - 1.0).abs() <= WITHIN,
        "{run}: {what} expected {expected}, came {came}"
    );
}

#[test]
fn modifying_a_counter_helps_as_expected() {
    for protocol in ["morty", "ncc", "two-phase-locking-no-wait"] {
        let run = format!("counter --geo reg --clients 64 --protocol {protocol}");
        comes_true(&run, "modify", &run.replace("counter", "counter --modify"));
    }
}

#[test]
fn splitting_a_counter_helps_as_expected() {
    for protocol in ["morty", "ncc", "two-phase-locking-wound-wait"] {
        let run = format!("counter --geo reg --clients 64 --protocol {protocol}");
        comes_true(&run, "split", &run.replace("counter", "counter --keys 8"));
    }
}

#[test]
fn reading_a_counter_for_update_helps_as_expected() {
    for (geography, protocol) in [
        ("lan", "ncc"),
        ("lan", "two-phase-locking-wound-wait"),
        ("reg", "two-phase-locking-wound-wait"),
    ] {
        let run =
            format!("counter --plain-reads --geo {geography} --clients 64 --protocol {protocol}");
        comes_true(&run, "get-for-update", &run.replace(" --plain-reads", ""));
    }
}

#[test]
fn another_protocol_helps_as_expected() {
    for workload in
        ["counter", "retwis --dependent --keys 1000 --theta 1.4", "tpcc --small --warehouses 1"]
    {
        let run = format!("{workload} --geo reg --clients 64 --protocol mvtso");
        comes_true(&run, "protocol", &run.replace("mvtso", "morty"));
    }
}

#[test]
fn modifying_the_hot_keys_of_retwis_helps_as_expected() {
    let run = "retwis --dependent --keys 1000 --theta 1.4 --geo reg --clients 64 --protocol morty";
    comes_true(run, "modify", &run.replace("--dependent", "--dependent --modify"));
}

#[test]
fn keys_that_are_not_hot_get_no_advice_and_the_report_says_so() {
    let run = "retwis --dependent --keys 100000 --theta 0 --geo reg --clients 64 --protocol morty";
    let seen = simulated(&format!("windows --sim {run}"));
    for key in seen["advice"].as_array().unwrap() {
        assert_eq!(
            (&key["hot"], &key["advice"]),
            (&false.into(), &Value::Array(Vec::new())),
            "{key}"
        );
    }
    let arguments =
        ["windows", "--sim", "bank", "--keys", "10000", "--geo", "lan", "--clients", "2"];
    let output = serried(&[&arguments[..], &["--protocol", "morty", "--warm-up", "0.1"]].concat());
    assert!(out(&output).contains("not hot"), "{}", out(&output));
}

#[test]
fn writes_that_read_nothing_get_no_advice_to_modify() {
    let seen = simulated(
        "windows --sim counter --modify --geo lan --clients 8 --protocol morty --for 50ms",
    );
    let advice = seen["advice"].as_array().unwrap();
    assert!(!advice.is_empty(), "{seen}");
    assert!(advice.iter().all(|key| key["advice"] == Value::Array(Vec::new())), "{advice:?}");
}
