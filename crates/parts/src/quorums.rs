//! Asking the replicas of a partition for what a majority of them can answer.

use core::time::Duration;
use std::collections::BTreeMap;

use serried_actor::{Group, NodeSet};
use serried_model::NodeId;

/// How long to wait at most for a leader that is near.
const ASK_ANOTHER_AT_MOST: Duration = Duration::from_millis(150);
/// The longest wait before a request is repeated, but where a round trip takes longer.
const REPEAT_AT_MOST: Duration = Duration::from_secs(2);

const _: () = assert!(
    ASK_ANOTHER_AT_MOST.as_millis() < REPEAT_AT_MOST.as_millis(),
    "another replica is asked for the leader before a request is only repeated"
);

/// Which replicas of a partition one participant asks: all, or, if it is thrifty, only as many as have to answer (001
/// §4.5.1). These are the nearest ones that are not slow. If one of them does not answer in time, it asks the others.
#[derive(Debug)]
pub struct Quorums {
    group: Group,
    thrifty: bool,
    /// The replicas that did not answer a request in time, and have not answered since.
    slow: NodeSet,
    /// The replicas that have lost their disks: the latest incarnation that is known of each, and the value of `news` when it
    /// became known.
    replaced: BTreeMap<NodeId, (u64, u64)>,
    /// How many later incarnations have become known so far.
    news: u64,
}

/// A request to replicas of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    partition: u16,
    to: NodeSet,
    replied: NodeSet,
    repeated: u32,
    /// The value of [`Quorums::news`] when `replied` was last updated.
    news: u64,
}

impl Quorums {
    /// A participant's, for `group` as it knows it.
    pub fn new(group: Group, thrifty: bool) -> Quorums {
        Quorums { group, thrifty, slow: NodeSet::EMPTY, replaced: BTreeMap::new(), news: 0 }
    }

    /// The replicas.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// A request to the replicas of a partition. Those in `replied` are not asked, and count as if they had replied.
    pub fn ask(&self, partition: u16, replied: NodeSet) -> Asked {
        let missing = self.group.majority().saturating_sub(replied.len());
        let to = match self.thrifty {
            true => self.nearest(partition, missing, replied),
            false => self.group.all().without(replied),
        };
        Asked { partition, to, replied, repeated: 0, news: self.news }
    }

    /// The `n` nearest replicas of a partition except `besides`. Slow replicas come last.
    pub fn nearest(&self, partition: u16, n: usize, besides: NodeSet) -> NodeSet {
        let nearest = || (0..self.group.size()).map(|i| self.group.choice(partition, i));
        let quick = nearest().filter(|replica| !self.slow.contains(*replica));
        let slow = nearest().filter(|replica| self.slow.contains(*replica));
        quick.chain(slow).filter(|replica| !besides.contains(*replica)).take(n).collect()
    }

    /// Some replicas have not answered in time: asks all that have not answered.
    pub fn ask_again(&mut self, asked: &mut Asked) {
        asked.replied = self.counted(asked);
        asked.news = self.news;
        self.are_slow(asked.waiting());
        asked.to = self.group.all();
        asked.repeated += 1;
    }

    /// These replicas have not answered in time.
    pub fn are_slow(&mut self, slow: NodeSet) {
        self.slow = self.slow.union(slow);
    }

    /// A replica has sent something.
    pub fn is_there(&mut self, from: NodeId) {
        if self.slow.contains(from) {
            self.slow = self.slow.without([from].into_iter().collect());
        }
    }

    /// A replica has replied. Returns whether that is its first reply.
    pub fn replied(&mut self, asked: &mut Asked, from: NodeId) -> bool {
        self.is_there(from);
        asked.replied = self.counted(asked);
        asked.news = self.news;
        asked.replied.insert(from)
    }

    /// Whether a majority has replied.
    pub fn have_replied(&self, asked: &Asked) -> bool {
        self.counted(asked).len() >= self.group.majority()
    }

    /// Takes in the incarnations that a reply names ([`crate::Incarnations::named`]). Earlier replies of the incarnations
    /// that they replace do not count any more. Returns whether this reply counts: it does not if a later incarnation of
    /// its sender is known.
    pub fn hear(&mut self, from: NodeId, named: &[u64]) -> bool {
        for (member, incarnation) in named.iter().enumerate().take(self.group.size()) {
            let node = NodeId::replica(from.partition(), member);
            if *incarnation > self.incarnation(node) {
                self.news += 1;
                self.replaced.insert(node, (*incarnation, self.news));
            }
        }
        named.get(from.member()).copied().unwrap_or(0) >= self.incarnation(from)
    }

    /// The latest incarnation of a replica that is known.
    fn incarnation(&self, node: NodeId) -> u64 {
        self.replaced.get(&node).map_or(0, |(incarnation, _)| *incarnation)
    }

    /// The replicas that have replied and were not replaced since.
    pub fn counted(&self, asked: &Asked) -> NodeSet {
        if asked.news == self.news {
            return asked.replied;
        }
        let members =
            asked.replied.members().map(|member| NodeId::replica(asked.partition, member));
        let is_replaced =
            |node: &NodeId| self.replaced.get(node).is_some_and(|(_, news)| *news > asked.news);
        members.filter(|node| !is_replaced(node)).collect()
    }

    /// How long to wait for the answer to a request that was repeated `times` times before repeating it
    /// again.
    pub fn patience(&self, times: u32) -> Duration {
        doubled(2 * self.group.round_trip() + Duration::from_millis(20), times)
    }
}

/// How long to wait for a replica of `group` that does all of an operation, asking others on its way, before
/// handing it to another, if it was handed to `times` others before.
pub fn patience_with_proxy(group: &Group, times: u32) -> Duration {
    doubled(4 * group.round_trip() + Duration::from_millis(50), times)
}

/// How long to wait for the leader of a partition to answer, before asking another replica of `group` who leads, if it
/// was asked `times` times before. It grows less than other waits do: a client that asks too early, while a new leader is
/// elected, must not lose that much time again.
pub fn patience_with_leader(group: &Group, times: u32) -> Duration {
    let first = patience_with_proxy(group, 0);
    patience_with_proxy(group, times).min(ASK_ANOTHER_AT_MOST.max(2 * first))
}

fn doubled(first: Duration, times: u32) -> Duration {
    (first * (1 << times.min(10))).min(first.max(REPEAT_AT_MOST))
}

impl Asked {
    /// The replicas that were asked and have not replied.
    pub fn waiting(&self) -> NodeSet {
        self.to.without(self.replied)
    }

    /// How often it was repeated.
    pub fn repeated(&self) -> u32 {
        self.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(members: &[usize]) -> NodeSet {
        members.iter().map(|member| NodeId(*member as u64)).collect()
    }

    #[test]
    fn who_is_thrifty_asks_a_majority_of_the_nearest_that_answer() {
        let group = Group::nearest_first(vec![2, 0, 1, 4, 3], Duration::ZERO);
        let mut quorums = Quorums::new(group, true);
        let mut asked = quorums.ask(0, set(&[2]));
        assert_eq!(asked.waiting(), set(&[0, 1]));
        assert!(quorums.replied(&mut asked, NodeId(0)) && !quorums.replied(&mut asked, NodeId(0)));
        assert!(!quorums.have_replied(&asked));
        quorums.ask_again(&mut asked);
        assert_eq!(asked.waiting(), set(&[1, 3, 4]));
        assert_eq!(quorums.ask(0, set(&[2])).waiting(), set(&[0, 4]), "1 is slow");
        assert!(quorums.replied(&mut asked, NodeId(1)) && quorums.have_replied(&asked));
        assert_eq!(quorums.ask(0, set(&[2])).waiting(), set(&[0, 1]));
    }

    #[test]
    fn a_reply_of_a_replica_that_was_replaced_since_does_not_count() {
        let mut quorums = Quorums::new(Group::new(3, Duration::ZERO).with_partitions(2), false);
        let mut asked = quorums.ask(1, NodeSet::EMPTY);
        let node = |member| NodeId::replica(1, member);
        assert!(quorums.hear(node(0), &[]) && quorums.replied(&mut asked, node(0)));
        // Replica 1 knows that 0 has lost its disk since.
        assert!(quorums.hear(node(1), &[7, 0, 0]) && quorums.replied(&mut asked, node(1)));
        assert!(!quorums.have_replied(&asked));
        assert!(!quorums.hear(node(0), &[]), "what its predecessor said comes late");
        assert!(quorums.hear(node(0), &[7, 0, 0]) && quorums.replied(&mut asked, node(0)));
        assert!(quorums.have_replied(&asked));
        // In another partition the same machine's replica has lost nothing.
        assert!(quorums.hear(NodeId(0), &[]));
        // A request that was complete is not complete any more if that becomes known first.
        assert!(quorums.hear(node(2), &[7, 8, 0]) && !quorums.have_replied(&asked));
        quorums.ask_again(&mut asked);
        assert_eq!(asked.waiting(), set(&[1, 2]));
    }

    #[test]
    fn who_is_not_thrifty_asks_all() {
        let quorums = Quorums::new(Group::new(3, Duration::ZERO), false);
        assert_eq!(quorums.ask(0, NodeSet::EMPTY).waiting(), set(&[0, 1, 2]));
        assert_eq!(quorums.ask(0, set(&[1])).waiting(), set(&[0, 2]));
    }
}
