//! The commands as scripts and people meet them: output, errors and exit codes.

mod advice;
mod arguments;
mod compare;
mod histories;
mod measuring;
mod nodes;
mod output;
mod procedures;
mod registers;
mod windows;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn serried(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(arguments).stdin(Stdio::null()).output().expect("the binary runs")
}

fn with_input(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child.stdin.take().unwrap().write_all(input.as_ref()).expect("it reads its input");
    child.wait_with_output().expect("it ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file that is gone when the test is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &str) -> Temporary {
        let file = std::env::temp_dir().join(format!("serried-{}-{name}", std::process::id()));
        std::fs::write(&file, content).expect("there is room for a small file");
        Temporary(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("the path is text")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
