//! What a client or a node knows about the keyspaces of each node.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::handshake::KeyspaceInfo;
use crate::status::NotServed;

/// The keyspaces of each node that has answered, by its last answer. A name means the keyspace of that name that a majority
/// of the nodes has.
#[derive(Debug, Default)]
pub struct Tables {
    /// How many nodes there are.
    nodes: usize,
    by_member: BTreeMap<usize, Vec<KeyspaceInfo>>,
}

/// Why a name means no keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unresolved {
    /// No node has a keyspace of that name.
    Unknown {
        /// The names that there are.
        existing: Vec<String>,
    },
    /// A majority of the nodes has no keyspace of this name, or other ones.
    NotServed(NotServed),
}

impl Tables {
    /// Notes the keyspaces of node `member`, in a cluster of `nodes`.
    pub fn put(&mut self, member: usize, nodes: usize, keyspaces: Vec<KeyspaceInfo>) {
        self.nodes = nodes;
        self.by_member.insert(member, keyspaces);
    }

    /// All keyspaces that can be used, in the order of the nodes that list them.
    pub fn all(&self) -> Vec<KeyspaceInfo> {
        self.names().iter().filter_map(|name| self.resolve(name).ok()).cloned().collect()
    }

    /// Those that can't, and why.
    pub fn not_served(&self) -> Vec<NotServed> {
        let refused = |name: String| match self.resolve(&name) {
            Err(Unresolved::NotServed(refused)) => Some(refused),
            Ok(_) | Err(Unresolved::Unknown { .. }) => None,
        };
        self.names().into_iter().filter_map(refused).collect()
    }

    /// The keyspaces of node `member` in which it takes no part: a majority of the nodes has others by the same names.
    pub fn outside(&self, member: usize) -> Vec<NotServed> {
        let all = || self.by_member.values().flatten();
        let of_majority = |theirs: &&KeyspaceInfo| {
            all().filter(|other| other.number == theirs.number).count() > self.nodes / 2
        };
        let own = self.by_member.get(&member).into_iter().flatten();
        let outside = |own: &KeyspaceInfo| {
            let name = own.name.clone();
            let theirs = all().filter(|other| other.name == name).find(of_majority)?;
            let reason = (theirs.number != own.number).then(|| {
                format!(
                    "takes no part in keyspace `{name}`: it has {}, and a majority of the nodes has {}; to have it \
                     take part in theirs, start it on an empty directory with --rejoin",
                    own.description(),
                    theirs.description()
                )
            })?;
            Some(NotServed { name, reason })
        };
        own.filter_map(outside).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for keyspace in self.by_member.values().flatten() {
            if !names.contains(&keyspace.name) {
                names.push(keyspace.name.clone());
            }
        }
        names
    }

    /// Whether a majority of these nodes may have the keyspace with this number. Nodes that have not answered yet may
    /// have it.
    pub fn may_serve(&self, number: u64, nodes: Range<usize>) -> bool {
        let among = self.by_member.range(nodes.clone());
        let lacking = among.filter(|(_, all)| all.iter().all(|keyspace| keyspace.number != number));
        nodes.len() - lacking.count() > nodes.len() / 2
    }

    /// The keyspace that `name` means. Nodes that have not answered yet may have it.
    ///
    /// # Errors
    /// [`Unresolved::Unknown`] if no node has a keyspace of that name; [`Unresolved::NotServed`] if so many nodes have none,
    /// or another one, that no majority can have the same.
    pub fn resolve(&self, name: &str) -> Result<&KeyspaceInfo, Unresolved> {
        let on = |keyspaces: &'_ Vec<KeyspaceInfo>| keyspaces.iter().position(|k| k.name == name);
        let having: Vec<&KeyspaceInfo> =
            self.by_member.values().filter_map(|all| on(all).map(|i| &all[i])).collect();
        let count =
            |found: &KeyspaceInfo| having.iter().filter(|k| k.number == found.number).count();
        let Some(best) = having.iter().max_by_key(|k| (count(k), k.generation)) else {
            return Err(Unresolved::Unknown { existing: self.names() });
        };
        let lacking = self.by_member.len() - count(best);
        if self.nodes - lacking > self.nodes / 2 {
            return Ok(best);
        }
        let says = |(member, all): (&usize, &Vec<KeyspaceInfo>)| match on(all) {
            Some(i) => format!("n{member} has {}", all[i].description()),
            None => format!("n{member} has none"),
        };
        let found: Vec<String> = self.by_member.iter().map(says).collect();
        let reason = format!(
            "keyspace `{name}` is not served: {}; give all nodes the same one, and start them again",
            found.join(", ")
        );
        Err(Unresolved::NotServed(NotServed { name: name.to_string(), reason }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_actor::Settings;

    fn keyspace(name: &str, generation: u32) -> KeyspaceInfo {
        KeyspaceInfo {
            name: name.to_string(),
            generation,
            number: u64::from(generation) + 100 * u64::from(name.as_bytes()[0]),
            first_shard: 0,
            protocol: "morty".to_string(),
            guarantee: "serializable".to_string(),
            partitions: 1,
            sites: 1,
            settings: Settings::default(),
        }
    }

    fn tables(all: &[&[(&str, u32)]]) -> Tables {
        let mut tables = Tables::default();
        for (member, keyspaces) in all.iter().enumerate() {
            let keyspaces = keyspaces.iter().map(|(name, g)| keyspace(name, *g)).collect();
            tables.put(member, 3, keyspaces);
        }
        tables
    }

    #[test]
    fn a_name_stands_for_what_a_majority_means_by_it() {
        let tables = tables(&[&[("a", 0)], &[("b", 0), ("a", 1)], &[("a", 1), ("b", 0)]]);
        assert_eq!(tables.resolve("a").unwrap().generation, 1);
        assert_eq!(tables.resolve("b").unwrap().generation, 0);
        assert_eq!(tables.all().len(), 2);
    }

    #[test]
    fn a_name_does_not_stand_for_a_later_keyspace_that_one_node_has_by_itself() {
        let tables = tables(&[&[("a", 0)], &[("a", 1)], &[("a", 0)]]);
        assert_eq!(tables.resolve("a").unwrap().generation, 0);
    }

    #[test]
    fn a_node_with_another_keyspace_than_a_majority_is_outside_of_it() {
        let alone = tables(&[&[("a", 0)], &[("a", 0)], &[("b", 0), ("a", 1)]]);
        let outside = alone.outside(2);
        let [NotServed { name, reason }] = &outside[..] else { panic!("{outside:?}") };
        assert_eq!(name, "a");
        assert!(reason.contains("it has a@1") && reason.contains("has a@0"), "{reason}");
        assert!(reason.contains("--rejoin"), "{reason}");
        assert_eq!((alone.outside(0), alone.outside(1)), (Vec::new(), Vec::new()));
        // Those that have not answered may have the same.
        assert_eq!(tables(&[&[("a", 0)], &[], &[("a", 1)]]).outside(2), []);
        assert_eq!(tables(&[&[("a", 0)], &[("a", 1)], &[("a", 2)]]).outside(2), []);
    }

    #[test]
    fn what_a_majority_lacks_is_refused_by_name_with_what_there_is() {
        let tables = tables(&[&[("a", 0), ("b", 0)], &[("b", 0)], &[("b", 0)]]);
        let refused = tables.not_served();
        let [NotServed { name, reason }] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(name, "a");
        assert!(reason.contains("`a`") && reason.contains("n0 has a@0"), "{reason}");
        assert!(reason.contains("n1 has none, n2 has none"), "{reason}");
        assert_eq!(tables.resolve("a").unwrap_err(), Unresolved::NotServed(refused[0].clone()));
        assert_eq!(tables.all().len(), 1);
    }

    #[test]
    fn a_name_is_not_used_if_each_node_means_another_keyspace() {
        let tables = tables(&[&[("a", 0)], &[("a", 1)], &[("a", 2)]]);
        let Err(Unresolved::NotServed(refused)) = tables.resolve("a") else { panic!("it is used") };
        let reason = refused.reason;
        assert!(reason.contains("n0 has a@0") && reason.contains("n2 has a@2"), "{reason}");
    }

    #[test]
    fn nodes_that_have_not_answered_may_have_it() {
        let tables = tables(&[&[("a", 0)]]);
        assert!(tables.resolve("a").is_ok());
        assert!(tables.resolve("c").is_err());
    }

    #[test]
    fn a_majority_of_the_nodes_of_a_site_may_have_what_no_node_has_denied() {
        let tables = tables(&[&[("a", 0)], &[("b", 0)], &[], &[("a", 0)]]);
        let number = keyspace("a", 0).number;
        assert!(!tables.may_serve(number, 0..3));
        assert!(tables.may_serve(number, 3..6), "two have not answered");
        assert!(tables.may_serve(number, 0..1) && !tables.may_serve(number, 1..2));
    }
}
