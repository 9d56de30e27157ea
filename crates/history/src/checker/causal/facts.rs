//! What is certain about a history: which transactions took effect, what they wrote, and whose writes they read.

use super::super::Violation;
use super::super::recovered::{self, Kind, Problem};
use super::super::register::{self, Source};
use super::super::transaction::{Access, Context};
use crate::MicroOperation;

/// What a committed transaction found in a key before it wrote to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Read {
    pub(super) reader: u32,
    /// Index into [`Facts::keys`].
    pub(super) key: u32,
    /// Whose write it found. `None` if the key was as before the history.
    pub(super) writer: Option<u32>,
}

/// The facts about those keys that can be judged.
pub(super) struct Facts {
    pub(super) keys: Vec<u64>,
    /// For each key, the transactions that wrote to it and took effect, in the order in which they began.
    pub(super) writers: Vec<Vec<u32>>,
    /// All reads whose writer is certain, by process, then in the order of the readers.
    pub(super) reads: Vec<Read>,
    /// Whether each transaction took effect: the committed ones, and those of unknown outcome that were read from.
    pub(super) included: Vec<bool>,
    /// Writes of which only reads tell: their key, and their transaction, whose operations were not recorded.
    unrecorded: Vec<(u32, u32)>,
    /// Why not everything could be judged.
    pub(super) unknown: Option<String>,
}

impl Facts {
    pub(super) fn new(context: &Context<'_>, accesses: &[Access]) -> Result<Self, Box<Violation>> {
        let transactions = context.transactions.iter();
        let mut facts = Facts {
            keys: Vec::new(),
            writers: Vec::new(),
            reads: Vec::new(),
            included: transactions.map(|transaction| transaction.is_committed()).collect(),
            unrecorded: Vec::new(),
            unknown: None,
        };
        let mut judged = Vec::new();
        for accesses in accesses.chunk_by(|left, right| left.key == right.key) {
            match sources(context, accesses) {
                Ok(sources) => {
                    facts.add_reads(context, accesses[0].key, &sources);
                    judged.push(accesses);
                }
                Err(Problem::Violation(violation)) => return Err(violation),
                Err(Problem::Unknown(reason)) => {
                    facts.unknown.get_or_insert(reason);
                }
            }
        }
        for (key, accesses) in judged.iter().enumerate() {
            let writers = facts.writers_of(context, key as u32, accesses);
            facts.writers.push(writers);
        }
        facts.reads.sort_unstable_by_key(|read| (context.at(read.reader).process(), *read));
        Ok(facts)
    }

    /// The pairs of a transaction and one that read from it, and the key.
    pub(super) fn reads_from(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.reads.iter().filter_map(|read| Some((read.writer?, read.reader, read.key)))
    }

    /// The reads of each process that has any.
    pub(super) fn processes<'f>(
        &'f self,
        context: &'f Context<'_>,
    ) -> impl Iterator<Item = &'f [Read]> {
        let process = |read: &Read| context.at(read.reader).process();
        self.reads.chunk_by(move |left, right| process(left) == process(right))
    }

    fn add_reads(&mut self, context: &Context<'_>, number: u64, sources: &[(u32, Source)]) {
        let key = self.keys.len() as u32;
        self.keys.push(number);
        for &(reader, source) in sources {
            let writer = match source {
                Source::Initial => None,
                Source::Writer(writer) => {
                    self.included[writer as usize] = true;
                    if context.at(writer).is_opaque() {
                        self.unrecorded.push((key, writer));
                    }
                    Some(writer)
                }
                Source::Forgotten => {
                    self.unknown.get_or_insert_with(|| {
                        format!(
                            "{} found nothing in key {number}, and it is not known whether it was \
                             deleted before and by whom: use a database that remembers deletes, or \
                             do not delete",
                            context.name(0, reader)
                        )
                    });
                    continue;
                }
            };
            self.reads.push(Read { reader, key, writer });
        }
    }

    /// The transactions that wrote to a key and took effect. Of those whose operations are not known, these are the
    /// ones whose write was read.
    fn writers_of(&self, context: &Context<'_>, key: u32, accesses: &[Access]) -> Vec<u32> {
        let writes = accesses.iter().filter(|access| {
            self.included[access.transaction as usize]
                && matches!(context.operation(access), MicroOperation::Write { .. })
        });
        let unrecorded = self.unrecorded.iter().filter(|(of, _)| *of == key).map(|&(_, it)| it);
        let mut writers: Vec<u32> =
            writes.map(|access| access.transaction).chain(unrecorded).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

fn sources(context: &Context<'_>, accesses: &[Access]) -> Result<Vec<(u32, Source)>, Problem> {
    match recovered::kind(context, accesses)? {
        Kind::Register => register::read_from(context, accesses),
        Kind::List => Err(Problem::Unknown(format!(
            "key {} is a list, and causality is judged only for registers: use registers",
            accesses[0].key
        ))),
    }
}
