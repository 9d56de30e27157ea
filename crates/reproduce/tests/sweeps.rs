//! Whole figures, at a very small scale.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use serried_model::FamilyName;
use serried_reproduce::{
    Costs, Deaths, Effort, Engine, Error, Figure, Search, figure, figures, table, write,
};

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("serried-reproduce-{}-{name}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("there is room for a folder");
        folder
    }

    /// The files in it and in its subfolders.
    fn contents(&self) -> BTreeMap<PathBuf, String> {
        let mut contents = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    contents.insert(path.strip_prefix(&self.0).unwrap().to_path_buf(), text);
                }
            }
        }
        contents
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An effort that takes no time.
fn tiny_effort(figure: &Figure) -> Effort {
    let mut effort = figure.effort(true);
    match &mut effort.search {
        // A search that ends when more clients don't help needs several counts.
        Search::Clients { counts, patience: Some(_) } => *counts = vec![3, 6],
        Search::Clients { counts, patience: None } => *counts = vec![5],
        Search::Rates { clients, rates_per_s, closer } => {
            (*clients, *rates_per_s, *closer) = (4, vec![500.0, 1000.0], 1);
        }
    }
    let (warm_up_s, measured_s, most_operations, size) = match (figure.families()[0], figure.name) {
        (FamilyName::Registers, _) => (0.3, 2.0, 400, 10),
        (FamilyName::Procedures, "rococo-fig11") => (0.1, 0.5, 300, 5000),
        (FamilyName::Procedures, _) => (0.1, 0.5, 300, 1000),
        (_, "port-fig9") => (0.2, 0.5, 200, 20),
        (_, "morty-fig6") => (0.5, 3.0, 200, 1),
        (_, "ncc-fig7c") => (0.1, 0.5, 2000, 4),
        _ if figure.has_rates() => (0.1, 0.5, 2000, 5000),
        _ => (0.5, 3.0, 200, 5000),
    };
    let places = match figure.name {
        "rococo-fig14" => Some(vec![1.0, 2.0]),
        "rococo-fig15" => Some(vec![1.0]),
        _ => None,
    };
    let deaths = effort.deaths.map(|_| Deaths { at_s: 0.5, then_s: 0.5 });
    Effort { warm_up_s, measured_s, most_operations, size: Some(size), places, deaths, ..effort }
}

fn tiny(figure: &'static Figure, folder: &Folder, threads: usize) -> Engine {
    let mut protocols = figure.known_protocols();
    let of_transactions = figure.families() == [FamilyName::Transactions];
    if of_transactions
        && figure.has_rates()
        && !protocols.iter().any(|protocol| protocol == "mvtso")
    {
        protocols.push("mvtso".to_string());
    }
    Engine {
        figure,
        protocols,
        effort: tiny_effort(figure),
        costs: Costs::default(),
        seed: 7,
        threads,
        folder: folder.0.join("runs"),
    }
}

/// The results of a figure.
struct Reproduced {
    /// How many runs were made.
    fresh: usize,
    /// The table.
    text: String,
    /// The findings.
    json: Value,
}

/// Runs it and writes it.
fn reproduce(engine: &Engine, folder: &Folder) -> Reproduced {
    let fresh = AtomicUsize::new(0);
    let findings = engine.run(&|note| {
        let summary = note.measured.summary();
        assert!(summary.done > 0 && summary.failed == 0, "{note}");
        fresh.fetch_add(usize::from(!note.stored), Ordering::Relaxed);
    });
    let findings = findings.unwrap();
    write(&findings, &folder.0).unwrap();
    let json = serde_json::to_value(&findings).unwrap();
    Reproduced { fresh: fresh.into_inner(), text: table(&findings), json }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("it is a list")
}

/// The findings about one system and this quantity.
fn about<'a>(json: &'a Value, what: &'a str) -> impl Iterator<Item = &'a Value> {
    let is_one = |finding: &&Value| !finding["systems"].as_str().unwrap().contains(' ');
    array(&json["findings"]).iter().filter(move |finding| finding["what"] == what).filter(is_one)
}

#[test]
fn every_figure_runs_through_and_says_what_is_missing() {
    for figure in figures() {
        let folder = Folder::new(figure.name);
        let engine = tiny(figure, &folder, 2);
        let Reproduced { fresh, text, json } = reproduce(&engine, &folder);
        assert!(fresh >= engine.protocols.len(), "{text}");
        for system in figure.protocols() {
            let is_missing = engine.protocols.iter().all(|protocol| protocol != system);
            let missing = array(&json["missing"]);
            assert_eq!(missing.iter().any(|name| name == system), is_missing, "{system}");
            let line = format!("- `{system}` is not in this build");
            assert_eq!(text.contains(&line), is_missing, "{text}");
        }
        for protocol in &engine.protocols {
            assert!(text.contains(protocol), "{text}");
        }
        let contents = folder.contents();
        let written: Value =
            serde_json::from_str(&contents[Path::new(&format!("{}.json", figure.name))]).unwrap();
        assert_eq!(written["sweeps"], json["sweeps"]);
        let html = &contents[Path::new(&format!("{}.html", figure.name))];
        assert!(html.contains("</svg>") && !html.contains("NaN"));
        for elsewhere in ["http:", "https:", "<script", "@import", "src="] {
            assert!(!html.contains(elsewhere), "{} needs {elsewhere}", figure.name);
        }
        let csv = &contents[Path::new(&format!("{}.csv", figure.name))];
        let cells = |line: &str| line.split(',').count();
        let columns = csv.lines().next().map(cells);
        assert!(csv.lines().count() > fresh, "{csv}");
        assert!(csv.lines().all(|line| Some(cells(line)) == columns), "{csv}");
    }
}

#[test]
fn calls_count_only_while_they_are_measured() {
    let folder = Folder::new("measured-calls");
    let engine = Engine {
        protocols: vec!["occ-procedures".to_string()],
        ..tiny(figure("ncc-fig7c-calls").unwrap(), &folder, 2)
    };
    let Reproduced { json, .. } = reproduce(&engine, &folder);
    let runs = array(&json["sweeps"]).iter().flat_map(|sweep| array(&sweep["runs"]));
    for run in runs {
        let all = array(&run["kinds"]).iter().find(|kind| kind["kind"] == "request").unwrap();
        let [per_s, offered] = [&all["per_s"], &run["open"]["rate_per_s"]].map(Value::as_f64);
        // More do not arrive, so they can't be done unless others are counted.
        assert!(per_s < offered.map(|offered| 1.2 * offered), "{run}");
    }
}

#[test]
fn figures_of_goodput_show_the_papers_numbers_beside_ours() {
    for figure in figures().filter(|figure| figure.name.starts_with("morty")) {
        let folder = Folder::new(&format!("goodput-{}", figure.name));
        let Reproduced { text, json, .. } = reproduce(&tiny(figure, &folder, 2), &folder);
        assert!(text.contains("morty") && text.contains("tapir"), "{text}");
        let sweeps = array(&json["sweeps"]);
        for sweep in sweeps {
            assert!(sweep["highest_per_s"].as_f64() > Some(0.5), "{sweep}");
        }
        assert!(sweeps.len() >= 6);
        let mut stated = about(&json, "highest throughput");
        assert!(stated.any(|finding| finding["paper"].as_f64() > Some(10_000.0)), "{text}");
        let mut ours = about(&json, "highest throughput").map(|finding| &finding["ours"]);
        assert!(ours.any(|ours| ours.as_f64() > Some(0.5)), "{text}");
    }
}

#[test]
fn figures_of_registers_show_latencies_of_every_kind() {
    for figure in figures().filter(|figure| figure.families() == [FamilyName::Registers]) {
        let folder = Folder::new(&format!("latencies-{}", figure.name));
        let mut engine = tiny(figure, &folder, 2);
        if engine.protocols.is_empty() {
            engine.protocols.push("epaxos".to_string());
        }
        let Reproduced { text, json, .. } = reproduce(&engine, &folder);
        assert!(text.contains("p99.9 ms"), "{text}");
        for run in array(&json["sweeps"]).iter().flat_map(|sweep| array(&sweep["runs"])) {
            let kinds = array(&run["kinds"]);
            assert!(kinds.iter().all(|kind| kind["mean_ms"].as_f64() > Some(0.0)), "{run}");
        }
    }
}

#[test]
fn what_read_only_transactions_cost_is_counted_for_all_families() {
    let folder = Folder::new("read-only");
    let engine = tiny(figure("port-fig9").unwrap(), &folder, 2);
    let Reproduced { text, json, .. } = reproduce(&engine, &folder);
    assert!(text.contains("writes together"), "{text}");
    // A mean of a protocol with the fewest writers, and with the most.
    let means = |protocol: &str, name: &str| {
        let all = array(&json["sweeps"]).iter().filter(|sweep| sweep["protocol"] == protocol);
        let of_runs = all.map(|sweep| sweep["runs"][0]["means"][name].as_f64().unwrap());
        let of_runs: Vec<f64> = of_runs.collect();
        (of_runs[0], of_runs[of_runs.len() - 1])
    };
    for optimal in ["port", "eiger-port"] {
        assert_eq!(means(optimal, "most_rounds"), (1.0, 1.0), "O: {text}");
        assert_eq!(means(optimal, "blocked_share"), (0.0, 0.0), "N: {text}");
        let (few, many) = means(optimal, "metadata_bytes");
        assert!(0.95 * few < many && many < 1.05 * few, "C: {text}");
    }
    let waits = means("two-phase-locking-wound-wait", "blocked_share");
    assert!(0.05 < waits.0 && waits.0 < waits.1, "{text}");
    let rounds = means("scylla-occ", "rounds");
    assert!(2.0 <= rounds.0 && rounds.0 < rounds.1, "{text}");
    let bytes = means("port-seo", "metadata_bytes");
    assert!(1.3 * bytes.0 < bytes.1, "{text}");
    assert_eq!(means("eiger", "most_rounds").1, 3.0, "{text}");
    assert_eq!(means("janus", "most_rounds").1, 2.0, "{text}");
}

#[test]
fn the_same_seed_gives_the_same_files_on_any_threads_and_resumed() {
    for name in ["morty-fig9", "gryff-fig8", "ncc-fig7a", "port-fig9"] {
        let (one, two) = (Folder::new(&format!("one-{name}")), Folder::new(&format!("two-{name}")));
        let engine = |folder: &Folder, threads| {
            let mut engine = tiny(figure(name).unwrap(), folder, threads);
            if name == "ncc-fig7a" {
                engine.protocols.push("morty".to_string());
            }
            engine
        };
        let all = reproduce(&engine(&one, 1), &one).fresh;
        reproduce(&engine(&two, 2), &two);
        let before = one.contents();
        assert!(before.len() == all + 3, "{:?}", before.keys());
        assert_eq!(before, two.contents());
        let kept = before.keys().find(|path| path.starts_with("runs")).unwrap();
        fs::remove_file(one.0.join(kept)).unwrap();
        let again = reproduce(&engine(&one, 1), &one).fresh;
        assert_eq!((again, one.contents() == before), (1, true), "of {all} runs");
    }
}

#[test]
fn an_interrupted_figure_continues_with_the_same_result() {
    let folder = Folder::new("resumed");
    let engine = tiny(figure("morty-fig7").unwrap(), &folder, 1);
    let all = reproduce(&engine, &folder).fresh;
    let before = folder.contents();
    let runs: Vec<_> = before.keys().filter(|path| path.starts_with("runs")).collect();
    assert_eq!(runs.len(), all);
    fs::remove_file(folder.0.join(runs[0])).unwrap();
    fs::write(folder.0.join(runs[1]), "{\"point\": {}").unwrap();
    let again = reproduce(&engine, &folder).fresh;
    assert_eq!(again, 2, "what is missing or broken is run again, and nothing else");
    assert_eq!(folder.contents(), before);
}

#[test]
fn a_stored_run_with_other_settings_is_not_taken() {
    let folder = Folder::new("other-settings");
    let mut engine = tiny(figure("morty-fig7").unwrap(), &folder, 1);
    let all = reproduce(&engine, &folder).fresh;
    engine.seed += 1;
    assert_eq!(reproduce(&engine, &folder).fresh, all);
}

#[test]
fn a_protocol_that_is_not_here_is_an_error_on_any_thread() {
    let folder = Folder::new("no-protocol");
    let mut engine = tiny(figure("morty-fig7").unwrap(), &folder, 2);
    engine.protocols = vec!["paxos".to_string()];
    let error = engine.run(&|_| {}).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

#[test]
fn a_protocol_of_transactions_has_no_registers() {
    let folder = Folder::new("no-registers");
    let mut engine = tiny(figure("gryff-fig8").unwrap(), &folder, 1);
    engine.protocols = vec!["mvtso".to_string()];
    let error = engine.run(&|_| {}).unwrap_err();
    assert!(error.to_string().starts_with("there is no protocol of registers `mvtso`"), "{error}");
}

#[test]
fn rates_are_no_load_for_closed_loops() {
    let folder = Folder::new("no-rates");
    let mut engine = tiny(figure("morty-fig7").unwrap(), &folder, 1);
    engine.effort.search = Search::Rates { clients: 1, rates_per_s: vec![1.0], closer: 0 };
    let error = engine.run(&|_| {}).unwrap_err();
    assert!(matches!(error, Error::OtherLoad), "{error}");
}

/// The sweep that looks for the highest load, and those at a share of it.
fn searched(json: &Value) -> (&Value, Vec<&Value>) {
    let (places, searched): (Vec<&Value>, Vec<&Value>) =
        array(&json["sweeps"]).iter().partition(|sweep| sweep["x"].is_number());
    assert_eq!(searched.len(), 1);
    (searched[0], places)
}

fn offered(run: &Value) -> f64 {
    run["open"]["rate_per_s"].as_f64().unwrap()
}

#[test]
fn the_highest_rate_is_searched_for_and_then_three_quarters_offered() {
    let folder = Folder::new("load-climbs");
    let mut engine = tiny(figure("ncc-fig8a").unwrap(), &folder, 1);
    engine.protocols = vec!["mvtso".to_string()];
    engine.effort.search = Search::Rates { clients: 4, rates_per_s: Vec::new(), closer: 1 };
    engine.costs = Costs::default().times(100.0);
    let Reproduced { text, json, .. } = reproduce(&engine, &folder);
    let (system, places) = searched(&json);
    assert_eq!(system["saturated"], true, "{text}");
    let peak = system["highest_per_s"].as_f64().unwrap();
    let runs = array(&system["runs"]);
    assert!(runs.iter().map(offered).is_sorted());
    assert!(offered(&runs[0]) < peak * 1.2 && peak < offered(runs.last().unwrap()), "{text}");
    for place in &places {
        let share = offered(&place["runs"][0]) / peak;
        assert!((0.74..0.76).contains(&share), "{share} {text}");
    }
    assert!(places.iter().any(|place| place["normalized"] == 1.0));
}

#[test]
fn others_go_on_when_all_clients_die() {
    let folder = Folder::new("load-deaths");
    let mut engine = tiny(figure("ncc-fig8c").unwrap(), &folder, 1);
    engine.protocols = vec!["mvtso".to_string()];
    let Reproduced { text, json, .. } = reproduce(&engine, &folder);
    let (_, places) = searched(&json);
    assert_eq!(places.len(), 2, "{text}");
    for place in places {
        let run = &place["runs"][0];
        let slots = array(&run["open"]["over_time"]);
        assert_eq!(slots.len(), 4, "{text}");
        assert!(slots.iter().all(|slot| slot.as_f64() > Some(0.7 * offered(run))), "{text}");
        assert!(place["dip"]["before_per_s"].as_f64() > Some(0.7 * offered(run)), "{text}");
    }
}
