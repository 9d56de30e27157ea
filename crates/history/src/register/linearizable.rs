//! The checker of linearizability.

use super::chains::{Broken, Chains};
use super::claims;
use super::counter::counted;
use super::event::RegisterHistory;
use super::explain::explain;
use super::search::{Budget, Decision, Explored, Rule, decide, explore};
use super::shrink::{Shrunk, part, shrink};
use super::step::{Operation, Operations, Step, settled};
use super::verdict::{RegisterGuarantee, RegisterSummary, RegisterVerdict};

/// Decides whether each key's operations can have taken effect one by one, each at some instant between
/// its beginning and its end.
///
/// Failed operations took no effect. Operations of unknown outcome may have taken effect at any time after their
/// beginning, or never. Keys are judged separately, which is enough because linearizability is local. If a key's values
/// identify their writers, or if the key is a counter that only grows, this takes time in `O(n log n)`. Otherwise the
/// order of recorded versions is tried. Then all orders are searched within the budget.
pub fn check_linearizable(history: &RegisterHistory, budget: &Budget) -> RegisterVerdict {
    let operations = match Operations::new(history) {
        Ok(operations) => operations,
        Err(reason) => return RegisterVerdict::Unknown { reason },
    };
    let mut left = *budget;
    let mut undecided = None;
    for steps in &operations.keys {
        match judge(steps, &operations.all, &mut left) {
            Judgement::Kept => {}
            Judgement::Broken(steps) => {
                let shrunk = smallest(steps, Rule::Linearizable, budget);
                let violation = explain(shrunk, Rule::Linearizable, &operations.all);
                return RegisterVerdict::Violation(violation);
            }
            Judgement::Undecided => {
                undecided.get_or_insert_with(|| operations.key(steps));
            }
        }
    }
    match undecided {
        Some(key) => RegisterVerdict::Unknown {
            reason: format!(
                "{} states were visited without finding an order of the operations on key {key}, or \
                 that there is none: allow more states, write every value only once, or record \
                 versions",
                budget.states
            ),
        },
        None => RegisterVerdict::Holds(
            operations.summary(RegisterGuarantee::Linearizable, budget.states - left.states),
        ),
    }
}

/// The judgement on one key.
pub(super) enum Judgement {
    Kept,
    /// These steps have no order.
    Broken(Vec<Step>),
    Undecided,
}

/// Judges one key.
pub(super) fn judge(
    steps: &[Step],
    operations: &[Operation<'_>],
    budget: &mut Budget,
) -> Judgement {
    let steps = known(steps);
    match Chains::new(&steps) {
        Ok(chains) => match chains.linear_order(&steps) {
            Ok(_) => Judgement::Kept,
            Err(violation) => Judgement::Broken(breaking_part(steps, &violation)),
        },
        Err(Broken::Violation(violation)) => Judgement::Broken(breaking_part(steps, &violation)),
        Err(Broken::Ambiguous) => {
            if let Some(order) = claims::claimed_order(&steps, operations)
                && claims::is_legal(&steps, &order)
                && claims::respects_real_time(&steps, &order)
            {
                return Judgement::Kept;
            }
            search(steps, budget)
        }
    }
}

/// Decides by search. A contradiction often involves only a few steps that are close in time, and all orders of these
/// can be tried long before all orders of all steps. So when the search gets stuck, the steps around that point are
/// tried by themselves.
fn search(steps: Vec<Step>, budget: &mut Budget) -> Judgement {
    /// How many states the first search may visit, in addition to a few per step.
    const FIRST: u64 = 200_000;
    let mut first = *budget;
    first.states = budget.states.min(4 * steps.len() as u64 + FIRST);
    let before = first.states;
    let Explored { decision, stuck, .. } = explore(&steps, Rule::Linearizable, &mut first);
    budget.states -= before - first.states;
    if decision == Decision::Possible {
        return Judgement::Kept;
    }
    let stuck = stuck as usize;
    for width in [4, 32, 256] {
        let around = stuck.saturating_sub(width)..steps.len().min(stuck + width);
        let chosen: Vec<u32> = around.map(|at| at as u32).collect();
        let part = part(&steps, &chosen);
        let mut attempt = Budget { states: budget.states.min(FIRST), ..*budget };
        let before = attempt.states;
        let breaks = breaks(&part, Rule::Linearizable, &mut attempt);
        budget.states -= before - attempt.states;
        if breaks {
            return Judgement::Broken(part);
        }
    }
    let decision = match decision {
        Decision::OutOfBudget => decide(&steps, Rule::Linearizable, budget),
        decision => decision,
    };
    match decision {
        Decision::Possible => Judgement::Kept,
        Decision::Impossible => Judgement::Broken(steps),
        Decision::OutOfBudget => Judgement::Undecided,
    }
}

/// The steps of one key, after those of unknown outcome have been resolved as far as possible.
fn known(steps: &[Step]) -> Vec<Step> {
    let steps = settled(steps);
    counted(&steps).map_or(steps, |counted| counted.steps)
}

/// The chosen steps and the steps that they depend on, if these alone break linearizability. Otherwise all steps.
fn breaking_part(steps: Vec<Step>, chosen: &[u32]) -> Vec<Step> {
    let part = part(&steps, chosen);
    let breaks = breaks(&part, Rule::Linearizable, &mut Budget::states(0));
    if breaks { part } else { steps }
}

/// Whether no order of these steps satisfies the rule. False if the budget is too small to decide.
pub(super) fn breaks(steps: &[Step], rule: Rule, budget: &mut Budget) -> bool {
    let one_key = steps.windows(2).all(|pair| pair[0].key == pair[1].key);
    match (one_key, rule) {
        (true, _) => match Chains::new(steps) {
            Err(Broken::Violation(_)) => return true,
            Ok(chains) if rule == Rule::Linearizable => {
                return chains.linear_order(steps).is_err();
            }
            _ => {}
        },
        (false, Rule::Linearizable) => {
            unreachable!("linearizability is decided key by key")
        }
        (false, Rule::RegularSequential) => {}
    }
    decide(steps, rule, budget) == Decision::Impossible
}

/// Makes a violation as small as possible.
pub(super) fn smallest(steps: Vec<Step>, rule: Rule, budget: &Budget) -> Shrunk {
    /// How many states one attempt may visit.
    const ATTEMPT: u64 = 200_000;
    let mut left = budget.states;
    shrink(steps, |steps| {
        let mut attempt = Budget { states: left.min(ATTEMPT), ..*budget };
        let before = attempt.states;
        let breaks = breaks(steps, rule, &mut attempt);
        left -= before - attempt.states;
        (breaks || attempt.states > 0).then_some(breaks)
    })
}

impl Operations<'_> {
    /// The key of the steps.
    pub(super) fn key(&self, steps: &[Step]) -> u64 {
        steps.first().map_or(0, |step| self.all[step.operation as usize].invoke.key)
    }

    pub(super) fn summary(&self, guarantee: RegisterGuarantee, states: u64) -> RegisterSummary {
        RegisterSummary {
            guarantee,
            completed: self.completed,
            failed: self.failed,
            unknown: self.unknown,
            keys: self.keys.len() as u64,
            states,
        }
    }
}
