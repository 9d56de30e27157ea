//! Violations: evidence that no serial execution explains a history, or none in a required order.

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
    /// Transactions come before each other in a cycle, by the order of their processes and by what they read.
    CausalOrder,
    /// No order of the writes explains what one process read.
    View,
    /// Each process's reads have an explanation, but no one order of the writes explains all of them.
    Convergence,
    /// In every serial order that explains the history, a transaction comes before an earlier one of its own process.
    ProcessOrder,
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
            ViolationKind::CausalOrder => "causal order",
            ViolationKind::View => "view",
            ViolationKind::Convergence => "convergence",
            ViolationKind::ProcessOrder => "process order",
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
            ViolationKind::CausalOrder => "reads contradict the order of causes and effects",
            ViolationKind::View => "no order of the writes explains what one process read",
            ViolationKind::Convergence => "no one order of the writes explains all reads",
            ViolationKind::ProcessOrder => {
                "every serial order contradicts the order of a process's transactions"
            }
            ViolationKind::Inversion => "every serial order contradicts real time",
        }
    }

    /// The guarantees that do not allow it, the weakest first.
    pub(super) fn ruled_out(self) -> &'static [&'static str] {
        // Serializable histories need not be causal: their order may contradict a process.
        const WITH_CAUSAL: [&str; 9] = [
            "read committed",
            "consistent view",
            "snapshot isolation",
            "repeatable read",
            "serializable",
            "causal",
            "causally convergent",
            "process-ordered serializable",
            "strictly serializable",
        ];
        const ALL: [&str; 8] = [
            "read uncommitted",
            "read committed",
            "consistent view",
            "snapshot isolation",
            "repeatable read",
            "serializable",
            "process-ordered serializable",
            "strictly serializable",
        ];
        match self {
            ViolationKind::WriteCycle => &ALL,
            ViolationKind::AbortedRead
            | ViolationKind::IntermediateRead
            | ViolationKind::GarbageRead
            | ViolationKind::DuplicateVersion
            | ViolationKind::DisagreeingReads => &WITH_CAUSAL,
            ViolationKind::CircularInformationFlow
            | ViolationKind::IncompatibleOrder
            | ViolationKind::DuplicateElement => &ALL[1..],
            ViolationKind::InternalInconsistency => &WITH_CAUSAL[1..],
            ViolationKind::SingleAntiDependency => &ALL[2..],
            ViolationKind::AntiDependencyCycle => &ALL[4..],
            ViolationKind::CausalOrder => &WITH_CAUSAL[5..],
            ViolationKind::View => {
                &["causal", "process-ordered serializable", "strictly serializable"]
            }
            ViolationKind::Convergence => &WITH_CAUSAL[6..],
            ViolationKind::ProcessOrder => &ALL[6..],
            ViolationKind::Inversion => &ALL[7..],
        }
    }

    /// Whether the history may still be serializable, in an order that contradicts a process or real time.
    pub(super) fn is_about_order(self) -> bool {
        use ViolationKind::{CausalOrder, Convergence, Inversion, ProcessOrder, View};
        matches!(self, CausalOrder | View | Convergence | ProcessOrder | Inversion)
    }
}

/// Why one transaction must come before another (001 Definitions A.1.1 to A.1.3). The strongest reason comes first.
/// The last one is not a conflict over a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConflictKind {
    /// ww: the second transaction replaced a write of the first.
    WriteDependency,
    /// wr: the second transaction read a write of the first.
    ReadDependency,
    /// rw: the second transaction replaced what the first read.
    AntiDependency,
    /// ar: arbitration. A transaction that comes after the first one read what the second wrote to a key that both
    /// wrote. So the second must have replaced the first one's write.
    Arbitration,
    /// po: the same process ran both transactions, and the first had ended before the second began.
    ProcessOrder,
}

impl ConflictKind {
    /// Adya's abbreviation, `ww`, `wr` or `rw`, or else `ar` or `po`.
    pub fn name(self) -> &'static str {
        match self {
            ConflictKind::WriteDependency => "ww",
            ConflictKind::ReadDependency => "wr",
            ConflictKind::AntiDependency => "rw",
            ConflictKind::Arbitration => "ar",
            ConflictKind::ProcessOrder => "po",
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
    /// Over which key. `None` for the order of a process.
    pub key: Option<u64>,
    /// What `from` wrote, or for an anti-dependency what it read. `None` for the initial version, and for the order of
    /// a process.
    pub before: Option<Installed>,
    /// What `to` wrote. `None` for a read dependency, in which it only read, and for the order of a process.
    pub after: Option<Installed>,
    /// In an arbitration, the transaction that comes after `from` and read what `to` wrote: an index into
    /// [`Violation::transactions`]. Otherwise `None`.
    pub reader: Option<usize>,
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
    /// the first. Those that take part only in `because` follow after the cycle.
    pub transactions: Vec<Witness>,
    /// In an inversion, the first edge of the cycle.
    pub real_time: Option<RealTime>,
    /// The conflicts of the cycle, in its order. In an inversion they lead from `T2` back to `T1`. Empty if the anomaly
    /// is not a cycle.
    pub conflicts: Vec<Conflict>,
    /// What the arbitrations of a cycle follow from: paths from the first transaction of each to its reader. If such a
    /// path has arbitrations of its own, what they follow from comes before it. Empty if the cycle has no arbitration.
    pub because: Vec<Conflict>,
    /// What is wrong, in one sentence.
    pub reason: String,
    /// The guarantees that do not allow this anomaly, the weakest first. The history may contain other anomalies that
    /// rule out more.
    pub ruled_out: &'static [&'static str],
    /// The weakest guarantee that a violation without an order of its own violates, of those that were checked.
    pub(super) weakest: TransactionGuarantee,
}

impl Violation {
    /// The weakest guarantee that is violated. [`crate::check_serializable`], [`crate::check_process_ordered`] and
    /// [`crate::check_strict_serializable`] find violations of serializability, and those that only the last two find:
    /// the history may still be serializable, but every serial order contradicts a process, or real time.
    /// [`crate::check_causal`] and [`crate::check_causal_convergent`] find violations of causality, and
    /// [`ViolationKind::Convergence`].
    pub fn guarantee(&self) -> TransactionGuarantee {
        match self.kind {
            ViolationKind::CausalOrder | ViolationKind::View => TransactionGuarantee::Causal,
            ViolationKind::Convergence => TransactionGuarantee::CausallyConvergent,
            ViolationKind::ProcessOrder => TransactionGuarantee::ProcessOrderedSerializable,
            ViolationKind::Inversion => TransactionGuarantee::StrictlySerializable,
            _ => self.weakest,
        }
    }
}
