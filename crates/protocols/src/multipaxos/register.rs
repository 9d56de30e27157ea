//! Registers as replicated objects.

use serde::{Deserialize, Serialize};
use serried_model::{Access, Carstamp, Change, Value};
use serried_parts::Stamped;

use crate::frameworks::replicated_objects::{Object, Operation};

/// A register.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Register {
    /// What it holds.
    value: Option<Value>,
    /// How many updates have changed it.
    changes: u64,
}

impl Register {
    fn stamp(&self, value: Option<Value>) -> Stamped {
        let carstamp = Carstamp { timestamp: self.changes, ..Carstamp::INITIAL };
        Stamped { value, carstamp }
    }
}

impl Object for Register {
    type Operation = Access;
    /// What the register held before a modification. A write finds nothing. The carstamp counts the changes, with that of the
    /// operation itself.
    type Found = Stamped;

    fn holding(value: Value) -> Register {
        Register { value: Some(value), ..Register::default() }
    }

    fn read(&self, _: &Access) -> Stamped {
        self.stamp(self.value.clone())
    }

    fn update(&mut self, access: &Access) -> Stamped {
        let (change, found) = match access {
            Access::Read => return self.read(access),
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
        self.stamp(found)
    }
}

impl Operation for Access {
    const REFUSAL: Access = Access::Read;

    fn is_update(&self) -> bool {
        *self != Access::Read
    }

    fn value_bytes(&self) -> usize {
        match self {
            Access::Read => 0,
            Access::Write(value) => value.as_ref().map_or(0, |value| value.len()),
            Access::Modify(modification) => modification.value_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serried_model::Modification;

    #[test]
    fn a_modification_finds_what_was_there_and_a_write_nothing() {
        let mut register = Register::default();
        let found = |register: &mut Register, access| {
            let Stamped { value, carstamp } = register.update(&access);
            (value, carstamp.timestamp)
        };
        let add = Access::Modify(Modification::add(1));
        assert_eq!(found(&mut register, add.clone()), (None, 1));
        assert_eq!(found(&mut register, add), (Some(Value::from("1")), 2));
        assert_eq!(found(&mut register, Access::Write(None)), (None, 3));
        assert_eq!(register.read(&Access::Read).value, None);
    }
}
