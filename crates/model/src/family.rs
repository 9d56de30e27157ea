//! Families: kinds of keyspaces, by what a client can ask of them.

use core::fmt::{self, Debug};

use crate::{registers, snapshots, transactions};

/// A kind of keyspace: what a session can request of a coordinator, and the answers.
///
/// A protocol belongs to one family. Sessions, drivers, workloads and the command line are each written for one family,
/// or for any. So the compiler rejects a request of another family, and nothing has to refuse it at run time.
pub trait Family: Copy + Debug + Send + Sync + 'static {
    /// Its name where types are erased: in configurations, between nodes and in messages to users.
    const NAME: FamilyName;
    /// A request of a session to its coordinator.
    type Operation: Clone + PartialEq + Debug + Send + 'static;
    /// An answer of a coordinator to its session.
    type Output: Clone + PartialEq + Debug + Send + 'static;
    /// Which optional requests a protocol offers.
    type Offers: Copy + PartialEq + Debug + Send + Sync + 'static;

    /// Whether a keyspace of a protocol with these offers can have several sites, each of which holds all keys.
    fn offers_sites(_offers: &Self::Offers) -> bool {
        false
    }
}

/// The family of keyspaces that run transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transactions;

impl Family for Transactions {
    const NAME: FamilyName = FamilyName::Transactions;
    type Operation = transactions::Operation;
    type Output = transactions::Output;
    type Offers = transactions::Offers;
}

/// The family of keyspaces whose keys are registers: each is read and updated by itself (001 §4.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers;

impl Family for Registers {
    const NAME: FamilyName = FamilyName::Registers;
    type Operation = registers::Operation;
    type Output = registers::Output;
    type Offers = registers::Offers;
}

/// The family of keyspaces with read-only transactions of many keys, and simple writes (004 §2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshots;

impl Family for Snapshots {
    const NAME: FamilyName = FamilyName::Snapshots;
    type Operation = snapshots::Operation;
    type Output = snapshots::Output;
    type Offers = snapshots::Offers;

    fn offers_sites(offers: &Self::Offers) -> bool {
        offers.sites
    }
}

/// The name of a family, where types are erased.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FamilyName {
    /// Transactions on any keys.
    Transactions,
    /// Operations on single keys.
    Registers,
    /// Stored procedures. Its type is in `serried-procedures`, because this crate does not know what they consist of.
    Procedures,
    /// Read-only transactions, and writes of single keys.
    Snapshots,
}

/// What is to be known of a family where types are erased.
struct Description {
    /// What a keyspace of the family contains.
    contains: &'static str,
    most_replicas: usize,
    /// Why there can't be more replicas.
    limited_because: &'static str,
}

impl FamilyName {
    /// All of them.
    pub const ALL: [FamilyName; 4] = [
        FamilyName::Transactions,
        FamilyName::Registers,
        FamilyName::Procedures,
        FamilyName::Snapshots,
    ];

    fn description(self) -> Description {
        match self {
            FamilyName::Transactions => Description {
                contains: "transactions",
                most_replicas: 63,
                limited_because: "node sets hold no more",
            },
            FamilyName::Registers => Description {
                contains: "registers",
                most_replicas: 7,
                limited_because: "every replica takes part in every update of a register, and the quorums of its protocols are made for 3, 5 and 7",
            },
            FamilyName::Procedures => Description {
                contains: "procedures",
                most_replicas: 63,
                limited_because: "node sets hold no more",
            },
            FamilyName::Snapshots => Description {
                contains: "snapshots",
                most_replicas: 63,
                limited_because: "node sets hold no more",
            },
        }
    }

    /// The most replicas that a keyspace of the family can have.
    pub fn most_replicas(self) -> usize {
        self.description().most_replicas
    }

    /// Checks whether a keyspace of the family can have this number of replicas.
    ///
    /// # Errors
    /// If it can't. The error says why, and what to choose.
    pub fn check_replicas(self, replicas: usize) -> Result<(), String> {
        let Description { most_replicas: most, limited_because, .. } = self.description();
        if replicas.is_multiple_of(2) {
            return Err(format!(
                "{replicas} replicas survive no more failures than one less: choose an odd number up to {most}"
            ));
        }
        if replicas > most {
            return Err(format!(
                "{replicas} replicas are too many ({limited_because}): choose an odd number up to {most}"
            ));
        }
        Ok(())
    }
}

/// What a keyspace of the family contains.
impl fmt::Display for FamilyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description().contains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_number_of_replicas_or_too_many_are_refused_with_the_reason() {
        for replicas in [1, 3, 5, 7] {
            assert_eq!(FamilyName::Registers.check_replicas(replicas), Ok(()));
        }
        let even = FamilyName::Registers.check_replicas(4).unwrap_err();
        assert!(even.starts_with("4 replicas survive no more failures than one less"), "{even}");
        let many = FamilyName::Registers.check_replicas(9).unwrap_err();
        assert!(many.contains("made for 3, 5 and 7") && many.ends_with("up to 7"), "{many}");
        assert_eq!(FamilyName::Transactions.check_replicas(9), Ok(()));
    }
}
