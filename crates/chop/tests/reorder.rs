//! Calls of TPC-C interleave, and their deferred pieces are executed at the end, in an order that the conflicts of the
//! immediate pieces allow. The rows and results are those of the calls one after another in this order.

mod rows;

use std::collections::BTreeSet;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rows::Rows;
use serried_chop::{check, compile};
use serried_procedures::{Call, Datum, Piece, Procedure, ProcedureSet, Start, StoredRow};

const CALLS: usize = 6;
const SEEDS: u64 = 300;

fn tpcc() -> ProcedureSet {
    let mut set = compile(include_str!("../procedures/tpcc.toml")).unwrap();
    check(&mut set).unwrap();
    set
}

fn insert(
    set: &ProcedureSet,
    rows: &mut Rows,
    table: &str,
    key: &[Datum],
    columns: &[(&str, Datum)],
) {
    let at = set.tables.iter().position(|known| known.name == table).unwrap();
    let mut row = set.tables[at].defaults();
    for (column, datum) in columns {
        row[set.tables[at].column(column).unwrap()] = datum.clone();
    }
    rows.rows.insert((at as u16, key.to_vec()), row.into());
}

/// Two warehouses of two districts with three customers each, and four items.
fn loaded(set: &ProcedureSet) -> Rows {
    let mut rows = Rows::default();
    let int = Datum::Int;
    for item in 0..4 {
        insert(set, &mut rows, "item", &[int(item)], &[("price", int(100 + item))]);
    }
    for w in 0..2 {
        for item in 0..4 {
            let columns = [("quantity", int(12 + item)), ("info", "shelf".into())];
            insert(set, &mut rows, "stock", &[int(w), int(item)], &columns);
        }
        for d in 0..2 {
            let columns =
                [("warehouse_name", "house".into()), ("tax", int(300)), ("warehouse_tax", int(50))];
            insert(set, &mut rows, "district", &[int(w), int(d)], &columns);
            let named = [("customers", Datum::list((0..3).map(int)))];
            insert(set, &mut rows, "customers_named", &[int(w), int(d), "name".into()], &named);
            for c in 0..3 {
                let columns = [("credit", "BC".into()), ("discount", int(100 * c))];
                insert(set, &mut rows, "customer", &[int(w), int(d), int(c)], &columns);
            }
        }
    }
    rows
}

/// A call with random inputs, few of them, so that calls conflict.
fn random_call<'s>(
    set: &'s ProcedureSet,
    number: usize,
    rng: &mut Pcg64Mcg,
) -> (&'s Procedure, Vec<Datum>) {
    let mut below = |end: i64| rng.random_range(0..end);
    let (w, d, c, time) = (below(2), below(2), below(3), 1_000 + number as i64);
    let (name, inputs): (&str, Vec<Datum>) = match below(3) {
        0 => {
            let lines = 1 + below(4);
            let line = |_| Datum::record([below(4), below(2), 1 + below(9)].map(Datum::Int));
            let lines = Datum::list((0..lines).map(line));
            ("new_order", vec![w.into(), d.into(), c.into(), time.into(), lines])
        }
        1 => {
            let (amount, by_name) = (1 + below(99), below(2) == 0);
            let place = [w, d, below(2), below(2)].map(Datum::Int);
            let rest =
                [by_name.into(), c.into(), "name".into(), amount.into(), time.into(), time.into()];
            ("payment", place.into_iter().chain(rest).collect())
        }
        _ => {
            let districts = Datum::list([0, 1].map(Datum::Int));
            ("delivery", vec![w.into(), below(9).into(), time.into(), districts])
        }
    };
    (set.procedures.iter().find(|procedure| procedure.name == name).unwrap(), inputs)
}

/// A column of a row that a piece has used, and whether it has written it.
type Access = (u16, Vec<Datum>, u16, bool);

/// What a piece has done to its rows.
fn accesses(piece: &Piece, rows: &mut Rows) -> BTreeSet<Access> {
    let body = &piece.body;
    let read = body
        .rows
        .iter()
        .flat_map(|row| row.reads.iter().map(|(column, _)| (row.table, *column, false)));
    let table_of = |row: u16| body.rows[usize::from(row)].table;
    let written = body.writes.iter().map(|write| (table_of(write.row), write.column, true));
    let columns: Vec<(u16, u16, bool)> = read.chain(written).collect();
    let used = core::mem::take(&mut rows.used);
    let of_row = |(table, key): (u16, Vec<Datum>)| {
        let of_table = columns.clone().into_iter().filter(move |(of, ..)| *of == table);
        of_table.map(move |(table, column, writes)| (table, key.clone(), column, writes))
    };
    used.into_iter().flat_map(of_row).collect()
}

fn conflict(one: &BTreeSet<Access>, other: &BTreeSet<Access>) -> bool {
    one.iter().any(|(table, key, column, writes)| {
        let writing = (*table, key.clone(), *column, true);
        let reading = (*table, key.clone(), *column, false);
        other.contains(&writing) || (*writes && other.contains(&reading))
    })
}

/// A call under way.
struct Running<'s> {
    procedure: &'s Procedure,
    call: Call,
    ready: Vec<Start>,
    deferred: Vec<Start>,
}

impl<'s> Running<'s> {
    fn new((procedure, inputs): (&'s Procedure, Vec<Datum>)) -> Running<'s> {
        let call = Call::new(procedure, inputs).unwrap();
        let mut running = Running { procedure, call, ready: Vec::new(), deferred: Vec::new() };
        running.start();
        running
    }

    fn start(&mut self) {
        self.ready.extend(self.call.start(self.procedure).unwrap());
    }

    fn piece(&self, start: &Start) -> &'s Piece {
        &self.procedure.pieces[usize::from(start.piece.0)]
    }

    fn execute(&mut self, set: &ProcedureSet, start: &Start, rows: &mut Rows) {
        let outputs = self.piece(start).body.execute(&set.tables, &start.arguments, rows).unwrap();
        self.call.executed(self.procedure, (start.piece, start.occurrence), outputs).unwrap();
        self.start();
    }
}

/// What calls leave behind: the rows, and the results of each.
#[derive(PartialEq)]
struct Outcome(std::collections::BTreeMap<rows::Place, StoredRow>, Vec<Vec<Datum>>);

fn outcome(rows: Rows, calls: &[Running<'_>]) -> Outcome {
    let results = calls.iter().map(|running| {
        assert!(running.call.has_executed_all());
        running.call.results(running.procedure).unwrap()
    });
    Outcome(rows.rows, results.collect())
}

/// Executes the calls one after another.
fn serial(set: &ProcedureSet, calls: &[(&Procedure, Vec<Datum>)], order: &[usize]) -> Outcome {
    let mut rows = loaded(set);
    let mut running: Vec<Running<'_>> = calls.iter().cloned().map(Running::new).collect();
    for at in order {
        while !running[*at].ready.is_empty() {
            let start = running[*at].ready.remove(0);
            running[*at].execute(set, &start, &mut rows);
        }
    }
    outcome(rows, &running)
}

/// Interleaves the calls. Returns what they leave behind, and the serial order in which deferred pieces were executed. If
/// `defers` is false, they are executed when they arrive.
fn interleaved(
    set: &ProcedureSet,
    calls: &[(&Procedure, Vec<Datum>)],
    defers: bool,
    rng: &mut Pcg64Mcg,
) -> (Outcome, Vec<usize>) {
    let mut rows = loaded(set);
    let mut running: Vec<Running<'_>> = calls.iter().cloned().map(Running::new).collect();
    let mut executed: Vec<(usize, BTreeSet<Access>)> = Vec::new();
    // For each call, those that come before it.
    let mut before = vec![BTreeSet::new(); calls.len()];
    loop {
        let ready: Vec<usize> =
            (0..calls.len()).filter(|at| !running[*at].ready.is_empty()).collect();
        let Some(at) = ready.choose(rng).copied() else { break };
        let place = rng.random_range(0..running[at].ready.len());
        let start = running[at].ready.remove(place);
        let piece = running[at].piece(&start);
        if defers && !piece.immediate {
            running[at].deferred.push(start);
            continue;
        }
        rows.used.clear();
        running[at].execute(set, &start, &mut rows);
        let used = accesses(piece, &mut rows);
        if piece.immediate {
            let others =
                executed.iter().filter(|(other, with)| *other != at && conflict(with, &used));
            before[at].extend(others.map(|(other, _)| *other));
            executed.push((at, used));
        }
    }
    let (mut order, mut left): (Vec<usize>, BTreeSet<usize>) =
        (Vec::new(), (0..calls.len()).collect());
    while !left.is_empty() {
        let first: Vec<usize> =
            left.iter().copied().filter(|at| before[*at].is_disjoint(&left)).collect();
        let next =
            *first.choose(rng).expect("the conflicts of immediate pieces have a serial order");
        left.remove(&next);
        order.push(next);
    }
    for at in &order {
        for start in core::mem::take(&mut running[*at].deferred) {
            running[*at].execute(set, &start, &mut rows);
        }
    }
    (outcome(rows, &running), order)
}

/// For how many seeds an interleaving is like the serial execution, and in how many the order is not that of the calls.
fn run(defers: bool) -> (u64, u64) {
    let set = tpcc();
    let (mut alike, mut reordered) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let calls: Vec<_> = (0..CALLS).map(|number| random_call(&set, number, &mut rng)).collect();
        let (outcome, order) = interleaved(&set, &calls, defers, &mut rng);
        let same = outcome == serial(&set, &calls, &order);
        assert!(
            same || !defers,
            "seed {seed}: the serial execution in the order {order:?} differs"
        );
        alike += u64::from(same);
        reordered += u64::from(!order.is_sorted());
    }
    (alike, reordered)
}

#[test]
fn reordered_pieces_are_like_a_serial_execution() {
    let (alike, reordered) = run(true);
    assert_eq!(alike, SEEDS);
    assert!(reordered > SEEDS / 2, "{reordered} orders are not that of the calls");
}

#[test]
fn pieces_that_are_not_deferred_are_not_like_a_serial_execution() {
    let (alike, _) = run(false);
    assert!(alike < SEEDS * 9 / 10, "{alike} of {SEEDS} are alike");
}
