//! YCSB on registers, and requests that fan out (001 §4.5.2, §4.5.6).

use std::sync::atomic::{AtomicU64, Ordering};

use rand::{Rng, RngExt};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_history::RegisterOperation;
use serried_model::{Key, Value};

use super::{Planned, RegisterParameters, RegisterWorkload, Turn};
use crate::{WorkloadError, number};

/// The shares of reads and writes among operations; the others are read-modify-writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// The share of reads.
    pub reads: f64,
    /// The share of writes.
    pub writes: f64,
}

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Modify,
}

impl Shares {
    /// Shares that differ from 1 by less leave no read-modify-writes: sums of decimal fractions are off by
    /// that.
    const CLOSE: f64 = 1e-9;

    /// Those of YCSB's workload A with read-modify-writes (001 §4.5.4).
    pub const YCSB_A: Shares = Shares { reads: 0.495, writes: 0.495 };
    /// Those of requests that fan out (001 §4.5.6).
    pub const TAIL_AT_SCALE: Shares = Shares { reads: 0.99, writes: 0.009 };

    /// What the parameters say, or these.
    ///
    /// # Errors
    /// If they are no shares.
    pub(crate) fn or(self, parameters: &RegisterParameters) -> Result<Shares, WorkloadError> {
        let shares = match (parameters.reads, parameters.writes) {
            (None, None) => self,
            (Some(reads), Some(writes)) => Shares { reads, writes },
            (Some(reads), None) => Shares { reads, writes: 1.0 - reads },
            (None, Some(writes)) => Shares { reads: 1.0 - writes, writes },
        };
        let Shares { reads, writes } = shares;
        let are_shares = [reads, writes].iter().all(|share| (0.0..=1.0).contains(share));
        match are_shares && reads + writes <= 1.0 + Shares::CLOSE {
            true => Ok(shares),
            false => Err(WorkloadError::Shares { reads, writes }),
        }
    }

    /// Whether there are read-modify-writes.
    pub(crate) fn modify(self) -> bool {
        self.reads + self.writes < 1.0 - Shares::CLOSE
    }

    pub(crate) fn draw(self, random: &mut impl Rng) -> Kind {
        let drawn: f64 = random.random();
        if drawn < self.reads {
            Kind::Read
        } else if drawn < self.reads + self.writes || !self.modify() {
            Kind::Write
        } else {
            Kind::Modify
        }
    }
}

/// From which keys a client chooses.
#[derive(Debug)]
enum Popularity {
    /// A share of operations is on the key that all have in common, the others on so many keys of the
    /// client's own (001 §4.5.2, "Conflicting Operations").
    OneShared { share: f64, own: u64 },
    /// All from the same ones.
    Zipf { keys: u64, distribution: Zipf<f64> },
}

/// The key that all clients have in common.
const COMMON: u64 = 0;
/// Where the numbers of a client's own keys have the client's.
const CLIENT_SHIFT: u32 = 24;

impl Popularity {
    fn new(parameters: &RegisterParameters, usual_conflicts: f64) -> Result<Self, WorkloadError> {
        if let (Some(theta), Some(_)) = (parameters.theta, parameters.conflicts) {
            return Err(WorkloadError::Keys(format!(
                "keys are drawn either from a Zipf distribution (theta {theta}) or by their conflicts"
            )));
        }
        let Some(theta) = parameters.theta else {
            let share = parameters.conflicts.unwrap_or(usual_conflicts);
            if !(0.0..=1.0).contains(&share) {
                let wrong = format!("conflicts {share} are no share: 0 or more, at most 1");
                return Err(WorkloadError::Keys(wrong));
            }
            let (own, most) = (parameters.keys.unwrap_or(1000), 1 << CLIENT_SHIFT);
            return match (1..=most).contains(&own) {
                true => Ok(Popularity::OneShared { share, own }),
                false => Err(WorkloadError::Keys(format!(
                    "{own} keys of each client's own: choose 1 to {most}"
                ))),
            };
        };
        let keys = parameters.keys.unwrap_or(1_000_000);
        let distribution = Zipf::new(keys as f64, theta);
        let distribution = distribution.map_err(|error| {
            WorkloadError::Keys(format!("{keys} keys with theta {theta}: {error}"))
        })?;
        Ok(Popularity::Zipf { keys, distribution })
    }

    fn draw(&self, client: u64, random: &mut impl Rng) -> u64 {
        match self {
            Popularity::OneShared { share, .. } if random.random::<f64>() < *share => COMMON,
            Popularity::OneShared { own, .. } => {
                (client + 1) << CLIENT_SHIFT | random.random_range(0..*own)
            }
            Popularity::Zipf { distribution, .. } => distribution.sample(random) as u64 - 1,
        }
    }
}

/// Reads, writes and read-modify-writes, by shares; the last add 1 to what is there. Written values are
/// numbers that differ, with room for what is added to each, until there are none left of that length.
#[derive(Debug)]
pub struct Ycsb {
    name: &'static str,
    shares: Shares,
    popularity: Popularity,
    key_bytes: usize,
    value_bytes: usize,
    sub_requests: u64,
    writes: AtomicU64,
}

/// Between two numbers that are written.
const STEP: u64 = 64;
/// No integer has more digits, whatever comes before them.
const MOST_DIGITS: usize = 18;
/// The most operations that a request may have.
const MOST_SUB_REQUESTS: u64 = 1000;

impl Ycsb {
    /// One operation after the other; those of workload A with 2 % conflicts if nothing else is said.
    ///
    /// # Errors
    /// If a parameter is none that there can be.
    pub fn new(parameters: &RegisterParameters) -> Result<Ycsb, WorkloadError> {
        Ycsb::with("ycsb", Shares::YCSB_A, 0.02, 1, parameters)
    }

    /// Requests of many operations that are under way at once (001 §4.5.6): 30 with 25 % conflicts if
    /// nothing else is said.
    ///
    /// # Errors
    /// If a parameter is none that there can be.
    pub fn tail_at_scale(parameters: &RegisterParameters) -> Result<Ycsb, WorkloadError> {
        let sub_requests = parameters.sub_requests.unwrap_or(30);
        Ycsb::with("tail-at-scale", Shares::TAIL_AT_SCALE, 0.25, sub_requests, parameters)
    }

    fn with(
        name: &'static str,
        usual: Shares,
        usual_conflicts: f64,
        sub_requests: u64,
        parameters: &RegisterParameters,
    ) -> Result<Ycsb, WorkloadError> {
        if !(1..=MOST_SUB_REQUESTS).contains(&sub_requests) {
            return Err(WorkloadError::Keys(format!(
                "{sub_requests} sub-requests: choose 1 to {MOST_SUB_REQUESTS}"
            )));
        }
        Ok(Ycsb {
            name,
            shares: usual.or(parameters)?,
            popularity: Popularity::new(parameters, usual_conflicts)?,
            key_bytes: parameters.key_bytes.unwrap_or(8),
            value_bytes: parameters.value_bytes.unwrap_or(8),
            sub_requests,
            writes: AtomicU64::new(0),
        })
    }

    /// The next number to write. All have as many digits as a value has bytes, up to a limit, so that what
    /// is added changes no length.
    fn number(&self) -> i64 {
        let least = 10u64.pow(self.value_bytes.min(MOST_DIGITS) as u32 - 1);
        let count = self.writes.fetch_add(1, Ordering::Relaxed);
        (least + count.wrapping_mul(STEP) % (9 * least - STEP)) as i64
    }

    fn operation(&self, client: u64, random: &mut Pcg64Mcg) -> Planned {
        let operation = match self.shares.draw(random) {
            Kind::Read => RegisterOperation::Read,
            Kind::Write => RegisterOperation::Write { value: Some(self.number()) },
            Kind::Modify => RegisterOperation::Add { delta: 1 },
        };
        Planned { key: self.popularity.draw(client, random), operation }
    }
}

impl RegisterWorkload for Ycsb {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self, turn: Turn, random: &mut Pcg64Mcg) -> Vec<Planned> {
        (0..self.sub_requests).map(|_| self.operation(turn.client, random)).collect()
    }

    fn width(&self) -> u64 {
        self.sub_requests
    }

    fn modifies(&self) -> bool {
        self.shares.modify()
    }

    fn keys(&self, clients: u64) -> Box<dyn Iterator<Item = u64> + Send> {
        match self.popularity {
            Popularity::Zipf { keys, .. } => Box::new(0..keys),
            Popularity::OneShared { own, .. } => {
                let of = move |client| {
                    let first = (client + 1) << CLIENT_SHIFT;
                    first..first + own
                };
                Box::new(core::iter::once(COMMON).chain((0..clients).flat_map(of)))
            }
        }
    }

    fn key(&self, number: u64) -> Key {
        number::key(number, self.key_bytes)
    }

    fn value(&self, number: i64) -> Value {
        let width = self.value_bytes;
        Value::from(format!("{number:0width$}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    fn drawn(workload: &Ycsb, client: u64, count: u64) -> Vec<Planned> {
        let mut random = Pcg64Mcg::seed_from_u64(client + 1);
        let turn = |number| Turn { client, number, last: None };
        (1..=count).flat_map(|number| workload.plan(turn(number), &mut random)).collect()
    }

    fn share(operations: &[Planned], is_it: impl Fn(&Planned) -> bool) -> f64 {
        operations.iter().filter(|planned| is_it(planned)).count() as f64 / operations.len() as f64
    }

    #[test]
    fn operations_have_the_shares_of_the_paper_and_conflicts_as_many_as_were_asked_for() {
        let parameters = RegisterParameters { conflicts: Some(0.25), ..Default::default() };
        let operations = drawn(&Ycsb::new(&parameters).unwrap(), 3, 40_000);
        for (kind, expected) in [("read", 0.495), ("write", 0.495), ("rmw", 0.01)] {
            let found = share(&operations, |planned| planned.kind() == kind);
            assert!((found - expected).abs() < 0.01, "{kind}: {found}");
        }
        assert!((share(&operations, |planned| planned.key == COMMON) - 0.25).abs() < 0.01);
    }

    #[test]
    fn clients_meet_on_the_common_key_alone() {
        let workload = Ycsb::new(&RegisterParameters::default()).unwrap();
        let keys = |client| -> BTreeSet<u64> {
            drawn(&workload, client, 5000).iter().map(|planned| planned.key).collect()
        };
        let shared: Vec<u64> = keys(0).intersection(&keys(1)).copied().collect();
        assert_eq!(shared, [COMMON]);
        let all: BTreeSet<u64> = workload.keys(2).collect();
        assert!(all.is_superset(&keys(0)) && all.is_superset(&keys(1)));
    }

    #[test]
    fn theta_makes_some_keys_hot_for_all_clients() {
        let parameters = RegisterParameters {
            theta: Some(0.9),
            keys: Some(1_000_000),
            ..RegisterParameters::default()
        };
        let workload = Ycsb::new(&parameters).unwrap();
        for client in [0, 5] {
            let hottest = share(&drawn(&workload, client, 50_000), |planned| planned.key == 0);
            assert!((0.030..0.036).contains(&hottest), "{hottest}");
        }
    }

    #[test]
    fn written_values_differ_have_the_length_that_was_asked_for_and_keep_it_when_added_to() {
        for value_bytes in [8, 16, 100] {
            let parameters = RegisterParameters {
                writes: Some(1.0),
                value_bytes: Some(value_bytes),
                ..RegisterParameters::default()
            };
            let workload = Ycsb::new(&parameters).unwrap();
            let written = drawn(&workload, 0, 10_000);
            let numbers = written.iter().map(|planned| match planned.operation {
                RegisterOperation::Write { value: Some(number) } => number,
                other => panic!("{other:?} is no write"),
            });
            let numbers: BTreeSet<i64> = numbers.collect();
            assert_eq!(numbers.len(), 10_000);
            for number in numbers {
                assert_eq!(workload.value(number).len(), value_bytes);
                let last = (number + STEP as i64 - 1).to_string();
                assert_eq!(last.len(), value_bytes.min(MOST_DIGITS));
            }
        }
    }

    #[test]
    fn a_request_that_fans_out_has_as_many_operations_as_were_asked_for() {
        let parameters = RegisterParameters { sub_requests: Some(15), ..Default::default() };
        let workload = Ycsb::tail_at_scale(&parameters).unwrap();
        assert_eq!((drawn(&workload, 0, 1).len(), workload.width()), (15, 15));
        let operations = drawn(&workload, 0, 4000);
        assert!((share(&operations, |planned| planned.kind() == "read") - 0.99).abs() < 0.002);
        assert!((share(&operations, |planned| planned.key == COMMON) - 0.25).abs() < 0.01);
    }

    #[test]
    fn what_is_no_mix_is_refused() {
        let refused = |parameters: RegisterParameters| {
            let error = Ycsb::new(&parameters).map(drop).unwrap_err();
            error.to_string()
        };
        let usual = RegisterParameters::default;
        let error = refused(RegisterParameters { reads: Some(0.8), writes: Some(0.3), ..usual() });
        assert!(error.contains("0.8") && error.contains("0.3"), "{error}");
        let error =
            refused(RegisterParameters { theta: Some(0.9), conflicts: Some(0.1), ..usual() });
        assert!(error.contains("either"), "{error}");
        refused(RegisterParameters { conflicts: Some(1.5), ..usual() });
        refused(RegisterParameters { keys: Some(0), ..usual() });
        let only_reads = RegisterParameters { reads: Some(0.9), ..usual() };
        assert!(!Ycsb::new(&only_reads).unwrap().modifies());
    }
}
