//! How large things may be.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{Key, Value};

/// Bounds that a cluster sets. Every client checks them before it sends anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest key, in bytes.
    pub key_bytes: usize,
    /// The longest value, in bytes.
    pub value_bytes: usize,
    /// The greatest total size of the keys and values that one transaction writes, in bytes. For a one-shot
    /// transaction, the keys that it reads count too.
    pub transaction_bytes: usize,
}

impl Default for Limits {
    /// 8 KiB keys, 1 MiB values, 16 MiB transactions.
    fn default() -> Self {
        Limits { key_bytes: 8 << 10, value_bytes: 1 << 20, transaction_bytes: 16 << 20 }
    }
}

/// Something was over its limit. It was not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// What was too large: `key`, `value` or `transaction`.
    pub what: &'static str,
    /// The key concerned, cut to its first 32 bytes.
    pub key: Key,
    /// How large it was, in bytes.
    pub bytes: usize,
    /// How large it may be, in bytes.
    pub limit: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooLarge { what, key, bytes, limit } = self;
        write!(f, "{what} too large at key `{key}`: {bytes} bytes, the limit is {limit}")
    }
}

impl core::error::Error for TooLarge {}

/// Why a key or a value was refused before it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The key has no bytes.
    EmptyKey,
    /// The key, the value or the transaction is over its limit.
    TooLarge(TooLarge),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::EmptyKey => f.write_str("a key is empty: give it at least one byte"),
            Unfit::TooLarge(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Unfit {}

impl Limits {
    /// Checks a key.
    pub fn check_key(&self, key: &Key) -> Result<(), Unfit> {
        if key.is_empty() {
            return Err(Unfit::EmptyKey);
        }
        Self::check("key", key, key.len(), self.key_bytes)
    }

    /// Checks a value that is about to be written to `key`.
    pub fn check_value(&self, key: &Key, value: &Value) -> Result<(), Unfit> {
        self.check_value_bytes(key, value.len())
    }

    /// Checks a value of so many bytes.
    pub fn check_value_bytes(&self, key: &Key, bytes: usize) -> Result<(), Unfit> {
        Self::check("value", key, bytes, self.value_bytes)
    }

    /// Checks the size of a transaction. `key` is the key that was added last.
    pub fn check_transaction(&self, key: &Key, bytes: usize) -> Result<(), Unfit> {
        Self::check("transaction", key, bytes, self.transaction_bytes)
    }

    fn check(what: &'static str, key: &Key, bytes: usize, limit: usize) -> Result<(), Unfit> {
        if bytes <= limit {
            return Ok(());
        }
        let shown = &key.as_bytes()[..key.len().min(32)];
        Err(Unfit::TooLarge(TooLarge { what, key: Key::from(shown), bytes, limit }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_admits_what_is_exactly_at_it() {
        let limits = Limits { key_bytes: 3, ..Limits::default() };
        assert!(limits.check_key(&Key::from("abc")).is_ok());
        let error = limits.check_key(&Key::from("abcd")).unwrap_err();
        assert_eq!(error.to_string(), "key too large at key `abcd`: 4 bytes, the limit is 3");
    }

    #[test]
    fn an_empty_key_is_named_as_such() {
        let error = Limits::default().check_key(&Key::default()).unwrap_err();
        assert_eq!(error.to_string(), "a key is empty: give it at least one byte");
    }
}
