//! Violations: evidence that no serial execution explains a history, or none that respects real time.

use serried_model::Version;

use super::TransactionGuarantee;
use crate::{EventKind, MicroOperation};

/// Kinds of anomalies: Adya's phenomena (001 Definitions A.1.5 to A.1.8), with separate names for the smallest cycles,
/// and anomalies that show without a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ViolationKind {
    /// G0: transactions overwrote each other in a cycle.
    WriteCycle,
    /// G1a: a committed transaction read a write of a failed one, or a version that no transaction has.
    AbortedRead,
    /// G1b: a committed transaction read a write that its own writer replaced.
    IntermediateRead,
    /// G1c: transactions read from and overwrote each other in a cycle.
    CircularInformationFlow,
    /// G-single: a cycle with exactly one anti-dependency, such as a lost update or read skew.
    SingleAntiDependency,
    /// G2: a cycle with several anti-dependencies, such as write skew or a long fork.
    AntiDependencyCycle,
    /// Two reads of a list do not agree on the order of its elements.
    IncompatibleOrder,
    /// A list contains an element twice.
    DuplicateElement,
    /// A read found a value that was never written.
    GarbageRead,
    /// A transaction's reads contradict its own earlier operations.
    InternalInconsistency,
    /// Two committed transactions have the same version.
    DuplicateVersion,
    /// Two reads of data from before the history found different values.
    DisagreeingReads,
    /// In every serial order that explains the history, a transaction comes before one that had ended
    /// before it began (003 §2.2, Invariant 2, and §4).
    Inversion,
}

impl ViolationKind {
    /// A short name: Adya's where there is one.
    pub fn name(self) -> &'static str {
        match self {
            ViolationKind::WriteCycle => "G0",
            ViolationKind::AbortedRead => "G1a",
            ViolationKind::IntermediateRead => "G1b",
            ViolationKind::CircularInformationFlow => "G1c",
            ViolationKind::SingleAntiDependency => "G-single",
            ViolationKind::AntiDependencyCycle => "G2",
            ViolationKind::IncompatibleOrder => "incompatible order",
            ViolationKind::DuplicateElement => "duplicate element",
            ViolationKind::GarbageRead => "garbage read",
            ViolationKind::InternalInconsistency => "internal inconsistency",
            ViolationKind::DuplicateVersion => "duplicate version",
            ViolationKind::DisagreeingReads => "disagreeing reads",
            ViolationKind::Inversion => "inversion",
        }
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            ViolationKind::WriteCycle => "transactions overwrote each other in a cycle",
            ViolationKind::AbortedRead => "a read of a write that never took effect",
            ViolationKind::IntermediateRead => "a read of a write that its transaction replaced",
            ViolationKind::CircularInformationFlow => {
                "transactions read from each other in a cycle"
            }
            ViolationKind::SingleAntiDependency => {
                "a cycle with one anti-dependency: a lost update, or read skew"
            }
            ViolationKind::AntiDependencyCycle => {
                "a cycle with several anti-dependencies: write skew, or a long fork"
            }
            ViolationKind::IncompatibleOrder => "reads of one list contradict each other",
            ViolationKind::DuplicateElement => "one append took effect twice",
            ViolationKind::GarbageRead => "a read of what was never written",
            ViolationKind::InternalInconsistency => "a transaction contradicts itself",
            ViolationKind::DuplicateVersion => "one version for two transactions",
            ViolationKind::DisagreeingReads => "one version with two values",
            ViolationKind::Inversion => "every serial order contradicts real time",
        }
    }

    /// The guarantees that do not allow it, the weakest first.
    pub(super) fn ruled_out(self) -> &'static [&'static str] {
        const ALL: [&str; 7] = [
            "read uncommitted",
            "read committed",
            "consistent view",
            "snapshot isolation",
            "repeatable read",
            "serializable",
            "strictly serializable",
        ];
        match self {
            ViolationKind::WriteCycle => &ALL,
            ViolationKind::AbortedRead
            | ViolationKind::IntermediateRead
            | ViolationKind::CircularInformationFlow
            | ViolationKind::IncompatibleOrder
            | ViolationKind::DuplicateElement
            | ViolationKind::GarbageRead
            | ViolationKind::DuplicateVersion
            | ViolationKind::DisagreeingReads => &ALL[1..],
            ViolationKind::SingleAntiDependency | ViolationKind::InternalInconsistency => &ALL[2..],
            ViolationKind::AntiDependencyCycle => &ALL[4..],
            ViolationKind::Inversion => &ALL[6..],
        }
    }
}

/// Why one transaction must come before another (001 Definitions A.1.1 to A.1.3). The strongest reason comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConflictKind {
    /// ww: the second transaction replaced a write of the first.
    WriteDependency,
    /// wr: the second transaction read a write of the first.
    ReadDependency,
    /// rw: the second transaction replaced what the first read.
    AntiDependency,
}

impl ConflictKind {
    /// Adya's abbreviation: `ww`, `wr` or `rw`.
    pub fn name(self) -> &'static str {
        match self {
            ConflictKind::WriteDependency => "ww",
            ConflictKind::ReadDependency => "wr",
            ConflictKind::AntiDependency => "rw",
        }
    }
}

/// What identifies a write to a key in the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installed {
    /// A list that ends with this element.
    Element(u64),
    /// A register at this version.
    Version(Version),
    /// A register with this value, in a history without versions.
    Value(Option<u64>),
}

/// The edge of a cycle that is not a conflict: `T1` had ended before `T2` began.
///
/// A smallest cycle has at most one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealTime {
    /// The index of the event that ended `T1`.
    pub ended: u64,
    /// The index of the event with which `T2` began. It is later in the history.
    pub began: u64,
}

/// One edge of a cycle: `from` must come before `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// Index into [`Violation::transactions`].
    pub from: usize,
    /// Index into [`Violation::transactions`].
    pub to: usize,
    /// Why.
    pub kind: ConflictKind,
    /// Over which key.
    pub key: u64,
    /// What `from` wrote, or for an anti-dependency what it read. `None` for the initial version.
    pub before: Option<Installed>,
    /// What `to` wrote. `None` for a read dependency, in which it only read.
    pub after: Option<Installed>,
}

/// A transaction that takes part in a violation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// The index of its completion, or of its invoke if it has none.
    pub index: u64,
    /// Its process.
    pub process: u64,
    /// How it ended. [`EventKind::Invoke`] if its end was not recorded.
    pub kind: EventKind,
    /// Its version, if recorded. If its outcome is unknown and it was read at a later version, this is the later one:
    /// see [`Event::version`](crate::Event::version).
    pub version: Option<Version>,
    /// All its operations.
    pub operations: Vec<MicroOperation>,
    /// The versions that its reads found: one entry per read, or none at all.
    pub read_versions: Vec<Version>,
}

/// Why a history does not satisfy a guarantee. Its `Display` explains it to a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The anomaly.
    pub kind: ViolationKind,
    /// The key, if the anomaly is about one.
    pub key: Option<u64>,
    /// The transactions involved. `T1` is the first. In a cycle, each comes before the next one, and the last before
    /// the first.
    pub transactions: Vec<Witness>,
    /// In an inversion, the first edge of the cycle.
    pub real_time: Option<RealTime>,
    /// The conflicts of the cycle, in its order. In an inversion they lead from `T2` back to `T1`. Empty if the anomaly
    /// is not a cycle.
    pub conflicts: Vec<Conflict>,
    /// What is wrong, in one sentence.
    pub reason: String,
    /// The guarantees that do not allow this anomaly, the weakest first. The history may contain other anomalies that
    /// rule out more.
    pub ruled_out: &'static [&'static str],
}

impl Violation {
    /// The weakest guarantee that is violated, of those of [`crate::check_serializable`] and
    /// [`crate::check_strict_serializable`]. With an inversion the history may still be serializable. With any other
    /// violation it is not.
    pub fn guarantee(&self) -> TransactionGuarantee {
        match self.kind {
            ViolationKind::Inversion => TransactionGuarantee::StrictlySerializable,
            _ => TransactionGuarantee::Serializable,
        }
    }
}
