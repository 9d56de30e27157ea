//! Compilation of expressions.

mod expression;
mod scope;
mod typed;

pub(crate) use expression::compile;
pub(crate) use scope::{Declared, DeclaredPiece, Scope, ScopedRow};
pub(crate) use typed::Typed;
