//! Lists that several processes append to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;
use serried_workload::{ListAppend, OneShot, Parameters, Plan, Run, Workload};

/// How many lists are in use at a time.
const LISTS: u64 = 8;
/// For how long, in milliseconds; then others take their place, so that they don't grow without bounds.
const USED_FOR_MS: u64 = 500;
/// How many elements one client can append. A part of each element names the client.
const ELEMENTS: u64 = 1 << 20;

/// The transactions of [`ListAppend`], which modify some lists and move the others, for processes that do not talk to
/// each other. The time determines which lists are in use, and every client has elements of its own.
pub(super) struct SharedLists {
    lists: ListAppend,
    /// When the first lists came into use, in milliseconds since the Unix epoch.
    begun_ms: u64,
    appended: AtomicU64,
}

impl SharedLists {
    pub(super) fn new(begun_ms: u64) -> SharedLists {
        let parameters = Parameters { modify: true, ..Parameters::default() };
        let lists = ListAppend::new(&parameters).moving();
        SharedLists { lists, begun_ms, appended: AtomicU64::new(0) }
    }

    fn operation(&self, client: u64, random: &mut Pcg64Mcg) -> MicroOperation {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let passed_ms = (now.as_millis() as u64).saturating_sub(self.begun_ms);
        let key = random.random_range(0..LISTS) + LISTS * (passed_ms / USED_FOR_MS);
        if random.random_range(0..2) == 0 {
            let count = self.appended.fetch_add(1, Ordering::Relaxed);
            assert!(count < ELEMENTS, "a client has appended all elements that it has");
            MicroOperation::Append { key, element: client * ELEMENTS + count }
        } else {
            MicroOperation::Read { key, result: ReadResult::Pending }
        }
    }
}

impl Workload for SharedLists {
    fn name(&self) -> &'static str {
        self.lists.name()
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> Plan {
        let count = random.random_range(1..=4);
        (0..count).map(|_| self.operation(client, random)).collect::<Vec<_>>().into()
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        self.lists.run(plan, transaction, record)
    }

    fn one_shot(&self, plan: &Plan) -> Option<OneShot> {
        self.lists.one_shot(plan)
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        self.lists.initial(i)
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.lists.initial_value(key)
    }

    fn records_versions(&self) -> bool {
        self.lists.records_versions()
    }
}
