//! The decision procedure: a search for a legal order.
//!
//! It builds an order from its beginning, one step after the other, in the line of Wing and Gong
//! (Testing and verifying concurrent objects, 1993) and Lowe (Testing for linearizability, 2017): a
//! step may come next if no other step that is still missing has to precede it, and a state (which
//! steps are in, what the registers hold) that has been left without success is not entered again.
//! Both guarantees are decided by the same search; they differ in what has to precede what.
//!
//! Most steps leave no choice, and these are taken without remembering anything:
//!
//! - A read that finds what the register holds is taken at once: if any continuation is legal, so is
//!   the one with the read moved to its front.
//! - A value that nobody else writes can't come back: it is only replaced when all its reads are in,
//!   and then by the one read-modify-write that found it, if there is one.
//! - A write whose value nobody needs is taken as soon as it replaces one that nobody needs.
//! - Of several that do the same, the one that ends first is taken first where only real time counts.
//! - A step of unknown outcome is only taken right before one that needs its value: wherever else an
//!   order has it, it can be moved there or left out, as its end never comes.
//!
//! States are remembered by a hash of 128 bits. Two of a million states share one with a probability
//! below 10^-26, far below that of a fault of the machine.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::board::{Board, Taken};
use super::step::{Effect, Step};

/// Which guarantee is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// What ended before something else began precedes it.
    Linearizable,
    /// So do two operations of one process, and a write and anything on its key; nothing else does.
    RegularSequential,
}

/// How much work a check may do before it answers that it doesn't know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// How many states a search may visit, over all keys. Checks that need no search are not limited.
    pub states: u64,
    /// How many states are remembered, at some 20 bytes each. Any beyond are visited again where a
    /// search meets them again.
    pub remembered: usize,
}

impl Default for Budget {
    /// Some twenty seconds and 200 MB at most.
    fn default() -> Self {
        Budget { states: 20_000_000, remembered: 5_000_000 }
    }
}

impl Budget {
    /// As many states as given, and all of them remembered.
    pub fn states(states: u64) -> Self {
        Budget { states, remembered: usize::try_from(states).unwrap_or(usize::MAX) }
    }
}

/// What a search has found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Possible,
    Impossible,
    OutOfBudget,
}

/// A state with several possible next steps.
struct Choice {
    /// How many steps were in.
    depth: usize,
    /// Those that are still to be tried, the best last.
    next: Vec<u32>,
}

/// Decides whether some order of all steps that are not optional, and any that are, is legal and
/// respects the rule. Takes what it visits from `budget.states`.
pub(super) fn decide(steps: &[Step], rule: Rule, budget: &mut Budget) -> Decision {
    explore(steps, rule, budget).decision
}

/// What a search has found out on its way.
pub(super) struct Explored {
    pub(super) decision: Decision,
    /// The step that it got stuck at when it had come furthest: of those missing, the one that ended
    /// first.
    pub(super) stuck: u32,
    /// The order, if one is possible.
    pub(super) order: Vec<u32>,
}

/// Decides, and tells how.
pub(super) fn explore(steps: &[Step], rule: Rule, budget: &mut Budget) -> Explored {
    let mut furthest = 0;
    let mut most = 0;
    let mut board = Board::new(steps, rule);
    let mut trail: Vec<Taken> = Vec::new();
    let mut choices: Vec<Choice> = Vec::new();
    let mut left: HashSet<u128, FixedState> = HashSet::default();
    let mut enabled = Vec::new();
    loop {
        if board.is_complete() {
            let order = trail.iter().map(|taken| taken.step).collect();
            return Explored { decision: Decision::Possible, stuck: furthest, order };
        }
        if budget.states == 0 {
            return Explored { decision: Decision::OutOfBudget, stuck: furthest, order: vec![] };
        }
        budget.states -= 1;
        board.enabled(&mut enabled);
        if trail.len() >= most {
            most = trail.len();
            furthest = board.first_missing().unwrap_or(furthest);
        }
        if let Some(step) = forced(&board, &enabled) {
            trail.push(board.take(step));
            continue;
        }
        let mut next = candidates(&board, &enabled);
        if next.len() > 1 {
            let state = board.state_hash();
            if left.contains(&state) {
                next.clear();
            } else {
                if left.len() < budget.remembered {
                    left.insert(state);
                }
                choices.push(Choice { depth: trail.len(), next });
                next = Vec::new();
            }
        }
        // Either the only candidate, or the next one of the latest state that has any left.
        let step = next.pop().or_else(|| {
            while let Some(choice) = choices.last_mut() {
                while trail.len() > choice.depth {
                    board.untake(trail.pop().expect("a choice below the trail"));
                }
                match choice.next.pop() {
                    Some(step) => return Some(step),
                    None => choices.pop(),
                };
            }
            None
        });
        match step {
            Some(step) => trail.push(board.take(step)),
            None => {
                return Explored { decision: Decision::Impossible, stuck: furthest, order: vec![] };
            }
        }
    }
}

/// A step that can be taken without losing anything.
fn forced(board: &Board<'_>, enabled: &[u32]) -> Option<u32> {
    enabled.iter().copied().find(|&at| {
        let step = board.step(at);
        if step.optional || !board.satisfies(at) {
            return false;
        }
        if step.is_read() {
            return true;
        }
        if board.has_optional_rmws(step.key) {
            return false;
        }
        let held = board.needs(step.key);
        match step.requires {
            // The only one that may replace a value that nobody writes again.
            Some(_) => held.writers == 0 && held.reads == 0 && held.rmws == 1,
            None => {
                let written = board.needs_of_written(at);
                held.reads + held.rmws + written.reads + written.rmws == 0
            }
        }
    })
}

/// The steps that may come next and change a register, the most promising last.
fn candidates(board: &Board<'_>, enabled: &[u32]) -> Vec<u32> {
    let mut next: Vec<u32> = Vec::new();
    for &at in enabled {
        let step = board.step(at);
        if step.is_read() || !board.satisfies(at) {
            continue;
        }
        let optional_rmws = board.has_optional_rmws(step.key);
        // After a step of unknown outcome comes one that needs what it wrote.
        if board.is_pending(step.key) && step.requires.is_none() && step.effect_is_set() {
            continue;
        }
        let held = board.needs(step.key);
        if held.writers == 0 && !optional_rmws {
            let requires_it = step.requires.is_some() && !step.optional;
            let allowed = match (held.reads, held.rmws) {
                (0, 0) => true,
                (0, 1) => requires_it,
                _ => false,
            };
            if !allowed {
                continue;
            }
        }
        if step.optional {
            let written = board.needs_of_written(at);
            let others = optional_rmws && board.has_other_optional_rmws(at);
            if written.reads + written.rmws == 0 && !others {
                continue;
            }
            if board.changes_nothing(at) || board.has_earlier_twin(at) {
                continue;
            }
        }
        next.push(at);
    }
    let wanted = board.wanted();
    next.sort_unstable_by_key(|&at| {
        let step = board.step(at);
        let wanted =
            wanted.is_some_and(|(key, value)| step.key == key && step.writes() == Some(value));
        (wanted, !step.optional, u32::MAX - step.end)
    });
    if board.rule() == Rule::Linearizable {
        // Of two steps that do the same, the one that ends first: if an order has them the other way
        // round, they can change places.
        let mut seen: HashSet<_, FixedState> = HashSet::default();
        next.reverse();
        next.retain(|&at| {
            let step = board.step(at);
            seen.insert((step.requires, step.effect, step.optional))
        });
        next.reverse();
    }
    next
}

impl Step {
    fn effect_is_set(&self) -> bool {
        matches!(self.effect, Effect::Set(_))
    }
}
