//! Derives transactions from events, and the accesses of each key from transactions.

use std::cell::Cell;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serried_model::Version;

use super::inversion::{NEVER, Span};
use super::recovered::Problem;
use super::{Deletes, Options, Summary, TransactionGuarantee, Violation, ViolationKind, Witness};
use crate::{Event, EventKind, History, MicroOperation, ReadResult};

/// How a transaction ended. An outcome with a stronger claim to a version comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Status {
    Committed,
    Unknown,
    Failed,
}

/// An event and its place in the history.
type Placed<'a> = (u32, &'a Event);

/// An invoke and its completion, if there is one.
pub(super) struct Transaction<'a> {
    pub(super) status: Status,
    /// The completion, or the invoke of a transaction that never ended.
    event: &'a Event,
    /// Its invoke, if that was recorded.
    invoke: Option<&'a Event>,
    /// When it began and ended, as positions of events in the history. Unless it committed, it may take effect at any
    /// later time.
    pub(super) span: Span,
    pub(super) operations: &'a [MicroOperation],
    /// The recorded version, or the one that it moved to.
    pub(super) version: Option<Version>,
    /// One entry per read. Empty if versions were not recorded.
    read_versions: &'a [Version],
}

impl<'a> Transaction<'a> {
    fn new(invoke: Option<Placed<'a>>, completion: Option<Placed<'a>>) -> Option<Self> {
        let begin = invoke.map_or(0, |(at, _)| at);
        let end = completion.map_or(NEVER, |(at, _)| at);
        let [invoke, completion] =
            [invoke, completion].map(|placed| placed.map(|(_, event)| event));
        let event = completion.or(invoke)?;
        let status = match event.kind {
            EventKind::Ok => Status::Committed,
            EventKind::Fail => Status::Failed,
            EventKind::Info | EventKind::Invoke => Status::Unknown,
        };
        let recorded = if event.operations.is_empty() && status != Status::Committed {
            invoke.unwrap_or(event)
        } else {
            event
        };
        let version = event.version.or_else(|| invoke.and_then(|invoke| invoke.version));
        let reads = event.operations.iter().filter(|operation| operation.is_read()).count();
        let all_versions = event.read_versions.len() == reads;
        Some(Transaction {
            status,
            event,
            invoke,
            span: Span { begin, end: if status == Status::Committed { end } else { NEVER } },
            operations: &recorded.operations,
            version: version.filter(|&version| version != Version::INITIAL),
            read_versions: if all_versions { &event.read_versions } else { &[] },
        })
    }

    pub(super) fn is_committed(&self) -> bool {
        self.status == Status::Committed
    }

    pub(super) fn process(&self) -> u64 {
        self.event.process
    }

    pub(super) fn is_failed(&self) -> bool {
        self.status == Status::Failed
    }

    /// Whether its operations are not known, so that it may have written anything.
    pub(super) fn is_opaque(&self) -> bool {
        self.status == Status::Unknown && self.operations.is_empty()
    }

    /// The version that a read found. `read` is its number among the transaction's reads.
    pub(super) fn read_version(&self, read: u32) -> Option<Version> {
        self.read_versions.get(read as usize).copied()
    }
}

/// One micro-operation on one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    pub(super) key: u64,
    pub(super) transaction: u32,
    /// Its position in the transaction.
    pub(super) position: u32,
    /// How many reads come before it in the transaction.
    pub(super) read: u32,
}

/// All transactions, in the order in which they began.
pub(super) struct Context<'a> {
    pub(super) transactions: Vec<Transaction<'a>>,
    initial_before: Option<Version>,
    pub(super) deletes: Deletes,
    /// The weakest guarantee that every violation violates.
    pub(super) weakest: TransactionGuarantee,
    /// The owner of each version. The claim of a committed transaction has precedence over one of unknown outcome, and
    /// that over a failed one.
    owners: HashMap<Version, u32, FixedState>,
    /// Transactions that have moved from their recorded version, and the recorded version.
    moved: Vec<(u32, Option<Version>)>,
    /// Whether a read found a version without an owner, among the keys recovered so far.
    misses_owners: Cell<bool>,
    /// The opaque transactions. Those without a version come first.
    opaque: Vec<u32>,
}

impl<'a> Context<'a> {
    /// Pairs the events, and checks that no two committed transactions share a version.
    pub(super) fn new(
        history: &'a History,
        options: &Options,
        weakest: TransactionGuarantee,
    ) -> Result<Self, Box<Violation>> {
        let transactions = pair(&history.events);
        let is_opaque = |&at: &u32| transactions[at as usize].is_opaque();
        let mut opaque: Vec<u32> = (0..transactions.len() as u32).filter(is_opaque).collect();
        opaque.sort_by_key(|&at| transactions[at as usize].version.is_some());
        let Options { initial_before, deletes } = *options;
        let mut context = Context {
            transactions,
            initial_before,
            deletes,
            weakest,
            owners: HashMap::default(),
            moved: Vec::new(),
            misses_owners: Cell::new(false),
            opaque,
        };
        for at in 0..context.transactions.len() as u32 {
            let transaction = context.at(at);
            let (status, Some(version)) = (transaction.status, transaction.version) else {
                continue;
            };
            let owner = match context.owners.entry(version) {
                Entry::Vacant(vacant) => {
                    vacant.insert(at);
                    continue;
                }
                Entry::Occupied(occupied) => occupied.into_mut(),
            };
            let other = *owner;
            let other_status = context.transactions[other as usize].status;
            if status < other_status {
                *owner = at;
            } else if status == Status::Committed {
                let (first, second) = (context.name(0, other), context.name(1, at));
                let reason = format!("{first} and {second} both committed at version {version}");
                return Err(context.explained(
                    ViolationKind::DuplicateVersion,
                    None,
                    &[other, at],
                    reason,
                ));
            }
        }
        Ok(context)
    }

    pub(super) fn at(&self, transaction: u32) -> &Transaction<'a> {
        &self.transactions[transaction as usize]
    }

    pub(super) fn operation(&self, access: &Access) -> &'a MicroOperation {
        &self.at(access.transaction).operations[access.position as usize]
    }

    pub(super) fn owner(&self, version: Version) -> Option<u32> {
        self.owners.get(&version).copied()
    }

    /// Notes that a read found a version without an owner.
    pub(super) fn miss_owner(&self) {
        self.misses_owners.set(true);
    }

    /// Whether any read found a version without an owner.
    pub(super) fn misses_owners(&self) -> bool {
        self.misses_owners.get()
    }

    /// Assigns versions without owners to these transactions. All others get their recorded versions back.
    pub(super) fn set_moved(&mut self, moved: impl Iterator<Item = (u32, Version)>) {
        for (transaction, recorded) in std::mem::take(&mut self.moved) {
            let version = &mut self.transactions[transaction as usize].version;
            if let Some(version) = std::mem::replace(version, recorded) {
                self.owners.remove(&version);
            }
        }
        for (transaction, version) in moved {
            let recorded = self.transactions[transaction as usize].version.replace(version);
            self.owners.insert(version, transaction);
            self.moved.push((transaction, recorded));
        }
    }

    /// Whether a version without an owner was written before the history began.
    pub(super) fn is_initial(&self, version: Version) -> bool {
        version == Version::INITIAL || self.initial_before.is_some_and(|bound| version <= bound)
    }

    /// What a committed transaction found in a register before it wrote to it, and at which version. `accesses` are all
    /// its accesses to that key.
    pub(super) fn first_found(&self, accesses: &[Access]) -> Option<(Option<u64>, Version)> {
        let transaction = self.at(accesses[0].transaction);
        if !transaction.is_committed() {
            return None;
        }
        for access in accesses {
            match *self.operation(access) {
                MicroOperation::Write { .. } => return None,
                MicroOperation::Read { result: ReadResult::Register(value), .. } => {
                    return Some((value, transaction.read_version(access.read)?));
                }
                _ => {}
            }
        }
        None
    }

    /// A transaction that may have written to a key at a version that was not recorded, if there is one. `accesses` are
    /// all accesses to that key.
    pub(super) fn writer_without_version(&self, accesses: &[Access]) -> Option<u32> {
        let mut writers = accesses
            .iter()
            .filter(|access| matches!(self.operation(access), MicroOperation::Write { .. }))
            .map(|access| access.transaction);
        writers
            .find(|&writer| {
                let writer = self.at(writer);
                !writer.is_failed() && writer.version.is_none()
            })
            .or_else(|| self.opaque().filter(|&opaque| self.at(opaque).version.is_none()))
    }

    /// A transaction of unknown outcome that may have written anything, if there is one.
    pub(super) fn opaque(&self) -> Option<u32> {
        self.opaque.first().copied()
    }

    /// All opaque transactions.
    pub(super) fn opaque_ones(&self) -> &[u32] {
        &self.opaque
    }

    /// Every micro-operation, by key, then by transaction, then in program order.
    pub(super) fn accesses(&self) -> Vec<Access> {
        let count = self.transactions.iter().map(|transaction| transaction.operations.len()).sum();
        let mut accesses = Vec::with_capacity(count);
        for (at, transaction) in (0..).zip(&self.transactions) {
            let mut read = 0;
            for (position, operation) in (0..).zip(transaction.operations) {
                accesses.push(Access { key: operation.key(), transaction: at, position, read });
                read += u32::from(operation.is_read());
            }
        }
        accesses.sort_unstable();
        accesses
    }

    pub(super) fn summary(
        &self,
        guarantee: TransactionGuarantee,
        keys: u64,
        edges: u64,
    ) -> Summary {
        let mut summary = Summary { guarantee, committed: 0, unknown: 0, failed: 0, keys, edges };
        for transaction in &self.transactions {
            *match transaction.status {
                Status::Committed => &mut summary.committed,
                Status::Unknown => &mut summary.unknown,
                Status::Failed => &mut summary.failed,
            } += 1;
        }
        summary
    }

    /// The name of the transaction that an explanation lists at `place`, counted from 0.
    pub(super) fn name(&self, place: usize, transaction: u32) -> String {
        let event = self.at(transaction).event;
        format!("T{} (process {}, op {})", place + 1, event.process, event.index)
    }

    /// The index of its completion, or of its invoke if it has none.
    pub(super) fn end_index(&self, transaction: u32) -> u64 {
        self.at(transaction).event.index
    }

    /// The index of its invoke, or of its completion if the invoke was not recorded.
    pub(super) fn begin_index(&self, transaction: u32) -> u64 {
        let transaction = self.at(transaction);
        transaction.invoke.unwrap_or(transaction.event).index
    }

    pub(super) fn witness(&self, transaction: u32) -> Witness {
        let transaction = self.at(transaction);
        Witness {
            index: transaction.event.index,
            process: transaction.event.process,
            kind: transaction.event.kind,
            version: transaction.version,
            operations: transaction.operations.to_vec(),
            read_versions: transaction.read_versions.to_vec(),
        }
    }

    /// A violation that is not a cycle.
    pub(super) fn violation(
        &self,
        kind: ViolationKind,
        key: u64,
        involved: &[u32],
        reason: String,
    ) -> Problem {
        Problem::Violation(self.explained(kind, Some(key), involved, reason))
    }

    fn explained(
        &self,
        kind: ViolationKind,
        key: Option<u64>,
        involved: &[u32],
        reason: String,
    ) -> Box<Violation> {
        Box::new(Violation {
            kind,
            key,
            transactions: involved.iter().map(|&involved| self.witness(involved)).collect(),
            real_time: None,
            conflicts: Vec::new(),
            because: Vec::new(),
            reason,
            ruled_out: kind.ruled_out(),
            weakest: self.weakest,
        })
    }
}

fn pair(events: &[Event]) -> Vec<Transaction<'_>> {
    let mut pairs: Vec<(Option<Placed<'_>>, Option<Placed<'_>>)> =
        Vec::with_capacity(events.len() / 2 + 1);
    let mut open: HashMap<u64, usize, FixedState> = HashMap::default();
    for placed in (0..).zip(events) {
        let (_, event) = placed;
        if event.kind == EventKind::Invoke {
            open.insert(event.process, pairs.len());
            pairs.push((Some(placed), None));
        } else if let Some(invoked) = open.remove(&event.process) {
            pairs[invoked].1 = Some(placed);
        } else {
            pairs.push((None, Some(placed)));
        }
    }
    pairs.into_iter().filter_map(|(invoke, end)| Transaction::new(invoke, end)).collect()
}
