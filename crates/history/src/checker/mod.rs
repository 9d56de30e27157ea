//! The checkers of serializability, process-ordered serializability, strict serializability and causality.
//!
//! ```text
//! events ─transaction─> transactions ─moved─> the versions of those of unknown outcome that were read
//!        ─list, register─> per key: versions in order, who read which
//!        ─graph─> direct serialization graph ─cycle─> its smallest cycle, explained
//!                                            ─process─> with the order of processes, its smallest cycle
//!                                            ─inversion─> where it contradicts real time
//!        ─causal─> causality, without the order of versions
//! ```
//!
//! Each key is either a list or a register. The order of its versions is recovered in different ways: a list describes
//! itself, while for a register the checker relies on the versions that the database reports. Uncertain facts are left
//! out. So a violation is certain, whatever the missing facts are. If a needed fact is missing and no violation shows,
//! the verdict is [`Verdict::Unknown`].
//!
//! A transaction's version is the one at which it committed. For a transaction of unknown outcome, the version with
//! which it began is recorded, and it may have committed at a later version of the same coordinator. If a read found a
//! version that no transaction has, `moved` looks for the transaction that it may belong to. From then on the
//! transaction has that version at all keys that it wrote. It is known to have taken effect, like every transaction
//! whose writes were read.

mod causal;
mod cycle;
mod display;
mod forgotten;
mod graph;
mod inversion;
mod list;
mod moved;
mod process;
mod recovered;
mod register;
mod transaction;
mod verdict;
mod violation;

use serried_model::Version;

use crate::History;
use graph::Dependency;
use inversion::Span;
use recovered::{KeyHistory, Kind, Problem};
use transaction::{Access, Context};

pub use verdict::{Summary, TransactionGuarantee, Verdict};
pub use violation::{
    Conflict, ConflictKind, Installed, RealTime, Violation, ViolationKind, Witness,
};

/// Assumptions of the checker beyond the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Versions at or below this one that no transaction of the history has were written before the history began. All
    /// reads of such data must agree on one value per key. If `None`, every version except [`Version::INITIAL`] must
    /// belong to a transaction of the history.
    pub initial_before: Option<Version>,
    /// What a read means that found nothing at [`Version::INITIAL`].
    pub deletes: Deletes,
}

/// The meaning of a read that found nothing at [`Version::INITIAL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Deletes {
    /// The key was never written. The database remembers the version of every delete.
    Remembered,
    /// The key was never written, or the read found the latest delete below its own version. The database has forgotten
    /// that delete's version, and its transactions take effect in the order of their versions.
    ///
    /// It is not always certain which delete is the latest. Before the read, a transaction of unknown outcome may have
    /// deleted the key, at the version with which it began or a later one. Then the checker assumes only that the read
    /// comes after the latest certain delete below its version, and before all writes above its version. So it may
    /// accept a history that has no serial order, but it never rejects one that has.
    Forgotten,
    /// One of the two, the same for all reads of the history.
    #[default]
    EitherWay,
}

impl Default for Options {
    /// No data existed before the history, and it is not known whether the database remembers deletes.
    fn default() -> Self {
        Options { initial_before: None, deletes: Deletes::default() }
    }
}

/// Decides whether the committed transactions of a history could have run one after the other, together with the
/// transactions of unknown outcome that they have read from.
pub fn check_serializable(history: &History) -> Verdict {
    check_serializable_with(history, &Options::default())
}

/// As [`check_serializable`], with assumptions beyond the history.
pub fn check_serializable_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::Serializable).unwrap_or_else(Verdict::Violation)
}

/// Decides whether the transactions of [`check_serializable`] could have run one after the other, those of each process
/// in the order in which the process ran them (004 §6). Real time between processes does not
/// count.
///
/// A transaction of unknown outcome may take effect at any time after it began, so also after later transactions of its
/// process. But it takes effect after the earlier ones that committed. A violation is a cycle with the
/// [order of a process](ViolationKind::ProcessOrder), or a violation of [`check_serializable`].
pub fn check_process_ordered(history: &History) -> Verdict {
    check_process_ordered_with(history, &Options::default())
}

/// As [`check_process_ordered`], with assumptions beyond the history.
pub fn check_process_ordered_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::ProcessOrderedSerializable)
        .unwrap_or_else(Verdict::Violation)
}

/// Decides whether the transactions of [`check_serializable`] could have run one after the other, each after all that
/// had ended before it began (003 §2.2).
///
/// Real time is the order of events: a transaction began after another one had ended if its invoke comes after the
/// other one's completion. A transaction of unknown outcome may have taken effect at any time after it began. A
/// violation is an [inversion](ViolationKind::Inversion), or a violation of [`check_serializable`].
pub fn check_strict_serializable(history: &History) -> Verdict {
    check_strict_serializable_with(history, &Options::default())
}

/// As [`check_strict_serializable`], with assumptions beyond the history.
pub fn check_strict_serializable_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::StrictlySerializable)
        .unwrap_or_else(Verdict::Violation)
}

/// Decides whether the transactions of a history that took effect are causal: for each process, some order of all that
/// wrote and of its own ones explains what it read, and contains the causal order. Only registers are judged.
///
/// In the causal order, a committed transaction comes before the later ones of its process, and every transaction
/// before those that read from it. Transactions are atomic: a transaction that read one write of another one comes
/// after all its writes. The order of versions does not count, since processes may disagree on it. A transaction of
/// unknown outcome took effect if it was read from. It comes before those that read from it, but not before later ones
/// of its process, because it may take effect after them.
///
/// A violation is a [contradiction of the causal order](ViolationKind::CausalOrder), a process without an
/// [order](ViolationKind::View), or a read of what no transaction left. If there is none, lists and reads whose writer
/// is not known make the verdict [`Verdict::Unknown`]. So do reads of absent keys if transactions may have deleted
/// them, unless the database [remembers deletes](Deletes::Remembered).
///
/// A database may pass writes on in causal order, and let the write with the highest version of each key win. It
/// promises [causal convergence](check_causal_convergent), but may violate this guarantee. Assume that one process
/// writes `x`. At the same time another one writes `z`, then `x` at a lower version, then `y`. Now the first process
/// finds nothing in `z`, then the new `y`, then its own `x`. In an order for this process, the other write of `x`
/// would come before `y` and so before its own one, which comes before its read of `z`. But `z` was written before
/// that.
pub fn check_causal(history: &History) -> Verdict {
    check_causal_with(history, &Options::default())
}

/// As [`check_causal`], with assumptions beyond the history.
pub fn check_causal_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::Causal).unwrap_or_else(Verdict::Violation)
}

/// Decides whether the transactions of a history that took effect are causally convergent: one order of all that
/// wrote, which contains the causal order of [`check_causal`], explains all reads. Each read finds the last write of
/// its key, in this order, of those that come before its transaction in the causal order. Only registers are judged.
///
/// So processes that have seen the same writes agree. The order of versions does not count: any order will do. This
/// neither implies [`check_causal`] nor follows from it. A violation is a [contradiction of the causal
/// order](ViolationKind::CausalOrder) or [of any one order](ViolationKind::Convergence), or a read of what no
/// transaction left. The verdict is unknown in the same cases as that of [`check_causal`].
pub fn check_causal_convergent(history: &History) -> Verdict {
    check_causal_convergent_with(history, &Options::default())
}

/// As [`check_causal_convergent`], with assumptions beyond the history.
pub fn check_causal_convergent_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::CausallyConvergent)
        .unwrap_or_else(Verdict::Violation)
}

fn check(
    history: &History,
    options: &Options,
    guarantee: TransactionGuarantee,
) -> Result<Verdict, Box<Violation>> {
    let check = |deletes| check_one_way(history, &Options { deletes, ..*options }, guarantee);
    let forgotten = match options.deletes {
        Deletes::EitherWay => check(Deletes::Forgotten),
        known => return check(known),
    };
    match forgotten {
        Ok(Verdict::Holds(summary)) => Ok(Verdict::Holds(summary)),
        other => weaker(other, check(Deletes::Remembered)),
    }
}

/// Judges a history after owners of versions have been determined.
type Judge = fn(&Context<'_>, &[Access], TransactionGuarantee) -> Result<Verdict, Box<Violation>>;

/// The milder of two verdicts on one history.
fn weaker(
    one: Result<Verdict, Box<Violation>>,
    other: Result<Verdict, Box<Violation>>,
) -> Result<Verdict, Box<Violation>> {
    let rank = |verdict: &Result<Verdict, Box<Violation>>| match verdict {
        Ok(verdict) if verdict.holds() => 0,
        Ok(_) => 1,
        Err(violation) if violation.kind.is_about_order() => 2,
        Err(_) => 3,
    };
    if rank(&other) < rank(&one) { other } else { one }
}

/// Judges a history under one meaning of reads that found nothing.
fn check_one_way(
    history: &History,
    options: &Options,
    guarantee: TransactionGuarantee,
) -> Result<Verdict, Box<Violation>> {
    use TransactionGuarantee::{Causal, CausallyConvergent, Serializable};
    let (judge, weakest): (Judge, _) = match guarantee {
        Causal | CausallyConvergent => (causal::judge, Causal),
        _ => (judge, Serializable),
    };
    let mut context = Context::new(history, options, weakest)?;
    let accesses = context.accesses();
    moved::judge_with_owners(&mut context, &accesses, |context| {
        judge(context, &accesses, guarantee)
    })
}

/// Judges by the graph of all conflicts.
fn judge(
    context: &Context<'_>,
    accesses: &[Access],
    guarantee: TransactionGuarantee,
) -> Result<Verdict, Box<Violation>> {
    let mut keys = Vec::new();
    let mut unknown = None;
    for accesses in accesses.chunk_by(|left, right| left.key == right.key) {
        let recovered = match recovered::kind(context, accesses) {
            Ok(Kind::List) => list::recover(context, accesses),
            Ok(Kind::Register) => register::recover(context, accesses),
            Err(problem) => Err(problem),
        };
        match recovered {
            Ok(key) => keys.push(key),
            Err(Problem::Violation(violation)) => return Err(violation),
            Err(Problem::Unknown(reason)) => {
                unknown.get_or_insert(reason);
            }
        }
    }

    let included = included(context, &keys);
    for key in &mut keys {
        key.settle(&included);
        if let Some(&transaction) = key.unplaced.iter().find(|&&writer| included[writer as usize]) {
            unknown.get_or_insert_with(|| {
                let writer = context.name(0, transaction);
                format!(
                    "{writer} took effect, but it is not known where among key {}'s versions its \
                         write stands: record the version of every transaction",
                    key.key
                )
            });
        }
    }

    let graph = graph::graph(context.transactions.len(), &keys);
    if let Some(cycle) = crate::cycle::smallest(&graph) {
        return Err(cycle::explain(context, &keys, &cycle));
    }
    let edges = graph.edge_count() as u64;
    match guarantee {
        TransactionGuarantee::ProcessOrderedSerializable => {
            let label = Dependency::PROCESS_ORDER;
            let graph = process::with_order(context, graph, &included, label);
            if let Some(cycle) = crate::cycle::smallest(&graph) {
                let unknown = unknown.as_deref();
                return Err(cycle::explain_process_order(context, &keys, &cycle, unknown));
            }
        }
        TransactionGuarantee::StrictlySerializable => {
            let spans: Vec<Span> =
                context.transactions.iter().map(|transaction| transaction.span).collect();
            if let Some(path) = inversion::smallest(&graph, &spans) {
                return Err(cycle::explain_inversion(context, &keys, &path, unknown.as_deref()));
            }
        }
        _ => {}
    }
    Ok(match unknown {
        Some(reason) => Verdict::Unknown { reason },
        None => Verdict::Holds(context.summary(
            guarantee,
            accesses.chunk_by(|left, right| left.key == right.key).count() as u64,
            edges,
        )),
    })
}

/// The transactions that took effect: the committed ones, and those of unknown outcome that committed ones have read
/// from.
fn included(context: &Context<'_>, keys: &[KeyHistory]) -> Vec<bool> {
    let mut included: Vec<bool> =
        context.transactions.iter().map(|transaction| transaction.is_committed()).collect();
    for key in keys {
        for &transaction in &key.observed {
            included[transaction as usize] = true;
        }
    }
    included
}
