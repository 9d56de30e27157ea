//! Questions for the outcomes of calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_model::Version;
use serried_procedures::Results;
use serried_session::{CallError, CallOutcome, ProcedureKeyspace};

use super::PlannedCall;

/// How many of the last calls are asked for.
const REMEMBERED: usize = 64;
/// How often a client asks for the outcome of its own call until it gets an answer.
const TRIES: usize = 5;

/// Calls for whose outcomes the clients of a run ask, and what the answers were. A call has one outcome: answers that
/// contradict each other are remembered as a mistake.
#[derive(Debug, Default)]
pub struct Inquiries(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The last calls, each with what is known of it.
    calls: BTreeMap<Version, Call>,
    /// Two answers that contradict each other.
    contradiction: Option<String>,
}

/// What is known of a call.
#[derive(Debug)]
struct Call {
    /// Whether it writes, if it is executed. A call that only reads may have left nothing behind.
    writes: bool,
    outcome: Option<CallOutcome>,
}

/// Whether both can be the outcome of one call. Servers may have forgotten a call that has written nothing.
fn agree(one: &CallOutcome, other: &CallOutcome, writes: bool) -> bool {
    match (one, other) {
        (CallOutcome::NoEffect, CallOutcome::Refused(_))
        | (CallOutcome::Refused(_), CallOutcome::NoEffect) => true,
        (CallOutcome::NoEffect, CallOutcome::Done(_))
        | (CallOutcome::Done(_), CallOutcome::NoEffect) => !writes,
        _ => one == other,
    }
}

impl Inquiries {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two answers that contradict each other, if there are any.
    pub fn contradiction(&self) -> Option<String> {
        self.known().contradiction.clone()
    }

    /// A call has begun.
    fn begin(&self, call: Version, writes: bool) {
        let calls = &mut self.known().calls;
        calls.insert(call, Call { writes, outcome: None });
        if calls.len() > REMEMBERED {
            calls.pop_first();
        }
    }

    /// This is what came of a call.
    fn enter(&self, call: Version, outcome: CallOutcome) {
        let mut known = self.known();
        let Some(of_call) = known.calls.get_mut(&call) else { return };
        match &of_call.outcome {
            None => of_call.outcome = Some(outcome),
            Some(former) if agree(former, &outcome, of_call.writes) => {}
            Some(former) => {
                let text = format!("call {call} has two outcomes: {former:?}, {outcome:?}");
                known.contradiction.get_or_insert(text);
            }
        }
    }

    /// Makes a call, and asks for its outcome if that is unknown.
    pub(super) async fn call(
        self: &Arc<Self>,
        procedures: &ProcedureKeyspace,
        planned: &PlannedCall,
    ) -> Result<Results, CallError> {
        let PlannedCall { procedure, inputs, appends, .. } = planned;
        let (inquiries, writes) = (self.clone(), !appends.is_empty());
        let last = Arc::new(Mutex::new(None));
        let noted = last.clone();
        let begun = move |call| {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
            inquiries.begin(call, writes);
        };
        let mut result = procedures.call_noted(procedure, inputs.clone(), begun).await;
        for _ in 0..TRIES {
            let Err(CallError::Unknown { call, .. }) = result else { break };
            let outcome = match procedures.outcome(call).await {
                Ok(outcome) => outcome,
                Err(forgotten @ CallError::Forgotten { .. }) => return Err(forgotten),
                Err(_) => continue,
            };
            self.enter(call, outcome.clone());
            let (procedure, deadline) = ((*procedure).to_owned(), procedures.options().deadline);
            result = match outcome {
                CallOutcome::Done(results) => Ok(results),
                CallOutcome::Refused(refused) => Err(CallError::Refused { procedure, refused }),
                CallOutcome::NoEffect => {
                    Err(CallError::Unavailable { waiting_for: format!("`{procedure}`"), deadline })
                }
            };
        }
        let call = *last.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match &result {
            Ok(results) => Some(CallOutcome::Done(results.clone())),
            Err(CallError::Refused { refused, .. }) => Some(CallOutcome::Refused(refused.clone())),
            Err(_) => None,
        };
        if let (Some(call), Some(outcome)) = (call, outcome) {
            self.enter(call, outcome);
        }
        result
    }

    /// Asks for the outcome of one of the last calls.
    pub(super) async fn ask(&self, procedures: &ProcedureKeyspace, random: &mut Pcg64Mcg) {
        let call = {
            let known = self.known();
            if known.calls.is_empty() {
                return;
            }
            let at = random.random_range(0..known.calls.len());
            *known.calls.keys().nth(at).expect("there are more")
        };
        if let Ok(outcome) = procedures.outcome(call).await {
            self.enter(call, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use serried_model::NodeId;
    use serried_procedures::{Datum, Refused};

    use super::*;

    fn done(result: i64) -> CallOutcome {
        CallOutcome::Done(Results { fields: [].into(), data: vec![Datum::Int(result)] })
    }

    fn refused() -> CallOutcome {
        CallOutcome::Refused(Refused::Failure("no".to_owned()))
    }

    /// Whether these answers about one call contradict each other, in either order.
    fn contradict(writes: bool, one: &CallOutcome, other: &CallOutcome) -> bool {
        let in_order = |first: &CallOutcome, second: &CallOutcome| {
            let inquiries = Inquiries::default();
            let call = Version { timestamp_us: 1, coordinator: NodeId(1) };
            inquiries.begin(call, writes);
            inquiries.enter(call, first.clone());
            assert_eq!(inquiries.contradiction(), None);
            inquiries.enter(call, second.clone());
            inquiries.contradiction().is_some()
        };
        let contradict = in_order(one, other);
        assert_eq!(in_order(other, one), contradict);
        contradict
    }

    #[test]
    fn a_call_has_one_outcome() {
        for writes in [false, true] {
            assert!(contradict(writes, &done(1), &done(2)));
            assert!(contradict(writes, &done(1), &refused()));
            assert!(!contradict(writes, &done(1), &done(1)));
            assert!(!contradict(writes, &refused(), &CallOutcome::NoEffect));
        }
        assert!(contradict(true, &done(1), &CallOutcome::NoEffect));
        assert!(!contradict(false, &done(1), &CallOutcome::NoEffect), "it may be forgotten");
    }
}
