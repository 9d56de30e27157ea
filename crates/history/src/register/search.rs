//! The decision procedure for histories that no faster method decides: a search for a legal order.
//!
//! It builds an order step by step from its beginning, following Wing and Gong (Testing and verifying concurrent
//! objects, 1993) and Lowe (Testing for linearizability, 2017). A step may come next if no other missing step must
//! precede it. A state consists of the steps taken and the values of the registers. A state that was left without
//! success is not entered again. The same search decides both guarantees, which differ in the precedences.
//!
//! Most steps leave no choice. They are taken without storing a state:
//!
//! - A read that finds the register's value is taken at once: if any continuation is legal, so is the one with the read
//!   moved to its front.
//! - A value that no other step writes can't come back. So it is replaced only after all its reads, and then by the
//!   read-modify-write that found it, if there is one.
//! - A write whose value no step needs is taken as soon as it replaces another value that no step needs.
//! - If only real time matters, the one that ends first of several steps with the same effect is taken first.
//! - A step of unknown outcome is taken only directly before a step that needs its value. In any other order it can be
//!   moved there or left out, because it never ends.
//!
//! States are stored as hashes of 128 bits. The probability that two of a million states have the same hash is below
//! 10^-26, far below that of a hardware fault.

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use super::board::{Board, Taken};
use super::step::{Effect, Step};

/// The guarantee to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// An operation precedes every operation that began after it had ended.
    Linearizable,
    /// As for `Linearizable`, but only between operations of one process, and between a write and operations on its
    /// key.
    RegularSequential,
}

/// How much work a check may do before its verdict is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// How many states a search may visit, over all keys. Checks that need no search are not limited.
    pub states: u64,
    /// How many states are stored, at some 20 bytes each. Further states are visited again if the search reaches them
    /// again.
    pub remembered: usize,
}

impl Default for Budget {
    /// At most some 20 seconds and 200 MB.
    fn default() -> Self {
        Budget { states: 20_000_000, remembered: 5_000_000 }
    }
}

impl Budget {
    /// A budget of `states` states, all of them stored.
    pub fn states(states: u64) -> Self {
        Budget { states, remembered: usize::try_from(states).unwrap_or(usize::MAX) }
    }
}

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decision {
    Possible,
    Impossible,
    OutOfBudget,
}

/// A state with several possible next steps.
struct Choice {
    /// How many steps had been taken.
    depth: usize,
    /// The steps that are still to be tried, the best one last.
    next: Vec<u32>,
}

/// Decides whether some order of all mandatory steps and any optional steps is legal and respects the rule. Subtracts
/// the visited states from `budget.states`.
pub(super) fn decide(steps: &[Step], rule: Rule, budget: &mut Budget) -> Decision {
    explore(steps, rule, budget).decision
}

/// The result of a search, and how far it came.
pub(super) struct Explored {
    pub(super) decision: Decision,
    /// The step at which the search got stuck in its furthest state: the missing step that ended first.
    pub(super) stuck: u32,
    /// The order, if one is possible.
    pub(super) order: Vec<u32>,
}

/// As [`decide`], and also returns how far the search came.
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
        // Either the only candidate, or the next one of the latest state with candidates left.
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
            // The only step that may replace a value that is not written again.
            Some(_) => held.writers == 0 && held.reads == 0 && held.rmws == 1,
            None => {
                let written = board.needs_of_written(at);
                held.reads + held.rmws + written.reads + written.rmws == 0
            }
        }
    })
}

/// The steps that may come next and change a register, the most promising one last.
fn candidates(board: &Board<'_>, enabled: &[u32]) -> Vec<u32> {
    let mut next: Vec<u32> = Vec::new();
    for &at in enabled {
        let step = board.step(at);
        if step.is_read() || !board.satisfies(at) {
            continue;
        }
        let optional_rmws = board.has_optional_rmws(step.key);
        // A step of unknown outcome must be followed by one that needs its value.
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
        // Of two steps with the same effect, the one that ends first suffices: if an order has them the other way
        // round, they can be swapped.
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
