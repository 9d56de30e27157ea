//! What keeps protocols pure, beside `clippy.toml`, and their names in one place.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose code runs inside protocols.
const PURE: &[&str] = &["model", "actor", "parts", "procedures", "protocols"];

/// What the protocols may depend on.
const DEPENDENCIES: &[&str] = &[
    "serried-model",
    "serried-actor",
    "serried-parts",
    "serried-procedures",
    "petgraph",
    "postcard",
    "serde",
    "smallvec",
];

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

#[test]
fn crates_that_run_inside_protocols_have_the_same_rules_for_clippy() {
    let rules = |name: &&str| fs::read_to_string(crates().join(name).join("clippy.toml")).unwrap();
    let all: Vec<String> = PURE.iter().map(rules).collect();
    for name in PURE {
        let library = fs::read_to_string(crates().join(name).join("src/lib.rs")).unwrap();
        assert!(library.contains("#![deny(clippy::disallowed_macros"), "{name} denies them");
    }
    assert!(all[0].contains("std::time::Instant") && all.iter().all(|rules| *rules == all[0]));
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

/// The part of a file that is not for tests, without comments.
fn shipped(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// Whether the protocol of this module and name is named in a text of another crate, which may have a module of its
/// own with that name (`crate::port`).
fn is_named(text: &str, module: &str, name: &str) -> bool {
    let path = format!("{module}::");
    let is_word = |(at, _): (usize, &str)| {
        let before = &text[..at];
        let is_longer = before.ends_with(|before: char| before.is_alphanumeric() || before == '_');
        !is_longer && !before.ends_with("crate::")
    };
    text.match_indices(&path).any(is_word) || text.contains(&format!("\"{name}\""))
}

/// The papers' figures map the systems that a paper names to protocols. And a workload may have the name of the system
/// whose paper describes it.
const NAMES_SYSTEMS: [&str; 2] = ["reproduce/src/paper", "workload/src"];

#[test]
fn only_the_registry_names_protocols_one_by_one() {
    let registry = fs::read_to_string(crates().join("protocols/src/registry.rs")).unwrap();
    let modules: Vec<_> = registry
        .lines()
        .filter(|line| line.ends_with(','))
        .filter_map(|line| line.trim().strip_prefix("crate::")?.split("::").next())
        .collect();
    let names = serried_protocols::list().iter().map(|protocol| protocol.name);
    assert_eq!(modules.len(), names.len(), "one line per protocol");
    let protocols: Vec<_> = modules.into_iter().zip(names).collect();
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.ends_with("protocols") {
            sources(&folder.join("src"), &mut files);
        }
    }
    let is_test = |file: &PathBuf| file.components().any(|part| part.as_os_str() == "tests");
    let names_systems = NAMES_SYSTEMS.map(|folder| crates().join(folder));
    files.retain(|file| !is_test(file) && !file.ends_with("tests.rs"));
    files.retain(|file| !names_systems.iter().any(|folder| file.starts_with(folder)));
    assert!(files.len() > 100, "the sources were not found");
    for file in files {
        let text = shipped(&fs::read_to_string(&file).unwrap());
        for (module, name) in &protocols {
            assert!(!is_named(&text, module, name), "{} names {name}", file.display());
        }
    }
}

#[test]
fn a_protocol_is_found_by_its_module_and_by_its_name() {
    assert!(is_named("use protocols::occ::Occ;", "occ", "occ"));
    assert!(is_named("let name = \"occ\";", "occ", "occ"));
    assert!(!is_named("let name = \"occurs\"; tocc::x", "occ", "occ"));
    assert!(!is_named("use crate::port::Port;", "port", "port"));
    assert!(is_named("use serried_protocols::port::Port;", "port", "port"));
    assert_eq!(shipped("a // \"occ\"\n#[cfg(test)]\nmod tests;"), "a ");
}
