//! `serried shell`: statements by hand.

mod registers;
mod transaction;

use std::io::{BufRead, ErrorKind, IsTerminal, Write, stdin, stdout};
use std::time::Duration;

use clap::Args;
use serried::{
    Database, RegisterKeyspace, RegisterOptions, TransactOptions, TransactionKeyspace, Value,
};
use serried_model::FamilyName;
use tokio::sync::mpsc;

use crate::Ended;
use crate::wing;
use transaction::Open;

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

/// Talk to a running cluster: get, put, delete, and transactions of several statements.
///
/// What can be said depends on the keyspace, one with transactions or one of registers, whose keys can be
/// added to, appended to, compared and swapped: `help` lists it. If something that was read in a transaction (after
/// `begin`) changes before the transaction commits, the shell shows the new value and ends the transaction without any
/// effect, because what you typed since may depend on the old value. You can then begin again.
///
/// If a statement of a transaction fails before `commit`, and the statements do not come from a terminal, the transaction
/// is rolled back and all that follows is left out. After any other failure the next statement is run.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried shell serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402
  serried shell serried://127.0.0.1:7400 -e 'put alice 10; get alice'
  serried shell serried://127.0.0.1:7400 --keyspace flags -e 'add visits 1; cas leader - node-2'
  echo 'get alice' | serried shell serried://127.0.0.1:7400 --json")]
pub(crate) struct Shell {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace to begin with
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// Run these statements, separated by semicolons, and end. A value that has a semicolon can be given on standard input
    #[arg(short, long, value_name = "STATEMENTS")]
    execute: Option<String>,
    /// Give up a statement after so many seconds
    #[arg(long, default_value_t = 10.0)]
    deadline: f64,
    /// Print results as JSON, one object a line
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
                stdout().flush()?;
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
            let words: Vec<&str> = line.split_whitespace().collect();
            let within = session.open.is_some() && words != ["commit"];
            match session.obey(&words).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    failed = true;
                    session.report("error", &format!("{error:#}"));
                    // What follows was meant to take effect together with this, or not at all.
                    if within && !interactive {
                        break;
                    }
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
    let lines: Vec<Line> = statements.split(';').map(|line| Ok(line.to_string())).collect();
    let (sender, receiver) = mpsc::channel(lines.len().max(1));
    for line in lines {
        sender.try_send(line).expect("there is room for all");
    }
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
    /// Does what a line says; false at the end.
    async fn obey(&mut self, words: &[&str]) -> anyhow::Result<bool> {
        match (words, self.open.is_some()) {
            ([], _) => {}
            (["quit" | "exit"], _) => return Ok(false),
            (["help" | "?"], _) => println!(
                "{}",
                match self.keyspace {
                    Keyspace::Transactions(_) => HELP,
                    Keyspace::Registers(_) => registers::HELP,
                }
            ),
            (["keyspaces"], _) => {
                for info in self.database.keyspaces() {
                    println!("{} ({}, {})", info.name, info.protocol, info.guarantee);
                }
            }
            (["use", name], false) => {
                self.keyspace = Keyspace::open(&self.database, name, self.deadline).await?;
            }
            (_, open) => {
                let known = match (self.keyspace.clone(), open) {
                    (_, true) => self.go_on(words).await?,
                    (Keyspace::Transactions(keyspace), false) => {
                        self.transact(&keyspace, words).await?
                    }
                    (Keyspace::Registers(registers), false) => {
                        self.operate(&registers, words).await?
                    }
                };
                let word = words.first().unwrap_or(&"");
                known.ok_or_else(|| anyhow::anyhow!("`{word}` can't be understood: try `help`"))?;
            }
        }
        Ok(true)
    }

    fn show(&self, key: &str, value: &Option<Value>) {
        if self.json {
            let value = value.as_ref().map(ToString::to_string);
            println!("{}", serde_json::json!({ "key": key, "value": value }));
            return;
        }
        match value {
            Some(value) => println!("{key} = {value}"),
            None => println!("{key} is absent"),
        }
    }

    fn report(&self, what: &str, detail: &str) {
        match (self.json, what) {
            (true, _) => println!("{}", serde_json::json!({ "result": what, "detail": detail })),
            (false, "error") => eprintln!("error: {detail}"),
            (false, _) => println!("{what} {detail}"),
        }
    }
}
