//! What a keyspace promises its users.

use core::fmt;

use crate::FamilyName;

/// A consistency guarantee. It says what can be asked of a keyspace, and chooses the checker that judges a
/// history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Guarantee {
    /// Serializable, in an order that respects real time.
    StrictSerializable,
    /// Equivalent to some serial order.
    Serializable,
    /// Each operation on a key takes effect at one moment between its beginning and its end.
    Linearizable,
    /// As if one operation came after the other in an order that respects causality, and in which a read
    /// comes after every write of its key that was complete when it began (001 §4.6.1).
    RegularSequential,
    /// Nothing: transactions see of each other what they happen to see.
    Nothing,
}

impl Guarantee {
    /// All of them.
    pub const ALL: [Guarantee; 5] = [
        Guarantee::StrictSerializable,
        Guarantee::Serializable,
        Guarantee::Linearizable,
        Guarantee::RegularSequential,
        Guarantee::Nothing,
    ];

    /// The one that is called `name`.
    pub fn named(name: &str) -> Option<Guarantee> {
        Guarantee::ALL.into_iter().find(|guarantee| guarantee.name() == name)
    }

    /// The name used in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::StrictSerializable => "strict-serializable",
            Guarantee::Serializable => "serializable",
            Guarantee::Linearizable => "linearizable",
            Guarantee::RegularSequential => "regular-sequential",
            Guarantee::Nothing => "none",
        }
    }

    /// The family of the protocols that promise it.
    pub fn family(self) -> FamilyName {
        match self {
            Guarantee::StrictSerializable | Guarantee::Serializable | Guarantee::Nothing => {
                FamilyName::Transactions
            }
            Guarantee::Linearizable | Guarantee::RegularSequential => FamilyName::Registers,
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
