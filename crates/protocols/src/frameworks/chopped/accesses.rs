//! Which transactions use which rows, so that a new piece finds those that come before it (002 §3.4).
//!
//! # Replicas that find edges each for itself
//! Replicas of one partition may know transactions in different orders, and what was executed at one may not be executed
//! at another. So uses stay here until all replicas have executed them, unless a later use *stands for* them. A use does so
//! if two things hold. Everything that conflicts with the earlier one also conflicts with it. And its transaction comes
//! after the earlier one everywhere: the edges on which replicas have agreed say so, or the two conflict and were executed in
//! this order. Then a new transaction needs an edge to the later one only.
//!
//! Uses that only read, and uses of different rows whose keys are known in part, do not come after each other by themselves.
//! If many of them are kept, a new transaction *gathers* them: it gets edges to all of them, and its use of the row stands
//! for what all of them do once replicas have agreed on these edges. So the number of edges is bounded, however far a
//! replica lags behind.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serried_model::{Key, Version};
use serried_procedures::{KnownRow, RowUse};

use super::vertex::Kind;

/// How many uses on whose transactions replicas have agreed are kept, before a new transaction gathers them: of one row, or
/// of all rows that it may use by a key that is known in part.
const KEPT_AT_MOST: usize = 16;

/// The uses of rows by transactions that are not decided.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    is_replicated: bool,
    /// By known key, the uses, the oldest first.
    rows: BTreeMap<Key, Vec<Use>>,
    /// By transaction, the keys of its uses.
    keys: BTreeMap<Version, Vec<Key>>,
    /// How many uses there are of rows whose keys are known in part, by how many bytes are known.
    partial: BTreeMap<usize, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Use {
    txn: Version,
    kind: Kind,
    used: RowUse,
    /// What a later use has to conflict with, for an edge to this one: what it does, without what others stand for, and
    /// with what it stands for.
    stands: RowUse,
    is_whole: bool,
    state: State,
    /// Whether its transaction gathers what was kept, and replicas have not agreed on its edges yet.
    gathers: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    New,
    /// Replicas have agreed on the edges of its transaction.
    Agreed,
    Executed,
}

/// What the uses of one key by one transaction stand for.
#[derive(Default)]
struct Stand {
    /// All of them.
    row: Option<RowUse>,
    /// Those of all rows whose keys begin so.
    below: Option<RowUse>,
}

impl Stand {
    fn of(uses: &[Use], txn: Version) -> Stand {
        let mut stand = Stand::default();
        for own in uses.iter().filter(|own| own.txn == txn) {
            let with = |known: Option<RowUse>| {
                Some(known.map_or(own.stands, |known| known.with(own.stands)))
            };
            stand.row = with(stand.row);
            if !own.is_whole {
                stand.below = with(stand.below);
            }
        }
        stand
    }

    /// What stands for an earlier use of the same key. A use of one row stands for none of all rows whose keys begin so.
    fn for_use(&self, earlier: &Use) -> Option<RowUse> {
        if earlier.is_whole { self.row } else { self.below }
    }
}

impl Accesses {
    /// No uses yet, at a replica that finds edges together with others.
    pub(crate) fn replicated() -> Accesses {
        Accesses { is_replicated: true, ..Accesses::default() }
    }

    /// Adds a use of a row, and passes the transactions that come before it to `each`: those whose uses conflict, but for
    /// those that come before one of them by a use of the same row (*one-hop dependencies*, 002 §3.4).
    pub(crate) fn add(
        &mut self,
        txn: Version,
        kind: Kind,
        row: &KnownRow,
        used: RowUse,
        each: &mut impl FnMut(Version, Kind),
    ) {
        let mut agreed = 0;
        self.conflicting(row, used, &mut |other| {
            if other.txn != txn {
                each(other.txn, other.kind);
                agreed += usize::from(other.state != State::New);
            }
        });
        let uses = self.rows.entry(row.key.clone()).or_default();
        let mut gathers = false;
        if self.is_replicated {
            let kept = || {
                uses.iter().filter(|other| {
                    let are_alike = other.is_whole || !row.is_whole;
                    other.state != State::New && other.txn != txn && are_alike
                })
            };
            let is_gathered = uses.iter().any(|other| other.gathers);
            let are_many = !row.is_whole && agreed > KEPT_AT_MOST;
            gathers = !is_gathered && (are_many || kept().nth(KEPT_AT_MOST).is_some());
            if gathers {
                kept().for_each(|other| each(other.txn, other.kind));
            }
        }
        let (is_whole, state) = (row.is_whole, State::New);
        let is_same = |last: &&mut Use| {
            (last.txn, last.kind, last.is_whole, last.state) == (txn, kind, is_whole, state)
        };
        if let Some(last) = uses.last_mut().filter(is_same) {
            // Occurrences of a piece often use one row.
            (last.used, last.stands) = (last.used.with(used), last.stands.with(used));
            last.gathers |= gathers;
            return;
        }
        uses.push(Use { txn, kind, used, stands: used, is_whole, state, gathers });
        self.keys.entry(txn).or_default().push(row.key.clone());
        if !row.is_whole {
            *self.partial.entry(row.key.len()).or_default() += 1;
        }
    }

    /// Whether a use of a row conflicts with that of a transaction which is not decided. Returns one.
    pub(crate) fn conflict(&self, row: &KnownRow, used: RowUse) -> Option<Version> {
        let mut found = None;
        self.conflicting(row, used, &mut |other| {
            found.get_or_insert(other.txn);
        });
        found
    }

    /// All transactions that are not decided whose uses may conflict with one of a row.
    pub(crate) fn all_conflicts(&self, row: &KnownRow, used: RowUse) -> BTreeSet<Version> {
        let bytes = row.key.as_bytes();
        let same = self.rows.get(&row.key).into_iter().flatten();
        let shorter = self.partial.range(..bytes.len());
        let shorter = shorter.filter_map(|(length, _)| self.rows.get(&bytes[..*length])).flatten();
        let shorter = shorter.filter(|other| !other.is_whole);
        let below = (!row.is_whole).then(|| self.below(&row.key)).into_iter().flatten();
        let all = same.chain(shorter).chain(below);
        all.filter(|other| other.used.conflicts(&used)).map(|other| other.txn).collect()
    }

    fn conflicting(&self, row: &KnownRow, used: RowUse, each: &mut impl FnMut(&Use)) {
        if let Some(uses) = self.rows.get(&row.key) {
            let mut left = used;
            for other in uses.iter().rev().filter(|other| other.stands.conflicts(&used)) {
                if !other.stands.conflicts(&left) {
                    continue;
                }
                each(other);
                // A use of rows that are known in part may be of another row.
                if !self.is_replicated && row.is_whole && other.is_whole {
                    match left.not_covered_by(&other.used) {
                        Some(rest) => left = rest,
                        None => break,
                    }
                }
            }
        }
        let bytes = row.key.as_bytes();
        for (length, _) in self.partial.range(..bytes.len()) {
            for other in self.rows.get(&bytes[..*length]).into_iter().flatten() {
                if !other.is_whole && other.stands.conflicts(&used) {
                    each(other);
                }
            }
        }
        if !row.is_whole {
            for other in self.below(&row.key) {
                if other.stands.conflicts(&used) {
                    each(other);
                }
            }
        }
    }

    /// The uses of keys that begin so and are longer.
    fn below<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Use> {
        let from = (Bound::Excluded(key.as_bytes()), Bound::Unbounded);
        let longer = self.rows.range::<[u8], _>(from);
        let below = longer.take_while(|(other, _)| other.as_bytes().starts_with(key.as_bytes()));
        below.flat_map(|(_, uses)| uses)
    }

    /// The transactions whose uses are known.
    pub(crate) fn txns(&self) -> impl Iterator<Item = Version> {
        self.keys.keys().copied()
    }

    /// The transactions with a use that no other one stands for. One may be passed several times.
    pub(crate) fn standing(&self) -> impl Iterator<Item = Version> {
        self.rows.values().flatten().map(|used| used.txn)
    }

    /// Whether uses of a transaction are known.
    pub(crate) fn contains(&self, txn: Version) -> bool {
        self.keys.contains_key(&txn)
    }

    /// Replicas have agreed that a transaction comes after these.
    pub(crate) fn agree(&mut self, txn: Version, before: &BTreeSet<Version>) {
        let is_before = |other: &Use| other.txn != txn && before.contains(&other.txn);
        for key in self.distinct_keys(txn) {
            let Some(uses) = self.rows.get(&key) else { continue };
            let Some(gathering) = uses.iter().find(|own| own.txn == txn && own.gathers).copied()
            else {
                self.stand_for(&key, txn, |other, _| is_before(other));
                continue;
            };
            let mut stands = gathering.stands;
            let is_gathered =
                |other: &&Use| is_before(other) && (other.is_whole || !gathering.is_whole);
            for other in uses.iter().filter(is_gathered) {
                stands = stands.with(other.stands);
            }
            if !gathering.is_whole {
                let below = self.below(&key).filter(|other| is_before(other));
                for other in below.filter(|other| other.stands.conflicts(&gathering.used)) {
                    stands = stands.with(other.stands);
                }
            }
            for own in self.rows.get_mut(&key).into_iter().flatten().filter(|own| own.txn == txn) {
                if own.gathers {
                    (own.stands, own.gathers) = (stands, false);
                }
            }
            self.stand_for(&key, txn, |other, _| is_before(other));
        }
        self.advance(txn, State::Agreed);
    }

    /// A transaction was executed here, and perhaps not at other replicas of the partition.
    pub(crate) fn settle(&mut self, txn: Version) {
        for key in self.distinct_keys(txn) {
            let Some(uses) = self.rows.get(&key) else { continue };
            let own: Vec<Use> = uses.iter().filter(|own| own.txn == txn).copied().collect();
            self.stand_for(&key, txn, |other, is_below| {
                // What conflicts and was executed before comes before it everywhere.
                let conflicts =
                    |own: &Use| own.used.conflicts(&other.used) && !(is_below && own.is_whole);
                other.state == State::Executed && other.txn != txn && own.iter().any(conflicts)
            });
        }
        self.advance(txn, State::Executed);
    }

    /// The uses of a key by a transaction stand for those of others that come before it.
    /// Those of longer keys are passed to `is_before` with true.
    fn stand_for(&mut self, key: &Key, txn: Version, is_before: impl Fn(&Use, bool) -> bool) {
        let Some(uses) = self.rows.get(key) else { return };
        let stand = Stand::of(uses, txn);
        let partial = &mut self.partial;
        let mut leave = |uses: &mut Vec<Use>, bytes: usize, is_below: bool| {
            uses.retain_mut(|other| {
                let by = if is_below { stand.below } else { stand.for_use(other) };
                let Some(by) = by.filter(|_| is_before(other, is_below)) else { return true };
                match other.stands.not_stood_for_by(&by) {
                    Some(rest) => {
                        other.stands = rest;
                        true
                    }
                    None => {
                        forget_partial(partial, bytes, usize::from(!other.is_whole));
                        false
                    }
                }
            });
        };
        if let Some(uses) = self.rows.get_mut(key) {
            leave(uses, key.len(), false);
        }
        if stand.below.is_none() {
            return;
        }
        let mut unused = Vec::new();
        let from = (Bound::Excluded(key.as_bytes()), Bound::Unbounded);
        let longer = self.rows.range_mut::<[u8], _>(from);
        for (other, uses) in
            longer.take_while(|(other, _)| other.as_bytes().starts_with(key.as_bytes()))
        {
            leave(uses, other.len(), true);
            if uses.is_empty() {
                unused.push(other.clone());
            }
        }
        for key in unused {
            self.rows.remove(&key);
        }
    }

    fn advance(&mut self, txn: Version, state: State) {
        for key in self.keys.get(&txn).into_iter().flatten() {
            for own in self.rows.get_mut(key).into_iter().flatten().filter(|own| own.txn == txn) {
                own.state = own.state.max(state);
            }
        }
    }

    fn distinct_keys(&self, txn: Version) -> BTreeSet<Key> {
        self.keys.get(&txn).into_iter().flatten().cloned().collect()
    }

    /// Removes the uses of a transaction that is decided.
    pub(crate) fn remove(&mut self, txn: Version) {
        for key in self.keys.remove(&txn).into_iter().flatten() {
            let Some(uses) = self.rows.get_mut(&key) else { continue };
            let is_own = |other: &Use| other.txn == txn;
            let own = uses.iter().filter(|other| is_own(other) && !other.is_whole).count();
            forget_partial(&mut self.partial, key.len(), own);
            uses.retain(|other| !is_own(other));
            if uses.is_empty() {
                self.rows.remove(&key);
            }
        }
    }

    /// How many rows are used.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// Some uses of rows whose keys are known in part are gone.
fn forget_partial(partial: &mut BTreeMap<usize, usize>, bytes: usize, gone: usize) {
    if let Some(count) = partial.get_mut(&bytes) {
        *count -= gone;
        if *count == 0 {
            partial.remove(&bytes);
        }
    }
}

#[cfg(test)]
mod tests;
