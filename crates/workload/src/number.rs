//! Numbers as keys and values.

use serried_model::{Key, Value};

/// A key of `bytes` bytes, at least 8, that stands for `number`.
pub(crate) fn key(number: u64, bytes: usize) -> Key {
    if bytes <= 8 {
        return Key::from(number.to_be_bytes());
    }
    let mut key = number.to_be_bytes().to_vec();
    key.resize(bytes, 0);
    Key::from(key)
}

/// The number that a key of `bytes` bytes, at least 8, stands for, if there is one.
pub(crate) fn of_key(found: &Key, bytes: usize) -> Option<u64> {
    let number = u64::from_be_bytes(*found.as_bytes().first_chunk::<8>()?);
    (key(number, bytes) == *found).then_some(number)
}

/// A value of `bytes` bytes, at least 8, that stands for `number`.
pub(crate) fn value(number: u64, bytes: usize) -> Value {
    if bytes <= 8 {
        return Value::from(number.to_be_bytes());
    }
    let mut value = number.to_be_bytes().to_vec();
    value.resize(bytes, 0);
    Value::from(value)
}

/// The value that stands for `number` as decimal text, so that it can be added to.
pub(crate) fn decimal(number: u64) -> Value {
    Value::from(number.to_string())
}

/// The number that a value of decimal text stands for.
pub(crate) fn of_decimal(value: &Value) -> u64 {
    let text = core::str::from_utf8(value.as_bytes()).ok();
    text.and_then(|text| text.parse().ok()).expect("every value of this workload is a number")
}

/// The number that a value of at least 8 bytes stands for.
pub(crate) fn number(value: &Value) -> u64 {
    let first = value.as_bytes().first_chunk::<8>();
    u64::from_be_bytes(*first.expect("every value of this workload has at least 8 bytes"))
}
