//! Appends to lists and reads of lists. From their history, the order of all writes can be recovered.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Modification, Value, Version};
use serried_session::{Abort, Transaction};

use crate::number;
use crate::workload::{OneShot, Parameters, Plan, Run, Workload};

/// A list that has grown to this length is no longer used, and another one takes its place.
const LONGEST: u64 = 64;

/// The difference between the two keys of a list, if lists move.
const ELSEWHERE: u64 = 1 << 63;

/// By how much the numbers of the first lists of two runs differ for each millisecond between their beginnings.
const LISTS_PER_MS: u64 = 1 << 20;

/// If lists move, one in this many appends moves its list.
const APPENDS_TO_MOVE: u64 = 4;

/// Transactions of one to four operations. Each operation appends a unique number or reads the whole list.
///
/// With [`Parameters::modify`], one append in four still reads the list and writes it, and one waits for the result of a
/// modification. Half of the transactions are batches, if they read no list that they have appended to.
#[derive(Debug)]
pub struct ListAppend {
    keys: u64,
    /// See [`ListAppend::moving`].
    moves: bool,
    /// See [`Parameters::modify`].
    modify: bool,
    /// The number of the first list. See [`Workload::start_afresh`].
    first: AtomicU64,
    popularity: Zipf<f64>,
    appended: Vec<AtomicU64>,
    elements: AtomicU64,
}

impl ListAppend {
    /// By default eight lists at a time.
    pub fn new(parameters: &Parameters) -> ListAppend {
        let keys = parameters.keys.unwrap_or(8).max(1);
        let popularity = Zipf::new(keys as f64, parameters.theta_or(0.9));
        ListAppend {
            keys,
            moves: false,
            modify: parameters.modify,
            first: AtomicU64::new(0),
            popularity: popularity.expect("a positive number of keys and an exponent from 0 on"),
            appended: (0..keys).map(|_| AtomicU64::new(0)).collect(),
            elements: AtomicU64::new(1),
        }
    }
}

impl ListAppend {
    /// The same with lists that move, each between two keys. Some appends delete a list at one key and write it to the
    /// other, and reads read both. So keys are deleted and written again all the time, and still the history is one of
    /// lists that only grow. A lost delete shows as duplicate elements, and a delete that takes effect late shows as
    /// missing elements.
    #[must_use]
    pub fn moving(self) -> ListAppend {
        ListAppend { moves: true, ..self }
    }

    /// Whether a list moves. If some of them are modified, those don't.
    fn moves(&self, key: u64) -> bool {
        self.moves && !self.modifies(key)
    }

    /// Whether a list is modified: all of them, or every other one if lists move.
    fn modifies(&self, key: u64) -> bool {
        self.modify && (!self.moves || key.is_multiple_of(2))
    }

    /// The elements of a list, its present key, and its other key.
    async fn find(
        &self,
        transaction: &Transaction,
        key: u64,
        for_update: bool,
    ) -> Result<Found, Abort> {
        let [here, there] = [key, key | ELSEWHERE].map(|key| number::key(key, 8));
        let moves = self.moves(key);
        let keys = if moves { vec![&here, &there] } else { vec![&here] };
        let updated = if for_update { keys.len() } else { 0 };
        let lists = transaction.get_many(keys).for_update(..updated).await?;
        if !moves {
            return Ok(Found { list: decode(&lists[0]), here, there });
        }
        // A list is never at both keys. If it seems to be, both contents are shown.
        let list = lists.iter().flat_map(decode).collect();
        Ok(match lists[1] {
            Some(_) => Found { list, here: there, there: here },
            None => Found { list, here, there },
        })
    }

    fn operation(&self, random: &mut Pcg64Mcg) -> MicroOperation {
        let place = self.popularity.sample(random) as u64 - 1;
        let append = random.random_range(0..2) == 0;
        let appended = &self.appended[place as usize];
        let count = appended.fetch_add(u64::from(append), Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        let key = first + place + self.keys * (count / LONGEST);
        if append {
            let element = self.elements.fetch_add(1, Ordering::Relaxed);
            MicroOperation::Append { key, element }
        } else {
            MicroOperation::Read { key, result: ReadResult::Pending }
        }
    }
}

/// A list and its keys.
struct Found {
    list: Vec<u64>,
    /// The key that it is at, or will be at.
    here: Key,
    /// The other one.
    there: Key,
}

impl Workload for ListAppend {
    fn name(&self) -> &'static str {
        "list-append"
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let count = random.random_range(1..=4);
        (0..count).map(|_| self.operation(random)).collect::<Vec<_>>().into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        Box::pin(async move {
            let mut done = Vec::new();
            for operation in plan.operations() {
                match operation {
                    MicroOperation::Append { key, element }
                        if self.modifies(*key) && element % 4 < 3 =>
                    {
                        let appending = transaction.modify(number::key(*key, 8), append(*element));
                        if element % 4 == 0 && !appending.await?.applied {
                            return Err(Abort::new("a list has become too long"));
                        }
                        done.push(operation.clone());
                    }
                    MicroOperation::Append { key, element } => {
                        let Found { mut list, here, there } =
                            self.find(&transaction, *key, true).await?;
                        list.push(*element);
                        if self.moves(*key) && element.is_multiple_of(APPENDS_TO_MOVE) {
                            transaction.delete(here);
                            transaction.put(there, encode(&list));
                        } else {
                            transaction.put(here, encode(&list));
                        }
                        done.push(operation.clone());
                    }
                    MicroOperation::Read { key, .. } => {
                        let list = self.find(&transaction, *key, false).await?.list;
                        let result = ReadResult::List(list);
                        done.push(MicroOperation::Read { key: *key, result });
                    }
                    MicroOperation::Write { .. } => unreachable!("lists are appended to"),
                }
            }
            if !record {
                done.clear();
            }
            Ok(done)
        })
    }

    fn one_shot(&self, plan: &Plan) -> Option<OneShot> {
        let (mut reads, mut modifies) = (Vec::new(), Vec::new());
        for operation in plan.operations() {
            let key = number::key(operation.key(), 8);
            match operation {
                MicroOperation::Append { element, .. } => modifies.push((key, append(*element))),
                _ if modifies.iter().any(|(appended, _)| *appended == key) => return None,
                _ => reads.push(key),
            }
        }
        let all_modify = plan.operations().iter().all(|operation| self.modifies(operation.key()));
        let is_batch = all_modify && plan.operations().len().is_multiple_of(2);
        is_batch.then(|| OneShot { reads, writes: Vec::new(), modifies, fill })
    }

    /// The lists of earlier runs remain, and new ones are used: no run gets to the lists of one that begins a
    /// second later.
    fn start_afresh(&self, after: Version) {
        self.first.store(after.timestamp_us / 1000 * LISTS_PER_MS % ELSEWHERE, Ordering::Relaxed);
    }

    fn initial(&self, _: u64) -> Option<(Key, Value)> {
        None
    }

    fn initial_value(&self, _: &Key) -> Option<Value> {
        None
    }

    fn records_versions(&self) -> bool {
        false
    }
}

/// Appends an element to a list.
fn append(element: u64) -> Modification {
    Modification::Append(Value::from(element.to_be_bytes()))
}

/// A batch, with what its reads have found.
fn fill(plan: &[MicroOperation], values: &[Option<Value>]) -> Vec<MicroOperation> {
    let mut values = values.iter();
    let fill = |operation: &MicroOperation| match operation {
        MicroOperation::Read { key, .. } => {
            let result = ReadResult::List(values.next().map(decode).unwrap_or_default());
            MicroOperation::Read { key: *key, result }
        }
        other => other.clone(),
    };
    plan.iter().map(fill).collect()
}

fn encode(list: &[u64]) -> Value {
    let bytes: Vec<u8> = list.iter().flat_map(|element| element.to_be_bytes()).collect();
    Value::from(bytes)
}

fn decode(value: &Option<Value>) -> Vec<u64> {
    let bytes = value.as_ref().map_or(&[][..], Value::as_bytes);
    bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_be_bytes(*chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    /// The lists of a run that begins after this time, if any was before it.
    fn lists(after_us: Option<u64>) -> BTreeSet<u64> {
        let workload = ListAppend::new(&Parameters::default());
        if let Some(after_us) = after_us {
            workload.start_afresh(Version::at(after_us));
        }
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let plans = (0..10_000).map(|_| workload.plan(0, &mut random));
        let keys = plans.flat_map(|plan| {
            let key = |operation: &MicroOperation| match operation {
                MicroOperation::Append { key, .. } | MicroOperation::Read { key, .. } => *key,
                MicroOperation::Write { .. } => unreachable!("lists are appended to"),
            };
            plan.operations().iter().map(key).collect::<Vec<_>>()
        });
        keys.collect()
    }

    #[test]
    fn a_run_on_a_used_keyspace_has_lists_of_its_own() {
        let now_us = 1_700_000_000_000_000;
        let [first, second, third] = [None, Some(now_us), Some(now_us + 1_000_000)].map(lists);
        assert!(first.len() > 100 && first.is_disjoint(&second) && second.is_disjoint(&third));
        assert!(third.iter().all(|list| *list < ELSEWHERE));
    }
}
