//! Runs the transactions of a trace again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;
use serried_model::{
    Form, Key, Limits, Modification, Modify, ReportedModification, ReportedRead, ReportedWrite,
    TransactionReport, Value, Write,
};
use serried_session::{Abort, Transaction};

use super::{Trace, TracedTransaction, length, lengths};
use crate::workload::{OneShot, Plan, Run, Workload};

/// The name of the workload that runs a trace.
pub const TRACE: &str = "trace";

/// The workload that runs a trace. Each client runs the transactions of one of the trace's clients, in their order, and
/// then again from the first.
///
/// - Reads are requested in the rounds of the trace, for update where they were. Writes and modifications follow the
///   reads.
/// - A value that is written has the length of the trace. It depends on everything that the transaction has read, so a
///   transaction that is executed again writes something else. The values of batches depend on nothing.
/// - A key that is added to in the trace always holds a number, whatever else is done to it: what is appended replaces the number.
/// - Before the run, the keys hold values of the lengths that were found first. A key that was written first holds one
///   of that length.
/// - If there are more clients than in the trace, several run the same transactions, from different places on. If there
///   are fewer, each runs those of several, in the order in which they began.
/// - A client that begins with the first transaction waits as long before it as in the trace. When it has run the last
///   one, it waits for the rest of the trace's time, and then again as before the first one.
#[derive(Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    /// Whether clients think.
    thinks: bool,
    /// By client of the trace: its transactions.
    of_clients: Vec<Arc<Lap>>,
    numbers: HashMap<Key, usize>,
    /// By key: the length of what it holds before the run.
    initial: Vec<Option<u32>>,
    /// By length: a value of zeros. Keys with values of one length share it.
    zeros: Mutex<HashMap<u32, Value>>,
    /// The keys that hold something before the run.
    present: Vec<usize>,
    /// By key: whether it holds a number, as text.
    is_number: Vec<bool>,
    /// How many clients run it.
    clients: AtomicUsize,
    places: Mutex<BTreeMap<u64, Place>>,
}

/// What a client does over and over.
#[derive(Debug)]
struct Lap {
    /// Its transactions, and how long it thinks before each.
    steps: Vec<(usize, Duration)>,
    /// How long it thinks before the first one for the first time.
    first: Duration,
}

impl Lap {
    /// That of a client with these transactions. The first one comes as long after the last one as it takes until the
    /// trace is over, and from its beginning to the first one.
    fn new(trace: &Trace, transactions: &[usize]) -> Lap {
        let what = |number: usize| &trace.transactions()[number].what;
        let mut steps = Vec::with_capacity(transactions.len());
        let mut ended_ns = 0;
        for number in transactions {
            let TransactionReport { began_ns, ended_ns: ends_ns, .. } = *what(*number);
            steps.push((*number, Duration::from_nanos(began_ns.saturating_sub(ended_ns))));
            ended_ns = ends_ns.max(ended_ns);
        }
        let first = steps.first().map_or(Duration::ZERO, |(_, think)| *think);
        if let Some((_, think)) = steps.first_mut() {
            *think += trace.header().lasted().saturating_sub(Duration::from_nanos(ended_ns));
        }
        Lap { steps, first }
    }
}

/// Where a client is.
#[derive(Debug)]
struct Place {
    lap: Arc<Lap>,
    next: usize,
    /// Whether it has not begun.
    is_new: bool,
}

/// The longest value that appending leads to, in bytes. Otherwise values would grow from one repetition to the next.
const MOST_APPENDED: usize = 4096;

impl Replay {
    /// The workload. With `thinks`, each client waits as long between transactions as it did in the trace.
    pub fn new(trace: Arc<Trace>, thinks: bool) -> Replay {
        let mut of_clients = vec![Vec::new(); trace.clients()];
        for (number, txn) in trace.transactions().iter().enumerate() {
            of_clients[txn.client as usize].push(number);
        }
        let numbers = trace.keys().iter().cloned().zip(0..).collect();
        let is_number = numbers_of(&trace);
        let initial = initial(&trace);
        let present = (0..initial.len()).filter(|key| initial[*key].is_some()).collect();
        Replay {
            thinks,
            clients: AtomicUsize::new(trace.clients()),
            of_clients: of_clients
                .iter()
                .map(|numbers| Arc::new(Lap::new(&trace, numbers)))
                .collect(),
            trace,
            numbers,
            initial,
            zeros: Mutex::default(),
            present,
            is_number,
            places: Mutex::default(),
        }
    }

    /// The trace.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The number of the transaction that is planned.
    pub(super) fn number(&self, plan: &Plan) -> usize {
        match plan {
            Plan::Traced { number, .. } => *number,
            _ => unreachable!("this workload has planned it"),
        }
    }

    fn transaction(&self, plan: &Plan) -> &TransactionReport<u32> {
        &self.trace.transactions()[self.number(plan)].what
    }

    fn key(&self, number: u32) -> &Key {
        &self.trace.keys()[number as usize]
    }

    /// Where a client begins.
    fn first_place(&self, client: usize) -> Place {
        let (clients, traced) =
            (self.clients.load(Ordering::Relaxed).max(1), self.of_clients.len());
        if clients < traced {
            let of_several = self.of_clients.iter().skip(client % clients).step_by(clients);
            let steps = of_several.flat_map(|lap| &lap.steps);
            let mut transactions: Vec<usize> = steps.map(|(number, _)| *number).collect();
            transactions.sort_unstable();
            let lap = Arc::new(Lap::new(&self.trace, &transactions));
            return Place { lap, next: 0, is_new: true };
        }
        let of_client = client % traced;
        let alike = (clients - of_client).div_ceil(traced);
        let lap = self.of_clients[of_client].clone();
        let next = client / traced % alike * lap.steps.len() / alike;
        Place { lap, next, is_new: true }
    }

    /// What is written to a key, given a number that depends on what the transaction has read.
    fn value(&self, key: u32, bytes: u32, read: u64) -> Value {
        match self.is_number[key as usize] {
            true => crate::number::decimal(read % 10),
            false => filled(read, bytes),
        }
    }

    /// The value of a key before the run, by its number.
    fn initially(&self, key: usize) -> Option<Value> {
        let bytes = self.initial[key]?;
        if self.is_number[key] {
            return Some(crate::number::decimal(0));
        }
        let mut zeros = locked(&self.zeros);
        Some(zeros.entry(bytes).or_insert_with(|| filled(0, bytes)).clone())
    }

    fn modification(&self, key: u32, what: ReportedModification) -> Modification {
        match what {
            ReportedModification::Number => Modification::add(1),
            // What is appended in the trace were digits, or there was another value then. Additions go on working.
            ReportedModification::Append(bytes) if self.is_number[key as usize] => {
                Modification::Set(Some(self.value(key, bytes, 0)))
            }
            ReportedModification::Append(bytes) => Modification::AppendWithin {
                suffix: filled(0, bytes),
                most_bytes: MOST_APPENDED.max(bytes as usize),
            },
            ReportedModification::Replace(bytes) => {
                Modification::Set(bytes.map(|bytes| self.value(key, bytes, 0)))
            }
        }
    }

    async fn run_traced(
        &self,
        what: &TransactionReport<u32>,
        transaction: &Transaction,
    ) -> Result<(), Abort> {
        let mut found: Vec<(u32, Option<Value>)> = Vec::new();
        for round in what.reads.chunk_by(|one, other| one.round == other.round) {
            if let [ReportedRead { key, for_update, .. }] = round {
                let value = match for_update {
                    true => transaction.get_for_update(self.key(*key)).await?,
                    false => transaction.get(self.key(*key)).await?,
                };
                found.push((*key, value));
                continue;
            }
            let getting = transaction.get_many(round.iter().map(|read| self.key(read.key)));
            let for_update = (0..round.len()).filter(|place| round[*place].for_update);
            let getting =
                for_update.fold(getting, |getting, place| getting.for_update(place..=place));
            found.extend(round.iter().map(|read| read.key).zip(getting.await?));
        }
        let all = found.iter().fold(0, |all, (_, value)| mixed(all, value.as_ref()));
        for ReportedWrite { key, bytes } in &what.writes {
            // What it has found there is never what it writes, as the sum differs in the last digit.
            let before = found.iter().find(|(read, _)| read == key);
            let before = before.map_or(0, |(_, value)| value.as_ref().map_or(0, first_number));
            let read = if found.is_empty() { 0 } else { before.wrapping_add(all | 1) };
            match bytes {
                Some(bytes) => transaction.put(self.key(*key), self.value(*key, *bytes, read)),
                None => transaction.delete(self.key(*key)),
            }
        }
        for modify in &what.modifies {
            for modification in &modify.modifications {
                let modification = self.modification(modify.key, *modification);
                drop(transaction.modify(self.key(modify.key), modification));
            }
        }
        Ok(())
    }
}

/// By key: whether something is done to it that needs a number.
fn numbers_of(trace: &Trace) -> Vec<bool> {
    let mut is_number = vec![false; trace.keys().len()];
    for TracedTransaction { what, .. } in trace.transactions() {
        for modify in &what.modifies {
            if modify.modifications.contains(&ReportedModification::Number) {
                is_number[modify.key as usize] = true;
            }
        }
    }
    is_number
}

/// By key: the length of what it holds before the run.
fn initial(trace: &Trace) -> Vec<Option<u32>> {
    let mut bytes: Vec<Option<Option<u32>>> = vec![None; trace.keys().len()];
    for TracedTransaction { what, .. } in trace.transactions() {
        let reads = what.reads.iter().map(|read| (read.key, read.bytes));
        let writes = what.writes.iter().map(|write| (write.key, write.bytes));
        let modifies = what.modifies.iter().map(|modify| {
            let bytes = modify.modifications.first().and_then(|first| match first {
                ReportedModification::Number => Some(1),
                ReportedModification::Append(_) => None,
                ReportedModification::Replace(bytes) => *bytes,
            });
            (modify.key, bytes)
        });
        for (key, of_key) in reads.chain(writes).chain(modifies) {
            bytes[key as usize].get_or_insert(of_key);
        }
    }
    bytes.into_iter().map(Option::flatten).collect()
}

/// The least limits of a keyspace in which the trace can be run, but for what the usual ones allow.
fn limits(trace: &Trace) -> Limits {
    let key = |number: u32| trace.keys()[number as usize].len();
    let of_transaction = |TracedTransaction { what, .. }: &TracedTransaction| {
        let reads = what.reads.iter().map(|read| key(read.key));
        let writes =
            what.writes.iter().map(|write| key(write.key) + write.bytes.unwrap_or(0) as usize);
        let modifies = what.modifies.iter().map(|modify| {
            let bytes = |what: &ReportedModification| length(*what) as usize;
            let each = modify.modifications.iter().map(bytes);
            let longest = each.clone().max().unwrap_or(0).max(MOST_APPENDED);
            // As modifications, or as a write in place of them.
            let modifications = each.map(|bytes| key(modify.key) + bytes + Modify::BYTES_EACH);
            modifications.sum::<usize>() + key(modify.key) + longest
        });
        reads.chain(writes).chain(modifies).sum::<usize>()
    };
    let values = trace.transactions().iter().flat_map(|txn| lengths(&txn.what));
    let usual = Limits::default();
    Limits {
        key_bytes: trace.keys().iter().map(Key::len).fold(usual.key_bytes, usize::max),
        value_bytes: values.map(|bytes| bytes as usize).fold(usual.value_bytes, usize::max),
        transaction_bytes: trace
            .transactions()
            .iter()
            .map(of_transaction)
            .fold(usual.transaction_bytes, usize::max),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that depends on another one and on what a read has found.
fn mixed(number: u64, found: Option<&Value>) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let found = found.map_or(1 << 63, first_number);
    (number.rotate_left(5) ^ found).wrapping_mul(ODD).wrapping_add(1)
}

/// A value of this length that begins with a number, as far as there is room.
fn filled(number: u64, bytes: u32) -> Value {
    let mut value = vec![0; bytes as usize];
    // The last digits change from one number to the next, so they come first.
    for (place, digit) in value.iter_mut().zip(number.to_le_bytes()) {
        *place = digit;
    }
    Value::from(value)
}

/// The number with which a value begins.
fn first_number(value: &Value) -> u64 {
    let mut digits = [0; 8];
    for (digit, place) in digits.iter_mut().zip(value.as_bytes()) {
        *digit = *place;
    }
    u64::from_le_bytes(digits)
}

impl Workload for Replay {
    fn name(&self) -> &'static str {
        TRACE
    }

    fn usual_clients(&self) -> Option<usize> {
        Some(self.trace.clients())
    }

    fn set_clients(&self, clients: usize) {
        self.clients.store(clients, Ordering::Relaxed);
    }

    fn plan(&self, client: u64, _: &mut Pcg64Mcg) -> Plan {
        let mut places = locked(&self.places);
        let place = places.entry(client).or_insert_with(|| self.first_place(client as usize));
        let Lap { steps, first } = &*place.lap;
        let (number, usual) = steps[place.next];
        let think = if place.is_new && place.next == 0 { *first } else { usual };
        place.next = (place.next + 1) % steps.len();
        place.is_new = false;
        Plan::Traced { number, think: if self.thinks { think } else { Duration::ZERO } }
    }

    fn think(&self, plan: &Plan) -> Duration {
        match plan {
            Plan::Traced { think, .. } => *think,
            _ => Duration::ZERO,
        }
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        let what = self.transaction(plan);
        let writes = !what.writes.is_empty() || !what.modifies.is_empty();
        match (what.reads.is_empty(), writes) {
            (_, false) => "read-only",
            (false, true) => "read-write",
            (true, true) => "write",
        }
    }

    fn only_reads(&self, plan: &Plan) -> bool {
        self.transaction(plan).form == Form::ReadOnly
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, _: bool) -> Run<'a> {
        Box::pin(async move {
            self.run_traced(self.transaction(plan), &transaction).await?;
            Ok(Vec::new())
        })
    }

    fn one_shot(&self, plan: &Plan) -> Option<OneShot> {
        let what = self.transaction(plan);
        if what.form != Form::Batch {
            return None;
        }
        let write = |ReportedWrite { key, bytes }: &ReportedWrite<u32>| Write {
            key: self.key(*key).clone(),
            value: bytes.map(|bytes| self.value(*key, bytes, 0)),
        };
        let modifies = what.modifies.iter().flat_map(|modify| {
            let modifications = modify.modifications.iter();
            modifications
                .map(|what| (self.key(modify.key).clone(), self.modification(modify.key, *what)))
        });
        Some(OneShot {
            reads: what.reads.iter().map(|read| self.key(read.key).clone()).collect(),
            writes: what.writes.iter().map(write).collect(),
            modifies: modifies.collect(),
            fill: |_: &[MicroOperation], _| Vec::new(),
        })
    }

    fn limits(&self) -> Limits {
        limits(&self.trace)
    }

    fn foreign_keys(&self) -> &[Key] {
        self.trace.keys()
    }

    fn keeps_pauses(&self) -> bool {
        self.thinks
    }

    fn keeps_histories(&self) -> bool {
        false
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        let key = *self.present.get(usize::try_from(i).ok()?)?;
        Some((self.trace.keys()[key].clone(), self.initially(key)?))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.initially(*self.numbers.get(key)?)
    }
}
