//! Transactions of several statements, by hand.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serried::{
    Abort, Committed, Ending, Key, Modification, TransactOptions, Transaction, TransactionError,
    TransactionKeyspace, Value, Version,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::shell::{Printer, Quoted, Running, Statements, Word, modification, modification_help};

const HELP: &str = concat!(
    "\
get KEY...                    read keys
put KEY VALUE                 write a key
delete KEY                    delete a key
",
    modification_help!(),
    "\
begin                         begin a transaction of several statements; in it, only `get` shows values, and what has
                              no effect, such as an `add` that would leave the bounds, is left out
commit, rollback              end it
outcome TXN                   how the transaction of this version ended; if it has not, it is ended
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit"
);

/// How long a transaction that is made by hand may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A statement of a transaction.
#[derive(Clone)]
enum Statement {
    Get(Key),
    Put(Key, Value),
    Delete(Key),
    Modify(Key, Modification),
    Commit,
}

/// The statements of a transaction so far; it grows while the transaction runs.
type Script = Arc<Mutex<Vec<Statement>>>;

/// The attempt that was last asked to commit, if one was.
type Committing = Arc<Mutex<Option<Transaction>>>;

/// A transaction that was begun and not ended.
struct Open {
    script: Script,
    grown: watch::Sender<usize>,
    /// What each `get` found, in the order of the statements.
    found: mpsc::UnboundedReceiver<(Key, Option<Value>)>,
    committing: Committing,
    task: JoinHandle<Result<Committed<()>, TransactionError>>,
}

/// Left open, it is rolled back.
impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The statements for a keyspace of transactions.
pub(super) struct TransactionStatements {
    keyspace: TransactionKeyspace,
    open: Option<Open>,
}

impl Statements for TransactionStatements {
    fn help(&self) -> &'static str {
        HELP
    }

    fn run<'a>(
        &'a mut self,
        name: &'a str,
        arguments: &'a [Word],
        printer: Printer,
    ) -> Running<'a> {
        match self.is_open() {
            true => Box::pin(self.go_on(name, arguments, printer)),
            false => Box::pin(self.transact(name, arguments, printer)),
        }
    }

    fn advice(&self, error: &anyhow::Error, _: &[Word]) -> Option<String> {
        advice(error)
    }

    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// All but the commit are.
    fn is_part(&self, words: &[Word]) -> bool {
        self.is_open() && !matches!(words, [commit] if commit.is_bare("commit"))
    }

    fn roll_back(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async {
            if let Some(mut open) = self.open.take() {
                open.task.abort();
                let _ = (&mut open.task).await; // It is rolled back as it is dropped.
            }
        })
    }
}

/// The outcome of a transaction can be asked for.
fn advice(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref() {
        Some(TransactionError::Unknown { txn, .. }) => Some(format!("outcome {txn}")),
        _ => None,
    }
}

/// How the shell prints an ending.
fn in_words(ending: Ending) -> &'static str {
    match ending {
        Ending::Committed => "committed",
        Ending::Aborted => "aborted",
        Ending::Forgotten => "forgotten",
    }
}

impl TransactionStatements {
    pub(super) fn new(keyspace: TransactionKeyspace) -> TransactionStatements {
        TransactionStatements { keyspace, open: None }
    }

    /// Runs a statement outside of a transaction; `None` if it is none for a keyspace with transactions.
    async fn transact(
        &mut self,
        name: &str,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        let keyspace = &self.keyspace;
        if let (Some(modification), [key, ..]) = (modification(name, arguments)?, arguments) {
            let (key, modification) = (&Key::from(key), &modification);
            let program =
                |tx: Transaction| async move { tx.modify(key, modification.clone()).await };
            let committed = keyspace.transact(program).await?;
            printer.show_modified(name, key, &committed.value);
            return Ok(Some(()));
        }
        match (name, arguments) {
            ("begin", []) => self.begin(),
            ("get", keys @ [_, ..]) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                let values = keyspace.get_many(&keys).await?;
                for (key, value) in keys.iter().zip(values) {
                    printer.show(key, &value);
                }
            }
            ("put", [key, value]) => {
                let committed = keyspace.put(key, value).await?;
                printer.report("committed", &committed.version.to_string());
            }
            ("delete", [key]) => {
                let committed = keyspace.delete(key).await?;
                printer.report("committed", &committed.version.to_string());
            }
            ("outcome", [txn]) => {
                let version: Version = txn.text().parse().map_err(anyhow::Error::msg)?;
                let ending = keyspace.outcome(version).await?;
                printer.report(in_words(ending), &version.to_string());
            }
            ("commit" | "rollback", []) => anyhow::bail!("there is no transaction: `begin` one"),
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Runs a statement within the open transaction; `None` if it is none for one.
    async fn go_on(
        &mut self,
        name: &str,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        if let (Some(modification), [key, ..]) = (modification(name, arguments)?, arguments) {
            self.add(Statement::Modify(key.into(), modification), printer).await?;
            return Ok(Some(()));
        }
        match (name, arguments) {
            ("get", keys @ [_, ..]) => {
                for key in keys {
                    self.add(Statement::Get(key.into()), printer).await?;
                }
            }
            ("put", [key, value]) => {
                self.add(Statement::Put(key.into(), value.into()), printer).await?;
            }
            ("delete", [key]) => self.add(Statement::Delete(key.into()), printer).await?,
            ("commit", []) => self.add(Statement::Commit, printer).await?,
            ("rollback", []) => {
                self.open = None;
                printer.report("rolled back", "");
            }
            ("begin" | "use" | "outcome", _) => {
                anyhow::bail!("a transaction is open: `commit` or `rollback` first")
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    fn begin(&mut self) {
        let script = Script::default();
        let (grown, growth) = watch::channel(0);
        let (finds, found) = mpsc::unbounded_channel();
        let options = TransactOptions { deadline: PATIENCE, ..TransactOptions::default() };
        let keyspace = self.keyspace.with_options(options);
        let (statements, seen) = (script.clone(), Seen::default());
        let committing = Committing::default();
        let last = committing.clone();
        let task = tokio::spawn(async move {
            let program = |tx: Transaction| {
                let (statements, seen) = (statements.clone(), seen.clone());
                let (growth, finds, last) = (growth.clone(), finds.clone(), last.clone());
                async move {
                    follow(&tx, statements, growth, seen, finds).await?;
                    *last.lock().expect("nobody panics with it") = Some(tx);
                    Ok(())
                }
            };
            keyspace.transact(program).await
        });
        self.open = Some(Open { script, grown, found, committing, task });
    }

    /// Adds a statement to the open transaction, and waits for what comes of it.
    async fn add(&mut self, statement: Statement, printer: Printer) -> anyhow::Result<()> {
        let mut open = self.open.take().expect("only called while one is open");
        let reads = matches!(statement, Statement::Get(_));
        let commits = matches!(statement, Statement::Commit);
        let length = {
            let mut script = open.script.lock().expect("nobody panics with it");
            script.push(statement);
            script.len()
        };
        open.grown.send_replace(length);
        if !reads && !commits && !open.task.is_finished() {
            self.open = Some(open);
            return Ok(());
        }
        let deadline = self.keyspace.options().deadline;
        let ended = tokio::select! {
            biased;
            Some((key, value)) = open.found.recv() => {
                printer.show(&key, &value);
                self.open = Some(open);
                return Ok(());
            }
            ended = &mut open.task => ended?,
            () = tokio::time::sleep(deadline) => {
                let committing = open.committing.lock().expect("nobody panics with it").take();
                anyhow::bail!("no answer within {deadline:?}: {}", unanswered(committing.as_ref()));
            }
        };
        match ended {
            Ok(committed) => printer.report("committed", &committed.version.to_string()),
            Err(error) => match error.application::<Changed>() {
                Some(changed) => anyhow::bail!("{changed}"),
                None => return Err(error.into()),
            },
        }
        Ok(())
    }
}

/// What is known of a transaction that is given up, and may have been asked to commit.
fn unanswered(committing: Option<&Transaction>) -> String {
    let unknown = "it is not known whether the transaction takes effect";
    match committing.map(Transaction::version) {
        Some(Some(txn)) => format!("{unknown}: type `outcome {txn}`"),
        Some(None) => unknown.to_string(),
        None => "the transaction is over and nothing of it took effect; begin again".to_string(),
    }
}

/// A value that the user was shown has changed, and what was typed since may depend on it.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{}` has changed since it was read, from {} to {}: the transaction is over and nothing of it took effect; begin again",
    Quoted(.key.as_bytes()),
    shown(.was),
    shown(.is)
)]
struct Changed {
    key: Key,
    was: Option<Value>,
    is: Option<Value>,
}

fn shown(value: &Option<Value>) -> String {
    value.as_ref().map_or("absent".to_string(), |value| format!("`{}`", Quoted(value.as_bytes())))
}

/// The values that `get`s have found and that the user was shown, by the number of the statement.
type Seen = Arc<Mutex<BTreeMap<usize, Option<Value>>>>;

/// The program of an interactive transaction. It follows the script as it grows. If it is run again, it continues only if
/// everything that the user was shown is unchanged.
async fn follow(
    tx: &Transaction,
    script: Script,
    mut growth: watch::Receiver<usize>,
    seen: Seen,
    found: mpsc::UnboundedSender<(Key, Option<Value>)>,
) -> Result<(), Abort> {
    for number in 0.. {
        growth.wait_for(|length| *length > number).await?;
        let statement = script.lock().expect("nobody panics with it")[number].clone();
        match statement {
            Statement::Get(key) => {
                let is = tx.get(&key).await?;
                let was = seen.lock().expect("nobody panics with it").get(&number).cloned();
                match was {
                    Some(was) if was != is => return Err(Changed { key, was, is }.into()),
                    Some(_) => {}
                    None => {
                        seen.lock().expect("nobody panics with it").insert(number, is.clone());
                        let _ = found.send((key, is));
                    }
                }
            }
            Statement::Put(key, value) => tx.put(key, value),
            Statement::Delete(key) => tx.delete(key),
            Statement::Modify(key, modification) => drop(tx.modify(key, modification)),
            Statement::Commit => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ending_is_printed_as_what_it_is() {
        let endings = [Ending::Committed, Ending::Aborted, Ending::Forgotten];
        assert_eq!(endings.map(in_words), ["committed", "aborted", "forgotten"]);
    }

    #[test]
    fn an_unknown_outcome_comes_with_the_statement_that_asks_for_it() {
        let deadline = Duration::from_secs(10);
        let unknown = TransactionError::Unknown { txn: "7.1".parse().unwrap(), deadline };
        assert_eq!(advice(&anyhow::Error::new(unknown)), Some("outcome 7.1".to_string()));
        assert_eq!(advice(&anyhow::anyhow!("no answer")), None);
    }
}
