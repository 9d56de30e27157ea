//! The output of the command line, compared with files beside this one.
//!
//! Each file is a transcript: commands, their output, errors and exit codes. After an intended change, run
//! `SNAPSHOTS=overwrite cargo test -p serried-cli --test snapshots`, and review the difference of the files.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serried_local::{LocalCluster, LocalOptions};
use serried_node::KeyspaceConfiguration;

/// How long a command may take. One that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A temporary directory, and what was done in it.
struct Transcript {
    directory: PathBuf,
    text: String,
    /// Texts that differ from run to run, and what stands for them.
    replaced: Vec<(String, &'static str)>,
}

impl Transcript {
    fn new(name: &str) -> Transcript {
        let directory = std::env::temp_dir().join(format!("serried-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("it can be made");
        Transcript { directory, text: String::new(), replaced: Vec::new() }
    }

    fn write_file(&self, name: &str, content: &str) {
        std::fs::write(self.directory.join(name), content).expect("there is room");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_serried"));
        command.args(arguments).current_dir(&self.directory);
        command.env_remove("SERRIED_LOG").env_remove("COLUMNS");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program in the directory.
    fn run(&mut self, arguments: &[&str]) {
        self.run_with_input(arguments, "");
    }

    /// Runs the program with `input` as its standard input, which is part of the transcript.
    fn run_with_input(&mut self, arguments: &[&str], input: &str) {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("it runs");
        // A command that does not read its input has closed it.
        let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
        let output = wait(child);
        let quoted = |argument: &&str| match argument {
            argument if argument.contains('\'') => format!("\"{argument}\""),
            argument if argument.contains([' ', ';']) => format!("'{argument}'"),
            argument => argument.to_string(),
        };
        let arguments: Vec<String> = arguments.iter().map(quoted).collect();
        let mut text = format!("$ serried {}\n", arguments.join(" "));
        text.extend(input.lines().map(|line| format!("< {line}\n")));
        text += &String::from_utf8_lossy(&output.stdout);
        text += &String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("it was not killed");
        if code != 0 {
            writeln!(text, "exit code {code}").expect("a string takes all");
        }
        for (from, to) in &self.replaced {
            text = text.replace(from, to);
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text += &text;
    }

    /// Compares all that was done with the file `name`.
    fn compare(&self, name: &str) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
        let expected = snapbox::Data::read_from(&file, Some(snapbox::data::DataFormat::Text));
        let assert = snapbox::Assert::new().action_env("SNAPSHOTS").normalize_paths(false);
        assert.eq(without_versions(&self.text), expected.raw());
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits until a process has ended. Panics if that takes so long that the process hangs.
fn wait(child: Child) -> Output {
    let id = child.id().to_string();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    receiver.recv_timeout(LIMIT).map_or_else(
        |_| {
            let _ = Command::new("kill").args(["-KILL", &id]).status();
            panic!("it is not over after {LIMIT:?}")
        },
        |output| output.expect("its output can be read"),
    )
}

/// A text with a sign in place of each version of a transaction.
fn without_versions(text: &str) -> String {
    let is_number = |part: &str| part.len() > 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |word: &str| {
        word.split_once('.').is_some_and(|(time, node)| is_number(time) && is_number(node))
    };
    let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | ',' | ':');
    let shown = |word: &str| {
        let kept = word.trim_end_matches(ends);
        match is_version(kept) {
            true => format!("VERSION{}", &word[kept.len()..]),
            false => word.to_string(),
        }
    };
    text.split_inclusive(ends).map(shown).collect()
}

/// The path of a history beside this file.
fn history(name: &str) -> String {
    format!("{}/tests/snapshots/histories/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn help_is_as_in_the_files() {
    let mut transcript = Transcript::new("help");
    transcript.run(&["--help"]);
    transcript.compare("help.txt");
    let commands = [
        "demo",
        "serve",
        "shell",
        "bench",
        "sim",
        "compare",
        "record",
        "windows",
        "reproduce",
        "calibrate",
    ];
    for command in commands.into_iter().chain(["check", "procedure", "status", "torture"]) {
        let mut transcript = Transcript::new(&format!("help-{command}"));
        transcript.run(&[command, "--help"]);
        transcript.compare(&format!("help/{command}.txt"));
    }
}

#[test]
fn errors_of_arguments_are_as_in_the_file() {
    let mut transcript = Transcript::new("arguments");
    for arguments in [
        &["simulate"][..],
        &["sim"],
        &["sim", "retwi"],
        &["sim", "retwis", "--protocol", "mort"],
        &["sim", "retwis", "--protocols", "morty"],
        &["sim", "retwis", "--clients", "many"],
        &["sim", "retwis", "--clients", "0"],
        &["sim", "ycsb", "--protocol", "morty"],
        &["sim", "ycsb", "--protocol", "abd"],
        &["bench", "retwis", "--protocol", "epaxos"],
        &["bench", "register", "--replicas", "4"],
        &["reproduce", "morty-fig5"],
        &["reproduce", "gryff-fig7", "--protocol", "morty"],
        &["torture", "--protocol", "plain-transactions"],
        &["torture", "--nodes", "4"],
        &["windows", "counter"],
        &["windows", "counter", "--sim", "--for", "300"],
        &["serve"],
        &["serve", "--config", "missing.toml"],
        &["check", "missing.jsonl"],
        &["shell", "127.0.0.1"],
        &["shell", "serried://127.0.0.1:1", "-e", "get a"],
        &["status", "serried://127.0.0.1:1"],
    ] {
        transcript.run(arguments);
    }
    transcript.compare("arguments.txt");
}

#[test]
fn errors_of_configurations_are_as_in_the_file() {
    let mut transcript = Transcript::new("configurations");
    let node = "node = 0\nlisten = \"127.0.0.1:0\"\npeers = [\"127.0.0.1:1\"]\n";
    for (name, more) in [
        ("unknown-key", "pears = []\n"),
        ("wrong-type", "cores = \"two\"\n"),
        ("unknown-protocol", "[[keyspace]]\nname = \"accounts\"\nprotocol = \"mort\"\n"),
        (
            "twice",
            "[[keyspace]]\nname = \"a\"\nprotocol = \"morty\"\n[[keyspace]]\nname = \"a\"\nprotocol = \"abd\"\n",
        ),
        (
            "unknown-setting",
            "[[keyspace]]\nname = \"a\"\nprotocol = \"morty\"\n[keyspace.settings]\ntruncation = 1\n",
        ),
        ("unknown-geography", "geography = \"moon\"\n"),
        ("not-toml", "keyspace = [\n"),
    ] {
        let file = format!("{name}.toml");
        transcript.write_file(&file, &format!("{node}{more}"));
        transcript.run(&["serve", "--config", &file]);
    }
    transcript.write_file("number.toml", &node.replace("node = 0", "node = 3"));
    transcript.run(&["serve", "--config", "number.toml"]);
    transcript.compare("configurations.txt");
}

#[test]
fn errors_of_data_directories_are_as_in_the_file() {
    let mut transcript = Transcript::new("directories");
    let configuration = "node = 0\nlisten = \"127.0.0.1:0\"\npeers = [\"127.0.0.1:1\"]\n";
    transcript.write_file("node.toml", configuration);
    let mut node = transcript.command(&["serve", "--config", "node.toml", "--data", "data"]);
    let mut node = node.stderr(Stdio::null()).spawn().expect("it runs");
    let mut lines = BufReader::new(node.stdout.take().expect("it is piped")).lines();
    // Its last line when it has started.
    while !lines.next().expect("it starts").expect("it is text").starts_with("connect with") {}
    let serve = ["serve", "--config", "node.toml", "--log", "off", "--data", "data"];
    transcript.run(&serve);
    let _ = node.kill();
    let _ = node.wait();
    transcript.run(&[&serve[..], &["--rejoin"]].concat());
    let other = configuration
        .replace("node = 0", "node = 1")
        .replace(":1\"", ":1\", \"127.0.0.1:2\", \"127.0.0.1:3\"");
    transcript.write_file("node.toml", &other);
    transcript.run(&serve);
    transcript.write_file("file", "");
    transcript.run(&["serve", "--config", "node.toml", "--log", "off", "--data", "file"]);
    transcript.compare("directories.txt");
}

#[test]
fn verdicts_on_histories_are_as_in_the_file() {
    let mut transcript = Transcript::new("check");
    for name in
        ["serializable", "lost-update", "inverted-registers", "lost-append", "failed", "malformed"]
    {
        let name = format!("{name}.jsonl");
        let path = history(name.trim_end_matches(".jsonl"));
        std::fs::copy(path, transcript.directory.join(&name)).expect("there is room");
        transcript.run(&["check", &name]);
    }
    transcript.run(&["check", "--guarantee", "strict-serializable", "serializable.jsonl"]);
    transcript.run(&["check", "--json", "lost-update.jsonl"]);
    transcript.run(&["check", "--guarantee", "regular-sequential", "inverted-registers.jsonl"]);
    transcript.run(&["check", "--guarantee", "serializable", "inverted-registers.jsonl"]);
    transcript.run(&["check", "--guarantee", "linearizable", "serializable.jsonl"]);
    transcript.compare("check.txt");
}

#[test]
fn simulations_of_a_seed_are_as_in_the_file() {
    let mut transcript = Transcript::new("sim");
    let short = ["--seed", "7", "--clients", "4", "--warm-up", "0", "--seconds"];
    let bank = ["sim", "bank", "--geo", "lan", "--check"];
    transcript.run(&[&bank[..], &short, &["0.1"]].concat());
    let faults = ["sim", "list-append", "--protocol", "morty", "--check"];
    transcript.run(&[&faults[..], &["--faults", "crashes,pauses"], &short, &["1"]].concat());
    let register =
        ["sim", "register", "--protocol", "abd,gryff", "--reads", "0.5", "--writes", "0.5"];
    transcript.run(&[&register[..], &short, &["0.2", "--history", "h.jsonl"]].concat());
    transcript.run(&["check", "h.jsonl"]);
    transcript.run(&["check", "h-gryff-4.jsonl"]);
    let windows = ["windows", "--sim", "counter", "--geo", "lan", "--protocol", "morty"];
    let little = ["--clients", "4", "--warm-up", "0.1", "--for", "10ms", "--list", "2"];
    transcript.run(&[&windows[..], &little].concat());
    transcript.compare("sim.txt");
}

#[test]
fn the_shell_is_as_in_the_file() {
    let keyspaces = [
        KeyspaceConfiguration::new("accounts", "morty"),
        KeyspaceConfiguration::new("flags", "epaxos"),
    ];
    let cluster = LocalCluster::start(3, &keyspaces, LocalOptions::default()).unwrap();
    let url = cluster.url();
    let mut transcript = Transcript::new("shell");
    transcript.replaced = vec![(url.clone(), "ADDRESS")];
    transcript.run(&["shell", &url]);
    let accounts = ["shell", &url, "--keyspace", "accounts"];
    let script = "\
keyspaces
help
put alice 10
put 'carol d' \"10; or \\\"12\\\"\"; put bytes \\xff\\x00; put dash '-'; put empty ''
get alice 'carol d' bytes dash empty nobody
begin
get alice
put alice 9
commit
delete alice
begin
put bob 1
rollback
get alice bob
put alice
put alice 1 0
put alice '1
put alice \\q
frobnicate
commit
outcome alice
outcome 1.1
use nowhere
use flags
quit
get alice
";
    transcript.run_with_input(&accounts, script);
    transcript.run_with_input(
        &[&accounts[..], &["--json"]].concat(),
        "get 'carol d' bytes nobody\nput a\nkeyspaces\nhelp\nbegin\nrollback\n",
    );
    transcript
        .run(&[&accounts[..], &["-e", "begin; put carol 1; put; commit; put dave 1"]].concat());
    transcript.run(&[&accounts[..], &["-e", "put carol 1; put carol '2"]].concat());
    transcript.run(&[&accounts[..], &["-e", "get carol dave"]].concat());
    let flags = ["shell", &url, "--keyspace", "flags"];
    let script = "\
help
put k 5
add k 3
add k 3 0 9
append k 0
cas k 80 'a b'
cas k - x
cas k 'a b' '-'
cas k - x
cas k '-' -
get k
get-and-set k text
get-and-delete k
set-if-absent k '\\x'
add k one
add k 1
delete k
again 1.1 get k
again token put k 1
begin
put k 1
";
    transcript.run_with_input(&flags, script);
    transcript.compare("shell.txt");
}

/// Two immediate pieces that conflict with those of another call.
const UNREORDERABLE: &str = r#"
[tables.counter]
key = { id = "int" }
columns = { value = "int" }

[tables.copy]
key = { id = "int" }
columns = { sum = "int" }

[procedures.sum]
inputs = { one = "int", two = "int" }

[procedures.sum.pieces.first]
rows = { counter = ["one"] }
reads = ["counter.value"]
writes.counter.value = "counter.value + 1"
outputs.value = "counter.value"

[procedures.sum.pieces.second]
rows = { counter = ["two"] }
reads = ["counter.value"]
writes.counter.value = "counter.value + 1"
outputs.value = "counter.value"

[procedures.sum.pieces.put]
rows = { copy = ["one"] }
writes.copy.sum = "first.value + second.value"
"#;

/// Procedures that are called.
const SHOP: &str = r#"
[tables.stock]
key = { item = "int" }
columns = { left = "int", note = "bytes(4)" }
[tables.rule]
key = { id = "int" }
columns = { most = { type = "int", default = 2 } }

[procedures.fill]
inputs = { item = "int", count = "int", note = "bytes(4)" }
[procedures.fill.pieces.add]
rows = { stock = ["item"] }
reads = ["stock.left"]
writes.stock = { left = "stock.left + count", note = "note" }

[procedures.sell]
inputs = { items = { list = { item = "int", count = "int" }, max = 9 } }
returns = { left = "take.left" }
[procedures.sell.pieces.guard]
rows = { rule = ["0"] }
reads = ["rule.most"]
checks = [{ that = "size(items) <= rule.most", otherwise = "these are too many items" }]
[procedures.sell.pieces.take]
for_each = { line = "items" }
rows = { stock = ["line.item"] }
reads = ["stock.left"]
writes.stock.left = "stock.left - line.count"
outputs.left = "{'item': line.item, 'left': stock.left - line.count}"

[procedures.look]
inputs = { item = "int" }
returns = { left = "stock.left", note = "stock.note" }
[procedures.look.pieces.stock]
rows = { row = { table = "stock", key = ["item"] } }
reads = ["row.left", "row.note"]
outputs = { left = "row.left", note = "row.note" }
"#;

#[test]
fn checks_of_procedures_are_as_in_the_file() {
    let mut transcript = Transcript::new("chop");
    transcript.write_file("tpcc.toml", include_str!("../../../chop/procedures/tpcc.toml"));
    transcript.run(&["chop", "tpcc.toml", "--draw", "tpcc.svg"]);
    assert!(transcript.directory.join("tpcc.svg").exists());
    transcript.write_file("sum.toml", UNREORDERABLE);
    transcript.run(&["chop", "sum.toml"]);
    transcript.run(&["chop", "sum.toml", "--merge"]);
    transcript.run(&["chop", "sum.toml", "--json"]);
    transcript.write_file(
        "wrong.toml",
        &UNREORDERABLE.replace("first.value + second", "first.value + third"),
    );
    transcript.run(&["chop", "wrong.toml"]);
    transcript.run(&["chop", "absent.toml"]);
    transcript.write_file("shop.toml", SHOP);
    let sell = r#"sell {"items": [{"item": 7, "count": 2}, {"item": 8, "count": 1}]}"#;
    let many = r#"sell {"items": [{"item": 7, "count": 2}, {"item": 8, "count": 1}, {"item": 9, "count": 1}]}"#;
    let fill = r#"fill {"item": 7, "count": 2, "note": "00ff"}"#;
    let look = r#"look {"item": 7}"#;
    let all = ["--call", fill, "--call", sell, "--call", many, "--call", look];
    transcript.run(&[&["chop", "shop.toml"], &all[..]].concat());
    for wrong in [
        r#"fill {"item": 7}"#,
        r#"fill {"item": 7, "count": true, "note": ""}"#,
        r#"fill {"item": 7, "count": 1, "note": "0011223344"}"#,
        r#"look {"item": 7"#,
        r#"look {"item": 7, "item": 8}"#,
        "empty",
    ] {
        transcript.run(&["chop", "shop.toml", "--call", wrong]);
    }
    transcript.compare("chop.txt");
}
