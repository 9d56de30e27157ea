//! Bounds of what an evaluation takes.

use serried_procedures::{Code, Type};

/// Copying or comparing this many bytes counts as a step.
pub(crate) const BYTES_A_STEP: u64 = 64;

/// What an evaluation takes at most. All numbers saturate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// How it can fail, if it can.
    pub(crate) fails: Option<&'static str>,
    /// Steps: evaluated operations, elements that are looked at, and bytes that are copied or compared.
    pub(crate) steps: u64,
    /// Bytes that are allocated.
    pub(crate) bytes: u64,
}

impl Cost {
    pub(crate) const NONE: Cost = Cost { fails: None, steps: 0, bytes: 0 };

    pub(crate) fn and(self, other: Cost) -> Cost {
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
}

/// A compiled expression, its type, and what it takes.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) code: Code,
    pub(crate) of: Type,
    pub(crate) cost: Cost,
}

impl Typed {
    /// An expression that takes `cost` and one step.
    pub(crate) fn new(code: Code, of: Type, cost: Cost) -> Typed {
        Typed { code, of, cost: cost.and_steps(1) }
    }

    /// A datum that exists already.
    pub(crate) fn known(code: Code, of: Type) -> Typed {
        Typed::new(code, of, Cost::NONE)
    }

    /// An operation on this expression.
    pub(crate) fn then(self, of: Type, operation: impl FnOnce(Box<Code>) -> Code) -> Typed {
        Typed::new(operation(Box::new(self.code)), of, self.cost)
    }

    /// An operation on this expression and another.
    pub(crate) fn with(
        self,
        other: Typed,
        of: Type,
        operation: impl FnOnce(Box<Code>, Box<Code>) -> Code,
    ) -> Typed {
        Typed::new(
            operation(Box::new(self.code), Box::new(other.code)),
            of,
            self.cost.and(other.cost),
        )
    }

    /// The same with the allocation of its result.
    pub(crate) fn allocating(mut self) -> Typed {
        self.cost = self.cost.and_datum(&self.of);
        self
    }

    /// The same with more steps.
    pub(crate) fn taking(mut self, steps: u64) -> Typed {
        self.cost = self.cost.and_steps(steps);
        self
    }

    /// The same, which can fail.
    pub(crate) fn failing(mut self, how: &'static str) -> Typed {
        self.cost = self.cost.failing(how);
        self
    }
}
