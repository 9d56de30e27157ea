//! Statements for keyspaces of registers.

use anyhow::Context;
use serried::{Access, Key, Modification, Modified, RegisterKeyspace, Token, Value};

use super::Session;
use super::words::{Quoted, Word};

pub(super) const HELP: &str = "\
get KEY...                    read keys, each by itself
put KEY VALUE                 write a key; also: set
delete KEY                    delete a key
add KEY NUMBER [LEAST MOST]   add to an integer, unless the sum would leave the bounds
append KEY VALUE              append to the value
cas KEY EXPECTED NEW          replace what is exactly as expected; `-` is an absent key
set-if-absent KEY VALUE       write a key that is absent
get-and-set KEY VALUE         write a key, and show what was there
get-and-delete KEY            delete a key, and show what was there
again TOKEN STATEMENT         try an update again whose outcome is not known; it takes effect once
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit";

/// What stands for the value of an absent key.
const ABSENT: &str = "-";

fn integer(word: &Word) -> anyhow::Result<i64> {
    word.text().parse().with_context(|| format!("`{word}` is no integer of 64 bits"))
}

fn value(word: &Word) -> Option<Value> {
    (!word.is_bare(ABSENT)).then(|| Value::from(word))
}

/// The read-modify-write that a statement describes; `None` if it is another.
fn modification(name: &str, arguments: &[Word]) -> anyhow::Result<Option<Modification>> {
    Ok(Some(match (name, arguments) {
        ("add", [_, delta]) => Modification::add(integer(delta)?),
        ("add", [_, delta, least, most]) => {
            let (delta, least, most) = (integer(delta)?, integer(least)?, integer(most)?);
            Modification::Add { delta, least, most }
        }
        ("append", [_, suffix]) => Modification::Append(suffix.into()),
        ("cas", [_, expected, new]) => {
            Modification::CompareAndSwap { expected: value(expected), new: value(new) }
        }
        ("set-if-absent", [_, new]) => Modification::SetIfAbsent(new.into()),
        ("get-and-set", [_, new]) => Modification::Set(Some(new.into())),
        ("get-and-delete", [_]) => Modification::Set(None),
        _ => return Ok(None),
    }))
}

/// The update that a statement describes; `None` if it describes none.
fn update(name: &str, arguments: &[Word]) -> anyhow::Result<Option<Access>> {
    Ok(match (name, arguments) {
        ("put" | "set", [_, value]) => Some(Access::Write(Some(value.into()))),
        ("delete", [_]) => Some(Access::Write(None)),
        _ => modification(name, arguments)?.map(Access::Modify),
    })
}

impl Session {
    /// Runs a statement; `None` if it is none for registers.
    pub(super) async fn operate(
        &mut self,
        registers: &RegisterKeyspace,
        name: &str,
        arguments: &[Word],
    ) -> anyhow::Result<Option<()>> {
        if let ("again", [token, name, arguments @ ..]) = (name, arguments) {
            return self.try_again(registers, token, name, arguments).await;
        }
        if let (Some(modification), [key, ..]) = (modification(name, arguments)?, arguments) {
            let key = Key::from(key);
            let Modified { found, value, applied } = registers.rmw(&key, modification).await?;
            match (name, applied) {
                (_, false) => {
                    self.report("unchanged", "its condition does not hold; there is:");
                    self.show(&key, &found);
                }
                ("get-and-set" | "get-and-delete", true) => {
                    self.report("changed", "and there was:");
                    self.show(&key, &found);
                }
                (_, true) => self.show(&key, &value),
            }
            return Ok(Some(()));
        }
        match (name, arguments) {
            ("get", keys @ [_, ..]) => {
                for key in keys.iter().map(Key::from) {
                    let value = registers.read(&key).await?;
                    self.show(&key, &value);
                }
            }
            ("put" | "set", [key, value]) => {
                registers.write(key, value).await?;
                self.report("written", &key.to_string());
            }
            ("delete", [key]) => {
                registers.delete(key).await?;
                self.report("deleted", &key.to_string());
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
        &mut self,
        registers: &RegisterKeyspace,
        token: &Word,
        name: &Word,
        arguments: &[Word],
    ) -> anyhow::Result<Option<()>> {
        let token: Token = token.text().parse().map_err(anyhow::Error::msg)?;
        let (Some(update), [key, ..]) = (update(&name.text(), arguments)?, arguments) else {
            anyhow::bail!("`again` is for an update: again TOKEN put KEY VALUE, for example");
        };
        let key = Key::from(key);
        let accessed = registers.access(key.clone(), update.clone(), Some(token)).await?;
        match update {
            Access::Modify(_) => {
                self.report("done", "and before that there was:");
                self.show(&key, &accessed.found);
            }
            Access::Write(_) | Access::Read => {
                self.report("done", &Quoted(key.as_bytes()).to_string());
            }
        }
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::words::statements;

    #[test]
    fn a_statement_describes_a_modification_and_a_bare_dash_is_an_absent_value() {
        let described = |line: &str| {
            let statements = statements(line).unwrap();
            let [name, arguments @ ..] = &*statements[0] else { panic!("it has words") };
            modification(&name.text(), arguments)
        };
        assert_eq!(described("add n -3").unwrap(), Some(Modification::add(-3)));
        let bounded = Modification::Add { delta: 5, least: 0, most: 9 };
        assert_eq!(described("add n 5 0 9").unwrap(), Some(bounded));
        let swap =
            |expected| Modification::CompareAndSwap { expected, new: Some(Value::from("a b")) };
        assert_eq!(described("cas k - 'a b'").unwrap(), Some(swap(None)));
        assert_eq!(described("cas k '-' 'a b'").unwrap(), Some(swap(Some(Value::from("-")))));
        let suffix = Modification::Append(Value::from(b"\xff"));
        assert_eq!(described("append k \\xff").unwrap(), Some(suffix));
        assert_eq!(described("append k of text").unwrap(), None);
        assert_eq!(described("get k").unwrap(), None);
        assert_eq!(described("cas k a").unwrap(), None);
        assert!(described("add n one").unwrap_err().to_string().contains("`one` is no integer"));
    }
}
