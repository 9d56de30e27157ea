//! Statements for keyspaces of snapshots.

use serried::{
    BadToken, Key, SessionToken, SnapshotError, SnapshotKeyspace, Value, Write, WriteOutcome,
    WriteToken,
};

use crate::shell::{Printer, Running, Statements, Word};

/// The statements, with what is different from protocol to protocol.
macro_rules! help {
    ($writes:literal, $tokens:literal) => {
        concat!(
            "get KEY...                    read keys in one read-only transaction\n",
            $writes,
            $tokens,
            "session                       begin a new session\n",
            "again TOKEN STATEMENT         try a write again whose outcome is not known; it takes effect once\n",
            "use KEYSPACE                  go to another keyspace\n",
            "keyspaces                     list them\n",
            "help, quit"
        )
    };
}

const WITHOUT_TOKENS: &str = help!(
    "put KEY VALUE                 write a key; also: set\n\
     delete KEY                    delete a key\n",
    ""
);
const WITH_TOKENS: &str = help!(
    "put KEY VALUE                 write a key; also: set\n\
     delete KEY                    delete a key\n",
    "token                         show the token of this session\n\
     resume TOKEN                  continue the session with this token\n"
);
const WITH_WRITE_TRANSACTIONS: &str = help!(
    "put KEY VALUE...              write a key, or several in one write transaction; also: set\n\
     delete KEY...                 delete a key, or several in one write transaction\n",
    "token                         show the token of this session\n\
     resume TOKEN                  continue the session with this token\n"
);

/// The statements for a keyspace of snapshots.
pub(super) struct SnapshotStatements {
    pub(super) session: SnapshotKeyspace,
}

/// The writes that a statement describes; `None` if it describes none.
fn writes(name: &str, arguments: &[Word]) -> Option<Vec<Write>> {
    let (pairs, rest) = arguments.as_chunks();
    match name {
        _ if arguments.is_empty() => None,
        "put" | "set" if rest.is_empty() => {
            let write = |[key, value]: &[Word; 2]| Write {
                key: Key::from(key),
                value: Some(Value::from(value)),
            };
            Some(pairs.iter().map(write).collect())
        }
        "delete" => {
            let write = |key| Write { key: Key::from(key), value: None };
            Some(arguments.iter().map(write).collect())
        }
        _ => None,
    }
}

impl Statements for SnapshotStatements {
    fn help(&self) -> &'static str {
        match (self.session.has_write_transactions(), self.session.has_version_clocks()) {
            (true, _) => WITH_WRITE_TRANSACTIONS,
            (false, true) => WITH_TOKENS,
            (false, false) => WITHOUT_TOKENS,
        }
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
        if let Some(writes) = writes(name, arguments) {
            let written = self.session.write_all(writes.clone()).await?;
            report(&writes, written, printer);
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
            ("resume", [_]) if !self.session.has_version_clocks() => {
                return Err(SnapshotError::BadToken(BadToken::NotOffered).into());
            }
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
                let Some(writes) = writes(&name.text(), arguments) else {
                    anyhow::bail!("`again` is for a write: again TOKEN put KEY VALUE, for example");
                };
                let written = self.session.retry_all(writes.clone(), token).await?;
                report(&writes, written, printer);
            }
            ("begin" | "commit" | "rollback", _) => {
                return Err(SnapshotError::ReadsAndWrites.into());
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }
}

/// Reports what was written, a line for each key.
fn report(writes: &[Write], written: Option<WriteOutcome>, printer: Printer) {
    for Write { key, value } in writes {
        let verb = if value.is_some() { "written" } else { "deleted" };
        let text = match written {
            Some(WriteOutcome { omitted: true, .. }) => {
                format!("{key}, and overwritten at once by a concurrent write: `get` shows it")
            }
            _ => key.to_string(),
        };
        printer.report(verb, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serried_model::Versionstamp;

    use super::*;
    use crate::shell::statements;

    fn statement(line: &str) -> Vec<Word> {
        statements(line).unwrap().remove(0)
    }

    #[test]
    fn a_statement_writes_or_deletes_a_key_or_several_at_once() {
        let of = |line| {
            let words = statement(line);
            let writes = writes(&words[0].text(), &words[1..]);
            writes.map(|writes| writes.into_iter().map(|write| (write.key, write.value)).collect())
        };
        let put = |key: &str, value: &str| (Key::from(key), Some(Value::from(value)));
        let delete = |key: &str| (Key::from(key), None);
        assert_eq!(of("put k v"), Some(vec![put("k", "v")]));
        assert_eq!(of("set k v 'k 2' put"), Some(vec![put("k", "v"), put("k 2", "put")]));
        assert_eq!(of("delete k l"), Some(vec![delete("k"), delete("l")]));
        for none in ["put", "put k", "put k v l", "delete", "get k"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn an_unknown_outcome_comes_with_the_statement_that_tries_again() {
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
        for several in ["put k 1 l \"a b\"", "delete k l"] {
            let expected = Some(format!("again v77 {several}"));
            assert_eq!(advice(&error, &statement(several)), expected);
            assert_eq!(advice(&error, &statement(&format!("again v5 {several}"))), expected);
        }
        assert_eq!(advice(&anyhow::anyhow!("no answer"), &statement("get k")), None);
    }
}
