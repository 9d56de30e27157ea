//! Random transactions at a leader whose last messages are lost in part.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use serried_model::Guarantee;

use super::*;
use crate::frameworks::shard::{Executed, Verdict, verdict};
use crate::frameworks::validation::Validation;
use crate::two_phase_locking::Locking;
use crate::{occ, tapir_cc};

const KEYS: [&str; 3] = ["x", "y", "z"];
/// For how many rounds clients ask before something counts as stuck.
const ROUNDS_AT_MOST: usize = 200;

/// A transaction, as its client knows it.
struct Call {
    us: u64,
    reads: Vec<&'static str>,
    writes: Vec<&'static str>,
    /// When it began.
    began: u64,
    state: State,
    /// Its client has asked for its end, without an answer to its shot.
    is_given_up: bool,
}

#[derive(Debug)]
enum State {
    Waits,
    /// It has committed, and has found these versions if its client knows. Then it was acknowledged at this time.
    Committed {
        at: Stamp,
        found: Option<Vec<Version>>,
        when: Option<u64>,
    },
    Aborted,
}

impl Call {
    fn shot(&self) -> Request {
        last(self.us, 0, &self.reads, &self.writes)
    }

    /// Its client gets a reply, which may be a repeated one.
    fn hear(&mut self, reply: &Reply, now: u64) -> Result<(), String> {
        let waits = matches!(self.state, State::Waits);
        match (reply, &self.state) {
            (Reply::Executed(Executed { found, validity: Some(validity), .. }), State::Waits)
                if !self.is_given_up =>
            {
                let versions = found.iter().map(|found| found.version).collect();
                match verdict(txn(self.us), core::iter::once(*validity)) {
                    Verdict::Commit(at) => {
                        self.state =
                            State::Committed { at, found: Some(versions), when: Some(now) };
                    }
                    // The backup coordinator can move it.
                    Verdict::Move(_) => self.is_given_up = true,
                }
            }
            (Reply::Refused { .. }, State::Waits) => self.state = State::Aborted,
            (Reply::Refused { .. }, State::Committed { .. }) => {
                return Err(format!("{} is refused and has committed", self.us));
            }
            (Reply::Decided { decision: Decision::Commit(at), .. }, _) if waits => {
                self.state = State::Committed { at: *at, found: None, when: None };
            }
            (Reply::Decided { decision: Decision::Abort, .. }, _) if waits => {
                self.state = State::Aborted;
            }
            (Reply::Decided { decision, .. }, State::Committed { at, .. })
                if *decision != Decision::Commit(*at) =>
            {
                return Err(format!("{} has committed at {at}, not {decision:?}", self.us));
            }
            _ => {}
        }
        Ok(())
    }

    /// What its client sends for as long as it gets no answer.
    fn request(&self) -> Request {
        let decision = match self.state {
            State::Waits if self.is_given_up => return Request::Resolve { txn: txn(self.us) },
            State::Waits => return self.shot(),
            State::Committed { at, .. } => Decision::Commit(at),
            State::Aborted => Decision::Abort,
        };
        Request::End { txn: txn(self.us), decision }
    }
}

struct Load<C: Control> {
    trio: Trio<C>,
    random: Pcg64Mcg,
    calls: Vec<Call>,
    /// The calls whose ends are acknowledged.
    over: BTreeSet<u64>,
    /// How many in a hundred messages of the first replica to another are lost.
    loss: u32,
}

impl<C: Control> Load<C> {
    fn new(seed: u64) -> Load<C> {
        let random = Pcg64Mcg::seed_from_u64(seed);
        Load { trio: Trio::new(), random, calls: Vec::new(), over: BTreeSet::new(), loss: 0 }
    }

    /// Adds a transaction, and returns its first request.
    fn begin(&mut self, reads: Vec<&'static str>, writes: Vec<&'static str>) -> Request {
        let us = loop {
            let us = self.trio.after_us() + self.random.random_range(0..3000);
            if self.calls.iter().all(|call| call.us != us) {
                break us;
            }
        };
        let (began, state) = (self.trio.now, State::Waits);
        self.calls.push(Call { us, reads, writes, began, state, is_given_up: false });
        self.calls.last().expect("it was added").shot()
    }

    fn some(&mut self, of: usize) -> Vec<&'static str> {
        let mut keys = KEYS.to_vec();
        while keys.len() > of {
            keys.remove(self.random.random_range(0..keys.len()));
        }
        keys
    }

    /// A client does something.
    fn next(&mut self) -> Request {
        let open: Vec<usize> =
            (0..self.calls.len()).filter(|at| !self.over.contains(&self.calls[*at].us)).collect();
        if open.len() < 2 || (open.len() < 8 && self.random.random_range(0..2) == 0) {
            let (reads, writes) = (self.random.random_range(0..3), self.random.random_range(0..3));
            let (reads, mut writes) = (self.some(reads), self.some(writes));
            if reads.is_empty() && writes.is_empty() {
                writes.push("x");
            }
            return self.begin(reads, writes);
        }
        let call = &mut self.calls[open[self.random.random_range(0..open.len())]];
        if matches!(call.state, State::Waits) && self.random.random_range(0..2) == 0 {
            call.is_given_up = true;
            return Request::End { txn: txn(call.us), decision: Decision::Abort };
        }
        call.request()
    }

    /// The first replica gets a request, at once. Its messages to others may be lost.
    fn tell_first(&mut self, request: Request) -> Result<(), String> {
        self.trio.deliver((CLIENT, NodeId(0), Message::Request(request)));
        loop {
            self.trio.fire(0, FLUSH);
            let Some(envelope) = self.trio.network.pop_front() else { return self.hear() };
            let is_lost = envelope.0 == NodeId(0)
                && !envelope.1.is_coordinator()
                && self.random.random_range(0..100) < self.loss;
            if !is_lost {
                self.trio.deliver(envelope);
            }
        }
    }

    fn hear(&mut self) -> Result<(), String> {
        let now = self.trio.now;
        for reply in self.trio.told() {
            let of = match &reply {
                Reply::Executed(executed) => executed.txn,
                Reply::Refused { txn, .. } | Reply::Decided { txn, .. } => *txn,
                Reply::Ended(txns) => {
                    let us = txns.iter().map(|txn| txn.timestamp_us - NOW_US);
                    let ended = |us: &u64| {
                        let call = self.calls.iter().find(|call| call.us == *us);
                        call.is_some_and(|call| !matches!(call.state, State::Waits))
                    };
                    self.over.extend(us.filter(ended));
                    continue;
                }
                _ => continue,
            };
            let call = self.calls.iter_mut().find(|call| txn(call.us) == of);
            call.map_or(Ok(()), |call| call.hear(&reply, now))?;
        }
        Ok(())
    }

    /// All calls end at the next leader.
    fn finish(&mut self, leader: u64) -> Result<(), String> {
        for _ in 0..ROUNDS_AT_MOST {
            let open = self.calls.iter().filter(|call| !self.over.contains(&call.us));
            let requests: Vec<Request> = open.map(Call::request).collect();
            if requests.is_empty() {
                return Ok(());
            }
            for request in requests {
                let envelope = (CLIENT, NodeId(leader), Message::Request(request));
                self.trio.network.push_back(envelope);
            }
            self.trio.pass(Duration::from_millis(50));
            self.hear()?;
        }
        let open = self.calls.iter().filter(|call| !self.over.contains(&call.us));
        let open: Vec<_> = open.map(|call| (call.us, &call.state)).collect();
        Err(format!("they never end: {open:?}"))
    }

    fn run(&mut self) -> Result<(), String> {
        // The leader admits transactions of these times.
        let first = self.begin(vec!["x"], vec!["x", "y", "z"]);
        self.trio.ask(0, first.clone());
        self.tell_first(first)?;
        for step in 0..40 {
            self.loss = if step < 15 { 0 } else { 30 };
            let request = self.next();
            self.tell_first(request)?;
            if step < 15 {
                self.trio.pass(Duration::from_millis(1));
                self.hear()?;
            }
        }
        self.trio.away.insert(NodeId(0));
        self.trio.pass(Duration::from_secs(4));
        self.hear()?;
        let leader = self.trio.leader();
        self.finish(leader)?;
        self.begin(KEYS.to_vec(), Vec::new());
        self.finish(leader)?;
        self.check()
    }

    /// Whether there is an order of all that has committed.
    fn check(&self) -> Result<(), String> {
        let committed = self.calls.iter().filter_map(|call| match &call.state {
            State::Committed { at, found, when } => Some((call, *at, found, *when)),
            _ => None,
        });
        let committed: Vec<_> = committed.collect();
        let mut versions: BTreeMap<&str, Vec<(Stamp, Option<usize>)>> = BTreeMap::new();
        for key in KEYS {
            let mut of_key = vec![(Stamp::INITIAL, None)];
            let writers = committed.iter().enumerate();
            let writers = writers.filter(|(_, (call, ..))| call.writes.contains(&key));
            of_key.extend(writers.map(|(writer, (_, at, ..))| (*at, Some(writer))));
            of_key.sort();
            versions.insert(key, of_key);
        }
        let mut before: BTreeSet<(usize, usize)> = BTreeSet::new();
        for of_key in versions.values() {
            let writers: Vec<usize> = of_key.iter().filter_map(|(_, writer)| *writer).collect();
            before.extend(writers.windows(2).map(|two| (two[0], two[1])));
        }
        for (reader, (call, _, found, _)) in committed.iter().enumerate() {
            for (key, version) in call.reads.iter().zip(found.iter().flatten()) {
                let of_key = &versions[key];
                let place = of_key.iter().position(|(at, _)| at.version() == *version);
                let Some(place) = place else {
                    return Err(format!("{} has read {version}, which has not committed", call.us));
                };
                before.extend(of_key[place].1.map(|writer| (writer, reader)));
                before.extend(of_key.get(place + 1).and_then(|(_, next)| Some((reader, (*next)?))));
            }
        }
        if C::GUARANTEE == Guarantee::StrictSerializable {
            for (one, (_, _, _, when)) in committed.iter().enumerate() {
                let later = committed.iter().enumerate();
                let later = later.filter(|(_, (call, ..))| when.is_some_and(|at| at < call.began));
                before.extend(later.map(|(other, _)| (one, other)));
            }
        }
        before.retain(|(one, other)| one != other);
        let mut left: BTreeSet<usize> = (0..committed.len()).collect();
        while let Some(first) = left
            .iter()
            .copied()
            .find(|other| !before.iter().any(|(one, second)| second == other && left.contains(one)))
        {
            left.remove(&first);
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "there is no order of {:?}",
                left.iter().map(|at| committed[*at].0.us).collect::<Vec<_>>()
            )),
        }
    }
}

/// How many times the usual number of seeds is explored: `SERRIED_SEEDS_FACTOR`.
#[expect(clippy::disallowed_methods, reason = "the environment of a test can ask for more seeds")]
fn factor() -> u64 {
    std::env::var("SERRIED_SEEDS_FACTOR").ok().map_or(1, |factor| factor.parse().expect("a number"))
}

fn explore<C: Control>() {
    for seed in 0..60 * factor() {
        let said = Load::<C>::new(seed).run();
        assert_eq!(said, Ok(()), "{}, seed {seed}", C::NAME);
    }
}

#[test]
fn what_a_leader_has_proposed_may_be_lost_in_part_under_locking() {
    explore::<Locking<false>>();
    explore::<Locking<true>>();
}

#[test]
fn what_a_leader_has_proposed_may_be_lost_in_part_under_validation() {
    explore::<Validation<occ::Locks>>();
    explore::<Validation<tapir_cc::Timestamps>>();
}

#[test]
fn what_a_leader_has_proposed_may_be_lost_in_part_under_ncc() {
    explore::<Queues<false>>();
    explore::<Queues<true>>();
}

#[test]
fn what_a_leader_has_proposed_may_be_lost_in_part_under_mvto() {
    explore::<Versions>();
}
