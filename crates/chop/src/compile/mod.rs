//! Compilation of expressions.

mod cost;
mod expression;
mod scope;

pub(crate) use cost::{Cost, Typed};
pub(crate) use expression::compile;
pub(crate) use scope::{Declared, DeclaredPiece, Scope, ScopedRow};
