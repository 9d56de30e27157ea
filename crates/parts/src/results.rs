//! The results of updates, so that an update that is tried again takes effect once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serried_actor::ClockInterval;
use serried_model::{NodeId, Version};
use smallvec::SmallVec;

use crate::VersionClock;

/// The results of a key's updates, by their tokens. A result is remembered until its client does not try the update any
/// more, or for a limited time by the tokens' timestamps. So replicas that execute updates in the same order remember
/// the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Results<F> {
    /// In the order of their clients.
    remembered: Vec<Remembered<F>>,
    /// The results of older updates are forgotten, in microseconds since the Unix epoch.
    forgotten_before_us: u64,
}

/// The results of one client's updates that it may try again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Remembered<F> {
    client: NodeId,
    /// Older updates are not executed any more: the client does not try them again, or they were refused.
    settled_us: u64,
    /// In the order of their tokens' times.
    results: SmallVec<[(u64, F); 1]>,
}

/// What is known of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recalled<F> {
    /// It was not executed.
    Nothing,
    /// It was executed, with this result.
    Result(F),
    /// It is so old that its result is forgotten, if it was executed.
    Forgotten,
}

impl<F> Default for Results<F> {
    fn default() -> Self {
        Results { remembered: Vec::new(), forgotten_before_us: 0 }
    }
}

impl<F: Clone> Results<F> {
    /// How many clients may have an update refused by [`Results::refuse`] and no result.
    const REFUSED_AT_MOST: usize = 1024;
    /// With more clients than that, results are forgotten with one update of [`Results::FEW_TIMES`].
    const FEW_CLIENTS: usize = 16;
    const FEW_TIMES: u64 = 64;

    /// What is known of an update. The client of `settled` does not try tokens below it any more, so their results are
    /// forgotten.
    pub fn recall_and_settle(&mut self, token: Version, settled: Version) -> Recalled<F> {
        if let Ok(at) = self.of(settled.coordinator) {
            let remembered = &mut self.remembered[at];
            remembered.settled_us = remembered.settled_us.max(settled.timestamp_us);
            // Results below a refused update stay: they may still be asked for.
            remembered.results.retain(|(us, _)| *us >= settled.timestamp_us);
        }
        self.recall(token)
    }

    /// What is known of an update.
    pub fn recall(&self, token: Version) -> Recalled<F> {
        let us = token.timestamp_us;
        if us < self.forgotten_before_us {
            return Recalled::Forgotten;
        }
        let Ok(at) = self.of(token.coordinator) else { return Recalled::Nothing };
        let remembered = &self.remembered[at];
        match remembered.results.binary_search_by_key(&us, |(us, _)| *us) {
            Ok(at) => Recalled::Result(remembered.results[at].1.clone()),
            Err(_) if us < remembered.settled_us => Recalled::Forgotten,
            Err(_) => Recalled::Nothing,
        }
    }

    /// Notes the result of an update. Results of tokens that are older by `remembered_us` microseconds may be
    /// forgotten. Only updates up to the latest result that was forgotten count as forgotten. So a token whose time is
    /// far ahead does not prevent other updates.
    pub fn remember(&mut self, token: Version, settled: Version, result: F, remembered_us: u64) {
        let (us, client) = (token.timestamp_us, token.coordinator);
        let at = self.of(client).unwrap_or_else(|at| {
            let own = settled.coordinator == client;
            let settled_us = if own { settled.timestamp_us } else { 0 };
            let results = SmallVec::new();
            self.remembered.insert(at, Remembered { client, settled_us, results });
            at
        });
        let results = &mut self.remembered[at].results;
        let at = results.partition_point(|(other, _)| *other < us);
        results.insert(at, (us, result));
        // All clients are gone through. If there are many, that is not done for each update. All replicas choose the same.
        if self.remembered.len() <= Self::FEW_CLIENTS || us.is_multiple_of(Self::FEW_TIMES) {
            self.forget_before(us.saturating_sub(remembered_us));
        }
    }

    fn forget_before(&mut self, before_us: u64) {
        let mut forgotten_us = self.forgotten_before_us;
        for remembered in &mut self.remembered {
            let old = remembered.results.partition_point(|(us, _)| *us < before_us);
            if let Some((latest_us, _)) = remembered.results.drain(..old).next_back() {
                forgotten_us = forgotten_us.max(latest_us.saturating_add(1));
            }
        }
        self.remembered.retain(|remembered| {
            let stays = !remembered.results.is_empty() || remembered.settled_us >= before_us;
            if !stays {
                forgotten_us = forgotten_us.max(remembered.settled_us);
            }
            stays
        });
        self.forgotten_before_us = forgotten_us;
    }

    /// The results of older updates are forgotten, in microseconds since the Unix epoch.
    pub fn forgotten_before_us(&self) -> u64 {
        self.forgotten_before_us
    }

    /// Refuses an update permanently: it counts as forgotten from now on, and so do all earlier updates of its client that
    /// were not executed. Returns false and does nothing if something is known of the update, or if too many clients have
    /// refused updates.
    pub fn refuse(&mut self, token: Version) -> bool {
        if !matches!(self.recall(token), Recalled::Nothing) {
            return false;
        }
        let Some(settled_us) = token.timestamp_us.checked_add(1) else { return false };
        let at = match self.of(token.coordinator) {
            Ok(at) => at,
            Err(at) => {
                let without = |remembered: &&Remembered<F>| remembered.results.is_empty();
                if self.remembered.iter().filter(without).count() >= Self::REFUSED_AT_MOST {
                    return false;
                }
                let (client, results) = (token.coordinator, SmallVec::new());
                self.remembered.insert(at, Remembered { client, settled_us: 0, results });
                at
            }
        };
        self.remembered[at].settled_us = settled_us;
        true
    }

    /// How many results are remembered.
    pub fn len(&self) -> usize {
        self.remembered.iter().map(|remembered| remembered.results.len()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of a client's results, or where they would be.
    fn of(&self, client: NodeId) -> Result<usize, usize> {
        self.remembered.binary_search_by_key(&client, |remembered| remembered.client)
    }
}

/// The requests that a replica has refused. It goes on refusing them, because it has answered that they do not take
/// effect. They are in the replica's log, so that it refuses them after a restart too.
#[derive(Debug, Default)]
pub struct Refusals {
    /// By client: the latest refused request. Earlier requests that arrive after it are refused as well.
    latest: BTreeMap<NodeId, u64>,
    /// The position of the first record in the log that is needed, if there is one.
    position: Option<u64>,
}

impl Refusals {
    /// How many clients are remembered.
    const CLIENTS: usize = 1 << 16;
    /// How many records may follow the first needed one before all are recorded again. Some are added for each client.
    const RECORDS_BEHIND: u64 = 1024;

    /// Notes that a request is refused.
    pub fn refuse(&mut self, client: NodeId, request: u64) {
        let latest = self.latest.entry(client).or_default();
        *latest = request.max(*latest);
        if self.latest.len() > Self::CLIENTS {
            self.latest.pop_first();
        }
    }

    /// Notes that a refusal was recorded at `position` in the log.
    pub fn recorded_at(&mut self, position: u64) {
        self.position.get_or_insert(position);
    }

    /// All refusals, to be recorded at `position` in the log. Earlier records are not needed any more then. `None` if there are
    /// no refusals.
    pub fn record_all_at(&mut self, position: u64) -> Option<Vec<(NodeId, u64)>> {
        (!self.latest.is_empty()).then(|| {
            self.position = Some(position);
            self.latest.iter().map(|(client, request)| (*client, *request)).collect()
        })
    }

    /// Whether the first needed record lies so far before `position` in the log that all should be recorded again.
    pub fn are_far_before(&self, position: u64) -> bool {
        let behind = Self::RECORDS_BEHIND + 4 * self.latest.len() as u64;
        self.position.is_some_and(|at| at + behind < position)
    }

    /// From which position on the log is needed, if everything else needs it from `position` on.
    pub fn need_log_from(&self, position: u64) -> u64 {
        self.position.map_or(position, |at| at.min(position))
    }

    /// Whether a request is refused if it comes again.
    pub fn have(&self, client: NodeId, request: u64) -> bool {
        self.latest.get(&client).is_some_and(|latest| request <= *latest)
    }
}

/// Where a client's tokens come from, and up to which they are settled.
#[derive(Debug)]
pub struct Tokens {
    clock: VersionClock,
    /// Updates that are under way, or may be tried again.
    open: BTreeSet<Version>,
    remembered_us: u64,
}

impl Tokens {
    /// Those of a client whose updates are remembered for `remembered_us` at most.
    pub fn new(remembered_us: u64) -> Tokens {
        Tokens { clock: VersionClock::default(), open: BTreeSet::new(), remembered_us }
    }

    /// The token of an operation of `client`, whose clock reads `clock`.
    pub fn next(&mut self, client: NodeId, clock: ClockInterval) -> Version {
        self.clock.next(client, clock)
    }

    /// An update begins, perhaps again. The client does not try tokens below the returned one again.
    pub fn begin(&mut self, token: Version, client: NodeId, clock: ClockInterval) -> Version {
        if token.coordinator != client {
            return Version { timestamp_us: 0, coordinator: client };
        }
        self.open.insert(token);
        let forgotten_us = clock.earliest_us.saturating_sub(self.remembered_us);
        while self.open.first().is_some_and(|first| first.timestamp_us < forgotten_us) {
            self.open.pop_first();
        }
        self.open.first().copied().unwrap_or(token)
    }

    /// An update will not be tried again.
    pub fn end(&mut self, token: Version) {
        self.open.remove(&token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(us: u64, client: u64) -> Version {
        Version { timestamp_us: us, coordinator: NodeId(client) }
    }

    #[test]
    fn results_are_forgotten_after_a_time() {
        let mut results = Results::default();
        for us in [100, 90] {
            results.remember(token(us, 1), token(0, 1), us, 50);
        }
        assert_eq!(results.recall(token(100, 1)), Recalled::Result(100));
        assert_eq!(results.recall(token(90, 2)), Recalled::Nothing);
        results.remember(token(145, 1), token(0, 1), 145, 50);
        assert_eq!(results.recall(token(90, 1)), Recalled::Forgotten);
        assert_eq!((results.recall(token(100, 1)), results.len()), (Recalled::Result(100), 2));
    }

    #[test]
    fn a_token_far_ahead_blocks_no_other_client() {
        let mut results = Results::default();
        results.remember(token(100, 1), token(100, 1), 1, 50);
        results.remember(token(9000, 2), token(9000, 2), 2, 50);
        assert_eq!(results.recall(token(100, 1)), Recalled::Forgotten, "it may be tried again");
        for us in 101..200 {
            let (token, settled) = (token(us, 3), token(us, 3));
            assert_eq!(results.recall_and_settle(token, settled), Recalled::Nothing, "{us}");
            results.remember(token, settled, us, 50);
            assert_eq!(results.recall(token), Recalled::Result(us));
        }
        assert_eq!(results.recall(token(9000, 2)), Recalled::Result(2));
        assert_eq!(results.forgotten_before_us(), 101);
    }

    #[test]
    fn of_many_clients_that_come_once_few_are_remembered() {
        let mut results = Results::default();
        for us in 0..10_000 {
            results.remember(token(us, us), token(us, us), us, 50);
            assert_eq!(results.recall(token(us, us)), Recalled::Result(us));
            let (fewest, most) = ((us + 1).min(50), 50 + Results::<u64>::FEW_TIMES);
            assert!((fewest..=most).contains(&(results.len() as u64)), "{}", results.len());
            assert!(us < 500 || results.recall(token(us - 200, us - 200)) == Recalled::Forgotten);
        }
    }

    #[test]
    fn what_a_client_tries_no_more_is_forgotten() {
        let mut results = Results::default();
        for us in 1..=1000 {
            assert_eq!(results.recall_and_settle(token(us, 1), token(us, 1)), Recalled::Nothing);
            results.remember(token(us, 1), token(us, 1), us, 1_000_000);
            assert_eq!(results.len(), 1);
        }
        assert_eq!(results.recall(token(999, 1)), Recalled::Forgotten);
        assert_eq!(results.recall(token(999, 2)), Recalled::Nothing);
    }

    #[test]
    fn a_refused_update_is_forgotten_for_good() {
        let mut results = Results::default();
        results.remember(token(10, 1), token(10, 1), 10, 50);
        assert!(!results.refuse(token(10, 1)), "it was executed");
        assert!(results.refuse(token(1000, 1)) && !results.refuse(token(1000, 1)));
        assert_eq!(results.recall_and_settle(token(10, 1), token(10, 1)), Recalled::Result(10));
        assert_eq!(results.recall(token(1000, 1)), Recalled::Forgotten);
        assert_eq!(results.recall(token(1001, 1)), Recalled::Nothing);
        assert_eq!(results.recall(token(11, 2)), Recalled::Nothing, "another client's");
        // Long after, what it was refused by is given up.
        for us in [900, 5000] {
            results.remember(token(us, 2), token(us, 2), us, 50);
        }
        assert_eq!(results.recall(token(1000, 1)), Recalled::Forgotten);
        assert!(!results.refuse(token(u64::MAX, 3)), "nothing is later");
    }

    #[test]
    fn no_more_clients_are_refused_at_a_time_than_there_is_room_for() {
        let mut results = Results::<u64>::default();
        let most = Results::<u64>::REFUSED_AT_MOST as u64;
        assert!((0..most).all(|client| results.refuse(token(100, client))));
        assert!(!results.refuse(token(100, most)) && results.refuse(token(101, 0)));
        assert_eq!(results.recall(token(100, most)), Recalled::Nothing);
    }

    #[test]
    fn what_was_refused_stays_refused() {
        let mut refusals = Refusals::default();
        refusals.refuse(NodeId(7), 3);
        refusals.refuse(NodeId(7), 2);
        assert!(refusals.have(NodeId(7), 3) && refusals.have(NodeId(7), 1));
        assert!(!refusals.have(NodeId(7), 4) && !refusals.have(NodeId(8), 1));
    }

    #[test]
    fn refusals_keep_the_log_until_they_are_recorded_again() {
        let mut refusals = Refusals::default();
        assert_eq!((refusals.record_all_at(1), refusals.need_log_from(5)), (None, 5));
        refusals.refuse(NodeId(7), 3);
        refusals.recorded_at(10);
        refusals.refuse(NodeId(8), 4);
        refusals.recorded_at(20);
        assert_eq!(refusals.need_log_from(3000), 10);
        assert!(!refusals.are_far_before(1000) && refusals.are_far_before(2000));
        assert_eq!(refusals.record_all_at(2000), Some(vec![(NodeId(7), 3), (NodeId(8), 4)]));
        assert_eq!((refusals.need_log_from(3000), refusals.are_far_before(3000)), (2000, false));
    }

    #[test]
    fn a_client_has_settled_what_is_older_than_all_open_tokens() {
        let mut tokens = Tokens::new(1000);
        let at = |us| ClockInterval { earliest_us: us, latest_us: us };
        let own: Vec<Version> = [10, 11, 12].map(|us| tokens.next(NodeId(7), at(us))).to_vec();
        for token in &own {
            assert_eq!(tokens.begin(*token, NodeId(7), at(12)), own[0]);
        }
        tokens.end(own[0]);
        tokens.end(own[2]);
        let next = tokens.next(NodeId(7), at(20));
        assert_eq!(tokens.begin(next, NodeId(7), at(20)), own[1]);
        assert_eq!(tokens.begin(token(3, 9), NodeId(7), at(20)), token(0, 7), "another client's");
        let late = tokens.next(NodeId(7), at(1500));
        assert_eq!(tokens.begin(late, NodeId(7), at(1500)), late, "the others are forgotten");
    }
}
