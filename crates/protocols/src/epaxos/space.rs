//! One key's instances, at one replica: what is interfered with, what comes next, what can be forgotten.
//!
//! Commands are about single keys, so each key has instances of its own. Each coordinator numbers those of
//! a key, and what a command comes after is told by a number for each coordinator: exactly, however many
//! there are, and a command on one key never waits for one on another.

use std::collections::{BTreeMap, BTreeSet};

use serried_parts::Stamped;

use super::instance::{Attributes, Command, Dependencies, Instance, InstanceId, Kind, Status};

/// A key's instances.
#[derive(Debug)]
pub struct Space {
    members: usize,
    instances: BTreeMap<InstanceId, Instance>,
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
    pub fn new(members: usize, executed: Dependencies) -> Space {
        Space {
            members,
            instances: BTreeMap::new(),
            ahead: BTreeSet::new(),
            known: executed.clone(),
            executed,
            update_sequence: 0,
            sequence: 0,
        }
    }

    /// What is known of an instance.
    pub fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(&id)
    }

    /// The same, to change; what is done to it is to be told by [`Space::learn`].
    pub fn get_mut(&mut self, id: InstanceId) -> &mut Instance {
        let members = self.members;
        self.instances.entry(id).or_insert_with(|| Instance::unknown(members))
    }

    /// Whether it was executed here, and perhaps forgotten since.
    pub fn is_executed(&self, id: InstanceId) -> bool {
        self.executed.cover(id) || self.ahead.contains(&id)
    }

    /// Up to where all have been executed.
    pub fn executed(&self) -> &Dependencies {
        &self.executed
    }

    /// Whether there is nothing that is not executed everywhere.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// All instances that are not forgotten.
    pub fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.instances.iter()
    }

    /// The next of `member`'s instances for a command of a kind, and what this replica makes of it.
    pub fn next(&self, kind: Kind, member: u8, base: Option<Stamped>) -> (InstanceId, Attributes) {
        let mut id = InstanceId { kind, member, number: 0 };
        id.number = self.known.row(id) + 1;
        (id, self.attributes(kind, base))
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
        Attributes { sequence, dependencies, base }
    }

    /// What this replica makes of an instance for which its coordinator has `theirs`.
    pub fn merge(&self, id: InstanceId, theirs: &Attributes, base: Option<Stamped>) -> Attributes {
        let mut attributes = self.attributes(id.kind, base);
        // It has told of its own.
        *attributes.dependencies.row_mut(id) = theirs.dependencies.row(id);
        attributes.add(theirs);
        attributes
    }

    /// What has just become of an instance counts for those that come later.
    pub fn learn(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(&id) else { return };
        if instance.command.is_none() && instance.status < Status::Committed {
            return;
        }
        let sequence = instance.attributes.sequence;
        self.sequence = self.sequence.max(sequence);
        if id.kind == Kind::Update {
            self.update_sequence = self.update_sequence.max(sequence);
        }
        let row = self.known.row_mut(id);
        *row = (*row).max(id.number);
    }

    /// The interfering instances that a command with these attributes need not come after, and that
    /// need not come after it.
    pub fn conflicts<'a>(
        &'a self,
        id: InstanceId,
        attributes: &'a Attributes,
    ) -> impl Iterator<Item = (InstanceId, &'a Instance)> {
        let interfere = move |other: InstanceId| id.kind == Kind::Update || other.kind == Kind::Update;
        let others = self.instances.iter().map(|(other, instance)| (*other, instance));
        others.filter(move |(other, instance)| {
            *other != id
                && interfere(*other)
                && instance.command.is_some()
                && !attributes.dependencies.cover(*other)
                && !instance.attributes.dependencies.cover(id)
        })
    }

    /// What can be executed now, in order: those that are committed and whose dependencies are, group
    /// after group of those that depend on each other, in each by their sequence numbers (001 §4.3.1,
    /// "Execution"); and the first instance that others wait for.
    pub fn executable(&self) -> (Vec<InstanceId>, Option<InstanceId>) {
        let mut search = Search::new(self);
        for (id, instance) in &self.instances {
            if instance.status == Status::Committed && !self.is_executed(*id) {
                search.visit(*id);
            }
        }
        (search.order, search.missing)
    }

    /// A command was executed.
    pub fn set_executed(&mut self, id: InstanceId) {
        self.ahead.insert(id);
        let mut next = InstanceId { number: self.executed.row(id) + 1, ..id };
        while self.ahead.remove(&next) {
            *self.executed.row_mut(id) = next.number;
            next.number += 1;
        }
    }

    /// Takes over that all up to here have been executed, and forgets them.
    pub fn skip_to(&mut self, executed: &Dependencies) {
        self.executed.add(executed);
        self.known.add(executed);
        let done = self.executed.clone();
        self.ahead.retain(|id| !done.cover(*id));
        for id in self.ahead.clone() {
            self.set_executed(id);
        }
        self.forget(executed);
    }

    /// Forgets what was executed everywhere.
    pub fn forget(&mut self, everywhere: &Dependencies) {
        self.instances.retain(|id, _| !everywhere.cover(*id));
    }

    /// The command of an instance that is committed.
    pub fn command(&self, id: InstanceId) -> Option<&Command> {
        self.instances.get(&id)?.command.as_ref()
    }
}

/// Tarjan's search for strongly connected components, without recursion.
struct Search<'a> {
    space: &'a Space,
    /// When each was found, and the first that it leads to.
    found: BTreeMap<InstanceId, (usize, usize)>,
    /// Those that are in no component yet.
    open: Vec<InstanceId>,
    is_open: BTreeSet<InstanceId>,
    /// Those that lead to something that is not committed.
    blocked: BTreeSet<InstanceId>,
    order: Vec<InstanceId>,
    missing: Option<InstanceId>,
}

impl<'a> Search<'a> {
    fn new(space: &'a Space) -> Self {
        Search {
            space,
            found: BTreeMap::new(),
            open: Vec::new(),
            is_open: BTreeSet::new(),
            blocked: BTreeSet::new(),
            order: Vec::new(),
            missing: None,
        }
    }

    fn visit(&mut self, start: InstanceId) {
        if self.found.contains_key(&start) {
            return;
        }
        let mut path = vec![(start, self.enter(start))];
        while let Some((id, next)) = path.last_mut() {
            let id = *id;
            let Some(other) = next.pop() else {
                path.pop();
                self.leave(id, path.last().map(|(parent, _)| *parent));
                continue;
            };
            if let Some((number, _)) = self.found.get(&other).copied() {
                if self.is_open.contains(&other) {
                    let low = &mut self.found.get_mut(&id).expect("it was entered").1;
                    *low = (*low).min(number);
                } else if self.blocked.contains(&other) {
                    self.blocked.insert(id);
                }
            } else if self.space.get(other).is_some_and(|i| i.status == Status::Committed) {
                let next = self.enter(other);
                path.push((other, next));
            } else {
                self.missing.get_or_insert(other);
                self.blocked.insert(id);
            }
        }
    }

    /// Begins with an instance; what it leads to.
    fn enter(&mut self, id: InstanceId) -> Vec<InstanceId> {
        let number = self.found.len();
        self.found.insert(id, (number, number));
        self.open.push(id);
        self.is_open.insert(id);
        let instance = self.space.get(id).expect("a committed instance");
        if instance.command.is_none() {
            return Vec::new();
        }
        let dependencies = instance.attributes.dependencies.beyond(&self.space.executed);
        dependencies.filter(|other| *other != id && !self.space.ahead.contains(other)).collect()
    }

    /// All that an instance leads to was seen.
    fn leave(&mut self, id: InstanceId, parent: Option<InstanceId>) {
        let (number, low) = self.found[&id];
        if let Some(parent) = parent {
            let theirs = &mut self.found.get_mut(&parent).expect("it was entered").1;
            *theirs = (*theirs).min(low);
        }
        if low == number {
            let at = self.open.iter().rposition(|other| *other == id).expect("it is open");
            let mut component = self.open.split_off(at);
            let blocked = component.iter().any(|id| self.blocked.contains(id));
            for id in &component {
                self.is_open.remove(id);
            }
            if blocked {
                self.blocked.extend(component);
            } else {
                let sequence = |id: &InstanceId| self.space.instances[id].attributes.sequence;
                component.sort_unstable_by_key(|id| (sequence(id), *id));
                self.order.extend(component);
            }
        }
        // A parent in the same component is blocked with it when that is complete.
        if let Some(parent) = parent
            && self.blocked.contains(&id)
        {
            self.blocked.insert(parent);
        }
    }
}
