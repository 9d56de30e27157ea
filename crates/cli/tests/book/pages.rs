//! The pages of the book and of the repository's root, and the commands in them.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root is there")
}

/// A page in Markdown.
pub(crate) struct Page {
    /// Relative to the root of the repository.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn read(path: impl Into<PathBuf>) -> Page {
        let path = path.into();
        let text = std::fs::read_to_string(root().join(&path)).expect("the page can be read");
        Page { path, text }
    }

    /// The fenced blocks.
    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (i, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(_), Some(block)) => blocks.push(block),
                (Some(info), None) => {
                    let language = info.split(',').next().unwrap_or_default();
                    open = Some(Block { language, line: i + 1, lines: Vec::new() });
                }
                (None, Some(mut block)) => {
                    block.lines.push(line);
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path.display());
        blocks
    }

    /// The text without its fenced blocks.
    pub(crate) fn prose(&self) -> String {
        let mut inside = false;
        let is_prose = |line: &&str| {
            let is_fence = line.trim_start().starts_with("```");
            inside ^= is_fence;
            !inside && !is_fence
        };
        self.text.lines().filter(is_prose).collect::<Vec<_>>().join("\n")
    }

    /// The commands that a reader types.
    pub(crate) fn commands(&self) -> Vec<Command<'_>> {
        let mut commands = Vec::new();
        for block in self.blocks() {
            let place = format!("{}:{}", self.path.display(), block.line);
            assert!(
                !["sh", "bash", "shell"].contains(&block.language),
                "{place}: commands are in blocks of `console`, each after `$ `"
            );
            if block.language == "console" {
                let found = block.commands(&place);
                assert!(!found.is_empty(), "{place}: there is no command after `$ `");
                commands.extend(found);
            }
        }
        commands
    }
}

/// A fenced block.
pub(crate) struct Block<'a> {
    pub(crate) language: &'a str,
    /// The number of its first line.
    pub(crate) line: usize,
    pub(crate) lines: Vec<&'a str>,
}

impl<'a> Block<'a> {
    fn commands(&self, place: &str) -> Vec<Command<'a>> {
        let mut commands: Vec<Command> = Vec::new();
        for line in &self.lines {
            if let Some(text) = line.strip_prefix("$ ") {
                let text = text.split("  #").next().unwrap_or(text).trim_end();
                let place = place.to_string();
                commands.push(Command { place, text, input: Vec::new(), output: Vec::new() });
                continue;
            }
            let command = commands.last_mut();
            let command = command.unwrap_or_else(|| panic!("{place}: begins without `$ `"));
            let prompts = ["serried> ", "serried*> "];
            match prompts.iter().find_map(|prompt| line.strip_prefix(prompt)) {
                Some(statement) => command.input.push(statement),
                None => command.output.push(line),
            }
        }
        commands
    }
}

/// A command that a reader types.
pub(crate) struct Command<'a> {
    /// The page and the line of the block.
    pub(crate) place: String,
    pub(crate) text: &'a str,
    /// What the reader types into the shell.
    pub(crate) input: Vec<&'a str>,
    /// What the page shows as its output.
    pub(crate) output: Vec<&'a str>,
}

/// README.md, CONTRIBUTING.md and all pages of docs/.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    paths.extend(book());
    paths.into_iter().map(Page::read).collect()
}

/// The paths of all Markdown files of docs/, relative to the root of the repository.
pub(crate) fn book() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from("docs")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in root().join(&folder).read_dir().expect("the folder can be read") {
            let entry = entry.expect("the entry can be read");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
