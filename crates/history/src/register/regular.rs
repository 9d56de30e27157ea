//! The checker of regular sequential consistency.

use std::collections::BTreeMap;

use super::chains::{Broken, Chains};
use super::claims;
use super::counter::counted;
use super::event::RegisterHistory;
use super::explain::explain;
use super::linearizable::{Judgement, breaks, judge, smallest};
use super::search::{Budget, Decision, Rule, decide, explore};
use super::shrink::part;
use super::step::{NEVER, Operation, Operations, Step, settled};
use super::verdict::{PrecedenceReason, RegisterGuarantee, RegisterVerdict};
use crate::cycle;
use crate::digraph::{Digraph, Edge};

/// Decides whether a history satisfies regular sequential consistency (001 §4.6.1; Helt, Burke, Levy and Lloyd, Regular
/// sequential serializability and regular sequential consistency, 2021): there is one total order of all completed
/// operations on all keys, and of some operations of unknown outcome, in which
///
/// 1. each operation finds what the last write or read-modify-write on its key before it left, or nothing if there is
///    none before it;
/// 2. causality is respected: an operation comes before all operations that its process began after it had ended, and
///    before all that found what it wrote; and no operation finds a write that began after the finder had ended;
/// 3. a completed write or read-modify-write comes before every operation on its key that began after it had ended.
///
/// Otherwise the order need not respect real time: neither for reads, nor for operations on different keys. This
/// follows 001's "most recently completed, conflicting write". A read-modify-write that left the value as it was is a
/// read. An example is a compare-and-swap that did not find the expected value.
///
/// The guarantee is not local, so all keys are judged together. If each key is linearizable, there is such an order.
/// Otherwise the order of each key's versions is taken from recorded versions, or guessed from what was found and when.
/// If the graph of all precedences then has no cycle, it gives an order. If it has a cycle, the operations of the cycle
/// are judged by themselves. The rest is searched within the budget.
pub fn check_regular_sequential(history: &RegisterHistory, budget: &Budget) -> RegisterVerdict {
    let operations = match Operations::new(history) {
        Ok(operations) => operations,
        Err(reason) => return RegisterVerdict::Unknown { reason },
    };
    // Half of the budget is for checking whether keys are linearizable.
    let mut local = Budget { states: budget.states / 2, ..*budget };
    let linearizable = operations
        .keys
        .iter()
        .all(|steps| matches!(judge(steps, &operations.all, &mut local), Judgement::Kept));
    let mut left = Budget { states: budget.states - budget.states / 2 + local.states, ..*budget };
    let decision =
        if linearizable { Ok(Decision::Possible) } else { decided(&operations, &mut left) };
    match decision {
        Ok(Decision::Possible) => RegisterVerdict::Holds(
            operations.summary(RegisterGuarantee::RegularSequential, budget.states - left.states),
        ),
        Err(broken) => {
            let shrunk = smallest(broken, Rule::RegularSequential, budget);
            let violation = explain(shrunk, Rule::RegularSequential, &operations.all);
            RegisterVerdict::Violation(violation)
        }
        Ok(Decision::Impossible | Decision::OutOfBudget) => RegisterVerdict::Unknown {
            reason: format!(
                "{} states were visited without finding an order of all operations, or that there is \
                 none: allow more states, write every value only once, or record versions",
                budget.states
            ),
        },
    }
}

/// Judges all keys together. The error is a set of steps that have no order.
fn decided(operations: &Operations<'_>, budget: &mut Budget) -> Result<Decision, Vec<Step>> {
    let keys: Vec<Key> =
        operations.keys.iter().map(|steps| Key::new(steps, &operations.all, budget)).collect();
    let certain = keys.iter().all(|key| !key.chosen);
    for key in &keys {
        if let (Some(violation), false) = (&key.violation, key.chosen) {
            let part = part(&key.steps, violation);
            if breaks(&part, Rule::RegularSequential, budget) {
                return Err(part);
            }
        }
    }
    for claimed in [true, false] {
        let orders: Option<Vec<Vec<Step>>> = keys.iter().map(|key| key.ordered(claimed)).collect();
        let Some(orders) = orders else { continue };
        let Some(cycle) = cycle_of(&orders) else { return Ok(Decision::Possible) };
        if !certain {
            continue;
        }
        let mut steps: Vec<Step> = keys.iter().flat_map(|key| &key.steps).copied().collect();
        steps.sort_unstable_by_key(|step| step.begin);
        for chosen in [on_cycle(&steps, &cycle), around_cycle(&steps, &cycle)] {
            /// How many states may be visited to show that a part has no order.
            const ATTEMPT: u64 = 1_000_000;
            let part = part(&steps, &chosen);
            let mut attempt = Budget { states: budget.states.min(ATTEMPT), ..*budget };
            let before = attempt.states;
            let breaks = breaks(&part, Rule::RegularSequential, &mut attempt);
            budget.states -= before - attempt.states;
            if breaks {
                return Err(part);
            }
        }
    }
    let mut steps: Vec<Step> = operations.keys.iter().flat_map(|steps| settled(steps)).collect();
    steps.sort_unstable_by_key(|step| step.begin);
    match decide(&steps, Rule::RegularSequential, budget) {
        Decision::Impossible => Err(steps),
        decision => Ok(decision),
    }
}

/// The known facts about one key.
struct Key {
    steps: Vec<Step>,
    /// Whether the steps depend on a choice between operations of unknown outcome.
    chosen: bool,
    /// The order that the database claims, if it is legal.
    claimed: Option<Vec<u32>>,
    /// The order that is likely, given what was found and when.
    likely: Option<Vec<u32>>,
    /// Steps that have no legal order.
    violation: Option<Vec<u32>>,
}

impl Key {
    fn new(steps: &[Step], operations: &[Operation<'_>], budget: &mut Budget) -> Key {
        let steps = settled(steps);
        let (steps, chosen) = match counted(&steps) {
            Some(counted) => (counted.steps, counted.chosen),
            None => (steps, false),
        };
        let claimed = claims::claimed_order(&steps, operations)
            .filter(|order| claims::is_legal(&steps, order));
        let (likely, violation) = match Chains::new(&steps) {
            Ok(chains) => (Some(chains.best_order(&steps)), None),
            // If the key is linearizable, its linear order is as likely as any other.
            Err(Broken::Ambiguous) if claimed.is_none() => {
                let mut attempt = Budget { states: budget.states / 4, ..*budget };
                let before = attempt.states;
                let explored = explore(&steps, Rule::Linearizable, &mut attempt);
                budget.states -= before - attempt.states;
                ((explored.decision == Decision::Possible).then_some(explored.order), None)
            }
            Err(Broken::Ambiguous) => (None, None),
            Err(Broken::Violation(violation)) => (None, Some(violation)),
        };
        Key { steps, chosen, claimed, likely, violation }
    }

    /// The steps in an order of the key's versions. If there are two orders, `claimed` chooses the claimed one over the
    /// likely one.
    fn ordered(&self, claimed: bool) -> Option<Vec<Step>> {
        let (first, second) = match claimed {
            true => (&self.claimed, &self.likely),
            false => (&self.likely, &self.claimed),
        };
        let order = first.as_ref().or(second.as_ref())?;
        Some(order.iter().map(|&at| self.steps[at as usize]).collect())
    }
}

/// The steps of these operations.
fn on_cycle(steps: &[Step], cycle: &[u32]) -> Vec<u32> {
    let on_cycle = |step: &Step| cycle.contains(&step.operation);
    (0..).zip(steps).filter(|(_, step)| on_cycle(step)).map(|(at, _)| at).collect()
}

/// The steps that overlap in time with a cycle.
fn around_cycle(steps: &[Step], cycle: &[u32]) -> Vec<u32> {
    let on_cycle = steps.iter().filter(|step| cycle.contains(&step.operation));
    let from = on_cycle.clone().map(|step| step.begin).min().unwrap_or(0);
    let ends = on_cycle.map(|step| if step.end == NEVER { step.begin } else { step.end });
    let until = ends.max().unwrap_or(0);
    let overlaps = |step: &Step| step.begin < until && step.end > from;
    (0..).zip(steps).filter(|(_, step)| overlaps(step)).map(|(at, _)| at).collect()
}

/// The operations of a smallest cycle of precedences if each key's steps take effect in these orders. `None` if there
/// is none: then some total order contains all these orders.
fn cycle_of(orders: &[Vec<Step>]) -> Option<Vec<u32>> {
    let steps: Vec<&Step> = orders.iter().flatten().collect();
    let mut precedences = Precedences { nodes: steps.len(), edges: Vec::new() };
    let mut processes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut first = 0;
    for order in orders {
        let nodes: Vec<u32> = (first..first + order.len() as u32).collect();
        first += order.len() as u32;
        precedences.add_versions(&steps, &nodes);
        let writers = nodes.iter().copied().filter(|&node| !steps[node as usize].is_read());
        let writers = writers.collect();
        precedences.add_real_time(&steps, writers, nodes, PrecedenceReason::RealTime);
    }
    for (node, step) in (0..).zip(&steps) {
        processes.entry(step.process).or_default().push(node);
    }
    for nodes in processes.into_values() {
        precedences.add_real_time(&steps, nodes.clone(), nodes, PrecedenceReason::ProcessOrder);
    }
    let graph = Digraph::new(steps.len(), precedences.nodes, precedences.edges);
    let cycle = cycle::smallest(&graph)?;
    Some(cycle.into_iter().map(|edge| steps[edge.from as usize].operation).collect())
}

/// The precedences. Nodes are steps, followed by instants.
struct Precedences {
    nodes: usize,
    edges: Vec<Edge<PrecedenceReason>>,
}

impl Precedences {
    fn add(&mut self, from: u32, to: u32, label: PrecedenceReason) {
        self.edges.push(Edge { from, to, label });
    }

    /// Adds one key's nodes in the order of its versions.
    fn add_versions(&mut self, steps: &[&Step], nodes: &[u32]) {
        let mut writer = None;
        let mut readers = Vec::new();
        for &node in nodes {
            let is_read = steps[node as usize].is_read();
            if let Some(writer) = writer {
                self.add(writer, node, PrecedenceReason::Found);
            }
            if is_read {
                readers.push(node);
                continue;
            }
            for reader in readers.drain(..) {
                self.add(reader, node, PrecedenceReason::Replaced);
            }
            writer = Some(node);
        }
    }

    /// Each node of `before` precedes those of `after` that began after it had ended. The ends of the former become a
    /// chain of instants, so that there are no more edges than nodes on either side.
    fn add_real_time(
        &mut self,
        steps: &[&Step],
        mut before: Vec<u32>,
        after: Vec<u32>,
        label: PrecedenceReason,
    ) {
        before.retain(|&node| steps[node as usize].end != NEVER);
        before.sort_unstable_by_key(|&node| steps[node as usize].end);
        let first = self.nodes as u32;
        self.nodes += before.len();
        for (instant, &node) in (first..).zip(&before) {
            self.add(node, instant, label);
            if instant > first {
                self.add(instant - 1, instant, label);
            }
        }
        for node in after {
            let begin = steps[node as usize].begin;
            let ended = before.partition_point(|&node| steps[node as usize].end < begin);
            if ended > 0 {
                self.add(first + ended as u32 - 1, node, label);
            }
        }
    }
}
