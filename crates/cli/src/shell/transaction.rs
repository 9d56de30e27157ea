//! Transactions of several statements, by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried::{Abort, Committed, Error, Key, Keyspace, TransactOptions, Transaction, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::Session;

/// How long a transaction that is made by hand may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A statement of a transaction.
#[derive(Clone)]
pub(super) enum Statement {
    Get(Key),
    Put(Key, Value),
    Delete(Key),
    Commit,
}

/// The statements of a transaction so far; it grows while the transaction runs.
type Script = Arc<Mutex<Vec<Statement>>>;

/// A transaction that was begun and not ended.
pub(super) struct Open {
    script: Script,
    grown: watch::Sender<usize>,
    /// What `get`s found, by the number of their statement, again whenever the program is run again.
    found: mpsc::UnboundedReceiver<(usize, Option<Value>)>,
    shown: Vec<Option<Option<Value>>>,
    pub(super) task: JoinHandle<Result<Committed<()>, Error>>,
}

/// Left open, it is rolled back.
impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    /// Does what a line says outside of a transaction; `None` if it is no statement for a keyspace with
    /// transactions.
    pub(super) async fn transact(
        &mut self,
        keyspace: &Keyspace,
        words: &[&str],
    ) -> anyhow::Result<Option<()>> {
        match words {
            ["begin"] => self.begin(keyspace),
            ["get", keys @ ..] if !keys.is_empty() => {
                let values = keyspace.get_many(keys.iter().copied()).await?;
                for (key, value) in keys.iter().zip(values) {
                    self.show(key, &value);
                }
            }
            ["put", key, value @ ..] if !value.is_empty() => {
                let committed = keyspace.put(*key, value.join(" ")).await?;
                self.report("committed", &committed.version.to_string());
            }
            ["delete", key] => {
                let committed = keyspace.delete(*key).await?;
                self.report("committed", &committed.version.to_string());
            }
            ["commit" | "rollback"] => anyhow::bail!("there is no transaction: `begin` one"),
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Does what a line says within the open transaction; `None` if it is no statement for one.
    pub(super) async fn go_on(&mut self, words: &[&str]) -> anyhow::Result<Option<()>> {
        match words {
            ["get", keys @ ..] if !keys.is_empty() => {
                for key in keys {
                    self.add(Statement::Get(Key::from(*key))).await?;
                }
            }
            ["put", key, value @ ..] if !value.is_empty() => {
                let value = Value::from(value.join(" "));
                self.add(Statement::Put(Key::from(*key), value)).await?;
            }
            ["delete", key] => self.add(Statement::Delete(Key::from(*key))).await?,
            ["commit"] => self.add(Statement::Commit).await?,
            ["rollback"] => {
                self.open = None;
                self.report("rolled back", "");
            }
            ["begin" | "use", ..] => {
                anyhow::bail!("a transaction is open: `commit` or `rollback` first")
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    fn begin(&mut self, keyspace: &Keyspace) {
        let script = Script::default();
        let (grown, growth) = watch::channel(0);
        let (finds, found) = mpsc::unbounded_channel();
        let keyspace = keyspace
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
