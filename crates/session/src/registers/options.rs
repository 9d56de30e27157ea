//! How long to try.

use std::time::Duration;

/// Options of operations on registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterOptions {
    /// The longest that an operation may take. Default 10 s.
    pub deadline: Duration,
}

impl Default for RegisterOptions {
    fn default() -> Self {
        RegisterOptions { deadline: Duration::from_secs(10) }
    }
}
