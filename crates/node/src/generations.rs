//! Which generation of a keyspace a node serves.
//!
//! A keyspace is identified by its name and its *generation*. The first keyspace of a name has generation 0. If it is dropped
//! and created again, the new one has the next generation. Nodes need not agree on the generation before they serve. Each
//! node finds it by itself: it keeps the generation that it has, and never returns to one that it has dropped. Messages
//! carry a number that is made of both, so nodes and clients that mean different keyspaces by one name ignore each
//! other's messages.
//!
//! - **Floors rise.** A node that has generation `g` never serves an earlier one. A node that has dropped `g` never serves `g`
//!   again, unless its operator asks for it by its id. The node's disk says so before the node serves.
//! - **One at a time.** A generation is available if a majority serves it. So once a later one is available, no earlier
//!   one can be. This holds for each site if a keyspace has several: a generation is available at a site if a majority
//!   of the site's nodes serves it. Another site may still serve an earlier one, until its own nodes have learned of
//!   the later one.
//! - **No node drops what others use.** A node keeps a keyspace until its own configuration lacks it, or a majority of the
//!   nodes is beyond its generation. In the second case the generation can't be available any more; it was dropped while
//!   the node was away.

use serried_storage::KeyspaceIdentity;

/// What a node knows of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    pub(crate) generation: u32,
    /// The node has dropped this generation.
    pub(crate) dropped: bool,
}

impl Known {
    /// The lowest generation that the node may still serve.
    fn floor(self) -> u32 {
        self.generation.saturating_add(u32::from(self.dropped))
    }
}

/// Chooses the generation of a keyspace that a node of a cluster of `nodes` serves. `own` is what the node itself knows of
/// the name, `others` is what the other nodes know that have answered, and `asked` is the generation in the configuration.
///
/// # Errors
/// Why no generation can be chosen, and what to do.
pub(crate) fn choose(
    name: &str,
    own: Option<Known>,
    others: &[Known],
    nodes: usize,
    asked: Option<u32>,
) -> Result<u32, String> {
    let taken_up = |own: Known, asked| own.dropped && asked == own.generation;
    if let (Some(asked), Some(own)) = (asked, own)
        && asked < own.floor()
        && !taken_up(own, asked)
    {
        let has = own.generation;
        return Err(format!(
            "the configuration says `{name}@{asked}`, and this node has had `{name}@{has}` since: what \
             was dropped before the last one can't be taken up again; leave its `id` out, or, if the other nodes \
             have it, start this node on an empty directory with --rejoin"
        ));
    }
    if let (Some(asked), Some(Known { generation, dropped: false })) = (asked, own)
        && asked > generation
    {
        return Err(format!(
            "the configuration says `{name}@{asked}`, and this node has `{name}@{generation}`: to drop \
             that, start the node once without the keyspace"
        ));
    }
    if let Some(asked) = asked {
        return Ok(asked);
    }
    let highest = others.iter().map(|known| known.floor()).max().unwrap_or_default();
    let mut alive: Vec<u32> =
        others.iter().filter(|known| !known.dropped).map(|known| known.generation).collect();
    alive.sort_unstable();
    match own {
        Some(Known { generation, dropped: false }) => {
            let beyond = others.iter().filter(|known| known.floor() > generation).count();
            Ok(if beyond > nodes / 2 { highest } else { generation })
        }
        None if alive.first() != alive.last() => {
            let (first, last) = (alive[0], alive[alive.len() - 1]);
            Err(format!(
                "some nodes have `{name}@{first}` and others `{name}@{last}`: write the one that is meant \
                 into the configuration, as the keyspace's `id`"
            ))
        }
        own => {
            let floor = own.map_or(0, Known::floor);
            let alive = alive.last().copied().filter(|alive| *alive >= floor);
            Ok(alive.unwrap_or(floor.max(highest)))
        }
    }
}

/// The number that messages of a keyspace carry. Keyspaces that differ in anything that their data depends on have
/// different numbers, apart from hash collisions.
pub(crate) fn number(cluster: &str, keyspace: &KeyspaceIdentity, generation: u32) -> u64 {
    let KeyspaceIdentity { name, protocol, partitions, sites } = keyspace;
    let mut text = format!("{cluster}\n{name}\n{generation}\n{protocol}\n{partitions}");
    // Those with one site have the numbers that they had before there were others.
    if *sites > 1 {
        text += &format!("\n{sites}");
    }
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
    // Mixes the last bytes of the text into all bits.
    let mixed = (hash ^ hash >> 32).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn has(generation: u32) -> Known {
        Known { generation, dropped: false }
    }

    const fn dropped(generation: u32) -> Known {
        Known { generation, dropped: true }
    }

    fn of_three(own: Option<Known>, others: &[Known]) -> u32 {
        choose("a", own, others, 3, None).unwrap()
    }

    #[test]
    fn the_first_of_a_name_is_the_same_on_all_nodes_whichever_starts_first() {
        assert_eq!(of_three(None, &[]), 0);
        assert_eq!(of_three(None, &[has(0)]), 0);
        assert_eq!(of_three(Some(has(0)), &[]), 0);
    }

    #[test]
    fn what_was_dropped_is_followed_by_the_next_whichever_node_begins_or_answers() {
        assert_eq!(of_three(Some(dropped(0)), &[]), 1);
        assert_eq!(of_three(Some(dropped(0)), &[dropped(0), dropped(0)]), 1);
        assert_eq!(of_three(Some(dropped(0)), &[has(1), dropped(0)]), 1);
        // One that has never had it, or has lost its disk.
        assert_eq!(of_three(None, &[dropped(0), dropped(0)]), 1);
        assert_eq!(of_three(None, &[has(1), dropped(0)]), 1);
    }

    #[test]
    fn a_keyspace_goes_on_while_no_majority_has_dropped_it() {
        assert_eq!(of_three(Some(has(0)), &[dropped(0), has(0)]), 0);
        assert_eq!(of_three(Some(has(0)), &[has(1), has(0)]), 0);
        assert_eq!(of_three(Some(has(0)), &[has(1)]), 0);
        // The node that has dropped it does not come back into it by itself.
        assert_eq!(of_three(Some(dropped(0)), &[has(0), has(0)]), 1);
    }

    #[test]
    fn a_node_that_was_away_while_it_was_dropped_follows_the_majority() {
        assert_eq!(of_three(Some(has(0)), &[has(1), has(1)]), 1);
        assert_eq!(of_three(Some(has(0)), &[dropped(0), dropped(0)]), 1);
        assert_eq!(of_three(Some(has(0)), &[dropped(0), has(1)]), 1);
    }

    #[test]
    fn where_two_are_in_use_a_node_that_knows_neither_is_not_to_guess() {
        let error = choose("a", None, &[has(1), has(0)], 3, None).unwrap_err();
        assert!(error.contains("some nodes have `a@0` and others `a@1`"), "{error}");
        assert_eq!(choose("a", None, &[has(1), has(0)], 3, Some(0)), Ok(0));
    }

    #[test]
    fn the_id_of_what_was_dropped_last_takes_it_up_again_and_no_other_does() {
        assert_eq!(choose("a", Some(dropped(1)), &[], 3, Some(1)), Ok(1));
        assert!(choose("a", Some(dropped(1)), &[], 3, Some(0)).is_err());
        assert!(choose("a", Some(has(1)), &[], 3, Some(0)).is_err());
        assert!(choose("a", Some(has(1)), &[], 3, Some(2)).is_err());
        assert_eq!(choose("a", Some(has(1)), &[], 3, Some(1)), Ok(1));
    }

    #[test]
    fn whatever_order_nodes_restart_in_no_earlier_one_is_served_once_a_later_one_is() {
        // All states of three nodes that come of drops and starts, those that answer being any of the others.
        type Nodes = [Option<Known>; 3];
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<(Nodes, u32)> = vec![([None; 3], 0)];
        let served = |nodes: &Nodes| {
            let count = |g| nodes.iter().flatten().filter(|known| **known == has(g)).count();
            (0..4).find(|g| count(*g) >= 2)
        };
        while let Some((nodes, latest)) = open.pop() {
            let key: Vec<_> = nodes.iter().map(|k| k.map(|k| (k.generation, k.dropped))).collect();
            if !seen.insert((key, latest)) || nodes.iter().flatten().any(|k| k.generation > 2) {
                continue;
            }
            if let Some(served) = served(&nodes) {
                assert!(served >= latest, "{nodes:?} after {latest}");
            }
            let latest = latest.max(served(&nodes).unwrap_or(0));
            for i in 0..3 {
                if let Some(Known { generation, dropped: false }) = nodes[i] {
                    let mut next = nodes;
                    next[i] = Some(dropped(generation));
                    open.push((next, latest));
                }
                for answering in 0..4 {
                    let others = (0..3).filter(|other| *other != i).enumerate();
                    let heard = others.filter(|(bit, _)| answering & 1 << bit != 0);
                    let heard: Vec<Known> = heard.filter_map(|(_, other)| nodes[other]).collect();
                    if let Ok(chosen) = choose("a", nodes[i], &heard, 3, None) {
                        let mut next = nodes;
                        next[i] = Some(has(chosen));
                        open.push((next, latest));
                    }
                }
            }
        }
        assert!(seen.len() > 50, "{}", seen.len());
    }

    #[test]
    fn numbers_differ_with_all_that_matters() {
        let keyspace = |name: &str, protocol: &str, partitions, sites| {
            let (name, protocol) = (name.to_string(), protocol.to_string());
            KeyspaceIdentity { name, protocol, partitions, sites }
        };
        let one = number("c", &keyspace("a", "morty", 1, 1), 0);
        assert_eq!(one, 0x4796_70c9_f3e2_ebba, "it is that of earlier releases");
        let others = [
            number("d", &keyspace("a", "morty", 1, 1), 0),
            number("c", &keyspace("b", "morty", 1, 1), 0),
            number("c", &keyspace("a", "morty", 1, 1), 1),
            number("c", &keyspace("a", "ncc", 1, 1), 0),
            number("c", &keyspace("a", "morty", 2, 1), 0),
            number("c", &keyspace("a", "morty", 1, 2), 0),
            number("c", &keyspace("a", "morty", 1, 3), 0),
        ];
        assert!(others.iter().all(|other| *other != one));
        assert_ne!(others[5], others[6]);
    }
}
