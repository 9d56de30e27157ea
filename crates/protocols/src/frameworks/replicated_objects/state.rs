//! What a replica knows of a key.

use serde::{Deserialize, Serialize};
use serried_parts::{Recalled, Results};

use super::message::Update;
use super::object::{Object, Operation};

/// What a replica knows of a key. It is the same at all replicas that have applied the same entries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub(super) struct State<O: Object> {
    object: O,
    /// The slot after that of the last update which was executed.
    applied: u64,
    /// The results of updates.
    results: Results<O::Found>,
}

/// The result of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Executed<F> {
    /// The update was executed, now or earlier, and found this.
    Done(F),
    /// The update was not executed and never will be.
    Refused,
    /// It is not known whether the update was executed.
    Forgotten,
}

impl<O: Object> Default for State<O> {
    fn default() -> State<O> {
        State::of(O::default())
    }
}

impl<O: Object> State<O> {
    /// The state of a key before the first update.
    pub(super) fn of(object: O) -> State<O> {
        State { object, applied: 0, results: Results::default() }
    }

    /// The object.
    pub(super) fn object(&self) -> &O {
        &self.object
    }

    /// Whether it is as of a slot that is not before the other's.
    pub(super) fn is_as_late_as(&self, other: &State<O>) -> bool {
        self.applied >= other.applied
    }

    /// Executes the update in a slot. An update that was executed before, in that slot or another, is not executed again. If
    /// the entry is a refusal, the update is executed in no later slot. Results are kept for `remembered_us` by the tokens'
    /// times. All replicas execute updates in the same order, so they remember the same.
    pub(super) fn execute(
        &mut self,
        slot: u64,
        update: &Update<O::Operation>,
        remembered_us: u64,
    ) -> Executed<O::Found> {
        match self.results.recall_and_settle(update.token, update.settled) {
            Recalled::Forgotten => return Executed::Forgotten,
            Recalled::Result(found) => return Executed::Done(found),
            Recalled::Nothing => {}
        }
        if slot < self.applied {
            // The state was copied from another replica, and is as of a later slot.
            return Executed::Forgotten;
        }
        self.applied = slot + 1;
        if !update.operation.is_update() {
            let is_refused = self.results.refuse(update.token);
            return if is_refused { Executed::Refused } else { Executed::Forgotten };
        }
        let found = self.object.update(&update.operation);
        self.results.remember(update.token, update.settled, found.clone(), remembered_us);
        Executed::Done(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::counter::{Count, Counter, up};
    use super::*;

    #[test]
    fn an_update_is_executed_once_or_not_at_all_if_late() {
        let mut state = State::<Counter>::default();
        assert_eq!(state.execute(0, &up(100), 50), Executed::Done(1));
        assert_eq!(state.execute(1, &up(90), 50), Executed::Done(2));
        assert_eq!(state.execute(2, &up(100), 50), Executed::Done(1), "what it found then");
        assert_eq!(state.object().read(&Count::Read), 2);
        state.execute(3, &up(145), 50);
        assert_eq!(state.execute(4, &up(90), 50), Executed::Forgotten);
        assert_eq!(state.execute(5, &up(100), 50), Executed::Done(1));
        assert_eq!((state.object().read(&Count::Read), state.results.len()), (3, 2));
    }

    #[test]
    fn refusal_and_execution_of_an_update_exclude_each_other() {
        let refusal = |us| Update { operation: Count::REFUSAL, ..up(us) };
        let mut state = State::<Counter>::default();
        assert_eq!(state.execute(0, &up(100), 50), Executed::Done(1));
        assert_eq!(state.execute(1, &refusal(100), 50), Executed::Done(1));
        assert_eq!(state.execute(2, &refusal(900), 50), Executed::Refused);
        assert_eq!(state.execute(3, &up(900), 50), Executed::Forgotten);
        assert_eq!(state.execute(4, &up(901), 50), Executed::Done(2), "another one");
    }

    #[test]
    fn a_state_that_was_copied_is_not_changed_by_slots_that_it_has() {
        let mut state = State::<Counter>::default();
        state.execute(7, &up(100), 50);
        let copied = state.clone();
        state.execute(7, &up(100), 50);
        state.execute(6, &up(99), 50);
        assert_eq!(state, copied);
        assert_eq!(state.execute(8, &up(101), 50), Executed::Done(2));
    }
}
