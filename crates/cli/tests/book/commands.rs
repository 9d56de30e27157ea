//! Every command of the documents is in the table, and works.

use crate::pages::{Command, pages};
use crate::process::Directory;
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

#[test]
fn commands_without_a_cluster_work_as_printed() {
    let directory = Directory::new("book");
    for (command, how) in TABLE {
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
        assert!(!err.contains("WARN") && !err.contains("ERROR"), "`{command}`: {err}");
    }
}
