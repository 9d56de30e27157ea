//! Statements for keyspaces of registers.

use anyhow::Context;
use serried::{Access, Key, Modification, Modified, RegisterKeyspace, Token, Value};

use super::Session;

pub(super) const HELP: &str = "\
get KEY...                    read keys, each by itself
put KEY VALUE                 write a key; also: set
delete KEY                    delete a key
add KEY NUMBER [LEAST MOST]   add to an integer, unless the sum would leave the bounds
append KEY TEXT               add text to the end
cas KEY EXPECTED NEW          replace what is exactly as expected; `-` is an absent key
set-if-absent KEY VALUE       write a key that is absent
get-and-set KEY VALUE         write a key, and show what was there
get-and-delete KEY            delete a key, and show what was there
again TOKEN STATEMENT         try an update again of which it is not known whether it took effect
use KEYSPACE                  go to another keyspace
keyspaces                     list them
help, quit";

/// What stands for the value of an absent key.
const ABSENT: &str = "-";

fn integer(word: &str) -> anyhow::Result<i64> {
    word.parse().with_context(|| format!("`{word}` is no integer of 64 bits"))
}

fn value(word: &str) -> Option<Value> {
    (word != ABSENT).then(|| Value::from(word))
}

/// The read-modify-write that a line says; `None` if it says none.
fn modification(words: &[&str]) -> anyhow::Result<Option<Modification>> {
    let text = |words: &[&str]| Value::from(words.join(" "));
    Ok(Some(match words {
        ["add", _, delta] => Modification::add(integer(delta)?),
        ["add", _, delta, least, most] => {
            let (delta, least, most) = (integer(delta)?, integer(least)?, integer(most)?);
            Modification::Add { delta, least, most }
        }
        ["append", _, suffix @ ..] if !suffix.is_empty() => Modification::Append(text(suffix)),
        ["cas", _, expected, new] => {
            Modification::CompareAndSwap { expected: value(expected), new: value(new) }
        }
        ["set-if-absent", _, new @ ..] if !new.is_empty() => Modification::SetIfAbsent(text(new)),
        ["get-and-set", _, new @ ..] if !new.is_empty() => Modification::Set(Some(text(new))),
        ["get-and-delete", _] => Modification::Set(None),
        _ => return Ok(None),
    }))
}

/// The update that a line says; `None` if it says none.
fn update(words: &[&str]) -> anyhow::Result<Option<Access>> {
    Ok(match words {
        ["put" | "set", _, value @ ..] if !value.is_empty() => {
            Some(Access::Write(Some(Value::from(value.join(" ")))))
        }
        ["delete", _] => Some(Access::Write(None)),
        _ => modification(words)?.map(Access::Modify),
    })
}

impl Session {
    /// Does what a line says; `None` if it is no statement for registers.
    pub(super) async fn operate(
        &mut self,
        registers: &RegisterKeyspace,
        words: &[&str],
    ) -> anyhow::Result<Option<()>> {
        if let ["again", token, words @ ..] = words {
            return self.try_again(registers, token, words).await;
        }
        if let (Some(modification), Some(key)) = (modification(words)?, words.get(1)) {
            let Modified { found, value, applied } = registers.rmw(*key, modification).await?;
            match (words[0], applied) {
                (_, false) => {
                    self.report("unchanged", "its condition does not hold; there is:");
                    self.show(key, &found);
                }
                ("get-and-set" | "get-and-delete", true) => {
                    self.report("changed", "and there was:");
                    self.show(key, &found);
                }
                (_, true) => self.show(key, &value),
            }
            return Ok(Some(()));
        }
        match words {
            ["get", keys @ ..] if !keys.is_empty() => {
                for key in keys {
                    let value = registers.read(*key).await?;
                    self.show(key, &value);
                }
            }
            ["put" | "set", key, value @ ..] if !value.is_empty() => {
                registers.write(*key, value.join(" ")).await?;
                self.report("written", key);
            }
            ["delete", key] => {
                registers.delete(*key).await?;
                self.report("deleted", key);
            }
            ["begin" | "commit" | "rollback"] => anyhow::bail!(
                "this keyspace has registers and no transactions: `use` another, or try `help`"
            ),
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Tries the update that a line says again, with the token of an earlier try.
    async fn try_again(
        &mut self,
        registers: &RegisterKeyspace,
        token: &str,
        words: &[&str],
    ) -> anyhow::Result<Option<()>> {
        let token: Token = token.parse().map_err(anyhow::Error::msg)?;
        let (Some(update), Some(key)) = (update(words)?, words.get(1)) else {
            anyhow::bail!("`again` is for an update: again TOKEN put KEY VALUE, for example");
        };
        let accessed = registers.access(Key::from(*key), update.clone(), Some(token)).await?;
        match update {
            Access::Modify(_) => {
                self.report("done", "and before that there was:");
                self.show(key, &accessed.found);
            }
            Access::Write(_) | Access::Read => self.report("done", key),
        }
        Ok(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_done_to_a_key_and_a_dash_is_an_absent_one() {
        let said = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            modification(&words)
        };
        assert_eq!(said("add n -3").unwrap(), Some(Modification::add(-3)));
        let bounded = Modification::Add { delta: 5, least: 0, most: 9 };
        assert_eq!(said("add n 5 0 9").unwrap(), Some(bounded));
        let swap = Modification::CompareAndSwap { expected: None, new: Some(Value::from("a")) };
        assert_eq!(said("cas k - a").unwrap(), Some(swap));
        let suffix = Modification::Append(Value::from("of text"));
        assert_eq!(said("append k of text").unwrap(), Some(suffix));
        assert_eq!(said("get k").unwrap(), None);
        assert_eq!(said("cas k a").unwrap(), None);
        assert!(said("add n one").unwrap_err().to_string().contains("`one` is no integer"));
    }
}
