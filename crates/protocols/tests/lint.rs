//! What keeps protocols pure: this reads their source.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose code runs inside protocols.
const PURE: &[&str] = &["model", "actor", "parts", "protocols"];

/// What would let the world in, or an order that differs from run to run.
const FORBIDDEN: &[&str] = &[
    "std::time",
    "std::thread",
    "std::net",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::sync::Mutex",
    "tokio",
    "SystemTime",
    "Instant",
    "rand::rng",
    "rand::random",
    "SysRng",
    "HashMap",
    "HashSet",
    "RandomState",
    "println!",
];

/// What the protocols may depend on.
const DEPENDENCIES: &[&str] =
    &["serried-model", "serried-actor", "serried-parts", "serde", "postcard", "smallvec"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The lines of `text` that use something forbidden.
fn offences(text: &str) -> Vec<(usize, &'static str)> {
    let code = |line: &str| line.split("//").next().unwrap_or("").to_string();
    let lines = text.lines().map(code).enumerate();
    lines
        .flat_map(|(number, line)| {
            let used = FORBIDDEN.iter().filter(move |word| line.contains(**word));
            used.map(move |word| (number + 1, *word))
        })
        .collect()
}

#[test]
fn protocols_do_no_io_read_no_clock_start_no_thread_and_iterate_in_no_random_order() {
    let mut files = Vec::new();
    for name in PURE {
        sources(&crates().join(name).join("src"), &mut files);
    }
    assert!(files.len() > 20, "the sources were not found");
    for file in files {
        // The two places where a hash map is wrapped so that it can't be iterated.
        if file.ends_with("parts/src/map.rs") || file.ends_with("actor/src/store.rs") {
            continue;
        }
        let found = offences(&fs::read_to_string(&file).unwrap());
        assert!(found.is_empty(), "{}: {found:?}", file.display());
    }
}

#[test]
fn the_lint_finds_what_it_looks_for() {
    let text = "use std::time::Duration; // std::fs\nlet now = Instant::now();\n";
    assert_eq!(offences(text), [(1, "std::time"), (2, "Instant")]);
}

#[test]
fn protocols_depend_on_the_seam_and_the_parts_alone() {
    let manifest = fs::read_to_string(crates().join("protocols/Cargo.toml")).unwrap();
    let dependencies = manifest.split("\n[dependencies]").nth(1).unwrap();
    let dependencies = dependencies.split("\n[").next().unwrap();
    let names: Vec<_> = dependencies.lines().filter_map(|line| line.split('.').next()).collect();
    for name in names.into_iter().filter(|name| !name.trim().is_empty()) {
        assert!(DEPENDENCIES.contains(&name), "protocols must not depend on {name}");
    }
}

#[test]
fn only_the_registry_names_protocols_one_by_one() {
    let registry = fs::read_to_string(crates().join("protocols/src/registry.rs")).unwrap();
    let modules: Vec<_> = registry
        .lines()
        .filter_map(|line| line.trim().strip_prefix("crate::")?.split("::").next())
        .collect();
    assert_eq!(modules.len(), serried_protocols::list().len(), "one line per protocol");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.ends_with("protocols") {
            sources(&folder.join("src"), &mut files);
        }
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for module in &modules {
            let path = format!("{module}::");
            let is_word = |(at, _): (usize, &str)| {
                !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
            };
            let names = text.match_indices(&path).any(is_word);
            assert!(!names, "{} names {module}", file.display());
        }
    }
}
