//! What a keyspace promises its users.

use core::fmt;

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

    /// What can be asked of a keyspace that promises it.
    pub fn family(self) -> Family {
        match self {
            Guarantee::StrictSerializable | Guarantee::Serializable | Guarantee::Nothing => {
                Family::Transactions
            }
            Guarantee::Linearizable | Guarantee::RegularSequential => Family::Registers,
        }
    }
}

/// What can be asked of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Family {
    /// Transactions over any keys.
    Transactions,
    /// Reads, writes and read-modify-writes of single keys.
    Registers,
}

impl Family {
    /// The most replicas that a keyspace of the family can have.
    pub fn most_replicas(self) -> usize {
        match self {
            Family::Transactions => 63,
            Family::Registers => 7,
        }
    }

    /// Whether a keyspace of the family can have so many replicas.
    ///
    /// # Errors
    /// Why it can't, and what to choose.
    pub fn check_replicas(self, replicas: usize) -> Result<(), String> {
        let most = self.most_replicas();
        if replicas.is_multiple_of(2) {
            return Err(format!(
                "{replicas} replicas survive no more failures than one less: choose an odd number up to {most}"
            ));
        }
        if replicas > most {
            let reason = match self {
                Family::Transactions => "node sets hold no more",
                Family::Registers => {
                    "every replica takes part in every update of a register, and the quorums of its protocols are made for 3, 5 and 7"
                }
            };
            return Err(format!(
                "{replicas} replicas are too many ({reason}): choose an odd number up to {most}"
            ));
        }
        Ok(())
    }
}

/// What there is in a keyspace.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Transactions => "transactions",
            Family::Registers => "registers",
        })
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_replicas_or_too_many_are_refused_with_the_reason() {
        for replicas in [1, 3, 5, 7] {
            assert_eq!(Family::Registers.check_replicas(replicas), Ok(()));
        }
        let even = Family::Registers.check_replicas(4).unwrap_err();
        assert!(even.starts_with("4 replicas survive no more failures than one less"), "{even}");
        let many = Family::Registers.check_replicas(9).unwrap_err();
        assert!(many.contains("made for 3, 5 and 7") && many.ends_with("up to 7"), "{many}");
        assert_eq!(Family::Transactions.check_replicas(9), Ok(()));
    }
}
