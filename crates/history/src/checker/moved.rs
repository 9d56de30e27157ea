//! Moved versions: finds owners for versions that were read and that no transaction of the history has.
//!
//! A transaction may commit at a later version of its coordinator than the one with which it began. A client that does
//! not learn the outcome records the version with which the transaction began, but its readers record the later one.
//! Rejecting such versions would reject correct histories. So a version without an owner is assigned to a transaction
//! of unknown outcome that fits: it began at the same coordinator and an earlier time, it may have written everything
//! that was read at the version, and the version with which it began was never read. Every such version needs a
//! transaction of its own. If there is none, the version stays without an owner.
//!
//! If several transactions fit, the choice among them must not cause a violation. The first choice is a matching that
//! prefers transactions with few writes: only the places of their writes are known, so the fewer they wrote, the less
//! they can contradict. A violation refutes only the choices for the transactions that take part in it. The other
//! choices are then judged as well. The history is rejected if all choices lead to a violation.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serried_model::Version;

use super::recovered::{self, Kind};
use super::transaction::{Access, Context, Status};
use super::{Deletes, Verdict, Violation};
use crate::{MicroOperation, ReadResult};

/// How many choices are judged before the verdict is unknown.
const ROUNDS: usize = 100;

/// How many steps the search for another choice may take before the verdict is unknown.
const STEPS: usize = 20_000;

/// A version that was read and that no transaction of the history has.
struct Nobodys {
    version: Version,
    /// The keys where it was read, and the values that were found.
    reads: Vec<(u64, Option<u64>)>,
    /// The transactions of unknown outcome that fit. Those with the fewest writes come first.
    candidates: Vec<u32>,
    /// It may also belong to a transaction whose version was not recorded.
    optional: bool,
}

impl Nobodys {
    /// Whether this may be the version at which a transaction of unknown outcome took effect.
    fn fits(&self, context: &Context<'_>, transaction: u32) -> bool {
        let transaction = context.at(transaction);
        let is_later =
            |began: Version| began.coordinator == self.version.coordinator && began < self.version;
        let may_have_written = |&(key, found): &(u64, Option<u64>)| {
            let mut writes =
                transaction.operations.iter().rev().filter_map(|operation| match *operation {
                    MicroOperation::Write { key: written, value } if written == key => Some(value),
                    _ => None,
                });
            writes.next().is_some_and(|last| last.is_none() || last == found)
        };
        transaction.version.is_some_and(is_later)
            && (transaction.is_opaque() || self.reads.iter().all(may_have_written))
    }
}

/// A choice that a violation depends on: a candidate, and the version that was assigned to it, or `None` for the one
/// with which it began.
type Choice = (u32, Option<usize>);

/// The outcome of a search for another choice.
#[derive(Debug, PartialEq, Eq)]
enum Search {
    Found(Vec<Option<u32>>),
    Exhausted,
    GivenUp,
}

struct MovedVersions {
    /// Versions that need an owner come first, and among them the earlier ones.
    versions: Vec<Nobodys>,
    /// Combinations of choices that lead to a violation. No entry is empty.
    refuted: Vec<Vec<Choice>>,
}

/// Judges a history. If a read found a version without an owner, judges it again with owners assigned to such versions,
/// as far as possible.
pub(super) fn judge_with_owners(
    context: &mut Context<'_>,
    accesses: &[Access],
    judge: impl Fn(&Context<'_>) -> Result<Verdict, Box<Violation>>,
) -> Result<Verdict, Box<Violation>> {
    let verdict = judge(context);
    if !context.misses_owners() {
        return verdict;
    }
    let mut moved = MovedVersions { versions: find(context, accesses), refuted: Vec::new() };
    if moved.versions.is_empty() {
        return verdict;
    }
    let mut owners = moved.matched();
    moved.apply(context, &owners);
    let mut first = match judge(context) {
        Err(violation) => violation,
        verdict => return verdict,
    };
    if moved.versions.iter().zip(&owners).any(|(it, owner)| owner.is_none() && !it.optional) {
        return Err(first);
    }
    let mut violation = first.clone();
    for _ in 1..ROUNDS {
        let choices = moved.choices(context, &owners, &violation);
        if choices.is_empty() {
            return Err(violation);
        }
        moved.refuted.push(choices);
        owners = match moved.search() {
            Search::Found(owners) => owners,
            Search::Exhausted => return Err(first),
            Search::GivenUp => break,
        };
        moved.apply(context, &owners);
        violation = match judge(context) {
            Err(violation) => violation,
            verdict => return verdict,
        };
        // With this choice the conflicts alone have no cycle, so it is the milder violation.
        if violation.kind.is_about_order() && !first.kind.is_about_order() {
            first = violation.clone();
        }
    }
    let reason = format!(
        "version {} and others without a transaction in the history may belong to so many \
         transactions of unknown outcome that not all choices could be judged: record the versions at \
         which transactions committed",
        moved.versions[0].version
    );
    Ok(Verdict::Unknown { reason })
}

/// The versions that were read and have no owner.
fn find(context: &Context<'_>, accesses: &[Access]) -> Vec<Nobodys> {
    let began = |&at: &u32| {
        let transaction = context.at(at);
        transaction.status == Status::Unknown && transaction.version.is_some()
    };
    let mut candidates: Vec<u32> = (0..context.transactions.len() as u32).filter(began).collect();
    if candidates.is_empty() {
        return Vec::new();
    }

    let mut was_read = vec![false; context.transactions.len()];
    let mut reads: Vec<(Version, u64, Option<u64>, bool)> = Vec::new();
    for accesses in accesses.chunk_by(|left, right| left.key == right.key) {
        let (key, start) = (accesses[0].key, reads.len());
        for accesses in accesses.chunk_by(|left, right| left.transaction == right.transaction) {
            let Some((value, version)) = context.first_found(accesses) else { continue };
            match context.owner(version) {
                Some(owner) => was_read[owner as usize] = true,
                None if context.is_initial(version) => {}
                None => reads.push((version, key, value, false)),
            }
        }
        if reads.len() > start {
            if !matches!(recovered::kind(context, accesses), Ok(Kind::Register)) {
                reads.truncate(start);
            }
            let optional = context.writer_without_version(accesses).is_some();
            reads[start..].iter_mut().for_each(|read| read.3 = optional);
        }
    }
    reads.sort_unstable();
    reads.dedup();

    candidates.retain(|&candidate| !was_read[candidate as usize]);
    candidates.sort_by_cached_key(|&candidate| {
        let operations = context.at(candidate).operations.iter();
        operations.filter(|it| matches!(it, MicroOperation::Write { .. })).count()
    });
    let nobodys = |reads: &[(Version, u64, Option<u64>, bool)]| {
        let mut nobodys = Nobodys {
            version: reads[0].0,
            reads: reads.iter().map(|&(_, key, value, _)| (key, value)).collect(),
            candidates: Vec::new(),
            optional: reads.iter().all(|&(.., optional)| optional),
        };
        let fit = candidates.iter().copied().filter(|&it| nobodys.fits(context, it));
        nobodys.candidates = fit.collect();
        nobodys
    };
    let mut versions: Vec<Nobodys> =
        reads.chunk_by(|left, right| left.0 == right.0).map(nobodys).collect();
    versions.sort_by_key(|nobodys| nobodys.optional);
    versions
}

/// Whether reads of a violation that found nothing may have found a delete of the candidate. Then the violation depends
/// on its version.
fn may_have_been_found(context: &Context<'_>, candidate: u32, violation: &Violation) -> bool {
    let candidate = context.at(candidate);
    let deletes = |key: u64| {
        let mut operations = candidate.operations.iter();
        candidate.is_opaque()
            || operations.any(
                |it| matches!(*it, MicroOperation::Write { key: written, value: None } if written == key),
            )
    };
    let absent = |operation: &MicroOperation| match operation {
        MicroOperation::Read { key, result: ReadResult::Register(None) } => deletes(*key),
        _ => false,
    };
    context.deletes == Deletes::Forgotten
        && violation.transactions.iter().flat_map(|it| &it.operations).any(absent)
}

impl MovedVersions {
    fn apply(&self, context: &mut Context<'_>, owners: &[Option<u32>]) {
        let owned = self.versions.iter().zip(owners);
        context.set_moved(owned.filter_map(|(it, owner)| Some(((*owner)?, it.version))));
    }

    /// The first choice: as many versions as possible get an owner. No version loses its owner to a later version.
    fn matched(&self) -> Vec<Option<u32>> {
        let mut owners: Vec<Option<u32>> = vec![None; self.versions.len()];
        let mut taken: HashMap<u32, usize, FixedState> = HashMap::default();
        for start in 0..self.versions.len() {
            // Shortest augmenting path: the versions that could change to another candidate, and
            // from which of them each candidate was reached.
            let mut reached: HashMap<u32, usize, FixedState> = HashMap::default();
            let mut queue = VecDeque::from([start]);
            let mut free = None;
            'search: while let Some(at) = queue.pop_front() {
                for &candidate in &self.versions[at].candidates {
                    if reached.contains_key(&candidate) {
                        continue;
                    }
                    reached.insert(candidate, at);
                    match taken.get(&candidate) {
                        Some(&other) => queue.push_back(other),
                        None => {
                            free = Some(candidate);
                            break 'search;
                        }
                    }
                }
            }
            while let Some(candidate) = free {
                let at = reached[&candidate];
                taken.insert(candidate, at);
                free = owners[at].replace(candidate);
            }
        }
        owners
    }

    /// The choices for the candidates that take part in a violation.
    fn choices(
        &self,
        context: &Context<'_>,
        owners: &[Option<u32>],
        violation: &Violation,
    ) -> Vec<Choice> {
        let mut candidates: Vec<u32> =
            self.versions.iter().flat_map(|it| it.candidates.iter().copied()).collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates.retain(|&it| {
            violation.transactions.contains(&context.witness(it))
                || may_have_been_found(context, it, violation)
        });
        let choice = |it: u32| (it, owners.iter().position(|&owner| owner == Some(it)));
        candidates.into_iter().map(choice).collect()
    }

    /// The first choice that is not refuted. A version is left without an owner only if there is no choice in which all
    /// have one: the verdict would be unknown.
    fn search(&self) -> Search {
        match self.search_among(true) {
            Search::Found(owners) => Search::Found(owners),
            Search::Exhausted | Search::GivenUp => self.search_among(false),
        }
    }

    /// The first choice, in the order of versions and candidates, that is not refuted. If `all_owned` is false, an optional
    /// version is left without an owner after all its candidates were tried.
    fn search_among(&self, all_owned: bool) -> Search {
        let mut owners = Vec::with_capacity(self.versions.len());
        let mut path = Vec::with_capacity(self.versions.len());
        let mut next = 0;
        for _ in 0..STEPS {
            let Some(version) = self.versions.get(owners.len()) else {
                return Search::Found(owners);
            };
            let owner = match version.candidates.get(next) {
                Some(&candidate) => Some(candidate),
                None if next == version.candidates.len() && version.optional && !all_owned => None,
                None => {
                    let Some(last) = path.pop() else { return Search::Exhausted };
                    owners.pop();
                    next = last + 1;
                    continue;
                }
            };
            let is_free = owner.is_none() || !owners.contains(&owner);
            owners.push(owner);
            if is_free && !self.is_refuted(&owners) {
                path.push(next);
                next = 0;
            } else {
                owners.pop();
                next += 1;
            }
        }
        Search::GivenUp
    }

    /// Whether the choices for the first versions are refuted, whatever is chosen for the rest.
    fn is_refuted(&self, owners: &[Option<u32>]) -> bool {
        let is_complete = owners.len() == self.versions.len();
        let is_chosen = |&(candidate, version): &Choice| match version {
            Some(at) => owners.get(at) == Some(&Some(candidate)),
            None => is_complete && !owners.contains(&Some(candidate)),
        };
        self.refuted.iter().any(|choices| choices.iter().all(is_chosen))
    }
}
