//! Registers: operations on single keys.

mod error;
mod keyspace;
mod options;
#[cfg(test)]
mod tests;

pub use error::RegisterError;
pub use keyspace::{Modified, RegisterKeyspace};
pub use options::RegisterOptions;
