//! What transactions have done whose ends have their places in the log, and are not in the rows yet.
//!
//! Others go on from there at once. All that they do comes later in the log of the same leader, and an entry without an
//! earlier one of its leader is removed (see [`super`]). So if such an end is lost, so is all that has come of it, before it
//! was reported to anybody.

use serried_model::{Key, Version};
use serried_parts::Map;
use smallvec::SmallVec;

use super::accesses::Accesses;
use super::control::Desk;
use super::row::Installed;
use super::stamp::Stamp;

/// The newest versions of keys whose rows lack something.
#[derive(Debug, Default)]
pub struct Placed {
    versions: Map<Key, Lacking>,
    /// The keys of each transaction whose end is not in the rows.
    keys: Map<Version, SmallVec<[Key; 4]>>,
}

#[derive(Debug)]
struct Lacking {
    newest: Installed,
    /// How many transactions have accessed the key whose ends its row lacks.
    ends: usize,
}

impl Placed {
    /// The newest version of a key.
    pub fn newest<'a>(&'a self, key: &Key, desk: &'a mut Desk<'_>) -> &'a Installed {
        match self.versions.get(key) {
            Some(lacking) => &lacking.newest,
            None => desk.row(key).newest(),
        }
    }

    /// The end of a transaction that commits at `at` has its place in the log.
    pub fn place(&mut self, txn: Version, at: Stamp, accesses: &Accesses, desk: &mut Desk<'_>) {
        let mut keys = SmallVec::new();
        for access in accesses.iter().filter(|it| it.read.is_some() || it.write.is_some()) {
            let key = access.key.clone();
            if !self.versions.contains_key(&key) {
                let newest = desk.row(&key).newest().clone();
                self.versions.insert(key.clone(), Lacking { newest, ends: 0 });
            }
            let lacking = self.versions.get_mut(&key).expect("it is there");
            lacking.ends += 1;
            let newest = &mut lacking.newest;
            if access.read.as_ref().is_some_and(|read| read.stamp == newest.stamp) {
                newest.read_at = newest.read_at.max(at);
            }
            if let Some(value) = access.write.clone()
                && at > newest.stamp
            {
                *newest = Installed { value, stamp: at, read_at: at, since: u64::MAX };
            }
            keys.push(key);
        }
        self.keys.insert(txn, keys);
    }

    /// The rows contain the end of a transaction.
    pub fn is_in_rows(&mut self, txn: Version) {
        for key in self.keys.remove(&txn).into_iter().flatten() {
            let lacking = self.versions.get_mut(&key).expect("its row lacks an end");
            lacking.ends -= 1;
            if lacking.ends == 0 {
                self.versions.remove(&key);
            }
        }
    }
}
