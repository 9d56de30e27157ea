//! Whole figures, at a scale at which they take no time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serried_reproduce::{
    Costs, Effort, Engine, Error, Figure, Findings, RegisterEffort, RegisterEngine, RegisterFigure,
    figure, figures, register_figures, table, write,
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
