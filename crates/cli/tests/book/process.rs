//! Processes of the program, and limits for all waits.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take. A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A temporary directory to run commands in.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("serried-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("bin")).expect("it can be made");
        let program = path.join("bin/serried");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_serried"), program).expect("it is new");
        Directory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A shell that runs `command` here, and knows the tested program as `serried`.
    pub(crate) fn shell(&self, command: &str) -> Command {
        let command = command.replace("cargo run --release -- ", "serried ");
        let usual = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(&self.0).env_remove("SERRIED_LOG");
        shell.env("PATH", format!("{}:{usual}", self.0.join("bin").display()));
        shell
    }

    /// Runs `command` with `input` as its standard input.
    pub(crate) fn run(&self, command: &str, input: &str) -> Output {
        let mut shell = self.shell(command);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().expect("there is a shell");
        let mut stdin = child.stdin.take().expect("it is piped");
        // A command that does not read its input has closed it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let id = child.id();
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        match receiver.recv_timeout(LIMIT) {
            Ok(output) => output.expect("its output can be read"),
            Err(_) => {
                signal("-KILL", id);
                panic!("`{command}` is not over after {LIMIT:?}");
            }
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that goes on until it is stopped. Dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a command whose output is piped.
    pub(crate) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("there is a shell");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Running { child, lines }
    }

    /// Waits for a line that begins with `start`. Returns all lines up to it.
    pub(crate) fn lines_until(&self, start: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.starts_with(start)) {
            let next = self.lines.recv_timeout(LIMIT);
            lines.push(next.unwrap_or_else(|_| panic!("`{start}` does not follow: {lines:?}")));
        }
        lines
    }

    /// Sends a signal, and waits until the process has ended.
    pub(crate) fn end(&mut self, name: &str) -> ExitStatus {
        signal(name, self.child.id());
        // Its output ends with it.
        while self.lines.recv_timeout(LIMIT).is_ok() {}
        self.child.wait().expect("it was started here")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `holds` returns true.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LIMIT, "after {LIMIT:?} still not: {what}");
        std::thread::yield_now();
    }
}

/// The warnings and errors in a log. On a busy machine a node may be silent for so long that others lose their connection
/// to it, or do not get one: such lines are left out.
pub(crate) fn warnings(log: &str) -> Vec<&str> {
    let is_bad = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let slow = ["connection to another node", "does not serve"];
    let is_slow = |line: &&str| slow.iter().any(|slow| line.contains(slow));
    log.lines().filter(is_bad).filter(|line| !is_slow(line)).collect()
}

/// Sends a signal to a process that was started here.
fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.expect("there is kill").success());
}
