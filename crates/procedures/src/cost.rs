//! Bounds of what an evaluation takes.

use crate::Type;
use crate::limits::{MAX_BYTES, MAX_STEPS, TooMuch};

/// Copying or comparing this many bytes counts as a step.
pub(crate) const BYTES_A_STEP: u64 = 64;

/// Finding a row, and ordering the call among those that use it, counts as so many steps.
const ROW_STEPS: u64 = 500;

/// What an evaluation takes at most. All numbers saturate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// How it can fail, if it can.
    pub fails: Option<&'static str>,
    /// Steps: evaluated operations, elements that are looked at, bytes that are copied or compared, and rows that are used.
    pub steps: u64,
    /// Bytes that are allocated.
    pub bytes: u64,
}

impl Cost {
    /// Nothing.
    pub const NONE: Cost = Cost { fails: None, steps: 0, bytes: 0 };

    /// One operation.
    pub(crate) const STEP: Cost = Cost { fails: None, steps: 1, bytes: 0 };

    /// The use of a row of a table with so many columns, whose keys and rows take up so many bytes. It is found, and if it
    /// is read, it is copied.
    pub fn row(columns: usize, (key, row): (u64, u64), is_read: bool) -> Cost {
        let bytes = key.saturating_add(if is_read { row } else { 0 });
        Cost { steps: ROW_STEPS + columns as u64 + bytes / BYTES_A_STEP, bytes, fails: None }
    }

    /// A frame with so many slots.
    pub fn frame(slots: u16) -> Cost {
        Cost { steps: slots.into(), ..Cost::NONE }
    }

    /// Both, one after the other.
    #[must_use]
    pub fn and(self, other: Cost) -> Cost {
        Cost {
            fails: self.fails.or(other.fails),
            steps: self.steps.saturating_add(other.steps),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(crate) fn times(self, times: u32) -> Cost {
        let times = u64::from(times);
        Cost {
            fails: self.fails,
            steps: self.steps.saturating_mul(times),
            bytes: self.bytes.saturating_mul(times),
        }
    }

    pub(crate) fn and_steps(self, steps: u64) -> Cost {
        self.and(Cost { steps, ..Cost::NONE })
    }

    /// With the allocation of a datum of type `of`.
    pub(crate) fn and_datum(self, of: &Type) -> Cost {
        let bytes = of.max_bytes();
        self.and(Cost { bytes, steps: bytes / BYTES_A_STEP, fails: None })
    }

    pub(crate) fn failing(self, how: &'static str) -> Cost {
        Cost { fails: self.fails.or(Some(how)), ..self }
    }

    /// Checks what a piece, the lists that it iterates, or all results take.
    ///
    /// # Errors
    /// If it takes too long or too much.
    pub fn check(self) -> Result<(), TooMuch> {
        let (what, found, most) = match (self.steps > MAX_STEPS, self.bytes > MAX_BYTES) {
            (true, _) => ("steps", self.steps, MAX_STEPS),
            (false, true) => ("bytes of memory", self.bytes, MAX_BYTES),
            (false, false) => return Ok(()),
        };
        Err(TooMuch(format!(
            "this takes up to {found} {what}, and the limit is {most}; lower the `max` of the lists and the lengths of the \
             strings that it uses, or use fewer rows"
        )))
    }
}
