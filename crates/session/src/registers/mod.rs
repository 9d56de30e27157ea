//! Registers: operations on single keys.

mod error;
mod keyspace;
mod options;
#[cfg(test)]
mod tests;

pub use error::RegisterError;
pub use keyspace::RegisterKeyspace;
pub use options::RegisterOptions;
