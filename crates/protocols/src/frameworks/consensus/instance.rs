//! Instances: the slots in which commands are agreed on (001 §4.3.1, "EPaxos"; Fig. 4.5).

use serde::{Deserialize, Serialize};
use serried_actor::NodeSet;
use serried_model::{Access, Key, Version};
use serried_parts::Stamped;
use smallvec::SmallVec;

/// The kinds of commands. An update interferes with every command, a read only with updates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// It may change the value.
    Update,
    /// It does not change the value.
    Read,
}

/// An instance of one key. Each replica numbers the instances that it coordinates from 1,
/// separately for reads and updates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct InstanceId {
    /// The kind of its command.
    pub kind: Kind,
    /// The replica that coordinates it.
    pub member: u8,
    /// Its number.
    pub number: u64,
}

impl InstanceId {
    /// Whether another instance has the same coordinator and kind.
    pub fn is_in_row_of(&self, other: InstanceId) -> bool {
        self.kind == other.kind && self.member == other.member
    }
}

/// A ballot. Ballots are ordered. The lowest one belongs to the instance's own coordinator.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ballot {
    /// From 0.
    pub number: u64,
    /// The replica that leads it.
    pub member: u8,
}

/// A command that a client requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    /// Identifies the command if it arrives again.
    pub token: Version,
    /// Its client does not retry commands with tokens below this one.
    pub settled: Version,
    /// The operation.
    pub access: Access,
    /// Values that its client has read and that less than a majority may hold (001 §4.6.2). A
    /// replica that receives the command first stores these values.
    pub brings: Vec<(Key, Stamped)>,
}

impl Command {
    /// The kind, which determines the commands that it interferes with.
    pub fn kind(&self) -> Kind {
        if self.access == Access::Read { Kind::Read } else { Kind::Update }
    }
}

/// For each coordinator, the number up to which its instances precede, or 0 if none does.
pub type Numbers = SmallVec<[u64; 5]>;

/// The interfering instances that precede a command, or are in a cycle with it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dependencies {
    /// Updates, by their coordinators.
    pub updates: Numbers,
    /// Reads.
    pub reads: Numbers,
}

impl Dependencies {
    /// No dependencies, in a group of `members` coordinators.
    pub fn none(members: usize) -> Dependencies {
        let none = SmallVec::from_elem(0, members);
        Dependencies { updates: none.clone(), reads: none }
    }

    /// The dependency on an instance's row.
    pub fn row(&self, id: InstanceId) -> u64 {
        let row = match id.kind {
            Kind::Update => &self.updates,
            Kind::Read => &self.reads,
        };
        row.get(usize::from(id.member)).copied().unwrap_or(0)
    }

    /// Mutable access to the dependency on an instance's row.
    pub fn row_mut(&mut self, id: InstanceId) -> &mut u64 {
        let row = match id.kind {
            Kind::Update => &mut self.updates,
            Kind::Read => &mut self.reads,
        };
        &mut row[usize::from(id.member)]
    }

    /// Whether they contain an instance.
    pub fn cover(&self, id: InstanceId) -> bool {
        id.number <= self.row(id)
    }

    /// Adds the dependencies of `other`.
    pub fn add(&mut self, other: &Dependencies) {
        let pairs = self.updates.iter_mut().zip(&other.updates);
        let pairs = pairs.chain(self.reads.iter_mut().zip(&other.reads));
        pairs.for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }

    /// Whether all of them are within `done`.
    pub fn are_within(&self, done: &Dependencies) -> bool {
        let within =
            |rows: &Numbers, done: &Numbers| rows.iter().zip(done).all(|(row, d)| row <= d);
        within(&self.updates, &done.updates) && within(&self.reads, &done.reads)
    }

    /// The instances beyond `done`: for each row, the last one and the number of the first.
    pub fn ranges(&self, done: &Dependencies) -> Vec<(InstanceId, u64)> {
        let rows =
            [(Kind::Update, &self.updates, &done.updates), (Kind::Read, &self.reads, &done.reads)];
        let ranges = rows.into_iter().flat_map(|(kind, rows, done)| {
            let rows = rows.iter().zip(done).enumerate();
            rows.map(move |(member, (last, done))| {
                (InstanceId { kind, member: member as u8, number: *last }, done + 1)
            })
        });
        ranges.filter(|(last, first)| last.number >= *first).collect()
    }
}

/// The attributes of an instance on which replicas agree, besides its command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    /// Its sequence number, which orders commands that depend on each other.
    pub sequence: u64,
    /// The instances that precede it.
    pub dependencies: Dependencies,
    /// Gryff's base update (001 §4.3.3). The command is executed on it, or on the result of the
    /// preceding command if that is later. `None` in EPaxos.
    pub base: Option<Stamped>,
    /// Whether it is a write that no replica has executed before, in this instance or in another. A
    /// fresh write is executed in any case.
    pub fresh: bool,
}

impl Attributes {
    /// The attributes of a no-op.
    pub fn of_no_op(members: usize) -> Attributes {
        let dependencies = Dependencies::none(members);
        Attributes { sequence: 0, dependencies, base: None, fresh: false }
    }

    /// Adds the attributes that another replica assigns to the same command.
    pub fn add(&mut self, other: &Attributes) {
        self.sequence = self.sequence.max(other.sequence);
        self.dependencies.add(&other.dependencies);
        self.fresh &= other.fresh;
        Stamped::raise_base(&mut self.base, &other.base);
    }
}

/// The state of an instance at a replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Status {
    /// The replica knows that the instance exists.
    Known,
    /// It has the attributes that this replica assigns to it.
    PreAccepted,
    /// It has the attributes on which a majority is asked to agree.
    Accepted,
    /// Its command and attributes are agreed on.
    Committed,
}

/// A replica's knowledge of an instance. The promised ballot may differ from the ballot in which
/// the attributes were accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Instance {
    /// Its command. `None` if it is unknown, or if the instance is a no-op.
    pub command: Option<Command>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its state.
    pub status: Status,
    /// The replica takes part in no ballot below this one.
    pub promised: Ballot,
    /// The ballot of its attributes, if it has accepted them.
    pub accepted: Ballot,
    /// The fast quorum: the instance can be committed in one round trip if these replicas agree. It
    /// includes the coordinator.
    pub quorum: NodeSet,
    /// The instances that preceded it, as far as its coordinator knew when it began.
    pub initial: Dependencies,
    /// The position of its last record in this replica's log, or `u64::MAX` if there is none.
    #[serde(skip)]
    pub recorded: u64,
}

impl Instance {
    /// An unknown instance.
    pub fn unknown(members: usize) -> Instance {
        Instance {
            command: None,
            attributes: Attributes::of_no_op(members),
            status: Status::Known,
            promised: Ballot::default(),
            accepted: Ballot::default(),
            quorum: NodeSet::EMPTY,
            initial: Dependencies::none(members),
            recorded: u64::MAX,
        }
    }
}

/// An instance in the format of earlier releases' logs. Its command is not fresh.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstanceBefore {
    command: Option<Command>,
    attributes: (u64, Dependencies, Option<Stamped>),
    status: Status,
    promised: Ballot,
    accepted: Ballot,
    quorum: NodeSet,
    initial: Dependencies,
}

impl From<InstanceBefore> for Instance {
    fn from(before: InstanceBefore) -> Instance {
        let InstanceBefore { command, attributes, status, promised, accepted, quorum, initial } =
            before;
        let (sequence, dependencies, base) = attributes;
        let attributes = Attributes { sequence, dependencies, base, fresh: false };
        let recorded = u64::MAX;
        Instance { command, attributes, status, promised, accepted, quorum, initial, recorded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_in_logs_of_earlier_releases_are_read() {
        let mut instance = Instance::unknown(3);
        instance.attributes.sequence = 7;
        instance.status = Status::Accepted;
        instance.promised = Ballot { number: 2, member: 1 };
        let Attributes { sequence, dependencies, base, .. } = instance.attributes.clone();
        let Instance { command, status, promised, accepted, quorum, initial, .. } =
            instance.clone();
        // The fields in the order of the log.
        let before =
            (command, (sequence, dependencies, base), status, promised, accepted, quorum, initial);
        let bytes = postcard::to_allocvec(&before).unwrap();
        let read: InstanceBefore = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(Instance::from(read), instance);
    }

    #[test]
    fn dependencies_are_all_up_to_a_number_of_each_row() {
        let id = |kind, member, number| InstanceId { kind, member, number };
        let (mut all, mut done) = (Dependencies::none(3), Dependencies::none(3));
        *all.row_mut(id(Kind::Update, 1, 0)) = 4;
        *all.row_mut(id(Kind::Read, 2, 0)) = 1;
        *done.row_mut(id(Kind::Update, 1, 0)) = 2;
        assert!(all.cover(id(Kind::Update, 1, 4)) && !all.cover(id(Kind::Update, 1, 5)));
        assert!(!all.cover(id(Kind::Update, 0, 1)) && all.cover(id(Kind::Read, 2, 1)));
        let left = [(id(Kind::Update, 1, 4), 3), (id(Kind::Read, 2, 1), 1)];
        assert_eq!(all.ranges(&done), left);
        done.add(&all);
        assert_eq!(done, all);
    }
}
