//! What updates do to a key.

use serde::{Deserialize, Serialize};
use serried_model::{Access, Carstamp, Change, Value};
use serried_parts::{Recalled, Results, Stamped};

use super::message::Update;

/// What a replica knows of a key. It is the same at all replicas that have applied the same entries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Register {
    /// What it holds.
    value: Option<Value>,
    /// How many updates have changed it.
    changes: u64,
    /// The slot after that of the last update which was executed.
    applied: u64,
    /// The results of updates.
    results: Results<Stamped>,
}

/// The result of an update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Executed {
    /// The update was executed, now or earlier, and found this.
    Done(Stamped),
    /// The update was not executed and never will be.
    Refused,
    /// It is not known whether the update was executed.
    Forgotten,
}

fn stamped(value: Option<Value>, changes: u64) -> Stamped {
    Stamped { value, carstamp: Carstamp { timestamp: changes, ..Carstamp::INITIAL } }
}

impl Register {
    /// A register that holds a value before the first update.
    pub(super) fn holding(value: Value) -> Register {
        Register { value: Some(value), ..Register::default() }
    }

    /// What it holds.
    pub(super) fn read(&self) -> Stamped {
        stamped(self.value.clone(), self.changes)
    }

    /// Whether it is as of a slot that is not before the other's.
    pub(super) fn is_as_late_as(&self, other: &Register) -> bool {
        self.applied >= other.applied
    }

    /// Executes the update in a slot; one that was executed before, in that slot or another, is not
    /// executed again. If the entry is a refusal, the update is executed in no later slot. Results are kept for
    /// `remembered_us` by the tokens' times: all replicas execute updates in the same order, so that they
    /// remember the same.
    pub(super) fn execute(&mut self, slot: u64, update: &Update, remembered_us: u64) -> Executed {
        match self.results.recall_and_settle(update.token, update.settled) {
            Recalled::Forgotten => return Executed::Forgotten,
            Recalled::Result(stamped) => return Executed::Done(stamped),
            Recalled::Nothing => {}
        }
        if slot < self.applied {
            // The state was taken over from another, and is as of a later slot.
            return Executed::Forgotten;
        }
        self.applied = slot + 1;
        let (change, found) = match &update.access {
            Access::Read if self.results.refuse(update.token) => return Executed::Refused,
            Access::Read => return Executed::Forgotten,
            Access::Write(value) => (Change::To(value.clone()), None),
            Access::Modify(modification) => {
                let change = modification.apply(self.value.as_ref()).unwrap_or(Change::None);
                (change, self.value.clone())
            }
        };
        if let Change::To(value) = change {
            self.value = value;
            self.changes += 1;
        }
        let found = stamped(found, self.changes);
        self.results.remember(update.token, update.settled, found.clone(), remembered_us);
        Executed::Done(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::{Key, Modification, Version};

    fn add(us: u64) -> Update {
        let access = Access::Modify(Modification::add(1));
        let settled = Version::at(0);
        Update { key: Key::from("x"), token: Version::at(us), settled, access }
    }

    fn found(value: Option<&str>, changes: u64) -> Executed {
        Executed::Done(stamped(value.map(Value::from), changes))
    }

    #[test]
    fn an_update_is_executed_once_or_not_at_all_if_late() {
        let mut register = Register::default();
        assert_eq!(register.execute(0, &add(100), 50), found(None, 1));
        assert_eq!(register.execute(1, &add(90), 50), found(Some("1"), 2));
        assert_eq!(register.execute(2, &add(100), 50), found(None, 1), "what it found then");
        assert_eq!(register.read().value, Some(Value::from("2")));
        register.execute(3, &add(145), 50);
        assert_eq!(register.execute(4, &add(90), 50), Executed::Forgotten);
        assert_eq!(register.execute(5, &add(100), 50), found(None, 1));
        assert_eq!((register.read().value, register.results.len()), (Some(Value::from("3")), 2));
    }

    #[test]
    fn refusal_and_execution_of_an_update_exclude_each_other() {
        let refusal = |us| Update { access: Access::Read, ..add(us) };
        let mut register = Register::default();
        assert_eq!(register.execute(0, &add(100), 50), found(None, 1));
        assert_eq!(register.execute(1, &refusal(100), 50), found(None, 1));
        assert_eq!(register.execute(2, &refusal(900), 50), Executed::Refused);
        assert_eq!(register.execute(3, &add(900), 50), Executed::Forgotten);
        assert_eq!(register.execute(4, &add(901), 50), found(Some("1"), 2), "another one");
    }

    #[test]
    fn a_state_that_was_taken_over_is_not_changed_by_slots_that_it_has() {
        let mut register = Register::default();
        register.execute(7, &add(100), 50);
        let taken_over = register.clone();
        register.execute(7, &add(100), 50);
        register.execute(6, &add(99), 50);
        assert_eq!(register, taken_over);
        assert_eq!(register.execute(8, &add(101), 50), found(Some("1"), 2));
    }
}
