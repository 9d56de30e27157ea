//! The reads and writes of an open transaction at a shard, for controls that need no other state.

use std::collections::BTreeMap;

use serried_model::{Key, Value};
use smallvec::SmallVec;

use super::control::Desk;
use super::message::{Found, Item, Part, Written};
use super::stamp::Stamp;

/// With so many accesses, they are found by an index.
const INDEXED_FROM: usize = 32;

/// The accesses of a transaction at a shard. Each key occurs once.
#[derive(Debug, Default)]
pub struct Accesses {
    all: SmallVec<[Access; 4]>,
    /// The places of all accesses, if there are many.
    places: BTreeMap<Key, usize>,
}

/// A transaction's access to one key.
#[derive(Debug)]
pub struct Access {
    /// The key.
    pub key: Key,
    /// The read, if there was one.
    pub read: Option<Read>,
    /// The write, if there is one: a value, or `None` if it deletes the key.
    pub write: Option<Option<Value>>,
}

impl Access {
    /// What the transaction sees at the key: what it has written, or what it has read.
    pub fn value(&self) -> Option<&Value> {
        match (&self.write, &self.read) {
            (Some(written), _) => written.as_ref(),
            (None, Some(read)) => read.found.as_ref()?.value.as_ref(),
            (None, None) => None,
        }
    }
}

/// A read of one key.
#[derive(Debug)]
pub struct Read {
    /// The stamp of the version.
    pub stamp: Stamp,
    /// The version that was read, or `None` if a former leader read it.
    pub found: Option<Found>,
}

impl Accesses {
    /// The accesses of a transaction that was prepared under a former leader.
    pub fn inherited(part: &Part) -> Accesses {
        let access = |item: &Item| Access {
            key: item.key.clone(),
            read: item.read.map(|stamp| Read { stamp, found: None }),
            write: item.write.as_ref().map(|write| write.value.clone()),
        };
        let all: SmallVec<[Access; 4]> = part.items.iter().map(access).collect();
        let mut accesses = Accesses { all, places: BTreeMap::new() };
        accesses.index();
        accesses
    }

    /// Iterates over the accesses in the order in which the transaction first accessed the keys.
    pub fn iter(&self) -> core::slice::Iter<'_, Access> {
        self.all.iter()
    }

    /// The transaction's access to a key.
    pub fn of(&self, key: &Key) -> Option<&Access> {
        self.place(key).map(|place| &self.all[place])
    }

    /// Mutable access to the entry of a key. Inserts an empty entry if there is none.
    pub fn of_mut(&mut self, key: &Key) -> &mut Access {
        let place = self.place(key).unwrap_or_else(|| {
            self.all.push(Access { key: key.clone(), read: None, write: None });
            self.index();
            self.all.len() - 1
        });
        &mut self.all[place]
    }

    fn place(&self, key: &Key) -> Option<usize> {
        match self.places.is_empty() {
            true => self.all.iter().position(|access| access.key == *key),
            false => self.places.get(key).copied(),
        }
    }

    /// Indexes the accesses that were added, if there are many.
    fn index(&mut self) {
        if self.all.len() >= INDEXED_FROM {
            let new = self.all.iter().enumerate().skip(self.places.len());
            self.places.extend(new.map(|(place, access)| (access.key.clone(), place)));
        }
    }

    /// The transaction's read of a key.
    pub fn read_of(&self, key: &Key) -> Option<&Read> {
        self.of(key)?.read.as_ref()
    }

    /// The results of its reads of `keys`. Returns `None` if one of them is unknown and can't be
    /// read again.
    pub fn found(&self, keys: &[Key], desk: &mut Desk<'_>) -> Option<Vec<Found>> {
        let found = keys.iter().map(|key| {
            let Read { stamp, found } = self.read_of(key)?;
            found.clone().or_else(|| {
                let kept = desk.row(key).versions().find(|version| version.stamp == *stamp)?;
                Some(Found { version: stamp.version(), value: kept.value.clone() })
            })
        });
        found.collect()
    }

    /// The items of a part whose writes take effect at `at`.
    pub fn items(&self, at: Stamp) -> Vec<Item> {
        let item = |access: &Access| Item {
            key: access.key.clone(),
            read: access.read.as_ref().map(|read| read.stamp),
            write: access.write.clone().map(|value| Written { value, at }),
        };
        self.all.iter().map(item).collect()
    }
}

impl Read {
    /// Reads the newest committed version.
    pub fn newest(key: &Key, desk: &mut Desk<'_>) -> Read {
        let stamp = desk.row(key).newest().stamp;
        Read { stamp, found: Some(desk.newest(key)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_found_whether_they_are_few_or_many() {
        let mut accesses = Accesses::default();
        let key = |number: usize| Key::from(format!("{}", number * 7 % 1000).as_str());
        for count in 0..2 * INDEXED_FROM {
            for number in 0..count {
                let value = Value::from(format!("{number}").as_str());
                assert_eq!(accesses.of(&key(number)).unwrap().write, Some(Some(value)));
            }
            assert!(accesses.of(&key(count)).is_none());
            let value = Value::from(format!("{count}").as_str());
            accesses.of_mut(&key(count)).write = Some(Some(value));
        }
        let keys: Vec<&Key> = accesses.iter().map(|access| &access.key).collect();
        let all: Vec<Key> = (0..2 * INDEXED_FROM).map(key).collect();
        assert_eq!(keys, all.iter().collect::<Vec<_>>());
    }
}
