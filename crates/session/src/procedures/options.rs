//! How long to try.

use std::time::Duration;

use crate::Backoff;

/// Options of calls of stored procedures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CallOptions {
    /// The longest that a call, a registration or a question may take. Default 10 s.
    pub deadline: Duration,
    /// How long to wait before a call that met a conflict is tried again. Protocols that never abort have no conflicts.
    pub backoff: Backoff,
}

impl Default for CallOptions {
    fn default() -> Self {
        CallOptions { deadline: Duration::from_secs(10), backoff: Backoff::default() }
    }
}
