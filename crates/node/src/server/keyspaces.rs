//! Which keyspaces the nodes have, and in what those of two nodes differ.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serried_wire::{KeyspaceInfo, Tables, Welcome};

/// The keyspaces of this node, and of the others as each said last.
pub(crate) struct Keyspaces {
    own: Vec<KeyspaceInfo>,
    /// How many nodes there are.
    nodes: usize,
    tables: Mutex<Tables>,
}

impl Keyspaces {
    /// Those of node `member` of so many.
    pub(super) fn new(member: usize, nodes: usize, own: Vec<KeyspaceInfo>) -> Keyspaces {
        let mut tables = Tables::default();
        tables.put(member, nodes, own.clone());
        Keyspaces { own, nodes, tables: Mutex::new(tables) }
    }

    /// Those of this node, in the order of its configuration.
    pub(super) fn own(&self) -> &[KeyspaceInfo] {
        &self.own
    }

    /// Those of all nodes.
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another node has said which keyspaces it has.
    pub(crate) fn learn(&self, other: &Welcome) {
        self.tables().put(other.node.member(), self.nodes, other.keyspaces.clone());
    }

    /// The keyspaces that another node has in another generation or configuration. The two nodes ignore each other's
    /// messages for these.
    pub(crate) fn differences(&self, other: &Welcome) -> Vec<String> {
        let differs = |own: &&KeyspaceInfo| {
            let other = other.keyspaces.iter().find(|other| other.name == own.name)?;
            let (has, own_has) = (other.description(), own.description());
            (other.number != own.number).then(|| format!("it has {has}, and this node {own_has}"))
        };
        self.own.iter().filter_map(|own| differs(&own)).collect()
    }

    /// The settings in which a keyspace that the two nodes serve together differs, with both values.
    pub(crate) fn other_settings(&self, other: &Welcome) -> Vec<String> {
        let other = |own: &KeyspaceInfo| other.keyspaces.iter().find(|k| k.number == own.number);
        let differences = |own: &KeyspaceInfo| other(own).map(|other| settings(own, other));
        self.own.iter().filter_map(differences).flatten().collect()
    }
}

/// How the settings of one keyspace differ on two nodes, with both values.
fn settings(own: &KeyspaceInfo, other: &KeyspaceInfo) -> Vec<String> {
    let table = |settings| toml::Table::try_from(settings).unwrap_or_default();
    let (owns, others) = (table(own.settings), table(other.settings));
    let differs = |(setting, value): (&String, &toml::Value)| {
        let has = others.get(setting).filter(|has| *has != value)?;
        let name = &own.name;
        Some(format!("`{name}`: it has {setting} = {has}, and this node {setting} = {value}"))
    };
    owns.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_named_with_both_values() {
        let own = Welcome::example().keyspaces.remove(0);
        assert!(settings(&own, &own).is_empty());
        let mut other = own.clone();
        other.settings.clock_bound_ms = 7;
        let differences = settings(&own, &other);
        let text = "`accounts`: it has clock_bound_ms = 7, and this node clock_bound_ms = 2000";
        assert_eq!(differences, [text]);
    }
}
