//! Marks in a store, which show at its next opening whether it has lost anything.
//!
//! fjall takes a damaged batch in one of its journals for a batch that a crash has torn. It drops that batch and all
//! that follow in the same file, without an error. Records that the log still has repair this, but the log does not
//! have those that it has trimmed. So the store's batches have numbers, from 1, and batch `n` also adds mark `n` and
//! removes mark `n - 1`. A store that has all its batches shows one mark: that of the last one.
//!
//! | what the store lacks | what it shows |
//! |---|---|
//! | its last batches | one mark, of a smaller number than is noted beside the log (`note.rs`) |
//! | batches with others behind them | also the mark before the gap: what removed it is gone |
//! | the order of two batches | also the mark of the earlier one: it was removed before it was added |
//!
//! A gap results from a journal that is damaged or missing while a later one is intact. A wrong order results from a
//! damaged sequence number, which fjall's checksums do not cover. Mark 0 lies in a table before batch 1 is written, so
//! that there is a mark before each gap. fjall has each batch in one journal and in one table, whole or not at all.
//!
//! The number of the last batch is noted when the batch is durable, and before anything that may depend on the batch is
//! written to the log. So the store of a process that was killed has at least what is noted, and a batch that was torn
//! was not noted.
//!
//! Marks are ordinary entries of the store, so that a table that has a batch also has its mark. Their keys are
//! reserved: a user's key that begins like one gets an additional byte. This keeps the order of keys.

use std::borrow::Cow;

use fjall::Slice;

/// The prefix of all keys of marks, and of users' keys that get an additional byte.
const RESERVED: [u8; 16] = *b"\xff\xff\xff\0serried\0\xff\xff\xff\xff";
/// The byte that follows in the key of a mark, before its number.
const MARK: u8 = 0;
/// The byte that follows in a user's key.
const USER: u8 = 1;

/// The lower bound of the keys of marks.
pub(crate) fn first() -> Vec<u8> {
    [&RESERVED[..], &[MARK]].concat()
}

/// The upper bound of the keys of marks.
pub(crate) fn after_last() -> Vec<u8> {
    [&RESERVED[..], &[USER]].concat()
}

/// The key of a mark.
pub(crate) fn key(number: u64) -> Vec<u8> {
    [&first()[..], &number.to_be_bytes()].concat()
}

/// The number of the mark with this key.
pub(crate) fn number(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&first()[..])?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// The stored form of a user's key.
pub(crate) fn stored(key: &[u8]) -> Cow<'_, [u8]> {
    match key.strip_prefix(&RESERVED) {
        Some(rest) => [&RESERVED[..], &[USER], rest].concat().into(),
        None => key.into(),
    }
}

/// The user's key with this stored form.
pub(crate) fn shown(stored: Slice) -> Slice {
    match stored.strip_prefix(&after_last()[..]) {
        Some(rest) => [&RESERVED[..], rest].concat().into(),
        None => stored,
    }
}

/// What a store has lost, given its visible marks in order, if it had all batches up to `noted`.
pub(crate) fn lost(marks: &[u64], noted: u64) -> Option<String> {
    let why = "a file in it whose name ends in .jnl was damaged, cut off or removed";
    match marks {
        [last] if *last >= noted => None,
        [] | [_] => {
            let last = marks.first().copied().unwrap_or_default();
            Some(format!("it ends with batch {last}, and had all up to {noted}: {why}"))
        }
        [before, ..] => {
            Some(format!("batches behind number {before} are missing or in disorder: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_none_is_that_of_a_mark() {
        let mut keys = vec![vec![0], vec![0xff; 3], RESERVED[..15].to_vec(), vec![0xff; 40]];
        for more in [&[][..], &[MARK], &[MARK, 0, 0, 0, 0, 0, 0, 0, 7], &[USER], &[USER, 2]] {
            keys.push([&RESERVED[..], more].concat());
        }
        keys.sort();
        let stored: Vec<Vec<u8>> = keys.iter().map(|key| stored(key).into_owned()).collect();
        assert!(stored.is_sorted());
        for (key, stored) in keys.iter().zip(&stored) {
            assert_eq!(number(stored), None);
            assert!(*stored < first() || *stored >= after_last());
            assert_eq!(&shown(stored.as_slice().into())[..], key);
        }
        assert_eq!(number(&key(7)), Some(7));
        assert!((first()..after_last()).contains(&key(u64::MAX)));
    }

    #[test]
    fn one_mark_that_is_not_behind_the_note_is_that_of_a_whole_store() {
        let losses = [(&[7][..], 7), (&[8], 7), (&[6], 7), (&[], 1), (&[0], 0), (&[3, 8], 7)];
        let losses = losses.map(|(marks, noted)| lost(marks, noted).is_some());
        assert_eq!(losses, [false, false, true, true, false, true]);
    }
}
