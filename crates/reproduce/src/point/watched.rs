//! Watches what clients call, and counts the pieces of calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use serried_procedures::{Call, Datum, Procedure, ProcedureSet, Results, RowStore, StoredRow};
use serried_session::CallError;
use serried_workload::{Loading, PlannedCall, ProcedureWorkload};

/// A workload that knows whose first call has ended, and, if that is wanted, how many pieces calls have.
pub(super) struct Watched {
    workload: Arc<dyn ProcedureWorkload>,
    /// Each call is one of so many clients, drawn at random, as in [`super::terminal::AnyTerminal`]. 0 if it is one of the
    /// client that makes it.
    terminals: u64,
    /// How many calls each client has planned.
    planned: Mutex<BTreeMap<u64, u64>>,
    /// Whether pieces are counted. How many a call has can depend on what it finds. So calls are executed once more, one
    /// after the other as they end, on tables in memory.
    counts_pieces: bool,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    rows: Rows,
    is_loaded: bool,
    /// The calls of each procedure, and their pieces.
    of: BTreeMap<&'static str, (u64, u64)>,
}

impl Watched {
    pub(super) fn new(
        workload: Arc<dyn ProcedureWorkload>,
        terminals: u64,
        counts_pieces: bool,
    ) -> Watched {
        let (planned, counts) = (Mutex::default(), Mutex::default());
        Watched { workload, terminals, planned, counts_pieces, counts }
    }

    /// Whether the first calls of so many clients have ended.
    pub(super) fn have_begun(&self, clients: usize) -> bool {
        let planned = self.planned.lock().expect("nobody panics while planning");
        planned.values().filter(|planned| **planned > 1).count() == clients
    }

    /// The mean number of pieces of a call, by procedure.
    pub(super) fn means(&self) -> BTreeMap<String, f64> {
        let counts = self.counts.lock().expect("nobody panics while counting");
        let mean = |(name, (calls, pieces)): (&&str, &(u64, u64))| {
            (name.to_string(), *pieces as f64 / *calls as f64)
        };
        counts.of.iter().map(mean).collect()
    }

    fn count(&self, planned: &PlannedCall) {
        let counts = &mut *self.counts.lock().expect("nobody panics while counting");
        if !core::mem::replace(&mut counts.is_loaded, true)
            && let Some(loading) = self.workload.loading()
        {
            for i in 0..loading.calls() {
                execute(loading.set(), &self.workload.load(i), &mut counts.rows);
            }
        }
        if let Some(pieces) = execute(self.workload.set(), planned, &mut counts.rows) {
            let (calls, all) = counts.of.entry(planned.procedure).or_default();
            *calls += 1;
            *all += pieces;
        }
    }
}

impl ProcedureWorkload for Watched {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn set(&self) -> &Arc<ProcedureSet> {
        self.workload.set()
    }

    fn loading(&self) -> Option<&Loading> {
        self.workload.loading()
    }

    fn load(&self, i: u64) -> PlannedCall {
        self.workload.load(i)
    }

    fn plan(&self, client: u64, random: &mut Pcg64Mcg) -> PlannedCall {
        let mut planned = self.planned.lock().expect("nobody panics while planning");
        *planned.entry(client).or_default() += 1;
        let terminal = match self.terminals {
            0 => client,
            terminals => random.random_range(0..terminals),
        };
        self.workload.plan(terminal, random)
    }

    fn ended(&self, planned: &PlannedCall, result: &Result<Results, CallError>) {
        if self.counts_pieces && result.is_ok() {
            self.count(planned);
        }
        self.workload.ended(planned, result);
    }
}

/// Executes a call. Returns how many pieces it has; `None` if it is refused.
fn execute(set: &ProcedureSet, planned: &PlannedCall, rows: &mut Rows) -> Option<u64> {
    let procedure: &Procedure = set.procedure(planned.procedure)?;
    let mut call = Call::new(procedure, planned.inputs.clone()).ok()?;
    let mut pieces = 0;
    while !call.has_executed_all() {
        for start in call.start(procedure).ok()? {
            pieces += 1;
            let body = &procedure.pieces[usize::from(start.piece.0)].body;
            let outputs = body.execute(&set.tables, &start.arguments, rows).ok()?;
            call.executed(procedure, (start.piece, start.occurrence), outputs).ok()?;
        }
    }
    Some(pieces)
}

/// Rows in memory.
#[derive(Default)]
struct Rows(BTreeMap<(u16, Vec<Datum>), StoredRow>);

impl RowStore for Rows {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.0.get(&(table, key.to_vec())).cloned()
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.0.insert((table, key.to_vec()), row);
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.0.remove(&(table, key.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use serried_workload::{ProcedureParameters, named_procedures};

    use super::*;

    #[test]
    fn pieces_that_occur_for_each_element_count_each_time() {
        let parameters = ProcedureParameters { small: true, ..ProcedureParameters::default() };
        let tpcc = named_procedures("tpcc-calls", &parameters).unwrap();
        let counted = Watched::new(tpcc, 0, true);
        assert!(!counted.have_begun(1));
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for _ in 0..300 {
            counted.count(&counted.plan(0, &mut random));
        }
        assert!(counted.have_begun(1) && !counted.have_begun(2));
        let means = counted.means();
        assert_eq!((means["payment"], means["delivery"]), (5.0, 2.0), "two districts");
        // Two pieces, and four for each of 5 to 15 items.
        assert!((36.0..48.0).contains(&means["new_order"]), "{means:?}");
        assert!(means["stock_level"] > 100.0, "{means:?}");
    }
}
