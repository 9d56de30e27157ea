//! `serried shell`: statements by hand.

use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use serried::{
    Abort, Committed, Database, Error, Key, Keyspace, TransactOptions, Transaction, Value,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::Ended;

/// How long a transaction that is made by hand may take.
const PATIENCE: Duration = Duration::from_secs(600);

const HELP: &str = "\
get KEY...          read keys
put KEY VALUE       write a key
delete KEY          delete a key
begin               begin a transaction of several statements
commit, rollback    end it
use KEYSPACE        go to another keyspace
keyspaces           list them
help, quit";

/// Talk to a running cluster: get, put, delete, and transactions of several statements.
///
/// A transaction that was begun with `begin` runs like any other: if something that it read changes
/// before it commits, it is run again with the same statements, and the shell says what it reads now.
#[derive(Args)]
#[command(after_help = "\
Examples:
  serried shell serried://127.0.0.1:7400,127.0.0.1:7401,127.0.0.1:7402
  serried shell serried://127.0.0.1:7400 -e 'put alice 10; get alice'
  echo 'get alice' | serried shell serried://127.0.0.1:7400 --json")]
pub(crate) struct Shell {
    /// The cluster's address: serried://host:port,host:port
    address: String,
    /// The keyspace to begin with
    #[arg(long, default_value = "default")]
    keyspace: String,
    /// Run these statements, separated by semicolons, and end
    #[arg(short, long, value_name = "STATEMENTS")]
    execute: Option<String>,
    /// Give up a single statement after so many seconds
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
        let keyspace = database.keyspace(&self.keyspace).await?;
        let interactive = self.execute.is_none() && stdin().is_terminal();
        let mut lines = match &self.execute {
            Some(statements) => given(statements),
            None => typed(),
        };
        let options = TransactOptions {
            deadline: Duration::from_secs_f64(self.deadline),
            ..TransactOptions::default()
        };
        let keyspace = keyspace.with_options(options);
        let mut session = Session { database, keyspace, options, open: None, json: self.json };
        let mut failed = false;
        loop {
            if interactive {
                print!("{}> ", if session.open.is_some() { "serried*" } else { "serried" });
                stdout().flush()?;
            }
            let Some(line) = lines.recv().await else { break };
            let words: Vec<&str> = line.split_whitespace().collect();
            match session.obey(&words).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    failed = true;
                    session.report("error", &format!("{error:#}"));
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

/// Statements from the command line.
fn given(statements: &str) -> mpsc::Receiver<String> {
    let lines: Vec<String> = statements.split(';').map(str::to_string).collect();
    let (sender, receiver) = mpsc::channel(lines.len().max(1));
    for line in lines {
        sender.try_send(line).expect("there is room for all");
    }
    receiver
}

/// Lines from standard input, which is read by a thread, as it can't be waited for otherwise.
fn typed() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// A statement of a transaction.
#[derive(Clone)]
enum Statement {
    Get(Key),
    Put(Key, Value),
    Delete(Key),
    Commit,
}

/// The statements of a transaction so far; it grows while the transaction runs.
type Script = Arc<Mutex<Vec<Statement>>>;

/// A transaction that was begun and not ended.
struct Open {
    script: Script,
    grown: watch::Sender<usize>,
    /// What `get`s found, by the number of their statement, again whenever the program is run again.
    found: mpsc::UnboundedReceiver<(usize, Option<Value>)>,
    shown: Vec<Option<Option<Value>>>,
    task: JoinHandle<Result<Committed<()>, Error>>,
}

/// Left open, it is rolled back.
impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Session {
    database: Database,
    keyspace: Keyspace,
    options: TransactOptions,
    open: Option<Open>,
    json: bool,
}

impl Session {
    /// Does what a line says; false at the end.
    async fn obey(&mut self, words: &[&str]) -> anyhow::Result<bool> {
        match (words, self.open.is_some()) {
            ([], _) => {}
            (["quit" | "exit"], _) => return Ok(false),
            (["help" | "?"], _) => println!("{HELP}"),
            (["keyspaces"], _) => {
                for info in self.database.keyspaces() {
                    println!("{} ({}, {})", info.name, info.protocol, info.guarantee);
                }
            }
            (["use", name], false) => {
                let keyspace = self.database.keyspace(name).await?;
                self.keyspace = keyspace.with_options(self.options);
            }
            (["begin"], false) => self.begin(),
            (["get", keys @ ..], false) if !keys.is_empty() => {
                let values = self.keyspace.get_many(keys.iter().copied()).await?;
                for (key, value) in keys.iter().zip(values) {
                    self.show(key, &value);
                }
            }
            (["put", key, value @ ..], false) if !value.is_empty() => {
                let committed = self.keyspace.put(*key, value.join(" ")).await?;
                self.report("committed", &committed.version.to_string());
            }
            (["delete", key], false) => {
                let committed = self.keyspace.delete(*key).await?;
                self.report("committed", &committed.version.to_string());
            }
            (["get", keys @ ..], true) if !keys.is_empty() => {
                for key in keys {
                    self.add(Statement::Get(Key::from(*key))).await?;
                }
            }
            (["put", key, value @ ..], true) if !value.is_empty() => {
                let value = Value::from(value.join(" "));
                self.add(Statement::Put(Key::from(*key), value)).await?;
            }
            (["delete", key], true) => self.add(Statement::Delete(Key::from(*key))).await?,
            (["commit"], true) => self.add(Statement::Commit).await?,
            (["rollback"], true) => {
                self.open = None;
                self.report("rolled back", "");
            }
            (["commit" | "rollback"], false) => {
                anyhow::bail!("there is no transaction: `begin` one")
            }
            (["begin" | "use", ..], true) => {
                anyhow::bail!("a transaction is open: `commit` or `rollback` first")
            }
            ([word, ..], _) => anyhow::bail!("`{word}` can't be understood: try `help`"),
        }
        Ok(true)
    }

    fn begin(&mut self) {
        let script = Script::default();
        let (grown, growth) = watch::channel(0);
        let (finds, found) = mpsc::unbounded_channel();
        let keyspace = self
            .keyspace
            .with_options(TransactOptions { deadline: PATIENCE, ..TransactOptions::default() });
        let statements = script.clone();
        let task = tokio::spawn(async move {
            let program = |tx: Transaction| {
                let (statements, growth) = (statements.clone(), growth.clone());
                follow(tx, statements, growth, finds.clone())
            };
            keyspace.transact(program).await
        });
        self.open = Some(Open { script, grown, found, shown: Vec::new(), task });
    }

    /// Adds a statement to the open transaction, and waits for what comes of it.
    async fn add(&mut self, statement: Statement) -> anyhow::Result<()> {
        let mut open = self.open.take().expect("only called while one is open");
        let number = open.shown.len();
        open.shown.push(None);
        let waits_for = match &statement {
            Statement::Get(_) => Some(number),
            _ => None,
        };
        let commits = matches!(statement, Statement::Commit);
        open.script.lock().expect("nobody panics with it").push(statement);
        open.grown.send_replace(number + 1);
        if waits_for.is_none() && !commits {
            self.open = Some(open);
            return Ok(());
        }
        let ended = loop {
            tokio::select! {
                biased;
                Some((number, value)) = open.found.recv() => {
                    self.tell(&mut open, number, value);
                    if waits_for == Some(number) {
                        break None;
                    }
                }
                ended = &mut open.task => break Some(ended),
            }
        };
        let Some(ended) = ended else {
            self.open = Some(open);
            return Ok(());
        };
        while let Ok((number, value)) = open.found.try_recv() {
            self.tell(&mut open, number, value);
        }
        let committed = ended??;
        let times = committed.re_executions;
        let note = if times > 0 { format!(", run again {times} times") } else { String::new() };
        self.report("committed", &format!("{}{note}", committed.version));
        Ok(())
    }

    /// Shows what a `get` found, if that is new.
    fn tell(&self, open: &mut Open, number: usize, value: Option<Value>) {
        let key = match &open.script.lock().expect("nobody panics with it")[number] {
            Statement::Get(key) => key.to_string(),
            _ => unreachable!("only a `get` finds something"),
        };
        let changed = match &open.shown[number] {
            Some(shown) if *shown == value => return,
            Some(_) => true,
            None => false,
        };
        if changed {
            self.report("changed", &format!("{key} since it was read; it is now:"));
        }
        self.show(&key, &value);
        open.shown[number] = Some(value);
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

/// The program of a transaction by hand: it follows the script as it grows.
async fn follow(
    tx: Transaction,
    script: Script,
    mut growth: watch::Receiver<usize>,
    found: mpsc::UnboundedSender<(usize, Option<Value>)>,
) -> Result<(), Abort> {
    for number in 0.. {
        growth.wait_for(|length| *length > number).await?;
        let statement = script.lock().expect("nobody panics with it")[number].clone();
        match statement {
            Statement::Get(key) => {
                let value = tx.get(key).await?;
                let _ = found.send((number, value));
            }
            Statement::Put(key, value) => tx.put(key, value),
            Statement::Delete(key) => tx.delete(key),
            Statement::Commit => break,
        }
    }
    Ok(())
}
