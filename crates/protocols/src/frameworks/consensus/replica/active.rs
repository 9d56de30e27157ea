//! The keys with instances that are not executed.

use std::collections::BTreeMap;

use serried_actor::Store;
use serried_model::{Key, NodeId};
use serried_parts::Map;

use super::lead::{Agreed, Lead, Phase};
use super::states::States;
use super::{Client, Cx};
use crate::frameworks::consensus::instance::{
    Ballot, Command, Dependencies, Instance, InstanceId, Status,
};
use crate::frameworks::consensus::message::Record;
use crate::frameworks::consensus::space::Space;

/// A key with instances that are not executed, or for which a client waits.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) space: Space,
    /// The instances that this replica leads.
    pub(super) leads: BTreeMap<InstanceId, Box<Lead>>,
    /// The clients that wait for instances of this replica.
    pub(super) clients: BTreeMap<InstanceId, Box<Client>>,
    /// The instances that were not committed at the last check, in order.
    pub(super) late: Vec<InstanceId>,
}

/// The active keys of a replica. Each key is looked up often, but inserted and removed only once.
#[derive(Debug)]
pub(super) struct ActiveKeys {
    /// The number of members in the group, and the number of this one.
    members: (usize, u8),
    map: Map<Key, Box<Active>>,
}

impl Active {
    fn new(space: Space) -> Active {
        Active { space, leads: BTreeMap::new(), clients: BTreeMap::new(), late: Vec::new() }
    }

    fn is_led_below(&self, id: InstanceId, ballot: Ballot) -> bool {
        self.leads
            .get(&id)
            .is_some_and(|lead| lead.ballot < ballot && !matches!(lead.phase, Phase::Executing(_)))
    }

    /// Stops leading an instance if another replica leads it in a higher ballot. This replica must
    /// not decide anything in a lower ballot from then on. Returns whether it has led the instance.
    pub(super) fn step_down(&mut self, id: InstanceId, ballot: Ballot) -> bool {
        let is_led = self.is_led_below(id, ballot);
        if is_led {
            self.leads.remove(&id);
        }
        is_led
    }

    /// Leaves an instance to its current leader for a period.
    pub(super) fn leave(&mut self, id: InstanceId) {
        self.late.retain(|late| *late != id);
    }

    /// Gives up leading an instance. Other replicas complete it, or this one tries again after a
    /// period.
    pub(super) fn give_up(&mut self, id: InstanceId) {
        self.leads.remove(&id);
        self.leave(id);
    }

    /// Checks an instance periodically from now on, unless it was executed.
    pub(super) fn watch(&mut self, id: InstanceId) {
        if !self.space.is_executed(id) {
            self.space.get_mut(id);
        }
    }
}

impl ActiveKeys {
    /// Creates an empty set of keys, at member `own` of a group of `members`.
    pub(super) fn new(members: usize, own: u8) -> ActiveKeys {
        ActiveKeys { members: (members, own), map: Map::default() }
    }

    /// An active key.
    pub(super) fn get(&self, key: &Key) -> Option<&Active> {
        self.map.get(key).map(|active| &**active)
    }

    /// Mutable access to an active key.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Active> {
        self.map.get_mut(key).map(|active| &mut **active)
    }

    /// Mutable access to a key, which becomes active if it is not.
    pub(super) fn get_or_begin(
        &mut self,
        key: &Key,
        states: &mut States,
        store: &dyn Store,
    ) -> &mut Active {
        if self.get(key).is_none() {
            let (members, _) = self.members;
            let mut executed = states.get(key, store).executed.clone();
            if executed.updates.is_empty() {
                executed = Dependencies::none(members);
            }
            let active = Active::new(Space::new(members, executed));
            self.map.insert(key.clone(), Box::new(active));
        }
        self.get_mut(key).expect("the key is active")
    }

    /// Forgets the instances of a key that are executed and not led here. Removes the key if it has
    /// no other state.
    pub(super) fn forget(&mut self, key: &Key) {
        let Some(active) = self.get_mut(key) else { return };
        let leads = &active.leads;
        active.space.forget(|id| leads.contains_key(&id));
        if active.space.is_empty() && leads.is_empty() && active.clients.is_empty() {
            self.map.remove(key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The keys, in order.
    pub(super) fn sorted(&self) -> Vec<Key> {
        self.map.sorted_keys()
    }

    // Access to single instances.

    /// A known instance.
    pub(super) fn instance(&self, key: &Key, id: InstanceId) -> Option<&Instance> {
        self.get(key)?.space.get(id)
    }

    /// An instance that this replica leads.
    pub(super) fn lead(&mut self, key: &Key, id: InstanceId) -> Option<&mut Lead> {
        self.get_mut(key)?.leads.get_mut(&id).map(|lead| &mut **lead)
    }

    /// Appends an instance to the log. If it depends on instances of this replica's predecessor,
    /// their numbers are not used again.
    pub(super) fn record(&mut self, key: &Key, id: InstanceId, cx: &mut Cx<'_>) {
        let (_, own) = self.members;
        let active = self.get_mut(key).expect("a key with an instance");
        active.space.learn(id);
        active.space.hear_of_those_of(own, id);
        let instance = active.space.get_mut(id);
        instance.recorded = cx.log_position();
        let instance = Box::new(instance.clone());
        cx.append(Record::Instance { key: key.clone(), id, instance });
    }

    /// The position of the first record that an instance needs, if there is one.
    pub(super) fn need_log_from(&self) -> Option<u64> {
        let first = |active: &Active| active.space.iter().map(|(_, known)| known.recorded).min();
        self.map.least(|active| first(active).unwrap_or(u64::MAX)).filter(|first| *first < u64::MAX)
    }

    /// Checks an instance periodically from now on, unless it was executed.
    pub(super) fn watch(&mut self, key: &Key, id: InstanceId) {
        if let Some(active) = self.get_mut(key) {
            active.watch(id);
        }
    }

    /// Leaves an instance to its current leader for a period.
    pub(super) fn leave(&mut self, key: &Key, id: InstanceId) {
        if let Some(active) = self.get_mut(key) {
            active.leave(id);
        }
    }

    /// Leaves an instance to another replica that leads it in this ballot. Stops leading it in a
    /// lower ballot.
    pub(super) fn yield_to(&mut self, key: &Key, id: InstanceId, ballot: Ballot) {
        if let Some(active) = self.get_mut(key) {
            active.leave(id);
            active.step_down(id, ballot);
        }
    }

    /// Removes a replica that has lost its disk from all counts of instances that are led here.
    pub(super) fn count_nothing_of(&mut self, replaced: NodeId) {
        for key in self.sorted() {
            let active = self.get_mut(&key).expect("a key with an instance");
            let mut given_up = Vec::new();
            for (id, lead) in &mut active.leads {
                if lead.count_nothing_of(replaced) {
                    given_up.push(*id);
                }
            }
            given_up.into_iter().for_each(|id| active.give_up(id));
        }
    }

    /// Whether an instance is agreed on or was executed. A key with an undecided instance is
    /// active.
    pub(super) fn is_decided(&self, key: &Key, id: InstanceId) -> bool {
        self.get(key).is_none_or(|Active { space, .. }| {
            space.is_executed(id)
                || space.get(id).is_some_and(|known| known.status == Status::Committed)
        })
    }

    /// Whether this replica knows an update from an instance other than `but_for`. Then the update
    /// may take effect, and can't be refused any more.
    pub(super) fn is_under_way(
        &self,
        key: &Key,
        but_for: Option<InstanceId>,
        command: &Command,
    ) -> bool {
        let same = |known: &Command| known.token == command.token;
        let known = self.get(key).into_iter().flat_map(|active| active.space.iter());
        let mut others = known.filter(|(id, _)| Some(*id) != but_for);
        others.any(|(_, instance)| instance.command.as_ref().is_some_and(same))
    }

    /// Whether this agreement contradicts a known one about the instance. No correct sender
    /// contradicts an agreement.
    pub(super) fn contradict(&self, key: &Key, id: InstanceId, agreed: &Agreed) -> bool {
        let (command, attributes) = agreed;
        self.instance(key, id).is_some_and(|known| {
            known.status == Status::Committed
                && (known.command != *command || known.attributes != *attributes)
        })
    }
}
