//! What a keyspace promises its users.

use core::fmt;

/// A consistency guarantee, the weakest last. It chooses the checker that judges a history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Guarantee {
    /// Serializable, in an order that respects real time.
    StrictSerializable,
    /// Equivalent to some serial order.
    Serializable,
}

impl Guarantee {
    /// The name used in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::StrictSerializable => "strict-serializable",
            Guarantee::Serializable => "serializable",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
