//! The names under which replicas of snapshots keep keys and other things in their stores.

use std::borrow::Cow;

use serried_model::Key;

/// The first byte of names that are not keys, and of the names of keys that begin with this byte.
pub(crate) const ESCAPE: u8 = 0xff;
/// The second byte of the name of such a key.
const OF_KEY: u8 = 1;

/// The name of a key.
pub(crate) fn name_of(key: &Key) -> Cow<'_, Key> {
    match key.as_bytes().first() {
        Some(&ESCAPE) => {
            let name = [&[ESCAPE, OF_KEY], key.as_bytes()].concat();
            Cow::Owned(Key::from(name.as_slice()))
        }
        _ => Cow::Borrowed(key),
    }
}

/// The key that has this name, if one has it.
pub(crate) fn key_of_name(name: &[u8]) -> Option<Key> {
    match name {
        [ESCAPE, OF_KEY, key @ ..] => Some(Key::from(key)),
        [ESCAPE, ..] => None,
        _ => Some(Key::from(name)),
    }
}

/// The name of the partition.
pub(crate) fn name_of_partition() -> Key {
    Key::from([ESCAPE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_the_name_of_another_one_or_of_the_partition() {
        let keys = [&[0xff][..], &[0xff, 1], &[0xff, 1, 0xff], &[1], &[0xfe, 0xff], b"abc"];
        let name = |key: &&[u8]| name_of(&Key::from(*key)).into_owned();
        let mut names: Vec<Key> = keys.iter().map(name).collect();
        let are_found = names.iter().map(|name| key_of_name(name.as_bytes()));
        assert!(are_found.eq(keys.iter().map(|key| Some(Key::from(*key)))));
        assert_eq!(key_of_name(name_of_partition().as_bytes()), None);
        names.push(name_of_partition());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len() + 1);
        assert_eq!(*name_of(&Key::from("abc")), Key::from("abc"));
    }
}
