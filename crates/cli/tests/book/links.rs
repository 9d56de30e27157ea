//! The book's table of contents, and links between pages.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::pages::{Page, book, pages, root};

/// The targets of links in a text of Markdown.
fn targets(text: &str) -> Vec<&str> {
    let ends = |rest: &&str| rest.find(')');
    let links = text.split("](").skip(1);
    links.filter_map(|rest| Some(&rest[..ends(&rest)?])).collect()
}

/// The path that `target` has from the page at `page`, without `.` and `..`.
fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_path_buf();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{target} leaves the repository"),
            Component::CurDir => {}
            component => path.push(component),
        }
    }
    path
}

/// The anchors of a page: one for each heading, made as GitHub and mdBook do.
fn anchors(page: &Page) -> BTreeSet<String> {
    let prose = page.prose();
    let headings = prose.lines().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len() && heading.starts_with(' ')).then(|| heading.trim())
    });
    let anchor = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let text: String = heading.to_lowercase().chars().filter(kept).collect();
        text.replace(' ', "-")
    };
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let name = anchor(heading);
        let mut unique = name.clone();
        let mut number = 1;
        while !anchors.insert(unique.clone()) {
            unique = format!("{name}-{number}");
            number += 1;
        }
    }
    anchors
}

#[test]
fn the_summary_lists_every_page_of_the_book_exactly_once() {
    let summary = Page::read("docs/SUMMARY.md");
    let mut listed: Vec<PathBuf> =
        targets(&summary.text).iter().map(|target| resolved(&summary.path, target)).collect();
    listed.sort();
    let pages: Vec<PathBuf> = book().into_iter().filter(|page| *page != summary.path).collect();
    assert_eq!(listed, pages);
}

#[test]
fn relative_links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    let documents = ["ARCHITECTURE.md", "CHANGELOG.md", "STYLE.md"].map(Page::read);
    for page in pages().iter().chain(&documents) {
        let prose = page.prose();
        for target in targets(&prose) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match path {
                "" => page.path.clone(),
                path => resolved(&page.path, path),
            };
            // The book is also read without the repository.
            let is_inside = !page.path.starts_with("docs") || path.starts_with("docs");
            let exists = is_inside
                && root().join(&path).exists()
                && (anchor.is_empty() || anchors(&Page::read(&path)).contains(anchor));
            if !exists {
                broken.push(format!("{}: {target}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn anchors_are_made_of_headings() {
    let text =
        "# `serried sim`: simulated time\n```text\n# no heading\n```\n## A-B c_d\n## A-B c_d\n";
    let page = Page { path: PathBuf::new(), text: text.to_string() };
    let expected = ["a-b-c_d", "a-b-c_d-1", "serried-sim-simulated-time"];
    assert_eq!(anchors(&page).iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
