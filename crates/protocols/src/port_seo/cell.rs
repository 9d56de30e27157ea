//! What a replica keeps in its store.

use serde::{Deserialize, Serialize};
use serried_model::Value;
use serried_parts::{Recalled, Results};

use super::Mutation;
use super::message::{Batch, Fate, Mark, Sequenced, Version, Write};
use crate::Mutated;
use crate::frameworks::replicated_log::Last;

/// What a replica keeps under a name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Cell {
    /// A key.
    Key(KeyState),
    /// The partition.
    Partition(Partition),
}

/// What a replica knows of a key. It is the same at all replicas that have applied the same entries.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct KeyState {
    /// The latest version.
    latest: Version,
    /// The number of the last write that was executed or refused here.
    executed: u64,
    /// The numbers of writes, by their tokens.
    results: Results<u64>,
}

impl KeyState {
    /// A key that has a value before the first write.
    pub(super) fn holding(value: Value) -> KeyState {
        KeyState { latest: Version { number: 0, value: Some(value) }, ..KeyState::default() }
    }

    /// The latest version.
    pub(super) fn latest(&self) -> &Version {
        &self.latest
    }

    /// Executes a write that has this number. If it was executed before, with another number, then nothing is changed.
    /// Results are kept for `remembered_us` by the tokens' times.
    pub(super) fn execute(
        &mut self,
        number: u64,
        sequenced: &Sequenced,
        remembered_us: u64,
        mutation: Mutated<Mutation>,
    ) -> Fate {
        let Write { token, settled, value, .. } = &sequenced.write;
        match self.results.recall_and_settle(*token, *settled) {
            Recalled::Forgotten => return Fate::Forgotten,
            Recalled::Result(before) if !mutation.is(Mutation::ExecutedAgain) => {
                return Fate::Done(before);
            }
            Recalled::Result(_) | Recalled::Nothing => {}
        }
        if number <= self.executed {
            // The state was copied from another replica, and is as of a later write.
            return Fate::Forgotten;
        }
        self.executed = number;
        if sequenced.is_refused {
            return if self.results.refuse(*token) { Fate::Refused } else { Fate::Forgotten };
        }
        self.latest = Version { number, value: value.clone() };
        self.results.remember(*token, *settled, number, remembered_us);
        Fate::Done(number)
    }

    /// What became of a write that was executed.
    pub(super) fn fate(&self, write: &Write) -> Fate {
        match self.results.recall(write.token) {
            Recalled::Result(number) => Fate::Done(number),
            Recalled::Forgotten | Recalled::Nothing => Fate::Forgotten,
        }
    }

    /// Whether it is as of a later write than the other one.
    pub(super) fn is_after(&self, other: &KeyState) -> bool {
        self.executed > other.executed
    }
}

/// What a replica knows of its partition beside the keys.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Partition {
    /// The last entry of the log.
    pub(super) last: Last,
    /// The last batch that was applied here.
    pub(super) applied: Mark,
    /// The last batch that got numbers here, if this is the sequencer's partition.
    pub(super) sequenced: Mark,
    /// The same with its writes, if it belongs to another partition.
    pub(super) handed_out: Option<Batch>,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::Key(KeyState::default())
    }
}

impl Cell {
    /// The key.
    pub(super) fn key(&self) -> &KeyState {
        match self {
            Cell::Key(state) => state,
            Cell::Partition(_) => unreachable!("no key has the name of the partition"),
        }
    }

    /// The key, to change.
    pub(super) fn key_mut(&mut self) -> &mut KeyState {
        match self {
            Cell::Key(state) => state,
            Cell::Partition(_) => unreachable!("no key has the name of the partition"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serried_model::{Key, NodeId};

    use super::*;

    fn write(us: u64, value: &str) -> Sequenced {
        let token = serried_model::Version { timestamp_us: us, coordinator: NodeId(70_000) };
        let settled = serried_model::Version { timestamp_us: 0, ..token };
        let value = Some(Value::from(value));
        Sequenced { write: Write { key: Key::from("x"), value, token, settled }, is_refused: false }
    }

    fn execute(state: &mut KeyState, number: u64, sequenced: &Sequenced) -> Fate {
        state.execute(number, sequenced, 50, Mutated::NONE)
    }

    #[test]
    fn a_write_takes_effect_once_under_one_number_or_not_at_all_if_late() {
        let mut state = KeyState::default();
        assert_eq!(execute(&mut state, 3, &write(100, "a")), Fate::Done(3));
        assert_eq!(execute(&mut state, 5, &write(110, "b")), Fate::Done(5));
        assert_eq!(execute(&mut state, 8, &write(100, "a")), Fate::Done(3));
        assert_eq!(state.latest().number, 5);
        execute(&mut state, 9, &write(165, "c"));
        assert_eq!(execute(&mut state, 10, &write(100, "a")), Fate::Forgotten);
        assert_eq!(state.latest().value, Some(Value::from("c")));
        assert_eq!(state.fate(&write(165, "c").write), Fate::Done(9));
        assert_eq!(state.fate(&write(100, "a").write), Fate::Forgotten);
    }

    #[test]
    fn what_was_refused_is_never_executed() {
        let refusal = |us| Sequenced { is_refused: true, ..write(us, "a") };
        let mut state = KeyState::default();
        assert_eq!(execute(&mut state, 1, &refusal(900)), Fate::Refused);
        assert_eq!(execute(&mut state, 2, &write(900, "a")), Fate::Forgotten);
        assert_eq!(execute(&mut state, 3, &write(901, "b")), Fate::Done(3));
        assert_eq!(execute(&mut state, 4, &refusal(901)), Fate::Done(3));
        assert_eq!(state.latest().number, 3);
    }

    #[test]
    fn a_state_that_was_copied_is_not_changed_by_writes_that_it_has() {
        let mut state = KeyState::default();
        execute(&mut state, 7, &write(100, "a"));
        let copied = state.clone();
        for number in [6, 7] {
            assert_eq!(execute(&mut state, number, &write(90, "b")), Fate::Forgotten);
        }
        assert_eq!(state, copied);
        assert!(!state.is_after(&copied));
        execute(&mut state, 8, &write(90, "b"));
        assert!(state.is_after(&copied) && !copied.is_after(&state));
    }

    #[test]
    fn a_state_with_a_refusal_is_later() {
        let mut state = KeyState::default();
        execute(&mut state, 1, &write(100, "a"));
        let before = state.clone();
        let refusal = Sequenced { is_refused: true, ..write(900, "a") };
        assert_eq!(execute(&mut state, 2, &refusal), Fate::Refused);
        assert!(state.is_after(&before));
    }
}
