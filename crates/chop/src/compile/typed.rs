//! Compiled expressions with their types.

use std::rc::Rc;

use serried_procedures::{Code, Inferred, Type};

/// A compiled expression, its type, and what it takes.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) code: Code,
    pub(crate) inferred: Inferred,
}

impl Typed {
    /// A datum that exists already.
    pub(crate) fn known(code: Code, of: Type) -> Typed {
        Typed { code, inferred: Inferred::known(Rc::new(of)) }
    }

    pub(crate) fn of(&self) -> &Type {
        &self.inferred.of
    }

    /// The code, boxed as an operand, and what is known of it.
    pub(crate) fn operand(self) -> (Box<Code>, Inferred) {
        (Box::new(self.code), self.inferred)
    }
}
