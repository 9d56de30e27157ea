//! `serried shell`: statements by hand.

mod registers;
mod transaction;
mod words;

use std::io::{BufRead, ErrorKind, IsTerminal, stdin};
use std::time::Duration;

use clap::Args;
use serried::{
    Database, Key, RegisterError, RegisterKeyspace, RegisterOptions, TransactOptions,
    TransactionError, TransactionKeyspace, Value,
};
use serried_model::FamilyName;
use tokio::sync::mpsc;

use crate::{Ended, output, wing};
use transaction::Open;
use words::{Quoted, Word, statements};

const HELP: &str = "\
get KEY...          read keys
put KEY VALUE       write a key
delete KEY          delete a key
begin               begin a transaction of several statements
commit, rollback    end it
outcome TXN         how the transaction of this version ended; if it has not, it is ended
use KEYSPACE        go to another keyspace
keyspaces           list them
help, quit";

const QUOTES: &str = "\
Quote a key or a value with spaces, semicolons, quotes or backslashes, as in a Unix shell:
'...'               everything between single quotes is literal
\"...\"               between double quotes, and without quotes, there are escapes:
\\n \\r \\t \\0 \\xNN    a byte; before anything else but a letter or digit, \\ makes it literal";

/// Talk to a running cluster: get, put, delete, and transactions of several statements.
///
/// The statements depend on the keyspace, which has transactions or registers. Registers can also be added to, appended
/// to, compared and swapped. `help` lists the statements. A key that is read in a transaction (after `begin`) may change
/// before the transaction commits. The shell then shows the new value and ends the transaction without any effect,
/// because what you have typed since may depend on the old value. Begin it again.
///
/// If a statement fails within a transaction, and the statements do not come from a terminal, the transaction is rolled
/// back and all later statements are left out. After any other failure the shell goes on with the next statement.
///
/// Semicolons separate statements. Quote a key or a value with spaces, semicolons, quotes or backslashes, as in a Unix
/// shell: everything is literal between single quotes; between double quotes there are the escapes \n, \r, \t, \0 and
/// \xNN for any byte, and \ before a sign makes it literal. Keys and values are printed so that they can be typed back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried shell serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402
  serried shell serried://127.0.0.1:7400 -e 'put alice 10; get alice'
  serried shell serried://127.0.0.1:7400 -e 'put \"carol d\" \"a; b\"; get \"carol d\"'
  serried shell serried://127.0.0.1:7400 --keyspace flags -e 'add visits 1; cas leader - node-2'
  echo 'get alice' | serried shell serried://127.0.0.1:7400 --json")]
pub(crate) struct Shell {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace to begin with
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// Run these statements, separated by semicolons or line ends, and exit
    #[arg(short, long, value_name = "STATEMENTS")]
    execute: Option<String>,
    /// Give up a statement after this many seconds
    #[arg(long, default_value_t = 10.0)]
    deadline: f64,
    /// Print results as JSON, one object a line; bytes that are not UTF-8 are in key_hex and value_hex
    #[arg(long)]
    json: bool,
}

impl Shell {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        anyhow::ensure!(
            (0.0..1e6).contains(&self.deadline),
            "--deadline must be 0 or more seconds"
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.talk())
    }

    async fn talk(self) -> anyhow::Result<Ended> {
        let database = Database::connect(&self.address).await?;
        let keyspace = Keyspace::open(&database, &self.keyspace, self.deadline).await?;
        let interactive = self.execute.is_none() && stdin().is_terminal();
        let mut lines = match &self.execute {
            Some(statements) => given(statements),
            None => typed(),
        };
        let Shell { deadline, json, .. } = self;
        let mut session = Session { database, keyspace, deadline, open: None, json };
        let mut failed = false;
        loop {
            if interactive {
                print!("{}> ", if session.open.is_some() { "serried*" } else { "serried" });
                output::flush();
            }
            let Some(line) = lines.recv().await else { break };
            let line = match line {
                Ok(line) => line,
                Err(unreadable) => {
                    failed = true;
                    session.report("error", &unreadable);
                    break;
                }
            };
            match session.obey_line(&line, interactive).await {
                Flow::Continue => {}
                Flow::ContinueFailed => failed = true,
                Flow::Quit => break,
                Flow::Stop => {
                    failed = true;
                    break;
                }
            }
        }
        if let Some(mut open) = session.open.take() {
            session.report("error", "the transaction was not committed, and is rolled back");
            failed = true;
            open.task.abort();
            let _ = (&mut open.task).await; // It is rolled back as it is dropped.
        }
        // What was rolled back has to reach the nodes, or others would wait for it.
        session.database.close().await;
        anyhow::ensure!(interactive || !failed, "some statements failed");
        Ok(Ended::Well)
    }
}

/// A line, or why there are no more.
type Line = Result<String, String>;

/// Statements from the command line.
fn given(statements: &str) -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(1);
    sender.try_send(Ok(statements.to_string())).expect("there is room for one");
    receiver
}

/// Lines from standard input, which is read by a thread, as it can't be waited for otherwise. A line that can't be read is
/// the last: what comes after may depend on it.
fn typed() -> mpsc::Receiver<Line> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for (i, line) in stdin().lock().lines().enumerate() {
            let line = line.map_err(|error| unreadable(i + 1, &error));
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                break;
            }
        }
    });
    receiver
}

/// Says what is wrong with a line of standard input.
fn unreadable(number: usize, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidData => format!(
            "line {number} of the input is not UTF-8: it and what follows is left out; correct it, and \
             give the rest again"
        ),
        _ => {
            format!("line {number} of the input can't be read ({error}): what follows is left out")
        }
    }
}

/// How the shell goes on after a line.
enum Flow {
    Continue,
    /// Some of the line's statements have failed.
    ContinueFailed,
    /// The user asks to end.
    Quit,
    /// A statement has failed, and what follows must not be run.
    Stop,
}

/// A keyspace of either family.
#[derive(Clone)]
enum Keyspace {
    Transactions(TransactionKeyspace),
    Registers(RegisterKeyspace),
}

impl Keyspace {
    /// The keyspace called `name`, with a deadline in seconds for all that is done to it.
    async fn open(database: &Database, name: &str, deadline: f64) -> anyhow::Result<Keyspace> {
        let keyspaces = database.keyspaces();
        let known = keyspaces.iter().find(|info| info.name == name);
        let deadline = Duration::from_secs_f64(deadline);
        Ok(match known.and_then(wing::of_keyspace) {
            Some(FamilyName::Registers) => {
                let options = RegisterOptions { deadline };
                Keyspace::Registers(database.registers(name).await?.with_options(options))
            }
            Some(FamilyName::Transactions) | None => {
                let options = TransactOptions { deadline, ..TransactOptions::default() };
                Keyspace::Transactions(database.keyspace(name).await?.with_options(options))
            }
        })
    }
}

struct Session {
    database: Database,
    keyspace: Keyspace,
    /// In seconds.
    deadline: f64,
    open: Option<Open>,
    json: bool,
}

impl Session {
    /// Runs the statements of a line.
    async fn obey_line(&mut self, line: &str, interactive: bool) -> Flow {
        let statements = match statements(line) {
            Ok(statements) => statements,
            Err(malformed) => {
                self.report("error", &malformed.to_string());
                return self.failed(self.open.is_some(), interactive);
            }
        };
        let mut flow = Flow::Continue;
        for words in statements {
            let within =
                self.open.is_some() && !matches!(&*words, [commit] if commit.is_bare("commit"));
            match self.obey(&words).await {
                Ok(true) => {}
                Ok(false) => return Flow::Quit,
                Err(error) => {
                    self.report("error", &format!("{error:#}{}", advice(&error, &words)));
                    flow = self.failed(within, interactive);
                }
            }
            if let Flow::Stop = flow {
                break;
            }
        }
        flow
    }

    /// How to go on after a failure, if that was `within` a transaction. What follows was meant to take effect together
    /// with what has failed, or not at all.
    fn failed(&self, within: bool, interactive: bool) -> Flow {
        match within && !interactive {
            true => Flow::Stop,
            false => Flow::ContinueFailed,
        }
    }

    /// Runs a statement, which has a word at least; false at the end.
    async fn obey(&mut self, words: &[Word]) -> anyhow::Result<bool> {
        let name = words[0].text();
        let arguments = &words[1..];
        match (&*name, arguments, self.open.is_some()) {
            ("quit" | "exit", [], _) => return Ok(false),
            ("help" | "?", [], _) => println!("{}\n\n{QUOTES}", self.help()),
            ("keyspaces", [], _) => {
                for info in self.database.keyspaces() {
                    let name = Quoted(info.name.as_bytes());
                    println!("{name} ({}, {})", info.protocol, info.guarantee);
                }
            }
            ("use", [name], false) => {
                let name = name.text();
                self.keyspace = Keyspace::open(&self.database, &name, self.deadline).await?;
            }
            (_, _, open) => {
                let known = match (self.keyspace.clone(), open) {
                    (_, true) => self.go_on(&name, arguments).await?,
                    (Keyspace::Transactions(keyspace), false) => {
                        self.transact(&keyspace, &name, arguments).await?
                    }
                    (Keyspace::Registers(registers), false) => {
                        self.operate(&registers, &name, arguments).await?
                    }
                };
                known.ok_or_else(|| self.misunderstood(&name))?;
            }
        }
        Ok(true)
    }

    fn help(&self) -> &'static str {
        match self.keyspace {
            Keyspace::Transactions(_) => HELP,
            Keyspace::Registers(_) => registers::HELP,
        }
    }

    /// Why a statement that begins with `name` is none of those that there are.
    fn misunderstood(&self, name: &str) -> anyhow::Error {
        let usage = |line: &'static str| line.split("  ").next().unwrap_or(line);
        let mut usages = self.help().lines().map(usage);
        match usages.find(|usage| usage.split(' ').next() == Some(name)) {
            Some(usage) => anyhow::anyhow!(
                "`{name}` is written as `{usage}`: quote a key or a value with spaces"
            ),
            None => anyhow::anyhow!("`{name}` can't be understood: try `help`"),
        }
    }

    fn show(&self, key: &Key, value: &Option<Value>) {
        if self.json {
            let key = json_bytes("key", key.as_bytes());
            let value = match value {
                Some(value) => json_bytes("value", value.as_bytes()),
                None => ("value".to_string(), serde_json::Value::Null),
            };
            println!("{}", serde_json::Value::Object([key, value].into_iter().collect()));
            return;
        }
        let key = Quoted(key.as_bytes());
        match value {
            Some(value) => println!("{key} = {}", Quoted(value.as_bytes())),
            None => println!("{key} is absent"),
        }
    }

    fn report(&self, what: &str, detail: &str) {
        match (self.json, what) {
            (true, _) => println!("{}", serde_json::json!({ "result": what, "detail": detail })),
            (false, "error") => eprintln!("error: {detail}"),
            (false, _) if detail.is_empty() => println!("{what}"),
            (false, _) => println!("{what} {detail}"),
        }
    }
}

/// The statement to type after one that failed with an unknown outcome, if it did.
fn advice(error: &anyhow::Error, words: &[Word]) -> String {
    if let Some(TransactionError::Unknown { txn, .. }) = error.downcast_ref() {
        return format!(": type `outcome {txn}`");
    }
    let Some(RegisterError::Unknown { token, .. }) = error.downcast_ref() else {
        return String::new();
    };
    let statement = match words {
        [again, _, statement @ ..] if again.is_bare("again") => statement,
        statement => statement,
    };
    let statement: Vec<String> = statement.iter().map(Word::to_string).collect();
    format!(": type `again {token} {}`", statement.join(" "))
}

/// A key or a value as an entry of a JSON object: as text if it is, and in hexadecimal digits otherwise.
fn json_bytes(name: &str, bytes: &[u8]) -> (String, serde_json::Value) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (name.to_string(), text.into()),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (format!("{name}_hex"), hex.into())
        }
    }
}

/// The words of a command line.
#[cfg(test)]
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let statements = statements(line).ok()?;
    let [words] = &*statements else { return None };
    Some(words.iter().map(Word::text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_comes_with_the_statement_that_finds_out() {
        let statement = |line| statements(line).unwrap().remove(0);
        let deadline = Duration::from_secs(10);
        let unknown =
            RegisterError::Unknown { key: "k".into(), token: "7.1".parse().unwrap(), deadline };
        let error = anyhow::Error::new(unknown);
        let expected = ": type `again 7.1 cas k - \"a b\"`";
        assert_eq!(advice(&error, &statement("cas k - 'a b'")), expected);
        assert_eq!(advice(&error, &statement("again 7.1 cas k - 'a b'")), expected);
        let unknown = TransactionError::Unknown { txn: "7.1".parse().unwrap(), deadline };
        let error = anyhow::Error::new(unknown);
        assert_eq!(advice(&error, &statement("put k 1")), ": type `outcome 7.1`");
        assert_eq!(advice(&anyhow::anyhow!("no answer"), &statement("get k")), "");
    }

    #[test]
    fn what_is_not_text_is_in_json_as_hexadecimal_digits() {
        assert_eq!(json_bytes("key", b"a\n"), ("key".to_string(), "a\n".into()));
        assert_eq!(json_bytes("value", b"\xff\x00"), ("value_hex".to_string(), "ff00".into()));
    }
}
