//! One key's instances at one replica: which instances interfere, which one is next, and which can
//! be forgotten.
//!
//! Commands are about single keys, so each key has instances of its own, and a command on one key
//! never waits for a command on another. Each coordinator numbers the instances of a key. Two
//! numbers for each coordinator exactly describe the instances that precede a command: the last
//! preceding update and the last preceding read of that coordinator.

use serried_parts::Stamped;

use super::executed::Executed;
use super::instance::{Attributes, Dependencies, Instance, InstanceId, Kind, Status};
use super::message::Conflict;
use super::order::Order;
use super::rows::Rows;

/// The instances of a key.
#[derive(Debug)]
pub(super) struct Space {
    members: usize,
    instances: Rows,
    executed: Executed,
    /// The committed instances that are not executed.
    order: Order,
    /// The last instances with known commands.
    known: Dependencies,
    /// The greatest sequence numbers of updates and of all instances.
    update_sequence: u64,
    sequence: u64,
}

impl Space {
    /// Creates the space of a key without instances, in a group of `members`. Those of `executed`
    /// have been executed.
    pub(super) fn new(members: usize, executed: Dependencies) -> Space {
        Space {
            members,
            instances: Rows::new(members),
            known: executed.clone(),
            executed: Executed::new(executed),
            order: Order::default(),
            update_sequence: 0,
            sequence: 0,
        }
    }

    /// A known instance.
    pub(super) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(id)
    }

    /// Mutable access to an instance. The caller must call [`Space::learn`] after every change.
    pub(super) fn get_mut(&mut self, id: InstanceId) -> &mut Instance {
        self.instances.get_mut(id)
    }

    /// Whether an instance was executed here. It may have been forgotten since.
    pub(super) fn is_executed(&self, id: InstanceId) -> bool {
        self.executed.cover(id)
    }

    /// The number of the last executed instance of a row.
    pub(super) fn last_executed(&self, row: InstanceId) -> u64 {
        self.executed.last(row)
    }

    /// The last executed instance of each row, even if it is beyond others that have not been
    /// executed.
    pub(super) fn last_executed_of_all(&self) -> Dependencies {
        self.executed.last_of_all()
    }

    /// The point in each row up to which all instances have been executed.
    pub(super) fn executed(&self) -> &Dependencies {
        self.executed.up_to()
    }

    /// Whether all known instances were executed, without gaps, and forgotten.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.is_empty() && !self.executed.have_gaps()
    }

    /// All instances that are not forgotten.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.instances.iter()
    }

    /// The next of `member`'s instances for a command of a kind, with the attributes that this
    /// replica assigns. `is_new` is whether this replica knows the command from no other instance.
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

    /// Whether the commands of all these instances are known, or were executed.
    fn has_heard_of_all(&self, instances: &Dependencies) -> bool {
        let is_known = |id| {
            self.get(id)
                .is_some_and(|known| known.command.is_some() || known.status == Status::Committed)
        };
        let mut ranges = instances.ranges(self.executed.up_to()).into_iter();
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

    /// The attributes that this replica assigns to an instance for which its coordinator has
    /// assigned `theirs`. `is_new` is as in [`Space::next`].
    pub(super) fn merge(
        &self,
        id: InstanceId,
        theirs: &Attributes,
        base: Option<Stamped>,
        is_new: bool,
    ) -> Attributes {
        let mut attributes = self.attributes(id.kind, base);
        // The coordinator knows its own instances.
        *attributes.dependencies.row_mut(id) = theirs.dependencies.row(id);
        let mut others = attributes.dependencies.clone();
        (others.updates[usize::from(id.member)], others.reads[usize::from(id.member)]) = (0, 0);
        attributes.fresh = is_new && self.has_heard_of_all(&others);
        attributes.add(theirs);
        // The coordinator uses its own sequence number for the next commands that it receives.
        attributes.fresh &= attributes.sequence == theirs.sequence;
        attributes
    }

    /// The instances that are neither committed nor executed, in order.
    pub(super) fn open(&self) -> Vec<InstanceId> {
        let open = self.iter().filter(|(_, instance)| instance.status < Status::Committed);
        open.map(|(id, _)| id).filter(|id| !self.is_executed(*id)).collect()
    }

    /// Takes a changed instance into account for later instances.
    pub(super) fn learn(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get(id) else { return };
        if instance.command.is_none() && instance.status < Status::Committed {
            return;
        }
        let sequence = instance.attributes.sequence;
        if instance.status == Status::Committed && !self.is_executed(id) {
            self.order.add(id);
        }
        self.sequence = self.sequence.max(sequence);
        if id.kind == Kind::Update {
            self.update_sequence = self.update_sequence.max(sequence);
        }
        self.hear_of(id);
    }

    /// Takes an instance into account that is known to exist: later ones follow it.
    pub(super) fn hear_of(&mut self, id: InstanceId) {
        let row = self.known.row_mut(id);
        *row = (*row).max(id.number);
    }

    /// If the instance is one of `member`'s, or depends on some of them, `member`'s next instances
    /// follow those and have greater numbers.
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

    /// Records that other replicas have executed these instances: later instances follow them.
    pub(super) fn hear_of_all(&mut self, executed: &Dependencies) {
        self.known.add(executed);
    }

    /// The instances that interfere with `id`, but neither precede nor follow it if it has these
    /// attributes. It was not executed here. Of the instances that were executed here, those up to
    /// `done` had a command.
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
                // If another replica's recovery has made an instance known, its coordinator's
                // knowledge is unknown.
                began_without: instance.status > Status::Known && !instance.initial.cover(id),
            })
            .collect();
        // Instances that were executed here have not waited for this one.
        let executed = done.ranges(&Dependencies::none(self.members));
        let executed = executed.into_iter().map(|(last, _)| last).filter(|last| interferes(*last));
        conflicts.extend(executed.map(|id| Conflict { id, committed: true, began_without: true }));
        conflicts
    }

    /// The instances that can be executed now, in order, and the instances that others have just
    /// begun to wait for ([`Order::executable`]).
    pub(super) fn executable(&mut self) -> (Vec<InstanceId>, Vec<InstanceId>) {
        self.order.executable(&self.instances, &self.executed)
    }

    /// Records that an instance was executed.
    pub(super) fn set_executed(&mut self, id: InstanceId) {
        self.executed.add(id);
    }

    /// Records that all instances up to here have been executed elsewhere and their effects were
    /// copied, and forgets them.
    pub(super) fn skip_to(&mut self, executed: &Dependencies) {
        self.known.add(executed);
        self.executed.add_all(executed);
        self.order.skip(self.executed.up_to());
        self.forget(|_| false);
    }

    /// Forgets executed instances, except those that `keep` retains.
    pub(super) fn forget(&mut self, keep: impl Fn(InstanceId) -> bool) {
        self.instances.remove(self.executed.up_to(), keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(member: u8, number: u64) -> InstanceId {
        InstanceId { kind: Kind::Update, member, number }
    }

    #[test]
    fn a_write_is_fresh_if_all_preceding_commands_are_known() {
        let empty = || Space::new(3, Dependencies::none(3));
        let (id, theirs) = empty().next(Kind::Update, 0, None, true);
        assert!(theirs.fresh && empty().merge(id, &theirs, None, true).fresh);
        assert!(!empty().next(Kind::Update, 0, None, false).1.fresh);
        assert!(!empty().merge(id, &theirs, None, false).fresh);
        // A replica knows that another coordinator's first command exists only because there is a
        // second.
        let mut space = empty();
        space.hear_of(update(2, 2));
        space.get_mut(update(2, 2)).status = Status::Committed;
        assert!(!space.next(Kind::Update, 0, None, true).1.fresh);
        assert!(!space.merge(id, &theirs, None, true).fresh);
        space.get_mut(update(2, 1)).status = Status::Committed;
        assert!(space.next(Kind::Update, 0, None, true).1.fresh);
        assert!(space.merge(id, &theirs, None, true).fresh);
        // A coordinator knows its own commands.
        let mut space = empty();
        space.hear_of(update(0, 4));
        assert!(space.merge(update(0, 5), &theirs, None, true).fresh);
        assert!(!space.merge(update(1, 1), &theirs, None, true).fresh);
        // A write that is not fresh remains so.
        let known = Attributes { fresh: false, ..theirs };
        assert!(!empty().merge(id, &known, None, true).fresh);
    }
}
