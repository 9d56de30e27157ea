//! What an open transaction has done to the keys of a shard, for controls that need to know no more.

use serried_model::{Key, Value};
use smallvec::SmallVec;

use super::control::Desk;
use super::message::{Found, Item, Part, Written};
use super::stamp::Stamp;

/// What a transaction has done to the keys of a shard, each once.
#[derive(Debug, Default)]
pub struct Accesses(SmallVec<[Access; 4]>);

/// What it has done to a key.
#[derive(Debug)]
pub struct Access {
    /// The key.
    pub key: Key,
    /// What it has read.
    pub read: Option<Read>,
    /// What it writes: a value, or none if it deletes the key.
    pub write: Option<Option<Value>>,
}

/// What it has read under a key.
#[derive(Debug)]
pub struct Read {
    /// The stamp of the version.
    pub stamp: Stamp,
    /// The version. Unknown if a former leader has read it.
    pub found: Option<Found>,
}

impl Accesses {
    /// The accesses of a transaction that was ready to commit under a former leader.
    pub fn inherited(part: &Part) -> Accesses {
        let access = |item: &Item| Access {
            key: item.key.clone(),
            read: item.read.map(|stamp| Read { stamp, found: None }),
            write: item.write.as_ref().map(|write| write.value.clone()),
        };
        Accesses(part.items.iter().map(access).collect())
    }

    /// In the order in which the transaction has come to the keys.
    pub fn iter(&self) -> core::slice::Iter<'_, Access> {
        self.0.iter()
    }

    /// What the transaction has done to a key.
    pub fn of(&self, key: &Key) -> Option<&Access> {
        self.0.iter().find(|access| access.key == *key)
    }

    /// What the transaction has done to a key, to be changed. It is empty if that is nothing yet.
    pub fn of_mut(&mut self, key: &Key) -> &mut Access {
        let place = self.0.iter().position(|access| access.key == *key);
        let place = place.unwrap_or_else(|| {
            self.0.push(Access { key: key.clone(), read: None, write: None });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// What the transaction has read of a key.
    pub fn read_of(&self, key: &Key) -> Option<&Read> {
        self.of(key)?.read.as_ref()
    }

    /// What it has found under keys that it has read, as far as that is known or can still be read.
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

    /// The items of a part whose writes take effect at this moment.
    pub fn items(&self, at: Stamp) -> Vec<Item> {
        let item = |access: &Access| Item {
            key: access.key.clone(),
            read: access.read.as_ref().map(|read| read.stamp),
            write: access.write.clone().map(|value| Written { value, at }),
        };
        self.0.iter().map(item).collect()
    }
}

impl Read {
    /// A read of the newest committed version.
    pub fn newest(key: &Key, desk: &mut Desk<'_>) -> Read {
        let stamp = desk.row(key).newest().stamp;
        Read { stamp, found: Some(desk.newest(key)) }
    }
}
