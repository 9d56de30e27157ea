//! Windows of hot keys.

use serde_json::Value;
use serried_local::{KeyspaceConfiguration, LocalCluster, LocalOptions};

use crate::{Temporary, code, err, out, serried};

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
