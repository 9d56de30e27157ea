//! Every command of the documents is in the table, and works.

use crate::pages::{Command, Page, pages, root};
use crate::process::{Directory, warnings};
use crate::table::{How, TABLE};

#[test]
fn the_table_has_every_command_of_the_documents_and_no_other() {
    let pages = pages();
    let commands: Vec<Command> = pages.iter().flat_map(|page| page.commands()).collect();
    for Command { place, text, .. } in &commands {
        let lines = TABLE.iter().filter(|(known, _)| known == text).count();
        assert_eq!(lines, 1, "{place}: give `{text}` one line in tests/book/table.rs");
    }
    for (known, _) in TABLE {
        let is_used = commands.iter().any(|command| command.text == *known);
        assert!(is_used, "no page has `{known}`: remove it from tests/book/table.rs");
    }
}

/// Runs the commands that need no running cluster, and of which `is_meant` returns true.
fn run(name: &str, is_meant: impl Fn(&str) -> bool) {
    let directory = Directory::new(name);
    // As `serried calibrate` writes it.
    let costs = root().join("crates/calibrate/costs.toml");
    std::fs::copy(costs, directory.path().join("costs.toml")).expect("there is room");
    write_procedures(&directory);
    for (command, how) in TABLE.iter().filter(|(command, _)| is_meant(command)) {
        let command = match how {
            How::Alone => command,
            How::Shorter(shorter) => shorter,
            _ => continue,
        };
        let output = directory.run(command, "");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "`{command}`: {}\n{out}\n{err}", output.status);
        assert!(!out.is_empty(), "`{command}` prints nothing");
        assert!(warnings(&err).is_empty(), "`{command}`: {err}");
    }
}

/// Whether a command starts nodes.
fn starts_nodes(command: &str) -> bool {
    ["bench ", "demo", "torture "].iter().any(|name| command.contains(name))
}

#[test]
fn commands_that_start_nodes_work_as_printed() {
    run("book-nodes", starts_nodes);
}

#[test]
fn other_commands_work_as_printed() {
    run("book-others", |command| !starts_nodes(command));
}

/// Writes the procedure file of the book.
fn write_procedures(directory: &Directory) {
    let page = Page::read("docs/procedures.md");
    let blocks = page.blocks();
    let file = blocks.iter().find(|block| block.language == "toml").expect("the page has one");
    std::fs::write(directory.path().join("transfer.toml"), file.lines.join("\n"))
        .expect("there is room");
}

#[test]
fn the_book_shows_how_procedures_are_refused() {
    let directory = Directory::new("book-procedures");
    write_procedures(&directory);
    let output = directory.run("serried chop transfer.toml", "");
    assert_eq!(output.status.code(), Some(3));
    let page = Page::read("docs/procedures.md");
    let shown =
        page.blocks().into_iter().find(|block| block.language == "text").expect("the page has one");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), shown.lines.join("\n"));
}
