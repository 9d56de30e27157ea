//! Registers: the recorded versions give their order, and which of them a read found.

use super::display::{Found, Overwritten};
use super::forgotten::{self, Effect};
use super::recovered::{KeyHistory, Problem, Reader, Slot};
use super::transaction::{Access, Context};
use super::{Deletes, Installed, ViolationKind};
use crate::{MicroOperation, ReadResult};
use serried_model::Version;

/// The source of the values on which two reads disagree.
const BEFORE: &str = "what was there before the history";

/// The first read of a committed transaction before it wrote to the register.
struct Observation {
    transaction: u32,
    value: Option<u64>,
    version: Option<Version>,
}

/// The source of a read's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// From before the history.
    Initial,
    /// Written by this transaction.
    Writer(u32),
    /// A delete whose version the database has forgotten.
    Forgotten,
}

/// A value that a transaction wrote at some point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Written {
    value: Option<u64>,
    failed: bool,
    transaction: u32,
}

struct Register<'c, 'a> {
    context: &'c Context<'a>,
    key: u64,
    accesses: &'c [Access],
    /// Filled when a read without a version needs it.
    values: Option<Values>,
}

/// Recovers one register. The versions of its writers give their order, and the versions that were read identify the
/// writers that were read. Where versions were not recorded, unique values identify them.
pub(super) fn recover(context: &Context<'_>, accesses: &[Access]) -> Result<KeyHistory, Problem> {
    let key = accesses[0].key;
    let mut register = Register { context, key, accesses, values: None };
    let (observations, sources) = register.observations()?;
    register.check_values(&observations, &sources)?;
    let mut observed: Vec<u32> = sources
        .iter()
        .filter_map(|source| match *source {
            Source::Writer(writer) if !context.at(writer).is_committed() => Some(writer),
            _ => None,
        })
        .collect();
    observed.sort_unstable();
    observed.dedup();

    let (slots, unplaced) = register.order(&observed)?;
    let mut places: Vec<(u32, u32)> =
        (1..).zip(&slots).map(|(place, slot)| (slot.transaction, place)).collect();
    places.sort_unstable();
    let deletes = match sources.contains(&Source::Forgotten) {
        true => register.deletes(&slots, &unplaced, &observations, &sources),
        false => forgotten::Deletes::default(),
    };
    let was_there = register.was_there(&observations, &sources);
    let mut readers = Vec::with_capacity(observations.len());
    for (read, &source) in observations.iter().zip(&sources) {
        let (transaction, version) = (read.transaction, context.at(read.transaction).version);
        readers.push(match source {
            Source::Initial => Reader::at(transaction, 0),
            Source::Writer(writer) => {
                let at = places
                    .binary_search_by_key(&writer, |&(transaction, _)| transaction)
                    .expect("a version that was read and has no place in the order");
                Reader::at(transaction, places[at].1)
            }
            Source::Forgotten => match was_there {
                Some(found) if !deletes.is_any_below(version) => {
                    return Err(register.disagreeing(found, read, BEFORE));
                }
                _ => deletes.reader(transaction, version),
            },
        });
    }
    Ok(KeyHistory { key, readers, ordered: slots.len(), slots, observed, unplaced })
}

/// Finds out whose write of one register each committed transaction found, if it read the register before it wrote to
/// it. The order of versions does not matter. A read that found a forgotten delete has [`Source::Forgotten`] only if a
/// transaction may have deleted the register.
pub(super) fn read_from(
    context: &Context<'_>,
    accesses: &[Access],
) -> Result<Vec<(u32, Source)>, Problem> {
    let mut register = Register { context, key: accesses[0].key, accesses, values: None };
    let (observations, mut sources) = register.observations()?;
    if sources.contains(&Source::Forgotten) && !register.may_be_deleted() {
        for source in sources.iter_mut().filter(|source| **source == Source::Forgotten) {
            *source = Source::Initial;
        }
    }
    register.check_values(&observations, &sources)?;
    Ok(observations.iter().map(|read| read.transaction).zip(sources).collect())
}

impl Register<'_, '_> {
    /// The first reads of the committed transactions, and the source of each.
    fn observations(&mut self) -> Result<(Vec<Observation>, Vec<Source>), Problem> {
        let mut observations = Vec::new();
        for accesses in self.accesses.chunk_by(|left, right| left.transaction == right.transaction)
        {
            if self.context.at(accesses[0].transaction).is_committed() {
                observations.extend(self.observe(accesses)?);
            }
        }
        let sources =
            observations.iter().map(|read| self.source(read)).collect::<Result<_, _>>()?;
        Ok((observations, sources))
    }

    /// Whether any transaction may have deleted the register.
    fn may_be_deleted(&self) -> bool {
        let mut deletes = self.accesses.iter().filter(|access| {
            matches!(self.context.operation(access), MicroOperation::Write { value: None, .. })
        });
        deletes.any(|access| !self.context.at(access.transaction).is_failed())
            || self.context.opaque().is_some()
    }

    /// Follows one transaction through its operations on the register. A read must find the transaction's own last
    /// write, or else the same as its earlier reads.
    fn observe(&self, accesses: &[Access]) -> Result<Option<Observation>, Problem> {
        let transaction = accesses[0].transaction;
        let mut written: Option<Option<u64>> = None;
        let mut found: Option<Observation> = None;
        for access in accesses {
            let value = match *self.context.operation(access) {
                MicroOperation::Write { value, .. } => {
                    written = Some(value);
                    continue;
                }
                MicroOperation::Read { result: ReadResult::Register(value), .. } => value,
                _ => continue,
            };
            let version = self.context.at(transaction).read_version(access.read);
            let expected = match (written, &found) {
                (Some(written), _) if written != value => {
                    format!("after its own write it should have found {}", Found(written))
                }
                (None, Some(earlier)) if earlier.value != value => {
                    format!("earlier it found {}", Found(earlier.value))
                }
                (None, Some(Observation { version: Some(earlier), .. }))
                    if version.is_some_and(|version| version != *earlier) =>
                {
                    format!("earlier it found version {earlier}, now another one")
                }
                (None, None) => {
                    found = Some(Observation { transaction, value, version });
                    continue;
                }
                _ => continue,
            };
            let reader = self.context.name(0, transaction);
            let reason = format!("{reader} read {} of key {}; {expected}", Found(value), self.key);
            let kind = ViolationKind::InternalInconsistency;
            return Err(self.context.violation(kind, self.key, &[transaction], reason));
        }
        Ok(found)
    }

    fn source(&mut self, read: &Observation) -> Result<Source, Problem> {
        match read.version {
            Some(Version::INITIAL) => match (read.value, self.context.deletes) {
                (None, Deletes::Forgotten) => Ok(Source::Forgotten),
                _ => Ok(Source::Initial),
            },
            Some(version) => self.source_by_version(read, version),
            None => self.source_by_value(read),
        }
    }

    fn source_by_version(&self, read: &Observation, version: Version) -> Result<Source, Problem> {
        let (context, key) = (self.context, self.key);
        let read_text = || format!("{} at version {version}", self.read_text(read));
        let Some(writer) = context.owner(version) else {
            if context.is_initial(version) {
                return Ok(Source::Initial);
            }
            context.miss_owner();
            if let Some(unknown) = context.writer_without_version(self.accesses) {
                return Err(Problem::Unknown(format!(
                    "{}, which may be that of {}, whose outcome is unknown: record the versions of \
                     such transactions as well",
                    read_text(),
                    context.name(1, unknown)
                )));
            }
            let reason = format!("{}, which no transaction of the history has", read_text());
            let kind = ViolationKind::AbortedRead;
            return Err(context.violation(kind, key, &[read.transaction], reason));
        };
        let owner = context.at(writer);
        let last = self.writes(writer).last();
        let (kind, fault) = if writer == read.transaction {
            (ViolationKind::InternalInconsistency, "before it wrote to it".to_owned())
        } else if owner.is_failed() {
            (ViolationKind::AbortedRead, "which failed".to_owned())
        } else if let Some(last) = last {
            let unrecorded = last.is_none() && !owner.is_committed();
            if last == read.value || unrecorded {
                return Ok(Source::Writer(writer));
            }
            if self.writes(writer).any(|value| value == read.value) {
                let fault = format!("which wrote that, but then {}", Overwritten(last));
                (ViolationKind::IntermediateRead, fault)
            } else {
                let fault = format!("which never wrote that, but {}", Overwritten(last));
                (ViolationKind::GarbageRead, fault)
            }
        } else if owner.is_opaque() {
            return Ok(Source::Writer(writer));
        } else {
            (ViolationKind::GarbageRead, "which did not write to it".to_owned())
        };
        if writer == read.transaction {
            let reason = format!("{}, its own, {fault}", read_text());
            return Err(context.violation(kind, key, &[writer], reason));
        }
        let reason = format!("{}, that of {}, {fault}", read_text(), context.name(1, writer));
        Err(context.violation(kind, key, &[read.transaction, writer], reason))
    }

    fn source_by_value(&mut self, read: &Observation) -> Result<Source, Problem> {
        let (context, key) = (self.context, self.key);
        let values = self.values.get_or_insert_with(|| Values::new(context, self.accesses));
        let candidates = values.of(read.value);
        let live = candidates.partition_point(|written| !written.failed);
        let writer = match (live, candidates) {
            (0, _) if values.unrecorded => {
                return Err(Problem::Unknown(format!(
                    "{}, which may come from a transaction of unknown outcome whose write is not \
                     recorded: record the versions that reads find",
                    self.read_text(read)
                )));
            }
            (0, [failed, ..]) if read.value.is_some() => {
                let involved = [read.transaction, failed.transaction];
                let writer = context.name(1, failed.transaction);
                let reason =
                    format!("{}, which {writer} wrote, which failed", self.read_text(read));
                let kind = ViolationKind::AbortedRead;
                return Err(context.violation(kind, key, &involved, reason));
            }
            (0, _) => return Ok(Source::Initial),
            (1, [written, ..]) if read.value.is_some() => written.transaction,
            _ => {
                return Err(Problem::Unknown(format!(
                    "{}, which more than one transaction can have left there: record the versions \
                     that reads find, or write every value once",
                    self.read_text(read)
                )));
            }
        };
        if writer == read.transaction {
            let reason = format!("{}, and wrote that only afterwards", self.read_text(read));
            let kind = ViolationKind::InternalInconsistency;
            return Err(context.violation(kind, key, &[writer], reason));
        }
        let last = self.writes(writer).last().flatten();
        if last == read.value || (last.is_none() && !context.at(writer).is_committed()) {
            return Ok(Source::Writer(writer));
        }
        let reason = format!(
            "{}; {} wrote that, but then {}",
            self.read_text(read),
            context.name(1, writer),
            Overwritten(last)
        );
        let kind = ViolationKind::IntermediateRead;
        Err(context.violation(kind, key, &[read.transaction, writer], reason))
    }

    fn read_text(&self, read: &Observation) -> String {
        let reader = self.context.name(0, read.transaction);
        format!("{reader} read {} of key {}", Found(read.value), self.key)
    }

    /// Checks that all reads of the data before the history agree, and all reads of a write whose value was not
    /// recorded.
    fn check_values(&self, reads: &[Observation], sources: &[Source]) -> Result<(), Problem> {
        let mut initial: Option<&Observation> = None;
        let mut found: Vec<(u32, &Observation)> = Vec::new();
        for (read, source) in reads.iter().zip(sources) {
            match *source {
                Source::Initial if initial.get_or_insert(read).value != read.value => {
                    return Err(self.disagreeing(initial.expect("set just now"), read, BEFORE));
                }
                Source::Writer(writer) if !self.context.at(writer).is_committed() => {
                    found.push((writer, read));
                }
                _ => {}
            }
        }
        found.sort_by_key(|&(writer, _)| writer);
        for pair in found.windows(2) {
            let [(writer, one), (same, other)] = [pair[0], pair[1]];
            if writer == same && one.value != other.value {
                return Err(self.disagreeing(one, other, "what one transaction wrote"));
            }
        }
        Ok(())
    }

    /// The violation if two reads found different values of one version.
    fn disagreeing(&self, first: &Observation, other: &Observation, of: &str) -> Problem {
        let reason = format!(
            "{} read {} of key {} and {} read {}, both as {of}",
            self.context.name(0, first.transaction),
            Found(first.value),
            self.key,
            self.context.name(1, other.transaction),
            Found(other.value)
        );
        let kind = ViolationKind::DisagreeingReads;
        let involved = [first.transaction, other.transaction];
        self.context.violation(kind, self.key, &involved, reason)
    }

    /// A read that found a value from before the history, if there is one.
    fn was_there<'o>(
        &self,
        reads: &'o [Observation],
        sources: &[Source],
    ) -> Option<&'o Observation> {
        let mut initial = reads.iter().zip(sources).filter(|(_, it)| **it == Source::Initial);
        initial.find(|(read, _)| read.value.is_some()).map(|(read, _)| read)
    }

    /// The transactions that may have deleted the register.
    fn deletes(
        &self,
        slots: &[Slot],
        unplaced: &[u32],
        reads: &[Observation],
        sources: &[Source],
    ) -> forgotten::Deletes {
        let context = self.context;
        let mut found: Vec<(u32, Option<u64>)> = Vec::new();
        for (read, source) in reads.iter().zip(sources) {
            if let Source::Writer(writer) = *source {
                found.push((writer, read.value));
            }
        }
        found.sort_unstable();
        let effect = |writer: u32| {
            // For a transaction of unknown outcome, only a read of its version shows whether it wrote a value.
            let found =
                found.binary_search_by_key(&writer, |&(found, _)| found).map(|at| found[at].1);
            let left = found.unwrap_or_else(|_| self.writes(writer).last().flatten());
            let is_certain = context.at(writer).is_committed() || found.is_ok();
            match left {
                Some(_) => Effect::Value,
                None if is_certain => Effect::Deleted,
                None => Effect::MayHaveDeleted,
            }
        };
        let is_open = |it: &u32| found.binary_search_by_key(it, |&(found, _)| found).is_err();
        let opaque = context.opaque_ones().iter().copied().filter(is_open);
        let others = unplaced.iter().copied().chain(opaque);
        forgotten::Deletes::new(context, slots, others, effect)
    }

    /// The versions in order, and the writers whose place is not known.
    fn order(&self, observed: &[u32]) -> Result<(Vec<Slot>, Vec<u32>), Problem> {
        let context = self.context;
        let mut versions: Vec<(Version, u32)> = Vec::new();
        let mut unplaced = Vec::new();
        let writers = self
            .accesses
            .chunk_by(|left, right| left.transaction == right.transaction)
            .map(|accesses| accesses[0].transaction)
            .filter(|&writer| {
                !context.at(writer).is_failed() && self.writes(writer).next().is_some()
            });
        let opaque = observed.iter().copied().filter(|&writer| context.at(writer).is_opaque());
        for writer in writers.chain(opaque) {
            match context.at(writer).version {
                Some(version) if context.owner(version) == Some(writer) => {
                    versions.push((version, writer));
                }
                _ => unplaced.push(writer),
            }
        }

        let took_effect = |writer: &u32| {
            context.at(*writer).is_committed() || observed.binary_search(writer).is_ok()
        };
        if let Some(&writer) = unplaced.iter().find(|&writer| took_effect(writer)) {
            if !versions.is_empty()
                || unplaced.iter().filter(|&writer| took_effect(writer)).count() > 1
            {
                return Err(Problem::Unknown(format!(
                    "{} and others wrote to key {}, and their order is not known: record \
                     the version of every transaction, or use lists",
                    context.name(0, writer),
                    self.key
                )));
            }
            let value = self.writes(writer).last().flatten();
            let only = Slot { transaction: writer, installed: Installed::Value(value) };
            unplaced.retain(|&other| other != writer);
            return Ok((vec![only], unplaced));
        }
        versions.sort_unstable();
        let slots = versions.into_iter().map(|(version, transaction)| Slot {
            transaction,
            installed: Installed::Version(version),
        });
        Ok((slots.collect(), unplaced))
    }

    /// The transaction's writes to the register, in program order.
    fn writes(&self, transaction: u32) -> impl Iterator<Item = Option<u64>> {
        let start = self.accesses.partition_point(|access| access.transaction < transaction);
        self.accesses[start..]
            .iter()
            .take_while(move |access| access.transaction == transaction)
            .filter_map(|access| match *self.context.operation(access) {
                MicroOperation::Write { value, .. } => Some(value),
                _ => None,
            })
    }
}

/// Every value that was written, for reads without a version.
struct Values {
    /// Each transaction once per value. Sorted by value, with failed transactions after the others.
    written: Vec<Written>,
    /// Some transaction may have written a value that was not recorded.
    unrecorded: bool,
}

impl Values {
    fn new(context: &Context<'_>, accesses: &[Access]) -> Self {
        let value_of = |access: &Access| match *context.operation(access) {
            MicroOperation::Write { value, .. } => {
                let transaction = access.transaction;
                Some(Written { value, failed: context.at(transaction).is_failed(), transaction })
            }
            _ => None,
        };
        let mut written: Vec<Written> = accesses.iter().filter_map(value_of).collect();
        written.sort_unstable();
        written.dedup();
        let unrecorded = context.opaque().is_some()
            || written.iter().any(|written| {
                let writer = context.at(written.transaction);
                written.value.is_none() && !writer.is_failed() && !writer.is_committed()
            });
        Values { written, unrecorded }
    }

    fn of(&self, value: Option<u64>) -> &[Written] {
        let start = self.written.partition_point(|written| written.value < value);
        let count = self.written[start..].partition_point(|written| written.value == value);
        &self.written[start..start + count]
    }
}
