//! What a keyspace promises its users.

use core::fmt;

/// A consistency guarantee. It determines the checker that judges a history. Protocols of several families can promise
/// the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Guarantee {
    /// Serializable, in an order that respects real time.
    StrictSerializable,
    /// Equivalent to some serial order.
    Serializable,
    /// Each operation on a key takes effect at one moment between its start and its end.
    Linearizable,
    /// Equivalent to a serial order that respects causality. In this order a read comes after every write of its key
    /// that was complete when the read began (001 §4.6.1).
    RegularSequential,
    /// Equivalent to a serial order in which the transactions of each session are in the order of the session (004 §6).
    /// A session may not see the latest writes of others.
    ProcessOrdered,
    /// Causal, with convergence: a transaction sees others whole, and each one together with all that it depends on.
    /// What a session does comes after what it has done and seen before. Of writes of one key, all sessions take the
    /// same one for the later. Sessions may see independent writes in different orders (004 §8).
    Causal,
    /// No guarantee: an operation may see any part of what others do.
    Nothing,
}

impl Guarantee {
    /// All of them.
    pub const ALL: [Guarantee; 7] = [
        Guarantee::StrictSerializable,
        Guarantee::Serializable,
        Guarantee::Linearizable,
        Guarantee::RegularSequential,
        Guarantee::ProcessOrdered,
        Guarantee::Causal,
        Guarantee::Nothing,
    ];

    /// The guarantee called `name`.
    pub fn named(name: &str) -> Option<Guarantee> {
        Guarantee::ALL.into_iter().find(|guarantee| guarantee.name() == name)
    }

    /// Whether everything with this guarantee has the other one, too.
    pub fn includes(self, other: Guarantee) -> bool {
        use Guarantee::*;
        let weaker: &[Guarantee] = match self {
            StrictSerializable => &[Serializable, ProcessOrdered, Causal],
            Linearizable => &[RegularSequential],
            ProcessOrdered => &[Causal],
            Serializable | RegularSequential | Causal | Nothing => &[],
        };
        other == self || other == Nothing || weaker.contains(&other)
    }

    /// Its name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::StrictSerializable => "strict-serializable",
            Guarantee::Serializable => "serializable",
            Guarantee::Linearizable => "linearizable",
            Guarantee::RegularSequential => "regular-sequential",
            Guarantee::ProcessOrdered => "process-ordered",
            Guarantee::Causal => "causal",
            Guarantee::Nothing => "none",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
