//! Clients without a terminal of their own.

use std::sync::Arc;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;
use serried_model::{Key, Value};
use serried_session::{Footprint, Transaction};
use serried_workload::{Plan, Run, Workload};

/// A workload in which each transaction comes from a terminal that is drawn at random. In the workload itself, each
/// client has a fixed terminal.
///
/// The paper assumes this: with its 100 warehouses, "two Payment transactions modifying the same row conflict with a
/// probability of 1 %" (000 §5.1.2), which is true if each transaction draws its warehouse. With fixed terminals, as in
/// TPC-C, 100 clients would hardly ever conflict.
pub(crate) struct AnyTerminal {
    workload: Arc<dyn Workload>,
    terminals: u64,
}

impl AnyTerminal {
    /// Transactions of `workload` from any of `terminals` terminals.
    pub(crate) fn new(workload: Arc<dyn Workload>, terminals: u64) -> AnyTerminal {
        assert!(terminals > 0, "a transaction comes from somewhere");
        AnyTerminal { workload, terminals }
    }
}

impl Workload for AnyTerminal {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        let terminal = random.random_range(0..self.terminals);
        self.workload.plan(terminal, random)
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        self.workload.kind(plan)
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        self.workload.run(plan, transaction, record)
    }

    fn operations(&self, done: Vec<MicroOperation>, footprint: &Footprint) -> Vec<MicroOperation> {
        self.workload.operations(done, footprint)
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        self.workload.initial(i)
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.workload.initial_value(key)
    }

    fn records_versions(&self) -> bool {
        self.workload.records_versions()
    }
}
