//! Is a history serializable, and strictly so?
//!
//! ```text
//! events ─transaction─> transactions ─moved─> the versions of those of unknown outcome that were read
//!        ─list, register─> per key: versions in order, who read which
//!        ─graph─> direct serialization graph ─cycle─> its smallest cycle, explained
//!                                            ─inversion─> where it contradicts real time
//! ```
//!
//! Each key is either a list or a register, and each kind has its own way to recover the order of
//! its versions. They are independent: lists describe themselves, registers rely on the versions
//! that the database says it gave. What is recovered is certain or left out, so a violation is one
//! whatever the missing parts may be; but where something needed is missing and no violation shows,
//! the verdict is [`Verdict::Unknown`].
//!
//! A transaction's version is the one at which it committed. For one of unknown outcome that may be a
//! later one of its coordinator than the recorded one, with which it began. If somebody has read from
//! it at a version that is nobody's, `moved` finds out whose it may be, and from then on it has that
//! version, at all keys that it wrote. It is known to have taken effect, like all that were read from.

mod cycle;
mod display;
mod graph;
mod inversion;
mod list;
mod moved;
mod recovered;
mod register;
mod transaction;
mod verdict;
mod violation;

use serried_model::Version;

use crate::History;
use inversion::Span;
use recovered::{KeyHistory, Kind, Problem};
use transaction::{Access, Context};

pub use verdict::{Summary, TransactionGuarantee, Verdict};
pub use violation::{
    Conflict, ConflictKind, Installed, RealTime, Violation, ViolationKind, Witness,
};

/// What the checker may assume beyond the history itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Versions at or below this one that no transaction of the history has were written before the
    /// history began. All reads of such data have to agree on one value per key. `None`: every
    /// version but [`Version::INITIAL`] has to be a transaction's of the history.
    pub initial_before: Option<Version>,
    /// A read that finds nothing at [`Version::INITIAL`] may have found a delete whose version the database has
    /// forgotten. It is the latest, by version and below the reader's own, of those that were over before the
    /// reader began. One that ran at the same time, and is older by more than this, in microseconds between
    /// their versions, may have been forgotten as well; it is then unclear which the reader found, and nothing
    /// follows from that read. `Some(0)`: transactions take effect in the order of their versions, so that it
    /// is always clear. `None`: the database forgets none, and the reader found what was never there.
    pub deletes_forgotten_after_us: Option<u64>,
}

impl Default for Options {
    /// Nothing was there before, and deletes are remembered for as long as anybody is at work who was when
    /// they were made.
    fn default() -> Self {
        Options { initial_before: None, deletes_forgotten_after_us: Some(u64::MAX) }
    }
}

/// Decides whether the committed transactions of a history, and those of unknown outcome that they
/// have read from, could have run one after the other.
pub fn check_serializable(history: &History) -> Verdict {
    check_serializable_with(history, &Options::default())
}

/// [`check_serializable`] for a history that began on data written before it.
pub fn check_serializable_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::Serializable).unwrap_or_else(Verdict::Violation)
}

/// Decides whether the transactions that [`check_serializable`] looks at could have run one after the
/// other, each after all that had ended before it began (003 §2.2).
///
/// The order of the events tells what had ended: a transaction comes after another one if its invoke
/// stands after the other one's completion. One of unknown outcome that took effect may have done so
/// at any time after it began. A violation is an [inversion](ViolationKind::Inversion), or else one of
/// those of [`check_serializable`].
pub fn check_strict_serializable(history: &History) -> Verdict {
    check_strict_serializable_with(history, &Options::default())
}

/// [`check_strict_serializable`] for a history that began on data written before it.
pub fn check_strict_serializable_with(history: &History, options: &Options) -> Verdict {
    check(history, options, TransactionGuarantee::StrictlySerializable)
        .unwrap_or_else(Verdict::Violation)
}

fn check(
    history: &History,
    options: &Options,
    guarantee: TransactionGuarantee,
) -> Result<Verdict, Box<Violation>> {
    let mut context = Context::new(history, options)?;
    let accesses = context.accesses();
    moved::judge_with_owners(&mut context, &accesses, |context| {
        judge(context, &accesses, guarantee)
    })
}

/// Judges a history in which every version has its owner, or none at all.
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
                    "{writer} took effect, and nothing tells where among key {}'s versions its \
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
    if guarantee == TransactionGuarantee::StrictlySerializable {
        let spans: Vec<Span> =
            context.transactions.iter().map(|transaction| transaction.span).collect();
        if let Some(path) = inversion::smallest(&graph, &spans) {
            return Err(cycle::explain_inversion(context, &keys, &path, unknown.as_deref()));
        }
    }
    Ok(match unknown {
        Some(reason) => Verdict::Unknown { reason },
        None => Verdict::Holds(context.summary(
            guarantee,
            accesses.chunk_by(|left, right| left.key == right.key).count() as u64,
            graph.edge_count() as u64,
        )),
    })
}

/// The transactions that took effect: the committed ones, and those of unknown outcome that a
/// committed one has read from.
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
