//! Registers: the recorded versions tell their order, and which of them a read found.

use super::display::{Found, Overwritten};
use super::recovered::{KeyHistory, Problem, Reader, Slot};
use super::transaction::{Access, Context};
use super::{Installed, ViolationKind};
use crate::{MicroOperation, ReadResult};
use serried_model::Version;

/// The first read of a committed transaction before it wrote to the register.
struct Observation {
    transaction: u32,
    value: Option<u64>,
    version: Option<Version>,
}

/// Where a read's value came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// From before the history.
    Initial,
    /// From this transaction.
    Writer(u32),
    /// From one of several of unknown outcome, so that nothing follows from it.
    Unclear,
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
    /// Somebody found a value that was there before the history.
    was_there: bool,
    /// Filled when a read that found nothing needs it.
    writers: Option<Vec<Writer>>,
}

/// A transaction that wrote to the register at a known version.
#[derive(Clone, Copy)]
struct Writer {
    version: Version,
    transaction: u32,
    /// Or somebody found what it wrote.
    is_committed: bool,
    /// It deleted the register; if it did not commit, perhaps.
    deletes: bool,
    /// The last transaction up to this one that is known to have deleted the register.
    latest_delete: Option<u32>,
}

/// Recovers one register: the versions of its writers order them, and the versions that were read
/// tell from whom; where those were not recorded, values that are unique do as well.
pub(super) fn recover(context: &Context<'_>, accesses: &[Access]) -> Result<KeyHistory, Problem> {
    let key = accesses[0].key;
    let mut register =
        Register { context, key, accesses, values: None, was_there: false, writers: None };
    let mut observations = Vec::new();
    for accesses in accesses.chunk_by(|left, right| left.transaction == right.transaction) {
        if context.at(accesses[0].transaction).is_committed() {
            observations.extend(register.observe(accesses)?);
        }
    }

    register.was_there = observations
        .iter()
        .any(|read| read.version == Some(Version::INITIAL) && read.value.is_some());
    let mut sources = Vec::with_capacity(observations.len());
    let mut observed = Vec::new();
    for read in &observations {
        let source = register.source(read)?;
        if let Source::Writer(writer) = source
            && !context.at(writer).is_committed()
        {
            observed.push(writer);
        }
        sources.push(source);
    }
    register.check_initial(&observations, &sources)?;
    observed.sort_unstable();
    observed.dedup();

    let (slots, unplaced) = register.order(&observed)?;
    let mut places: Vec<(u32, u32)> =
        (1..).zip(&slots).map(|(place, slot)| (slot.transaction, place)).collect();
    places.sort_unstable();
    let readers = observations.iter().zip(&sources).filter_map(|(read, &source)| {
        let visible = match source {
            Source::Unclear => return None,
            Source::Initial => 0,
            Source::Writer(writer) => {
                let at = places
                    .binary_search_by_key(&writer, |&(transaction, _)| transaction)
                    .expect("a version that was read and has no place in the order");
                places[at].1
            }
        };
        Some(Reader { transaction: read.transaction, visible })
    });
    Ok(KeyHistory {
        key,
        readers: readers.collect(),
        ordered: slots.len(),
        slots,
        observed,
        unplaced,
    })
}

impl Register<'_, '_> {
    /// Follows one transaction through its operations on the register: it finds its own last write,
    /// or else what it found before.
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
                    format!("earlier it found that of version {earlier}, now that of another")
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
            Some(Version::INITIAL) => Ok(self.initial_or_forgotten(read)),
            Some(version) => self.source_by_version(read, version),
            None => self.source_by_value(read),
        }
    }

    /// A read that found nothing, at no version: nothing was ever there, or it was deleted so long ago that
    /// the database has forgotten by whom. The latest such delete below the reader's own version is then taken
    /// for the one that it found, if it is certain which that is.
    fn initial_or_forgotten(&mut self, read: &Observation) -> Source {
        if read.value.is_some() || self.context.deletes_forgotten_after_us.is_none() {
            return Source::Initial;
        }
        if self.writers.is_none() {
            self.writers = Some(self.writers_in_order());
        }
        let (context, reader) = (self.context, self.context.at(read.transaction));
        let writers = self.writers.as_deref().expect("they were put in order just now");
        let end = writers
            .partition_point(|writer| reader.version.is_none_or(|reader| writer.version < reader));
        let is_ordered = context.is_before_by_version() && reader.version.is_some();
        let mut perhaps = Vec::new();
        let mut latest = None;
        // Of these it may be forgotten what they did.
        for writer in writers[..end].iter().rev() {
            let (it, is_itself) =
                (context.at(writer.transaction), writer.transaction == read.transaction);
            // It comes before the reader in any case, if it took effect.
            let is_before = is_ordered || it.is_over_before(reader);
            let may_be_found =
                is_before || context.is_forgotten(it, reader) && !reader.is_over_before(it);
            if is_itself || !may_be_found {
                continue;
            }
            if is_before && writer.is_committed {
                latest = Some(writer);
                break;
            }
            if writer.deletes {
                perhaps.push(writer.transaction);
            }
        }
        match (latest, &perhaps[..]) {
            (Some(Writer { transaction, deletes: true, .. }), []) => Source::Writer(*transaction),
            (Some(Writer { deletes: false, .. }), [writer]) => Source::Writer(*writer),
            (None, [writer]) if self.was_there => Source::Writer(*writer),
            (_, [_, ..]) => Source::Unclear,
            (None, []) => Source::Initial,
            (Some(Writer { latest_delete, .. }), []) => {
                latest_delete.map_or(Source::Initial, Source::Writer)
            }
        }
    }

    fn writers_in_order(&self) -> Vec<Writer> {
        let mut writers = Vec::new();
        for accesses in self.accesses.chunk_by(|left, right| left.transaction == right.transaction)
        {
            let transaction = accesses[0].transaction;
            let writer = self.context.at(transaction);
            if let (Some(version), Some(last), false) =
                (writer.version, self.writes(transaction).last(), writer.is_failed())
            {
                let (is_committed, deletes) =
                    (self.context.took_effect(transaction), last.is_none());
                let latest_delete = None;
                writers.push(Writer { version, transaction, is_committed, deletes, latest_delete });
            }
        }
        writers.sort_unstable_by_key(|writer| (writer.version, writer.transaction));
        let mut latest_delete = None;
        for writer in &mut writers {
            let deletes = writer.is_committed && writer.deletes;
            latest_delete = Some(writer.transaction).filter(|_| deletes).or(latest_delete);
            writer.latest_delete = latest_delete;
        }
        writers
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

    /// Whatever was there before the history, everybody found the same.
    fn check_initial(&self, reads: &[Observation], sources: &[Source]) -> Result<(), Problem> {
        let mut initial =
            reads.iter().zip(sources).filter(|(_, source)| **source == Source::Initial);
        let Some((first, _)) = initial.next() else {
            return Ok(());
        };
        let Some((other, _)) = initial.find(|(read, _)| read.value != first.value) else {
            return Ok(());
        };
        let reason = format!(
            "{} read {} of key {} and {} read {}, both as what was there before the history",
            self.context.name(0, first.transaction),
            Found(first.value),
            self.key,
            self.context.name(1, other.transaction),
            Found(other.value)
        );
        let kind = ViolationKind::DisagreeingReads;
        let involved = [first.transaction, other.transaction];
        Err(self.context.violation(kind, self.key, &involved, reason))
    }

    /// The versions in order, and the writers of which nobody knows where they belong.
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
                    "{} wrote to key {}, as others did, and nothing tells in which order: record \
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

    /// What a transaction wrote to the register, in program order.
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
    /// Each transaction once per value; by value, those of failed transactions after the others.
    written: Vec<Written>,
    /// Some transaction may have written what was not recorded.
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
