//! The checkers of causal consistency and causal convergence.
//!
//! ```text
//! transactions ─facts─> who read whose write ─causes─> the causal order, and what each transaction has before it
//!     ─stale─>       reads that contradict the causal order itself
//!     ─view─>        for each process, what must come before what so that its reads have an explanation
//!     ─convergence─> what must come before what for all processes
//!     ─explain─>     a smallest cycle, and what it follows from
//! ```
//!
//! The causal order is the transitive closure of the order of processes and of reads: a transaction comes before those
//! that read from it. Transactions are nodes of it, so they are atomic. A transaction of unknown outcome comes after
//! the committed ones that its process had ended before, and only before those that read from it.
//!
//! One rule adds to this order (Bouajjani et al., POPL 2017). If transactions `a` and `b` both wrote a key, a
//! transaction read `b`'s write of it, and `a` comes before that reader, then `a` comes before `b`. This is an
//! *arbitration*. A read of what was there before the history comes before all writes of its key. Each guarantee uses
//! the rule differently:
//!
//! - **Causal memory**: each process has an order of its own. The rule holds for the reads of this process, and `a`
//!   may come before the reader because of arbitrations, too. So the rule is applied until nothing changes. If the
//!   result has no cycle, the process has an order: take its transactions in turn, and before each one what must come
//!   before it and has not come yet, in any order that fits. Then exactly what must come before a reader comes before
//!   it, and by the rule `b` is the last one of these that wrote the key.
//! - **Causal convergence**: there is one order. The rule holds for all reads, but `a` must come before the reader in
//!   the causal order alone, because only that is what the reader has seen.
//!
//! What comes before a transaction is a vector: for each process, how many of its transactions. That is enough,
//! because a process's transactions come one after the other. A transaction of unknown outcome counts as a process of
//! its own.
//!
//! A violation is certain: only reads whose writer is certain are used, and every step is explained. What the checkers
//! can't see: lists; keys for which a read's writer is not certain; reads of absent keys that were perhaps deleted,
//! unless the database remembers deletes. If the history has any of those, the verdict is unknown at best.
//! Transactions of unknown outcome that no one read from are left out, as if they had no effect. They could come after
//! all others.

mod causes;
mod convergence;
mod explain;
mod facts;
mod stale;
mod view;

use super::transaction::{Access, Context};
use super::{ConflictKind, TransactionGuarantee, Verdict, Violation, ViolationKind};
use crate::digraph::{Edge, Label};
use causes::Causes;
use explain::Explainer;
use facts::Facts;
use view::{TooLong, View};

/// The vectors of a history may have at most this many entries: what each transaction has before it of each process.
const ENTRIES: usize = 1 << 27;

/// How many entries of vectors are compared for the orders of processes before the verdict is unknown. They take about
/// half a minute.
const WORK: u64 = 1 << 35;

/// Of processes without an order, this many are explained. The shortest explanation is shown.
const EXPLAINED: usize = 3;

/// Why one transaction comes before another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    kind: ConflictKind,
    /// Index into the keys. 0 for the order of a process.
    key: u32,
    /// 0 if the history says so. An arbitration has a higher rank than all that it follows from.
    rank: u32,
}

impl Step {
    const PROCESS_ORDER: Step = Step { kind: ConflictKind::ProcessOrder, key: 0, rank: 0 };

    fn read(key: u32) -> Step {
        Step { kind: ConflictKind::ReadDependency, key, rank: 0 }
    }

    /// From a reader of what was there before the history to a writer.
    fn initial(key: u32) -> Step {
        Step { kind: ConflictKind::AntiDependency, key, rank: 0 }
    }

    fn arbitration(key: u32, rank: u32) -> Step {
        Step { kind: ConflictKind::Arbitration, key, rank }
    }
}

impl Label for Step {
    /// Cycles with few arbitrations are easier to follow.
    fn weight(self) -> (u32, u32) {
        match self.kind {
            ConflictKind::Arbitration => (1, 0),
            ConflictKind::AntiDependency => (0, 1),
            _ => (0, 0),
        }
    }
}

/// Judges a history after owners of versions have been determined.
pub(super) fn judge(
    context: &Context<'_>,
    accesses: &[Access],
    guarantee: TransactionGuarantee,
) -> Result<Verdict, Box<Violation>> {
    let facts = Facts::new(context, accesses)?;
    let explainer = Explainer::new(context, &facts);
    explainer.check_causes()?;
    let causes = match Causes::new(context, &facts) {
        Ok(causes) => causes,
        Err(reason) => return Ok(Verdict::Unknown { reason }),
    };
    let stale = stale::find(&facts, &causes);
    if !stale.is_empty() {
        return Err(explainer.explain_stale(&stale));
    }
    let mut unknown = facts.unknown.clone();
    if guarantee == TransactionGuarantee::CausallyConvergent {
        if let Some(arbitrations) = convergence::contradiction(&facts, &causes) {
            return Err(explainer.explain(ViolationKind::Convergence, &arbitrations, None));
        }
    } else {
        let mut view = View::new(&causes, WORK);
        let mut violations = Vec::new();
        for reads in facts.processes(context) {
            match view.contradiction(reads) {
                Ok(None) => {}
                Ok(Some(edges)) => {
                    violations.push(explainer.explain(ViolationKind::View, &edges, Some(reads)));
                }
                Err(TooLong) => {
                    let reason =
                        "judging what each process read takes too long: use fewer processes";
                    unknown.get_or_insert_with(|| reason.to_owned());
                    break;
                }
            }
            if violations.len() == EXPLAINED {
                break;
            }
        }
        let shortest =
            violations.into_iter().min_by_key(|it| it.because.len() + it.conflicts.len());
        if let Some(violation) = shortest {
            return Err(violation);
        }
    }
    Ok(match unknown {
        Some(reason) => Verdict::Unknown { reason },
        None => {
            let keys = accesses.chunk_by(|left, right| left.key == right.key).count() as u64;
            let edges = facts.reads_from().count() as u64;
            Verdict::Holds(context.summary(guarantee, keys, edges))
        }
    })
}

/// Edges of the graph of a history, in addition to those of the causal order.
type Edges = Vec<Edge<Step>>;
