//! The groups of YCSB as transactions (004 §7.2).

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_history::MicroOperation;

use super::{KEYS, OnRows, Shape, Table, reads, write_share};
use crate::WorkloadError;
use crate::workload::{Parameters, Plan};

/// How many keys a transaction has.
const GROUP: usize = 5;
/// The exponent of the Zipf distribution of keys (004 §7.2).
const THETA: f64 = 0.99;

/// The requests of [`YcsbGroups`](crate::YcsbGroups), for protocols of transactions: reads of 5 records, or writes of 5
/// records that are not read before. There, the writes of a group are independent of one another. Here they are one
/// transaction.
#[derive(Debug)]
pub struct YcsbTransactions {
    writes: f64,
    table: Table,
}

impl YcsbTransactions {
    /// By default a million keys of a Zipf distribution with exponent 0.99, and 5 % writes.
    ///
    /// # Errors
    /// If a parameter is not valid.
    pub fn new(parameters: &Parameters) -> Result<YcsbTransactions, WorkloadError> {
        let writes = write_share(parameters.writes, 0.05)?;
        Ok(YcsbTransactions { writes, table: Table::new(parameters, (KEYS, THETA), shape)? })
    }
}

/// 10 fields of 100 bytes.
fn shape(_: u64, _: [&mut Pcg64Mcg; 2]) -> Shape {
    Shape { columns: 10, bytes: 1000 }
}

impl OnRows for YcsbTransactions {
    const WRITING: &'static str = "write";

    fn label(&self) -> &'static str {
        "ycsb-transactions"
    }

    fn draw(&self, random: &mut Pcg64Mcg) -> Plan {
        let writes = random.random::<f64>() < self.writes;
        let keys = self.table.popularity.draw(GROUP, random);
        if !writes {
            return reads(&keys).collect::<Vec<_>>().into();
        }
        let write = |key| {
            let value = Some(random.random_range(1..u64::MAX));
            MicroOperation::Write { key, value }
        };
        keys.into_iter().map(write).collect::<Vec<_>>().into()
    }

    fn table(&self) -> &Table {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::super::READ_ONLY;
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn a_transaction_reads_or_writes_five_records_and_the_share_of_writes_is_as_asked_for() {
        let parameters = Parameters { writes: Some(0.25), ..Parameters::default() };
        let workload = YcsbTransactions::new(&parameters).unwrap();
        let random = &mut Pcg64Mcg::seed_from_u64(1);
        let mut writes = 0;
        for _ in 0..2000 {
            let plan = workload.plan(0, random);
            let keys: BTreeSet<u64> = plan.operations().iter().map(MicroOperation::key).collect();
            assert_eq!((keys.len(), plan.operations().len()), (GROUP, GROUP));
            let is_read = plan.operations()[0].is_read();
            assert!(plan.operations().iter().all(|operation| operation.is_read() == is_read));
            assert_eq!(workload.kind(&plan), if is_read { READ_ONLY } else { "write" });
            writes += u64::from(!is_read);
        }
        assert!((400..600).contains(&writes), "{writes}");
        assert_eq!(workload.initial(5).unwrap().1.len(), 1000);
        assert!(YcsbTransactions::new(&Parameters { writes: Some(2.0), ..parameters }).is_err());
    }
}
