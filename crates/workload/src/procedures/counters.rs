//! Counters that calls increment (002 §5.3).

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_procedures::{ProcedureSet, Results};
use serried_session::{CallError, ProcedureKeyspace};

use super::tally::Tally;
use super::{
    CallInspection, PlannedCall, ProcedureParameters, ProcedureWorkload, compile, integer, numbers,
};
use crate::{InspectionError, WorkloadError};

/// How many counters one call can increment.
const MOST_PER_CALL: u64 = 100;

/// All pieces can be deferred: nobody needs what they find.
const PROCEDURES: &str = r#"
[tables.counters]
key = { counter = "int" }
columns = { count = "int" }

[procedures.increment]
inputs = { counters = { list = "int", max = 100 } }

[procedures.increment.pieces.add]
for_each = { counter = "counters" }
rows = { row = { table = "counters", key = ["counter"] } }
reads = ["row.count"]
writes.row.count = "row.count + 1"

[procedures.sum]
inputs = { counters = { list = "int", max = 100 } }
returns = { sum = "sum(read.count)" }

[procedures.sum.pieces.read]
for_each = { counter = "counters" }
rows = { row = { table = "counters", key = ["counter"] } }
reads = ["row.count"]
outputs.count = "row.count"
"#;

/// Each call increments several counters at different servers. The sum of all counters is the number of increments.
#[derive(Debug)]
pub struct CounterCalls {
    set: Arc<ProcedureSet>,
    counters: u64,
    per_call: u64,
    popularity: Zipf<f64>,
    increments: Tally,
}

impl CounterCalls {
    /// By default ten of a thousand counters per call.
    ///
    /// # Errors
    /// If a call can't increment so many.
    pub fn new(parameters: &ProcedureParameters) -> Result<CounterCalls, WorkloadError> {
        let counters = parameters.keys.unwrap_or(1000).max(1);
        let per_call = parameters.counters_per_call.unwrap_or(10.min(counters));
        let most = MOST_PER_CALL.min(counters);
        if per_call == 0 || per_call > most {
            return Err(WorkloadError::Keys(format!(
                "{per_call} of {counters} counters per call are not possible: choose from 1 to {most}"
            )));
        }
        let theta = parameters.theta.unwrap_or(0.9).max(0.0);
        let popularity = Zipf::new(counters as f64, theta);
        Ok(CounterCalls {
            set: compile(PROCEDURES, |_| true),
            counters,
            per_call,
            popularity: popularity.expect("a positive number of keys and an exponent from 0 on"),
            increments: Tally::default(),
        })
    }

    async fn sum(&self, keyspace: &ProcedureKeyspace) -> Result<i64, InspectionError> {
        let mut sum = 0;
        for first in (0..self.counters).step_by(MOST_PER_CALL as usize) {
            let counters = numbers(first..self.counters.min(first + MOST_PER_CALL));
            let results = keyspace.call("sum", [counters]).await?;
            sum += integer(&results, "sum").map_err(InspectionError::Broken)?;
        }
        Ok(sum)
    }
}

impl ProcedureWorkload for CounterCalls {
    fn name(&self) -> &'static str {
        "counter-calls"
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        &self.set
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        /// After so many draws without enough counters, the least popular ones are taken.
        const DRAWS: u64 = 100;
        let mut counters = BTreeSet::new();
        for _ in 0..DRAWS * self.per_call {
            if counters.len() as u64 == self.per_call {
                break;
            }
            counters.insert(self.popularity.sample(random) as u64 - 1);
        }
        let rest = (0..self.counters).rev().filter(|counter| !counters.contains(counter));
        let missing = self.per_call as usize - counters.len();
        let rest: Vec<u64> = rest.take(missing).collect();
        counters.extend(rest);
        self.increments.begin(self.per_call);
        PlannedCall::new("increment", [numbers(counters)])
    }

    fn ended(&self, _: &PlannedCall, result: &Result<Results, CallError>) {
        self.increments.end(self.per_call, result);
    }

    fn look<'a>(
        &'a self,
        keyspace: &'a ProcedureKeyspace,
    ) -> core::pin::Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + 'a>> {
        Box::pin(async {
            match self.sum(keyspace).await {
                Ok(sum) => self.increments.set_before(sum),
                Err(InspectionError::Unanswered(error)) => return Err(error),
                Err(error) => panic!("a sum is an integer: {error}"),
            }
            Ok(())
        })
    }

    fn inspect<'a>(&'a self, keyspace: &'a ProcedureKeyspace) -> CallInspection<'a> {
        Box::pin(async {
            let sum = self.sum(keyspace).await? - self.increments.before();
            let (least, most) = self.increments.bounds();
            if sum < least || sum > most {
                return Err(InspectionError::Broken(format!(
                    "the counters have risen by {sum}; {least} increments were acknowledged, and {} are of unknown \
                     outcome",
                    most - least
                )));
            }
            Ok(Some(format!(
                "the counters have risen by {sum}, and {least} increments were acknowledged"
            )))
        })
    }
}
