//! Runs the transactions of a trace again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;
use serried_model::{
    Form, Key, Modification, ReportedModification, ReportedRead, ReportedWrite, TransactionReport,
    Value, Write,
};
use serried_session::{Abort, Transaction};

use super::{Trace, TracedTransaction};
use crate::workload::{OneShot, Plan, Run, Workload};

/// The name of the workload that runs a trace.
pub const TRACE: &str = "trace";

/// The workload that runs a trace. Each client runs the transactions of one of the trace's clients, in their order, and
/// then again from the first.
///
/// - Reads are requested in the rounds of the trace, for update where they were. Writes and modifications follow the
///   reads.
/// - A value that is written has the length of the trace. If the transaction has read the key, it depends on what was
///   found there, so a transaction that is executed again writes something else.
/// - Before the run, the keys hold values of the lengths that were found first. A key that was written first holds one
///   of that length.
/// - If there are more clients than in the trace, several run the same transactions, from different places on. If there
///   are fewer, each runs those of several, in the order in which they began.
#[derive(Debug)]
pub struct Replay {
    trace: Arc<Trace>,
    /// By transaction: how long its client thinks before it. Empty if clients do not think.
    thinks: Vec<Duration>,
    /// By client of the trace: its transactions.
    of_clients: Vec<Vec<usize>>,
    numbers: HashMap<Key, usize>,
    /// By key: what it holds before the run.
    initial: Vec<Option<Value>>,
    /// The keys that hold something before the run.
    present: Vec<usize>,
    /// By key: whether it holds a number, as text.
    is_number: Vec<bool>,
    /// How many clients run it.
    clients: AtomicUsize,
    places: Mutex<BTreeMap<u64, Place>>,
}

/// Where a client is.
#[derive(Debug)]
struct Place {
    transactions: Vec<usize>,
    next: usize,
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
        let initial = initial(&trace, &is_number);
        let present = (0..initial.len()).filter(|key| initial[*key].is_some()).collect();
        Replay {
            thinks: if thinks { think_times(&trace, &of_clients) } else { Vec::new() },
            clients: AtomicUsize::new(trace.clients()),
            trace,
            of_clients,
            numbers,
            initial,
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
            Plan::Traced(number) => *number,
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
            let mut transactions: Vec<usize> = of_several.flatten().copied().collect();
            transactions.sort_unstable();
            return Place { transactions, next: 0 };
        }
        let of_client = client % traced;
        let alike = (clients - of_client).div_ceil(traced);
        let transactions = self.of_clients[of_client].clone();
        let next = client / traced % alike * transactions.len() / alike;
        Place { transactions, next }
    }

    /// What is written to a key in which the transaction has `found` something, if it has read it.
    fn value(&self, key: u32, bytes: u32, found: Option<&Option<Value>>) -> Value {
        let before = found.map_or(0, |found| found.as_ref().map_or(1, first_number));
        if self.is_number[key as usize] {
            return crate::number::decimal(u64::from(before != 0));
        }
        filled(before.wrapping_add(u64::from(found.is_some())), bytes)
    }

    fn modification(&self, key: u32, what: ReportedModification) -> Modification {
        match what {
            ReportedModification::Number => Modification::add(1),
            ReportedModification::Append(bytes) => Modification::AppendWithin {
                suffix: filled(0, bytes),
                most_bytes: MOST_APPENDED.max(bytes as usize),
            },
            ReportedModification::Replace(bytes) => {
                Modification::Set(bytes.map(|bytes| self.value(key, bytes, None)))
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
        for ReportedWrite { key, bytes } in &what.writes {
            let before = found.iter().find(|(read, _)| read == key).map(|(_, value)| value);
            match bytes {
                Some(bytes) => transaction.put(self.key(*key), self.value(*key, *bytes, before)),
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

/// How long each transaction's client thinks before it. Before its first one it thinks as long as it did after its last
/// one and before its first one together.
fn think_times(trace: &Trace, of_clients: &[Vec<usize>]) -> Vec<Duration> {
    let mut thinks = vec![Duration::ZERO; trace.transactions().len()];
    for transactions in of_clients {
        let what = |number: usize| &trace.transactions()[number].what;
        let last = transactions.last().map_or(0, |number| what(*number).ended_ns);
        // Below 0 by the time of the whole recording, of which what follows the last one is a part.
        let mut ended_ns = last as i128 - i128::from(trace.header().lasted_ns);
        for number in transactions {
            let TransactionReport { began_ns, ended_ns: ends_ns, .. } = what(*number);
            let think_ns = i128::from(*began_ns) - ended_ns;
            thinks[*number] = Duration::from_nanos(u64::try_from(think_ns).unwrap_or(0));
            ended_ns = i128::from(*ends_ns);
        }
    }
    thinks
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

/// By key: what it holds before the run.
fn initial(trace: &Trace, is_number: &[bool]) -> Vec<Option<Value>> {
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
    let value = |(bytes, is_number): (Option<Option<u32>>, &bool)| {
        let bytes = bytes.flatten()?;
        Some(if *is_number { crate::number::decimal(0) } else { filled(0, bytes) })
    };
    bytes.into_iter().zip(is_number).map(value).collect()
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
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(client).or_insert_with(|| self.first_place(client as usize));
        let number = place.transactions[place.next];
        place.next = (place.next + 1) % place.transactions.len();
        Plan::Traced(number)
    }

    fn think(&self, plan: &Plan) -> Duration {
        self.thinks.get(self.number(plan)).copied().unwrap_or_default()
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
            value: bytes.map(|bytes| self.value(*key, bytes, None)),
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

    fn keeps_histories(&self) -> bool {
        false
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        let key = *self.present.get(usize::try_from(i).ok()?)?;
        Some((self.trace.keys()[key].clone(), self.initial[key].clone()?))
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.initial[*self.numbers.get(key)?].clone()
    }
}
