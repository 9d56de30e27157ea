//! A bound of how deep decoded values nest.
//!
//! Expressions, types and data contain others of their kind. Decoding follows them with the stack. Messages come from other
//! processes, which may be hostile, so the depth is counted.

use core::cell::Cell;

use serde::de::Error;

/// How deep values nest at most. What the compiler accepts nests less.
const MAX_DEPTH: u32 = 160;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Decodes a value that may contain others of its kind.
pub(crate) fn decode<T, E: Error>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let depth = DEPTH.get();
    if depth >= MAX_DEPTH {
        return Err(E::custom("values nest too deep"));
    }
    DEPTH.set(depth + 1);
    let decoded = decode();
    DEPTH.set(depth);
    decoded
}

/// Implements `Serialize` and `Deserialize` for a type that derives them with `#[serde(remote = "Self")]`.
macro_rules! nested {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$type>::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                $crate::nested::decode(|| <$type>::deserialize(deserializer))
            }
        }
    };
}

pub(crate) use nested;
