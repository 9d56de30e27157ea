//! One key's instances, at one replica: what is interfered with, what comes next, what can be forgotten.
//!
//! Commands are about single keys, so each key has instances of its own, and a command on one key never waits for a
//! command on another. Each coordinator numbers the instances of a key. What a command comes after is said exactly by two
//! numbers for each coordinator: its last update and its last read that come before.

use std::collections::{BTreeMap, BTreeSet};

use serried_parts::Stamped;

use super::instance::{Attributes, Dependencies, Instance, InstanceId, Kind, Status};
use super::message::Conflict;
use super::rows::Rows;

/// A key's instances.
#[derive(Debug)]
pub(super) struct Space {
    members: usize,
    instances: Rows,
    /// Those that are committed and were not looked at since.
    fresh: Vec<InstanceId>,
    /// Those that are committed and wait for one that is not.
    blocked: BTreeMap<InstanceId, InstanceId>,
    /// The other way round.
    blocks: BTreeMap<InstanceId, Vec<InstanceId>>,
    /// Those that have been executed and are not forgotten, beyond `executed`.
    ahead: BTreeSet<InstanceId>,
    /// All up to here have been executed.
    executed: Dependencies,
    /// The last of which the commands are known.
    known: Dependencies,
    /// The greatest sequence numbers of updates and of all.
    update_sequence: u64,
    sequence: u64,
}

impl Space {
    /// One without instances, of a group of so many, of which those of `executed` have been executed.
    pub(super) fn new(members: usize, executed: Dependencies) -> Space {
        Space {
            members,
            instances: Rows::new(members),
            fresh: Vec::new(),
            blocked: BTreeMap::new(),
            blocks: BTreeMap::new(),
            ahead: BTreeSet::new(),
            known: executed.clone(),
            executed,
            update_sequence: 0,
            sequence: 0,
        }
    }

    /// What is known of an instance.
    pub(super) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// The same, to change; what is done to it is to be told by [`Space::learn`].
    pub(super) fn get_mut(&mut self, id: InstanceId) -> &mut Instance {
        self.instances.get_mut(id)
    }

    /// Whether it was executed here, and perhaps forgotten since.
    pub(super) fn is_executed(&self, id: InstanceId) -> bool {
        self.executed.cover(id) || self.ahead.contains(&id)
    }

    /// The number of the last of a row that has been executed.
    pub(super) fn last_executed(&self, row: InstanceId) -> u64 {
        let of = |number| InstanceId { number, ..row };
        let ahead = self.ahead.range(of(0)..=of(u64::MAX)).next_back();
        self.executed.row(row).max(ahead.map_or(0, |id| id.number))
    }

    /// The last of each row that has been executed, be it beyond others that have not.
    pub(super) fn last_executed_of_all(&self) -> Dependencies {
        let mut last = self.executed.clone();
        for id in &self.ahead {
            let number = last.row(*id).max(id.number);
            *last.row_mut(*id) = number;
        }
        last
    }

    /// Up to where all have been executed.
    pub(super) fn executed(&self) -> &Dependencies {
        &self.executed
    }

    /// Whether all that is known was executed, without gaps, and forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.ahead.is_empty()
    }

    /// All instances that are not forgotten.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter()
    }

    /// The next of `member`'s instances for a command of a kind, and what this replica makes of it. `is_new` says that this
    /// replica knows the command from nowhere else.
    pub(super) fn next(
        &self,
        kind: Kind,
        member: u8,
        base: Option<Stamped>,
        is_new: bool,
    ) -> (InstanceId, Attributes) {
        let mut id = InstanceId { kind, member, number: 0 };
        id.number = self.known.row(id) + 1;
        let mut attributes = self.attributes(kind, base);
        attributes.fresh = is_new && self.has_heard_of_all(&attributes.dependencies);
        (id, attributes)
    }

    /// Whether the commands of all these instances were heard of, or executed.
    fn has_heard_of_all(&self, instances: &Dependencies) -> bool {
        let is_known = |id| {
            self.get(id)
                .is_some_and(|known| known.command.is_some() || known.status == Status::Committed)
        };
        let mut ranges = instances.ranges(&self.executed).into_iter();
        ranges.all(|(last, first)| {
            (first..=last.number).all(|number| is_known(InstanceId { number, ..last }))
        })
    }

    fn attributes(&self, kind: Kind, base: Option<Stamped>) -> Attributes {
        let mut dependencies = self.known.clone();
        let sequence = 1 + match kind {
            Kind::Update => self.sequence,
            Kind::Read => {
                dependencies.reads = Dependencies::none(self.members).reads;
                self.update_sequence
            }
        };
        Attributes { sequence, dependencies, base, fresh: true }
    }

    /// What this replica makes of an instance for which its coordinator has `theirs`. `is_new` is as in [`Space::next`].
    pub(super) fn merge(
        &self,
        id: InstanceId,
        theirs: &Attributes,
        base: Option<Stamped>,
        is_new: bool,
    ) -> Attributes {
        let mut attributes = self.attributes(id.kind, base);
        // It has told of its own.
        *attributes.dependencies.row_mut(id) = theirs.dependencies.row(id);
        let mut others = attributes.dependencies.clone();
        (others.updates[usize::from(id.member)], others.reads[usize::from(id.member)]) = (0, 0);
        attributes.fresh = is_new && self.has_heard_of_all(&others);
        attributes.add(theirs);
        // Its coordinator goes by its own number for what it hears of next.
        attributes.fresh &= attributes.sequence == theirs.sequence;
        attributes
    }

    /// Those of which is heard and that are not committed, in their order.
    pub(super) fn open(&self) -> Vec<InstanceId> {
        let open = self.iter().filter(|(_, instance)| instance.status < Status::Committed);
        open.map(|(id, _)| id).filter(|id| !self.is_executed(*id)).collect()
    }

    /// What has just become of an instance counts for those that come later.
    pub(super) fn learn(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(id) else { return };
        if instance.command.is_none() && instance.status < Status::Committed {
            return;
        }
        let sequence = instance.attributes.sequence;
        if instance.status == Status::Committed && !self.is_executed(id) {
            self.fresh.push(id);
            for waiting in self.blocks.remove(&id).unwrap_or_default() {
                self.blocked.remove(&waiting);
                self.fresh.push(waiting);
            }
        }
        self.sequence = self.sequence.max(sequence);
        if id.kind == Kind::Update {
            self.update_sequence = self.update_sequence.max(sequence);
        }
        self.hear_of(id);
    }

    /// There is such an instance: what comes later comes after it.
    pub(super) fn hear_of(&mut self, id: InstanceId) {
        let row = self.known.row_mut(id);
        *row = (*row).max(id.number);
    }

    /// If the instance is one of `member`'s, or depends on some, then `member`'s next instances come after those, and have
    /// later numbers.
    pub(super) fn hear_of_those_of(&mut self, member: u8, id: InstanceId) {
        if id.member == member {
            self.hear_of(id);
        }
        for kind in [Kind::Update, Kind::Read] {
            let row = InstanceId { kind, member, number: 0 };
            let number = self.get(id).map_or(0, |known| known.attributes.dependencies.row(row));
            self.hear_of(InstanceId { number, ..row });
        }
    }

    /// Others have executed these: what comes later comes after them.
    pub(super) fn hear_of_all(&mut self, executed: &Dependencies) {
        self.known.add(executed);
    }

    /// The interfering instances that a command which was not executed here, with these attributes, need
    /// not come after, and that need not come after it. Of what was executed here, so far something was
    /// `done`.
    pub(super) fn conflicts(
        &self,
        id: InstanceId,
        attributes: &Attributes,
        done: &Dependencies,
    ) -> Vec<Conflict> {
        let interferes = |other: InstanceId| {
            other != id
                && (id.kind == Kind::Update || other.kind == Kind::Update)
                && !attributes.dependencies.cover(other)
        };
        let known = self.instances.iter().filter(|(other, instance)| {
            interferes(*other)
                && instance.command.is_some()
                && !instance.attributes.dependencies.cover(id)
        });
        let mut conflicts: Vec<Conflict> = known
            .map(|(other, instance)| Conflict {
                id: other,
                committed: instance.status == Status::Committed,
                // What is only known of from others' recovery tells nothing.
                began_without: instance.status > Status::Known && !instance.initial.cover(id),
            })
            .collect();
        // What was executed here has not waited for this one.
        let executed = done.ranges(&Dependencies::none(self.members));
        let executed = executed.into_iter().map(|(last, _)| last).filter(|last| interferes(*last));
        conflicts.extend(executed.map(|id| Conflict { id, committed: true, began_without: true }));
        conflicts
    }

    /// What can be executed now, in order: those that are committed and whose dependencies are, group
    /// after group of those that depend on each other, in each by their sequence numbers (001 §4.3.1,
    /// "Execution"); and instances that others have just begun to wait for.
    pub(super) fn executable(&mut self) -> (Vec<InstanceId>, Vec<InstanceId>) {
        let (mut order, mut missing) = (Vec::new(), Vec::new());
        let mut done = BTreeSet::new();
        for id in core::mem::take(&mut self.fresh) {
            if self.is_executed(id) || self.blocked.contains_key(&id) || done.contains(&id) {
                continue;
            }
            let instance = self.instances.get(id).expect("a committed instance");
            if instance.attributes.dependencies.are_within(&self.executed) {
                done.insert(id);
                order.push(id);
                continue;
            }
            let (found, open) = (BTreeMap::new(), Vec::new());
            let mut search = Search { space: self, done: &mut done, found, open };
            let blocker = search.run(id, &mut order);
            let open = search.open;
            if let Some(blocker) = blocker {
                for waiting in &open {
                    self.blocked.insert(*waiting, blocker);
                }
                let waiting = self.blocks.entry(blocker).or_default();
                if waiting.is_empty() {
                    missing.push(blocker);
                }
                waiting.extend(open);
            }
        }
        (order, missing)
    }

    /// A command was executed.
    pub(super) fn set_executed(&mut self, id: InstanceId) {
        self.ahead.insert(id);
        let mut next = InstanceId { number: self.executed.row(id) + 1, ..id };
        while self.ahead.remove(&next) {
            *self.executed.row_mut(id) = next.number;
            next.number += 1;
        }
    }

    /// Takes over that all up to here have been executed, and forgets them.
    pub(super) fn skip_to(&mut self, executed: &Dependencies) {
        self.executed.add(executed);
        self.known.add(executed);
        let done = self.executed.clone();
        self.ahead.retain(|id| !done.cover(*id));
        // What waited for one of those can go on.
        let mut unblocked = Vec::new();
        self.blocks.retain(|id, waiting| {
            let covered = done.cover(*id);
            if covered {
                unblocked.append(waiting);
            }
            !covered
        });
        self.blocked.retain(|id, _| !done.cover(*id));
        for id in unblocked {
            self.blocked.remove(&id);
            self.fresh.push(id);
        }
        for id in self.ahead.clone() {
            // An earlier one of its row may have closed the gap before it.
            if self.ahead.contains(&id) {
                self.set_executed(id);
            }
        }
        self.forget(|_| false);
    }

    /// Forgets what was executed, but for some.
    pub(super) fn forget(&mut self, keep: impl Fn(InstanceId) -> bool) {
        self.instances.remove(&self.executed, keep);
    }
}

/// Tarjan's search for strongly connected components, without recursion. It ends at the first instance
/// that is not committed: all that are open then lead to that.
struct Search<'a> {
    space: &'a Space,
    /// Those that were found to be executable before.
    done: &'a mut BTreeSet<InstanceId>,
    /// When each was found, and the first that it leads to.
    found: BTreeMap<InstanceId, (usize, usize)>,
    /// Those that are in no component yet.
    open: Vec<InstanceId>,
}

/// What an instance leads to: numbers of rows, from the last to the first.
type Edges = Vec<(InstanceId, u64)>;

impl Search<'_> {
    /// Adds what can be executed from `start` on to `order`; what stands in the way, if something does.
    fn run(&mut self, start: InstanceId, order: &mut Vec<InstanceId>) -> Option<InstanceId> {
        let mut path = vec![(start, self.enter(start))];
        while let Some((id, edges)) = path.last_mut() {
            let id = *id;
            let Some(other) = next(edges) else {
                path.pop();
                self.leave(id, path.last().map(|(parent, _)| *parent), order);
                continue;
            };
            if other == id || self.space.is_executed(other) || self.done.contains(&other) {
                continue;
            }
            if let Some((number, _)) = self.found.get(&other).copied() {
                // It is open, or it would be done.
                let low = &mut self.found.get_mut(&id).expect("it was entered").1;
                *low = (*low).min(number);
            } else if let Some(blocker) = self.space.blocked.get(&other) {
                return Some(*blocker);
            } else if self.space.get(other).is_some_and(|i| i.status == Status::Committed) {
                let edges = self.enter(other);
                path.push((other, edges));
            } else {
                return Some(other);
            }
        }
        None
    }

    /// Begins with an instance; what it leads to.
    fn enter(&mut self, id: InstanceId) -> Edges {
        let number = self.found.len();
        self.found.insert(id, (number, number));
        self.open.push(id);
        let instance = self.space.get(id).expect("a committed instance");
        match instance.command {
            Some(_) => instance.attributes.dependencies.ranges(&self.space.executed),
            None => Edges::new(),
        }
    }

    /// All that an instance leads to was seen.
    fn leave(&mut self, id: InstanceId, parent: Option<InstanceId>, order: &mut Vec<InstanceId>) {
        let (number, low) = self.found[&id];
        if let Some(parent) = parent {
            let theirs = &mut self.found.get_mut(&parent).expect("it was entered").1;
            *theirs = (*theirs).min(low);
        }
        if low == number {
            let at = self.open.iter().rposition(|other| *other == id).expect("it is open");
            let mut component = self.open.split_off(at);
            let sequence = |id: &InstanceId| {
                let instance = self.space.get(*id).expect("it was entered");
                instance.attributes.sequence
            };
            component.sort_unstable_by_key(|id| (sequence(id), *id));
            self.done.extend(component.iter().copied());
            order.extend(component);
        }
    }
}

/// The next of what an instance leads to.
fn next(edges: &mut Edges) -> Option<InstanceId> {
    loop {
        let (id, first) = edges.last_mut()?;
        if id.number >= *first {
            let next = *id;
            id.number -= 1;
            return Some(next);
        }
        edges.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(member: u8, number: u64) -> InstanceId {
        InstanceId { kind: Kind::Update, member, number }
    }

    #[test]
    fn a_write_is_fresh_if_all_that_it_comes_after_was_heard_of() {
        let empty = || Space::new(3, Dependencies::none(3));
        let (id, theirs) = empty().next(Kind::Update, 0, None, true);
        assert!(theirs.fresh && empty().merge(id, &theirs, None, true).fresh);
        assert!(!empty().next(Kind::Update, 0, None, false).1.fresh);
        assert!(!empty().merge(id, &theirs, None, false).fresh);
        // Of another coordinator's first command a replica has heard by its number alone.
        let mut space = empty();
        space.hear_of(update(2, 2));
        space.get_mut(update(2, 2)).status = Status::Committed;
        assert!(!space.next(Kind::Update, 0, None, true).1.fresh);
        assert!(!space.merge(id, &theirs, None, true).fresh);
        space.get_mut(update(2, 1)).status = Status::Committed;
        assert!(space.next(Kind::Update, 0, None, true).1.fresh);
        assert!(space.merge(id, &theirs, None, true).fresh);
        // The write's coordinator knows its own.
        let mut space = empty();
        space.hear_of(update(0, 4));
        assert!(space.merge(update(0, 5), &theirs, None, true).fresh);
        assert!(!space.merge(update(1, 1), &theirs, None, true).fresh);
        // What others have said of it stands.
        let known = Attributes { fresh: false, ..theirs };
        assert!(!empty().merge(id, &known, None, true).fresh);
    }
}
