//! One-shot transactions on rows of many columns, as the front ends of a datacentre send them to their storage (003
//! §6.1, Figures 5 and 6).
//!
//! [`F1`], [`Tao`] and [`YcsbTransactions`] have their keys from a [`Popularity`] and their values from a [`Table`].

mod calls;
mod f1;
mod popularity;
mod table;
mod tao;
mod ycsb;

pub use calls::OneShotCalls;
pub use f1::F1;
pub use tao::Tao;
pub use ycsb::YcsbTransactions;

use popularity::Popularity;
use table::{Shape, Table};

use rand_pcg::Pcg64Mcg;
use serried_history::{MicroOperation, ReadResult};
use serried_model::{Key, Value};
use serried_session::Transaction;

use crate::workload::{Plan, Run, Workload};
use crate::{KindReport, OneShot, Report, WorkloadError};

/// The exponent of the Zipf distribution of keys (003 Fig. 5).
const THETA: f64 = 0.8;
/// How many keys there are (003 §6.1).
const KEYS: u64 = 1_000_000;
/// The kind of transactions that only read.
const READ_ONLY: &str = "read-only";

/// A workload of one-shot transactions on the rows of a table.
trait OnRows: Send + Sync + 'static {
    /// The kind of transactions that do not only read.
    const WRITING: &'static str;

    /// The workload's name.
    fn label(&self) -> &'static str;

    /// The next plan of any client: reads followed by writes that do not depend on them.
    fn draw(&self, random: &mut Pcg64Mcg) -> Plan;

    fn table(&self) -> &Table;
}

impl<W: OnRows> Workload for W {
    fn name(&self) -> &'static str {
        self.label()
    }

    fn plan(&self, _: u64, random: &mut Pcg64Mcg) -> Plan {
        self.draw(random)
    }

    fn kind(&self, plan: &Plan) -> &'static str {
        if plan.only_reads() { READ_ONLY } else { W::WRITING }
    }

    fn run<'a>(&'a self, plan: &'a Plan, transaction: Transaction, record: bool) -> Run<'a> {
        self.table().run(plan, transaction, record)
    }

    fn one_shot(&self, plan: &Plan) -> Option<OneShot> {
        Some(self.table().one_shot(plan))
    }

    fn initial(&self, i: u64) -> Option<(Key, Value)> {
        self.table().initial(i)
    }

    fn initial_value(&self, key: &Key) -> Option<Value> {
        self.table().initial_value(key)
    }

    fn figures(&self, report: &Report) -> Vec<(&'static str, f64)> {
        figures(report)
    }
}

/// Reads of these keys, as in a plan.
fn reads(keys: &[u64]) -> impl Iterator<Item = MicroOperation> {
    keys.iter().map(|key| MicroOperation::Read { key: *key, result: ReadResult::Pending })
}

/// The share of transactions that write, or the usual one.
fn write_share(asked_for: Option<f64>, usual: f64) -> Result<f64, WorkloadError> {
    let share = asked_for.unwrap_or(usual);
    (0.0..=1.0).contains(&share).then_some(share).ok_or(WorkloadError::WriteShare(share))
}

/// The median latencies of read-only transactions, by which systems are compared (003 Fig. 7), and of the others.
fn figures(report: &Report) -> Vec<(&'static str, f64)> {
    let is_read = |kind: &KindReport| kind.kind == READ_ONLY;
    let figure = |kind: &KindReport| {
        let name = if is_read(kind) { "read_latency_us_p50" } else { "write_latency_us_p50" };
        (name, kind.latency_us_p50 as f64)
    };
    report.kinds.iter().map(figure).collect()
}
