//! Long values that messages carry without a copy.
//!
//! Serialization knows only bytes. To keep a value instead of a copy of its bytes, an encoder has to learn which value the
//! bytes belong to; to let a value point into the buffer that a message lies in, a value has to learn which buffer that
//! is. Both go through a variable of the thread, which is set for the duration of a call.
//!
//! A value that points into a buffer keeps the whole buffer in memory. So only values of at least [`SHARED_BYTES`] do, and
//! only in a buffer that is at most [`KEPT_AT_MOST`] times as long. [`Value::detached`] gives up the buffer.

use core::cell::{Cell, RefCell};

use crate::Value;

/// Shorter values are always copied. A copy of a few hundred bytes costs about as much as a reference to them.
pub const SHARED_BYTES: usize = 1 << 10;

/// How much memory a value keeps at most by pointing into a buffer, as a multiple of its own length.
pub const KEPT_AT_MOST: usize = 1 << 10;

thread_local! {
    /// Whether an encoder wants to have long values.
    static LENDS: Cell<bool> = const { Cell::new(false) };
    /// The long value that is being serialized.
    static LENT: RefCell<Option<Value>> = const { RefCell::new(None) };
    /// What values that are deserialized may point into.
    static SOURCE: RefCell<Option<Value>> = const { RefCell::new(None) };
}

/// Runs `action`, and then `after`, even if `action` panics.
fn with<T>(action: impl FnOnce() -> T, after: impl FnMut()) -> T {
    struct After<F: FnMut()>(F);
    impl<F: FnMut()> Drop for After<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let _after = After(after);
    action()
}

/// Runs `encode`, which can [take](take_lent) each long value while its bytes are serialized.
pub fn lending<T>(encode: impl FnOnce() -> T) -> T {
    let before = LENDS.replace(true);
    with(encode, || {
        LENDS.set(before);
        LENT.take();
    })
}

/// The value whose bytes these are, if it is long and is just being serialized within [`lending`].
pub fn take_lent(bytes: &[u8]) -> Option<Value> {
    let is_it = |value: &mut Value| core::ptr::eq(value.as_bytes(), bytes);
    LENT.with_borrow_mut(|lent| lent.take_if(is_it))
}

/// Runs `decode`. Long values that it deserializes from bytes of `source` point into that, and are not copied. Whatever else it
/// deserializes is copied, so `decode` may do more than that.
pub fn sharing<T>(source: &Value, decode: impl FnOnce() -> T) -> T {
    let mut before = SOURCE.replace(Some(source.clone()));
    with(decode, || {
        SOURCE.set(before.take());
    })
}

/// Offers a value that is about to be serialized to the encoder.
pub(crate) fn lend(value: &Value) {
    if value.len() >= SHARED_BYTES && LENDS.get() {
        LENT.set(Some(value.clone()));
    }
}

/// A value of these bytes, which points into what [`sharing`] was given if they lie there.
pub(crate) fn share(bytes: &[u8]) -> Option<Value> {
    if bytes.len() < SHARED_BYTES {
        return None;
    }
    SOURCE.with_borrow(|source| {
        let source = source.as_ref()?;
        (source.len() / KEPT_AT_MOST <= bytes.len()).then(|| source.part(bytes))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_value_that_is_being_serialized_is_lent_and_only_if_it_is_long() {
        let (long, short) =
            (Value::from(vec![1; SHARED_BYTES]), Value::from(vec![2; SHARED_BYTES - 1]));
        lend(&long);
        assert_eq!(take_lent(long.as_bytes()), None, "no encoder wants it");
        lending(|| {
            lend(&short);
            assert_eq!(take_lent(short.as_bytes()), None);
            lend(&long);
            assert_eq!(take_lent(&vec![1; SHARED_BYTES]), None, "these are other bytes");
            let lent = take_lent(long.as_bytes()).unwrap();
            assert!(core::ptr::eq(lent.as_bytes(), long.as_bytes()));
            assert_eq!(take_lent(long.as_bytes()), None, "it was taken");
            lend(&long);
        });
        assert_eq!(take_lent(long.as_bytes()), None);
    }

    #[test]
    fn a_value_points_into_its_source_outlives_it_and_can_be_detached() {
        let bytes: Vec<u8> = (0..4 * SHARED_BYTES).map(|i| i as u8).collect();
        let source = Value::from(bytes.clone());
        let part = &source.as_bytes()[100..100 + SHARED_BYTES];
        assert_eq!(share(part), None);
        let value = sharing(&source, || {
            assert_eq!(share(&part[1..]), None, "it is short");
            assert_eq!(share(&bytes), None, "it lies elsewhere");
            share(part).unwrap()
        });
        assert_eq!(share(part), None);
        assert!(core::ptr::eq(value.as_bytes(), part));
        let detached = value.clone().detached();
        assert!(!core::ptr::eq(detached.as_bytes(), part));
        drop(source);
        assert_eq!(
            (value.as_bytes(), detached.as_bytes()),
            (&bytes[100..100 + SHARED_BYTES], value.as_bytes())
        );
        let at = detached.as_bytes().as_ptr();
        assert_eq!(detached.detached().as_bytes().as_ptr(), at, "it is not copied again");
    }

    #[test]
    fn a_value_does_not_keep_a_buffer_that_is_many_times_as_long() {
        let longest = SHARED_BYTES * KEPT_AT_MOST + KEPT_AT_MOST - 1;
        for (length, shares) in [(longest, true), (longest + 1, false)] {
            let source = Value::from(vec![7; length]);
            let part = &source.as_bytes()[..SHARED_BYTES];
            let longer = &source.as_bytes()[..=SHARED_BYTES];
            let shared = sharing(&source, || (share(part).is_some(), share(longer).is_some()));
            assert_eq!(shared, (shares, true), "{length}");
        }
    }

    #[test]
    fn calls_within_calls_leave_what_was_set_around_them() {
        let (outer, inner) = (vec![1; SHARED_BYTES], vec![2; SHARED_BYTES]);
        let (outer, inner) = (Value::from(outer), Value::from(inner));
        sharing(&outer, || {
            sharing(&inner, || {
                assert!(share(inner.as_bytes()).is_some() && share(outer.as_bytes()).is_none());
            });
            assert!(share(outer.as_bytes()).is_some() && share(inner.as_bytes()).is_none());
        });
        lending(|| {
            lending(|| lend(&inner));
            lend(&outer);
            assert!(take_lent(outer.as_bytes()).is_some());
        });
        assert!(share(outer.as_bytes()).is_none());
    }

    #[test]
    fn a_panic_ends_what_was_lent_and_shared() {
        let long = Value::from(vec![1; SHARED_BYTES]);
        let caught = std::panic::catch_unwind(|| {
            lending(|| sharing(&long, || panic!("in the middle")));
        });
        assert!(caught.is_err());
        lend(&long);
        assert_eq!((take_lent(long.as_bytes()), share(long.as_bytes())), (None, None));
    }
}
