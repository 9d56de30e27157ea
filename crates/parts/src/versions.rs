//! The committed versions of one key.

use serde::{Deserialize, Serialize};
use serried_model::{Modification, Value, Version};
use smallvec::SmallVec;

use crate::ReadMarks;

/// One value of one write of a transaction.
///
/// A transaction that is re-executed may write a key several times under its one version; the tag
/// tells the values apart, and of two tags the greater is the later.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct WriteId {
    /// The transaction that wrote.
    pub version: Version,
    /// Which of its values.
    pub tag: u32,
}

impl WriteId {
    /// The "write" of a key that was never written: it holds nothing.
    pub const INITIAL: WriteId = WriteId { version: Version::INITIAL, tag: 0 };

    /// The write of a value that was loaded before the first transaction. Only simulations load values.
    pub const LOADED: WriteId = WriteId { version: Version::INITIAL, tag: 1 };
}

/// What a write does to its key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// It replaces the value, or deletes the key.
    Put(Option<Value>),
    /// It modifies what the earlier versions have made of the key, step by step. A step that does not apply changes nothing.
    /// There is at least one.
    Modify(Box<[Modification]>),
    /// It has modified the key, which has this value since, or was deleted.
    Result(Option<Value>),
}

impl Effect {
    /// The value that the key has afterwards, if that does not depend on earlier versions. The inner `None` is an absent key.
    pub fn value(&self) -> Option<Option<&Value>> {
        match self {
            Effect::Put(value) | Effect::Result(value) => Some(value.as_ref()),
            Effect::Modify(_) => None,
        }
    }

    /// What it does to earlier versions. Nothing if it is a value.
    pub fn modifications(&self) -> &[Modification] {
        match self {
            Effect::Put(_) | Effect::Result(_) => &[],
            Effect::Modify(modifications) => modifications,
        }
    }

    /// Whether the key is absent afterwards, whatever it was before.
    pub fn is_delete(&self) -> bool {
        self.value() == Some(None)
    }

    /// Whether the key may be absent afterwards.
    pub fn may_delete(&self) -> bool {
        match self {
            Effect::Put(_) | Effect::Result(_) => self.is_delete(),
            Effect::Modify(all) => {
                all.iter().any(Modification::may_delete)
                    || Modification::apply_all(all, None).is_none()
            }
        }
    }
}

/// A committed write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Committed {
    /// Which write.
    pub id: WriteId,
    /// What it does.
    pub effect: Effect,
}

impl Committed {
    /// About how much memory it takes, in bytes.
    fn memory(&self) -> usize {
        let modifications = self.effect.modifications();
        let bytes = modifications.iter().map(|it| size_of_val(it) + it.value_bytes());
        size_of_val(self) + bytes.sum::<usize>()
    }

    /// A write of a value, or a delete.
    pub fn put(id: WriteId, value: Option<Value>) -> Committed {
        Committed { id, effect: Effect::Put(value) }
    }
}

/// The committed versions of one key, in their order. Most keys have one, or two for a while after they
/// were overwritten, which needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    ascending: SmallVec<[Committed; Versions::INLINE]>,
}

impl Versions {
    const INLINE: usize = 2;

    /// The latest one below `version`.
    pub fn latest_before(&self, version: Version) -> Option<&Committed> {
        let position = self.position(version);
        self.ascending[..position].last()
    }

    /// The one that the transaction `version` wrote.
    pub fn get(&self, version: Version) -> Option<&Committed> {
        let found = self.ascending.get(self.position(version))?;
        (found.id.version == version).then_some(found)
    }

    /// The latest one below `version` that is a value.
    pub fn latest_value_before(&self, version: Version) -> Option<&Committed> {
        let below = self.before(version).iter().rev();
        below.into_iter().find(|committed| committed.effect.value().is_some())
    }

    /// The latest of all.
    pub fn latest(&self) -> Option<&Committed> {
        self.ascending.last()
    }

    /// Adds one; false if that transaction's write is there already. What is known of a modification's result replaces the
    /// modification.
    pub fn insert(&mut self, committed: Committed) -> bool {
        let position = self.position(committed.id.version);
        match self.ascending.get_mut(position) {
            Some(old) if old.id.version == committed.id.version => {
                if old.effect.value().is_none() && committed.effect.value().is_some() {
                    *old = committed;
                }
                false
            }
            _ => {
                self.ascending.insert(position, committed);
                true
            }
        }
    }

    /// Replaces the latest version below `version` by its result, if it is a modification. All versions below must be here, or
    /// must have been forgotten because of a later one that is a value.
    pub fn execute_latest_before(&mut self, version: Version) {
        let position = self.position(version);
        if self.modifications_before(position) > 0 {
            let value = self.value_before(position);
            self.ascending[position - 1].effect = Effect::Result(value);
        }
    }

    /// A read has found the write of a value, and these modifications above it, and nothing else can commit between them. If
    /// that is what is here, replaces the last of them by its result. All versions of the key must be here.
    ///
    /// What the read calls a value may be a modification here, whose result is not remembered. Then `sealed` has to know
    /// of reads that nothing can commit below that modification either.
    ///
    /// If the value below takes more memory than the modifications above it, so does their result. It is worth that only if
    /// it replaces at least `many`. Returns whether it is remembered now.
    pub fn execute_named(
        &mut self,
        write: WriteId,
        modified: &[WriteId],
        many: usize,
        sealed: &ReadMarks,
    ) -> bool {
        let Some(last) = modified.last() else { return false };
        let position = self.position(last.version) + 1;
        let Some(here) = self.ascending.get(..position) else { return false };
        let count = self.modifications_before(position);
        let (below, modifies) = here.split_at(position - count);
        // Some of what the read has named may have results here, or what it has found may have none.
        let (lower, named) = modifies.split_at(count.saturating_sub(modified.len()));
        let (results, modified) = modified.split_at(modified.len().saturating_sub(count));
        if named.is_empty()
            || !named.iter().map(|committed| committed.id).eq(modified.iter().copied())
        {
            return false;
        }
        let rests_on = results.last().copied().unwrap_or(write);
        let is_known = match (lower.last(), below.last()) {
            (Some(latest), below) => latest.id == rests_on && are_sealed(below, lower, sealed),
            (None, Some(latest)) if rests_on == WriteId::INITIAL => latest.effect.is_delete(),
            (None, Some(latest)) => latest.id == rests_on,
            (None, None) => rests_on == WriteId::INITIAL,
        };
        let value = below.last().and_then(|latest| latest.effect.value()).flatten();
        let is_worth_it = || {
            let modifies: usize = modifies.iter().map(Committed::memory).sum();
            count >= many || value.is_none_or(|value| value.len() <= modifies)
        };
        let executes = is_known && is_worth_it();
        if executes {
            self.ascending[position - 1].effect = Effect::Result(self.value_before(position));
        }
        executes
    }

    /// How many modifications follow on the latest value before this position.
    fn modifications_before(&self, position: usize) -> usize {
        let before = self.ascending[..position].iter().rev();
        before.take_while(|committed| committed.effect.value().is_none()).count()
    }

    /// The value that the key has just before this position.
    fn value_before(&self, position: usize) -> Option<Value> {
        let (below, modifies) =
            self.ascending[..position].split_at(position - self.modifications_before(position));
        let value = below.last().and_then(|committed| committed.effect.value()).flatten();
        let steps = modifies.iter().flat_map(|committed| committed.effect.modifications());
        Modification::apply_all(steps, value)
    }

    /// The latest write below `version`, and the value of the key after it.
    pub fn value_at(&self, version: Version) -> Option<(WriteId, Option<Value>)> {
        let position = self.position(version);
        let latest = self.ascending[..position].last()?;
        Some((latest.id, self.value_before(position)))
    }

    /// All of them, in ascending order.
    pub fn all(&self) -> &[Committed] {
        &self.ascending
    }

    /// Those below `version`, in ascending order.
    pub fn before(&self, version: Version) -> &[Committed] {
        &self.ascending[..self.position(version)]
    }

    /// Forgets all that are below `version` but the latest of these, and what this one rests on if it is a modification.
    pub fn forget_before(&mut self, version: Version) {
        let mut position = self.position(version);
        position -= self.modifications_before(position).min(position.saturating_sub(1));
        if position > 1 {
            self.ascending.drain(..position - 1);
            self.shrink();
        }
    }

    /// Forgets all that are below `version`.
    pub fn forget_all_before(&mut self, version: Version) {
        let position = self.position(version);
        self.ascending.drain(..position);
        self.shrink();
    }

    /// Gives memory back that was for more.
    fn shrink(&mut self) {
        if self.ascending.spilled() && self.ascending.len() <= Versions::INLINE {
            self.ascending.shrink_to_fit();
        }
    }

    /// Forgets the one that the transaction `version` wrote.
    pub fn forget(&mut self, version: Version) {
        self.ascending.retain(|committed| committed.id.version != version);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ascending.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ascending.is_empty()
    }

    /// Where `version` is or would be.
    fn position(&self, version: Version) -> usize {
        near_the_end(&self.ascending, |committed| committed.id.version < version)
    }
}

/// The partition point of `below`, which is mostly among the last few: a binary search of a long list
/// would miss the cache at every step.
pub(crate) fn near_the_end<T>(ascending: &[T], below: impl Fn(&T) -> bool) -> usize {
    const FEW: usize = 8;
    let rest = ascending.len().saturating_sub(FEW);
    let above = ascending[rest..].iter().rev().take_while(|item| !below(item)).count();
    match ascending.len() - above {
        position if position > rest => position,
        _ => ascending[..rest].partition_point(below),
    }
}

/// Whether committed reads have named these modifications one after the other, above the write of the value `below`, so that no
/// other can commit between them.
fn are_sealed(below: Option<&Committed>, modifies: &[Committed], sealed: &ReadMarks) -> bool {
    let version = |committed: &Committed| committed.id.version;
    let follows = |lower, upper: &Committed| sealed.contains(lower, version(upper));
    let Some(first) = modifies.first() else { return false };
    let is_first = match below {
        Some(below) if below.effect.is_delete() => {
            follows(version(below), first) || follows(Version::INITIAL, first)
        }
        Some(below) if version(below) != Version::INITIAL => follows(version(below), first),
        // A mark does not say whether its reader has found a value that was loaded, or nothing.
        _ => false,
    };
    is_first && modifies.windows(2).all(|pair| follows(version(&pair[0]), &pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::NodeId;

    fn version(timestamp_us: u64) -> Version {
        Version { timestamp_us, coordinator: NodeId(0) }
    }

    #[test]
    fn a_read_finds_the_latest_version_below_its_own_whatever_the_order_of_arrival() {
        let mut versions = Versions::default();
        for timestamp in [5, 9, 2] {
            let id = WriteId { version: version(timestamp), tag: 0 };
            assert!(versions.insert(Committed::put(id, None)));
            assert!(!versions.insert(Committed::put(id, Some(Value::default()))));
        }
        let found = |reader| versions.latest_before(version(reader)).map(|c| c.id.version);
        assert_eq!(found(2), None);
        assert_eq!(found(3), Some(version(2)));
        assert_eq!(found(9), Some(version(5)));
        assert_eq!(found(99), Some(version(9)));
        assert!(versions.get(version(5)).is_some() && versions.get(version(6)).is_none());
    }

    #[test]
    fn of_what_is_forgotten_the_latest_stays() {
        let mut versions = Versions::default();
        for timestamp in [2, 5, 9] {
            let id = WriteId { version: version(timestamp), tag: 0 };
            versions.insert(Committed::put(id, None));
        }
        versions.forget_before(version(2));
        assert_eq!((versions.len(), versions.before(version(5)).len()), (3, 1));
        versions.forget_before(version(9));
        let left: Vec<_> = versions.before(version(99)).iter().map(|c| c.id.version).collect();
        assert_eq!(left, [version(5), version(9)]);
        versions.forget(version(9));
        assert_eq!(versions.latest().unwrap().id.version, version(5));
    }

    fn add(at: u64, delta: i64) -> Committed {
        let effect = Effect::Modify([Modification::add(delta)].into());
        Committed { id: WriteId { version: version(at), tag: 0 }, effect }
    }

    fn put(at: u64, value: &str) -> Committed {
        Committed::put(WriteId { version: version(at), tag: 0 }, Some(Value::from(value)))
    }

    fn result(at: u64, value: &str) -> Committed {
        let effect = Effect::Result(Some(Value::from(value)));
        Committed { effect, ..put(at, value) }
    }

    #[test]
    fn what_a_read_has_named_is_executed_if_it_is_all_that_is_here() {
        let id = |at| WriteId { version: version(at), tag: 0 };
        let delete = Committed::put(id(5), None);
        let other = WriteId { tag: 1, ..id(30) };
        let nothing = WriteId::INITIAL;
        let (five, adds) = (put(5, "5"), [add(20, 1), add(30, 2)]);
        let result_of = |here: &[Committed], write, modified: &[WriteId]| {
            let mut versions = Versions::default();
            here.iter().for_each(|committed| assert!(versions.insert(committed.clone())));
            versions.execute_named(write, modified, 100, &ReadMarks::default());
            let changed = versions.all().iter().zip(here).filter(|(after, before)| after != before);
            let changed: Vec<_> = changed.map(|(after, _)| after.clone()).collect();
            assert!(changed.len() <= 1, "{changed:?}");
            changed.first().cloned()
        };
        let on_five: Vec<_> = [five.clone()].into_iter().chain(adds.clone()).collect();
        let named = [id(20), id(30)];
        assert_eq!(result_of(&on_five, id(5), &named), Some(result(30, "8")));
        assert_eq!(result_of(&on_five, id(5), &named[..1]), Some(result(20, "6")));
        assert_eq!(result_of(&on_five, id(5), &[]), None);
        assert_eq!(result_of(&on_five, id(4), &named), None, "it rests on something else");
        assert_eq!(result_of(&on_five, nothing, &named), None, "there was nothing");
        assert_eq!(result_of(&on_five, id(5), &[id(30)]), None, "one more is here");
        assert_eq!(result_of(&on_five, id(5), &[id(20), other]), None, "another effect");
        assert_eq!(result_of(&on_five, id(5), &[id(20), id(40)]), None, "the last is not here");
        let lacks_one = [five.clone(), adds[1].clone()];
        assert_eq!(result_of(&lacks_one, id(5), &named), None);
        assert_eq!(result_of(&adds, id(5), &named), None, "what it rests on is not here");
        assert_eq!(result_of(&adds, nothing, &named), Some(result(30, "3")));
        let on_delete: Vec<_> = [delete].into_iter().chain(adds).collect();
        for write in [id(5), nothing] {
            assert_eq!(result_of(&on_delete, write, &named), Some(result(30, "3")));
        }
        let has_results = [five.clone(), result(20, "60"), add(30, 2), add(40, 3)];
        let all = [id(20), id(30), id(40)];
        assert_eq!(result_of(&has_results, id(5), &all), Some(result(40, "65")));
        assert_eq!(result_of(&has_results, id(5), &all[..1]), None, "it is a value");
        let another = [id(19), id(30), id(40)];
        assert_eq!(result_of(&has_results, id(5), &another), None, "another result is here");
    }

    #[test]
    fn a_result_that_is_much_longer_than_what_led_to_it_is_remembered_for_many() {
        let mut versions = Versions::default();
        versions.insert(put(10, &"x".repeat(1000)));
        for at in [20, 30] {
            let effect = Effect::Modify([Modification::Append(Value::from("y"))].into());
            versions.insert(Committed { effect, ..put(at, "") });
        }
        let id = |at| WriteId { version: version(at), tag: 0 };
        let none = ReadMarks::default();
        assert!(!versions.execute_named(id(10), &[id(20), id(30)], 3, &none));
        assert!(versions.execute_named(id(10), &[id(20), id(30)], 2, &none));
        assert!(!versions.execute_named(id(10), &[id(20), id(30)], 2, &none), "it is a value");
        let mut versions = Versions::default();
        versions.insert(put(10, &"x".repeat(1000)));
        for at in [20, 30] {
            let append = Modification::Append(Value::from("y".repeat(600)));
            versions.insert(Committed { effect: Effect::Modify([append].into()), ..put(at, "") });
        }
        assert!(versions.execute_named(id(10), &[id(20), id(30)], 100, &none), "they are as long");
    }

    #[test]
    fn what_a_read_has_found_is_executed_if_reads_have_named_all_of_it() {
        let id = |at| WriteId { version: version(at), tag: 0 };
        let loaded = Committed { id: WriteId::LOADED, effect: put(5, "5").effect };
        let (five, delete) = (put(5, "5"), Committed::put(id(5), None));
        let adds = [add(20, 1), add(30, 2), add(40, 4)];
        let executes = |below: Option<&Committed>, reads: &[(u64, u64)]| {
            let mut versions = Versions::default();
            for committed in below.into_iter().chain(&adds) {
                versions.insert(committed.clone());
            }
            let mut sealed = ReadMarks::default();
            for (found, reader) in reads {
                let found = if *found == 0 { Version::INITIAL } else { version(*found) };
                sealed.record(found, version(*reader));
            }
            versions.execute_named(id(30), &[id(40)], 1, &sealed)
        };
        let (whole, from_nothing) = ([(5, 20), (20, 30), (30, 35)], [(0, 20), (20, 30)]);
        assert!(executes(Some(&five), &whole));
        assert!(!executes(Some(&five), &whole[1..]), "there may be more below the first");
        assert!(!executes(Some(&five), &whole[..1]), "there may be more above it");
        assert!(!executes(Some(&five), &[(5, 20), (20, 29)]), "there may be more at 29");
        assert!(!executes(Some(&five), &[(4, 20), (20, 30)]), "the read has found something else");
        assert!(!executes(Some(&five), &from_nothing), "there was nothing");
        assert!(executes(Some(&delete), &whole));
        assert!(executes(Some(&delete), &from_nothing));
        // A reader at 50 has found a delete, perhaps, that is not here, and so is no sign of what lies below 20.
        let mut versions = Versions::default();
        for committed in [&delete, &adds[0], &adds[1]] {
            versions.insert(committed.clone());
        }
        let mut sealed = ReadMarks::default();
        sealed.record(Version::INITIAL, version(50));
        assert!(!versions.execute_named(id(20), &[id(30)], 1, &sealed));
        sealed = ReadMarks::default();
        sealed.record(Version::INITIAL, version(20));
        assert!(versions.execute_named(id(20), &[id(30)], 1, &sealed));
        assert!(!executes(None, &from_nothing), "it may lack a value that was loaded");
        assert!(!executes(Some(&loaded), &from_nothing), "it may lack a delete of it");
    }

    #[test]
    fn modifications_are_executed_on_what_is_below_them() {
        let mut versions = Versions::default();
        for committed in [add(9, 100), put(5, "30"), add(7, 2), add(2, 1), add(3, 1), add(11, 1000)]
        {
            assert!(versions.insert(committed));
        }
        let value_at = |versions: &Versions, at| {
            let (id, value) = versions.value_at(version(at))?;
            Some((id.version.timestamp_us, value.map(|value| value.to_string())))
        };
        let expected = [
            (2, None),
            (3, Some((2, "1"))),
            (4, Some((3, "2"))),
            (6, Some((5, "30"))),
            (10, Some((9, "132"))),
            (99, Some((11, "1132"))),
        ];
        for upto in [0, 3, 10, 99] {
            versions.execute_latest_before(version(upto));
            for (at, expected) in expected {
                let expected = expected.map(|(at, value)| (at, Some(value.to_string())));
                assert_eq!(value_at(&versions, at), expected, "{at} after {upto}");
            }
        }
        let latest = [
            result(2, "1"),
            add(3, 1),
            put(5, "30"),
            add(7, 2),
            result(9, "132"),
            result(11, "1132"),
        ];
        assert_eq!(versions.all(), latest);
    }

    #[test]
    fn what_a_modification_rests_on_is_not_forgotten_before_it() {
        let mut versions = Versions::default();
        for committed in [put(1, "0"), put(2, "1"), add(3, 1), add(5, 1), add(7, 1)] {
            versions.insert(committed);
        }
        versions.forget_before(version(6));
        assert_eq!(versions.all(), [put(2, "1"), add(3, 1), add(5, 1), add(7, 1)]);
        versions.execute_latest_before(version(6));
        versions.forget_before(version(6));
        assert_eq!(versions.all(), [result(5, "3"), add(7, 1)]);
        versions.forget_before(version(9));
        assert_eq!(versions.all(), [result(5, "3"), add(7, 1)]);
        // Nothing was there before it.
        let mut versions = Versions::default();
        versions.insert(add(3, 1));
        versions.insert(add(5, 1));
        versions.forget_before(version(9));
        assert_eq!(versions.len(), 2);
    }

    #[test]
    fn a_modification_that_may_leave_nothing_may_delete() {
        let swap = |expected: Option<&str>, new: Option<&str>| Modification::CompareAndSwap {
            expected: expected.map(Value::from),
            new: new.map(Value::from),
        };
        for (modifications, may_delete) in [
            (vec![Modification::add(1)], false),
            (vec![Modification::Add { delta: -1, least: 0, most: 9 }], true),
            (vec![swap(Some("x"), Some("y"))], true),
            (vec![swap(None, Some("y"))], false),
            (vec![swap(Some("x"), None)], true),
            (vec![Modification::Set(None), Modification::add(1)], true),
            (vec![Modification::SetIfAbsent(Value::from("x"))], false),
        ] {
            let effect = Effect::Modify(modifications.into());
            assert_eq!(effect.may_delete(), may_delete, "{effect:?}");
        }
    }

    #[test]
    fn a_result_replaces_a_modification_and_not_the_other_way_round() {
        let mut versions = Versions::default();
        versions.insert(add(7, 2));
        assert!(!versions.insert(result(7, "32")));
        assert!(!versions.insert(add(7, 2)));
        assert_eq!(versions.all(), [result(7, "32")]);
    }

    #[test]
    fn the_search_from_the_end_finds_what_a_binary_search_finds() {
        for length in 0..30 {
            let ascending: Vec<usize> = (0..length).map(|i| 2 * i).collect();
            for wanted in 0..=2 * length {
                let expected = ascending.partition_point(|item| *item < wanted);
                assert_eq!(near_the_end(&ascending, |item| *item < wanted), expected);
            }
        }
    }
}
