//! An object for tests.

use serde::{Deserialize, Serialize};
use serried_model::{Key, Value, Version};

use super::message::Update;
use super::object::{Object, Operation};

/// An object that counts updates.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counter(u64);

/// An operation on a counter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Count {
    Up,
    Read,
}

impl Operation for Count {
    const REFUSAL: Count = Count::Read;

    fn is_update(&self) -> bool {
        *self == Count::Up
    }

    fn value_bytes(&self) -> usize {
        0
    }
}

impl Object for Counter {
    type Operation = Count;
    type Found = u64;

    fn holding(_: Value) -> Counter {
        Counter::default()
    }

    fn read(&self, _: &Count) -> u64 {
        self.0
    }

    fn update(&mut self, _: &Count) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Counts up, with a token of this time.
pub(super) fn up(us: u64) -> Update<Count> {
    let (token, settled) = (Version::at(us), Version::at(0));
    Update { key: Key::from("x"), token, settled, operation: Count::Up }
}
