//! Compiled bodies, executed on rows in memory.

use std::collections::BTreeMap;

use serried_chop::compile;
use serried_procedures::{Datum, ProcedureSet, Refused, RowStore, StoredRow};

/// Rows in memory, and how often they were written.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<(u16, Vec<Datum>), StoredRow>,
    writes: usize,
}

impl RowStore for Rows {
    fn read(&mut self, table: u16, key: &[Datum]) -> Option<StoredRow> {
        self.rows.get(&(table, key.to_vec())).cloned()
    }

    fn write(&mut self, table: u16, key: &[Datum], row: StoredRow) {
        self.writes += 1;
        self.rows.insert((table, key.to_vec()), row);
    }

    fn delete(&mut self, table: u16, key: &[Datum]) {
        self.rows.remove(&(table, key.to_vec()));
    }
}

/// A set with one piece whose parts are `piece`. Its inputs are two integers, a list of integers and a text.
fn set(piece: &str) -> ProcedureSet {
    let text = format!(
        r#"
[tables.t]
key = {{ id = "int" }}
columns = {{ a = "int", b = {{ type = "int", default = 7 }}, text = "string(8)" }}
[tables.log]
key = {{ id = "int", number = "int" }}
placed_by = 1
columns = {{ value = "int" }}
[procedures.p]
inputs = {{ x = "int", y = "int", list = {{ list = "int", max = 5 }}, word = "string(4)" }}
[procedures.p.pieces.piece]
{piece}
"#
    );
    compile(&text).unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// Executes the piece. An argument is found by the place of its input.
fn execute(set: &ProcedureSet, inputs: &[Datum], rows: &mut Rows) -> Result<Vec<Datum>, Refused> {
    let piece = &set.procedures[0].pieces[0];
    let arguments: Vec<Datum> = piece
        .arguments
        .iter()
        .map(|argument| match argument {
            serried_procedures::Argument::Input(at) => inputs[usize::from(*at)].clone(),
            other => panic!("{other:?} is no input"),
        })
        .collect();
    piece.execute(&set.tables, &arguments, rows)
}

fn inputs(x: i64, y: i64) -> [Datum; 4] {
    [Datum::Int(x), Datum::Int(y), Datum::list([3, 1, 3].map(Datum::Int)), Datum::from("wörd")]
}

#[track_caller]
fn evaluates(expression: &str, wanted: impl Into<Datum>) {
    let set =
        set(&format!("rows = {{ t = [\"0\"] }}\nreads = [\"t.a\"]\noutputs.out = {expression:?}"));
    assert_eq!(
        execute(&set, &inputs(7, -2), &mut Rows::default()),
        Ok(vec![wanted.into()]),
        "{expression}"
    );
}

#[test]
fn expressions_have_their_values() {
    evaluates("x + y * 2 - 1", 2);
    evaluates("x / 2", 3);
    evaluates("y % 2 == 0 && !(x < y) || false", true);
    evaluates("x > 5 ? 'large' : 'small'", "large");
    evaluates("-x", -7);
    evaluates("9223372036854775807 + x", i64::MAX);
    evaluates("-9223372036854775807 - x", i64::MIN);
    evaluates("(0 - 9223372036854775807 - 1) / -1", i64::MAX);
    evaluates("math.least(x, y) + math.greatest(x, y)", 5);
    evaluates("size(word) * 10 + list.size()", 43);
    evaluates("left(word, 2) + string(x)", "w7");
    evaluates("sum(list.map(e, e > 1, e * x))", 42);
    evaluates("list.all(e, e > 0) && list.exists(e, e == 1) && !(4 in list)", true);
    evaluates("list.filter(e, e != 1) == [3, 3]", true);
    evaluates("list.distinct() + [x]", Datum::list([3, 1, 7].map(Datum::Int)));
    evaluates("[list, [x]].flatten().size()", 4);
    evaluates("range(y, x, 3)", Datum::list([-2, -1, 0].map(Datum::Int)));
    evaluates("size(range(x, y, 9))", 0);
    evaluates("list[1]", 1);
    evaluates("{'one': x, 'two': list}.two[0]", 3);
    evaluates("list.map(e, {'e': e}).map(r, r.e) == list", true);
    evaluates("t.a", 0);
}

#[test]
fn failures_are_reported_and_nothing_is_written() {
    let fails = |expression: &str, wanted: &str| {
        let set = set(&format!(
            "rows = {{ t = [\"0\"] }}\nwrites.t.a = \"1\"\noutputs.out = {expression:?}"
        ));
        let mut rows = Rows::default();
        let refused = execute(&set, &inputs(0, 9), &mut rows).expect_err(expression);
        assert_eq!((refused.to_string().as_str(), rows.writes), (wanted, 0));
    };
    fails("1 / x", "piece `piece` failed: division by zero");
    fails("1 % x", "piece `piece` failed: division by zero");
    fails("list[y]", "piece `piece` failed: no element 9 in a list of 3; the first is 0");
    fails("list[x - 1]", "piece `piece` failed: no element -1 in a list of 3; the first is 0");
}

#[test]
fn a_check_that_does_not_hold_refuses_with_its_text() {
    let set = set(
        "rows = { t = [\"0\"] }\nchecks = [{ that = \"x > 0\", otherwise = \"x is too small\" }]\nwrites.t.a = \"x\"",
    );
    let mut rows = Rows::default();
    let refused = execute(&set, &inputs(0, 0), &mut rows).unwrap_err();
    assert_eq!((refused.to_string().as_str(), rows.writes), ("x is too small", 0));
    execute(&set, &inputs(1, 0), &mut rows).unwrap();
    assert_eq!(rows.writes, 1);
}

#[test]
fn rows_are_created_with_defaults_changed_and_deleted() {
    let mut rows = Rows::default();
    let create = set(
        "rows = { t = [\"x\"] }\nreads = [\"t\"]\nwrites.t.a = \"y\"\noutputs.out = \"exists(t)\"",
    );
    assert_eq!(execute(&create, &inputs(1, 5), &mut rows), Ok(vec![Datum::Bool(false)]));
    assert_eq!(
        rows.read(0, &[Datum::Int(1)]),
        Some([Datum::Int(5), Datum::Int(7), Datum::from("")].into())
    );
    assert_eq!(execute(&create, &inputs(1, 6), &mut rows), Ok(vec![Datum::Bool(true)]));
    let delete = set("rows = { t = [\"x\"] }\nwrites_if = \"y > 0\"\ndeletes = [\"t\"]");
    execute(&delete, &inputs(1, 0), &mut rows).unwrap();
    assert_eq!(rows.rows.len(), 1, "its condition does not hold");
    execute(&delete, &inputs(1, 1), &mut rows).unwrap();
    assert!(rows.rows.is_empty());
}

#[test]
fn a_key_may_depend_on_a_row_before_it() {
    let mut rows = Rows::default();
    // The table `log` has a row for each number, beside the counter that numbers them.
    let append = set(
        "rows = { counter = { table = \"t\", key = [\"x\"] }, log = [\"x\", \"counter.a\"] }\nreads = [\"counter.a\"]\n\
         writes.counter.a = \"counter.a + 1\"\nwrites.log.value = \"y\"",
    );
    assert_eq!(
        append.procedures[0].pieces[0].body.rows[1].known, 1,
        "the second part is not known before"
    );
    for value in [10, 11] {
        execute(&append, &inputs(1, value), &mut rows).unwrap();
    }
    let log: Vec<_> = rows.rows.iter().filter(|((table, _), _)| *table == 1).collect();
    let entry = |number: i64, value: i64| {
        ((1, vec![Datum::Int(1), Datum::Int(number)]), StoredRow::from([Datum::Int(value)]))
    };
    assert_eq!(
        log,
        [entry(0, 10), entry(1, 11)].iter().map(|(key, row)| (key, row)).collect::<Vec<_>>()
    );
}

#[test]
fn two_accesses_of_one_row_see_one_another() {
    let mut rows = Rows::default();
    let twice = set(
        "rows = { one = { table = \"t\", key = [\"x\"] }, same = { table = \"t\", key = [\"x\"] } }\n\
         reads = [\"one.a\", \"same.b\"]\nwrites = { one.a = \"one.a + 1\", same.b = \"same.b + 1\" }",
    );
    for _ in 0..2 {
        execute(&twice, &inputs(1, 0), &mut rows).unwrap();
    }
    assert_eq!(
        rows.read(0, &[Datum::Int(1)]),
        Some([Datum::Int(2), Datum::Int(9), Datum::from("")].into())
    );
}

#[test]
fn of_two_writes_of_one_column_the_later_remains_and_deletions_come_last() {
    let mut rows = Rows::default();
    // The second parts of both keys are equal.
    let both = "rows = { one = { table = \"log\", key = [\"x\", \"y\"] }, same = { table = \"log\", key = [\"x\", \"x\"] } }\n\
                reads = [\"one.value\", \"same.value\"]\n\
                writes = { same.value = \"one.value + 1\", one.value = \"same.value + 2\" }\n";
    let key = [Datum::Int(1), Datum::Int(1)];
    for wanted in [2, 4] {
        execute(&set(both), &inputs(1, 1), &mut rows).unwrap();
        assert_eq!(rows.read(1, &key), Some([Datum::Int(wanted)].into()));
    }
    execute(&set(&format!("{both}deletes = [\"same\"]")), &inputs(1, 1), &mut rows).unwrap();
    assert!(rows.rows.is_empty());
}
