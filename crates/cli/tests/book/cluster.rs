//! The cluster of three processes in docs/getting-started.md, and the commands that use it.

use std::net::TcpListener;
use std::process::Stdio;

use crate::pages::{Page, pages};
use crate::process::{Directory, Running, wait_until, warnings};
use crate::table::{How, TABLE};

/// The addresses of nodes and of their metrics on the pages.
const PRINTED: [&str; 6] = [
    "127.0.0.1:7400",
    "127.0.0.1:7401",
    "127.0.0.1:7402",
    "127.0.0.1:9400",
    "127.0.0.1:9401",
    "127.0.0.1:9402",
];
/// The last line that a node prints when it has started.
const STARTED: &str = "connect with: ";

/// The cluster.
struct Cluster {
    directory: Directory,
    /// What stands for the printed addresses.
    addresses: Vec<String>,
    nodes: Vec<Running>,
}

impl Cluster {
    /// Writes the configurations of `page` into a new directory.
    fn new(page: &Page) -> Cluster {
        let directory = Directory::new("cluster");
        // All are held until all are found, so that they differ.
        let listeners: Vec<TcpListener> =
            PRINTED.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let addresses = listeners.iter().map(address).collect();
        let cluster = Cluster { directory, addresses, nodes: Vec::new() };
        let lines: Vec<&str> = page.text.lines().collect();
        let blocks = page.blocks();
        for block in blocks.iter().filter(|block| block.language == "toml") {
            // The block's name is two lines above it.
            let name = lines[block.line - 3].strip_prefix('`').unwrap_or_default();
            let Some(name) = name.strip_suffix("`:").filter(|name| name.starts_with("node-"))
            else {
                continue;
            };
            let text = cluster.with_addresses(&block.lines.join("\n"));
            std::fs::write(cluster.directory.path().join(name), text).unwrap();
        }
        cluster
    }

    fn with_addresses(&self, text: &str) -> String {
        let pairs = PRINTED.iter().zip(&self.addresses);
        pairs.fold(text.to_string(), |text, (printed, address)| text.replace(printed, address))
    }

    /// Starts a node whose log goes into `log`.
    fn start(&self, command: &str, log: &str) -> Running {
        // The shell becomes the node, which can then be stopped by the child's number.
        let mut shell = self.directory.shell(&format!("exec {}", self.with_addresses(command)));
        let log = std::fs::File::create(self.directory.path().join(log)).unwrap();
        shell.stderr(Stdio::from(log));
        Running::start(shell)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    /// Runs a command with `input` as its standard input. Returns its output.
    fn run(&self, command: &str, input: &[&str]) -> String {
        let input: String = input.iter().flat_map(|line| [line, "\n"]).collect();
        let output = self.directory.run(&self.with_addresses(command), &input);
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "`{command}`: {}\n{out}\n{err}", output.status);
        assert!(warnings(&err).is_empty(), "`{command}`: {err}");
        out.into_owned()
    }

    /// Waits until all nodes serve.
    fn wait_until_all_serve(&self) {
        let status = self.with_addresses("serried status serried://127.0.0.1:7400");
        wait_until("all nodes serve", || self.directory.run(&status, "").status.success());
    }
}

/// The lines, with a sign in place of each version.
fn without_versions<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_number = |part: &str| part.len() > 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |word: &&str| {
        word.split_once('.').is_some_and(|(time, node)| is_number(time) && is_number(node))
    };
    let shown = |word| if is_version(&word) { "VERSION" } else { word };
    lines.map(|line| line.split(' ').map(shown).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn commands_on_the_cluster_of_three_processes_work_as_printed() {
    let page = Page::read("docs/getting-started.md");
    let mut cluster = Cluster::new(&page);
    for (command, how) in TABLE {
        if let How::Node(node) = how {
            assert_eq!(*node, cluster.nodes.len());
            cluster.nodes.push(cluster.start(command, &format!("node-{node}.log")));
        }
    }
    let started: Vec<Vec<String>> =
        cluster.nodes.iter().map(|node| node.lines_until(STARTED)).collect();
    let blocks = page.blocks();
    let printed = blocks.iter().find(|block| block.lines[0].starts_with("node 0 serves on"));
    let printed = cluster.with_addresses(&printed.expect("it is shown").lines.join("\n"));
    assert_eq!(started[0].join("\n"), printed);
    cluster.wait_until_all_serve();

    let pages = pages();
    let commands = pages.iter().flat_map(|page| page.commands());
    for command in commands {
        let how = TABLE.iter().find(|(known, _)| *known == command.text).map(|(_, how)| how);
        match how {
            Some(How::OnCluster) => {
                let out = cluster.run(command.text, &command.input);
                if !command.input.is_empty() {
                    let expected = without_versions(command.output.iter().copied());
                    assert_eq!(without_versions(out.lines()), expected, "{}", command.place);
                }
            }
            Some(How::ShorterOnCluster(shorter)) => {
                cluster.run(shorter, &[]);
            }
            _ => {}
        }
    }
    for node in 0..3 {
        let name = format!("node-{node}.log");
        wait_until("it logs that it serves", || cluster.log(&name).contains(" serves"));
        let log = cluster.log(&name);
        assert!(warnings(&log).is_empty(), "node {node}: {log}");
    }

    // A node whose disk is lost is replaced.
    for (command, how) in TABLE {
        if let How::Replacement(node) = how {
            cluster.nodes[*node].end("-KILL");
            let command = command.replace("/var/lib/serried-new", "serried-new");
            let replacement = cluster.start(&command, "replacement.log");
            replacement.lines_until(STARTED);
            cluster.nodes[*node] = replacement;
        }
    }
    for (number, node) in cluster.nodes.iter_mut().enumerate() {
        let status = node.end("-TERM");
        assert!(status.success(), "node {number}: {status}");
    }
}
