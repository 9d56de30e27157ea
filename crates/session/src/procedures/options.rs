//! How long to try.

use std::time::Duration;

/// Options of calls of stored procedures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallOptions {
    /// The longest that a call, a registration or a question may take. Default 10 s.
    pub deadline: Duration,
}

impl Default for CallOptions {
    fn default() -> Self {
        CallOptions { deadline: Duration::from_secs(10) }
    }
}
