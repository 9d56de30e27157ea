//! Whole figures, at a scale at which they take no time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serried_reproduce::{
    Costs, Deaths, Effort, Engine, Error, Figure, Findings, LoadEffort, LoadEngine, LoadFigure,
    RegisterEffort, RegisterEngine, RegisterFigure, figure, figures, load_figures,
    register_figures, table, write,
};

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("serried-reproduce-{}-{name}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).expect("there is room for a folder");
        folder
    }

    /// What is in it, folders within included.
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

fn tiny(figure: &'static Figure, folder: &Path, threads: usize) -> Engine {
    Engine {
        figure,
        protocols: Engine::known_protocols(),
        effort: Effort {
            warm_up_s: 0.5,
            measured_s: 3.0,
            most_transactions: 200,
            clients: vec![3, 6],
            patience: 2,
            few_places: true,
            size: Some(if figure.name == "morty-fig6" { 1 } else { 5000 }),
        },
        costs: Costs::default(),
        seed: 7,
        threads,
        folder: folder.join("runs"),
    }
}

fn reproduce(name: &str, folder: &Folder, threads: usize) -> (Findings, usize) {
    let fresh = AtomicUsize::new(0);
    let engine = tiny(figure(name).unwrap(), &folder.0, threads);
    let findings = engine.run(&|note| {
        fresh.fetch_add(usize::from(!note.stored), Ordering::Relaxed);
    });
    let findings = findings.unwrap();
    write(&findings, &folder.0).unwrap();
    (findings, fresh.into_inner())
}

#[test]
fn every_figure_runs_through_and_shows_the_papers_numbers_beside_ours() {
    for figure in figures() {
        let folder = Folder::new(figure.name);
        let (findings, _) = reproduce(figure.name, &folder, 2);
        let text = table(&findings);
        assert!(text.contains("morty") && text.contains("tapir"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&folder.contents()[Path::new(&format!("{}.json", figure.name))])
                .unwrap();
        let peaks = json["peaks"].as_array().unwrap();
        let ours = peaks.iter().filter(|peak| !peak["ours"].is_null());
        for peak in ours.clone() {
            assert!(peak["ours"]["goodput_per_s"].as_f64() > Some(0.5), "{peak}");
        }
        assert!(ours.count() >= 6);
        assert!(peaks.iter().any(|peak| peak["paper"]["goodput_per_s"].as_f64() > Some(10_000.0)));
        let html = &folder.contents()[Path::new(&format!("{}.html", figure.name))];
        assert!(html.contains("</svg>") && !html.contains("NaN"));
        for elsewhere in ["http:", "https:", "<script", "@import", "src="] {
            assert!(!html.contains(elsewhere), "{} needs {elsewhere}", figure.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_files_on_any_number_of_threads() {
    let (one, two) = (Folder::new("one-thread"), Folder::new("two-threads"));
    reproduce("morty-fig9", &one, 1);
    reproduce("morty-fig9", &two, 2);
    let (one, two) = (one.contents(), two.contents());
    assert!(one.len() > 16, "{:?}", one.keys());
    assert_eq!(one, two);
}

#[test]
fn a_sweep_goes_on_where_it_was_and_comes_to_the_same() {
    let folder = Folder::new("resumed");
    let (_, all) = reproduce("morty-fig7", &folder, 1);
    let before = folder.contents();
    let runs: Vec<_> = before.keys().filter(|path| path.starts_with("runs")).collect();
    assert_eq!(runs.len(), all);
    fs::remove_file(folder.0.join(runs[0])).unwrap();
    fs::write(folder.0.join(runs[1]), "{\"point\": {}").unwrap();
    let (_, again) = reproduce("morty-fig7", &folder, 1);
    assert_eq!(again, 2, "what is missing or broken is run again, and nothing else");
    assert_eq!(folder.contents(), before);
}

#[test]
fn a_stored_run_with_other_settings_is_not_taken() {
    let folder = Folder::new("other-settings");
    let (_, all) = reproduce("morty-fig7", &folder, 1);
    let mut engine = tiny(figure("morty-fig7").unwrap(), &folder.0, 1);
    engine.seed += 1;
    let fresh = AtomicUsize::new(0);
    let count = |note: serried_reproduce::Note<'_>| {
        fresh.fetch_add(usize::from(!note.stored), Ordering::Relaxed);
    };
    engine.run(&count).unwrap();
    assert_eq!(fresh.into_inner(), all);
}

#[test]
fn a_protocol_that_is_not_here_is_an_error_on_any_thread() {
    let folder = Folder::new("no-protocol");
    let mut engine = tiny(figure("morty-fig7").unwrap(), &folder.0, 2);
    engine.protocols = vec!["paxos".to_string()];
    let error = engine.run(&|_| {}).unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error}");
}

fn tiny_of_registers(
    figure: &'static RegisterFigure,
    folder: &Path,
    threads: usize,
) -> RegisterEngine {
    RegisterEngine {
        figure,
        protocols: RegisterEngine::known_protocols(figure),
        effort: RegisterEffort {
            warm_up_s: 0.3,
            measured_s: 2.0,
            most_operations: 400,
            few_places: true,
            clients: vec![5],
            keys: Some(10),
        },
        costs: Costs::default(),
        seed: 7,
        threads,
        folder: folder.join("runs"),
    }
}

/// Runs it, writes it, and returns how many runs were made, and the table.
fn reproduce_registers(engine: &RegisterEngine, folder: &Folder) -> (usize, String) {
    let fresh = AtomicUsize::new(0);
    let findings = engine.run(&|note| {
        assert!(note.measured.kinds.iter().all(|kind| kind.mean_ms > 0.0), "{:?}", note.measured);
        assert_eq!(note.measured.failed, 0);
        fresh.fetch_add(usize::from(!note.stored), Ordering::Relaxed);
    });
    let findings = findings.unwrap();
    write(&findings, &folder.0).unwrap();
    (fresh.into_inner(), table(&findings))
}

#[test]
fn every_figure_of_registers_runs_through_and_says_what_is_not_there() {
    for figure in register_figures() {
        let folder = Folder::new(figure.name);
        let mut engine = tiny_of_registers(figure, &folder.0, 2);
        if engine.protocols.is_empty() {
            engine.protocols.push("epaxos".to_string());
        }
        let (runs, text) = reproduce_registers(&engine, &folder);
        assert!(runs > 0 && text.contains("p99.9 ms"), "{text}");
        let contents = folder.contents();
        let html = &contents[Path::new(&format!("{}.html", figure.name))];
        assert!(html.contains("</svg>") && !html.contains("NaN"));
        for series in figure.protocols() {
            let is_missing = engine.protocols.iter().all(|protocol| protocol != series);
            let json = &contents[Path::new(&format!("{}.json", figure.name))];
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            let missing = json["missing"].as_array().unwrap();
            assert_eq!(missing.iter().any(|name| name == series), is_missing, "{series}");
        }
        for elsewhere in ["http:", "https:", "<script", "@import", "src="] {
            assert!(!html.contains(elsewhere), "{} needs {elsewhere}", figure.name);
        }
    }
}

#[test]
fn a_figure_of_registers_comes_to_the_same_on_any_number_of_threads_and_when_it_is_resumed() {
    let figure = register_figures().iter().find(|figure| figure.name == "gryff-fig8").unwrap();
    let (one, two) = (Folder::new("registers-one"), Folder::new("registers-two"));
    let (all, _) = reproduce_registers(&tiny_of_registers(figure, &one.0, 1), &one);
    reproduce_registers(&tiny_of_registers(figure, &two.0, 2), &two);
    let before = one.contents();
    assert_eq!(before, two.contents());
    let kept = before.keys().find(|path| path.starts_with("runs")).unwrap();
    fs::remove_file(one.0.join(kept)).unwrap();
    let (again, _) = reproduce_registers(&tiny_of_registers(figure, &one.0, 1), &one);
    assert_eq!((again, one.contents() == before), (1, true), "of {all} runs");
}

fn tiny_of_load(figure: &'static LoadFigure, folder: &Path, threads: usize) -> LoadEngine {
    let mut protocols = LoadEngine::known_protocols(figure);
    protocols.push("mvtso".to_string());
    LoadEngine {
        figure,
        protocols,
        effort: LoadEffort {
            warm_up_s: 0.1,
            measured_s: 0.5,
            most_transactions: 2000,
            clients: 4,
            rates_per_s: vec![500.0, 1000.0],
            closer: 1,
            few_places: true,
            deaths: Deaths { at_s: 0.5, then_s: 0.5 },
            size: Some(if figure.name == "ncc-fig7c" { 4 } else { 5000 }),
        },
        costs: Costs::default(),
        seed: 7,
        threads,
        folder: folder.join("runs"),
    }
}

/// Runs it, writes it, and returns how many runs were made, the table, and the findings as JSON.
fn reproduce_load(engine: &LoadEngine, folder: &Folder) -> (usize, String, serde_json::Value) {
    let fresh = AtomicUsize::new(0);
    let findings = engine.run(&|note| {
        assert!(note.measured.committed > 0 && note.measured.failed == 0, "{:?}", note.measured);
        fresh.fetch_add(usize::from(!note.stored), Ordering::Relaxed);
    });
    let findings = findings.unwrap();
    write(&findings, &folder.0).unwrap();
    let json = serde_json::to_value(&findings).unwrap();
    (fresh.into_inner(), table(&findings), json)
}

fn load_figure(name: &str) -> &'static LoadFigure {
    load_figures().iter().find(|figure| figure.name == name).unwrap()
}

#[test]
fn every_figure_of_load_runs_through_and_says_what_is_not_there() {
    for figure in load_figures() {
        let folder = Folder::new(figure.name);
        let engine = tiny_of_load(figure, &folder.0, 2);
        let (runs, text, json) = reproduce_load(&engine, &folder);
        assert!(runs >= 2 * engine.protocols.len() && text.contains("mvtso"), "{text}");
        for series in figure.protocols() {
            let is_missing = engine.protocols.iter().all(|protocol| protocol != series);
            let missing = json["missing"].as_array().unwrap();
            assert_eq!(missing.iter().any(|name| name == series), is_missing, "{series}");
            let line = format!("- `{series}` is not in this build");
            assert_eq!(text.contains(&line), is_missing, "{text}");
        }
        let html = &folder.contents()[Path::new(&format!("{}.html", figure.name))];
        assert!(html.contains("</svg>") && !html.contains("NaN"));
        for elsewhere in ["http:", "https:", "<script", "@import", "src="] {
            assert!(!html.contains(elsewhere), "{} needs {elsewhere}", figure.name);
        }
    }
}

#[test]
fn a_figure_of_load_comes_to_the_same_on_any_number_of_threads_and_when_it_is_resumed() {
    let figure = load_figure("ncc-fig7a");
    let (one, two) = (Folder::new("load-one"), Folder::new("load-two"));
    let engine = |folder: &Folder, threads| {
        let mut engine = tiny_of_load(figure, &folder.0, threads);
        engine.protocols.push("morty".to_string());
        engine
    };
    let (all, ..) = reproduce_load(&engine(&one, 1), &one);
    reproduce_load(&engine(&two, 2), &two);
    let before = one.contents();
    assert_eq!(before, two.contents());
    let kept = before.keys().find(|path| path.starts_with("runs")).unwrap();
    fs::remove_file(one.0.join(kept)).unwrap();
    let (again, ..) = reproduce_load(&engine(&one, 1), &one);
    assert_eq!((again, one.contents() == before), (1, true), "of {all} runs");
}

#[test]
fn a_system_is_offered_more_or_less_until_it_is_known_what_it_can_do_and_then_three_quarters() {
    let folder = Folder::new("load-climbs");
    let mut engine = tiny_of_load(load_figure("ncc-fig8a"), &folder.0, 1);
    engine.protocols = vec!["mvtso".to_string()];
    engine.effort.rates_per_s.clear();
    engine.costs = Costs::default().times(100.0);
    let (_, text, json) = reproduce_load(&engine, &folder);
    let system = &json["systems"][0];
    assert_eq!(system["saturated"], true, "{text}");
    let peak = system["peak_per_s"].as_f64().unwrap();
    let offered = |run: &serde_json::Value| run["open"]["rate_per_s"].as_f64().unwrap();
    let runs = system["runs"].as_array().unwrap();
    assert!(runs.iter().map(offered).is_sorted());
    assert!(offered(&runs[0]) < peak * 1.2 && peak < offered(runs.last().unwrap()), "{text}");
    let places = system["places"].as_array().unwrap();
    for place in places {
        let share = offered(&place["measured"]) / peak;
        assert!((0.74..0.76).contains(&share), "{share} {text}");
    }
    assert!(places.iter().any(|place| place["normalized"] == 1.0));
}

#[test]
fn others_go_on_when_all_clients_die() {
    let folder = Folder::new("load-deaths");
    let mut engine = tiny_of_load(load_figure("ncc-fig8c"), &folder.0, 1);
    engine.protocols = vec!["mvtso".to_string()];
    let (_, text, json) = reproduce_load(&engine, &folder);
    for place in json["systems"][0]["places"].as_array().unwrap() {
        let slots = place["measured"]["open"]["over_time"].as_array().unwrap();
        assert_eq!(slots.len(), 4, "{text}");
        let offered = place["measured"]["open"]["rate_per_s"].as_f64().unwrap();
        assert!(slots.iter().all(|slot| slot.as_f64() > Some(0.7 * offered)), "{text}");
    }
}
