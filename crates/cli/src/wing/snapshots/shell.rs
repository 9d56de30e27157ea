//! Statements for keyspaces of snapshots.

use serried::{
    Key, SessionToken, SnapshotError, SnapshotKeyspace, Value, Write, WriteOutcome, WriteToken,
};

use crate::shell::{Printer, Running, Statements, Word};

const HELP: &str = "\
get KEY...                    read keys in one read-only transaction
put KEY VALUE                 write a key; also: set
delete KEY                    delete a key
token                         show the token of this session
resume TOKEN                  continue the session with this token
session                       begin a new session
again TOKEN STATEMENT         try a write again whose outcome is not known; it takes effect once
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit";

/// The statements for a keyspace of snapshots.
pub(super) struct SnapshotStatements {
    pub(super) session: SnapshotKeyspace,
}

/// The write that a statement describes; `None` if it describes none.
fn write(name: &str, arguments: &[Word]) -> Option<Write> {
    match (name, arguments) {
        ("put" | "set", [key, value]) => {
            Some(Write { key: Key::from(key), value: Some(Value::from(value)) })
        }
        ("delete", [key]) => Some(Write { key: Key::from(key), value: None }),
        _ => None,
    }
}

impl Statements for SnapshotStatements {
    fn help(&self) -> &'static str {
        HELP
    }

    fn run<'a>(
        &'a mut self,
        name: &'a str,
        arguments: &'a [Word],
        printer: Printer,
    ) -> Running<'a> {
        Box::pin(self.operate(name, arguments, printer))
    }

    fn advice(&self, error: &anyhow::Error, words: &[Word]) -> Option<String> {
        advice(error, words)
    }
}

/// A write with an unknown outcome can be tried again with its token.
fn advice(error: &anyhow::Error, words: &[Word]) -> Option<String> {
    let Some(SnapshotError::Unknown { token, .. }) = error.downcast_ref() else { return None };
    let statement = match words {
        [again, _, statement @ ..] if again.is_bare("again") => statement,
        statement => statement,
    };
    let statement: Vec<String> = statement.iter().map(Word::to_string).collect();
    Some(format!("again {token} {}", statement.join(" ")))
}

impl SnapshotStatements {
    /// Runs a statement; `None` if it is none for snapshots.
    async fn operate(
        &mut self,
        name: &str,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        if let Some(write) = write(name, arguments) {
            let (key, value) = (write.key.clone(), write.value.clone());
            let written = match value {
                Some(value) => self.session.write(&key, value).await?,
                None => self.session.delete(&key).await?,
            };
            report(&key, &write, written, printer);
            return Ok(Some(()));
        }
        match (name, arguments) {
            ("get", keys @ [_, ..]) => {
                let keys: Vec<Key> = keys.iter().map(Key::from).collect();
                let values = self.session.read_only(keys.iter()).await?;
                for (key, value) in keys.iter().zip(&values) {
                    printer.show(key, value);
                }
            }
            ("token", []) => printer.report("token", &self.session.token()?.to_string()),
            ("resume", [token]) => {
                let token: SessionToken = token.text().parse().map_err(SnapshotError::BadToken)?;
                self.session = self.session.resume(token).await?;
                printer.report("resumed", &self.session.token()?.to_string());
            }
            ("session", []) => {
                self.session = self.session.session();
                printer.report("begun", "a new session");
            }
            ("again", [token, name, arguments @ ..]) => {
                let token: WriteToken = token.text().parse().map_err(anyhow::Error::msg)?;
                let Some(write) = write(&name.text(), arguments) else {
                    anyhow::bail!("`again` is for a write: again TOKEN put KEY VALUE, for example");
                };
                let written = self.session.retry(write.clone(), token).await?;
                report(&write.key, &write, written, printer);
            }
            ("begin" | "commit" | "rollback", _) => {
                return Err(SnapshotError::ReadsAndWrites.into());
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }
}

fn report(key: &Key, write: &Write, written: WriteOutcome, printer: Printer) {
    let verb = if write.value.is_some() { "written" } else { "deleted" };
    match written.omitted {
        false => printer.report(verb, &key.to_string()),
        true => printer.report(
            verb,
            &format!("{key}, and overwritten at once by a concurrent write: `get` shows it"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::Versionstamp;

    use super::*;
    use crate::shell::statements;

    #[test]
    fn an_unknown_outcome_comes_with_the_statement_that_tries_again() {
        let statement = |line| statements(line).unwrap().remove(0);
        let unknown = SnapshotError::Unknown {
            key: "k".into(),
            keys: 1,
            token: WriteToken::Requested(Versionstamp(77)),
            deadline: Duration::from_secs(10),
        };
        let error = anyhow::Error::new(unknown);
        let expected = Some("again v77 put k \"a b\"".to_string());
        assert_eq!(advice(&error, &statement("put k 'a b'")), expected);
        assert_eq!(advice(&error, &statement("again v77 put k 'a b'")), expected);
        assert_eq!(advice(&anyhow::anyhow!("no answer"), &statement("get k")), None);
    }
}
