//! Statements for keyspaces of registers.

use serried::{Access, Key, RegisterError, RegisterKeyspace, Token};

use crate::shell::{Printer, Quoted, Running, Statements, Word, modification, modification_help};

const HELP: &str = concat!(
    "\
get KEY...                    read keys, each by itself
put KEY VALUE                 write a key; also: set
delete KEY                    delete a key
",
    modification_help!(),
    "\
again TOKEN STATEMENT         try an update again whose outcome is not known; it takes effect once
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit"
);

/// The update that a statement describes; `None` if it describes none.
fn update(name: &str, arguments: &[Word]) -> anyhow::Result<Option<Access>> {
    Ok(match (name, arguments) {
        ("put" | "set", [_, value]) => Some(Access::Write(Some(value.into()))),
        ("delete", [_]) => Some(Access::Write(None)),
        _ => modification(name, arguments)?.map(Access::Modify),
    })
}

/// The statements for a keyspace of registers.
pub(super) struct RegisterStatements {
    pub(super) registers: RegisterKeyspace,
}

impl Statements for RegisterStatements {
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

/// An update with an unknown outcome can be tried again with its token.
fn advice(error: &anyhow::Error, words: &[Word]) -> Option<String> {
    let Some(RegisterError::Unknown { token, .. }) = error.downcast_ref() else { return None };
    let statement = match words {
        [again, _, statement @ ..] if again.is_bare("again") => statement,
        statement => statement,
    };
    let statement: Vec<String> = statement.iter().map(Word::to_string).collect();
    Some(format!("again {token} {}", statement.join(" ")))
}

impl RegisterStatements {
    /// Runs a statement; `None` if it is none for registers.
    async fn operate(
        &self,
        name: &str,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        let registers = &self.registers;
        if let ("again", [token, name, arguments @ ..]) = (name, arguments) {
            return self.try_again(token, name, arguments, printer).await;
        }
        if let (Some(modification), [key, ..]) = (modification(name, arguments)?, arguments) {
            let key = Key::from(key);
            let modified = registers.rmw(&key, modification).await?;
            printer.show_modified(name, &key, &modified);
            return Ok(Some(()));
        }
        match (name, arguments) {
            ("get", keys @ [_, ..]) => {
                for key in keys.iter().map(Key::from) {
                    let value = registers.read(&key).await?;
                    printer.show(&key, &value);
                }
            }
            ("put" | "set", [key, value]) => {
                registers.write(key, value).await?;
                printer.report("written", &key.to_string());
            }
            ("delete", [key]) => {
                registers.delete(key).await?;
                printer.report("deleted", &key.to_string());
            }
            ("begin" | "commit" | "rollback", _) => anyhow::bail!(
                "this keyspace has registers and no transactions: `use` another, or try `help`"
            ),
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Tries an update again, with the token of an earlier try.
    async fn try_again(
        &self,
        token: &Word,
        name: &Word,
        arguments: &[Word],
        printer: Printer,
    ) -> anyhow::Result<Option<()>> {
        let token: Token = token.text().parse().map_err(anyhow::Error::msg)?;
        let (Some(update), [key, ..]) = (update(&name.text(), arguments)?, arguments) else {
            anyhow::bail!("`again` is for an update: again TOKEN put KEY VALUE, for example");
        };
        let key = Key::from(key);
        let accessed = self.registers.access(key.clone(), update.clone(), Some(token)).await?;
        match update {
            Access::Modify(_) => {
                printer.report("done", "and what was there before follows");
                printer.show(&key, &accessed.found);
            }
            Access::Write(_) | Access::Read => {
                printer.report("done", &Quoted(key.as_bytes()).to_string());
            }
        }
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shell::statements;

    #[test]
    fn an_unknown_outcome_comes_with_the_statement_that_tries_again() {
        let statement = |line| statements(line).unwrap().remove(0);
        let deadline = Duration::from_secs(10);
        let unknown =
            RegisterError::Unknown { key: "k".into(), token: "7.1".parse().unwrap(), deadline };
        let error = anyhow::Error::new(unknown);
        let expected = Some("again 7.1 cas k - \"a b\"".to_string());
        assert_eq!(advice(&error, &statement("cas k - 'a b'")), expected);
        assert_eq!(advice(&error, &statement("again 7.1 cas k - 'a b'")), expected);
        assert_eq!(advice(&anyhow::anyhow!("no answer"), &statement("get k")), None);
    }
}
