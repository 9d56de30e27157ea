//! Read-modify-writes as statements.

use anyhow::Context;
use serried::{Modification, Value};

use super::Word;

/// How these statements are written, for the help.
macro_rules! modification_help {
    () => {
        "\
add KEY NUMBER [LEAST MOST]   add to an integer, unless the sum would leave the bounds
append KEY VALUE              append to the value
minimum KEY NUMBER            replace an integer by this one, if this one is less
maximum KEY NUMBER            replace an integer by this one, if this one is greater
cas KEY EXPECTED NEW          replace what is exactly as expected; `-` is an absent key
set-if-absent KEY VALUE       write a key that is absent
get-and-set KEY VALUE         write a key, and show what was there
get-and-delete KEY            delete a key, and show what was there
"
    };
}
pub(crate) use modification_help;

/// What stands for the value of an absent key.
const ABSENT: &str = "-";

fn integer(word: &Word) -> anyhow::Result<i64> {
    word.text().parse().with_context(|| format!("`{word}` is no integer of 64 bits"))
}

fn value(word: &Word) -> Option<Value> {
    (!word.is_bare(ABSENT)).then(|| Value::from(word))
}

/// The read-modify-write that a statement describes; `None` if it is another.
pub(crate) fn modification(name: &str, arguments: &[Word]) -> anyhow::Result<Option<Modification>> {
    Ok(Some(match (name, arguments) {
        ("add", [_, delta]) => Modification::add(integer(delta)?),
        ("add", [_, delta, least, most]) => {
            let (delta, least, most) = (integer(delta)?, integer(least)?, integer(most)?);
            Modification::Add { delta, least, most }
        }
        ("minimum", [_, number]) => Modification::Minimum(integer(number)?),
        ("maximum", [_, number]) => Modification::Maximum(integer(number)?),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::statements;

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
        assert_eq!(described("minimum n 5").unwrap(), Some(Modification::Minimum(5)));
        assert_eq!(described("maximum n 5").unwrap(), Some(Modification::Maximum(5)));
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
