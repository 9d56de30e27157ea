//! The keys with instances that are not executed.

use std::collections::BTreeMap;

use serried_model::Key;
use serried_parts::Map;

use super::Client;
use super::lead::Lead;
use crate::frameworks::consensus::instance::InstanceId;
use crate::frameworks::consensus::space::Space;

/// A key with instances that are not executed, or that somebody waits for.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) space: Space,
    /// What this replica is about to have agreed on.
    pub(super) leads: BTreeMap<InstanceId, Box<Lead>>,
    /// Who waits for which instance of this replica's.
    pub(super) clients: BTreeMap<InstanceId, Box<Client>>,
    /// Those that were not committed when they were last looked at, in their order.
    pub(super) late: Vec<InstanceId>,
}

impl Active {
    pub(super) fn new(space: Space) -> Active {
        Active { space, leads: BTreeMap::new(), clients: BTreeMap::new(), late: Vec::new() }
    }
}

/// Such keys. Each is looked up many times and comes and goes once.
#[derive(Debug, Default)]
pub(super) struct ActiveKeys {
    map: Map<Key, Box<Active>>,
}

impl ActiveKeys {
    pub(super) fn get(&self, key: &Key) -> Option<&Active> {
        self.map.get(key).map(|active| &**active)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Active> {
        self.map.get_mut(key).map(|active| &mut **active)
    }

    pub(super) fn insert(&mut self, key: &Key, active: Active) {
        self.map.insert(key.clone(), Box::new(active));
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.map.remove(key);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The position of the first record that an instance needs; none if there is none.
    pub(super) fn need_log_from(&self) -> Option<u64> {
        let first = |active: &Active| active.space.iter().map(|(_, known)| known.recorded).min();
        self.map.least(|active| first(active).unwrap_or(u64::MAX)).filter(|first| *first < u64::MAX)
    }

    /// The keys in their order.
    pub(super) fn sorted(&self) -> Vec<Key> {
        self.map.sorted_keys()
    }
}
