//! Operations on a single key: reads, writes and read-modify-writes (001 §4.1.3).

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{NodeId, Value, Version};

/// One operation on one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Access {
    /// Returns the value.
    Read,
    /// Replaces the value, or deletes it.
    Write(Option<Value>),
    /// Atomically reads and modifies the value. Returns the value that was read.
    Modify(Modification),
}

/// A read-modify-write. It is data, not code: all replicas that execute it on the same value get the same result.
///
/// Integers are signed, have 64 bits, and are stored as decimal text, such as `-17`. An absent key counts as 0 for
/// [`Modification::Add`], and as empty for [`Modification::Append`] and [`Modification::AppendWithin`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Modification {
    /// Adds to an integer, unless the sum would leave the bounds.
    Add {
        /// What is added.
        delta: i64,
        /// The least that the sum may be.
        least: i64,
        /// The most that it may be.
        most: i64,
    },
    /// Adds bytes to the end.
    Append(Value),
    /// Replaces the value if it is exactly as expected.
    CompareAndSwap {
        /// The value that must be there. `None` if the key must be absent.
        expected: Option<Value>,
        /// The new value, or `None` to delete the key.
        new: Option<Value>,
    },
    /// Sets the value if the key is absent.
    SetIfAbsent(Value),
    /// Replaces or deletes any value.
    Set(Option<Value>),
    /// Adds bytes to the end, unless the value would become too long.
    AppendWithin {
        /// What is added.
        suffix: Value,
        /// The greatest length of the new value, in bytes.
        most_bytes: usize,
    },
    /// Replaces an integer by this one, if this one is less. An absent key becomes this integer.
    Minimum(i64),
    /// Replaces an integer by this one, if this one is greater. An absent key becomes this integer.
    Maximum(i64),
}

/// How a read-modify-write changes a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The value stays as it is, because the condition does not hold.
    None,
    /// This is the new value, or the key is deleted.
    To(Option<Value>),
}

impl Modification {
    /// Changes no integer.
    const NOTHING: Modification = Modification::Add { delta: 0, least: 1, most: 0 };

    /// Adds to an integer. The only bounds are those of 64 bits.
    pub fn add(delta: i64) -> Modification {
        Modification::Add { delta, least: i64::MIN, most: i64::MAX }
    }

    /// The same modification, except that it changes nothing if the new value would be longer than `value_bytes`. The
    /// bound becomes part of the modification, so that the result is the same at every replica.
    #[must_use]
    pub fn within(self, value_bytes: usize) -> Modification {
        match self {
            Modification::Append(suffix) => {
                Modification::AppendWithin { suffix, most_bytes: value_bytes }
            }
            Modification::AppendWithin { suffix, most_bytes } => {
                Modification::AppendWithin { suffix, most_bytes: most_bytes.min(value_bytes) }
            }
            Modification::Add { delta, least, most } => {
                // The greatest number that fits, and the least, whose sign takes one byte.
                let greatest = |digits: Option<usize>| {
                    let digits = u32::try_from(digits.unwrap_or_default()).unwrap_or(u32::MAX);
                    10i64.checked_pow(digits).map_or(i64::MAX, |power| power - 1)
                };
                let (first, last) = match value_bytes {
                    0 => (1, 0),
                    1.. if value_bytes >= i64::MIN.to_string().len() => (i64::MIN, i64::MAX),
                    1.. => (-greatest(value_bytes.checked_sub(1)), greatest(Some(value_bytes))),
                };
                Modification::Add { delta, least: least.max(first), most: most.min(last) }
            }
            Modification::Minimum(bound) | Modification::Maximum(bound)
                if bound.to_string().len() > value_bytes =>
            {
                Modification::NOTHING
            }
            other => other,
        }
    }

    /// Applies the modification to `found`.
    ///
    /// # Errors
    /// If `found` has another type than the modification needs.
    pub fn apply(&self, found: Option<&Value>) -> Result<Change, WrongType> {
        let change = match self {
            Modification::Add { delta, least, most } => {
                let sum = found.map_or(Ok(0), integer)?.checked_add(*delta);
                let sum = sum.filter(|sum| (least..=most).contains(&sum));
                sum.map(|sum| Some(Value::from(sum.to_string())))
            }
            Modification::Append(suffix) => Some(Some(appended(found, suffix))),
            Modification::AppendWithin { suffix, most_bytes } => {
                let bytes = found.map_or(0, Value::len) + suffix.len();
                (bytes <= *most_bytes).then(|| Some(appended(found, suffix)))
            }
            Modification::CompareAndSwap { expected, new } => {
                (expected.as_ref() == found).then(|| new.clone())
            }
            Modification::SetIfAbsent(value) => found.is_none().then(|| Some(value.clone())),
            Modification::Set(value) => Some(value.clone()),
            Modification::Minimum(bound) => {
                let is_less = found.map(integer).transpose()?.is_none_or(|found| *bound < found);
                is_less.then(|| Some(Value::from(bound.to_string())))
            }
            Modification::Maximum(bound) => {
                let is_more = found.map(integer).transpose()?.is_none_or(|found| *bound > found);
                is_more.then(|| Some(Value::from(bound.to_string())))
            }
        };
        Ok(change.map_or(Change::None, Change::To))
    }

    /// Applies modifications one after the other, in a transaction. One whose condition does not hold changes nothing, nor
    /// does one that needs a value of another type. Returns the new value, or `None` if the key is absent then.
    pub fn apply_all<'a>(
        all: impl IntoIterator<Item = &'a Modification>,
        found: Option<&Value>,
    ) -> Option<Value> {
        let mut value = found.cloned();
        // The value once something was appended to it. So it is not copied for each suffix.
        let mut growing: Option<Vec<u8>> = None;
        for modification in all {
            let (suffix, most_bytes) = match modification {
                Modification::Append(suffix) => (suffix, usize::MAX),
                Modification::AppendWithin { suffix, most_bytes } => (suffix, *most_bytes),
                other => {
                    value = growing.take().map(Value::from).or(value);
                    if let Ok(Change::To(new)) = other.apply(value.as_ref()) {
                        value = new;
                    }
                    continue;
                }
            };
            let bytes = || value.as_ref().map_or(&[][..], Value::as_bytes);
            let length = growing.as_ref().map_or_else(|| bytes().len(), Vec::len);
            if length + suffix.len() <= most_bytes {
                growing
                    .get_or_insert_with(|| bytes().to_vec())
                    .extend_from_slice(suffix.as_bytes());
            }
        }
        growing.map(Value::from).or(value)
    }

    /// Whether it deletes the key, perhaps depending on its value.
    pub fn may_delete(&self) -> bool {
        matches!(self, Modification::Set(None) | Modification::CompareAndSwap { new: None, .. })
    }

    /// The longest value that is part of it, in bytes.
    pub fn value_bytes(&self) -> usize {
        let bytes = |value: &Option<Value>| value.as_ref().map_or(0, Value::len);
        match self {
            Modification::Add { .. } | Modification::Minimum(_) | Modification::Maximum(_) => 0,
            Modification::Append(value)
            | Modification::AppendWithin { suffix: value, .. }
            | Modification::SetIfAbsent(value) => value.len(),
            Modification::CompareAndSwap { expected, new } => bytes(expected).max(bytes(new)),
            Modification::Set(value) => bytes(value),
        }
    }
}

fn appended(found: Option<&Value>, suffix: &Value) -> Value {
    Value::from([found.map_or(&[][..], Value::as_bytes), suffix.as_bytes()].concat())
}

fn integer(value: &Value) -> Result<i64, WrongType> {
    let text = core::str::from_utf8(value.as_bytes()).ok();
    let integer = text.and_then(|text| text.parse().ok());
    integer.ok_or_else(|| WrongType { found: ValueType::of(value), needed: ValueType::Integer })
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ValueType {
    /// A signed integer of 64 bits, in decimal.
    Integer,
    /// UTF-8.
    Text,
    /// Anything.
    Bytes,
}

impl ValueType {
    /// The most specific that fits.
    pub fn of(value: &Value) -> ValueType {
        match core::str::from_utf8(value.as_bytes()) {
            Ok(text) if text.parse::<i64>().is_ok() => ValueType::Integer,
            Ok(_) => ValueType::Text,
            Err(_) => ValueType::Bytes,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::Integer => "an integer",
            ValueType::Text => "text",
            ValueType::Bytes => "bytes",
        })
    }
}

/// A value has another type than a read-modify-write needs. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType {
    /// The type of the value.
    pub found: ValueType,
    /// The type that is needed.
    pub needed: ValueType,
}

impl fmt::Display for WrongType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value is {}, and has to be {}", self.found, self.needed)
    }
}

impl core::error::Error for WrongType {}

/// The result of a read-modify-write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modified {
    /// The value before it.
    pub found: Option<Value>,
    /// The value after it.
    pub value: Option<Value>,
    /// Whether its condition held. If not, nothing was changed.
    pub applied: bool,
}

impl Modified {
    /// The result of `modification`, if this is what it found.
    ///
    /// # Errors
    /// If the modification needs a value of another type.
    pub fn by(modification: &Modification, found: Option<Value>) -> Result<Modified, WrongType> {
        Ok(match modification.apply(found.as_ref())? {
            Change::None => Modified { value: found.clone(), found, applied: false },
            Change::To(value) => Modified { found, value, applied: true },
        })
    }

    /// The value after it as an integer, if it is one.
    pub fn integer(&self) -> Option<i64> {
        self.value.as_ref().and_then(|value| integer(value).ok())
    }
}

/// The place of an update among all updates of its key: a consensus-after-register timestamp (001 §4.2.2).
///
/// Carstamps are ordered by their fields, in this order. A read-modify-write has the carstamp of the update that it was
/// executed on, with `rmwc` increased by one. So no other update can come between the two.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Carstamp {
    /// A logical timestamp, chosen by a write.
    pub timestamp: u64,
    /// The writer.
    pub writer: NodeId,
    /// How many read-modify-writes have been executed on the write, one after the other, up to this one.
    pub rmwc: u64,
}

impl Carstamp {
    /// The carstamp of a key's initial value.
    pub const INITIAL: Carstamp = Carstamp { timestamp: 0, writer: NodeId(0), rmwc: 0 };

    /// The carstamp of a write by `writer` that comes after this update.
    #[must_use]
    pub fn next_write(self, writer: NodeId) -> Carstamp {
        Carstamp { timestamp: self.timestamp + 1, writer, rmwc: 0 }
    }

    /// The carstamp of a read-modify-write that is executed on this update.
    #[must_use]
    pub fn next_rmw(self) -> Carstamp {
        Carstamp { rmwc: self.rmwc + 1, ..self }
    }
}

/// `timestamp.writer.rmwc`.
impl fmt::Display for Carstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.timestamp, self.writer.0, self.rmwc)
    }
}

impl core::str::FromStr for Carstamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut parts = text.split('.').map(str::parse);
            let mut next = || parts.next()?.ok();
            let (timestamp, writer, rmwc) = (next()?, NodeId(next()?), next()?);
            parts.next().is_none().then_some(Carstamp { timestamp, writer, rmwc })
        };
        let expected = "expected <timestamp>.<writer>.<rmwc>";
        parse().ok_or_else(|| format!("`{text}` is not a carstamp: {expected}"))
    }
}

/// Identifies an update of a register, so that it takes effect only once even if it is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Token {
    /// The id of the update.
    pub id: Version,
    /// The place of a write, once it has one.
    pub carstamp: Option<Carstamp>,
}

/// `id`, or `id/carstamp`.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.carstamp {
            None => self.id.fmt(f),
            Some(carstamp) => write!(f, "{}/{carstamp}", self.id),
        }
    }
}

impl core::str::FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, carstamp) = match text.split_once('/') {
            None => (text, None),
            Some((id, carstamp)) => (id, Some(carstamp.parse()?)),
        };
        Ok(Token { id: id.parse()?, carstamp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<Value> {
        Some(Value::from(text))
    }

    fn applied(modification: &Modification, found: &str) -> Change {
        modification.apply(value(found).as_ref()).unwrap()
    }

    #[test]
    fn a_sum_stays_within_its_bounds_and_those_of_integers() {
        let bounded = Modification::Add { delta: -3, least: 0, most: 9 };
        assert_eq!(applied(&bounded, "3"), Change::To(value("0")));
        assert_eq!(applied(&bounded, "2"), Change::None);
        assert_eq!(applied(&Modification::add(1), "9223372036854775807"), Change::None);
        assert_eq!(Modification::add(-7).apply(None), Ok(Change::To(value("-7"))));
    }

    #[test]
    fn the_least_and_the_greatest_of_two_integers() {
        let (least, greatest) = (Modification::Minimum(5), Modification::Maximum(5));
        assert_eq!(
            [applied(&least, "6"), applied(&greatest, "4")],
            [Change::To(value("5")), Change::To(value("5"))]
        );
        for at_bound in ["5", "4"] {
            assert_eq!(applied(&least, at_bound), Change::None);
        }
        for at_bound in ["5", "6"] {
            assert_eq!(applied(&greatest, at_bound), Change::None);
        }
        for modification in [least, greatest] {
            assert_eq!(modification.apply(None), Ok(Change::To(value("5"))));
            assert!(modification.apply(value("five").as_ref()).is_err());
            assert_eq!(modification.clone().within(0).apply(None), Ok(Change::None));
            assert_eq!(modification.clone().within(1), modification);
        }
    }

    #[test]
    fn in_a_row_what_does_not_apply_changes_nothing() {
        let all = [
            Modification::add(2),
            Modification::Add { delta: 1, least: 0, most: 2 },
            Modification::Append(Value::from("x")),
            Modification::add(1),
        ];
        assert_eq!(Modification::apply_all(&all, None), value("2x"));
        assert_eq!(Modification::apply_all(&[Modification::Set(None)], value("1").as_ref()), None);
        let within = |suffix: &str| Modification::Append(Value::from(suffix)).within(4);
        let append = [within("a"), within("bcde"), within("bc"), within("de"), within("d")];
        assert_eq!(Modification::apply_all(&append, None), value("abcd"));
        assert_eq!(Modification::apply_all(&append[1..2], value("xy").as_ref()), value("xy"));
        assert_eq!(Modification::apply_all(&[within("")], None), value(""));
        assert_eq!(Modification::apply_all(&[within("abcde")], None), None);
        let mixed = [within("1"), Modification::add(5), within("2"), Modification::Minimum(9)];
        assert_eq!(Modification::apply_all(&mixed, None), value("9"));
        // As one after the other.
        for length in 0..=mixed.len() {
            let apply = |found: Option<Value>, modification: &Modification| {
                Modification::apply_all(core::slice::from_ref(modification), found.as_ref())
            };
            let one_by_one = mixed[..length].iter().fold(None, apply);
            assert_eq!(Modification::apply_all(&mixed[..length], None), one_by_one);
        }
    }

    #[test]
    fn a_modification_keeps_to_the_limit_on_values() {
        let append = Modification::Append(Value::from("cd")).within(4);
        assert_eq!(applied(&append, "ab"), Change::To(value("abcd")));
        assert_eq!(applied(&append, "abc"), Change::None);
        assert_eq!(applied(&append.within(3), "ab"), Change::None);
        let add = |delta, bytes, found| applied(&Modification::add(delta).within(bytes), found);
        assert_eq!(add(1, 3, "998"), Change::To(value("999")));
        assert_eq!(add(1, 3, "999"), Change::None);
        assert_eq!(add(-1, 3, "-98"), Change::To(value("-99")));
        assert_eq!(add(-1, 3, "-99"), Change::None);
        assert_eq!(add(0, 0, "0"), Change::None);
        let bounded = Modification::Add { delta: -3, least: 0, most: 9 };
        assert_eq!(applied(&bounded.within(8), "2"), Change::None, "its own bounds hold, too");
        assert_eq!(add(-1, 1, "0"), Change::None);
        assert_eq!(add(-1, 19, "-999999999999999999"), Change::None);
        assert_eq!(add(1, 19, "9223372036854775806"), Change::To(value("9223372036854775807")));
        let least = i64::MIN.to_string();
        assert_eq!(
            Modification::add(i64::MIN).within(20).apply(None),
            Ok(Change::To(value(&least)))
        );
    }

    #[test]
    fn adding_to_a_value_that_is_no_integer_is_an_error() {
        let error = Modification::add(1).apply(value("seven").as_ref()).unwrap_err();
        assert_eq!(error.to_string(), "the value is text, and has to be an integer");
        let bytes = Value::from([0xff, 0xfe]);
        assert_eq!(Modification::add(1).apply(Some(&bytes)).unwrap_err().found, ValueType::Bytes);
    }

    #[test]
    fn conditions_are_about_exactly_what_is_there() {
        let swap = Modification::CompareAndSwap { expected: value("a"), new: None };
        assert_eq!(applied(&swap, "a"), Change::To(None));
        assert_eq!(applied(&swap, "b"), Change::None);
        assert_eq!(swap.apply(None), Ok(Change::None));
        let create = Modification::CompareAndSwap { expected: None, new: value("a") };
        assert_eq!(create.apply(None), Ok(Change::To(value("a"))));
        let set = Modification::SetIfAbsent(Value::from("a"));
        assert_eq!(
            (applied(&set, "b"), set.apply(None)),
            (Change::None, Ok(Change::To(value("a"))))
        );
        assert_eq!(
            applied(&Modification::Append(Value::from("c")), "ab"),
            Change::To(value("abc"))
        );
        assert_eq!(applied(&Modification::Set(None), "b"), Change::To(None));
    }

    #[test]
    fn no_write_comes_between_an_update_and_an_rmw_on_it() {
        let base = Carstamp { timestamp: 3, writer: NodeId(7), rmwc: 2 };
        let rmw = base.next_rmw();
        for writer in [NodeId(0), NodeId(7), NodeId(u64::MAX)] {
            for seen in [base, rmw, Carstamp::INITIAL] {
                let write = seen.next_write(writer);
                assert!(write < base || write > rmw);
                assert!(write > seen);
            }
        }
        assert_eq!(rmw.to_string(), "3.7.3");
    }

    #[test]
    fn a_token_survives_its_text() {
        let id = Version { timestamp_us: 5, coordinator: NodeId(9) };
        for carstamp in [None, Some(Carstamp { timestamp: 1, writer: NodeId(2), rmwc: 3 })] {
            let token = Token { id, carstamp };
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for wrong in ["5", "5.9/1.2", "5.9/1.2.3.4", "5.9/a.b.c"] {
            assert!(wrong.parse::<Token>().is_err(), "{wrong}");
        }
    }
}
